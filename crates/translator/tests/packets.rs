// SPDX-License-Identifier: Apache-2.0
//! The programs packet by packet: exits and memory are those of the model (`onlooker_dta::translator`), byte for byte.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bolero::{TypeGenerator, check};
use onlooker_dta::append::{List, Position};
use onlooker_dta::increment::Counters as KeyIncrement;
use onlooker_dta::key_write::{CheckBytes, Stamp, Table as KeyWrite};
use onlooker_dta::translator::{Counts, Limits, Operation, Service, Shape, Translator as Model};
use onlooker_responder::clock::boot_time_ns;
use onlooker_responder::program::Run;
use onlooker_responder::{Config as ResponderConfig, Home, Hook, Pinned, Prefix, Rate, Responder, SlabMapping};
use onlooker_translator::{Config, Counters, Exit, Outcome, Place, Table, Translator};
use onlooker_wire::dta::{Answer, Body, Copies, Importance, MAX_REPORT_BYTES, PORT, Report};
use onlooker_wire::{Envelope, Ethernet, Mac, Tag, Tags, Tpid, UdpFrame};
use rustix::thread::{CpuSet, sched_setaffinity};

const OWN: [&str; 2] = ["10.1.2.4", "fd00::b2"];
const REPORTERS: [&str; 2] = ["10.1.2.3", "fd00::a1"];
const OWN_MAC: Mac = Mac([2, 0, 0, 0, 0, 0xb2]);
const REPORTER_MAC: Mac = Mac([2, 0, 0, 0, 0, 0xa1]);
const HOOKS: [Hook; 2] = [Hook::Tc, Hook::Xdp];
const SLAB: u32 = 3;
const SLAB_BLOCKS: u32 = 64;
const LONG_NS: u64 = 3_600_000_000_000;

/// Tables by number, and their first blocks.
fn tables() -> [(u16, u32, Shape); 6] {
    let key_write = |slots_log2, payload_bytes, check| {
        Shape::KeyWrite(KeyWrite { seed: [payload_bytes; 16], slots_log2, payload_bytes, check })
    };
    let list = |entry_bytes, batch, batches_log2| {
        Shape::Append(List { entry_bytes, batch, batches_log2 }, Position { batch: 2, entry: 5 })
    };
    [
        (0, 1, key_write(6, 20, CheckBytes::Four)),
        (1, 4, key_write(5, 64, CheckBytes::Eight)),
        (2, 10, list(18, 16, 3)),
        (3, 16, list(64, 64, 2)),
        (1000, 40, list(7, 3, 4)),
        (1023, 50, Shape::KeyIncrement(KeyIncrement { seed: [9; 16], slots_log2: 7 }, 3)),
    ]
}

fn access(number: u16) -> u32 {
    0xfeed_0000 | u32::from(number)
}

/// The programs and the model, each with a memory of its own.
struct Rig {
    _responder: Responder,
    translator: Translator,
    memory: SlabMapping,
    model: Model,
    model_memory: Vec<u8>,
    counted: RefCell<Counters>,
}

impl Rig {
    fn new(wait: Duration, source_rate: Option<Rate>) -> Self {
        // What a source may send is counted by each processor.
        let mut first = CpuSet::new();
        first.set(0);
        sched_setaffinity(None, &first).unwrap();
        let responder = Responder::load(&ResponderConfig::new(4792)).unwrap_or_else(|error| panic!("{error}"));
        let memory = responder.create_slab(SLAB, SLAB_BLOCKS).unwrap().map(0, SLAB_BLOCKS, true).unwrap();
        responder.set_own_addresses(&OWN.map(|own| own.parse().unwrap())).unwrap();
        responder.set_lease(Duration::from_secs(3600)).unwrap();
        let config = Config { port: PORT, source_rate, wait };
        let translator = Translator::load(&config, &responder).unwrap_or_else(|error| panic!("{error}"));
        for (number, first_block, shape) in tables() {
            let place = Place { slab: SLAB, first_block };
            translator.put_table(number, &Table { access: access(number), shape, place }).unwrap();
        }
        let sources = REPORTERS.map(|source| Prefix::host(source.parse().unwrap()));
        translator.set_sources(&sources).unwrap();
        let services = tables().map(|(number, _, shape)| Service { number, access: access(number), shape });
        let limits = Limits {
            sources: REPORTERS.map(|source| source.parse::<IpAddr>().unwrap().into()).to_vec(),
            rate_per_s: u64::MAX >> 32,
            most_known: 1 << 16,
            wait_ns: LONG_NS,
        };
        let model_memory = vec![0; usize::try_from(SLAB_BLOCKS).unwrap() * 1024];
        let counted = translator.counters().unwrap().into();
        let model = Model::new(services, limits);
        Self { _responder: responder, translator, memory, model, model_memory, counted }
    }

