// SPDX-License-Identifier: Apache-2.0
//! Kernel metrics from procfs in guarded blocks, with node_exporter's names, labels and units.
//!
//! One region per group, so that a reader can read each at its own rate. Written by whoever holds the sampler's lock. A sample allocates nothing
//! but a row's key when a device is new. Cost: the kernel's for the file (30-100 us) plus 100 ns a block.

use std::io;

use onlooker_region::Schema;
use onlooker_region::block::Identity;
use onlooker_region::guard::commit;
use onlooker_region::limits::{BLOCK_BYTES, BLOCK_WORDS, GUARDED_SLOTS};
use onlooker_region::map::{Map, MapError, sealed_memfd};
use onlooker_region::schema::{Acquisition, Array, Field, Group, Kind, Metric, Type};
use onlooker_region::table::{KeyPart, KeyType, Table, TableError, put_text};

use crate::config;
use crate::host;
use crate::procfs::{self, CPU_MODES, LINE_BYTES, NETWORK_COLUMNS, Source, Stat};

/// The kernel recomputes the load average every 5 s (LOAD_FREQ in kernel/sched/loadavg).
const LOAD_RESOLUTION_NS: u64 = 5_000_000_000;
/// CPU time that goes back by less is an estimate corrected, by more a CPU's new beginning (jumpBackSeconds in node_exporter).
const CPU_RESET_S: u64 = 3;
/// Fewest rows of the device table.
const MIN_DEVICES: usize = 24;
/// Most rows of the device table.
const MAX_DEVICES: usize = 3072;
/// IFNAMSIZ, two words.
const DEVICE_WORDS: usize = 2;

/// Why a group of kernel metrics is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file.
    #[error("{path}: {source}; take the group out of [sampled] groups if this host has no such file")]
    File {
        /// Which.
        path: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing in it was understood.
    #[error("{path} holds nothing that this agent understands; take the group out of [sampled] groups")]
    Content {
        /// Which.
        path: &'static str,
    },
    /// Its memory.
    #[error("memory for kernel metrics: {0}")]
    Memory(#[from] MapError),
}

/// A group ready to be sampled.
pub struct Sampled {
    /// Region name.
    pub name: &'static str,
    /// Its class.
    pub schema: Schema,
    /// Its memory.
    pub memory: Map,
    path: &'static str,
    source: Source,
    identity: Identity,
    content: Content,
}

enum Content {
    Cpu { ticks: Vec<u64>, first_stat_block: usize, reset_ticks: u64 },
    Load,
    Memory { names: Vec<Vec<u8>> },
    Network { table: Table<Map>, seen: Vec<[u64; DEVICE_WORDS]> },
}

/// What a sample could not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loss {
    /// The file could not be read.
    pub failed: bool,
    /// Devices without a row.
    pub rows_dropped: u64,
}

