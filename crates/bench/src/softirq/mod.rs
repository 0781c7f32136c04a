// SPDX-License-Identifier: Apache-2.0
//! `make bench-responder`, `make bench-collectors`, `make bench-kernel-cost`, `make bench-dta`: what READs and reports take in softirq, by
//! bpf_prog_test_run on this machine's own kernel.
//!
//! The program under test puts the request back before each run; one that stops there is measured in the same round and
//! subtracted. Medians of interleaved rounds, so that the machine's own drift meets all alike. Caches are warm. No
//! device is touched.

mod blocks;
pub(crate) mod collectors;
pub(crate) mod kernel_cost;
pub(crate) mod responder;
pub(crate) mod translator;

use std::time::Duration;

use anyhow::{Context as _, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use onlooker_responder::{Config, Prefix, Responder, crc_tables};
use onlooker_wire::{Envelope, Ethernet, Mac, Packet, Psn, Qpn, ReadRequest, Tags};

const STOPWATCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stopwatch.bpf.o"));
const NOTHING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_collector.bpf.o"));
const PORT: u16 = 4792;
/// Headers before the blocks of an answer, and its ICRC.
const ANSWER_HEAD_BYTES: usize = 62;

/// A responder that answers the requests below, unlimited.
fn load() -> Result<(Responder, Config)> {
    let config = Config { source_rate: None, cpu_rate: None, ..Config::new(PORT) };
    let responder = Responder::load(&config)?;
    responder.allow(Prefix::host("10.1.2.3".parse()?))?;
    responder.set_own_addresses(&["10.1.2.4".parse()?])?;
    responder.set_lease(Duration::from_secs(3600))?;
    Ok((responder, config))
}

/// Installs the collector that does nothing.
fn install_nothing(responder: &Responder, slot: u32) -> Result<()> {
    let mut nothing = ObjectBuilder::default().open_memory(NOTHING)?;
    responder.adopt_maps(&mut nothing)?;
    let nothing = nothing.load()?;
    let program = |name: &str| nothing.progs().find(|program| program.name() == name).context("no collector");
    Ok(responder.install_collector(slot, program("test_collect_tc")?, program("test_collect_xdp")?)?)
}

/// Requests of one kind, and how many bytes answer them.
#[derive(Debug)]
struct Request {
    /// As it is put back before each run, in the map's size.
    frame: [u8; 80],
    answer_bytes: usize,
}

impl Request {
    fn new(va: u64, rkey: u32, length_bytes: u32) -> Result<Self> {
        let envelope = Envelope::socket("10.1.2.3:40001".parse()?, ([10, 1, 2, 4], PORT).into())?;
        let (destination, source) = (Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
        let ethernet = Ethernet { destination, source, tags: Tags::None };
        let request = ReadRequest { destination: Qpn::wrapping(9), psn: Psn::wrapping(7), va, rkey, length_bytes };
        let mut frame = [0; 80];
        Packet::from(request).write_frame(&ethernet, &envelope, &mut frame)?;
        Ok(Self { frame, answer_bytes: ANSWER_HEAD_BYTES + usize::try_from(length_bytes)? })
    }
}

/// The programs under test, on a responder's maps. Budgets are read-only data of each.
struct Stopwatch(Object);

impl Stopwatch {
    fn load(responder: &Responder, config: &Config, only_restore: bool) -> Result<Self> {
        let mut object = ObjectBuilder::default().open_memory(STOPWATCH)?;
        responder.adopt_maps(&mut object)?;
        let tables = crc_tables();
        let words = tables.slices.iter().chain(&tables.shift_guarded).flatten();
        let mut constants: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        constants.extend(config.to_bytes());
        constants.extend(u32::from(only_restore).to_le_bytes());
        for mut map in object.maps_mut().filter(|map| map.name().to_string_lossy().ends_with(".rodata")) {
            let value = map.initial_value_mut().and_then(|value| value.get_mut(..constants.len()));
            value.context("the stopwatch's constants are shorter than expected")?.copy_from_slice(&constants);
        }
        Ok(Self(object.load()?))
    }

    /// ns of a run, and bytes that came back.
    fn run(&self, program: &str, request: &Request, repeat: u32) -> Result<(f64, usize)> {
        let map = self.0.maps().find(|map| map.name() == "request").context("no map for the request")?;
        MapHandle::try_from(&map)?.update(&[0; 4], &request.frame, MapFlags::ANY)?;
        let program = self.0.progs_mut().find(|found| found.name() == program).context("no such program")?;
        let (mut out, frame) = ([0; 16384], &request.frame[..74]);
        let input = ProgramInput { data_in: Some(frame), data_out: Some(&mut out), repeat, ..Default::default() };
        let output = program.test_run(input)?;
        Ok((output.duration.as_nanos() as f64, output.data.map_or(0, |data| data.len())))
    }
}
