// SPDX-License-Identifier: Apache-2.0
//! The agent with a kernel responder: real BPF programs on loopback or a veth pair, read by the soft requester, while agents are killed and started. Needs root.
#![allow(clippy::float_cmp, reason = "counts")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::world::{KernelReader, Seen, World};
use common::{Agent, Client, Place, Program, schema};
use onlooker_agent_lib::units::{Size, Span};
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP};
use onlooker_testbed::{run, until};
use serde_json::json;

#[test]
fn a_restart_changes_nothing_for_readers() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |_| ());
    let mut agent = place.start();
    let client = agent.client();
    let region = client.publish("shop", 5);
    let mut reader = KernelReader::connect(&agent);
    let before = reader.region("shop").expect("it is published");
    assert_eq!((before.value("test_value"), before.entry.responders), (5.0, RESPONDER_TCP | RESPONDER_KERNEL));
    let own = reader.region("onlooker_agent").expect("the agent's counters");
    assert_eq!(own.entry.responders, RESPONDER_TCP | RESPONDER_KERNEL);
    assert_eq!(agent.reader().values("shop")["test_value{}"], 5.0, "over TCP, too");

    agent.kill();
    region.set(6);
    assert_eq!(reader.value("shop"), 6.0, "nobody needs an agent for that");

    let agent = place.start();
    region.set(7);
    let after = reader.region("shop").expect("it goes on");
    assert_eq!(after.value("test_value"), 7.0);
    assert_eq!(after.entry, before.entry, "rkey, va, id, generation, and no orphan");
    let client = agent.client();
    let again = client.create("shop", 1);
    assert!(again.resumed);
    assert_eq!(
        (again.id, again.generation, again.offset, again.get()),
        (region.id, region.generation, region.offset, 7)
    );
    again.set(8);
    assert_eq!(region.get(), 8, "the same memory");
    std::thread::sleep(Duration::from_secs(4));
    let after = reader.region("shop").expect("grace is over, and it is still there");
    assert_eq!((after.value("test_value"), after.entry), (8.0, before.entry));
    let after = reader.region("onlooker_agent").expect("the agent's counters");
    assert_eq!(
        (after.entry.identity, after.entry.rkey, after.entry.va),
        (own.entry.identity, own.entry.rkey, own.entry.va)
    );
    assert_eq!(after.value("onlooker_agent_registration_connections_accepted_total"), 2.0, "counters go on");
    assert_eq!(after.value("onlooker_agent_registration_connections"), 1.0, "gauges are the new agent's");
    assert_eq!(agent.reader().values("shop")["test_value{}"], 8.0);
    assert_eq!(client.ask(&json!({"op": "remove", "region": again.id}))["ok"], true);
}

#[test]
fn kernel_metrics_are_computed_and_stay_what_they_are() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |_| ());
    let mut agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    let names = ["node_cpu", "node_load", "node_memory", "onlooker_responder"];
    let computed = |reader: &mut KernelReader| {
        let mut regions: Vec<Seen> = reader.regions();
        regions.retain(|seen| names.contains(&seen.entry.name.as_str()));
        regions.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
        regions
    };
    let before = until("what is computed", || Some(computed(&mut reader)).filter(|all| all.len() == names.len()));
    assert!(before.iter().all(|seen| seen.entry.responders == RESPONDER_KERNEL), "{before:?}");
    assert!(before[2].value("node_memory_MemTotal_bytes") > 1e6, "{:?}", before[2]);
    // The sampled ones are for readers over TCP.
    assert!(agent.reader().values("node_memory")["node_memory_MemTotal_bytes{}"] > 1e6);
    agent.kill();
    assert_eq!(computed(&mut reader).len(), names.len(), "without an agent, too");
    let agent = place.start();
    let pid = agent.pid();
    let after = until("what is computed", || {
        Some(computed(&mut reader))
            .filter(|all| all.len() == names.len() && all.iter().all(|seen| seen.entry.pid == pid))
    });
    for (before, after) in before.into_iter().zip(after) {
        if before.entry.schema == after.entry.schema {
            let mut expected = before.entry;
            expected.pid = pid;
            assert_eq!(after.entry, expected);
        }
    }
}

