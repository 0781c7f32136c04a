// SPDX-License-Identifier: Apache-2.0
//! Guest `b`: asks in an open loop, looks at every word, and prints what it took and what it cost the other guest.

use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use super::ways::{Way, way};
use super::{CONTROL_PORT, Scheme, Talk};
use crate::common::{Result, variable};

/// USER_HZ is 100.
const TICK_NS: u64 = 10_000_000;
const BOOT_PATIENCE: Duration = Duration::from_secs(30);

/// A measurement.
#[derive(Clone, Copy)]
struct Phase {
    interval: Duration,
    rounds: u32,
}

/// What it has shown.
#[derive(Default)]
struct Figures {
    /// Rounds that did not begin before the next one was due.
    skipped: u32,
    latencies_us: Vec<u128>,
    wrong_words: usize,
    not_done: usize,
    elapsed: Duration,
}

impl Figures {
    fn percentile(&self, percent: usize) -> u128 {
        let last = self.latencies_us.len().max(1) - 1;
        self.latencies_us.get(last * percent / 100).copied().unwrap_or(0)
    }
}

/// Asks at each due time, and waits for all. A round begins late where the one before has taken long, and counts from
/// when it was due; it is skipped if the next is due, too.
fn read(way: &mut dyn Way, instances: u16, number: u64, phase: Phase) -> Result<Figures> {
    let (mut figures, mut came, mut round) = (Figures::default(), Vec::new(), 0);
    let begin = Instant::now();
    while round < phase.rounds {
        let due = begin + phase.interval * round;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        way.begin()?;
        let mut left = usize::from(instances);
        while left > 0 {
            way.take(number, &mut came)?;
            left = left.saturating_sub(came.len());
            for one in came.drain(..) {
                figures.latencies_us.push(one.at.saturating_duration_since(due).as_micros());
                figures.wrong_words += one.wrong_words.unwrap_or(0);
                figures.not_done += usize::from(one.wrong_words.is_none());
            }
        }
        let is_due = u32::try_from(begin.elapsed().as_nanos() / phase.interval.as_nanos())?.min(phase.rounds);
        figures.skipped += is_due.saturating_sub(round + 1);
        round = is_due.max(round + 1);
    }
    // The last round's interval is part of what the host is watched for.
    std::thread::sleep((begin + phase.interval * phase.rounds).saturating_duration_since(Instant::now()));
    figures.elapsed = begin.elapsed();
    figures.latencies_us.sort_unstable();
    Ok(figures)
}

struct Reader {
    watched: Talk<TcpStream, TcpStream>,
    /// Of words: another one each time.
    number: u64,
}

impl Reader {
    fn connect() -> Result<Self> {
        let host: IpAddr = variable("LAB_PEER_IP4")?.parse()?;
        let begin = Instant::now();
        let stream = loop {
            match TcpStream::connect((host, CONTROL_PORT)) {
                Ok(stream) => break stream,
                Err(error) if begin.elapsed() > BOOT_PATIENCE => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        Ok(Self { watched: Talk::over(stream)?, number: 0 })
    }

    /// Prints a line: scheme, instances, interval in ms, rounds, skipped, p50 and p99 in us, the watched processes' CPU
    /// in ticks, us and % of a core, the whole guest's in %, CPU of the setting up in us, wrong words, READs that were
    /// not done.
    fn measure(
        &mut self,
        (what, scheme): (&str, Scheme),
        way: &mut dyn Way,
        at: (u16, u64),
        phase: Phase,
    ) -> Result<()> {
        let (instances, control_us) = at;
        self.number += 1;
        self.watched.tell(&format!("count {}", self.number))?;
        self.watched.expect("counted")?;
        let figures = read(way, instances, self.number, phase)?;
        self.watched.tell("account")?;
        let account = self.watched.expect("account")?;
        let (run_ns, busy_ticks) = account.split_once(' ').ok_or("no account")?;
        let (run_ns, busy_ticks): (u64, u64) = (run_ns.parse()?, busy_ticks.parse()?);
        let percent = |ns: u64| Duration::from_nanos(ns).as_secs_f64() / figures.elapsed.as_secs_f64() * 100.0;
        println!(
            "{what} {} {instances} {} {} {} {} {} {} {} {:.3} {:.1} {control_us} {} {}",
            scheme.name(),
            phase.interval.as_millis(),
            phase.rounds - figures.skipped,
            figures.skipped,
            figures.percentile(50),
            figures.percentile(99),
            run_ns / TICK_NS,
            run_ns / 1000,
            percent(run_ns),
            percent(busy_ticks * TICK_NS),
            figures.wrong_words,
            figures.not_done,
        );
        Ok(())
    }
}

fn list(name: &str) -> Result<Vec<u16>> {
    Ok(variable(name)?.split_whitespace().map(str::parse::<u16>).collect::<std::result::Result<Vec<_>, _>>()?)
}

pub(crate) fn run() -> Result<()> {
    let (counts, intervals) = (list("INSTANCES")?, list("INTERVALS_MS")?);
    let (each_ms, long_ms): (u32, u32) = (variable("EACH_MS")?.parse()?, variable("LONG_MS")?.parse()?);
    let phase = |interval_ms: u16, ms: u32| Phase {
        interval: Duration::from_millis(interval_ms.into()),
        rounds: (ms / u32::from(interval_ms)).max(1),
    };
    let most = counts.iter().max().copied().ok_or("INSTANCES: none")?;
    let shortest = intervals.iter().min().copied().ok_or("INTERVALS_MS: none")?;
    let mut reader = Reader::connect()?;
    for scheme in Scheme::ALL {
        for instances in counts.iter().copied() {
            reader.watched.tell(&format!("start {} {instances}", scheme.name()))?;
            reader.watched.expect("listening")?;
            let mut way = way(scheme, instances)?;
            let control_ns: u64 = reader.watched.expect("connected")?.parse()?;
            let at = (instances, control_ns / 1000);
            for interval_ms in intervals.iter().copied() {
                reader.measure(("COST", scheme), &mut *way, at, phase(interval_ms, each_ms))?;
            }
            if scheme == Scheme::Read && instances == most {
                reader.measure(("LONG", scheme), &mut *way, at, phase(shortest, long_ms))?;
            }
        }
    }
    Ok(())
}
