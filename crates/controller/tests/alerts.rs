// SPDX-License-Identifier: Apache-2.0
//! Rules of a real controller over a real host, and what an Alertmanager hears of them.

use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use onlooker_testbed::{Agent, Body, Controller, Process, free_port, get, json, request, sink, until};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Takes alerts as an Alertmanager does (API v2), and remembers them.
struct Sink {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Value>>>,
    /// What it answers.
    status: Arc<AtomicU16>,
}

impl Sink {
    fn start() -> Self {
        let (heard, status) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::new(AtomicU16::new(200)));
        let (own_heard, own_status) = (heard.clone(), status.clone());
        Self { address: sink(move |head, body| take(head, body, &own_heard, &own_status)), heard, status }
    }

    /// What it heard of an alert, in order.
    fn of(&self, name: &str) -> Vec<Value> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|alert| alert["labels"]["alertname"] == name).cloned().collect()
    }
}

fn take(head: &str, body: &mut Body<'_>, heard: &Mutex<Vec<Value>>, status: &AtomicU16) -> Option<u16> {
    assert!(head.starts_with("POST /api/v2/alerts HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/json"), "{head}");
    let mut bytes = Vec::new();
    body.read_to_end(&mut bytes).unwrap();
    let status = status.load(Ordering::SeqCst);
    if status == 200 {
        let alerts: Value = serde_json::from_slice(&bytes).unwrap();
        heard.lock().unwrap().extend(alerts.as_array().unwrap().iter().cloned());
    }
    Some(status)
}

/// A controller that reads `agent`, evaluates `rules` and tells `manager`.
fn controller(agent: &Agent, manager: SocketAddr, rules: &str) -> Controller {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.yml");
    fs::write(&file, rules).unwrap();
    let rest = format!(
        "[rules]\nshipped = false\nfiles = [{file:?}]\nalertmanagers = [\"http://{manager}/\"]\nexternal_labels = {{ site = \"lab\" }}\n\
         external_url = \"http://onlooker.example/\"\n{}",
        agent.target("a")
    );
    Controller::start_in(dir, "", &rest)
}

fn result(address: SocketAddr, query: &str) -> Vec<Value> {
    let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
    json(address, &format!("/api/v1/query?query={query}"))["data"]["result"].as_array().unwrap().clone()
}

fn alerts(address: SocketAddr) -> Vec<Value> {
    json(address, "/api/v1/alerts")["data"]["alerts"].as_array().unwrap().clone()
}

