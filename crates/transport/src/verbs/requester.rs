// SPDX-License-Identifier: Apache-2.0
//! One host over a device of its own.

use super::copy::{DirectoryCopy, SharedMirror};
use super::flows::{Flows, broken_by};
use onlooker_reader::{Broken, Completion, Mirror, Read, Requester};
use onlooker_region::Block;
use onlooker_verbs::{Card, Flow, Port};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// A port that can be slept on.
pub trait Sleeper {
    /// Has the next [`Sleeper::sleep`] end at the next completion. Those that came before do not end it.
    ///
    /// # Errors
    /// The device has refused.
    fn arm(&mut self) -> Result<(), onlooker_verbs::Error>;

    /// Sleeps, at most `timeout`; whether something has completed since it was armed.
    ///
    /// # Errors
    /// The system call failed.
    fn sleep(&mut self, timeout: Duration) -> io::Result<bool>;
}

impl Sleeper for Card {
    fn arm(&mut self) -> Result<(), onlooker_verbs::Error> {
        self.queue().arm()
    }

    fn sleep(&mut self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(self.queue(), PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// How far going to sleep has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alarm {
    Off,
    /// Set. What completed before it was is to be polled for once more: it wakes nobody.
    Set,
    /// Set, and polled since.
    Ready,
}

/// A requester with one flow.
#[derive(Debug)]
pub struct VerbsRequester<P: Port = Card> {
    flows: Flows<P>,
    flow: Flow,
    max_read_blocks: u32,
    alarm: Alarm,
    /// Of the last poll.
    now_ns: u64,
    /// Why the host's directory is not written here, though the host would.
    copy_problem: Option<String>,
}

impl<P: Port> VerbsRequester<P> {
    /// Over a connected queue pair of `port`, for a host that answers READs of up to `max_read_blocks`.
    ///
    /// # Panics
    /// If the pair is another port's.
    #[must_use]
    pub fn new(port: P, pair: P::Pair, max_read_blocks: u32) -> Self {
        Self::with_mirror(port, pair, max_read_blocks, None)
    }

    /// The same over a queue pair whose host writes its directory to `copy`.
    ///
    /// # Panics
    /// If the pair is another port's.
    #[must_use]
    pub fn with_copy(port: P, pair: P::Pair, max_read_blocks: u32, copy: &DirectoryCopy) -> Self {
        let copy_problem = copy.problem().map(str::to_owned);
        Self { copy_problem, ..Self::with_mirror(port, pair, max_read_blocks, copy.mirror()) }
    }

    pub(super) fn with_mirror(port: P, pair: P::Pair, max_read_blocks: u32, copy: Option<SharedMirror>) -> Self {
        let longest = port.settings(&pair).map_or(1, |settings| settings.max_read_blocks);
        let mut flows = Flows::new(port);
        let flow = match copy {
            Some(copy) => flows.add_with_copy(pair, copy),
            None => flows.add(pair),
        };
        let flow = flow.expect("the first of 65536");
        let max_read_blocks = longest.min(max_read_blocks).max(1);
        Self { flows, flow, max_read_blocks, alarm: Alarm::Off, now_ns: 0, copy_problem: None }
    }

    /// For [`Session::mirror`](onlooker_reader::Session::mirror), where the host writes its directory to this machine.
    pub fn mirror(&mut self) -> Option<Box<dyn Mirror + Send>> {
        self.flows.mirror(self.flow)
    }

    /// Why there is no mirror, though the host would write to it: what this machine's device says.
    #[must_use]
    pub fn copy_problem(&self) -> Option<&str> {
        self.copy_problem.as_deref()
    }

    /// The device with its one flow, for its counters.
    #[must_use]
    pub fn flows(&self) -> &Flows<P> {
        &self.flows
    }
}

impl<P: Port + Sleeper> Requester for VerbsRequester<P> {
    fn max_read_blocks(&self) -> u32 {
        self.max_read_blocks
    }

    fn in_flight(&self) -> usize {
        self.flows.in_flight()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize, Broken> {
        self.flows.submit(self.flow, reads)
    }

    fn poll(&mut self, memory: &mut [Block], now_ns: u64, completions: &mut Vec<Completion>) -> Result<(), Broken> {
        let before = completions.len();
        self.now_ns = now_ns;
        self.flows.poll(memory, now_ns, completions)?;
        let broken = self.flows.broken(self.flow);
        self.flows.tell(completions);
        if completions.len() > before {
            self.alarm = Alarm::Off;
        } else if self.alarm == Alarm::Set {
            self.alarm = Alarm::Ready;
        }
        broken.map_or(Ok(()), Err)
    }

    /// The first call after something has completed only sets the alarm: the caller polls once more, and sleeps in the next one.
    fn wait(&mut self, timeout: Duration) -> Result<(), Broken> {
        let until_wake = self.flows.wake_ns().map(|wake_ns| Duration::from_nanos(wake_ns.saturating_sub(self.now_ns)));
        let timeout = until_wake.map_or(timeout, |until_wake| timeout.min(until_wake));
        if timeout.is_zero() {
            return Ok(());
        }
        match self.alarm {
            Alarm::Off => {
                self.flows.port_mut().arm().map_err(|error| broken_by(&error))?;
                self.alarm = Alarm::Set;
            }
            Alarm::Set => {}
            Alarm::Ready => {
                let slept = self.flows.port_mut().sleep(timeout);
                let has_completed = slept.map_err(|error| Broken::System { operation: "poll", kind: error.kind() })?;
                if has_completed {
                    self.alarm = Alarm::Off;
                }
            }
        }
        Ok(())
    }
}
