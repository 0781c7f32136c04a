// SPDX-License-Identifier: Apache-2.0
//! Samples against procfs.

use super::*;
use crate::config;
use onlooker_region::Block;
use onlooker_region::columns::Plan;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Type};
use std::collections::BTreeMap;

const ME: Identity = Identity { region: 2, generation: 9, index: 0 };

fn read(sampled: &Sampled) -> BTreeMap<String, f64> {
    let blocks: Vec<Block> = sampled
        .memory
        .words()
        .chunks_exact(BLOCK_WORDS)
        .map(|words| {
            let mut block = Block::default();
            block.copy_from(words);
            block
        })
        .collect();
    let plan = Plan::new(sampled.schema.clone());
    let mut seen = BTreeMap::new();
    let refused = plan.decode(ME, &blocks, |sample| {
        let labels: Vec<String> = sample.labels().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        seen.insert(format!("{}{{{}}}", sample.field.name, labels.join(",")), sample.scaled());
        assert!(sample.time_ns.is_some_and(|time_ns| time_ns <= host::boot_time_ns()));
    });
    assert!(refused.unwrap().is_empty());
    seen
}

fn sampled(group: config::Group) -> BTreeMap<String, f64> {
    let mut sampled = Draft::whole(group, 1_000_000_000).unwrap().alone(ME).unwrap();
    let mut buffer = [0; LINE_BYTES];
    assert_eq!(sampled.sample(&mut buffer, None), Loss::default());
    assert!(
        sampled
            .schema
            .groups
            .iter()
            .all(|group| group.acquisition == Acquisition::Sampled && group.max_age_ns == 1_000_000_000)
    );
    read(&sampled)
}

#[test]
fn cpu_times_are_the_kernels() {
    let seen = sampled(config::Group::Cpu);
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    for line in text.lines() {
        match procfs::stat(line.as_bytes()) {
            Some(Stat::Cpu { cpu, ticks }) => {
                let idle = seen[&format!("node_cpu_seconds_total{{mode=idle,cpu={cpu}}}")];
                #[allow(clippy::cast_precision_loss)]
                let now = ticks[3] as f64 / 100.0;
                assert!((now - idle).abs() < 2.0, "{idle} {now}");
                assert!(seen.contains_key(&format!("node_cpu_guest_seconds_total{{mode=nice,cpu={cpu}}}")));
            }
            #[allow(clippy::cast_precision_loss)]
            Some(Stat::BootTime(value)) => assert!((seen["node_boot_time_seconds{}"] - value as f64).abs() < 2.0),
            _ => {}
        }
    }
    assert!(
        seen["node_context_switches_total{}"] > 0.0
            && seen["node_forks_total{}"] > 0.0
            && seen["node_procs_running{}"] >= 1.0
    );
    assert!(seen.contains_key("node_intr_total{}") && seen.contains_key("node_procs_blocked{}"));
}

#[test]
fn a_sample_keeps_what_was_more() {
    let mut sampled = Draft::whole(config::Group::Cpu, 1).unwrap().alone(ME).unwrap();
    let mut buffer = [0; LINE_BYTES];
    sampled.sample(&mut buffer, None);
    let Content::Cpu { ticks, .. } = &mut sampled.content else { panic!("not of CPUs") };
    ticks[3] += 200;
    let before = ticks[3];
    sampled.sample(&mut buffer, None);
    let Content::Cpu { ticks, .. } = &mut sampled.content else { panic!("not of CPUs") };
    assert_eq!(ticks[3], before, "2 s back");
    ticks[3] += 1_000_000;
    sampled.sample(&mut buffer, None);
    let Content::Cpu { ticks, .. } = &mut sampled.content else { panic!("not of CPUs") };
    assert!(ticks[3] < before + 1_000_000, "a new beginning");
}

#[test]
fn memory_is_in_bytes() {
    let seen = sampled(config::Group::Memory);
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total: f64 = text.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((seen["node_memory_MemTotal_bytes{}"] - total * 1024.0).abs() < 0.5);
    assert_eq!(seen.len(), text.lines().count());
}

#[test]
fn loads_and_devices() {
    let seen = sampled(config::Group::Load);
    assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), ["node_load15{}", "node_load1{}", "node_load5{}"]);
    let seen = sampled(config::Group::Network);
    assert!(seen.contains_key("node_network_receive_bytes_total{device=lo}"), "{seen:?}");
    assert!(seen.len().is_multiple_of(16));
}

#[test]
fn a_machine_of_many_cpus_fits() {
    for cpus in [1, 12, 13, 4096] {
        let schema = Schema { name: "node_cpu".into(), groups: draft::cpu_groups(cpus).into() };
        schema.check().unwrap();
    }
}

#[test]
fn a_device_that_comes_again_is_another_one() {
    let mut sampled = Draft::whole(config::Group::Network, 1).unwrap().alone(ME).unwrap();
    let Content::Network { tables, .. } = &mut sampled.content else { panic!("not a table") };
    let table = &mut tables[0].table;
    let mut key = [0; DEVICE_WORDS];
    put_text(&mut key, "lo");
    table.upsert(&[1, 1], 1, |_| ()).unwrap();
    let mut buffer = [0; LINE_BYTES];
    sampled.sample(&mut buffer, None);
    let Content::Network { tables, .. } = &mut sampled.content else { panic!("not a table") };
    let table = &mut tables[0].table;
    assert_eq!(table.generation(&[1, 1]), None, "gone from the file, gone from the table");
    let first = table.generation(&key).unwrap();
    table.remove(&key, 2);
    sampled.sample(&mut buffer, None);
    let Content::Network { tables, .. } = &mut sampled.content else { panic!("not a table") };
    let table = &mut tables[0].table;
    assert_eq!(table.generation(&key), Some(first + 1));
}

