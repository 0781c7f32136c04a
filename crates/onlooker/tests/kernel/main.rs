// SPDX-License-Identifier: Apache-2.0
//! The real `onlooker` against a kernel responder over veth, with a directory and a bootstrap endpoint made by the test. Needs root and `ip`.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

#[path = "../../../reader/tests/common/mod.rs"]
mod common;
mod world;

use onlooker_region::control::{Entry, RESPONDER_KERNEL, RESPONDER_TCP, RegionEntry};
use onlooker_region::guard::commit;
use onlooker_responder::{Exit, Prefix};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read as _};
use std::time::{Duration, Instant};
use world::{HOST_IP, PORT, World, is_possible};

const BOTH: u32 = RESPONDER_KERNEL | RESPONDER_TCP;

/// A host with one region that only the kernel responder serves, one that only TCP does, and one that both do.
fn world() -> World {
    let mut world = World::new();
    world.region(1, "computed", "node_up", RESPONDER_KERNEL);
    world.region(2, "sampled", "node_up", RESPONDER_TCP);
    world.region(3, "shop", "shop_open", BOTH);
    world
}

fn bracketed(ip: &str) -> String {
    if ip.contains(':') { format!("[{ip}]:7177") } else { ip.to_owned() }
}

fn names(json: &Value) -> Vec<&str> {
    json["regions"].as_array().unwrap().iter().map(|region| region["name"].as_str().unwrap()).collect()
}

#[test]
fn regions_are_read_from_whoever_serves_them() {
    if !is_possible() {
        return;
    }
    let world = world();
    for ip in HOST_IP {
        for (via, expected, regions) in [
            ("auto", "kernel", ["computed", "shop"]),
            ("kernel", "kernel", ["computed", "shop"]),
            ("tcp", "tcp", ["sampled", "shop"]),
        ] {
            let before = world.pinned.counters().unwrap();
            let (code, out, err) = world.onlooker(&["read", &bracketed(ip), "--json", "--via", via]);
            assert_eq!((code, err.as_str()), (0, ""), "{ip} {via}");
            let json: Value = serde_json::from_str(&out).unwrap();
            assert_eq!((&json["host"]["via"], names(&json)), (&expected.into(), regions.to_vec()), "{ip} {via}");
            assert_eq!(json["samples"].as_array().unwrap().len(), 2, "node_up once, shop_open once");
            let counted = world.pinned.counters().unwrap().since(&before);
            let (answered, exits) = (counted.get(Exit::Answered), counted.iter().filter(|(_, n)| *n > 0).count());
            assert_eq!((answered > 0, exits), (expected == "kernel", usize::from(expected == "kernel")), "{counted:?}");
        }
    }
    let (_, out, _) = world.onlooker(&["read", HOST_IP[0], "--regions"]);
    for (name, ending) in
        [("computed", "direct kernel live"), ("sampled", "direct tcp live"), ("shop", "direct tcp,kernel live")]
    {
        let line = out.lines().find(|line| line.contains(&format!(" {name} "))).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert!(words.join(" ").ends_with(ending), "{line}");
    }
    let (_, out, _) = world.onlooker(&["read", HOST_IP[0], "--list", "node_up"]);
    assert_eq!(out.lines().count(), 3, "a line for each way: {out}");
    let mut other = World::new();
    other.region(1, "sampled", "node_load1", RESPONDER_TCP);
    let (code, out, err) = other.onlooker(&["read", HOST_IP[0], "node_load1"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("served by tcp only: --via tcp"), "{err}");
}

/// Silence of every kind that the responder has.
#[test]
fn silence_falls_back_to_tcp_and_says_what_to_check() {
    if !is_possible() {
        return;
    }
    let world = world();
    let silent = |what: &str| {
        let (code, out, err) = world.onlooker(&["read", HOST_IP[0], "--json"]);
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &json["host"]["via"], names(&json)), (0, &"tcp".into(), vec!["sampled", "shop"]), "{what}");
        assert_eq!(err.lines().count(), 1, "{what}: {err}");
        for part in ["silence", "[kernel] allow", "10.79.1.2", "firewall", "lease", "over TCP instead"] {
            assert!(err.contains(part), "{what}: {part}: {err}");
        }
        let begin = Instant::now();
        let (code, out, err) = world.onlooker(&["read", HOST_IP[0], "--via", "kernel"]);
        assert_eq!((code, out.as_str()), (1, ""), "{what}");
        assert!(err.contains("silence is its only refusal"), "{what}: {err}");
        assert!(begin.elapsed() < Duration::from_secs(8));
    };
    let reader = Prefix::host("10.79.1.2".parse().unwrap());
    world.pinned.disallow(reader).unwrap();
    silent("not allowed");
    world.pinned.allow(reader).unwrap();

    world.pinned.set_lease(Duration::ZERO).unwrap();
    silent("lease over");
    world.pinned.set_lease(Duration::from_secs(7200)).unwrap();

    world.answer(|answer| answer.responders[1].port = PORT + 1);
    silent("wrong port");

    world.answer(|answer| drop(answer.responders.remove(1)));
    let (code, _, err) = world.onlooker(&["read", HOST_IP[0]]);
    assert_eq!((code, err.as_str()), (0, ""), "what was not announced is not missed");
    let (code, _, err) = world.onlooker(&["read", HOST_IP[0], "--via", "kernel"]);
    assert!(code == 1 && err.contains("offers no kernel responder"), "{err}");
}

