// SPDX-License-Identifier: Apache-2.0
//! Processes: rows in region `processes` by name, by control group, or each for itself, those that use most CPU first. From procfs.
//!
//! A group's counters are sums of what each process has gained since the last run, so that they do not fall when one ends; what a process does between the last run and its
//! end is missed. A process is its pid and its start; a row by process has that as its entity. What is read of a process is what the agent may read: /proc/PID/io of others'
//! processes mostly not, which is counted.
//!
//! Cost: 15 to 25 us a process. Memory: 160 B a row, 100 B a process.

mod stat;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use onlooker_region::Schema;
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::schema::Field;
use onlooker_region::table::{KeyPart, put_text};
use onlooker_settings::units::Span;
use serde::{Deserialize, Serialize};

use super::cgroups::name;
use super::schema::{Column, array, counter, fields, gauge, number, summary, table, text};
use super::sheet::Sheet;
use super::{Ground, Region, Source, Told};
use stat::STATES;

/// Name of the region.
pub const TABLE: &str = "processes";
/// Processes that a run looks at; Linux has 32,768 by default.
const MOST_PROCESSES: usize = 65_536;
/// Longest file: stat has 300 B, a group's path 4 KiB at most.
const FILE_BYTES: usize = 8 << 10;
/// Names of processes have 15 bytes (TASK_COMM_LEN in linux/sched.h), those of kernel threads up to 64 (wq_worker_comm).
const NAME_BYTES: u32 = 16;
const GROUP_BYTES: u32 = 40;
const RUNTIME_BYTES: u32 = 16;

const CPU: Column = counter("onlooker_process_cpu_seconds_total", "CPU time.").seconds(0.01);
const STATE: Column = gauge("onlooker_process_state", "Processes in this state.");
const GAUGES: [Column; 5] = [
    gauge("onlooker_process_resident_bytes", "Memory that is in use, shared pages counted for each process.").bytes(),
    gauge("onlooker_process_virtual_bytes", "Address space.").bytes(),
    gauge("onlooker_process_threads", "Threads."),
    gauge("onlooker_process_processes", "Processes."),
    gauge("onlooker_process_unreadable", "Of these, processes whose I/O the agent may not read."),
];
const REST: [Column; 4] = [
    counter("onlooker_process_minor_faults_total", "Page faults without I/O."),
    counter("onlooker_process_major_faults_total", "Page faults with I/O."),
    counter("onlooker_process_read_bytes_total", "Bytes read from block devices.").bytes(),
    counter("onlooker_process_written_bytes_total", "Bytes written to block devices.").bytes(),
];

/// Counters: CPU in user mode and in the kernel, then [`REST`]. They stand first in a row, then gauges and states.
const TOTALS: usize = 2 + REST.len();
const STATE_AT: usize = TOTALS + GAUGES.len();
const SLOTS: usize = STATE_AT + STATES.len();

type Totals = [u64; TOTALS];

fn key_parts(by: By) -> Vec<KeyPart> {
    match by {
        By::Name => vec![text("name", NAME_BYTES)],
        By::Process => vec![text("name", NAME_BYTES), number("pid")],
        By::Cgroup => vec![text("name", GROUP_BYTES), text("runtime", RUNTIME_BYTES)],
    }
}

/// What an operator decides of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Time between two runs.
    pub interval: Span,
    /// Rows.
    pub rows: u32,
    /// What shares a row.
    pub by: By,
}

/// What shares a row of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Processes of a name.
    Name,
    /// Processes of a control group.
    Cgroup,
    /// Nothing: each has its own.
    Process,
}

