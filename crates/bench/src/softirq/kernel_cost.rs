// SPDX-License-Identifier: Apache-2.0
//! `make bench-kernel-cost`: what a full sample of the kernel's metrics costs: computed at the READ, on this machine
//! and as on machines of 16 and 128 CPUs, and published by timers of the kernel every 10 and 100 ms.
//! `bench/kernel-cost` puts what agent and node_exporter take beside it.
//!
//! **Computed**: each block of each group. **Larger machines**: the same programs, told of so many CPUs; those that are
//! not there are those that are, so their structures are in the caches, which on a large machine they are not.
//! **Published**: a task of SCHED_FIFO spins on a core and adds up the time that it is interrupted for around the
//! timers' due times, up to 300 us a time (what is longer is the hypervisor's), with the timers on that core and
//! without, in turns: so the interrupt itself counts, too. A task of SCHED_IDLE keeps the core from idling, or the
//! kernel would move the timers to another.
//!
//! **With veths**: the costliest block of group network once two pairs of veths have come to its devices, whose queues
//! are read besides, at both ends.
//!
//! Needs root; it runs in a network namespace of its own with loopback and three bridges, and veths in the end only.
//! `QUICK=1` does a fifth of the rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use onlooker_metrics::collect::{Installed, Options, Packed, Publication, Published, install, install_as_if};
use onlooker_metrics::groups::Group;
use onlooker_responder::Responder;

use super::blocks::{Cost, Costs, PACKED, REPEAT, Subject, measure, own_namespace};
use super::load;
use crate::machine::{WATCHED_CORE, is_quick, now_ns, pin, set_idle, set_realtime};
use crate::report::{Results, Spread, spread};

const BRIDGES: u32 = 3;
/// Receive queues of a pair of veths, at each end; of those with more than eight there is no row.
const VETH_QUEUES: [u32; 2] = [1, 8];
/// A full computed sample on two CPUs, all blocks: where returns are plain, and where they are safe ones.
const SAMPLE_BOUNDS_NS: [f64; 2] = [4000.0, 10_000.0];
/// A computed block, the whole READ, likewise.
const BLOCK_BOUNDS_NS: [f64; 2] = [5000.0, 7500.0];
/// A full sample with packed blocks, whole READs, by one without.
const PACKED_BOUND: f64 = 0.75;
/// Issue: all groups, published every 10 ms.
const PUBLISHED_BOUND_PCT: f64 = 0.3;
const LARGER: [u32; 2] = [16, 128];
const INTERVALS_MS: [u64; 2] = [10, 100];
const SLAB: u32 = 6;
const PIECE: Duration = Duration::from_millis(400);
/// Between two looks at the clock when nobody interrupts.
const SHORTEST_GAP_NS: u64 = 200;
const LONGEST_GAP_NS: u64 = 300_000;
/// How long before a due time an interruption may begin, at most, and how long after it.
const BEFORE_DUE_NS: u64 = 20_000;
const AFTER_DUE_NS: u64 = 300_000;

/// That of this machine.
fn bound(bounds: [f64; 2]) -> f64 {
    bounds[usize::from(has_safe_returns())]
}

/// Whether this kernel returns from every function by way of a thunk (AMD's first to fourth Zen, SRSO): then a helper
/// call, of which collectors are made, takes several times as long. docs/kernel-metrics.md, Cost.
fn has_safe_returns() -> bool {
    let path = "/sys/devices/system/cpu/vulnerabilities/spec_rstack_overflow";
    std::fs::read_to_string(path).is_ok_and(|text| text.contains("Safe RET"))
}

/// Sums over blocks.
fn sums(costs: &[(Subject, Cost)]) -> Cost {
    let sum = |of: fn(&Cost) -> f64| costs.iter().map(|(_, cost)| of(cost)).sum();
    let (low, median, high) = (sum(|cost| cost.whole.low), sum(|cost| cost.whole.median), sum(|cost| cost.whole.high));
    Cost { whole: Spread { low, median, high }, own: sum(|cost| cost.own) }
}

fn costliest<'a>(costs: impl IntoIterator<Item = &'a (Subject, Cost)>) -> f64 {
    costs.into_iter().map(|(_, cost)| cost.whole.median).fold(0.0, f64::max)
}

