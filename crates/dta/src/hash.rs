// SPDX-License-Identifier: Apache-2.0
//! Where a key's entries are, and by what they are known as the key's.
//!
//! SipHash-1-3 with 128 bits of output (Aumasson and Bernstein, 2012; the 128 bits as in their reference code), keyed by
//! the table's seed: who does not know the seed cannot choose keys that fall on another's places. Its first half says
//! where, its second half is the check. No bit of the one says anything of the other.
//!
//! Cost: one pass over the key, 8 bytes a round.

use crate::seal::word;

/// What makes a table's hashes its own.
pub type Seed = [u8; 16];

/// A key's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash {
    place: u64,
    /// By what an entry is known as this key's.
    pub check: u64,
}

fn round(v: &mut [u64; 4]) {
    let [v0, v1, v2, v3] = v;
    *v0 = v0.wrapping_add(*v1);
    *v1 = v1.rotate_left(13) ^ *v0;
    *v0 = v0.rotate_left(32);
    *v2 = v2.wrapping_add(*v3);
    *v3 = v3.rotate_left(16) ^ *v2;
    *v0 = v0.wrapping_add(*v3);
    *v3 = v3.rotate_left(21) ^ *v0;
    *v2 = v2.wrapping_add(*v1);
    *v1 = v1.rotate_left(17) ^ *v2;
    *v2 = v2.rotate_left(32);
}

impl Hash {
    /// Of a key.
    #[must_use]
    pub fn of(seed: &Seed, key: &[u8]) -> Self {
        let (k0, k1) = (word(&seed[..8]), word(&seed[8..]));
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        let mut compress = |word: u64| {
            v[3] ^= word;
            round(&mut v);
            v[0] ^= word;
        };
        let mut words = key.chunks_exact(8);
        words.by_ref().for_each(|bytes| compress(word(bytes)));
        compress(word(words.remainder()) | (key.len() as u64) << 56);
        let mut finish = |with: usize, by: u64| {
            v[with] ^= by;
            (0..3).for_each(|_| round(&mut v));
            v[0] ^ v[1] ^ v[2] ^ v[3]
        };
        Self { place: finish(2, 0xee), check: finish(1, 0xdd) }
    }

    /// The slot of a copy among 2^`slots_log2`. The slots of up to so many copies are distinct: an odd distance comes back
    /// to where it began only after all slots.
    #[must_use]
    pub fn slot(&self, copy: u8, slots_log2: u8) -> u64 {
        let (first, distance) = (self.place & 0xffff_ffff, self.place >> 32 | 1);
        first.wrapping_add(distance * u64::from(copy)) & ((1 << slots_log2) - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use bolero::check;
    use siphasher::sip128::{Hasher128, SipHasher13};

    use super::*;

    #[test]
    fn it_is_siphash_1_3_with_128_bits() {
        check!().with_type::<(Seed, Vec<u8>)>().for_each(|(seed, key)| {
            let key = &key[..key.len().min(64)];
            let mut theirs = SipHasher13::new_with_key(seed);
            theirs.write(key);
            let theirs = theirs.finish128();
            assert_eq!(Hash::of(seed, key), Hash { place: theirs.h1, check: theirs.h2 });
        });
    }

    #[test]
    fn slots_of_a_key_are_distinct() {
        check!().with_type::<(Seed, u64, u8)>().for_each(|(seed, key, log2)| {
            let (hash, log2) = (Hash::of(seed, &key.to_le_bytes()), 2 + log2 % 31);
            let mut slots: Vec<u64> = (0..4).map(|copy| hash.slot(copy, log2)).collect();
            assert!(slots.iter().all(|slot| *slot < 1 << log2));
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), 4);
        });
    }
}
