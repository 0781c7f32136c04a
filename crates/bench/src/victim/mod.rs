// SPDX-License-Identifier: Apache-2.0
//! `make bench-victim`: what being monitored costs redis-server on the watched core, in interleaved pairs of runs without and with each monitor.

pub(crate) mod client;
mod monitors;
pub(crate) mod statistics;

use crate::machine::{
    self, ASKING_CORE, CoreTicks, WATCHED_CORE, now_ns, parameter, run_time_ns, sleep_ns, thread_cpu_ns,
};
use crate::peers;
use crate::report::{Results, time};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use client::{Client, Figures};
use monitors::{Asked, Condition, Monitors};
use statistics::{Interval, MAX_RATIOS, Random, interval};

const CONDITIONS: [Condition; 5] =
    [Condition::Control, Condition::Ours(10), Condition::Ours(100), Condition::NodeExporter, Condition::Netdata];
/// The promise: throughput lost and 99.9th percentile gained by reading every 10 ms, percent, at the far end of the confidence interval.
const THROUGHPUT_BOUND_PCT: f64 = 1.0;
const TAIL_BOUND_PCT: f64 = 5.0;
/// From so many pairs on the bench must be able to see what node_exporter costs.
const CERTAIN_PAIRS: usize = 30;

/// A run without and one with a monitor, one after the other.
#[derive(Clone, Copy, Debug)]
struct Pair {
    without: Figures,
    with: Figures,
}

/// All pairs of a condition.
#[derive(Debug)]
struct Series {
    condition: Condition,
    pairs: Vec<Pair>,
    asked: Asked,
    /// Busy percent of the asking and the watched core, summed over runs with the monitor.
    busy_pct: [f64; 2],
}

pub(crate) fn run() -> Result<bool> {
    machine::check_cores()?;
    machine::raise_session();
    let pairs = parameter("PAIRS", 60, 6)?.clamp(1, MAX_RATIOS as u64);
    let run_ns = parameter("RUN_MS", 2000, 300)? * 1_000_000;
    let connections = usize::try_from(parameter("CONNECTIONS", 32, 32)?)?;
    let blocks = u32::try_from(parameter("BLOCKS", 16, 16)?)?;
    let world = World::new()?;
    let redis = peers::redis(&world)?;
    let mut monitors = Monitors::start(&world, blocks)?;
    machine::pin(ASKING_CORE)?;
    let mut client = Client::connect(redis.address, connections)?;
    client.run(run_ns)?;
    let (victim_ns, client_ns, begin_ns) = (run_time_ns(redis.running.pid())?, thread_cpu_ns(), now_ns());
    client.run(run_ns)?;
    let wall_ns = (now_ns() - begin_ns) as f64;
    println!(
        "alone, redis-server takes {:.0} % of core {WATCHED_CORE} (interrupts not counted), the load generator {:.0} % of core {ASKING_CORE}",
        100.0 * (run_time_ns(redis.running.pid())? - victim_ns) as f64 / wall_ns,
        100.0 * (thread_cpu_ns() - client_ns) as f64 / wall_ns
    );
    println!(
        "{pairs} pairs of runs of {} ms for each of {} conditions; {connections} connections",
        run_ns / 1_000_000,
        CONDITIONS.len()
    );
    let before = monitors.answered_by_core()?;
    let mut all = CONDITIONS.map(|condition| Series {
        condition,
        pairs: Vec::new(),
        asked: Asked::default(),
        busy_pct: [0.0; 2],
    });
    let mut random = Random(0x6f6e_6c6f_6f6b_6572);
    for _ in 0..pairs {
        let mut order: Vec<&mut Series> = all.iter_mut().collect();
        random.shuffle(&mut order);
        for series in order {
            let is_first = random.below(2) == 0;
            let early = if is_first { Some(with(series, &mut monitors, &mut client, run_ns)?) } else { None };
            // As long a rest as a monitor has to find its pace.
            sleep_ns(300_000_000);
            let without = client.run(run_ns)?;
            let with = match early {
                Some(figures) => figures,
                None => with(series, &mut monitors, &mut client, run_ns)?,
            };
            series.pairs.push(Pair { without, with });
        }
    }
    let answered: Vec<u64> =
        monitors.answered_by_core()?.iter().zip(before).map(|(after, before)| after - before).collect();
    println!("READs answered by core: {answered:?}");
    report(&all, &answered)
}

fn with(series: &mut Series, monitors: &mut Monitors, client: &mut Client, run_ns: u64) -> Result<Figures> {
    let active = monitors.begin(series.condition)?;
    let ticks = [CoreTicks::of(ASKING_CORE)?, CoreTicks::of(WATCHED_CORE)?];
    let figures = client.run(run_ns);
    for (sum, (ticks, core)) in series.busy_pct.iter_mut().zip(ticks.into_iter().zip([ASKING_CORE, WATCHED_CORE])) {
        *sum += ticks.busy_pct(core)?;
    }
    let asked = monitors.end(active)?;
    series.asked.cycles += asked.cycles;
    series.asked.cpu_ns += asked.cpu_ns;
    series.asked.wall_ns += asked.wall_ns;
    series.asked.failed += asked.failed;
    figures
}

/// What a condition does to the victim.
#[derive(Debug)]
struct Effect {
    name: String,
    throughput: Interval,
    tail: Interval,
}

