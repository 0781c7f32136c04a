// SPDX-License-Identifier: Apache-2.0
//! What our own reader answers to bench/sql/questions.sql, in the words of this language.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use onlooker_framestore::cold::{Cold, Described, GapData, Samples};
use onlooker_region::number::exported;
use onlooker_series::series::Form;

use super::data::{FROM, SECOND_NS, SHAPE, TOTAL};

const MINUTE_NS: u64 = 60 * SECOND_NS;
const FREE: &str = "node_memory_MemFree_bytes";
const RECEIVED: &str = "node_network_receive_bytes_total";
const HALF_NS: u64 = (FROM + TOTAL / 2) * SECOND_NS;

/// A series with all its samples.
struct One {
    of: Described,
    labels: BTreeMap<String, String>,
    samples: Samples,
}

impl One {
    fn instance(&self) -> &str {
        &self.of.instance
    }

    fn label(&self, name: &str) -> String {
        self.labels.get(name).cloned().unwrap_or_default()
    }

    /// A word as the number that it is, scaled.
    fn value(&self, word: u64) -> f64 {
        match self.of.form {
            Form::Text => 1.0,
            Form::Float => exported(f64::from_bits(word), self.of.scale),
            Form::Signed => exported(word.cast_signed() as f64, self.of.scale),
            Form::Unsigned | Form::Histogram(_) => exported(word as f64, self.of.scale),
        }
    }

    fn words(&self) -> &[u64] {
        &self.samples.words[0]
    }

    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.words().iter().map(|word| self.value(*word))
    }

    fn timed(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        self.samples.times_ns.iter().copied().zip(self.values())
    }

    fn last(&self) -> u64 {
        self.words().last().copied().unwrap_or(0)
    }

    /// What it grew by, from one sample to the next, by the time of that.
    fn steps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let grown = self.words().windows(2).map(|pair| if pair[1] < pair[0] { pair[1] } else { pair[1] - pair[0] });
        self.samples.times_ns[1..].iter().copied().zip(grown)
    }

    /// From the first to the last sample.
    fn used(&self) -> u64 {
        self.last() - self.words().first().copied().unwrap_or(0)
    }
}

struct Answers {
    all: Vec<One>,
    gaps: Vec<GapData>,
}

/// A cell of an answer.
pub(super) trait Cell {
    fn text(&self) -> String;
}

impl Cell for f64 {
    fn text(&self) -> String {
        format!("f{:016x}", self.to_bits())
    }
}

impl Cell for u64 {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Cell for &str {
    fn text(&self) -> String {
        (*self).to_owned()
    }
}

impl Cell for String {
    fn text(&self) -> String {
        self.clone()
    }
}

fn say(number: u32, cells: &[&dyn Cell]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.text()).collect();
    println!("{number:02}\t{}", cells.join("\t"));
}

fn float(whole: u64) -> f64 {
    whole as f64
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, f64::max)
}

/// Prints all of them.
pub(crate) fn print(dir: &Path) -> Result<()> {
    let (cold, _) = Cold::open(dir)?;
    let mut all: BTreeMap<(String, String, String), One> = BTreeMap::new();
    cold.scan(
        0,
        u64::MAX,
        |_| true,
        |of, piece| {
            let key = (of.name.to_string(), of.instance.to_string(), of.labels.to_string());
            let one = all.entry(key).or_insert_with(|| {
                let mut labels: BTreeMap<String, String> = of.all_labels().into_iter().collect();
                labels.remove("instance");
                let words = vec![Vec::new(); piece.words.len()];
                One { of: of.clone(), labels, samples: Samples { times_ns: Vec::new(), words } }
            });
            one.samples.times_ns.extend(piece.times_ns);
            one.samples.words.iter_mut().zip(piece.words).for_each(|(words, more)| words.extend(more));
        },
    )?;
    let answers = Answers { all: all.into_values().collect(), gaps: cold.gaps(0, u64::MAX)? };
    answers.memory();
    answers.processors();
    answers.network();
    answers.requests();
    answers.others();
    answers.as_promql();
    Ok(())
}

