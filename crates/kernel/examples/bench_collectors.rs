// SPDX-License-Identifier: Apache-2.0
//! What a READ of each group's blocks costs in softirq, by bpf_prog_test_run on this machine's own kernel: the whole READ, from the request's first byte to
//! the sealed answer, and the part of it that is the collector's (less a READ of a computed block whose collector does nothing).
//!
//! The program under test puts the request back before each run; one that stops there is measured in the same round and subtracted. Medians of interleaved
//! rounds. Needs root; it runs in a network namespace of its own with 23 bridges, so that blocks of group network are full. Prints lines `RESULT collector_<group>_ns <value> ns (expected <= 5000) pass|fail`, the costliest block of
//! the group; ends with 1 where one failed. `QUICK=1` does a fifth of the rounds.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use onlooker_kernel::collect::{Options, install};
use onlooker_kernel::{Config, Kind, Prefix, Region, Responder, crc_tables};
use onlooker_wire::{Envelope, Ethernet, Mac, Packet, Psn, Qpn, ReadRequest, Tags};

const BENCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bench.bpf.o"));
const NOTHING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_collector.bpf.o"));
const NOTHING_SLOT: u32 = 60;
const PORT: u16 = 4792;
const REPEAT: u32 = 10_000;
/// DESIGN: a computed block costs at most this.
const BOUND_NS: f64 = 5000.0;

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

/// Devices for group network; they are gone with this process.
#[allow(unsafe_code)]
fn own_namespace() -> Result<(), Box<dyn Error>> {
    // SAFETY: this thread is the only one, and no file descriptor table is unshared.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }?;
    for number in 0..23 {
        let name = format!("collect{number}");
        let added = std::process::Command::new("ip").args(["link", "add", &name, "type", "bridge"]).status()?;
        if !added.success() {
            return Err(format!("ip link add {name} type bridge: {added}").into());
        }
    }
    Ok(())
}

/// A block that is read.
struct Subject {
    group: &'static str,
    request: [u8; 80],
    samples: Vec<f64>,
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

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn bench() -> Result<bool, Box<dyn Error>> {
    let quick = std::env::var_os("QUICK").is_some_and(|value| value != "0");
    let rounds = if quick { 9 } else { 45 };
    own_namespace()?;
    let config = Config { source_rate: None, cpu_rate: None, ..Config::new(PORT) };
    let responder = Responder::load(&config)?;
    responder.allow(Prefix::host("10.1.2.3".parse()?))?;
    responder.set_own_addresses(&["10.1.2.4".parse()?])?;
    responder.set_lease(Duration::from_secs(3600))?;
    let mut nothing = ObjectBuilder::default().open_memory(NOTHING)?;
    responder.adopt_maps(&mut nothing)?;
    let nothing = nothing.load()?;
    let program = |name: &str| nothing.progs().find(|program| program.name() == name).ok_or("no collector");
    responder.install_collector(NOTHING_SLOT, program("test_collect_tc")?, program("test_collect_xdp")?)?;
    let installed = install(&responder, &Options::default())?;
    for (group, reason) in &installed.refused {
        println!("{group}: refused: {reason}");
    }

    let mut subjects = Vec::new();
    let mut subject = |group, slot: u32, blocks: u32| -> Result<(), Box<dyn Error>> {
        let kind = Kind::Computed { collector: slot, identity: u64::from(slot) << 16 | 1 << 40 };
        responder.add_region(slot, &Region { va: 0, blocks, kind })?;
        for block in 0..blocks {
            subjects.push(Subject { group, request: request(slot, block)?, samples: Vec::new() });
        }
        Ok(())
    };
    subject("nothing", NOTHING_SLOT, 1)?;
    for group in &installed.groups {
        subject(group.group.name(), group.slot, group.blocks)?;
    }
    let (restore, respond) = (load(&responder, &config, true)?, load(&responder, &config, false)?);
    for subject in &subjects {
        let (_, bytes) = run(&respond, &subject.request, 1)?;
        if bytes != 62 + 1024 {
            return Err(format!("{}: {bytes} bytes came back", subject.group).into());
        }
    }
    for _ in 0..rounds {
        for subject in &mut subjects {
            let (with, _) = run(&respond, &subject.request, REPEAT)?;
            let (without, _) = run(&restore, &subject.request, REPEAT)?;
            subject.samples.push(with - without);
        }
    }
    let base = median(&mut subjects[0].samples);
    println!("a READ of a computed block whose collector does nothing: {base:.0} ns");
    let mut passed = installed.refused.is_empty();
    for group in &installed.groups {
        let name = group.group.name();
        let mut most = (0.0, 0.0, 0.0);
        for subject in subjects.iter_mut().filter(|subject| subject.group == name) {
            let value = median(&mut subject.samples);
            let count = subject.samples.len();
            if value > most.0 {
                most = (value, subject.samples[count / 4], subject.samples[count * 3 / 4]);
            }
        }
        let (value, low, high) = most;
        let (own, blocks) = (value - base, group.blocks);
        let cpus = std::thread::available_parallelism()?;
        println!(
            "{name}: {blocks} blocks on {cpus} CPUs, quartiles {low:.0} to {high:.0} ns; the collector's own part {own:.0} ns"
        );
        let pass = value <= BOUND_NS;
        passed &= pass;
        let verdict = if pass { "pass" } else { "fail" };
        println!("RESULT collector_{name}_ns {value:.0} ns (expected <= {BOUND_NS:.0}) {verdict}");
    }
    Ok(passed)
}

fn main() -> ExitCode {
    match bench() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench_collectors: {error}");
            ExitCode::FAILURE
        }
    }
}
