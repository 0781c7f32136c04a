// SPDX-License-Identifier: Apache-2.0
//! Threads add without pause while agents are killed and started: no addition is lost, no commit is torn.

mod common;

use common::{PATIENCE, Site, eventually, use_socket};
use onlooker_sdk::{Counter, Elements, Region, State, Text, UpDown, histogram};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const RESTARTS: u32 = 50;

onlooker_sdk::globals! {
    /// Globals of the test.
    pub static GLOBALS: Globals = "globals" {
        total: Counter = "g_total";
        balance: UpDown = "g_balance";
        sizes: histogram!(1, 20) = "g_sizes";
    }
}

/// Ends the threads of a scope, which waits for them, also when an assertion fails.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "how long the switches took, for whoever looks")]
fn additions_survive_fifty_agents() {
    let site = Site::new();
    use_socket(&site.socket());
    onlooker_sdk::start();
    let mut builder = Region::builder("switch");
    let total = builder.counter("total");
    let lanes = builder.counters("lanes_total", Elements::new("lane", 300));
    let balance = builder.updown("balance");
    let last = builder.gauge::<u64>("last");
    let sizes = builder.histogram("sizes", 3, 30);
    let (pair, (left, right)) = builder.guarded(|g| (g.counter::<u64>("left_total"), g.counter::<u64>("right_total")));
    let (rows, hits) = builder.table::<(Text<16>, u64), _>(["name", "n"], 50, |t| t.counter::<u64>("hits_total"));
    let region = builder.open().expect("opens");
    let (total, lanes, balance, last) = (region.get(total), region.get(lanes), region.get(balance), region.get(last));
    let (sizes, pair, rows) = (region.get(sizes), region.get(pair), region.get(rows));

    let stop = AtomicBool::new(false);
    let mut agent = Some(site.start());
    // (additions of the first thread, of the second, commits, row changes, last value set)
    let (first, second, commits, changes, set) = std::thread::scope(|scope| {
        let adding = |lane: usize| {
            let mut n = 0u64;
            while !stop.load(Relaxed) {
                for _ in 0..100 {
                    n += 1;
                    total.inc();
                    GLOBALS.total.inc();
                    lanes.get(lane).expect("a lane").inc();
                    balance.add(if n.is_multiple_of(3) { -1 } else { 2 });
                    GLOBALS.balance.add(3);
                    sizes.record(n & 0xffff);
                    GLOBALS.sizes.record(n & 0xffff);
                }
            }
            n
        };
        let first = scope.spawn(move || adding(0));
        let second = scope.spawn(move || adding(299));
        let setting = scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Relaxed) {
                n += 1;
                last.set(n);
            }
            n
        });
        let committing = scope.spawn(|| {
            let (mut commits, mut changes) = (0u64, 0u64);
            while !stop.load(Relaxed) {
                commits += 1;
                pair.commit(|pair| {
                    pair.add(left, 1);
                    pair.add(right, 2);
                });
                for n in 0..10 {
                    changes += 1;
                    rows.upsert(("row", n), |row| row.add(hits, 1)).expect("room");
                }
                rows.upsert(("passing", commits), |row| row.set(hits, 1)).expect("room");
                assert!(rows.remove(("passing", commits)));
                std::thread::sleep(Duration::from_micros(20));
            }
            (commits, changes)
        });
        let stopping = Stopping(&stop);
        for restart in 0..RESTARTS {
            assert!(onlooker_sdk::wait(PATIENCE), "{:?}", onlooker_sdk::status());
            let mut reader = agent.as_ref().expect("started").reader();
            let values = reader.named("switch");
            // One of the two threads may be anywhere; commits are whole.
            assert_eq!(values["right_total{}"], 2.0 * values["left_total{}"], "torn in round {restart}");
            assert!(values["total{}"] >= values["left_total{}"].min(1.0));
            drop(agent.take());
            eventually("the loss is noticed", || (onlooker_sdk::status().state == State::Waiting).then_some(()));
            if restart == 25 {
                // Long enough for the regions to go back to private memory.
                std::thread::sleep(Duration::from_millis(2200));
            }
            agent = Some(site.start());
        }
        assert!(onlooker_sdk::wait(PATIENCE), "{:?}", onlooker_sdk::status());
        drop(stopping);
        let (commits, changes) = committing.join().expect("ends");
        (first.join().expect("ends"), second.join().expect("ends"), commits, changes, setting.join().expect("ends"))
    });

    let sum = first + second;
    let balances = |n: u64| i64::try_from(2 * (n - n / 3)).expect("small") - i64::try_from(n / 3).expect("small");
    assert_eq!((total.value(), GLOBALS.total.value()), (sum, sum));
    assert_eq!(lanes.get(0).expect("a lane").value(), first);
    assert_eq!(lanes.get(299).expect("a lane").value(), second);
    assert_eq!(balance.value(), balances(first) + balances(second));
    assert_eq!(GLOBALS.balance.value(), 3 * i64::try_from(sum).expect("small"));
    assert_eq!((sizes.count(), GLOBALS.sizes.count()), (sum, sum));
    let sum_of = |n: u64| (1..=n).map(|n| n & 0xffff).fold(0u64, u64::wrapping_add);
    assert_eq!((sizes.sum(), GLOBALS.sizes.sum()), (sum_of(first) + sum_of(second), sum_of(first) + sum_of(second)));
    assert_eq!(pair.commit(|pair| (pair.get(left), pair.get(right))), (commits, 2 * commits));
    assert_eq!(last.value(), set);
    assert_eq!(rows.len(), 10);
    let counted: u64 = (0..10).map(|n| rows.upsert(("row", n), |row| row.get(hits)).expect("there")).sum();
    assert_eq!(counted, changes);

    // And the same through the agent.
    let values = agent.expect("started").reader().named("switch");
    #[allow(clippy::cast_precision_loss)]
    let sum = sum as f64;
    assert_eq!(values["total{}"], sum);
    let status = onlooker_sdk::status();
    assert_eq!(status.connections, u64::from(RESTARTS) + 1);
    assert_eq!(status.switches, 2 * (u64::from(RESTARTS) + 1));
    println!(
        "{sum} additions over {} switches; last window {:?}, worst {:?}",
        status.switches, status.last_window, status.worst_window
    );
}
