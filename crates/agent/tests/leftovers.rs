// SPDX-License-Identifier: Apache-2.0
//! What the kernel responder does not compute, sampled beside it: real BPF programs on loopback in a namespace, read by the soft requester. Needs root.
#![allow(clippy::float_cmp, reason = "counts")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use common::world::{KernelReader, Series, World};
use onlooker_agent_lib::config::Config;
use onlooker_agent_lib::host::boot_time_ns;
use onlooker_agent_lib::units::Span;
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP};
use onlooker_region::schema::Acquisition;
use onlooker_testbed::{run, until};

fn every(ms: u64) -> impl FnOnce(&mut Config) {
    move |config| config.kernel.sample = Span::from_ms(ms)
}

fn find<'a>(series: &'a [Series], name: &str) -> &'a Series {
    series.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Reads until what the collectors' loader reports is served.
fn all(reader: &mut KernelReader) -> Vec<Series> {
    until("what is computed and what is sampled", || {
        let series = reader.series();
        let is_there = |region: &str| series.iter().any(|one| one.region == region);
        ["node_cpu", "node_memory", "node_cpu_sampled", "node_memory_sampled"]
            .into_iter()
            .all(is_there)
            .then_some(series)
    })
}

/// Nothing is there twice, and nothing is there by CPU and as a sum.
fn none_is_twice(series: &[Series]) {
    let mut with_cpu = BTreeSet::new();
    let mut without_cpu: BTreeMap<_, &str> = BTreeMap::new();
    for one in series {
        assert!(with_cpu.insert((&one.name, &one.labels)), "twice: {one:?}");
        let mut labels = one.labels.clone();
        labels.remove("cpu");
        let other = without_cpu.entry((&one.name, labels)).or_insert(&one.region);
        assert_eq!(*other, one.region, "of two regions: {one:?}");
    }
}

fn meminfo() -> BTreeMap<String, f64> {
    let text = fs::read_to_string("/proc/meminfo").expect("reads");
    let lines = text.lines().map(|line| {
        let (name, rest) = line.split_once(':').expect("a colon");
        let mut words = rest.split_whitespace();
        let value: f64 = words.next().and_then(|word| word.parse().ok()).expect("a number");
        let name = name.replace('(', "_").replace(')', "");
        if words.next() == Some("kB") {
            (format!("node_memory_{name}_bytes"), value * 1024.0)
        } else {
            (format!("node_memory_{name}"), value)
        }
    });
    lines.collect()
}

fn stat(name: &str) -> f64 {
    let text = fs::read_to_string("/proc/stat").expect("reads");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).expect("a line");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

/// The column of a device in the caller's namespace.
fn device(name: &str, column: usize) -> f64 {
    let text = fs::read_to_string("/proc/thread-self/net/dev").expect("reads");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:"))).expect("a line");
    line.split_whitespace().nth(column).and_then(|word| word.parse().ok()).expect("a number")
}

/// A device whose driver counts in a way that no collector knows, on a bridge of its own, with a neighbour behind it.
fn add_macvlan(name: &str, third: u8) {
    let below = format!("{name}below");
    run("ip", &["link", "add", &below, "type", "bridge"]);
    run("ip", &["link", "set", &below, "up"]);
    run("ip", &["link", "add", name, "link", &below, "type", "macvlan"]);
    run("ip", &["address", "add", &format!("10.97.{third}.1/24"), "dev", name]);
    run("ip", &["link", "set", name, "up"]);
    run("ip", &["neighbour", "add", &format!("10.97.{third}.9"), "lladdr", "02:00:00:00:00:09", "dev", name]);
}

fn send_into(third: u8) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("binds");
    for _ in 0..20 {
        socket.send_to(&[1; 500], format!("10.97.{third}.9:9")).expect("sends");
    }
}

fn of_device<'a>(series: &'a [Series], name: &str, device: &str) -> Vec<&'a Series> {
    let is_of = |one: &&Series| one.name == name && one.labels.get("device").is_some_and(|label| label == device);
    series.iter().filter(is_of).collect()
}

const RECEIVED: &str = "node_network_receive_bytes_total";
const SENT: &str = "node_network_transmit_bytes_total";

