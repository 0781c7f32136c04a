// SPDX-License-Identifier: Apache-2.0
//! The agent as a process: start, stop, crash, second agent, command line, idleness, churn.

mod common;

use common::{Bystander, Client, Place, refused, schema};
use onlooker_agent_lib::units::{Size, Span};
use onlooker_testbed::{ServiceManager, until};
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn it_stops_cleanly_and_tells_the_service_manager() {
    let place = Place::new(|_| ());
    let manager = ServiceManager::in_dir(place.dir.path());
    let mut child = place.command(&["run"]).env("NOTIFY_SOCKET", manager.path()).spawn().unwrap();
    assert!(manager.told().unwrap().starts_with("READY=1"));
    assert!(place.config.agent.socket.exists());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    assert_eq!(manager.told().unwrap(), "STOPPING=1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!place.config.agent.socket.exists(), "the socket is gone");
}

#[test]
fn a_service_manager_that_waits_for_signs_of_life_gets_them() {
    let place = Place::new(|_| ());
    let manager = ServiceManager::in_dir(place.dir.path());
    let mut command = place.command(&["run"]);
    let mut child = command.env("NOTIFY_SOCKET", manager.path()).env("WATCHDOG_USEC", "300000").spawn().unwrap();
    let mut signs = 0;
    while signs < 3 {
        signs += usize::from(manager.told().unwrap() == "WATCHDOG=1");
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_hangup_changes_nothing() {
    let place = Place::new(|_| ());
    let mut agent = place.start();
    let mut bystander = Bystander::new(&agent);
    for _ in 0..3 {
        let pid = rustix::process::Pid::from_raw(i32::try_from(agent.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        bystander.check();
    }
    let (status, log) = agent.terminate();
    assert!(status.success() && log.contains("SIGHUP: the configuration is read at start only"), "{log}");
    assert!(!place.config.agent.socket.exists(), "a clean end");
}

#[test]
fn killed_and_restarted_it_begins_anew() {
    let place = Place::new(|_| ());
    let mut agent = place.start();
    let client = agent.client();
    let region = client.publish("shop", 7);
    let old = agent.reader().region("shop").unwrap();
    let (token, incarnation) = (agent.token.clone(), agent.reader().control_va);
    agent.kill();
    assert!(place.config.agent.socket.exists(), "a stale socket");
    region.set(8);
    assert!(client.receive().is_none(), "the program sees the end of its connection");
    let mut agent = place.start();
    assert_eq!(agent.token, token);
    let mut reader = agent.reader();
    assert_ne!(reader.control_va, incarnation);
    assert!(reader.region("shop").is_none());
    assert!(reader.read(old.va, old.rkey, 1024).is_err(), "old addresses are worth nothing");
    let again = agent.client();
    assert!(!again.publish("shop", 9).resumed);
    assert_eq!(reader.values("shop")["test_value{}"], 9.0);
    let (status, log) = agent.terminate();
    assert!(status.success() && log.ends_with("onlooker-agent: stopped\n"), "{log}");
}

#[test]
fn a_second_agent_is_refused_and_the_first_goes_on() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    for (arguments, says) in [(["run"], "another onlooker-agent serves"), (["purge"], "another onlooker-agent serves")]
    {
        let output = place.command(&arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && text.contains(says), "{text}");
    }
    bystander.check();
    let mut beside = Place::new(|_| ());
    beside.config.agent.state_dir = place.config.agent.state_dir.clone();
    fs::write(beside.config_path(), toml::to_string(&beside.config).unwrap()).unwrap();
    let output = beside.command(&["run"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && text.contains("another onlooker-agent uses the state directory"),
        "{text}"
    );
    assert!(beside.command(&["token"]).output().unwrap().status.success(), "commands need no lock");
    assert!(!beside.config.agent.socket.exists(), "it leaves no socket behind");
    bystander.check();
    let mut other = Place::new(|_| ());
    other.config.tcp.listen = agent.tcp;
    fs::write(other.config_path(), toml::to_string(&other.config).unwrap()).unwrap();
    let output = other.command(&["run"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && text.contains("[tcp] listen"), "{text}");
    assert!(!other.config.agent.socket.exists(), "it leaves no socket behind");
}

#[test]
fn the_command_line() {
    let place = Place::new(|_| ());
    let run = |arguments: &[&str]| {
        let output = place.command(arguments).output().unwrap();
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, text) = run(&["check-config"]);
    assert!(code == Some(0) && text.contains("configuration is fine") && text.contains("plain"), "{text}");
    assert!(text.contains("warning: [bootstrap] tls = false") && text.contains("(plain"), "{text}");
    let (code, text) = run(&["purge"]);
    assert!(code == Some(0) && text.contains("nothing to remove"), "{text}");
    fs::create_dir_all(place.config.agent.socket.parent().unwrap()).unwrap();
    drop(onlooker_local::seqpacket::listener(&place.config.agent.socket).unwrap());
    let (code, text) = run(&["purge"]);
    assert!(
        code == Some(0) && text.contains("removed the stale socket") && !place.config.agent.socket.exists(),
        "{text}"
    );
    assert_eq!(run(&["--version"]).0, Some(0));
    let (code, text) = run(&["--help"]);
    assert!(code == Some(0) && text.contains("check-config") && text.contains("purge"), "{text}");
    assert_eq!(run(&["frobnicate"]).0, Some(2));
    assert_eq!(run(&["token", "--renwe"]).0, Some(2));

    fs::write(place.config_path(), "[agent]\n\nsokcet = \"/x\"\n").unwrap();
    for command in ["run", "check-config", "token", "purge"] {
        let (code, text) = run(&[command]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("agent.toml:3: unknown key `sokcet`: did you mean `socket`?"), "{text}");
    }
    fs::write(place.config_path(), "[agent]\nstate_dir = \"here\"\n").unwrap();
    for command in ["run", "check-config", "token"] {
        let (code, text) = run(&[command]);
        assert!(code == Some(2) && text.contains("agent.state_dir = here: must be an absolute path"), "{text}");
    }
    fs::write(place.config_path(), "[policy]\nallow_users = [\"nobody-of-that-name\"]\n").unwrap();
    let (code, text) = run(&["check-config"]);
    assert!(code == Some(2) && text.contains("nobody-of-that-name"), "{text}");
    fs::remove_file(place.config_path()).unwrap();
    let (code, text) = run(&["run"]);
    assert!(code == Some(2) && text.contains("--config"), "{text}");
}

#[test]
fn it_keeps_no_capability() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    for line in
        ["CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"]
    {
        assert!(status.contains(line), "{line} in {status}");
    }
}

#[test]
fn an_idle_agent_does_not_wake_up() {
    let place = Place::new(|config| config.sampled.interval = Span::from_ms(50));
    let agent = place.start();
    let client = agent.client();
    let region = client.publish("shop", 7);
    drop(agent.reader());
    until("the reader's thread has gone", || (agent.threads() == 2).then_some(()));
    // Once the sampler is out of its last wait, and what the start needed is given back.
    let idle = || {
        let before = (agent.switches(), agent.cpu_ticks());
        for value in 0..3000 {
            region.set(value);
            std::thread::sleep(Duration::from_millis(1));
        }
        (agent.switches() - before.0, agent.cpu_ticks() - before.1)
    };
    let idle = [idle(), idle(), idle()];
    assert_eq!(idle.iter().min(), Some(&(0, 0)), "context switches and ticks of CPU in 3 s each: {idle:?}");
    assert!(idle.iter().map(|(switches, _)| switches).sum::<u64>() < 20, "{idle:?}");
}

#[test]
fn a_thousand_regions_a_second_disturb_nobody() {
    let place = Place::new(|config| {
        config.quota.regions_per_user = 7000;
        config.quota.regions = 7000;
        config.quota.bytes_per_user = Size::from_mib(64);
        config.limits.reuse_delay = Span::from_ms(200);
    });
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let client = agent.client();
    let mut created = 0u32;
    let mut create = || {
        created += 1;
        client.publish(&format!("churn_{created}"), 1).id
    };
    let remove = |region| assert_eq!(client.ask(&json!({"op": "remove", "region": region}))["ok"], true);
    // More at once than the pace below ever leaves resting, so that a late half that is faster than the early one needs nothing new.
    let held: Vec<_> = (0..1500).map(|_| create()).collect();
    held.into_iter().for_each(remove);
    let mut resident = Vec::new();
    for _ in 0..80 {
        // The pace: 1000 a second at most, and no catching up.
        let due = Instant::now() + Duration::from_millis(50);
        (0..50).for_each(|_| remove(create()));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        bystander.check();
        resident.push(agent.resident_kib());
    }
    let half = resident.len() / 2;
    let (early, late) = (*resident[..half].iter().max().unwrap(), *resident[half..].iter().max().unwrap());
    assert!(late < early + 512, "resident memory grows: {early} then {late} KiB");
    until("all of them end", || (bystander.counter("regions") == 1).then_some(()));
    assert_eq!(bystander.counter("regions_created_total"), u64::from(created) + 1);
    assert_eq!(bystander.counter("regions_ended_total"), u64::from(created));
    bystander.check();
}

#[test]
fn a_full_agent_refuses_and_recovers() {
    let place = Place::new(|config| {
        config.quota.regions_per_user = 50;
        config.quota.regions = 20;
    });
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let client = agent.client();
    for number in 0..19 {
        client.publish(&format!("r{number}"), number);
    }
    let answer = client.ask(&json!({"op": "create", "name": "more", "schema": schema(1)}));
    assert!(answer["error"] == "quota" && answer["message"].as_str().unwrap().contains("[quota] regions)"), "{answer}");
    bystander.check();
    drop(client);
    until("room", || (bystander.counter("regions") == 1).then_some(()));
    agent.client().publish("more", 1);
    bystander.check();
}

#[test]
fn programs_beyond_the_limit_of_open_files_are_told() {
    let place = Place::new(|config| config.tcp.max_connections = 4);
    // 256 and those for readers are kept back; two for each program.
    let agent = place.start_with_files(256 + 4 + 2 * 10);
    let mut bystander = Bystander::new(&agent);
    let clients: Vec<Client> = (0..9).map(|_| agent.client()).collect();
    let late = Client::silent(&agent.socket);
    let answer = late.ask(&json!({"op": "hello", "version": 1}));
    assert!(refused(&answer) == "quota" && answer["message"].as_str().unwrap().contains("LimitNOFILE"), "{answer}");
    bystander.check();
    drop(clients);
    drop(until("room", || (bystander.counter("registration_connections") == 1).then(|| agent.client())));
}

#[test]
fn with_no_descriptor_left_it_neither_spins_nor_stops() {
    let place = Place::new(|_| ());
    let idle = place.start();
    let files = fs::read_dir(format!("/proc/{}/fd", idle.pid())).unwrap().count();
    drop(idle);
    // Enough for a reader, not for a program.
    let agent = place.start_with_files(u32::try_from(files).unwrap() + 5);
    let mut reader = agent.reader();
    let flood: Vec<Client> = (0..100).map(|_| Client::silent(&agent.socket)).collect();
    until("those who cannot be taken are closed", || {
        (reader.counter("registration_connections_refused_total{reason=internal}") > 0).then_some(())
    });
    // Once it has turned all away; 300 ms of spinning would cost thousands of switches, or 30 ticks.
    until("it does not spin", || {
        let (before, ticks) = (agent.switches(), agent.cpu_ticks());
        std::thread::sleep(Duration::from_millis(300));
        // Fewer than before are those of a closing thread that has ended.
        let switches = agent.switches().checked_sub(before)?;
        (switches < 10 && agent.cpu_ticks() - ticks < 5).then_some(())
    });
    drop(flood);
    until("all are gone", || (reader.counter("registration_connections") == 0).then_some(()));
    // What has just been closed may still have its descriptors for a moment: then a program is turned away without a word,
    // or for want of descriptors.
    until("too few files for any program, and it says so", || {
        let program = Client::silent(&agent.socket);
        program.send(json!({"op": "hello", "version": 1}).to_string().as_bytes(), None).ok()?;
        (refused(&program.receive()?.0) == "quota").then_some(())
    });
}