/// Metrics that are computed, as a collector's loader tells them.
fn covered(metrics: &[(&str, Option<(&str, &str)>)]) -> Covered {
    let fields = metrics.iter().map(|(name, label)| {
        let mut field = Field::new(name, Metric::Counter, Type::U64, 0);
        field.labels.extend(label.map(|(label, value)| (label.to_owned(), value.to_owned())));
        field
    });
    let mut covered = Covered::default();
    covered.add(&Schema { name: "computed".into(), groups: vec![Group::new(Kind::Computed, 1, fields.collect())] });
    covered
}

fn left(group: config::Group, covered: &Covered, computed: Option<&[DeviceKey]>) -> BTreeMap<String, f64> {
    let mut sampled = Draft::left(group, 5_000_000_000, covered).unwrap().unwrap().alone(ME).unwrap();
    assert_eq!(sampled.name, left_name(group));
    let fields = sampled.schema.groups.iter().flat_map(|group| &group.fields);
    assert!(fields.map(|field| field.resolution_ns).all(|resolution_ns| resolution_ns == 5_000_000_000));
    assert_eq!(sampled.sample(&mut [0; LINE_BYTES], computed), Loss::default());
    read(&sampled)
}

#[test]
fn what_is_computed_is_not_sampled() {
    let all_modes: Vec<_> = CPU_MODES.iter().map(|(name, mode)| (*name, Some(("mode", *mode)))).collect();
    let seen = left(config::Group::Cpu, &covered(&all_modes), None);
    let names: Vec<&str> = seen.keys().map(String::as_str).collect();
    let others = ["boot_time_seconds", "context_switches_total", "forks_total", "intr_total", "procs_blocked"];
    assert_eq!(
        names,
        others
            .map(|name| format!("node_{name}{{}}"))
            .iter()
            .map(String::as_str)
            .chain(["node_procs_running{}"])
            .collect::<Vec<_>>()
    );
    // A mode that failed its check.
    let seen = left(config::Group::Cpu, &covered(&all_modes[1..]), None);
    assert!(seen.contains_key("node_cpu_seconds_total{mode=user,cpu=0}") && seen.contains_key("node_intr_total{}"));
    assert!(!seen.keys().any(|name| name.contains("mode=nice")), "{seen:?}");

    let seen = left(config::Group::Memory, &covered(&[("node_memory_MemTotal_bytes", None)]), None);
    let lines = std::fs::read_to_string("/proc/meminfo").unwrap().lines().count();
    assert_eq!((seen.len(), seen.contains_key("node_memory_MemTotal_bytes{}")), (lines - 1, false));
    assert!(seen.contains_key("node_memory_Cached_bytes{}"));

    let loads = [("node_load1", None), ("node_load5", None), ("node_load15", None)];
    assert!(Draft::left(config::Group::Load, 1, &covered(&loads)).unwrap().is_none());
    let seen = left(config::Group::Load, &covered(&loads[..2]), None);
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["node_load15{}"]);
}

#[test]
fn devices_with_a_computed_row_keep_what_it_has_not() {
    let computed = covered(&[
        ("node_network_receive_bytes_total", None),
        ("node_network_receive_packets_total", None),
        ("node_network_transmit_bytes_total", None),
        ("node_network_transmit_packets_total", None),
    ]);
    let mut lo = [0; DEVICE_WORDS];
    put_text(&mut lo, "lo");
    let columns = |computed_rows: Option<&[DeviceKey]>| {
        let seen = left(config::Group::Network, &computed, computed_rows);
        seen.keys().filter(|name| name.ends_with("{device=lo}")).count()
    };
    assert_eq!(columns(Some(&[lo])), 12);
    assert_eq!(columns(Some(&[])), 16);
    assert_eq!(columns(None), 12, "not known: rather none than twice");

    let mut sampled = Draft::left(config::Group::Network, 1, &computed).unwrap().unwrap().alone(ME).unwrap();
    let mut lines = |rows: Option<&[DeviceKey]>| {
        sampled.sample(&mut [0; LINE_BYTES], rows);
        read(&sampled).keys().filter(|name| name.ends_with("{device=lo}")).count()
    };
    assert_eq!([lines(Some(&[])), lines(None), lines(Some(&[lo])), lines(Some(&[]))], [16, 16, 12, 16]);
}

#[test]
fn what_is_left_of_many_devices_fits_the_agents_slab() {
    let columns = |left: usize| -> Vec<usize> { (0..left).collect() };
    for tables in [vec![(columns(16), false)], vec![(columns(12), false), (columns(4), true)]] {
        let mut last = 0;
        for devices in [0, 5, 16, 17, 40, 200, 3000] {
            let rows = draft::left_rows(devices, &tables);
            assert!(rows >= last && rows >= 32, "{devices} devices, {rows} rows");
            last = rows;
            let blocks: u32 = tables.iter().map(|(columns, _)| draft::network_group(columns, rows).blocks).sum();
            assert!(blocks <= 48, "{devices} devices, {blocks} blocks");
        }
        assert!(last >= 256);
    }
}
