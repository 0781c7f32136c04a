// SPDX-License-Identifier: Apache-2.0
//! The real device. Queue pairs only answer, so nothing is ever posted and nothing completes: the completion queue is
//! there since queue pairs must have one.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use onlooker_bootstrap::Id;
use onlooker_region::map::Map;
use onlooker_verbs as verbs;
use verbs::{Completed, CompletionQueue, Device, Endpoint, MAX_POLL, Path, QueuePair, Readable};

use crate::protocol::{Code, End, Limits, MAX_PAIRS, Refusal};
use crate::state::{Event, Owner};

/// What a queue pair that only answers has outstanding at most.
const DEPTH: u32 = 1;
/// Entries of the completion queue: a reader's new queue pair is there before its earlier one ends.
const ENTRIES: u32 = (MAX_PAIRS + 1) * DEPTH;

/// A device with its completion queue.
#[derive(Debug)]
pub struct Card {
    queue: CompletionQueue,
    device: Device,
    entries: u32,
}

impl Card {
    /// The one that has `address`.
    ///
    /// # Errors
    /// `no_library`, `no_device`, `device`.
    pub fn open(address: IpAddr) -> Result<Self, Refusal> {
        let device = Device::of(address).map_err(refusal)?;
        let entries = ENTRIES.min(device.limits().completions);
        let queue = CompletionQueue::new(&device, entries).map_err(refusal)?;
        Ok(Self { queue, device, entries })
    }

    /// Room of queue pairs that have ended is free once the queue was polled empty.
    fn make_room(&self) -> Result<(), Refusal> {
        let mut completed = [Completed { id: 0, status: verbs::Status::Done }; MAX_POLL];
        while self.queue.poll(&mut completed).map_err(refusal)? == MAX_POLL {}
        Ok(())
    }
}

/// Readable when the device has something to tell.
impl AsFd for Card {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Owner for Card {
    type Memory = Readable;
    type Pair = QueuePair;

    fn name(&self) -> &str {
        self.device.name()
    }

    fn limits(&self) -> Limits {
        let verbs::Limits { regions, queue_pairs, .. } = self.device.limits();
        Limits { regions, queue_pairs: queue_pairs.min(self.entries / DEPTH) }
    }

    fn register(&self, memory: Map, va: u64) -> Result<(Readable, u32), Refusal> {
        let readable = Readable::register(&self.device, memory, va).map_err(refusal)?;
        let rkey = readable.rkey();
        Ok((readable, rkey))
    }

    fn pair(&self, end: &End) -> Result<(QueuePair, End), Refusal> {
        self.make_room()?;
        let mut pair = QueuePair::new(&self.queue, DEPTH).map_err(refusal)?;
        pair.connect(&endpoint(end), Path::default()).map_err(refusal)?;
        let own = own_end(&pair.endpoint());
        Ok((pair, own))
    }

    fn event(&self) -> Result<Option<Event>, Refusal> {
        let event = self.device.event().map_err(refusal)?;
        Ok(event.map(|event| match event {
            verbs::Event::QueuePair(_) => Event::Pair,
            verbs::Event::Device => Event::Device,
            _ => Event::Other,
        }))
    }
}

fn endpoint(end: &End) -> Endpoint {
    let End { queue_pair, packet, gid: Id(gid), mtu_bytes, reads_answered } = *end;
    Endpoint { queue_pair, packet, gid, mtu_bytes, reads_answered }
}

fn own_end(endpoint: &Endpoint) -> End {
    let Endpoint { queue_pair, packet, gid, mtu_bytes, reads_answered } = *endpoint;
    End { queue_pair, packet, gid: Id(gid), mtu_bytes, reads_answered }
}

fn refusal(error: verbs::Error) -> Refusal {
    let code = match &error {
        verbs::Error::NoLibrary(_) => Code::NoLibrary,
        verbs::Error::NoDevice { .. } => Code::NoDevice,
        verbs::Error::Limit { .. } => Code::Limit,
        verbs::Error::Peer { .. } => Code::BadRequest,
        verbs::Error::System { .. } | verbs::Error::Overrun { .. } => Code::Device,
    };
    Refusal::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_the_same_on_both_sides() {
        let end = End { queue_pair: 17, packet: 5, gid: Id([2; 16]), mtu_bytes: 1024, reads_answered: 16 };
        assert_eq!(own_end(&endpoint(&end)), end);
    }

    #[test]
    fn each_error_has_its_code() {
        let device = || "rxe0".to_owned();
        let source = verbs::BadEndpoint::QueuePair(1);
        for (error, code) in [
            (verbs::Error::NoLibrary(std::io::ErrorKind::NotFound.into()), Code::NoLibrary),
            (verbs::Error::Limit { device: device(), what: "regions", wanted: 2, limit: 1 }, Code::Limit),
            (verbs::Error::Peer { device: device(), source }, Code::BadRequest),
            (verbs::Error::Overrun { device: device() }, Code::Device),
        ] {
            let message = error.to_string();
            assert_eq!(refusal(error), Refusal::new(code, message));
        }
    }
}
