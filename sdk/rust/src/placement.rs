// SPDX-License-Identifier: Apache-2.0
//! Memory at fixed addresses whose backing can be exchanged: the only unsafe code of this crate, with that of its [`handle`]s.
//!
//! A [`Place`] is a range of pages at which the program's words stay for good. What is mapped there changes: at first a private sealed memfd, then a
//! range of the agent's slab, perhaps another one later. A [`Mapping`] is a second view of the same memory, by which the words of the old backing can
//! still be read after the place has got a new one. To the compiler a place is memory shared with the world outside: it is only ever seen as
//! `&[AtomicU64]` (or as the transparent word types over it), and each word is always some valid value.

#![allow(unsafe_code)]

pub(crate) mod handle;

use crate::turn::Turn;
use rustix::fs::{
    MemfdFlags, Mode, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create, readlinkat,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, mremap_fixed, munmap};
use rustix::param::page_size;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Why memory cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// A system call failed.
    #[error("{operation} of {bytes} bytes: {errno}")]
    System {
        /// Which.
        operation: &'static str,
        /// Size of the memory.
        bytes: u64,
        /// Its error.
        errno: Errno,
    },
    /// Neither a memfd of fixed size nor a BPF array: it could shrink under the program and kill it.
    #[error("the agent's descriptor is neither a memfd sealed against shrinking and growing nor a BPF array: not used")]
    Unsealed,
    /// The range is not within the file.
    #[error("the agent's range {offset}+{bytes} is outside of its slab of {size} bytes: not used")]
    Short {
        /// Beginning of the range.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Size of the slab.
        size: u64,
    },
    /// Not on page boundaries of this machine.
    #[error("memory at {offset:#x} is not on a boundary of this machine's pages of {page} bytes: not used")]
    Misaligned {
        /// Offset or address.
        offset: u64,
        /// Page size.
        page: usize,
    },
}

fn system(operation: &'static str, bytes: usize) -> impl FnOnce(Errno) -> PlaceError {
    move |errno| PlaceError::System { operation, bytes: bytes as u64, errno }
}

/// Which memory a descriptor stands for: device, inode, number of the BPF map (0: a memfd).
pub(crate) type MemoryId = (u64, u64, u32);

/// A memfd of `bytes` whose size is fixed for ever.
pub(crate) fn sealed_memfd(bytes: usize) -> Result<OwnedFd, PlaceError> {
    let fd = memfd_create("onlooker", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(system("memfd_create", bytes))?;
    ftruncate(&fd, bytes as u64).map_err(system("ftruncate", bytes))?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(system("fcntl(F_ADD_SEALS)", bytes))?;
    Ok(fd)
}

/// Accepts a slab's descriptor if an access within its range can never fault, now or later.
pub(crate) fn check_slab(fd: impl AsFd, offset: u64, bytes: usize) -> Result<MemoryId, PlaceError> {
    let fd = fd.as_fd();
    if !offset.is_multiple_of(page_size() as u64) {
        return Err(PlaceError::Misaligned { offset, page: page_size() });
    }
    let stat = fstat(fd).map_err(system("fstat", bytes))?;
    let fixed = SealFlags::SHRINK | SealFlags::GROW;
    if fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(fixed)) {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if offset.checked_add(bytes as u64).is_none_or(|end| end > size) {
            return Err(PlaceError::Short { offset, bytes: bytes as u64, size });
        }
        return Ok((stat.st_dev, stat.st_ino, 0));
    }
    // A BPF array cannot change its size, and mmap refuses a range outside of it (kernel/bpf/arraymap.c, array_map_mmap).
    let number = fd.as_raw_fd();
    let link = readlinkat(rustix::fs::CWD, format!("/proc/thread-self/fd/{number}"), Vec::new());
    if link.is_ok_and(|link| link.as_bytes() == b"anon_inode:bpf-map") {
        let info = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{number}")).unwrap_or_default();
        let id = info.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok()).unwrap_or(0);
        return Ok((stat.st_dev, stat.st_ino, id));
    }
    Err(PlaceError::Unsealed)
}

