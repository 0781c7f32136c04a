// SPDX-License-Identifier: Apache-2.0
//! Ways of acquiring, chosen for each group: published by a timer of the kernel, sampled, and over TCP at each request. Real BPF programs on loopback in a namespace.
//! Needs root.

mod common;

use std::time::Duration;

use common::world::{KernelReader, Series, World};
use onlooker_agent_lib::config::Config;
use onlooker_agent_lib::config::acquisition::Acquisition as Way;
use onlooker_agent_lib::host::boot_time_ns;
use onlooker_agent_lib::units::Span;
use onlooker_region::schema::Acquisition;
use onlooker_testbed::until;

const INTERVAL_NS: u64 = 10_000_000;

fn ways(config: &mut Config) {
    config.kernel.acquisition.insert("cpu".into(), Way::Published(Span::from_ns(INTERVAL_NS)));
    config.kernel.acquisition.insert("load".into(), Way::Sampled);
    config.kernel.sample = Span::from_ms(200);
}

fn of<'a>(series: &'a [Series], region: &str) -> Vec<&'a Series> {
    series.iter().filter(|one| one.region == region).collect()
}

/// Reads until all three ways are there.
fn all(reader: &mut KernelReader) -> Vec<Series> {
    until("what is computed, published and sampled", || {
        let series = reader.series();
        let is_there = |region: &&str| !of(&series, region).is_empty();
        let is_written = of(&series, "node_cpu").iter().all(|one| one.time_ns > 0);
        (["node_cpu", "node_memory", "node_load_sampled"].iter().all(is_there) && is_written).then_some(series)
    })
}

/// Published values of now: none is older than some intervals.
fn fresh(reader: &mut KernelReader) -> u64 {
    until("published values of now", || {
        let series = reader.series();
        let cpu = of(&series, "node_cpu");
        let oldest_ns = cpu.iter().map(|one| one.time_ns).min()?;
        (boot_time_ns() - oldest_ns < 10 * INTERVAL_NS).then_some(oldest_ns)
    })
}

#[test]
fn each_group_is_acquired_as_the_configuration_says_and_published_ones_outlive_the_agent() {
    let Some(world) = World::new() else { return };
    let mut place = world.place(&["lo"], ways);
    let mut agent = place.start();
    agent.until("node_cpu is published every 10ms");
    let mut reader = KernelReader::connect(&agent);
    let series = all(&mut reader);
    assert!(of(&series, "node_cpu").iter().all(|one| one.acquisition == Acquisition::Published), "{series:?}");
    assert!(of(&series, "node_memory").iter().all(|one| one.acquisition == Acquisition::Computed));
    assert!(of(&series, "node_load_sampled").iter().any(|one| one.name == "node_load1"), "sampled, since not computed");
    assert!(of(&series, "node_load").is_empty());
    let before_ns = fresh(&mut reader);
    let identity = reader.region("node_cpu").expect("it is there").entry.identity;

    agent.kill();
    std::thread::sleep(Duration::from_millis(100));
    assert!(fresh(&mut reader) > before_ns, "the kernel goes on");
    let agent = place.start();
    all(&mut reader);
    let at_ns = boot_time_ns();
    until("values of after the restart", || (fresh(&mut reader) > at_ns).then_some(()));
    assert_eq!(reader.region("node_cpu").expect("it is there").entry.identity, identity, "the same region");
    drop(agent);

    // Computed again: the timer is gone, and its memory is given back.
    place.config.kernel.acquisition.clear();
    place.write();
    let agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    until("computed values", || {
        let series = reader.series();
        let cpu = of(&series, "node_cpu");
        (!cpu.is_empty() && cpu.iter().all(|one| one.acquisition == Acquisition::Computed)).then_some(())
    });
    assert!(!world.home().path().join("publications/cpu").exists());
}

#[test]
fn over_tcp_each_request_can_have_samples_of_its_own() {
    let place = common::Place::new(|config| config.sampled.interval = Span::from_ns(0));
    let agent = place.start();
    let mut reader = agent.reader();
    // Each look at the counter is some requests: the directory, the schema, the block.
    let mut count = || reader.counter("samples_total");
    let first = count();
    std::thread::sleep(Duration::from_millis(300));
    let second = count();
    assert!(second > first, "a request, a sample: {first}, {second}");
    std::thread::sleep(Duration::from_secs(1));
    let third = count();
    assert!(third > second && third - second <= second - first, "no time, no sample: {first}, {second}, {third}");
}
