// SPDX-License-Identifier: Apache-2.0
//! What sums over CPUs cost a reading: ns for a host of 2 and of 128 CPUs with 4 network devices, and allocations.
//! `QUICK=1` for fewer rounds.

#[allow(dead_code, reason = "tests need more of it")]
#[path = "../../series/tests/derive/machine.rs"]
mod machine;

use std::time::Instant;

use machine::{Machine, feed, samples};

use crate::allocations::allocations;
use crate::machine::is_quick;
use crate::report::{Results, percentile};

pub(crate) fn run() -> bool {
    let rounds = if is_quick() { 200 } else { 5_000 };
    let mut results = Results::default();
    for (cpus, bound_ns) in [(2, 5_000.0), (128, 100_000.0)] {
        let mut machine = Machine::new(cpus, &["lo", "eth0", "eth1", "br0"]);
        let regions = machine.regions();
        let read: Vec<_> =
            regions.iter().map(|(entry, plan, blocks)| (entry, plan, samples(entry, plan, blocks))).collect();
        let values: usize = read.iter().map(|(_, _, samples)| samples.len()).sum();
        let mut times_ns = Vec::new();
        let mut allocated = 0;
        for round in 0..rounds {
            let (before, begun) = (allocations(), Instant::now());
            machine.derived.begin(Some([1; 16]));
            for (entry, plan, samples) in &read {
                feed(&mut machine.derived, entry, plan, samples, |_, _, value| {
                    std::hint::black_box(value);
                });
            }
            let took_ns = begun.elapsed().as_nanos();
            if round > 0 {
                allocated += allocations() - before;
                times_ns.push(took_ns);
            }
        }
        times_ns.sort_unstable();
        let at = |share| percentile(&times_ns, share).unwrap_or_default() as f64;
        println!("{cpus} CPUs: {values} values a reading, p99 {} ns", at(0.99));
        results.at_most(&format!("derive_time_{cpus}_cpus"), at(0.5), "ns", bound_ns);
        results.at_most(&format!("derive_allocations_{cpus}_cpus"), allocated as f64, "allocations", 0.0);
    }
    results.passed()
}
