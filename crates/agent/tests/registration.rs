// SPDX-License-Identifier: Apache-2.0
//! Registration against a real agent: the ordinary life of regions, and every fault of a program. A bystander's region reads right after each.

mod common;

use common::{Bystander, Client, Place, Program, refused, schema};
use onlooker_agent_lib::units::Size;
use onlooker_region::map::{Map, sealed_memfd};
use onlooker_testbed::{is_root, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use serde_json::json;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn a_region_lives_from_create_to_remove() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let (client, mut reader) = (agent.client(), agent.reader());
    let region = client.create("shop", 1);
    assert!(reader.region("shop").is_none(), "hidden before publish");
    region.set(42);
    for _ in 0..2 {
        assert_eq!(client.ask(&json!({"op": "publish", "region": region.id}))["ok"], true);
    }
    assert_eq!(reader.values("shop")["test_value{}"], 42.0);
    let entry = reader.region("shop").unwrap();
    assert_eq!(
        (u64::from(entry.identity.region), u64::from(entry.identity.generation)),
        (region.id, region.generation)
    );
    assert_eq!((entry.pid, entry.orphan, entry.bytes), (std::process::id(), false, 1024));
    assert!(entry.labels.contains(&("pid".into(), std::process::id().to_string())), "{:?}", entry.labels);
    assert!(entry.labels.iter().any(|(name, _)| name == "program"));

    let update = json!({"op": "update", "region": region.id, "labels": {"shard": "3", "program": "mine"}});
    assert_eq!(client.ask(&update)["ok"], true);
    let labels = reader.region("shop").unwrap().labels;
    let pid = ("pid".to_owned(), std::process::id().to_string());
    assert_eq!(labels, [pid, ("program".into(), "mine".into()), ("shard".into(), "3".into())]);
    let forged = json!({"op": "update", "region": region.id, "labels": {"pid": "1"}});
    assert_eq!(client.refused(&forged), "bad_request");
    assert_eq!(reader.region("shop").unwrap().labels, labels);

    let mut other = schema(1);
    other["groups"][0]["fields"][0]["name"] = "test_other".into();
    assert_eq!(client.ask(&json!({"op": "update", "region": region.id, "schema": other}))["ok"], true);
    assert_eq!(reader.values("shop")["test_other{}"], 42.0);
    assert_eq!(client.refused(&json!({"op": "update", "region": region.id, "schema": schema(2)})), "schema");

    assert_eq!(client.ask(&json!({"op": "remove", "region": region.id}))["ok"], true);
    assert!(reader.region("shop").is_none_or(|entry| entry.orphan));
    until("the entry goes", || reader.region("shop").is_none().then_some(()));
    assert!(reader.read(entry.va, entry.rkey, 1024).is_err(), "and nothing is served any more");
    assert_eq!(client.refused(&json!({"op": "publish", "region": region.id})), "not_found");
}

#[test]
fn packets_that_are_not_understood() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let silent = Client::silent(&agent.socket);
    assert_eq!(silent.refused(&json!({"op": "create", "name": "x", "schema": schema(1)})), "bad_request");
    assert_eq!(silent.refused(&json!({"op": "hello", "version": 2})), "version");
    assert_eq!(silent.ask(&json!({"op": "hello", "version": 1}))["socket_uid"], rustix::process::getuid().as_raw());
    assert_eq!(silent.refused(&json!({"op": "hello", "version": 1})), "bad_request");
    drop(silent);

    let client = agent.client();
    for packet in
        [&b"\xff\xfe garbage"[..], b"{", b"[]", b"{\"op\":\"create\"", b"null", b"{\"op\":\"create\",\"nmae\":\"x\"}"]
    {
        assert_eq!(refused(&client.raw(packet)), "bad_request");
    }
    let oversized = vec![b' '; 131_073];
    let answer = client.raw(&oversized);
    assert!(answer["message"].as_str().unwrap().contains("MAX_PACKET_BYTES"), "{answer}");
    assert_eq!(
        client.ask(&json!({"op": "create", "name": "x", "schema": schema(1)}))["ok"],
        true,
        "the connection stays"
    );
    let answer = client.ask(&json!({"op": "create", "nmae": "x", "schema": schema(1)}));
    assert!(answer["message"].as_str().unwrap().contains("did you mean `name`"), "{answer}");
    for number in 1..16 {
        assert_eq!(refused(&client.raw(b"garbage")), "bad_request", "{number}");
    }
    assert!(client.receive().is_none(), "closed after 16 in a row");
    bystander.check();
    assert_eq!(bystander.counter("registration_connections_closed_total{reason=bad_packets}"), 1);
    assert!(bystander.counter("registration_requests_total{result=bad_request}") >= 23);
}

