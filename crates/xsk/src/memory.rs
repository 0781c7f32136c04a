// SPDX-License-Identifier: Apache-2.0
//! The memory of frames (UMEM), which the sockets of all queues share, and which of them are free.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

/// Bytes of a frame: a page holds two.
pub(crate) const FRAME_BYTES: u32 = 2048;
/// What the kernel keeps free before a frame that came (`XDP_PACKET_HEADROOM`).
const HEADROOM_BYTES: u32 = 256;
/// Longest frame, from the Ethernet header on.
pub(crate) const MAX_FRAME_BYTES: u32 = FRAME_BYTES - HEADROOM_BYTES;

#[derive(Debug)]
pub(crate) struct Frames {
    map: NonNull<u8>,
    bytes: usize,
    /// Offsets of frames that neither a ring nor the kernel has.
    free: Vec<u64>,
}

impl Frames {
    pub(crate) fn new(count: u32) -> rustix::io::Result<Self> {
        let bytes = count as usize * FRAME_BYTES as usize;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let map = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        let map = NonNull::new(map.cast()).ok_or(rustix::io::Errno::FAULT)?;
        Ok(Self { map, bytes, free: (0..count).rev().map(|frame| u64::from(frame) * u64::from(FRAME_BYTES)).collect() })
    }

    /// What a socket registers.
    pub(crate) fn registration(&self) -> XdpUmemReg {
        XdpUmemReg {
            addr: self.map.as_ptr() as u64,
            len: self.bytes as u64,
            chunk_size: FRAME_BYTES,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        }
    }

    pub(crate) fn take(&mut self) -> Option<u64> {
        self.free.pop()
    }

    /// A frame is free again; the kernel tells any address within it.
    pub(crate) fn give_back(&mut self, address: u64) {
        self.free.push(address & !u64::from(FRAME_BYTES - 1));
    }

    /// The bytes of a frame that the kernel has given us. Empty, if they do not lie within one.
    pub(crate) fn bytes(&self, address: u64, len: u32) -> &[u8] {
        let Some(start) = Self::within(self.bytes, address, len) else { return &[] };
        // SAFETY: within the mapping, and within one frame, which is ours until it goes into a ring: the callers give
        // frames away by `give_back` and the rings only, for which they need this borrow to be over.
        unsafe { std::slice::from_raw_parts(self.map.add(start).as_ptr(), len as usize) }
    }

    /// The same of a frame that was taken, to be written.
    pub(crate) fn bytes_mut(&mut self, address: u64, len: u32) -> &mut [u8] {
        let Some(start) = Self::within(self.bytes, address, len) else { return &mut [] };
        // SAFETY: as in `bytes`, and `&mut self` makes it the only one.
        unsafe { std::slice::from_raw_parts_mut(self.map.add(start).as_ptr(), len as usize) }
    }

    fn within(bytes: usize, address: u64, len: u32) -> Option<usize> {
        let start = usize::try_from(address).ok()?;
        let frame = FRAME_BYTES as usize;
        (start < bytes && start % frame + len as usize <= frame).then_some(start)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: what was mapped. The kernel holds the pages that it may still write to.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.bytes) };
    }
}
