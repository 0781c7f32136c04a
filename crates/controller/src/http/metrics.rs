// SPDX-License-Identifier: Apache-2.0
//! `/metrics`: every host's current metrics and the controller's own, for a Prometheus that is already there.
//!
//! Text format 0.0.4, or OpenMetrics 1.0 for who accepts it. No timestamps: a scrape gets what is known now, and a host that has not been read for a while leaves
//! (`onlooker_host_up` says so), as one that Prometheus could not scrape. Nothing is there twice, whatever the watched programs call their metrics: the
//! controller's own come first, then those of the hosts' agents, then programs'; what a name is, [`onlooker_series::families`] decides. What is left out is counted.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::BuildHasher as _;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use onlooker_reader::clock::{Moment, steady_ns};
use onlooker_region::columns::Value;
use onlooker_region::schema::Metric;
use onlooker_series::exposition::{Format, labels_text, number, samples};
use onlooker_series::families::{Claims, Names};
use onlooker_series::series::Series;

use super::Shared;
use crate::fleet::{Host, Region, Shown};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_open = accept.contains("application/openmetrics-text");
    let format = if is_open { Format::OpenMetrics } else { Format::Text };
    let mut families = Families { format, ..Families::default() };
    own(&shared, &mut families);
    families.hosts(&shared.fleet.hosts());
    ([(header::CONTENT_TYPE, if is_open { OPEN_METRICS } else { TEXT })], families.write())
}

/// What programs have called as somebody else's metric.
const LEFT_OUT: &str = "onlooker_host_left_out_series";
const LEFT_OUT_HELP: &str = "Series of the host that are not here, since their name is another type's or another metric's samples', or they are here already.";

/// A host that has not been read for so long is not shown any more, or for three intervals if they are longer.
const STALE_NS: u64 = 5_000_000_000;

/// How long ago the host was read last, ns, and whether that is not too long.
fn freshness(host: &Host, shown: &Shown) -> (Option<u64>, bool) {
    let age_ns = shown.read_at_ns.map(|read_ns| steady_ns().saturating_sub(read_ns));
    let interval_ns = host.target.interval_ns();
    (age_ns, age_ns.is_some_and(|age_ns| age_ns <= STALE_NS.max(interval_ns.saturating_mul(3))))
}

/// Adds what a host says of its metrics' names.
fn claim(number: usize, host: &Host, claims: &mut Claims) {
    let shown = host.look();
    if !freshness(host, &shown).1 {
        return;
    }
    // When regions were made, by one clock for all hosts.
    let of = |region: &Region| (region.entry.identity.word(), region.entry.created_ns);
    let created: HashMap<u64, u64> = shown.regions.iter().map(of).collect();
    for (key, entity) in shown.entities.iter() {
        let created_ns = created.get(&key.region).zip(shown.relation.as_ref());
        let created_ns = created_ns.map_or(i128::MAX, |(host_ns, relation)| relation.steady_ns(*host_ns));
        let mut before: Option<&Series> = None;
        for (_, series, _) in entity.shown() {
            // Series of one metric stand together.
            if before.is_none_or(|before| before.name != series.name || before.metric != series.metric) {
                let said = (&series.name, series.metric, &series.help);
                claims.add(said, number, key.is_vouched_for(), created_ns);
            }
            before = Some(series);
        }
    }
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
    names: Names,
    hasher: RandomState,
    format: Format,
}

impl Families {
    fn hosts(&mut self, hosts: &[Arc<Host>]) {
        // Its name is taken before any host's.
        self.family(LEFT_OUT, Metric::Gauge, LEFT_OUT_HELP);
        let mut claims = Claims::default();
        for (number, host) in hosts.iter().enumerate() {
            claim(number, host, &mut claims);
        }
        for (name, metric, help) in claims.in_order() {
            self.family(&name, metric, &help);
        }
        let mut left_out = vec![0u64; hosts.len()];
        for is_vouched_for in [true, false] {
            for (host, left_out) in hosts.iter().zip(&mut left_out) {
                *left_out += self.host(host, is_vouched_for);
            }
        }
        for (host, left_out) in hosts.iter().zip(left_out) {
            #[allow(clippy::cast_precision_loss)] // Prometheus' values are doubles
            self.own(LEFT_OUT, Metric::Gauge, LEFT_OUT_HELP, &[("instance", &host.target.name)], left_out as f64);
        }
    }