impl Sampled {
    /// Opens the file, finds out what it holds here, and makes the region. Blocks stay unwritten until the first sample.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn new(group: config::Group, interval_ns: u64, identity: Identity) -> Result<Self, NodeError> {
        let (name, path) = match group {
            config::Group::Cpu => ("node_cpu", "/proc/stat"),
            config::Group::Load => ("node_load", "/proc/loadavg"),
            config::Group::Memory => ("node_memory", "/proc/meminfo"),
            config::Group::Network => ("node_network", "/proc/net/dev"),
        };
        let file = |source| NodeError::File { path, source };
        let source = Source::open(path).map_err(file)?;
        let mut buffer = [0; LINE_BYTES];
        let mut groups = Vec::new();
        let mut memory_names = Vec::new();
        match group {
            config::Group::Cpu => groups.extend(cpu_groups(cpu_count(&source, &mut buffer).map_err(file)?)),
            config::Group::Load => groups.push(load_group()),
            config::Group::Memory => {
                source.each_line(&mut buffer, |line| memory_names.extend(memory_field(line))).map_err(file)?;
                memory_names.truncate(GUARDED_SLOTS);
                groups.push(memory_group(&memory_names));
            }
            config::Group::Network => {
                let mut devices = 0;
                source
                    .each_line(&mut buffer, |line| devices += usize::from(procfs::netdev(line).is_some()))
                    .map_err(file)?;
                groups.push(network_group(devices));
            }
        }
        for group in &mut groups {
            group.acquisition = Acquisition::Sampled;
            group.max_age_ns = interval_ns;
        }
        let schema = Schema { name: name.into(), groups };
        schema.check().map_err(|_| NodeError::Content { path })?;
        let bytes = u64::from(schema.blocks()) * BLOCK_BYTES as u64;
        let memory = Map::of(sealed_memfd("onlooker-node", bytes)?, 0, bytes, true)?;
        let content = match group {
            config::Group::Cpu => {
                let first_stat_block = schema.groups[0].blocks as usize;
                let reset_ticks = CPU_RESET_S * rustix::param::clock_ticks_per_second();
                Content::Cpu { ticks: vec![0; first_stat_block * GUARDED_SLOTS], first_stat_block, reset_ticks }
            }
            config::Group::Load => Content::Load,
            config::Group::Memory => {
                Content::Memory { names: memory_names.into_iter().map(|(name, _)| name).collect() }
            }
            config::Group::Network => {
                let layout = schema.groups[0].layout().ok_or(NodeError::Content { path })?;
                let table = Table::new(layout, memory.clone(), identity, host::boot_time_ns());
                Content::Network { table, seen: Vec::with_capacity(MIN_DEVICES) }
            }
        };
        Ok(Self { name, schema, memory, path, source, identity, content })
    }

    /// The file that is sampled.
    #[must_use]
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Takes a sample. A file that cannot be read leaves the blocks as they were: their time tells their age.
    pub fn sample(&mut self, buffer: &mut [u8; LINE_BYTES]) -> Loss {
        let now_ns = host::boot_time_ns();
        let mut loss = Loss::default();
        let (memory, identity) = (&self.memory, self.identity);
        let put = |block: usize, values: &[u64]| {
            let index = u16::try_from(block).unwrap_or(u16::MAX);
            let words = &memory.words()[block * BLOCK_WORDS..][..BLOCK_WORDS];
            commit(words, identity.at(index), now_ns, |payload| payload.set_all(0, values));
        };
        let read = match &mut self.content {
            Content::Cpu { ticks, first_stat_block, reset_ticks } => {
                let mut other = [0; 6];
                let read = self.source.each_line(buffer, |line| match procfs::stat(line) {
                    Some(Stat::Cpu { cpu, ticks: new }) => {
                        // A CPU beyond those present at start has no place; one that is offline keeps its last values.
                        if let Some(own) = ticks.as_chunks_mut::<{ CPU_MODES.len() }>().0.get_mut(cpu) {
                            *own = procfs::steady_ticks(own, &new, *reset_ticks);
                        }
                    }
                    Some(Stat::BootTime(value)) => other[0] = value,
                    Some(Stat::ContextSwitches(value)) => other[1] = value,
                    Some(Stat::Forks(value)) => other[2] = value,
                    Some(Stat::Interrupts(value)) => other[3] = value,
                    Some(Stat::Running(value)) => other[4] = value,
                    Some(Stat::Blocked(value)) => other[5] = value,
                    None => {}
                });
                if read.is_ok() {
                    ticks.chunks_exact(GUARDED_SLOTS).enumerate().for_each(|(block, values)| put(block, values));
                    put(*first_stat_block, &other);
                }
                read
            }
            Content::Load => {
                let mut loads = None;
                let read = self.source.each_line(buffer, |line| loads = loads.or(procfs::loadavg(line)));
                if let Some(loads) = loads {
                    put(0, &loads.map(f64::to_bits));
                }
                read
            }
            Content::Memory { names } => {
                let mut values = [0; GUARDED_SLOTS];
                let mut next = 0;
                let read = self.source.each_line(buffer, |line| {
                    let Some((name, value, _)) = procfs::meminfo(line) else { return };
                    // The kernel's order does not change while it runs, so the first look finds it.
                    let found = names.get(next).filter(|expected| *expected == name).map(|_| next);
                    if let Some(slot) = found.or_else(|| names.iter().position(|known| known == name)) {
                        values[slot] = value;
                        next = slot + 1;
                    }
                });
                if read.is_ok() {
                    put(0, &values[..names.len()]);
                }
                read
            }
            Content::Network { table, seen } => {
                seen.clear();
                let read = self.source.each_line(buffer, |line| {
                    let Some((device, counters)) = procfs::netdev(line) else { return };
                    let mut key = [0; DEVICE_WORDS];
                    put_text(&mut key, device);
                    let fill = (0..).zip(counters);
                    match table.upsert(&key, now_ns, |row| fill.for_each(|(slot, value)| row.set(slot, value))) {
                        Ok(()) => seen.push(key),
                        Err(TableError::Full(_) | TableError::Key(_)) => loss.rows_dropped += 1,
                    }
                });
                if read.is_ok() {
                    table.retain(now_ns, |key| seen.iter().any(|other| other == key));
                }
                read
            }
        };
        loss.failed = read.is_err();
        loss
    }
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

