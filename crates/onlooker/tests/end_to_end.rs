// SPDX-License-Identifier: Apache-2.0
//! The real `onlooker` against a real agent, each in a directory and on ports of its own.

use onlooker_testbed::{Agent, Keys, example, until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

fn start(tls: bool) -> Agent {
    start_with(tls, "")
}

/// `tcp`: more keys of the section `[tcp]`.
fn start_with(tls: bool, tcp: &str) -> Agent {
    let (bootstrap, more) = (format!("tls = {tls}"), "[sampled]\ninterval = \"50ms\"\n");
    Agent::start_keys(Keys { agent: "host = \"web-3\"", bootstrap: &bootstrap, tcp, more })
}

/// `onlooker SUBCOMMAND HOST ARGUMENTS` with this agent's token.
fn onlooker(agent: &Agent, subcommand: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
    command.args([subcommand, &agent.address(), "--token-file"]).arg(agent.token_file()).args(arguments);
    command.env("ONLOOKER_SOCKET", agent.socket()).stdin(Stdio::null());
    command
}

fn read(agent: &Agent, arguments: &[&str]) -> Output {
    onlooker(agent, "read", arguments).output().unwrap()
}

fn reading(agent: &Agent, arguments: &[&str]) -> Value {
    let output = read(agent, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn sampled_metrics_are_those_of_procfs() {
    let agent = start(true);
    let json = reading(&agent, &["node_*"]);
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
    let agent = start(true);
    let mut shop = Command::new(example("onlooker", "watched"))
        .env("ONLOOKER_SOCKET", agent.socket())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let json = until("the shop is published", || {
        let output = read(&agent, &["shop_*", "--json"]);
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

    let prometheus = read(&agent, &["shop_*", "--prometheus"]);
    let exposition = text(&prometheus.stdout);
    assert!(exposition.contains("# TYPE shop_latency_seconds histogram\n"), "{exposition}");
    assert!(
        exposition.contains(&format!("shop_latency_seconds_count{{pid=\"{}\",program=\"watched\"}} 3\n", shop.id()))
    );
    let regions = read(&agent, &["--regions"]);
    let line = text(&regions.stdout).lines().find(|line| line.contains(" shop ")).unwrap().to_owned();
    assert!(line.contains(&shop.id().to_string()) && line.ends_with("live"), "{line}");

    drop(shop.stdin.take());
    assert!(shop.wait().unwrap().success());
    until("its region ends", || (code(&read(&agent, &["shop_*"])) == 3).then_some(()));
}

#[test]
fn tables_lists_and_expositions_agree() {
    let agent = start(true);
    let list = read(&agent, &["--list", "node_load*"]);
    let names: Vec<_> =
        text(&list.stdout).lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["node_load1", "node_load15", "node_load5"]);
    let table = read(&agent, &["node_load*"]);
    assert_eq!(text(&table.stdout).lines().count(), 4, "{table:?}");
    assert!(table.stderr.is_empty());
    let prometheus = read(&agent, &["--prometheus"]);
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
    let agent = start(true);
    let output = read(&agent, &["node_laod1", "node_load5"]);
    assert_eq!(code(&output), 3);
    assert!(text(&output.stderr).contains("did you mean node_load1"), "{output:?}");
    assert!(text(&output.stdout).contains("node_load5"), "what exists is shown");
    let output = read(&agent, &["zzzzzz"]);
    assert_eq!((code(&output), output.stdout.len()), (3, 0));
    assert!(text(&output.stderr).contains("--list"), "{output:?}");
}

#[test]
fn wrong_tokens_say_what_to_do() {
    let (agent, other) = (start(true), start(true));
    fs::copy(other.token_file(), agent.token_file()).unwrap();
    let output = read(&agent, &[]);
    assert_eq!((code(&output), output.stdout.len()), (1, 0));
    assert!(text(&output.stderr).contains("another certificate than the token's"), "{output:?}");
    assert!(agent.command("token").arg("--renew").output().unwrap().status.success());
    let renewed = agent.command("token").output().unwrap().stdout;
    let fingerprint = text(&renewed).rsplit_once('.').unwrap().0.to_owned();
    fs::write(agent.token_file(), format!("{fingerprint}.{}", "A".repeat(43))).unwrap();
    let output = read(&agent, &[]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("denies the token"), "{output:?}");
    fs::write(agent.token_file(), "onlk1.half").unwrap();
    assert!(text(&read(&agent, &[]).stderr).contains("cut off"));
}

#[test]
fn a_read_port_that_turns_us_away_is_named() {
    let agent = start_with(true, "allow = [\"192.0.2.0/24\"]");
    let output = read(&agent, &[]);
    let error = text(&output.stderr);
    assert_eq!((code(&output), output.stdout.len()), (1, 0));
    assert!(error.contains("READs at 127.0.0.1:") && error.contains("is [tcp] allow"), "{error}");
    assert!(!error.contains(&format!("READs at {}", agent.address())), "the READ port, not the bootstrap's: {error}");
}

#[test]
fn plain_endpoints_and_tls_endpoints_are_told_apart() {
    let (plain, tls) = (start(false), start(true));
    assert_eq!(reading(&plain, &["node_load1"])["samples"][0]["name"], "node_load1");
    let (of_plain, of_tls) = (fs::read(plain.token_file()).unwrap(), fs::read(tls.token_file()).unwrap());
    fs::write(plain.token_file(), of_tls).unwrap();
    let output = read(&plain, &[]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("does not speak TLS"), "{output:?}");
    fs::write(tls.token_file(), of_plain).unwrap();
    let output = read(&tls, &[]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("speaks TLS, but"), "{output:?}");
}

#[test]
fn repeated_reading_outlives_a_restart_of_the_agent() {
    let mut agent = start(true);
    let arguments = ["node_load1", "--json", "--interval", "100ms", "--timeout", "2s"];
    let mut reader = onlooker(&agent, "read", &arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    let mut generation = || {
        let reading: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(reading["samples"][0]["name"], "node_load1");
        reading["regions"][0]["generation"].as_u64().unwrap()
    };
    let before = generation();
    agent.kill();
    agent.run();
    until("the new agent's readings", || (generation() != before).then_some(()));
    reader.kill().unwrap();
    reader.wait().unwrap();
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let agent = start(true);
    let mut command = onlooker(&agent, "read", &["--interval", "50ms"]);
    let mut reader = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    reader.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = reader.wait_with_output().unwrap();
    assert_eq!((code(&output), text(&output.stderr)), (0, ""));
}

#[test]
fn a_host_that_is_watched_is_asked_for_its_clock_again() {
    let agent = start(true);
    let arguments = ["node_load1", "--json", "--interval", "250ms"];
    let mut reader = onlooker(&agent, "read", &arguments).stdout(Stdio::piped()).spawn().unwrap();
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
    let agent = start(true);
    let output = read(&agent, &["node_context_switches_total", "--interval", "300ms", "--count", "10"]);
    let lines: Vec<_> = text(&output.stdout).lines().collect();
    assert_eq!((code(&output), lines.len()), (0, 29), "{lines:?}");
    assert!(lines[0].contains("RATE") && !lines[1].contains("/s"), "{lines:?}");
    // A busy agent may have sampled nothing between two readings, but not always.
    assert!(lines[2..].iter().any(|line| line.contains("/s")), "{lines:?}");
}

#[test]
fn doctor_finds_a_healthy_host_healthy_and_a_dead_one_dead() {
    let mut agent = start(true);
    let run = |agent: &Agent| {
        let output = onlooker(agent, "doctor", &["--json"]).output().unwrap();
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
    agent.kill();
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
