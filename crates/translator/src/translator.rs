// SPDX-License-Identifier: Apache-2.0
//! The loaded translator and its tables. All methods take `&self`: the state is in the kernel's maps.

use std::collections::BTreeMap;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, ProgramHandle};
use onlooker_dta::append::Position;
use onlooker_dta::translator::Shape;
use onlooker_responder::error::{CHECK_KERNEL_LOG, Error, Result, bpf};
use onlooker_responder::log::with_log;
use onlooker_responder::program::{ProgramInfo, Run, info_of, run};
use onlooker_responder::{Config as ResponderConfig, Hook, Prefix, Rate, Responder};

use crate::intf::Exit;
use crate::skeleton::{TranslatorSkelBuilder, types};
use crate::table::Table;

/// Numbers of tables are below this.
pub const MAX_TABLES: u16 = 1024;
/// Lists at once.
pub const MAX_LISTS: u32 = 256;

/// As tables have it.
const APPEND: u8 = 2;
/// Maps that are the responder's: memory, addresses, lease.
const SHARED: [&str; 3] = ["slabs", "own_addresses", "lease"];
/// Maps of the responder's headers that the translator has no use for.
const UNUSED: [&str; 5] = ["regions", "cpu_rate", "counters", "collectors_tc", "collectors_xdp"];

/// What a translator is told before it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// UDP port of reports.
    pub port: u16,
    /// Budget of each source address; `None`: unlimited.
    pub source_rate: Option<Rate>,
    /// How long an entry of a list waits for others of its batch.
    pub wait: Duration,
}

/// What became of packets, since loading: sums over all processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters(BTreeMap<Exit, u64>);

impl Counters {
    /// Packets that ended so.
    #[must_use]
    pub fn get(&self, exit: Exit) -> u64 {
        self.0.get(&exit).copied().unwrap_or(0)
    }

    /// Each exit and its count.
    pub fn iter(&self) -> impl Iterator<Item = (Exit, u64)> + '_ {
        self.0.iter().map(|(exit, count)| (*exit, *count))
    }
}

/// A loaded translator. It ends with this value; it takes nothing until it has sources, tables and a device, and its responder has
/// addresses and a lease.
#[derive(Debug)]
pub struct Translator {
    tables: MapHandle,
    lists: MapHandle,
    sources: MapHandle,
    counters: MapHandle,
    tc: ProgramHandle,
    xdp: ProgramHandle,
}

impl Translator {
    /// Loads programs and maps beside a responder.
    ///
    /// # Errors
    /// [`Error::Load`] with the verifier's last words, [`Error::Bpf`].
    pub fn load(config: &Config, responder: &Responder) -> Result<Self> {
        let (result, log) = with_log(|| load(config, responder));
        result.map_err(|source| Error::Load { source, log })
    }

    /// Lets reports write to a table. A list goes on at its shape's position, or where it was, if it has this number already.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Bpf`].
    pub fn put_table(&self, number: u16, table: &Table) -> Result<()> {
        if number >= MAX_TABLES {
            return Err(Error::Limit {
                what: "table",
                value: number.into(),
                limits: format!("0 to {}", MAX_TABLES - 1),
            });
        }
        let mut list = 0;
        if let Shape::Append(_, position) = table.shape {
            let is_known;
            (list, is_known) = self.list_of(number)?;
            if !is_known {
                self.put_list(list, number, position)?;
            }
        }
        self.tables.update(&u32::from(number).to_le_bytes(), &table.to_bytes(list), MapFlags::ANY).map_err(bpf(
            "registering",
            format!("table {number}"),
            CHECK_KERNEL_LOG,
        ))
    }

