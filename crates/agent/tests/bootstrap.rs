// SPDX-License-Identifier: Apache-2.0
//! The bootstrap endpoint of a real agent: tokens, TLS, and peers that do not play by the rules.

mod common;

use common::reader::{bootstrap, connect, connect_from, converse, exchange};
use common::{Bystander, Place};
use onlooker_bootstrap::{Fingerprint, Token};
use onlooker_testbed::until;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

fn tls() -> Place {
    Place::new(|config| config.bootstrap.tls = true)
}

#[test]
fn the_token_opens_and_nothing_else_does() {
    let place = tls();
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let answer = bootstrap(agent.bootstrap, &agent.token);
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(answer["boot_id"], boot_id.trim().replace('-', ""));
    assert_eq!(answer["host_id"].as_str().unwrap().len(), 32);
    assert!(
        answer["max_read_bytes"] == 65_536
            && answer["version"] == 1
            && answer["wall_clock_ns"].as_u64() > Some(1 << 60)
    );
    assert_eq!(answer["control"]["va"].as_u64().unwrap() % (2 << 20), 0);

    let fingerprint = Token::parse(&agent.token).unwrap().fingerprint;
    let ask =
        |request: serde_json::Value| converse(agent.bootstrap, fingerprint, request.to_string().as_bytes()).unwrap();
    for token in ["", "x", &"A".repeat(43), &agent.token] {
        let answer = ask(json!({"op": "bootstrap", "version": 1, "token": token, "reader": "test"}));
        assert_eq!((&answer["ok"], &answer["error"]), (&json!(false), &json!("denied")), "{answer}");
        assert!(
            answer.get("control").is_none() && answer["message"].as_str().unwrap().contains("onlooker-agent token")
        );
    }
    for (request, error) in [
        (json!({"op": "bootstrap", "version": 1}), "bad_request"),
        (json!({"op": "bootstrap", "version": 1, "token": "", "reader": "", "tokn": ""}), "bad_request"),
        (json!({"op": "other", "version": 1, "token": "", "reader": ""}), "bad_request"),
        (json!({"op": "bootstrap", "version": 2, "token": ""}), "version"),
        (json!([]), "bad_request"),
    ] {
        assert_eq!(ask(request.clone())["error"], error, "{request}");
    }
    assert!(
        converse(agent.bootstrap, Some(Fingerprint::of_certificate(b"")), b"{}").is_err(),
        "another fingerprint: the reader turns away"
    );
    bystander.check();
    assert_eq!(bystander.counter("bootstraps_total{result=denied}"), 4);
    assert_eq!(bystander.counter("bootstraps_total{result=bad_request}"), 4);
    assert_eq!(bystander.counter("bootstraps_total{result=version}"), 1);
}

#[test]
fn a_renewed_token_counts_at_once_and_survives_a_restart() {
    let place = tls();
    let mut agent = place.start();
    let output = place.command(&["token", "--renew"]).output().unwrap();
    let new = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert_ne!(new, agent.token);
    assert_eq!(bootstrap(agent.bootstrap, &agent.token)["error"], "denied");
    assert_eq!(bootstrap(agent.bootstrap, &new)["ok"], true);
    agent.kill();
    let agent = place.start();
    assert_eq!(agent.token, new, "certificate and secret are kept");
    assert_eq!(bootstrap(agent.bootstrap, &new)["ok"], true);
}

#[test]
fn peers_that_do_not_speak_tls() {
    let place = tls();
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let mut plain = connect(agent.bootstrap);
    let Token { fingerprint, secret } = Token::parse(&agent.token).unwrap();
    let request = json!({"op": "bootstrap", "version": 1, "token": secret.text(), "reader": "test"}).to_string();
    assert!(exchange(&mut plain, request.as_bytes()).is_err(), "the right token in the clear opens nothing");
    let mut http = connect(agent.bootstrap);
    http.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = http.read_to_end(&mut rest);
    assert!(rest.len() < 64, "an alert at most");
    until("both are counted", || (bystander.counter("bootstraps_total{result=tls}") == 2).then_some(()));
    // The other way round: a TLS reader at a plain endpoint.
    let demo = Place::new(|_| ());
    let plain_agent = demo.start();
    assert!(plain_agent.token.starts_with("onlk1.-."), "{}", plain_agent.token);
    assert!(converse(plain_agent.bootstrap, fingerprint, b"{}").is_err());
    bystander.check();
}

