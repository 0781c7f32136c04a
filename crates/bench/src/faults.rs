// SPDX-License-Identifier: Apache-2.0
//! A program whose samples are wrong now and then, and which says when: for `bench/bench-checks`.
//!
//! It commits 200 series in guarded groups every 5 ms. Of each kind of fault there are 40 series: `fault_spike` is ten
//! times what it was, `fault_stuck` does not move, `fault_negative` is less than 0, `fault_reset_total` begins at 0, and
//! eight groups of `fault_silent` are not committed. A line `fault NAME N FROM TO` says that what was committed from the
//! first time on and before the second (UTC ns) was wrong; for a group each of its series has one.

use std::io::{self, Write as _};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use onlooker_sdk::{Guarded, Metric, Region, Slot};

use crate::victim::statistics::Random;

const PERIOD: Duration = Duration::from_millis(5);
const SERIES: usize = 40;
/// Groups of the silent ones.
const SILENT_GROUPS: usize = 8;
/// Between two faults of a series, ms.
const APART_MS: (usize, usize) = (5_000, 10_000);
/// No fault begins in the last part, ms.
const QUIET_MS: u64 = 2_000;
/// So soon after the end of the program a reader knows it, ns.
const GONE_NS: u128 = 3_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Spike,
    Stuck,
    Negative,
    Reset,
    Silent,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Spike, Self::Stuck, Self::Negative, Self::Reset, Self::Silent];

    fn name(self) -> &'static str {
        match self {
            Self::Spike => "fault_spike",
            Self::Stuck => "fault_stuck",
            Self::Negative => "fault_negative",
            Self::Reset => "fault_reset_total",
            Self::Silent => "fault_silent",
        }
    }

    /// How long a fault lasts, ms.
    fn lasts_ms(self) -> u64 {
        match self {
            Self::Spike | Self::Negative => 25,
            Self::Stuck => 800,
            Self::Reset => 0,
            Self::Silent => 500,
        }
    }

    fn groups(self) -> usize {
        if self == Self::Silent { SILENT_GROUPS } else { 1 }
    }
}

/// What goes wrong as one: a series, or all of a silent group.
struct Victim {
    next: Instant,
    /// Since when it is wrong, UTC ns.
    since: Option<(Instant, u128)>,
    count: u64,
    last: f64,
}

struct Group {
    kind: Kind,
    /// Number of its first series.
    first: usize,
    guarded: Guarded,
    levels: Vec<Slot<f64>>,
    counts: Vec<Slot<u64>>,
    victims: Vec<Victim>,
}

/// Publishes so many seconds.
pub(crate) fn run(seconds: &str) -> Result<bool> {
    let mut random = Random(0x0b5e_55ed_u64);
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    let quiet = end - Duration::from_millis(QUIET_MS);
    let kinds = Kind::ALL.into_iter().flat_map(|kind| (0..kind.groups()).map(move |number| (kind, number)));
    let mut groups: Vec<Group> = kinds.map(|(kind, number)| open(kind, number, &mut random)).collect::<Result<_>>()?;
    let mut out = io::stdout().lock();
    let mut due = Instant::now();
    while due < end {
        for group in &mut groups {
            group.step(due, due < quiet, &mut random, &mut out)?;
        }
        out.flush()?;
        due += PERIOD;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    // From now on all are silent: who has gone does not come.
    let end_ns = utc_ns();
    for n in 0..SERIES {
        writeln!(out, "fault {} {n} {end_ns} {}", Kind::Silent.name(), end_ns + GONE_NS)?;
    }
    Ok(true)
}

fn open(kind: Kind, number: usize, random: &mut Random) -> Result<Group> {
    let series = SERIES / kind.groups();
    let first = number * series;
    let mut region = Region::builder(&format!("{}_{number}", kind.name()));
    let metric = |n: usize| Metric::new(kind.name()).label("n", &n.to_string());
    let all = first..first + series;
    let (guarded, (levels, counts)) = region.guarded(|group| match kind {
        Kind::Reset => (Vec::new(), all.map(|n| group.counter::<u64>(metric(n))).collect()),
        _ => (all.map(|n| group.gauge::<f64>(metric(n))).collect(), Vec::new()),
    });
    let region = region.open()?;
    let victims = if kind == Kind::Silent { 1 } else { series };
    let victims =
        (0..victims).map(|_| Victim { next: later(Instant::now(), random), since: None, count: 0, last: 0.0 });
    Ok(Group { kind, first, guarded: region.get(guarded), levels, counts, victims: victims.collect() })
}

fn later(now: Instant, random: &mut Random) -> Instant {
    now + Duration::from_millis((APART_MS.0 + random.below(APART_MS.1)) as u64)
}

fn utc_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

impl Victim {
    /// Whether it is wrong now. When a fault is over: since when it was.
    fn is_wrong(&mut self, kind: Kind, now: Instant, may_begin: bool, random: &mut Random) -> (bool, Option<u128>) {
        match self.since {
            Some((since, since_ns)) if now >= since + Duration::from_millis(kind.lasts_ms().max(1)) => {
                (self.since, self.next) = (None, later(now, random));
                (false, Some(since_ns))
            }
            Some(_) => (true, None),
            None if may_begin && now >= self.next => {
                self.since = Some((now, utc_ns()));
                (true, None)
            }
            None => (false, None),
        }
    }
}

impl Group {
    fn step(&mut self, now: Instant, may_begin: bool, random: &mut Random, out: &mut impl io::Write) -> Result<()> {
        let Self { kind, first, guarded, levels, counts, victims } = self;
        let before_ns = utc_ns();
        let states: Vec<_> = victims.iter_mut().map(|victim| victim.is_wrong(*kind, now, may_begin, random)).collect();
        for (at, (_, over)) in states.iter().enumerate() {
            let Some(since_ns) = over else { continue };
            let of = if *kind == Kind::Silent { 0..levels.len() } else { at..at + 1 };
            for at in of {
                writeln!(out, "fault {} {} {since_ns} {before_ns}", kind.name(), *first + at)?;
            }
        }
        if *kind == Kind::Silent && states[0].0 {
            return Ok(());
        }
        guarded.commit(|values| {
            for (at, level) in levels.iter().enumerate() {
                // Around 50, never twice the same, some units apart.
                let usual = 50.0 + (0..4).map(|_| random.below(1_000_000) as f64 / 1e6 - 0.5).sum::<f64>();
                let is_wrong = states.get(at).is_some_and(|(is_wrong, _)| *is_wrong);
                let last = victims.get(at).map_or(usual, |victim| victim.last);
                let value = match kind {
                    Kind::Spike if is_wrong => 10.0 * usual,
                    Kind::Stuck if is_wrong => last,
                    Kind::Negative if is_wrong => -usual,
                    _ => usual,
                };
                values.set(*level, value);
                victims.iter_mut().skip(at).take(1).for_each(|victim| victim.last = value);
            }
            for ((count, victim), (is_wrong, _)) in counts.iter().zip(victims.iter_mut()).zip(&states) {
                victim.count = if *is_wrong { 0 } else { victim.count + 1 + random.below(9) as u64 };
                values.set(*count, victim.count);
            }
        });
        Ok(())
    }
}
