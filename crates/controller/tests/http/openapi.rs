// SPDX-License-Identifier: Apache-2.0
//! The interface's own description: all of its calls and no others, and answers that are as it says.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use onlooker_testbed::{Agent, Controller, json, request, until};
use serde_json::{Value, json};

/// Method and path of each call in the document.
fn described(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, calls)| calls.as_object().unwrap().keys().map(|m| (m.clone(), path.clone())))
        .collect()
}

/// The same of the router's source: a router does not tell what it has.
fn routed() -> BTreeSet<(String, String)> {
    let source = include_str!("../../src/http/mod.rs");
    let mut routes = BTreeSet::new();
    for route in source.split(".route(\"").skip(1) {
        let (path, handler) = route.split_once('"').unwrap();
        let method = handler.trim_start_matches([',', ' ']).split('(').next().unwrap();
        assert!(["get", "post", "put", "delete"].contains(&method), "{route}");
        routes.insert((method.to_owned(), path.to_owned()));
    }
    routes
}

struct Document(Value);

impl Document {
    fn check(&self, schema: &str, value: &Value) {
        assert!(self.0["components"]["schemas"][schema].is_object(), "{schema}");
        let root = json!({"$ref": format!("#/components/schemas/{schema}"), "components": self.0["components"]});
        let validator = jsonschema::draft202012::new(&root).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path)).collect();
        assert!(errors.is_empty(), "{schema}: {errors:#?}\n{value:#}");
    }

    /// The schema of a call's answer with a status.
    fn answer(&self, path: &str, method: &str, status: u16) -> String {
        let answer = &self.0["paths"][path][method]["responses"][status.to_string()];
        let schema = answer["content"]["application/json"]["schema"]["$ref"].as_str();
        let schema = schema.unwrap_or_else(|| panic!("{method} {path} {status} is not described"));
        schema.rsplit('/').next().unwrap().to_owned()
    }
}

const TELEMETRY_KEYS: &str = "/api/onlooker/v1/hosts/{host}/telemetry/{table}";
const TELEMETRY_ENTRIES: &str = "/api/onlooker/v1/hosts/{host}/telemetry/{table}/entries";

