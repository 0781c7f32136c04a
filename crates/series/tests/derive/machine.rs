// SPDX-License-Identifier: Apache-2.0
//! A machine as its kernel's collectors show it, with any number of CPUs: the blocks of its regions, and what readers make of them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use onlooker_region::block::Identity;
use onlooker_region::columns::{Plan, Sample};
use onlooker_region::control::RegionEntry;
use onlooker_region::guard::commit;
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::{Block, Schema, SchemaId};
use onlooker_series::derive::{Derived, Fate};

/// The system's allocator, counted.
pub(crate) struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

// SAFETY: hands everything on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has none any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// CPUs of a block of the group cpu.
const CPUS: usize = 8;
const METRICS: [&str; 4] = ["receive_bytes", "receive_packets", "transmit_bytes", "transmit_packets"];

/// A network device.
#[derive(Clone)]
pub(crate) struct Device {
    /// Its row.
    pub(crate) row: usize,
    /// The row's generation, in the groups of each eight CPUs.
    pub(crate) generations: Vec<u32>,
    /// Its name.
    pub(crate) name: &'static str,
    /// The four counters of each CPU.
    pub(crate) counts: Vec<[u64; 4]>,
}

/// A machine.
pub(crate) struct Machine {
    /// Context switches and run-queue length of each CPU.
    pub(crate) cpus: Vec<[u64; 2]>,
    /// Devices.
    pub(crate) devices: Vec<Device>,
    /// Boot clock of the next reading.
    pub(crate) now_ns: u64,
    /// Boot id.
    pub(crate) boot: u8,
    /// Generation of its regions.
    pub(crate) generation: u32,
    /// Blocks of the group cpu and of network that are not answered.
    pub(crate) missing: [Vec<usize>; 2],
    /// What the controller knows.
    pub(crate) derived: Derived,
}