    fn bytes(&self) -> Vec<u8> {
        self.memory.words().iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
    }

    /// Gives a report to a program; how it was counted.
    fn run(&self, hook: Hook, frame: &[u8]) -> Option<Exit> {
        self.run_and_hear(hook, frame).0
    }

    /// And what its reporter is told.
    fn run_and_hear(&self, hook: Hook, frame: &[u8]) -> (Option<Exit>, Option<Vec<u8>>) {
        let Run { verdict, packet, .. } = self.translator.run(hook, frame, 1).unwrap();
        let after = self.translator.counters().unwrap();
        let before = self.counted.replace(after.clone());
        let counted: Vec<(Exit, u64)> = after
            .iter()
            .map(|(exit, count)| (exit, count - before.get(exit)))
            .filter(|(_, count)| *count > 0)
            .collect();
        // TC_ACT_UNSPEC and XDP_PASS; TC_ACT_SHOT and XDP_DROP; TC_ACT_REDIRECT and XDP_TX.
        let (pass, drop, back) = if hook == Hook::Tc { (u32::MAX, 2, 7) } else { (2, 1, 3) };
        let told = match counted[..] {
            [] => pass,
            [(Exit::Probe | Exit::Gap | Exit::UnknownReporter, 1)] => back,
            [(_, 1)] => drop,
            _ => panic!("counted as {counted:?}"),
        };
        assert_eq!(verdict, told, "{counted:?}");
        (counted.first().map(|(exit, _)| *exit), (verdict == back).then_some(packet))
    }

    /// The same to both; what the model calls it. Memory is compared where both have the same time.
    fn compare(&mut self, hook: Hook, source: IpAddr, datagram: &[u8]) -> &'static str {
        let frame = frame(source, datagram);
        let before_ns = boot_time_ns();
        let (exit, told) = self.run_and_hear(hook, &frame);
        let (exit, after_ns) = (exit.unwrap(), boot_time_ns());
        let before = self.model.counts().clone();
        let memory = &mut self.model_memory;
        let place = |table: u16, offset: u64| {
            let (_, first_block, _) = tables().into_iter().find(|(number, ..)| *number == table).unwrap();
            usize::try_from(u64::from(first_block) * 1024 + offset).unwrap()
        };
        let answer = self.model.take(before_ns, source, datagram, &mut |operation| match operation {
            Operation::Write { table, offset, bytes } => {
                let from = place(table, offset);
                memory[from..from + bytes.len()].copy_from_slice(bytes);
            }
            Operation::Add { table, offset, addend } => {
                let counter: &mut [u8; 8] = memory[place(table, offset)..].first_chunk_mut().unwrap();
                *counter = u64::from_le_bytes(*counter).wrapping_add(addend).to_le_bytes();
            }
            Operation::Wake { .. } => {}
        });
        let outcome = outcome(&before, self.model.counts());
        assert_eq!(exit.name(), outcome, "{datagram:02x?} from {source}");
        assert_eq!(told.map(|frame| answer_in(source, &frame)), answer, "{datagram:02x?}");
        let ours = self.bytes();
        if Stamp::of(before_ns) == Stamp::of(after_ns) {
            let differs = ours.iter().zip(&self.model_memory).position(|(ours, model)| ours != model);
            assert_eq!(differs, None, "{datagram:02x?}");
        } else {
            self.model_memory = ours;
        }
        outcome
    }
}

