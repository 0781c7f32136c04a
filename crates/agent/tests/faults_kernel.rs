// SPDX-License-Identifier: Apache-2.0
//! What a kernel or a service manager may withhold, and what a host may have too many of: a real agent with the kernel responder on loopback in a namespace, read by the soft
//! requester. The agent says in one line what it has not got and serves the next best. Needs root. In guests: lab/lab-kernel.
#![allow(clippy::float_cmp, reason = "counts")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use common::world::{KernelReader, Series, World};
use common::{Agent, Place};
use onlooker_agent_lib::units::Span;
use onlooker_region::schema::Acquisition;
use onlooker_testbed::{run, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Capabilities of packaging/onlooker-agent.service.d/kernel.conf.
const ALL: [&str; 4] = ["bpf", "net_admin", "perfmon", "syslog"];
/// One of each group that has a collector and that every kernel has.
const NAMES: [&str; 9] = [
    "node_cpu_seconds_total",
    "node_load1",
    "node_memory_MemTotal_bytes",
    "node_network_receive_bytes_total",
    "node_netstat_Tcp_InSegs",
    "node_softnet_processed_total",
    "node_sockstat_TCP_inuse",
    "node_forks_total",
    "node_vmstat_pgfault",
];

fn place(world: &World) -> Place {
    world.place(&["lo"], |config| {
        config.kernel.sample = Span::from_ms(200);
        config.connections.enabled = true;
    })
}

fn without(name: &str) -> Vec<&'static str> {
    ALL.into_iter().filter(|one| *one != name).collect()
}

/// How each name is acquired, by all series of it.
fn ways(series: &[Series], name: &str) -> BTreeSet<&'static str> {
    let of_name = series.iter().filter(|one| one.name == name);
    of_name.map(|one| if one.acquisition == Acquisition::Sampled { "sampled" } else { "computed" }).collect()
}

fn lines_with<'a>(said: &'a str, text: &str) -> Vec<&'a str> {
    // What libraries and the verifier have to say is not for an operator's log.
    assert!(said.lines().all(|line| line.starts_with("onlooker-agent: ")), "{said}");
    said.lines().filter(|line| line.contains(text)).collect()
}

fn total_memory() -> f64 {
    let text = fs::read_to_string("/proc/meminfo").expect("reads");
    let kib = text.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok());
    kib.expect("MemTotal: is the first line") * 1024.0
}

/// Nothing is computed: the agent says why, and what is read over the kernel responder is sampled.
fn is_sampled(mut agent: Agent, reason: &str) {
    assert!(!agent.log.contains("NO KERNEL RESPONDER"), "{}", agent.log);
    let said = agent.log.clone() + &agent.until("not computed, so sampled every 200ms");
    for what in ["no kernel metrics are computed", "TCP connections are not read"] {
        let lines = lines_with(&said, what);
        assert!(lines.len() == 1 && lines[0].contains(reason), "{what}: {said}");
    }
    let mut reader = KernelReader::connect(&agent);
    let series = reader.series();
    for name in NAMES {
        assert_eq!(ways(&series, name), BTreeSet::from(["sampled"]), "{name}");
    }
    let memory = series.iter().find(|one| one.name == "node_memory_MemTotal_bytes").expect("it is sampled");
    assert_eq!(memory.value, total_memory());
    // They go on being sampled.
    let time = |series: &[Series]| series.iter().find(|one| one.name == "node_load1").map_or(0, |one| one.time_ns);
    let before = time(&series);
    until("another sample", || (time(&reader.series()) > before).then_some(()));
    let _region = agent.client().publish("shop", 3);
    assert_eq!(reader.value("shop"), 3.0, "programs' regions are served by the kernel all the same");
}

#[test]
fn without_btf_all_is_sampled() {
    let Some(world) = World::new() else { return };
    // Of this test's mount namespace only.
    run("mount", &["-t", "tmpfs", "tmpfs", "/sys/kernel/btf"]);
    is_sampled(place(&world).start(), "/sys/kernel/btf/vmlinux");
}

/// Of these each is needed for the responder's own programs.
#[test]
fn without_a_capability_all_is_served_over_tcp() {
    let Some(world) = World::new() else { return };
    for (name, told) in [("bpf", "CAP_BPF"), ("net_admin", "CAP_NET_ADMIN"), ("perfmon", "CAP_PERFMON")] {
        let place = place(&world);
        let agent = place.start_with_capabilities(&without(name));
        let lines = lines_with(&agent.log, "WARNING: NO KERNEL RESPONDER, READs are answered over TCP only");
        assert!(lines.len() == 1 && lines[0].contains(&format!("this process has no {told}: ")), "{}", agent.log);
        let values = agent.reader().values("node_memory");
        assert_eq!(values["node_memory_MemTotal_bytes{}"], total_memory(), "without {told}");
        drop(agent);
        // Nothing half made is in the way of an agent that has them.
        let agent = place.start();
        assert!(agent.log.contains("kernel responder answers on lo"), "after {told}: {}", agent.log);
        drop(agent);
        let purged = place.command(&["purge"]).output().expect("runs");
        assert!(purged.status.success() && !world.home().exists(), "{purged:?}");
    }
}

