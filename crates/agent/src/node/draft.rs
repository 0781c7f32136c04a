// SPDX-License-Identifier: Apache-2.0
//! What a group's file holds on this host, and the schema of its region: all of it, or what is left where some of it is computed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use onlooker_region::Schema;
use onlooker_region::block::Identity;
use onlooker_region::limits::{BLOCK_BYTES, BLOCK_WORDS, GUARDED_SLOTS};
use onlooker_region::map::{Map, sealed_memfd};
use onlooker_region::schema::{Acquisition, Array, Field, Group, Kind, Metric, Type};
use onlooker_region::table::{KeyPart, KeyType, Table};

use super::{CPU_RESET_S, Content, DEVICE_WORDS, DeviceTable, NodeError, Sampled};
use crate::config;
use crate::host;
use crate::procfs::{self, CPU_MODES, LINE_BYTES, NETWORK_COLUMNS, Source, Stat};

/// The kernel recomputes the load average every 5 s (LOAD_FREQ in kernel/sched/loadavg).
const LOAD_RESOLUTION_NS: u64 = 5_000_000_000;
/// Fewest rows of the device table.
const MIN_DEVICES: usize = 24;
/// Most rows of the device table.
const MAX_DEVICES: usize = 3072;
/// Fewest rows of the device tables of what is left. Rows are powers of two, so that a restart rarely finds another schema.
const MIN_LEFT_DEVICES: usize = 32;
/// Blocks that the device tables of what is left may have: three quarters of the agent's slab ([`crate::kernel::OWN_BLOCKS`]).
const MAX_LEFT_BLOCKS: usize = 48;

/// Metrics that are computed: by name and constant labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Covered(BTreeSet<(String, BTreeMap<String, String>)>);

impl Covered {
    /// All metrics of a computed region's class.
    pub fn add(&mut self, schema: &Schema) {
        let fields = schema.groups.iter().flat_map(|group| &group.fields);
        self.0.extend(fields.map(|field| (field.name.clone(), field.labels.clone())));
    }

    fn has(&self, field: &Field) -> bool {
        self.0.contains(&(field.name.clone(), field.labels.clone()))
    }
}

/// A group that can be sampled as soon as it has memory.
pub struct Draft {
    /// Region name.
    pub name: &'static str,
    /// Its class.
    pub schema: Schema,
    path: &'static str,
    source: Source,
    shape: Shape,
}

enum Shape {
    Cpu {
        tick_blocks: usize,
        has_stat: bool,
    },
    Load,
    Memory {
        names: Vec<Vec<u8>>,
    },
    /// Columns of each table, and whether it is of devices without a computed row.
    Network {
        tables: Vec<(Vec<usize>, bool)>,
    },
}

