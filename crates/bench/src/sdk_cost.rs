// SPDX-License-Identifier: Apache-2.0
//! What the SDK costs. Each figure is a median over rounds; what is compared is measured in turn within one round.
//! Prints lines `RESULT <name> <value> <unit> (expected <bound>) pass|fail`; ends with 1 where one failed.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use onlooker_sdk::{Counter, Elements, Region, Text, globals};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ROUNDS: usize = 101;
const LOOPS: u32 = 100_000;
const COMMITS: u32 = 5_000;
const FORK_PAIRS: usize = 15;

globals! {
    static GLOBALS: Globals = "cost_globals" {
        total: Counter = "bench_total";
    }
}

/// The yardstick: an ordinary global and a plain relaxed atomic addition, in a cache line of its own as the others.
#[repr(align(64))]
struct Line(AtomicU64);
static PLAIN: Line = Line(AtomicU64::new(0));

/// ns for each of `times` calls.
fn each_ns(times: u32, mut body: impl FnMut(u32)) -> f64 {
    let began = Instant::now();
    (0..times).for_each(&mut body);
    began.elapsed().as_secs_f64() * 1e9 / f64::from(times)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// us for a fork with its child's end.
fn fork_us() -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        // SAFETY: the child does nothing but end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the process, without destructors that belong to the parent.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert!(child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } == child);
        began.elapsed().as_secs_f64() * 1e6
    });
    median(times.collect())
}

/// us for a fork in a process of its own, with a region of 8 KiB or without one.
fn fork_us_elsewhere(what: &str) -> f64 {
    let own = std::env::current_exe().expect("this program has a path");
    let output = std::process::Command::new(own).args(["forks", what]).output().expect("it can be run again");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("it prints a number")
}

/// What [`fork_us_elsewhere`] runs.
fn forks(what: Option<&str>) -> ExitCode {
    let mut builder = Region::builder("forks");
    builder.counters("forks_total", Elements::new("number", 1000));
    let _region = (what == Some("region")).then(|| builder.open().expect("a good description and some memory"));
    // Published where there is an agent, private where there is none: both are copied for the child.
    let _published = onlooker_sdk::wait(Duration::from_secs(1));
    println!("{}", fork_us());
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "forks") {
        return forks(arguments.get(1).map(String::as_str));
    }
    let mut builder = Region::builder("cost");
    let total = builder.counter("region_total");
    let latency = builder.histogram("latency", 3, 40);
    let (small, slots) = builder.guarded(|g| [1, 2, 3, 4, 5].map(|n| g.counter::<u64>(format!("s{n}").as_str())));
    let (large, all) =
        builder.guarded(|g| (0..124).map(|n| g.counter::<u64>(format!("l{n}").as_str())).collect::<Vec<_>>());
    let (rows, hits) = builder.table::<(Text<16>,), _>(["name"], 50, |t| t.counter::<u64>("hits_total"));
    let region = builder.open().expect("a good description and some memory");
    let (total, latency, small) = (region.get(total), region.get(latency), region.get(small));
    let (large, rows) = (region.get(large), region.get(rows));

    let mut columns: [Vec<f64>; 7] = std::array::from_fn(|_| Vec::new());
    let mut ratios: [Vec<f64>; 2] = std::array::from_fn(|_| Vec::new());
    for _ in 0..ROUNDS {
        let measured = [
            each_ns(LOOPS, |_| {
                PLAIN.0.fetch_add(1, Relaxed);
            }),
            each_ns(LOOPS, |_| GLOBALS.total.inc()),
            each_ns(LOOPS, |_| total.inc()),
            each_ns(LOOPS, |n| latency.record(u64::from(n) * 37)),
            each_ns(COMMITS, |n| small.commit(|values| slots.iter().for_each(|slot| values.set(*slot, u64::from(n))))),
            each_ns(COMMITS, |n| large.commit(|values| all.iter().for_each(|slot| values.set(*slot, u64::from(n))))),
            each_ns(COMMITS, |_| {
                black_box(rows.upsert(("name",), |row| row.add(hits, 1)).is_ok());
            }),
        ];
        ratios[0].push(measured[1] / measured[0]);
        ratios[1].push(measured[2] / measured[0]);
        columns.iter_mut().zip(measured).for_each(|(column, ns)| column.push(ns));
    }
    let rounds = u64::try_from(ROUNDS).unwrap_or(0) * u64::from(LOOPS);
    assert_eq!((GLOBALS.total.value(), total.value(), PLAIN.0.load(Relaxed)), (rounds, rounds, rounds));

    let [plain, global, _, record, small, large, table] = columns.map(median);
    let [global_ratio, region_ratio] = ratios.map(median);
    let mut passed = true;
    let mut result = |name: &str, value: f64, unit: &str, bound: f64| {
        let pass = value <= bound;
        passed &= pass;
        println!("RESULT {name} {value:.3} {unit} (expected <= {bound}) {}", if pass { "pass" } else { "fail" });
    };
    println!("a plain relaxed atomic addition: {plain:.2} ns");
    result("global_counter_ratio", global_ratio, "x_plain_add", 1.05);
    result("global_counter_inc", global, "ns", 20.0);
    result("region_counter_ratio", region_ratio, "x_plain_add", 1.05);
    result("histogram_record", record, "ns", 60.0);
    result("guarded_commit_5_fields", small, "ns", 500.0);
    result("guarded_commit_124_fields", large, "ns", 800.0);
    result("table_upsert", table, "ns", 800.0);
    // In pairs: what a fork takes varies more with the machine than with the SDK.
    let extra = (0..FORK_PAIRS).map(|_| fork_us_elsewhere("region") - fork_us_elsewhere("alone"));
    result("fork_extra_8_KiB", median(extra.collect()), "us", 1000.0);
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
