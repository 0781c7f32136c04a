// SPDX-License-Identifier: Apache-2.0
//! Group disk. What needs disks says that it is left out where there is none (guests that run from their initramfs).
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};

use onlooker_metrics::groups::Group;
use onlooker_region::columns::Plan;
use onlooker_testbed::try_often;

use crate::regions::{Collecting, between, file, identity};
use crate::support::{SIDES, Side};

/// Metric, column of /proc/diskstats, and what one of it is worth.
const COLUMNS: [(&str, usize, f64); 17] = [
    ("reads_completed_total", 0, 1.0),
    ("reads_merged_total", 1, 1.0),
    ("read_bytes_total", 2, 512.0),
    ("read_time_seconds_total", 3, 1e-3),
    ("writes_completed_total", 4, 1.0),
    ("writes_merged_total", 5, 1.0),
    ("written_bytes_total", 6, 512.0),
    ("write_time_seconds_total", 7, 1e-3),
    ("io_now", 8, 1.0),
    ("io_time_seconds_total", 9, 1e-3),
    ("io_time_weighted_seconds_total", 10, 1e-3),
    ("discards_completed_total", 11, 1.0),
    ("discards_merged_total", 12, 1.0),
    ("discarded_sectors_total", 13, 1.0),
    ("discard_time_seconds_total", 14, 1e-3),
    ("flush_requests_total", 15, 1.0),
    ("flush_requests_time_seconds_total", 16, 1e-3),
];

/// By device: (row, generation), and sums over CPUs by metric.
type Rows = BTreeMap<String, ((usize, u32), BTreeMap<String, f64>)>;

fn rows(collecting: &Collecting, side: Side) -> Rows {
    let group = collecting.group(Group::DISK);
    let blocks = collecting.blocks(Group::DISK, side);
    let plan = Plan::new(group.schema.clone());
    let mut rows = Rows::new();
    let refused = plan.decode(identity(group), &blocks, |sample| {
        let row = sample.row.unwrap();
        let labels: BTreeMap<String, String> = sample.labels().into_iter().collect();
        let (place, values) = rows.entry(labels["device"].clone()).or_default();
        *place = (row.number, row.generation);
        *values.entry(sample.field.name.trim_start_matches("node_disk_").to_owned()).or_default() += sample.scaled();
    });
    assert_eq!(refused.unwrap(), []);
    rows
}

fn diskstats() -> BTreeMap<String, Vec<f64>> {
    let text = file("/proc/diskstats");
    let lines = text.lines().map(|line| {
        let mut words = line.split_whitespace().skip(2);
        (words.next().unwrap().to_owned(), words.map(|word| word.parse().unwrap()).collect())
    });
    lines.collect()
}

/// Guests run from their initramfs, but have the module.
fn load_zram() {
    let _ = std::process::Command::new("modprobe").arg("zram").output();
}

#[test]
fn counters_of_disks_are_those_of_diskstats() {
    load_zram();
    if Group::DISK.absence().is_some() {
        println!("SKIPPED: there is no disk");
        return;
    }
    let collecting = Collecting::new(&[Group::DISK]);
    let mut written = tempfile::tempfile().unwrap();
    for side in SIDES {
        written.rewind().unwrap();
        written.write_all(&vec![7; 1 << 20]).unwrap();
        written.sync_all().unwrap();
        let metrics: Vec<_> = {
            let rows = rows(&collecting, side);
            assert!(!rows.is_empty());
            let names = rows.values().next().unwrap().1.keys().cloned();
            names.collect()
        };
        // io_now needs a kernel that counts requests under way per CPU.
        assert!(metrics.len() >= 16, "{metrics:?}");
        for (metric, column, worth) in
            COLUMNS.into_iter().filter(|(metric, ..)| metrics.iter().any(|name| name == metric))
        {
            try_often(metric, || {
                let before = diskstats();
                let rows = rows(&collecting, side);
                let after = diskstats();
                let rounding = if worth < 1.0 { worth } else { 0.0 };
                for (device, (_, values)) in &rows {
                    between(values[metric], before[device][column] * worth, after[device][column] * worth, rounding)
                        .map_err(|reason| format!("{device}: {reason}"))?;
                }
                Ok(())
            });
        }
    }
    // No partitions and no loops.
    for device in rows(&collecting, SIDES[0]).keys() {
        assert!(!device.starts_with("loop") && !device.starts_with("ram"), "{device}");
    }
    assert_eq!(collecting.group(Group::DISK).uncovered, Vec::<String>::new());
}

#[test]
fn rows_follow_disks_that_come_go_and_come_again() {
    load_zram();
    const CONTROL: &str = "/sys/class/zram-control/";
    if !std::path::Path::new(CONTROL).exists() || Group::DISK.absence().is_some() {
        println!("SKIPPED: the kernel has no zram, whose disks come and go");
        return;
    }
    let add = || format!("zram{}", file(&format!("{CONTROL}hot_add")).trim());
    let remove = |name: &str| {
        let number = name.trim_start_matches("zram");
        try_often("hot_remove", || {
            std::fs::write(format!("{CONTROL}hot_remove"), number).map_err(|error| error.to_string())
        });
    };
    let collecting = Collecting::new(&[Group::DISK]);
    let before = rows(&collecting, SIDES[0]);
    let others = |rows: &Rows, name: &str| {
        let others = rows.iter().filter(|(other, _)| *other != name);
        others.map(|(other, row)| (other.clone(), row.0)).collect::<Vec<_>>()
    };
    // It is on the list before it can be opened: a look in between is repeated after a second. Until then there is no row, rather than an earlier disk's.
    let appears = |name: &str, seen: &[(usize, u32)]| {
        let begin = std::time::Instant::now();
        loop {
            let now = rows(&collecting, SIDES[0]);
            assert_eq!(others(&now, name), others(&before, name), "rows of others stay");
            if let Some((place, _)) = now.get(name) {
                assert!(!seen.contains(place), "{place:?} twice");
                return *place;
            }
            assert!(begin.elapsed() < std::time::Duration::from_secs(10), "{name} never had a row");
        }
    };
    let mut seen = Vec::new();
    for _ in 0..3 {
        let name = add();
        assert!(!before.contains_key(&name), "{name}");
        seen.push(appears(&name, &seen));
        remove(&name);
        assert!(!rows(&collecting, SIDES[0]).contains_key(&name), "{name} is gone");
    }
    // With nobody looking in between, and so with the same number and, as a rule, at the same address.
    let name = add();
    seen.push(appears(&name, &seen));
    for _ in 0..5 {
        remove(&name);
        assert_eq!(add(), name);
        seen.push(appears(&name, &seen));
    }
    remove(&name);
    assert!(!rows(&collecting, SIDES[0]).contains_key(&name), "{name} is gone");
}