/// The class.
#[must_use]
pub fn regions(options: &Options) -> Vec<Region> {
    let interval_ns = options.interval.as_ns();
    let mut all: Vec<Field> = vec![array(&CPU, 0, "mode", &["user", "system"])];
    // Clock ticks of procfs.
    all[0].resolution_ns = 10_000_000;
    all.extend(fields(2, &REST));
    all.extend(fields(TOTALS, &GAUGES));
    all.push(array(&STATE, STATE_AT, "state", &STATES.map(|(name, _)| name)));
    let rows = table(key_parts(options.by), all, options.rows as usize, interval_ns);
    let groups = vec![summary(TABLE, Vec::new(), interval_ns), rows];
    vec![Region { name: TABLE, schema: Schema { name: TABLE.into(), groups } }]
}

/// A process at the last run that saw it.
#[derive(Debug, Clone, Copy)]
struct Tracked {
    start: u64,
    run: u64,
    totals: Totals,
    /// It was tried, and is another's.
    is_unreadable: bool,
}

/// What shares a row, in one run.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    /// 1 for groups; start of a process.
    entity: u64,
    gained: Totals,
    /// Gauges and states.
    now: [u64; SLOTS - TOTALS],
    /// Of a process alone.
    totals: Totals,
}

impl Share {
    fn rank(&self, has_row: bool) -> (u64, u64) {
        // Who has a row keeps it until another uses twice as much.
        let weight = 1 + u64::from(has_row);
        ((self.gained[0] + self.gained[1]).saturating_mul(weight), self.now[0].saturating_mul(weight))
    }
}

/// The region, with keys of `K` words.
pub struct Table<const K: usize> {
    root: PathBuf,
    by: By,
    rows: usize,
    page_bytes: u64,
    sheet: Sheet<K>,
    summary: Ground,
    tracked: HashMap<u32, Tracked>,
    buffer: Box<[u8]>,
    run: u64,
    told: Told,
}

/// The source of a configuration, in the memory of [`regions`]; `root` is procfs.
#[must_use]
pub fn source(options: &Options, root: &Path, ground: &Ground, now_ns: u64) -> Box<dyn Source> {
    match options.by {
        By::Name => Box::new(Table::<2>::new(options, root, ground, now_ns)),
        By::Process => Box::new(Table::<3>::new(options, root, ground, now_ns)),
        By::Cgroup => Box::new(Table::<7>::new(options, root, ground, now_ns)),
    }
}

impl<const K: usize> Table<K> {
    fn new(options: &Options, root: &Path, ground: &Ground, now_ns: u64) -> Self {
        let blocks = ground.memory.words().len() / BLOCK_WORDS - 1;
        let rows = options.rows as usize;
        let of_rows = ground.group(1, blocks);
        let summary = ground.group(0, 1);
        summary.put(&[], now_ns);
        let layout = onlooker_region::table::Layout { key_words: K, value_words: SLOTS };
        Self {
            root: root.into(),
            by: options.by,
            rows,
            page_bytes: rustix::param::page_size() as u64,
            sheet: Sheet::new(layout, rows, of_rows.memory, of_rows.identity, now_ns),
            summary,
            tracked: HashMap::new(),
            buffer: vec![0; FILE_BYTES].into(),
            run: 0,
            told: Told::default(),
        }
    }

    /// Looks at a process; nothing where it has gone.
    fn look(&mut self, pid: u32, shares: &mut BTreeMap<[u64; K], Share>) -> Option<()> {
        let dir = self.root.join(pid.to_string());
        let mut buffer = std::mem::take(&mut self.buffer);
        let looked = self.look_in(pid, &dir, &mut buffer, shares);
        self.buffer = buffer;
        looked
    }

