// SPDX-License-Identifier: Apache-2.0
//! A hash of numbers that only this host gives out, a multiplication instead of SipHash: sockets' cookies, local ports.
//!
//! The factor is drawn at each start, since a user can know the cookies of his sockets (SO_COOKIE) and keep those that suit him (multiply-shift: Dietzfelbinger et al., A
//! Reliable Randomized Algorithm for the Closest-Pair Problem, 1997). Not for what other hosts choose, such as their addresses.

use std::hash::{BuildHasher, Hasher, RandomState};

/// For maps with keys of one number.
#[derive(Debug, Clone)]
pub(super) struct ByProduct {
    factor: u64,
}

impl Default for ByProduct {
    fn default() -> Self {
        Self { factor: RandomState::new().build_hasher().finish() | 1 }
    }
}

impl BuildHasher for ByProduct {
    type Hasher = Product;

    fn build_hasher(&self) -> Product {
        Product { factor: self.factor, value: 0 }
    }
}

/// One hash.
#[derive(Debug)]
pub(super) struct Product {
    factor: u64,
    value: u64,
}

impl Hasher for Product {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.value = (self.value ^ number).wrapping_mul(self.factor);
    }

    /// The map begins with the low bits, and in a product the high ones are those that depend on all of the number.
    fn finish(&self) -> u64 {
        self.value.swap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn numbers_are_told_apart() {
        let hash = ByProduct::default();
        let mut all: Vec<u64> = (0..10_000_u64).map(|number| hash.hash_one(number << 20)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 10_000, "another number has another product");
        let map: HashMap<u16, u32, ByProduct> = (0..=u16::MAX).map(|port| (port, u32::from(port))).collect();
        assert!((0..=u16::MAX).all(|port| map.get(&port) == Some(&u32::from(port))));
    }
}
