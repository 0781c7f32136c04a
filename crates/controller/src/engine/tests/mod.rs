// SPDX-License-Identifier: Apache-2.0
//! The engine without sockets, threads and clock: fleets in memory. In all of them [`world`] looks that each due time is
//! a reading or a gap, that no more is under way than may be, and that the engine sleeps.

mod world;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlooker_reader::Pair;
use onlooker_targets::Priority;

use super::Config;
use world::{MS, Manner, Plan, Told, World};

const MIXED: [Pair; 3] = [Pair::SOFT_KERNEL, Pair::VERBS_KERNEL, Pair::TCP];

fn config(window: usize, credit_bytes: u32, host_credit_bytes: u32) -> Config {
    let timeout = Duration::from_millis(500);
    Config { window, credit_bytes, host_credit_bytes, timeout, ..Config::default() }
}

/// So many hosts over mixed carriers.
fn fleet(hosts: usize, blocks: u32, interval_ms: u64) -> Vec<Plan> {
    let interval = Duration::from_millis(interval_ms);
    let (manner, priority) = (Manner::Answers, Priority::Normal);
    let plan = |host: usize| Plan { pair: MIXED[host % 3], manner, blocks, interval, priority };
    (0..hosts).map(plan).collect()
}

fn mixed_fleet(seed: u64) -> World {
    let mut plans = fleet(200, 9, 100);
    // Some are large, some do not answer.
    plans.iter_mut().step_by(17).for_each(|plan| plan.blocks = 150);
    plans.iter_mut().skip(5).step_by(40).for_each(|plan| plan.manner = Manner::Silent);
    plans.iter_mut().skip(7).step_by(50).for_each(|plan| plan.manner = Manner::Halting);
    let mut world = World::new(seed, config(128, 64 << 10, 32 << 10), &plans);
    world.pass(2_000 * MS);
    for (host, (plan, told)) in plans.iter().zip(&world.seen.hosts).enumerate() {
        match plan.manner {
            Manner::Answers => assert!(told.good >= 17 && told.partial == 0, "{host}: {told:?}"),
            Manner::Silent => assert!(told.good + told.partial == 0 && !told.missed.is_empty(), "{host}: {told:?}"),
            Manner::Halting => assert!(told.good == 0, "{host}: {told:?}"),
        }
        let accounted = told.good + told.partial + told.missed.values().sum::<u64>();
        assert!(accounted >= 20 - 6, "{host}: {told:?}");
    }
    world
}

#[test]
fn a_fleet_over_all_carriers_is_read_within_one_total() {
    let peaks = mixed_fleet(1).network().take_peaks();
    let (all, each) = (peaks[&None], MIXED.map(|pair| peaks[&Some(pair.by.to_string())]));
    // The total is what bounds it, not a part of it for each of them.
    assert!(all == 64 << 10 && each.iter().sum::<u64>() > all, "{peaks:?}");
}

#[test]
fn a_seed_says_everything() {
    let logs = [1, 1, 2].map(|seed| mixed_fleet(seed).seen.log);
    assert!(logs[0] == logs[1] && logs[0] != logs[2]);
}

#[test]
fn congestion_over_one_carrier_makes_all_give_way() {
    let mut world = World::new(3, config(60, 4 << 20, 256 << 10), &fleet(60, 150, 20));
    // What there is at first is not enough: a host wants 150 KiB every 20 ms, and more credit brings more.
    world.pass(200 * MS);
    let (grown, before) = (world.total_bytes(), world.network().take_peaks());
    assert!(grown > 300 << 10 && before.values().all(|bytes| *bytes > 120 << 10), "{grown} {before:?}");
    world.network().congested_bytes = 64 << 10;
    world.pass(20 * MS);
    world.network().take_peaks();
    world.pass(200 * MS);
    let (total, after) = (world.total_bytes(), world.network().take_peaks());
    let each = after.iter().filter(|(pair, _)| pair.is_some()).all(|(_, bytes)| *bytes < 120 << 10);
    assert!(total < 120 << 10 && each && after[&None] < 150 << 10, "{total} {after:?}");
    // It comes back.
    world.network().congested_bytes = u64::MAX;
    world.pass(400 * MS);
    let again = world.total_bytes();
    assert!(again > grown / 2, "{grown} {again}");
}

