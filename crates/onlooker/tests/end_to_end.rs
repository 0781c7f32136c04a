// SPDX-License-Identifier: Apache-2.0
//! The real `onlooker` against a real agent, each in a directory and on ports of its own.

use onlooker_testbed::until;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Where cargo puts binaries.
fn bin_dir() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_onlooker")).parent().expect("in a directory")
}

/// Builds a binary of this workspace, if it is not there or old, and says where it is; with `ONLOOKER_BUILT` set it has been built.
fn built(package: &str, what: &[&str], name: &str) -> PathBuf {
    let path = bin_dir().join(name);
    if std::env::var_os("ONLOOKER_BUILT").is_some_and(|built| !built.is_empty()) && path.exists() {
        return path;
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", package]).args(what);
    build.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")]);
    build.arg("--target-dir").arg(bin_dir().parent().expect("the target directory"));
    if bin_dir().ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().expect("runs").success(), "{package} does not build");
    path
}

fn agent_binary() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("onlooker-agent", &["--bin", "onlooker-agent"], "onlooker-agent"))
}

/// A directory with an agent's configuration, and its agent while it runs.
struct Agent {
    dir: TempDir,
    bootstrap_port: u16,
    process: Option<Child>,
}

impl Agent {
    fn start(tls: bool) -> Self {
        Self::start_with(tls, "")
    }

    /// `tcp`: more keys of the section `[tcp]`.
    fn start_with(tls: bool, tcp: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Fixed for this agent's life, so that it can be started again at the same place.
        let bootstrap_port = onlooker_testbed::free_port();
        let config = format!(
            "[agent]\nsocket = {:?}\nstate_dir = {:?}\nhost = \"web-3\"\n\
             [bootstrap]\nlisten = \"127.0.0.1:{bootstrap_port}\"\ntls = {tls}\n\
             [tcp]\nlisten = \"127.0.0.1:0\"\n{tcp}\n[sampled]\ninterval = \"50ms\"\n",
            dir.path().join("run/agent.sock"),
            dir.path().join("state"),
        );
        fs::write(dir.path().join("agent.toml"), config).unwrap();
        let mut agent = Self { dir, bootstrap_port, process: None };
        agent.run();
        let token = agent.command("token").output().unwrap();
        fs::write(agent.token_file(), token.stdout).unwrap();
        agent
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(agent_binary());
        command.arg(subcommand).arg("--config").arg(self.dir.path().join("agent.toml"));
        command
    }

