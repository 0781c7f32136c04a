// SPDX-License-Identifier: Apache-2.0
//! What a search of a large fleet costs: `cargo test --release -p onlooker-controller --lib -- --ignored --nocapture
//! search_of_ten_thousand`.
#![allow(clippy::print_stdout, clippy::cast_precision_loss)] // figures

use std::time::Instant;

use onlooker_series::template::LabelSet;

use super::*;
use crate::fleet::Plan;

const HOSTS: usize = 10_000;
const REGIONS: u32 = 28;
const FIELDS: usize = 25;
/// Rows of a table of processes, with [`FIELDS_OF_ROW`] series each.
const ROWS: u16 = 120;
const FIELDS_OF_ROW: usize = 10;

/// The kernel's metrics in many regions, most with one series and some with one a CPU, and a table with many rows.
fn host() -> Memory {
    let mut host = Memory::new(256);
    for region in 0..REGIONS {
        let one = |at: usize| {
            format!(
                r#"{{"name":"node_netstat_Of{region}_Some{at}Length","metric":"counter","type":"u64","slot":{at},"help":"Of a counter."}}"#
            )
        };
        let mut fields: Vec<String> = (0..FIELDS - 8).map(one).collect();
        fields.push(format!(
            r#"{{"name":"node_region{region}_seconds_total","metric":"counter","type":"u64","slot":80,"help":"Time.","labels":{{"mode":"idle"}},"array":{{"label":"cpu","count":8,"stride":1}}}}"#
        ));
        let schema =
            format!(r#"{{"name":"s","groups":[{{"kind":"plain","blocks":1,"fields":[{}]}}]}}"#, fields.join(","));
        host.region(2 + region, &format!("node_{region}"), &[], &schema);
    }
    let field =
        |at: usize| format!(r#"{{"name":"onlooker_process_figure{at}","metric":"gauge","type":"u64","slot":{at}}}"#);
    let fields: Vec<String> = (0..FIELDS_OF_ROW).map(field).collect();
    let schema = format!(
        r#"{{"name":"t","groups":[{{"kind":"table","blocks":{ROWS},"key":[{{"name":"pid","type":"u64"}},{{"name":"comm","type":"text","bytes":16}}],"fields":[{}]}}]}}"#,
        fields.join(",")
    );
    let table = host.region(200, "onlooker_processes", &[], &schema);
    for block in 0..ROWS {
        let row =
            [1 << 32 | 1, 1000 + u64::from(block), u64::from_le_bytes(*b"worker-\0"), u64::from(block % 10) + 0x30];
        let identity = table.entry.identity.at(block);
        commit(table.words.block(block.into()), identity, 9, |payload| payload.set_all(0, &row));
    }
    host
}

/// 1e5 series in a search, each found.
#[test]
fn a_hundred_thousand_series_are_counted() {
    let (mut world, host) = (World::new(), host());
    world.read("host", &host);
    let host = world.fleet.host("host").unwrap();
    let plan = host.plan();
    let each: u64 = plan.entities.iter().map(|planned| planned.shown().count() as u64).sum();
    let hosts = u32::try_from(100_000 / each + 1).unwrap();
    let search = |text: &str| {
        let words = Words::few(text).unwrap();
        let mut finder = Finder::new(&words, None);
        for _ in 0..hosts {
            finder.host(&plan);
        }
        let looked = (finder.hosts, finder.series);
        (looked, finder.ranked())
    };
    let (looked, all) = search("");
    assert!(looked == (hosts, each * u64::from(hosts)) && looked.1 > 100_000, "{looked:?}");
    assert_eq!(all.iter().map(|metric| metric.series).sum::<u64>(), looked.1);
    // The controller's own boot time is no region's.
    assert_eq!(all.len(), REGIONS as usize * (FIELDS - 7) + FIELDS_OF_ROW + 1);
    let (_, rows) = search("process pid=1007");
    assert_eq!(rows.len(), FIELDS_OF_ROW);
    assert!(rows.iter().all(|metric| (metric.series, metric.hosts) == (hosts.into(), hosts)));
}

#[test]
#[ignore = "measures: cargo test --release -p onlooker-controller --lib ten_thousand -- --ignored --nocapture"]
fn search_of_ten_thousand() {
    let (mut world, memory) = (World::new(), host());
    (0..100).for_each(|number| world.read(&format!("host-{number:05}"), &memory));
    let hosts = world.fleet.hosts();
    let began = Instant::now();
    hosts.iter().for_each(|host| drop(host.plan()));
    println!("the first look: {:.0} us a host", began.elapsed().as_micros() as f64 / hosts.len() as f64);
    let began = Instant::now();
    hosts.iter().for_each(|host| drop(host.plan()));
    let next_ns = began.elapsed().as_nanos() as f64 / hosts.len() as f64;
    let (entities, labels) = (&hosts[0].plan().entities, |planned: &crate::fleet::Planned| planned.labels.text().len());
    let bytes: usize = entities.iter().map(|planned| size_of_val(planned) + labels(planned)).sum();
    println!("kept: {} entities and some {bytes} bytes a host, as for /metrics", entities.len());
    println!("the next: {next_ns:.0} ns a host");

    let plan = hosts[0].plan();
    let plans: Vec<Plan> = (0..HOSTS)
        .map(|number| {
            let name = format!("host-{number:05}.example.org");
            let mut one = (*plan).clone();
            one.labels = LabelSet::new([("dc", "a"), ("instance", name.as_str())]);
            // Each host has memory of its own.
            one.entities.iter_mut().for_each(|planned| planned.labels = Arc::new((*planned.labels).clone()));
            one
        })
        .collect();
    for text in ["", "seconds", "process_figure3", "pid=1007", "worker cpu", "host-00042", "of a counter", "nosuch"] {
        let words = Words::few(text).unwrap();
        let began = Instant::now();
        let mut finder = Finder::new(&words, None);
        for plan in &plans {
            finder.host(plan);
        }
        let looked = finder.series;
        let found = finder.ranked();
        let (took, series) = (began.elapsed(), found.iter().map(|metric| metric.series).sum::<u64>());
        println!("`{text}`: {} metrics, {series} of {looked} series of {HOSTS} hosts in {took:?}", found.len());
    }
}
