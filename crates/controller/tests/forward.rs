// SPDX-License-Identifier: Apache-2.0
//! A real controller that reads a real agent and forwards: whatever fails on the way, the other end has each sample that
//! PromQL answers, once or more, in order.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onlooker_testbed::remote_write::{Sample, WriteRequest, unpacked};
use onlooker_testbed::{Agent, Body, Controller, Process, RETRY_AFTER_S, Stream, json, sink_over, until};
use prost::Message;
use serde_json::Value;

/// Few enough that a debug build answers all samples of a minute.
const SELECTOR: &str =
    r#"{__name__=~"node_load1|node_cpu_seconds_total|node_memory_MemFree_bytes|node_context_switches_total"}"#;

type Labels = BTreeMap<String, String>;
/// Times in ms, and values by their bits.
type All = BTreeMap<Labels, BTreeMap<i64, u64>>;

/// What a sink does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Good,
    /// Closes the connection in the middle of the body.
    HalfWay,
    Status(u16),
    /// Takes remote write 1.0 only.
    Old,
    /// As Prometheus: takes nothing of a request that has samples which are not later than the last of their series.
    Later,
    /// The same, until it has a part of a slice of time: then 503.
    Part,
}

struct State {
    mood: Mood,
    requests: Vec<(String, Vec<u8>)>,
    answered: usize,
    /// Of what was judged: the last time of each series, and of the last request.
    newest_ms: BTreeMap<Labels, i64>,
    last_ms: i64,
}

impl State {
    fn judge(&mut self, body: &[u8]) -> u16 {
        let all: Vec<_> = series(body).collect();
        let times = || all.iter().flat_map(|(_, samples)| samples).map(|sample| sample.timestamp);
        // At the border of two slices some are earlier than others of the slice before.
        let early = times().filter(|time_ms| *time_ms <= self.last_ms).count();
        if self.mood == Mood::Part && early * 2 > times().count() {
            self.mood = Mood::Status(503);
            return 503;
        }
        let is_later = |(labels, samples): &(Labels, Vec<Sample>)| {
            samples
                .iter()
                .all(|sample| self.newest_ms.get(labels).is_none_or(|newest_ms| sample.timestamp > *newest_ms))
        };
        if !all.iter().all(is_later) {
            return 400;
        }
        self.last_ms = times().max().unwrap_or(self.last_ms);
        self.newest_ms
            .extend(all.into_iter().filter_map(|(labels, samples)| Some((labels, samples.last()?.timestamp))));
        204
    }
}

/// A server that keeps what it is sent.
struct Sink {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Sink {
    fn start(mood: Mood) -> Self {
        Self::start_over(mood, |stream| Box::new(stream))
    }

    fn start_over(mood: Mood, wrap: impl Fn(TcpStream) -> Box<dyn Stream> + Send + Sync + 'static) -> Self {
        let state = Arc::new(Mutex::new(State {
            mood,
            requests: Vec::new(),
            answered: 0,
            newest_ms: BTreeMap::new(),
            last_ms: 0,
        }));
        let own = state.clone();
        Self { address: sink_over(wrap, move |head, body| take(head, body, &own)), state }
    }