#[test]
fn names_labels_and_schemas_that_break_a_rule() {
    let place = Place::new(|config| config.quota.schema_bytes_per_user = Size::from_bytes(7 * 4096));
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let client = agent.client();
    let create = |name: &str, instance: &str, labels: serde_json::Value, schema: serde_json::Value| {
        client.ask(&json!({"op": "create", "name": name, "instance": instance, "labels": labels, "schema": schema}))
    };
    let long = "x".repeat(300);
    for (name, instance, labels) in [
        ("", "", json!({})),
        ("a b", "", json!({})),
        (long.as_str(), "", json!({})),
        ("a", long.as_str(), json!({})),
        ("a", "", json!({"__x": "y"})),
        ("a", "", json!({"x": ""})),
        ("a", "", json!({"pid": "1"})),
        ("a", "", json!({"pid": std::process::id().to_string()})),
        ("a", "", json!({"x": "a\0b"})),
        ("a", "", json!({"x": long})),
        ("a", "", json!({"x": "y".repeat(200), "z": "y".repeat(200)})),
    ] {
        assert_eq!(refused(&create(name, instance, labels.clone(), schema(1))), "bad_request", "{name} {labels}");
    }
    for schema in [json!({}), json!({"name": "x", "groups": []}), schema(0), schema(65_537), json!("text")] {
        assert_eq!(refused(&create("a", "", json!({}), schema.clone())), "schema", "{schema}");
    }
    let mut large = schema(64);
    let field =
        |i: u32| json!({"name": format!("f{i}"), "metric": "gauge", "type": "u64", "slot": i, "help": "h".repeat(100)});
    large["groups"][0]["fields"] = (0..100).map(field).collect();
    assert_eq!(create("a", "", json!({}), large.clone())["ok"], true, "{large}");
    large["groups"][0]["fields"] = (0..130).map(field).collect();
    let answer = create("b", "", json!({}), large.clone());
    assert!(
        refused(&answer) == "quota" && answer["message"].as_str().unwrap().contains("schema_bytes_per_user"),
        "{answer}"
    );
    large["groups"][0]["fields"] = (0..600).map(field).collect();
    let answer = create("b", "", json!({}), large);
    assert!(
        refused(&answer) == "schema" && answer["message"].as_str().unwrap().contains("MAX_SCHEMA_BYTES"),
        "{answer}"
    );

    assert_eq!(create("c", "", json!({}), schema(1))["ok"], true);
    assert_eq!(refused(&create("c", "", json!({}), schema(1))), "duplicate");
    assert_eq!(create("c", "second", json!({}), schema(1))["ok"], true);
    let other = agent.client();
    let duplicate = json!({"op": "create", "name": "c", "schema": schema(1)});
    assert_eq!(other.refused(&duplicate), "duplicate", "names are the process's, not the connection's");
    bystander.check();
    for result in ["bad_request", "schema", "quota", "duplicate"] {
        assert!(bystander.counter(&format!("registration_requests_total{{result={result}}}")) > 0);
    }
}

