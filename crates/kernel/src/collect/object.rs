// SPDX-License-Identifier: Apache-2.0
//! A group made ready: its object, what goes into its maps, its schema and procfs's view of it.

use libbpf_rs::{Map, MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder};
use onlooker_region::Schema;

use super::procfs::Reading;
use crate::error::{CHECK_KERNEL_LOG, Error, Result, absent, bpf};
use crate::responder::{Responder, with_log};

/// What an object is loaded for: which of its programs, with whose maps.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// Only to compute blocks in this process.
    Check,
    /// To answer READs of this responder.
    Serve(&'a Responder),
}

impl Purpose<'_> {
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Check => &["collect_once"],
            Self::Serve(_) => &["collect_once", "collect_tc", "collect_xdp"],
        }
    }
}

/// A map of the object and its elements, from key 0 on. The map has as many as there are.
pub(super) struct Content {
    pub(super) map: &'static str,
    pub(super) elements: Vec<Vec<u8>>,
}

/// A group made ready to be loaded.
pub(super) struct Prepared {
    /// Compiled from `bpf/collect/<group>.bpf.c`.
    pub(super) object: &'static [u8],
    /// All that the loader writes.
    pub(super) contents: Vec<Content>,
    /// Maps that only READs and the check need, beside those of `contents`.
    pub(super) maps: &'static [&'static str],
    /// With all metrics.
    pub(super) schema: Schema,
    /// What procfs says now.
    pub(super) procfs: Box<dyn Fn() -> std::io::Result<Reading>>,
}

impl Prepared {
    /// Loads the programs that `purpose` needs and fills the maps.
    pub(super) fn load(&self, purpose: Purpose<'_>) -> Result<Object> {
        let (result, log) = with_log(|| self.try_load(purpose));
        let object = result.map_err(|failure| match failure {
            Failure::Libbpf(source) => Error::Load { source, log },
            Failure::Ours(error) => error,
        })?;
        for content in &self.contents {
            let found = object.maps().find(|map| map.name() == content.map);
            let missing = || absent("such map");
            let map = found.ok_or_else(missing).and_then(|map| MapHandle::try_from(&map));
            let map = map.map_err(bpf("opening", content.map, "build it from bpf/collect"))?;
            for (key, element) in (0u32..).zip(&content.elements) {
                let written = map.update(&key.to_le_bytes(), element, MapFlags::ANY);
                written.map_err(bpf("writing", content.map, CHECK_KERNEL_LOG))?;
            }
        }
        Ok(object)
    }

    fn try_load(&self, purpose: Purpose<'_>) -> std::result::Result<Object, Failure> {
        let mut object = ObjectBuilder::default().open_memory(self.object)?;
        for mut program in object.progs_mut() {
            let wanted = purpose.programs().iter().any(|name| program.name() == *name);
            program.set_autoload(wanted);
        }
        if let Purpose::Serve(responder) = purpose {
            responder.adopt_maps(&mut object).map_err(Failure::Ours)?;
        }
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if let Some(content) = self.contents.iter().find(|content| content.map == name) {
                map.set_max_entries(u32::try_from(content.elements.len()).unwrap_or(u32::MAX))?;
            } else if matches!(purpose, Purpose::Check) && name != "once" && !self.maps.contains(&name.as_str()) {
                map.set_autocreate(false)?;
            }
        }
        Ok(object.load()?)
    }
}

enum Failure {
    Libbpf(libbpf_rs::Error),
    Ours(Error),
}

impl From<libbpf_rs::Error> for Failure {
    fn from(source: libbpf_rs::Error) -> Self {
        Self::Libbpf(source)
    }
}

/// Where the request's offset stands in `struct onlooker_scratch`, and its block.
const OFFSET_BYTES: usize = 24;
const BLOCK: usize = 56 + 48 + 8 * 10;
const PAYLOAD_WORDS: std::ops::Range<usize> = 3..127;

/// Puts the question for a block into map `once`, runs, and gives the payload; `None` where the collector had nothing to say.
pub(super) fn compute(once: &Map<'_>, block: u32, run: impl FnOnce() -> Result<bool>) -> Result<Option<Vec<u64>>> {
    let once = MapHandle::try_from(once).map_err(bpf("opening", "once", CHECK_KERNEL_LOG))?;
    let mut scratch = vec![0; once.value_size() as usize];
    scratch[OFFSET_BYTES..OFFSET_BYTES + 8].copy_from_slice(&(u64::from(block) * 1024).to_le_bytes());
    once.update(&[0; 4], &scratch, MapFlags::ANY).map_err(bpf("writing", "once", CHECK_KERNEL_LOG))?;
    if !run()? {
        return Ok(None);
    }
    let scratch = once.lookup(&[0; 4], MapFlags::ANY).map_err(bpf("reading", "once", CHECK_KERNEL_LOG))?;
    let scratch = scratch.unwrap_or_default();
    let word = |index: usize| {
        let at = BLOCK + 8 * index;
        scratch.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    Ok(Some(PAYLOAD_WORDS.map(word).collect()))
}
