// SPDX-License-Identifier: Apache-2.0
//! Made-up hosts: counters with a reset, gauges of all kinds, a histogram, texts, limits that are none, and times
//! without samples. The same each time.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use onlooker_framestore::client::{Appender, Description};
use onlooker_framestore::cold::{GapData, SeriesData, Window, Writer};
use onlooker_framestore::layout::{Layout, Part};
use onlooker_framestore::types::{Gap, Line, TrackId};
use onlooker_region::histogram::Shape;
use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::series::{Form, Series};

/// Where the made-up time begins.
pub(crate) const FROM: u64 = 1_764_000_000;
/// Seconds of it.
pub(crate) const TOTAL: u64 = 600;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
pub(crate) const SHAPE: Shape = Shape { grouping_power: 3, max_power: 30 };
const HOSTS: [&str; 3] = ["db-1", "web-1", "web-2"];
const MODES: [&str; 4] = ["idle", "iowait", "system", "user"];

/// A number that looks like chance.
fn mix(a: u64) -> u64 {
    let a = a.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (a ^ a >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

fn series(name: &str, metric: Metric, unit: &str, scale: f64, form: Form) -> Series {
    Series { unit: unit.into(), scale, acquisition: Acquisition::Direct, ..Series::new(name, metric, form) }
}

/// A host in a window: what its rows are made of, metric by metric.
struct Host {
    number: u64,
    /// Seconds since the beginning of which there are samples.
    seconds: Vec<u64>,
    parts: Vec<Group>,
}

/// Series of one metric, and their words, second by second.
#[derive(Default)]
struct Group {
    series: Vec<Series>,
    words: Vec<Vec<u64>>,
    /// Of an info.
    text: Option<&'static str>,
}

impl Host {
    fn new(number: u64, seconds: Vec<u64>, total: u64) -> Self {
        let mut host = Self { number, seconds, parts: Vec::new() };
        host.all(total);
        host
    }

    fn put(&mut self, series: &Series, labels: &[(&str, &str)], words: Vec<Vec<u64>>) {
        let labels: Vec<_> = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if self.parts.last().is_none_or(|last| last.series[0].name != series.name) {
            self.parts.push(Group::default());
        }
        let Some(group) = self.parts.last_mut() else { return };
        group.series.push(Series { labels: labels.into(), ..series.clone() });
        group.words.extend(words);
    }

    /// One word a sample, which follows from the second.
    fn one(&mut self, series: &Series, labels: &[(&str, &str)], word: impl Fn(u64) -> u64) {
        let words = self.seconds.iter().map(|second| word(*second)).collect();
        self.put(series, labels, vec![words]);
    }

    fn description(&self) -> Result<Description> {
        let name = HOSTS[usize::try_from(self.number)?];
        let parts = (0..).zip(&self.parts).map(|(at, group)| Part::new("node", at, group.series.clone()).shared());
        let texts = (0..).zip(&self.parts).filter_map(|(at, group)| Some((at, 0, group.text?.to_owned())));
        Ok(Description {
            host: name.to_owned(),
            common: vec![("instance".to_owned(), name.to_owned())],
            source: 0,
            region: Vec::new(),
            layout: Arc::new(Layout::new(parts.collect(), false)),
            texts: texts.collect(),
        })
    }

    /// When it was read, and the row of that time.
    fn row(&self, at: usize) -> (u64, Vec<u64>) {
        let second = self.seconds[at];
        let time_ns = (FROM + second) * SECOND_NS + mix(self.number << 45 | second) % 900_000;
        let mut row = Vec::new();
        for group in &self.parts {
            // One group is acquired after the other.
            let late = group.series[0].name.len() as u64 * 9_973;
            row.push(time_ns + late + mix(time_ns + late) % 700);
            row.extend(group.words.iter().map(|words| words[at]));
        }
        (time_ns, row)
    }

    fn all(&mut self, total: u64) {
        let host = self.number;
        let counter = |name: &str, unit: &str, scale: f64| series(name, Metric::Counter, unit, scale, Form::Unsigned);
        let gauge = |name: &str, unit: &str, scale: f64, form: Form| series(name, Metric::Gauge, unit, scale, form);
        let seconds = counter("node_cpu_seconds_total", "seconds", 1e-9);
        for cpu in 0..4u64 {
            for (mode, name) in (0u64..).zip(MODES) {
                let step = [900_000_000, 3_000_000, 40_000_000, 57_000_000][usize::try_from(mode).unwrap_or(0)]
                    + cpu * 1_000_003;
                let of = host << 8 | cpu << 4 | mode;
                let word = |second: u64| (second + 1) * step + mix(of << 32 | second) % 1_000_000;
                self.one(&seconds, &[("cpu", &cpu.to_string()), ("mode", name)], word);
            }
        }
        let bytes = counter("node_network_receive_bytes_total", "bytes", 1.0);
        for device in ["eth0", "lo"] {
            let of = host << 8 | device.len() as u64;
            // The first host starts anew in the middle.
            let since =
                |second: u64| if host == 0 && second >= total / 2 { second - total / 2 } else { second + 5_000_000 };
            let rate = 10_000 + mix(of) % 90_000;
            let word = |second: u64| since(second) * rate + mix(of << 32 | second) % 10_000;
            self.one(&bytes, &[("device", device)], word);
        }
        self.one(&gauge("node_memory_MemTotal_bytes", "bytes", 1024.0, Form::Unsigned), &[], |_| 16_000_000 + host);
        let free = |second: u64| 4_000_000 + mix((host << 40) | (second / 3)) % 1_000_000;
        self.one(&gauge("node_memory_MemFree_bytes", "bytes", 1024.0, Form::Unsigned), &[], free);
        let load = |second: u64| ((mix((host << 41) | (second / 5)) % 400) as f64 / 100.0).to_bits();
        self.one(&gauge("node_load1", "", 1.0, Form::Float), &[], load);
        let ratio = |second: u64| (1.0 / (mix(host << 42 | second) % 1_000 + 3) as f64).to_bits();
        self.one(&gauge("app_hit_ratio", "ratio", 1.0, Form::Float), &[("program", "shop \"1\"")], ratio);
        let cold = |second: u64| ((mix((host << 43) | (second / 2)) % 600).cast_signed() - 100).cast_unsigned();
        self.one(&gauge("app_temperature_celsius", "celsius", 0.1, Form::Signed), &[], cold);
        let limit = |second: u64| if second % 60 < 30 && host > 0 { u64::MAX } else { 4 << 30 };
        self.one(&gauge("cgroup_memory_limit_bytes", "bytes", 1.0, Form::Unsigned), &[("cgroup", "/a=b")], limit);
        let release = series("node_uname_info", Metric::Info, "", 1.0, Form::Text);
        self.put(&release, &[], Vec::new());
        if let Some(group) = self.parts.last_mut() {
            group.text = Some(["6.12.1", "6.1.55", "6.12.1"][usize::try_from(host).unwrap_or(0)]);
        }
        self.histogram();
    }

    fn histogram(&mut self) {
        let latency = series("app_request_seconds", Metric::Histogram, "seconds", 1e-6, Form::Histogram(SHAPE));
        for path in ["/", "/cart"] {
            let mut row = vec![0u64; SHAPE.slots()];
            let mut words = vec![Vec::new(); row.len()];
            let last = self.seconds.last().copied().unwrap_or(0);
            let mut wanted = self.seconds.iter().copied().peekable();
            for second in 0..=last {
                for request in 0..1 + mix(second) % 5 {
                    let of = mix(self.number << 44 | (path.len() as u64) << 40 | second << 4 | request);
                    let micros =
                        200 + (of & 0x3ff) * (1 + (of >> 10) % 400) * (1 + u64::from(of.is_multiple_of(97)) * 50);
                    row[SHAPE.index(micros)] += 1;
                    row[SHAPE.buckets()] += micros;
                }
                if wanted.next_if_eq(&second).is_some() {
                    words.iter_mut().zip(&row).for_each(|(words, word)| words.push(*word));
                }
            }
            self.put(&latency, &[("path", path)], words);
        }
    }
}

/// The second at which a host has no samples, and why.
fn gap(host: usize, second: u64, total: u64) -> Option<&'static str> {
    match host {
        2 if (total / 10..total / 10 + 15).contains(&second) => Some("timeout"),
        2 if second % 40 == 39 => Some("late"),
        1 if (total * 2 / 3..total * 2 / 3 + 7).contains(&second) => Some("unreachable"),
        _ => None,
    }
}

/// All hosts, from one second to another.
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    gaps: Vec<(usize, u64, u64, &'static str)>,
}

impl Hosts {
    pub(crate) fn new(seconds: Range<u64>) -> Self {
        let (mut hosts, mut gaps) = (Vec::new(), Vec::<(usize, u64, u64, &str)>::new());
        for number in 0..HOSTS.len() {
            let read = seconds.clone().filter(|second| gap(number, *second, TOTAL).is_none()).collect();
            hosts.push(Host::new(number as u64, read, TOTAL));
            let missing = |second| gap(number, second, TOTAL).map(|reason| (second, reason));
            for (second, reason) in seconds.clone().filter_map(missing) {
                match gaps.last_mut() {
                    Some(last) if (last.0, last.2, last.3) == (number, second, reason) => last.2 += 1,
                    _ => gaps.push((number, second, second + 1, reason)),
                }
            }
        }
        Self { hosts, gaps }
    }

    /// Appends it all; returns the tracks, and how many rows.
    pub(crate) fn append(&self, appender: &mut Appender) -> Result<(Vec<TrackId>, u64)> {
        let (mut tracks, mut rows) = (Vec::new(), 0);
        for host in &self.hosts {
            let track = appender.track(&host.description()?, FROM * SECOND_NS)?;
            for at in 0..host.seconds.len() {
                let (time_ns, row) = host.row(at);
                appender.append(track, Line::ONLY, time_ns, &row)?;
            }
            tracks.push(track);
            rows += host.seconds.len() as u64;
        }
        for (host, from, to, reason) in &self.gaps {
            let [from_ns, end_ns] = [from, to].map(|second| (FROM + second) * SECOND_NS);
            let (track, reason) = (tracks[*host], (*reason).to_owned());
            appender.gap(&Gap { track, of: None, from_ns, to_ns: end_ns - 1, reason });
        }
        Ok((tracks, rows))
    }
}

/// Series of a short file.
const SHORT_SERIES: u64 = 40;
const SHORT_ROWS: u64 = 60;

fn short_word(number: u64, series: u64, row: u64) -> u64 {
    number * 1_000 + series * 60 + row
}

/// Rows and sum of a short file.
pub(crate) fn short_sums(number: u64) -> (usize, u64) {
    let words = (0..SHORT_SERIES).flat_map(|series| (0..SHORT_ROWS).map(move |row| short_word(number, series, row)));
    (usize::try_from(SHORT_SERIES * SHORT_ROWS).unwrap_or(0), words.sum())
}

/// The file of a minute; its gap tells which it is.
pub(crate) fn short(dir: &Path, number: u64) -> Result<()> {
    let from = FROM + number * 60;
    let window = Window::new(from, from + 60)?;
    let mut writer = Writer::create(dir, window)?;
    let times: Vec<u64> = (0..SHORT_ROWS).map(|row| (from + row) * SECOND_NS + row).collect();
    let counter = series("events_total", Metric::Counter, "", 1.0, Form::Unsigned);
    for number_of in 0..SHORT_SERIES {
        let words: Vec<u64> = (0..SHORT_ROWS).map(|row| short_word(number, number_of, row)).collect();
        let labels = [("instance".to_owned(), "a".to_owned()), ("number".to_owned(), number_of.to_string())];
        writer.push(&SeriesData { series: &counter, labels: &labels, times_ns: &times, words: &[&words] })?;
    }
    let (from_ns, to_ns) = (window.from_ns(), window.to_ns() - 1);
    writer.gap(GapData { instance: "a".into(), region: String::new(), from_ns, to_ns, reason: format!("n{number}") });
    writer.finish()?;
    Ok(())
}
