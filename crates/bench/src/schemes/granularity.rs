// SPDX-License-Identifier: Apache-2.0
//! `make bench-granularity`: how much slower a floating-point program on the watched core becomes, by scheme and by how often it is read.
//!
//! Pairs of a run that is read and one that is not, in random order, all conditions in turn; the program counts its own steps. Reported is the median of
//! the ratios and what can be said of it.

use super::Scheme;
use super::watched::{Watched, with_watched};
use crate::curves::{Panel, draw_if_wanted};
use crate::machine::{self, ASKING_CORE, WATCHED_CORE, is_quick, now_ns, parameter, pin, sleep_ns};
use crate::report::Results;
use crate::victim::statistics::{Interval, MAX_RATIOS, Random, interval};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

const MS: u64 = 1_000_000;
const REALTIME_PRIORITY: i32 = 50;
const INTERVALS_MS: [u64; 6] = [1, 4, 16, 64, 256, 1024];
const QUICK_INTERVALS_MS: [u64; 3] = [1, 16, 128];
/// A run sees at least so many readings, where the interval is long.
const LEAST_READINGS: u64 = 3;
/// Steps between two looks at the clock: some microseconds.
const STEPS: u32 = 1000;
/// Read so often, the values computed at the READ must not cost the program anything that shows, or no more than this, percent.
const FREE_FROM_MS: u64 = 16;
const FREE_PCT: f64 = 1.0;

/// A condition and its ratios: speed while read by speed while not.
struct Series {
    /// `None`: nothing beside nothing.
    scheme: Option<Scheme>,
    interval_ms: u64,
    ratios: Vec<f64>,
}

impl Series {
    fn name(&self) -> String {
        format!("{}_{}ms", self.scheme.map_or("control", Scheme::name), self.interval_ms)
    }

    /// How much slower, percent: median, and the ends of the interval.
    fn slowdown(&self) -> Result<(f64, f64, f64, Interval)> {
        let interval = interval(&self.ratios).context("no pairs")?;
        let pct = |ratio: f64| 100.0 * (1.0 - ratio);
        Ok((pct(interval.median), pct(interval.high), pct(interval.low), interval))
    }
}

/// The program: told how long to run, it says how many steps it made a second.
struct Program {
    orders: Sender<u64>,
    speeds: Receiver<f64>,
}

impl Program {
    /// On the watched core until this is dropped.
    fn start() -> Result<Self> {
        let (orders, ordered) = channel::<u64>();
        let (tell, speeds) = channel();
        std::thread::Builder::new().spawn(move || -> Result<()> {
            pin(WATCHED_CORE)?;
            while let Ok(run_ns) = ordered.recv() {
                tell.send(compute(run_ns))?;
            }
            Ok(())
        })?;
        Ok(Self { orders, speeds })
    }

    fn begin(&self, run_ns: u64) -> Result<()> {
        self.orders.send(run_ns).context("the program has ended")
    }
}

/// Steps of a recurrence a second, for so long.
fn compute(run_ns: u64) -> f64 {
    let begin_ns = now_ns();
    let (mut x, mut rounds, mut last_ns) = (0.5f64, 0u64, begin_ns);
    while last_ns - begin_ns < run_ns {
        for _ in 0..STEPS {
            x = std::hint::black_box(x.mul_add(-x, x) * 3.7);
        }
        rounds += 1;
        last_ns = now_ns();
    }
    rounds as f64 * f64::from(STEPS) * 1e9 / (last_ns - begin_ns) as f64
}

