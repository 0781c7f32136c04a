// SPDX-License-Identifier: Apache-2.0
//! `make bench-accuracy`: how far what a reader is told of a core is from what was there when it asked, by scheme, interval and load.
//!
//! Open loop: a reading is due every interval; its value is compared with the truth at the due time, so what is late is wrong by what has changed meanwhile.
//! Due times that pass while a reading is awaited get that reading.

use super::Scheme;
use super::burst::Work;
use super::server::boot_ns;
use super::truth::{Event, Truth, at, busy_pct};
use super::watched::{Reading, Watched, with_watched};
use crate::curves::{Panel, draw_if_wanted};
use crate::machine::{self, ASKING_CORE, WATCHED_CORE, now_ns, parameter, sleep_ns};
use crate::report::{Results, percentile, time};
use crate::world::World;
use anyhow::{Context, Result};

const WORKS: [Work; 4] = [
    Work { bursts: 1, hogs: 0 },
    Work { bursts: 2, hogs: 0 },
    Work { bursts: 8, hogs: 0 },
    Work { bursts: 4, hogs: 4 },
];
const INTERVALS_MS: [u64; 3] = [1, 10, 50];
const MS: u64 = 1_000_000;
const REALTIME_PRIORITY: i32 = 50;
/// A core that is busier than this has a load that all schemes know, percent.
const SATURATED_PCT: f64 = 98.0;
/// Deviations below are none: what the tracepoints themselves take, and interrupts, which the kernel's idle time leaves out and they do not.
const LEAST: [f64; 2] = [0.01, 0.1];
/// Before a due time, at most a tenth of the interval.
const SPIN_NS: u64 = 200_000;

/// A due time and what the reader had for it.
#[derive(Clone, Copy, Debug)]
struct Told {
    due_ns: u64,
    answered_ns: u64,
    reading: Reading,
}

/// Figures of a scheme at an interval under a load.
#[derive(Clone, Debug, Default)]
struct Cell {
    /// Absolute deviations: tasks, percentage points.
    running: Vec<f64>,
    /// Of the run queue from the truth when the value was acquired: what of the deviation is not age.
    running_then: Vec<f64>,
    busy: Vec<f64>,
    /// What the load really was, percent.
    true_busy: Vec<f64>,
    /// Readings with pending softirqs, of those that can tell.
    pending: (u64, u64),
    delays_ns: Vec<u64>,
}

type Figure = fn(&Cell) -> f64;