#[test]
fn quotas_are_kept_and_freed_memory_comes_back() {
    let place = Place::new(|config| {
        config.quota.bytes_per_user = Size::from_bytes(16 * 4096);
        config.quota.regions_per_user = 10;
        config.quota.connections_per_user = 3;
    });
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let client = agent.client();
    let big = client.create("big", 4 * 15);
    let answer = client.ask(&json!({"op": "create", "name": "more", "schema": schema(1)}));
    assert!(refused(&answer) == "quota" && answer["message"].as_str().unwrap().contains("bytes_per_user"), "{answer}");
    assert_eq!(client.refused(&json!({"op": "create", "name": "more", "schema": schema(65_000)})), "quota");
    big.set(7);
    assert_eq!(client.ask(&json!({"op": "remove", "region": big.id}))["ok"], true);
    // `create` checks that what it gets is zero, although `big` is still mapped and was written.
    until("the range is given out again", || {
        big.set(7);
        let answer = client.ask(&json!({"op": "create", "name": "again", "schema": schema(60)}));
        (answer["ok"] == true).then_some(())
    });
    let id = until("its id", || {
        let answer = client.ask(&json!({"op": "create", "name": "again", "schema": schema(60)}));
        answer["message"].as_str()?.split("(id ").nth(1)?.split(')').next()?.parse::<u64>().ok()
    });
    assert_eq!(client.ask(&json!({"op": "remove", "region": id}))["ok"], true);
    until("room", || {
        let answer = client.ask(&json!({"op": "create", "name": "zero", "schema": schema(1)}));
        (answer["ok"] == true).then_some(())
    });
    client.create("checked", 4);
    for number in 0..7 {
        client.create(&format!("r{number}"), 1);
    }
    let answer = client.ask(&json!({"op": "create", "name": "r9", "schema": schema(1)}));
    assert!(answer["message"].as_str().unwrap().contains("regions_per_user"), "{answer}");

    let third = agent.client();
    let fourth = Client::silent(&agent.socket);
    let answer = fourth.ask(&json!({"op": "hello", "version": 1}));
    assert!(
        refused(&answer) == "quota" && answer["message"].as_str().unwrap().contains("connections_per_user"),
        "{answer}"
    );
    assert!(fourth.receive().is_none());
    drop(third);
    until("room for a connection", || {
        let client = Client::silent(&agent.socket);
        (client.ask(&json!({"op": "hello", "version": 1}))["ok"] == true).then_some(())
    });
    bystander.check();
    assert!(bystander.counter("registration_connections_refused_total{reason=quota}") > 0);
}

#[test]
fn users_whom_the_policy_does_not_allow() {
    let place = Place::new(|config| {
        config.policy.allow_users = vec!["4242".into()];
        config.policy.allow_groups = vec!["4243".into()];
    });
    let agent = place.start();
    let client = Client::silent(&agent.socket);
    let answer = client.ask(&json!({"op": "hello", "version": 1}));
    assert!(refused(&answer) == "denied" && answer["message"].as_str().unwrap().contains("allow_users"), "{answer}");
    assert!(client.receive().is_none());
    let mut reader = agent.reader();
    assert_eq!(reader.counter("registration_connections_refused_total{reason=denied}"), 1);
    // Those who never speak are not kept for ever either.
    let waiting: Vec<Client> = (0..40).map(|_| Client::silent(&agent.socket)).collect();
    until("all were seen", || {
        (reader.counter("registration_connections_refused_total{reason=denied}") == 41).then_some(())
    });
    assert_eq!(reader.counter("registration_connections"), 16);
    drop(waiting);
    until("all are gone", || (reader.counter("registration_connections") == 0).then_some(()));
}

/// A socket whose close takes a minute: nobody reads what it has been given.
fn lingering() -> (TcpListener, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(60))).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65_536]).is_ok() {}
    (listener, stream.into())
}

#[test]
fn a_descriptor_whose_close_waits_holds_up_nobody_else() {
    for allowed in [true, false] {
        let place = Place::new(|config| {
            if !allowed {
                config.policy.allow_users = vec!["4242".into()];
            }
        });
        let agent = place.start();
        let (peers, sockets): (Vec<_>, Vec<_>) = (0..3).map(|_| lingering()).unzip();
        let attacker = Client::silent(&agent.socket);
        let closing = sockets.into_iter().map(|socket| {
            // A refused program's connection may be closed by now.
            let _ = attacker.send(b"x", Some(socket.as_fd()));
            // Whoever closes last waits: it may be this one.
            std::thread::spawn(move || drop(socket))
        });
        let closing: Vec<_> = closing.collect();
        drop(attacker);
        // Fails for want of an answer within PATIENCE, which is shorter than what the sockets linger.
        let other = Client::silent(&agent.socket).ask(&json!({"op": "hello", "version": 1}));
        assert_eq!(other["ok"] == true, allowed, "{other}");
        // Their ends are reset: nobody waits any more.
        drop(peers);
        closing.into_iter().for_each(|closing| closing.join().unwrap());
    }
}

