// SPDX-License-Identifier: Apache-2.0
//! `/metrics`: every host's current metrics and the controller's own, for a Prometheus that is already there.
//!
//! Text format 0.0.4, or OpenMetrics 1.0 for who accepts it. No timestamps: a scrape gets what is known now, and a host that has not been read for a while leaves
//! (`onlooker_host_up` says so), as one that Prometheus could not scrape. Nothing is there twice, whatever the watched programs call their metrics: the
//! controller's own come first, then the hosts'; a sample or a family whose name is taken is left out.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::hash::BuildHasher as _;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use onlooker_region::columns::Value;
use onlooker_region::schema::Metric;
use onlooker_transport::clock::{Moment, steady_ns};

use super::Shared;
use crate::fleet::{Host, Shown};
use crate::series::{Series, escape};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let open = accept.contains("application/openmetrics-text");
    let mut families = Families { open, ..Families::default() };
    own(&shared, &mut families);
    for host in shared.fleet.hosts() {
        families.host(&host);
    }
    ([(header::CONTENT_TYPE, if open { OPEN_METRICS } else { TEXT })], families.write())
}

/// A host that has not been read for so long is not shown any more, or for three intervals if they are longer.
const STALE_NS: u64 = 5_000_000_000;

/// How long ago the host was read last, ns, and whether that is not too long.
fn freshness(host: &Host, shown: &Shown) -> (Option<u64>, bool) {
    let age_ns = shown.read_at_ns.map(|read_ns| steady_ns().saturating_sub(read_ns));
    let interval_ns = u64::try_from(host.target.interval.as_nanos()).unwrap_or(u64::MAX);
    (age_ns, age_ns.is_some_and(|age_ns| age_ns <= STALE_NS.max(interval_ns.saturating_mul(3))))
}

struct Family {
    metric: Metric,
    help: String,
    lines: String,
    /// Hashes of the labels that are there.
    seen: HashSet<u64>,
}

#[derive(Default)]
struct Families {
    families: BTreeMap<String, Family>,
    /// Names of samples and of families that are taken.
    names: HashSet<String>,
    hasher: RandomState,
    open: bool,
}

impl Families {
    fn host(&mut self, host: &Host) {
        let shown = host.look();
        if !freshness(host, &shown).1 {
            return;
        }
        for (_, entity) in shown.entities.iter() {
            for (_, series, text) in entity.shown() {
                if let Some(value) = series.value(&entity.row) {
                    self.sample(series, &text[series.name.len()..], &value);
                }
            }
        }
    }

    /// The family of a name, unless it is another type's or its samples would be called as another family's.
    fn family(&mut self, name: &str, metric: Metric, help: &str) -> Option<&mut Family> {
        if !self.families.contains_key(name) {
            let (declared, _) = declared(name, metric, self.open);
            let mut names = vec![name.to_owned(), declared.to_owned()];
            if metric == Metric::Histogram {
                names.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")));
            }
            if names.iter().any(|taken| self.names.contains(taken)) {
                return None;
            }
            self.names.extend(names);
            let family = Family { metric, help: help.to_owned(), lines: String::new(), seen: HashSet::new() };
            self.families.insert(name.to_owned(), family);
        }
        // A name is one type for all; who says otherwise is left out.
        self.families.get_mut(name).filter(|family| family.metric == metric)
    }

    fn sample(&mut self, series: &Series, labels: &str, value: &Value) {
        let name = &series.name;
        let hash = self.hasher.hash_one(labels);
        let Some(family) = self.family(name, series.metric, &series.help) else { return };
        if !family.seen.insert(hash) {
            return;
        }
        let lines = &mut family.lines;
        let written = match value {
            Value::Histogram { buckets, shape, sum } => {
                let count = buckets.iter().fold(0u64, |all, count| all.wrapping_add(*count));
                for bucket in shape.cumulative(buckets, series.scale) {
                    let labels = self::labels(series.labels.iter(), Some(bucket.le));
                    let _ = writeln!(lines, "{name}_bucket{labels} {}", bucket.count);
                }
                let all = self::labels(series.labels.iter(), Some(f64::INFINITY));
                let sum = Value::U64(*sum).scaled(series.scale);
                writeln!(lines, "{name}_bucket{all} {count}\n{name}_sum{labels} {sum}\n{name}_count{labels} {count}")
            }
            Value::U64(number) if is_plain(series.scale) => writeln!(lines, "{name}{labels} {number}"),
            Value::I64(number) if is_plain(series.scale) => writeln!(lines, "{name}{labels} {number}"),
            other => writeln!(lines, "{name}{labels} {}", number(other.scaled(series.scale))),
        };
        debug_assert!(written.is_ok(), "a String takes everything");
    }

