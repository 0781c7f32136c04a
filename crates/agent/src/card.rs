// SPDX-License-Identifier: Apache-2.0
//! The RDMA device that answers beside the kernel responder, as the holder has it (docs/holder.md).
//!
//! The responder's slabs are registered with it, each once and at a random address: a region is a range of one, so that making and ending regions costs no call. Owned by
//! the main thread; bootstraps reach the holder through [`Link`], to have their readers' queue pairs made. While there is no holder nothing is lost but this way to read.
//! A reader may have a copy of the control region, which the device writes to when the directory has changed ([`Card::push`]).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlooker_bootstrap::{Goodbye, VerbsAnswer, VerbsRequest};
use onlooker_holder::client::{ClientError, Holder};
use onlooker_holder::protocol::{Code, Hello, MAX_RANGES, Paired, Parted, Refusal};

use crate::config;
use crate::kernel::CONTROL_SLAB;
use crate::system;

/// Between two tries to reach the holder; twice as long each time that it does not answer, since that holds up the main loop.
const PAUSE_NS: u64 = 1_000_000_000;
const LONGEST_PAUSE_NS: u64 = 60 * PAUSE_NS;

/// What is known without waiting for the link. Changed by who has it.
#[derive(Debug, Default)]
struct Pushing {
    /// Whether the holder can write to readers' copies of the control region.
    is_possible: AtomicBool,
    /// Whether there are any.
    is_wanted: AtomicBool,
}

/// The way to the holder.
#[derive(Debug, Default)]
pub struct Link {
    holder: Option<Holder>,
    /// The control region's key.
    control_rkey: u32,
    /// Why there is no holder, or none of use; the operator was told.
    problem: Option<String>,
    has_readers: Arc<AtomicBool>,
    pushing: Arc<Pushing>,
}

/// The link, for bootstraps.
#[derive(Debug, Clone, Default)]
pub struct Shared {
    link: Arc<Mutex<Link>>,
    pushing: Arc<Pushing>,
}

impl Shared {
    /// Whether readers may ask for the directory to be written to them.
    #[must_use]
    pub fn can_push(&self) -> bool {
        self.pushing.is_possible.load(Ordering::Relaxed)
    }
}

/// Locks it.
pub fn lock(shared: &Shared) -> MutexGuard<'_, Link> {
    shared.link.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// `None` where there is no holder, or it refuses, which the operator is told. That it has gone the main loop hears of itself.
    fn call<T>(&mut self, call: impl FnOnce(&mut Holder) -> Result<T, ClientError>) -> Option<T> {
        let answer = call(self.holder.as_mut()?);
        answer
            .map_err(|error| {
                let problem = error.to_string();
                if self.problem.as_ref() != Some(&problem) {
                    system::log(&format!("warning: RDMA: {problem}"));
                }
                self.problem = Some(problem);
            })
            .ok()
    }

    /// A queue pair for a reader.
    ///
    /// # Errors
    /// What to tell the reader.
    pub fn pair(&mut self, request: &VerbsRequest) -> Result<VerbsAnswer, String> {
        let control_rkey = self.control_rkey;
        let holder = self.holder.as_mut().filter(|_| control_rkey != 0);
        let holder = holder.ok_or_else(|| {
            let problem = self.problem.as_deref().unwrap_or("it is not ready");
            format!("the host's holder is of no use now: {problem}; see `systemctl status onlooker-holder` there")
        })?;
        // A holder that does not know of copies refuses them.
        let copy = request.copy.filter(|_| self.pushing.is_possible.load(Ordering::Relaxed));
        let paired = holder.pair(&request.reader_id.to_string(), &request.end, copy);
        let Paired { end, copies } = paired.map_err(|error| error.to_string())?;
        self.has_readers.store(true, Ordering::Relaxed);
        self.pushing.is_wanted.store(copies > 0, Ordering::Relaxed);
        Ok(VerbsAnswer { control_rkey, end })
    }
}

impl Link {
    /// A reader has gone. What it says may be late, or of a holder that is older: nothing is wrong then.
    pub fn part(&mut self, Goodbye { reader_id, queue_pair }: Goodbye) {
        if let Some(Ok(Parted { pairs, copies })) =
            self.holder.as_mut().map(|holder| holder.part(reader_id, queue_pair))
        {
            self.has_readers.store(pairs > 0, Ordering::Relaxed);
            self.pushing.is_wanted.store(copies > 0, Ordering::Relaxed);
        }
    }
}

/// A slab as requesters name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Address of its first byte; the same for as long as there is the slab.
    pub va: u64,
    /// Key; `None` while the holder has not got it.
    pub rkey: Option<u32>,
}

