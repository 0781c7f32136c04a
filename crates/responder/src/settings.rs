// SPDX-License-Identifier: Apache-2.0
//! What a home says of itself: an array of one element, pinned as `settings` once everything else is. Written by the loader, read by whoever takes over.
//!
//! ```text
//! u64 layout version   configuration, 48 bytes   u64 fingerprint of the programs; 0 while they are being replaced
//! ```
//!
//! One map update writes all of it: no process dies in the middle of one.

use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use crate::config::Config;
use crate::error::{CHECK_KERNEL_LOG, Error, NEEDS_CAPABILITIES, Result, bpf};
use crate::home::open_map;
use crate::intf::CONFIG_BYTES;

/// Version of the layout of pins and of the meaning of `bpf/intf.h`; a change of either raises it, and then nothing is taken over. Maps of another shape
/// are seen without it.
const LAYOUT_VERSION: u64 = 4;
const SETTINGS_BYTES: u32 = 64;
const _: () = assert!(SETTINGS_BYTES as usize == 8 + CONFIG_BYTES + 8);

/// That of the programs in this crate.
const FINGERPRINT: u64 = match u64::from_str_radix(env!("ONLOOKER_RESPONDER_FINGERPRINT"), 16) {
    Ok(fingerprint) => fingerprint,
    Err(_) => panic!("build.rs writes sixteen hexadecimal digits"),
};

/// Which programs a home has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) config: [u8; CONFIG_BYTES],
    fingerprint: u64,
}

impl Settings {
    /// The programs of this crate with this configuration.
    pub(crate) fn of(config: &Config) -> Self {
        Self { config: config.to_bytes(), fingerprint: FINGERPRINT }
    }

    /// Perhaps these programs, perhaps others, perhaps some of each.
    pub(crate) fn in_doubt(self) -> Self {
        Self { fingerprint: 0, ..self }
    }

    pub(crate) fn is_in_doubt(&self) -> bool {
        self.fingerprint == 0
    }

    fn to_bytes(self) -> Vec<u8> {
        [&LAYOUT_VERSION.to_le_bytes()[..], &self.config, &self.fingerprint.to_le_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<8>()?;
        let (config, fingerprint) = rest.split_first_chunk::<CONFIG_BYTES>()?;
        let fingerprint = u64::from_le_bytes(fingerprint.try_into().ok()?);
        (u64::from_le_bytes(*version) == LAYOUT_VERSION).then_some(Self { config: *config, fingerprint })
    }

    /// A map with these settings, not pinned yet.
    pub(crate) fn create(self) -> Result<MapHandle> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Array, Some("ol_settings"), 4, SETTINGS_BYTES, 1, &options)
            .map_err(bpf("BPF_MAP_CREATE", "settings", NEEDS_CAPABILITIES))?;
        self.put(&map)?;
        Ok(map)
    }

    fn put(self, map: &MapHandle) -> Result<()> {
        map.update(&[0; 4], &self.to_bytes(), MapFlags::ANY).map_err(bpf("writing", "settings", CHECK_KERNEL_LOG))
    }

    /// Changes the pinned ones.
    pub(crate) fn write(self, path: &Path) -> Result<()> {
        self.put(&open_map(path)?)
    }

    /// # Errors
    /// [`Error::Bpf`] (not found: nothing, or nothing whole, is pinned), [`Error::Incompatible`].
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let map = open_map(path)?;
        let other = || {
            let what = format!("not of layout version {LAYOUT_VERSION}");
            Error::Incompatible { path: path.display().to_string(), what }
        };
        if (map.key_size(), map.max_entries()) != (4, 1) {
            return Err(other());
        }
        let value = map.lookup(&[0; 4], MapFlags::ANY).map_err(bpf("reading", "settings", CHECK_KERNEL_LOG))?;
        Self::from_bytes(&value.unwrap_or_default()).ok_or_else(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_their_bytes_and_other_versions_do_not() {
        let settings = Settings::of(&Config::new(4792));
        assert!(!settings.is_in_doubt() && settings.in_doubt().is_in_doubt());
        for settings in [settings, settings.in_doubt()] {
            let mut bytes = settings.to_bytes();
            assert_eq!(bytes.len(), usize::try_from(SETTINGS_BYTES).unwrap());
            assert_eq!(Settings::from_bytes(&bytes), Some(settings));
            assert_eq!(Settings::from_bytes(&bytes[1..]), None);
            bytes[0] += 1;
            assert_eq!(Settings::from_bytes(&bytes), None);
        }
    }
}
