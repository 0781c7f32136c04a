// SPDX-License-Identifier: Apache-2.0
//! Guarded blocks: written as a whole, accepted as a whole (docs/format/block.md, "Guarded block").
//!
//! One writer at a time; any number of readers, who copy the block in any order of words. The version words make most torn copies
//! cheap to refuse, the CRC makes all of them refusable. Functions take the block as a slice so that the model checker can run the same code on a
//! block of a few words; real blocks have [`BLOCK_WORDS`].
//!
//! Cost: a commit about 100-150 ns (two fences, 1016 bytes of CRC), a check about 60 ns.

use crate::block::{Block, GUARDED_FIRST, GUARDED_IDENTITY, GUARDED_TIME, GUARDED_VERSION, Identity};
use crate::limits::BLOCK_WORDS;
use crate::sync::{AtomicU64, Ordering, fence};
use std::fmt;

/// Why a copied block is not accepted. The order is the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// Never committed.
    Unwritten,
    /// A commit was under way.
    Busy,
    /// The two versions differ.
    Version,
    /// The CRC does not match: torn or damaged.
    Crc,
    /// Another region's block, or another generation's.
    Identity,
}

impl Reject {
    /// True where reading once more at once may succeed.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Busy | Self::Version | Self::Crc)
    }

    /// Its name (docs/format/block.md), under which it is counted and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unwritten => "unwritten",
            Self::Busy => "busy",
            Self::Version => "version",
            Self::Crc => "crc",
            Self::Identity => "identity",
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Reject {}

/// CRC-32/ISO-HDLC over words, the block's own checksum.
#[must_use]
pub fn crc(words: &[u64]) -> u32 {
    crc32fast::hash(bytemuck::cast_slice(words))
}

/// The payload of a block under commit.
pub struct Payload<'a>(&'a [AtomicU64]);

impl Payload<'_> {
    /// Stores a payload slot (0 is word 3 of the block).
    pub fn set(&mut self, slot: usize, value: u64) {
        self.0[slot].store(value, Ordering::Relaxed);
    }

    /// What the writer last stored there.
    #[must_use]
    pub fn get(&self, slot: usize) -> u64 {
        self.0[slot].load(Ordering::Relaxed)
    }

    /// Stores consecutive slots from `slot` on.
    pub fn set_all(&mut self, slot: usize, values: &[u64]) {
        for (at, value) in self.0[slot..slot + values.len()].iter().zip(values) {
            at.store(*value, Ordering::Relaxed);
        }
    }

    /// Number of slots.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Changes a guarded block. `fill` gets the payload as it was and changes what it wants.
///
/// The caller is the block's only writer for the duration. `time_ns` is CLOCK_BOOTTIME.
///
/// # Panics
/// If `words` has fewer than five words.
pub fn commit<R>(words: &[AtomicU64], identity: Identity, time_ns: u64, fill: impl FnOnce(&mut Payload) -> R) -> R {
    let tail = words.len() - 1;
    assert!(tail > GUARDED_FIRST);
    let even = words[GUARDED_VERSION].load(Ordering::Relaxed) & 0xffff_fffe;
    words[GUARDED_VERSION].store(even | 1, Ordering::Relaxed);
    words[tail].store(even | 1, Ordering::Relaxed);
    fence(Ordering::Release);

    words[GUARDED_TIME].store(time_ns, Ordering::Relaxed);
    words[GUARDED_IDENTITY].store(identity.word(), Ordering::Relaxed);
    let result = fill(&mut Payload(&words[GUARDED_FIRST..tail]));

    fence(Ordering::Release);
    let version = next_version(even);
    let mut copy = [0; BLOCK_WORDS];
    let covered = &mut copy[..tail];
    covered[0] = version;
    for (to, from) in covered[1..].iter_mut().zip(&words[1..]) {
        *to = from.load(Ordering::Relaxed);
    }
    words[tail].store(version | u64::from(crc(covered)) << 32, Ordering::Release);
    words[GUARDED_VERSION].store(version, Ordering::Release);
    result
}

/// The even version after `even`: 32 bits, 0 left out because it means "unwritten".
fn next_version(even: u64) -> u64 {
    let next = (even + 2) & 0xffff_ffff;
    if next == 0 { 2 } else { next }
}

/// Accepts a copied guarded or computed block, or says why not.
///
/// # Errors
/// The first of the checks that fails, in the order of [`Reject`].
pub fn check(block: &Block, expected: Identity) -> Result<Accepted<'_>, Reject> {
    check_words(&block.0, expected)?;
    Ok(Accepted { block })
}

/// [`check`] for a block of any length.
///
/// # Errors
/// As [`check`].
#[allow(clippy::cast_possible_truncation)] // halves of words are meant
pub fn check_words(words: &[u64], expected: Identity) -> Result<(), Reject> {
    let tail = words.len() - 1;
    let version = words[GUARDED_VERSION];
    if version as u32 == 0 {
        return Err(Reject::Unwritten);
    }
    if version & 1 != 0 {
        return Err(Reject::Busy);
    }
    if version != words[tail] & 0xffff_ffff {
        return Err(Reject::Version);
    }
    if (words[tail] >> 32) as u32 != crc(&words[..tail]) {
        return Err(Reject::Crc);
    }
    if words[GUARDED_IDENTITY] != expected.word() {
        return Err(Reject::Identity);
    }
    Ok(())
}

