// SPDX-License-Identifier: Apache-2.0
//! Collectors: programs in objects of their own that fill computed blocks (`bpf/collector.h`).

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, OpenObject};

use crate::error::{CHECK_KERNEL_LOG, Error, Result, bpf};
use crate::intf::{FINISH_SLOT, MAX_COLLECTORS};
use crate::responder::Responder;

impl Responder {
    /// Makes a collector's object use this responder's maps wherever it declares one by the same name. To be called between opening and loading it.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn adopt_maps(&self, object: &mut OpenObject) -> Result<()> {
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if let Some((_, ours)) = self.maps.all().into_iter().find(|(ours, _)| *ours == name) {
                map.reuse_fd(ours.as_fd()).map_err(bpf(
                    "taking over",
                    format!("map {name}"),
                    "the collector was compiled against another version of bpf/maps.h; compile it again",
                ))?;
            }
        }
        Ok(())
    }

    /// Puts a collector's pair of programs into a slot, replacing what is there. It stays until [`Responder::remove_collector`] or the responder's end.
    ///
    /// # Errors
    /// [`Error::Limit`] for slots outside of 1 to 63, [`Error::Bpf`] for programs of another type (tc and XDP, in this order).
    pub fn install_collector(&self, slot: u32, tc: impl AsFd, xdp: impl AsFd) -> Result<()> {
        check_slot(slot)?;
        self.put_program(slot, &tc, &xdp)
    }

    /// Empties a slot; requests for its regions are dropped from then on.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Bpf`] (ENOENT where the slot was empty).
    pub fn remove_collector(&self, slot: u32) -> Result<()> {
        check_slot(slot)?;
        for map in [&self.maps.collectors_tc, &self.maps.collectors_xdp] {
            map.delete(&slot.to_le_bytes()).map_err(bpf(
                "removing",
                format!("collector {slot}"),
                "no collector is installed there",
            ))?;
        }
        Ok(())
    }

    pub(crate) fn put_program(&self, slot: u32, tc: &impl AsFd, xdp: &impl AsFd) -> Result<()> {
        let pairs = [(&self.maps.collectors_tc, tc.as_fd()), (&self.maps.collectors_xdp, xdp.as_fd())];
        for (map, program) in pairs {
            map.update(&slot.to_le_bytes(), &program.as_raw_fd().to_le_bytes(), MapFlags::ANY).map_err(bpf(
                "installing",
                format!("collector {slot}"),
                if slot == FINISH_SLOT {
                    CHECK_KERNEL_LOG
                } else {
                    "give a SEC(\"tc\") and a SEC(\"xdp\") program, in this order"
                },
            ))?;
        }
        Ok(())
    }
}

fn check_slot(slot: u32) -> Result<()> {
    if slot == FINISH_SLOT || slot >= MAX_COLLECTORS {
        return Err(Error::Limit { what: "collector", value: slot.into(), limits: "1 to 63".to_owned() });
    }
    Ok(())
}
