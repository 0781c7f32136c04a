// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeMap;

use onlooker_region::guard::commit;
use onlooker_region::schema::Metric;

use super::*;
use crate::fleet::fixture::{Host as Memory, World};

mod figures;

/// As an agent's regions and a program's: arrays, labels of fields, a table, texts that want to be markup or run from
/// right to left.
const CPU: &str = r#"{"name":"node_cpu","groups":[{"kind":"plain","blocks":1,"fields":[
    {"name":"node_cpu_seconds_total","metric":"counter","type":"u64","unit":"seconds","slot":0,"help":"Seconds the CPUs spent in each mode.","labels":{"mode":"idle"},"array":{"label":"cpu","count":4,"stride":1}},
    {"name":"node_cpu_seconds_total","metric":"counter","type":"u64","unit":"seconds","slot":8,"help":"Seconds the CPUs spent in each mode.","labels":{"mode":"user"},"array":{"label":"cpu","count":4,"stride":1}},
    {"name":"node_load1","metric":"gauge","type":"u64","slot":16,"help":"Load of all CPUs."}]}]}"#;
const SHOP: &str = r#"{"name":"shop","groups":[{"kind":"table","blocks":2,"key":[{"name":"queue","type":"text","bytes":8}],"fields":[
    {"name":"shop_length","metric":"gauge","type":"u64","help":"Waits, whatever a CPU does."},
    {"name":"shop_age_seconds","metric":"gauge","type":"u64","unit":"seconds","slot":1}]}]}"#;
/// It also says what only the agent may say.
const ODD: &str = r#"{"name":"odd","groups":[{"kind":"plain","blocks":1,"fields":[
    {"name":"odd_total","metric":"counter","type":"u64","slot":0,"help":"</p><script>alert(1)</script>","labels":{"page":"<b onclick=x>CPU</b>","name":"שלום, \"cpu\""}},
    {"name":"node_load1","metric":"counter","type":"u64","unit":"lies","slot":1,"help":"A lie.","labels":{"page":"x"}},
    {"name":"node_cpu_seconds_total","metric":"counter","type":"u64","unit":"lies","slot":2,"help":"A lie.","labels":{"mode":"none"}}]}]}"#;

/// Two hosts with the kernel's metrics, of which the second has a program besides, and a third with programs alone.
fn world() -> World {
    let mut world = World::new();
    let (mut a, mut b, mut c) = (Memory::new(64), Memory::new(64), Memory::new(64));
    a.region(2, "node_cpu", &[], CPU);
    b.region(2, "node_cpu", &[], CPU);
    for host in [&mut b, &mut c] {
        let shop = host.region(900, "shop", &[("pid", "77"), ("program", "shop")], SHOP);
        for (block, queue) in [(0, b'q'), (1, b'r')] {
            let row = [1 << 32 | 1, u64::from(queue), 7, 3];
            let identity = shop.entry.identity.at(block);
            commit(shop.words.block(block.into()), identity, 9, |payload| payload.set_all(0, &row));
        }
    }
    c.region(901, "odd", &[("pid", "78"), ("program", "odd")], ODD);
    // The same series once more: one of the two is hidden.
    c.region(902, "odd", &[("pid", "78"), ("program", "odd")], ODD);
    [("web-a", &a), ("web-b", &b), ("db-c", &c)].iter().for_each(|(name, host)| world.read(name, host));
    world
}

fn found(world: &World, text: &str) -> Vec<Found> {
    let words = Words::few(text).unwrap();
    let mut finder = Finder::new(&words, None);
    for host in world.fleet.hosts().iter() {
        finder.host(&host.plan());
    }
    finder.ranked()
}

/// Name and type, series, hosts, in their order: series by series.
fn walked(world: &World, text: &str) -> Vec<(String, Metric, u64, u32)> {
    let words = Words::new(text);
    let mut metrics: BTreeMap<(String, Metric), (u32, u64, Vec<String>)> = BTreeMap::new();
    for host in world.fleet.hosts().iter() {
        for planned in &host.plan().entities {
            for (series, text) in planned.shown() {
                let Some(place) = words.place(&series.name, text, &series.help, false) else { continue };
                let (rank, count, hosts) =
                    metrics.entry((series.name.to_string(), series.metric)).or_insert((u32::MAX, 0, Vec::new()));
                (*rank, *count) = (place.0.min(*rank), *count + 1);
                hosts.push(host.target.name.clone());
            }
        }
    }
    let mut all: Vec<_> = metrics.into_iter().collect();
    let place = |name: &str, metric: Metric, rank: u32| -> Place<'static> {
        words.at(rank, Box::leak(name.to_owned().into_boxed_str()), metric == Metric::Info)
    };
    all.sort_by_key(|((name, metric), (rank, ..))| (place(name, *metric, *rank), *metric));
    let told = |((name, metric), (_, count, mut hosts)): ((String, Metric), (u32, u64, Vec<String>))| {
        hosts.dedup();
        (name, metric, count, u32::try_from(hosts.len()).unwrap())
    };
    all.into_iter().map(told).collect()
}

