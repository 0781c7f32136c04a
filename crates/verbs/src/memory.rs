// SPDX-License-Identifier: Apache-2.0
//! Memory that a device may touch: what others READ, and where the answers to our READs land.
//!
//! A device goes on reading pages that their file has given up (docs/verbs.md, Lifetimes): so only memory that cannot shrink is to be registered.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use onlooker_region::Block;
use onlooker_region::limits::{BLOCK_BYTES, BLOCK_WORDS};
use onlooker_region::map::{Map, sealed_memfd};
use rdma_mummy_sys::{ibv_access_flags, ibv_dereg_mr, ibv_mr, ibv_reg_mr_iova2};

use crate::device::Device;
use crate::error::{Error, REGISTERING, last};

/// A registration. It ends with this value, and with it every queue pair that is being answered from it.
#[derive(Debug)]
struct Registration {
    region: NonNull<ibv_mr>,
    memory: Map,
    // Dropped after the region: its protection domain.
    _device: Device,
}

// SAFETY: libibverbs's objects belong to the process, not to a thread, and its calls are thread-safe (ibv_reg_mr(3)).
unsafe impl Send for Registration {}
// SAFETY: as above; shared references only read what never changes.
unsafe impl Sync for Registration {}

impl Registration {
    fn new(device: &Device, memory: Map, address: Option<u64>, access: ibv_access_flags) -> Result<Self, Error> {
        let words = memory.words();
        let start = words.as_ptr();
        let address = address.unwrap_or(start as u64);
        // SAFETY: the mapping is kept for as long as the registration, its memory cannot shrink, and whatever a device writes there is a valid word.
        let region = unsafe {
            let domain = device.domain().pd().as_ptr();
            ibv_reg_mr_iova2(domain, start.cast_mut().cast(), size_of_val(words), address, access.0)
        };
        let region = NonNull::new(region).ok_or_else(|| last(device.name(), REGISTERING))?;
        Ok(Self { region, memory, _device: device.clone() })
    }

    fn key(&self, of: impl FnOnce(&ibv_mr) -> u32) -> u32 {
        // SAFETY: lives until it is dropped, and nobody writes it.
        of(unsafe { self.region.as_ref() })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered once, ended once.
        unsafe { ibv_dereg_mr(self.region.as_ptr()) };
    }
}

/// Memory that others may READ, and not write.
#[derive(Debug)]
pub struct Readable(Registration);

impl Readable {
    /// Registers `memory`, which is to be mapped writable (kernels before 6.2 refuse others), at the `address` that requesters name, which has the same offset within a
    /// page as the mapping.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn register(device: &Device, memory: Map, address: u64) -> Result<Self, Error> {
        Registration::new(device, memory, Some(address), ibv_access_flags::IBV_ACCESS_REMOTE_READ).map(Self)
    }

    /// The key that requesters name.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.0.key(|region| region.rkey)
    }
}

/// Blocks of our own into which a device puts answers.
#[derive(Debug)]
pub struct Landing(Registration);

impl Landing {
    /// Of so many blocks.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn new(device: &Device, blocks: u32) -> Result<Self, Error> {
        let failed = |error: onlooker_region::map::MapError| Error::System {
            device: device.name().to_owned(),
            operation: "making memory for answers",
            source: std::io::Error::other(error),
        };
        let bytes = u64::from(blocks) * BLOCK_BYTES as u64;
        let memory = sealed_memfd("onlooker-answers", bytes).map_err(failed)?;
        let memory = Map::of(&memory, 0, bytes, true).map_err(failed)?;
        Registration::new(device, memory, None, ibv_access_flags::IBV_ACCESS_LOCAL_WRITE).map(Self)
    }

    /// The key and the address that work requests name.
    pub(crate) fn place(&self, block: u32) -> (u32, u64) {
        let start = self.0.memory.words().as_ptr() as u64;
        (self.0.key(|region| region.lkey), start + u64::from(block) * BLOCK_BYTES as u64)
    }

    /// Copies out `bytes` from block `first` on.
    ///
    /// # Panics
    /// If they are not within it, or `to` is too short.
    pub(crate) fn copy(&self, (first, bytes): (u32, u32), to: &mut [Block]) {
        assert!(bytes as usize <= size_of_val(to), "{bytes} bytes into {} blocks", to.len());
        let words = &self.0.memory.words()[first as usize * BLOCK_WORDS..][..bytes as usize / 8];
        for (block, from) in to.iter_mut().zip(words.chunks(BLOCK_WORDS)) {
            for (word, from) in block.0.iter_mut().zip(from) {
                *word = from.load(Ordering::Relaxed);
            }
        }
    }
}
