// SPDX-License-Identifier: Apache-2.0
//! This machine's RDMA devices, one for each of its addresses that leads to hosts which are read over theirs.
//!
//! Each has one completion queue for all its hosts. [`Flows`] says what is posted; here it is said when the engine may
//! sleep, and when a device is of no use any more: it goes as a whole then, and is opened anew for whoever asks next.
//!
//! Owned by the engine's thread. Cost: two system calls a sleep and device with a card, for arming.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsFd as _;

use onlooker_reader::{Broken, Completion, Memory, Read};
use onlooker_transport::verbs::{Card, Flow, Flows, Port, SharedMirror};
use onlooker_verbs::Event;

use super::outside::Gone;
use super::waiter::Waiter;

/// An address that no device has is looked up again after so long, ns.
const ABSENT_NS: u64 = 60_000_000_000;
/// Devices are asked so often what they have to tell beside completions, ns.
const EVENTS_INTERVAL_NS: u64 = 100_000_000;

/// What is needed of a device beside READs.
pub(super) trait Alarm: Port {
    /// Has the engine wake at the next completion. Those that came before do not wake it.
    ///
    /// # Errors
    /// The device has refused.
    fn arm(&mut self) -> Result<(), onlooker_verbs::Error>;

    /// Why it is of no use any more, if it says so.
    fn end(&mut self) -> Option<String>;

    /// It is of no use any more, and wakes nobody: what is left to be ended.
    fn leave(flows: Flows<Self>, waiter: &Waiter) -> Box<dyn Send>
    where
        Self: Sized;
}

impl Alarm for Card {
    fn arm(&mut self) -> Result<(), onlooker_verbs::Error> {
        self.queue().arm()
    }

    fn end(&mut self) -> Option<String> {
        loop {
            match self.queue().device().event() {
                Ok(None) => return None,
                Ok(Some(Event::Device)) => return Some("it has failed or was removed".into()),
                Ok(Some(Event::CompletionQueue)) => return Some("its completion queue has lost completions".into()),
                // Queue pairs tell of themselves by completions; the others pass.
                Ok(Some(_)) => {}
                Err(error) => return Some(error.to_string()),
            }
        }
    }

    fn leave(flows: Flows<Self>, waiter: &Waiter) -> Box<dyn Send> {
        // Queue pairs that the connector has keep it open.
        waiter.forget(flows.port().queue().as_fd());
        Box::new(flows)
    }
}

/// A flow and the device that it is on: another one, opened later by the same address, has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    local: IpAddr,
    pub(super) number: u32,
    flow: Flow,
}

/// Why there is no device where there was one.
pub(super) fn gone(local: IpAddr) -> String {
    format!("RDMA device of {local}: it has gone while the host was asked")
}

struct Device<P: Port> {
    flows: Flows<P>,
    number: u32,
    /// Set, and nothing has completed since.
    is_armed: bool,
    /// Completions polled since it was opened.
    completed: u64,
    /// Why it is of no use any more; it goes with the next poll.
    trouble: Option<String>,
}

pub(super) struct Devices<P: Port> {
    devices: HashMap<IpAddr, Device<P>>,
    /// Addresses without a device: why, and until when that is believed.
    absent: HashMap<IpAddr, (String, u64)>,
    opened: u32,
    events_at_ns: u64,
}

impl<P: Alarm> Devices<P> {
    /// None yet.
    pub(super) fn new() -> Self {
        Self { devices: HashMap::new(), absent: HashMap::new(), opened: 0, events_at_ns: 0 }
    }

    /// The device of an address, if it is there.
    pub(super) fn port(&self, local: IpAddr) -> Option<&P> {
        self.devices.get(&local).map(|device| device.flows.port())
    }

    /// The device of an address, to make queue pairs of; why there is none; `None`: it is to be opened.
    pub(super) fn find(&self, local: IpAddr, now_ns: u64) -> Option<Result<&P, &str>> {
        if let Some(port) = self.port(local) {
            return Some(Ok(port));
        }
        let (why, until_ns) = self.absent.get(&local)?;
        (now_ns < *until_ns).then_some(Err(why.as_str()))
    }

    /// An address's device was opened.
    pub(super) fn opened(&mut self, local: IpAddr, port: P) {
        self.opened = self.opened.wrapping_add(1);
        self.absent.remove(&local);
        let device =
            Device { flows: Flows::new(port), number: self.opened, is_armed: false, completed: 0, trouble: None };
        self.devices.insert(local, device);
    }

