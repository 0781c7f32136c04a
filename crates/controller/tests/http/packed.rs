// SPDX-License-Identifier: Apache-2.0
//! Answers that are packed, and those that come in pieces: the same as plain and whole ones.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use flate2::read::GzDecoder;
use onlooker_testbed::{Agent, Controller, get, json, until};

/// Head and body of an answer over HTTP/1.1, whose pieces are put together.
fn ask(address: SocketAddr, path: &str, headers: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("the head's end");
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let mut body = &answer[end + 4..];
    if !head.contains("transfer-encoding: chunked") {
        return (head, body.to_vec());
    }
    let mut whole = Vec::new();
    loop {
        let line = body.windows(2).position(|two| two == b"\r\n").expect("a piece's length");
        let length = usize::from_str_radix(std::str::from_utf8(&body[..line]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&body[line + 2..][..length]);
        body = &body[line + 2 + length + 2..];
        if length == 0 {
            return (head, whole);
        }
    }
}

/// Names of the series that a text has.
fn names(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn what_is_packed_or_in_pieces_is_the_same() {
    let agent = Agent::start();
    let controller = Controller::start("", &agent.target("a"));
    let address = controller.address();
    until("a reading", || {
        json(address, "/api/onlooker/v1/hosts")["hosts"][0]["cycles"].as_u64().filter(|cycles| *cycles > 2)
    });
    // (The agent's own tables may change between two scrapes.)
    until("the same series twice", || {
        let (head, packed) = ask(address, "/metrics", "Accept-Encoding: deflate, gzip;q=0.9\r\n");
        assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"), "{head}");
        let mut text = String::new();
        GzDecoder::new(&*packed).read_to_string(&mut text).unwrap();
        let (head, plain) = ask(address, "/metrics", "");
        assert!(!head.contains("content-encoding"), "{head}");
        assert!(packed.len() * 4 < plain.len());
        let plain = String::from_utf8(plain).unwrap();
        (names(&text) == names(&plain) && names(&get(address, "/metrics")) == names(&plain)).then_some(())
    });
    for path in ["/api/onlooker/v1/hosts", "/api/onlooker/v1/hosts/a", "/api/onlooker/v1/hosts/a/series?limit=100"] {
        let (head, packed) = ask(address, path, "Accept-Encoding: gzip\r\n");
        assert!(head.contains("content-encoding: gzip") && head.contains("content-type: application/json"), "{head}");
        let packed: serde_json::Value = serde_json::from_reader(GzDecoder::new(&*packed)).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&packed), keys(&json(address, path)), "{path}");
    }
    let (head, _) = ask(address, "/healthz", "Accept-Encoding: gzip\r\n");
    assert!(!head.contains("content-encoding"), "{head}");
}

/// Over a real controller what the unit tests show of a made-up fleet: hosts that come and go are differences.
#[test]
fn a_page_keeps_up_by_differences() {
    let agent = Agent::start();
    let controller = Controller::start("", &(agent.target("a") + &agent.target("b")));
    let address = controller.address();
    let (mut states, mut cursor) = (HashMap::new(), 0u64);
    let mut ask = |states: &mut HashMap<String, String>| {
        let answer = json(address, &format!("/api/onlooker/v1/hosts?since={cursor}"));
        if answer["whole"] == true {
            states.clear();
        }
        for host in answer["hosts"].as_array().unwrap() {
            states.insert(host["name"].as_str().unwrap().to_owned(), host["state"].as_str().unwrap().to_owned());
        }
        cursor = answer["cursor"].as_u64().unwrap();
        answer["hosts"].as_array().unwrap().len()
    };
    until("both are read", || {
        ask(&mut states);
        (states.len() == 2 && states.values().all(|state| state == "reading")).then_some(())
    });
    // Readings go on, and are no difference.
    until("nothing new", || (ask(&mut states) == 0).then_some(()));
    drop(agent);
    until("both are silent or failed", || {
        ask(&mut states);
        (states.len() == 2 && states.values().all(|state| state != "reading")).then_some(())
    });
}
