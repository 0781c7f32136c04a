// SPDX-License-Identifier: Apache-2.0
//! What clients may take: connections, streams, time, descriptors; and whose requests are answered.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::process::Command;
use std::time::Duration;

use onlooker_testbed::{Agent, Controller, Process, binary, get, json, request, until};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

/// A connection from 127.0.0.`last`.
pub(crate) fn from(last: u8, address: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0)).unwrap();
    connect(&socket, &address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// What comes until the connection ends, or `most` bytes.
fn rest(stream: TcpStream, most: u64) -> String {
    let mut got = Vec::new();
    // One that is refused may be reset as well.
    let _ = stream.take(most).read_to_end(&mut got);
    String::from_utf8_lossy(&got).into_owned()
}

fn counter(reason: &str) -> String {
    format!("onlooker_controller_http_refusals_total{{reason=\"{reason}\"}} ")
}

fn refused(address: SocketAddr, reason: &str) -> u64 {
    let name = counter(reason);
    let text = get(address, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("no {name}"));
    line.parse().unwrap()
}

#[test]
fn one_source_takes_no_more_than_its_share() {
    let controller = Controller::start("max_connections = 40\nmax_connections_per_source = 8", "");
    let address = controller.address();
    let silent: Vec<TcpStream> = (0..8).map(|_| from(2, address)).collect();
    // Places are taken when connections are accepted, in their order.
    let more = rest(from(2, address), 1000);
    assert!(more.is_empty() || more.starts_with("HTTP/1.1 503"), "{more}");
    assert_eq!(get(address, "/healthz"), "ok");
    assert!(refused(address, "source_connections") >= 1);
    // Given back with the connections.
    drop(silent);
    until("a place", || {
        let mut stream = from(2, address);
        write!(stream, "GET /healthz HTTP/1.0\r\n\r\n").ok()?;
        rest(stream, 12).starts_with("HTTP/1.0 200").then_some(())
    });
    // All sources together.
    let many: Vec<TcpStream> =
        (2..8).flat_map(|last| (0..8).map(move |_| last)).map(|last| from(last, address)).collect();
    let more = rest(from(9, address), 1000);
    assert!(more.is_empty() || more.starts_with("HTTP/1.1 503"), "{more}");
    drop(many);
    // Places are given back one by one: who comes before that is refused, too.
    until("a refusal for want of any place, counted", || {
        let mut stream = from(9, address);
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let answer = rest(stream, 10 << 20);
        let count = answer.lines().find_map(|line| line.strip_prefix(&counter("connections")))?;
        (count.parse::<u64>().ok()? >= 1).then_some(())
    });
}

#[test]
fn streams_are_limited_and_the_refusal_is_clear() {
    let agent = Agent::start();
    let controller = Controller::start("max_streams = 3\nmax_streams_per_source = 2", &agent.target("a"));
    let address = controller.address();
    until("series", || json(address, "/api/onlooker/v1/hosts/a")["series"].as_u64().filter(|series| *series > 0));
    let open = |last: u8| {
        let mut stream = from(last, address);
        write!(stream, "GET /api/onlooker/v1/live?host=a&match=node_load1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut head = String::new();
        let mut reader = BufReader::new(stream);
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        (reader, head)
    };
    let mut streams = vec![open(2), open(2)];
    assert!(streams.iter().all(|(_, head)| head.starts_with("HTTP/1.1 200")));
    let (_, head) = open(2);
    assert!(head.starts_with("HTTP/1.1 429") && head.contains("retry-after: "), "{head}");
    streams.push(open(3));
    assert!(streams[2].1.starts_with("HTTP/1.1 200"));
    let (_, head) = open(4);
    assert!(head.starts_with("HTTP/1.1 503") && head.contains("retry-after: "), "{head}");
    assert_eq!((refused(address, "source_streams"), refused(address, "streams")), (1, 1));
    drop(streams);
    until("a stream's place", || open(2).1.starts_with("HTTP/1.1 200").then_some(()));
}

#[test]
fn what_takes_too_long_is_ended() {
    let controller = Controller::start("", "");
    let address = controller.address();
    let send = |text: &str| {
        let mut stream = from(1, address);
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    // Nothing at all; half a header; a kept connection; a body that does not come.
    let silent = send("");
    let half = send("GET / HTTP/1.1\r\nHost: localhost\r\nX-");
    let kept = send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let body = send(
        "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
    );
    assert!(!rest(silent, 1000).contains("200"));
    assert!(!rest(half, 1000).contains("200"));
    let kept = rest(kept, 10_000);
    assert!(kept.starts_with("HTTP/1.1 200") && kept.matches("HTTP/1.1").count() == 1, "{kept}");
    let body = rest(body, 10_000);
    assert!(body.starts_with("HTTP/1.1 408"), "{body}");
    assert!(refused(address, "header") >= 3 && refused(address, "body") == 1);
    // A header that never ends.
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let mut stream = from(1, address);
    let _ = stream.write_all(long.as_bytes());
    assert!(!rest(stream, 1000).contains("200"));
}

#[test]
fn hosts_keep_their_descriptors() {
    let mut agent = Agent::start();
    let mut controller = Controller::start("", &agent.target("a"));
    controller.kill();
    let config = controller.dir().join("controller.toml");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 128; exec \"$0\" controller --config \"$1\""])
        .arg(binary("onlooker", "onlooker"))
        .arg(config);
    let (process, line) = Process::start(&mut command, "dashboard http");
    assert!(process.log().contains("HTTP takes 32 connections"), "{}", process.log());
    let address: SocketAddr = line.split("://").nth(1).unwrap().trim().trim_end_matches('/').parse().unwrap();
    let cycles = || json(address, "/api/onlooker/v1/hosts")["hosts"][0]["cycles"].as_u64();
    let before = until("a reading", || cycles().filter(|cycles| *cycles > 0));
    let silent: Vec<TcpStream> = (0..200).map(|at| from(2 + at % 5, address)).collect();
    // A host needs new descriptors while clients want all there are.
    agent.kill();
    agent.run();
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", process.pid())).unwrap().count();
    // Who is refused keeps one until his answer is on its way.
    until("descriptors are left for hosts", || (descriptors() < 100).then_some(()));
    drop(silent);
    until("the host's next readings", || {
        // Places are given back one by one.
        let mut stream = from(9, address);
        write!(stream, "GET /api/onlooker/v1/hosts/a HTTP/1.0\r\n\r\n").ok()?;
        let answer = rest(stream, 100_000);
        let host: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        (host["state"] == "reading" && host["cycles"].as_u64() > Some(before)).then_some(())
    });
}

#[test]
fn pages_elsewhere_cannot_have_browsers_ask() {
    let controller = Controller::start("names = [\"dash.example\"]", "");
    let address = controller.address();
    let ask = |path: &str, headers: &str| {
        let mut stream = from(1, address);
        write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").unwrap();
        let answer = rest(stream, 100_000);
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    let own = format!("Host: {address}\r\n");
    assert_eq!(ask("/api/onlooker/v1/hosts", &own), 200);
    assert_eq!(ask("/api/onlooker/v1/hosts", "Host: dash.example\r\n"), 200);
    // A name that somebody else makes point here (DNS rebinding): neither data nor the dashboard.
    for path in ["/api/onlooker/v1/hosts", "/metrics", "/", "/healthz"] {
        assert_eq!(ask(path, "Host: rebound.example:7180\r\n"), 421, "{path}");
    }
    // A host may join by any name: it shows a token, or is refused for want of one.
    let mut stream = from(1, address);
    write!(
        stream,
        "POST /api/onlooker/v1/targets HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
    )
    .unwrap();
    assert!(rest(stream, 100).starts_with("HTTP/1.1 403"));
    assert_eq!(ask("/api/onlooker/v1/hosts", &format!("{own}Origin: http://other.example\r\n")), 403);
    assert_eq!(ask("/api/onlooker/v1/hosts", &format!("{own}Sec-Fetch-Site: cross-site\r\n")), 403);
    assert_eq!(ask("/", &format!("{own}Sec-Fetch-Site: cross-site\r\n")), 200);
    assert_eq!((refused(address, "host"), refused(address, "origin")), (4, 2));
    let answer = request(address, "GET", "/api/onlooker/v1/hosts", &format!("Origin: http://{address}\r\n"), "");
    assert_eq!(answer.status, 403, "`Host` is what counts");
}
