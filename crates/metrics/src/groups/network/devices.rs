// SPDX-License-Identifier: Apache-2.0
//! Which network devices have a row in group network now: asked of the collector itself, so that whoever samples the others gives no device twice.
//!
//! The installer pins the program that computes a block for its caller, with its maps, under `<home>/devices/`; another process opens them. Running it looks for new
//! devices as a READ does, so a device without a row afterwards is one that the collector cannot serve. Cost: three system calls a block of up to 8 devices.

use std::fs;
use std::os::fd::AsFd as _;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object, ProgramHandle};
use onlooker_region::table::LIVE;
use onlooker_responder::error::{CHECK_KERNEL_LOG, Error, Result, absent, bpf, system};
use onlooker_responder::home::{BPFFS_ADVICE, open_map, pin};
use onlooker_responder::intf::{BLOCK_AT, OFFSET_AT};
use onlooker_responder::{Home, sys};

use super::facts::{BUCKETS, namespace};
use crate::collect::intf::TableFacts;
use crate::collect::object::map_of;
use crate::sampled::DeviceKey;

/// Of the home.
const DIRECTORY: &str = "devices";
const PROGRAM: &str = "collect_once";
const MAPS: [&str; 3] = ["once", "namespace", "tables"];
/// Passes over all rows until none of them changes meanwhile.
const PASSES: u32 = 8;
/// First word of a block's payload.
const PAYLOAD_AT: usize = BLOCK_AT + 3 * 8;

/// Program and maps to be pinned.
#[derive(Debug)]
pub(crate) struct Handles {
    program: ProgramHandle,
    maps: [MapHandle; 3],
}

impl Handles {
    pub(crate) fn of(object: &Object) -> Result<Self> {
        let program = object.progs_mut().find(|program| program.name() == PROGRAM);
        let program = program.ok_or_else(|| absent(PROGRAM)).map_err(bpf("opening", PROGRAM, CHECK_KERNEL_LOG))?;
        let program = ProgramHandle::try_from(&program).map_err(bpf("opening", PROGRAM, CHECK_KERNEL_LOG))?;
        let [once, namespace, tables] = MAPS.map(|name| map_of(object, name));
        Ok(Self { program, maps: [once?, namespace?, tables?] })
    }

    /// In place of what an earlier installer has pinned; who has that open goes on with it.
    pub(crate) fn pin(&self, home: &Home) -> Result<()> {
        let directory = home.path().join(DIRECTORY);
        let failed = |operation| system(operation, directory.display().to_string(), BPFFS_ADVICE);
        fs::create_dir_all(&directory).map_err(failed("creating"))?;
        let put = |name: &str, object: std::os::fd::BorrowedFd<'_>| {
            let path = directory.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed("clearing")(error)),
                _ => pin(object, &path),
            }
        };
        put(PROGRAM, self.program.as_fd())?;
        MAPS.iter().zip(&self.maps).try_for_each(|(name, map)| put(name, map.as_fd()))
    }
}

/// Blocks of the first CPUs' tables: every device is in one of them.
#[derive(Debug, Clone, Copy)]
struct Rows {
    block: u32,
    rows: usize,
    row_words: usize,
}

/// The collector of group network as an installer has pinned it.
#[derive(Debug)]
pub struct DeviceRows {
    program: ProgramHandle,
    once: MapHandle,
    namespace: MapHandle,
    blocks: Vec<Rows>,
    scratch: Vec<u8>,
}

