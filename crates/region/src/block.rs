// SPDX-License-Identifier: Apache-2.0
//! The block and its identity word (docs/format/block.md).
//!
//! A [`Block`] is a private copy: whoever has one owns its bytes and may look at them at leisure. Shared memory is `&[AtomicU64]` and is
//! only ever copied word by word ([`Block::copy_from`]), which costs about 30 ns a block.

use crate::limits::{
    BLOCK_WORDS, FIRST_PROGRAM_REGION, GUARDED_SLOTS, MAX_GENERATION, MAX_REGION_BLOCKS, MAX_REGION_ID, PLAIN_SLOTS,
};
use crate::sync::{AtomicU64, Ordering};

/// Word of a plain block that holds the identity.
pub const PLAIN_IDENTITY: usize = 0;
/// First value word of a plain block.
pub const PLAIN_FIRST: usize = 1;
/// Word of a guarded block that holds the version.
pub const GUARDED_VERSION: usize = 0;
/// Word of a guarded block that holds the acquisition time.
pub const GUARDED_TIME: usize = 1;
/// Word of a guarded block that holds the identity.
pub const GUARDED_IDENTITY: usize = 2;
/// First payload word of a guarded block.
pub const GUARDED_FIRST: usize = 3;

/// Who owns a block: region, generation, place in the region. Zero as a word means nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Region id; 0 is the control region.
    pub region: u32,
    /// Generation of the region, never 0.
    pub generation: u32,
    /// Place of the block in its region.
    pub index: u16,
}

impl Identity {
    /// The identity of block 0 of a region.
    ///
    /// # Panics
    /// If `region` or `generation` exceed 24 bits or `generation` is 0: both are made by us, never parsed.
    #[must_use]
    pub fn first(region: u32, generation: u32) -> Self {
        assert!(region <= MAX_REGION_ID && (1..=MAX_GENERATION).contains(&generation));
        Self { region, generation, index: 0 }
    }

    /// The same region's identity for another block.
    #[must_use]
    pub fn at(self, index: u16) -> Self {
        Self { index, ..self }
    }

    /// Whether the region is one of the agent's own; else it is a program's, which may say what it likes.
    #[must_use]
    pub fn is_agents(self) -> bool {
        self.region < FIRST_PROGRAM_REGION
    }

    /// As it stands in memory.
    #[must_use]
    pub fn word(self) -> u64 {
        u64::from(self.index) | u64::from(self.region) << 16 | u64::from(self.generation) << 40
    }

    /// Parsed; `None` where no region owns the block (generation 0).
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // each part is masked to its bits
    pub fn from_word(word: u64) -> Option<Self> {
        let generation = (word >> 40) as u32;
        (generation != 0).then_some(Self {
            region: (word >> 16) as u32 & MAX_REGION_ID,
            generation,
            index: word as u16,
        })
    }
}

/// A private copy of a block's 1024 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(1024))]
pub struct Block(pub [u64; BLOCK_WORDS]);

impl Default for Block {
    fn default() -> Self {
        Self([0; BLOCK_WORDS])
    }
}

impl Block {
    /// Copies a block out of shared memory with aligned 8-byte loads.
    ///
    /// # Panics
    /// If `words` is not a block long.
    pub fn copy_from(&mut self, words: &[AtomicU64]) {
        assert_eq!(words.len(), BLOCK_WORDS);
        for (to, from) in self.0.iter_mut().zip(words) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    /// The block's bytes as they are on the wire.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    /// To be filled from the wire.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::bytes_of_mut(self)
    }

    /// Payload of a guarded block; meaningful only after [`crate::guard::check`].
    #[must_use]
    pub fn payload(&self) -> &[u64] {
        &self.0[GUARDED_FIRST..GUARDED_FIRST + GUARDED_SLOTS]
    }
}

/// Where slot `slot` of a plain group stands: (block of the group, word of the block).
#[must_use]
pub fn plain_place(slot: usize) -> (usize, usize) {
    (slot / PLAIN_SLOTS, PLAIN_FIRST + slot % PLAIN_SLOTS)
}

/// Where slot `slot` of a guarded or computed group stands: (block of the group, word of the block).
#[must_use]
pub fn guarded_place(slot: usize) -> (usize, usize) {
    (slot / GUARDED_SLOTS, GUARDED_FIRST + slot % GUARDED_SLOTS)
}

/// Writes identities into the plain block at `words`.
pub fn init_plain(words: &[AtomicU64], identity: Identity) {
    words[PLAIN_IDENTITY].store(identity.word(), Ordering::Relaxed);
}

/// Accepts a copied plain block if it is who it should be.
///
/// # Errors
/// [`crate::Reject::Identity`].
pub fn check_plain(block: &Block, expected: Identity) -> Result<(), crate::Reject> {
    if block.0[PLAIN_IDENTITY] == expected.word() { Ok(()) } else { Err(crate::Reject::Identity) }
}

const _: () = assert!(MAX_REGION_BLOCKS == 1 << 16, "an index is 16 bits");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn identity_survives_the_word() {
        for (region, generation, index) in [(0, 1, 0), (1, MAX_GENERATION, u16::MAX), (MAX_REGION_ID, 1, 7)] {
            let identity = Identity::first(region, generation).at(index);
            assert_eq!(Identity::from_word(identity.word()), Some(identity));
        }
        assert_eq!(Identity::from_word(0), None);
        assert_eq!(Identity::from_word(0xff_ffff_ffff), None, "generation 0 owns nothing");
    }

    #[test]
    fn slots_skip_the_words_that_are_not_payload() {
        assert_eq!(plain_place(0), (0, 1));
        assert_eq!(plain_place(126), (0, 127));
        assert_eq!(plain_place(127), (1, 1));
        assert_eq!(guarded_place(123), (0, 126));
        assert_eq!(guarded_place(124), (1, 3));
    }
}
