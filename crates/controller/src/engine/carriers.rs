// SPDX-License-Identifier: Apache-2.0
//! What carries the READs of all hosts: soft requesters' sockets, this machine's devices, TCP connections; and the
//! sleep until one of them has something.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::{Broken, Completion, Memory, Mirror, Read, Requester as _, Via};
use onlooker_transport::open::kernel_flow;
use onlooker_transport::soft::{FlowConfig, Totals};
use onlooker_transport::verbs::{Card, Settings};

use super::devices::{self, Alarm, Devices};
use super::outside::{Added, Carry, Gone};
use super::sockets::{self, Sockets};
use super::streams::{self, Streams};
use super::waiter::{Rung, Waiter};
use super::{Config, Pressure};
use crate::connect::Way;

/// Where a host's READs go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Device(devices::Place),
    Soft(sockets::Place),
    Tcp(streams::Place),
}

pub(super) struct Carriers<P: Alarm> {
    sockets: Sockets,
    pub(super) devices: Devices<P>,
    streams: Streams,
    waiter: Waiter,
}

impl<P: Alarm> Carriers<P> {
    /// Each socket has buffers for all that may be in flight.
    pub(super) fn new(waiter: Waiter, config: &Config, pressure: Arc<Pressure>) -> Self {
        let sockets = Sockets::new(config, pressure);
        Self { sockets, devices: Devices::new(), streams: Streams::default(), waiter }
    }

    /// Before a sleep. False: what has come before is to be polled for first.
    pub(super) fn is_quiet(&mut self) -> bool {
        !self.devices.arm()
    }

    /// Sleeps until something comes.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.waiter.wait(timeout, |rung| match rung {
            Rung::Device => self.devices.rung(),
            Rung::Stream(number) => self.streams.rung(number),
        })
    }
}

impl Carriers<Card> {
    /// A device was opened, or not.
    pub(super) fn opened(&mut self, local: IpAddr, opened: Result<Card, String>, now_ns: u64) {
        let watched = opened.and_then(|card| {
            let watched = self.waiter.watch_device(card.queue().as_fd());
            watched.map(|()| card).map_err(|error| format!("RDMA device of {local}: epoll: {error}"))
        });
        match watched {
            Ok(card) => self.devices.opened(local, card),
            Err(why) => self.devices.absent(local, why, now_ns),
        }
    }

    /// Takes a way to a host.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) fn add(
        &mut self,
        told: &Bootstrapped,
        way: Way,
        host_credit_bytes: u32,
    ) -> Result<Added<Place>, String> {
        let mut mirror = None;
        let (place, max_read_blocks) = match way {
            Way::Verbs(pair, copy) => {
                let (responder, _) = told.responder(Via::Verbs).map_err(|error| error.to_string())?;
                let most = told.answer.max_read_blocks(responder).min(Settings::default().max_read_blocks);
                let copy = copy.mirror();
                let place = self.devices.add(told.local, *pair, copy.clone())?;
                mirror = copy.map(|copy| Box::new(copy) as Box<dyn Mirror + Send>);
                (Place::Device(place), most)
            }
            Way::Kernel => {
                let (address, flow) = kernel_flow(told).map_err(|error| error.to_string())?;
                let flow = FlowConfig { credit_bytes: host_credit_bytes, ..flow };
                let place = self.sockets.add(address, flow, &self.waiter).map_err(|error| error.to_string())?;
                (Place::Soft(place), self.sockets.max_read_blocks(place))
            }
            Way::Tcp(requester) => {
                let most = requester.max_read_blocks();
                (Place::Tcp(self.streams.add(requester, &self.waiter)?), most)
            }
        };
        Ok(Added { place, max_read_blocks, mirror })
    }
}

impl<P: Alarm> Carry for Carriers<P> {
    type Place = Place;

    fn submit(&mut self, place: Place, reads: &[Read]) -> Result<usize, Broken> {
        match place {
            Place::Device(place) => self.devices.submit(place, reads),
            Place::Soft(place) => self.sockets.submit(place, reads),
            Place::Tcp(place) => self.streams.submit(place, reads),
        }
    }

    fn poll(&mut self, memory: &mut impl Memory, now_ns: u64, completions: &mut Vec<Completion>, gone: &mut Vec<Gone>) {
        self.sockets.poll(memory, now_ns, completions);
        self.streams.poll(memory, now_ns, completions, &self.waiter);
        self.devices.poll(memory, now_ns, completions, gone, &self.waiter);
    }

    fn broken(&mut self, place: Place) -> Option<Broken> {
        match place {
            Place::Device(place) => self.devices.broken(place),
            // A socket that breaks is made anew: the host is as it was.
            Place::Soft(_) => None,
            Place::Tcp(place) => self.streams.broken(place),
        }
    }

    fn remove(&mut self, place: Place) {
        match place {
            Place::Device(place) => self.devices.remove(place),
            Place::Soft(place) => self.sockets.remove(place),
            Place::Tcp(place) => self.streams.remove(place),
        }
    }

    fn device_of(place: Place) -> Option<u32> {
        match place {
            Place::Device(place) => Some(place.number),
            Place::Soft(_) | Place::Tcp(_) => None,
        }
    }

    fn device(&self, local: IpAddr, now_ns: u64) -> Option<Result<(), &str>> {
        self.devices.find(local, now_ns).map(|found| found.map(|_| ()))
    }

    fn repeated(&self, place: Place) -> u64 {
        match place {
            Place::Soft(place) => self.sockets.repeated(place),
            Place::Device(_) | Place::Tcp(_) => 0,
        }
    }

    fn totals(&self) -> Totals {
        self.sockets.totals()
    }

    fn wake_ns(&self) -> Option<u64> {
        [self.sockets.wake_ns(), self.devices.wake_ns()].into_iter().flatten().min()
    }
}