/// A block that passed the checks.
#[derive(Clone, Copy, Debug)]
pub struct Accepted<'a> {
    block: &'a Block,
}

impl<'a> Accepted<'a> {
    /// Payload, 124 words.
    #[must_use]
    pub fn payload(&self) -> &'a [u64] {
        self.block.payload()
    }

    /// Acquisition time, CLOCK_BOOTTIME ns of the watched host.
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.block.0[GUARDED_TIME]
    }

    /// Version; differs from the last one seen if the block was committed since.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // checked to be 32 bits
    pub fn version(&self) -> u32 {
        self.block.0[GUARDED_VERSION] as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn shared() -> Vec<AtomicU64> {
        (0..BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn copied(words: &[AtomicU64]) -> Block {
        let mut block = Block::default();
        block.copy_from(words);
        block
    }

    const ME: Identity = Identity { region: 5, generation: 77, index: 3 };

    #[test]
    fn a_commit_is_accepted_and_keeps_what_it_did_not_change() {
        let words = shared();
        assert_eq!(check(&copied(&words), ME).unwrap_err(), Reject::Unwritten);
        commit(&words, ME, 1_000, |p| p.set_all(0, &[1, 2, 3]));
        commit(&words, ME, 2_000, |p| p.set(1, 20));
        let block = copied(&words);
        let accepted = check(&block, ME).unwrap();
        assert_eq!(&accepted.payload()[..4], &[1, 20, 3, 0]);
        assert_eq!((accepted.time_ns(), accepted.version()), (2_000, 4));
    }

    #[test]
    fn each_reason_is_told_apart() {
        let words = shared();
        commit(&words, ME, 1, |p| p.set(0, 9));
        let good = copied(&words);
        let changed = |index: usize, value: u64| {
            let mut block = good;
            block.0[index] = value;
            check(&block, ME).unwrap_err()
        };
        assert_eq!(changed(0, 0), Reject::Unwritten);
        assert_eq!(changed(0, 3), Reject::Busy);
        assert_eq!(changed(0, 4), Reject::Version);
        assert_eq!(changed(0, 2 | 1 << 32), Reject::Version);
        assert_eq!(changed(3, 8), Reject::Crc);
        assert_eq!(changed(127, good.0[127] ^ 1 << 40), Reject::Crc);
        assert_eq!(check(&good, ME.at(4)).unwrap_err(), Reject::Identity);
    }

    #[test]
    fn versions_wrap_past_unwritten() {
        let words = shared();
        words[0].store(0xffff_fffe, Ordering::Relaxed);
        commit(&words, ME, 1, |_| ());
        assert_eq!(check(&copied(&words), ME).unwrap().version(), 2);
    }

    #[test]
    fn a_writer_that_died_is_busy_until_the_next_commit() {
        let words = shared();
        let died = std::panic::catch_unwind(|| commit(&words, ME, 1, |_| panic!("dies half-way")));
        assert!(died.is_err());
        assert_eq!(check(&copied(&words), ME).unwrap_err(), Reject::Busy);
        commit(&words, ME, 2, |_| ());
        assert!(check(&copied(&words), ME).is_ok());
    }

    #[test]
    fn any_flipped_bit_is_refused() {
        bolero::check!().with_type::<(u16, [u64; 8])>().for_each(|(bit, values)| {
            let words = shared();
            commit(&words, ME, 7, |p| p.set_all(40, values));
            let mut block = copied(&words);
            let bit = usize::from(*bit) % (BLOCK_WORDS * 64);
            block.0[bit / 64] ^= 1 << (bit % 64);
            assert!(check(&block, ME).is_err());
        });
    }
}

/// The protocol under the model checker: a block of six words, one writer committing twice, one reader copying in two orders.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    const ME: Identity = Identity { region: 1, generation: 1, index: 0 };
    const WORDS: usize = 6;

    fn copies_are_whole_or_refused(order: [usize; WORDS]) {
        loom::model(move || {
            let words: Arc<[AtomicU64; WORDS]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
            let writer = {
                let words = words.clone();
                loom::thread::spawn(move || {
                    commit(&words[..], ME, 1, |p| p.set_all(0, &[10, 10]));
                })
            };
            let mut copy = [0; WORDS];
            for index in order {
                copy[index] = words[index].load(Ordering::Relaxed);
            }
            if check_words(&copy, ME).is_ok() {
                assert_eq!(copy[GUARDED_FIRST], copy[GUARDED_FIRST + 1], "torn and accepted");
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn ascending_copy() {
        copies_are_whole_or_refused([0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn mixed_copy() {
        copies_are_whole_or_refused([4, 0, 5, 2, 3, 1]);
    }
}
