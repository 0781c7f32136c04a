// SPDX-License-Identifier: Apache-2.0
//! A copy of the control region on this machine, which the host's device writes when the directory has changed: so that a new region is read without READs of the directory
//! before.
//!
//! The copy is trusted in nothing that its blocks do not say themselves. It may be torn, older than the host's, in part or as a whole, and may have stopped; so
//! - its header counts only if it is not older than what is known, and every [`MIRROR_CHECK_NS`] the host's own is READ;
//! - an entry block counts only if it was committed at least as often as the header says: its version goes up by 2 with each commit, and the change ring names each;
//! - a schema's text counts if it hashes to its id.
//!
//! What does not count is READ from the host, and counted with the reason. Cost: a copy and a guard check for each block looked at.

use onlooker_region::block::GUARDED_VERSION;
use onlooker_region::control::{CONTROL_REGION, Header};
use onlooker_region::{Block, Identity, Reject, guard};
use std::sync::Arc;

/// A cycle that begins so long after the host's own header was asked for asks for it again, ns: what a push that was lost costs at most. It adds to the time for which a
/// region may be read that has ended (a cycle, before), so it is short beside the delay after which its memory is used again (2 s).
pub const MIRROR_CHECK_NS: u64 = 250_000_000;
/// What a commit adds to a guarded block's version (docs/format/block.md).
const VERSION_STEP: u64 = 2;

/// Memory that somebody writes the host's control region to.
pub trait Mirror {
    /// Copies blocks out, as they are at this instant. Those that it does not have are all zeros.
    fn copy(&self, first_block: u32, to: &mut [Block]);
}

impl<M: Mirror + ?Sized> Mirror for Arc<M> {
    fn copy(&self, first_block: u32, to: &mut [Block]) {
        (**self).copy(first_block, to);
    }
}

/// The copy, and what must be known to judge it.
#[derive(Default)]
pub(super) struct Mirrored {
    pub(super) mirror: Option<Box<dyn Mirror + Send>>,
    /// Generation up to which the directory is complete.
    known: Option<u64>,
    /// Versions of the entry blocks as they were taken last, by index; 0: it was not.
    versions: Vec<u32>,
    /// When the host's own header was asked for that was taken last.
    checked_ns: Option<u64>,
}

impl Mirrored {
    /// Whether a cycle may begin with the copy.
    pub(super) fn is_good_for(&self, now_ns: u64) -> bool {
        let is_fresh = |checked_ns: u64| now_ns.saturating_sub(checked_ns) < MIRROR_CHECK_NS;
        self.mirror.is_some() && self.known.is_some() && self.checked_ns.is_some_and(is_fresh)
    }

    /// The host's own header was taken, asked for at this time.
    pub(super) fn checked(&mut self, asked_ns: u64) {
        self.checked_ns = Some(asked_ns);
    }

    /// An entry block was taken, wherever it came from.
    #[allow(clippy::cast_possible_truncation)] // an accepted version has 32 bits
    pub(super) fn took(&mut self, index: u32, block: &Block) {
        let index = index as usize;
        if self.versions.len() <= index {
            self.versions.resize(index + 1, 0);
        }
        self.versions[index] = block.0[GUARDED_VERSION] as u32;
    }

    /// All entry blocks of this generation were taken.
    pub(super) fn complete(&mut self, generation: Option<u64>) {
        self.known = generation;
    }

    /// The copy's header, if the directory can go on from what is known; else why not. `blocks`: of the control region, as bootstrap told.
    pub(super) fn header(&self, incarnation: u32, blocks: u64) -> Result<(Block, Header), &'static str> {
        let block = self.block(0, incarnation)?;
        let header = Header::decode(block.payload()).map_err(|_| "header")?;
        if u64::from(header.entry_blocks) >= blocks {
            return Err("header");
        }
        let known = self.known.ok_or("unknown")?;
        let behind = header.generation.checked_sub(known).ok_or("old")?;
        if behind > header.ring.len() as u64 {
            return Err("behind");
        }
        // Generations are the host's word: the last one has no next.
        let mut named = (1..=behind).map(|change| header.ring_at(known + change));
        if named.all(|index| (1..=header.entry_blocks).contains(&index)) { Ok((block, header)) } else { Err("ring") }
    }

    /// An entry block that this header, of the copy, names, if it is what it was then or newer; else why not.
    pub(super) fn entry_block(&self, index: u32, header: &Header, incarnation: u32) -> Result<Block, &'static str> {
        let block = self.block(index, incarnation)?;
        let known = self.known.ok_or("unknown")?;
        let behind = header.generation.checked_sub(known).ok_or("old")?;
        let commits = (1..=behind).filter(|change| header.ring_at(known + change) == index).count() as u64;
        match self.versions.get(index as usize).copied().unwrap_or(0) {
            // Of a single commit since, whatever is there is from behind it. Of several it could be the first.
            0 if commits != 1 => Err("unseen"),
            // A version that has wrapped looks old.
            version if block.0[GUARDED_VERSION] < u64::from(version) + VERSION_STEP * commits => Err("stale"),
            _ => Ok(block),
        }
    }

    /// Copies blocks of a schema's text out.
    pub(super) fn text(&self, first: u32, to: &mut [Block]) {
        if let Some(mirror) = &self.mirror {
            mirror.copy(first, to);
        }
    }

    fn block(&self, index: u32, incarnation: u32) -> Result<Block, &'static str> {
        let mut block = [Block::default()];
        if let Some(mirror) = &self.mirror {
            mirror.copy(index, &mut block);
        }
        let at = u16::try_from(index).map_err(|_| "ring")?;
        let expected = Identity { region: CONTROL_REGION, generation: incarnation, index: at };
        guard::check(&block[0], expected).map_err(Reject::name)?;
        Ok(block[0])
    }
}