#[test]
fn what_is_counted_by_kinds_is_what_is_there() {
    let world = world();
    let queries = [
        "",
        "cpu",
        "node_cpu_seconds_total",
        "CPU idle",
        "cpu=\"2\"",
        "cpu=2,mode=user",
        "node_cpu_seconds_total{cpu=\"1\",mode=\"idle\"}",
        "web",
        "web-b",
        "instance=web-b cpu",
        "shop",
        "queue=r",
        "queue=r web",
        "program=shop age",
        "seconds",
        "whatever",
        "lie",
        "script",
        "<b",
        "שלום",
        "page",
        "nosuch",
        "cpu nosuch",
        "77 shop_length",
        "load",
    ];
    for text in queries {
        let found: Vec<_> = found(&world, text);
        let mut found: Vec<_> =
            found.iter().map(|one| (one.name.to_string(), one.metric, one.series, one.hosts)).collect();
        let walked = walked(&world, text);
        // Those of one name with two types stand together in any order.
        found.sort_by_key(|(name, metric, ..)| (walked.iter().position(|one| one.0 == *name), *metric));
        assert_eq!(found, walked, "{text}");
    }
}

#[test]
fn names_come_before_labels_and_labels_before_helps() {
    let world = world();
    let names = |text: &str| -> Vec<String> { found(&world, text).iter().map(|one| one.name.to_string()).collect() };
    assert_eq!(names("cpu"), ["node_cpu_seconds_total", "odd_total", "node_load1", "shop_length"]);
    let cpu = &found(&world, "cpu")[0];
    // A program that says the same of its own changes nothing of what the agent says.
    assert_eq!((&*cpu.unit, cpu.series, cpu.hosts), ("seconds", 17, 3));
    assert!(cpu.help.starts_with("Seconds"), "{}", cpu.help);
    // A name with two types is two.
    let load: Vec<_> = found(&world, "load1").iter().map(|one| (one.metric, one.series, one.hosts)).collect();
    assert!(
        load.len() == 2 && load.contains(&(Metric::Gauge, 2, 2)) && load.contains(&(Metric::Counter, 1, 1)),
        "{load:?}"
    );
}

#[test]
fn a_metric_s_hosts_are_those_whose_series_fit() {
    let world = world();
    let of = |metric: &str, text: &str| -> Vec<(String, u64)> {
        let words = Words::few(text).unwrap();
        let mut finder = Finder::new(&words, Some(metric));
        let hosts = world.fleet.hosts();
        let all = hosts.iter().map(|host| (host.target.name.clone(), finder.host(&host.plan())));
        all.filter(|(_, series)| *series > 0).collect()
    };
    assert_eq!(of("node_load1", ""), [("db-c".into(), 1), ("web-a".into(), 1), ("web-b".into(), 1)]);
    assert_eq!(of("node_cpu_seconds_total", "mode=idle web"), [("web-a".into(), 4), ("web-b".into(), 4)]);
    assert_eq!(of("shop_length", "queue=q"), [("db-c".into(), 1), ("web-b".into(), 1)]);
    assert_eq!(of("node_cpu", ""), []);
}

#[test]
fn hosts_are_found_by_name_address_and_labels_and_come_in_order() {
    let world = world();
    let hosts = world.fleet.hosts();
    let told = |text: &str, limit: usize| {
        let words = Words::few(text).unwrap();
        best(hosts_of(&words, &hosts), limit, |host| host.target.name.clone().into())
    };
    assert_eq!(told("b", 9), json!({"total": 3, "list": ["db-c", "web-a", "web-b"]}));
    assert_eq!(told("web-b", 9), json!({"total": 1, "list": ["web-b"]}));
    assert_eq!(told("WEB", 1), json!({"total": 2, "list": ["web-a"]}));
    assert_eq!(told("127.0.0.1", 9)["total"], 3);
    assert_eq!(told("nosuch", 9), json!({"total": 0, "list": []}));
}

#[test]
fn more_words_than_there_are_bits_are_refused() {
    assert!(Words::few(&"x ".repeat(64)).is_ok());
    assert!(Words::few(&"x ".repeat(65)).is_err());
}
