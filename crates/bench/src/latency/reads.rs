// SPDX-License-Identifier: Apache-2.0
//! READs of one block by the project's own requesters, soft and TCP.

use super::openloop::{End, Path};
use anyhow::{Result, ensure};
use onlooker_reader::clock::steady_ns;
use onlooker_reader::{Completion, Outcome, Read, Requester};
use onlooker_region::Block;
use std::time::Duration;

/// READs in flight at most; each has a place of its own.
const PLACES: usize = 4096;
const DEADLINE_NS: u64 = 10_000_000_000;

/// Whether a block is block `index` of what was asked for.
pub(crate) type IsRight = Box<dyn Fn(&Block, u64) -> bool>;

/// Which blocks are read, one after the other, and how one is known to be right.
pub(crate) struct Target {
    pub(crate) va: u64,
    pub(crate) rkey: u32,
    pub(crate) blocks: u64,
    pub(crate) is_right: IsRight,
}

pub(crate) struct Reads<R> {
    requester: R,
    target: Target,
    memory: Vec<Block>,
    completions: Vec<Completion>,
    /// In the upper half of ids, so that a late end of an earlier run is known.
    run: u64,
}

impl<R: Requester> Reads<R> {
    pub(crate) fn new(requester: R, target: Target) -> Self {
        let (memory, completions) = (vec![Block::default(); PLACES], Vec::with_capacity(PLACES));
        Self { requester, target, memory, completions, run: 0 }
    }

    fn receive(&mut self) -> Result<()> {
        Ok(self.requester.poll(&mut self.memory, steady_ns(), &mut self.completions)?)
    }
}

fn place(id: u64) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "below the number of places")]
    let place = (id % PLACES as u64) as u32;
    place
}

impl<R: Requester> Path for Reads<R> {
    fn send(&mut self, id: u64) -> Result<()> {
        let at = place(id);
        // What an earlier READ left there would be right as well.
        self.memory[at as usize].0[127] = 0;
        let va = self.target.va + id % self.target.blocks * 1024;
        let deadline_ns = steady_ns() + DEADLINE_NS;
        let read = Read { id: self.run << 32 | id, va, rkey: self.target.rkey, at, blocks: 1, deadline_ns };
        ensure!(self.requester.submit(&[read])? == 1, "the requester has no credit left");
        // Submitting only queues; the next poll of the loop sends.
        self.receive()
    }

    fn poll(&mut self, done: &mut Vec<(u64, End)>) -> Result<()> {
        self.receive()?;
        for completion in self.completions.drain(..).filter(|completion| completion.id >> 32 == self.run) {
            let id = completion.id & 0xffff_ffff;
            let block = &self.memory[place(id) as usize];
            let end = match completion.outcome {
                Outcome::Done if (self.target.is_right)(block, id % self.target.blocks) => End::Right,
                Outcome::Done | Outcome::Refused(_) => End::Wrong,
                Outcome::Timeout | Outcome::Lost => End::Lost,
            };
            done.push((id, end));
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        Ok(self.requester.wait(timeout)?)
    }

    fn reset(&mut self) -> Result<()> {
        self.run += 1;
        Ok(())
    }
}