    /// Reports for this number are discarded from now on.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn remove_table(&self, number: u16) -> Result<()> {
        let none = [0; crate::intf::TABLE_BYTES];
        self.tables.update(&u32::from(number).to_le_bytes(), &none, MapFlags::ANY).map_err(bpf(
            "removing",
            format!("table {number}"),
            CHECK_KERNEL_LOG,
        ))
    }

    /// Lets a range of addresses send reports.
    ///
    /// # Errors
    /// [`Error::Bpf`] (ENOSPC at 1024 prefixes).
    pub fn allow(&self, prefix: Prefix) -> Result<()> {
        let advice = "at most 1024 prefixes; join some";
        self.sources.update(&prefix.to_bytes(), &1u32.to_le_bytes(), MapFlags::ANY).map_err(bpf(
            "allowing",
            format!("sources {prefix}"),
            advice,
        ))
    }

    /// Takes a range back, exactly as it was given.
    ///
    /// # Errors
    /// [`Error::Bpf`] (ENOENT where it was not allowed).
    pub fn disallow(&self, prefix: Prefix) -> Result<()> {
        let advice = "it was not allowed in this form";
        self.sources.delete(&prefix.to_bytes()).map_err(bpf("disallowing", format!("sources {prefix}"), advice))
    }

    /// What became of packets.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn counters(&self) -> Result<Counters> {
        let sum = |exit: &Exit| {
            let values = self.counters.lookup_percpu(&(*exit as u32).to_le_bytes(), MapFlags::ANY);
            let values = values.map_err(bpf("reading", "counters", CHECK_KERNEL_LOG))?.unwrap_or_default();
            let values = values.into_iter().filter_map(|value| value.try_into().ok().map(u64::from_le_bytes));
            Ok((*exit, values.fold(0, u64::wrapping_add)))
        };
        Exit::ALL.iter().map(sum).collect::<Result<_>>().map(Counters)
    }

    /// Runs the program of a hook on a copy of a frame, as [`run`] does.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(&self, hook: Hook, frame: &[u8], repeat: u32) -> Result<Run> {
        run(self.program(hook), frame, repeat)
    }

    /// What the kernel knows of the program of a hook.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn info(&self, hook: Hook) -> Result<ProgramInfo> {
        info_of(self.program(hook))
    }

    fn program(&self, hook: Hook) -> BorrowedFd<'_> {
        match hook {
            Hook::Tc => self.tc.as_fd(),
            Hook::Xdp => self.xdp.as_fd(),
        }
    }

    /// The list that a table has, or the first that none has; and whether it is the table's already.
    fn list_of(&self, number: u16) -> Result<(u32, bool)> {
        let mut taken = BTreeMap::new();
        for other in 0..MAX_TABLES {
            let value = self.tables.lookup(&u32::from(other).to_le_bytes(), MapFlags::ANY);
            let value = value.map_err(bpf("reading", format!("table {other}"), CHECK_KERNEL_LOG))?;
            let at = offset_of!(types::onlooker_dta_table, list);
            if let Some(value) = value.filter(|value| value[offset_of!(types::onlooker_dta_table, primitive)] == APPEND)
                && let Some(list) = value[at..].first_chunk()
            {
                taken.insert(u32::from_le_bytes(*list), other);
            }
        }
        if let Some((list, _)) = taken.iter().find(|(_, other)| **other == number) {
            return Ok((*list, true));
        }
        let free = (0..MAX_LISTS).find(|list| !taken.contains_key(list));
        let value = MAX_LISTS.into();
        free.map(|list| (list, false)).ok_or(Error::Limit {
            what: "lists",
            value,
            limits: format!("{MAX_LISTS} at once"),
        })
    }

    /// Begins a list at a position, without entries that wait.
    fn put_list(&self, list: u32, number: u16, position: Position) -> Result<()> {
        let mut value = vec![0; size_of::<types::dta_list>()];
        let mut put = |at: usize, bytes: &[u8]| value[at..at + bytes.len()].copy_from_slice(bytes);
        put(offset_of!(types::dta_list, table), &u32::from(number).to_le_bytes());
        put(offset_of!(types::dta_list, batch), &position.batch.to_le_bytes());
        put(offset_of!(types::dta_list, entry), &position.entry.to_le_bytes());
        let object = || format!("list {list} of table {number}");
        self.lists.update(&list.to_le_bytes(), &value, MapFlags::ANY).map_err(bpf(
            "beginning",
            object(),
            CHECK_KERNEL_LOG,
        ))
    }
}

fn load(config: &Config, responder: &Responder) -> libbpf_rs::Result<Translator> {
    let mut object = MaybeUninit::uninit();
    let mut open = TranslatorSkelBuilder::default().open(&mut object)?;
    let no_constants = || std::io::Error::new(std::io::ErrorKind::InvalidData, "the BPF object has no .rodata");
    let constants = open.maps.rodata_data.as_mut().ok_or_else(no_constants)?;
    constants.config = constants_of(config);
    constants.wait_ns = u64::try_from(config.wait.as_nanos()).unwrap_or(u64::MAX);
    for mut map in open.open_object_mut().maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if UNUSED.contains(&&*name) {
            map.set_autocreate(false)?;
        }
        if let Some(shared) = responder.map(&name).filter(|_| SHARED.contains(&&*name)) {
            map.reuse_fd(shared.as_fd())?;
        }
    }
    let skeleton = open.load()?;
    Ok(Translator {
        tables: MapHandle::try_from(&*skeleton.maps.dta_tables)?,
        lists: MapHandle::try_from(&*skeleton.maps.dta_lists)?,
        sources: MapHandle::try_from(&*skeleton.maps.sources)?,
        counters: MapHandle::try_from(&*skeleton.maps.dta_counters)?,
        tc: ProgramHandle::try_from(&skeleton.progs.onlooker_dta_tc)?,
        xdp: ProgramHandle::try_from(&skeleton.progs.onlooker_dta_xdp)?,
    })
}

/// What the responder's headers are told.
fn constants_of(config: &Config) -> types::onlooker_config {
    let headers =
        ResponderConfig { source_rate: config.source_rate, cpu_rate: None, ..ResponderConfig::new(config.port) };
    let bytes = headers.to_bytes();
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
    types::onlooker_config {
        source_interval_ns: word(0),
        source_burst_ns: word(8),
        port: config.port,
        ..Default::default()
    }
}
