// SPDX-License-Identifier: Apache-2.0
//! `onlooker report` and `onlooker telemetry`, with a real agent over a veth pair. Needs root.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use onlooker_testbed::{Agent, Namespace, binary, is_root, until};
use serde_json::{Value, json};

const FLOW: &str = "10.0.0.1:443>10.0.0.2:5000/tcp";

struct Collector {
    agent: Agent,
    namespace: Namespace,
}

impl Collector {
    fn start() -> Self {
        let namespace = Namespace::new();
        let outside = namespace.outside();
        let table = |number: u16, name: &str, more: &str| {
            format!(
                "[[kernel.telemetry.tables]]\nname = {name:?}\nnumber = {number}\nmemory = \"64KiB\"\naccess_key = \"1234abcd\"\n{more}\n"
            )
        };
        let more = [
            format!("[kernel.telemetry]\nallow = [\"{outside}/32\"]\nwait = \"1ms\"\n"),
            table(1, "paths", "primitive = \"key-write\"\npayload_bytes = 20\ncheck_bytes = 8"),
            table(2, "drops", "primitive = \"append\"\npayload_bytes = 13\nbatch = 4"),
            table(3, "bytes", "primitive = \"key-increment\""),
        ];
        Self { agent: Agent::start_kernel(&namespace, &more.concat()), namespace }
    }

    /// Exit code, standard output, standard error.
    fn onlooker(&self, arguments: &[&str], input: &str) -> (i32, String, String) {
        let mut command = Command::new(binary("onlooker", "onlooker"));
        command.args(arguments).env("ONLOOKER_ACCESS_KEY", "1234abcd");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("onlooker starts");
        let mut stdin = child.stdin.take().expect("it has a standard input");
        // It may have ended already, of an error.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    fn report(&self, primitive: &str, table: &str, more: &[&str], lines: &str) -> (i32, String) {
        let collector = self.namespace.inside().to_string();
        let (code, _, err) =
            self.onlooker(&[&["report", primitive, &collector, "--table", table], more].concat(), lines);
        (code, err)
    }

    fn ask(&self, question: &str, more: &[&str]) -> (i32, String, String) {
        let (address, token) = (self.agent.address(), self.agent.token_file());
        let token = token.to_str().expect("UTF-8");
        self.onlooker(&[&["telemetry", question, &address], more, &["--token-file", token]].concat(), "")
    }

