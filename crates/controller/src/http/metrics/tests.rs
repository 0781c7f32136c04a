// SPDX-License-Identifier: Apache-2.0
use super::super::stream::Writer;
use super::own::LEFT_OUT;
use super::*;
use crate::engine::Pressure;
use crate::fleet::fixture::{Host as Memory, World};
use crate::usage::Look;
use onlooker_reader::By;
use onlooker_region::guard::commit;
use onlooker_series::exposition::samples;
use onlooker_transport::soft::Totals;
use std::collections::{BTreeSet, HashSet};
use std::io::Read as _;
use std::sync::atomic::Ordering;

mod figures;

fn copied(hosts: &[Arc<Host>], format: Format) -> Sheet {
    let mut own = Own::default();
    Draft::of(hosts, &mut own).settled(hosts, own, format)
}

fn bytes(sheet: &Sheet, is_packed: bool) -> Vec<u8> {
    let mut all = Vec::new();
    let mut take = |piece: axum::body::Bytes| {
        assert!(!piece.is_empty());
        all.extend_from_slice(&piece);
        Ok(())
    };
    let mut writer = Writer::new(is_packed, &mut take);
    sheet.write(&mut writer).unwrap();
    writer.finish().unwrap();
    all
}

fn exposition_as(world: &World, format: Format) -> String {
    String::from_utf8(bytes(&copied(&world.fleet.hosts(), format), false)).unwrap()
}

fn exposition(world: &World) -> String {
    exposition_as(world, Format::Text)
}

