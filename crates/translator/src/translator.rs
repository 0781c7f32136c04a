// SPDX-License-Identifier: Apache-2.0
//! The loaded translator and its tables. All methods take `&self`: the state is in the kernel's maps.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, ProgramHandle};
use onlooker_dta::append::Position;
use onlooker_dta::translator::Shape;
use onlooker_responder::barrier::wait_for_programs;
use onlooker_responder::error::{CHECK_KERNEL_LOG, Error, Result, bpf};
use onlooker_responder::log::with_log;
use onlooker_responder::program::{ProgramInfo, Run, info_of, run};
use onlooker_responder::{Config as ResponderConfig, Hook, Prefix, Rate, Responder, source};

use crate::intf::{Exit, TABLE_BYTES};
use crate::skeleton::{TranslatorSkelBuilder, types};
use crate::table::Table;

/// Numbers of tables are below this.
pub const MAX_TABLES: u16 = 1024;
/// Lists at once.
pub const MAX_LISTS: u32 = 256;
/// A set of so many is a block.
const LEAST_COUNTERS_LOG2: u8 = 7;

/// Maps that are the responder's: memory, addresses, lease.
const SHARED: [&str; 3] = ["slabs", "own_addresses", "lease"];
/// Maps of the responder's headers that the translator has no use for.
const UNUSED: [&str; 6] = ["regions", "rate", "cpu_rate", "counters", "collectors_tc", "collectors_xdp"];
/// Maps that go on when programs are replaced.
pub(crate) const MAPS: [&str; 5] = ["dta_tables", "dta_lists", "dta_reporters", "sources", "dta_counters"];
type Maps = Vec<(&'static str, MapHandle)>;

/// What a translator is told before it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// UDP port of reports.
    pub port: u16,
    /// Budget of each source address on each processor; `None`: unlimited. Sources that fall on the same of 1,024 places share it.
    pub source_rate: Option<Rate>,
    /// How long an entry of a list waits for others of its batch.
    pub wait: Duration,
}

impl Config {
    /// By which programs are known that are loaded with this configuration.
    pub(crate) fn fingerprint(&self) -> String {
        let Self { port, source_rate, wait } = self;
        let (per_second, burst) = source_rate.map_or((0, 0), |rate| (rate.per_second, rate.burst));
        format!("{}_{port}_{per_second}_{burst}_{}", env!("ONLOOKER_TRANSLATOR_FINGERPRINT"), wait.as_nanos())
    }
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
    pub(crate) tc: ProgramHandle,
    pub(crate) xdp: ProgramHandle,
}

impl Translator {
    /// Loads programs and maps beside a responder.
    ///
    /// # Errors
    /// [`Error::Load`] with the verifier's last words, [`Error::Bpf`].
    pub fn load(config: &Config, responder: &Responder) -> Result<Self> {
        Self::load_on(config, responder, None).map(|(translator, _)| translator)
    }

    /// Loads programs on the maps of an earlier translator, or on maps of their own, which are returned.
    pub(crate) fn load_on(config: &Config, responder: &Responder, earlier: Option<&Maps>) -> Result<(Self, Maps)> {
        let (result, log) = with_log(|| load(config, responder, earlier));
        let (maps, tc, xdp) = result.map_err(|source| Error::Load { source, log })?;
        Ok((Self::of(&maps, tc, xdp)?, maps))
    }

    pub(crate) fn of(maps: &Maps, tc: ProgramHandle, xdp: ProgramHandle) -> Result<Self> {
        let map = |wanted: &str| {
            let map = maps.iter().find(|(name, _)| *name == wanted).map(|(_, map)| map);
            let map = map.unwrap_or_else(|| unreachable!("{wanted} is one of MAPS"));
            MapHandle::try_from(map).map_err(bpf("opening", wanted, CHECK_KERNEL_LOG))
        };
        let (tables, lists, sources, counters) =
            (map("dta_tables")?, map("dta_lists")?, map("sources")?, map("dta_counters")?);
        Ok(Self { tables, lists, sources, counters, tc, xdp })
    }

    /// Whether maps are as this crate's programs declare them: type and sizes.
    pub(crate) fn are_like_ours(maps: &Maps) -> Result<bool> {
        let mut object = MaybeUninit::uninit();
        let open = TranslatorSkelBuilder::default().open(&mut object);
        let mut open = open.map_err(|source| Error::Load { source, log: String::new() })?;
        let mut ours = open.open_object_mut().maps_mut();
        Ok(ours.all(|ours| {
            let theirs = maps.iter().find(|(name, _)| *name == ours.name());
            theirs.is_none_or(|(_, theirs)| {
                (ours.map_type(), ours.key_size(), ours.value_size(), ours.max_entries())
                    == (theirs.map_type(), theirs.key_size(), theirs.value_size(), theirs.max_entries())
            })
        }))
    }

    /// [`Translator::put_tables`] of one.
    ///
    /// # Errors
    /// As there.
    pub fn put_table(&self, number: u16, table: &Table) -> Result<()> {
        self.put_tables(&[(number, *table)])
    }

