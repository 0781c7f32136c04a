// SPDX-License-Identifier: Apache-2.0
//! Two tasks that take turns on the watched core, and nothing else: what a turn takes of CPU time.

use std::fmt;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::machine::{WATCHED_CORE, pin, thread_cpu_ns};

/// Attempts at a run in which both take turns.
const TRIES: u32 = 5;

/// How a task hands over to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turns {
    /// By a byte through a pipe: it wakes the other, then waits for the answer.
    Pipe,
    /// By sched_yield: it could go on, and waits until the other yields.
    Yield,
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pipe => "pipe",
            Self::Yield => "yield",
        })
    }
}

/// CPU time of both tasks for a turn, ns. The rest of the machine takes part in elapsed time only.
pub(super) fn turn_ns(turns: Turns, rounds: u64) -> Result<f64> {
    match turns {
        Turns::Pipe => by_pipe(rounds),
        Turns::Yield => by_yield(rounds),
    }
}

fn by_pipe(rounds: u64) -> Result<f64> {
    let ((near_in, far_out), (far_in, near_out)) = (pipe()?, pipe()?);
    let hand_over = move |mut input: PipeReader, mut output: PipeWriter, begins: bool| -> Result<u64> {
        pin(WATCHED_CORE)?;
        let mut byte = [0];
        let begin_ns = thread_cpu_ns();
        for _ in 0..rounds {
            if begins {
                output.write_all(&byte)?;
            }
            input.read_exact(&mut byte)?;
            if !begins {
                output.write_all(&byte)?;
            }
        }
        Ok(thread_cpu_ns() - begin_ns)
    };
    let far = thread::spawn(move || hand_over(far_in, far_out, false));
    let near = thread::spawn(move || hand_over(near_in, near_out, true));
    Ok(ended([near, far].map(thread::JoinHandle::join))? as f64 / (2 * rounds) as f64)
}

/// A yield is no switch where the kernel lets the same task go on: what counts is how often they were switched. Where the rest of the machine kept them from taking
/// turns, they try again.
fn by_yield(rounds: u64) -> Result<f64> {
    for _ in 0..TRIES {
        let (sum_ns, switches) = yields(rounds)?;
        if switches >= rounds / 2 {
            return Ok(sum_ns as f64 / switches as f64);
        }
    }
    bail!("few switches in {} yields, {TRIES} times: is core {WATCHED_CORE} taken?", 2 * rounds)
}

fn yields(rounds: u64) -> Result<(u64, u64)> {
    let (yields, switches, both) = (AtomicU64::new(0), AtomicU64::new(0), Barrier::new(2));
    let take_turns = || -> Result<u64> {
        pin(WATCHED_CORE)?;
        both.wait();
        let (begin_ns, begin) = (thread_cpu_ns(), own_switches());
        while yields.fetch_add(1, Ordering::Relaxed) < 2 * rounds {
            thread::yield_now();
        }
        switches.fetch_add(own_switches() - begin, Ordering::Relaxed);
        Ok(thread_cpu_ns() - begin_ns)
    };
    let sum_ns =
        thread::scope(|scope| ended([scope.spawn(take_turns), scope.spawn(take_turns)].map(|task| task.join())))?;
    Ok((sum_ns, switches.into_inner()))
}

/// How often the calling thread was switched away from.
fn own_switches() -> u64 {
    // SAFETY: all zeros is a valid rusage, and the call only writes it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    u64::try_from(usage.ru_nvcsw + usage.ru_nivcsw).unwrap_or(0)
}

fn ended(tasks: [thread::Result<Result<u64>>; 2]) -> Result<u64> {
    let [near, far] = tasks.map(|task| task.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    Ok(near.context("taking turns")? + far.context("taking turns")?)
}