    fn ask_json(&self, question: &str, more: &[&str]) -> (i32, Vec<Value>) {
        let (code, out, err) = self.ask(question, &[more, &["--json"]].concat());
        assert!(err.is_empty() || code != 0, "{err}");
        (code, out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
    }
}

/// Two packets of 1500 bytes, of which 42 were kept each.
fn capture() -> Vec<u8> {
    let header = [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    let packet_header = [0u32, 0, 42, 1500].map(u32::to_le_bytes).concat();
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let udp = [1, 187, 0x13, 0x88, 0, 8, 0, 0];
    let packet = [&packet_header[..], &ethernet, &ip, &udp].concat();
    [header, packet.clone(), packet].concat()
}

#[test]
fn what_is_reported_can_be_asked_for() {
    if !is_root("telemetry over a veth pair") {
        return;
    }
    let collector = Collector::start();
    let (code, tables) = collector.ask_json("tables", &[]);
    let named: Vec<_> = tables.iter().map(|table| (&table["name"], &table["primitive"], &table["places"])).collect();
    let (paths, drops, bytes) = (json!("paths"), json!("drops"), json!("bytes"));
    let expected = [
        (&paths, json!("key-write"), json!(2048)),
        (&drops, json!("append"), json!(512)),
        (&bytes, json!("key-increment"), json!(4096)),
    ];
    assert_eq!(
        (code, named),
        (0, expected.iter().map(|(name, primitive, places)| (*name, primitive, places)).collect())
    );

    let (code, err) = collector.report("key-write", "1", &[], &format!("# paths\n\n{FLOW} u32:1,2,3,4,5\nshop x\n"));
    assert!(code == 1 && err.contains("line 4: \"shop\" is no key or payload"), "{err}");
    let (code, found) = collector.ask_json("get", &["paths", FLOW, "10.0.0.3", "--format", "u32"]);
    assert_eq!((code, &found[0]["value"], &found[0]["copies"]), (0, &json!("1,2,3,4,5"), &json!(2)));
    assert!(found[0]["age_ms"].as_u64().is_some_and(|age_ms| age_ms < 600_000), "{found:?}");
    assert_eq!(found[1], json!({"key": "10.0.0.3", "outcome": "empty"}));
    assert_eq!(collector.ask("get", &["paths", "10.0.0.3"]).0, 3, "nothing matched");

    // Of high importance: they have come when the program ends.
    let drops: String = (0..10).map(|port| format!("10.0.0.1:{port}>10.0.0.2:5000/tcp\n")).collect();
    let (code, err) = collector.report("append", "2", &["--importance", "high"], &drops);
    assert_eq!(code, 0, "{err}");
    let seen = until("the last batch, which time ends", || {
        let (_, seen) = collector.ask_json("tail", &["drops", "--format", "flow"]);
        (seen.len() == 10).then_some(seen)
    });
    let entries: String = seen.iter().map(|entry| format!("{}\n", entry["entry"].as_str().unwrap())).collect();
    assert_eq!((entries, &seen[9]["number"]), (drops, &json!(9)));

    let (code, err) = collector.report("key-increment", "3", &[], &format!("{FLOW} 1500\n{FLOW} 40\n"));
    assert_eq!(code, 0, "{err}");
    let (_, counted) = collector.ask_json("count", &["bytes", FLOW]);
    assert_eq!((&counted[0]["count"], &counted[0]["count_before"]), (&json!(1540), &Value::Null));

    // Of a capture: two packets of a flow, as tcpdump would write them.
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("capture.pcap");
    std::fs::write(&path, capture()).expect("writes");
    let (code, err) = collector.report("key-increment", "3", &["--pcap", path.to_str().expect("UTF-8")], "");
    assert!(code == 0 && err.contains("2 packets of 3000 bytes are of flows, 0 others"), "{err}");
    let (_, counted) = collector.ask_json("count", &["bytes", "10.0.0.1:443-10.0.0.2:5000/udp"]);
    assert_eq!(counted[0]["count"], 3000);

    let status = collector.agent.command("telemetry").arg("--json").output().expect("it runs");
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!((&status["tables"][0]["name"], &status["reports"]["stored"]), (&json!("paths"), &json!(14)), "{status}");

    // What is wrong is said, with what to do.
    let (code, _, err) = collector.ask("get", &["path", FLOW]);
    assert!(code == 1 && err.contains("has no telemetry table path: did you mean paths?"), "{err}");
    let (code, _, err) = collector.ask("get", &["drops", FLOW]);
    assert!(code == 1 && err.contains("table drops is for append"), "{err}");
    let (code, err) = collector.report("append", "9", &["--importance", "high", "--timeout", "100ms"], "u8:1\n");
    assert!(code == 1 && err.contains("1 reports have not come") && err.contains("[kernel.telemetry] allow"), "{err}");
}

#[test]
fn a_tail_follows_its_list_over_a_restart_of_the_agent() {
    if !is_root("telemetry over a veth pair") {
        return;
    }
    let mut collector = Collector::start();
    let event = |collector: &Collector, port: u16| {
        let (code, err) =
            collector.report("append", "2", &["--importance", "high"], &format!("10.0.0.1:{port}>10.0.0.2:5/tcp"));
        assert_eq!(code, 0, "{err}");
    };
    event(&collector, 1);
    let (address, token) = (collector.agent.address(), collector.agent.token_file());
    let mut command = Command::new(binary("onlooker", "onlooker"));
    command.args(["telemetry", "tail", &address, "drops", "--format", "flow", "--follow", "--every", "10ms"]);
    command.args(["--timeout", "1s", "--token-file", token.to_str().expect("UTF-8")]);
    let mut follower =
        Following(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("onlooker starts"));
    let mut lines = BufReader::new(follower.0.stdout.take().expect("it has a standard output")).lines();
    let mut next = || lines.next().expect("it goes on").expect("UTF-8");
    assert!(next().starts_with("0 10.0.0.1:1>10.0.0.2:5/tcp ("));
    event(&collector, 2);
    assert!(next().starts_with("1 10.0.0.1:2>10.0.0.2:5/tcp ("));
    collector.agent.kill();
    event(&collector, 3);
    assert!(next().starts_with("2 10.0.0.1:3>10.0.0.2:5/tcp ("), "nobody needs an agent for that");
    collector.agent.run();
    event(&collector, 4);
    assert!(next().starts_with("3 10.0.0.1:4>10.0.0.2:5/tcp ("));
}

/// Killed when the test ends.
struct Following(Child);

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