/// A line a group; the sum of all.
fn table(installed: &Installed, base: f64, costs: &[(Subject, Cost)]) -> Cost {
    println!("{:12} {:>6} {:>14} {:>16} {:>12}", "group", "blocks", "collectors, ns", "whole READs, ns", "most, ns");
    for group in &installed.groups {
        let name = group.group.name();
        let of_group: Vec<_> = costs.iter().filter(|(subject, _)| subject.group == name).collect();
        let sum = |of: fn(&Cost) -> f64| of_group.iter().map(|(_, cost)| of(cost)).sum::<f64>();
        let (own, whole) = (sum(|cost| cost.own), sum(|cost| cost.whole.median));
        let most = costliest(of_group.iter().copied());
        println!("{name:12} {:>6} {own:>14.0} {whole:>16.0} {most:>12.0}", of_group.len());
    }
    let all = sums(costs);
    println!("{:12} {:>6} {:>14.0} {:>16.0}", "all", costs.len(), all.own, all.whole.median);
    println!("a READ of a computed block whose collector does nothing takes {base:.0} ns");
    all
}

fn computed(rounds: usize, results: &mut Results) -> Result<bool> {
    let (responder, config) = load()?;
    let installed = install(&responder, &Options::default())?;
    for (group, reason) in &installed.refused {
        println!("{group}: refused: {reason}");
    }
    let cpus = std::thread::available_parallelism()?;
    println!("computed, {cpus} CPUs, loopback and {BRIDGES} bridges, as on this machine:");
    let packed = Packed::of(&installed.groups);
    let (base, costs) = measure(&responder, &config, &installed, packed.as_ref(), (rounds, REPEAT))?;
    let (packed_costs, costs): (Costs, Costs) = costs.into_iter().partition(|(subject, _)| subject.group == PACKED);
    let all = table(&installed, base, &costs);
    results.at_most("kernel_cost_full_sample_ns", all.own, "ns", bound(SAMPLE_BOUNDS_NS));
    let Spread { low, median, high } = all.whole;
    println!("full sample, whole READs: {median:.0} ns ({low:.0} to {high:.0})");
    if let Some(packed) = packed {
        let is_member = |name: &str| {
            let mut members = installed.groups.iter().filter(|group| packed.collectors.contains(&group.slot));
            members.any(|group| group.group.name() == name)
        };
        let (members, others): (Costs, Costs) = costs.into_iter().partition(|(subject, _)| is_member(subject.group));
        let (alone, together) = (sums(&members).whole.median, sums(&packed_costs).whole.median);
        let (blocks, places) = (members.len(), packed_costs.len());
        println!("packed: {blocks} blocks in {places}, whole READs: {together:.0} ns in place of {alone:.0}");
        let ratio = (together + sums(&others).whole.median) / median;
        results.at_most("kernel_cost_packed_sample_by_full", ratio, "x", PACKED_BOUND);
    }
    published(&responder, &installed, rounds, results)?;
    Ok(installed.refused.iter().all(|(group, _)| group.absence().is_some()))
}

fn larger(rounds: usize, results: &mut Results) -> Result<()> {
    for cpus in LARGER {
        let (responder, config) = load()?;
        // Counters of the responder are in a map that has as many CPUs as there are.
        let groups = Group::computed().filter(|group| *group != Group::RESPONDER).collect();
        let installed = install_as_if(&responder, &Options { groups, ..Options::default() }, cpus)?;
        for (group, reason) in &installed.refused {
            println!("{group}: refused: {reason}");
        }
        println!("computed, as on {cpus} CPUs, without group responder:");
        let (base, costs) = measure(&responder, &config, &installed, None, (rounds, REPEAT / 10))?;
        table(&installed, base, &costs);
        let name = format!("kernel_cost_costliest_block_as_on_{cpus}_cpus");
        results.at_most(&name, costliest(&costs), "ns", bound(BLOCK_BOUNDS_NS));
    }
    Ok(())
}

/// Group network with veths among the devices.
fn with_veths(rounds: usize, results: &mut Results) -> Result<()> {
    for queues in VETH_QUEUES {
        let end = |name: &str| format!("{name}{queues} numtxqueues {queues} numrxqueues {queues}");
        let arguments = format!("link add {} type veth peer name {}", end("collectn"), end("collectf"));
        let added = std::process::Command::new("ip").args(arguments.split(' ')).status()?;
        if !added.success() {
            println!("with 2 veth: not measured: ip {arguments}: {added}");
            return Ok(());
        }
    }
    let (responder, config) = load()?;
    let installed = install(&responder, &Options { groups: vec![Group::NETWORK], ..Options::default() })?;
    let group = installed.groups.first().with_context(|| format!("network: refused: {:?}", installed.refused))?;
    if !group.uncovered.is_empty() {
        println!("with 2 veth: not measured: no row here for {} (veth: from Linux 6.7 on)", group.uncovered.join(", "));
        return Ok(());
    }
    println!("computed, loopback, {BRIDGES} bridges and 2 veth, of {VETH_QUEUES:?} queues:");
    let (base, costs) = measure(&responder, &config, &installed, None, (rounds, REPEAT))?;
    table(&installed, base, &costs);
    let name = "kernel_cost_costliest_network_block_with_2_veth";
    results.at_most(name, costliest(&costs), "ns", bound(BLOCK_BOUNDS_NS));
    Ok(())
}

