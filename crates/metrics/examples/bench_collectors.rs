// SPDX-License-Identifier: Apache-2.0
//! What a READ of each group's costliest block takes in softirq on this machine's own kernel: `stopwatch` has the method.
//!
//! Needs root; it runs in a network namespace of its own with 23 bridges, so that blocks of group network are full. Prints lines `RESULT
//! collector_<group>_ns <value> ns (expected <= 5000) pass|fail`; ends with 1 where one failed. `QUICK=1` does a fifth of the rounds.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod stopwatch;

use std::error::Error;
use std::process::ExitCode;

use onlooker_metrics::collect::{Options, install};

use stopwatch::{Cost, REPEAT, is_quick, measure, own_namespace, responder, result};

/// DESIGN: a computed block costs at most this.
const BOUND_NS: f64 = 5000.0;

fn bench() -> Result<bool, Box<dyn Error>> {
    let rounds = if is_quick() { 9 } else { 45 };
    own_namespace(23);
    let (responder, config) = responder()?;
    let installed = install(&responder, &Options::default())?;
    for (group, reason) in &installed.refused {
        println!("{group}: refused: {reason}");
    }
    let (base, costs) = measure(&responder, &config, &installed, (rounds, REPEAT))?;
    println!("a READ of a computed block whose collector does nothing: {base:.0} ns");
    let mut passed = installed.refused.iter().all(|(group, _)| group.absence().is_some());
    for group in &installed.groups {
        let name = group.group.name();
        let of_group = costs.iter().filter(|(subject, _)| subject.group == name).map(|(_, cost)| *cost);
        let most = of_group.max_by(|a, b| a.whole.total_cmp(&b.whole));
        let Cost { whole, low, high, own } = most.ok_or_else(|| format!("{name}: no block is answered"))?;
        let (blocks, cpus) = (group.blocks, std::thread::available_parallelism()?);
        println!(
            "{name}: {blocks} blocks on {cpus} CPUs, quartiles {low:.0} to {high:.0} ns; the collector's own part {own:.0} ns"
        );
        passed &= result(&format!("collector_{name}_ns"), whole, 0, "ns", BOUND_NS);
    }
    Ok(passed)
}

fn main() -> ExitCode {
    match bench() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench_collectors: {error}");
            ExitCode::FAILURE
        }
    }
}
