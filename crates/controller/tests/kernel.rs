// SPDX-License-Identifier: Apache-2.0
//! A controller over the kernel responders of real agents: nobody wakes, agents come and go, links break.

use std::time::{Duration, Instant};

use onlooker_testbed::{Agent, Controller, Namespace, get, is_root, request, until};
use serde_json::Value;

fn host(controller: &Controller, name: &str) -> Value {
    // Nothing of it while it is not watched yet.
    let answer = request(controller.address(), "GET", &format!("/api/onlooker/v1/hosts/{name}"), "", "");
    if answer.status == 404 { Value::Null } else { answer.json() }
}

fn due_times(host: &Value) -> u64 {
    let gaps = host["gaps"].as_object().unwrap().values();
    host["cycles"].as_u64().unwrap() + gaps.map(|count| count.as_u64().unwrap()).sum::<u64>()
}

#[test]
fn hosts_are_read_in_softirq_while_their_agents_die() {
    if !is_root("a controller over the kernel responder") {
        return;
    }
    let (one, two) = (Namespace::new(), Namespace::new());
    let (mut first, second) = (Agent::start_kernel(&one, ""), Agent::start_kernel(&two, ""));
    let every = "interval = \"10ms\"\n";
    // It polls for answers, and must not for those that do not come.
    let hybrid = "[read]\nwait = \"hybrid\"\n";
    let targets = [first.target("one"), every.into(), second.target("two"), every.into()].concat();
    let controller = Controller::start("", &[hybrid, &targets].concat());
    for name in ["one", "two"] {
        until("readings", || host(&controller, name)["cycles"].as_u64().filter(|cycles| *cycles > 50));
        assert_eq!(host(&controller, name)["via"], "kernel");
    }
    // The agent is gone: its responder is not.
    first.kill();
    let before = host(&controller, "one");
    let (begin, settled) = (Instant::now(), due_times(&before));
    std::thread::sleep(Duration::from_secs(2));
    let after = host(&controller, "one");
    assert_eq!(after["state"], "reading", "{after}");
    // Where the machine has much to do it is the controller that is late, or behind.
    let is_lost = |reason: &str| !matches!(reason, "late" | "behind");
    let lost = |host: &Value| host["gaps"].as_object().unwrap().keys().filter(|reason| is_lost(reason)).count();
    assert_eq!(lost(&before), lost(&after), "{after}");
    // Each due time is a reading or a gap.
    let expected = begin.elapsed().as_millis() / 10;
    let told = u128::from(due_times(&after) - settled);
    assert!(told.abs_diff(expected) < expected / 10 + 3, "{told} of {expected}");
    first.run();

    // A link that breaks is a gap with its reason, and over when it is back.
    two.link(false);
    until("a gap", || {
        let host = host(&controller, "two");
        let gaps = host["gaps"].as_object()?.iter().any(|(reason, _)| reason == "timeout" || reason == "lost");
        (gaps && host["state"] != "reading").then_some(())
    });
    two.link(true);
    let back = until("it is read again", || Some(host(&controller, "two")).filter(|host| host["state"] == "reading"));
    let cycles = back["cycles"].as_u64().unwrap();
    until("more readings", || (host(&controller, "two")["cycles"].as_u64()? > cycles + 10).then_some(()));
    let metrics = get(controller.address(), "/metrics");
    for name in ["one", "two"] {
        assert!(metrics.contains(&format!("onlooker_host_up{{instance=\"{name}\"}} 1")), "{metrics}");
    }
    let count = |series: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series}: {metrics}")).parse::<u64>().unwrap()
    };
    let (sent, unanswered) = (
        count("onlooker_controller_soft_requests_total"),
        count("onlooker_controller_soft_failures_total{reason=\"unanswered\"}"),
    );
    assert!(unanswered > 0 && sent > 100 + unanswered, "{unanswered} of {sent} while a link was down");
}

/// Values of a host's series whose name and labels begin so.
fn values(metrics: &str, series: &str) -> Vec<f64> {
    let lines = metrics.lines().filter(|line| line.starts_with(series) && line.contains("instance=\"one\""));
    lines.map(|line| line.rsplit_once("} ").unwrap().1.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// The number behind a word at the beginning of a line.
fn procfs(path: &str, word: &str) -> f64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(word));
    line.unwrap_or_else(|| panic!("{path} has no {word}")).split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn what_cpus_count_in_the_kernel_is_shown_as_node_exporter_has_it() {
    if !is_root("a controller over the kernel responder") {
        return;
    }
    let one = Namespace::new();
    let agent = Agent::start_kernel(&one, "");
    let controller = Controller::start("", &[agent.target("one"), "interval = \"10ms\"\n".into()].concat());
    let metrics = || get(controller.address(), "/metrics");
    until("sums over CPUs", || (!values(&metrics(), "node_vmstat_pgfault{").is_empty()).then_some(()));
    for (series, path, word) in [
        ("node_intr_total{", "/proc/stat", "intr"),
        ("node_forks_total{", "/proc/stat", "processes"),
        ("node_context_switches_total{", "/proc/stat", "ctxt"),
        ("node_vmstat_pgfault{", "/proc/vmstat", "pgfault"),
        ("node_vmstat_oom_kill{", "/proc/vmstat", "oom_kill"),
    ] {
        until(series, || {
            let before = procfs(path, word);
            std::thread::sleep(Duration::from_millis(100));
            let seen = values(&metrics(), series);
            assert!(seen.len() <= 1, "{series} is there {} times", seen.len());
            (*seen.first()? >= before && *seen.first()? <= procfs(path, word)).then_some(())
        });
    }
    let metrics = metrics();
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(values(&metrics, "node_procs_blocked{").len(), 1);
    assert_eq!(values(&metrics, "node_softirqs_total{").len(), 10);
    for whole in ["node_filefd_allocated{", "node_processes_pids{"] {
        assert_eq!(values(&metrics, whole).len(), 1, "{whole}");
    }
    assert_eq!(values(&metrics, "onlooker_interrupts_total{").len(), cpus);
    assert_eq!(values(&metrics, "onlooker_softirq_pending{").len(), 10 * cpus);
    if std::fs::read("/proc/pressure/cpu").is_ok() {
        assert_eq!(values(&metrics, "node_pressure_cpu_waiting_seconds_total{").len(), 1);
        assert_eq!(values(&metrics, "onlooker_pressure_in_progress{").len(), 5 * cpus);
    }
}