    fn set(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    fn requests(&self) -> Vec<(String, Vec<u8>)> {
        self.state.lock().unwrap().requests.clone()
    }

    /// Requests, whatever became of them.
    fn answered(&self) -> usize {
        self.state.lock().unwrap().answered
    }

    /// All samples; each that was not there yet is later than all of its series before.
    fn all(&self) -> All {
        let mut all = All::new();
        self.requests().iter().flat_map(|(_, body)| series(body)).for_each(|series| add(&mut all, series));
        all
    }
}

fn series(body: &[u8]) -> impl Iterator<Item = (Labels, Vec<Sample>)> {
    let all = WriteRequest::decode(&*unpacked(body)).unwrap().series.into_iter();
    all.map(|series| (series.labels.into_iter().map(|label| (label.name, label.value)).collect(), series.samples))
}

fn add(all: &mut All, (labels, samples): (Labels, Vec<Sample>)) {
    let own = all.entry(labels).or_default();
    for Sample { value, timestamp } in samples {
        match own.get(&timestamp) {
            Some(before) => assert_eq!(*before, value.to_bits(), "another value at {timestamp}"),
            None => assert!(own.last_key_value().is_none_or(|(last, _)| *last < timestamp)),
        }
        own.insert(timestamp, value.to_bits());
    }
}

/// What a sink answers, if it answers.
fn take(head: &str, body: &mut Body<'_>, state: &Mutex<State>) -> Option<u16> {
    let mood = state.lock().unwrap().mood;
    if mood == Mood::HalfWay {
        body.set_limit(body.limit() / 2);
    }
    let mut bytes = Vec::new();
    body.read_to_end(&mut bytes).ok()?;
    let is_old = head.to_ascii_lowercase().contains("x-prometheus-remote-write-version: 0.1.0");
    let status = match mood {
        Mood::HalfWay => None,
        Mood::Status(status) => Some(status),
        Mood::Old if !is_old => Some(415),
        Mood::Good | Mood::Old => Some(204),
        Mood::Later | Mood::Part => Some(state.lock().unwrap().judge(&bytes)),
    };
    let mut state = state.lock().unwrap();
    state.answered += 1;
    if status == Some(204) {
        state.requests.push((head.to_owned(), bytes));
    }
    status
}

fn section(name: &str, kind: &str, sink: &Sink) -> String {
    format!(
        "[[forward]]\nname = \"{name}\"\nkind = \"{kind}\"\nurl = \"http://{}/write\"\nmax_age = \"500ms\"\nmatch = ['{SELECTOR}']\n",
        sink.address
    )
}

fn start(agent: &Agent, sections: &str) -> Controller {
    let more = format!("{}interval = \"200ms\"\n[read]\ntimeout = \"1s\"\n{sections}", agent.target("a"));
    Controller::start("", &more)
}

/// What the controller says of a target.
fn status(controller: &Controller, name: &str) -> Value {
    let status = json(controller.address(), "/api/onlooker/v1/status");
    let targets = status["forward"].as_array().unwrap();
    targets.iter().find(|target| target["name"] == name).unwrap().clone()
}

/// All samples of a time that a server of Prometheus' API answers, both ends included.
fn answered(address: SocketAddr, selector: &str, first_ms: i64, last_ms: i64) -> All {
    let query = format!("{selector}[{}ms]", last_ms - first_ms + 1);
    let time = format!("{}.{:03}", last_ms / 1_000, last_ms % 1_000);
    let path =
        form_urlencoded::Serializer::new(String::new()).extend_pairs([("query", query), ("time", time)]).finish();
    let answer = json(address, &format!("/api/v1/query?{path}"));
    let mut all = All::new();
    for series in answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{answer}")) {
        let labels = series["metric"].as_object().unwrap().iter();
        let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect();
        let own: &mut BTreeMap<i64, u64> = all.entry(labels).or_default();
        for sample in series["values"].as_array().unwrap() {
            #[allow(clippy::cast_possible_truncation)] // whole milliseconds
            let time_ms = (sample[0].as_f64().unwrap() * 1e3).round() as i64;
            let value: f64 = sample[1].as_str().unwrap().parse().unwrap();
            own.insert(time_ms, value.to_bits());
        }
    }
    all
}

/// Times of the first and of the last sample that are numbers.
fn span(all: &All) -> Option<(i64, i64)> {
    let times = || all.values().flat_map(|samples| samples.keys().copied());
    Some((times().min()?, times().max()?))
}

/// What PromQL answers of the time of the sink's samples is there; but for the last second of it, since the ends of a
/// slice are of rows, and samples are somewhat earlier.
fn compare(controller: &Controller, all: &All) {
    compare_all(controller, SELECTOR, all);
}

fn compare_all(controller: &Controller, selector: &str, all: &All) {
    let (first_ms, last_ms) = span(all).unwrap();
    let answered = answered(controller.address(), selector, first_ms, last_ms - 1_000);
    assert!(answered.len() >= 4, "{answered:?}");
    let mut compared = 0;
    for (labels, samples) in &answered {
        let mut before_ms = 0;
        let own = all.get(labels).unwrap_or_else(|| panic!("{labels:?} was not sent"));
        for (time_ms, value) in samples {
            // A value that stands is told again, by whom at which time does not matter.
            if time_ms - before_ms < 9_900 {
                // Remote write cuts a fraction off, and a double of such a time rounds it.
                let is_sent = [*time_ms, time_ms - 1].iter().any(|time_ms| own.get(time_ms) == Some(value));
                assert!(is_sent, "{labels:?} at {time_ms}, of {}", samples.len());
                compared += 1;
            }
            before_ms = *time_ms;
        }
    }
    assert!(compared > 100, "{compared}");
}

/// Waits until the sink has samples of so much time after what it had.
fn more(sink: &Sink, what: &str, ms: i64) {
    let begin = span(&sink.all()).map(|(_, last_ms)| last_ms);
    until(what, || {
        let (first_ms, last_ms) = span(&sink.all())?;
        (last_ms > begin.unwrap_or(first_ms) + ms).then_some(())
    });
}

#[test]
fn nothing_is_lost_when_the_sink_is_down_and_the_controller_is_killed_twice() {
    let (agent, sink) = (Agent::start(), Sink::start(Mood::Good));
    let mut controller = start(&agent, &section("one", "prometheus", &sink));
    more(&sink, "samples", 3_000);
    for mood in [Mood::HalfWay, Mood::Status(503)] {
        sink.set(mood);
        let before = sink.answered();
        until("an attempt", || (sink.answered() > before).then_some(()));
        until("a retry is counted", || (status(&controller, "one")["retries"].as_u64() > Some(0)).then_some(()));
        assert!(status(&controller, "one")["failed"].is_string());
        controller.kill();
        controller.start_again();
        let before = sink.answered();
        until("an attempt of the next controller", || (sink.answered() > before).then_some(()));
        sink.set(Mood::Good);
        more(&sink, "samples after a kill", 3_000);
    }
    compare(&controller, &sink.all());
    let said = status(&controller, "one");
    assert_eq!((&said["dropped_samples"], &said["gaps"], &said["failed"]), (&0.into(), &0.into(), &Value::Null));
    assert!(said["lag_ms"].as_f64() < Some(60_000.0) && said["series"].as_u64() >= Some(4), "{said}");
}

/// A slice of time is sent again after a kill, in other requests than before: the other end has a part of the first.
#[test]
fn nothing_new_is_refused_with_what_the_other_end_has() {
    let (agent, sink) = (Agent::start(), Sink::start(Mood::Part));
    let selector = r#"{__name__=~"node_.*"}"#;
    // Slices of several requests.
    let section = section("one", "prometheus", &sink).replace(SELECTOR, selector).replace("500ms", "2s");
    let mut controller = start(&agent, &format!("{section}max_bytes = \"64KiB\"\n"));
    until("a part of a slice", || (sink.state.lock().unwrap().mood == Mood::Status(503)).then_some(()));
    controller.kill();
    let file = controller.dir().join("controller.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("64KiB", "64MiB")).unwrap();
    sink.set(Mood::Later);
    controller.start_again();
    more(&sink, "samples after the kill", 3_000);
    compare_all(&controller, selector, &sink.all());
    let said = status(&controller, "one");
    assert!(said["dropped_samples"].as_u64() > Some(0), "{said}");
}

/// Requests as the other end wants them, and what it refuses.
#[test]
fn what_is_refused_is_counted_and_an_old_end_is_sent_the_old_protocol() {
    let agent = Agent::start();
    let (bad, old, influx) = (Sink::start(Mood::Status(400)), Sink::start(Mood::Old), Sink::start(Mood::Good));
    let token = agent.dir().join("sink-token");
    std::fs::write(&token, "secret of the sink\n").unwrap();
    let sections = [
        section("bad", "prometheus", &bad),
        section("old", "prometheus2", &old) + "headers = { X-Scope-OrgID = \"hosts\" }\n",
        section("influx", "influxdb", &influx) + &format!("token_file = {token:?}\nstep = \"1s\"\n"),
    ];
    let controller = start(&agent, &sections.concat());
    until("a refusal", || (status(&controller, "bad")["dropped_samples"].as_u64() > Some(0)).then_some(()));
    let said = status(&controller, "bad");
    assert_eq!((&said["samples"], &said["retries"]), (&0.into(), &0.into()));
    assert!(said["failed"].as_str().unwrap().contains("400"), "{said}");
    more(&old, "samples of 1.0", 3_000);
    compare(&controller, &old.all());
    let (head, _) = &old.requests()[0];
    assert!(head.to_ascii_lowercase().contains("x-scope-orgid: hosts"), "{head}");
    let lines = until("lines", || {
        let mut text = String::new();
        for (head, body) in influx.requests() {
            assert!(head.to_ascii_lowercase().contains("authorization: token secret of the sink"), "{head}");
            flate2::read::GzDecoder::new(&*body).read_to_string(&mut text).unwrap();
        }
        let lines: Vec<String> =
            text.lines().filter(|line| line.starts_with("node_load1,")).map(str::to_owned).collect();
        (lines.len() > 3).then_some(lines)
    });
    // One a second; a host that is read late for once has another distance.
    let seconds: Vec<u64> =
        lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap() / 1_000_000_000).collect();
    assert!(seconds.is_sorted_by(|one, next| one < next), "{lines:?}");
    assert!(
        lines.iter().all(|line| line.starts_with("node_load1,instance=a") && line.contains(" value=")),
        "{lines:?}"
    );
    let metrics = onlooker_testbed::get(controller.address(), "/metrics");
    for line in
        ["forward_samples_total{target=\"old\"}", "forward_dropped_samples_total{target=\"bad\",reason=\"refused\"}"]
    {
        let value = metrics.lines().find_map(|own| own.strip_prefix(&format!("onlooker_controller_{line} ")));
        assert!(value.unwrap_or_else(|| panic!("{line}: {metrics}")).parse::<f64>().unwrap() > 0.0);
    }
}

/// Over TLS to whoever has a certificate of the configured authority; one that asks to be left alone is left alone.
#[test]
fn a_target_is_believed_by_its_certificate_and_asked_again_when_it_wants() {
    let agent = Agent::start();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca_file = agent.dir().join("authority.pem");
    std::fs::write(&ca_file, made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let tls = Arc::new(tls);
    let wrap = move |stream| {
        let connection = rustls::ServerConnection::new(tls.clone()).unwrap();
        Box::new(rustls::StreamOwned::new(connection, stream)) as Box<dyn Stream>
    };
    let sink = Sink::start_over(Mood::Status(429), wrap);
    let of_port = |name: &str| section(name, "prometheus", &sink).replace("http://127.0.0.1", "https://localhost");
    let believed = format!("{}ca_file = {ca_file:?}\n", of_port("believed"));
    let controller = start(&agent, &(of_port("stranger") + &believed));
    until("a request", || (sink.answered() > 0).then_some(()));
    let asked = Instant::now();
    until("a second one", || (sink.answered() > 1).then_some(()));
    // When it was seen is up to a look later than when it was.
    assert!(asked.elapsed() > Duration::from_secs(RETRY_AFTER_S) - Duration::from_millis(500), "{:?}", asked.elapsed());
    assert!(status(&controller, "believed")["failed"].as_str().unwrap().contains("429"));
    sink.set(Mood::Good);
    more(&sink, "samples over TLS", 3_000);
    compare(&controller, &sink.all());
    let said = status(&controller, "believed");
    assert_eq!((&said["dropped_samples"], &said["gaps"], &said["failed"]), (&0.into(), &0.into(), &Value::Null));
    let said = until("a certificate that nobody believes", || {
        status(&controller, "stranger")["failed"].as_str().map(str::to_owned)
    });
    assert!(said.to_ascii_lowercase().contains("certificate"), "{said}");
    assert_eq!(status(&controller, "stranger")["samples"], 0);
}

/// Debian's (scripts/setup), which takes version 1; one that takes both versions where `ONLOOKER_PROMETHEUS` names it.
#[test]
fn prometheus_answers_what_it_was_sent() {
    let newer = std::env::var("ONLOOKER_PROMETHEUS");
    let (kinds, program) = match &newer {
        Ok(program) => (&["prometheus", "prometheus2"][..], program.as_str()),
        Err(_) => (&["prometheus"][..], "prometheus"),
    };
    let (agent, dir, port) = (Agent::start(), tempfile::tempdir().unwrap(), onlooker_testbed::free_port());
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    std::fs::write(dir.path().join("prometheus.yml"), "").unwrap();
    let mut command = std::process::Command::new(program);
    command
        .current_dir(dir.path())
        .arg("--web.enable-remote-write-receiver")
        .arg(format!("--web.listen-address={address}"));
    let (_prometheus, _) = Process::start(&mut command, "Server is ready to receive web requests");
    let section = |name: &str| {
        format!(
            "[[forward]]\nname = \"{name}\"\nkind = \"{name}\"\nurl = \"http://{address}/api/v1/write\"\nmax_age = \"500ms\"\n\
             match = ['{SELECTOR}']\n[[forward.relabel]]\ntarget_label = \"by\"\nreplacement = \"{name}\"\n"
        )
    };
    let controller = start(&agent, &kinds.iter().map(|name| section(name)).collect::<String>());
    for name in kinds {
        until("samples", || (status(&controller, name)["samples"].as_u64() > Some(1_000)).then_some(()));
    }
    let now_ms = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let all = answered(address, SELECTOR, now_ms - 600_000, now_ms);
    for name in kinds {
        let of_name = all.iter().filter(|(labels, _)| labels["by"] == *name).map(|(labels, samples)| {
            let labels = labels.iter().filter(|(name, _)| *name != "by");
            (labels.map(|(name, value)| (name.clone(), value.clone())).collect(), samples.clone())
        });
        compare(&controller, &of_name.collect());
        let said = status(&controller, name);
        assert_eq!((&said["dropped_samples"], &said["failed"]), (&0.into(), &Value::Null), "{said}");
    }
}
