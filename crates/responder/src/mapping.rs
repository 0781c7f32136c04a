// SPDX-License-Identifier: Apache-2.0
//! A slab's memory as words. Like `onlooker_region::map`, but for BPF arrays, whose size cannot change: so an access within it never faults.
#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{Error, Result, system};
use crate::intf::BLOCK_BYTES;

/// Blocks of a page; mappings begin and end with one.
pub const PAGE_BLOCKS: u32 = 4;

/// A shared mapping of some blocks of a slab. Others write it at any time; it is only ever seen as `&[AtomicU64]`.
#[derive(Debug)]
pub struct SlabMapping {
    address: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only accessed through atomics.
unsafe impl Send for SlabMapping {}
// SAFETY: as above.
unsafe impl Sync for SlabMapping {}

impl SlabMapping {
    /// Maps `blocks` blocks from `first_block` on of the slab behind `slab`, a descriptor that [`crate::Slab`] gave; both multiples of 4.
    ///
    /// # Errors
    /// [`Error::Limit`] for parts of pages, [`Error::System`] from mmap: beyond the slab's end, or not a mappable BPF array.
    pub fn of(slab: impl AsFd, first_block: u32, blocks: u32, writable: bool) -> Result<Self> {
        for (what, value) in [("first block of a mapping", first_block), ("blocks of a mapping", blocks)] {
            if !value.is_multiple_of(PAGE_BLOCKS) || blocks == 0 {
                return Err(Error::Limit {
                    what,
                    value: value.into(),
                    limits: "multiples of 4, at least 4 blocks".to_owned(),
                });
            }
        }
        let bytes = usize::try_from(u64::from(blocks) * u64::from(BLOCK_BYTES)).map_err(|_| Error::Limit {
            what: "blocks of a mapping",
            value: blocks.into(),
            limits: "what fits the address space".to_owned(),
        })?;
        let offset = u64::from(first_block) * u64::from(BLOCK_BYTES);
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let address = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, slab, offset) }
            .map_err(system(
                "mmap",
                format!("blocks {first_block} to {} of a slab", u64::from(first_block) + u64::from(blocks)),
                "the range must lie within the slab",
            ))?;
        let address = NonNull::new(address.cast()).expect("mmap returns 0 only where it is asked to");
        Ok(Self { address, words: bytes / 8 })
    }

    /// The mapping's words. Storing into a mapping that is not writable kills the process (SIGSEGV).
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the whole mapping lives as long as `self`, is page aligned, and a BPF array never shrinks. Any bit pattern is a valid u64.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.words) }
    }
}

impl AsRef<[AtomicU64]> for SlabMapping {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}

impl Drop for SlabMapping {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this length; `words` borrows from `self`, so no reference outlives it.
        let result = unsafe { munmap(self.address.as_ptr().cast(), self.words * 8) };
        debug_assert!(result.is_ok());
    }
}
