// SPDX-License-Identifier: Apache-2.0
//! Slabs: memory that programs map and the responder reads. One BPF array each, one element a block.

use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::libbpf_sys;
use libbpf_rs::{MapCore, MapHandle, MapType};

use crate::error::{CHECK_KERNEL_LOG, Error, NEEDS_CAPABILITIES, Result, bpf};
use crate::intf::{BLOCK_BYTES, MAX_SLABS};
use crate::mapping::{PAGE_BLOCKS, SlabMapping};

/// Blocks of the largest slab: 1 GiB.
pub const MAX_SLAB_BLOCKS: u32 = 1 << 20;

/// A slab of a responder. Its descriptor ([`AsFd`]) may be handed to programs for [`SlabMapping::of`]; who has it can map all of the slab.
#[derive(Debug)]
pub struct Slab {
    index: u32,
    map: MapHandle,
}

impl Slab {
    /// Makes the array; the responder puts it into its table.
    pub(crate) fn create(index: u32, blocks: u32) -> Result<Self> {
        if index >= MAX_SLABS {
            return Err(Error::Limit { what: "slab", value: index.into(), limits: "0 to 63".to_owned() });
        }
        if blocks == 0 || !blocks.is_multiple_of(PAGE_BLOCKS) || blocks > MAX_SLAB_BLOCKS {
            let limits = format!("multiples of {PAGE_BLOCKS} from {PAGE_BLOCKS} to {MAX_SLAB_BLOCKS}");
            return Err(Error::Limit { what: "blocks of a slab", value: blocks.into(), limits });
        }
        let map = create_array(&format!("ol_slab_{index}"), blocks).map_err(bpf(
            "BPF_MAP_CREATE",
            format!("slab {index} of {blocks} blocks"),
            NEEDS_CAPABILITIES,
        ))?;
        Ok(Self { index, map })
    }

    /// Takes over a pinned one.
    pub(crate) fn from_map(index: u32, map: MapHandle) -> Self {
        Self { index, map }
    }

    /// Its place in the responder's table, which [`crate::Kind::Memory`] names.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The kernel's id of its array.
    pub(crate) fn id(&self) -> Result<u32> {
        let object = || format!("slab {}", self.index);
        self.map.info().map(|info| info.info.id).map_err(bpf("querying", object(), CHECK_KERNEL_LOG))
    }

    /// Its blocks.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.map.max_entries()
    }

    /// Maps blocks of it into this process, see [`SlabMapping::of`].
    ///
    /// # Errors
    /// As [`SlabMapping::of`].
    pub fn map(&self, first_block: u32, blocks: u32, writable: bool) -> Result<SlabMapping> {
        SlabMapping::of(&self.map, first_block, blocks, writable)
    }
}

impl AsFd for Slab {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// As the inner maps of `slabs` in `bpf/maps.h` are declared.
pub(crate) fn create_array(name: &str, blocks: u32) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE | libbpf_sys::BPF_F_INNER_MAP,
        ..Default::default()
    };
    MapHandle::create(MapType::Array, Some(name), 4, BLOCK_BYTES, blocks, &options)
}
