// SPDX-License-Identifier: Apache-2.0
//! Shared mappings as words: the only unsafe code of this crate.
//!
//! A [`Map`] is a MAP_SHARED mapping whose bytes other processes change at will. It is only ever seen as `&[AtomicU64]`, never as `&T`.
//! Sealed memfds ([`sealed_memfd`], [`check_sealed`]) cannot shrink, so an access within the length never faults. Mappings of other kinds of memory
//! are made elsewhere, with the same promise, and become a `Map` by [`Map::shared`].
#![allow(unsafe_code)]

use crate::sync::AtomicU64;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// What went wrong with a mapping.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// A system call failed.
    #[error("{operation} of {what}: {errno}")]
    System {
        /// System call.
        operation: &'static str,
        /// Object, with its size.
        what: String,
        /// Its error.
        errno: Errno,
    },
    /// The descriptor is not a memfd, or lacks seals.
    #[error(
        "not a memfd sealed with F_SEAL_SHRINK and F_SEAL_GROW: without both a truncation could kill its readers; seal it before passing it on"
    )]
    Unsealed,
    /// The file is shorter than the range.
    #[error("range {offset}+{bytes} is outside of a file of {size} bytes")]
    Short {
        /// Beginning of the range.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Size of the file.
        size: u64,
    },
}

fn system(operation: &'static str, what: impl Into<String>) -> impl FnOnce(Errno) -> MapError {
    let what = what.into();
    move |errno| MapError::System { operation, what, errno }
}

/// Creates a memfd of `bytes`, sealed so that its size is fixed for ever.
///
/// # Errors
/// [`MapError::System`].
pub fn sealed_memfd(name: &str, bytes: u64) -> Result<OwnedFd, MapError> {
    let what = || format!("memfd {name} of {bytes} bytes");
    let fd =
        memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(system("memfd_create", what()))?;
    ftruncate(&fd, bytes).map_err(system("ftruncate", what()))?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(system("fcntl(F_ADD_SEALS)", what()))?;
    Ok(fd)
}

/// Size of a memfd, if it is one that cannot change its size.
///
/// # Errors
/// [`MapError::Unsealed`] for anything else, [`MapError::System`] from fstat.
pub fn check_sealed(fd: impl AsFd) -> Result<u64, MapError> {
    let fixed = SealFlags::SHRINK | SealFlags::GROW;
    match fcntl_get_seals(&fd) {
        Ok(seals) if seals.contains(fixed) => {}
        _ => return Err(MapError::Unsealed),
    }
    let stat = fstat(&fd).map_err(system("fstat", "memfd"))?;
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// A shared mapping.
#[derive(Debug)]
struct Mapping {
    address: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only accessed through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this length; `Map::words` borrows from a holder of this value, so no reference outlives it.
        let result = unsafe { munmap(self.address.as_ptr().cast(), self.words * 8) };
        debug_assert!(result.is_ok());
    }
}

impl AsRef<[AtomicU64]> for Mapping {
    fn as_ref(&self) -> &[AtomicU64] {
        // SAFETY: the whole mapping lives as long as `self`, is page aligned, and its file cannot shrink (sealed). Any bit pattern is a valid u64,
        // whoever writes it.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.words) }
    }
}

/// Memory that outlives every handle to it.
type Owner = Arc<dyn AsRef<[AtomicU64]> + Send + Sync>;

/// A handle to a shared mapping or a window of it; the mapping goes with its last handle.
#[derive(Clone)]
pub struct Map {
    owner: Owner,
    from: usize,
    words: usize,
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").field("from", &self.from).field("words", &self.words).finish_non_exhaustive()
    }
}

impl Map {
    /// Maps `bytes` of a sealed memfd from `offset` on, for reading and, with `writable`, for writing.
    ///
    /// # Errors
    /// [`MapError::Unsealed`], [`MapError::Short`], [`MapError::System`] from mmap (an offset that is not a multiple of the page size, no memory).
    pub fn of(fd: impl AsFd, offset: u64, bytes: u64, writable: bool) -> Result<Self, MapError> {
        let size = check_sealed(&fd)?;
        if bytes == 0 || !bytes.is_multiple_of(8) || offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(MapError::Short { offset, bytes, size });
        }
        let length = usize::try_from(bytes).map_err(|_| MapError::Short { offset, bytes, size })?;
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let address = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, fd, offset) }
            .map_err(system("mmap", format!("{bytes} bytes at offset {offset}")))?;
        let address = NonNull::new(address.cast()).expect("mmap returns 0 only where it is asked to");
        let words = length / 8;
        Ok(Self::shared(Mapping { address, words }))
    }

    /// A handle to all words of `owner`, a mapping that somebody else has made, such as that of a BPF array.
    #[must_use]
    pub fn shared(owner: impl AsRef<[AtomicU64]> + Send + Sync + 'static) -> Self {
        let words = owner.as_ref().len();
        Self { owner: Arc::new(owner), from: 0, words }
    }

    /// The mapping's words. Storing into a mapping that is not writable kills the process (SIGSEGV).
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        &(*self.owner).as_ref()[self.from..][..self.words]
    }

    /// A part of it, in words.
    ///
    /// # Panics
    /// If the part is not within this handle's words.
    #[must_use]
    pub fn window(&self, words: Range<usize>) -> Self {
        assert!(words.start <= words.end && words.end <= self.words);
        Self { owner: self.owner.clone(), from: self.from + words.start, words: words.len() }
    }
}

impl AsRef<[AtomicU64]> for Map {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn two_mappings_see_the_same_words() {
        let fd = sealed_memfd("test", 8192).unwrap();
        let (whole, part) = (Map::of(&fd, 0, 8192, true).unwrap(), Map::of(&fd, 4096, 4096, false).unwrap());
        whole.words()[512].store(7, Ordering::Relaxed);
        assert_eq!((part.words()[0].load(Ordering::Relaxed), part.words().len()), (7, 512));
        assert_eq!(whole.window(500..600).window(12..13).words()[0].load(Ordering::Relaxed), 7);
        assert!(rustix::fs::ftruncate(&fd, 0).is_err(), "sealed");
    }

    #[test]
    fn memory_of_another_kind_is_windowed_alike() {
        let owner: Vec<AtomicU64> = (0..16).map(AtomicU64::new).collect();
        let map = Map::shared(owner);
        assert_eq!((map.words().len(), map.window(4..8).words()[1].load(Ordering::Relaxed)), (16, 5));
    }

    #[test]
    fn what_could_fault_later_is_refused_now() {
        let fd = sealed_memfd("test", 4096).unwrap();
        assert_eq!(Map::of(&fd, 0, 8192, false).unwrap_err(), MapError::Short { offset: 0, bytes: 8192, size: 4096 });
        assert!(matches!(Map::of(&fd, u64::MAX, 8, false), Err(MapError::Short { .. })));
        assert!(matches!(Map::of(&fd, 0, 0, false), Err(MapError::Short { .. })));
        assert!(matches!(Map::of(&fd, 8, 8, false), Err(MapError::System { operation: "mmap", .. })));
        let unsealed = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        assert_eq!(Map::of(&unsealed, 0, 8, false).unwrap_err(), MapError::Unsealed);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(check_sealed(&file).unwrap_err(), MapError::Unsealed);
    }
}