/// A shared mapping at an address of the kernel's choice.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is only accessed through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a range of a descriptor that [`check_slab`] or [`sealed_memfd`] vouches for.
    fn of(fd: impl AsFd, offset: u64, bytes: usize) -> Result<Self, PlaceError> {
        // Populated: the window of a switch has no page faults in it.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, fd, offset) };
        Self::made(at, "mmap", bytes)
    }

    fn made(
        at: Result<*mut core::ffi::c_void, Errno>,
        operation: &'static str,
        bytes: usize,
    ) -> Result<Self, PlaceError> {
        let at = at.map_err(system(operation, bytes))?;
        let at = NonNull::new(at.cast()).ok_or_else(|| system(operation, bytes)(Errno::NOMEM))?;
        Ok(Self { at, bytes })
    }

    /// A range of the agent's slab, checked.
    pub(crate) fn of_slab(fd: impl AsFd, offset: u64, bytes: usize) -> Result<(Self, MemoryId), PlaceError> {
        let id = check_slab(&fd, offset, bytes)?;
        Ok((Self::of(fd, offset, bytes)?, id))
    }

    /// Two mappings of a new private memfd, zeroed.
    pub(crate) fn private_pair(bytes: usize) -> Result<(Self, Self), PlaceError> {
        let fd = sealed_memfd(bytes)?;
        Ok((Self::of(&fd, 0, bytes)?, Self::of(&fd, 0, bytes)?))
    }

    /// Its words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for reading and writing as long as `self` lives; page aligned; its file cannot shrink. Any bits are a valid u64.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes / 8) }
    }

    fn into_raw(self) -> (NonNull<AtomicU64>, usize) {
        let this = std::mem::ManuallyDrop::new(self);
        (this.at, this.bytes)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this length; `words` borrows from `self`, so no reference outlives it.
        let result = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
        debug_assert!(result.is_ok());
    }
}

/// Pages at a fixed address.
#[derive(Debug)]
pub(crate) struct Place {
    at: NonNull<AtomicU64>,
    bytes: usize,
    /// False for a program's globals, which are nobody's to unmap.
    owned: bool,
}

// SAFETY: as for `Mapping`; exchanging the backing is atomic for all threads (one mapping replaces another in one system call).
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// New private memory of at least `bytes`, zeroed, and a second view of it. Without memfds (a sandbox) it is memory that can be used but never
    /// published: there is no second view then.
    pub(crate) fn new(bytes: usize) -> Result<(Self, Result<Mapping, PlaceError>), PlaceError> {
        let bytes = bytes.next_multiple_of(page_size());
        match Mapping::private_pair(bytes) {
            Ok((first, second)) => Ok((Self::from_mapping(first), Ok(second))),
            Err(error) => {
                // SAFETY: the kernel chooses the address, so no existing mapping is touched.
                let at = unsafe {
                    mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
                };
                Ok((Self::from_mapping(Mapping::made(at, "mmap", bytes)?), Err(error)))
            }
        }
    }

    fn from_mapping(mapping: Mapping) -> Self {
        let (at, bytes) = mapping.into_raw();
        Self { at, bytes, owned: true }
    }

    /// Moves a program's globals, at the same address, into private shared memory. `words` are those that belong to fields.
    ///
    /// Called before the globals are within reach of a second thread (from `.init_array`): nothing can be stored between the copy and the exchange.
    pub(crate) fn of_statics(base: &Base, words: impl Iterator<Item = usize>) -> Result<(Self, Mapping), PlaceError> {
        let address = base.at.as_ptr() as usize;
        if !address.is_multiple_of(page_size()) || !base.bytes.is_multiple_of(page_size()) {
            return Err(PlaceError::Misaligned { offset: address as u64, page: page_size() });
        }
        let (first, second) = Mapping::private_pair(base.bytes)?;
        for index in words.filter(|index| *index < base.bytes / 8) {
            // SAFETY: within the static, and a field's word: an initialised `AtomicU64` (contract of `Statics`).
            let word = unsafe { base.at.add(index).as_ref() };
            first.words()[index].store(word.load(Relaxed), Relaxed);
        }
        let place = Self { at: base.at, bytes: base.bytes, owned: false };
        place.receive(first)?;
        Ok((place, second))
    }

    /// Bytes, whole pages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its words, whatever backs them now.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: something of this length is mapped here for reading and writing as long as `self` lives, and none of it can shrink. Any bits are a
        // valid u64. A mapping that takes another's place acts as stores by another process would.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes / 8) }
    }

    /// Backs the place by a range of a slab that was mapped once already (so it has been checked). After the call no thread of this process can store
    /// into the old backing: the kernel has flushed its translation on every CPU.
    pub(crate) fn replace(&self, fd: impl AsFd, offset: u64) -> Result<(), PlaceError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: exactly the pages of this place are replaced; whoever has references to its words finds words there before, during and after.
        unsafe { mmap(self.at.as_ptr().cast(), self.bytes, protection, flags, fd, offset) }
            .map(|_| ())
            .map_err(system("mmap(MAP_FIXED)", self.bytes))
    }

    /// Backs the place by a mapping of the same length, which ends.
    pub(crate) fn receive(&self, mapping: Mapping) -> Result<(), PlaceError> {
        debug_assert_eq!(mapping.bytes, self.bytes);
        let (from, bytes) = (mapping.at, mapping.bytes.min(self.bytes));
        // SAFETY: exactly the pages of this place are replaced, as in `replace`; `mapping` is forgotten below, nobody refers to its words.
        let moved =
            unsafe { mremap_fixed(from.as_ptr().cast(), bytes, bytes, MremapFlags::MAYMOVE, self.at.as_ptr().cast()) };
        moved.map_err(system("mremap(MREMAP_FIXED)", bytes))?;
        std::mem::forget(mapping);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: made by mmap with this length; all references to its words borrow from a holder of this value.
            let result = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
            debug_assert!(result.is_ok());
        }
    }
}

