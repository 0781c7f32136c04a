// SPDX-License-Identifier: Apache-2.0
//! Samples against procfs.

use onlooker_region::columns::Plan;
use onlooker_region::map::sealed_memfd;
use onlooker_region::schema::{Acquisition, Kind, Metric, Type};
use onlooker_region::table::put_text;

use super::*;
use crate::groups::Group as Which;
use crate::groups::cpu::procfs::{CPU_MODES, Stat, stat};

const ME: Identity = Identity { region: 2, generation: 9, index: 0 };
const DEVICE_WORDS: usize = 2;

fn read(sampled: &Sampled) -> BTreeMap<String, f64> {
    let blocks = sampled.place.blocks();
    let plan = Plan::new(sampled.schema.clone());
    let mut seen = BTreeMap::new();
    let refused = plan.decode(ME, &blocks, |sample| {
        let labels: Vec<String> = sample.labels().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        seen.insert(format!("{}{{{}}}", sample.field.name, labels.join(",")), sample.scaled());
        assert!(sample.time_ns.is_some_and(|time_ns| time_ns <= boot_time_ns()));
    });
    assert!(refused.unwrap().is_empty());
    seen
}

/// A group's file by itself.
pub(crate) fn with_context<T>(act: impl FnOnce(&Ask, &mut Context) -> T) -> T {
    let mut buffer = [0; LINE_BYTES];
    let mut scrapes = Scrapes::default();
    let mut context = Context { now_ns: 1, ..Context::new(&mut buffer, &mut scrapes) };
    act(&Ask { computed: None }, &mut context)
}

/// A group's values after a sample, which must find what was found before.
pub(crate) fn values_of(made: Made) -> BTreeMap<String, f64> {
    let Made { groups, mut sampler } = made;
    let schema = Schema { name: "group".into(), groups };
    schema.check().unwrap();
    let bytes = u64::from(schema.blocks()) * 1024;
    let memory = Map::of(sealed_memfd("test", bytes).unwrap(), 0, bytes, true).unwrap();
    let place = Place::new(memory, ME, &schema);
    with_context(|_, context| {
        sampler.begin(&place, &schema, 1);
        sampler.sample(&place, context).unwrap();
        assert_eq!(context.loss, Loss::default());
    });
    let (sampled_ns, made_ns) = (1, 1);
    read(&Sampled { group: Which::HOST, schema, place, interval_ns: 1, sampled_ns, made_ns, sampler })
}

/// One group in a set of its own, sampled.
fn set_of(group: Which) -> Set {
    let mut set = Set::default();
    let sampled = set.draft(group, 1_000_000_000, None).unwrap().unwrap().alone(ME).unwrap();
    set.put(sampled);
    assert_eq!(set.sample_one(group, None), Loss::default());
    set
}

fn sampled(group: Which) -> BTreeMap<String, f64> {
    let set = set_of(group);
    let sampled = &set.groups()[0];
    let interval_ns = group.shortest_interval().as_ns().max(1_000_000_000);
    let is_told = |one: &Group| one.acquisition == Acquisition::Sampled && one.max_age_ns == interval_ns;
    assert!(sampled.schema.groups.iter().all(is_told));
    read(sampled)
}

