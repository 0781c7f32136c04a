// SPDX-License-Identifier: Apache-2.0
//! What the kernel responder needs while the agent runs: its lease, and the loader again when devices or addresses have changed.
//!
//! Part of the event loop: one descriptor (an epoll of its own) and one deadline. Wakes up once in a 24th of the lease, and for what rtnetlink tells.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::rc::Rc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::child::Task;
use super::load::{CollectorState, DeviceState, Report};
use super::watch::{Known, Watch};
use super::{Kernel, child, roce, user};
use crate::config;
use crate::counters::{Counter, Counters};
use crate::host;
use crate::system::{self, KERNEL_CAPABILITIES};

/// Renewals in a lease.
const RENEWALS: u64 = 24;
/// Changes come in groups.
const SETTLE_NS: u64 = 1_000_000_000;

/// The upkeep.
#[derive(Debug)]
pub struct Upkeep {
    kernel: Rc<Kernel>,
    config: config::Kernel,
    counters: Counters,
    epoll: OwnedFd,
    watch: Option<Watch>,
    devices: Vec<DeviceState>,
    known: Known,
    /// What was last said of a loader that failed.
    failure: Option<String>,
    renew_at_ns: u64,
    load_at_ns: Option<u64>,
    loader: Option<(Child, OwnedFd)>,
    collecting: Option<(Child, OwnedFd)>,
}

const WATCH: u64 = 0;
const LOADER: u64 = 1;
const COLLECTING: u64 = 2;

impl Upkeep {
    /// For a responder that was just put right.
    ///
    /// # Errors
    /// No epoll.
    pub fn new(
        kernel: Rc<Kernel>,
        config: &config::Kernel,
        counters: Counters,
        report: Report,
        now_ns: u64,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let watch = Watch::new().and_then(|watch| {
            epoll::add(&epoll, &watch, EventData::new_u64(WATCH), EventFlags::IN)?;
            Ok(watch)
        });
        if let Err(error) = &watch {
            system::log(&format!(
                "warning: changes of devices and addresses are noticed with the next renewal of the lease only: netlink: {error}"
            ));
        }
        if config.roce {
            roce::warnings().iter().for_each(|warning| system::log(warning));
        }
        counters.add(Counter::KernelLoads, 1);
        Ok(Self {
            kernel,
            config: config.clone(),
            counters,
            epoll,
            watch: watch.ok(),
            known: Known::of(&report.devices),
            devices: report.devices,
            failure: None,
            renew_at_ns: now_ns.saturating_add(config.lease.as_ns() / RENEWALS),
            load_at_ns: None,
            loader: None,
            collecting: None,
        })
    }

    /// A loader that installs collectors, started while there were still all capabilities; [`Upkeep::ready`] returns what it reports. False: there is none.
    pub fn await_collectors(&mut self, child: io::Result<Child>) -> bool {
        let watched = child.and_then(|child| Ok((self.watch_child(&child, COLLECTING)?, child)));
        match watched {
            Ok((pidfd, child)) => self.collecting = Some((child, pidfd)),
            Err(error) => self.fail(format!("starting the loader of kernel metrics: {error}")),
        }
        self.collecting.is_some()
    }

    /// When [`Upkeep::expire`] has something to do next.
    #[must_use]
    pub fn next_deadline_ns(&self) -> u64 {
        self.load_at_ns.filter(|_| self.loader.is_none()).unwrap_or(u64::MAX).min(self.renew_at_ns)
    }

