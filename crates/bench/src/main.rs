// SPDX-License-Identifier: Apache-2.0
//! `onlooker-bench`: the measurement programs of this project, one binary. docs/benchmarks.md has the methods; the
//! scripts of `bench/` make the worlds in which some of them run.
//!
//! | command | what it measures |
//! |---|---|
//! | `latency` | how long one READ of 1 KiB takes while the watched core is idle, saturated or flooded |
//! | `victim` | what being monitored costs Redis |
//! | `scheduler-latency` | what counting how long tasks wait costs them, and Redis |
//! | `accuracy`, `granularity` | how far readings are from the truth, how much slower they make a program on the same core, by the way of acquiring values |
//! | `responder`, `collectors`, `kernel-cost` | what READs take in softirq |
//! | `dta` | what telemetry reports take in softirq |
//! | `dta-beside` | metrics that are read while reports come |
//! | `dta-query` | how fast telemetry in memory is asked |
//! | `dta-live` | the same by a device, beside collectors that are processes |
//! | `requester` | one soft requester thread beside its bare sockets |
//! | `limit` | the same on a link, by UDP and by AF_XDP sockets |
//! | `hybrid` | a reading thread that sleeps, polls, or does both by turns |
//! | `torn` | torn reads |
//! | `columns`, `derive` | what checking, decoding and copying a value costs a reader, and what its sums cost |
//! | `processing`, `store` | what readings of real agents cost the controller, and its store |
//! | `record`, `export` | rows of real agents for these and for other databases |
//! | `dta-longevity` | how long values live in a Key-Write table, beside the model |
//! | `sim` | 64 to 10,000 simulated hosts, by how READs are bounded |
//! | `query` | nothing: it fills a store for queries |
//! | `sql` | what our own reader answers, for comparison |
//!
//! `burst`, `faults`, `hog` and `flood` are loads, started by the benches themselves. Parameters come from the environment. What
//! makes network namespaces makes them of this process's own: the kernel removes them with it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]
#![allow(clippy::cast_precision_loss, reason = "counts and nanoseconds are far below 2^52")]

mod agents;
mod allocations;
mod children;
mod columns;
mod curves;
mod derive;
mod faults;
mod hybrid;
mod latency;
mod limit;
mod load;
mod longevity;
mod machine;
mod peers;
mod processing;
mod query;
mod report;
mod requester;
mod responder;
mod schemes;
mod sim;
mod softirq;
mod sql;
mod store;
mod svg;
mod telemetry;
mod torn;
mod victim;
mod waits;
mod world;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Whether all results have passed.
fn run(words: &[&str]) -> anyhow::Result<bool> {
    match *words {
        ["latency"] => latency::run(),
        ["victim"] => victim::run(),
        ["scheduler-latency"] => waits::run(),
        ["accuracy"] => schemes::accuracy::run(),
        ["granularity"] => schemes::granularity::run(),
        ["responder"] => softirq::responder::run(),
        ["collectors"] => softirq::collectors::run(),
        ["kernel-cost"] => softirq::kernel_cost::run(),
        ["dta"] => softirq::translator::run(),
        ["dta-live"] => telemetry::run(),
        ["dta-beside"] => telemetry::beside::run(),
        ["dta-query"] => telemetry::query::run(),
        ["requester"] => Ok(requester::run()),
        ["hybrid"] => hybrid::run(),
        ["limit"] => limit::run(),
        ["dta-longevity"] => longevity::run(),
        ["sim"] => sim::run(),
        ["torn"] => Ok(torn::run()),
        ["columns"] => Ok(columns::run()),
        ["derive"] => Ok(derive::run()),
        ["processing", directory, readings, hosts, ref agents @ ..] => {
            processing::run(directory, readings, hosts, agents).map(|()| true)
        }
        ["store", directory, name, recording, hosts, readings] => {
            store::run(directory, name, recording, hosts, readings).map(|()| true)
        }
        ["record", file, interval_ms, seconds, ref agents @ ..] => {
            store::record::run(file, interval_ms, seconds, agents).map(|()| true)
        }
        ["export", recording, hosts, rounds, file] => store::export::run(recording, hosts, rounds, file).map(|()| true),
        ["query", columns, hosts, from_s, seconds, interval_ms, directory] => {
            query::run(columns, [hosts, from_s, seconds, interval_ms], directory).map(|()| true)
        }
        ["sql", what, directory] => sql::run(what, directory).map(|()| true),
        ["burst", seed] => schemes::burst::burst(seed),
        ["faults", seconds] => faults::run(seconds),
        ["hog"] => load::hog(),
        ["flood", target, per_second] => load::flood(target, per_second).map(|()| true),
        _ => anyhow::bail!("no such bench, or other arguments: see crates/bench/src/main.rs and docs/benchmarks.md"),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("onlooker-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