#[test]
fn hosts_that_do_not_answer_hold_their_part_until_the_time_out_and_stop_nobody() {
    let mut plans = fleet(12, 60, 1_000);
    plans.iter_mut().take(3).for_each(|plan| plan.manner = Manner::Halting);
    plans.iter_mut().skip(3).for_each(|plan| plan.interval = Duration::from_millis(50));
    plans[0].pair = Pair::SOFT_KERNEL;
    let mut world = World::new(4, config(12, 64 << 10, 64 << 10), &plans);
    // It has answered for its directory.
    world.pass(MS);
    let mut before = 0;
    while before <= 4 << 10 {
        world.pass(MS);
        before = world.held(0);
    }
    let read: Vec<u64> = world.seen.hosts.iter().map(|told| told.good).collect();
    for _ in 0..248 {
        world.pass(MS);
        assert_eq!(world.held(0), before);
    }
    for (told, read) in world.seen.hosts.iter().zip(read).skip(3) {
        assert!(told.good >= read + 4, "{read} {told:?}");
    }
}

/// Hosts that want more than the least total carries, all at once: nobody waits for more than its turn.
#[test]
fn with_the_least_total_each_host_gets_its_turn() {
    for seed in 0..2 {
        let mut plans = fleet(60, 6, 20);
        // Large ones wait longer for each reading, and no longer for each READ.
        plans.iter_mut().step_by(5).for_each(|plan| plan.blocks = 120);
        let mut world = World::new(seed, config(60, 8 << 10, 8 << 10), &plans);
        world.pass(400 * MS);
        let before: Vec<u64> = world.seen.hosts.iter().map(|told| told.good).collect();
        world.pass(800 * MS);
        let told = world.seen.hosts.iter().zip(before).map(|(told, before)| told.good - before);
        let (large, small): (Vec<_>, Vec<_>) = plans.iter().zip(told).partition(|(plan, _)| plan.blocks > 6);
        let range = |of: &[(&Plan, u64)]| {
            let read = of.iter().map(|(_, read)| *read);
            (read.clone().min().unwrap(), read.max().unwrap())
        };
        let ((least, most), (least_large, most_large)) = (range(&small), range(&large));
        let missed: u64 = world.seen.hosts.iter().flat_map(|told| told.missed.values()).sum();
        assert!(missed > 500, "seed {seed}: {missed} are too few to say anything");
        assert!(least + 3 >= most, "seed {seed}: {least} to {most}");
        // A large one takes 62 READs for a reading, a small one 5.
        assert!(
            least_large > 0 && least > 3 * most_large,
            "seed {seed}: {least_large} to {most_large}, others {least}"
        );
    }
}

/// The least total carries about half of what all want: the first class has all of that, the last one what is left.
#[test]
fn a_class_is_kept() {
    let mut plans = fleet(60, 6, 20);
    let classes = [Priority::High, Priority::Normal, Priority::Low, Priority::Normal, Priority::Low];
    plans.iter_mut().zip(classes.iter().cycle()).for_each(|(plan, class)| plan.priority = *class);
    let mut world = World::new(10, config(60, 8 << 10, 8 << 10), &plans);
    let of = |told: &Told| [told.good, told.missed.values().sum(), told.missed.get("late").copied().unwrap_or(0)];
    world.pass(400 * MS);
    let before: Vec<_> = world.seen.hosts.iter().map(of).collect();
    world.pass(800 * MS);
    let mut late = BTreeMap::<_, u64>::new();
    for ((plan, told), before) in plans.iter().zip(&world.seen.hosts).zip(before) {
        let after = of(told);
        let [good, missed, of_those_late] = [0, 1, 2].map(|at| after[at] - before[at]);
        assert!(missed == of_those_late && told.partial == 0, "{:?}: {told:?}", plan.priority);
        assert!(plan.priority != Priority::High || (missed == 0 && good >= 39), "{good} readings, {told:?}");
        *late.entry(plan.priority).or_default() += missed;
    }
    // 24 hosts each.
    assert!(late[&Priority::Low] > 24 * 20 && late[&Priority::Low] > 2 * late[&Priority::Normal], "{late:?}");
}

/// Due times without a reading, by reason, of all hosts.
fn missed(world: &World) -> BTreeMap<&'static str, u64> {
    let mut missed = BTreeMap::new();
    for (reason, count) in world.seen.hosts.iter().flat_map(|told| &told.missed) {
        *missed.entry(*reason).or_default() += count;
    }
    missed
}

