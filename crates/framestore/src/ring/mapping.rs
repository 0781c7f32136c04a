// SPDX-License-Identifier: Apache-2.0
//! A ring's file as memory: a page of numbers that both sides share, and the words of the records.

use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate};

use crate::framing::files::Locked;

/// Words of the page before the records.
pub(super) const PAGE_WORDS: usize = 512;

/// A shared mapping of a whole file, which lives as long as somebody uses it.
pub(super) struct Mapping {
    map: MmapRaw,
    /// Whoever else opened the file could truncate it.
    file: Locked,
}

impl Mapping {
    /// Maps a file of so many words. Only its page of numbers has memory for sure; records get theirs by
    /// [`Mapping::reserve`].
    pub(super) fn of(file: Locked, words: usize) -> io::Result<Self> {
        let bytes = words.checked_mul(8).filter(|_| words > PAGE_WORDS).ok_or(io::ErrorKind::InvalidInput)?;
        fallocate(&*file, FallocateFlags::empty(), 0, PAGE_WORDS as u64 * 8)?;
        file.set_len(bytes as u64)?;
        Ok(Self { map: MmapOptions::new().len(bytes).map_raw(&*file)?, file })
    }

    /// Takes memory for words of records, before they are touched: touching what a full file system has no room for
    /// ends the process.
    pub(super) fn reserve(&self, at: usize, words: usize) -> io::Result<()> {
        let words = words.min(self.capacity().saturating_sub(at));
        if words == 0 {
            return Ok(());
        }
        Ok(fallocate(&*self.file, FallocateFlags::empty(), (PAGE_WORDS + at) as u64 * 8, words as u64 * 8)?)
    }

    /// The page of numbers.
    pub(super) fn numbers(&self) -> &[AtomicU64; PAGE_WORDS] {
        // SAFETY: the mapping is page aligned, longer than a page (`of`), lives as long as `self`, and this page is
        // only ever accessed through atomics, for which any bit pattern is valid.
        unsafe { &*self.map.as_ptr().cast() }
    }

    /// Words for records.
    pub(super) fn capacity(&self) -> usize {
        self.map.len() / 8 - PAGE_WORDS
    }

    /// Where word `at` of the records is. The `words` there are mapped as long as `self` lives and aligned; who may
    /// touch them is the caller's to know.
    pub(super) fn words(&self, at: usize, words: usize) -> *mut u64 {
        assert!(at <= self.capacity() && words <= self.capacity() - at, "words {at} + {words} of {}", self.capacity());
        self.map.as_mut_ptr().cast::<u64>().wrapping_add(PAGE_WORDS + at)
    }
}