#[test]
fn cpu_times_are_the_kernels() {
    let seen = sampled(Which::CPU);
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    for line in text.lines() {
        match stat(line.as_bytes()) {
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
fn memory_is_in_bytes() {
    let seen = sampled(Which::MEMORY);
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total: f64 = text.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((seen["node_memory_MemTotal_bytes{}"] - total * 1024.0).abs() < 0.5);
    assert_eq!(seen.len(), text.lines().count());
}

#[test]
fn loads_and_devices() {
    let seen = sampled(Which::LOAD);
    assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), ["node_load15{}", "node_load1{}", "node_load5{}"]);
    let seen = sampled(Which::NETWORK);
    assert!(seen.contains_key("node_network_receive_bytes_total{device=lo}"), "{seen:?}");
    let of_lo = |name: &str| seen[&format!("node_network_{name}{{device=lo}}")];
    assert!((of_lo("mtu_bytes") - 65536.0).abs() < 0.5 && of_lo("up") < 0.5 && of_lo("carrier") > 0.5);
    assert!(!seen.contains_key("node_network_speed_bytes{device=lo}"));
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

fn left(group: Which, covered: &Covered, computed: Option<&[DeviceKey]>) -> BTreeMap<String, f64> {
    let mut set = Set::default();
    let sampled = set.draft(group, 5_000_000_000, Some(covered)).unwrap().unwrap().alone(ME).unwrap();
    assert_eq!(sampled.schema.name, group.left_region());
    let fields = sampled.schema.groups.iter().flat_map(|group| &group.fields);
    assert!(fields.map(|field| field.resolution_ns).all(|resolution_ns| resolution_ns == 5_000_000_000));
    set.put(sampled);
    assert_eq!(set.sample_one(group, computed), Loss::default());
    read(&set.groups()[0])
}

#[test]
fn what_is_computed_is_not_sampled() {
    let all_modes: Vec<_> = CPU_MODES.iter().map(|(name, mode)| (*name, Some(("mode", *mode)))).collect();
    let seen = left(Which::CPU, &covered(&all_modes), None);
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
    let seen = left(Which::CPU, &covered(&all_modes[1..]), None);
    assert!(seen.contains_key("node_cpu_seconds_total{mode=user,cpu=0}") && seen.contains_key("node_intr_total{}"));
    assert!(!seen.keys().any(|name| name.contains("mode=nice")), "{seen:?}");

    let seen = left(Which::MEMORY, &covered(&[("node_memory_MemTotal_bytes", None)]), None);
    let lines = std::fs::read_to_string("/proc/meminfo").unwrap().lines().count();
    assert_eq!((seen.len(), seen.contains_key("node_memory_MemTotal_bytes{}")), (lines - 1, false));
    assert!(seen.contains_key("node_memory_Cached_bytes{}"));

    let loads = [("node_load1", None), ("node_load5", None), ("node_load15", None)];
    assert!(Set::default().draft(Which::LOAD, 1, Some(&covered(&loads))).unwrap().is_none());
    let seen = left(Which::LOAD, &covered(&loads[..2]), None);
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
        let seen = left(Which::NETWORK, &computed, computed_rows);
        seen.keys().filter(|name| name.ends_with("{device=lo}")).count()
    };
    // 17 counters, state of two columns, and a carrier.
    assert_eq!(columns(Some(&[lo])), 16);
    assert_eq!(columns(Some(&[])), 20);
    assert_eq!(columns(None), 16, "not known: rather none than twice");

    let mut set = Set::default();
    let sampled = set.draft(Which::NETWORK, 1, Some(&computed)).unwrap().unwrap().alone(ME).unwrap();
    set.put(sampled);
    let mut lines = |rows: Option<&[DeviceKey]>| {
        set.sample_one(Which::NETWORK, rows);
        read(&set.groups()[0]).keys().filter(|name| name.ends_with("{device=lo}")).count()
    };
    assert_eq!([lines(Some(&[])), lines(None), lines(Some(&[lo])), lines(Some(&[]))], [20, 20, 16, 20]);
}

#[test]
fn every_group_that_is_here_gives_what_it_has_drafted() {
    for group in Which::sampled() {
        let mut set = Set::default();
        let draft = match set.draft(group, 1_000_000_000, None) {
            Ok(draft) => draft.unwrap(),
            // No sensors in a virtual machine, no schedstat where the kernel has none.
            Err(error) => {
                let may_lack = [Which::SENSORS, Which::SCHEDSTAT, Which::SCRAPE];
                assert!(may_lack.contains(&group), "{group}: {error}");
                continue;
            }
        };
        set.put(draft.alone(ME).unwrap());
        let loss = set.sample_one(group, None);
        assert_eq!((loss.failed, loss.rows_dropped), (0, 0), "{group}");
        assert!(!read(&set.groups()[0]).is_empty(), "{group}");
    }
}

#[test]
fn samples_are_told_of_by_collector() {
    let mut set = Set::default();
    for group in [Which::LOAD, Which::MEMORY, Which::SCRAPE] {
        let sampled = set.draft(group, 1_000_000_000, None).unwrap().unwrap().alone(ME).unwrap();
        set.put(sampled);
        set.sample_one(group, None);
    }
    let seen = read(&set.groups()[2]);
    let names: Vec<&str> = seen.keys().map(String::as_str).collect();
    let expected = ["loadavg", "meminfo"].map(|name| format!("node_scrape_collector_success{{collector={name}}}"));
    assert!(expected.iter().all(|name| names.contains(&name.as_str()) && (seen[name] - 1.0).abs() < 0.1), "{names:?}");
    assert_eq!(names.len(), 4);
    assert!(seen["node_scrape_collector_duration_seconds{collector=meminfo}"] > 1e-7);
}

#[test]
fn groups_are_sampled_as_often_as_they_are_worth() {
    const S: u64 = 1_000_000_000;
    let mut set = Set::default();
    for group in [Which::LOAD, Which::PROCESSES] {
        let sampled = set.draft(group, S, None).unwrap().unwrap().alone(ME).unwrap();
        set.put(sampled);
    }
    let begin_ns = boot_time_ns();
    assert!(!set.is_fresh(begin_ns));
    set.sample(begin_ns, None);
    assert!(set.is_fresh(boot_time_ns()));
    let times = |set: &Set| [set.groups()[0].sampled_ns, set.groups()[1].sampled_ns];
    let first = times(&set);
    set.sample(first[1] + S / 2, None);
    assert_eq!(times(&set), first, "none is due");
    set.sample(first[1] + S, None);
    let second = times(&set);
    assert!(second[0] > first[0] && second[1] == first[1], "{first:?} {second:?}");
    set.sample(first[1] + 29 * S, None);
    assert!(times(&set)[1] > first[1]);
}
