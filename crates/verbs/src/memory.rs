// SPDX-License-Identifier: Apache-2.0
//! Memory that a device may touch: what others READ or WRITE, and where the answers to our READs land.
//!
//! A device goes on reading pages that their file has given up (docs/verbs.md, Lifetimes): so only memory that cannot shrink is to be registered.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use onlooker_region::Block;
use onlooker_region::limits::{BLOCK_BYTES, BLOCK_WORDS};
use onlooker_region::map::{Map, MapError, sealed_memfd};
use rdma_mummy_sys::{ibv_access_flags, ibv_dereg_mr, ibv_mr, ibv_reg_mr_iova2};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::device::Device;
use crate::error::{Error, REGISTERING, last};

/// Registered addresses have the same offset within a page as the mapping, which begins at one.
const PAGE_BYTES: u64 = 4096;

/// A registration. It ends with this value, and with it every queue pair that is being answered from it.
#[derive(Debug)]
struct Registration {
    region: NonNull<ibv_mr>,
    memory: Map,
    /// What requests name, local ones, too: with it begins the memory.
    address: u64,
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
        Ok(Self { region, memory, address, _device: device.clone() })
    }

    fn key(&self, of: impl FnOnce(&ibv_mr) -> u32) -> u32 {
        // SAFETY: lives until it is dropped, and nobody writes it.
        of(unsafe { self.region.as_ref() })
    }

    /// Local key and address of a range; `None` if it is not within the memory.
    fn place(&self, offset: u64, bytes: u64) -> Option<(u32, u64)> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes()).then(|| (self.key(|region| region.lkey), self.address + offset))
    }

    fn bytes(&self) -> u64 {
        size_of_val(self.memory.words()) as u64
    }

    /// Copies out `bytes` from block `first` on, word by word.
    ///
    /// # Panics
    /// If they are not within it, or `to` is too short.
    fn copy(&self, (first, bytes): (u32, usize), to: &mut [Block]) {
        assert!(bytes <= size_of_val(to), "{bytes} bytes into {} blocks", to.len());
        let words = &self.memory.words()[first as usize * BLOCK_WORDS..][..bytes / 8];
        for (block, from) in to.iter_mut().zip(words.chunks(BLOCK_WORDS)) {
            for (word, from) in block.0.iter_mut().zip(from) {
                *word = from.load(Ordering::Relaxed);
            }
        }
    }
}

/// A sealed memfd of so many blocks, mapped.
fn blocks_of_our_own(device: &Device, name: &str, blocks: u32) -> Result<Map, Error> {
    let failed = |error: MapError| Error::System {
        device: device.name().to_owned(),
        operation: "making memory that a device writes",
        source: std::io::Error::other(error),
    };
    let bytes = u64::from(blocks) * BLOCK_BYTES as u64;
    let memory = sealed_memfd(name, bytes).map_err(failed)?;
    Map::of(&memory, 0, bytes, true).map_err(failed)
}

/// An address for so many bytes that nobody guesses.
fn random_address(device: &Device, bytes: u64) -> Result<u64, Error> {
    loop {
        let mut random = [0; 8];
        let got = getrandom(&mut random, GetRandomFlags::empty());
        got.map_err(|errno| Error::System {
            device: device.name().to_owned(),
            operation: "getrandom",
            source: errno.into(),
        })?;
        let address = u64::from_le_bytes(random) & !(PAGE_BYTES - 1);
        // 0 looks like an address that was forgotten.
        if address != 0 && address.checked_add(bytes).is_some() {
            return Ok(address);
        }
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

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The key and the address that work requests name, of a range; `None` if it is not within.
    pub(crate) fn place(&self, offset: u64, bytes: u64) -> Option<(u32, u64)> {
        self.0.place(offset, bytes)
    }
}

/// Memory of our own that the other end may WRITE, and not READ, by queue pairs that allow it ([`QueuePair::allow_writes`](crate::QueuePair::allow_writes)).
#[derive(Debug)]
pub struct Writable(Registration);

impl Writable {
    /// Of so many blocks, all zero, at a random address.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn new(device: &Device, blocks: u32) -> Result<Self, Error> {
        let memory = blocks_of_our_own(device, "onlooker-writable", blocks)?;
        let address = random_address(device, u64::from(blocks) * BLOCK_BYTES as u64)?;
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        Registration::new(device, memory, Some(address), access).map(Self)
    }

    /// The address that the other end names.
    #[must_use]
    pub fn va(&self) -> u64 {
        self.0.address
    }

    /// The key that the other end names.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.0.key(|region| region.rkey)
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Copies whole blocks out by aligned 8-byte loads, whatever is being written meanwhile: words are whole, blocks only where their guards and CRCs tell so.
    ///
    /// # Panics
    /// If they are not within it.
    pub fn copy(&self, first_block: u32, to: &mut [Block]) {
        self.0.copy((first_block, size_of_val(to)), to);
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
        let memory = blocks_of_our_own(device, "onlooker-answers", blocks)?;
        Registration::new(device, memory, None, ibv_access_flags::IBV_ACCESS_LOCAL_WRITE).map(Self)
    }

    /// The key and the address that work requests name.
    pub(crate) fn place(&self, block: u32) -> (u32, u64) {
        (self.0.key(|region| region.lkey), self.0.address + u64::from(block) * BLOCK_BYTES as u64)
    }

    /// `bytes` from block `first` on, whole words.
    ///
    /// # Panics
    /// If they are not within it.
    pub(crate) fn words(&self, (first, bytes): (u32, u32)) -> &[AtomicU64] {
        &self.0.memory.words()[first as usize * BLOCK_WORDS..][..bytes as usize / 8]
    }

    /// Copies out `bytes` from block `first` on.
    ///
    /// # Panics
    /// If they are not within it, or `to` is too short.
    pub(crate) fn copy(&self, (first, bytes): (u32, u32), to: &mut [Block]) {
        self.0.copy((first, bytes as usize), to);
    }
}