impl Draft {
    /// All that a group's file holds.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn whole(group: config::Group, interval_ns: u64) -> Result<Self, NodeError> {
        let path = path_of(group);
        Self::new(group, interval_ns, None)?.ok_or(NodeError::Content { path })
    }

    /// What is left of it beside computed metrics, under another name; `None` where nothing is.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn left(group: config::Group, interval_ns: u64, computed: &Covered) -> Result<Option<Self>, NodeError> {
        Self::new(group, interval_ns, Some(computed))
    }

    fn new(group: config::Group, interval_ns: u64, computed: Option<&Covered>) -> Result<Option<Self>, NodeError> {
        let path = path_of(group);
        let file = |source| NodeError::File { path, source };
        let source = Source::open(path).map_err(file)?;
        let mut buffer = [0; LINE_BYTES];
        let is_left = |field: &Field| computed.is_none_or(|computed| !computed.has(field));
        let (shape, mut groups) = match group {
            config::Group::Cpu => {
                let groups = cpu_groups(cpu_count(&source, &mut buffer).map_err(file)?).map(|mut group| {
                    group.fields.retain(is_left);
                    group
                });
                let [ticks, stat] = &groups;
                let tick_blocks = if ticks.fields.is_empty() { 0 } else { ticks.blocks as usize };
                (Shape::Cpu { tick_blocks, has_stat: !stat.fields.is_empty() }, Vec::from(groups))
            }
            config::Group::Load => {
                let mut group = load_group();
                group.fields.retain(is_left);
                (Shape::Load, vec![group])
            }
            config::Group::Memory => {
                let mut names = Vec::new();
                source.each_line(&mut buffer, |line| names.extend(memory_field(line))).map_err(file)?;
                names.retain(|(_, field)| is_left(field));
                names.truncate(GUARDED_SLOTS);
                let group = memory_group(&names);
                (Shape::Memory { names: names.into_iter().map(|(name, _)| name).collect() }, vec![group])
            }
            config::Group::Network => {
                let mut devices = 0;
                let count = |line: &[u8]| devices += usize::from(procfs::netdev(line).is_some());
                source.each_line(&mut buffer, count).map_err(file)?;
                let (of_all, of_uncovered): (Vec<usize>, Vec<usize>) =
                    (0..NETWORK_COLUMNS.len()).partition(|column| is_left(&network_field(*column)));
                let mut tables = vec![(of_all, false), (of_uncovered, true)];
                tables.retain(|(columns, _)| !columns.is_empty());
                let rows = match computed {
                    None => (devices * 2).clamp(MIN_DEVICES, MAX_DEVICES),
                    Some(_) => left_rows(devices, &tables),
                };
                let groups = tables.iter().map(|(columns, _)| network_group(columns, rows)).collect();
                (Shape::Network { tables }, groups)
            }
        };
        groups.retain(|group| !group.fields.is_empty());
        if groups.is_empty() && computed.is_some() {
            return Ok(None);
        }
        for group in &mut groups {
            group.acquisition = Acquisition::Sampled;
            group.max_age_ns = interval_ns;
            if computed.is_some() {
                group.fields.iter_mut().for_each(|field| field.resolution_ns = field.resolution_ns.max(interval_ns));
            }
        }
        let name = if computed.is_some() { left_name(group) } else { name_of(group) };
        let schema = Schema { name: name.into(), groups };
        schema.check().map_err(|_| NodeError::Content { path })?;
        Ok(Some(Self { name, schema, path, source, shape }))
    }

    /// Bytes of the region.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.schema.blocks()) * BLOCK_BYTES as u64
    }

    /// Number of its metrics, each column of a table one.
    #[must_use]
    pub fn metrics(&self) -> usize {
        self.schema.groups.iter().map(|group| group.fields.len()).sum()
    }

    /// Whether a sample wants to know which devices have a computed row.
    #[must_use]
    pub fn wants_devices(&self) -> bool {
        matches!(&self.shape, Shape::Network { tables } if tables.iter().any(|(_, is_of_uncovered)| *is_of_uncovered))
    }

    /// The group with memory of its own.
    ///
    /// # Errors
    /// No memory.
    pub fn alone(self, identity: Identity) -> Result<Sampled, NodeError> {
        let bytes = self.bytes();
        let memory = Map::of(sealed_memfd("onlooker-node", bytes)?, 0, bytes, true)?;
        Ok(self.over(memory, identity))
    }

    /// The group in `memory`, of [`Draft::bytes`]. Blocks but those of tables stay as they are until the first sample.
    #[must_use]
    pub fn over(self, memory: Map, identity: Identity) -> Sampled {
        let Self { name, schema, path, source, shape } = self;
        let content = match shape {
            Shape::Cpu { tick_blocks, has_stat } => Content::Cpu {
                ticks: vec![0; tick_blocks * GUARDED_SLOTS],
                stat_block: has_stat.then_some(tick_blocks),
                reset_ticks: CPU_RESET_S * rustix::param::clock_ticks_per_second(),
            },
            Shape::Load => Content::Load,
            Shape::Memory { names } => Content::Memory { names },
            Shape::Network { tables } => {
                let mut first_block = 0;
                let tables = schema.groups.iter().zip(tables).filter_map(|(group, (columns, is_of_uncovered))| {
                    let blocks = first_block..first_block + group.blocks as usize;
                    first_block = blocks.end;
                    let identity = identity.at(u16::try_from(blocks.start).unwrap_or(u16::MAX));
                    let memory = memory.window(blocks.start * BLOCK_WORDS..blocks.end * BLOCK_WORDS);
                    let table = Table::new(group.layout()?, memory, identity, host::boot_time_ns());
                    Some(DeviceTable { table, columns, is_of_uncovered })
                });
                Content::Network { tables: tables.collect(), seen: Vec::with_capacity(MIN_DEVICES) }
            }
        };
        Sampled { name, schema, memory, path, source, identity, content }
    }
}

fn path_of(group: config::Group) -> &'static str {
    match group {
        config::Group::Cpu => "/proc/stat",
        config::Group::Load => "/proc/loadavg",
        config::Group::Memory => "/proc/meminfo",
        config::Group::Network => "/proc/net/dev",
    }
}

fn name_of(group: config::Group) -> &'static str {
    match group {
        config::Group::Cpu => "node_cpu",
        config::Group::Load => "node_load",
        config::Group::Memory => "node_memory",
        config::Group::Network => "node_network",
    }
}

/// Region of what is left of a group beside the computed one.
#[must_use]
pub fn left_name(group: config::Group) -> &'static str {
    match group {
        config::Group::Cpu => "node_cpu_sampled",
        config::Group::Load => "node_load_sampled",
        config::Group::Memory => "node_memory_sampled",
        config::Group::Network => "node_network_sampled",
    }
}

/// Rows for twice the devices, as far as the agent's slab goes.
pub(super) fn left_rows(devices: usize, tables: &[(Vec<usize>, bool)]) -> usize {
    let wanted = (devices * 2).next_power_of_two().max(MIN_LEFT_DEVICES);
    let blocks = |rows: usize| tables.iter().map(|(columns, _)| rows.div_ceil(rows_per_block(columns))).sum::<usize>();
    (1..=wanted).rev().find(|rows| blocks(*rows) <= MAX_LEFT_BLOCKS).unwrap_or(1)
}

