// SPDX-License-Identifier: Apache-2.0
//! What a READ of a computed block costs, by bpf_prog_test_run: the whole READ, from the request's first byte to the sealed answer, and the part of it that
//! is the collector's (less a READ of a computed block whose collector does nothing).
//!
//! The program under test puts the request back before each run; one that stops there is measured in the same round and subtracted. Medians of interleaved
//! rounds, so that the machine's own drift meets all blocks alike. Caches are warm.

use std::error::Error;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use onlooker_metrics::collect::Installed;
use onlooker_responder::{Config, Kind, Prefix, Region, Responder, crc_tables};
use onlooker_wire::{Envelope, Ethernet, Mac, Packet, Psn, Qpn, ReadRequest, Tags};

const BENCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bench.bpf.o"));
const NOTHING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_collector.bpf.o"));
const NOTHING_SLOT: u32 = 60;
const PORT: u16 = 4792;
/// READs in a measurement, usually.
pub(crate) const REPEAT: u32 = 10_000;
const ANSWER_BYTES: usize = 62 + 1024;

/// A block that is read.
#[derive(Debug)]
pub(crate) struct Subject {
    /// Its group's name; `nothing` for the collector that does nothing.
    pub(crate) group: &'static str,
    /// Its number in the region.
    pub(crate) block: u32,
    request: [u8; 80],
    samples: Vec<f64>,
}

/// ns a READ.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    /// The whole READ, median and quartiles.
    pub(crate) whole: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// The collector's part of the median.
    pub(crate) own: f64,
}

/// What each block costs.
pub(crate) type Costs = Vec<(Subject, Cost)>;

/// A responder that answers a test's requests, unlimited.
pub(crate) fn responder() -> Result<(Responder, Config), Box<dyn Error>> {
    let config = Config { source_rate: None, cpu_rate: None, ..Config::new(PORT) };
    let responder = Responder::load(&config)?;
    responder.allow(Prefix::host("10.1.2.3".parse()?))?;
    responder.set_own_addresses(&["10.1.2.4".parse()?])?;
    responder.set_lease(Duration::from_secs(3600))?;
    Ok((responder, config))
}

/// Measures each block of what is installed in `responder` in so many rounds of so many READs; the cost of the collector that does nothing is the first.
pub(crate) fn measure(
    responder: &Responder,
    config: &Config,
    installed: &Installed,
    (rounds, repeat): (usize, u32),
) -> Result<(f64, Costs), Box<dyn Error>> {
    let mut nothing = ObjectBuilder::default().open_memory(NOTHING)?;
    responder.adopt_maps(&mut nothing)?;
    let nothing = nothing.load()?;
    let program = |name: &str| nothing.progs().find(|program| program.name() == name).ok_or("no collector");
    responder.install_collector(NOTHING_SLOT, program("test_collect_tc")?, program("test_collect_xdp")?)?;
    let mut subjects = subjects(responder, "nothing", NOTHING_SLOT, 1)?;
    for group in &installed.groups {
        subjects.extend(self::subjects(responder, group.group.name(), group.slot, group.blocks)?);
    }
    let (restore, respond) = (load(responder, config, true)?, load(responder, config, false)?);
    let mut answered = Vec::new();
    for subject in subjects {
        let (_, bytes) = run(&respond, &subject.request, 1)?;
        if bytes == ANSWER_BYTES {
            answered.push(subject);
        } else {
            println!("{}, block {}: nothing is told there ({bytes} bytes came back)", subject.group, subject.block);
        }
    }
    for _ in 0..rounds {
        for subject in &mut answered {
            let (with, _) = run(&respond, &subject.request, repeat)?;
            let (without, _) = run(&restore, &subject.request, repeat)?;
            subject.samples.push(with - without);
        }
    }
    let mut costs = Vec::new();
    let mut base = 0.0;
    for mut subject in answered {
        let whole = median(&mut subject.samples);
        let count = subject.samples.len();
        if subject.group == "nothing" {
            base = whole;
            continue;
        }
        let (low, high) = (subject.samples[count / 4], subject.samples[count * 3 / 4]);
        costs.push((subject, Cost { whole, low, high, own: (whole - base).max(0.0) }));
    }
    Ok((base, costs))
}

