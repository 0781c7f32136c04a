// SPDX-License-Identifier: Apache-2.0
//! What sums over CPUs cost a reading: ns for a host of 2 and of 128 CPUs with 4 network devices, and allocations. `QUICK=1` for fewer rounds.
#![allow(clippy::print_stdout)]

#[allow(dead_code)]
#[path = "../tests/derive/machine.rs"]
mod machine;

use std::process::ExitCode;
use std::time::Instant;

use machine::{Counting, Machine, allocations, feed, samples};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let rounds = if std::env::var_os("QUICK").is_some() { 200 } else { 5_000 };
    let mut all_pass = true;
    for (cpus, bound_ns) in [(2, 5_000u128), (128, 100_000)] {
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
        let median_ns = times_ns[times_ns.len() / 2];
        println!("{cpus} CPUs: {values} values a reading, p99 {} ns", times_ns[times_ns.len() * 99 / 100]);
        for (name, value, unit, bound) in
            [("time", median_ns, "ns", bound_ns), ("allocations", u128::from(allocated), "", 0)]
        {
            let pass = value <= bound;
            all_pass &= pass;
            let verdict = if pass { "pass" } else { "fail" };
            println!("RESULT derive_{name}_{cpus}_cpus {value} {unit} (expected <= {bound}) {verdict}");
        }
    }
    ExitCode::from(u8::from(!all_pass))
}
