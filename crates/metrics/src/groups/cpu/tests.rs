// SPDX-License-Identifier: Apache-2.0
//! Group cpu.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onlooker_metrics::groups::Group;
use onlooker_testbed::try_often;

use crate::regions::{Collecting, between, file};
use crate::support::SIDES;

const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// Lines of /proc/stat by their first word.
fn stat() -> Vec<(String, Vec<f64>)> {
    let text = file("/proc/stat");
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, words.map(|word| word.parse().unwrap()).collect()))
    });
    lines.collect()
}

fn line<'a>(stat: &'a [(String, Vec<f64>)], name: &str) -> &'a [f64] {
    &stat.iter().find(|(found, _)| found == name).unwrap().1
}

#[test]
fn times_of_each_cpu_are_those_of_proc_stat() {
    let collecting = Collecting::new(&[Group::CPU]);
    let cpus = stat().iter().filter(|(name, _)| name.starts_with("cpu") && name != "cpu").count();
    for side in SIDES {
        try_often("times", || {
            let before = stat();
            let values = collecting.read(Group::CPU, side);
            let after = stat();
            for cpu in 0..cpus {
                let (before, after) = (line(&before, &format!("cpu{cpu}")), line(&after, &format!("cpu{cpu}")));
                for (column, mode) in MODES.iter().enumerate() {
                    let value = values[&format!("node_cpu_seconds_total{{cpu={cpu},mode={mode}}}")];
                    between(value, before[column] / 100.0, after[column] / 100.0, 0.01)
                        .map_err(|reason| format!("CPU {cpu} {mode}: {reason}"))?;
                }
                for (column, mode) in [(8, "user"), (9, "nice")] {
                    let value = values[&format!("node_cpu_guest_seconds_total{{cpu={cpu},mode={mode}}}")];
                    between(value, before[column] / 100.0, after[column] / 100.0, 0.01)?;
                }
            }
            Ok(())
        });
        let values = collecting.read(Group::CPU, side);
        assert_eq!(values.len(), cpus * 12, "CPUs of procfs and of the region differ");
    }
}

#[test]
fn context_switches_add_up_to_those_of_proc_stat() {
    let collecting = Collecting::new(&[Group::CPU]);
    for side in SIDES {
        try_often("context switches", || {
            let before = line(&stat(), "ctxt")[0];
            let values = collecting.read(Group::CPU, side);
            let after = line(&stat(), "ctxt")[0];
            let switches = values.iter().filter(|(name, _)| name.starts_with("onlooker_context_switches_total"));
            between(switches.map(|(_, value)| value).sum(), before, after, 0.0)
        });
    }
}

#[test]
#[allow(clippy::print_stdout)]
fn idle_time_moves_between_ticks() {
    let collecting = Collecting::new(&[Group::CPU]);
    // Some CPU sleeps now and then even on a loaded machine; most of its steps are no whole ticks of 1 ms.
    let mut last = collecting.read(Group::CPU, SIDES[0]);
    let (mut moved, mut between_ticks) = (0, 0);
    let begin = Instant::now();
    while moved < 40 && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_micros(700));
        let now = collecting.read(Group::CPU, SIDES[0]);
        for (name, value) in now.iter().filter(|(name, _)| name.contains("mode=idle")) {
            let step_ns = (value - last[name]) * 1e9;
            if step_ns > 0.0 {
                moved += 1;
                let off = step_ns % 1e6;
                between_ticks += u32::from(off > 1e4 && off < 1e6 - 1e4);
            }
        }
        last = now;
    }
    // kernel_cpustat's idle times are whole ticks; these are not.
    for (name, value) in last.iter().filter(|(name, _)| name.contains("mode=idle")) {
        assert!((value * 1e3).fract() > 1e-4, "{name} is {value} s: whole milliseconds");
    }
    if moved < 5 {
        println!("SKIPPED the steps of idle time: in 20 s no CPU was idle more than {moved} times");
        return;
    }
    assert!(between_ticks * 2 > moved, "{between_ticks} of {moved} steps of idle time were no whole milliseconds");
}

#[test]
fn idle_times_do_not_go_back() {
    let collecting = Collecting::new(&[Group::CPU]);
    let mut last = collecting.read(Group::CPU, SIDES[0]);
    for _ in 0..2000 {
        let now = collecting.read(Group::CPU, SIDES[0]);
        for (name, value) in &now {
            if name.contains("node_cpu_seconds_total") && !name.contains("idle") && !name.contains("iowait") {
                assert!(*value >= last[name], "{name} went back from {} to {value}", last[name]);
            }
        }
        // The kernel books a sleep as iowait or as idle when it ends: only the sum is steady.
        let asleep = |values: &std::collections::BTreeMap<String, f64>, cpu: usize| {
            ["idle", "iowait"]
                .iter()
                .map(|mode| values[&format!("node_cpu_seconds_total{{cpu={cpu},mode={mode}}}")])
                .sum::<f64>()
        };
        for cpu in 0..now.len() / 12 {
            let (before, after) = (asleep(&last, cpu), asleep(&now, cpu));
            assert!(after >= before - 1e-6, "CPU {cpu} slept {before} s, then {after} s");
        }
        last = now;
    }
}

#[test]
fn threads_that_run_are_seen_in_the_run_queues() {
    let collecting = Collecting::new(&[Group::CPU]);
    let length = || {
        let values = collecting.read(Group::CPU, SIDES[0]);
        values
            .iter()
            .filter(|(name, _)| name.starts_with("onlooker_run_queue_length"))
            .map(|(_, value)| value)
            .sum::<f64>()
    };
    const THREADS: u32 = 12;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let begin = Instant::now();
        let mut most = 0.0_f64;
        while most < f64::from(THREADS) && begin.elapsed() < Duration::from_secs(10) {
            most = most.max(length());
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(most >= f64::from(THREADS), "{THREADS} threads ran, and at most {most} tasks were seen");
    });
    // And they go: as many as before are too few for the threads to be among them, or others run, whom procfs counts.
    let running = || -> f64 {
        let loads = std::fs::read_to_string("/proc/loadavg").unwrap();
        loads.split(' ').nth(3).unwrap().split('/').next().unwrap().parse().unwrap()
    };
    let begin = Instant::now();
    while length() >= f64::from(THREADS).max(running()) {
        assert!(begin.elapsed() < Duration::from_secs(20), "the run queues stay long");
        std::thread::sleep(Duration::from_millis(5));
    }
}