    fn own(&mut self, name: &str, metric: Metric, help: &str, labels: &[(&str, &str)], value: f64) {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let labels = self::labels(labels.into_iter(), None);
        let hash = self.hasher.hash_one(&labels);
        if let Some(family) = self.family(name, metric, help)
            && family.seen.insert(hash)
        {
            let _ = writeln!(family.lines, "{name}{labels} {}", number(value));
        }
    }

    fn write(&self) -> String {
        let open = self.open;
        let mut text = String::new();
        for (name, family) in &self.families {
            let (name, kind) = declared(name, family.metric, open);
            if !family.help.is_empty() {
                let mut help = String::new();
                if open {
                    escape(&family.help, &mut help);
                } else {
                    help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
                }
                let _ = writeln!(text, "# HELP {name} {help}");
            }
            let _ = writeln!(text, "# TYPE {name} {kind}\n{}", family.lines.trim_end());
        }
        if open {
            text.push_str("# EOF\n");
        }
        text
    }
}

fn is_plain(scale: f64) -> bool {
    scale.to_bits() == 1f64.to_bits()
}

/// Name and type as the header lines have them.
fn declared(name: &str, metric: Metric, open: bool) -> (&str, &'static str) {
    match (metric, open) {
        (Metric::Counter, false) => (name, "counter"),
        // OpenMetrics: a counter's samples are called as its family with `_total`, an info's with `_info`.
        (Metric::Counter, true) => name.strip_suffix("_total").map_or((name, "unknown"), |family| (family, "counter")),
        (Metric::Info, true) => name.strip_suffix("_info").map_or((name, "gauge"), |family| (family, "info")),
        (Metric::Gauge, _) | (Metric::Info, false) => (name, "gauge"),
        (Metric::Histogram, _) => (name, "histogram"),
    }
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else {
        value.to_string()
    }
}

fn labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>, le: Option<f64>) -> String {
    let mut text = String::new();
    let mut put = |name: &str, value: &str| {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        escape(value, &mut text);
        text.push('"');
    };
    labels.for_each(|(name, value)| put(name, value));
    le.iter().for_each(|le| put("le", &number(*le)));
    if !text.is_empty() {
        text.push('}');
    }
    text
}

