// SPDX-License-Identifier: Apache-2.0
//! Telemetry reports over a real device into the memory of an agent's kernel translator, and questions to it by the soft requester, while agents are
//! killed and started with other tables. Needs root.

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use common::world::{KernelReader, World};
use onlooker_agent_lib::config::Config;
use onlooker_agent_lib::config::telemetry::{AccessKey, Primitive, Table as Configured};
use onlooker_agent_lib::units::{Size, Span};
use onlooker_dta::key_write::Consensus;
use onlooker_telemetry::{Asked, Entries, Table, Tail, counts, values};
use onlooker_testbed::until;
use onlooker_translator::{Exit, Translator};
use onlooker_wire::dta::{Body, Copies, Importance, PORT, Report};

const KEY: u32 = 0x1234_abcd;

fn table(number: u16, primitive: Primitive, memory_kib: u64) -> Configured {
    let is_counters = primitive == Primitive::KeyIncrement;
    Configured {
        name: format!("table_{number}"),
        number,
        primitive,
        memory: Size::from_bytes(memory_kib << 10),
        access_key: AccessKey(KEY),
        payload_bytes: if is_counters { None } else { Some(8) },
        check_bytes: None,
        batch: None,
        epoch: None,
    }
}

fn with_tables(config: &mut Config, tables: &[Configured]) {
    let telemetry = &mut config.kernel.telemetry;
    telemetry.allow = vec!["127.0.0.0/8".parse().unwrap()];
    telemetry.wait = Span::from_ms(1);
    telemetry.tables = tables.to_vec();
}

/// Sends reports from loopback.
struct Reporter(UdpSocket);

impl Reporter {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", PORT)).unwrap();
        Self(socket)
    }

    fn send(&self, table: u16, access: u32, body: Body<'_>) {
        let report = Report {
            importance: Importance::Low,
            immediate: false,
            sequence: None,
            reporter: 1,
            table,
            access,
            generation: 0,
            body,
        };
        let mut datagram = vec![0; report.len_bytes()];
        report.write(&mut datagram).unwrap();
        // Refused where nobody is at the port.
        let _ = self.0.send(&datagram);
    }

    fn write(&self, table: u16, key: &[u8], value: u64) {
        self.send(table, KEY, Body::KeyWrite { key, payload: &value.to_be_bytes(), copies: Copies::All(2) });
    }
}

fn named(reader: &mut KernelReader, number: u16) -> Table {
    let find = |tables: Vec<Table>| tables.into_iter().find(|table| table.number == number);
    find(reader.tables()).unwrap_or_else(|| panic!("no table {number}"))
}

fn value(reader: &mut KernelReader, table: &Table, key: &[u8]) -> Option<u64> {
    let asked = values(&mut reader.memory(), table, &[key], Consensus::Plurality).unwrap();
    match &asked[..] {
        [Asked::Value { payload, .. }] => Some(u64::from_be_bytes(payload.as_slice().try_into().unwrap())),
        _ => None,
    }
}

/// So many entries, however many batches time has made of them; none is lost.
fn next_entries(reader: &mut KernelReader, table: &Table, tail: &mut Tail, count: usize) -> Vec<u64> {
    let mut seen = Vec::new();
    until("all entries", || {
        let Entries { entries, lost } = tail.read(&mut reader.memory(), table).unwrap();
        assert_eq!(lost, 0);
        seen.extend(entries.into_iter().map(|(_, _, entry)| u64::from_be_bytes(entry.try_into().unwrap())));
        (seen.len() >= count).then_some(())
    });
    seen
}