#[test]
fn what_ends_while_no_agent_runs_ends_after_grace() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |config| config.limits.grace = Span::from_ms(1500));
    let mut agent = place.start();
    let mut program = Program::start(&agent, "mortal");
    program.tell("create");
    program.tell("publish");
    let mut reader = KernelReader::connect(&agent);
    let client = agent.client();
    let _region = client.publish("waiting", 1);
    assert!(reader.region("mortal").is_some());
    assert_eq!(world.pinned().slabs().unwrap(), [0, 1, 2]);
    agent.kill();
    program.kill();
    drop(client);
    assert!(!reader.region("mortal").expect("nobody has noticed").entry.orphan);
    let agent = place.start();
    assert!(reader.region("mortal").expect("its last values").entry.orphan);
    assert!(!reader.region("waiting").expect("its process lives").entry.orphan);
    until("the end of both", || {
        let names: Vec<String> = reader.regions().into_iter().map(|seen| seen.entry.name).collect();
        (!names.iter().any(|name| name == "mortal" || name == "waiting")).then_some(())
    });
    assert_eq!(world.pinned().slabs().unwrap(), [0, 1, 2], "the user may still have its slab");
    // Packed blocks are for who reads often. The agent that was just started installs them when it comes to it.
    until("the control region, packed blocks, the agent's own", || {
        (world.pinned().regions().unwrap().len() == reader.regions().len() + 2).then_some(())
    });
    drop(agent);
}

#[test]
fn half_made_and_removed_regions_do_not_come_back() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |config| config.limits.grace = Span::from_s(60));
    let mut agent = place.start();
    let client = agent.client();
    let kept = client.publish("kept", 1);
    let hidden = client.create("hidden", 1);
    let removed = client.publish("removed", 2);
    assert_eq!(client.ask(&json!({"op": "remove", "region": removed.id}))["ok"], true);
    agent.kill();
    let agent = place.start();
    let client = agent.client();
    let mut reader = KernelReader::connect(&agent);
    assert!(reader.region("hidden").is_none());
    // What its program may still write to is given to nobody.
    let again = client.create("hidden", 1);
    assert!(!again.resumed && ![kept.offset, hidden.offset].contains(&again.offset));
    let again = client.create("removed", 1);
    assert!(!again.resumed);
    assert!(client.create("kept", 1).resumed);
    until("the end of the removed one", || reader.region("removed").is_none().then_some(()));
}

#[test]
fn purge_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |_| ());
    let mut agent = place.start();
    let _region = agent.client().publish("shop", 1);
    let refused = place.command(&["purge"]).output().expect("runs");
    assert!(!refused.status.success(), "an agent lives");
    assert!(KernelReader::connect(&agent).region("shop").is_some());
    let (status, _) = agent.terminate();
    assert!(status.success() && world.home().exists(), "a stop leaves the responder");
    let purged = place.command(&["purge"]).output().expect("runs");
    let said = String::from_utf8(purged.stdout).expect("text");
    assert!(purged.status.success() && said.contains("detached tc from device 1"), "{said}");
    assert!(said.contains("slabs/2") && said.contains("ledger"), "{said}");
    assert!(!world.bpffs().join("onlooker").exists());
    assert!(!run("tc", &["qdisc", "show", "dev", "lo"]).contains("clsact"));
    assert!(!run("ip", &["-details", "link", "show", "dev", "lo"]).contains("xdp"));
    let again = place.command(&["purge"]).output().expect("runs");
    assert!(again.status.success() && String::from_utf8_lossy(&again.stdout).contains("no kernel responder"));
}