    /// Lets reports write to tables, in the place of those that have these numbers. A list begins at its shape's position. Each step is seen by all
    /// processors before the next: none writes where another table's memory is. About 30 ms, however many they are.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Bpf`].
    pub fn put_tables(&self, tables: &[(u16, Table)]) -> Result<()> {
        let limit = |what, value: u64, limits: String| Err(Error::Limit { what, value, limits });
        for (number, table) in tables {
            if *number >= MAX_TABLES {
                return limit("table", (*number).into(), format!("0 to {}", MAX_TABLES - 1));
            }
            let slots_log2 = table.shape.geometry().slots_log2();
            if matches!(table.shape, Shape::KeyIncrement(..)) && slots_log2 < LEAST_COUNTERS_LOG2 {
                return limit("counters", 1 << slots_log2, "at least 128: sets have blocks of their own".to_owned());
            }
        }
        let numbers: Vec<u16> = tables.iter().map(|(number, _)| *number).collect();
        self.remove_tables(&numbers)?;
        let taken: BTreeSet<u32> = self.all()?.into_iter().map(|(_, _, list)| list).collect();
        let mut free = (0..MAX_LISTS).filter(|list| !taken.contains(list));
        let mut values = Vec::with_capacity(tables.len());
        for (number, table) in tables {
            let mut list = 0;
            if let Shape::Append(_, position) = table.shape {
                let Some(one) = free.next() else {
                    return limit("lists", MAX_LISTS.into(), format!("{MAX_LISTS} at once"));
                };
                list = one;
                self.put_list(list, *number, position)?;
            }
            values.push((*number, table.to_bytes(list)));
        }
        for (number, value) in &values {
            self.write(*number, &without_primitive(*value))?;
        }
        wait_for_programs();
        values.iter().try_for_each(|(number, value)| self.write(*number, value))
    }

    /// Reports for these numbers are discarded from now on. When this returns no program writes to their memory any more.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn remove_tables(&self, numbers: &[u16]) -> Result<()> {
        let mut were_there = false;
        for number in numbers {
            let value = self.value(*number)?;
            if Table::from_bytes(&value).is_some() {
                // What is beside the primitive stays: it may be read right now.
                self.write(*number, &without_primitive(value))?;
                were_there = true;
            }
        }
        if were_there {
            wait_for_programs();
        }
        Ok(())
    }

    /// Lets the other set of a table's counters count, with a new access key or the old one. The programs read what changes in one piece.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn change_table(&self, number: u16, table: &Table) -> Result<()> {
        let list = Table::from_bytes(&self.value(number)?).map_or(0, |(_, list)| list);
        self.write(number, &table.to_bytes(list))
    }

    /// The tables that there are, by their numbers. Where their lists go on is not told; of their epochs only whether they are odd.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn tables(&self) -> Result<Vec<(u16, Table)>> {
        Ok(self.all()?.into_iter().map(|(number, table, _)| (number, table)).collect())
    }

    fn all(&self) -> Result<Vec<(u16, Table, u32)>> {
        let mut all = Vec::new();
        for number in 0..MAX_TABLES {
            if let Some((table, list)) = Table::from_bytes(&self.value(number)?) {
                all.push((number, table, if matches!(table.shape, Shape::Append(..)) { list } else { MAX_LISTS }));
            }
        }
        Ok(all)
    }

    fn value(&self, number: u16) -> Result<[u8; TABLE_BYTES]> {
        let value = self.tables.lookup(&u32::from(number).to_le_bytes(), MapFlags::ANY);
        let value = value.map_err(bpf("reading", format!("table {number}"), CHECK_KERNEL_LOG))?;
        Ok(value.and_then(|value| value.try_into().ok()).unwrap_or([0; TABLE_BYTES]))
    }

    fn write(&self, number: u16, value: &[u8; TABLE_BYTES]) -> Result<()> {
        self.tables.update(&u32::from(number).to_le_bytes(), value, MapFlags::ANY).map_err(bpf(
            "writing",
            format!("table {number}"),
            CHECK_KERNEL_LOG,
        ))
    }

    /// Lets exactly these ranges of addresses send reports.
    ///
    /// # Errors
    /// [`Error::Bpf`] (ENOSPC at 1024 prefixes).
    pub fn set_sources(&self, wanted: &[Prefix]) -> Result<()> {
        source::set(&self.sources, wanted)
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

/// A value of which programs think that there is no table.
fn without_primitive(mut value: [u8; TABLE_BYTES]) -> [u8; TABLE_BYTES] {
    value[offset_of!(types::onlooker_dta_table, primitive)] = 0;
    value
}

fn load(
    config: &Config,
    responder: &Responder,
    earlier: Option<&Maps>,
) -> libbpf_rs::Result<(Maps, ProgramHandle, ProgramHandle)> {
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
        if let Some((_, kept)) = earlier.into_iter().flatten().find(|(known, _)| *known == name) {
            map.reuse_fd(kept.as_fd())?;
        }
    }
    let skeleton = open.load()?;
    let mut maps = Maps::new();
    for map in skeleton.object().maps() {
        if let Some(name) = MAPS.into_iter().find(|name| map.name() == *name) {
            maps.push((name, MapHandle::try_from(&map)?));
        }
    }
    let tc = ProgramHandle::try_from(&skeleton.progs.onlooker_dta_tc)?;
    Ok((maps, tc, ProgramHandle::try_from(&skeleton.progs.onlooker_dta_xdp)?))
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