/// The device.
#[derive(Debug)]
pub struct Card {
    config: config::Verbs,
    address: IpAddr,
    link: Shared,
    slabs: BTreeMap<u32, Held>,
    /// When to look for the holder again, or to ask it again for what it has refused.
    next_ns: Option<u64>,
    pause_ns: u64,
    /// Whether there may be readers, who are not seen otherwise.
    has_readers: Arc<AtomicBool>,
    /// Regions that are not served, as the operator was told.
    left_out: usize,
    /// The holder still has what [`Card::revoke`] was to end.
    is_to_release: bool,
}

/// Connects to the holder and has it open the device. What it has of another one ends: no other agent may be there. With `release` all that it has ends first.
fn meet(socket: &Path, address: IpAddr, release: bool) -> Result<(Holder, Hello), ClientError> {
    let mut holder = Holder::connect(socket)?;
    if release {
        holder.release()?;
    }
    let hello = match holder.hello(address) {
        Err(ClientError::Refused(Refusal { code: Code::Busy, .. })) => {
            holder.release()?;
            holder.hello(address)
        }
        other => other,
    };
    hello.map(|hello| (holder, hello))
}

/// Ends what a holder has, if there is one: of an agent that does without a device nobody would hear what is not true any more.
///
/// # Errors
/// There is none, mostly.
pub fn release(socket: &Path) -> Result<(), ClientError> {
    Holder::connect(socket)?.release()
}

fn name(slab: u32) -> String {
    format!("slab-{slab}")
}

impl Card {
    /// Of a configuration that names a device; not connected.
    #[must_use]
    pub fn new(config: &config::Verbs) -> Option<Self> {
        let address = config.address.parse().ok()?;
        let has_readers = Arc::new(AtomicBool::new(false));
        let pushing = Arc::new(Pushing::default());
        let link = Link { has_readers: has_readers.clone(), pushing: pushing.clone(), ..Link::default() };
        Some(Self {
            config: config.clone(),
            address,
            link: Shared { link: Arc::new(Mutex::new(link)), pushing },
            slabs: BTreeMap::new(),
            next_ns: Some(0),
            pause_ns: PAUSE_NS,
            has_readers,
            left_out: 0,
            is_to_release: false,
        })
    }

    /// Whether somebody may read by the device: READs themselves are seen by nobody here.
    #[must_use]
    pub fn has_readers(&self) -> Arc<AtomicBool> {
        self.has_readers.clone()
    }

    /// For bootstraps.
    #[must_use]
    pub fn link(&self) -> Shared {
        self.link.clone()
    }

    /// When to call [`Card::connect`] next, if ever.
    #[must_use]
    pub const fn next_deadline_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// The holder has gone, or said what cannot be: what it had is registered nowhere.
    pub fn disconnect(&mut self, now_ns: u64) {
        let mut link = lock(&self.link);
        (link.holder, link.control_rkey, link.problem) = (None, 0, None);
        self.set_pushing(None);
        drop(link);
        self.has_readers.store(false, Ordering::Relaxed);
        self.slabs.values_mut().for_each(|held| held.rkey = None);
        self.next_ns = Some(now_ns);
        system::log("warning: the holder has gone: RDMA devices do not answer until it is back");
    }

    /// Looks for the holder, if that is due. True where it is there anew: slabs are to be registered.
    pub fn connect(&mut self, now_ns: u64) -> bool {
        if self.next_ns.is_none_or(|at| at > now_ns) {
            return false;
        }
        if self.is_connected() {
            self.next_ns = None;
            return true;
        }
        let socket = &self.config.holder;
        let (holder, hello) = match meet(socket, self.address, self.is_to_release) {
            Ok(met) => met,
            Err(error) => {
                let is_late =
                    matches!(&error, ClientError::Gone { source, .. } if source.kind() == std::io::ErrorKind::TimedOut);
                self.pause_ns = if is_late { (self.pause_ns * 2).min(LONGEST_PAUSE_NS) } else { PAUSE_NS };
                self.next_ns = Some(now_ns.saturating_add(self.pause_ns));
                let problem = format!("holder at {}: {error}", socket.display());
                let mut link = lock(&self.link);
                if link.problem.as_ref() != Some(&problem) {
                    system::log(&format!(
                        "warning: no RDMA device answers: {problem}; it is looked for again and again"
                    ));
                }
                link.problem = Some(problem);
                return false;
            }
        };
        (self.pause_ns, self.is_to_release) = (PAUSE_NS, false);
        self.has_readers.store(hello.pairs > 0, Ordering::Relaxed);
        system::log(&format!("RDMA device {} answers, too", hello.device));
        // An earlier agent's: their addresses go on, and so do its regions' entries.
        for memory in hello.memory {
            if let Some(slab) = memory.name.strip_prefix("slab-").and_then(|number| number.parse().ok()) {
                self.slabs.entry(slab).or_insert(Held { va: memory.va, rkey: None });
            }
        }
        self.next_ns = None;
        let mut link = lock(&self.link);
        link.holder = Some(holder);
        self.set_pushing(hello.copies);
        drop(link);
        true
    }