impl Machine {
    /// With nothing counted.
    pub(crate) fn new(cpus: usize, devices: &[&'static str]) -> Self {
        let device = |(row, name): (usize, &&'static str)| Device {
            row,
            generations: vec![7; cpus.div_ceil(CPUS)],
            name,
            counts: vec![[0; 4]; cpus],
        };
        Self {
            cpus: vec![[0; 2]; cpus],
            devices: devices.iter().enumerate().map(device).collect(),
            now_ns: 10_000_000,
            boot: 1,
            generation: 1,
            missing: [Vec::new(), Vec::new()],
            derived: Derived::default(),
        }
    }

    fn cpu_schema(&self) -> Schema {
        let count = self.cpus.len();
        let values: Vec<String> = (0..count).map(|cpu| cpu.to_string()).collect();
        let field = |slot: usize, metric: &str, name: &str| {
            serde_json::json!({"name": name, "metric": metric, "type": "u64", "slot": slot,
                "array": {"label": "cpu", "count": count, "stride": 15, "values": values}})
        };
        let beside = |mut field: serde_json::Value, sum: &str| {
            field["sum"] = serde_json::json!({"name": sum, "help": "Of all CPUs."});
            field
        };
        let fields = [
            beside(field(0, "counter", "onlooker_context_switches_total"), "node_context_switches_total"),
            beside(field(1, "gauge", "onlooker_run_queue_length"), "node_procs_running"),
            field(2, "counter", "node_cpu_seconds_total"),
        ];
        // Slots of 124 a block: 8 CPUs of 15, and 4 more, so CPU 8 stands in the block before as often as not; here only the sum matters.
        let blocks = (count * 15).div_ceil(124);
        parse(&serde_json::json!({"name": "node_cpu", "groups": [
            {"kind": "computed", "acquisition": "computed", "blocks": blocks, "fields": fields}]}))
    }

    fn network_schema(&self) -> Schema {
        let groups: Vec<_> = (0..self.cpus.len())
            .step_by(CPUS)
            .map(|first| {
                let count = (self.cpus.len() - first).min(CPUS);
                let values: Vec<String> = (first..first + count).map(|cpu| cpu.to_string()).collect();
                let fields: Vec<_> = (0..)
                    .zip(METRICS)
                    .map(|(at, metric)| {
                        serde_json::json!({"name": format!("node_network_{metric}_total"), "metric": "counter", "type": "u64",
                            "slot": at * count.max(2), "array": {"label": "cpu", "count": count, "stride": 1, "values": values}, "sum": {}})
                    })
                    .collect();
                serde_json::json!({"kind": "table", "acquisition": "computed", "blocks": 16, "fields": fields,
                    "key": [{"name": "device", "type": "text", "bytes": 16}]})
            })
            .collect();
        parse(&serde_json::json!({"name": "node_network", "groups": groups}))
    }

    fn cpu_blocks(&self, plan: &Plan) -> Vec<Block> {
        blocks_of(
            plan.schema(),
            |block| self.time(0, block),
            |group, slot| {
                let (cpu, at) = (slot / 15, slot % 15);
                (group == 0 && cpu < self.cpus.len() && at < 2).then(|| self.cpus[cpu][at])
            },
            self.identity(1),
        )
    }

    fn network_blocks(&self, plan: &Plan) -> Vec<Block> {
        let layout = |group: usize| plan.schema().groups[group].layout().unwrap();
        blocks_of(
            plan.schema(),
            |block| self.time(1, block),
            |group, slot| {
                let (words, rows) = (layout(group).row_words(), layout(group).rows_per_block());
                let (block, place) = (slot / 124, slot % 124);
                let row = block * rows + place / words;
                let device = self.devices.iter().find(|device| device.row == row && place / words < rows)?;
                let mut key = [0; 16];
                key[..device.name.len()].copy_from_slice(device.name.as_bytes());
                let count = (self.cpus.len() - group * CPUS).min(CPUS);
                Some(match place % words {
                    0 => 1 << 32 | u64::from(device.generations[group]),
                    at @ 1..=2 => u64::from_le_bytes(std::array::from_fn(|i| key[(at - 1) * 8 + i])),
                    at => {
                        let (metric, cpu) = ((at - 3) / count.max(2), (at - 3) % count.max(2));
                        if metric >= METRICS.len() || cpu >= count {
                            return None;
                        }
                        device.counts[group * CPUS + cpu][metric]
                    }
                })
            },
            self.identity(2),
        )
    }

    fn time(&self, region: usize, block: usize) -> u64 {
        if self.missing[region].contains(&block) { 0 } else { self.now_ns }
    }

    fn identity(&self, region: u32) -> Identity {
        Identity { region, generation: self.generation, index: 0 }
    }

    /// Plans and blocks of its regions.
    pub(crate) fn regions(&self) -> Vec<(RegionEntry, Plan, Vec<Block>)> {
        let (cpu, network) = (Plan::new(self.cpu_schema()), Plan::new(self.network_schema()));
        let blocks = [self.cpu_blocks(&cpu), self.network_blocks(&network)];
        let [cpu_blocks, network_blocks] = blocks;
        let entry = |name: &str, region, plan: &Plan| entry(name, self.identity(region), plan);
        vec![
            (entry("node_cpu", 1, &cpu), cpu, cpu_blocks),
            (entry("node_network", 2, &network), network, network_blocks),
        ]
    }

    /// Reads it, and says which sums there are: `name{device}` and value. Time goes on.
    pub(crate) fn read(&mut self) -> BTreeMap<String, u64> {
        let regions = self.regions();
        let mut sums = BTreeMap::new();
        self.derived.begin(Some([self.boot; 16]));
        for (entry, plan, blocks) in &regions {
            let samples = samples(entry, plan, blocks);
            let shown = feed(&mut self.derived, entry, plan, &samples, |name, device, value| {
                let text = if device.is_empty() { name.to_owned() } else { format!("{name}{{{device}}}") };
                assert!(sums.insert(text, value).is_none(), "one sum of a name");
            });
            assert_eq!(shown, if entry.name == "node_cpu" { samples.len() } else { 0 });
        }
        self.now_ns += 1_000_000;
        sums
    }
}

pub(crate) fn parse(json: &serde_json::Value) -> Schema {
    Schema::parse(&json.to_string()).unwrap()
}

pub(crate) fn entry(name: &str, identity: Identity, plan: &Plan) -> RegionEntry {
    RegionEntry {
        identity,
        va: 0,
        bytes: u64::from(plan.schema().blocks()) * 1024,
        rkey: 1,
        device_rkey: 0,
        responders: 1,
        schema: SchemaId::of(&plan.schema().canonical()),
        pid: 7,
        uid: 0,
        created_ns: 1,
        orphan: false,
        name: name.into(),
        labels: Vec::new(),
    }
}

/// The blocks of a schema: those of time 0 are not written. `word` gives a group's payload word.
pub(crate) fn blocks_of(
    schema: &Schema,
    time: impl Fn(usize) -> u64,
    word: impl Fn(usize, usize) -> Option<u64>,
    first: Identity,
) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (group, (begin, described)) in schema.placed_groups().enumerate() {
        for number in 0..described.blocks as usize {
            let words: Vec<AtomicU64> = (0..BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect();
            let index = begin as usize + number;
            if time(index) > 0 {
                commit(&words, first.at(u16::try_from(index).unwrap()), time(index), |payload| {
                    for slot in 0..payload.len() {
                        payload.set(slot, word(group, number * payload.len() + slot).unwrap_or(0));
                    }
                });
            }
            let mut block = Block::default();
            block.copy_from(&words);
            blocks.push(block);
        }
    }
    blocks
}

/// The samples of a region.
pub(crate) fn samples<'a>(entry: &RegionEntry, plan: &'a Plan, blocks: &'a [Block]) -> Vec<Sample<'a>> {
    let mut samples = Vec::new();
    plan.decode(entry.identity, blocks, |sample| samples.push(sample)).unwrap();
    samples
}

/// Gives a region's samples to the controller as its fleet does; how many are shown as they are.
pub(crate) fn feed(
    derived: &mut Derived,
    entry: &RegionEntry,
    plan: &Plan,
    samples: &[Sample<'_>],
    mut give: impl FnMut(&str, &str, u64),
) -> usize {
    let row = |sample: &Sample<'_>| sample.row.as_ref().map(|row| (row.number, row.generation));
    let (sums, schema) = (derived.region(entry, plan), plan.schema());
    let mut shown = 0;
    for samples in samples.chunk_by(|a, b| std::ptr::eq(a.group, b.group) && row(a) == row(b)) {
        let group = schema.groups.iter().position(|group| std::ptr::eq(group, samples[0].group)).unwrap();
        shown += if sums.take(group, samples) == Fate::Shown { samples.len() } else { 0 };
    }
    sums.finish(|sum| {
        assert!(sum.time_ns.is_some());
        let device = sum.row_labels.first().map_or("", |(_, device)| device.as_str());
        for (metric, value) in sum.metrics.iter().zip(sum.words) {
            give(&metric.name, device, *value);
        }
    });
    shown
}