fn effect(series: &Series) -> Result<Effect> {
    let ratios = |figure: fn(&Figures) -> f64| -> Result<Interval> {
        let ratios: Vec<f64> = series.pairs.iter().map(|pair| figure(&pair.with) / figure(&pair.without)).collect();
        interval(&ratios).context("no pairs")
    };
    let throughput = ratios(|figures| figures.per_second)?;
    let tail = ratios(|figures| f64::from(figures.p999_ns))?;
    Ok(Effect { name: series.condition.name(), throughput, tail })
}

fn report(all: &[Series], answered: &[u64]) -> Result<bool> {
    let all_pairs = all.iter().map(|series| series.pairs.len()).min().unwrap_or(0);
    let mut effects = Vec::new();
    println!("ratio of each run with a monitor to its pair without: median [95 % confidence interval]");
    for series in all {
        let effect = effect(series)?;
        let (throughput, tail) = (effect.throughput, effect.tail);
        let mut rates: Vec<f64> = series.pairs.iter().map(|pair| pair.without.per_second).collect();
        rates.sort_by(f64::total_cmp);
        println!(
            "  {:20} throughput {:.4} [{:.4}, {:.4}], p99.9 {:.3} [{:.3}, {:.3}]; without: {:.0} commands/s, p50 {}, p99.9 {}",
            effect.name,
            throughput.median,
            throughput.low,
            throughput.high,
            tail.median,
            tail.low,
            tail.high,
            rates[rates.len() / 2],
            median_time(series, |figures| figures.p50_ns),
            median_time(series, |figures| figures.p999_ns),
        );
        let count = series.pairs.len() as f64;
        let busy = series.busy_pct.map(|sum| sum / count);
        let Asked { cycles, cpu_ns, wall_ns, failed } = series.asked;
        if wall_ns > 0 {
            println!(
                "  {:20}   asked {:.1} times/s ({failed} failed) with {:.2} % of core {ASKING_CORE}, where the load generator runs as well",
                "",
                cycles as f64 * 1e9 / wall_ns as f64,
                100.0 * cpu_ns as f64 / wall_ns as f64
            );
        }
        println!("  {:20}   busy: core {ASKING_CORE} {:.0} %, core {WATCHED_CORE} {:.0} %", "", busy[0], busy[1]);
        ensure!(failed == 0, "{}: {failed} READs or scrapes failed", effect.name);
        effects.push(effect);
    }
    let mut results = Results::default();
    for effect in &effects {
        let (throughput, tail) = (effect.throughput, effect.tail);
        // Toward more cost: the low end of throughput, the high end of latency.
        let loss = (
            format!("victim_{}_throughput_loss_pct", effect.name),
            100.0 * (1.0 - throughput.low),
            throughput.includes_one(),
        );
        let gain =
            (format!("victim_{}_p999_increase_pct", effect.name), 100.0 * (tail.high - 1.0), tail.includes_one());
        for ((name, pct, is_nothing), bound) in [(loss, THROUGHPUT_BOUND_PCT), (gain, TAIL_BOUND_PCT)] {
            if effect.name == Condition::Ours(10).name() {
                let expected = format!(
                    "<= {bound}, or nothing shown: interval {} 1",
                    if is_nothing { "includes" } else { "excludes" }
                );
                results.line(&name, &format!("{pct:.2}"), "%", &expected, is_nothing || pct <= bound);
            } else {
                let shown = if is_nothing { "nothing is shown" } else { "a difference is shown" };
                println!("{name} {pct:.2} % at most; {shown}");
            }
        }
    }
    let all: u64 = answered.iter().sum();
    let pct = 100.0 * answered[WATCHED_CORE] as f64 / all.max(1) as f64;
    results.line("victim_reads_answered_on_core1", &format!("{pct:.2}"), "%", ">= 99.9", pct >= 99.9);
    // Without this the lines above would pass for want of certainty alone, as they may where there are few pairs.
    let node_exporter = effects.iter().find(|effect| effect.name == Condition::NodeExporter.name());
    if let Some(effect) = node_exporter.filter(|_| all_pairs >= CERTAIN_PAIRS) {
        let seen = !effect.throughput.includes_one() || !effect.tail.includes_one();
        results.line("victim_node_exporter_is_seen", if seen { "1" } else { "0" }, "of 1", "= 1", seen);
    }
    claim(&effects);
    Ok(results.passed())
}

fn claim(effects: &[Effect]) {
    let words = |effect: &Effect| {
        let (throughput, tail) = (effect.throughput, effect.tail);
        let verdict = match (throughput.includes_one(), tail.includes_one()) {
            (true, true) => "is indistinguishable from none".to_owned(),
            (true, false) => "shows in p99.9 only".to_owned(),
            (false, _) => format!("changes throughput by {:+.2} %", 100.0 * (throughput.median - 1.0)),
        };
        format!("{} {verdict}", effect.name)
    };
    println!("claim: {}", effects.iter().map(words).collect::<Vec<_>>().join("; "));
}

fn median_time(series: &Series, figure: fn(&Figures) -> u32) -> String {
    let mut values: Vec<u32> = series.pairs.iter().map(|pair| figure(&pair.without)).collect();
    values.sort_unstable();
    time(u64::from(values[values.len() / 2]))
}