impl Answers {
    /// Series of a metric, by instance and labels.
    fn of(&self, name: &str) -> impl Iterator<Item = &One> + Clone {
        self.all.iter().filter(move |one| &*one.of.name == name)
    }

    fn memory(&self) {
        for one in self.of(FREE) {
            let values: Vec<f64> = one.values().collect();
            let instance = one.instance();
            say(3, &[&instance, &one.value(one.last())]);
            let sum: u64 = one.words().iter().sum();
            say(6, &[&instance, &(float(sum) / float(values.len() as u64) * one.of.scale)]);
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            say(13, &[&instance, &sorted[(95 * sorted.len()).div_ceil(100) - 1]]);
            let least = least(values.iter().copied());
            let when = one.timed().find(|(_, value)| value.to_bits() == least.to_bits()).map_or(0, |(time, _)| time);
            say(30, &[&instance, &when]);
            let total = self.of("node_memory_MemTotal_bytes").find(|total| total.instance() == instance);
            let total = total.map_or(f64::NAN, |total| total.value(total.last()));
            say(19, &[&instance, &(one.value(one.last()) / total)]);
        }
        let minutes = |name: &str| {
            let mut minutes: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            let one = self.of(FREE).filter(|one| one.instance() == name);
            one.flat_map(One::timed).for_each(|(time, value)| minutes.entry(time / MINUTE_NS).or_default().push(value));
            minutes
        };
        for (minute, values) in minutes("web-1") {
            say(5, &[&minute, &least(values.iter().copied()), &largest(values.iter().copied())]);
            let mine = least(values.into_iter());
            let other = minutes("db-1").get(&minute).map_or(f64::NAN, |values| least(values.iter().copied()));
            if other < mine {
                say(18, &[&minute, &other, &mine]);
            }
        }
    }

    fn processors(&self) {
        let seconds = "node_cpu_seconds_total";
        for one in self.of(seconds).filter(|one| one.instance() == "web-1") {
            say(7, &[&one.label("cpu"), &one.label("mode"), &(float(one.used()) / 1e9)]);
        }
        let instances: BTreeSet<&str> = self.of(seconds).map(One::instance).collect();
        for instance in instances {
            let used = |mode: &str| -> u64 {
                let series = self.of(seconds).filter(|one| one.instance() == instance);
                series.filter(|one| mode.is_empty() || one.label("mode") == mode).map(One::used).sum()
            };
            say(10, &[&instance, &(float(used("user")) / 1e9)]);
            say(11, &[&instance, &(1.0 - float(used("idle")) / float(used("")))]);
        }
        let mut all: Vec<f64> = Vec::new();
        for one in self.of("node_load1") {
            say(4, &[&one.instance(), &least(one.values()), &largest(one.values())]);
            let times = &one.samples.times_ns;
            say(17, &[&one.instance(), &(float(times.len() as u64) / float(TOTAL))]);
            let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            say(29, &[&one.instance(), &longest]);
            let values: Vec<f64> = one.values().collect();
            let changed = values.windows(2).filter(|pair| pair[0].to_bits() != pair[1].to_bits()).count();
            say(31, &[&one.instance(), &(changed as u64)]);
            all.extend(values);
        }
        for (load, free) in self.of("node_load1").zip(self.of(FREE)) {
            let busy = load.values().zip(free.values()).map(|(load, free)| if load > 3.0 { free } else { 0.0 });
            say(33, &[&load.instance(), &(load.values().count() as u64), &largest(busy)]);
        }
        all.sort_by(f64::total_cmp);
        say(14, &[&all[all.len().div_ceil(2) - 1]]);
    }

