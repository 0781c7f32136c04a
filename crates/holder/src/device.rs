// SPDX-License-Identifier: Apache-2.0
//! The real device. Most queue pairs only answer, so nothing is ever posted on them and nothing completes: their
//! completion queue is there since queue pairs must have one. Those of readers with a copy of the control region have
//! another, which is made for the first of them.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use onlooker_bootstrap::Id;
use onlooker_region::map::Map;
use onlooker_verbs as verbs;
use verbs::{Completed, CompletionQueue, Device, Endpoint, MAX_POLL, Path, QueuePair, Readable};

use crate::protocol::{Code, End, Limits, MAX_PAIRS, MAX_WRITES, Refusal};
use crate::state::{Event, Made, Owner, Write};

/// What a queue pair that only answers has outstanding at most.
const DEPTH: u32 = 1;
/// Entries of the completion queue: a reader's new queue pair is there before its earlier one ends.
const ENTRIES: u32 = (MAX_PAIRS + 1) * DEPTH;
/// The same of those that WRITE. A device that has not so many lets fewer readers have copies.
const WRITE_ENTRIES: u32 = (MAX_PAIRS + 1) * MAX_WRITES;

/// A device with its completion queues.
#[derive(Debug)]
pub struct Card {
    queue: CompletionQueue,
    /// For WRITEs, once one was wanted; `None` where the device refuses.
    writes: OnceCell<Option<CompletionQueue>>,
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
        Ok(Self { queue, writes: OnceCell::new(), device, entries })
    }

    /// A queue pair that takes so many WRITEs, or none where the device has no room for them.
    fn unconnected(&self, writes: u32) -> Result<(QueuePair, u32), Refusal> {
        if writes > 0 {
            let queue = self.writes.get_or_init(|| {
                let entries = WRITE_ENTRIES.min(self.device.limits().completions);
                CompletionQueue::new(&self.device, entries).ok()
            });
            if let Some(Ok(pair)) = queue.as_ref().map(|queue| QueuePair::for_writes(queue, writes)) {
                return Ok((pair, writes));
            }
        }
        let pair = QueuePair::new(&self.queue, DEPTH).map_err(refusal)?;
        Ok((pair, 0))
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

    fn pair(&self, end: &End, writes: u32) -> Result<Made<QueuePair>, Refusal> {
        self.make_room()?;
        let (mut pair, writes) = self.unconnected(writes)?;
        pair.connect(&endpoint(end), Path::default()).map_err(refusal)?;
        let own = own_end(&pair.endpoint());
        Ok(Made { pair, end: own, writes })
    }

    fn write(&self, pair: &mut QueuePair, memory: &Readable, write: &Write) -> Result<(), Refusal> {
        let Write { id, offset, bytes, va, rkey } = *write;
        pair.write(memory, &verbs::Write { id, offset, bytes, va, rkey }).map_err(refusal)
    }

    fn written(&self, ended: &mut Vec<(u64, bool)>) -> Result<(), Refusal> {
        let Some(Some(queue)) = self.writes.get() else { return Ok(()) };
        let mut completed = [Completed { id: 0, status: verbs::Status::Done }; MAX_POLL];
        loop {
            let count = queue.poll(&mut completed).map_err(refusal)?;
            ended.extend(completed[..count].iter().map(|one| (one.id, one.status == verbs::Status::Done)));
            if count < MAX_POLL {
                return Ok(());
            }
        }
    }

    fn event(&self) -> Result<Option<Event>, Refusal> {
        let event = self.device.event().map_err(refusal)?;
        Ok(event.map(|event| match event {
            verbs::Event::QueuePair(number) => Event::Pair(number),
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
