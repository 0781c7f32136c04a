// SPDX-License-Identifier: Apache-2.0
//! How long tasks wait, over the kernel responder: off unless switched on, over the agent's end and restart, and off again. Real BPF programs on loopback in a namespace. Needs root.

mod common;

use std::time::Duration;

use common::world::{KernelReader, World};
use onlooker_testbed::until;

const REGION: &str = "onlooker_scheduler";
const METRICS: [&str; 2] = ["onlooker_run_queue_latency_seconds", "onlooker_wakeup_latency_seconds"];

/// Waits counted so far, of all CPUs; `None` while there is no such region.
fn waits(reader: &mut KernelReader) -> Option<f64> {
    let series = reader.series();
    let ours: Vec<_> = series.iter().filter(|one| one.region == REGION).collect();
    let counts = ours.iter().filter(|one| METRICS.contains(&one.name.as_str()));
    let cpus =
        std::fs::read_to_string("/proc/stat").expect("stat").lines().filter(|l| l.starts_with("cpu")).count() - 1;
    if !ours.is_empty() {
        assert!(counts.clone().count() >= 2 * cpus, "both of each CPU: {ours:?}");
        assert!(counts.clone().all(|one| one.labels.contains_key("cpu")));
    }
    (!ours.is_empty()).then(|| counts.map(|one| one.value).sum())
}

/// Waits more than that many; reading alone makes some.
fn more_than(reader: &mut KernelReader, count: f64) -> f64 {
    until("more waits", || {
        std::thread::sleep(Duration::from_millis(2));
        waits(reader).filter(|now| *now > count)
    })
}

#[test]
fn waits_are_counted_while_switched_on_with_or_without_the_agent() {
    let Some(world) = World::new() else { return };
    let directory = world.home().path().join("scheduler");
    let mut place = world.place(&["lo"], |_| ());
    let mut agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    until("computed groups", || reader.region("node_load"));
    assert_eq!(waits(&mut reader), None, "off unless switched on");
    assert!(!directory.exists(), "no program is loaded");
    agent.kill();

    place.config.kernel.scheduler_latency = true;
    place.write();
    let mut agent = place.start();
    agent.until("onlooker_scheduler is written at every wake-up");
    let mut reader = KernelReader::connect(&agent);
    let first = more_than(&mut reader, 0.0);
    let second = more_than(&mut reader, first);
    let identity = reader.region(REGION).expect("it is there").entry.identity;
    agent.kill();
    let third = more_than(&mut reader, second);
    let mut agent = place.start();
    agent.until("onlooker_scheduler is written at every wake-up");
    more_than(&mut reader, third);
    assert_eq!(reader.region(REGION).expect("it is there").entry.identity, identity, "the same region");
    agent.kill();

    place.config.kernel.scheduler_latency = false;
    place.write();
    let mut agent = place.start();
    assert!(!directory.exists(), "detached before anybody could be given the memory");
    agent.until("not computed, so sampled");
    let mut reader = KernelReader::connect(&agent);
    until("the region's end", || reader.region(REGION).is_none().then_some(()));
}