#[test]
fn who_sends_the_largest_schemas_holds_up_nobody_else() {
    if !is_root("another user's program") {
        return;
    }
    let place = Place::new(|_| ());
    std::fs::set_permissions(place.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let agent = place.start();
    let mut other = Program::start_as(&agent, "other", 12_345);
    let fields: Vec<_> = (0..800)
        .map(|slot| json!({"name": format!("test_value_{slot}"), "metric": "gauge", "type": "u64", "slot": slot}))
        .collect();
    let groups = [json!({"kind": "plain", "blocks": 8, "fields": fields})];
    let request = json!({"op": "create", "name": "large", "schema": {"name": "large", "groups": groups}}).to_string();
    let clients: Vec<_> = (0..100).map(|_| agent.client()).collect();
    let answer = clients[0].raw(request.as_bytes());
    assert_eq!(answer["ok"], true, "none that is refused unread: {answer}");
    for client in &clients {
        client.send(request.as_bytes(), None).unwrap();
    }
    assert_eq!(other.tell("create")["ok"], true);
    // The clients wait for their answers: what has come by now is there.
    let is_answered = |client: &&Client| {
        let mut polled = [PollFd::new(&client.socket, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
    };
    let before = clients.iter().filter(is_answered).count();
    assert!(before < 50, "{before} of 100 large ones were served before another user's small one");
    clients.iter().for_each(|client| assert!(client.receive().is_some()));
}

/// A memfd of fixed size, sparse.
fn memfd(bytes: u64) -> OwnedFd {
    let memfd = memfd_create("adopted", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memfd, bytes).unwrap();
    fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    memfd
}

/// A memfd that can be adopted, and its program's mapping.
fn adoptable(bytes: u64) -> (OwnedFd, Map) {
    let memfd = memfd(bytes);
    let memory = Map::of(&memfd, 0, bytes, true).unwrap();
    memory.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
    fcntl_add_seals(&memfd, SealFlags::FUTURE_WRITE).unwrap();
    (memfd, memory)
}

#[test]
fn descriptors_that_cannot_be_adopted() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let client = agent.client();
    let mut foreign = schema(2);
    foreign["groups"][0]["kind"] = "foreign".into();
    let request = |offset: u64| json!({"op": "adopt", "name": "jvm", "schema": foreign, "offset": offset});
    assert_eq!(client.refused(&request(0)), "bad_request", "no descriptor");
    let create = json!({"op": "create", "name": "x", "schema": schema(1)});
    let (good, memory) = adoptable(8192);
    assert_eq!(refused(&client.adopt(&create, &good)), "bad_request", "one too many");

    let unsealed = memfd_create("unsealed", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&unsealed, 8192).unwrap();
    assert_eq!(refused(&client.adopt(&request(0), &unsealed)), "bad_descriptor");
    fcntl_add_seals(&unsealed, SealFlags::GROW).unwrap();
    assert_eq!(refused(&client.adopt(&request(0), &unsealed)), "bad_descriptor", "half sealed");
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert_eq!(refused(&client.adopt(&request(0), &file)), "bad_descriptor");
    let large = sealed_memfd("large", 1 << 30).unwrap();
    let answer = client.adopt(&request(0), &large);
    assert_eq!(refused(&answer), "bad_descriptor");
    assert!(answer["message"].as_str().unwrap().contains("a memfd of their own"), "{answer}");
    let short = sealed_memfd("short", 1024).unwrap();
    assert_eq!(refused(&client.adopt(&request(0), &short)), "bad_descriptor");
    assert_eq!(refused(&client.adopt(&request(7 * 1024), &good)), "bad_descriptor");
    assert_eq!(refused(&client.adopt(&request(512), &good)), "bad_request");
    assert_eq!(refused(&client.adopt(&request(u64::MAX - 1023), &good)), "bad_descriptor");

    // A READ of a hole would take memory of the agent's.
    let sparse = memfd(8192);
    let pages = Map::of(&sparse, 0, 8192, true).unwrap();
    pages.words()[0].store(1, Ordering::Relaxed);
    let punchable = client.adopt(&request(0), &sparse);
    assert!(punchable["message"].as_str().unwrap().contains("F_SEAL_FUTURE_WRITE"), "{punchable}");
    fcntl_add_seals(&sparse, SealFlags::FUTURE_WRITE).unwrap();
    let answer = client.adopt(&request(3 * 1024), &sparse);
    assert_eq!(refused(&answer), "bad_descriptor");
    assert!(answer["message"].as_str().unwrap().contains("hole at byte 4096"), "{answer}");
    pages.words()[512].store(1, Ordering::Relaxed);
    rustix::fs::seek(&sparse, rustix::fs::SeekFrom::Start(77)).unwrap();
    let mut other = request(3 * 1024);
    other["name"] = "filled".into();
    assert_eq!(client.adopt(&other, &sparse)["ok"], true);
    assert_eq!(rustix::fs::tell(&sparse).unwrap(), 77, "the program's position is as it was");

    memory.words()[5 * 128].store(77, Ordering::Relaxed);
    let answer = client.adopt(&request(5 * 1024), &good);
    assert_eq!((answer["ok"].as_bool(), answer["region"]["bytes"].as_u64()), (Some(true), Some(2048)), "{answer}");
    let mut reader = agent.reader();
    assert_eq!(reader.values("jvm")["test_value{}"], 77.0);
    memory.words()[5 * 128].store(78, Ordering::Relaxed);
    assert_eq!(reader.values("jvm")["test_value{}"], 78.0);
    bystander.check();
    assert_eq!(bystander.counter("registration_requests_total{result=bad_descriptor}"), 9);
}

#[test]
fn adopting_can_be_switched_off() {
    let place = Place::new(|config| config.policy.adopt = false);
    let agent = place.start();
    let (good, _memory) = adoptable(8192);
    let request = json!({"op": "adopt", "name": "jvm", "schema": schema(1)});
    assert_eq!(refused(&agent.client().adopt(&request, &good)), "denied");
}

#[test]
fn a_broken_connection_is_resumed_within_the_grace() {
    let place = Place::new(|config| config.limits.grace = onlooker_agent_lib::units::Span::from_s(60));
    let agent = place.start();
    let mut reader = agent.reader();
    let client = agent.client();
    let first = client.publish("shop", 5);
    drop(client);
    let entry = until("the orphan", || reader.region("shop").filter(|entry| entry.orphan));
    assert_eq!(reader.values("shop")["test_value{}"], 5.0, "its last values are read");
    let client = agent.client();
    let again = client.create("shop", 1);
    assert!(again.resumed && (again.id, again.generation, again.offset) == (first.id, first.generation, first.offset));
    assert_eq!(again.get(), 5);
    again.set(6);
    let back = reader.region("shop").unwrap();
    assert!(!back.orphan && (back.va, back.rkey) == (entry.va, entry.rkey), "published as before");
    assert_eq!(reader.values("shop")["test_value{}"], 6.0);
    drop(client);
    until("the orphan", || reader.region("shop").filter(|entry| entry.orphan));
    let client = agent.client();
    let new = client.create("shop", 2);
    assert!(!new.resumed && new.id != first.id, "another schema is another region");
    assert_eq!(reader.counter("regions_resumed_total"), 1);
}

#[test]
fn a_program_that_dies_half_way() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let mut reader = agent.reader();
    // After create, before publish: nothing was visible, nothing remains.
    let mut program = Program::start(&agent, "half");
    assert_eq!(program.tell("create")["ok"], true);
    until("it is counted", || (bystander.counter("regions") == 2).then_some(()));
    program.kill();
    until("it is forgotten", || (bystander.counter("regions") == 1).then_some(()));
    assert!(reader.region("half").is_none());
    // After publish: the last value stays readable for the grace, then the entry goes.
    let mut program = Program::start(&agent, "whole");
    assert_eq!(program.tell("create")["ok"], true);
    assert_eq!(program.tell("publish")["ok"], true);
    assert_eq!(program.tell("set 99")["ok"], true);
    let pid = program.pid();
    program.kill();
    let orphan = until("the orphan", || reader.region("whole").filter(|entry| entry.orphan));
    assert_eq!(orphan.pid, pid);
    assert_eq!(reader.values("whole")["program_value{}"], 99.0);
    until("its end", || reader.region("whole").is_none().then_some(()));
    bystander.check();
    assert_eq!(bystander.counter("registration_connections"), 1);
}

#[test]
fn a_child_that_holds_the_connection_does_not_keep_the_region() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let mut reader = agent.reader();
    let mut program = Program::start(&agent, "forked");
    assert_eq!(program.tell("create")["ok"], true);
    assert_eq!(program.tell("publish")["ok"], true);
    let holder = program.tell("hold")["pid"].as_i64().unwrap();
    program.kill();
    until("its end", || reader.region("forked").is_none().then_some(()));
    let holder = rustix::process::Pid::from_raw(i32::try_from(holder).unwrap()).unwrap();
    rustix::process::test_kill_process(holder).expect("the child still holds the socket");
    rustix::process::kill_process(holder, rustix::process::Signal::KILL).unwrap();
    bystander.check();
    assert_eq!(bystander.counter("registration_connections_closed_total{reason=process}"), 1);
}

#[test]
fn a_program_that_never_reads_its_answers() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let client = agent.client();
    let request = json!({"op": "publish", "region": 999}).to_string();
    while client.send(request.as_bytes(), None).is_ok() {}
    until("it is counted", || {
        (bystander.counter("registration_connections_closed_total{reason=unread}") == 1).then_some(())
    });
    bystander.check();
}
