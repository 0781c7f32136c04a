// SPDX-License-Identifier: Apache-2.0
//! What a controller has recorded of itself (docs/http.md): its load, and shares of what it has, at one time after the
//! other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onlooker_client::url::Url;
use onlooker_client::{AuthoritiesError, explain};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// For one query.
const TIMEOUT: Duration = Duration::from_secs(60);
/// All answers are numbers that we ask for; a longer one is somebody else's.
const MAX_ANSWER_BYTES: u64 = 16 << 20;
const MAX_ERROR_CHARS: usize = 300;
/// Samples are 10 to 15 s apart: a rate needs two of them, whatever falls out.
const MIN_WINDOW: Duration = Duration::from_secs(40);
/// What an answer takes of an Ethernet link beside its blocks, in one packet: gap, preamble, Ethernet, IPv4, UDP,
/// transport headers, both checksums.
const HEADER_BYTES: u32 = 86;
/// A point whose load differs by more from the one before is of a change: hosts that begin cost more than hosts that
/// go on.
const SETTLED: f64 = 0.1;

/// The busiest of its threads of this kind.
const PROCESSOR: &str = "processor";

/// A time of the history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    /// Since 1970.
    #[serde(default)]
    pub(super) t_s: f64,
    pub(super) values_per_s: f64,
    pub(super) hosts: f64,
    /// By resource, 1 is all of it.
    pub(super) shares: BTreeMap<String, f64>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HistoryError {
    #[error("{0}")]
    Url(String),
    #[error("cannot read {path}: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path} has no points: {what}; write what `onlooker capacity --json` has as `points`", path = path.display())]
    Points { path: PathBuf, what: String },
    #[error("--ca: {0}")]
    Authorities(#[from] AuthoritiesError),
    #[error("cannot ask the controller at {url}: {what}")]
    Unreachable { url: String, what: String },
    #[error("the controller at {url} does not answer {path}: {what}")]
    Refused { url: String, path: &'static str, what: String },
}

/// Which history.
pub(super) struct Range {
    pub(super) since: Duration,
    pub(super) step: Duration,
    /// Of the links, where the system does not say it, bytes/s.
    pub(super) link_bytes_per_s: Option<f64>,
}

/// The points in a file: an array of them, or an object that has one as `points`.
pub(super) fn read(path: &Path) -> Result<Vec<Point>, HistoryError> {
    let text = std::fs::read_to_string(path).map_err(|source| HistoryError::File { path: path.into(), source })?;
    let wrong = |error: serde_json::Error| HistoryError::Points { path: path.into(), what: error.to_string() };
    let mut value: Value = serde_json::from_str(&text).map_err(wrong)?;
    let points = value.get_mut("points").map(Value::take).unwrap_or(value);
    serde_json::from_value(points).map_err(wrong)
}

/// The way to a controller.
pub(super) struct Client {
    url: Url,
    agent: ureq::Agent,
    token: Option<String>,
}

impl Client {
    pub(super) fn new(url: &str, ca: Option<&Path>, token_file: Option<&Path>) -> Result<Self, HistoryError> {
        let url = Url::parse(url).map_err(HistoryError::Url)?;
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path);
            text.map(|text| text.trim().to_owned()).map_err(|source| HistoryError::File { path: path.into(), source })
        };
        let token = token_file.map(read).transpose()?;
        let agent = onlooker_client::agent("onlooker", url.tls, ca, TIMEOUT)?;
        Ok(Self { url, agent, token })
    }

    fn get(&self, path: &'static str, query: &[(&str, String)]) -> Result<Value, HistoryError> {
        let failed = |error: &ureq::Error| {
            let what = explain(error, self.url.tls);
            HistoryError::Unreachable { url: self.url.to_string(), what }
        };
        let mut request = self.agent.get(self.url.of(path));
        for (name, value) in query {
            request = request.query(name, value);
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut answer = request.call().map_err(|error| failed(&error))?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).lossy_utf8(true).read_to_string();
        let text = text.map_err(|error| failed(&error))?;
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        if status == 200 && body.is_object() {
            return Ok(body);
        }
        let mut what = match body["error"].as_str() {
            Some(said) => said.chars().take(MAX_ERROR_CHARS).collect(),
            None => format!("HTTP status {status}, and no controller's words"),
        };
        if status == 401 {
            what.push_str("; give it with --token-file");
        }
        Err(HistoryError::Refused { url: self.url.to_string(), path, what })
    }

    /// All points in a range, the oldest first.
    pub(super) fn history(&self, range: &Range) -> Result<Vec<Point>, HistoryError> {
        // By the controller's clock: its rows are by that.
        let now_s = self.get("/api/onlooker/v1/status", &[])?["now_ms"].as_f64().unwrap_or(0.0) / 1e3;
        let mut points = BTreeMap::<u64, Point>::new();
        for (what, query) in queries(range) {
            let asked = [
                ("query", query),
                ("start", (now_s - range.since.as_secs_f64()).to_string()),
                ("end", now_s.to_string()),
                ("step", range.step.as_secs_f64().to_string()),
            ];
            let answer = self.get("/api/v1/query_range", &asked)?;
            for series in answer["data"]["result"].as_array().into_iter().flatten() {
                add(&mut points, what, series);
            }
        }
        let is_whole = |point: &Point| point.values_per_s > 0.0 && !point.shares.is_empty();
        Ok(points.into_values().filter(is_whole).collect())
    }
}