impl DeviceRows {
    /// Opens what is pinned. Needs CAP_BPF where the kernel forbids BPF to others.
    ///
    /// # Errors
    /// [`Error::Bpf`] if there is nothing, [`Error::Incompatible`].
    pub fn open(home: &Home) -> Result<Self> {
        let directory = home.path().join(DIRECTORY);
        let path = directory.join(PROGRAM);
        let advice = "no collector of group network is pinned there: install it";
        let program = ProgramHandle::from_pinned_path(&path);
        let program = program.map_err(bpf("opening", path.display().to_string(), advice))?;
        let map = |name| open_map(&directory.join(name));
        let (once, namespace, tables) = (map(MAPS[0])?, map(MAPS[1])?, map(MAPS[2])?);
        let mut blocks = Vec::new();
        for block in 0..tables.max_entries() {
            let table = tables.lookup(&block.to_le_bytes(), MapFlags::ANY);
            let table = table.map_err(bpf("reading", "tables", CHECK_KERNEL_LOG))?.unwrap_or_default();
            if let Some(TableFacts { rows, row_words, first_cpu: 0, .. }) = TableFacts::from_bytes(&table) {
                blocks.push(Rows { block, rows: rows as usize, row_words: row_words as usize });
            }
        }
        let scratch = vec![0; once.value_size() as usize];
        if scratch.len() < PAYLOAD_AT + 124 * 8 || blocks.iter().any(|rows| rows.rows * rows.row_words > 124) {
            let what = "other maps than those of this version's group network".to_owned();
            return Err(Error::Incompatible { path: directory.display().to_string(), what });
        }
        Ok(Self { program, once, namespace, blocks, scratch })
    }

    /// Names of the devices that have a row, after a look for new ones. False where devices came and went all the time meanwhile, so that it is not known.
    /// Needs CAP_BPF as [`DeviceRows::open`].
    ///
    /// # Errors
    /// [`Error::Bpf`], [`Error::System`].
    pub fn names(&mut self, names: &mut Vec<DeviceKey>) -> Result<bool> {
        for _ in 0..PASSES {
            names.clear();
            self.compute(0)?;
            let before = self.state()?;
            for at in 0..self.blocks.len() {
                let Rows { block, rows, row_words } = self.blocks[at];
                let scratch = self.compute(block)?;
                let word = |number: usize| {
                    let bytes = scratch.get(PAYLOAD_AT + 8 * number..).and_then(|rest| rest.first_chunk::<8>());
                    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
                };
                let live = (0..rows).map(|row| row * row_words).filter(|at| word(*at) & LIVE != 0);
                names.extend(live.map(|at| [word(at + 1), word(at + 2)]));
            }
            if before.is_complete && before == self.state()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A block, computed now, in this thread.
    fn compute(&mut self, block: u32) -> Result<Vec<u8>> {
        self.scratch[OFFSET_AT..OFFSET_AT + 8].copy_from_slice(&(u64::from(block) * 1024).to_le_bytes());
        let written = self.once.update(&[0; 4], &self.scratch, MapFlags::ANY);
        written.map_err(bpf("writing", MAPS[0], CHECK_KERNEL_LOG))?;
        sys::run_syscall(self.program.as_fd()).map_err(system("BPF_PROG_TEST_RUN", PROGRAM, "needs CAP_BPF"))?;
        let scratch = self.once.lookup(&[0; 4], MapFlags::ANY).map_err(bpf("reading", MAPS[0], CHECK_KERNEL_LOG))?;
        Ok(scratch.unwrap_or_default())
    }

    fn state(&self) -> Result<State> {
        let namespace = self.namespace.lookup(&[0; 4], MapFlags::ANY);
        let namespace = namespace.map_err(bpf("reading", MAPS[1], CHECK_KERNEL_LOG))?.unwrap_or_default();
        let number = |at: usize| namespace.get(at..).and_then(|rest| rest.first_chunk::<4>());
        let number = |at| number(at).map_or(0, |bytes| u32::from_le_bytes(*bytes));
        Ok(State {
            is_complete: number(namespace::CURSOR) >= BUCKETS,
            used: number(namespace::USED),
            sequence: number(namespace::SEQUENCE),
            free: number(namespace::FREE),
        })
    }
}

/// What moves in `struct onlooker_namespace` when rows are given or taken.
#[derive(Debug, PartialEq, Eq)]
struct State {
    is_complete: bool,
    used: u32,
    sequence: u32,
    free: u32,
}
