// SPDX-License-Identifier: Apache-2.0
//! Counts of a long reading instead of its values: which frames came, which due readings of which region gave none and why, and how late the reader was.
//!
//! A *gap* is a due reading of a region that gave no fresh valid frame: no answer, refused blocks, gone from the directory, another identity, an
//! acquisition time that stood still in a computed group, or a whole reading that failed or had to bootstrap again first. A region is expected from
//! its first frame on, for as long as the reading goes on; one that is replaced by another incarnation is one gap, and the successor is expected then.

use crate::host::{Connection, HostError, Reading};
use crate::output;
use onlooker_reader::{Counters, Frame};
use onlooker_region::histogram::Shape;
use onlooker_region::schema::Kind;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How often a line is written.
const EVERY: Duration = Duration::from_secs(1);
/// Buckets of 12.5 %, up to 18 minutes.
const SHAPE: Shape = Shape { grouping_power: 3, max_power: 40 };

/// Durations.
struct Times {
    buckets: Vec<u64>,
    count: u64,
    max_ns: u64,
}

impl Times {
    fn new() -> Self {
        Self { buckets: vec![0; SHAPE.buckets()], count: 0, max_ns: 0 }
    }

    fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[SHAPE.index(ns)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Upper end of the bucket that holds this part of the times.
    fn at(&self, percent: u64) -> u64 {
        let (wanted, mut seen) = ((self.count * percent).div_ceil(100), 0);
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, |index| SHAPE.range(index).1.min(self.max_ns))
    }

    fn json(&self) -> serde_json::Value {
        json!({"p50_ns": self.at(50), "p99_ns": self.at(99), "max_ns": self.max_ns})
    }
}

/// A region that was read once.
struct Known {
    name: String,
    labels: Vec<(String, String)>,
    /// Acquisition time of its oldest computed block, when it last had a frame.
    computed_ns: Option<u64>,
    seen: bool,
}

/// What was counted.
pub(super) struct Summary {
    interval: Duration,
    begin: Instant,
    written: Instant,
    readings: u64,
    failed: u64,
    anew: u64,
    /// Due times that passed by because a reading took long, and because this process got no CPU in time.
    skipped: [u64; 2],
    regions: BTreeMap<u64, Known>,
    frames: u64,
    gaps: BTreeMap<(String, &'static str), u64>,
    /// Of sessions that are over.
    reads_before: [u64; 2],
    reads: [u64; 2],
    late: Times,
    took: Times,
}

impl Summary {
    pub(super) fn new(interval: Duration) -> Self {
        let now = Instant::now();
        Self {
            interval,
            begin: now,
            written: now,
            readings: 0,
            failed: 0,
            anew: 0,
            skipped: [0; 2],
            regions: BTreeMap::new(),
            frames: 0,
            gaps: BTreeMap::new(),
            reads_before: [0; 2],
            reads: [0; 2],
            late: Times::new(),
            took: Times::new(),
        }
    }

    /// Takes a reading in, and writes a line if it is time.
    pub(super) fn take(
        &mut self,
        connection: &Connection,
        result: &Result<Reading, HostError>,
        late: Duration,
        took: Duration,
    ) -> io::Result<()> {
        self.readings += 1;
        self.late.record(late);
        self.took.record(took);
        match result {
            Ok(reading) => {
                if *reading != Reading::Straight {
                    self.anew += 1;
                    self.reads_before = std::array::from_fn(|at| self.reads_before[at] + self.reads[at]);
                    self.gap_of_all("anew");
                }
                let Counters { reads, blocks, .. } = connection.session.counters();
                self.reads = [*reads, *blocks];
                connection.session.frames().for_each(|frame| self.frame(&frame, *reading == Reading::Straight));
                self.missing(*reading == Reading::Straight);
            }
            Err(_) => {
                self.failed += 1;
                self.gap_of_all("failed");
            }
        }
        if self.written.elapsed() >= EVERY {
            self.written = Instant::now();
            self.write()?;
        }
        Ok(())
    }

    /// `slow`: because the reading before took too long.
    pub(super) fn skipped(&mut self, count: u64, slow: bool) {
        self.skipped[usize::from(!slow)] += count;
    }

