// SPDX-License-Identifier: Apache-2.0
//! Which of several collectors a report goes to, without state: each key falls into one of 512 shares, and each share has a collector.
//!
//! A share's collector is the one with the highest hash of share and name (rendezvous hashing, D. Thaler and C. Ravishankar, 1998): so a collector that comes or
//! goes moves its own shares only. Who asks computes the same, for this generation of the list and the one before.

use crate::hash::Hash;

/// Shares of keys.
pub const SHARES: usize = 512;
/// Of hashes that all who know the list compute alike.
const SEED: [u8; 16] = *b"onlooker-choice\0";

/// A list of collectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    generation: u8,
    /// Place of each share's collector in the list.
    shares: Vec<u16>,
}

impl Choice {
    /// Of collectors by their names, which are the same for all who know the list; `generation` is another one than the list's before. `None`: there are none, or
    /// more than 65,536.
    #[must_use]
    pub fn new(generation: u8, names: &[impl AsRef<str>]) -> Option<Self> {
        let best = |share: usize| {
            let rank = |name: &str| Hash::of(&SEED, &[&share.to_le_bytes()[..2], name.as_bytes()].concat()).check;
            let (at, _) = names.iter().enumerate().max_by_key(|(_, name)| rank(name.as_ref()))?;
            u16::try_from(at).ok()
        };
        Some(Self { generation, shares: (0..SHARES).map(best).collect::<Option<_>>()? })
    }

    /// The list's generation, which reports carry.
    #[must_use]
    pub const fn generation(&self) -> u8 {
        self.generation
    }

    /// The collector of a key, by its place in the list.
    #[must_use]
    pub fn of_key(&self, key: &[u8]) -> usize {
        let share = Hash::of(&SEED, key).check % SHARES as u64;
        usize::from(self.shares[usize::try_from(share).unwrap_or(0)])
    }

    /// The collector of a list of entries, by the list's number: all of it is on one.
    #[must_use]
    pub fn of_list(&self, number: u16) -> usize {
        self.of_key(&number.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_fair_and_stay_where_they_are() {
        let names: Vec<String> = (0..8).map(|at| format!("10.0.0.{at}:40040")).collect();
        let all = Choice::new(1, &names).unwrap();
        let of = |choice: &Choice, at: usize| choice.shares.iter().filter(|share| usize::from(**share) == at).count();
        assert!((0..8).all(|at| (32..=96).contains(&of(&all, at))), "64 each, more or less");
        let fewer = Choice::new(2, &names[..7]).unwrap();
        let moved = all.shares.iter().zip(&fewer.shares).filter(|(before, after)| before != after).count();
        assert_eq!(moved, of(&all, 7), "only those of the one that went");
        // Order does not matter, and neither do others' places.
        let turned: Vec<&String> = names.iter().rev().collect();
        let turned = Choice::new(1, &turned).unwrap();
        for key in 0..100u32 {
            assert_eq!(all.of_key(&key.to_le_bytes()), 7 - turned.of_key(&key.to_le_bytes()));
        }
        assert_eq!(Choice::new(0, &[] as &[&str]), None);
    }
}