#[test]
fn other_settings_are_taken_in_place_and_other_sizes_begin_anew() {
    let Some(world) = World::new() else { return };
    let mut place = world.place(&["lo"], |_| ());
    let mut agent = place.start();
    let region = agent.client().publish("shop", 1);
    agent.kill();
    place.config.kernel.port = 7180;
    place.config.kernel.cpu_reads_per_s = 1_000_000;
    place.write();
    let mut agent = place.start();
    assert!(agent.log.contains("replaced in place"), "{}", agent.log);
    region.set(2);
    let mut reader = KernelReader::connect(&agent);
    assert_eq!(reader.value("shop"), 2.0);
    assert!(agent.client().create("shop", 1).resumed);
    agent.kill();
    place.config.kernel.control = Size::from_mib(1);
    place.write();
    let loading = place.command(&["load", "--json"]).output().expect("runs");
    assert!(!loading.status.success() && String::from_utf8_lossy(&loading.stderr).contains("restart the agent"));
    let agent = place.start();
    assert!(agent.log.contains("could not be taken over"), "{}", agent.log);
    assert!(reader.try_regions().is_err(), "the old address is gone");
    assert!(!agent.client().create("shop", 1).resumed);
    assert!(KernelReader::connect(&agent).region("shop").is_none());
}

#[test]
fn without_bpf_file_system_the_agent_serves_over_tcp_and_says_why() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |config| config.kernel.bpffs = "/tmp".into());
    let agent = place.start();
    assert!(agent.log.contains("WARNING: NO KERNEL RESPONDER") && agent.log.contains("mount -t bpf"), "{}", agent.log);
    let _region = agent.client().publish("shop", 3);
    assert_eq!(agent.reader().values("shop")["test_value{}"], 3.0);
    assert_eq!(capabilities(agent.pid(), "CapPrm"), 0, "nothing to keep them for");
}

/// `CAP_NET_ADMIN`, `CAP_PERFMON`, `CAP_BPF` of linux/capability.h.
const KEPT: u64 = 1 << 12 | 1 << 38 | 1 << 39;

fn capabilities(pid: u32, set: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("reads");
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{set}:"))).expect("capabilities");
    u64::from_str_radix(line.trim(), 16).expect("hexadecimal")
}

#[test]
fn devices_come_and_go() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["agt0"], |config| config.kernel.lease = Span::from_s(60));
    let mut agent = place.start();
    assert!(agent.log.contains("does not answer on agt0: there is no such device"), "{}", agent.log);
    assert_eq!((capabilities(agent.pid(), "CapPrm"), capabilities(agent.pid(), "CapEff")), (KEPT, 0));
    assert_eq!(capabilities(agent.pid(), "CapInh"), 0);
    let attached = || world.pinned().attachments().len();
    assert_eq!(attached(), 0);

    run("ip", &["link", "add", "agt0", "type", "veth", "peer", "name", "agt1"]);
    agent.until("answers on agt0: no address yet");
    assert_eq!(attached(), 1);
    run("ip", &["address", "add", "10.99.0.1/24", "dev", "agt0"]);
    agent.until("answers on agt0: 10.99.0.1");
    run("ip", &["address", "delete", "10.99.0.1/24", "dev", "agt0"]);
    agent.until("answers on agt0: no address yet");
    run("ip", &["link", "delete", "agt0"]);
    agent.until("there is no such device");
    assert_eq!(attached(), 0);
    run("ip", &["link", "add", "agt0", "type", "veth", "peer", "name", "agt1"]);
    agent.until("answers on agt0");
    run("ip", &["link", "set", "agt0", "name", "agt9"]);
    agent.until("there is no such device");
    run("ip", &["link", "set", "agt9", "name", "agt0"]);
    agent.until("answers on agt0");
    assert_eq!(attached(), 1);
    // The loader had no more than what was kept; a 24th of the lease has passed or passes now.
    let until_ns = world.pinned().lease_until_ns().unwrap();
    until("the renewal of the lease", || (world.pinned().lease_until_ns().unwrap() > until_ns).then_some(()));
    // In effect only while the loader is started.
    until("no capability in effect", || (capabilities(agent.pid(), "CapEff") == 0).then_some(()));
    assert_eq!(capabilities(agent.pid(), "CapPrm"), KEPT);
    let (status, log) = agent.terminate();
    assert!(status.success() && !log.contains("warning"), "{log}");
}