fn cpu_groups(cpus: usize) -> [Group; 2] {
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

fn network_group(devices: usize) -> Group {
    let fields = (0..).zip(NETWORK_COLUMNS).map(|(slot, (name, unit, help))| {
        let mut field = Field::new(name, Metric::Counter, Type::U64, slot);
        (field.unit, field.help) = (unit.into(), help.into());
        field
    });
    let rows = (devices * 2).clamp(MIN_DEVICES, MAX_DEVICES);
    let per_block = GUARDED_SLOTS / (1 + DEVICE_WORDS + NETWORK_COLUMNS.len());
    let mut group = Group::new(Kind::Table, u32::try_from(rows.div_ceil(per_block)).unwrap_or(1), fields.collect());
    group.key = vec![KeyPart { name: "device".into(), kind: KeyType::Text, bytes: 16 }];
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_region::Block;
    use onlooker_region::columns::Plan;
    use std::collections::BTreeMap;

    const ME: Identity = Identity { region: 2, generation: 9, index: 0 };

    fn read(sampled: &Sampled) -> BTreeMap<String, f64> {
        let blocks: Vec<Block> = sampled
            .memory
            .words()
            .chunks_exact(BLOCK_WORDS)
            .map(|words| {
                let mut block = Block::default();
                block.copy_from(words);
                block
            })
            .collect();
        let plan = Plan::new(sampled.schema.clone());
        let mut seen = BTreeMap::new();
        let refused = plan.decode(ME, &blocks, |sample| {
            let labels: Vec<String> =
                sample.labels().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
            seen.insert(format!("{}{{{}}}", sample.field.name, labels.join(",")), sample.scaled());
            assert!(sample.time_ns.is_some_and(|time_ns| time_ns <= host::boot_time_ns()));
        });
        assert!(refused.unwrap().is_empty());
        seen
    }

    fn sampled(group: config::Group) -> BTreeMap<String, f64> {
        let mut sampled = Sampled::new(group, 1_000_000_000, ME).unwrap();
        let mut buffer = [0; LINE_BYTES];
        assert_eq!(sampled.sample(&mut buffer), Loss::default());
        assert!(
            sampled
                .schema
                .groups
                .iter()
                .all(|group| group.acquisition == Acquisition::Sampled && group.max_age_ns == 1_000_000_000)
        );
        read(&sampled)
    }

    #[test]
    fn cpu_times_are_the_kernels() {
        let seen = sampled(config::Group::Cpu);
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        for line in text.lines() {
            match procfs::stat(line.as_bytes()) {
                Some(Stat::Cpu { cpu, ticks }) => {
                    let idle = seen[&format!("node_cpu_seconds_total{{mode=idle,cpu={cpu}}}")];
                    #[allow(clippy::cast_precision_loss)]
                    let now = ticks[3] as f64 / 100.0;
                    assert!((now - idle).abs() < 2.0, "{idle} {now}");
                    assert!(seen.contains_key(&format!("node_cpu_guest_seconds_total{{mode=nice,cpu={cpu}}}")));
                }
                #[allow(clippy::cast_precision_loss)]
                Some(Stat::BootTime(value)) => assert!((seen["node_boot_time_seconds{}"] - value as f64).abs() < 2.0),
                _ => {}
            }
        }
        assert!(
            seen["node_context_switches_total{}"] > 0.0
                && seen["node_forks_total{}"] > 0.0
                && seen["node_procs_running{}"] >= 1.0
        );
        assert!(seen.contains_key("node_intr_total{}") && seen.contains_key("node_procs_blocked{}"));
    }

    #[test]
    fn a_sample_keeps_what_was_more() {
        let mut sampled = Sampled::new(config::Group::Cpu, 1, ME).unwrap();
        let mut buffer = [0; LINE_BYTES];
        sampled.sample(&mut buffer);
        let Content::Cpu { ticks, .. } = &mut sampled.content else { panic!("not of CPUs") };
        ticks[3] += 200;
        let before = ticks[3];
        sampled.sample(&mut buffer);
        let Content::Cpu { ticks, .. } = &mut sampled.content else { panic!("not of CPUs") };
        assert_eq!(ticks[3], before, "2 s back");
        ticks[3] += 1_000_000;
        sampled.sample(&mut buffer);
        let Content::Cpu { ticks, .. } = &mut sampled.content else { panic!("not of CPUs") };
        assert!(ticks[3] < before + 1_000_000, "a new beginning");
    }

    #[test]
    fn memory_is_in_bytes() {
        let seen = sampled(config::Group::Memory);
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total: f64 = text.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!((seen["node_memory_MemTotal_bytes{}"] - total * 1024.0).abs() < 0.5);
        assert_eq!(seen.len(), text.lines().count());
    }

    #[test]
    fn loads_and_devices() {
        let seen = sampled(config::Group::Load);
        assert_eq!(
            seen.keys().map(String::as_str).collect::<Vec<_>>(),
            ["node_load15{}", "node_load1{}", "node_load5{}"]
        );
        let seen = sampled(config::Group::Network);
        assert!(seen.contains_key("node_network_receive_bytes_total{device=lo}"), "{seen:?}");
        assert!(seen.len().is_multiple_of(16));
    }

    #[test]
    fn a_machine_of_many_cpus_fits() {
        for cpus in [1, 12, 13, 4096] {
            let schema = Schema { name: "node_cpu".into(), groups: cpu_groups(cpus).into() };
            schema.check().unwrap();
        }
    }

    #[test]
    fn a_device_that_comes_again_is_another_one() {
        let mut sampled = Sampled::new(config::Group::Network, 1, ME).unwrap();
        let Content::Network { table, .. } = &mut sampled.content else { panic!("not a table") };
        let mut key = [0; DEVICE_WORDS];
        put_text(&mut key, "lo");
        table.upsert(&[1, 1], 1, |_| ()).unwrap();
        let mut buffer = [0; LINE_BYTES];
        sampled.sample(&mut buffer);
        let Content::Network { table, .. } = &mut sampled.content else { panic!("not a table") };
        assert_eq!(table.generation(&[1, 1]), None, "gone from the file, gone from the table");
        let first = table.generation(&key).unwrap();
        table.remove(&key, 2);
        sampled.sample(&mut buffer);
        let Content::Network { table, .. } = &mut sampled.content else { panic!("not a table") };
        assert_eq!(table.generation(&key), Some(first + 1));
    }
}