    /// What the holder says of copies. The caller has the link.
    fn set_pushing(&self, copies: Option<u64>) {
        let Pushing { is_possible, is_wanted } = &*self.link.pushing;
        is_possible.store(copies.is_some(), Ordering::Relaxed);
        is_wanted.store(copies.is_some_and(|copies| copies > 0), Ordering::Relaxed);
    }

    /// Whether readers have copies of the control region.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        self.link.pushing.is_wanted.load(Ordering::Relaxed)
    }

    /// Has ranges of the control region written to readers' copies, in this order. False: not now, since a bootstrap has the holder.
    pub fn push(&self, ranges: &[(u64, u64)]) -> bool {
        let Ok(mut link) = self.link.link.try_lock() else { return false };
        for ranges in ranges.chunks(MAX_RANGES) {
            let pushed = link.call(|holder| holder.push(&name(CONTROL_SLAB), 0, ranges));
            // A refusal says nothing of copies.
            if let Some(copies) = pushed {
                self.link.pushing.is_wanted.store(copies > 0, Ordering::Relaxed);
            }
            if pushed.is_none_or(|copies| copies == 0) {
                break;
            }
        }
        true
    }

    /// Whether there is a holder.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        lock(&self.link).holder.is_some()
    }

    /// Where a slab is, if that is decided.
    #[must_use]
    pub fn held(&self, slab: u32) -> Option<Held> {
        self.slabs.get(&slab).copied()
    }

    /// Registers a slab at an address: what [`Card::held`] says, if it says one.
    pub fn register(&mut self, slab: u32, memory: BorrowedFd, va: u64, bytes: u64) -> Held {
        let rkey = self.call(|holder| {
            let registered = holder.register(&name(slab), memory, va, bytes);
            // Another slab of this number, of an earlier agent.
            let is_other = matches!(&registered, Err(ClientError::Refused(Refusal { code: Code::Exists, .. })));
            if is_other {
                holder.end(&name(slab))?;
                return holder.register(&name(slab), memory, va, bytes);
            }
            registered
        });
        let held = Held { va, rkey };
        self.slabs.insert(slab, held);
        held
    }

    /// Ends all queue pairs and registrations, whose keys readers know, and forgets where slabs are; returns where they were. A holder that cannot be asked now is asked
    /// before anything else as soon as it is there.
    pub fn revoke(&mut self, now_ns: u64) -> Vec<u64> {
        // Before anybody who asks for a queue pair now gets one.
        lock(&self.link).control_rkey = 0;
        self.is_to_release = self.call(Holder::release).is_none();
        if self.is_to_release && self.is_connected() {
            self.disconnect(now_ns);
        }
        self.has_readers.store(false, Ordering::Relaxed);
        self.link.pushing.is_wanted.store(false, Ordering::Relaxed);
        // All are registered again with the next turn.
        self.next_ns = Some(now_ns);
        std::mem::take(&mut self.slabs).into_values().map(|held| held.va).collect()
    }

    /// Whether the holder still has what was to end.
    #[must_use]
    pub const fn is_revoking(&self) -> bool {
        self.is_to_release
    }

    /// What the holder has refused is asked for again in a minute.
    pub fn ask_again(&mut self, now_ns: u64) {
        self.next_ns = Some(now_ns.saturating_add(LONGEST_PAUSE_NS));
    }

    /// Tells the operator how many regions the device does not serve, when that has changed.
    pub fn tell_left_out(&mut self, regions: usize) {
        if std::mem::replace(&mut self.left_out, regions) != regions && regions > 0 {
            system::log(&format!(
                "warning: {regions} regions are not served by the RDMA device: their addresses are from before it, or the holder refuses their memory; the kernel responder serves them"
            ));
        }
    }

    /// Bootstraps may begin: the control region is registered under this key.
    pub fn control(&self, rkey: u32) {
        let mut link = lock(&self.link);
        (link.control_rkey, link.problem) = (rkey, None);
    }

    /// Ends what is registered of slabs that are not there any more.
    pub fn end_others(&mut self, is_there: impl Fn(u32) -> bool) {
        let gone: Vec<u32> = self.slabs.keys().copied().filter(|slab| !is_there(*slab)).collect();
        for slab in gone {
            self.slabs.remove(&slab);
            self.call(|holder| holder.end(&name(slab)));
        }
    }

    fn call<T>(&self, call: impl FnOnce(&mut Holder) -> Result<T, ClientError>) -> Option<T> {
        lock(&self.link).call(call)
    }

    /// Descriptor that becomes readable when the holder goes.
    ///
    /// # Errors
    /// As `watch` has it.
    pub fn watch<E>(&self, watch: impl FnOnce(BorrowedFd<'_>) -> Result<(), E>) -> Result<(), E> {
        lock(&self.link).holder.as_ref().map_or(Ok(()), |holder| watch(holder.as_fd()))
    }
}

#[cfg(test)]
mod tests;