#[test]
fn messages_that_promise_too_much_or_come_too_slowly() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let mut stream = connect(agent.bootstrap);
    stream.write_all(&65_537u32.to_le_bytes()).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("bad_request"));
    bystander.check();
    assert_eq!(bystander.counter("bootstraps_total{result=bad_request}"), 1);
    // One that drips: no single gap is long, the whole is.
    let begin = Instant::now();
    let mut drip = connect(agent.bootstrap);
    drip.write_all(&200u32.to_le_bytes()).unwrap();
    while begin.elapsed() < Duration::from_secs(20) && drip.write_all(&[0]).is_ok() {
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!((4..9).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(bystander.counter("bootstraps_total{result=slow}"), 1);
}

#[test]
fn silence_is_cut_short_and_one_source_does_not_shut_out_others() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let begin = Instant::now();
    let silent: Vec<_> = (0..4).map(|_| connect_from([127, 0, 0, 2], agent.bootstrap)).collect();
    // The last step of a handshake is a softirq's, perhaps another CPU's: then the fifth would be before the fourth.
    std::thread::sleep(Duration::from_millis(100));
    let mut fifth = connect_from([127, 0, 0, 2], agent.bootstrap);
    let mut answer = String::new();
    fifth.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"busy\"") && answer.contains("4 bootstraps of this source"), "{answer}");
    assert_eq!(bootstrap(agent.bootstrap, &agent.token)["ok"], true, "another source");
    bystander.check();
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0, "let go");
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    until("they are counted", || (bystander.counter("bootstraps_total{result=slow}") == 4).then_some(()));
    assert_eq!(bystander.counter("bootstraps_total{result=busy}"), 1);
}

#[test]
fn all_places_taken_is_said() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let (mut talking, mut net) = (Vec::new(), 0u8);
    // The last of them may be accepted after us: a handshake's last step is a softirq's, perhaps another CPU's. On a
    // machine that is slow they may also be closed before we are heard: then others take their places.
    let answer = until("all places are taken", || {
        for source in 2..6 {
            for _ in 0..4 {
                let mut stream = connect_from([127, 0, net, source], agent.bootstrap);
                // One that is turned away may be closed already.
                let _ = stream.write_all(&[1]);
                talking.push(stream);
            }
        }
        net = net.wrapping_add(1);
        Some(bootstrap(agent.bootstrap, &agent.token)).filter(|answer| answer["error"] == "busy")
    });
    assert!(answer["message"].as_str().unwrap().contains("16 bootstraps are under way"), "{answer}");
    bystander.check();
    drop(talking);
    until("there is room", || (bootstrap(agent.bootstrap, &agent.token)["ok"] == true).then_some(()));
}

#[test]
fn sources_that_are_not_allowed_are_closed_unread() {
    let place = Place::new(|config| {
        config.bootstrap.allow = vec!["127.0.0.1/32".parse().unwrap()];
        config.bootstrap.tls = true;
    });
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let mut stream = connect_from([127, 0, 0, 2], agent.bootstrap);
    assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0, "closed");
    assert_eq!(bystander.counter("bootstraps_total{result=source}"), 1);
    assert_eq!(bootstrap(agent.bootstrap, &agent.token)["ok"], true);
}

#[test]
fn over_tls_a_busy_agent_closes() {
    let place = tls();
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let silent: Vec<_> = (0..4).map(|_| connect_from([127, 0, 0, 2], agent.bootstrap)).collect();
    let mut fifth = connect_from([127, 0, 0, 2], agent.bootstrap);
    assert_eq!(fifth.read(&mut [0; 8]).unwrap_or(0), 0, "closed");
    assert_eq!(bystander.counter("bootstraps_total{result=busy}"), 1);
    assert_eq!(bootstrap(agent.bootstrap, &agent.token)["ok"], true, "another source");
    drop(silent);
}

#[test]
fn plain_mode_warns() {
    let place = Place::new(|_| ());
    let mut child = place.command(&["run"]).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let warned = lines
        .take_while(|line| !line.contains("ready: "))
        .any(|line| line.contains("warning: [bootstrap] tls = false"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(warned);
}