/// A region of a collector's blocks, each of them to be read.
fn subjects(
    responder: &Responder,
    group: &'static str,
    slot: u32,
    blocks: u32,
) -> Result<Vec<Subject>, Box<dyn Error>> {
    let kind = Kind::Computed { collector: slot, identity: u64::from(slot) << 16 | 1 << 40 };
    responder.add_region(slot, &Region { va: 0, blocks, kind })?;
    (0..blocks).map(|block| Ok(Subject { group, block, request: request(slot, block)?, samples: Vec::new() })).collect()
}

/// A request for a block as it is put back before each run, in the map's size.
fn request(rkey: u32, block: u32) -> Result<[u8; 80], Box<dyn Error>> {
    let envelope = Envelope::socket("10.1.2.3:40001".parse()?, ([10, 1, 2, 4], PORT).into())?;
    let ethernet = Ethernet { destination: Mac([2, 0, 0, 0, 0, 2]), source: Mac([2, 0, 0, 0, 0, 1]), tags: Tags::None };
    let va = u64::from(block) * 1024;
    let request = ReadRequest { destination: Qpn::wrapping(9), psn: Psn::wrapping(7), va, rkey, length_bytes: 1024 };
    let mut frame = [0; 80];
    Packet::from(request).write_frame(&ethernet, &envelope, &mut frame)?;
    Ok(frame)
}

/// Loads the bench programs onto a responder's maps.
fn load(responder: &Responder, config: &Config, only_restore: bool) -> Result<Object, Box<dyn Error>> {
    let mut object = ObjectBuilder::default().open_memory(BENCH)?;
    responder.adopt_maps(&mut object)?;
    let tables = crc_tables();
    let mut constants: Vec<u8> = Vec::new();
    constants.extend(tables.slices.iter().chain(&tables.shift_guarded).flatten().flat_map(|word| word.to_le_bytes()));
    constants.extend(config.to_bytes());
    constants.extend(u32::from(only_restore).to_le_bytes());
    for mut map in object.maps_mut().filter(|map| map.name().to_string_lossy().ends_with(".rodata")) {
        let value = map.initial_value_mut().and_then(|value| value.get_mut(..constants.len()));
        value.ok_or("the bench object's constants are shorter than expected")?.copy_from_slice(&constants);
    }
    Ok(object.load()?)
}

fn run(object: &Object, request: &[u8; 80], repeat: u32) -> Result<(f64, usize), Box<dyn Error>> {
    let map = object.maps().find(|map| map.name() == "request").ok_or("no map for the request")?;
    MapHandle::try_from(&map)?.update(&[0; 4], request, MapFlags::ANY)?;
    let program = object.progs_mut().find(|program| program.name() == "bench_tc").ok_or("no program bench_tc")?;
    let mut out = [0; 16384];
    let input = ProgramInput { data_in: Some(&request[..74]), data_out: Some(&mut out), repeat, ..Default::default() };
    let output = program.test_run(input)?;
    Ok((output.duration.as_nanos() as f64, output.data.map_or(0, |data| data.len())))
}

/// Sorts; the middle.
pub(crate) fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}

/// Whether this kernel returns from every function by way of a thunk (AMD's first to fourth Zen, SRSO): then a helper call, of which collectors are made, takes
/// several times as long. docs/kernel-metrics.md, Cost.
#[allow(dead_code, reason = "only one of the benches has bounds by it")]
pub(crate) fn has_safe_returns() -> bool {
    let path = "/sys/devices/system/cpu/vulnerabilities/spec_rstack_overflow";
    std::fs::read_to_string(path).is_ok_and(|text| text.contains("Safe RET"))
}

/// `QUICK=1`.
pub(crate) fn is_quick() -> bool {
    std::env::var_os("QUICK").is_some_and(|value| !value.is_empty() && value != "0")
}

/// A network namespace of this process's own with so many bridges; they are gone with it. To be called by the only thread.
pub(crate) fn own_namespace(bridges: u32) {
    onlooker_testbed::own_network();
    for number in 0..bridges {
        onlooker_testbed::run("ip", &["link", "add", &format!("collect{number}"), "type", "bridge"]);
    }
}

/// A line for people and programs; whether it passed.
pub(crate) fn result(name: &str, value: f64, decimals: usize, unit: &str, bound: f64) -> bool {
    let pass = value <= bound;
    let verdict = if pass { "pass" } else { "fail" };
    println!("RESULT {name} {value:.decimals$} {unit} (expected <= {bound}) {verdict}");
    pass
}
