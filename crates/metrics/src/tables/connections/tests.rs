// SPDX-License-Identifier: Apache-2.0
//! Connections that tests make up.

use onlooker_region::Block;
use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;
use onlooker_region::limits::BLOCK_WORDS;

use super::super::sheet::tests::memory;
use super::*;

/// What a test says there is.
#[derive(Default)]
struct Made {
    now: Vec<Record>,
    ended: Vec<Record>,
    /// Whether sockets, and ends, cannot be read to the end.
    fails: [bool; 2],
}

impl Sockets for Made {
    fn each(&mut self, take: &mut dyn FnMut(&Record)) -> Result<(), String> {
        self.now.iter().for_each(take);
        if self.fails[0] { Err("made up".into()) } else { Ok(()) }
    }

    fn each_ended(&mut self, take: &mut dyn FnMut(&Record)) -> Result<Ended, String> {
        let seen = self.ended.len() as u64;
        self.ended.drain(..).for_each(|record| take(&record));
        if self.fails[1] { Err("made up".into()) } else { Ok(Ended { seen, dropped: 0 }) }
    }
}

fn record(local_port: u16, remote_port: u16, cookie: u64) -> Record {
    Record {
        local: "::ffff:10.0.0.1".parse().unwrap(),
        remote: "fd00::2".parse().unwrap(),
        local_port,
        remote_port,
        state: ESTABLISHED,
        cookie,
        bytes_acked: 1000,
        bytes_received: 50,
        retransmits: 1,
        srtt_us: 100,
        rttvar_us: 20,
        congestion_window: 10,
        receive_queue: 0,
        send_queue: 7,
        segments_sent: 5,
        segments_received: 6,
        unacknowledged: 1,
        lost: 0,
    }
}

fn listener(port: u16) -> Record {
    let none = Ipv6Addr::UNSPECIFIED;
    Record {
        local: none,
        remote: none,
        state: LISTEN,
        receive_queue: 3,
        send_queue: 128,
        ..record(port, 0, port.into())
    }
}

struct Fixture {
    table: Table<Made>,
    grounds: Vec<Ground>,
    regions: Vec<Region>,
}

/// A sample as text: name, labels, value.
type Line = (String, f64);

impl Fixture {
    fn new(rows: u32, ports: u32) -> Self {
        let options = Options { interval: Span::from_s(5), rows, ports };
        let regions = regions(&options);
        let grounds: Vec<Ground> = (1..)
            .zip(&regions)
            .map(|(region, made)| {
                made.schema.check().unwrap();
                Ground { memory: memory(made.schema.blocks().into()), identity: Identity::first(region, 5) }
            })
            .collect();
        let table = Table::new(&options, Made::default(), &grounds, 1);
        Self { table, grounds, regions }
    }

    fn run(&mut self, now: &[Record]) {
        self.table.sockets.now = now.to_vec();
        self.table.run(7).unwrap();
    }

    fn read(&self, region: usize) -> Vec<Line> {
        let Ground { memory, identity } = &self.grounds[region];
        let blocks: Vec<Block> = memory
            .words()
            .chunks_exact(BLOCK_WORDS)
            .map(|words| {
                let mut block = Block::default();
                block.copy_from(words);
                block
            })
            .collect();
        let mut all = Vec::new();
        let plan = Plan::new(self.regions[region].schema.clone());
        let refused = plan.decode(*identity, &blocks, |sample| {
            let labels: Vec<String> =
                sample.labels().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
            let generation = sample.row.map_or(0, |row| row.generation);
            all.push((format!("{} {} {generation}", sample.field.name, labels.join(" ")), sample.scaled()));
        });
        assert!(refused.unwrap().is_empty());
        all
    }

    /// The only value whose line begins so.
    #[track_caller]
    fn value(&self, region: usize, begin: &str) -> f64 {
        let all = self.read(region);
        let found: Vec<&Line> = all.iter().filter(|(line, _)| line.starts_with(begin)).collect();
        assert_eq!(found.len(), 1, "{begin}: {all:#?}");
        found[0].1
    }

    fn has(&self, region: usize, begin: &str) -> bool {
        self.read(region).iter().any(|(line, _)| line.starts_with(begin))
    }
}

const ROW: &str = "local_address=10.0.0.1 local_port=80 remote_address=fd00::2 remote_port=4000";

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12
}

#[test]
fn a_row_has_the_tuple_as_labels_and_units_as_prometheus_has_them() {
    let mut fixture = Fixture::new(12, 4);
    fixture.run(&[listener(80), record(80, 4000, 1)]);
    for (name, value) in [
        ("onlooker_tcp_connection_state", 1.0),
        ("onlooker_tcp_connection_acked_bytes_total", 1000.0),
        ("onlooker_tcp_connection_rtt_seconds", 1e-4),
        ("onlooker_tcp_connection_rttvar_seconds", 2e-5),
        ("onlooker_tcp_connection_send_queue_bytes", 7.0),
    ] {
        assert!(near(fixture.value(0, &format!("{name} {ROW} 1")), value), "{name}");
    }
    assert_eq!(fixture.read(0).len(), COLUMNS.len(), "a listener is no connection");
    assert!(near(fixture.value(1, "onlooker_table_rows table=tcp_connections"), 1.0));
    assert!(near(fixture.value(1, "onlooker_tcp_sockets state=listen"), 1.0));
}