/// Reads lines of JSON from a reader at work.
struct Readings {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Readings {
    fn of(world: &World, more: &[&str]) -> Self {
        let mut child = world.spawn(&[&["read", HOST_IP[0], "--interval", "50ms", "--json"], more].concat());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().expect("it goes on").unwrap()).unwrap()
    }

    /// Readings until one is as wanted.
    fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let reading = self.next();
            if wanted(&reading) {
                return reading;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "{what}: {reading}");
        }
    }

    fn end(mut self) -> String {
        self.child.kill().unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        self.child.wait().unwrap();
        assert!(!err.contains("panicked"), "{err}");
        err
    }
}

fn value_of(reading: &Value, name: &str) -> Option<u64> {
    reading["samples"].as_array()?.iter().find(|sample| sample["name"] == name)?["value"].as_u64()
}

#[test]
fn a_stale_directory_is_bootstrapped_anew_with_a_gap_told() {
    if !is_possible() {
        return;
    }
    let mut world = world();
    let mut readings = Readings::of(&world, &["--via", "kernel"]);
    assert_eq!(names(&readings.next()), ["computed", "shop"]);
    world.restart();
    world.region(4, "fresh", "node_fresh", RESPONDER_KERNEL);
    let reading = readings.until("the new directory", |reading| names(reading) == ["fresh"]);
    assert_eq!(reading["host"]["via"], "kernel");
    let err = readings.end();
    assert!(err.lines().any(|line| line.contains("gap of") && line.contains("reading over soft-kernel")), "{err}");
}

#[test]
fn a_stale_key_is_found_in_the_directory_without_a_bootstrap() {
    if !is_possible() {
        return;
    }
    let mut world = World::new();
    world.region(1, "first", "first", RESPONDER_KERNEL);
    let moved = world.region(2, "moved", "moved", RESPONDER_KERNEL);
    let mut readings = Readings::of(&world, &["--via", "kernel"]);
    assert_eq!(value_of(&readings.next(), "moved"), Some(0));
    // Without a word in the directory: silence about this one, while the other is read on.
    world.rekey(&moved, world::CONTROL_BLOCKS + 1, 77);
    let reading = readings.until("the problem is told", |reading| !reading["regions"][1]["problem"].is_null());
    assert_eq!((value_of(&reading, "first"), value_of(&reading, "moved")), (Some(0), None));
    commit(moved.words.block(0), moved.entry.identity, 1, |payload| payload.set(0, 4711));
    let entry = RegionEntry { rkey: 77, ..moved.entry.clone() };
    world.host.control.replace(moved.slot, &Entry::Region(entry), 9).unwrap();
    readings.until("the new key", |reading| value_of(reading, "moved") == Some(4711));
    assert!(!readings.end().contains("gap of"), "the directory itself was never gone");
}