    fn network(&self) {
        let mut most = Vec::new();
        let mut devices: BTreeMap<String, u64> = BTreeMap::new();
        for one in self.of(RECEIVED) {
            let (instance, device) = (one.instance(), one.label("device"));
            let bytes: u64 = one.steps().map(|(_, bytes)| bytes).sum();
            say(8, &[&instance, &device, &bytes]);
            *devices.entry(device.clone()).or_default() += one.last();
            if instance == "web-1" && device == "eth0" {
                let mut minutes: BTreeMap<u64, u64> = BTreeMap::new();
                one.steps().for_each(|(time, bytes)| *minutes.entry(time / MINUTE_NS).or_default() += bytes);
                minutes.iter().for_each(|(minute, bytes)| say(9, &[minute, &(float(*bytes) / 60.0)]));
            }
            most.push((std::cmp::Reverse(bytes), instance, device));
        }
        most.sort();
        most.iter().take(3).for_each(|(bytes, instance, device)| say(12, &[instance, device, &bytes.0]));
        devices.iter().for_each(|(device, bytes)| say(32, &[device, bytes]));
    }

    fn requests(&self) {
        let series = || self.of("app_request_seconds");
        let last = |column: &[u64]| column.last().copied().unwrap_or(0);
        let late = |one: &One, column: &[u64]| {
            let first = one.samples.times_ns.partition_point(|time| *time < HALF_NS);
            last(column) - column[first]
        };
        let mut by_host: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        let mut late_of_all = vec![0; SHAPE.buckets()];
        let mut means: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for one in series() {
            let buckets = &one.samples.words[..SHAPE.buckets()];
            say(20, &[&one.instance(), &one.label("path"), &buckets.iter().map(|column| last(column)).sum::<u64>()]);
            let host = by_host.entry(one.instance()).or_insert_with(|| vec![0; SHAPE.buckets()]);
            let [sum, count] = means.entry(one.instance()).or_default();
            for (at, column) in buckets.iter().enumerate() {
                host[at] += last(column);
                late_of_all[at] += late(one, column);
                *count += late(one, column);
            }
            *sum += late(one, &one.samples.words[SHAPE.buckets()]);
        }
        let quantile = |counts: &[u64]| {
            let total: u64 = counts.iter().sum();
            let mut below = 0;
            let is_there = |count: &u64| {
                below += count;
                below * 100 >= total * 99
            };
            let at = counts.iter().position(is_there).unwrap_or(0);
            (exported(float(SHAPE.range(at).1), 1e-6), total)
        };
        by_host.iter().for_each(|(instance, counts)| say(21, &[instance, &quantile(counts).0]));
        let (bound, total) = quantile(&late_of_all);
        say(22, &[&bound, &total]);
        means.iter().for_each(|(host, [sum, count])| say(23, &[host, &(float(*sum) / 1e6 / float(*count))]));
    }

    fn others(&self) {
        let (mut metrics, mut kinds) = (BTreeMap::<&str, u64>::new(), BTreeSet::new());
        let mut hosts = BTreeMap::<&str, u64>::new();
        for one in &self.all {
            let kind = format!("{:?}", one.of.metric).to_lowercase();
            if let Form::Histogram(_) = one.of.form {
                for ending in ["bucket", "sum"] {
                    kinds.insert((format!("{}_{ending}", one.of.name), kind.clone(), one.of.unit.clone()));
                }
            } else {
                *metrics.entry(&one.of.name).or_default() += one.samples.times_ns.len() as u64;
                *hosts.entry(one.instance()).or_default() += 1;
                kinds.insert((one.of.name.to_string(), kind, one.of.unit.clone()));
            }
        }
        metrics.iter().for_each(|(metric, samples)| say(1, &[metric, samples]));
        hosts.iter().for_each(|(instance, series)| say(2, &[instance, series]));
        kinds.iter().for_each(|(metric, kind, unit)| say(28, &[metric, kind, &unit.to_string()]));
        for one in self.of("node_uname_info") {
            let count = one.values().count() as u64;
            say(24, &[&one.instance(), &one.label("value"), &count, &one.values().sum::<f64>()]);
        }
        for one in self.of("cgroup_memory_limit_bytes") {
            let none: Vec<u64> = one.words().iter().copied().filter(|word| *word == u64::MAX).collect();
            if !none.is_empty() {
                let most = largest(none.iter().map(|word| one.value(*word)));
                say(25, &[&one.instance(), &one.label("cgroup"), &(none.len() as u64), &most]);
            }
        }
        for one in self.of("app_temperature_celsius") {
            let frost = one.values().filter(|value| *value < 0.0);
            say(26, &[&one.instance(), &(frost.count() as u64), &least(one.values())]);
        }
        for one in self.of("app_hit_ratio") {
            let values: Vec<f64> = one.values().collect();
            say(27, &[&one.instance(), &one.label("program"), &values[0], &values[values.len() - 1]]);
        }
        let mut reasons = BTreeMap::<(&str, &str), [u64; 2]>::new();
        for gap in &self.gaps {
            let [count, ns] = reasons.entry((&gap.instance, &gap.reason)).or_default();
            *count += 1;
            *ns += gap.to_ns - gap.from_ns + 1;
        }
        reasons.iter().for_each(|((instance, reason), [count, ns])| say(15, &[instance, reason, count, ns]));
        let at = (FROM + 65) * SECOND_NS;
        let mut now: Vec<&GapData> = self.gaps.iter().filter(|gap| gap.from_ns <= at && gap.to_ns >= at).collect();
        now.sort_by(|a, b| a.instance.cmp(&b.instance));
        now.iter().for_each(|gap| say(16, &[&gap.instance, &gap.reason]));
    }

