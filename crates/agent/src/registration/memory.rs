// SPDX-License-Identifier: Apache-2.0
//! Memory of regions: users' slabs, and what programs bring themselves.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use onlooker_local::registration::{Code, Refusal};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::map::{Map, sealed_memfd};
use onlooker_region::slab::{PAGE_BYTES, Range};
use rustix::fs::{FallocateFlags, SealFlags, SeekFrom, fallocate, fcntl_get_seals, fstat, fstatfs, seek};

use super::internal;
use crate::kernel::slabs::UserSlab;

/// `f_type` of memfds that are not of huge pages (statfs(2)). Huge pages can be missing at the moment of access, which would kill the agent.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The largest memfd that is adopted, in whole or in part: its holes are looked for and its pages given back on the main thread, which takes a few
/// milliseconds for so many.
const MAX_ADOPTED_FILE_BYTES: u64 = 128 << 20;

/// A user's slab.
pub(super) enum Slab {
    /// Served over TCP (and by cards). Takes memory as it is used.
    Memfd { descriptor: OwnedFd, memory: Map, bytes: u64 },
    /// Served by the kernel responder, too. All of it is there at once, and only what regions use is mapped.
    Kernel(UserSlab),
}

impl Slab {
    pub(super) fn memfd(uid: u32, bytes: u64) -> Result<Self, Refusal> {
        let descriptor = sealed_memfd(&format!("onlooker-slab-{uid}"), bytes).map_err(internal)?;
        let memory = Map::of(&descriptor, 0, bytes, false).map_err(internal)?;
        Ok(Self::Memfd { descriptor, memory, bytes })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Memfd { descriptor, .. } => descriptor.as_fd(),
            Self::Kernel(slab) => slab.as_fd(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Memfd { bytes, .. } => *bytes,
            Self::Kernel(slab) => slab.bytes(),
        }
    }

    /// Its place in the responder's table of slabs.
    pub(super) fn index(&self) -> Option<u32> {
        match self {
            Self::Memfd { .. } => None,
            Self::Kernel(slab) => Some(slab.index()),
        }
    }

    /// The first `bytes` of a range, to be served from.
    pub(super) fn region(&self, range: Range, bytes: u64) -> Result<Map, Refusal> {
        match self {
            Self::Memfd { memory, .. } => window(memory, range.offset, bytes),
            Self::Kernel(slab) => window(&slab.map(range).map_err(internal)?, 0, bytes),
        }
    }

    /// Makes a range zero before it is given out.
    pub(super) fn zero(&self, range: Range) -> Result<(), Refusal> {
        match self {
            Self::Memfd { descriptor, .. } => punch(descriptor, range),
            Self::Kernel(slab) => {
                let memory = slab.map(range).map_err(internal)?;
                memory.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
                Ok(())
            }
        }
    }

    /// Gives the memory of an ended region back to the system, where that can be done. It is zeroed again before it is given out, so a failure costs memory only.
    pub(super) fn release(&self, range: Range) {
        if let Self::Memfd { descriptor, .. } = self {
            let _ = punch(descriptor, range);
        }
    }
}

/// A window of a mapping, checked: ranges come from the registry, but a panic here would end the agent.
fn window(memory: &Map, offset: u64, bytes: u64) -> Result<Map, Refusal> {
    let words = |bytes: u64| usize::try_from(bytes / 8).map_err(internal);
    let (from, to) = (words(offset)?, words(offset + bytes)?);
    if to > memory.words().len() {
        return Err(Refusal::new(Code::Internal, "a range outside of its slab"));
    }
    Ok(memory.window(from..to))
}

pub(super) fn adopted_memory(descriptor: &OwnedFd, offset: u64, bytes: u64) -> Result<Map, Refusal> {
    let bad = |message: String| Refusal::new(Code::BadDescriptor, message);
    if !offset.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(Refusal::new(
            Code::BadRequest,
            format!("offset {offset} is not a multiple of {BLOCK_BYTES}: regions are whole blocks"),
        ));
    }
    // Seals are asked first: of what is no memfd the kernel says so itself, while fstatfs of a FUSE file waits for its owner.
    fcntl_get_seals(descriptor).map_err(|_| bad("not a memfd: make it with memfd_create".into()))?;
    let kind = fstatfs(descriptor).map_err(|errno| bad(format!("fstatfs: {errno}")))?.f_type;
    if kind != TMPFS_MAGIC {
        return Err(bad("not a memfd of ordinary pages: make it with memfd_create, without MFD_HUGETLB".into()));
    }
    let file = fstat(descriptor).map_err(|errno| bad(format!("fstat: {errno}")))?;
    if u64::try_from(file.st_size).unwrap_or(u64::MAX) > MAX_ADOPTED_FILE_BYTES {
        let message = format!(
            "the memfd has {} bytes, at most {MAX_ADOPTED_FILE_BYTES} are adopted: keep counters in a memfd of their own",
            file.st_size
        );
        return Err(bad(message));
    }
    let page = offset / PAGE_BYTES * PAGE_BYTES;
    let length = bytes.checked_add(offset - page).ok_or_else(|| bad("offset and length overflow".into()))?;
    let map = Map::of(descriptor, page, length, false).map_err(|error| bad(error.to_string()))?;
    check_filled(descriptor, page, page + length)?;
    window(&map, offset - page, bytes)
}

/// A READ of a hole would allocate its page for the agent, beyond every quota. So every page must be there already, and stay: F_SEAL_FUTURE_WRITE
/// forbids hole punching, also through mappings made before it (shmem_fallocate in mm/shmem.c). The seal is looked at first, so that what is found
/// filled stays so.
pub(super) fn check_filled(descriptor: &OwnedFd, from: u64, to: u64) -> Result<(), Refusal> {
    let bad = |message: String| Refusal::new(Code::BadDescriptor, message);
    if !fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(SealFlags::FUTURE_WRITE)) {
        let message = "the memfd lacks F_SEAL_FUTURE_WRITE, without which pages could be taken out of it later: map it for writing, then add the seal";
        return Err(bad(message.into()));
    }
    let failed = |errno| bad(format!("lseek: {errno}"));
    // The position is shared with the program.
    let position = seek(descriptor, SeekFrom::Current(0)).map_err(failed)?;
    let hole = seek(descriptor, SeekFrom::Hole(from)).map_err(failed)?;
    seek(descriptor, SeekFrom::Start(position)).map_err(failed)?;
    if hole < to {
        let message = format!(
            "the memfd has a hole at byte {hole}: write to every page of bytes {from} to {to} before adopting them"
        );
        return Err(bad(message));
    }
    Ok(())
}

/// Gives a range's pages back to the system; it reads as zeros afterwards.
fn punch(descriptor: &OwnedFd, range: Range) -> Result<(), Refusal> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(descriptor, flags, range.offset, range.bytes)
        .map_err(|errno| Refusal::new(Code::Internal, format!("fallocate of {} bytes of a slab: {errno}", range.bytes)))
}
