// SPDX-License-Identifier: Apache-2.0
//! Key-Write: the newest value of each key, in a table that all reporters share (paper D, section on Key-Write).
//!
//! A report is written at N places that follow from its key, over whatever is there. An entry is known as the key's by its
//! check, which depends on time and payload, too: an entry that is half one report and half another fits no key, as a
//! query that races with a write, or a write that was torn on its way, must see it. Nothing is ever removed: entries live
//! until others fall on them.
//!
//! An entry never crosses a multiple of its size, so that one READ within a block has all of it.

pub use onlooker_wire::dta::MAX_COPIES;

use crate::hash::{Hash, Seed};
use crate::seal::Seal;

/// How many bytes of its hash an entry has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckBytes {
    /// A query for a key that was never written is wrong once in 2^32 entries that it looks at.
    Four,
    /// Once in 2^64.
    Eight,
}

impl CheckBytes {
    const fn count(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    fn of(self, check: u64) -> [u8; 8] {
        match self {
            Self::Four => (check ^ check >> 32) & 0xffff_ffff,
            Self::Eight => check,
        }
        .to_le_bytes()
    }
}

/// When an entry was written, in units of 2^20 ns of the translator's clock, modulo 2^32 (52 days); never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp(u32);

impl Stamp {
    /// Bits of a time in ns that a stamp leaves out.
    const SHIFT: u32 = 20;

    /// Of a time, ns.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
    pub const fn of(time_ns: u64) -> Self {
        let stamp = (time_ns >> Self::SHIFT) as u32;
        Self(if stamp == 0 { 1 } else { stamp })
    }

    /// As it lies in memory.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// From memory; `None`: nobody has written there.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }

    /// How old it is at a time, ns, to 2^20 ns: 0 if it is later.
    #[must_use]
    pub const fn age_ns(self, now_ns: u64) -> u64 {
        let age = Self::of(now_ns).0.wrapping_sub(self.0);
        // Half the circle: a clock that was read a moment too early is not 52 days late.
        if age >= 1 << 31 { 0 } else { (age as u64) << Self::SHIFT }
    }
}

/// What a table is like. Whoever queries it must know the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// What makes its hashes its own.
    pub seed: Seed,
    /// It has 2 to the power of so many slots, 2 to 32.
    pub slots_log2: u8,
    /// Bytes of each payload, 1 to 64.
    pub payload_bytes: u8,
    /// How sure an answer is.
    pub check: CheckBytes,
}

/// The longest entry.
pub const MAX_ENTRY_BYTES: usize = 128;

/// What a table has of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// Nothing, or nothing any more.
    Empty,
    /// A value.
    Value {
        /// The payload.
        payload: &'a [u8],
        /// When it was written.
        stamp: Stamp,
        /// How many of its copies are there.
        copies: u8,
        /// Copies of other values are there, too, of before or by chance.
        is_disputed: bool,
    },
    /// Different values, none of which counts.
    Conflict,
}

/// What counts where copies differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Consensus {
    /// The value that more copies have than any other; of those that have equally many, the newest.
    Plurality,
    /// None of them does.
    Strict,
}

impl Table {
    /// Bytes of an entry, a power of two.
    #[must_use]
    pub const fn entry_bytes(&self) -> usize {
        (self.check.count() + size_of::<Stamp>() + self.payload_bytes as usize).next_power_of_two()
    }

    /// Bytes of an entry's check.
    #[must_use]
    pub const fn check_bytes(&self) -> usize {
        self.check.count()
    }

    /// Bytes of the table.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        (self.entry_bytes() as u64) << self.slots_log2
    }

    /// Where a copy of a key's entry begins, bytes from the beginning of the table.
    #[must_use]
    pub fn offset(&self, hash: &Hash, copy: u8) -> u64 {
        hash.slot(copy, self.slots_log2) * self.entry_bytes() as u64
    }

    /// A key's hash in this table.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> Hash {
        Hash::of(&self.seed, key)
    }

    /// Makes an entry, in the first [`Table::entry_bytes`] of `out`.
    ///
    /// # Panics
    /// If the payload is not as long as the table's, or `out` is shorter than an entry.
    pub fn encode(&self, hash: &Hash, stamp: Stamp, payload: &[u8], out: &mut [u8]) {
        assert_eq!(payload.len(), usize::from(self.payload_bytes), "a payload of another table");
        let out = &mut out[..self.entry_bytes()];
        let (check, rest) = out.split_at_mut(self.check.count());
        let (time, rest) = rest.split_at_mut(size_of::<Stamp>());
        let (value, pad) = rest.split_at_mut(payload.len());
        check.copy_from_slice(&self.check.of(sealed(hash.check, stamp, payload))[..check.len()]);
        time.copy_from_slice(&stamp.0.to_le_bytes());
        value.copy_from_slice(payload);
        pad.fill(0);
    }

    /// The time and payload of an entry, if it is the key's.
    #[must_use]
    pub fn decode<'a>(&self, hash: &Hash, entry: &'a [u8]) -> Option<(Stamp, &'a [u8])> {
        let (check, rest) = entry.split_at_checked(self.check.count())?;
        let (time, rest) = rest.split_first_chunk()?;
        let (payload, stamp) = (rest.get(..self.payload_bytes.into())?, Stamp::from_bits(u32::from_le_bytes(*time))?);
        let fits = self.check.of(sealed(hash.check, stamp, payload))[..check.len()] == *check;
        fits.then_some((stamp, payload))
    }

    /// What entries say of a key: those at its places, in any order.
    #[must_use]
    pub fn find<'a>(&self, hash: &Hash, entries: [&'a [u8]; MAX_COPIES as usize], consensus: Consensus) -> Found<'a> {
        let fitting = entries.map(|entry| self.decode(hash, entry));
        let copies = |payload: &[u8]| fitting.iter().flatten().filter(|(_, other)| *other == payload).count();
        let rank = |(stamp, payload): &(Stamp, &[u8])| (copies(payload), *stamp);
        let later = |one: &(Stamp, &'a [u8]), other: &(Stamp, &'a [u8])| {
            let ((copies, stamp), (others, before)) = (rank(one), rank(other));
            copies.cmp(&others).then(stamp.0.wrapping_sub(before.0).cast_signed().cmp(&0))
        };
        let Some((stamp, payload)) = fitting.iter().flatten().copied().max_by(later) else { return Found::Empty };
        let (all, copies) = (fitting.iter().flatten().count(), copies(payload));
        if copies < all && consensus == Consensus::Strict {
            return Found::Conflict;
        }
        // There are four at most.
        let copies = u8::try_from(copies).unwrap_or(MAX_COPIES);
        Found::Value { payload, stamp, copies, is_disputed: usize::from(copies) < all }
    }
}

/// A key's check with what it stands for.
fn sealed(check: u64, stamp: Stamp, payload: &[u8]) -> u64 {
    check ^ Seal::with(stamp.0.into(), payload)
}

#[cfg(test)]
mod tests;
