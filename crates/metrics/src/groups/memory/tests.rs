// SPDX-License-Identifier: Apache-2.0
//! Group memory against /proc/meminfo.

use onlooker_metrics::groups::Group;
use onlooker_testbed::try_often;

use crate::regions::{Collecting, between, file};
use crate::support::SIDES;

/// node_exporter's names of /proc/meminfo's lines, in bytes.
fn meminfo(name: &str) -> f64 {
    let text = file("/proc/meminfo");
    let line = text.lines().find(|line| {
        let own = line.split(':').next().unwrap().replace('(', "_").replace(')', "");
        format!("node_memory_{own}_bytes{{}}") == name
    });
    let line = line.unwrap_or_else(|| panic!("/proc/meminfo has nothing for {name}"));
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0
}

/// What MemAvailable may be above procfs's by, while the kernel has boosted watermarks (docs/kernel-metrics.md).
fn boosts() -> f64 {
    let text = file("/proc/zoneinfo");
    let pages = text.lines().filter_map(|line| line.trim().strip_prefix("boost ")?.trim().parse::<u32>().ok());
    #[allow(clippy::cast_precision_loss)]
    let page_bytes = rustix::param::page_size() as f64;
    2.0 * page_bytes * pages.map(f64::from).sum::<f64>()
}

#[test]
fn memory_is_that_of_proc_meminfo() {
    let collecting = Collecting::new(&[Group::MEMORY]);
    let names = collecting.read(Group::MEMORY, SIDES[0]);
    for name in ["MemTotal", "MemFree", "MemAvailable", "AnonPages", "Mapped", "Dirty", "Slab", "Active_file", "Shmem"]
    {
        assert!(names.contains_key(&format!("node_memory_{name}_bytes{{}}")), "{name} is missing");
    }
    assert!(names.len() >= 25, "{}", names.len());
    for side in SIDES {
        for name in names.keys().filter(|name| name.starts_with("node_memory")) {
            try_often(name, || {
                let before = meminfo(name);
                let value = collecting.read(Group::MEMORY, side)[name];
                let slack = if name.contains("MemAvailable") { boosts() } else { 0.0 };
                between(value, before, meminfo(name), slack)
            });
        }
        try_often("file pages", || {
            let files = || {
                ["Cached", "Buffers", "SwapCached"]
                    .iter()
                    .map(|part| meminfo(&format!("node_memory_{part}_bytes{{}}")))
                    .sum()
            };
            let before = files();
            let value = collecting.read(Group::MEMORY, side)["onlooker_memory_file_bytes{}"];
            between(value, before, files(), 0.0)
        });
    }
}

#[test]
fn memory_that_a_process_takes_is_seen() {
    let collecting = Collecting::new(&[Group::MEMORY]);
    let anonymous = || collecting.read(Group::MEMORY, SIDES[0])["node_memory_AnonPages_bytes{}"];
    const TAKEN: f64 = (64 << 20) as f64;
    try_often("64 MiB", || {
        let before = anonymous();
        let taken = vec![1u8; 64 << 20];
        let with = anonymous();
        assert_eq!(taken[4096], 1);
        drop(taken);
        let grown = with - before;
        if grown > 0.8 * TAKEN && grown < 1.5 * TAKEN { Ok(()) } else { Err(format!("grown by {grown} bytes")) }
    });
}
