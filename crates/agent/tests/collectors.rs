// SPDX-License-Identifier: Apache-2.0
//! Collectors of the operator's own, from their files to a reader: the shipped examples, one that faults, bad ones, and what a restart makes of them. Real BPF programs on
//! loopback in a namespace. Needs root, and clang for the example in C, as docs/user-collectors.md has users compile it.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Place;
use common::world::{KernelReader, World};
use onlooker_agent_lib::config::Config;
use onlooker_agent_lib::units::Span;
use onlooker_region::control::RESPONDER_KERNEL;
use onlooker_testbed::{run, until};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn value(metric: &str, from: &str) -> String {
    format!("[[value]]\nmetric = \"{metric}\"\nkind = \"gauge\"\nfrom = \"{from}\"\n")
}

fn table(name: &str, values: &str) -> String {
    format!("name = \"{name}\"\n{values}")
}

/// The documented command, with the headers where they are in the repository, and libbpf's, which need not be installed here, as the build has them.
fn compile(source: &Path, object: &Path, define: &str) {
    let libbpf = tempfile::tempdir().expect("a directory");
    fs::create_dir(libbpf.path().join("bpf")).expect("makes it");
    for (name, text) in libbpf_rs::libbpf_sys::API_HEADERS {
        fs::write(libbpf.path().join("bpf").join(name), text).expect("writes");
    }
    let headers = format!("{REPOSITORY}/crates/responder/bpf/user");
    let machine = format!("/usr/include/{}-linux-gnu", run("uname", &["-m"]).trim());
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let (source, object) = (text(source), text(object));
    let target = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", define];
    run(
        "clang",
        &[&target[..], &["-I", &headers, "-I", &machine, "-I", &text(libbpf.path()), "-c", &source, "-o", &object]]
            .concat(),
    );
}

/// The examples as they are shipped, in a directory of their own.
fn examples() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let from = PathBuf::from(format!("{REPOSITORY}/examples/collectors"));
    for name in ["tcp.toml", "run_queue.toml"] {
        fs::copy(from.join(name), directory.path().join(name)).expect("copies");
    }
    compile(&from.join("run_queue.bpf.c"), &directory.path().join("run_queue.bpf.o"), "-DONLOOKER");
    directory
}

/// Other tests run beside: ten times the default budget.
fn with(directory: &Path) -> impl FnOnce(&mut Config) {
    let directory = directory.to_owned();
    move |config| {
        config.kernel.collectors = directory;
        config.kernel.collector_budget = Span::from_ns(50_000);
        config.kernel.groups.clear();
    }
}

fn is_there(reader: &mut KernelReader, region: &str) -> bool {
    reader.outcomes().contains_key(region)
}

#[test]
fn both_examples_are_read_over_the_kernel_responder() {
    let Some(world) = World::new() else { return };
    let directory = examples();
    let place = world.place(&["lo"], with(directory.path()));
    let mut agent = place.start();
    agent.until("user_tcp is computed when it is read, ");
    let mut reader = KernelReader::connect(&agent);
    until("both regions", || {
        (is_there(&mut reader, "user_tcp") && is_there(&mut reader, "user_run_queue")).then_some(())
    });
    let series = reader.series();
    let one = |name: &str, label: &str, of: &str| {
        let is_it = |series: &&common::world::Series| {
            series.name == name && (label.is_empty() || series.labels.get(label).is_some_and(|own| own == of))
        };
        series.iter().find(is_it).unwrap_or_else(|| panic!("no {name} {of} in {series:?}")).value
    };
    let sysctl = fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").expect("reads");
    for (limit, expected) in ["min", "default", "max"].iter().zip(sysctl.split_whitespace()) {
        let expected: f64 = expected.parse().expect("a number");
        assert!((one("example_tcp_receive_buffer_bytes", "limit", limit) - expected).abs() < 0.5);
    }
    assert!(one("example_pids", "", "") >= 2.0 && one("example_page_faults_total", "cpu", "0") > 0.0);
    assert!(one("example_run_queue_longest", "", "") >= 1.0);
    for region in ["user_tcp", "user_run_queue"] {
        let entry = agent.reader().region(region).expect("the directory has it");
        assert_eq!(entry.responders, RESPONDER_KERNEL, "computed at the READ: not over TCP");
    }
}

