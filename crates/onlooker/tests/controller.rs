// SPDX-License-Identifier: Apache-2.0
//! The real `onlooker controller` over a real agent: what it serves, and what is there again after it was killed.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
const TOKEN: &str = "a-token-of-more-than-16";

fn agent_binary() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_BIN_EXE_onlooker")).parent().expect("in a directory");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "onlooker-agent", "--bin", "onlooker-agent"]);
        build.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")]);
        build.arg("--target-dir").arg(directory.parent().expect("the target directory"));
        if directory.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("runs").success(), "the agent does not build");
        directory.join("onlooker-agent")
    })
}

/// A process whose standard error is read up to a word.
struct Process(Child);

impl Process {
    fn start(command: &mut Command, ready: &str) -> (Self, String) {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(ready) {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it was `{ready}`");
        }
        // Whoever writes to a closed pipe must not end of it.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        (Self(child), line)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct World {
    dir: TempDir,
    _agent: Process,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let agent = format!(
            "[agent]\nsocket = {:?}\nstate_dir = {:?}\n[bootstrap]\nlisten = \"127.0.0.1:{port}\"\n\
             [tcp]\nlisten = \"127.0.0.1:0\"\n[sampled]\ninterval = \"20ms\"\n",
            path("agent.sock"),
            path("state"),
        );
        fs::write(path("agent.toml"), agent).unwrap();
        let mut run = Command::new(agent_binary());
        let (agent, _) = Process::start(run.arg("run").arg("--config").arg(path("agent.toml")), "ready: ");
        let token = Command::new(agent_binary()).arg("token").arg("--config").arg(path("agent.toml")).output().unwrap();
        fs::write(path("token"), token.stdout).unwrap();
        fs::write(path("http"), TOKEN).unwrap();
        let controller = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\ntoken_file = {:?}\n[store]\ndir = {:?}\nhot_file = {:?}\nhot_bytes = \"16MiB\"\n\
             max_bytes = \"64MiB\"\n[[targets]]\naddress = \"127.0.0.1:{port}\"\nname = \"web 3\"\ntoken_file = {:?}\n\
             interval = \"20ms\"\nlabels = {{ dc = \"a\" }}\n",
            path("http"),
            path("store"),
            path("hot"),
            path("token"),
        );
        fs::write(path("controller.toml"), controller).unwrap();
        Self { dir, _agent: agent }
    }

    fn controller(&self) -> (Process, SocketAddr) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
        command.arg("controller").arg("--config").arg(self.dir.path().join("controller.toml"));
        let (process, line) = Process::start(&mut command, "dashboard http://");
        let address = line.split("http://").nth(1).unwrap().trim().trim_end_matches('/').parse().unwrap();
        (process, address)
    }
}

/// Status line and body.
fn get_with(address: SocketAddr, path: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> String {
    let (status, body) = get_with(address, path, &format!("Authorization: Bearer {TOKEN}\r\n"));
    assert!(status.contains("200"), "{path}: {status}: {body}");
    body
}

fn json(address: SocketAddr, path: &str) -> Value {
    serde_json::from_str(&get(address, path)).unwrap()
}

/// Waits until `wanted` has something.
fn until<T>(what: &str, mut wanted: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = wanted() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const LOAD: &str = "node_load1%7Bdc%3D%22a%22%2Cinstance%3D%22web+3%22%7D";

fn stored(address: SocketAddr) -> usize {
    let range = json(address, &format!("/api/v1/hosts/web%203/range?series={LOAD}&points=5000&from_ms=1"));
    range["series"][0]["t_ms"].as_array().map_or(0, Vec::len)
}

#[test]
fn what_is_read_is_shown_kept_and_there_again_after_a_kill() {
    let world = World::new();
    let (controller, address) = world.controller();
    let host = until("a reading", || {
        let hosts = json(address, "/api/v1/hosts");
        let host = hosts["hosts"].get(0)?.clone();
        (host["cycles"].as_u64()? > 5).then_some(host)
    });
    assert_eq!(
        (host["name"].as_str(), host["state"].as_str(), host["via"].as_str()),
        (Some("web 3"), Some("reading"), Some("tcp"))
    );
    let one = json(address, "/api/v1/hosts/web%203");
    assert!(one["regions_list"].as_array().unwrap().iter().any(|region| region["name"] == "node_load"));
    let found = json(address, "/api/v1/hosts/web%203/series?search=Load+1M");
    assert_eq!(found["series"][0]["series"], r#"node_load1{dc="a",instance="web 3"}"#);
    assert!(json(address, "/api/v1/status")["hosts"]["reading"] == 1);
    let metrics = get(address, "/metrics");
    assert!(metrics.contains("# TYPE node_load1 gauge\nnode_load1{dc=\"a\",instance=\"web 3\"} "), "{metrics}");
    assert!(metrics.contains("onlooker_host_up{instance=\"web 3\"} 1"));
    assert!(get(address, "/").contains("<!doctype html>"));

    let before = until("stored rows", || Some(stored(address)).filter(|rows| *rows > 20));
    // SIGKILL.
    drop(controller);
    let (_controller, address) = world.controller();
    let after = stored(address);
    assert!(after >= before, "{after} of {before} rows are there again");
    until("new rows", || (stored(address) > after + 5).then_some(()));
}

#[test]
fn only_who_shows_the_token_sees_anything() {
    let world = World::new();
    let (_controller, address) = world.controller();
    let (status, body) = get_with(address, "/api/v1/hosts", "");
    assert!(status.contains("401") && body.contains("token_file"), "{status} {body}");
    assert!(get_with(address, "/metrics", "Authorization: Bearer wrong\r\n").0.contains("401"));
    assert!(get_with(address, "/metrics", &format!("Cookie: a=b; onlooker_token={TOKEN}\r\n")).0.contains("200"));
    for (path, status, part) in [
        ("/healthz", "200", "ok"),
        ("/api/v1/hosts/nobody", "404", "no host `nobody`"),
        ("/api/v1/hosts/web%203/range", "400", "0 series are asked for"),
        ("/api/v1/hosts/web%203/range?serie=x", "400", "unknown parameter `serie`"),
        ("/api/v1/live?host=web%203&series=x&every_ms=1", "400", "a number from 10"),
        ("/nothing", "404", "nothing is at /nothing"),
    ] {
        let (got, body) = get_with(address, path, &format!("Authorization: Bearer {TOKEN}\r\n"));
        assert!(got.contains(status) && body.contains(part), "{path}: {got} {body}");
    }
}

#[test]
fn values_come_live() {
    let world = World::new();
    let (_controller, address) = world.controller();
    until("a reading", || json(address, "/api/v1/hosts")["hosts"][0]["cycles"].as_u64().filter(|cycles| *cycles > 2));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = format!("/api/v1/live?host=web%203&series={LOAD}&series=none&every_ms=20");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut data_of = |event: &str| {
        lines.find(|line| *line == format!("event: {event}")).expect("comes");
        let data = lines.next().unwrap();
        serde_json::from_str::<Value>(data.strip_prefix("data: ").unwrap()).unwrap()
    };
    assert_eq!(data_of("open")["series"][0]["type"], "gauge");
    let rows: Vec<Value> = (0..5).map(|_| data_of("row")).collect();
    assert!(rows.windows(2).all(|pair| pair[0]["t_ms"].as_f64() < pair[1]["t_ms"].as_f64()), "{rows:?}");
    assert!(rows.iter().all(|row| row["v"][0].is_number() && row["v"][1].is_null()), "{rows:?}");
}
