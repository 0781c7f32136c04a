// SPDX-License-Identifier: Apache-2.0
//! The epoll that the engine's thread sleeps in, and the bell that wakes it.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

/// What descriptors are marked with: nothing to be told, devices, and streams from here on.
const PLAIN: u64 = 0;
const DEVICE: u64 = 1;
const STREAM: u64 = 2;
/// Descriptors that one sleep tells of.
const EVENTS: usize = 64;

/// Wakes who sleeps on it, from any thread.
#[derive(Clone)]
pub(super) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(super) fn ring(&self) {
        // Full means that it has been rung.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// What has come.
pub(super) enum Rung {
    /// To one of the devices.
    Device,
    /// Over the connection with this number.
    Stream(usize),
}

/// Sleeps until one of many descriptors is readable.
pub(super) struct Waiter {
    epoll: OwnedFd,
    bell: Bell,
}

impl Waiter {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waiter = Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, bell: Bell(Arc::new(bell)) };
        waiter.watch(waiter.bell.0.as_fd())?;
        Ok(waiter)
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Wakes for this one, too, until it is closed.
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.mark(descriptor, PLAIN)
    }

    /// As [`Waiter::watch`], and [`Waiter::wait`] tells of it.
    pub(super) fn watch_device(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.mark(descriptor, DEVICE)
    }

    /// The same, of a connection.
    pub(super) fn watch_stream(&self, descriptor: BorrowedFd<'_>, number: usize) -> io::Result<()> {
        self.mark(descriptor, STREAM + number as u64)
    }

    fn mark(&self, descriptor: BorrowedFd<'_>, mark: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, EventData::new_u64(mark), EventFlags::IN)?)
    }

    /// Does not wake for this one any more, though others may keep it open.
    pub(super) fn forget(&self, descriptor: BorrowedFd<'_>) {
        // One that is not watched is forgotten already.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Sleeps; `None`: until something comes. Tells what it was, as far as was looked: the others stay readable.
    pub(super) fn wait(&self, timeout: Option<Duration>, mut rung: impl FnMut(Rung)) -> io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(PLAIN) }; EVENTS];
        let ready = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        for event in &events[..ready] {
            match event.data.u64() {
                PLAIN => {}
                DEVICE => rung(Rung::Device),
                mark => rung(Rung::Stream(usize::try_from(mark - STREAM).unwrap_or(usize::MAX))),
            }
        }
        let mut counted = [0; 8];
        let _ = rustix::io::read(&self.bell.0, &mut counted);
        Ok(())
    }
}
