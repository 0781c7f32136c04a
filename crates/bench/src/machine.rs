// SPDX-License-Identifier: Apache-2.0
//! Cores, priorities, clocks, and what the kernel tells of its own threads.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::Error;
use std::time::Duration;

/// Core of everything that asks: requester, scraper, load generator.
pub(crate) const ASKING_CORE: usize = 0;
/// Core of everything that is watched: responder, monitors, victim, hogs.
pub(crate) const WATCHED_CORE: usize = 1;

/// CLOCK_MONOTONIC.
pub(crate) fn now_ns() -> u64 {
    clock_ns(rustix::time::ClockId::Monotonic)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(rustix::time::ClockId::ThreadCPUTime)
}

fn clock_ns(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

pub(crate) fn sleep_ns(ns: u64) {
    std::thread::sleep(Duration::from_nanos(ns));
}

/// The calling thread runs on `core` from now on. Async-signal-safe.
pub(crate) fn pin(core: usize) -> std::io::Result<()> {
    // SAFETY: `set` is a plain bit set of the size given; 0 means the calling thread.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// The calling thread is of SCHED_FIFO at `priority`, or of SCHED_OTHER at 0. What it starts is of SCHED_OTHER in both
/// cases.
pub(crate) fn set_realtime(priority: i32) -> Result<()> {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK };
    schedule(policy, priority).context("SCHED_FIFO (with RT_GROUP_SCHED only in the root cpu cgroup)")
}

/// The calling thread runs only where nobody else wants to.
pub(crate) fn set_idle() -> std::io::Result<()> {
    schedule(libc::SCHED_IDLE, 0)
}

fn schedule(policy: i32, priority: i32) -> std::io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: a plain system call on a live structure; 0 means the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) };
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Where this process has a session of its own (bench/latency and bench/victim start it so), the scheduler gives that
/// the highest weight: other users of the machine disturb little, and within the session everything stays as equal as
/// before. Without autogroups (sched(7)) nothing happens.
pub(crate) fn raise_session() {
    let is_leader = rustix::process::getsid(None).ok() == Some(rustix::process::getpid());
    if is_leader && fs::write("/proc/self/autogroup", "-20").is_err() {
        println!(
            "no autogroup: other programs on this machine disturb the measurement as much as their priority lets them"
        );
    }
}

/// No page of this process is ever missing.
pub(crate) fn lock_memory() {
    // SAFETY: no memory is given. A failure costs page faults, which show in the requester's own lateness.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
}

/// `QUICK=1`.
pub(crate) fn is_quick() -> bool {
    std::env::var_os("QUICK").is_some_and(|value| !value.is_empty() && value != "0")
}

/// A number from the environment, or what is usual.
pub(crate) fn parameter(name: &str, full: u64, quick: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().with_context(|| format!("{name}={text} is not a number")),
        _ => Ok(if is_quick() { quick } else { full }),
    }
}

/// At least two processors, or none of this makes sense.
pub(crate) fn check_cores() -> Result<()> {
    let cores = fs::read_to_string("/proc/stat")?.lines().filter(|line| line.starts_with("cpu")).count() - 1;
    ensure!(cores > WATCHED_CORE, "needs two processors, there is {cores}");
    Ok(())
}

/// The pid of a kernel thread.
pub(crate) fn kernel_thread(name: &str) -> Result<u32> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|text| text.parse::<u32>().ok()) else { continue };
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name) {
            return Ok(pid);
        }
    }
    anyhow::bail!("no kernel thread {name}")
}

/// CPU time of a process's main thread, ns.
pub(crate) fn run_time_ns(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    text.split_whitespace().next().and_then(|word| word.parse().ok()).context("schedstat of another format")
}

/// Busy and all ticks of a core, as /proc/stat has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreTicks {
    busy: u64,
    all: u64,
}

impl CoreTicks {
    pub(crate) fn of(core: usize) -> Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let name = format!("cpu{core} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)).context("a core is not in /proc/stat")?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map(|word| word.parse().unwrap_or(0)).collect();
        let all = ticks.iter().sum();
        Ok(Self { busy: all - ticks[3] - ticks[4], all })
    }

    /// Busy percent since `self`.
    pub(crate) fn busy_pct(self, core: usize) -> Result<f64> {
        let now = Self::of(core)?;
        Ok(100.0 * (now.busy - self.busy) as f64 / (now.all - self.all).max(1) as f64)
    }
}
