// SPDX-License-Identifier: Apache-2.0
//! The hot file as words: the only unsafe code of this crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate};

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

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page aligned, lives as long as `self`, and is only ever accessed through atomics, for which any bit pattern is valid.
        // The file is ours alone (locked, 0600) and never truncated while mapped.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.map.len() / 8) }
    }
}