#[test]
fn a_tuple_that_is_used_again_is_another_row() {
    let mut fixture = Fixture::new(12, 4);
    fixture.run(&[record(80, 4000, 1)]);
    fixture.run(&[Record { bytes_acked: 1500, ..record(80, 4000, 1) }]);
    let acked = |fixture: &Fixture, generation| {
        fixture.value(0, &format!("onlooker_tcp_connection_acked_bytes_total {ROW} {generation}"))
    };
    assert!(near(acked(&fixture, 1), 1500.0));
    // More bytes than before, so that only the cookie tells.
    fixture.run(&[Record { bytes_acked: 2000, ..record(80, 4000, 2) }]);
    assert!(near(acked(&fixture, 2), 2000.0));
    fixture.run(&[]);
    assert!(fixture.read(0).is_empty());
}

#[test]
fn a_connection_keeps_its_row_and_is_found_there() {
    let mut fixture = Fixture::new(12, 4);
    let others: Vec<Record> = (0..5).map(|at| record(80, 5000 + at, u64::from(at) + 10)).collect();
    fixture.run(&[others.as_slice(), &[record(80, 4000, 1)]].concat());
    let row_of = |fixture: &Fixture, cookie: u64| {
        let found: Vec<(usize, u64, u64)> =
            fixture.table.connections.live().filter(|(.., entity)| *entity == cookie).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        (found[0].0, found[0].1)
    };
    let first = row_of(&fixture, 1);
    for number in 1..5_u16 {
        let now = Record { bytes_acked: 1000 + u64::from(number), ..record(80, 4000, 1) };
        // Others end one by one, and it comes first or last.
        let rest = &others[usize::from(number)..];
        fixture.run(&if number.is_multiple_of(2) { [&[now], rest].concat() } else { [rest, &[now]].concat() });
        assert_eq!(row_of(&fixture, 1), first);
        assert_eq!(fixture.table.tracked[&1].row as usize, first.0, "so that no key is hashed");
        let acked = fixture.value(0, &format!("onlooker_tcp_connection_acked_bytes_total {ROW} 1"));
        assert!(near(acked, 1000.0 + f64::from(number)));
    }
}

#[test]
fn a_tuple_that_is_used_again_is_not_taken_for_the_row_that_is_known() {
    let mut fixture = Fixture::new(12, 4);
    let (old, new) = (record(80, 4000, 1), record(80, 4000, 2));
    fixture.run(&[old]);
    fixture.run(&[old]);
    // The run sees both: the tuple is the first one's.
    fixture.run(&[new, old]);
    let state = |generation| format!("onlooker_tcp_connection_state {ROW} {generation}");
    fixture.value(0, &state(2));
    assert!(near(fixture.value(1, "onlooker_table_rows "), 1.0));
    assert!(near(fixture.value(1, "onlooker_table_rows_missing "), 1.0));
    fixture.run(&[old]);
    fixture.value(0, &state(3));
    // A socket that is connected to another port keeps its cookie.
    fixture.run(&[Record { remote_port: 4001, ..old }]);
    assert!(!fixture.has(0, &state(3)), "the row of the old tuple has ended");
    let other = ROW.replace("4000", "4001");
    fixture.value(0, &format!("onlooker_tcp_connection_state {other} 1"));
    assert!(near(fixture.value(1, "onlooker_table_rows "), 1.0));
}

#[test]
fn what_a_failed_run_has_seen_counts_once() {
    for fails in [[true, false], [false, true]] {
        let mut fixture = Fixture::new(1, 4);
        let (a, b) = (record(80, 4000, 1), record(80, 4001, 2));
        fixture.table.sockets.fails = fails;
        fixture.table.sockets.now = vec![listener(80), a, b];
        assert!(fixture.table.run(7).is_err());
        fixture.table.sockets.fails = [false; 2];
        fixture.run(&[listener(80), Record { bytes_acked: 1200, ..a }, b]);
        for (begin, value) in [
            ("onlooker_tcp_port_connections port=80 state=established", 2.0),
            ("onlooker_tcp_port_connections port=80 state=listen", 1.0),
            ("onlooker_tcp_port_accept_queue port=80", 3.0),
            ("onlooker_tcp_port_accept_queue_limit port=80", 128.0),
            ("onlooker_tcp_port_rtt_seconds port=80", 2.0),
            ("onlooker_tcp_port_acked_bytes_total port=80", 2200.0),
            ("onlooker_tcp_connections_seen_total", 2.0),
            ("onlooker_table_rows_missing ", 1.0),
        ] {
            assert!(near(fixture.value(1, begin), value), "{fails:?}: {begin}");
        }
    }
}