#[test]
fn reports_are_stored_with_an_agent_and_without_one() {
    let Some(world) = World::new() else { return };
    let tables =
        [table(1, Primitive::KeyWrite, 64), table(2, Primitive::Append, 64), table(3, Primitive::KeyIncrement, 64)];
    let mut place = world.place(&["lo"], |config| with_tables(config, &tables));
    let mut agent = place.start();
    let reporter = Reporter::new();
    let mut reader = KernelReader::connect(&agent);
    let flows = named(&mut reader, 1);
    assert_eq!((flows.name.as_str(), flows.geometry.slots_log2()), ("table_1", 12), "entries of 16 bytes");
    reporter.write(1, b"flow", 7);
    assert_eq!(value(&mut reader, &flows, b"flow"), Some(7), "it was there when sending was over");
    assert_eq!(value(&mut reader, &flows, b"other"), None);

    // A list: some batches of 16, and one that time ends.
    let events = named(&mut reader, 2);
    let mut tail = Tail::oldest(&mut reader.memory(), &events).unwrap();
    (0..100u64).for_each(|event| reporter.send(2, KEY, Body::Append { payload: &event.to_be_bytes() }));
    assert_eq!(next_entries(&mut reader, &events, &mut tail, 100), (0..100).collect::<Vec<_>>());

    let count = |reader: &mut KernelReader, key: &[u8]| {
        let counters = named(reader, 3);
        let (epoch, counted) = counts(&mut reader.memory(), &counters, &[key], 2).unwrap();
        (epoch.number, counted[0].now, counted[0].before)
    };
    for _ in 0..10 {
        reporter.send(3, KEY, Body::KeyIncrement { key: b"flow", addend: 5, copies: Copies::All(2) });
    }
    assert_eq!(count(&mut reader, b"flow"), (0, 50, None));

    // What is not to be stored is counted with its reason.
    reporter.send(1, KEY + 1, Body::KeyWrite { key: b"flow", payload: &[0; 8], copies: Copies::All(2) });
    reporter.send(4, KEY, Body::Append { payload: &[1; 8] });
    reporter.send(2, KEY, Body::Append { payload: &[1; 9] });
    let translator = Translator::open(&world.home()).unwrap().expect("it is there");
    let counted = translator.counters().unwrap();
    let found = [Exit::Stored, Exit::Access, Exit::Table, Exit::OtherPayload].map(|exit| counted.get(exit));
    assert_eq!(found, [111, 1, 1, 1]);
    assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), 114, "reports sent");

    agent.kill();
    reporter.write(1, b"alone", 8);
    assert_eq!(value(&mut reader, &flows, b"alone"), Some(8), "nobody needs an agent for that");

    // Another one: what is as it was goes on, the list has another shape, the counters are gone, a table is new.
    let mut list = table(2, Primitive::Append, 64);
    list.batch = Some(4);
    let key_write = table(1, Primitive::KeyWrite, 64);
    with_tables(&mut place.config, &[table(4, Primitive::KeyWrite, 3000), list, key_write]);
    place.write();
    let mut agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    let numbers: Vec<u16> = reader.tables().iter().map(|table| table.number).collect();
    assert_eq!(numbers, [1, 2, 4]);
    let flows = named(&mut reader, 1);
    assert_eq!([&b"flow"[..], b"alone"].map(|key| value(&mut reader, &flows, key)), [Some(7), Some(8)]);
    reporter.write(4, b"flow", 9);
    reporter.write(1, b"alone", 10);
    let new = named(&mut reader, 4);
    assert_eq!((value(&mut reader, &new, b"flow"), value(&mut reader, &flows, b"alone")), (Some(9), Some(10)));
    let events = named(&mut reader, 2);
    let mut tail = Tail::oldest(&mut reader.memory(), &events).unwrap();
    assert_eq!(tail.next_entry(), 0, "begun again");
    (0..4u64).for_each(|event| reporter.send(2, KEY, Body::Append { payload: &event.to_be_bytes() }));
    assert_eq!(next_entries(&mut reader, &events, &mut tail, 4), [0, 1, 2, 3]);

    // Off: reports go to whoever listens.
    agent.kill();
    with_tables(&mut place.config, &[]);
    place.write();
    let agent = place.start();
    assert_eq!(KernelReader::connect(&agent).tables(), []);
    assert!(Translator::open(&world.home()).unwrap().is_none());
    let listener = UdpSocket::bind(("127.0.0.1", PORT)).unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    reporter.write(1, b"flow", 7);
    assert!(listener.recv(&mut [0; 200]).is_ok(), "nothing takes it away");
}

#[test]
fn counters_begin_again_with_each_epoch() {
    let Some(world) = World::new() else { return };
    let mut counters = table(9, Primitive::KeyIncrement, 3000);
    counters.epoch = Some(Span::from_s(1));
    let place = world.place(&["lo"], |config| with_tables(config, &[counters.clone()]));
    let mut agent = place.start();
    let reporter = Reporter::new();
    let mut reader = KernelReader::connect(&agent);
    let counters = named(&mut reader, 9);
    let count = |reader: &mut KernelReader| counts(&mut reader.memory(), &counters, &[b"k"], 4).unwrap();
    let add = || reporter.send(9, KEY, Body::KeyIncrement { key: b"k", addend: 1, copies: Copies::All(4) });
    let (begun, _) = count(&mut reader);
    add();
    // It was counted in this epoch or in the next.
    until("an epoch later", || (count(&mut reader).0.number > begun.number).then_some(()));
    let mut last = count(&mut reader);
    let mut total = last.1[0].now + last.1[0].before.unwrap_or(0);
    assert_eq!(total, 1);
    for _ in 0..3 {
        let number = last.0.number;
        last = until("the next epoch", || Some(count(&mut reader)).filter(|(epoch, _)| epoch.number > number));
        assert_eq!(last.0.number, number + 1);
        assert!(last.0.began_ns > last.0.before_began_ns && last.0.before_began_ns > 0);
        total = last.1[0].before.unwrap();
        add();
    }
    assert_eq!(total, 1, "one in each");

    agent.kill();
    let while_dead = count(&mut reader).0.number;
    drop(agent);
    let _agent = place.start();
    let mut reader = KernelReader::connect(&_agent);
    let counters = named(&mut reader, 9);
    until("an epoch after the restart", || {
        let (epoch, _) = counts(&mut reader.memory(), &counters, &[b"k"], 4).unwrap();
        (epoch.number > while_dead).then_some(())
    });
}
