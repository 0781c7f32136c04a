// SPDX-License-Identifier: Apache-2.0
//! `make bench-scheduler-latency`: what counting how long tasks wait costs those who are switched, woken and served: two tasks that take turns on the watched core, by a
//! pipe (each switch has a wake-up) and by yielding (each has a preemption), and redis-server. Interleaved pairs of runs without and with the programs attached.
//!
//! Beside the product's way of remembering since when a task waits, the two that suggest themselves (`bpf/waits_by_*.bpf.c`), for comparison only.

mod programs;
mod turns;

use anyhow::{Context, Result};

use crate::machine::{self, ASKING_CORE, parameter, sleep_ns};
use crate::peers;
use crate::report::Results;
use crate::victim::client::Client;
use crate::victim::statistics::{Interval, MAX_RATIOS, Random, interval};
use crate::world::World;
use programs::{Programs, Way};
use turns::{Turns, turn_ns};

/// The promise: CPU time that a switch, and the wake-up that goes before it, costs more, at the far end of the confidence interval.
const SWITCH_BOUND_NS: f64 = 500.0;
/// And throughput of redis-server lost, percent.
const THROUGHPUT_BOUND_PCT: f64 = 5.0;

/// A run without and one with the programs, one after the other.
#[derive(Clone, Copy, Debug)]
struct Pair {
    without: f64,
    with: f64,
}

pub(crate) fn run() -> Result<bool> {
    machine::check_cores()?;
    machine::raise_session();
    let pairs = parameter("PAIRS", 60, 8)?.clamp(1, MAX_RATIOS as u64);
    let rounds = parameter("TURNS", 200_000, 50_000)?;
    let run_ns = parameter("RUN_MS", 2000, 400)? * 1_000_000;
    let connections = usize::try_from(parameter("CONNECTIONS", 32, 32)?)?;
    let world = World::new()?;
    let programs = Programs::new(&world)?;
    let mut results = Results::default();
    let mut random = Random(0x6f6e_6c6f_6f6b_6572);
    println!("{pairs} pairs of runs of {rounds} turns; CPU time of both tasks for a turn");
    for turns in [Turns::Pipe, Turns::Yield] {
        turn_ns(turns, rounds)?;
        for way in Way::ALL {
            let pairs = if way == Way::Product { pairs } else { (pairs / 4).max(6) };
            let pairs = interleaved(pairs, &mut random, &programs, way, || turn_ns(turns, rounds))?;
            let more = of(&pairs, |pair| pair.with - pair.without)?;
            let ratio = of(&pairs, |pair| pair.with / pair.without)?;
            let without = of(&pairs, |pair| pair.without)?;
            println!(
                "  {turns}, {way}: {:+.0} ns [{:+.0}, {:+.0}], ratio {:.3} [{:.3}, {:.3}]; without: {:.0} ns a turn",
                more.median, more.low, more.high, ratio.median, ratio.low, ratio.high, without.median
            );
            if way == Way::Product {
                results.at_most(&format!("scheduler_latency_{turns}_turn"), more.high, "ns", SWITCH_BOUND_NS);
            }
        }
    }
    let redis = peers::redis(&world)?;
    machine::pin(ASKING_CORE)?;
    let mut client = Client::connect(redis.address, connections)?;
    client.run(run_ns)?;
    let pairs = interleaved(pairs, &mut random, &programs, Way::Product, || Ok(client.run(run_ns)?.per_second))?;
    let (ratio, without) = (of(&pairs, |pair| pair.with / pair.without)?, of(&pairs, |pair| pair.without)?);
    println!(
        "  redis-server: throughput {:.4} [{:.4}, {:.4}] of that without, {:.0} commands/s; waits counted in all: {}",
        ratio.median,
        ratio.low,
        ratio.high,
        without.median,
        programs.counted()
    );
    let loss_pct = 100.0 * (1.0 - ratio.low);
    let expected = format!("<= {THROUGHPUT_BOUND_PCT}, or nothing shown");
    let pass = ratio.includes_one() || loss_pct <= THROUGHPUT_BOUND_PCT;
    results.line("scheduler_latency_redis_throughput_loss_pct", &format!("{loss_pct:.2}"), "%", &expected, pass);
    // Without this the lines above would pass where nothing is attached.
    let counted = programs.counted();
    results.line("scheduler_latency_waits_counted", &counted.to_string(), "waits", ">= 1", counted > 0);
    Ok(results.passed())
}

/// Pairs of runs, each in an order of its own; programs are loaded for a run and gone after it.
fn interleaved(
    pairs: u64,
    random: &mut Random,
    programs: &Programs,
    way: Way,
    mut run: impl FnMut() -> Result<f64>,
) -> Result<Vec<Pair>> {
    let with = |run: &mut dyn FnMut() -> Result<f64>| -> Result<f64> {
        let _attached = programs.attach(way)?;
        // What they were loaded with is cleared up.
        sleep_ns(20_000_000);
        run()
    };
    let mut all = Vec::new();
    for _ in 0..pairs {
        let early = if random.below(2) == 0 { Some(with(&mut run)?) } else { None };
        sleep_ns(20_000_000);
        let without = run()?;
        let with = match early {
            Some(figure) => figure,
            None => with(&mut run)?,
        };
        all.push(Pair { without, with });
    }
    Ok(all)
}

fn of(pairs: &[Pair], figure: impl Fn(&Pair) -> f64) -> Result<Interval> {
    interval(&pairs.iter().map(figure).collect::<Vec<f64>>()).context("no pairs")
}