#[allow(clippy::cast_precision_loss)] // Prometheus' values are doubles
fn own(shared: &Shared, families: &mut Families) {
    use Metric::{Counter, Gauge};
    for host in shared.fleet.hosts() {
        let shown = host.look();
        let name = host.target.name.as_str();
        let instance = [("instance", name)];
        let (age_ns, up) = freshness(&host, &shown);
        let help = "Whether the host has been read in the last 5 s, or three intervals if they are longer, and its metrics are here.";
        families.own("onlooker_host_up", Gauge, help, &instance, f64::from(u8::from(up)));
        if let Some(age_ns) = age_ns {
            let help = "Time since the last reading of the host ended.";
            families.own("onlooker_host_age_seconds", Gauge, help, &instance, age_ns as f64 / 1e9);
        }
        if let Some(newest_ns) = shown.newest_ns() {
            let age_s = Moment::now().utc_ns.saturating_sub(newest_ns) as f64 / 1e9;
            let help = "Time since the host's newest values were acquired.";
            families.own("onlooker_host_data_age_seconds", Gauge, help, &instance, age_s);
        }
        let help = "Readings of the host that succeeded.";
        families.own("onlooker_host_readings_total", Counter, help, &instance, shown.cycles as f64);
        for (reason, count) in &shown.gaps {
            let labels = [("instance", name), ("reason", *reason)];
            let help = "Due times at which the host was not read.";
            families.own("onlooker_host_gaps_total", Counter, help, &labels, *count as f64);
        }
        for (whose, limit, over) in shown.entities.ledger().over(true) {
            let labels = [("instance", name), ("of", whose.name()), ("quota", limit.key())];
            let help = "Rows of the host that were not kept, since they exceed what it may cost.";
            families.own("onlooker_host_over_quota_total", Counter, help, &labels, over.rows as f64);
        }
        let help = "Time from when a reading was due to its end.";
        for quantile in [0.5, 0.99] {
            let seconds = shown.latency.value_at_quantile(quantile) as f64 / 1e9;
            let labels = [("instance", name), ("quantile", if quantile < 0.9 { "0.5" } else { "0.99" })];
            families.own("onlooker_host_reading_seconds", Gauge, help, &labels, seconds);
        }
    }
    let counters = &shared.counters;
    for (name, help, value) in [
        ("onlooker_controller_rows_total", "Rows written to the log.", counters.rows.load(Ordering::Relaxed)),
        ("onlooker_controller_values_total", "Values taken, in rows.", counters.values.load(Ordering::Relaxed)),
        (
            "onlooker_controller_refused_rows_total",
            "Rows that found their ring full of rows that wait for the disk.",
            counters.refused_rows.load(Ordering::Relaxed),
        ),
        (
            "onlooker_controller_dropped_segments_total",
            "Segments of the log deleted to keep within its limit or the disk.",
            counters.dropped_segments.load(Ordering::Relaxed),
        ),
        (
            "onlooker_controller_store_failures_total",
            "Failures of the disk.",
            counters.failures.load(Ordering::Relaxed),
        ),
        (
            "onlooker_controller_device_detours_total",
            "Times that a host was to be read by an RDMA device, and there was no queue pair.",
            shared.pressure.detours.load(Ordering::Relaxed),
        ),
    ] {
        families.own(name, Counter, help, &[], value as f64);
    }
    for (reason, count) in shared.book.files().1 {
        let help = "Times that a target file could not be used.";
        families.own(
            "onlooker_controller_target_file_failures_total",
            Counter,
            help,
            &[("reason", reason)],
            count as f64,
        );
    }
    for (reason, count) in shared.limits.refused() {
        let help = "Clients that were refused, or whose connections were ended.";
        families.own("onlooker_controller_http_refusals_total", Counter, help, &[("reason", reason)], count as f64);
    }
    let [connections, streams] = shared.limits.open();
    let help = "Connections of HTTP clients.";
    families.own("onlooker_controller_http_connections", Gauge, help, &[], connections as f64);
    families.own("onlooker_controller_http_streams", Gauge, "Live streams.", &[], streams as f64);
    let bytes = shared.store.lock().unwrap_or_else(PoisonError::into_inner).bytes();
    families.own("onlooker_controller_store_bytes", Gauge, "Size of the log.", &[], bytes as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(open: bool, families: &[(&str, Metric)]) -> String {
        let mut all = Families { open, ..Families::default() };
        for (name, metric) in families {
            all.own(name, *metric, "", &[("instance", "a")], 1.0);
            all.own(name, *metric, "", &[("instance", "a")], 2.0);
        }
        all.write()
    }

    #[test]
    fn nothing_is_there_twice() {
        use Metric::{Counter, Gauge, Histogram, Info};
        let text = written(false, &[("a_total", Counter), ("a_total", Gauge), ("b", Gauge)]);
        assert_eq!(text, "# TYPE a_total counter\na_total{instance=\"a\"} 1\n# TYPE b gauge\nb{instance=\"a\"} 1\n");
        // A histogram's samples have names of their own.
        for (first, second) in [(("h", Histogram), ("h_sum", Gauge)), (("h_bucket", Gauge), ("h", Histogram))] {
            assert_eq!(written(false, &[first, second]).matches("# TYPE").count(), 1);
        }
        // OpenMetrics names a counter's family without `_total`, an info's without `_info`.
        for second in [("a", Gauge), ("a_info", Info)] {
            assert_eq!(written(true, &[("a_total", Counter), second]).matches("# TYPE").count(), 1);
            assert_eq!(written(false, &[("a_total", Counter), second]).matches("# TYPE").count(), 2);
        }
    }
}