/// Room comes with nothing else where what was given up long ago is over, or a full socket has sent something.
#[test]
fn a_host_without_room_is_read_as_soon_as_there_is_some() {
    for pair in MIXED {
        // Due at whole seconds.
        let plan = Plan { pair, ..fleet(1, 9, 1_000)[0] };
        let mut world = World::new(6, config(1, 64 << 10, 64 << 10), &[plan]);
        world.pass(2_500 * MS);
        let read = world.seen.hosts[0].good;
        assert!(read > 0);
        world.fill(1_000 * MS);
        world.pass(1_000 * MS);
        assert_eq!(world.seen.hosts[0].good, read);
        // Several round trips; its time is over only half a second later.
        world.pass(30 * MS);
        assert_eq!(world.seen.hosts[0].good, read + 1, "{pair}: {:?}", world.seen.hosts[0]);
    }
}

#[test]
fn a_way_that_cannot_be_used_is_counted_and_its_host_asked_again() {
    let plan = Plan { pair: Pair::TCP, ..fleet(1, 9, 100)[0] };
    let mut world = World::new(7, config(1, 64 << 10, 64 << 10), &[plan]);
    world.engine.connector.unusable.set(3);
    world.pass(5_000 * MS);
    assert_eq!(world.pressure.unusable.each_ref().map(|count| count.load(Ordering::Relaxed)), [0, 0, 3]);
    // Pauses of a quarter, a half and a whole second.
    assert!(world.seen.hosts[0].good >= 20, "{:?}", world.seen.hosts[0]);
}

#[test]
fn a_connection_closed_between_two_readings_costs_one_of_them() {
    let mut plans = fleet(3, 9, 500);
    plans.iter_mut().for_each(|plan| plan.pair = Pair::TCP);
    let mut world = World::new(8, config(3, 64 << 10, 64 << 10), &plans);
    // A link that breaks sooner makes its host wait.
    world.pass(6_000 * MS);
    let (before, read) = (missed(&world), world.seen.hosts[1].good);
    for closed in 1..=2 {
        while world.held(1) > 0 {
            world.pass(MS);
        }
        world.close(1);
        world.pass(6_000 * MS);
        assert_eq!(missed(&world).get("lost"), Some(&closed), "{:?}", world.seen.hosts);
    }
    let after = missed(&world);
    assert_eq!(after.values().sum::<u64>(), before.values().sum::<u64>() + 2, "{after:?}");
    assert!(world.seen.hosts[1].good >= read + 24 - 2 - 1, "{:?}", world.seen.hosts[1]);
}

/// The sequence of decision 0019: one after the other takes its READs along until its reading's deadline, and all stop
/// before the first one's is over.
#[test]
fn hosts_over_tcp_that_stall_one_after_the_other_stop_nobody_and_come_back() {
    let mut plans = fleet(40, 400, 2_000);
    plans.iter_mut().for_each(|plan| plan.pair = Pair::TCP);
    let (stalling, rest) = (0..20, 20..40);
    plans[rest.clone()].iter_mut().for_each(|plan| (plan.blocks, plan.interval) = (60, Duration::from_millis(50)));
    let mut world = World::new(9, config(128, 4 << 20, 256 << 10), &plans);
    let good = |world: &World| world.seen.hosts.iter().map(|told| told.good).collect::<Vec<_>>();
    world.pass(6_000 * MS);
    let before = missed(&world);
    stalling.clone().for_each(|host| world.behave(host, Manner::Halting));
    // Each stops at its next due time, and the first reading of them ends at the same time as the last one begins.
    world.pass(1_900 * MS);
    let (mut holding, read) = ((0, 0), good(&world));
    for _ in 0..200 {
        world.pass(MS);
        let held = stalling.clone().map(|host| world.held(host)).filter(|held| *held > 0);
        holding = holding.max(held.fold((0, 0), |(hosts, all), held| (hosts + 1, all + held)));
    }
    assert!(holding.0 >= 18 && holding.1 > 256 << 10, "{holding:?}: too few to say anything");
    for host in rest {
        assert!(world.seen.hosts[host].good >= read[host] + 3, "{host}: {:?}", world.seen.hosts[host]);
    }
    assert_eq!(missed(&world).get("late"), before.get("late"));
    stalling.clone().for_each(|host| world.behave(host, Manner::Answers));
    // As long as the pauses may have grown by now.
    world.pass(8_000 * MS);
    let (read, before) = (good(&world), missed(&world));
    world.pass(4_000 * MS);
    for host in stalling {
        assert!(world.seen.hosts[host].good > read[host], "{host}: {:?}", world.seen.hosts[host]);
    }
    assert_eq!(missed(&world), before);
}