#[test]
fn what_is_not_computed_is_sampled_beside_it() {
    let Some(world) = World::new() else { return };
    add_macvlan("agl0", 1);
    send_into(1);
    let place = world.place(&["lo"], every(200));
    let mut agent = place.start();
    agent.until("not computed, so sampled every 200ms");
    let mut reader = KernelReader::connect(&agent);
    let series = all(&mut reader);
    none_is_twice(&series);
    for one in series.iter().filter(|one| one.region.ends_with("_sampled")) {
        assert_eq!(one.acquisition, Acquisition::Sampled, "{one:?}");
        assert!(one.resolution_ns >= 200_000_000, "{one:?}");
    }
    // The whole of /proc/meminfo, one way or the other.
    let lines = meminfo();
    assert!(lines.keys().all(|line| series.iter().any(|one| one.name == *line)), "{lines:?}");
    for name in
        ["node_memory_Cached_bytes", "node_memory_Buffers_bytes", "node_memory_SwapTotal_bytes", "node_intr_total"]
    {
        assert!(find(&series, name).region.ends_with("_sampled"), "{name}");
    }
    assert_eq!(find(&series, "node_memory_SwapTotal_bytes").value, lines["node_memory_SwapTotal_bytes"]);
    assert_eq!(find(&series, "node_memory_CommitLimit_bytes").value, lines["node_memory_CommitLimit_bytes"]);
    assert_eq!(find(&series, "node_boot_time_seconds").value, stat("btime"));

    // Values are procfs's of when they say they were sampled, which is not long ago.
    let gauges = ["node_memory_Cached_bytes", "node_memory_Buffers_bytes", "node_memory_Committed_AS_bytes"];
    let begin = Instant::now();
    until("gauges as in procfs", || {
        let (before, series, after) = (meminfo(), reader.series(), meminfo());
        let is_inside = |name: &&str| {
            let value = find(&series, name).value;
            value >= before[*name].min(after[*name]) && value <= before[*name].max(after[*name])
        };
        gauges.iter().all(is_inside).then_some(())
    });
    assert!(begin.elapsed() < Duration::from_secs(15));
    let since = [stat("intr"), stat("processes"), stat("ctxt")];
    let since_ns = boot_time_ns();
    let series = until("a sample after that", || {
        let series = reader.series();
        (find(&series, "node_intr_total").time_ns > since_ns).then_some(series)
    });
    let end = [stat("intr"), stat("processes"), stat("ctxt")];
    for (number, name) in ["node_intr_total", "node_forks_total", "node_context_switches_total"].into_iter().enumerate()
    {
        let value = find(&series, name).value;
        assert!(value >= since[number] && value <= end[number], "{name}: {value}, {since:?}, {end:?}");
    }

    // Traffic of a device that no collector can count; one that it can has its other columns here.
    send_into(1);
    let sent = device("agl0", 8);
    assert!(sent > 20_000.0);
    let series = until("the traffic", || {
        let series = reader.series();
        (of_device(&series, SENT, "agl0").first().is_some_and(|one| one.value >= sent)).then_some(series)
    });
    none_is_twice(&series);
    assert_eq!(of_device(&series, SENT, "agl0").len(), 1);
    assert_eq!(of_device(&series, SENT, "agl0")[0].value, device("agl0", 8));
    assert!(of_device(&series, RECEIVED, "lo").iter().all(|one| one.region == "node_network"));
    for name in ["lo", "agl0"] {
        assert_eq!(of_device(&series, "node_network_receive_errs_total", name)[0].region, "node_network_sampled");
    }

    // Over TCP all is as it was.
    let mut over_tcp = agent.reader();
    assert_eq!(over_tcp.values("node_memory").len(), lines.len());
    assert!(over_tcp.values("node_network").contains_key("node_network_transmit_bytes_total{device=agl0}"));
    let ways: BTreeSet<(String, u32)> =
        over_tcp.regions().into_iter().map(|region| (region.name, region.responders)).collect();
    for (name, responders) in &ways {
        assert!(!name.ends_with("_sampled") || responders & RESPONDER_TCP == 0, "{ways:?}");
    }
    assert!(ways.contains(&("node_memory_sampled".to_owned(), RESPONDER_KERNEL)), "{ways:?}");
}

type IsDone = Box<dyn FnMut(&[Series]) -> bool>;