/// The answer in a frame to a reporter. A socket must take it.
fn answer_in(reporter: IpAddr, frame: &[u8]) -> Answer {
    let UdpFrame { ethernet, envelope, payload } = UdpFrame::parse(frame).unwrap();
    assert_eq!((ethernet.destination, ethernet.source), (REPORTER_MAC, OWN_MAC));
    let own: IpAddr = OWN[usize::from(reporter.is_ipv6())].parse().unwrap();
    assert_eq!((envelope.ip.source(), envelope.ip.destination()), (own, reporter));
    assert_eq!((envelope.ports.source, envelope.ports.destination), (PORT, 40_001));
    if reporter.is_ipv6() {
        // RFC 8200 8.1: addresses, length, protocol, and all of UDP add up to ones.
        let udp = &frame[frame.len() - payload.len() - 8..];
        let addresses = &frame[ethernet.len_bytes() + 8..ethernet.len_bytes() + 40];
        let words = addresses.chunks(2).chain(udp.chunks(2)).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
        let sum = words.sum::<u32>() + u32::try_from(udp.len()).unwrap() + 17;
        let sum = (sum & 0xffff) + (sum >> 16);
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
    Answer::parse(payload).unwrap()
}

/// What has become of the last report.
fn outcome(before: &Counts, after: &Counts) -> &'static str {
    if after.stored > before.stored {
        return "stored";
    }
    if after.probes > before.probes {
        return "probe";
    }
    let mut discarded = after.discarded.iter();
    discarded.find(|(reason, count)| before.discarded.get(*reason) != Some(count)).unwrap().0
}

fn ethernet(tags: Tags) -> Ethernet {
    Ethernet { destination: OWN_MAC, source: REPORTER_MAC, tags }
}

fn frame_with(tags: Tags, source: IpAddr, own: IpAddr, port: u16, datagram: &[u8]) -> Vec<u8> {
    let envelope = Envelope::socket((source, 40_001).into(), (own, port).into()).unwrap();
    let ethernet = ethernet(tags);
    let mut frame = vec![0; ethernet.len_bytes() + envelope.len_bytes() + datagram.len()];
    let mut at = ethernet.write(envelope.ip.ether_type(), &mut frame).unwrap();
    at += envelope.write(datagram.len(), &mut frame[at..]).unwrap();
    frame[at..].copy_from_slice(datagram);
    // test_run wants whole frames, as a link has them.
    frame.resize(frame.len().max(60), 0);
    frame
}

fn frame(source: IpAddr, datagram: &[u8]) -> Vec<u8> {
    let own = OWN[usize::from(source.is_ipv6())].parse().unwrap();
    frame_with(Tags::None, source, own, PORT, datagram)
}

#[derive(Debug, Clone, TypeGenerator)]
struct Shot {
    is_xdp: bool,
    is_ipv6: bool,
    table: u8,
    is_of_table: bool,
    primitive: u8,
    flags: u8,
    sequence: u8,
    reporter: u8,
    copies: u8,
    key: Vec<u8>,
    payload: [u8; 64],
    changes: [(u8, u8); 2],
    fate: u8,
}

impl Shot {
    fn datagram(&self) -> Vec<u8> {
        let all = tables();
        let (number, _, shape) = all[usize::from(self.table) % all.len()];
        let key = if self.key.is_empty() { &[7][..] } else { &self.key[..self.key.len().min(64)] };
        let copies = match self.copies % 8 {
            count @ 0..4 => Copies::All(count + 1),
            number => Copies::Only(number - 4),
        };
        let payload_bytes = match shape {
            Shape::KeyWrite(table) => table.payload_bytes,
            Shape::Append(list, _) => list.entry_bytes,
            Shape::KeyIncrement(..) => 8,
        };
        // Some are not as long as the table's.
        let is_shorter = self.fate & 0x3f == 2 && payload_bytes > 1;
        let payload = &self.payload[..usize::from(payload_bytes) - usize::from(is_shorter)];
        let addend = u64::from_le_bytes(*self.payload.first_chunk().unwrap());
        let primitive = match shape {
            _ if !self.is_of_table || self.primitive < 20 => self.primitive % 4,
            Shape::KeyWrite(_) => 1,
            Shape::Append(..) => 2,
            Shape::KeyIncrement(..) => 3,
        };
        let numbered = (self.flags & 7 == 0).then_some(u32::from(self.sequence % 8));
        let (body, sequence) = match primitive {
            0 => (Body::Probe { received: u32::from(self.sequence % 7) }, Some(u32::from(self.sequence % 8))),
            1 => (Body::KeyWrite { key, payload, copies }, numbered),
            2 => (Body::Append { payload }, numbered),
            _ => (Body::KeyIncrement { key, addend, copies }, numbered),
        };
        let report = Report {
            importance: Importance::ALL[usize::from(self.flags >> 3) % 3],
            immediate: self.flags >> 6 == 3,
            sequence,
            reporter: u32::from(self.reporter % 2),
            table: number,
            access: access(number),
            generation: self.reporter,
            body,
        };
        let mut datagram = vec![0; MAX_REPORT_BYTES];
        let length = report.write(&mut datagram).unwrap();
        datagram.truncate(length);
        // Some are damaged.
        for (at, value) in &self.changes[..usize::from(self.fate % 16 == 1) + usize::from(self.fate % 32 == 1)] {
            let at = usize::from(*at) % 24.min(datagram.len());
            datagram[at] = *value;
        }
        match self.fate {
            250..254 => datagram.truncate(usize::from(self.copies) % datagram.len()),
            254.. => datagram.extend([0; 3]),
            _ => {}
        }
        datagram
    }
}