#[test]
fn one_that_faults_and_bad_ones_cost_nobody_else_anything() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let put = |name: &str, text: String| fs::write(directory.path().join(name), text).expect("writes");
    let source = format!("{REPOSITORY}/crates/metrics/src/user/refused.bpf.c");
    compile(Path::new(&source), &directory.path().join("flaky.bpf.o"), "-DREFUSED_FLAKY");
    compile(Path::new(&source), &directory.path().join("loop.bpf.o"), "-DREFUSED_LOOP");
    let slot = "[[value]]\nmetric = \"runs_total\"\nkind = \"counter\"\nslot = 0\ntype = \"u64\"\n";
    put("flaky.toml", format!("name = \"flaky\"\nobject = \"flaky.bpf.o\"\n{slot}"));
    put("loop.toml", format!("name = \"loop\"\nobject = \"loop.bpf.o\"\n{slot}"));
    put("good.toml", table("good", &value("good_pid", "init_task.pid")));
    put("member.toml", table("member", &value("bad_member", "init_task.pit")));
    put("taken.toml", table("taken", &value("good_pid", "init_task.tgid")));
    let place = world.place(&["lo"], with(directory.path()));
    let mut agent = place.start();
    // In the order of the report: what is served last.
    let said = agent.until("user_good is computed when it is read");
    for part in [
        "loop.toml is not computed: object: program fill_tc: instruction ",
        "calls helper 181 (bpf_loop)",
        "member.toml is not computed: [[value]] 1 (bad_member): from: init_task is struct task_struct, which has no member pit; it has: pid",
        "taken.toml is not computed: metric good_pid is told by another file already",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let mut reader = KernelReader::connect(&agent);
    until("the regions", || (is_there(&mut reader, "user_good") && is_there(&mut reader, "user_flaky")).then_some(()));
    // It answers three READs, then faults.
    let outcomes = until("the fault", || {
        let outcomes = reader.outcomes();
        outcomes["user_flaky"].is_err().then_some(outcomes)
    });
    assert_eq!(outcomes["user_good"], Ok(vec![("good_pid".to_owned(), 0.0)]), "{outcomes:?}");
    for region in ["onlooker_agent", "onlooker_responder"] {
        assert!(outcomes[region].is_ok(), "{region} of {outcomes:?}");
    }
    assert!(!outcomes.contains_key("user_loop") && !outcomes.contains_key("user_member"), "{outcomes:?}");
}

#[test]
fn a_restart_keeps_what_is_the_same_and_follows_what_has_changed() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let put = |name: &str, text: String| fs::write(directory.path().join(name), text).expect("writes");
    put("b.toml", table("same", &value("same_pid", "init_task.pid")));
    put("c.toml", table("other", &value("other_pid", "init_task.pid")));
    put("d.toml", table("gone", &value("gone_pid", "init_task.pid")));
    let place = world.place(&["lo"], with(directory.path()));
    let mut agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    until("three regions", || {
        ["user_same", "user_other", "user_gone"].iter().all(|name| is_there(&mut reader, name)).then_some(())
    });
    let before = reader.region("user_same").expect("it is there").entry;
    let other = reader.region("user_other").expect("it is there").entry;
    agent.kill();
    assert!(reader.region("user_same").is_some(), "without an agent, too");

    // One more in front, one with another class, one less.
    put("a.toml", table("first", &value("first_tgid", "init_task.tgid")));
    put("c.toml", table("other", &value("other_priority", "init_task.static_prio")));
    fs::remove_file(directory.path().join("d.toml")).expect("removes");
    let agent = place.start();
    until("what has changed", || {
        let there = reader.outcomes();
        (there.contains_key("user_first") && !there.contains_key("user_gone")).then_some(())
    });
    let after = reader.region("user_same").expect("it goes on").entry;
    assert_eq!(
        (after.identity, after.rkey, after.va, after.pid),
        (before.identity, before.rkey, before.va, agent.pid())
    );
    let changed = reader.region("user_other").expect("it is there");
    assert!(
        (changed.value("other_priority") - 120.0).abs() < 0.5 && changed.entry.identity != other.identity,
        "{changed:?}"
    );
}

#[test]
fn files_can_be_tried_before_they_are_installed() {
    if !onlooker_testbed::is_root("a collector is checked") {
        return;
    }
    let directory = examples();
    let place = Place::new(|config| config.kernel.collector_budget = Span::from_ns(50_000));
    let check = |names: &[&str]| {
        let files: Vec<String> = names.iter().map(|name| directory.path().join(name).display().to_string()).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let output = place.command(&[&["collectors", "check"], &files[..]].concat()).output().expect("runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, said, _) = check(&["tcp.toml", "run_queue.toml"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("region user_tcp, 1 blocks of ") && said.contains("region user_run_queue, 1 blocks of "),
        "{said}"
    );
    assert!(
        said.contains("example_tcp_receive_buffer_bytes: 3 of 4 bytes, signed, behind 0 pointers, 1 reads"),
        "{said}"
    );
    fs::write(directory.path().join("bad.toml"), table("bad", &value("m", "nothing.at.all"))).expect("writes");
    let (code, said, error) = check(&["bad.toml", "tcp.toml"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("region user_tcp") && error.contains("bad.toml: [[value]] 1 (m): from: there is no root nothing"),
        "{error}"
    );
}

#[test]
fn without_a_kernel_responder_they_are_not_served_and_the_agent_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("a.toml"), table("a", &value("m", "init_task.pid"))).expect("writes");
    let place = Place::new(with(directory.path()));
    let agent = place.start();
    assert!(agent.log.contains("1 user collectors in ") && agent.log.contains("are not served"), "{}", agent.log);
}
