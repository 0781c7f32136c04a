// SPDX-License-Identifier: Apache-2.0
//! `make bench-responder`: what a READ costs in softirq, for each of tc and XDP, by length, with and without ICRC.

use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use onlooker_responder::{Config, Kind, Rate, Region, Responder};

use super::{Request, Stopwatch, install_nothing, load};
use crate::machine::is_quick;
use crate::report::{Results, spread};

const RKEY: u32 = 1;
const COMPUTED_RKEY: u32 = 2;
const VA: u64 = 4096;
const REPEAT: u32 = 20_000;
const BOUND_NS: f64 = 750.0;

/// One way of answering.
struct Subject {
    name: String,
    program: &'static str,
    /// Which of the stopwatches; the first only restores.
    work: usize,
    request: Request,
    has_bound: bool,
    samples: Vec<f64>,
}

/// What is read: memory, and a computed block.
fn add_regions(responder: &Responder) -> Result<()> {
    let slab = responder.create_slab(0, 16)?;
    let memory = slab.map(0, 16, true)?;
    for (value, word) in (0u64..).zip(memory.words()) {
        word.store(value.wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::Relaxed);
    }
    responder.add_region(RKEY, &Region { va: 0, blocks: 16, kind: Kind::Memory { slab: 0, first_block: 0 } })?;
    let computed = Region { va: VA, blocks: 1, kind: Kind::Computed { collector: 1, identity: 1 << 40 } };
    responder.add_region(COMPUTED_RKEY, &computed)?;
    install_nothing(responder, 1)
}

fn subjects() -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for (side, program) in [("tc", "bench_tc"), ("xdp", "bench_xdp")] {
        let mut subject = |name: String, work, rkey, length_bytes, has_bound| -> Result<()> {
            let (name, request) = (format!("responder_{side}_{name}"), Request::new(VA, rkey, length_bytes)?);
            subjects.push(Subject { name, program, work, request, has_bound, samples: Vec::new() });
            Ok(())
        };
        for length in [64, 256, 1024] {
            subject(length.to_string(), 1, RKEY, length, length == 1024)?;
            subject(format!("{length}_no_icrc"), 2, RKEY, length, false)?;
        }
        subject("1024_budgets".into(), 3, RKEY, 1024, false)?;
        subject("computed".into(), 1, COMPUTED_RKEY, 1024, false)?;
    }
    Ok(subjects)
}

pub(crate) fn run() -> Result<bool> {
    let rounds = if is_quick() { 9 } else { 45 };
    // The variants share the maps of one responder.
    let (responder, config) = load()?;
    add_regions(&responder)?;
    // Budgets that are accounted and never exceeded.
    let rate = Some(Rate { per_second: 1_000_000_000, burst: u32::MAX });
    let stopwatches = [
        Stopwatch::load(&responder, &config, true)?,
        Stopwatch::load(&responder, &config, false)?,
        Stopwatch::load(&responder, &Config { skip_icrc: true, ..config }, false)?,
        Stopwatch::load(&responder, &Config { source_rate: rate, cpu_rate: rate, ..config }, false)?,
    ];
    let mut subjects = subjects()?;
    for Subject { name, program, work, request, .. } in &subjects {
        let (_, bytes) = stopwatches[*work].run(program, request, 1)?;
        ensure!(bytes == request.answer_bytes, "{name}: {bytes} bytes came back, not {}", request.answer_bytes);
    }
    for _ in 0..rounds {
        for subject in &mut subjects {
            let (with, _) = stopwatches[subject.work].run(subject.program, &subject.request, REPEAT)?;
            let (without, _) = stopwatches[0].run(subject.program, &subject.request, REPEAT)?;
            subject.samples.push(with - without);
        }
    }
    let mut results = Results::default();
    for Subject { name, has_bound, samples, .. } in &mut subjects {
        let cost = spread(samples);
        println!("{name} {:.0} ns, quartiles {:.0} to {:.0}", cost.median, cost.low, cost.high);
        if *has_bound {
            results.at_most(name, cost.median, "ns", BOUND_NS);
        }
    }
    Ok(results.passed())
}
