// SPDX-License-Identifier: Apache-2.0
//! `/metrics`: every host's current metrics and the controller's own, for a Prometheus that is already there.
//!
//! Text format 0.0.4, or OpenMetrics 1.0 for who accepts it. No timestamps: a scrape gets what is known now, and a host that is not read any more leaves
//! (`onlooker_host_up` says so), as one that Prometheus could not scrape.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use onlooker_region::columns::Value;
use onlooker_region::schema::Metric;

use super::Shared;
use crate::fleet::Host;
use crate::series::{Series, escape};
use crate::sink::State as HostState;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let open = accept.contains("application/openmetrics-text");
    let mut families = Families::default();
    for host in shared.fleet.hosts() {
        families.host(&host);
    }
    own(&shared, &mut families);
    ([(header::CONTENT_TYPE, if open { OPEN_METRICS } else { TEXT })], families.write(open))
}

struct Family {
    metric: Metric,
    help: String,
    lines: String,
    seen: HashSet<String>,
}

#[derive(Default)]
struct Families(BTreeMap<String, Family>);

impl Families {
    fn host(&mut self, host: &Host) {
        let shown = host.look();
        if !matches!(shown.state, HostState::Reading(_)) {
            return;
        }
        for (_, entity) in shown.entities.iter() {
            for series in entity.series.iter() {
                if let Some(value) = series.value(&entity.row) {
                    self.sample(series, &value);
                }
            }
        }
    }

    fn family(&mut self, name: &str, metric: Metric, help: &str) -> Option<&mut Family> {
        let family = self.0.entry(name.to_owned()).or_insert_with(|| Family {
            metric,
            help: help.to_owned(),
            lines: String::new(),
            seen: HashSet::new(),
        });
        // A name is one type for all; who says otherwise is left out.
        (family.metric == metric).then_some(family)
    }

    fn sample(&mut self, series: &Series, value: &Value) {
        let name = &series.name;
        let Some(family) = self.family(name, series.metric, &series.help) else { return };
        let labels = labels(&series.labels, None);
        if !family.seen.insert(labels.clone()) {
            return;
        }
        let lines = &mut family.lines;
        let written = match value {
            Value::Histogram { buckets, shape, sum } => {
                let count = buckets.iter().fold(0u64, |all, count| all.wrapping_add(*count));
                for bucket in shape.cumulative(buckets, series.scale) {
                    let labels = self::labels(&series.labels, Some(bucket.le));
                    let _ = writeln!(lines, "{name}_bucket{labels} {}", bucket.count);
                }
                let all = self::labels(&series.labels, Some(f64::INFINITY));
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
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if let Some(family) = self.family(name, metric, help) {
            let _ = writeln!(family.lines, "{name}{} {}", self::labels(&labels, None), number(value));
        }
    }

    fn write(&self, open: bool) -> String {
        let mut text = String::new();
        for (name, family) in &self.0 {
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

fn labels(labels: &BTreeMap<String, String>, le: Option<f64>) -> String {
    let le = le.map(number);
    let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut text = String::new();
    for (name, value) in pairs.chain(le.iter().map(|le| ("le", le.as_str()))) {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        escape(value, &mut text);
        text.push('"');
    }
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
        let up = matches!(shown.state, HostState::Reading(_));
        families.own("onlooker_host_up", Gauge, "Whether the host is being read.", &instance, f64::from(u8::from(up)));
        let help = "Readings of the host that succeeded.";
        families.own("onlooker_host_readings_total", Counter, help, &instance, shown.cycles as f64);
        for (reason, count) in &shown.gaps {
            let labels = [("instance", name), ("reason", *reason)];
            let help = "Due times at which the host was not read.";
            families.own("onlooker_host_gaps_total", Counter, help, &labels, *count as f64);
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
    ] {
        families.own(name, Counter, help, &[], value as f64);
    }
    let bytes = shared.store.lock().unwrap_or_else(PoisonError::into_inner).bytes();
    families.own("onlooker_controller_store_bytes", Gauge, "Size of the log.", &[], bytes as f64);
}