pub(crate) fn run() -> Result<bool> {
    machine::check_cores()?;
    machine::raise_session();
    let pairs = usize::try_from(parameter("PAIRS", 12, 6)?)?;
    let run_ns = parameter("RUN_MS", 400, 120)? * MS;
    ensure!((1..=MAX_RATIOS).contains(&pairs), "PAIRS: 1 to {MAX_RATIOS}");
    let intervals: &[u64] = if is_quick() { &QUICK_INTERVALS_MS } else { &INTERVALS_MS };
    let mut all = vec![Series { scheme: None, interval_ms: intervals[0], ratios: Vec::new() }];
    for scheme in Scheme::ALL {
        let series = |interval_ms: &u64| Series { scheme: Some(scheme), interval_ms: *interval_ms, ratios: Vec::new() };
        all.extend(intervals.iter().map(series));
    }
    let world = World::new()?;
    machine::lock_memory();
    with_watched(&world, |watched| {
        let program = Program::start()?;
        machine::pin(ASKING_CORE)?;
        let mut random = Random(0x0b5e_55ed);
        for _ in 0..pairs {
            let mut order: Vec<&mut Series> = all.iter_mut().collect();
            random.shuffle(&mut order);
            for series in order {
                let run_ns = run_ns.max(LEAST_READINGS * series.interval_ms * MS);
                let is_first = random.below(2) == 0;
                let early = if is_first { Some(read(watched, &program, series, run_ns)?) } else { None };
                program.begin(run_ns)?;
                let without = program.speeds.recv()?;
                let with = match early {
                    Some(speed) => speed,
                    None => read(watched, &program, series, run_ns)?,
                };
                series.ratios.push(with / without);
            }
        }
        Ok(())
    })?;
    report(&all, intervals)
}

/// The program's speed while it is read.
fn read(watched: &mut Watched<'_>, program: &Program, series: &Series, run_ns: u64) -> Result<f64> {
    let interval_ns = series.interval_ms * MS;
    let Some(scheme) = series.scheme else {
        program.begin(run_ns)?;
        return Ok(program.speeds.recv()?);
    };
    watched.begin(scheme, interval_ns)?;
    machine::set_realtime(REALTIME_PRIORITY)?;
    program.begin(run_ns)?;
    let begin_ns = now_ns();
    let mut due = 0;
    let speed = loop {
        match program.speeds.try_recv() {
            Ok(speed) => break speed,
            Err(TryRecvError::Disconnected) => anyhow::bail!("the program has ended"),
            Err(TryRecvError::Empty) => {}
        }
        watched.read(scheme).with_context(|| scheme.title())?;
        // What is late is not made up for.
        due = (due + 1).max((now_ns() - begin_ns) / interval_ns);
        let due_ns = begin_ns + due * interval_ns;
        sleep_ns(due_ns.min(begin_ns + run_ns + MS).saturating_sub(now_ns()));
    };
    machine::set_realtime(0)?;
    watched.end();
    Ok(speed)
}

fn report(all: &[Series], intervals: &[u64]) -> Result<bool> {
    println!("how much slower the program is while it is read: median [95 % confidence interval]");
    for series in all {
        let (median, low, high, _) = series.slowdown()?;
        println!("  {:22} {median:6.2} % [{low:6.2}, {high:6.2}], {} pairs", series.name(), series.ratios.len());
    }
    let mut results = Results::default();
    let of = |scheme: Scheme, interval_ms: u64| {
        let found = all.iter().find(|series| series.scheme == Some(scheme) && series.interval_ms == interval_ms);
        found.context("a series for each combination")?.slowdown()
    };
    for &interval_ms in intervals {
        let (median, _, high, bounds) = of(Scheme::Computed, interval_ms)?;
        if interval_ms >= FREE_FROM_MS {
            let is_nothing = bounds.includes_one();
            let expected = format!(
                "<= {FREE_PCT}, or nothing shown: interval {} 0",
                if is_nothing { "includes" } else { "excludes" }
            );
            let name = format!("granularity_computed_{interval_ms}ms_slowdown_pct");
            results.line(&name, &format!("{high:.2}"), "%", &expected, is_nothing || high <= FREE_PCT);
        } else {
            let others = [Scheme::TcpComputed, Scheme::TcpSampled].map(|scheme| of(scheme, interval_ms));
            let [one, other] = others;
            let name = format!("granularity_computed_{interval_ms}ms_slowdown_beyond_tcp");
            results.at_most(&name, median - one?.0.min(other?.0), "percentage points", 0.0);
        }
    }
    let curve = |scheme: Scheme| -> Result<Vec<(f64, f64)>> {
        intervals.iter().map(|&ms| Ok((ms as f64, of(scheme, ms)?.0))).collect()
    };
    let curves = Scheme::ALL.iter().map(|&scheme| Ok((scheme.title(), curve(scheme)?))).collect::<Result<_>>()?;
    let panel = Panel { title: "slower, percent, by how often it is read".to_owned(), unit: " ms", curves };
    draw_if_wanted("granularity.svg", "What being read costs a floating-point program on the same core", &[panel])?;
    Ok(results.passed())
}
