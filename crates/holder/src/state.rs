// SPDX-License-Identifier: Apache-2.0
//! What the holder has and what a request does to it. Time is given, the device is a trait, sockets are elsewhere.
//!
//! Owned by the holder's only thread. Invariants: what is registered stays so however agents come and go; a name stands
//! for one registration; a reader has one queue pair; queue pairs end before registrations, and these before their
//! device.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use onlooker_bootstrap::{Id, source};
use onlooker_region::map::Map;
use onlooker_region::slab::PAGE_BYTES;

use crate::memory::{self, Identity};
use crate::protocol::{
    self, Answer, Code, ControlCopy, Counters, Done, End, Hello, Limits, MAX_PAIRS, MAX_REGISTRATIONS, MAX_WRITES,
    Memory, Paired, Parted, Refusal, Registered, Request, Status, check_name,
};
use push::Copied;

mod push;
#[cfg(test)]
mod tests;

/// How long an ended registration goes on: a reader that has not seen the directory's change may have a READ of it
/// under way, which would end its queue pair.
pub const GRACE_NS: u64 = 2_000_000_000;

/// What a device tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The queue pair of this number is in error.
    Pair(u32),
    /// It is of no use any more, or is being removed.
    Device,
    /// Something else.
    Other,
}

/// A WRITE of registered memory to a reader's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Comes back when it has ended; the same for all of a queue pair.
    pub id: u64,
    /// First byte in the registration.
    pub offset: u64,
    /// Length.
    pub bytes: u32,
    /// Address at the reader.
    pub va: u64,
    /// Key there.
    pub rkey: u32,
}

/// A queue pair that was made.
#[derive(Debug)]
pub struct Made<P> {
    /// It; it ends when dropped.
    pub pair: P,
    /// Its end.
    pub end: End,
    /// WRITEs that it takes at once.
    pub writes: u32,
}

/// An opened device. Readable descriptor: it has something to tell.
pub trait Owner: AsFd {
    /// A registration; it ends when dropped.
    type Memory;
    /// A connected queue pair; it ends when dropped.
    type Pair;

    /// Its name.
    fn name(&self) -> &str;

    /// What can be made of it at once.
    fn limits(&self) -> Limits;

    /// Registers memory for READs at `va`; returns the key, too.
    ///
    /// # Errors
    /// `device`, `limit`.
    fn register(&self, memory: Map, va: u64) -> Result<(Self::Memory, u32), Refusal>;

    /// Makes a queue pair that answers, and takes so many WRITEs at once, or none where there is no room for them; and
    /// connects it.
    ///
    /// # Errors
    /// `bad_request` for what cannot be an end; `device`, `limit`.
    fn pair(&self, end: &End, writes: u32) -> Result<Made<Self::Pair>, Refusal>;

    /// Puts a WRITE under way, behind those of the same queue pair that were before. Never waits.
    ///
    /// # Errors
    /// The queue pair is of no use any more.
    fn write(&self, pair: &mut Self::Pair, memory: &Self::Memory, write: &Write) -> Result<(), Refusal>;

    /// Appends all WRITEs that have ended since the last call: their ids, and whether they were done. What queue pairs
    /// that have ended took of the device is free after this. Never waits.
    ///
    /// # Errors
    /// `device`: some were lost.
    fn written(&self, ended: &mut Vec<(u64, bool)>) -> Result<(), Refusal>;

    /// The next thing that it has to tell, if there is one. Never waits.
    ///
    /// # Errors
    /// `device`: it is gone.
    fn event(&self) -> Result<Option<Event>, Refusal>;
}

/// A registration that stands or is in its grace.
struct Held<M> {
    va: u64,
    bytes: u64,
    identity: Identity,
    rkey: u32,
    memory: M,
}

/// A reader's queue pair.
struct Connected<P> {
    reader: Id,
    /// The machine that it is on: readers have as many ids as they like.
    source: IpAddr,
    /// The number at the reader's end.
    remote: u32,
    /// The device's number of it.
    number: u32,
    /// Ours, which no other has ever had: what its WRITEs come back under.
    serial: u64,
    /// Whether it is known to be in error.
    is_failed: bool,
    /// Where pushes go to, if the reader has a copy; none once one has failed.
    copy: Option<Copied>,
    pair: P,
}

