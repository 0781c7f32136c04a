// SPDX-License-Identifier: Apache-2.0
//! One truth: `onlooker read --prometheus` and the controller's `/metrics` have the same series of a host, by every responder.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use onlooker_testbed::{Agent, Controller, Namespace, get, is_root, until};

/// Series without values: what stands before the last space of a line.
fn series(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

/// Those of the host in the controller's exposition, without what the reading adds: the label `instance`, and metrics of how it is read.
fn of_host(text: &str) -> BTreeSet<String> {
    let all = series(text).into_iter();
    let all = all.filter(|series| series.contains(r#"instance="one""#) && !series.starts_with("onlooker_host_"));
    let bare = |series: String| {
        let bare = series.replace(r#"{instance="one"}"#, "").replace(r#"{instance="one","#, "{");
        bare.replace(r#",instance="one""#, "")
    };
    all.map(bare).collect()
}

/// The agent samples for the kernel responder every five seconds.
const SAMPLED: Duration = Duration::from_secs(10);

/// What either has and the other has not, once that is nothing, or does not change for long.
fn same(agent: &Agent, via: &str) -> BTreeSet<String> {
    let target = agent.target("one") + &format!("interval = \"100ms\"\nvia = {via:?}\n");
    let controller = Controller::start("", &target);
    let read = || {
        let output = Command::new(env!("CARGO_BIN_EXE_onlooker"))
            .args(["read", &agent.address(), "--via", via, "--prometheus"])
            .env("ONLOOKER_TOKEN", agent.token())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && err.is_empty(), "{err}");
        series(&String::from_utf8(output.stdout).unwrap())
    };
    let mut all = BTreeSet::new();
    let mut differ = BTreeSet::new();
    // Rows come and go between the two readings, and samples come after seconds; what differs for good stays.
    let mut since = Instant::now();
    until("the same series, or always the same difference", || {
        let (controllers, mine) = (of_host(&get(controller.address(), "/metrics")), read());
        let now: BTreeSet<String> = controllers.symmetric_difference(&mine).cloned().collect();
        if now != differ {
            since = Instant::now();
        }
        let is_settled = mine.len() > 300 && (now.is_empty() || since.elapsed() > SAMPLED);
        (all, differ) = (mine, now);
        is_settled.then_some(())
    });
    assert!(differ.is_empty(), "{via}: {differ:?}");
    all
}

#[test]
fn over_tcp() {
    same(&Agent::start(), "tcp");
}

#[test]
fn over_the_kernel_responder() {
    if !is_root("what is read over the kernel responder") {
        return;
    }
    let namespace = Namespace::new();
    let all = same(&Agent::start_kernel(&namespace, ""), "kernel");
    // Sums are told as sums, and a CPU's part of one by nobody.
    for sum in ["node_filefd_allocated", "node_vmstat_pgfault", "node_context_switches_total", "node_processes_pids"] {
        assert!(all.contains(sum), "{sum}");
    }
    assert!(!all.iter().any(|series| series.starts_with("node_filefd_allocated{")));
}