/// The kernel's number of a slab's array.
fn array(slab: &OwnedFd) -> String {
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", slab.as_raw_fd())).unwrap();
    told.lines().find_map(|line| line.strip_prefix("map_id:")).unwrap().trim().to_owned()
}

/// Has a region made that ends with its connection, and keeps the slab's descriptor.
fn keep_slab(agent: &Agent) -> OwnedFd {
    let client = agent.client();
    client.send(json!({"op": "create", "name": "kept", "schema": schema(1)}).to_string().as_bytes(), None).unwrap();
    let (answer, slab) = client.receive().unwrap();
    assert_eq!(answer["ok"], true, "{answer}");
    slab.unwrap()
}

#[test]
fn whoever_leaves_and_comes_again_gets_no_more_memory() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |_| ());
    let mut agent = place.start();
    // Descriptors keep slabs of the kernel alive, whatever becomes of their connections, and of agents.
    let mut kept = Vec::new();
    for restart in [false, true, true] {
        if restart {
            agent.kill();
            agent = place.start();
        }
        kept.extend((0..5).map(|_| keep_slab(&agent)));
    }
    assert!(kept.iter().all(|slab| array(slab) == array(&kept[0])), "one array");
    assert_eq!(world.pinned().slabs().unwrap(), [0, 1, 2]);
}

#[test]
fn a_slab_without_regions_gets_the_configured_length_with_the_next_agent() {
    let Some(world) = World::new() else { return };
    let mut place = world.place(&["lo"], |_| ());
    let mut agent = place.start();
    let before = keep_slab(&agent);
    agent.kill();
    place.config.kernel.slab = Size::from_bytes(128 << 10);
    place.write();
    let agent = place.start();
    assert_ne!(array(&keep_slab(&agent)), array(&before));
    assert_eq!(world.pinned().slabs().unwrap(), [0, 1, 2]);
}

#[test]
fn users_have_slabs_of_their_own() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |_| ());
    run("chmod", &["0755", place.dir.path().to_str().expect("text")]);
    let agent = place.start();
    let ours = agent.client();
    let _region = ours.publish("ours", 1);
    let mut theirs = Program::start_as(&agent, "theirs", 12_345);
    theirs.tell("create");
    theirs.tell("publish");
    assert_eq!(world.pinned().slabs().unwrap(), [0, 1, 2, 3]);
    let mut reader = KernelReader::connect(&agent);
    assert_eq!(reader.region("theirs").expect("it is read").entry.uid, 12_345);
    // More than the slab: explained, and nothing else suffers.
    let answer = ours.ask(&json!({"op": "create", "name": "large", "schema": common::schema(65)}));
    assert_eq!(answer["error"], "quota");
    assert!(answer["message"].as_str().is_some_and(|message| message.contains("[kernel] slab")), "{answer}");
    assert_eq!(reader.value("ours"), 1.0);
}

/// A program that counts until it is told to stop.
struct Counting {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Counting {
    fn start(program: &Path, socket: &Path) -> Self {
        let mut command = Command::new(program);
        command.env("ONLOOKER_SOCKET", socket).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut counting = Self { child, stdin, stdout };
        assert_eq!(counting.line(), "published");
        counting
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("reads");
        line.trim().to_owned()
    }

