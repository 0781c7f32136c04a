// SPDX-License-Identifier: Apache-2.0
//! Hosts added to and taken from a real controller over HTTP.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use onlooker_testbed::{Agent, Answer, Controller, free_port, request, until};
use serde_json::{Value, json};

const OPERATOR: &str = "operator-token-0123456789";
const JOIN: &str = "join-token-0123456789";

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// A controller with these tokens; `rest` is the rest of `[joined]`, and further sections.
fn controller(http: bool, join: bool, rest: &str) -> Controller {
    let dir = tempfile::tempdir().unwrap();
    let mut keys = String::new();
    for (key, token, wanted) in [("token_file", OPERATOR, http), ("join_token_file", JOIN, join)] {
        if wanted {
            let path = dir.path().join(key);
            fs::write(&path, token).unwrap();
            keys.push_str(&format!("{key} = {path:?}\n"));
        }
    }
    Controller::start_in(dir, &keys, rest)
}

fn post(address: SocketAddr, headers: &str, body: &Value) -> Answer {
    request(address, "POST", "/api/onlooker/v1/targets", headers, &body.to_string())
}

fn delete(address: SocketAddr, name: &str, headers: &str, body: &str) -> u16 {
    request(address, "DELETE", &format!("/api/onlooker/v1/targets/{name}"), headers, body).status
}