#[test]
fn every_call_is_described_and_answers_as_it_says() {
    let agent = Agent::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("none.json");
    std::fs::write(&file, "[]").unwrap();
    let discovery = format!("[[discovery]]\nfiles = [{file:?}]\ntoken_file = {:?}\n", agent.token_file());
    let mut collector = super::telemetry::Collector::start();
    collector.fill();
    let targets = agent.target("a") + &collector.agent.target("t");
    let controller = Controller::start_in(dir, "", &(targets + &discovery));
    let address = controller.address();
    let document = Document(json(address, "/api/onlooker/v1/openapi.json"));
    assert_eq!(described(&document.0), routed());
    assert_eq!(document.0["openapi"], "3.1.0");

    until("a reading", || {
        json(address, "/api/onlooker/v1/hosts")["hosts"][0]["cycles"].as_u64().filter(|cycles| *cycles > 0)
    });
    until("stored rows", || {
        let range = json(address, "/api/onlooker/v1/hosts/a/range?match=node_load1");
        (range["series"][0]["t_ms"].as_array()?.len() > 2).then_some(())
    });
    until("two samples of the host's vitals", || {
        json(address, "/api/onlooker/v1/vitals")["hosts"][0]["cpu"].as_f64().filter(|cpu| (0.0..=1.0).contains(cpu))
    });
    boards(&document, address);
    let mut asked = BTreeSet::new();
    for (path, call, status) in [
        ("/api/onlooker/v1/status", "/api/onlooker/v1/status", 200),
        ("/api/onlooker/v1/hosts", "/api/onlooker/v1/hosts", 200),
        ("/api/onlooker/v1/hosts?since=1&fresh=a", "/api/onlooker/v1/hosts", 200),
        ("/api/onlooker/v1/hosts?state=reading&search=a&limit=1&offset=0", "/api/onlooker/v1/hosts", 200),
        ("/api/onlooker/v1/hosts?fresh=a", "/api/onlooker/v1/hosts", 400),
        ("/api/onlooker/v1/vitals", "/api/onlooker/v1/vitals", 200),
        ("/api/onlooker/v1/vitals?host=a", "/api/onlooker/v1/vitals", 400),
        ("/api/onlooker/v1/hosts/a", "/api/onlooker/v1/hosts/{host}", 200),
        ("/api/onlooker/v1/hosts/b", "/api/onlooker/v1/hosts/{host}", 404),
        ("/api/onlooker/v1/hosts/a/series?limit=10000", "/api/onlooker/v1/hosts/{host}/series", 200),
        ("/api/onlooker/v1/hosts/a/series?limit=0", "/api/onlooker/v1/hosts/{host}/series", 400),
        ("/api/onlooker/v1/hosts/a/series?search=node&by=metric", "/api/onlooker/v1/hosts/{host}/series", 200),
        ("/api/onlooker/v1/hosts/a/series?by=region", "/api/onlooker/v1/hosts/{host}/series", 400),
        ("/api/onlooker/v1/hosts/a/series?metric=node_load1", "/api/onlooker/v1/hosts/{host}/series", 200),
        ("/api/onlooker/v1/hosts/b/series", "/api/onlooker/v1/hosts/{host}/series", 404),
        ("/api/onlooker/v1/hosts/t/telemetry", "/api/onlooker/v1/hosts/{host}/telemetry", 200),
        ("/api/onlooker/v1/hosts/a/telemetry", "/api/onlooker/v1/hosts/{host}/telemetry", 502),
        ("/api/onlooker/v1/hosts/b/telemetry", "/api/onlooker/v1/hosts/{host}/telemetry", 404),
        ("/api/onlooker/v1/hosts/t/telemetry/paths?key=10.0.0.1", TELEMETRY_KEYS, 200),
        ("/api/onlooker/v1/hosts/t/telemetry/bytes?key=10.0.0.1", TELEMETRY_KEYS, 200),
        ("/api/onlooker/v1/hosts/t/telemetry/paths", TELEMETRY_KEYS, 400),
        ("/api/onlooker/v1/hosts/t/telemetry/loops?key=10.0.0.1", TELEMETRY_KEYS, 404),
        ("/api/onlooker/v1/hosts/t/telemetry/drops/entries", TELEMETRY_ENTRIES, 200),
        ("/api/onlooker/v1/hosts/t/telemetry/drops/entries?after=1", TELEMETRY_ENTRIES, 400),
        ("/api/onlooker/v1/snapshot?match[]=node_load1", "/api/onlooker/v1/snapshot", 200),
        ("/api/onlooker/v1/snapshot", "/api/onlooker/v1/snapshot", 400),
        ("/api/onlooker/v1/snapshot?match[]=up&host=b", "/api/onlooker/v1/snapshot", 404),
        ("/api/onlooker/v1/search?search=a", "/api/onlooker/v1/search", 200),
        ("/api/onlooker/v1/search?search=cpu&host=a&limit=2", "/api/onlooker/v1/search", 200),
        ("/api/onlooker/v1/search?limit=1001", "/api/onlooker/v1/search", 400),
        ("/api/onlooker/v1/search?host=b", "/api/onlooker/v1/search", 404),
        ("/api/onlooker/v1/metrics/node_load1/hosts", "/api/onlooker/v1/metrics/{metric}/hosts", 200),
        ("/api/onlooker/v1/metrics/node_load1/hosts?host=a", "/api/onlooker/v1/metrics/{metric}/hosts", 400),
        ("/api/onlooker/v1/hosts/a/range?match=node_memory_*&series=none", "/api/onlooker/v1/hosts/{host}/range", 200),
        ("/api/onlooker/v1/hosts/a/range?match=onlooker_*&points=2", "/api/onlooker/v1/hosts/{host}/range", 200),
        ("/api/onlooker/v1/hosts/a/range", "/api/onlooker/v1/hosts/{host}/range", 400),
        ("/api/onlooker/v1/live?host=b&match=node_load1", "/api/onlooker/v1/live", 404),
        ("/api/onlooker/v1/live?host=a", "/api/onlooker/v1/live", 400),
        ("/api/onlooker/v1/targets", "/api/onlooker/v1/targets", 200),
        ("/api/onlooker/v1/boards", "/api/onlooker/v1/boards", 200),
        ("/api/onlooker/v1/boards/a", "/api/onlooker/v1/boards/{name}", 200),
        ("/api/onlooker/v1/boards/b", "/api/onlooker/v1/boards/{name}", 404),
        ("/api/onlooker/v1/boards/.b", "/api/onlooker/v1/boards/{name}", 400),
    ] {
        let answer = request(address, "GET", path, "", "");
        assert_eq!(answer.status, status, "{path}");
        document.check(&document.answer(call, "get", status), &answer.json());
        asked.insert(call);
    }
    // All that answer JSON.
    let described = document.0["paths"].as_object().unwrap().iter();
    let described = described.filter(|(path, calls)| {
        path.as_str() != "/api/onlooker/v1/openapi.json"
            && calls["get"]["responses"]["200"]["content"]["application/json"].is_object()
    });
    let described: BTreeSet<&str> = described.map(|(path, _)| path.as_str()).collect();
    assert!(described.is_subset(&asked), "{described:?}");
    for path in ["/healthz", "/readyz", "/metrics", "/metrics?host=a"] {
        assert_eq!(request(address, "GET", path, "", "").status, 200);
    }
    for (path, status) in [("/metrics?host=b", 404), ("/metrics?hosts=a", 400)] {
        let answer = request(address, "GET", path, "", "");
        assert_eq!(answer.status, status);
        document.check(&document.answer("/metrics", "get", status), &answer.json());
    }

    live(&document, address);
    changes(&document, &agent);
}