    /// What it has counted, how often its region moved, and how often it connected.
    fn stop(&mut self) -> [u64; 3] {
        writeln!(self.stdin).expect("writes");
        let line = self.line();
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
        numbers.try_into().expect("three")
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until_connected(reader: &mut KernelReader) {
    let mut connections = || reader.value_of("onlooker_agent", "onlooker_agent_registration_connections");
    until("its connection", || (connections() == 1.0).then_some(()));
}

fn counts_through_kills(world: &World, program: &Path) {
    const KILLS: u64 = 20;
    // SDKs leave their ranges after 2 s without an agent, which a loaded machine may take to start one.
    const STAYS: Duration = Duration::from_secs(1);
    let place = world.place(&["lo"], |_| ());
    let mut agent = place.start();
    let mut program = Counting::start(program, &place.config.agent.socket);
    let mut reader = KernelReader::connect(&agent);
    let before = reader.region("count").expect("it is published");
    let mut last = 0.0;
    let mut longest = Duration::ZERO;
    for kill in 0..KILLS {
        if kill % 2 == 0 {
            until_connected(&mut reader);
            // An agent that comes and goes within a second is asked after growing pauses (C SDK), in which regions leave their ranges.
            std::thread::sleep(Duration::from_millis(1100));
        } else {
            // At various instants of registering again.
            std::thread::sleep(Duration::from_millis(20 * kill));
        }
        let killed = Instant::now();
        agent.kill();
        let now = reader.region("count").expect("it is read while there is no agent");
        assert!(now.value("count_total") >= last, "{now:?}, before {last}");
        last = now.value("count_total");
        agent = place.start();
        longest = longest.max(killed.elapsed());
        let now = reader.region("count").expect("it goes on");
        assert!(now.entry == before.entry || longest > STAYS, "{now:?}, before {before:?}");
        assert!(now.value("count_total") >= last, "{now:?}, before {last}");
        last = now.value("count_total");
    }
    until_connected(&mut reader);
    // Past its grace: it was resumed.
    std::thread::sleep(Duration::from_secs(4));
    let [count, switches, connections] = program.stop();
    #[allow(clippy::cast_precision_loss)]
    let expected = count as f64;
    assert!(connections >= KILLS / 2, "{connections} connections");
    assert!(switches == 1 || longest > STAYS, "{switches} moves, at most {longest:?} without an agent");
    assert_eq!(reader.value_of("count", "count_total"), expected, "no increment lost, none counted twice");
    assert_eq!(agent.reader().values("count")["count_total{}"], expected);
}

#[test]
fn no_increment_is_lost_or_doubled_by_the_rust_sdk() {
    let Some(world) = World::new() else { return };
    let count = onlooker_testbed::binary("onlooker-agent", "onlooker-agent").with_file_name("examples/count");
    counts_through_kills(&world, &count);
}

#[test]
fn no_increment_is_lost_or_doubled_by_the_c_sdk() {
    let Some(world) = World::new() else { return };
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let built = tempfile::tempdir().expect("a directory");
    let program = built.path().join("count");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let (include, source) = (format!("-I{}", text(&here.join("../../sdk/c"))), text(&here.join("tests/count.c")));
    run("cc", &["-O2", "-pthread", &include, &source, "-o", &text(&program)]);
    counts_through_kills(&world, &program);
}

#[test]
fn load_by_hand_changes_nothing_that_is_right() {
    let Some(world) = World::new() else { return };
    let place: Place = world.place(&["lo"], |_| ());
    let load = || {
        let output = place.command(&["load", "--json"]).output().expect("runs");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
    };
    let report = load();
    assert_eq!((&report["responder"], &report["devices"][0]["index"]), (&json!("loaded"), &json!(1)));
    let agent = place.start();
    let client: Client = agent.client();
    let _region = client.publish("shop", 1);
    assert_eq!(load()["responder"], "kept");
    assert_eq!(KernelReader::connect(&agent).value("shop"), 1.0);
    let said = place.command(&["load"]).output().expect("runs").stdout;
    assert!(String::from_utf8_lossy(&said).contains("answers on lo: 127.0.0.1"));
}