    /// Writes the series that the host's agent vouches for, or the others; how many were left out.
    fn host(&mut self, host: &Host, is_vouched_for: bool) -> u64 {
        let shown = host.look();
        if !freshness(host, &shown).1 {
            return 0;
        }
        let mut left_out = 0;
        for (_, entity) in shown.entities.iter().filter(|(key, _)| key.is_vouched_for() == is_vouched_for) {
            for (_, series, text) in entity.shown() {
                if let Some(value) = series.value(&entity.row) {
                    left_out += u64::from(!self.sample(series, &text[series.name.len()..], &value));
                }
            }
        }
        left_out
    }

    /// The family of a name, unless it is another type's or its samples would be called as another family's.
    fn family(&mut self, name: &str, metric: Metric, help: &str) -> Option<&mut Family> {
        if !self.families.contains_key(name) {
            if !self.names.take(name, self.format.declared(name, metric).0, metric) {
                return None;
            }
            let family = Family { metric, help: help.to_owned(), lines: String::new(), seen: HashSet::new() };
            self.families.insert(name.to_owned(), family);
        }
        // A name is one type for all; who says otherwise is left out.
        self.families.get_mut(name).filter(|family| family.metric == metric)
    }

    /// False: the name is another type's, or the series is there.
    fn sample(&mut self, series: &Series, labels: &str, value: &Value) -> bool {
        let name = &series.name;
        let hash = self.hasher.hash_one(labels);
        let Some(family) = self.family(name, series.metric, &series.help) else { return false };
        if !family.seen.insert(hash) {
            return false;
        }
        samples(&mut family.lines, name, labels, value, series.scale);
        true
    }

    fn own(&mut self, name: &str, metric: Metric, help: &str, labels: &[(&str, &str)], value: f64) {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let labels = labels_text(labels);
        let hash = self.hasher.hash_one(&labels);
        if let Some(family) = self.family(name, metric, help)
            && family.seen.insert(hash)
        {
            let _ = writeln!(family.lines, "{name}{labels} {}", number(value));
        }
    }