/// A device and what was made of it. Fields are dropped in this order, which is the order in which things may end.
struct Opened<D: Owner> {
    address: IpAddr,
    /// The oldest first.
    pairs: VecDeque<Connected<D::Pair>>,
    registered: BTreeMap<String, Held<D::Memory>>,
    /// Registrations in their grace, by its end.
    resting: VecDeque<(u64, Held<D::Memory>)>,
    device: D,
    /// Queue pairs that were ever made.
    made: u64,
}

impl<D: Owner> Opened<D> {
    fn new(address: IpAddr, device: D) -> Self {
        let (pairs, resting) = (VecDeque::new(), VecDeque::new());
        Self { address, pairs, registered: BTreeMap::new(), resting, device, made: 0 }
    }

    fn limits(&self) -> Limits {
        let Limits { regions, queue_pairs } = self.device.limits();
        // A reader's new queue pair is there before its earlier one ends.
        let queue_pairs = queue_pairs.saturating_sub(1).clamp(1, MAX_PAIRS);
        Limits { regions: regions.min(MAX_REGISTRATIONS), queue_pairs }
    }

    /// Ends one where there are too many, and says whether it was in error: nobody reads by such a one. Else the oldest of the machine that
    /// has the most goes, so that no machine takes the queue pairs of others.
    fn make_room(&mut self) -> Option<bool> {
        if self.pairs.len() <= self.limits().queue_pairs as usize {
            return None;
        }
        let failed = self.pairs.iter().position(|connected| connected.is_failed);
        let of = |source: IpAddr| self.pairs.iter().filter(|connected| connected.source == source).count();
        // Of equals the first.
        let greedy = || (0..self.pairs.len()).rev().max_by_key(|at| of(self.pairs[*at].source));
        let at = failed.or_else(greedy).unwrap_or(0);
        self.pairs.remove(at);
        Some(failed.is_some())
    }

    fn registrations(&self) -> usize {
        self.registered.len() + self.resting.len()
    }
}

/// The holder without its sockets.
pub struct Core<D: Owner> {
    open: Box<dyn FnMut(IpAddr) -> Result<D, Refusal>>,
    opened: Option<Opened<D>>,
    counters: Counters,
}

impl<D: Owner> Core<D> {
    /// Without a device yet; `open` opens the one that has an address.
    #[must_use]
    pub fn new(open: impl FnMut(IpAddr) -> Result<D, Refusal> + 'static) -> Self {
        Self { open: Box::new(open), opened: None, counters: Counters::default() }
    }

    /// The answer to a packet, whatever is in it.
    #[must_use]
    pub fn answer(&mut self, packet: &[u8], descriptors: &[OwnedFd], now_ns: u64) -> Vec<u8> {
        let answer = protocol::decode(packet).and_then(|request| self.handle(request, descriptors, now_ns));
        protocol::encode(&answer)
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed then.
    pub fn handle(&mut self, request: Request, descriptors: &[OwnedFd], now_ns: u64) -> Result<Answer, Refusal> {
        self.expire(now_ns);
        match (request, descriptors) {
            (Request::Register { name, va, bytes }, [descriptor]) => {
                self.register(name, (va, bytes), descriptor.as_fd()).map(|rkey| Answer::Registered(Registered { rkey }))
            }
            (Request::Register { .. }, other) => {
                Err(bad_request(format!("register takes one descriptor, the memory's; {} came with it", other.len())))
            }
            (_, [_, ..]) => Err(bad_request("this request takes no descriptor: send it alone".into())),
            (Request::Hello { address, .. }, []) => self.hello(address).map(Answer::Hello),
            (Request::End { name }, []) => self.end(&name, now_ns).map(|()| Answer::Done(Done {})),
            (Request::Pair { reader, end, copy }, []) => self.pair(reader, &end, copy).map(Answer::Paired),
            (Request::Part { reader, queue_pair }, []) => self.part(reader, queue_pair).map(Answer::Parted),
            (Request::Push { name, base, ranges }, []) => self.push(&name, base, &ranges).map(Answer::Pushed),
            (Request::Status {}, []) => Ok(Answer::Status(self.status())),
            (Request::Release {}, []) => {
                self.release();
                Ok(Answer::Done(Done {}))
            }
        }
    }

    /// Ends registrations whose grace is over.
    pub fn expire(&mut self, now_ns: u64) {
        let Some(opened) = &mut self.opened else { return };
        while opened.resting.front().is_some_and(|(until_ns, _)| *until_ns <= now_ns) {
            opened.resting.pop_front();
        }
    }

    /// When [`Core::expire`] is due.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.opened.as_ref()?.resting.front().map(|(until_ns, _)| *until_ns)
    }

