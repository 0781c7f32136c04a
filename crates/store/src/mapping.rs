// SPDX-License-Identifier: Apache-2.0
//! The hot file as words: the only unsafe code of this crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate};

const PAGE_BYTES: u64 = 4096;

/// A shared mapping of a whole file.
pub(crate) struct Mapping {
    map: MmapRaw,
    /// Held with its lock: whoever else opened the file could truncate it.
    file: File,
}

impl Mapping {
    /// Maps the first `bytes` of a file, which must be that long.
    pub(crate) fn of(file: File, bytes: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        Ok(Self { map, file })
    }

    /// Takes the room of some words from the file system, so that touching them cannot fail: a mapping of a file with holes ends the process with SIGBUS where
    /// the file system is full. What is there stays.
    pub(crate) fn allocate(&self, from_word: usize, words: usize) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::empty(), from_word as u64 * 8, words as u64 * 8)?)
    }

    /// Gives the whole pages among some words back to the file system. They must be allocated before anybody touches them again.
    pub(crate) fn release(&self, from_word: usize, words: usize) -> io::Result<()> {
        let from = (from_word as u64 * 8).next_multiple_of(PAGE_BYTES);
        let end = (from_word + words) as u64 * 8 / PAGE_BYTES * PAGE_BYTES;
        if end <= from {
            return Ok(());
        }
        Ok(fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, end - from)?)
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page aligned, lives as long as `self`, and is only ever accessed through atomics, for which any bit pattern is valid.
        // The file is ours alone (locked, 0600) and never truncated while mapped.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.map.len() / 8) }
    }
}