    fn run(&mut self) {
        let mut process = self.command("run").stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready: ") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the agent ended");
        }
        // Nobody reads on; what the agent says later fits into the pipe, or is lost with it.
        self.process = Some(process);
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn token_file(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.bootstrap_port)
    }

    /// `onlooker SUBCOMMAND HOST ARGUMENTS` with this agent's token.
    fn onlooker(&self, subcommand: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
        command.args([subcommand, &self.host(), "--token-file"]).arg(self.token_file()).args(arguments);
        command.env("ONLOOKER_SOCKET", self.dir.path().join("run/agent.sock")).stdin(Stdio::null());
        command
    }

    fn read(&self, arguments: &[&str]) -> Output {
        self.onlooker("read", arguments).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.read(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop();
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn sampled_metrics_are_those_of_procfs() {
    let agent = Agent::start(true);
    let json = agent.json(&["node_*"]);
    assert_eq!(json["host"]["name"], "web-3");
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    assert_eq!(json["host"]["boot_id"], *boot_id);
    assert!(json["clock"]["error_ns"].as_u64().unwrap() < 1_000_000_000);
    let samples = json["samples"].as_array().unwrap();
    let of = |name: &str| samples.iter().filter(|sample| sample["name"] == name).collect::<Vec<_>>();

    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let total_kib: f64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    let total = of("node_memory_MemTotal_bytes")[0];
    assert_eq!(
        (total["value"].as_f64(), &total["unit"], &total["type"]),
        (Some(total_kib * 1024.0), &"bytes".into(), &"gauge".into())
    );
    let cpus = fs::read_to_string("/proc/stat").unwrap().lines().filter(|line| line.starts_with("cpu")).count() - 1;
    let idle: Vec<_> = of("node_cpu_seconds_total").into_iter().filter(|s| s["labels"]["mode"] == "idle").collect();
    assert_eq!(idle.len(), cpus);
    assert!((0..cpus).all(|cpu| idle.iter().any(|sample| sample["labels"]["cpu"].as_str() == Some(&*cpu.to_string()))));
    assert!(of("node_network_receive_bytes_total").iter().any(|sample| sample["labels"]["device"] == "lo"));
    let received = of("node_network_receive_bytes_total");
    assert!(received.iter().all(|sample| sample["row"]["generation"].is_u64()) && total.get("row").is_none());
    let age_ns = total["age_ns"].as_i64().unwrap();
    assert!((-1_000_000_000..20_000_000_000).contains(&age_ns), "{age_ns}");
    let now_ns = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap();
    assert!((now_ns - total["time_utc_ns"].as_i64().unwrap()).abs() < 20_000_000_000);
}

#[test]
fn a_program_is_read_with_its_labels_and_without_its_help() {
    let agent = Agent::start(true);
    let mut shop = Command::new(built("onlooker", &["--example", "watched"], "examples/watched"))
        .env("ONLOOKER_SOCKET", agent.dir.path().join("run/agent.sock"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let json = until("the shop is published", || {
        let output = agent.read(&["shop_*", "--json"]);
        (code(&output) == 0).then(|| serde_json::from_slice::<Value>(&output.stdout).unwrap())
    });
    let samples = json["samples"].as_array().unwrap();
    let of = |name: &str| samples.iter().filter(|sample| sample["name"] == name).collect::<Vec<_>>();
    let requests = of("shop_requests_total")[0];
    assert_eq!((&requests["value"], &requests["help"]), (&u64::MAX.into(), &"Requests served.".into()));
    assert_eq!(requests["labels"]["pid"], shop.id().to_string());
    assert_eq!(requests["labels"]["program"], "watched");
    let jobs: Vec<_> =
        of("shop_jobs_total").iter().map(|s| (s["labels"]["worker"].clone(), s["value"].clone())).collect();
    assert_eq!(jobs, [("0".into(), 0.into()), ("1".into(), 5.into())]);
    assert_eq!(of("shop_latency_seconds")[0]["value"]["count"], 3);

    let prometheus = agent.read(&["shop_*", "--prometheus"]);
    let exposition = text(&prometheus.stdout);
    assert!(exposition.contains("# TYPE shop_latency_seconds histogram\n"), "{exposition}");
    assert!(
        exposition.contains(&format!("shop_latency_seconds_count{{pid=\"{}\",program=\"watched\"}} 3\n", shop.id()))
    );
    let regions = agent.read(&["--regions"]);
    let line = text(&regions.stdout).lines().find(|line| line.contains(" shop ")).unwrap().to_owned();
    assert!(line.contains(&shop.id().to_string()) && line.ends_with("live"), "{line}");

    drop(shop.stdin.take());
    assert!(shop.wait().unwrap().success());
    until("its region ends", || (code(&agent.read(&["shop_*"])) == 3).then_some(()));
}

#[test]
fn tables_lists_and_expositions_agree() {
    let agent = Agent::start(true);
    let list = agent.read(&["--list", "node_load*"]);
    let names: Vec<_> =
        text(&list.stdout).lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["node_load1", "node_load15", "node_load5"]);
    let table = agent.read(&["node_load*"]);
    assert_eq!(text(&table.stdout).lines().count(), 4, "{table:?}");
    assert!(table.stderr.is_empty());
    let prometheus = agent.read(&["--prometheus"]);
    let exposition = text(&prometheus.stdout);
    let typed: Vec<_> = exposition.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(typed.contains(&"node_cpu_seconds_total counter") && typed.contains(&"node_load1 gauge"), "{typed:?}");
    for line in exposition.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn names_that_do_not_exist_get_a_suggestion_and_code_3() {
    let agent = Agent::start(true);
    let output = agent.read(&["node_laod1", "node_load5"]);
    assert_eq!(code(&output), 3);
    assert!(text(&output.stderr).contains("did you mean node_load1"), "{output:?}");
    assert!(text(&output.stdout).contains("node_load5"), "what exists is shown");
    let output = agent.read(&["zzzzzz"]);
    assert_eq!((code(&output), output.stdout.len()), (3, 0));
    assert!(text(&output.stderr).contains("--list"), "{output:?}");
}

#[test]
fn wrong_tokens_say_what_to_do() {
    let (agent, other) = (Agent::start(true), Agent::start(true));
    fs::copy(other.token_file(), agent.token_file()).unwrap();
    let output = agent.read(&[]);
    assert_eq!((code(&output), output.stdout.len()), (1, 0));
    assert!(text(&output.stderr).contains("another certificate than the token's"), "{output:?}");
    assert!(agent.command("token").arg("--renew").output().unwrap().status.success());
    let renewed = agent.command("token").output().unwrap().stdout;
    let fingerprint = text(&renewed).rsplit_once('.').unwrap().0.to_owned();
    fs::write(agent.token_file(), format!("{fingerprint}.{}", "A".repeat(43))).unwrap();
    let output = agent.read(&[]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("denies the token"), "{output:?}");
    fs::write(agent.token_file(), "onlk1.half").unwrap();
    assert!(text(&agent.read(&[]).stderr).contains("cut off"));
}

#[test]
fn a_read_port_that_turns_us_away_is_named() {
    let agent = Agent::start_with(true, "allow = [\"192.0.2.0/24\"]");
    let output = agent.read(&[]);
    let error = text(&output.stderr);
    assert_eq!((code(&output), output.stdout.len()), (1, 0));
    assert!(error.contains("READs at 127.0.0.1:") && error.contains("is [tcp] allow"), "{error}");
    assert!(!error.contains(&format!("READs at {}", agent.host())), "the READ port, not the bootstrap's: {error}");
}

#[test]
fn plain_endpoints_and_tls_endpoints_are_told_apart() {
    let (plain, tls) = (Agent::start(false), Agent::start(true));
    assert_eq!(plain.json(&["node_load1"])["samples"][0]["name"], "node_load1");
    let (of_plain, of_tls) = (fs::read(plain.token_file()).unwrap(), fs::read(tls.token_file()).unwrap());
    fs::write(plain.token_file(), of_tls).unwrap();
    let output = plain.read(&[]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("does not speak TLS"), "{output:?}");
    fs::write(tls.token_file(), of_plain).unwrap();
    let output = tls.read(&[]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("speaks TLS, but"), "{output:?}");
}

#[test]
fn repeated_reading_outlives_a_restart_of_the_agent() {
    let mut agent = Agent::start(true);
    let mut reader = agent
        .onlooker("read", &["node_load1", "--json", "--interval", "100ms", "--timeout", "2s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    let mut generation = || {
        let reading: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(reading["samples"][0]["name"], "node_load1");
        reading["regions"][0]["generation"].as_u64().unwrap()
    };
    let before = generation();
    agent.stop();
    agent.run();
    until("the new agent's readings", || (generation() != before).then_some(()));
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let agent = Agent::start(true);
    let mut reader =
        agent.onlooker("read", &["--interval", "50ms"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    reader.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = reader.wait_with_output().unwrap();
    assert_eq!((code(&output), text(&output.stderr)), (0, ""));
}

#[test]
fn a_host_that_is_watched_is_asked_for_its_clock_again() {
    let agent = Agent::start(true);
    let arguments = ["node_load1", "--json", "--interval", "250ms"];
    let mut reader = agent.onlooker("read", &arguments).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    let mut errors = lines.map(|line| {
        let reading: Value = serde_json::from_str(&line.unwrap()).unwrap();
        reading["clock"]["error_ns"].as_u64().unwrap()
    });
    // A millisecond a second, until it is asked: over TCP at 5 ms.
    let (mut last_ns, mut error_ns) = (0, errors.next().unwrap());
    while error_ns + 3_000_000 > last_ns {
        assert!(error_ns < 60_000_000, "{error_ns}");
        (last_ns, error_ns) = (error_ns, errors.next().unwrap());
    }
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[test]
fn rates_are_told_from_the_second_reading_on() {
    let agent = Agent::start(true);
    let output = agent.read(&["node_context_switches_total", "--interval", "300ms", "--count", "2"]);
    let lines: Vec<_> = text(&output.stdout).lines().collect();
    assert_eq!((code(&output), lines.len()), (0, 5), "{lines:?}");
    assert!(lines[0].contains("RATE") && lines[4].contains("/s") && !lines[1].contains("/s"), "{lines:?}");
}

#[test]
fn doctor_finds_a_healthy_host_healthy_and_a_dead_one_dead() {
    let mut agent = Agent::start(true);
    let run = |agent: &Agent| {
        let output = agent.onlooker("doctor", &["--json"]).output().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["ok"], code(&output) == 0);
        json
    };
    let status = |json: &Value, what: &str| {
        let checks = json["checks"].as_array().unwrap();
        checks.iter().find(|check| check["what"] == what).map(|check| check["status"].as_str().unwrap().to_owned())
    };
    let healthy = run(&agent);
    assert_eq!(healthy["ok"], true, "{healthy}");
    for what in ["agent socket", "name", "bootstrap port", "token", "bootstrap", "pair tcp", "tcp regions", "tcp READs"]
    {
        assert_eq!(status(&healthy, what).as_deref(), Some("ok"), "{what}: {healthy}");
    }
    agent.stop();
    let dead = run(&agent);
    assert_eq!(dead["ok"], false);
    assert_eq!(status(&dead, "bootstrap port").as_deref(), Some("fail"), "{dead}");
    assert_eq!(status(&dead, "tcp READs"), None, "what needs a failed step is not tried");
}

#[test]
fn wrong_usage_is_code_2() {
    for arguments in [
        &["read"][..],
        &["read", "h", "--json", "--prometheus"],
        &["read", "h", "--count", "3"],
        &["read", "h", "--interval", "5"],
        &["read", "h:0"],
        &["raed"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_onlooker")).args(arguments).output().unwrap();
        assert_eq!((code(&output), output.stdout.len()), (2, 0), "{arguments:?}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_onlooker"))
        .args(["read", "192.0.2.1"])
        .env_remove("ONLOOKER_TOKEN")
        .output()
        .unwrap();
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("--token-file"), "{output:?}");
}