    /// Readable when [`Core::events`] is due.
    #[must_use]
    pub fn device(&self) -> Option<BorrowedFd<'_>> {
        self.opened.as_ref().map(|opened| opened.device.as_fd())
    }

    /// Takes what the device has to tell.
    ///
    /// # Errors
    /// `device`: it is of no use any more.
    pub fn events(&mut self) -> Result<(), Refusal> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        while let Some(event) = opened.device.event()? {
            self.counters.events += 1;
            match event {
                Event::Pair(number) => {
                    self.counters.pairs_failed += 1;
                    let told_of = opened.pairs.iter_mut().find(|connected| connected.number == number);
                    told_of.into_iter().for_each(Connected::fail);
                }
                Event::Device => {
                    let message = format!("{} tells that it has failed or is being removed", opened.device.name());
                    return Err(Refusal::new(Code::Device, message));
                }
                Event::Other => {}
            }
        }
        Ok(())
    }

    /// Counts a connection that was refused.
    pub fn connection_refused(&mut self) {
        self.counters.connections_refused += 1;
    }

    fn hello(&mut self, address: IpAddr) -> Result<Hello, Refusal> {
        match self.opened.as_ref().map(|opened| (opened.address, opened.registered.len())) {
            Some((same, _)) if same == address => {}
            Some((other, count @ 1..)) => {
                let message = format!(
                    "opening the device of {address}: that of {other} is open, with {count} registrations; \
                     end these or send release first"
                );
                return Err(Refusal::new(Code::Busy, message));
            }
            _ => {
                let device = (self.open)(address)?;
                // What was made of another one ends with it: queue pairs, and registrations in their grace.
                self.opened = Some(Opened::new(address, device));
            }
        }
        let opened = self.opened.as_ref().ok_or_else(no_device)?;
        let memory = opened.registered.iter().map(|(name, held)| {
            let Held { va, bytes, rkey, .. } = *held;
            Memory { name: name.clone(), va, bytes, rkey }
        });
        Ok(Hello {
            device: opened.device.name().to_owned(),
            limits: opened.limits(),
            memory: memory.collect(),
            pairs: opened.pairs.len() as u64,
            copies: Some(opened.copies()),
        })
    }

    fn register(&mut self, name: String, range: (u64, u64), descriptor: BorrowedFd<'_>) -> Result<u32, Refusal> {
        check_name(&name)?;
        check_range(range)?;
        let (va, bytes) = range;
        let opened = self.opened.as_mut().ok_or_else(no_device)?;
        let identity = memory::identify(descriptor)?;
        if let Some(held) = opened.registered.get(&name) {
            if (held.va, held.bytes, held.identity) == (va, bytes, identity) {
                return Ok(held.rkey);
            }
            let message = format!(
                "registering {name}: the name stands for {} bytes at {:#x} or other memory; end that first",
                held.bytes, held.va
            );
            return Err(Refusal::new(Code::Exists, message));
        }
        let most = opened.limits().regions;
        if opened.registrations() >= most as usize {
            let message = format!(
                "registering {name}: there are {most} registrations, as many as there can be; \
                 end some, which takes {} s",
                GRACE_NS / 1_000_000_000
            );
            return Err(Refusal::new(Code::Limit, message));
        }
        let memory = memory::map(descriptor, identity, bytes)?;
        let (memory, rkey) = opened.device.register(memory, va)?;
        opened.registered.insert(name, Held { va, bytes, identity, rkey, memory });
        self.counters.registered += 1;
        Ok(rkey)
    }

    fn end(&mut self, name: &str, now_ns: u64) -> Result<(), Refusal> {
        check_name(name)?;
        let opened = self.opened.as_mut().ok_or_else(no_device)?;
        let Some(held) = opened.registered.remove(name) else {
            let message = format!("ending {name}: nothing is registered by that name; hello tells what is");
            return Err(Refusal::new(Code::Unknown, message));
        };
        opened.resting.push_back((now_ns.saturating_add(GRACE_NS), held));
        self.counters.ended += 1;
        Ok(())
    }

    fn pair(&mut self, reader: Id, end: &End, copy: Option<ControlCopy>) -> Result<Paired, Refusal> {
        copy.as_ref().map_or(Ok(()), push::check_copy)?;
        // Those of queue pairs that have ended take room of the device until then. Without WRITEs there are READs.
        let copy = if self.take_written().is_ok() { copy } else { None };
        let opened = self.opened.as_mut().ok_or_else(no_device)?;
        let made = opened.device.pair(end, if copy.is_some() { MAX_WRITES } else { 0 });
        let Made { pair, end: own, writes } = made.inspect_err(|_| self.counters.pairs_refused += 1)?;
        self.counters.pairs_made += 1;
        self.counters.copies_refused += u64::from(copy.is_some() && writes == 0);
        opened.made += 1;
        let copy = copy.filter(|_| writes > 0).map(|at| Copied { at, room: writes as usize });
        let earlier = opened.pairs.iter().position(|connected| connected.reader == reader);
        opened.pairs.push_back(Connected {
            reader,
            source: source(Ipv6Addr::from(end.gid.0).into()),
            remote: end.queue_pair,
            number: own.queue_pair,
            serial: opened.made,
            is_failed: false,
            copy,
            pair,
        });
        if let Some(earlier) = earlier {
            opened.pairs.remove(earlier);
            self.counters.pairs_replaced += 1;
        } else if let Some(was_failed) = opened.make_room() {
            self.counters.pairs_evicted += 1;
            self.counters.pairs_evicted_failed += u64::from(was_failed);
        }
        Ok(Paired { end: own, copies: opened.copies() })
    }

    fn part(&mut self, reader: Id, queue_pair: u32) -> Result<Parted, Refusal> {
        let opened = self.opened.as_mut().ok_or_else(no_device)?;
        let is_it = |connected: &Connected<D::Pair>| connected.reader == reader && connected.remote == queue_pair;
        let Some(at) = opened.pairs.iter().position(is_it) else {
            let message = "ending a reader's queue pair: it has none of this number any more; nothing is to be done";
            return Err(Refusal::new(Code::Unknown, message));
        };
        opened.pairs.remove(at);
        self.counters.pairs_parted += 1;
        Ok(Parted { pairs: opened.pairs.len() as u64, copies: opened.copies() })
    }

    fn status(&self) -> Status {
        let Some(opened) = &self.opened else { return Status { counters: self.counters, ..Status::default() } };
        let all = opened.registered.values().chain(opened.resting.iter().map(|(_, held)| held));
        Status {
            device: Some(opened.device.name().to_owned()),
            registrations: opened.registered.len() as u64,
            resting: opened.resting.len() as u64,
            registered_bytes: all.map(|held| held.bytes).sum(),
            pairs: opened.pairs.len() as u64,
            counters: self.counters,
        }
    }

    /// Without grace: without queue pairs no READ is under way.
    fn release(&mut self) {
        let Some(opened) = &mut self.opened else { return };
        self.counters.ended += opened.registered.len() as u64;
        opened.pairs.clear();
        opened.registered.clear();
        opened.resting.clear();
    }
}

fn bad_request(message: String) -> Refusal {
    Refusal::new(Code::BadRequest, message)
}

fn no_device() -> Refusal {
    bad_request("no device is open: send hello with the address that readers use first".into())
}

fn check_range((va, bytes): (u64, u64)) -> Result<(), Refusal> {
    if !va.is_multiple_of(PAGE_BYTES) {
        return Err(bad_request(format!(
            "va {va:#x} is not a multiple of {PAGE_BYTES}: registrations begin with a page"
        )));
    }
    if bytes == 0 || !bytes.is_multiple_of(8) || va.checked_add(bytes).is_none() {
        return Err(bad_request(format!("{bytes} bytes at {va:#x}: whole words, at least one, below 2^64 are wanted")));
    }
    Ok(())
}