#[test]
fn whatever_comes_both_do_the_same() {
    let rig = Mutex::new(Rig::new(Duration::from_nanos(LONG_NS), None));
    let seen = Mutex::new(BTreeMap::new());
    check!().with_type::<Vec<Shot>>().with_iterations(300).for_each(|shots| {
        for shot in shots {
            let source = REPORTERS[usize::from(shot.is_ipv6)].parse().unwrap();
            let hook = HOOKS[usize::from(shot.is_xdp)];
            let outcome = rig.lock().unwrap().compare(hook, source, &shot.datagram());
            *seen.lock().unwrap().entry(outcome).or_insert(0) += 1;
        }
    });
    // An agreement on little would say little.
    let seen = seen.into_inner().unwrap();
    let reasons = [
        "stored",
        "probe",
        "duplicate",
        "gap",
        "other_primitive",
        "other_payload",
        "access",
        "table",
        "length",
        "version",
    ];
    reasons.iter().for_each(|reason| assert!(seen.contains_key(reason), "no {reason} in {seen:?}"));
}

/// A full list goes around, in both.
#[test]
fn lists_go_around() {
    let mut rig = Rig::new(Duration::from_nanos(LONG_NS), None);
    for (number, _, shape) in tables() {
        let Shape::Append(list, _) = shape else { continue };
        let all = u32::from(list.batch) << (list.batches_log2 + 1);
        for at in 0..all + 5 {
            let payload: Vec<u8> = (0..list.entry_bytes).map(|byte| at.to_le_bytes()[0] ^ byte).collect();
            let report = report(number, Body::Append { payload: &payload });
            let hook = HOOKS[usize::from(at % 3 == 0)];
            assert_eq!(rig.compare(hook, REPORTERS[0].parse().unwrap(), &datagram(&report)), "stored");
        }
    }
}

