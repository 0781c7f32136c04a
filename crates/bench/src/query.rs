// SPDX-License-Identifier: Apache-2.0
//! A store of made-up hosts, for queries: each column has a sample every INTERVAL_MS. `bench/bench-query` gives other
//! databases the same (bench/store-peers/made.go) and compares how long answers take.
//!
//! ```text
//! query COLUMNS HOSTS FROM SECONDS INTERVAL_MS DIRECTORY
//! ```
//!
//! COLUMNS has a line a series: name, `counter` or `gauge`, step, scale, labels. The word of a host's column in a sample,
//! which are numbered since FROM (UTC s), is, before it is scaled, `(sample + 1) * step` and something less than a step
//! if it is a counter; otherwise `step` and something less, which changes every five samples.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use onlooker_framestore::client::Description;
use onlooker_framestore::layout::{Layout, Part};
use onlooker_framestore::types::Line;
use onlooker_framestore::warm::Level;
use onlooker_framestore::{Config, open};
use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::series::{Form, Series};

/// Samples of all hosts from one sync to the next.
const TURN: u64 = 20;
/// Turns in which nothing is due until nothing is left to roll up.
const QUIET_TURNS: u32 = 100;

struct Column {
    series: Series,
    step: u64,
}

/// A number that looks like chance.
fn mix(a: u64) -> u64 {
    let a = a.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (a ^ a >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

impl Column {
    fn parse(line: &str) -> Result<Self> {
        let mut fields = line.split_whitespace();
        let mut next = || fields.next().with_context(|| format!("{line:?} is no column"));
        let (name, kind, step, scale) = (next()?, next()?, next()?.parse()?, next()?.parse()?);
        let metric = if kind == "counter" { Metric::Counter } else { Metric::Gauge };
        let labels = fields.map(|label| label.split_once('=').unwrap_or((label, "")));
        let labels: Vec<_> = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let acquisition = Acquisition::Direct;
        let series = Series { labels: labels.into(), scale, acquisition, ..Series::new(name, metric, Form::Unsigned) };
        Ok(Self { series, step })
    }

    fn word(&self, of: u64, sample: u64) -> u64 {
        match self.series.metric {
            Metric::Counter => (sample + 1) * self.step + mix(of << 32 | sample) % self.step,
            _ => self.step + mix(of << 32 | (sample / 5)) % self.step,
        }
    }
}

pub(crate) fn run(columns: &str, [hosts, from_s, seconds, interval_ms]: [&str; 4], directory: &str) -> Result<()> {
    let columns: Vec<Column> =
        std::fs::read_to_string(columns)?.lines().map(Column::parse).collect::<Result<Vec<_>>>()?;
    let (hosts, from_s, interval_ms): (u64, u64, u64) = (hosts.parse()?, from_s.parse()?, interval_ms.parse()?);
    let samples = seconds.parse::<u64>()? * 1_000 / interval_ms;
    let ring = Path::new("/dev/shm").join(format!("bench-query-{}", std::process::id()));
    let (store, mut writer, mut appender, _) = open(Config::keeping_all(directory, &ring, 64 << 20, 64 << 30))?;
    // It is mapped; nobody else needs its name.
    std::fs::remove_file(ring)?;
    let part = Part::new("node", 0, columns.iter().map(|column| column.series.clone()).collect()).shared();
    let layout = Arc::new(Layout::new(vec![part], false));
    let mut tracks = Vec::new();
    for number in 0..hosts {
        let host = format!("host-{number}");
        let common = vec![("instance".to_owned(), host.clone())];
        let (layout, region, texts) = (layout.clone(), Vec::new(), Vec::new());
        let of = Description { host, common, source: 0, region, layout, texts };
        tracks.push(appender.track(&of, from_s * 1_000_000_000).context("a track")?);
    }
    let mut row = vec![0; columns.len()];
    for sample in 0..samples {
        let time_ns = (from_s * 1_000 + sample * interval_ms) * 1_000_000;
        for (host, track) in (0u64..).zip(&tracks) {
            for ((number, column), word) in (0u64..).zip(&columns).zip(&mut row) {
                *word = column.word(host << 8 | number, sample);
            }
            appender.append(*track, Line::ONLY, time_ns, &row)?;
        }
        if sample % TURN == TURN - 1 {
            writer.turn()?;
        }
    }
    tracks.iter().for_each(|track| appender.end(*track));
    let mut quiet = 0;
    while quiet < QUIET_TURNS {
        writer.turn()?;
        let is_due = Level::ALL.iter().any(|level| store.rollup_lag_ns(*level) > 0);
        quiet = if is_due { 0 } else { quiet + 1 };
    }
    println!("{} values, {} bytes", hosts * samples * columns.len() as u64, store.bytes());
    Ok(())
}