fn schema(fields: &str) -> String {
    format!(r#"{{"name":"s","groups":[{{"kind":"plain","blocks":1,"fields":[{fields}]}}]}}"#)
}

fn field(name: &str, metric: &str, slot: usize) -> String {
    format!(r#"{{"name":"{name}","metric":"{metric}","type":"u64","slot":{slot},"help":"Of a {metric}."}}"#)
}

fn histogram(name: &str, slot: usize) -> String {
    format!(
        r#"{{"name":"{name}","metric":"histogram","type":"u64","slot":{slot},"histogram":{{"grouping_power":0,"max_power":4}}}}"#
    )
}

/// Lines of series, whatever stands before their values.
fn is_sample(line: &&str) -> bool {
    !line.starts_with('#')
}

/// Each has one, whatever stands before the value; none of another's.
fn lines<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter(|line| is_sample(line) && line.starts_with(&format!("{name}{{"))).collect()
}

/// Families of programs, as many as get a name.
fn families(format: Format, metrics: &[(&str, &str)]) -> usize {
    let (mut world, mut host) = (World::new(), Memory::new(64));
    for (id, (name, metric)) in (300..).zip(metrics) {
        let field = if *metric == "histogram" { histogram(name, 0) } else { field(name, metric, 0) };
        host.region(id, "s", &[("pid", &id.to_string())], &schema(&field));
    }
    world.read("a", &host);
    let text = exposition_as(&world, format);
    let own = ["onlooker_host_", "node_boot_time"];
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter(|name| !own.iter().any(|own| name.starts_with(own)))
        .count()
}

#[test]
fn nothing_is_there_twice() {
    assert_eq!(families(Format::Text, &[("a_total", "counter"), ("a_total", "gauge"), ("b", "gauge")]), 2);
    // A histogram's samples have names of their own.
    for pair in [[("h", "histogram"), ("h_sum", "gauge")], [("h_bucket", "gauge"), ("h", "histogram")]] {
        assert_eq!(families(Format::Text, &pair), 1);
    }
    // OpenMetrics names a counter's family without `_total`.
    let pair = [("a_total", "counter"), ("a", "gauge")];
    assert_eq!((families(Format::OpenMetrics, &pair), families(Format::Text, &pair)), (1, 2));
    // What the controller says of hosts is nobody else's, whether it says it just now or not.
    assert_eq!(families(Format::Text, &[("onlooker_host_up", "gauge"), ("onlooker_host_gaps_total", "counter")]), 0);
}

/// A host that sorts first has a program that says what the kernel's metrics are, and what another host's program has.
#[test]
fn a_program_takes_no_name_from_anybody() {
    let lies = [
        field("node_load1", "counter", 0),
        field("shop_total", "gauge", 1),
        field("evil_gauge", "gauge", 2),
        histogram("node_vmstat", 20),
    ];
    let mut world = World::new();
    let mut first = Memory::new(64);
    first.region(300, "evil", &[("pid", "66")], &schema(&lies.join(",")));
    let kernels = [field("node_load1", "gauge", 0), field("node_vmstat_sum", "gauge", 1)];
    let honest = |host: &mut Memory, shop: u32| {
        host.region(2, "node_load", &[], &schema(&kernels.join(",")));
        host.region(shop, "shop", &[("pid", "77")], &schema(&field("shop_total", "counter", 0)));
    };
    let (mut second, mut third) = (Memory::new(64), Memory::new(64));
    honest(&mut second, 301);
    honest(&mut third, 302);
    for (name, host) in [("a", &first), ("b", &second), ("c", &third)] {
        world.read(name, host);
    }
    let text = exposition(&world);
    for name in ["node_load1", "node_vmstat_sum", "shop_total"] {
        let lines = lines(&text, name);
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines.iter().all(|line| line.contains(r#"instance="b""#) || line.contains(r#"instance="c""#)),
            "{text}"
        );
    }
    for said in [
        "# TYPE node_load1 gauge",
        "# HELP node_load1 Of a gauge.",
        "# TYPE shop_total counter",
        "# TYPE evil_gauge gauge",
    ] {
        assert!(text.contains(said), "{text}");
    }
    assert_eq!(lines(&text, "evil_gauge"), [r#"evil_gauge{instance="a",pid="66"} 0"#], "only what clashes goes");
    let left_out = [r#"{instance="a"} 3"#, r#"{instance="b"} 0"#, r#"{instance="c"} 0"#];
    assert_eq!(lines(&text, LEFT_OUT), left_out.map(|line| format!("{LEFT_OUT}{line}")));
}

/// However regions get two series of one name and labels past the agent.
#[test]
fn a_series_is_written_once_and_agents_come_first() {
    let mut world = World::new();
    let mut host = Memory::new(64);
    let gauge = schema(&field("x", "gauge", 0));
    let evil = host.region(300, "evil", &[], &gauge);
    evil.words.set(0, 1, 99);
    host.region(301, "evil", &[("pid", "66")], &gauge);
    world.read("a", &host);
    let agents = host.region(2, "x", &[], &gauge);
    agents.words.set(0, 1, 3);
    world.read("a", &host);
    assert_eq!(lines(&exposition(&world), "x"), [r#"x{instance="a"} 3"#, r#"x{instance="a",pid="66"} 0"#]);
}

/// Hosts with some of everything: arrays, tables, histograms, infos, programs.
fn mixed() -> World {
    let cpu = r#"{"name":"node_cpu","groups":[
        {"kind":"guarded","blocks":1,"acquisition":"computed","fields":[
            {"name":"node_cpu_seconds_total","metric":"counter","type":"u64","scale":1e-9,"labels":{"mode":"idle"},"help":"Time.","array":{"label":"cpu","count":4,"stride":1}},
            {"name":"node_load1","metric":"gauge","type":"f64","slot":8,"help":"Load."},
            {"name":"node_forks_total","metric":"counter","type":"u64","slot":9}]},
        {"kind":"guarded","blocks":1,"fields":[
            {"name":"node_uname_info","metric":"info","type":"text","bytes":16},
            {"name":"node_wait_seconds","metric":"histogram","type":"u64","slot":2,"scale":1e-9,"histogram":{"grouping_power":1,"max_power":8}}]}]}"#;
    let shop = r#"{"name":"shop","groups":[{"kind":"table","blocks":2,"key":[{"name":"queue","type":"text","bytes":8}],
        "fields":[{"name":"shop_length","metric":"gauge","type":"i64"},{"name":"shop_age","metric":"gauge","type":"u64","slot":1,"scale":0.5}]}]}"#;
    let mut world = World::new();
    for number in 0..7u64 {
        let mut host = Memory::new(64);
        let region = host.region(2, "node_cpu", &[], cpu);
        let me = region.entry.identity;
        commit(region.words.block(0), me, 9, |payload| {
            let load = f64::from(u32::try_from(number).unwrap()) / 3.0;
            payload.set_all(0, &[number * 1_000_000_007, 2, 3, 4, 0, 0, 0, 0, load.to_bits(), u64::MAX - number]);
        });
        commit(region.words.block(1), me.at(1), 9, |payload| {
            payload.set_all(0, &[u64::from_le_bytes(*b"Linux \"6"), number, 5, 0, number, 7]);
        });
        for pid in 0..number % 3 {
            let id = 900 + u32::try_from(pid).unwrap();
            let shop = host.region(id, "shop", &[("pid", &pid.to_string()), ("program", "sh\\op")], shop);
            for block in 0..2 {
                let words = [1 << 32 | 1, u64::from(b'q') + u64::from(block), number.wrapping_sub(3), number];
                let me = shop.entry.identity.at(block);
                commit(shop.words.block(block.into()), me, 9, |row| row.set_all(0, &words));
            }
        }
        world.read(&format!("host-{number}"), &host);
    }
    world
}

/// What there is of all hosts, one series after the other.
fn expected(world: &World) -> BTreeSet<String> {
    let mut text = String::new();
    for host in world.fleet.hosts().iter() {
        let shown = host.look();
        for (_, entity) in shown.entities.iter() {
            for (_, series, full) in entity.shown() {
                let value = series.value(shown.entities.row(entity)).unwrap();
                samples(&mut text, &series.name, &full[series.name.len()..], &value, series.scale);
            }
        }
    }
    text.lines().map(str::to_owned).collect()
}

#[test]
fn it_is_every_series_of_every_host_family_by_family() {
    let world = mixed();
    let expected = expected(&world);
    assert!(expected.len() > 100, "{}", expected.len());
    for format in [Format::Text, Format::OpenMetrics] {
        let text = exposition_as(&world, format);
        let shown = text.lines().filter(|line| is_sample(line) && !line.starts_with("onlooker_host_"));
        assert_eq!(shown.map(str::to_owned).collect::<BTreeSet<_>>(), expected);
        assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        // Each family has its header lines once, and its samples behind them.
        let (mut families, mut family) = (HashSet::new(), "");
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(head) = line.strip_prefix("# TYPE ") {
                family = head.split(' ').next().unwrap();
                assert!(families.insert(family), "{line}");
            } else if is_sample(&line) {
                assert!(line.starts_with(family), "{line} among {family}");
            }
        }
        let helps: Vec<&str> = text.lines().filter(|line| line.starts_with("# HELP ")).collect();
        assert_eq!(helps.iter().collect::<HashSet<_>>().len(), helps.len());
    }
}

#[test]
fn what_is_packed_is_the_same() {
    let world = mixed();
    let sheet = copied(&world.fleet.hosts(), Format::Text);
    let (plain, packed) = (bytes(&sheet, false), bytes(&sheet, true));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == plain && packed.len() * 4 < plain.len(), "{} of {}", packed.len(), plain.len());
}