    /// Those that were asked for the sake of PromQL, in its words.
    fn as_promql(&self) {
        for one in self.all.iter().filter(|one| !matches!(one.of.form, Form::Histogram(_))) {
            let labels = serde_json::json!(one.labels).to_string();
            one.timed().for_each(|(time, value)| say(34, &[&&*one.of.name, &one.instance(), &labels, &time, &value]));
        }
        for one in self.of("node_cpu_seconds_total") {
            let used = largest(one.values()) - least(one.values());
            say(35, &[&one.instance(), &one.label("cpu"), &one.label("mode"), &used]);
        }
        let seconds = |ns: u64| float(ns / SECOND_NS) + float(ns % SECOND_NS) / 1e9;
        let (begin_ns, end_ns) = ((FROM + TOTAL - 60) * SECOND_NS, (FROM + TOTAL) * SECOND_NS);
        for one in self.of(RECEIVED) {
            let (times, words) = (&one.samples.times_ns, one.words());
            let ([.., before_ns, last_ns], [.., before, last]) = (&times[..], words) else { continue };
            say(36, &[&one.instance(), &one.label("device"), &(float(last - before) / seconds(last_ns - before_ns))]);
            let at = times.partition_point(|time| *time <= begin_ns);
            let (up, sampled) = (float(last - words[at]), seconds(last_ns - times[at]));
            let apart = sampled / float((times.len() - at - 1) as u64);
            let near = |ns: u64| if seconds(ns) >= apart * 1.1 { apart / 2.0 } else { seconds(ns) };
            let to_start = near(times[at] - begin_ns).min(sampled * (float(words[at]) / up));
            let rate = up * ((sampled + to_start + near(end_ns - last_ns)) / sampled / 60.0);
            say(37, &[&one.instance(), &one.label("device"), &rate]);
        }
        for one in self.of("app_request_seconds") {
            let fast = (0..SHAPE.buckets()).filter(|at| SHAPE.range(*at).1 <= 65_535);
            let fast = fast.map(|at| one.samples.words[at].last().copied().unwrap_or(0));
            say(38, &[&one.instance(), &one.label("path"), &fast.sum::<u64>()]);
        }
        for (number, second) in [(39, 63), (40, 66)] {
            let end_ns = (FROM + second) * SECOND_NS;
            for one in self.of("node_load1") {
                let last = one.timed().filter(|(time, _)| (end_ns - 5 * SECOND_NS..=end_ns).contains(time)).last();
                last.iter().for_each(|(_, value)| say(number, &[&one.instance(), value]));
            }
        }
    }
}