#[test]
fn devices_that_come_have_one_row_wherever_it_is() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], every(100));
    let agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    none_is_twice(&all(&mut reader));
    let is_sampled = |series: &[Series], name: &str| match of_device(series, RECEIVED, name)[..] {
        [] => None,
        [one, ..] => Some(one.region == "node_network_sampled"),
    };
    // Read all the time while they come, so that the collector may find them before the sampler does.
    let mut watch = |what: &str, mut is_done: IsDone| {
        until(what, || {
            let series = reader.series();
            none_is_twice(&series);
            is_done(&series).then_some(())
        });
    };
    add_macvlan("agl1", 2);
    run("ip", &["link", "add", "aglbr1", "type", "bridge"]);
    watch(
        "both",
        Box::new(move |series| is_sampled(series, "agl1") == Some(true) && is_sampled(series, "aglbr1") == Some(false)),
    );
    // More than a collector looks at in one READ.
    for number in 0..20 {
        run("ip", &["link", "add", &format!("aglbr2{number}"), "type", "bridge"]);
    }
    watch(
        "20 bridges",
        Box::new(move |series| (0..20).all(|number| is_sampled(series, &format!("aglbr2{number}")) == Some(false))),
    );
    run("ip", &["link", "delete", "agl1"]);
    run("ip", &["link", "delete", "aglbr1"]);
    watch(
        "the end of both",
        Box::new(move |series| is_sampled(series, "agl1").or(is_sampled(series, "aglbr1")).is_none()),
    );
    // The same name again, of the other kind.
    run("ip", &["link", "add", "agl1", "type", "bridge"]);
    watch("a bridge", Box::new(move |series| is_sampled(series, "agl1") == Some(false)));
}

#[test]
fn off_means_off() {
    let Some(world) = World::new() else { return };
    let mut place = world.place(&["lo"], every(0));
    let mut agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    until("what is computed", || reader.region("onlooker_responder"));
    // Once it has gone to sleep and what its start needed is given back.
    let mut idle = || {
        let before = (agent.switches(), agent.cpu_ticks());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            assert!(reader.series().iter().all(|one| !one.region.ends_with("_sampled")));
        }
        (agent.switches() - before.0, agent.cpu_ticks() - before.1)
    };
    let idle = [idle(), idle(), idle()];
    assert!(idle.contains(&(0, 0)), "nobody wakes up: {idle:?} context switches and ticks of CPU in 2 s each");
    agent.kill();
    // What an earlier agent has sampled does not stay.
    place.config.kernel.sample = Span::from_s(1);
    place.write();
    let mut agent = place.start();
    all(&mut reader);
    agent.kill();
    place.config.kernel.sample = Span::from_ms(0);
    place.write();
    let _agent = place.start();
    assert!(reader.series().iter().all(|one| !one.region.ends_with("_sampled")));
}

#[test]
fn without_readers_it_pauses_longer_and_longer() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], every(100));
    let agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    all(&mut reader);
    let samples = |reader: &mut KernelReader| reader.value_of("onlooker_agent", "onlooker_agent_samples_total");
    // A busy machine has one such second of several.
    until("a second of samples", || {
        let (first, begin) = (samples(&mut reader), Instant::now());
        while begin.elapsed() < Duration::from_secs(1) {
            reader.series();
            std::thread::sleep(Duration::from_millis(20));
        }
        let (read, took) = (samples(&mut reader) - first, begin.elapsed().as_secs_f64());
        assert!(read <= took * 10.0 + 1.0, "{read} samples in {took} s");
        (read >= 5.0).then_some(())
    });
    until("four quiet seconds, and a reader that is served at once", || {
        std::thread::sleep(Duration::from_millis(300));
        let before = (samples(&mut reader), agent.switches());
        // 100 ms for the READ just now, then pauses of 200, 400, 800, 1600, 3200 ms.
        std::thread::sleep(Duration::from_secs(4));
        let switches = agent.switches() - before.1;
        let unread = samples(&mut reader) - before.0;
        let began_ns = boot_time_ns();
        let mut other = KernelReader::connect(&agent);
        until("a fresh sample", || (find(&other.series(), "node_intr_total").time_ns > began_ns).then_some(()));
        // Not at the end of a pause.
        let is_at_once = boot_time_ns() - began_ns < 400_000_000;
        (unread <= 1.0 && switches <= 8 && is_at_once).then_some(())
    });
}

