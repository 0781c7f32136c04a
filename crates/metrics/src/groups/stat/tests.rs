// SPDX-License-Identifier: Apache-2.0
//! Group stat.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onlooker_metrics::groups::Group;
use onlooker_testbed::try_often;

use crate::regions::{Collecting, between, file};
use crate::support::SIDES;

const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// The first number of a line of /proc/stat.
fn stat(name: &str) -> f64 {
    let text = file("/proc/stat");
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("/proc/stat has no {name}")).split(' ').nth(1).unwrap().parse().unwrap()
}

/// /proc/softirqs, with the keys of the region.
fn softirqs() -> BTreeMap<String, f64> {
    let text = file("/proc/softirqs");
    let mut lines = text.lines();
    let cpus: Vec<&str> = lines.next().unwrap().split_whitespace().map(|cpu| &cpu[3..]).collect();
    let mut counts = BTreeMap::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let kind = words.next().unwrap().trim_end_matches(':').to_owned();
        for (cpu, count) in cpus.iter().zip(words) {
            counts.insert(format!("node_softirqs_functions_total{{cpu={cpu},type={kind}}}"), count.parse().unwrap());
        }
    }
    counts
}

fn sum(values: &BTreeMap<String, f64>, name: &str) -> f64 {
    let prefix = format!("{name}{{");
    values.iter().filter(|(series, _)| series.starts_with(&prefix)).map(|(_, value)| value).sum()
}

#[test]
fn interrupts_forks_and_tasks_that_wait_add_up_to_those_of_proc_stat() {
    let collecting = Collecting::new(&[Group::STAT]);
    for side in SIDES {
        for (metric, word) in [
            ("onlooker_interrupts_total", "intr"),
            ("node_forks_total", "processes"),
            ("onlooker_iowait_tasks", "procs_blocked"),
        ] {
            try_often(metric, || {
                let before = stat(word);
                let values = collecting.read(Group::STAT, side);
                between(sum(&values, metric), before, stat(word), 0.0)
            });
        }
    }
    let forks = || collecting.read(Group::STAT, SIDES[0])["node_forks_total{}"];
    let before = forks();
    assert!(Command::new("true").status().unwrap().success());
    assert!(forks() > before, "a process began, and forks stay at {before}");
}

#[test]
fn files_threads_and_processes_are_those_of_procfs() {
    let collecting = Collecting::new(&[Group::STAT]);
    let word = |path: &str, at: usize| -> String { file(path).split_whitespace().nth(at).unwrap().to_owned() };
    let processes = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let is_number = |name: &std::ffi::OsString| name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        f64::from(u32::try_from(entries.filter(|entry| is_number(&entry.file_name())).count()).unwrap())
    };
    let number = |text: String| -> f64 { text.parse().unwrap() };
    // It counts itself: it is open while others count, too.
    let file_nr = std::fs::File::open("/proc/sys/fs/file-nr").unwrap();
    let open = || {
        let mut text = [0; 96];
        let length = file_nr.read_at(&mut text, 0).unwrap();
        number(String::from_utf8_lossy(&text[..length]).split_whitespace().next().unwrap().to_owned())
    };
    let most = || number(word("/proc/sys/fs/file-nr", 2));
    let threads = || number(word("/proc/loadavg", 3).split_once('/').unwrap().1.to_owned());
    let procfs: [(&str, &dyn Fn() -> f64); 4] = [
        ("node_filefd_allocated", &open),
        ("node_filefd_maximum", &most),
        ("node_processes_threads", &threads),
        ("node_processes_pids", &processes),
    ];
    for side in SIDES {
        for (metric, printed) in procfs {
            try_often(metric, || {
                let before = printed();
                let values = collecting.read(Group::STAT, side);
                let found = || (collecting.group(Group::STAT).checks.clone(), collecting.installed.findings.clone());
                assert!(values.keys().any(|series| series.starts_with(metric)), "{metric} was left out: {:?}", found());
                between(sum(&values, metric), before, printed(), 0.0)
            });
        }
    }
    // A hundred files are seen as they are opened, and as they are closed, wherever procfs sees them.
    let seen = || sum(&collecting.read(Group::STAT, SIDES[0]), "node_filefd_allocated");
    let (before, before_procfs) = (seen(), open());
    let held: Vec<_> = (0..200).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let (grown, grown_procfs) = (seen() - before, open() - before_procfs);
    assert!((grown - grown_procfs).abs() < 100.0 && grown_procfs > 100.0, "{grown}, procfs {grown_procfs}");
    drop(held);
    let threads_before = sum(&collecting.read(Group::STAT, SIDES[0]), "node_processes_threads");
    let barrier = std::sync::Barrier::new(51);
    std::thread::scope(|scope| {
        (0..50).for_each(|_| drop(scope.spawn(|| barrier.wait())));
        let now = sum(&collecting.read(Group::STAT, SIDES[0]), "node_processes_threads");
        assert!(now >= threads_before + 40.0, "{threads_before}, with 50 more {now}");
        barrier.wait();
    });
}

#[test]
fn softirqs_of_each_cpu_and_type_are_those_of_proc_softirqs() {
    let collecting = Collecting::new(&[Group::STAT]);
    for side in SIDES {
        for key in softirqs().keys() {
            try_often(key, || {
                let before = softirqs()[key];
                let value = collecting.read(Group::STAT, side)[key];
                between(value, before, softirqs()[key], 0.0)
            });
        }
    }
}

#[test]
fn softirqs_that_wait_are_seen() {
    let collecting = Collecting::new(&[Group::STAT]);
    let pending = || {
        let values = collecting.read(Group::STAT, SIDES[0]);
        let pending: BTreeMap<String, f64> =
            values.into_iter().filter(|(series, _)| series.starts_with("onlooker_softirq_pending{")).collect();
        assert!(pending.values().all(|value| *value == 0.0 || *value == 1.0), "{pending:?}");
        pending
    };
    assert_eq!(pending().len() % SOFTIRQS.len(), 0);
    // Datagrams over loopback raise NET_RX on the CPU that sends them, and timers and RCU raise theirs on all: whoever looks often enough sees some.
    let stop = AtomicBool::new(false);
    let mut seen = BTreeMap::<String, u32>::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                let to = socket.local_addr().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..64 {
                        let _ = socket.send_to(&[0; 1400], to);
                    }
                }
            });
        }
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(60) && seen.values().sum::<u32>() < 5 {
            for (series, value) in pending() {
                if value > 0.0 {
                    *seen.entry(series).or_default() += 1;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(seen.values().sum::<u32>() >= 5, "{seen:?}");
}
