// SPDX-License-Identifier: Apache-2.0
//! The real `onlooker controller` over a real agent: what it serves, and what is there again after it was killed.

use onlooker_testbed::{Agent, Controller, PATIENCE, request, until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

const TOKEN: &str = "a-token-of-more-than-16";

fn start() -> (Agent, Controller) {
    let agent = Agent::start();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("http"), TOKEN).unwrap();
    let http = format!("token_file = {:?}", dir.path().join("http"));
    let target = agent.target("web 3") + "interval = \"20ms\"\nlabels = { dc = \"a\" }\n";
    let controller = Controller::start_in(dir, &http, &target);
    (agent, controller)
}

fn get_with(address: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    let answer = request(address, "GET", path, headers, "");
    (answer.status, answer.body)
}

fn get(address: SocketAddr, path: &str) -> String {
    let (status, body) = get_with(address, path, &format!("Authorization: Bearer {TOKEN}\r\n"));
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn json(address: SocketAddr, path: &str) -> Value {
    serde_json::from_str(&get(address, path)).unwrap()
}

const LOAD: &str = "node_load1%7Bdc%3D%22a%22%2Cinstance%3D%22web+3%22%7D";

fn stored(address: SocketAddr) -> usize {
    let range = json(address, &format!("/api/onlooker/v1/hosts/web%203/range?series={LOAD}&points=5000&from_ms=1"));
    range["series"][0]["t_ms"].as_array().map_or(0, Vec::len)
}

#[test]
fn what_is_read_is_shown_kept_and_there_again_after_a_kill() {
    let (_agent, mut controller) = start();
    let address = controller.address();
    let host = until("a reading", || {
        let hosts = json(address, "/api/onlooker/v1/hosts");
        let host = hosts["hosts"].get(0)?.clone();
        (host["cycles"].as_u64()? > 5).then_some(host)
    });
    assert_eq!(
        (host["name"].as_str(), host["state"].as_str(), host["via"].as_str()),
        (Some("web 3"), Some("reading"), Some("tcp"))
    );
    let one = json(address, "/api/onlooker/v1/hosts/web%203");
    assert!(one["regions_list"].as_array().unwrap().iter().any(|region| region["name"] == "node_load"));
    let found = json(address, "/api/onlooker/v1/hosts/web%203/series?search=Load+1M");
    assert_eq!(found["series"][0]["series"], r#"node_load1{dc="a",instance="web 3"}"#);
    assert!(json(address, "/api/onlooker/v1/status")["hosts"]["reading"] == 1);
    let metrics = get(address, "/metrics");
    assert!(metrics.contains("# TYPE node_load1 gauge\nnode_load1{dc=\"a\",instance=\"web 3\"} "), "{metrics}");
    assert!(metrics.contains("onlooker_host_up{instance=\"web 3\"} 1"));
    assert!(get(address, "/").contains("<!doctype html>"));

    let before = until("stored rows", || Some(stored(address)).filter(|rows| *rows > 20));
    controller.kill();
    controller.start_again();
    let address = controller.address();
    let after = stored(address);
    assert!(after >= before, "{after} of {before} rows are there again");
    until("new rows", || (stored(address) > after + 5).then_some(()));
}

#[test]
fn only_who_shows_the_token_sees_anything() {
    let (_agent, controller) = start();
    let address = controller.address();
    let (status, body) = get_with(address, "/api/onlooker/v1/hosts", "");
    assert!(status == 401 && body.contains("token_file"), "{status} {body}");
    assert!(get_with(address, "/metrics", "Authorization: Bearer wrong\r\n").0 == 401);
    assert!(get_with(address, "/metrics", &format!("Cookie: a=b; onlooker_token={TOKEN}\r\n")).0 == 200);
    for (path, status, part) in [
        ("/healthz", 200, "ok"),
        ("/api/onlooker/v1/hosts/nobody", 404, "no host `nobody`"),
        ("/api/onlooker/v1/hosts/web%203/range", 400, "nothing is asked for"),
        ("/api/onlooker/v1/hosts/web%203/range?serie=x", 400, "unknown parameter `serie`"),
        ("/api/onlooker/v1/live?host=web%203&series=x&every_ms=1", 400, "a number from 10"),
        ("/nothing", 404, "nothing is at /nothing"),
    ] {
        let (got, body) = get_with(address, path, &format!("Authorization: Bearer {TOKEN}\r\n"));
        assert!(got == status && body.contains(part), "{path}: {got} {body}");
    }
}

#[test]
fn values_come_live() {
    let (_agent, controller) = start();
    let address = controller.address();
    until("a reading", || {
        json(address, "/api/onlooker/v1/hosts")["hosts"][0]["cycles"].as_u64().filter(|cycles| *cycles > 2)
    });
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = format!("/api/onlooker/v1/live?host=web%203&series={LOAD}&series=none&every_ms=20");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut data_of = |event: &str| {
        lines.find(|line| *line == format!("event: {event}")).expect("comes");
        let data = lines.next().unwrap();
        serde_json::from_str::<Value>(data.strip_prefix("data: ").unwrap()).unwrap()
    };
    assert_eq!(data_of("open")["series"][0]["type"], "gauge");
    let rows: Vec<Value> = (0..5).map(|_| data_of("row")["rows"].take()).collect();
    assert!(rows.windows(2).all(|pair| pair[0][0]["t_ms"].as_f64() < pair[1][0]["t_ms"].as_f64()), "{rows:?}");
    // The series that there is, and nothing of the other.
    let is_first = |row: &Value| row[0]["series"] == serde_json::json!([0]) && row[0]["v"][0].is_number();
    assert!(rows.iter().all(|row| is_first(row) && row.as_array().is_some_and(|row| row.len() == 1)), "{rows:?}");
}
