// SPDX-License-Identifier: Apache-2.0
//! Group pressure.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onlooker_metrics::groups::Group;
use onlooker_testbed::try_often;

use crate::regions::{Collecting, between, file};
use crate::support::SIDES;

/// Metric, file of /proc/pressure and line.
const TOTALS: [(&str, &str, &str); 5] = [
    ("node_pressure_cpu_waiting_seconds_total{}", "cpu", "some"),
    ("node_pressure_io_waiting_seconds_total{}", "io", "some"),
    ("node_pressure_io_stalled_seconds_total{}", "io", "full"),
    ("node_pressure_memory_waiting_seconds_total{}", "memory", "some"),
    ("node_pressure_memory_stalled_seconds_total{}", "memory", "full"),
];

fn total(resource: &str, line: &str) -> f64 {
    let text = file(&format!("/proc/pressure/{resource}"));
    let line = text.lines().find(|found| found.starts_with(line)).unwrap();
    line.rsplit('=').next().unwrap().parse::<f64>().unwrap() / 1e6
}

#[allow(clippy::print_stdout)]
fn is_there() -> bool {
    let absence = Group::PRESSURE.absence();
    if let Some(reason) = &absence {
        println!("SKIPPED: {reason}");
    }
    absence.is_none()
}

#[test]
fn totals_are_those_of_proc_pressure() {
    if !is_there() {
        return;
    }
    let collecting = Collecting::new(&[Group::PRESSURE]);
    for side in SIDES {
        for (metric, resource, line) in TOTALS {
            try_often(metric, || {
                let before = total(resource, line);
                let value = collecting.read(Group::PRESSURE, side)[metric];
                between(value, before, total(resource, line), 2e-6)
            });
        }
    }
}

/// CPUs times kinds of stalls.
fn in_progress(collecting: &Collecting) -> BTreeMap<String, f64> {
    let values = collecting.read(Group::PRESSURE, SIDES[0]);
    let bits: BTreeMap<String, f64> =
        values.into_iter().filter(|(series, _)| series.starts_with("onlooker_pressure_in_progress{")).collect();
    assert!(!bits.is_empty() && bits.values().all(|bit| *bit == 0.0 || *bit == 1.0), "{bits:?}");
    bits
}

#[test]
fn tasks_that_wait_for_a_cpu_are_a_stall_in_progress_at_once_and_a_total_later() {
    if !is_there() {
        return;
    }
    let collecting = Collecting::new(&[Group::PRESSURE]);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let waiting = |bits: &BTreeMap<String, f64>| {
        bits.iter().filter(|(series, bit)| series.contains("kind=waiting,resource=cpu") && **bit == 1.0).count()
    };
    let before = collecting.read(Group::PRESSURE, SIDES[0])[TOTALS[0].0];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 * cpus {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let begin = Instant::now();
        let mut most = 0;
        let mut grown = 0.0;
        while (most < cpus || grown <= 0.0) && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
            most = most.max(waiting(&in_progress(&collecting)));
            // Nobody reads /proc/pressure here: the kernel adds up by itself.
            grown = collecting.read(Group::PRESSURE, SIDES[0])[TOTALS[0].0] - before;
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(most, cpus, "CPUs with a stall in progress, with three threads each");
        assert!(grown > 0.0, "the total stands still");
    });
}