fn live(document: &Document, address: std::net::SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /api/onlooker/v1/live?host=a&match=node_load* HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (mut event, mut seen) = (String::new(), BTreeSet::new());
    for line in BufReader::new(stream).lines().map(Result::unwrap) {
        if let Some(name) = line.strip_prefix("event: ") {
            event = name.to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            let schema = match event.as_str() {
                "open" => "LiveOpen",
                "row" => "LiveRow",
                "gap" => "Gap",
                "host" => "LiveHost",
                other => panic!("{other}"),
            };
            document.check(schema, &serde_json::from_str(data).unwrap());
            seen.insert(schema);
        }
        if ["LiveOpen", "LiveRow", "LiveHost"].iter().all(|schema| seen.contains(schema)) {
            return;
        }
    }
    panic!("the stream ended: {seen:?}");
}

/// Makes the board `a`.
fn boards(document: &Document, address: std::net::SocketAddr) {
    let path = "/api/onlooker/v1/boards/{name}";
    let board = json!({"title": "A", "panels": []}).to_string();
    let put = |name: &str, headers: &str, body: &str| {
        request(address, "PUT", &format!("/api/onlooker/v1/boards/{name}"), headers, body)
    };
    assert_eq!(put("a", "If-None-Match: *\r\n", &board).status, 201);
    for (name, headers, body, status) in [
        ("a", "", board.as_str(), 428),
        ("a", "If-None-Match: *\r\n", &board, 412),
        ("b", "If-Match: \"x\"\r\n", &board, 404),
        ("b", "If-None-Match: *\r\n", "{}", 400),
    ] {
        let answer = put(name, headers, body);
        assert_eq!(answer.status, status, "{name} {headers}");
        document.check(&document.answer(path, "put", status), &answer.json());
    }
    let answer = request(address, "DELETE", "/api/onlooker/v1/boards/b", "If-Match: \"x\"\r\n", "");
    document.check(&document.answer(path, "delete", 404), &answer.json());
}

/// Calls that change targets, with a controller that lets them.
fn changes(document: &Document, agent: &Agent) {
    const TOKEN: &str = "a-token-of-many-characters";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, TOKEN).unwrap();
    let http = format!("join_token_file = {path:?}");
    let controller = Controller::start(&http, "");
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let join = json!({"name": "b", "address": agent.address(), "token": agent.token().trim(), "dry_run": true});
    document.check("Join", &join);
    let wrong = json!({"name": "b", "address": "127.0.0.1:1", "token": agent.token().trim()});
    for (headers, body, status) in
        [(bearer.as_str(), &join, 200), ("", &join, 401), (&bearer, &json!({}), 400), (&bearer, &wrong, 502)]
    {
        let answer = request(controller.address(), "POST", "/api/onlooker/v1/targets", headers, &body.to_string());
        assert_eq!(answer.status, status, "{body}");
        document.check(&document.answer("/api/onlooker/v1/targets", "post", status), &answer.json());
    }
    let leave = json!({"token": agent.token().trim()});
    document.check("Leave", &leave);
    let answer = request(controller.address(), "DELETE", "/api/onlooker/v1/targets/b", "", &leave.to_string());
    assert_eq!(answer.status, 404);
    document.check(&document.answer("/api/onlooker/v1/targets/{name}", "delete", 404), &answer.json());
}
