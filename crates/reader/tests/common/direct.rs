// SPDX-License-Identifier: Apache-2.0
//! A requester that answers every READ of a host in memory at the next poll.

use super::memory::Host;
use onlooker_reader::{Broken, Completion, Outcome, Read, Requester};
use onlooker_region::Block;
use std::time::Duration;

/// The host's answer to a READ, put into `blocks`.
pub fn answer(host: &Host, read: &Read, blocks: &mut [Block]) -> Outcome {
    let asked = onlooker_wire::tcp_read::Read { va: read.va, rkey: read.rkey, length_bytes: read.blocks * 1024 };
    match host.memory.read(&asked) {
        Err(refusal) => Outcome::Refused(refusal),
        Ok(bytes) => {
            for (block, bytes) in blocks.iter_mut().zip(bytes.chunks_exact(1024)) {
                block.bytes_mut().copy_from_slice(bytes);
            }
            Outcome::Done
        }
    }
}

pub struct Direct<'a> {
    host: &'a Host,
    reads: Vec<Read>,
}

impl<'a> Direct<'a> {
    pub fn new(host: &'a Host) -> Self {
        Self { host, reads: Vec::new() }
    }
}

impl Requester for Direct<'_> {
    fn max_read_blocks(&self) -> u32 {
        64
    }

    fn in_flight(&self) -> usize {
        self.reads.len()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize, Broken> {
        self.reads.extend(reads);
        Ok(reads.len())
    }

    fn poll(&mut self, memory: &mut [Block], _now_ns: u64, completions: &mut Vec<Completion>) -> Result<(), Broken> {
        for read in self.reads.drain(..) {
            let outcome = answer(self.host, &read, &mut memory[read.at as usize..]);
            completions.push(Completion { id: read.id, outcome });
        }
        Ok(())
    }

    fn wait(&mut self, _timeout: Duration) -> Result<(), Broken> {
        Ok(())
    }
}