impl Cell {
    fn add(&mut self, told: &[Told], events: &[Event]) {
        let suspended_ns = boot_ns().saturating_sub(now_ns());
        let mut busy = None;
        for (index, one) in told.iter().enumerate() {
            let Some(truth) = at(events, one.due_ns) else { continue };
            let deviation = |truth: Event| (f64::from(one.reading.running) - f64::from(truth.running)).abs();
            self.running.push(deviation(truth));
            // Blocks carry CLOCK_BOOTTIME, events CLOCK_MONOTONIC.
            let acquired_ns = one.reading.time_ns.saturating_sub(suspended_ns);
            self.running_then.extend(at(events, acquired_ns).map(deviation));
            self.delays_ns.push(one.answered_ns - one.due_ns);
            if let Some(pending) = one.reading.pending {
                self.pending.0 += u64::from(pending > 0);
                self.pending.1 += 1;
            }
            let Some(before) = index.checked_sub(1).map(|index| told[index]) else { continue };
            let passed_ns = one.reading.time_ns.saturating_sub(before.reading.time_ns);
            if passed_ns > 0 {
                let idle_ns = one.reading.idle_ns.saturating_sub(before.reading.idle_ns);
                busy = Some(100.0 * (1.0 - idle_ns as f64 / passed_ns as f64).clamp(0.0, 1.0));
            }
            // What has not changed is held for true.
            if let (Some(busy), Some(truth)) = (busy, busy_pct(events, before.due_ns, one.due_ns)) {
                self.busy.push((busy - truth).abs());
                self.true_busy.push(truth);
            }
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(crate) fn run() -> Result<bool> {
    machine::check_cores()?;
    machine::raise_session();
    let piece_ms = parameter("PIECE_MS", 2500, 400)?;
    let rounds = parameter("ROUNDS", 4, 1)?;
    let world = World::new()?;
    machine::lock_memory();
    let cells = with_watched(&world, |watched| {
        machine::pin(ASKING_CORE)?;
        let truth = Truth::of(WATCHED_CORE, watched.own)?;
        let mut cells: Vec<Cell> = vec![Cell::default(); WORKS.len() * INTERVALS_MS.len() * Scheme::ALL.len()];
        for _ in 0..rounds {
            let mut cell = cells.iter_mut();
            for work in WORKS {
                let _running = work.start(&world)?;
                sleep_ns(200 * MS);
                for interval_ms in INTERVALS_MS {
                    for scheme in Scheme::ALL {
                        let (told, events) = piece(watched, &truth, scheme, (interval_ms * MS, piece_ms * MS))?;
                        cell.next().context("a cell for each combination")?.add(&told, &events);
                    }
                }
            }
        }
        Ok(cells)
    })?;
    report(&cells)
}

/// Reads for a while; the truth of that while.
fn piece(
    watched: &mut Watched<'_>,
    truth: &Truth,
    scheme: Scheme,
    (interval_ns, for_ns): (u64, u64),
) -> Result<(Vec<Told>, Vec<Event>)> {
    let first = truth.count()?;
    watched.begin(scheme, interval_ns)?;
    machine::set_realtime(REALTIME_PRIORITY)?;
    let count = for_ns / interval_ns;
    let mut told = Vec::with_capacity(usize::try_from(count)?);
    let begin_ns = now_ns() + interval_ns;
    let mut next = 0;
    while next < count {
        let due_ns = begin_ns + due(next, interval_ns);
        sleep_ns((due_ns - SPIN_NS.min(interval_ns / 10)).saturating_sub(now_ns()));
        while now_ns() < due_ns {
            std::hint::spin_loop();
        }
        let reading = watched.read(scheme).with_context(|| scheme.title())?;
        let answered_ns = now_ns();
        while next < count && begin_ns + due(next, interval_ns) <= answered_ns {
            told.push(Told { due_ns: begin_ns + due(next, interval_ns), answered_ns, reading });
            next += 1;
        }
    }
    machine::set_realtime(0)?;
    watched.end();
    Ok((told, truth.since(first)?))
}

/// When a reading is due, from the first interval on: each at another place of its interval, evenly spread (multiples of the golden ratio), since a reader's clock stands in no
/// relation to a timer that acquires. At least 0.6 intervals apart.
fn due(number: u64, interval_ns: u64) -> u64 {
    let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    number * interval_ns + ((place * interval_ns) >> 32)
}

/// Cells in the order in which they were measured.
fn report(cells: &[Cell]) -> Result<bool> {
    let mut results = Results::default();
    let mut panels = Vec::new();
    let mut lines = Vec::new();
    for (work, cells) in WORKS.iter().zip(cells.chunks(INTERVALS_MS.len() * Scheme::ALL.len())) {
        println!("{}:", work.title());
        println!(
            "  {:9} {:22} {:>10} {:>10} {:>10} {:>9} {:>10} {:>10} {:>8}",
            "every", "scheme", "run queue", "acquired", "CPU load", "pending", "delay p50", "delay p99", "readings"
        );
        for (interval_ms, cells) in INTERVALS_MS.iter().zip(cells.chunks(Scheme::ALL.len())) {
            for (scheme, cell) in Scheme::ALL.iter().zip(cells) {
                row(*interval_ms, *scheme, cell);
            }
            let figures: [(&str, Figure); 2] =
                [("run_queue", |cell| mean(&cell.running)), ("cpu_load", |cell| mean(&cell.busy))];
            for ((name, of), least) in figures.into_iter().zip(LEAST) {
                let is_told_by_all = cells.iter().any(|cell| mean(&cell.true_busy) > SATURATED_PCT);
                if name == "run_queue" || !is_told_by_all {
                    let others = cells[1..].iter().map(of).fold(f64::INFINITY, f64::min);
                    let name = format!("accuracy_{}_{interval_ms}ms_{name}_by_best_other", work.name());
                    lines.push((name, of(&cells[0]).max(least) / others.max(least)));
                }
            }
        }
        panels.push(panel(work, "run queue, tasks", cells, |cell| mean(&cell.running)));
        panels.push(panel(work, "CPU load, percentage points", cells, |cell| mean(&cell.busy)));
        let busy: Vec<f64> = cells.iter().map(|cell| mean(&cell.true_busy)).collect();
        println!("  the core was busy for {:.0} % of the time", mean(&busy));
    }
    println!("computed + one-sided: mean deviation in times of the best other scheme's");
    for (name, ratio) in lines {
        results.at_most(&name, ratio, "x", 1.0);
    }
    draw_if_wanted(
        "accuracy.svg",
        "Mean deviation of what a reader is told from what was there when it asked",
        &panels,
    )?;
    Ok(results.passed())
}

fn row(interval_ms: u64, scheme: Scheme, cell: &Cell) {
    let mut delays = cell.delays_ns.clone();
    delays.sort_unstable();
    let delay = |share| percentile(&delays, share).map_or_else(|| "-".to_owned(), time);
    let pending = match cell.pending {
        (_, 0) => "-".to_owned(),
        (seen, all) => format!("{:.1} %", 100.0 * seen as f64 / all as f64),
    };
    println!(
        "  {:9} {:22} {:>10.3} {:>10.3} {:>10.2} {:>9} {:>10} {:>10} {:>8}",
        format!("{interval_ms} ms"),
        scheme.title(),
        mean(&cell.running),
        mean(&cell.running_then),
        mean(&cell.busy),
        pending,
        delay(0.5),
        delay(0.99),
        cell.running.len()
    );
}

fn panel(work: &Work, what: &str, cells: &[Cell], of: Figure) -> Panel {
    let curve = |index: usize| {
        let points = INTERVALS_MS.iter().zip(cells.chunks(Scheme::ALL.len()));
        points.map(|(ms, cells)| (*ms as f64, of(&cells[index]))).collect()
    };
    let curves = Scheme::ALL.iter().enumerate().map(|(index, scheme)| (scheme.title(), curve(index))).collect();
    Panel { title: format!("{what}: {}", work.title()), unit: " ms", curves }
}

#[cfg(test)]
mod tests {
    use super::due;

    #[test]
    fn due_times_meet_every_part_of_the_interval_and_keep_their_order() {
        let times: Vec<u64> = (0..1000).map(|number| due(number, 1_000_000)).collect();
        assert!(times.windows(2).all(|pair| (600_000..1_700_000).contains(&(pair[1] - pair[0]))));
        for tenth in 0..10 {
            let in_it = times.iter().filter(|time| *time % 1_000_000 / 100_000 == tenth).count();
            assert!((95..106).contains(&in_it), "{tenth}: {in_it}");
        }
    }
}
