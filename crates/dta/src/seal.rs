// SPDX-License-Identifier: Apache-2.0
//! What shows that bytes were written together: half of one write and half of another have another seal.
//!
//! No secret is in it. Against who writes on purpose there are access keys and seeds.

/// Up to 8 bytes, little-endian, with zeros behind them.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Folded over words. A word that differs makes all that follows differ: each step can be undone.
pub(crate) struct Seal(u64);

impl Seal {
    /// Of bytes, as words of 8 with zeros behind the last.
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        Self(0).and(bytes)
    }

    /// Of a number, and bytes behind it.
    pub(crate) fn with(number: u64, bytes: &[u8]) -> u64 {
        Self(0).stir(number).and(bytes)
    }

    fn and(self, bytes: &[u8]) -> u64 {
        bytes.chunks(8).map(word).fold(self, Self::stir).0
    }

    fn stir(self, word: u64) -> Self {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed ^ mixed >> 32)
    }
}
