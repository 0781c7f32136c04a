// SPDX-License-Identifier: Apache-2.0
//! A program, a real agent, a reader: what is published can be read, while agents come and go.

mod common;

use common::{PATIENCE, Site, eventually, use_socket};
use onlooker_sdk::{Counter, Elements, Gauge, Metric, Region, State, Text, UpDown, histogram};
use std::net::IpAddr;
use std::time::Duration;

onlooker_sdk::globals! {
    /// Globals of the test.
    pub static GLOBALS: Globals = "globals" {
        /// Requests
        /// served.
        requests: Counter = "g_requests_total", unit "requests", labels { "shard": "3" };
        in_flight: UpDown = "g_in_flight";
        level: Gauge<f64> = "g_level", scale 0.5;
        jobs: [Counter; 4] = "g_jobs_total", per "worker";
        latency: histogram!(2, 30) = "g_latency_seconds", unit "seconds", scale 1e-9;
    }
}

#[test]
fn what_is_published_can_be_read_while_agents_come_and_go() {
    let site = Site::new();
    use_socket(&site.socket());

    GLOBALS.requests.add(5);
    GLOBALS.in_flight.add(-2);
    GLOBALS.level.set(3.0);
    GLOBALS.jobs[3].add(9);
    GLOBALS.latency.record(1000);
    assert_eq!(onlooker_sdk::status().state, State::Idle, "nothing is published before start()");
    let address = std::ptr::from_ref(&GLOBALS);
    onlooker_sdk::start();

    let mut shop = Region::builder("shop");
    shop.label("tier", "gold");
    let requests = shop.counter(Metric::new("requests_total").label("code", "200"));
    let open = shop.gauge::<i64>("open");
    let workers = shop.counters("jobs_total", Elements::named("worker", &["ann", "bob"]).spread());
    let latency = shop.histogram("latency", 3, 40);
    let (cart, (items, value, owner)) =
        shop.guarded(|g| (g.counter::<u64>("items_total"), g.gauge::<f64>("cart_value"), g.text("owner", 16)));
    let (clients, bytes) =
        shop.table::<(Text<16>, IpAddr), _>(["client", "peer"], 100, |t| t.counter::<u64>("client_bytes_total"));
    let shop = shop.open().expect("opens");
    let (requests, open, workers) = (shop.get(requests), shop.get(open), shop.get(workers));
    let (latency, cart, clients) = (shop.get(latency), shop.get(cart), shop.get(clients));

    requests.add(7);
    open.set(-4);
    workers.get(1).expect("bob").add(11);
    (0..10).for_each(|n| latency.record(n * 1_000_000));
    cart.commit(|cart| {
        cart.add(items, 3);
        cart.set(value, 9.5);
        cart.set_text(owner, "ann");
    });
    let peer: IpAddr = "10.0.0.7".parse().expect("an address");
    clients.upsert(("alice", peer), |row| row.add(bytes, 100)).expect("room");
    clients.upsert(("bert", peer), |row| row.add(bytes, 1)).expect("room");
    assert!(clients.remove(("bert", peer)));

    // No agent yet, not even its directory; the wait between attempts has grown to seconds.
    assert!(!onlooker_sdk::wait(Duration::from_millis(2600)));
    assert_eq!(onlooker_sdk::status().state, State::Waiting);
    let mut agent = site.start();
    let begin = std::time::Instant::now();
    assert!(onlooker_sdk::wait(PATIENCE), "{:?}", onlooker_sdk::status());
    assert!(begin.elapsed() < Duration::from_millis(500), "inotify tells of the socket: {:?}", begin.elapsed());

    for round in 0..4 {
        let mut reader = agent.reader();
        let values = reader.named("globals");
        let of = |name: &str| *values.get(name).unwrap_or_else(|| panic!("{name} in {values:?}"));
        assert_eq!(of("g_requests_total{shard=3}"), f64::from(5 + round));
        assert_eq!((of("g_in_flight{}"), of("g_level{}")), (-2.0, 1.5));
        assert_eq!((of("g_jobs_total{worker=3}"), of("g_jobs_total{worker=0}")), (9.0, 0.0));
        assert_eq!(of("g_latency_seconds{}"), 1.0);

        let values = reader.named("shop");
        let of = |name: &str| *values.get(name).unwrap_or_else(|| panic!("{name} in {values:?}"));
        assert_eq!((of("requests_total{code=200}"), of("open{}")), (f64::from(7 + round), -4.0));
        assert_eq!((of("jobs_total{worker=ann}"), of("jobs_total{worker=bob}")), (0.0, 11.0));
        assert_eq!(of("latency{}"), 10.0);
        assert_eq!((of("items_total{}"), of("cart_value{}"), of("owner{}")), (f64::from(3 + round), 9.5, 1.0));
        assert_eq!(of("client_bytes_total{client=alice,peer=10.0.0.7}"), 100.0 + f64::from(round));
        assert_eq!(values.keys().filter(|key| key.starts_with("client_bytes")).count(), 1, "{values:?}");

        // Live: the next read sees it, nothing has to be sent.
        GLOBALS.requests.inc();
        requests.inc();
        cart.commit(|cart| cart.add(items, 1));
        clients.upsert(("alice", peer), |row| row.add(bytes, 1)).expect("room");
        assert_eq!(reader.named("shop")["items_total{}"], f64::from(4 + round));
        assert_eq!(reader.named("globals")["g_requests_total{shard=3}"], f64::from(6 + round));

        match round {
            // Another agent at once; one after the program has gone back to private memory; one that says goodbye.
            0 | 2 => agent = restart(&site, agent, Duration::ZERO),
            1 => agent = restart(&site, agent, Duration::from_millis(2300)),
            _ => {}
        }
    }
    assert_eq!(std::ptr::from_ref(&GLOBALS), address);
    let status = onlooker_sdk::status();
    assert_eq!((status.state, status.regions, status.published, status.refused), (State::Connected, 2, 2, 0));
    assert_eq!((status.connections, status.switches), (4, 8));

    // Being read wakes nobody here: the SDK's thread sleeps.
    let before = switches_of_the_thread();
    (0..20).for_each(|_| drop(agent.reader().named("shop")));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(switches_of_the_thread(), before);

    // The region ends with its last handle.
    let mut reader = agent.reader();
    drop((shop, requests, open, workers, latency, cart));
    assert!(reader.regions().iter().any(|region| region.name == "shop"), "a handle is left");
    drop(clients);
    eventually("the region is gone", || reader.regions().iter().all(|region| region.name != "shop").then_some(()));
    assert_eq!(reader.named("globals")["g_requests_total{shard=3}"], 9.0);
}

fn restart(site: &Site, agent: common::Agent, pause: Duration) -> common::Agent {
    drop(agent);
    eventually("the loss is noticed", || (onlooker_sdk::status().state == State::Waiting).then_some(()));
    std::thread::sleep(pause);
    let agent = site.start();
    assert!(onlooker_sdk::wait(PATIENCE), "{:?}", onlooker_sdk::status());
    agent
}

/// How often the SDK's thread has slept and been woken.
fn switches_of_the_thread() -> u64 {
    let statuses = std::fs::read_dir("/proc/self/task")
        .expect("reads")
        .map(|task| std::fs::read_to_string(task.expect("a task").path().join("status")).expect("reads"));
    let status = statuses.into_iter().find(|status| status.contains("Name:\tonlooker\n")).expect("the thread");
    let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
    switches.map(|line| line.rsplit('\t').next().and_then(|n| n.parse::<u64>().ok()).expect("a number")).sum()
}