/// The value of a line of `/metrics`, labels and all.
fn metric(address: SocketAddr, name: &str) -> f64 {
    let text = get(address, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    line.unwrap_or_else(|| panic!("{name} is not in /metrics"))
}

const GONE: &str = r#"
groups:
- name: hosts
  interval: 100ms
  rules:
  - record: instance:load:seen
    expr: node_load1 * 0 + 1
    labels: { by: rule }
  - alert: HostGone
    expr: absent(instance:load:seen{instance="a"})
    for: 1s
    labels: { severity: page }
    annotations: { summary: "{{ $labels.instance }} is gone" }
"#;

#[test]
fn a_host_that_stops_is_told_and_comes_back() {
    let (mut agent, sink) = (Agent::start(), Sink::start());
    let controller = controller(&agent, sink.address, GONE);
    let address = controller.address();
    until("what a rule recorded", || (result(address, "instance:load:seen").len() == 1).then_some(()));
    let recorded = &result(address, "instance:load:seen")[0];
    assert_eq!(recorded["metric"], json!({"__name__": "instance:load:seen", "instance": "a", "by": "rule"}));
    until("no alert", || alerts(address).is_empty().then_some(()));
    agent.kill();
    let pending = until("an alert", || alerts(address).into_iter().next());
    let firing = until("an alert that fires", || alerts(address).into_iter().find(|alert| alert["state"] == "firing"));
    assert_eq!((&pending["activeAt"], &pending["value"]), (&firing["activeAt"], &json!("1e+00")));
    let told = until("a notice", || {
        // One from before the host was read for the first time is another.
        sink.of("HostGone").into_iter().find(|one| one["startsAt"].as_str() > firing["activeAt"].as_str())
    });
    assert_eq!(told["labels"], json!({"alertname": "HostGone", "instance": "a", "severity": "page", "site": "lab"}));
    assert_eq!(told["annotations"], json!({"summary": "a is gone"}));
    assert!(told["generatorURL"].as_str().unwrap().starts_with("http://onlooker.example/api/v1/query?query=absent"));
    assert!(told["endsAt"].as_str() > told["startsAt"].as_str());
    let series = until("its series", || result(address, r#"ALERTS{alertstate="firing"}"#).into_iter().next());
    assert_eq!((&series["metric"]["alertname"], &series["value"][1]), (&json!("HostGone"), &json!("1")));
    assert_eq!(result(address, "ALERTS_FOR_STATE").len(), 1);
    assert!((metric(address, r#"onlooker_controller_alerts{state="firing"}"#) - 1.0).abs() < f64::EPSILON);
    agent.run();
    // While it fires the ends that are told only rise.
    let is_end = |one: &Value| one["startsAt"] == told["startsAt"] && one["endsAt"].as_str() < told["endsAt"].as_str();
    let resolved = until("its end", || sink.of("HostGone").into_iter().find(is_end));
    assert!(resolved["endsAt"].as_str() > told["startsAt"].as_str());
    until("no alert", || alerts(address).is_empty().then_some(()));
    until("no series", || result(address, "ALERTS").is_empty().then_some(()));
}

/// Debian's own (scripts/setup): it believes what it is told, and forgets what has resolved.
#[test]
fn a_real_alertmanager_takes_it_and_its_end() {
    let (mut agent, dir) = (Agent::start(), tempfile::tempdir().unwrap());
    let config = dir.path().join("alertmanager.yml");
    fs::write(&config, "route: { receiver: nobody }\nreceivers: [{ name: nobody }]\n").unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut command = Command::new("prometheus-alertmanager");
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.path={}", dir.path().join("data").display()));
    command.arg(format!("--web.listen-address={address}")).arg("--cluster.listen-address=");
    let (_manager, _) = Process::start(&mut command, "Listening on");
    let controller = controller(&agent, address, GONE);
    until("what a rule recorded", || (result(controller.address(), "instance:load:seen").len() == 1).then_some(()));
    let known = || json(address, "/api/v2/alerts").as_array().unwrap().clone();
    until("no alert", || known().is_empty().then_some(()));
    agent.kill();
    let known_alert = until("an alert", || known().pop());
    assert_eq!(
        known_alert["labels"],
        json!({"alertname": "HostGone", "instance": "a", "severity": "page", "site": "lab"})
    );
    assert_eq!((&known_alert["status"]["state"], known().len()), (&json!("active"), 1));
    agent.run();
    until("its end", || known().is_empty().then_some(()));
}

const ALWAYS: &str = r#"
groups:
- name: always
  interval: 100ms
  rules:
  - alert: Loaded
    expr: node_load1 >= 0
"#;

#[test]
fn killed_while_it_fires_the_same_alert_goes_on() {
    let (agent, sink) = (Agent::start(), Sink::start());
    let mut controller = controller(&agent, sink.address, ALWAYS);
    let first = until("a notice", || sink.of("Loaded").into_iter().next());
    let active = alerts(controller.address());
    for kind in ["killed", "stopped"] {
        let heard = sink.of("Loaded").len();
        match kind {
            "killed" => controller.kill(),
            _ => assert!(controller.take_process().terminate().success()),
        }
        controller.start_again();
        let address = controller.address();
        until("a notice of the new process", || (sink.of("Loaded").len() > heard).then_some(()));
        let now = alerts(address);
        assert_eq!((now.len(), &now[0]["activeAt"]), (1, &active[0]["activeAt"]), "{now:?}");
        // It is given again, and does not end with the time that it has for that.
        until("an evaluation", || (result(address, "ALERTS").len() == 1).then_some(()));
    }
    for told in sink.of("Loaded") {
        assert_eq!((&told["startsAt"], &told["labels"]), (&first["startsAt"], &first["labels"]));
        assert!(told["endsAt"].as_str() >= first["endsAt"].as_str(), "none has resolved: {told}");
    }
    // Who fired is unknown then: that is told, and all begins anew.
    controller.kill();
    let state = controller.dir().join("store/alerts.state");
    let text = fs::read_to_string(&state).unwrap();
    fs::write(&state, text.replace("Loaded", "Loadad")).unwrap();
    controller.start_again();
    let log = until("a word about the damage", || {
        Some(controller.process().log()).filter(|log| log.contains("alerts begin anew"))
    });
    assert!(log.contains("alerts.state: it is damaged"), "{log}");
    until("another alert", || (sink.of("Loaded").last().unwrap()["startsAt"] != first["startsAt"]).then_some(()));
}

#[test]
fn what_an_alertmanager_does_not_take_is_told_later() {
    let (agent, sink) = (Agent::start(), Sink::start());
    sink.status.store(503, Ordering::SeqCst);
    let controller = controller(&agent, sink.address, ALWAYS);
    let address = controller.address();
    let named = |name: &str| {
        let name = format!("onlooker_controller_notifications_{name}{{alertmanager=\"http://{}/\"}}", sink.address);
        metric(address, &name)
    };
    until("a failure", || (named("errors_total") >= 1.0).then_some(()));
    assert!(named("queue_length") <= 1.0 && named("sent_total") < 1.0 && named("dropped_total") < 1.0);
    sink.status.store(200, Ordering::SeqCst);
    until("a notice", || sink.of("Loaded").into_iter().next());
    until("its count", || (named("sent_total") >= 1.0 && named("queue_length") < 1.0).then_some(()));
    assert!(named("dropped_total") < 1.0);
    let managers = json(address, "/api/v1/alertmanagers");
    let url = format!("http://{}/api/v2/alerts", sink.address);
    assert_eq!(managers["data"], json!({"activeAlertmanagers": [{"url": url}], "droppedAlertmanagers": []}));
}

const THREE: &str = r#"
groups:
- name: one
  interval: 100ms
  rules:
  - { record: r1, expr: vector(1), labels: { team: a } }
  - { alert: A1, expr: vector(1), for: 1h, keep_firing_for: 1m, labels: { team: b }, annotations: { text: "{{ $value }}" } }
- name: two
  interval: 1s
  limit: 5
  rules:
  - { record: r2, expr: vector(2) }
- name: three
  interval: 30d
  rules:
  - { alert: A3, expr: vector(3) }
"#;

fn names(answer: &Value) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let rules = |group: &Value| group["rules"].as_array().unwrap().iter().map(text).collect();
    answer["data"]["groups"].as_array().unwrap().iter().map(|group| (text(group), rules(group))).collect()
}

#[test]
fn rules_are_listed_as_prometheus_lists_them() {
    let (agent, sink) = (Agent::start(), Sink::start());
    let controller = controller(&agent, sink.address, THREE);
    let address = controller.address();
    let ask = |parameters: &str| json(address, &format!("/api/v1/rules?{parameters}"));
    let all = until("evaluations", || {
        let all = ask("");
        let is_done = |at: usize| all["data"]["groups"][at]["rules"][0]["health"] == "ok";
        (is_done(0) && is_done(1)).then_some(all)
    });
    let file = all["data"]["groups"][0]["file"].as_str().unwrap().to_owned();
    assert_eq!(Path::new(&file), controller.dir().join("rules.yml"));
    let mut group = all["data"]["groups"][0].clone();
    for key in ["evaluationTime", "lastEvaluation"] {
        assert!(!group[key].is_null());
        group.as_object_mut().unwrap().remove(key);
        for rule in group["rules"].as_array_mut().unwrap() {
            assert!(!rule.as_object_mut().unwrap().remove(key).unwrap().is_null());
        }
    }
    let active = group["rules"][1]["alerts"][0].as_object_mut().unwrap().remove("activeAt").unwrap();
    assert!(active.as_str().unwrap().ends_with('Z'));
    let labels = json!({"alertname": "A1", "team": "b"});
    assert_eq!(
        group,
        json!({"name": "one", "file": file, "interval": 0.1, "limit": 0, "rules": [
            {"name": "r1", "query": "vector(1)", "labels": {"team": "a"}, "health": "ok", "type": "recording"},
            {"name": "A1", "query": "vector(1)", "labels": {"team": "b"}, "health": "ok", "type": "alerting",
             "state": "pending", "duration": 3600.0, "keepFiringFor": 60.0, "annotations": {"text": "{{ $value }}"},
             "alerts": [{"labels": labels, "annotations": {"text": "1"}, "state": "pending", "value": "1e+00"}]},
        ]})
    );
    let third = &all["data"]["groups"][2];
    assert_eq!((&third["rules"][0]["state"], &third["interval"]), (&json!("unknown"), &json!(2_592_000.0)));
    assert_eq!(third["lastEvaluation"], "0001-01-01T00:00:00Z");
    let of = |parameters: &str| {
        let names = names(&ask(parameters));
        names.into_iter().map(|(group, rules)| format!("{group}: {}", rules.join(" "))).collect::<Vec<_>>()
    };
    assert_eq!(of(""), ["one: r1 A1", "two: r2", "three: A3"]);
    assert_eq!(of("type=alert"), ["one: A1", "three: A3"]);
    assert_eq!(of("type=record&rule_group[]=two"), ["two: r2"]);
    assert_eq!(of("rule_name[]=A1&rule_name[]=r2"), ["one: A1", "two: r2"]);
    assert_eq!(of("file[]=other"), [""; 0]);
    assert_eq!(of(&format!("file[]={file}&match[]=%7Bteam%3D~%22a%7Cx%22%7D")), ["one: r1"]);
    assert!(ask("exclude_alerts=true")["data"]["groups"][0]["rules"][1]["alerts"].is_null());
    // Page by page it is the same.
    let (mut paged, mut token) = (Vec::new(), String::new());
    loop {
        let page = ask(&format!("group_limit=2{token}"));
        paged.extend(names(&page));
        let Some(next) = page["data"]["groupNextToken"].as_str() else { break };
        token = format!("&group_next_token={next}");
    }
    assert_eq!(paged, names(&all));
    for wrong in [
        "type=x",
        "group_limit=0",
        "group_limit=x",
        "group_next_token=x",
        "group_limit=1&group_next_token=x",
        "exclude_alerts=x",
    ] {
        let answer = request(address, "GET", &format!("/api/v1/rules?{wrong}"), "", "");
        assert_eq!((answer.status, &answer.json()["errorType"]), (400, &json!("bad_data")), "{wrong}");
    }
    until("all names", || {
        let listed = json(address, "/api/v1/label/__name__/values")["data"].clone();
        let is_listed = |name: &&str| listed.as_array().unwrap().contains(&json!(name));
        ["ALERTS", "ALERTS_FOR_STATE", "r1", "r2", "node_load1"].iter().all(is_listed).then_some(())
    });
}

#[test]
fn a_reload_takes_new_rules_and_keeps_good_ones() {
    let (agent, sink) = (Agent::start(), Sink::start());
    let controller = controller(&agent, sink.address, ALWAYS);
    let address = controller.address();
    let first = until("a notice", || sink.of("Loaded").into_iter().next());
    let active = alerts(address)[0]["activeAt"].clone();
    let file = controller.dir().join("rules.yml");
    let reload = || controller.process().signal(Signal::HUP);
    fs::write(&file, "groups: [{name: x, rules: [{alert: A, expr: 'sum('}]}]").unwrap();
    reload();
    until("a refusal", || controller.process().log().contains("the rules stay as they were").then_some(()));
    assert_eq!(names(&json(address, "/api/v1/rules"))[0].0, "always");
    fs::write(&file, format!("{ALWAYS}  - {{ record: more, expr: vector(1) }}\n")).unwrap();
    reload();
    until("the new rule", || (result(address, "more").len() == 1).then_some(()));
    assert_eq!(alerts(address)[0]["activeAt"], active);
    fs::write(&file, "groups: []").unwrap();
    reload();
    until("no rules", || names(&json(address, "/api/v1/rules")).is_empty().then_some(()));
    until("no series", || (result(address, "ALERTS").is_empty() && result(address, "more").is_empty()).then_some(()));
    assert!(sink.of("Loaded").iter().all(|told| told["startsAt"] == first["startsAt"]));
}

const SILENT: &str = r"
groups:
- name: silent
  interval: 200ms
  rules:
  - alert: Down
    expr: up == 0 and on (instance) onlooker_host_up == 0
";

#[test]
fn rules_see_how_it_goes_with_hosts() {
    let (mut agent, sink) = (Agent::start(), Sink::start());
    let controller = controller(&agent, sink.address, SILENT);
    let address = controller.address();
    let up = || result(address, "up").first().map(|one| (one["metric"].clone(), one["value"][1].clone()));
    let expected = json!({"__name__": "up", "instance": "a"});
    until("a host that is read", || up().filter(|up| *up == (expected.clone(), json!("1"))));
    assert!(!result(address, "onlooker_controller_rows_total").is_empty());
    agent.kill();
    let down = until("an alert", || alerts(address).pop());
    assert_eq!(down["labels"], json!({"alertname": "Down", "instance": "a"}));
    assert_eq!(up(), Some((expected, json!("0"))));
}
