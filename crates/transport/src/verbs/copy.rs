// SPDX-License-Identifier: Apache-2.0
//! Memory of this machine that the host's device writes its control region to (docs/format/bootstrap.md, Copies of the directory).
//!
//! It is registered for WRITEs for as long as its queue pair can be written to, or a WRITE would end that: who owns the
//! queue pair has the memory, too, and drops it afterwards ([`super::Flows::add_with_copy`]). A session that has it as
//! well ([`onlooker_reader::Session::mirror`]) may outlive both.

use onlooker_bootstrap::{Control, ControlCopy, Responder};
use onlooker_reader::Mirror;
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_region::Block;
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_verbs::{Card, CardPair, Writable};
use std::fmt;
use std::sync::Arc;

/// Longest copy, for it is resident memory for each host. The host writes the front of its control region: the header and the entries, an eighth of it. Texts of schemas are
/// READ, once for each class.
const MAX_COPY_BYTES: u64 = 4 << 20;
/// Of the control region's blocks one in so many is an entry block.
const ENTRY_SHARE: u64 = 8;

/// What a session can read of, and a queue pair can be written to.
pub type SharedMirror = Arc<dyn Mirror + Send + Sync>;

/// As a session sees it.
struct Copy(Writable);

impl Mirror for Copy {
    fn copy(&self, first_block: u32, to: &mut [Block]) {
        let blocks = self.0.bytes() / BLOCK_BYTES as u64;
        let end = u64::from(first_block) + to.len() as u64;
        if end <= blocks { self.0.copy(first_block, to) } else { to.fill(Block::default()) }
    }
}

/// The memory for one host's control region, or that there is none.
#[derive(Clone, Default)]
pub struct DirectoryCopy {
    memory: Option<Arc<Copy>>,
    problem: Option<Arc<str>>,
}

impl DirectoryCopy {
    /// For the queue pair of a host that gave `told`, which it lets be written to. Not connected yet.
    pub(super) fn of(card: &Card, pair: &mut CardPair, told: &Bootstrapped, responder: &Responder) -> Self {
        let Some(blocks) = wanted_blocks(responder, &told.answer.control) else { return Self::default() };
        match Writable::new(card.queue().device(), blocks) {
            Ok(memory) => {
                pair.allow_writes();
                Self { memory: Some(Arc::new(Copy(memory))), problem: None }
            }
            Err(error) => Self { memory: None, problem: Some(error.to_string().into()) },
        }
    }

    /// What the host is told of it.
    #[must_use]
    pub fn told(&self) -> Option<ControlCopy> {
        let Copy(memory) = &**self.memory.as_ref()?;
        Some(ControlCopy { va: memory.va(), rkey: memory.rkey(), bytes: memory.bytes() })
    }

    /// For [`super::Flows::add_with_copy`].
    #[must_use]
    pub fn mirror(&self) -> Option<SharedMirror> {
        self.memory.clone().map(|memory| memory as SharedMirror)
    }

    /// Why there is none, where the host would have written one.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl fmt::Debug for DirectoryCopy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("DirectoryCopy").field("told", &self.told()).field("problem", &self.problem).finish()
    }
}

/// Length of a copy; `None` where the host writes none.
fn wanted_blocks(responder: &Responder, control: &Control) -> Option<u32> {
    let all = control.bytes / BLOCK_BYTES as u64;
    let blocks = all.min(1 + all.div_ceil(ENTRY_SHARE)).min(MAX_COPY_BYTES / BLOCK_BYTES as u64);
    let blocks = u32::try_from(blocks).ok()?;
    (responder.push && blocks > 0).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_wanted_of_hosts_that_write_one_and_has_an_end() {
        let push = Responder { push: true, ..Responder::default() };
        let control = |bytes| Control { rkey: 1, va: 4096, bytes, generation: 5 };
        assert_eq!(wanted_blocks(&push, &control(2 << 20)), Some(257));
        assert_eq!(wanted_blocks(&push, &control(u64::MAX)), Some(4096));
        assert_eq!(wanted_blocks(&push, &control(1023)), None);
        assert_eq!(wanted_blocks(&Responder::default(), &control(2 << 20)), None);
        assert_eq!((DirectoryCopy::default().told(), DirectoryCopy::default().mirror().is_none()), (None, true));
    }
}
