// SPDX-License-Identifier: Apache-2.0
//! Questions to a collector's telemetry over HTTP. Needs root.

use onlooker_reporter::{Report, Reporter};
use onlooker_testbed::{Agent, Controller, Namespace, is_root, json, request, until};
use onlooker_wire::dta::{Body, Copies, Importance, PORT};
use serde_json::{Value, json};

const KEY: &[u8] = &[10, 0, 0, 1, 10, 0, 0, 2, 1, 187, 0x13, 0x88, 6];
const FLOW: &str = "10.0.0.1:443>10.0.0.2:5000/tcp";
/// As it stands in a URL.
const ASKED: &str = "10.0.0.1:443-10.0.0.2:5000/tcp";

/// A collector and a reporter.
pub(super) struct Collector {
    pub(super) agent: Agent,
    reporter: Reporter,
    _namespace: Namespace,
}

impl Collector {
    pub(super) fn start() -> Self {
        let namespace = Namespace::new();
        let table = |number: u16, name: &str, more: &str| {
            format!(
                "[[kernel.telemetry.tables]]\nname = {name:?}\nnumber = {number}\nmemory = \"64KiB\"\naccess_key = \"1234abcd\"\n{more}\n"
            )
        };
        let more = [
            format!("[kernel.telemetry]\nallow = [\"{}/32\"]\nwait = \"1ms\"\n", namespace.outside()),
            table(1, "paths", "primitive = \"key-write\"\npayload_bytes = 20"),
            table(2, "drops", "primitive = \"append\"\npayload_bytes = 13\nbatch = 4"),
            table(3, "bytes", "primitive = \"key-increment\"\nepoch = \"1h\""),
        ];
        let agent = Agent::start_kernel(&namespace, &more.concat());
        let reporter = Reporter::new(1, &[(namespace.inside(), PORT).into()], 0).unwrap();
        Self { agent, reporter, _namespace: namespace }
    }

    /// It has come when this returns.
    pub(super) fn report(&mut self, table: u16, body: Body<'_>) {
        let report = Report { importance: Importance::High, ..Report::new(table, 0x1234_abcd, body) };
        assert!(self.reporter.report(&report).unwrap());
        assert_eq!(self.reporter.finish(std::time::Duration::from_secs(20)).unwrap(), 0);
    }

    pub(super) fn fill(&mut self) {
        let path = [1u32, 2, 3, 0, 0].map(u32::to_be_bytes).concat();
        self.report(1, Body::KeyWrite { key: KEY, payload: &path, copies: Copies::All(2) });
        self.report(3, Body::KeyIncrement { key: KEY, addend: 1540, copies: Copies::All(2) });
        self.report(2, Body::Append { payload: KEY });
    }
}

#[test]
fn a_collector_is_asked_over_http_and_after_its_agent_was_started_again() {
    if !is_root("telemetry over a veth pair") {
        return;
    }
    let mut collector = Collector::start();
    let controller = Controller::start("", &collector.agent.target("t"));
    let address = controller.address();
    let ask = |path: &str| json(address, &format!("/api/onlooker/v1/hosts/t/telemetry{path}"));
    until("the host", || (json(address, "/api/onlooker/v1/hosts")["hosts"][0]["state"] == "reading").then_some(()));
    let names: Vec<Value> = ask("")["tables"].as_array().unwrap().iter().map(|table| table["name"].clone()).collect();
    assert_eq!(names, ["paths", "drops", "bytes"]);
    collector.fill();
    let found = ask(&format!("/paths?key={ASKED}&key=10.0.0.9&format=u32"));
    assert_eq!((&found["keys"][0]["value"], &found["keys"][0]["key"]), (&json!("1,2,3,0,0"), &json!(FLOW)));
    assert_eq!(found["keys"][1], json!({"key": "10.0.0.9", "outcome": "empty"}));
    let counted = ask(&format!("/bytes?key={ASKED}"));
    assert_eq!((&counted["keys"][0]["count"], &counted["epoch"]), (&json!(1540), &json!(0)));

    let first = until("the first entry", || {
        Some(ask("/drops/entries?format=flow"))
            .filter(|answer| answer["entries"].as_array().is_some_and(|all| !all.is_empty()))
    });
    assert_eq!((&first["entries"][0]["entry"], first["entries"].as_array().unwrap().len()), (&json!(FLOW), 1));
    let after = |next: &Value| ask(&format!("/drops/entries?format=flow&after={}", next.as_str().unwrap()));
    assert_eq!(after(&first["next"])["entries"], json!([]));

    // It goes on where it was, though keys and addresses are others.
    collector.agent.kill();
    collector.agent.run();
    collector.report(2, Body::Append { payload: KEY });
    let second = until("the next entry", || {
        Some(after(&first["next"])).filter(|answer| answer["entries"].as_array().is_some_and(|all| !all.is_empty()))
    });
    assert_eq!((&second["entries"][0]["number"], &second["lost"]), (&json!(1), &json!(0)));
    assert_eq!(ask(&format!("/paths?key={ASKED}&format=u32"))["keys"][0]["value"], "1,2,3,0,0");

    for (path, status, says) in [
        ("t/telemetry/paths", 400, "`key` is given 0 times"),
        ("t/telemetry/paths?key=x", 400, "is no key or payload"),
        ("t/telemetry/paths?key=10.0.0.1&format=u7", 400, "`format` is `u7`"),
        ("t/telemetry/drops?key=10.0.0.1", 400, "table drops is for append"),
        ("t/telemetry/paths/entries", 400, "table paths is for key-write"),
        ("t/telemetry/drops/entries?after=1", 400, "must be what an answer had as `next`"),
        ("t/telemetry/loops?key=10.0.0.1", 404, "its tables: paths, drops, bytes"),
        ("u/telemetry", 404, "no host `u` is watched"),
    ] {
        let answer = request(address, "GET", &format!("/api/onlooker/v1/hosts/{path}"), "", "");
        let error = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == status && error.contains(says), "{path}: {} {error}", answer.status);
    }
}