#[test]
fn a_part_has_its_hosts_only() {
    let world = mixed();
    let hosts = [world.fleet.host("host-4").unwrap()];
    let text = String::from_utf8(bytes(&copied(&hosts, Format::Text), false)).unwrap();
    let whole = exposition(&world);
    let of_host = |line: &&str| is_sample(line) && line.contains(r#"instance="host-4""#);
    let name = |line: &str| line.split(' ').next().unwrap().to_owned();
    // (Ages are of another moment.)
    let expected: Vec<String> = whole.lines().filter(of_host).map(name).collect();
    assert_eq!(text.lines().filter(is_sample).map(name).collect::<Vec<_>>(), expected);
}

#[test]
fn what_carries_reads_says_what_it_has_counted() {
    let (pressure, mut own) = (Pressure::default(), Own::default());
    pressure.unusable[By::Tcp as usize].fetch_add(3, Ordering::Relaxed);
    for (of, value) in [
        (&pressure.total_bytes, 4096),
        (&pressure.in_flight_bytes, 1024),
        (&pressure.decreases, 6),
        (&pressure.reads, 11),
        (&pressure.read_bytes, 2048),
    ] {
        of.store(value, Ordering::Relaxed);
    }
    *pressure.soft.lock().unwrap() = Totals {
        sent: 9,
        bypassed: 8,
        repeated: 4,
        recovered: 3,
        send_failed: 2,
        no_room: 1,
        congestion_marked: 7,
        dropped: 5,
    };
    own.engine(&pressure);
    let text = String::from_utf8(bytes(&Draft::default().settled(&[], own, Format::Text), false)).unwrap();
    for line in [
        "onlooker_controller_unusable_ways_total{by=\"tcp\"} 3",
        "onlooker_controller_unusable_ways_total{by=\"soft\"} 0",
        "onlooker_controller_soft_requests_total 9",
        "onlooker_controller_soft_bypassed_total 8",
        "onlooker_controller_soft_recovered_total 3",
        "onlooker_controller_soft_marked_total 7",
        "onlooker_controller_credit_bytes 4096",
        "onlooker_controller_credit_used_bytes 1024",
        "onlooker_controller_credit_decreases_total 6",
        "onlooker_controller_reads_total 11",
        "onlooker_controller_read_bytes_total 2048",
        "onlooker_controller_soft_failures_total{reason=\"unanswered\"} 4",
        "onlooker_controller_soft_failures_total{reason=\"refused\"} 2",
        "onlooker_controller_soft_failures_total{reason=\"no_room\"} 1",
        "onlooker_controller_soft_failures_total{reason=\"dropped\"} 5",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
}

#[test]
fn what_the_process_takes_is_told_with_what_there_is() {
    let mut own = Own::default();
    own.usage(&Look {
        threads_s: [("engine".to_owned(), 1.5), ("other".to_owned(), 0.25)].into(),
        memory_bytes: vec![("anonymous", 4096)],
        memory_limit_bytes: Some(8192),
        cpus: 2,
        links: vec![("eth0".to_owned(), 125e6)],
    });
    let text = String::from_utf8(bytes(&Draft::default().settled(&[], own, Format::Text), false)).unwrap();
    for line in [
        "onlooker_controller_thread_cpu_seconds_total{thread=\"engine\"} 1.5",
        "onlooker_controller_thread_cpu_seconds_total{thread=\"other\"} 0.25",
        "onlooker_controller_memory_bytes{kind=\"anonymous\"} 4096",
        "onlooker_controller_memory_limit_bytes 8192",
        "onlooker_controller_cpus 2",
        "onlooker_controller_link_bytes_per_second{device=\"eth0\"} 125000000",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
}

/// The copy is the fleet of one moment, and whoever takes it slowly holds up nobody: between any two pieces hosts can
/// be read, and other values come.
#[test]
fn while_an_answer_is_taken_hosts_are_read() {
    let (mut world, mut host) = (World::new(), Memory::new(64));
    let fields: Vec<String> = (0..100).map(|at| field(&format!("metric_of_some_length_{at}"), "gauge", at)).collect();
    let region = host.region(2, "x", &[], &schema(&fields.join(",")));
    for number in 0..20 {
        world.read(&format!("host-{number}"), &host);
    }
    let sheet = copied(&world.fleet.hosts(), Format::Text);
    let (mut pieces, mut text) = (0, Vec::new());
    let mut take = |piece: axum::body::Bytes| {
        pieces += 1;
        region.words.set(0, 1, pieces);
        world.pass(1_000_000);
        // Would wait for ever for a lock that is held here.
        for number in 0..20 {
            world.read(&format!("host-{number}"), &host);
        }
        text.extend_from_slice(&piece);
        Ok(())
    };
    let mut writer = Writer::new(false, &mut take);
    sheet.write(&mut writer).unwrap();
    writer.finish().unwrap();
    let text = String::from_utf8(text).unwrap();
    let first = lines(&text, "metric_of_some_length_0");
    assert!(pieces > 1 && first.len() == 20 && first.iter().all(|line| line.ends_with(" 0")), "{pieces}: {first:?}");
    assert!(
        lines(&exposition(&world), "metric_of_some_length_0").iter().all(|line| line.ends_with(&format!(" {pieces}")))
    );
}
