// SPDX-License-Identifier: Apache-2.0
//! Made-up hosts: counters with a reset, gauges of all kinds, a histogram, texts, limits that are none, and times
//! without samples. The same each time.

use std::path::Path;

use anyhow::Result;
use onlooker_framestore::cold::{GapData, SeriesData, Window, Writer};
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

/// A host in a window.
struct Host<'a> {
    writer: &'a mut Writer,
    number: u64,
    /// Seconds since the beginning of which there are samples.
    seconds: Vec<u64>,
    /// When they were read; groups are acquired a bit later.
    times: Vec<u64>,
}

impl Host<'_> {
    fn put(&mut self, series: &Series, labels: &[(&str, &str)], words: &[Vec<u64>]) -> Result<()> {
        let instance = [("instance", HOSTS[usize::try_from(self.number)?])];
        let labels: Vec<_> =
            labels.iter().chain(&instance).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let words: Vec<&[u64]> = words.iter().map(Vec::as_slice).collect();
        // One group is acquired after the other.
        let late = series.name.len() as u64 * 9_973;
        let times: Vec<u64> = self.times.iter().map(|time| time + late + mix(time + late) % 700).collect();
        self.writer.push(&SeriesData { series, labels: &labels, times_ns: &times, words: &words })?;
        Ok(())
    }

    /// One word a sample, which follows from the second.
    fn one(&mut self, series: &Series, labels: &[(&str, &str)], word: impl Fn(u64) -> u64) -> Result<()> {
        let words = self.seconds.iter().map(|second| word(*second)).collect();
        self.put(series, labels, &[words])
    }

    fn all(&mut self, total: u64) -> Result<()> {
        let host = self.number;
        let counter = |name: &str, unit: &str, scale: f64| series(name, Metric::Counter, unit, scale, Form::Unsigned);
        let gauge = |name: &str, unit: &str, scale: f64, form: Form| series(name, Metric::Gauge, unit, scale, form);
        let seconds = counter("node_cpu_seconds_total", "seconds", 1e-9);
        for cpu in 0..4u64 {
            for (mode, name) in (0u64..).zip(MODES) {
                let step = [900_000_000, 3_000_000, 40_000_000, 57_000_000][usize::try_from(mode)?] + cpu * 1_000_003;
                let of = host << 8 | cpu << 4 | mode;
                let word = |second: u64| (second + 1) * step + mix(of << 32 | second) % 1_000_000;
                self.one(&seconds, &[("cpu", &cpu.to_string()), ("mode", name)], word)?;
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
            self.one(&bytes, &[("device", device)], word)?;
        }
        self.one(&gauge("node_memory_MemTotal_bytes", "bytes", 1024.0, Form::Unsigned), &[], |_| 16_000_000 + host)?;
        let free = |second: u64| 4_000_000 + mix((host << 40) | (second / 3)) % 1_000_000;
        self.one(&gauge("node_memory_MemFree_bytes", "bytes", 1024.0, Form::Unsigned), &[], free)?;
        let load = |second: u64| ((mix((host << 41) | (second / 5)) % 400) as f64 / 100.0).to_bits();
        self.one(&gauge("node_load1", "", 1.0, Form::Float), &[], load)?;
        let ratio = |second: u64| (1.0 / (mix(host << 42 | second) % 1_000 + 3) as f64).to_bits();
        self.one(&gauge("app_hit_ratio", "ratio", 1.0, Form::Float), &[("program", "shop \"1\"")], ratio)?;
        let cold = |second: u64| ((mix((host << 43) | (second / 2)) % 600).cast_signed() - 100).cast_unsigned();
        self.one(&gauge("app_temperature_celsius", "celsius", 0.1, Form::Signed), &[], cold)?;
        let limit = |second: u64| if second % 60 < 30 && host > 0 { u64::MAX } else { 4 << 30 };
        self.one(&gauge("cgroup_memory_limit_bytes", "bytes", 1.0, Form::Unsigned), &[("cgroup", "/a=b")], limit)?;
        let release = series("node_uname_info", Metric::Info, "", 1.0, Form::Text);
        let text = ["6.12.1", "6.1.55", "6.12.1"][usize::try_from(host)?];
        self.one(&release, &[("value", text)], |_| 70 + host)?;
        self.histogram()
    }

    fn histogram(&mut self) -> Result<()> {
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
            self.put(&latency, &[("path", path)], &words)?;
        }
        Ok(())
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

/// Two files, each of half of the time.
pub(crate) fn make(dir: &Path) -> Result<()> {
    let (half, total) = (TOTAL / 2, TOTAL);
    for from in [0, half] {
        let to = if from == 0 { half } else { total };
        let mut writer = Writer::create(dir, Window::new(FROM + from, FROM + to)?)?;
        for (number, name) in HOSTS.iter().enumerate() {
            let seconds: Vec<u64> = (from..to).filter(|second| gap(number, *second, total).is_none()).collect();
            let time = |second: &u64| (FROM + second) * SECOND_NS + mix((number as u64) << 45 | second) % 900_000;
            let times = seconds.iter().map(time).collect();
            Host { writer: &mut writer, number: number as u64, seconds, times }.all(total)?;
            let missing = (from..to).filter_map(|second| gap(number, second, total).map(|reason| (second, reason)));
            let mut gaps: Vec<GapData> = Vec::new();
            for (second, reason) in missing {
                let at = (FROM + second) * SECOND_NS;
                match gaps.last_mut() {
                    Some(last) if last.to_ns + 1 == at && last.reason == reason => last.to_ns += SECOND_NS,
                    _ => gaps.push(GapData {
                        instance: (*name).to_owned(),
                        region: String::new(),
                        from_ns: at,
                        to_ns: at + SECOND_NS - 1,
                        reason: reason.to_owned(),
                    }),
                }
            }
            gaps.into_iter().for_each(|gap| writer.gap(gap));
        }
        let written = writer.finish()?;
        println!("{} {} rows, {} bytes", written.path.display(), written.rows, written.bytes);
    }
    Ok(())
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
