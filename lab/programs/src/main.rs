// SPDX-License-Identifier: Apache-2.0
//! `onlooker-lab`: what runs in the laboratory's guests beside the real programs (docs/laboratory.md). One program, so
//! that a guest gets one file, and who writes known values and who reads them have one rule.
//!
//! | command | run by | |
//! |---|---|---|
//! | `pair` | `lab/lab-verbs` | READs between two guests' devices |
//! | `cost` | `lab/lab-cost` | one-sided READs beside RPC and TCP |
//! | `faults` | `lab/lab-faults` | faults that the real programs do not make |
//! | `words`, `reads` | `lab/lab-table` | a region of known words; READs of it by each pair of requester and responder |
//! | `regions`, `churn` | `lab/lab-push`, `bench/churn` | regions that come and go; who reads them |
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for the console")]

mod churn;
mod common;
mod cost;
mod faults;
mod pair;
mod table;

fn main() -> common::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["pair"] => pair::run(),
        ["cost", ref words @ ..] => cost::run(words),
        ["faults", ref words @ ..] => faults::run(words),
        ["words"] => table::published::run(),
        ["reads", address, token, pair, lose] => table::run(address, token, pair, lose),
        ["regions", regions_per_s, seconds] => churn::regions::run(regions_per_s.parse()?, seconds.parse()?),
        ["churn", address, token, mode, seconds, every_ms] => churn::run(address, token, mode, seconds, every_ms),
        _ => Err("usage: see lab/programs/src/main.rs".into()),
    }
}