    fn write(&self) -> String {
        let mut text = String::new();
        // One whose host went meanwhile has no samples.
        for (name, family) in self.families.iter().filter(|(_, family)| !family.lines.is_empty()) {
            self.format.head(&mut text, name, family.metric, &family.help);
            text.push_str(&family.lines);
        }
        if self.format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
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
    let bytes = shared.store.bytes();
    families.own("onlooker_controller_store_bytes", Gauge, "Size of the log.", &[], bytes as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format, families: &[(&str, Metric)]) -> String {
        let mut all = Families { format, ..Families::default() };
        for (name, metric) in families {
            all.own(name, *metric, "", &[("instance", "a")], 1.0);
            all.own(name, *metric, "", &[("instance", "a")], 2.0);
        }
        all.write()
    }

    #[test]
    fn nothing_is_there_twice() {
        use Metric::{Counter, Gauge, Histogram, Info};
        let text = written(Format::Text, &[("a_total", Counter), ("a_total", Gauge), ("b", Gauge)]);
        assert_eq!(text, "# TYPE a_total counter\na_total{instance=\"a\"} 1\n# TYPE b gauge\nb{instance=\"a\"} 1\n");
        // A histogram's samples have names of their own.
        for (first, second) in [(("h", Histogram), ("h_sum", Gauge)), (("h_bucket", Gauge), ("h", Histogram))] {
            assert_eq!(written(Format::Text, &[first, second]).matches("# TYPE").count(), 1);
        }
        // OpenMetrics names a counter's family without `_total`, an info's without `_info`.
        for second in [("a", Gauge), ("a_info", Info)] {
            assert_eq!(written(Format::OpenMetrics, &[("a_total", Counter), second]).matches("# TYPE").count(), 1);
            assert_eq!(written(Format::Text, &[("a_total", Counter), second]).matches("# TYPE").count(), 2);
        }
    }

    use crate::fleet::fixture::{Host, World};

    fn schema(fields: &str) -> String {
        format!(r#"{{"name":"s","groups":[{{"kind":"plain","blocks":1,"fields":[{fields}]}}]}}"#)
    }

    fn field(name: &str, metric: &str, slot: usize) -> String {
        format!(r#"{{"name":"{name}","metric":"{metric}","type":"u64","slot":{slot},"help":"Of a {metric}."}}"#)
    }

    fn exposition(world: &World) -> String {
        let mut families = Families::default();
        families.hosts(&world.fleet.hosts());
        families.write()
    }

    /// Each has one, whatever stands before the value; none of another's.
    fn lines<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
        text.lines().filter(|line| !line.starts_with('#') && line.starts_with(&format!("{name}{{"))).collect()
    }

    /// A host that sorts first has a program that says what the kernel's metrics are, and what another host's program has.
    #[test]
    fn a_program_takes_no_name_from_anybody() {
        let histogram = r#"{"name":"node_vmstat","metric":"histogram","type":"u64","slot":20,"histogram":{"grouping_power":0,"max_power":4}}"#;
        let lies = [
            field("node_load1", "counter", 0),
            field("shop_total", "gauge", 1),
            field("evil_gauge", "gauge", 2),
            histogram.to_owned(),
        ];
        let mut world = World::new();
        let mut first = Host::new(64);
        first.region(300, "evil", &[("pid", "66")], &schema(&lies.join(",")));
        let kernels = [field("node_load1", "gauge", 0), field("node_vmstat_sum", "gauge", 1)];
        let honest = |host: &mut Host, shop: u32| {
            host.region(2, "node_load", &[], &schema(&kernels.join(",")));
            host.region(shop, "shop", &[("pid", "77")], &schema(&field("shop_total", "counter", 0)));
        };
        let (mut second, mut third) = (Host::new(64), Host::new(64));
        honest(&mut second, 301);
        honest(&mut third, 302);
        for (name, host) in [("a", &first), ("b", &second), ("c", &third)] {
            world.read(name, host);
        }
        let text = exposition(&world);
        for name in ["node_load1", "node_vmstat_sum", "shop_total"] {
            let lines = lines(&text, name);
            assert_eq!(lines.len(), 2, "{text}");
            assert!(
                lines.iter().all(|line| line.contains(r#"instance="b""#) || line.contains(r#"instance="c""#)),
                "{text}"
            );
        }
        for said in [
            "# TYPE node_load1 gauge",
            "# HELP node_load1 Of a gauge.",
            "# TYPE shop_total counter",
            "# TYPE evil_gauge gauge",
        ] {
            assert!(text.contains(said), "{text}");
        }
        assert_eq!(lines(&text, "evil_gauge"), [r#"evil_gauge{instance="a",pid="66"} 0"#], "only what clashes goes");
        let left_out = [r#"{instance="a"} 3"#, r#"{instance="b"} 0"#, r#"{instance="c"} 0"#];
        assert_eq!(lines(&text, LEFT_OUT), left_out.map(|line| format!("{LEFT_OUT}{line}")));
    }

    /// However regions get two series of one name and labels past the agent.
    #[test]
    fn a_series_is_written_once_and_agents_come_first() {
        let mut world = World::new();
        let mut host = Host::new(64);
        let gauge = schema(&field("x", "gauge", 0));
        let evil = host.region(300, "evil", &[], &gauge);
        evil.words.set(0, 1, 99);
        host.region(301, "evil", &[("pid", "66")], &gauge);
        world.read("a", &host);
        let agents = host.region(2, "x", &[], &gauge);
        agents.words.set(0, 1, 3);
        world.read("a", &host);
        assert_eq!(lines(&exposition(&world), "x"), [r#"x{instance="a"} 3"#, r#"x{instance="a",pid="66"} 0"#]);
    }
}