    /// An address has no device.
    pub(super) fn absent(&mut self, local: IpAddr, why: String, now_ns: u64) {
        self.absent.insert(local, (why, now_ns + ABSENT_NS));
    }

    /// Takes a connected queue pair of the address's device, and what its host writes its directory to.
    ///
    /// # Errors
    /// It cannot.
    pub(super) fn add(&mut self, local: IpAddr, pair: P::Pair, copy: Option<SharedMirror>) -> Result<Place, String> {
        let device = self.devices.get_mut(&local).ok_or_else(|| gone(local))?;
        // It may be one that was opened since.
        device.flows.port().settings(&pair).ok_or_else(|| gone(local))?;
        let flow = match copy {
            Some(copy) => device.flows.add_with_copy(pair, copy),
            None => device.flows.add(pair),
        };
        let flow =
            flow.ok_or_else(|| format!("RDMA device of {local}: it has 65536 queue pairs, and no room for more"))?;
        Ok(Place { local, number: device.number, flow })
    }

    fn device(&mut self, place: Place) -> Option<&mut Device<P>> {
        self.devices.get_mut(&place.local).filter(|device| device.number == place.number)
    }

    /// Ends a flow; its READs are over.
    pub(super) fn remove(&mut self, place: Place) {
        if let Some(device) = self.device(place) {
            device.flows.remove(place.flow, &mut Vec::new());
        }
    }

    /// Why a flow takes no READs any more, if that is so.
    pub(super) fn broken(&mut self, place: Place) -> Option<Broken> {
        self.device(place).map_or(Some(Broken::Closed), |device| device.flows.broken(place.flow))
    }

    /// As [`onlooker_reader::Requester::submit`].
    pub(super) fn submit(&mut self, place: Place, reads: &[Read]) -> Result<usize, Broken> {
        let Some(device) = self.device(place) else { return Err(Broken::Closed) };
        let taken = device.flows.submit(place.flow, reads)?;
        // A batch that the device refuses is told by nothing else where nothing was under way.
        match device.flows.broken(place.flow).filter(|_| taken < reads.len()) {
            Some(broken) => Err(broken),
            None => Ok(taken),
        }
    }

    /// As [`Flows::poll`], for all. Devices that are of no use any more go; their READs have ended.
    pub(super) fn poll(
        &mut self,
        memory: &mut impl Memory,
        now_ns: u64,
        completions: &mut Vec<Completion>,
        gone: &mut Vec<Gone>,
        waiter: &Waiter,
    ) {
        let is_time = now_ns >= self.events_at_ns;
        if is_time {
            self.events_at_ns = now_ns + EVENTS_INTERVAL_NS;
        }
        let mut ended = Vec::new();
        for (local, device) in &mut self.devices {
            let polled = device.flows.poll(memory, now_ns, completions);
            let completed = device.flows.counters().completions;
            // Also those that nobody waits for any more.
            device.is_armed &= completed == std::mem::replace(&mut device.completed, completed);
            let trouble = device.trouble.take().or_else(|| polled.err().map(|broken| broken.to_string()));
            let trouble = trouble.or_else(|| is_time.then(|| device.flows.port_mut().end()).flatten());
            if let Some(why) = trouble {
                ended.push((*local, why));
            }
        }
        for (local, why) in ended {
            if let Some(Device { flows, number, .. }) = self.devices.remove(&local) {
                let why = format!("RDMA device of {local}: {why}");
                gone.push(Gone { number, why, remains: P::leave(flows, waiter) });
            }
        }
    }

    /// Before a sleep: has each device wake the engine. True where that was new to one: what has completed before is to
    /// be polled for first.
    pub(super) fn arm(&mut self) -> bool {
        let mut is_new = false;
        for device in self.devices.values_mut().filter(|device| !device.is_armed) {
            match device.flows.port_mut().arm() {
                Ok(()) => device.is_armed = true,
                Err(error) => device.trouble = Some(error.to_string()),
            }
            is_new = true;
        }
        is_new
    }

    /// One of them has woken the engine: what it was armed for has come.
    pub(super) fn rung(&mut self) {
        self.devices.values_mut().for_each(|device| device.is_armed = false);
    }

    /// When [`Devices::poll`] has something to do even if nothing completes.
    pub(super) fn wake_ns(&self) -> Option<u64> {
        self.devices.values().filter_map(|device| device.flows.wake_ns()).min()
    }
}

#[cfg(test)]
mod tests;
