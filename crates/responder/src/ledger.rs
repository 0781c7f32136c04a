// SPDX-License-Identifier: Apache-2.0
//! A private table beside a responder: blocks by number, pinned in its home, in no table of slabs and not mappable, so that no READ and no program reaches it.
//!
//! Written and read by the home's owner (the agent), who keeps in it what it must know again after a restart. One change is one map update, which the kernel
//! carries out as a whole: a process that is killed leaves the old value or the new one. A value takes memory while it is there.
//! Cost: 1-2 us a change.

use std::fs;
use std::path::Path;

use libbpf_rs::libbpf_sys;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::error::{CHECK_KERNEL_LOG, NEEDS_CAPABILITIES, Result, bpf, system};
use crate::home::{expect_shape, open_map, pin};
use crate::intf::BLOCK_BYTES;
use crate::pinned::Pinned;

const BYTES: usize = BLOCK_BYTES as usize;

/// The table.
#[derive(Debug)]
pub struct Ledger {
    map: MapHandle,
}

impl Ledger {
    /// All values with their numbers, in no order.
    ///
    /// # Errors
    /// [`crate::Error::Bpf`].
    pub fn all(&self) -> Result<Vec<(u32, [u8; BYTES])>> {
        let mut all = Vec::new();
        for key in self.map.keys() {
            let value = self.map.lookup(&key, MapFlags::ANY).map_err(bpf("reading", "the ledger", CHECK_KERNEL_LOG))?;
            if let (Ok(key), Some(Ok(value))) = (key.try_into(), value.map(TryInto::try_into)) {
                all.push((u32::from_le_bytes(key), value));
            }
        }
        Ok(all)
    }

    /// Sets the value of a number.
    ///
    /// # Errors
    /// [`crate::Error::Bpf`] (E2BIG where it is full).
    pub fn put(&self, number: u32, value: &[u8; BYTES]) -> Result<()> {
        let advice = "the ledger has as many places as it was made with; end some regions";
        self.map.update(&number.to_le_bytes(), value, MapFlags::ANY).map_err(bpf(
            "writing",
            format!("number {number} of the ledger"),
            advice,
        ))
    }

    /// Removes the value of a number; without one this does nothing.
    pub fn remove(&self, number: u32) {
        let _ = self.map.delete(&number.to_le_bytes());
    }
}

impl Pinned {
    /// Makes a ledger of so many places and pins it.
    ///
    /// # Errors
    /// [`crate::Error::Bpf`], [`crate::Error::System`] from pinning (EEXIST where there is one).
    pub fn create_ledger(&self, places: u32) -> Result<Ledger> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_NO_PREALLOC,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Hash, Some("ol_ledger"), 4, BLOCK_BYTES, places, &options)
            .map_err(bpf("BPF_MAP_CREATE", "the ledger", NEEDS_CAPABILITIES))?;
        pin(&map, &self.home().ledger())?;
        Ok(Ledger { map })
    }

    /// The pinned ledger, if there is one.
    ///
    /// # Errors
    /// [`crate::Error::Incompatible`], [`crate::Error::System`].
    pub fn ledger(&self) -> Result<Option<Ledger>> {
        let path = self.home().ledger();
        if !exists(&path)? {
            return Ok(None);
        }
        let map = open_map(&path)?;
        expect_shape(&path, &map, 4, BLOCK_BYTES, map.max_entries())?;
        Ok(Some(Ledger { map }))
    }
}

fn exists(path: &Path) -> Result<bool> {
    fs::exists(path).map_err(system(
        "looking for",
        path.display().to_string(),
        "needs access to the BPF file system (root)",
    ))
}
