// SPDX-License-Identifier: Apache-2.0
//! A group made ready: its object, what goes into its maps, its schema and procfs's view of it.

use std::os::fd::AsFd as _;
use std::sync::OnceLock;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use onlooker_region::Schema;
use onlooker_responder::error::{CHECK_KERNEL_LOG, Error, Result, absent, bpf};
use onlooker_responder::intf::{BLOCK_AT, OFFSET_AT};
use onlooker_responder::log::with_log;
use onlooker_responder::{Responder, Slab, crc_tables};

use super::counterpart::Counterpart;

/// What an object is loaded for: which of its programs, with whose maps.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// Only to compute blocks in this process.
    Check,
    /// To be measured in this process, on maps of its own.
    Measure,
    /// To answer READs of this responder.
    Serve(&'a Responder),
    /// To write into this slab, with this responder's counters and under its lease.
    Publish(&'a Responder, &'a Slab),
}

impl Purpose<'_> {
    /// Maps that it needs beside those of the group.
    fn maps(self) -> &'static [&'static str] {
        match self {
            Self::Check => &["once"],
            Self::Measure => &["once", "scratch", "counters", "collectors_tc"],
            Self::Serve(_) => &["once", "scratch", "counters", "collectors_tc", "collectors_xdp"],
            Self::Publish(..) => &["publish_scratch", "published", "publication", "lease"],
        }
    }

    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Check => &["collect_once"],
            Self::Measure => &["collect_once", "collect_tc"],
            Self::Serve(_) => &["collect_once", "collect_tc", "collect_xdp"],
            Self::Publish(..) => &["publish"],
        }
    }
}

/// A map of the object, how many elements it has, and those that its loader writes, with their keys.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) map: &'static str,
    pub(crate) capacity: u32,
    pub(crate) elements: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Content {
    /// An array with all its elements.
    pub(crate) fn array(map: &'static str, elements: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let elements: Vec<_> = (0u32..).map(|key| key.to_le_bytes().to_vec()).zip(elements).collect();
        Self { map, capacity: u32::try_from(elements.len()).unwrap_or(u32::MAX), elements }
    }

    /// A map that is filled by the programs.
    pub(crate) fn empty(map: &'static str, capacity: u32) -> Self {
        Self { map, capacity, elements: Vec::new() }
    }
}

/// An object and all that its loader writes: enough to load it again.
pub(crate) struct Image {
    /// Compiled from `src/groups/<group>/<group>.bpf.c`.
    pub(crate) object: &'static [u8],
    /// All that the loader writes.
    pub(crate) contents: Vec<Content>,
    /// Maps that computing needs beside those of `contents`.
    pub(crate) maps: &'static [&'static str],
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Addresses of the kernel are not for logs.
        f.debug_struct("Image").field("bytes", &self.object.len()).finish_non_exhaustive()
    }
}

/// A group made ready to be loaded.
pub(crate) struct Prepared {
    pub(crate) image: Image,
    /// With all metrics.
    pub(crate) schema: Schema,
    /// What the metrics are compared with.
    pub(crate) counterpart: Counterpart,
}