#[test]
fn without_cap_syslog_what_needs_addresses_is_sampled() {
    let Some(world) = World::new() else { return };
    // kallsyms_show_value in kernel/ksyms_common.c: shown to those who may use perf, too.
    let setting = |path: &str| fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<i32>().ok());
    let is_shown = setting("/proc/sys/kernel/kptr_restrict") == Some(0)
        && setting("/proc/sys/kernel/perf_event_paranoid").is_some_and(|level| level <= 1);
    let place = place(&world);
    let mut agent = place.start_with_capabilities(&without("syslog"));
    let said = agent.log.clone() + &agent.until("not computed, so sampled every 200ms");
    let mut reader = KernelReader::connect(&agent);
    let series = reader.series();
    // Its variables are found from the loader's own task.
    assert_eq!(ways(&series, "node_cpu_seconds_total"), BTreeSet::from(["computed"]), "{said}");
    // Global variables are found in the code of functions, whose addresses nobody tells.
    let load = if is_shown { "computed" } else { "sampled" };
    assert_eq!(ways(&series, "node_load1"), BTreeSet::from([load]), "{said}");
    let lines = lines_with(&said, "node_load is not computed");
    assert_eq!(lines.len(), usize::from(!is_shown), "{said}");
    assert!(lines.iter().all(|line| line.contains("CAP_SYSLOG")), "{said}");
    for name in NAMES {
        assert_eq!(ways(&series, name).len(), 1, "{name} is there, in one way");
    }
}

/// Pairs on loopback: each is two sockets.
const PAIRS: usize = 8_500;
const ROWS: f64 = 16_384.0;

/// More sockets than rows.
fn many_connections() -> Vec<TcpStream> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = 2 * PAIRS as u64 + 500;
    assert!(
        limit.maximum.is_none_or(|most| most >= wanted),
        "this test opens {wanted} files: raise the hard limit (ulimit -Hn)"
    );
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("up to the hard limit");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    let address: SocketAddr = listener.local_addr().expect("an address");
    let pair = |_| [TcpStream::connect(address).expect("connects"), listener.accept().expect("accepts").0];
    (0..PAIRS).flat_map(pair).collect()
}

fn cpu_time(agent: &Agent) -> Duration {
    let text = fs::read_to_string(format!("/proc/{}/stat", agent.pid())).expect("reads");
    let words: Vec<&str> = text.rsplit(')').next().expect("a name").split_whitespace().collect();
    let ticks: u64 = words[11..13].iter().map(|word| word.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

/// 100,000 sockets: bench/sockets.
#[test]
fn more_sockets_than_rows_are_counted_and_cost_no_more() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |config| {
        (config.connections.enabled, config.connections.interval) = (true, Span::from_ms(100));
        config.kernel.sample = Span::from_s(1);
        config.kernel.groups = vec!["load".into()];
    });
    let sockets = many_connections();
    let agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    let told = |series: &[Series], name: &str| {
        let is_it =
            |one: &&Series| one.name == name && one.labels.get("table").is_some_and(|table| table == "tcp_connections");
        series.iter().find(is_it).map_or(0.0, |one| one.value)
    };
    // Regions are read one after the other: while the first run writes, the first of them has rows in part.
    let series = until("a full table", || {
        let series = reader.series();
        let rows = series.iter().filter(|one| one.name == "onlooker_tcp_connection_state").count();
        (told(&series, "onlooker_table_rows") == ROWS && rows as f64 == ROWS).then_some(series)
    });
    let missing = told(&series, "onlooker_table_rows_missing");
    // And the few of the test itself.
    assert!((sockets.len() as f64 - ROWS..sockets.len() as f64 - ROWS + 20.0).contains(&missing), "{missing}");
    let established: f64 = series
        .iter()
        .filter(|one| one.name == "onlooker_tcp_port_connections" && one.labels["state"] == "established")
        .map(|one| one.value)
        .sum();
    assert!(established >= sockets.len() as f64, "ports have all of them: {established}");
    assert_eq!(told(&series, "onlooker_table_failed_runs_total"), 0.0);
    // Runs pause for twenty times what they cost, and the sampled states of sockets are counted every 10 s at the shortest.
    let (begin, before) = (Instant::now(), cpu_time(&agent));
    let client = agent.client();
    let mut slowest = Duration::ZERO;
    while begin.elapsed() < Duration::from_secs(4) {
        let asked = Instant::now();
        client.publish(&format!("shop_{}", begin.elapsed().as_millis()), 1);
        slowest = slowest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(300));
        assert!(reader.region("tcp_ports").is_some());
    }
    let used = (cpu_time(&agent) - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    assert!(used < 0.3, "the agent used {used:.2} of a CPU");
    assert!(slowest < Duration::from_secs(2), "a program waited for {slowest:?}");
    assert!(agent.resident_kib() < 64 << 10, "{} KiB resident", agent.resident_kib());
}
