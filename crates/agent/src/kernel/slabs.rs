// SPDX-License-Identifier: Apache-2.0
//! Slabs of users: which place in the responder's table a user gets, and a slab as the agent holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};

use onlooker_region::map::Map;
use onlooker_region::slab::Range;
use onlooker_responder::{Slab, SlabMapping};

use super::ledger::FIRST_USER_SLAB;
use super::{BLOCK_BYTES, KernelError, TABLES_SLAB};

/// A slab of a user.
#[derive(Debug)]
pub struct UserSlab {
    slab: Slab,
    /// A mapping that can write: while there is one nobody can freeze the array, and so take its memory from later programs (bpf(2), `BPF_MAP_FREEZE`).
    _unfrozen: SlabMapping,
}

impl UserSlab {
    pub(super) fn of(slab: Slab) -> Result<Self, KernelError> {
        let _unfrozen = slab.map(0, onlooker_responder::mapping::PAGE_BLOCKS, true)?;
        Ok(Self { slab, _unfrozen })
    }

    /// Its place in the responder's table.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.slab.index()
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.slab.blocks()) * BLOCK_BYTES
    }

    /// A range of it, writable.
    ///
    /// # Errors
    /// As mmap has it.
    pub fn map(&self, range: Range) -> Result<Map, KernelError> {
        map(&self.slab, range)
    }
}

impl AsFd for UserSlab {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.slab.as_fd()
    }
}

/// A place for a user's slab. Who counts as one user has no more of them than are free then, so that others find some; everybody's first one is a place that is free.
pub(super) fn free_slab(
    slabs: &BTreeMap<u32, u32>,
    others: &BTreeSet<u32>,
    uid: u32,
    user_of: impl Fn(u32) -> u32,
) -> Result<u32, KernelError> {
    let taken: BTreeSet<u32> = slabs.values().chain(others).copied().collect();
    let mut free = (FIRST_USER_SLAB..TABLES_SLAB).filter(|index| !taken.contains(index));
    let index = free.next().ok_or(KernelError::Incomplete(
        "the responder's table of slabs is full: 61 users (fewer with telemetry tables) have one, others' regions are served over TCP",
    ))?;
    let had = slabs.keys().filter(|other| user_of(**other) == user_of(uid)).count();
    if had > 0 && had + 1 > free.count() {
        return Err(KernelError::Incomplete(
            "this user's subordinate uids have as many slabs as are left for others: its further ones are served over TCP",
        ));
    }
    Ok(index)
}

/// Only what is used is mapped: every page of a mapped BPF array counts as resident at once.
pub(super) fn map(slab: &Slab, range: Range) -> Result<Map, KernelError> {
    let blocks = |bytes: u64| u32::try_from(bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
    Ok(Map::shared(slab.map(blocks(range.offset), blocks(range.bytes), true)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_finds_a_place_whatever_subordinate_uids_have() {
        let user_of = |uid: u32| if uid >= 100_000 { uid / 100_000 } else { uid };
        let mut slabs = BTreeMap::new();
        let mut take = |uid: u32| match free_slab(&slabs, &BTreeSet::new(), uid, user_of) {
            Ok(index) => {
                assert!((FIRST_USER_SLAB..TABLES_SLAB).contains(&index) && slabs.values().all(|other| *other != index));
                slabs.insert(uid, index).is_none()
            }
            Err(_) => false,
        };
        assert!(take(1));
        // User 1 has half of them, user 2 half of the rest.
        assert_eq!((100_000..100_200).filter(|uid| take(*uid)).count(), 29);
        assert_eq!((200_000..200_200).filter(|uid| take(*uid)).count(), 15);
        // Everybody else has a first one, down to the last.
        assert_eq!((10..100).filter(|uid| take(*uid)).count(), 61 - 30 - 15);
        assert!(!take(100));
    }
}
