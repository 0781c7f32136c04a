// SPDX-License-Identifier: Apache-2.0
//! A BPF array whose memory is mapped into this process (`BPF_F_MMAPABLE`), by the plain system call.
//!
//! Written by this process through the mapping, read by the kernel and by the RDMA device. Words are atomics because
//! others access them at the same time.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

// Linux, include/uapi/linux/bpf.h.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The head of `union bpf_attr` for `BPF_MAP_CREATE`; what it leaves out the kernel takes as zero.
#[repr(C)]
struct CreateAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The head of `union bpf_attr` for `BPF_MAP_LOOKUP_ELEM`.
#[repr(C)]
struct LookupAttributes {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A mapped array of `entries` values; unmapped and closed when dropped.
pub(crate) struct MappedArray {
    fd: OwnedFd,
    memory: NonNull<AtomicU64>,
    bytes: usize,
}

impl MappedArray {
    /// Creates the map and maps it. `value_bytes` times `entries` must be whole pages, or the tail stays unmapped.
    pub(crate) fn new(value_bytes: usize, entries: usize) -> io::Result<Self> {
        let attributes = CreateAttributes {
            map_type: BPF_MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: u32::try_from(value_bytes).map_err(io::Error::other)?,
            max_entries: u32::try_from(entries).map_err(io::Error::other)?,
            map_flags: BPF_F_MMAPABLE,
        };
        let number = bpf(BPF_MAP_CREATE, &attributes)?;
        // SAFETY: the kernel has just handed out this descriptor and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        let bytes = value_bytes * entries;
        let (access, sharing) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, sharing, fd.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mmap returned a null pointer"))?;
        Ok(Self { fd, memory, bytes })
    }

    /// All words of all values.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, `bytes` long, and lives as long as `self`; concurrent changes are what
        // atomics are for.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.bytes / 8) }
    }

    /// Copies one value out through the kernel, which must be `into`'s length.
    pub(crate) fn lookup(&self, key: u32, into: &mut [u64]) -> io::Result<()> {
        let attributes = LookupAttributes {
            map_fd: u32::try_from(self.fd.as_raw_fd()).map_err(io::Error::other)?,
            padding: 0,
            key: (&raw const key) as u64,
            value: into.as_mut_ptr() as u64,
            flags: 0,
        };
        bpf(BPF_MAP_LOOKUP_ELEM, &attributes).map(|_| ())
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`, and `words` cannot outlive `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: `attributes` is a plain structure of the size passed, laid out as the command wants it, and its pointers
    // are to memory that its maker holds during the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    libc::c_int::try_from(result).map_err(io::Error::other)
}
