// SPDX-License-Identifier: Apache-2.0
//! A controller over the kernel responders of real agents: nobody wakes, agents come and go, links break.

use std::time::{Duration, Instant};

use onlooker_testbed::{Agent, Controller, Namespace, get, is_root, request, until};
use serde_json::Value;

fn host(controller: &Controller, name: &str) -> Value {
    // Nothing of it while it is not watched yet.
    let answer = request(controller.address(), "GET", &format!("/api/v1/hosts/{name}"), "", "");
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
    let controller =
        Controller::start("", &[first.target("one"), every.into(), second.target("two"), every.into()].concat());
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
    let lost = |host: &Value| host["gaps"].as_object().unwrap().iter().filter(|(reason, _)| *reason != "late").count();
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
}
