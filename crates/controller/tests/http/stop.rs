// SPDX-License-Identifier: Apache-2.0
//! SIGTERM ends a controller at once, whatever its clients do, and leaves the gap `stopped`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use onlooker_bootstrap::{Answer, Control, Id, KERNEL, Responder, Secret, Token, VERBS, frame};
use onlooker_testbed::{Agent, Controller, json, until};

use crate::tls::renew;

const STREAMS: usize = 200;
/// Far below what any single limit of a client would take to end its connection, and far above what a busy machine needs.
const MOST: Duration = Duration::from_secs(5);

/// A live stream that has given a row.
fn stream(address: SocketAddr) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET /api/onlooker/v1/live?host=a&match=node_load1 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while line != "event: row\n" {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
    reader
}

fn sent(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// SIGTERM; how long it took.
fn stop(controller: &mut Controller) -> Duration {
    let address = controller.address();
    let process = controller.take_process();
    let begin = Instant::now();
    process.signal(rustix::process::Signal::TERM);
    let mut process = process;
    let status = until("its end", || process.ended());
    let took = begin.elapsed();
    assert!(status.success(), "{status}\n{}", process.log());
    // What it has said may still be on its way to us.
    until("its last word", || process.log().trim_end().ends_with("stopped").then_some(()));
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
    assert!(took < MOST, "{took:?}");
    took
}

#[test]
fn hosts_that_say_nothing_do_not_hold_up_the_end() {
    let _quiet = crate::quiet();
    let agent = Agent::start();
    // They take connections, and every try waits for [read] timeout.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let targets: String = (0..20)
        .map(|number| agent.target(&format!("silent-{number}")).replace(&agent.address(), &address.to_string()))
        .collect();
    let mut controller = Controller::start("", &format!("{targets}\n[read]\ntimeout = \"30s\"\n"));
    silent.set_nonblocking(true).unwrap();
    let mut tries = Vec::new();
    until("each was tried briskly, and as many threads as may be are patient with some", || {
        tries.extend(silent.accept().ok());
        (tries.len() >= 20 + 8).then_some(())
    });
    println!("stopped after {:?} beside 20 silent hosts", stop(&mut controller));
}

#[test]
fn two_hundred_pages_and_idlers_do_not_hold_up_the_end() {
    let _quiet = crate::quiet();
    let agent = Agent::start();
    let mut controller = Controller::start("", &format!("{}interval = \"20ms\"\n", agent.target("a")));
    let address = controller.address();
    let has_load =
        || json(address, "/api/onlooker/v1/hosts/a/series?search=node_load1")["series"][0]["value"].is_number();
    until("a reading", || has_load().then_some(()));
    let streams: Vec<_> = (0..STREAMS).map(|_| stream(address)).collect();
    let idlers = [
        sent(address, ""),
        sent(address, "GET / HTTP/1.1\r\nHost: loc"),
        sent(address, "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"),
        // More than fits any buffer, and nothing of it is read.
        sent(address, &"GET /api/onlooker/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(500)),
    ];
    println!("stopped after {:?} with {STREAMS} open streams", stop(&mut controller));
    drop((streams, idlers));

    controller.start_again();
    let address = controller.address();
    let reasons = until("the gap", || {
        let range = json(address, "/api/onlooker/v1/hosts/a/range?match=node_load1");
        let gaps = range["gaps"].as_array()?.clone();
        let reasons: Vec<String> = gaps.iter().map(|gap| gap["reason"].as_str().unwrap().to_owned()).collect();
        reasons.iter().any(|reason| ["stopped", "controller_down"].contains(&reason.as_str())).then_some(reasons)
    });
    assert!(reasons.iter().any(|reason| reason == "stopped"), "{reasons:?}");
    assert!(reasons.iter().all(|reason| reason != "controller_down"), "{reasons:?}");
}

/// A libibverbs whose drivers hang, in the directory given. It says so in a file first.
fn hanging_library(dir: &Path) -> PathBuf {
    let (source, said) = (dir.join("hangs.c"), dir.join("hangs"));
    let text = format!(
        "#include <fcntl.h>\n#include <unistd.h>\nvoid *ibv_get_device_list(int *count) {{\n    close(open({said:?}, O_CREAT | O_WRONLY, 0600));\n    for (;;) pause();\n}}\n"
    );
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(dir.join("libibverbs.so.1")).arg(source);
    assert!(compiler.status().unwrap().success());
    said
}

/// A host that lists a device, and the kernel responder that nobody answers by.
fn host_with_device() -> SocketAddr {
    let answer = Answer {
        agent: "0.1.0".into(),
        host: "played".into(),
        host_id: Id([1; 16]),
        boot_id: Id([2; 16]),
        boot_clock_ns: 1,
        wall_clock_ns: 2,
        control: Control { rkey: 3, va: 4096, bytes: 65_536, generation: 5 },
        max_read_bytes: 65_536,
        responders: [VERBS, KERNEL].map(|kind| Responder { kind: kind.into(), port: 9, ..Responder::default() }).into(),
    };
    let answer = frame::encode(&answer.encode()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // The question is short, and all of it comes at once.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&answer);
        }
    });
    address
}

#[test]
fn a_driver_that_hangs_holds_up_neither_others_nor_the_end() {
    let _quiet = crate::quiet();
    let dir = tempfile::tempdir().unwrap();
    let said = hanging_library(dir.path());
    let token = dir.path().join("token");
    fs::write(&token, Token { fingerprint: None, secret: Secret::new([7; 32]) }.text()).unwrap();
    let agent = Agent::start();
    let played = host_with_device();
    let targets = format!(
        "{}[[targets]]\naddress = \"{played}\"\nname = \"with-device\"\ntoken_file = {token:?}\n",
        agent.target("a")
    );
    let library = dir.path().to_str().unwrap().to_owned();
    let mut controller = Controller::start_with(dir, &[("LD_LIBRARY_PATH", &library)], "", &targets);
    until("the driver hangs", || said.exists().then_some(()));
    let address = controller.address();
    let has_load =
        || json(address, "/api/onlooker/v1/hosts/a/series?search=node_load1")["series"][0]["value"].is_number();
    until("the other host is read", || has_load().then_some(()));
    println!("stopped after {:?} with a driver that hangs", stop(&mut controller));
}

#[test]
fn handshakes_do_not_hold_up_the_end() {
    let dir = tempfile::tempdir().unwrap();
    renew(dir.path());
    let path = |name: &str| dir.path().join(name);
    let http = format!("tls_certificate = {:?}\ntls_key = {:?}", path("cert.pem"), path("key.pem"));
    let mut controller = Controller::start(&http, "");
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(controller.address()).unwrap()).collect();
    stop(&mut controller);
    drop(silent);
    assert!(fs::exists(controller.dir().join("store")).unwrap());
}