fn targets(address: SocketAddr) -> Vec<Value> {
    let answer = request(address, "GET", "/api/onlooker/v1/targets", &bearer(OPERATOR), "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["targets"].as_array().unwrap().clone()
}

fn cycles(address: SocketAddr, host: &str) -> Option<u64> {
    let answer = request(address, "GET", &format!("/api/onlooker/v1/hosts/{host}"), &bearer(OPERATOR), "");
    (answer.status == 200).then(|| answer.json()["cycles"].as_u64().unwrap())
}

#[test]
fn a_host_is_added_read_kept_over_a_kill_and_removed() {
    let agent = Agent::start();
    let mut controller = controller(true, true, "min_interval = \"10ms\"\n");
    let address = controller.address();
    let host = json!({"name": "web-3", "address": agent.address(), "token": agent.token(), "labels": {"dc": "a"}, "interval": "20ms"});
    let mut dry = host.clone();
    dry["dry_run"] = true.into();
    let answer = post(address, &bearer(JOIN), &dry);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(targets(address).is_empty() && !controller.dir().join("joined.json").exists());

    for _ in 0..3 {
        let answer = post(address, &bearer(JOIN), &host);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let told = answer.json();
        assert_eq!((&told["name"], &told["instance"], &told["via"]), (&"web-3".into(), &"web-3".into(), &"tcp".into()));
        assert!(told["regions"].as_u64().unwrap() > 0 && told["series"].as_u64().unwrap() > 20, "{told}");
        assert!(told["bootstrap_ms"].as_f64().unwrap() > 0.0 && told["read_ms"].as_f64().unwrap() > 0.0, "{told}");
        assert!(told["notes"].as_array().unwrap().len() == 1, "that TCP wakes the agent: {told}");
        assert!(!answer.body.contains(&agent.token()));
    }
    until("it is read", || cycles(address, "web-3").filter(|cycles| *cycles > 5));
    let gaps =
        |address| request(address, "GET", "/api/onlooker/v1/hosts/web-3", &bearer(OPERATOR), "").json()["gaps"].clone();
    let lost =
        |gaps: &Value| gaps.as_object().unwrap().keys().any(|reason| reason == "lost" || reason == "unreachable");
    assert!(!lost(&gaps(address)), "asking again does not disturb it");
    let listed = targets(address);
    assert_eq!(
        listed,
        [json!({"name": "web-3", "address": agent.address(), "labels": {"dc": "a"}, "interval_ms": 20.0,
                "priority": "normal", "via": "auto", "from": "joined", "error": null})]
    );

    controller.start_again();
    let address = controller.address();
    assert_eq!(targets(address), listed);
    until("it is read again", || cycles(address, "web-3").filter(|cycles| *cycles > 5));
    assert!(!controller.process().log().contains(agent.token().rsplit('.').next().unwrap()), "no token is logged");

    // The host's own token, and nobody else's, takes it away.
    let other = Agent::start();
    assert_eq!(delete(address, "web-3", "", ""), 401);
    assert_eq!(delete(address, "web-3", &bearer(JOIN), ""), 401);
    assert_eq!(delete(address, "web-3", "", &json!({"token": other.token()}).to_string()), 401);
    assert_eq!(delete(address, "web-3", "", "{\"token\":\"x\"}"), 400);
    assert_eq!(delete(address, "web-3", "", &json!({"token": agent.token()}).to_string()), 204);
    assert_eq!(delete(address, "web-3", "", &json!({"token": agent.token()}).to_string()), 404);
    until("it is watched no more", || cycles(address, "web-3").is_none().then_some(()));
    controller.start_again();
    assert!(targets(controller.address()).is_empty());
}

#[test]
fn another_host_does_not_get_the_name_by_accident() {
    let (agent, other) = (Agent::start(), Agent::start());
    let fixed = format!("min_interval = \"10ms\"\n{}interval = \"50ms\"\n", agent.target("fixed"));
    let controller = controller(true, true, &fixed);
    let address = controller.address();
    let host = |name: &str, agent: &Agent| json!({"name": name, "address": agent.address(), "token": agent.token(), "interval": "50ms"});
    let operator = bearer(OPERATOR);
    assert_eq!(post(address, &operator, &host("one", &agent)).status, 200);
    let answer = post(address, &operator, &host("one", &other));
    assert_eq!(answer.status, 409);
    assert!(answer.body.contains("another token"), "{}", answer.body);
    let mut replace = host("one", &other);
    replace["replace"] = true.into();
    // The token that every host has does not take another's place.
    assert_eq!(post(address, &bearer(JOIN), &replace).status, 409);
    assert_eq!(post(address, &operator, &replace).status, 200);
    let port = format!(":{}", other.port());
    until("the other one is read", || {
        let host = request(address, "GET", "/api/onlooker/v1/hosts/one", &operator, "").json();
        (host["address"].as_str()?.ends_with(&port) && host["cycles"].as_u64()? > 3).then_some(())
    });
    // What the configuration has is the configuration's.
    for replace in [false, true] {
        let mut host = host("fixed", &other);
        host["replace"] = replace.into();
        let answer = post(address, &operator, &host);
        assert_eq!(answer.status, 409);
        assert!(answer.body.contains("controller.toml"), "{}", answer.body);
    }
    assert_eq!(delete(address, "fixed", &operator, ""), 409);
    // The peer's address, where the host does not know its own.
    let mut own = host("own", &agent);
    own["address"] = format!(":{}", agent.port()).into();
    let answer = post(address, &operator, &own);
    assert_eq!(answer.json()["address"], agent.address(), "{}", answer.body);
    assert_eq!(delete(address, "own", &operator, ""), 204);
}

#[test]
fn who_may_not_is_told_what_to_do() {
    let agent = Agent::start();
    let host = json!({"name": "a", "address": agent.address(), "token": agent.token()});
    let closed = controller(false, false, "");
    let answer = post(closed.address(), &bearer(JOIN), &host);
    assert_eq!(answer.status, 403);
    assert!(answer.body.contains("join_token_file"), "{}", answer.body);

    let controller = controller(true, true, "");
    let address = controller.address();
    let cookie = format!("Cookie: onlooker_token={OPERATOR}\r\n");
    for headers in ["", &bearer("wrong"), &bearer(""), &cookie] {
        let answer = post(address, headers, &host);
        assert_eq!(answer.status, 401, "{headers}");
        assert!(answer.body.contains("join_token_file"), "{}", answer.body);
    }
    // The join token adds hosts, and that is all.
    for path in ["/api/onlooker/v1/targets", "/api/onlooker/v1/hosts", "/metrics"] {
        assert_eq!(request(address, "GET", path, &bearer(JOIN), "").status, 401, "{path}");
    }
    let wrong = |change: &dyn Fn(&mut Value)| {
        let mut host = host.clone();
        change(&mut host);
        let answer = post(address, &bearer(JOIN), &host);
        assert_eq!(answer.status, 400, "{host}: {}", answer.body);
        answer.json()["error"].as_str().unwrap().to_owned()
    };
    assert!(wrong(&|host| host["name"] = "".into()).contains("name"));
    assert!(wrong(&|host| host["name"] = "a\nb".into()).contains("name"));
    assert!(wrong(&|host| host["address"] = "a:0".into()).contains("address"));
    assert!(wrong(&|host| host["token"] = "onlk1.x".into()).contains("token"));
    assert!(wrong(&|host| host["interval"] = "10us".into()).contains("1ms"));
    assert!(wrong(&|host| host["interval"] = 3.into()).contains("unit"));
    assert!(wrong(&|host| host["priority"] = "first".into()).contains("`high`, `normal`, `low`"));
    assert!(wrong(&|host| host["labels"] = json!({"instance": "x"})).contains("instance"));
    assert!(wrong(&|host| host["labels"] = json!({"a-b": "x"})).contains("a-b"));
    assert!(wrong(&|host| host["what"] = 1.into()).contains("what"));
    assert!(targets(address).is_empty());
    let large = request(address, "POST", "/api/onlooker/v1/targets", &bearer(JOIN), &" ".repeat(70_000));
    assert_eq!(large.status, 413);
}

#[test]
fn a_host_that_cannot_be_read_is_refused_in_time() {
    let agent = Agent::start();
    let controller = controller(false, true, "[read]\ntimeout = \"500ms\"\n");
    let address = controller.address();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("127.0.0.1:{}", free_port());
    let other = Agent::start();
    for (at, token) in [
        (nobody, agent.token()),
        (silent.local_addr().unwrap().to_string(), agent.token()),
        (agent.address(), other.token()),
    ] {
        let began = Instant::now();
        let answer = post(address, &bearer(JOIN), &json!({"name": "a", "address": at, "token": token}));
        assert_eq!(answer.status, 502, "{at}: {}", answer.body);
        assert!(answer.body.contains("the test read of"), "{}", answer.body);
        assert!(began.elapsed() < Duration::from_secs(2), "{at}: {:?}", began.elapsed());
    }
    assert!(!controller.dir().join("joined.json").exists());
}

#[test]
fn the_token_of_all_hosts_adds_each_host_once_and_has_it_read_at_a_bounded_pace() {
    let agent = Agent::start();
    let controller = controller(true, true, "[read]\ninterval = \"10ms\"\n");
    let address = controller.address();
    let host = |name: &str, interval: &str| json!({"name": name, "address": agent.address(), "token": agent.token(), "interval": interval});
    let refused = |headers: &str, host: &Value, status: u16, part: &str| {
        let answer = post(address, headers, host);
        assert!(answer.status == status && answer.body.contains(part), "{}: {}", answer.status, answer.body);
    };
    let (join, operator) = (bearer(JOIN), bearer(OPERATOR));
    refused(&join, &host("one", "10ms"), 400, "at least 100ms with this token ([joined] min_interval)");
    let unnamed = post(address, &join, &json!({"name": "one", "address": agent.address(), "token": agent.token()}));
    assert_eq!(unnamed.status, 200, "the host whose operator names none gets the least: {}", unnamed.body);
    assert_eq!(post(address, &join, &host("one", "100ms")).status, 200);
    // The name is the host's: a hundred more of one host would be a hundred hosts to read.
    refused(&join, &host("two", "100ms"), 409, "added as `one`");
    assert_eq!(post(address, &join, &host("one", "200ms")).status, 200, "under its name it may come again");
    // Not before the hosts of others.
    let of_class = |name: &str, priority: &str| {
        let mut host = host(name, "200ms");
        host["priority"] = priority.into();
        host
    };
    refused(&join, &of_class("one", "high"), 400, "`priority` must be `normal` or `low` with this token");
    assert_eq!(post(address, &join, &of_class("one", "low")).status, 200);
    assert_eq!(post(address, &operator, &host("two", "1ms")).status, 200, "the operator may");
    assert_eq!(targets(address).len(), 2);
    assert_eq!(post(address, &operator, &of_class("two", "high")).status, 200);
    let listed: Vec<_> = targets(address).iter().map(|target| target["priority"].clone()).collect();
    assert_eq!(listed, ["low", "high"]);
    until("the host's state says it, too", || {
        let host = request(address, "GET", "/api/onlooker/v1/hosts/two", &operator, "").json();
        (host["priority"] == "high").then_some(())
    });
}

#[test]
fn a_trial_tells_who_has_only_that_token_nothing_of_other_ports_and_does_not_wait_for_one_who_asks_too_much() {
    let (agent, other) = (Agent::start(), Agent::start());
    let timeout = Duration::from_millis(300);
    let controller = controller(true, true, "[read]\ntimeout = \"300ms\"\n");
    let address = controller.address();
    let (silent, garbage) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let garbage_at = garbage.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in garbage.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        }
    });
    let closed = format!("127.0.0.1:{}", free_port());
    let host = |at: &str| json!({"name": "a", "address": at, "token": agent.token(), "dry_run": true});
    let silent_at = silent.local_addr().unwrap().to_string();
    let mut said = BTreeSet::new();
    for at in [&closed, &silent_at, &garbage_at, &other.address()] {
        let began = Instant::now();
        let answer = post(address, &bearer(JOIN), &host(at));
        assert!(began.elapsed() >= timeout, "{at}: {:?} tells the one from the other", began.elapsed());
        assert_eq!(answer.status, 502, "{at}: {}", answer.body);
        said.insert(answer.body.replace(at, "HERE"));
    }
    assert_eq!(said.len(), 1, "{said:?}");
    let told = post(address, &bearer(OPERATOR), &host(&closed)).body;
    assert!(told.contains("refuses the connection"), "{told}");
    // One source has two of the places for trials, whatever it asks for.
    let asked: Vec<_> = (0..6)
        .map(|_| {
            let host = host(&silent_at);
            std::thread::spawn(move || post(address, &bearer(JOIN), &host).status)
        })
        .collect();
    let mut statuses: Vec<u16> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
    statuses.sort_unstable();
    assert!(statuses.starts_with(&[429]) && statuses.contains(&502), "{statuses:?}");
}