/// CPUs that are present, or at least as many as the file lists.
fn cpu_count(source: &Source, buffer: &mut [u8; LINE_BYTES]) -> io::Result<usize> {
    let mut listed = 1;
    source.each_line(buffer, |line| {
        if let Some(Stat::Cpu { cpu, .. }) = procfs::stat(line) {
            listed = listed.max(cpu + 1);
        }
    })?;
    let present = host::read_small("/sys/devices/system/cpu/present").ok().and_then(|list| procfs::cpu_count(&list));
    Ok(present.unwrap_or(0).max(listed))
}

pub(super) fn cpu_groups(cpus: usize) -> [Group; 2] {
    let ticks_per_s = rustix::param::clock_ticks_per_second();
    let stride = u32::try_from(CPU_MODES.len()).unwrap_or(u32::MAX);
    let blocks = u32::try_from((cpus * CPU_MODES.len()).div_ceil(GUARDED_SLOTS)).unwrap_or(u32::MAX);
    let fields = (0..).zip(CPU_MODES).map(|(slot, (name, mode))| {
        let mut field = Field::new(name, Metric::Counter, Type::U64, slot);
        field.unit = "seconds".into();
        #[allow(clippy::cast_precision_loss)] // 100 on every Linux
        let per_tick = 1.0 / ticks_per_s as f64;
        field.scale = per_tick;
        field.help = match name {
            "node_cpu_seconds_total" => "Seconds the CPUs spent in each mode.".into(),
            _ => "Seconds the CPUs spent in guests (VMs) for each mode.".into(),
        };
        field.labels.insert("mode".into(), mode.into());
        field.resolution_ns = 1_000_000_000 / ticks_per_s.max(1);
        let count = u32::try_from(cpus).unwrap_or(u32::MAX);
        field.array = Some(Array { label: "cpu".into(), count, stride, values: None });
        field
    });
    let cpu = Group::new(Kind::Guarded, blocks, fields.collect());
    let others = [
        ("node_boot_time_seconds", Metric::Gauge, "seconds", "Node boot time, in unixtime."),
        ("node_context_switches_total", Metric::Counter, "", "Total number of context switches."),
        ("node_forks_total", Metric::Counter, "", "Total number of forks."),
        ("node_intr_total", Metric::Counter, "", "Total number of interrupts serviced."),
        ("node_procs_running", Metric::Gauge, "", "Number of processes in runnable state."),
        ("node_procs_blocked", Metric::Gauge, "", "Number of processes blocked waiting for I/O to complete."),
    ];
    let fields = (0..).zip(others).map(|(slot, (name, metric, unit, help))| {
        let mut field = Field::new(name, metric, Type::U64, slot);
        (field.unit, field.help) = (unit.into(), help.into());
        field
    });
    [cpu, Group::new(Kind::Guarded, 1, fields.collect())]
}

fn load_group() -> Group {
    let loads =
        [("node_load1", "1m load average."), ("node_load5", "5m load average."), ("node_load15", "15m load average.")];
    let fields = (0..).zip(loads).map(|(slot, (name, help))| {
        let mut field = Field::new(name, Metric::Gauge, Type::F64, slot);
        field.help = help.into();
        field.resolution_ns = LOAD_RESOLUTION_NS;
        field
    });
    Group::new(Kind::Guarded, 1, fields.collect())
}

/// Name in the file and field of a line of /proc/meminfo.
fn memory_field(line: &[u8]) -> Option<(Vec<u8>, Field)> {
    let (name, _, kib) = procfs::meminfo(line)?;
    let mut field = Field::new(&procfs::meminfo_metric(name, kib)?, Metric::Gauge, Type::U64, 0);
    let label = String::from_utf8_lossy(name);
    field.help = format!("Memory information field {label}.");
    if kib {
        (field.unit, field.scale) = ("bytes".into(), 1024.0);
    }
    Some((name.to_vec(), field))
}

fn memory_group(names: &[(Vec<u8>, Field)]) -> Group {
    let fields = (0..).zip(names).map(|(slot, (_, field))| Field { slot, ..field.clone() });
    Group::new(Kind::Guarded, 1, fields.collect())
}

fn network_field(column: usize) -> Field {
    let (name, unit, help) = NETWORK_COLUMNS[column];
    let mut field = Field::new(name, Metric::Counter, Type::U64, 0);
    (field.unit, field.help) = (unit.into(), help.into());
    field
}

fn rows_per_block(columns: &[usize]) -> usize {
    GUARDED_SLOTS / (1 + DEVICE_WORDS + columns.len())
}

pub(super) fn network_group(columns: &[usize], rows: usize) -> Group {
    let fields = (0..).zip(columns).map(|(slot, column)| Field { slot, ..network_field(*column) });
    let blocks = u32::try_from(rows.div_ceil(rows_per_block(columns))).unwrap_or(1);
    let mut group = Group::new(Kind::Table, blocks, fields.collect());
    group.key = vec![KeyPart { name: "device".into(), kind: KeyType::Text, bytes: 16 }];
    group
}