#[test]
fn a_lease_that_ends_meanwhile_leads_to_tcp() {
    if !is_possible() {
        return;
    }
    let world = world();
    let mut readings = Readings::of(&world, &[]);
    assert_eq!(readings.next()["host"]["via"], "kernel");
    world.pinned.set_lease(Duration::ZERO).unwrap();
    readings.until("TCP", |reading| reading["host"]["via"] == "tcp");
    let err = readings.end();
    assert!(err.contains("over TCP instead") && err.contains("gap of"), "{err}");
}

#[test]
fn counts_of_a_paced_reading_tell_gaps_from_frames() {
    if !is_possible() {
        return;
    }
    let world = world();
    let arguments = ["read", HOST_IP[0], "--via", "kernel", "--interval", "10ms", "--count", "50", "--summary"];
    let last = |out: &str| serde_json::from_str::<Value>(out.lines().last().unwrap()).unwrap();
    let (code, out, _) = world.onlooker(&arguments);
    let summary = last(&out);
    assert_eq!((code, &summary["readings"], &summary["gaps"], &summary["anew"]), (0, &50.into(), &0.into(), &0.into()));
    assert_eq!((&summary["regions"], &summary["frames"]), (&2.into(), &100.into()));
    // On a loaded machine a reading may take longer than 10 ms; what it skips is counted, and is no gap.
    assert!(summary["skipped"]["slow_reading"].as_u64().is_some(), "{summary}");
    assert_eq!(
        summary["blocks"],
        50 * 3 + 5,
        "header and two regions a reading; once 2 entry blocks and 2 schemas and 1: {summary}"
    );

    let child =
        world.spawn(&["read", HOST_IP[0], "--via", "kernel", "--interval", "10ms", "--count", "150", "--summary"]);
    std::thread::sleep(Duration::from_millis(400));
    world.pinned.set_lease(Duration::ZERO).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    world.pinned.set_lease(Duration::from_secs(7200)).unwrap();
    let output = child.wait_with_output().unwrap();
    let summary = last(&String::from_utf8(output.stdout).unwrap());
    // One reading met with silence and bootstrapped again: a gap of each region, and the due times that passed meanwhile.
    assert_eq!(
        (&summary["anew"], &summary["gaps"], &summary["frames"]),
        (&1.into(), &2.into(), &300.into()),
        "{summary}"
    );
    assert_eq!(summary["gaps_by"][1], serde_json::json!({"region": "shop", "reason": "anew", "count": 1}));
    assert!(summary["skipped"]["slow_reading"].as_u64().unwrap() > 20, "{summary}");
}

#[test]
fn the_kernels_metrics_are_computed_at_each_reading_whatever_the_longest_read_is() {
    if !is_possible() {
        return;
    }
    for max_read_bytes in [1024, 8192] {
        let mut world = World::with(max_read_bytes, 9000);
        world.region(1, "shop", "shop_open", BOTH);
        let groups = world.computed(10);
        assert!(!groups.is_empty());
        let (code, out, err) = world.onlooker(&["read", HOST_IP[0], "--json", "--via", "kernel"]);
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, err.as_str(), names(&json).len()), (0, "", 1 + groups.len()));
        for region in &json["regions"].as_array().unwrap()[1..] {
            assert_eq!(region["acquisition"], serde_json::json!(["computed"]));
            assert!(region["problem"].is_null() && region["refused"].is_null(), "{region}");
        }
        let samples = json["samples"].as_array().unwrap();
        let computed: Vec<_> = samples.iter().filter(|sample| sample["region"].as_u64() >= Some(10)).collect();
        assert!(computed.len() > 20, "{}", computed.len());
        let (code, out, err) = world.onlooker(&[
            "read",
            HOST_IP[0],
            "--via",
            "kernel",
            "--interval",
            "10ms",
            "--count",
            "100",
            "--summary",
        ]);
        let summary: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert_eq!(
            (code, err.as_str(), &summary["gaps"]),
            (0, "", &0.into()),
            "each reading has fresh times: {summary}"
        );
        assert_eq!(summary["frames"], 100 * (1 + groups.len()));
    }
}