#[test]
fn a_full_table_counts_what_has_no_row_and_ports_have_all() {
    let mut fixture = Fixture::new(6, 4);
    let all: Vec<Record> = (0..10).map(|at| record(80, 4000 + at, u64::from(at) + 1)).collect();
    let with_listener = |all: &[Record]| [&[listener(80)], all].concat();
    fixture.run(&with_listener(&all));
    assert!(near(fixture.value(1, "onlooker_table_rows "), 6.0));
    assert!(near(fixture.value(1, "onlooker_table_rows_missing "), 4.0));
    assert!(near(fixture.value(1, "onlooker_tcp_port_connections port=80 state=established"), 10.0));
    assert!(near(fixture.value(1, "onlooker_tcp_port_acked_bytes_total port=80"), 10_000.0));
    // The first six end: the others have rows at once.
    fixture.run(&with_listener(&all[6..]));
    assert!(near(fixture.value(1, "onlooker_table_rows "), 4.0));
    assert!(near(fixture.value(1, "onlooker_table_rows_missing "), 0.0));
    assert!(near(fixture.value(1, "onlooker_tcp_port_acked_bytes_total port=80"), 10_000.0), "nothing was gained");
}

#[test]
fn ports_sum_what_connections_gain() {
    let mut fixture = Fixture::new(12, 4);
    let (a, b) = (record(80, 4000, 1), record(5000, 6000, 2));
    fixture.run(&[listener(80), a, b]);
    let a = Record { bytes_acked: 1700, retransmits: 3, srtt_us: 1000, ..a };
    fixture.run(&[listener(80), a, b]);
    for (begin, value) in [
        ("onlooker_tcp_port_acked_bytes_total port=80", 1700.0),
        ("onlooker_tcp_port_retransmits_total port=80", 3.0),
        ("onlooker_tcp_port_acked_bytes_total port=0", 1000.0),
        ("onlooker_tcp_port_accept_queue port=80", 3.0),
        ("onlooker_tcp_port_accept_queue_limit port=80", 128.0),
        ("onlooker_tcp_port_rtt_seconds port=80", 2.0),
        ("onlooker_tcp_port_rtt_seconds port=0", 2.0),
        ("onlooker_tcp_connections_seen_total", 2.0),
    ] {
        assert!(near(fixture.value(1, begin), value), "{begin}");
    }
    // One that ended has its last values counted once, and one that no run saw all of its.
    fixture.table.sockets.ended =
        vec![Record { bytes_acked: 2000, ..a }, Record { bytes_acked: 10, ..record(80, 4001, 9) }];
    fixture.run(&[listener(80), b]);
    assert!(near(fixture.value(1, "onlooker_tcp_port_acked_bytes_total port=80"), 2010.0));
    assert!(near(fixture.value(1, "onlooker_tcp_connections_short_total"), 1.0));
    assert!(near(fixture.value(1, "onlooker_tcp_connections_ended_total"), 2.0));
}

/// Walking the sockets takes its time, and a program may begin to listen and have connections meanwhile.
#[test]
fn a_port_has_what_came_before_its_listener_was_seen() {
    let mut fixture = Fixture::new(12, 4);
    let a = record(80, 4000, 1);
    fixture.run(&[a]);
    fixture.run(&[listener(80), a]);
    assert!(near(fixture.value(1, "onlooker_tcp_port_acked_bytes_total port=80"), 1000.0));
    assert!(near(fixture.value(1, "onlooker_tcp_port_acked_bytes_total port=0"), 0.0));
    assert!(near(fixture.value(1, "onlooker_tcp_connections_seen_total"), 1.0));
}

#[test]
fn the_largest_ports_have_rows_and_the_rest_is_one() {
    let mut fixture = Fixture::new(64, 3);
    let mut all: Vec<Record> = [80, 81, 82].map(listener).to_vec();
    let of = |port: u16, count: u64| {
        (0..count).map(move |at| record(port, 4000 + u16::try_from(at).unwrap(), u64::from(port) * 100 + at))
    };
    all.extend(of(80, 5).chain(of(81, 3)).chain(of(82, 4)));
    fixture.run(&all);
    let rows = |fixture: &Fixture| {
        [0, 80, 81, 82].map(|port| fixture.has(1, &format!("onlooker_tcp_port_accept_queue port={port} ")))
    };
    assert_eq!(rows(&fixture), [true, true, false, true]);
    assert!(near(fixture.value(1, "onlooker_tcp_port_connections port=0 state=established"), 3.0));
    // A few more do not take another's row; twice as many do.
    all.extend(of(81, 5).skip(3));
    fixture.run(&all);
    assert_eq!(rows(&fixture), [true, true, false, true]);
    all.extend(of(81, 12).skip(5));
    fixture.run(&all);
    assert_eq!(rows(&fixture), [true, true, true, false]);
}

#[test]
fn classes_are_whole_at_every_size() {
    for (rows, ports) in [(1, 1), (16_384, 1024)] {
        let options = Options { interval: Span::from_s(5), rows, ports };
        let all = regions(&options);
        all.iter().for_each(|region| region.schema.check().unwrap());
        assert_eq!(all[0].schema.groups[0].layout(), Some(LAYOUT));
        assert_eq!(all[1].schema.groups[1].layout(), Some(PORT_LAYOUT));
    }
}