#[test]
fn a_metric_that_fails_its_check_is_sampled() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], every(200));
    // In the namespace of this test only: CPU times that stand still, and more of them stolen than ever were.
    let text = fs::read_to_string("/proc/stat").expect("reads");
    let lie = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with("cpu") {
            words[8] = "123456789012";
        }
        words.join(" ")
    };
    let lies: Vec<String> = text.lines().map(lie).collect();
    let path = place.dir.path().join("stat");
    fs::write(&path, lies.join("\n") + "\n").expect("writes");
    run("mount", &["--bind", path.to_str().expect("text"), "/proc/stat"]);
    let mut agent = place.start();
    agent.until("node_cpu is computed when it is read, without");
    run("umount", &["--lazy", "/proc/stat"]);
    let mut reader = KernelReader::connect(&agent);
    let series = all(&mut reader);
    none_is_twice(&series);
    let of_mode = |name: &str, mode: &str| {
        let is_it = |one: &&Series| one.name == name && one.labels.get("mode").is_some_and(|label| label == mode);
        let one = series.iter().find(is_it).unwrap_or_else(|| panic!("no {mode} of {name}"));
        (one.region.as_str(), one.acquisition)
    };
    assert_eq!(of_mode("node_cpu_seconds_total", "steal"), ("node_cpu_sampled", Acquisition::Sampled));
    assert_eq!(of_mode("node_cpu_guest_seconds_total", "nice"), ("node_cpu", Acquisition::Computed));
    for mode in ["user", "nice", "system", "idle", "iowait", "irq", "softirq"] {
        of_mode("node_cpu_seconds_total", mode);
    }
}

#[test]
fn what_nobody_computes_is_sampled_whole() {
    let Some(world) = World::new() else { return };
    add_macvlan("agl0", 1);
    let place = world.place(&["lo"], |config| {
        config.kernel.groups.clear();
        config.kernel.sample = Span::from_ms(200);
    });
    let agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    let series = until("the sampled ones", || {
        Some(reader.series()).filter(|series| series.iter().any(|one| one.region == "node_network_sampled"))
    });
    none_is_twice(&series);
    for name in ["node_cpu_seconds_total", "node_load1", "node_memory_MemTotal_bytes", "node_intr_total"] {
        find(&series, name);
    }
    for device in ["lo", "agl0"] {
        assert_eq!(of_device(&series, RECEIVED, device).len(), 1, "{device}");
    }
}

#[test]
fn values_outlive_the_agent_and_regions_go_on_with_the_next() {
    let Some(world) = World::new() else { return };
    add_macvlan("agl0", 1);
    let place = world.place(&["lo"], every(100));
    let mut agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    all(&mut reader);
    let regions = |reader: &mut KernelReader| {
        let mut regions = reader.regions();
        regions.retain(|seen| seen.entry.name.ends_with("_sampled"));
        regions.into_iter().map(|seen| (seen.entry.name.clone(), seen.entry)).collect::<BTreeMap<_, _>>()
    };
    let before = until("the regions of all groups", || Some(regions(&mut reader)).filter(|all| all.len() >= 8));
    agent.kill();
    let last = find(&reader.series(), "node_intr_total").clone();
    std::thread::sleep(Duration::from_millis(400));
    let series = reader.series();
    let still = find(&series, "node_intr_total");
    assert_eq!((still.value, still.time_ns), (last.value, last.time_ns), "old, and it says so");
    let rows = of_device(&series, SENT, "agl0").len();
    assert_eq!(rows, 1, "devices, too");
    let agent = place.start();
    let fresh = until("a sample of the next agent", || {
        let series = reader.series();
        // Both, should the next agent have it in another region.
        let fresh = series.iter().filter(|one| one.name == "node_intr_total").max_by_key(|one| one.time_ns)?;
        (fresh.time_ns > last.time_ns).then(|| fresh.clone())
    });
    assert!(fresh.value >= last.value);
    let pid = agent.pid();
    let after = until("all of them taken over", || {
        Some(regions(&mut reader)).filter(|all| all.values().all(|entry| entry.pid == pid))
    });
    for (name, mut entry) in before {
        entry.pid = pid;
        // Which statistics pass their check may differ from start to start, and so may what is left.
        if let Some(after) = after.get(&name).filter(|after| after.schema == entry.schema) {
            assert_eq!(*after, entry);
        }
    }
    none_is_twice(&reader.series());
}
