// SPDX-License-Identifier: Apache-2.0
//! `onlooker-bench`: what Onlooker promises beside today's monitors, measured on one machine of at least two cores. docs/benchmarks.md has the method.
//!
//! `latency`: how long one READ of 1 KiB takes while the watched core is idle, saturated or flooded. `victim`: what being monitored costs Redis. `scheduler-latency`: what
//! counting how long tasks wait costs these. `accuracy`: how far
//! readings are from the truth, by the way in which values are acquired. `granularity`: how much slower
//! they make a program on the same core.
//! Both make network namespaces of this process's own, which the kernel removes with it, and end every program that they start. They need root.
//! Parameters come from the environment; `hog`, `burst` and `flood` are the loads, started by the benches themselves.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]
#![allow(clippy::cast_precision_loss, reason = "counts and nanoseconds are far below 2^52")]

mod children;
mod latency;
mod load;
mod machine;
mod peers;
mod report;
mod responder;
mod schemes;
mod victim;
mod waits;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["latency"] => latency::run(),
        ["victim"] => victim::run(),
        ["scheduler-latency"] => waits::run(),
        ["accuracy"] => schemes::accuracy::run(),
        ["granularity"] => schemes::granularity::run(),
        ["burst", seed] => schemes::burst::burst(seed),
        ["hog"] => load::hog(),
        ["flood", target, per_second] => load::flood(target, per_second).map(|()| true),
        _ => Err(anyhow::anyhow!(
            "usage: onlooker-bench latency | victim | scheduler-latency | accuracy | granularity (see docs/benchmarks.md)"
        )),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("onlooker-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