    fn gap(&mut self, region: &str, why: &'static str) {
        *self.gaps.entry((region.to_owned(), why)).or_default() += 1;
    }

    fn gap_of_all(&mut self, why: &'static str) {
        let names: Vec<_> = self.regions.values().map(|known| known.name.clone()).collect();
        names.iter().for_each(|name| self.gap(name, why));
    }

    /// `counts`: gaps of this reading have not been counted as those of all regions.
    fn frame(&mut self, frame: &Frame, counts: bool) {
        let entry = frame.entry();
        let trouble = match (frame.problem(), frame.refused().first()) {
            (Some(problem), _) => Some(problem.word()),
            (None, Some(refused)) => Some(refused.reject.name()),
            (None, None) => None,
        };
        let computed_ns = computed_ns(frame);
        let known = self.regions.entry(entry.identity.word()).or_insert_with(|| Known {
            name: entry.name.clone(),
            labels: entry.labels.clone(),
            computed_ns: None,
            seen: true,
        });
        known.seen = true;
        let trouble = trouble.or_else(|| {
            let stands_still = known.computed_ns.zip(computed_ns).is_some_and(|(before, now)| now <= before);
            stands_still.then_some("not fresh")
        });
        match trouble {
            None => {
                self.frames += 1;
                known.computed_ns = computed_ns;
            }
            Some(why) if counts => self.gap(&entry.name, why),
            Some(_) => {}
        }
    }

    /// Regions that gave nothing since they are not there.
    fn missing(&mut self, counts: bool) {
        let mut missing = Vec::new();
        let mut replaced = Vec::new();
        for (identity, known) in self.regions.iter().filter(|(_, known)| !known.seen) {
            let again = |other: &Known| other.seen && other.name == known.name && other.labels == known.labels;
            let is_replaced = self.regions.values().any(again);
            missing.push((known.name.clone(), if is_replaced { "identity" } else { "missing" }));
            if is_replaced {
                replaced.push(*identity);
            }
        }
        // From now on its successor is expected.
        replaced.iter().for_each(|identity| drop(self.regions.remove(identity)));
        if counts {
            missing.iter().for_each(|(name, why)| self.gap(name, why));
        }
        self.regions.values_mut().for_each(|known| known.seen = false);
    }

    pub(super) fn write(&self) -> io::Result<()> {
        let gaps: Vec<_> = self
            .gaps
            .iter()
            .map(|((region, why), count)| json!({"region": region, "reason": why, "count": count}))
            .collect();
        let line = json!({
            "seconds": self.begin.elapsed().as_secs_f64(),
            "interval_ns": u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX),
            "readings": self.readings,
            "failed": self.failed,
            "anew": self.anew,
            "skipped": {"slow_reading": self.skipped[0], "late_reader": self.skipped[1]},
            "regions": self.regions.len(),
            "frames": self.frames,
            "gaps": self.gaps.values().sum::<u64>(),
            "gaps_by": gaps,
            "reads": self.reads_before[0] + self.reads[0],
            "blocks": self.reads_before[1] + self.reads[1],
            "late": self.late.json(),
            "took": self.took.json(),
        });
        let mut out = output::stdout();
        writeln!(out, "{line}")?;
        out.flush()
    }
}

/// Acquisition time of a frame's oldest computed block.
fn computed_ns(frame: &Frame) -> Option<u64> {
    let mut oldest: Option<u64> = None;
    frame.decode(|sample| {
        if let (Kind::Computed, Some(time_ns)) = (sample.group.kind, sample.time_ns) {
            oldest = Some(oldest.map_or(time_ns, |oldest| oldest.min(time_ns)));
        }
    });
    oldest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_by_their_buckets() {
        let mut times = Times::new();
        assert_eq!(times.at(50), 0);
        for us in 1..=100 {
            times.record(Duration::from_micros(us));
        }
        let near = |ns: u64, about: u64| ns >= about && ns <= about + about / 8;
        assert!(near(times.at(50), 50_000) && near(times.at(99), 99_000), "{} {}", times.at(50), times.at(99));
        assert_eq!(times.max_ns, 100_000);
    }
}