/// What the published twins of all groups use alike: 20 KiB of tables and a scratch. With tables and scratches of
/// their own a block of twelve groups took 2.2 us every 10 ms, and takes 1.35; probably since they stay in the caches from turn to turn, which was not measured.
struct Shared {
    tables: MapHandle,
    scratch: MapHandle,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

fn is_tables(map: &str) -> bool {
    map.ends_with(".rodata")
}

impl Image {
    /// Loads the programs that `purpose` needs and fills the maps.
    pub(crate) fn load(&self, purpose: Purpose<'_>) -> Result<Object> {
        let (result, log) = with_log(|| self.try_load(purpose));
        let object = result.map_err(|failure| match failure {
            Failure::Libbpf(source) => Error::Load { source, log },
            Failure::Ours(error) => error,
        })?;
        if let (Purpose::Publish(..), None) = (purpose, SHARED.get()) {
            let tables = object.maps().find(|map| is_tables(&map.name().to_string_lossy()));
            let tables = tables.ok_or_else(|| absent("map .rodata")).and_then(|map| MapHandle::try_from(&map));
            let tables = tables.map_err(bpf("opening", ".rodata", "build it with this crate's build.rs"))?;
            let _ = SHARED.set(Shared { tables, scratch: map_of(&object, "publish_scratch")? });
        }
        for content in &self.contents {
            let map = map_of(&object, content.map)?;
            for (key, element) in &content.elements {
                let written = map.update(key, element, MapFlags::ANY);
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
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if let Some(content) = self.contents.iter().find(|content| content.map == name) {
                map.set_max_entries(content.capacity)?;
            } else if let (Purpose::Publish(_, slab), "published") = (purpose, name.as_str()) {
                map.reuse_fd(slab.as_fd())?;
            } else if let (Purpose::Publish(..), "publish_scratch", Some(shared)) =
                (purpose, name.as_str(), SHARED.get())
            {
                map.reuse_fd(shared.scratch.as_fd())?;
            } else if let (Purpose::Publish(..), true, Some(shared)) = (purpose, is_tables(&name), SHARED.get()) {
                map.reuse_fd(shared.tables.as_fd())?;
            } else if let (Purpose::Publish(..), true) = (purpose, is_tables(&name)) {
                let tables = crc_tables();
                let words = tables.slices.iter().chain(&tables.shift_guarded).flatten();
                let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
                let value = map.initial_value_mut().and_then(|value| value.get_mut(..bytes.len()));
                value.ok_or_else(|| absent("room for the tables of bpf/crc.h"))?.copy_from_slice(&bytes);
            } else if !purpose.maps().contains(&name.as_str()) && !self.maps.contains(&name.as_str()) {
                map.set_autocreate(false)?;
            }
        }
        if let Purpose::Serve(responder) | Purpose::Publish(responder, _) = purpose {
            responder.adopt_maps(&mut object).map_err(Failure::Ours)?;
        }
        Ok(object.load()?)
    }
}

/// A map of a loaded object.
pub(crate) fn map_of(object: &Object, name: &str) -> Result<MapHandle> {
    let found = object.maps().find(|map| map.name() == name).ok_or_else(|| absent(name));
    found.and_then(|map| MapHandle::try_from(&map)).map_err(bpf("opening", name, "build it with this crate's build.rs"))
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

const PAYLOAD_WORDS: std::ops::Range<usize> = 3..127;

/// The payload of a block, computed now, in this thread, by the same function that answers READs; `None` where it had nothing to say.
pub(crate) fn compute(object: &Object, block: u32) -> Result<Option<Vec<u64>>> {
    let once = map_of(object, "once")?;
    let mut scratch = vec![0; once.value_size() as usize];
    scratch[OFFSET_AT..OFFSET_AT + 8].copy_from_slice(&(u64::from(block) * 1024).to_le_bytes());
    once.update(&[0; 4], &scratch, MapFlags::ANY).map_err(bpf("writing", "once", CHECK_KERNEL_LOG))?;
    if run(object, "collect_once")? == 0 {
        return Ok(None);
    }
    let scratch = once.lookup(&[0; 4], MapFlags::ANY).map_err(bpf("reading", "once", CHECK_KERNEL_LOG))?;
    let scratch = scratch.unwrap_or_default();
    let word = |index: usize| {
        let at = BLOCK_AT + 8 * index;
        scratch.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    Ok(Some(PAYLOAD_WORDS.map(word).collect()))
}

/// Runs a program of type `syscall` once; gives its verdict.
pub(crate) fn run(object: &Object, name: &str) -> Result<u32> {
    let program = object.progs_mut().find(|program| program.name() == name).ok_or_else(|| absent(name));
    let output = program.and_then(|program| program.test_run(ProgramInput::default()));
    output.map(|output| output.return_value).map_err(bpf("BPF_PROG_TEST_RUN", name, CHECK_KERNEL_LOG))
}