/// Which number of a point a query asks for.
#[derive(Clone, Copy)]
enum What {
    Values,
    Hosts,
    Share(&'static str),
    /// Of the core that each of them has.
    Threads,
}

fn queries(range: &Range) -> [(What, String); 6] {
    let window = format!("[{}ms]", range.step.max(MIN_WINDOW).as_millis());
    let rate = |metric: &str| format!("rate(onlooker_controller_{metric}{window})");
    let threads = rate(r#"thread_cpu_seconds_total{thread=~"engine|store|own|rules|processor-.*"}"#);
    let link = match range.link_bytes_per_s {
        Some(bytes_per_s) => bytes_per_s.to_string(),
        None => "sum(onlooker_controller_link_bytes_per_second)".to_owned(),
    };
    let (bytes, reads) = (rate("read_bytes_total"), rate("reads_total"));
    let memory = format!(r#"avg_over_time(onlooker_controller_memory_bytes{{kind!="file"}}{window})"#);
    [
        (What::Values, format!("sum({})", rate("values_total"))),
        (What::Hosts, "sum(onlooker_host_up)".to_owned()),
        (What::Threads, format!("max by (thread) ({threads})")),
        (What::Share("cpu"), format!("sum({}) / max(onlooker_controller_cpus)", rate("thread_cpu_seconds_total"))),
        (What::Share("memory"), format!("sum({memory}) / max(onlooker_controller_memory_limit_bytes)")),
        (What::Share("network"), format!("(sum({bytes}) + {HEADER_BYTES} * sum({reads})) / {link}")),
    ]
}

/// Adds a series of an answer to the points of its times.
fn add(points: &mut BTreeMap<u64, Point>, what: What, series: &Value) {
    for pair in series["values"].as_array().into_iter().flatten() {
        let value = pair[1].as_str().and_then(|text| text.parse::<f64>().ok()).filter(|value| value.is_finite());
        let (Some(t_s), Some(value)) = (pair[0].as_f64().filter(|t_s| *t_s >= 0.0), value) else { continue };
        let point = points.entry(t_s.to_bits()).or_insert_with(|| Point { t_s, ..Point::default() });
        match what {
            What::Values => point.values_per_s = value,
            What::Hosts => point.hosts = value,
            What::Share(resource) => drop(point.shares.insert(resource.to_owned(), value)),
            What::Threads => {
                let thread = series["metric"]["thread"].as_str().unwrap_or_default();
                let thread = if thread.starts_with(PROCESSOR) { PROCESSOR } else { thread };
                let share = point.shares.entry(thread.to_owned()).or_insert(value);
                *share = share.max(value);
            }
        }
    }
}

/// Those of a load that goes on; all, where it never does.
pub(super) fn settled(points: &[Point]) -> Vec<Point> {
    let goes_on = |pair: &[Point]| {
        let (before, now) = (pair[0].values_per_s, pair[1].values_per_s);
        (now - before).abs() <= SETTLED * now
    };
    let settled: Vec<Point> = points.windows(2).filter(|pair| goes_on(pair)).map(|pair| pair[1].clone()).collect();
    if settled.is_empty() { points.to_vec() } else { settled }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_become_points_by_their_times() {
        let mut points = BTreeMap::new();
        let series = |thread: &str, values: Value| json!({"metric": {"thread": thread}, "values": values});
        add(&mut points, What::Values, &series("", json!([[10, "5000"], [20.5, "6000"]])));
        add(&mut points, What::Hosts, &series("", json!([[10, "2"], [20.5, "NaN"], [-1, "1"], ["x", "1"]])));
        add(&mut points, What::Share("cpu"), &series("", json!([[10, "0.5"]])));
        for (thread, share) in [("engine", "0.1"), ("processor-1", "0.3"), ("processor-0", "0.2")] {
            add(&mut points, What::Threads, &series(thread, json!([[10, share]])));
        }
        let points: Vec<Point> = points.into_values().collect();
        let shares = [("cpu", 0.5), ("engine", 0.1), ("processor", 0.3)].map(|(name, share)| (name.to_owned(), share));
        let first = Point { t_s: 10.0, values_per_s: 5000.0, hosts: 2.0, shares: shares.into() };
        assert_eq!(points, [first, Point { t_s: 20.5, values_per_s: 6000.0, ..Point::default() }]);
    }

    #[test]
    fn points_of_a_change_are_left_out() {
        let points = |loads: &[f64]| -> Vec<Point> {
            loads.iter().map(|load| Point { values_per_s: *load, ..Point::default() }).collect()
        };
        let loads = |found: &[Point]| found.iter().map(|point| point.values_per_s).collect::<Vec<_>>();
        assert_eq!(loads(&settled(&points(&[10.0, 10.5, 20.0, 20.5, 20.0]))), [10.5, 20.5, 20.0]);
        assert_eq!(loads(&settled(&points(&[10.0, 20.0, 40.0]))), [10.0, 20.0, 40.0]);
        assert_eq!(loads(&settled(&[])), [0.0; 0]);
    }

    #[test]
    fn points_are_taken_from_a_file_as_they_are_printed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("points.json");
        let point = Point { t_s: 1.0, values_per_s: 2.0, hosts: 3.0, shares: [("cpu".to_owned(), 0.5)].into() };
        for text in [json!([point]), json!({"points": [point], "first": null})] {
            std::fs::write(&path, text.to_string()).unwrap();
            assert_eq!(read(&path).unwrap(), std::slice::from_ref(&point));
        }
        for text in ["", "{}", "[1]", r#"{"points": 1}"#] {
            std::fs::write(&path, text).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains("has no points"), "{text}");
        }
    }

    #[test]
    fn rates_have_at_least_two_samples() {
        let range = |seconds| Range { since: TIMEOUT, step: Duration::from_secs(seconds), link_bytes_per_s: Some(1e9) };
        for (seconds, window) in [(10, "[40000ms]"), (600, "[600000ms]")] {
            let queries = queries(&range(seconds));
            let ranges: Vec<&String> =
                queries.iter().map(|(_, query)| query).filter(|query| query.contains('[')).collect();
            assert!(ranges.len() == 5 && ranges.iter().all(|query| query.contains(window)), "{ranges:?}");
        }
    }
}
