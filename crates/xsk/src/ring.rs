// SPDX-License-Identifier: Apache-2.0
//! The rings that an AF_XDP socket shares with the kernel: one writes entries, the other one takes them.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

/// A mapped ring. Counters run freely and wrap; the mask makes places of them.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    map: NonNull<u8>,
    map_bytes: usize,
    produced: NonNull<AtomicU32>,
    consumed: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    _entries: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Of `size` entries, a power of two, as the socket was told before.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> rustix::io::Result<Self> {
        let flags = offsets.flags.ok_or(rustix::io::Errno::OPNOTSUPP)?;
        let at = |offset: u64| usize::try_from(offset).map_err(|_| rustix::io::Errno::OVERFLOW);
        let (produced, consumed, flags, entries) =
            (at(offsets.producer)?, at(offsets.consumer)?, at(flags)?, at(offsets.desc)?);
        let map_bytes = entries + size as usize * size_of::<T>();
        // SAFETY: a new mapping at a place that the kernel chooses; nothing else refers to it.
        let map = unsafe {
            mmap(
                std::ptr::null_mut(),
                map_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket,
                page,
            )?
        };
        let map = NonNull::new(map.cast::<u8>()).ok_or(rustix::io::Errno::FAULT)?;
        // SAFETY: the kernel's offsets lie within what it maps for a ring of this size, and are aligned for their
        // types.
        unsafe {
            Ok(Self {
                map,
                map_bytes,
                produced: map.add(produced).cast(),
                consumed: map.add(consumed).cast(),
                flags: map.add(flags).cast(),
                entries: map.add(entries).cast(),
                size,
                _entries: PhantomData,
            })
        }
    }

    fn produced(&self) -> &AtomicU32 {
        // SAFETY: within the mapping, which lives as long as `self`; the kernel accesses it atomically.
        unsafe { self.produced.as_ref() }
    }

    fn consumed(&self) -> &AtomicU32 {
        // SAFETY: as `produced`.
        unsafe { self.consumed.as_ref() }
    }

    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as `produced`.
        unsafe { self.flags.as_ref() }
    }

    fn place(&self, count: u32) -> NonNull<T> {
        // SAFETY: the mask keeps it among the `size` entries.
        unsafe { self.entries.add((count & (self.size - 1)) as usize) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: what was mapped, and nothing refers to it any more.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

/// A ring that we write: addresses of empty frames, or descriptors of frames to send.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// Written, and shown to the kernel up to `produced` in the ring.
    next: u32,
}

impl<T: Copy> Producer<T> {
    pub(crate) fn new(ring: Ring<T>) -> Self {
        Self { ring, next: 0 }
    }

    /// Entries that the kernel has not taken.
    pub(crate) fn held(&self) -> u32 {
        self.next.wrapping_sub(self.ring.consumed().load(Ordering::Acquire))
    }

    pub(crate) fn room(&self) -> u32 {
        self.ring.size.saturating_sub(self.held())
    }

    /// Writes an entry; [`Producer::show`] hands it over.
    ///
    /// # Panics
    /// If there is no [`Producer::room`].
    pub(crate) fn write(&mut self, entry: T) {
        debug_assert!(self.room() > 0);
        // SAFETY: a place that the kernel has taken or never got, so nobody else accesses it.
        unsafe { self.ring.place(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    pub(crate) fn show(&mut self) {
        self.ring.produced().store(self.next, Ordering::Release);
    }

    /// Whether the kernel takes entries only once it was called.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.flags().load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

/// A ring that the kernel writes: descriptors of frames that came, or addresses of frames that were sent.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    next: u32,
}

impl<T: Copy> Consumer<T> {
    pub(crate) fn new(ring: Ring<T>) -> Self {
        Self { ring, next: 0 }
    }

    /// Entries that can be taken.
    pub(crate) fn available(&self) -> u32 {
        self.ring.produced().load(Ordering::Acquire).wrapping_sub(self.next).min(self.ring.size)
    }

    /// The next entry of those that are [`Consumer::available`]; [`Consumer::release`] gives its place back.
    pub(crate) fn read(&mut self) -> T {
        // SAFETY: shown by the kernel, which writes it no more until it is released.
        let entry = unsafe { self.ring.place(self.next).read() };
        self.next = self.next.wrapping_add(1);
        entry
    }

    pub(crate) fn release(&mut self) {
        self.ring.consumed().store(self.next, Ordering::Release);
    }
}