/// Percent of the core that timers of all groups take.
fn published(responder: &Responder, installed: &Installed, rounds: usize, results: &mut Results) -> Result<()> {
    let blocks: u32 = installed.groups.iter().map(|group| group.blocks).sum();
    let slab = responder.create_slab(SLAB, blocks.next_multiple_of(4))?;
    let start = |interval_ms: u64| -> Result<Vec<Published>> {
        let mut first_block = 0;
        let mut twins = Vec::new();
        for group in &installed.groups {
            let (interval, identity) = (Duration::from_millis(interval_ms), u64::from(group.slot) << 32 | 1 << 16);
            let publication = Publication { interval, slab: &slab, first_block, identity, home: None };
            twins.push(group.publish(responder, &publication)?);
            first_block += group.blocks;
        }
        Ok(twins)
    };
    pin(WATCHED_CORE)?;
    let busy = Busy::start()?;
    let mut shares = [const { Vec::new() }; INTERVALS_MS.len()];
    let mut written = [(0, Duration::ZERO, Duration::ZERO); INTERVALS_MS.len()];
    for _ in 0..rounds {
        for (index, interval_ms) in INTERVALS_MS.into_iter().enumerate() {
            let without = interrupted(interval_ms)?;
            let twins = start(interval_ms)?;
            let count = || twins.iter().map(|twin| twin.written().unwrap_or(0)).sum::<u64>();
            let spent = || twins.iter().map(|twin| twin.spent().unwrap_or_default()).sum::<Duration>();
            let (before, spent_before, begin) = (count(), spent(), Instant::now());
            let with = interrupted(interval_ms)?;
            let (all, all_spent, time) = &mut written[index];
            *all += count() - before;
            *all_spent += spent() - spent_before;
            *time += begin.elapsed();
            shares[index].push(with - without);
        }
    }
    drop(busy);
    for ((interval_ms, shares), (count, spent, time)) in INTERVALS_MS.into_iter().zip(&mut shares).zip(written) {
        let Spread { low, median, high } = spread(shares);
        let rate = count as f64 / time.as_secs_f64();
        let own_pct = 100.0 * spent.as_secs_f64() / time.as_secs_f64();
        println!(
            "published every {interval_ms} ms: {} groups, {blocks} blocks, {rate:.0} blocks/s; {:.0} ns and {own_pct:.3} % of it on blocks, the rest interrupts; quartiles {low:.3} to {high:.3} %",
            installed.groups.len(),
            own_pct * 1e7 / rate
        );
        let (name, bound) = (format!("kernel_cost_published_{interval_ms}ms_cpu_pct"), PUBLISHED_BOUND_PCT);
        results.line(&name, &format!("{median:.3}"), "%", &format!("<= {bound}"), median <= bound);
    }
    Ok(())
}

/// Percent of its time for which a task of SCHED_FIFO on this core does not run, about the times at which timers of
/// this interval are due.
fn interrupted(interval_ms: u64) -> Result<f64> {
    set_realtime(50)?;
    let begin_ns = now_ns();
    let end_ns = begin_ns + u64::try_from(PIECE.as_nanos())?;
    let (mut last_ns, mut lost_ns, mut beyond_ns) = (begin_ns, 0, 0);
    while last_ns < end_ns {
        let time_ns = now_ns();
        match time_ns - last_ns {
            0..SHORTEST_GAP_NS => {}
            gap @ SHORTEST_GAP_NS..=LONGEST_GAP_NS => {
                let since_due_ns = (last_ns + BEFORE_DUE_NS) % (interval_ms * 1_000_000);
                if since_due_ns < BEFORE_DUE_NS + AFTER_DUE_NS {
                    lost_ns += gap;
                }
            }
            gap => beyond_ns += gap,
        }
        last_ns = time_ns;
    }
    set_realtime(0)?;
    let pct = 100.0 * f64::from(u32::try_from(lost_ns)?) / (last_ns - begin_ns - beyond_ns).max(1) as f64;
    Ok(pct)
}

/// A task that keeps the core from idling, in no other task's way.
struct Busy {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Busy {
    fn start() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        // It inherits the core.
        let spin = move || {
            if set_idle().is_ok() {
                while !flag.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        };
        Ok(Self { stop, thread: Some(std::thread::Builder::new().spawn(spin)?) })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn run() -> Result<bool> {
    let rounds = if is_quick() { 9 } else { 45 };
    let mut results = Results::default();
    own_namespace(BRIDGES);
    let is_whole = computed(rounds, &mut results)?;
    larger(if is_quick() { 3 } else { 9 }, &mut results)?;
    // Last: their rows are in no other figure.
    with_veths(rounds, &mut results)?;
    Ok(results.passed() && is_whole)
}