/// Implemented by [`crate::globals!`] for the structure that it makes.
///
/// # Safety
/// The type is `repr(C)`, its alignment and size are multiples of 4096, and it consists of the crate's word types, whose places the macro lists.
#[doc(hidden)]
pub unsafe trait Statics: Sync + Sized + 'static {}

/// Where a structure of globals is.
#[doc(hidden)]
#[derive(Debug)]
pub struct Base {
    at: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: an address; what is there is Sync (bound of `Statics`).
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Base {
    /// Of a static.
    #[must_use]
    pub const fn of<T: Statics>(statics: &'static T) -> Self {
        let at = std::ptr::from_ref(statics).cast_mut().cast();
        // SAFETY: a reference is never null.
        Self { at: unsafe { NonNull::new_unchecked(at) }, bytes: size_of::<T>() }
    }

    /// Size of the structure.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A lock held from the preparation of a fork to its end in parent and child.
pub(crate) struct Held<T: 'static> {
    guard: crate::turn::Guard<'static, T>,
    /// Keeps what `guard` borrows from; dropped after it (fields are dropped in their order).
    _turn: Arc<dyn AsRef<Turn<T>>>,
}

impl<T> Held<T> {
    /// Takes the lock if it is free.
    pub(crate) fn try_take(turn: Arc<dyn AsRef<Turn<T>>>) -> Option<Self> {
        let guard = (*turn).as_ref().try_take()?;
        // SAFETY: `_turn` keeps the lock at its address (behind an Arc) until after `guard` is dropped.
        let guard = unsafe { std::mem::transmute::<crate::turn::Guard<'_, T>, crate::turn::Guard<'static, T>>(guard) };
        Some(Self { guard, _turn: turn })
    }

    /// What it protects.
    pub(crate) fn get(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Has the functions called around each fork of this process.
pub(crate) fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> Result<(), PlaceError> {
    // SAFETY: the functions are valid for the life of the process and do not unwind.
    let error = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    if error == 0 { Ok(()) } else { Err(system("pthread_atfork", 0)(Errno::from_raw_os_error(error))) }
}

/// Gives this thread a table of descriptors of its own, with nothing in it but /dev/null as standard streams (standard error stays where `debug` says).
/// It neither holds the program's files open nor can the program, or a fork, touch what the thread opens.
pub(crate) fn own_descriptors(debug: bool) -> Result<(), PlaceError> {
    let (first, last, unshare) = (3u32, u32::MAX, 2u32);
    // SAFETY: called first thing on a thread that has no descriptors of its own yet and shares none with others later (memory and a path only); the
    // table is copied before anything is closed (CLOSE_RANGE_UNSHARE), so other threads keep theirs.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, unshare) };
    if result != 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().map_or(Errno::NOSYS, Errno::from_raw_os_error);
        return Err(system("close_range(CLOSE_RANGE_UNSHARE)", 0)(errno));
    }
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, Mode::empty())
        .map_err(system("open(/dev/null)", 0))?;
    let replaced = rustix::stdio::dup2_stdin(&null).and_then(|()| rustix::stdio::dup2_stdout(&null));
    let replaced = if debug { replaced } else { replaced.and_then(|()| rustix::stdio::dup2_stderr(&null)) };
    replaced.map_err(system("dup2(/dev/null)", 0))
}

/// Starts something with every signal blocked in this thread, as threads inherit it: the program's handlers never run on the SDK's thread.
pub(crate) fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    // SAFETY: plain data that the calls below fill.
    let (mut all, mut before) = unsafe { (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed::<libc::sigset_t>()) };
    // SAFETY: both sets are valid for the calls.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let result = start();
    // SAFETY: `before` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}

/// Whether the program runs with more rights than who started it: the environment is not to be trusted then.
pub(crate) fn is_set_user_id() -> bool {
    // SAFETY: reads a word that the kernel gave the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
