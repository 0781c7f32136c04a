// SPDX-License-Identifier: Apache-2.0
//! Requests at due times, whatever became of earlier ones; a latency runs from the due time to the moment that the requester has the whole answer.
//!
//! So a stalled responder delays no later request, and a late requester is counted against what is measured: coordinated omission cannot happen. The
//! requester's own delay (due time to the request's system call) is recorded beside it. Needs SCHED_FIFO and a core: the loop spins before a due time and
//! while an answer is expected soon, and sleeps otherwise, so that real-time throttling (95 % of a core) is never near.

use crate::machine::now_ns;
use anyhow::Result;
use std::time::Duration;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Right,
    /// Something came that is no answer to it.
    Wrong,
    Lost,
}

/// Something that can be asked. Ids count from 0 within one run.
pub(crate) trait Path {
    /// Sends request `id` now.
    fn send(&mut self, id: u64) -> Result<()>;
    /// Appends the ids of requests that ended. Never blocks.
    fn poll(&mut self, done: &mut Vec<(u64, End)>) -> Result<()>;
    /// Sleeps until something arrives, at most so long.
    fn wait(&mut self, timeout: Duration) -> Result<()>;
    /// Forgets what is under way; ids begin anew.
    fn reset(&mut self) -> Result<()>;
}

/// When to ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) interval_ns: u64,
    pub(crate) requests: u64,
    /// An answer that has not come so long after the last due time is lost.
    pub(crate) patience_ns: u64,
}

/// What came of it. Latencies are in the order of due times; a lost answer is `u64::MAX`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) latencies_ns: Vec<u64>,
    pub(crate) lateness_ns: Vec<u64>,
    pub(crate) lost: u64,
    pub(crate) wrong: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Outcome) {
        self.latencies_ns.extend(other.latencies_ns);
        self.lateness_ns.extend(other.lateness_ns);
        self.lost += other.lost;
        self.wrong += other.wrong;
    }
}

/// Spins so long before a due time, and so long after a request; at most a tenth of the interval each.
const SPIN_BEFORE_NS: u64 = 300_000;
const SPIN_AFTER_NS: u64 = 1_000_000;

pub(crate) fn run(path: &mut dyn Path, plan: Plan) -> Result<Outcome> {
    path.reset()?;
    let requests = usize::try_from(plan.requests)?;
    let mut outcome = Outcome {
        latencies_ns: vec![u64::MAX; requests],
        lateness_ns: Vec::with_capacity(requests),
        ..Outcome::default()
    };
    let spin_before_ns = SPIN_BEFORE_NS.min(plan.interval_ns / 10);
    let spin_after_ns = SPIN_AFTER_NS.min(plan.interval_ns / 10);
    let mut done = Vec::with_capacity(requests);
    let (mut next, mut open, mut sent_ns) = (0, 0u64, 0);
    let begin_ns = now_ns() + plan.interval_ns;
    let due_ns = |id: u64| begin_ns + id * plan.interval_ns;
    let end_ns = due_ns(plan.requests) + plan.patience_ns;
    while next < plan.requests || open > 0 {
        let now = now_ns();
        if now > end_ns {
            break;
        }
        if next < plan.requests && now >= due_ns(next) {
            outcome.lateness_ns.push(now - due_ns(next));
            path.send(next)?;
            sent_ns = now;
            next += 1;
            open += 1;
        }
        path.poll(&mut done)?;
        if !done.is_empty() {
            let now = now_ns();
            for (id, end) in done.drain(..) {
                if end != End::Lost {
                    outcome.latencies_ns[usize::try_from(id)?] = now - due_ns(id);
                }
                outcome.wrong += u64::from(end == End::Wrong);
                open -= 1;
            }
            continue;
        }
        let now = now_ns();
        let until_ns = if next < plan.requests { due_ns(next).saturating_sub(spin_before_ns) } else { end_ns };
        let is_expected = open > 0 && now < sent_ns + spin_after_ns;
        if now < until_ns && !is_expected {
            path.wait(Duration::from_nanos(until_ns - now))?;
        }
    }
    outcome.lost = outcome.latencies_ns.iter().filter(|latency| **latency == u64::MAX).count() as u64;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers at once, but for one request that it loses and one that it answers `STALL_NS` late, with everything behind it.
    #[derive(Default)]
    struct Stalling {
        open: Vec<u64>,
        free_ns: u64,
    }

    const STALL_NS: u64 = 20_000_000;

    impl Path for Stalling {
        fn send(&mut self, id: u64) -> Result<()> {
            match id {
                3 => return Ok(()),
                5 => self.free_ns = now_ns() + STALL_NS,
                _ => {}
            }
            self.open.push(id);
            Ok(())
        }

        fn poll(&mut self, done: &mut Vec<(u64, End)>) -> Result<()> {
            if now_ns() >= self.free_ns {
                let end = |id| if id == 0 { End::Wrong } else { End::Right };
                done.extend(self.open.drain(..).map(|id| (id, end(id))));
            }
            Ok(())
        }

        fn wait(&mut self, timeout: Duration) -> Result<()> {
            std::thread::sleep(timeout.min(Duration::from_micros(50)));
            Ok(())
        }

        fn reset(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stall_counts_for_every_request_that_was_due_in_it() {
        let plan = Plan { interval_ns: 5_000_000, requests: 12, patience_ns: 30_000_000 };
        let outcome = run(&mut Stalling::default(), plan).unwrap();
        assert_eq!((outcome.lost, outcome.wrong, outcome.lateness_ns.len()), (1, 1, 12));
        assert_eq!(outcome.latencies_ns[3], u64::MAX);
        // A closed loop would have seen one slow answer; here 5, 6, 7 and 8 were due within 20 ms.
        for (id, waited_ns) in [(5, 20_000_000), (6, 15_000_000), (7, 10_000_000), (8, 5_000_000)] {
            assert!(outcome.latencies_ns[id] >= waited_ns - 1_000_000, "{id}: {}", outcome.latencies_ns[id]);
        }
    }
}
