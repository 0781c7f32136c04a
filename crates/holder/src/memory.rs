// SPDX-License-Identifier: Apache-2.0
//! What may be registered: memory that cannot shrink. A device goes on reading pages that their file has given up,
//! without an error (docs/verbs.md, Lifetimes).
//!
//! Mapped writable where that can be had: kernels before 6.2 register no other mapping. The holder itself neither reads
//! nor writes it.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use onlooker_region::map::{Map, MapError, check_sealed};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::protocol::{Code, Refusal};

/// What /proc/self/fd has for a BPF map (`bpf_map_new_fd` in kernel/bpf/syscall.c).
const BPF_MAP: &str = "anon_inode:bpf-map";
/// `BPF_MAP_TYPE_ARRAY`. Maps of other kinds that can be mapped (arenas) may give up pages.
const ARRAY: u64 = 2;

/// Which memory a descriptor is of, whatever process it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Its file.
    Memfd { device: u64, inode: u64 },
    /// The kernel's id: all BPF maps share one inode.
    BpfArray { id: u64 },
}

fn refusal(message: String) -> Refusal {
    Refusal::new(Code::Memory, message)
}

/// Which memory it is, if it is one that cannot shrink.
///
/// # Errors
/// `memory`.
pub(crate) fn identify(descriptor: BorrowedFd<'_>) -> Result<Identity, Refusal> {
    let number = descriptor.as_raw_fd();
    let target = fs::read_link(format!("/proc/self/fd/{number}"));
    if target.is_ok_and(|target| target.as_os_str() == BPF_MAP) {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
        let info =
            info.map_err(|error| refusal(format!("reading what kind of BPF map it is: {error}; mount /proc")))?;
        let not_one = || refusal("a BPF map of another type than array: make it BPF_MAP_TYPE_ARRAY, mmapable".into());
        return array_id(&info).map(|id| Identity::BpfArray { id }).ok_or_else(not_one);
    }
    check_sealed(descriptor).map_err(|error| refusal(error.to_string()))?;
    let stat = fstat(descriptor).map_err(|errno| refusal(format!("fstat of a memfd: {errno}; pass another one")))?;
    Ok(Identity::Memfd { device: stat.st_dev, inode: stat.st_ino })
}

/// The map's id in /proc/self/fdinfo (`bpf_map_show_fdinfo`), if it is an array.
fn array_id(info: &str) -> Option<u64> {
    let value = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    if value("map_type:")? == ARRAY { value("map_id:") } else { None }
}

/// Its first `bytes`.
///
/// # Errors
/// `memory`: too short, or it cannot be mapped.
pub(crate) fn map(descriptor: BorrowedFd<'_>, identity: Identity, bytes: u64) -> Result<Map, Refusal> {
    match identity {
        Identity::Memfd { .. } => map_memfd(descriptor, bytes).map_err(|error| refusal(error.to_string())),
        Identity::BpfArray { .. } => map_array(descriptor, bytes).map(Map::shared).map_err(|errno| {
            let advice = "it must have BPF_F_MMAPABLE and be as long as that";
            refusal(format!("mmap of {bytes} bytes of a BPF array: {errno}; {advice}"))
        }),
    }
}

fn map_memfd(descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Map, MapError> {
    match Map::of(descriptor, 0, bytes, true) {
        // Sealed with F_SEAL_FUTURE_WRITE, or opened for reading only: for kernels from 6.2 on that will do.
        Err(MapError::System { errno: Errno::PERM | Errno::ACCESS, .. }) => Map::of(descriptor, 0, bytes, false),
        mapped => mapped,
    }
}

fn map_array(descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Array, Errno> {
    match Array::of(descriptor, bytes, ProtFlags::READ | ProtFlags::WRITE) {
        // Frozen, or a descriptor for reading only.
        Err(Errno::PERM | Errno::ACCESS) => Array::of(descriptor, bytes, ProtFlags::READ),
        mapped => mapped,
    }
}

/// A shared mapping of a BPF array.
#[derive(Debug)]
struct Array {
    address: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only accessed through atomics.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    /// `bytes` is a multiple of 8, not 0.
    fn of(descriptor: BorrowedFd<'_>, bytes: u64, protection: ProtFlags) -> Result<Self, Errno> {
        let length = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let address = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, descriptor, 0) }?;
        let address = NonNull::new(address.cast()).expect("mmap returns 0 only where it is asked to");
        Ok(Self { address, words: length / 8 })
    }
}

impl AsRef<[AtomicU64]> for Array {
    fn as_ref(&self) -> &[AtomicU64] {
        // SAFETY: the whole mapping lives as long as `self`, is page aligned, and lies within an array (the kernel
        // refuses others), which never shrinks. Any bit pattern is a valid u64.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.words) }
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this length; whoever sees its words borrows from `self`.
        let result = unsafe { munmap(self.address.as_ptr().cast(), self.words * 8) };
        debug_assert!(result.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use onlooker_region::map::sealed_memfd;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn a_memfd_is_the_same_by_whichever_descriptor() {
        let (one, other) = (sealed_memfd("test", 4096).unwrap(), sealed_memfd("test", 4096).unwrap());
        let again = one.try_clone().unwrap();
        let identity = identify(one.as_fd()).unwrap();
        assert_eq!(identify(again.as_fd()), Ok(identity));
        assert_ne!(identify(other.as_fd()), Ok(identity));
        assert_eq!(map(again.as_fd(), identity, 4096).unwrap().words().len(), 512);
        let refusal = map(one.as_fd(), identity, 8192).unwrap_err();
        assert_eq!(refusal.code, Code::Memory);
        assert!(refusal.message.contains("4096 bytes"), "{}", refusal.message);
    }

    #[test]
    fn what_could_shrink_is_refused() {
        let unsealed = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        let file = fs::File::open("/proc/self/exe").unwrap();
        for descriptor in [unsealed.as_fd(), file.as_fd()] {
            let refusal = identify(descriptor).unwrap_err();
            assert_eq!(refusal.code, Code::Memory);
            assert!(refusal.message.contains("F_SEAL_SHRINK"), "{}", refusal.message);
        }
    }

    #[test]
    fn what_nobody_may_write_any_more_is_mapped_for_reading() {
        let memfd = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memfd, 4096).unwrap();
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE).unwrap();
        let identity = identify(memfd.as_fd()).unwrap();
        assert_eq!(map(memfd.as_fd(), identity, 4096).unwrap().words().len(), 512);
    }

    #[test]
    fn a_bpf_map_is_told_by_its_id_and_must_be_an_array() {
        let info =
            "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nmap_type:\t2\nkey_size:\t4\nvalue_size:\t1024\nmap_id:\t42\n";
        assert_eq!(array_id(info), Some(42));
        assert_eq!(array_id(&info.replace("map_type:\t2", "map_type:\t33")), None);
        assert_eq!(array_id(&info.replace("map_id:\t42\n", "")), None);
        assert_eq!(array_id(""), None);
    }
}