    /// Does what is due.
    pub fn expire(&mut self, now_ns: u64) {
        if self.renew_at_ns <= now_ns {
            if let Err(error) = self.kernel.renew(self.config.lease.as_duration()) {
                self.counters.add(Counter::KernelErrors, 1);
                system::log(&format!("warning: the kernel responder's lease is not renewed: {error}"));
            }
            self.renew_at_ns = now_ns.saturating_add(self.config.lease.as_ns() / RENEWALS);
            // One without addresses may be a bridge's port, whose bridge is not watched.
            let is_whole = |device: &DeviceState| device.error.is_none() && !device.addresses.is_empty();
            if self.watch.is_none() || !self.devices.iter().all(is_whole) {
                self.load_at_ns.get_or_insert(now_ns);
            }
        }
        if self.loader.is_none() && self.load_at_ns.is_some_and(|at| at <= now_ns) {
            self.load_at_ns = None;
            self.start();
        }
    }

    fn start(&mut self) {
        let started = system::with_capabilities(KERNEL_CAPABILITIES, || child::spawn(&self.config, Task::PutRight));
        let watched = started.and_then(|mut child| match self.watch_child(&child, LOADER) {
            Ok(pidfd) => Ok((child, pidfd)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        });
        match watched {
            Ok(loader) => self.loader = Some(loader),
            Err(error) => self.fail(format!("starting the loader: {error}")),
        }
    }

    fn watch_child(&self, child: &Child, token: u64) -> io::Result<OwnedFd> {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        epoll::add(&self.epoll, &pidfd, EventData::new_u64(token), EventFlags::IN)?;
        Ok(pidfd)
    }

    /// Something has happened on our descriptor. Returns what the collectors' loader reports, when it does; nothing where it failed.
    pub fn ready(&mut self, now_ns: u64) -> Option<Vec<CollectorState>> {
        let mut events = Vec::with_capacity(4);
        let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&zero)).ok()?;
        let mut collectors = None;
        for event in &events {
            match event.data.u64() {
                WATCH => {
                    if self.watch.as_mut().is_some_and(|watch| watch.is_changed(&self.known)) {
                        self.load_at_ns.get_or_insert(now_ns.saturating_add(SETTLE_NS));
                    }
                }
                LOADER => {
                    if let Some((child, _pidfd)) = self.loader.take() {
                        self.take(child::finish(child));
                    }
                }
                _ => {
                    if let Some((child, _pidfd)) = self.collecting.take() {
                        collectors = Some(self.take_collectors(child::finish(child)));
                    }
                }
            }
        }
        collectors
    }

    fn take_collectors(&self, report: Report) -> Vec<CollectorState> {
        if let Some(error) = report.error {
            self.counters.add(Counter::KernelErrors, 1);
            system::log(&format!("warning: no kernel metrics are computed: {error}"));
        }
        if let Some(error) = report.connections {
            self.counters.add(Counter::KernelErrors, 1);
            system::log(&format!("warning: TCP connections are not read: {error}"));
        }
        for collector in report.collectors.iter().filter(|one| one.error.is_some() || !one.left_out.is_empty()) {
            system::log(&format!("warning: {collector}"));
        }
        let is_news =
            |one: &&CollectorState| one.left_out.is_empty() && (one.published_ns.is_some() || user::is_user(one));
        let is_computed = report.collectors.iter().any(|one| one.error.is_none());
        self.counters.set(Counter::CollectorsChecked, if is_computed { host::boot_time_ns() } else { 0 });
        report.collectors.iter().filter(is_news).for_each(|collector| system::log(&collector.to_string()));
        report.collectors
    }

    fn take(&mut self, report: Report) {
        self.counters.add(Counter::KernelLoads, 1);
        if let Some(error) = report.error {
            return self.fail(error);
        }
        self.failure = None;
        for device in report.devices.iter().filter(|device| !self.devices.contains(device)) {
            system::log(&device.to_string());
        }
        self.known = Known::of(&report.devices);
        self.devices = report.devices;
    }

    fn fail(&mut self, error: String) {
        self.counters.add(Counter::KernelErrors, 1);
        if self.failure.as_ref() != Some(&error) {
            system::log(&format!("warning: the kernel responder could not be put right: {error}"));
            self.failure = Some(error);
        }
    }
}

impl AsFd for Upkeep {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
