// SPDX-License-Identifier: Apache-2.0
//! Group schedstat.

use std::time::{Duration, Instant};

use onlooker_metrics::groups::Group;
use onlooker_testbed::try_often;

use crate::regions::{Collecting, between, file};
use crate::support::SIDES;

/// The last three numbers of each CPU's line of /proc/schedstat: ns run, ns waited, timeslices.
fn schedstat() -> Vec<(String, [f64; 3])> {
    let text = file("/proc/schedstat");
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.to_owned();
        let numbers: Vec<f64> = words.map(|word| word.parse().unwrap()).collect();
        let last = <[f64; 3]>::try_from(&numbers[numbers.len() - 3..]).unwrap();
        Some((cpu, [last[0] / 1e9, last[1] / 1e9, last[2]]))
    });
    lines.collect()
}

const NAMES: [&str; 3] =
    ["node_schedstat_running_seconds_total", "node_schedstat_waiting_seconds_total", "node_schedstat_timeslices_total"];

#[test]
#[allow(clippy::print_stdout)]
fn times_and_timeslices_of_each_cpu_are_those_of_proc_schedstat() {
    if let Some(reason) = Group::SCHEDSTAT.absence() {
        println!("SKIPPED: {reason}");
        return;
    }
    let collecting = Collecting::new(&[Group::SCHEDSTAT]);
    for side in SIDES {
        for (at, (cpu, _)) in schedstat().iter().enumerate() {
            for (column, name) in NAMES.iter().enumerate() {
                try_often(name, || {
                    let before = schedstat()[at].1[column];
                    let value = collecting.read(Group::SCHEDSTAT, side)[&format!("{name}{{cpu={cpu}}}")];
                    between(value, before, schedstat()[at].1[column], 1e-8)
                });
            }
        }
    }
    // Tasks that run are counted when they stop or the tick comes.
    let running = || {
        let values = collecting.read(Group::SCHEDSTAT, SIDES[0]);
        values.iter().filter(|(name, _)| name.starts_with(NAMES[0])).map(|(_, value)| value).sum::<f64>()
    };
    let (before, begin) = (running(), Instant::now());
    while begin.elapsed() < Duration::from_millis(300) {
        std::hint::spin_loop();
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(running() - before > 0.1, "{} s run in 300 ms of work", running() - before);
}
