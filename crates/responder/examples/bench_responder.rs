// SPDX-License-Identifier: Apache-2.0
//! What a READ costs in softirq: ns for each of tc and XDP, by length, with and without ICRC, by bpf_prog_test_run on this machine's own kernel.
//!
//! The programs under test put the request back into the packet before each run; the same programs that stop there are measured in the same round and
//! subtracted. Medians of many short rounds, interleaved, so that other load hits all alike. Needs root; no device is touched.
//! Prints lines `RESULT <name> <value> ns (expected <bound>) pass|fail`; ends with 1 where one failed. `QUICK=1` does a fifth of the rounds.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use onlooker_responder::{Config, Kind, Prefix, Region, Responder, crc_tables};
use onlooker_wire::{Envelope, Ethernet, Mac, Packet, Psn, Qpn, ReadRequest, Tags};

const BENCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bench.bpf.o"));
const COLLECTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_collector.bpf.o"));
const PORT: u16 = 4792;
const RKEY: u32 = 1;
const COMPUTED_RKEY: u32 = 2;
const REPEAT: u32 = 20_000;

/// A request as it is put back before each run, in the map's size.
fn request(rkey: u32, length_bytes: u32) -> Result<[u8; 80], Box<dyn Error>> {
    let envelope = Envelope::socket("10.1.2.3:40001".parse()?, ([10, 1, 2, 4], PORT).into())?;
    let ethernet = Ethernet { destination: Mac([2, 0, 0, 0, 0, 2]), source: Mac([2, 0, 0, 0, 0, 1]), tags: Tags::None };
    let request = ReadRequest { destination: Qpn::wrapping(9), psn: Psn::wrapping(7), va: 4096, rkey, length_bytes };
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
        let value = map.initial_value_mut().ok_or("the bench object has no constants")?;
        let len = constants.len();
        value
            .get_mut(..len)
            .ok_or("the bench object's constants are shorter than expected")?
            .copy_from_slice(&constants);
    }
    Ok(object.load()?)
}

/// One way of answering, with its baseline.
struct Subject {
    name: String,
    program: &'static str,
    work: usize,
    baseline: usize,
    request: [u8; 80],
    answer_bytes: usize,
    bound_ns: Option<f64>,
    samples: Vec<f64>,
}

fn run(object: &Object, name: &str, request: &[u8; 80], repeat: u32) -> Result<(u32, f64, usize), Box<dyn Error>> {
    let map = object.maps().find(|map| map.name() == "request").ok_or("no map for the request")?;
    MapHandle::try_from(&map)?.update(&[0; 4], request, MapFlags::ANY)?;
    let program = object.progs_mut().find(|program| program.name() == name).ok_or("no such program")?;
    let mut out = [0; 16384];
    let input = ProgramInput { data_in: Some(&request[..74]), data_out: Some(&mut out), repeat, ..Default::default() };
    let output = program.test_run(input)?;
    Ok((output.return_value, output.duration.as_nanos() as f64, output.data.map_or(0, |data| data.len())))
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn bench() -> Result<bool, Box<dyn Error>> {
    let quick = std::env::var_os("QUICK").is_some_and(|value| value != "0");
    let rounds = if quick { 9 } else { 45 };
    let config = Config { source_rate: None, cpu_rate: None, ..Config::new(PORT) };
    // The variants share the maps of one responder; budgets are read-only data of each.
    let responder = Responder::load(&config)?;
    let slab = responder.create_slab(0, 16)?;
    let memory = slab.map(0, 16, true)?;
    for (value, word) in (0u64..).zip(memory.words()) {
        word.store(value.wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::Relaxed);
    }
    responder.add_region(RKEY, &Region { va: 0, blocks: 16, kind: Kind::Memory { slab: 0, first_block: 0 } })?;
    let computed = Region { va: 4096, blocks: 1, kind: Kind::Computed { collector: 1, identity: 1 << 40 } };
    responder.add_region(COMPUTED_RKEY, &computed)?;
    responder.allow(Prefix::host("10.1.2.3".parse()?))?;
    responder.set_own_addresses(&["10.1.2.4".parse()?])?;
    responder.set_lease(Duration::from_secs(3600))?;
    let mut collector = ObjectBuilder::default().open_memory(COLLECTOR)?;
    responder.adopt_maps(&mut collector)?;
    let collector = collector.load()?;
    let collect = |name: &str| collector.progs().find(|program| program.name() == name).ok_or("no collector");
    responder.install_collector(1, collect("test_collect_tc")?, collect("test_collect_xdp")?)?;

    let objects = [
        load(&responder, &config, true)?,
        load(&responder, &config, false)?,
        load(&responder, &Config { skip_icrc: true, ..config }, false)?,
        load(&responder, &Config { source_rate: rate(), cpu_rate: rate(), ..config }, false)?,
    ];
    let mut subjects = Vec::new();
    for (side, program) in [("tc", "bench_tc"), ("xdp", "bench_xdp")] {
        let mut subject = |name: String, work, rkey, length: u32, bound_ns| -> Result<(), Box<dyn Error>> {
            let answer_bytes = 62 + usize::try_from(length)?;
            let request = request(rkey, length)?;
            subjects.push(Subject {
                name,
                program,
                work,
                baseline: 0,
                request,
                answer_bytes,
                bound_ns,
                samples: Vec::new(),
            });
            Ok(())
        };
        for length in [64, 256, 1024] {
            let bound = (length == 1024).then_some(750.0);
            subject(format!("responder_{side}_{length}"), 1, RKEY, length, bound)?;
            subject(format!("responder_{side}_{length}_no_icrc"), 2, RKEY, length, None)?;
        }
        subject(format!("responder_{side}_1024_budgets"), 3, RKEY, 1024, None)?;
        subject(format!("responder_{side}_computed"), 1, COMPUTED_RKEY, 1024, None)?;
    }
    for subject in &subjects {
        let (_, _, bytes) = run(&objects[subject.work], subject.program, &subject.request, 1)?;
        if bytes != subject.answer_bytes {
            return Err(format!("{}: {bytes} bytes came back, not {}", subject.name, subject.answer_bytes).into());
        }
    }
    for _ in 0..rounds {
        for subject in &mut subjects {
            let (_, with, _) = run(&objects[subject.work], subject.program, &subject.request, REPEAT)?;
            let (_, without, _) = run(&objects[subject.baseline], subject.program, &subject.request, REPEAT)?;
            subject.samples.push(with - without);
        }
    }
    let mut passed = true;
    for subject in &mut subjects {
        let value = median(&mut subject.samples);
        let count = subject.samples.len();
        let (low, high) = (subject.samples[count / 4], subject.samples[count * 3 / 4]);
        let name = &subject.name;
        match subject.bound_ns {
            Some(bound) => {
                let pass = value <= bound;
                passed &= pass;
                let verdict = if pass { "pass" } else { "fail" };
                println!("{name}: quartiles {low:.0} to {high:.0} ns");
                println!("RESULT {name} {value:.0} ns (expected <= {bound:.0}) {verdict}");
            }
            None => println!("{name} {value:.0} ns  quartiles {low:.0} to {high:.0}"),
        }
    }
    Ok(passed)
}

/// Budgets that are accounted and never exceeded.
fn rate() -> Option<onlooker_responder::Rate> {
    Some(onlooker_responder::Rate { per_second: 1_000_000_000, burst: u32::MAX })
}

fn main() -> ExitCode {
    match bench() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench_responder: {error}");
            ExitCode::FAILURE
        }
    }
}