#[test]
fn answers_are_no_longer_than_the_way_carries() {
    if !is_possible() {
        return;
    }
    const LONG: &str = r#"{"name":"long","groups":[{"kind":"plain","blocks":32,"fields":[{"name":"long","metric":"gauge","type":"u64"}]}]}"#;
    for (mtu, expected) in [(1500, 32), (5000, 8), (9000, 4)] {
        let mut world = World::with(8192, mtu);
        world.region_of(1, "long", LONG, RESPONDER_KERNEL);
        for ip in HOST_IP {
            let before = world.pinned.counters().unwrap();
            let (code, out, err) = world.onlooker(&["read", &bracketed(ip), "--json", "--via", "kernel"]);
            let json: Value = serde_json::from_str(&out).unwrap();
            assert_eq!((code, err.as_str(), value_of(&json, "long")), (0, "", Some(0)), "{ip} {mtu}");
            let answered = world.pinned.counters().unwrap().since(&before).get(Exit::Answered);
            assert!((expected..expected + 6).contains(&answered), "{ip} {mtu}: {answered}");
        }
    }
}

#[test]
fn doctor_looks_at_both_responders_and_at_the_pins() {
    if !is_possible() {
        return;
    }
    let world = world();
    let status = |json: &Value, what: &str| {
        let checks = json["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["what"] == what);
        found.map(|check| (check["status"].as_str().unwrap().to_owned(), check["detail"].as_str().unwrap().to_owned()))
    };
    for ip in HOST_IP {
        let (code, out, _) = world.onlooker(&["doctor", &bracketed(ip), "--json"]);
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(code, 0, "{json:#}");
        for (what, part) in [
            ("pair soft-kernel", "answers"),
            ("soft-kernel regions", "2 of 3 in the directory"),
            ("soft-kernel READs", "100 of one block: min "),
            ("pair tcp", "answers"),
            ("tcp regions", "2 of 3 in the directory"),
            ("tcp READs", "p50"),
        ] {
            let checks: Vec<_> = json["checks"].as_array().unwrap().iter().filter(|c| c["what"] == what).collect();
            let last = checks.last().unwrap_or_else(|| panic!("{what}"));
            assert!(last["status"] == "ok" && last["detail"].as_str().unwrap().contains(part), "{ip} {what}: {last}");
        }
    }
    world.pinned.set_lease(Duration::from_secs(60)).unwrap();
    world.pinned.disallow(Prefix::host("10.79.1.2".parse().unwrap())).unwrap();
    let (code, out, _) = world.onlooker(&["doctor", HOST_IP[0], "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    let checks = json["checks"].as_array().unwrap();
    let refused = checks.iter().rfind(|check| check["what"] == "pair soft-kernel").unwrap();
    assert!(code == 1 && refused["status"] == "fail" && refused["detail"].as_str().unwrap().contains("[kernel] allow"));

    // At the host itself: the pins, the lease, the drops and what to do about them.
    let (_, out, _) = World::at_host(&["doctor", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    for (what, expected, part) in [
        ("responder test", "ok", "UDP port 7179"),
        ("responder test lease", "warn", "left"),
        ("responder test device", "ok", "tc on ve1: 10.79.1.1"),
        ("responder test answered", "ok", "READs"),
        ("responder test dropped source", "warn", "packets"),
        ("device ve1", "ok", "an Onlooker responder"),
        ("kernel feature tcx", if onlooker_responder::probe::has_tcx() { "ok" } else { "warn" }, ""),
    ] {
        let (status, detail) = status(&json, what).unwrap_or_else(|| panic!("{what}: {json:#}"));
        assert!(status == expected && detail.contains(part), "{what}: {status} {detail}");
    }
    world.pinned.set_lease(Duration::ZERO).unwrap();
    let (code, out, _) = World::at_host(&["doctor"]);
    assert!(code == 1 && out.contains("fail responder test lease: over since"), "{out}");
}

#[test]
fn doctor_compares_what_could_be_computed_with_procfs() {
    if !is_possible() {
        return;
    }
    let (_, out, err) = World::at_host(&["doctor", "--metrics", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    let all = json["checks"].as_array().unwrap();
    let with = |prefix: &str| all.iter().filter(|check| check["what"].as_str().unwrap().starts_with(prefix)).count();
    assert!(with("computed ") >= 4 && with("kernel variable ") > 0, "{json:#}");
    // On a kernel that has them all. Elsewhere the line says why not.
    let load = all.iter().find(|check| check["what"] == "computed load").unwrap();
    assert!(load["status"] == "warn" || with("metric node_load") >= 3, "{json:#}");
}
