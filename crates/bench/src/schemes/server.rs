// SPDX-License-Identifier: Apache-2.0
//! The threads on the watched core: one that samples blocks into memory, one that answers requests over TCP, from that memory or by computing them.
//!
//! Both sleep while the scheme needs them not. A request is one byte, whose value says what is wanted; the answer is the blocks.

use super::part::Part;
use crate::machine::{WATCHED_CORE, pin};
use anyhow::{Context, Result};
use onlooker_metrics::collect::{InstalledGroup, Local};
use onlooker_region::guard::commit;
use onlooker_region::{Block, Identity};
use onlooker_responder::SlabMapping;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// What a request asks for.
pub(super) const COMPUTE: u8 = 1;
pub(super) const STORED: u8 = 2;

/// What the threads are told.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Between two samples; 0: none are taken.
    pub(super) sample_ns: AtomicU64,
    pub(super) is_over: AtomicBool,
}

/// Computes parts in the calling thread, which does not count as a task that runs.
struct Computer<'a> {
    parts: &'a [Part],
    locals: Vec<Local>,
}

impl<'a> Computer<'a> {
    fn new(groups: &[(InstalledGroup, u32)], parts: &'a [Part]) -> Result<Self> {
        let locals = parts.iter().map(|part| Ok(groups[part.group].0.local()?)).collect::<Result<_>>()?;
        Ok(Self { parts, locals })
    }

    fn payload(&self, index: usize) -> Result<Vec<u64>> {
        let part = &self.parts[index];
        let mut payload = self.locals[index].payload(part.block)?.context("a collector has nothing to say")?;
        if let Some(slot) = part.running {
            payload[slot] = payload[slot].saturating_sub(1);
        }
        Ok(payload)
    }
}

pub(super) fn boot_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Begins: on the watched core; says which task it is.
fn begin(ready: &Sender<u32>) -> Result<()> {
    pin(WATCHED_CORE)?;
    let id = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get())?;
    ready.send(id).context("nobody waits for this thread")
}

/// Samples the parts into `memory`, a block each, while it is told to; woken by unparking.
pub(super) fn sample(
    groups: &[(InstalledGroup, u32)],
    parts: &[Part],
    memory: &SlabMapping,
    orders: &Orders,
    ready: &Sender<u32>,
) -> Result<()> {
    let computer = Computer::new(groups, parts)?;
    begin(ready)?;
    let mut due = Instant::now();
    while !orders.is_over.load(Ordering::Acquire) {
        let interval = Duration::from_nanos(orders.sample_ns.load(Ordering::Acquire));
        if interval.is_zero() {
            std::thread::park();
            due = Instant::now();
            continue;
        }
        for (index, words) in memory.words().chunks_exact(128).take(parts.len()).enumerate() {
            let (payload, now_ns) = (computer.payload(index)?, boot_ns());
            commit(words, identity(index), now_ns, |to| to.set_all(0, &payload));
        }
        due = (due + interval).max(Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Answers one connection after the other until told that it is over, and connected to once more.
pub(super) fn serve(
    groups: &[(InstalledGroup, u32)],
    parts: &[Part],
    memory: &SlabMapping,
    (listener, orders): (&TcpListener, &Orders),
    ready: &Sender<u32>,
) -> Result<()> {
    let computer = Computer::new(groups, parts)?;
    begin(ready)?;
    loop {
        let (mut stream, _) = listener.accept()?;
        if orders.is_over.load(Ordering::Acquire) {
            return Ok(());
        }
        stream.set_nodelay(true)?;
        let mut request = [0];
        let mut blocks = vec![Block::default(); parts.len()];
        while stream.read(&mut request)? == 1 {
            for (index, words) in memory.words().chunks_exact(128).take(parts.len()).enumerate() {
                if request[0] == COMPUTE {
                    let payload = computer.payload(index)?;
                    blocks[index].0[1] = boot_ns();
                    blocks[index].0[3..127].copy_from_slice(&payload);
                } else {
                    blocks[index].copy_from(words);
                }
            }
            let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.bytes()).copied().collect();
            stream.write_all(&bytes)?;
        }
    }
}

/// Of sampled block `index`.
pub(super) fn identity(index: usize) -> Identity {
    Identity::first(100 + u32::try_from(index).unwrap_or(0), 1)
}