fn report(table: u16, body: Body<'_>) -> Report<'_> {
    let (importance, immediate, sequence, reporter) = (Importance::Low, false, None, 1);
    Report { importance, immediate, sequence, reporter, table, access: access(table), generation: 0, body }
}

fn datagram(report: &Report<'_>) -> Vec<u8> {
    let mut datagram = vec![0; report.len_bytes()];
    report.write(&mut datagram).unwrap();
    datagram
}

/// What waits in a list is written by the kernel's timer, without another report.
#[test]
fn what_waits_is_written_in_time() {
    let rig = Rig::new(Duration::from_millis(20), None);
    let source: IpAddr = REPORTERS[0].parse().unwrap();
    let Some((number, first_block, Shape::Append(list, position))) =
        tables().into_iter().find(|(number, ..)| *number == 2)
    else {
        unreachable!()
    };
    let mut next = position;
    for round in 0..3u8 {
        for entry in 0..5u8 {
            let payload = [round * 16 + entry; 18];
            let report = report(number, Body::Append { payload: &payload });
            assert_eq!(rig.run(Hook::Tc, &frame(source, &datagram(&report))), Some(Exit::Stored));
        }
        let begun = Instant::now();
        let from = usize::try_from(u64::from(first_block) * 1024 + list.offset(next.batch)).unwrap();
        let entries = loop {
            let bytes = rig.bytes();
            let found = list.decode(&bytes[from..from + list.batch_bytes()]).filter(|batch| batch.position == next);
            if let Some(batch) = found {
                next = batch.end();
                break batch.entries.to_vec();
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "nothing was written");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(entries, (0..5u8).flat_map(|entry| [round * 16 + entry; 18]).collect::<Vec<_>>());
    }
    assert_eq!(next, Position { batch: position.batch + 3, entry: position.entry + 15 });
}

#[test]
fn what_is_not_for_it_passes_and_what_must_not_be_is_counted() {
    let rig = Rig::new(Duration::from_nanos(LONG_NS), Some(Rate { per_second: 1, burst: 3 }));
    let [own, own6] = OWN.map(|own| own.parse::<IpAddr>().unwrap());
    let [source, source6] = REPORTERS.map(|source| source.parse::<IpAddr>().unwrap());
    let good = datagram(&report(0, Body::KeyWrite { key: b"k", payload: &[1; 20], copies: Copies::All(2) }));
    let tag = |tci| Tags::One(Tag { tpid: Tpid::Customer, tci });
    for hook in HOOKS {
        let other = frame_with(Tags::None, source, own, PORT + 1, &good);
        assert_eq!(rig.run(hook, &other), None, "another port");
        let other = frame_with(Tags::None, source, "10.1.2.5".parse().unwrap(), PORT, &good);
        assert_eq!(rig.run(hook, &other), None, "another host");
        assert_eq!(rig.run(hook, &frame_with(tag(7), source, own, PORT, &good)), None, "a VLAN");
        let stranger = frame_with(Tags::None, "10.1.2.9".parse().unwrap(), own, PORT, &good);
        assert_eq!(rig.run(hook, &stranger), Some(Exit::Source));
        let mut bad = frame(source, &good);
        bad[24] ^= 1;
        assert_eq!(rig.run(hook, &bad), Some(Exit::Ipv4Checksum));
        let mut bad = frame(source6, &good);
        bad[59] ^= 1;
        assert_eq!(rig.run(hook, &bad), Some(Exit::UdpLength));
        let mut bad = frame(source, &good);
        bad.truncate(bad.len() - 1);
        assert_eq!(rig.run(hook, &bad), Some(Exit::IpLength));
    }
    // Three at once, of each source; with a priority tag, too.
    for (source, own) in [(source, own), (source6, own6)] {
        let frame = frame_with(tag(0xe000), source, own, PORT, &good);
        let exits: Vec<_> = (0..5).map(|_| rig.run(Hook::Xdp, &frame).unwrap()).collect();
        assert_eq!(exits, [Exit::Stored, Exit::Stored, Exit::Stored, Exit::Budget, Exit::Budget]);
    }
    rig.translator.remove_tables(&[0]).unwrap();
    assert_eq!(rig.run(Hook::Tc, &frame(source, &good)), Some(Exit::Table));
    rig._responder.set_lease(Duration::ZERO).unwrap();
    assert_eq!(rig.run(Hook::Tc, &frame(source, &good)), Some(Exit::Lease));
}

/// What waited for a list is not written into a table that has taken the list's number meanwhile.
#[test]
fn what_waits_for_a_list_that_is_gone_goes_nowhere() {
    let rig = Rig::new(Duration::from_millis(20), None);
    let source: IpAddr = REPORTERS[0].parse().unwrap();
    let [(_, _, key_write), _, (gone, first_block, _), (other, ..), ..] = tables();
    let append = |number, payload: &[u8]| {
        let report = report(number, Body::Append { payload });
        assert_eq!(rig.run(Hook::Tc, &frame(source, &datagram(&report))), Some(Exit::Stored));
    };
    append(gone, &[0xaa; 18]);
    let place = Place { slab: SLAB, first_block };
    rig.translator.put_table(gone, &Table { access: access(gone), shape: key_write, place }).unwrap();
    append(other, &[0xbb; 64]);
    let begun = Instant::now();
    // The other list's timer began later.
    while !rig.bytes().contains(&0xbb) {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing was written");
        std::thread::sleep(Duration::from_millis(1));
    }
    let from = usize::try_from(first_block).unwrap() * 1024;
    assert!(rig.bytes()[from..from + 4096].iter().all(|byte| *byte == 0));
}

/// What was numbered and could not be stored is sent again, and is no duplicate then.
#[test]
fn what_could_not_be_stored_has_not_come() {
    let rig = Rig::new(Duration::from_nanos(LONG_NS), None);
    let [(_, _, shape), ..] = tables();
    let place = Place { slab: SLAB + 1, first_block: 0 };
    rig.translator.put_table(7, &Table { access: access(7), shape, place }).unwrap();
    let source = REPORTERS[0].parse().unwrap();
    let run = |body, hook| {
        let report = Report { sequence: Some(1), ..report(7, body) };
        rig.run(hook, &frame(source, &datagram(&report))).unwrap()
    };
    assert_eq!(run(Body::Probe { received: 0 }, Hook::Tc), Exit::Probe);
    let write = Body::KeyWrite { key: b"k", payload: &[1; 20], copies: Copies::All(2) };
    assert_eq!([Hook::Tc, Hook::Xdp].map(|hook| run(write, hook)), [Exit::Slab; 2]);
    rig.translator
        .put_table(7, &Table { access: access(7), shape, place: Place { slab: SLAB, first_block: 0 } })
        .unwrap();
    assert_eq!([Hook::Tc, Hook::Xdp].map(|hook| run(write, hook)), [Exit::Stored, Exit::Duplicate]);
}

/// A quarter of the verifier's limit: room for a kernel that walks more than those tested.
#[test]
#[allow(clippy::print_stdout)]
fn programs_stay_far_below_the_verifier_s_limit() {
    let rig = Rig::new(Duration::from_millis(10), None);
    for hook in HOOKS {
        let info = rig.translator.info(hook).unwrap();
        println!("{hook}: {} verified, {} translated", info.verified_insns, info.translated_insns);
        assert!(info.verified_insns > 0 && info.verified_insns < 250_000, "{info:?}");
    }
}

/// Loaded once, kept, replaced with what is in the tables, and taken away: behind the responder, which gives it frames.
#[test]
fn behind_a_responder_it_goes_on_until_it_is_taken_away() {
    let world = onlooker_testbed::World::new();
    let home = Home::new(world.bpffs(), "test").unwrap();
    let responder = Pinned::load(&ResponderConfig::new(4792), &home).unwrap();
    responder.create_slab(SLAB, SLAB_BLOCKS).unwrap();
    responder.set_own_addresses(&OWN.map(|own| own.parse().unwrap())).unwrap();
    responder.set_lease(Duration::from_secs(3600)).unwrap();
    let source: IpAddr = REPORTERS[0].parse().unwrap();
    let [(number, first_block, shape), ..] = tables();
    let write = Body::KeyWrite { key: b"k", payload: &[1; 20], copies: Copies::All(2) };
    let good = frame(source, &datagram(&report(number, write)));
    // TC_ACT_UNSPEC and TC_ACT_SHOT; XDP_PASS and XDP_DROP.
    let verdicts = || {
        [(responder.tc(), [u32::MAX, 2]), (responder.xdp(), [2, 1])].map(|(program, [pass, drop])| {
            match program.run(&good, 1).unwrap().verdict {
                verdict if verdict == pass => "passed",
                verdict if verdict == drop => "taken",
                other => panic!("{other}"),
            }
        })
    };
    assert_eq!(verdicts(), ["passed"; 2], "nobody is there");
    let config = Config { port: PORT, source_rate: None, wait: Duration::from_millis(10) };
    let (translator, outcome) = Translator::ensure(&config, &responder).unwrap();
    assert_eq!(outcome, Outcome::Loaded);
    let table = Table { access: access(number), shape, place: Place { slab: SLAB, first_block } };
    translator.put_table(number, &table).unwrap();
    translator.set_sources(&[Prefix::host(source)]).unwrap();
    assert_eq!(verdicts(), ["taken"; 2]);
    let stored = |translator: &Translator| translator.counters().unwrap().get(Exit::Stored);
    assert_eq!(stored(&translator), 2);
    drop(translator);
    assert_eq!(verdicts(), ["taken"; 2], "nobody holds it");
    let (translator, outcome) = Translator::ensure(&config, &responder).unwrap();
    assert_eq!((outcome, stored(&translator)), (Outcome::Kept, 4));
    let other = Config { wait: Duration::from_millis(20), ..config };
    let (translator, outcome) = Translator::ensure(&other, &responder).unwrap();
    assert_eq!((outcome, translator.tables().unwrap()), (Outcome::Replaced, vec![(number, table)]));
    assert_eq!((verdicts(), stored(&translator)), (["taken"; 2], 6));
    drop(translator);
    let translator = Translator::open(&home).unwrap().unwrap();
    assert_eq!(stored(&translator), 6);
    assert!(Translator::uninstall(&responder).unwrap());
    assert_eq!(verdicts(), ["passed"; 2]);
    assert!(!Translator::uninstall(&responder).unwrap() && Translator::open(&home).unwrap().is_none());
    home.purge().unwrap();
}