    fn look_in(
        &mut self,
        pid: u32,
        dir: &Path,
        buffer: &mut [u8],
        shares: &mut BTreeMap<[u64; K], Share>,
    ) -> Option<()> {
        let read =
            |name: &str, buffer: &mut [u8]| fs::File::open(dir.join(name)).and_then(|mut file| file.read(buffer));
        let got = read("stat", buffer).ok()?;
        let stat = stat::stat(&buffer[..got])?;
        let mut key = [0; K];
        let name = String::from_utf8_lossy(stat.name).into_owned();
        let (state, start) = (stat.state, stat.start);
        let resident_bytes = stat.resident_pages.saturating_mul(self.page_bytes);
        let mut now = [0; SLOTS - TOTALS];
        now[..GAUGES.len()].copy_from_slice(&[resident_bytes, stat.virtual_bytes, stat.threads, 1, 0]);
        if let Some(state) = state {
            now[GAUGES.len() + state] = 1;
        }
        let mut totals = [stat.ticks[0], stat.ticks[1], stat.faults[0], stat.faults[1], 0, 0];
        match self.by {
            By::Name => put_text(&mut key, &name),
            By::Process => {
                put_text(&mut key[..2], &name);
                key[2] = pid.into();
            }
            By::Cgroup => {
                let got = read("cgroup", buffer).ok()?;
                let path = String::from_utf8_lossy(stat::cgroup(&buffer[..got]).unwrap_or(b"/")).into_owned();
                let name = name::of(&path);
                put_text(&mut key[..5], &name.name);
                put_text(&mut key[5..], name.runtime);
            }
        }
        let before = self.tracked.get(&pid).filter(|tracked| tracked.start == start).copied();
        let mut is_unreadable = before.is_some_and(|before| before.is_unreadable);
        if !is_unreadable {
            match read("io", buffer).ok().and_then(|got| stat::io(&buffer[..got])) {
                Some(bytes) => totals[4..].copy_from_slice(&bytes),
                None => is_unreadable = true,
            }
        }
        now[GAUGES.len() - 1] = is_unreadable.into();
        let earlier = before.map_or([0; TOTALS], |before| before.totals);
        let share = shares.entry(key).or_default();
        for (gained, (total, earlier)) in share.gained.iter_mut().zip(totals.into_iter().zip(earlier)) {
            *gained += total.saturating_sub(earlier);
        }
        share.now.iter_mut().zip(now).for_each(|(sum, one)| *sum += one);
        (share.totals, share.entity) = (totals, if self.by == By::Process { start } else { 1 });
        self.tracked.insert(pid, Tracked { start, run: self.run, totals, is_unreadable });
        Some(())
    }

    fn place(&mut self, key: &[u64; K], share: &Share) -> bool {
        let Ok(placed) = self.sheet.put(key, share.entity) else { return false };
        let (totals, now) = placed.values.split_at_mut(TOTALS);
        if self.by == By::Process {
            totals.copy_from_slice(&share.totals);
        } else {
            totals.iter_mut().zip(share.gained).for_each(|(total, gained)| *total = total.wrapping_add(gained));
        }
        now.copy_from_slice(&share.now);
        true
    }
}

impl<const K: usize> Source for Table<K> {
    fn run(&mut self, now_ns: u64) -> Result<(), String> {
        let entries = fs::read_dir(&self.root).map_err(|error| format!("{}: {error}", self.root.display()))?;
        self.run += 1;
        let mut shares = BTreeMap::new();
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for pid in pids.take(MOST_PROCESSES) {
            self.look(pid, &mut shares);
        }
        let run = self.run;
        self.tracked.retain(|_, tracked| tracked.run == run);
        let mut ranked: Vec<(&[u64; K], &Share)> = shares.iter().collect();
        ranked.sort_by_key(|(key, share)| std::cmp::Reverse(share.rank(self.sheet.contains(key))));
        let missing = ranked.len().saturating_sub(self.rows);
        ranked.truncate(self.rows);
        self.sheet.begin();
        ranked.retain(|(key, share)| !self.place(key, share));
        self.sheet.sweep(|_, _| ());
        ranked.retain(|(key, share)| !self.place(key, share));
        self.sheet.commit(now_ns);
        (self.told.rows, self.told.missing) = (self.sheet.len() as u64, (missing + ranked.len()) as u64);
        self.summary.put(&self.told.slots(), now_ns);
        Ok(())
    }

    fn told(&mut self) -> &mut Told {
        &mut self.told
    }
}

#[cfg(test)]
mod tests;
