// SPDX-License-Identifier: Apache-2.0
//! What a host is shown with after many readings, most of them by words, is what it is shown with at a first look,
//! which is by samples.
#![allow(clippy::cast_precision_loss)] // small numbers

use std::collections::BTreeMap;

use onlooker_checks::Rules;
use onlooker_checks::config::{Checks, Rule};
use onlooker_region::guard::commit;
use onlooker_series::PATIENCE_READINGS;

use crate::fleet::Fleet;
use crate::fleet::fixture::{AHEAD_NS, Host, Region, World};

/// A text, a number behind it, elements that are replaced by their sum, and some that are not, over two blocks.
const FIXED: &str = r#"{"name":"node_cpu","groups":[{"kind":"guarded","blocks":2,"fields":[
    {"name":"node_info","metric":"info","type":"text","bytes":16},
    {"name":"node_level","metric":"gauge","type":"f64","slot":2},
    {"name":"node_ticks_total","metric":"counter","type":"u64","slot":3,
     "array":{"label":"cpu","count":2,"stride":130},"sum":{}},
    {"name":"node_latency","metric":"histogram","type":"u64","slot":10,
     "histogram":{"grouping_power":1,"max_power":9}}]}]}"#;
const TABLE: &str = r#"{"name":"node_disk","groups":[{"kind":"table","blocks":2,
    "key":[{"name":"device","type":"text","bytes":8}],"fields":[
    {"name":"node_disk_info","metric":"info","type":"text","bytes":8},
    {"name":"node_reads_total","metric":"counter","type":"u64","slot":1,
     "array":{"label":"cpu","count":2,"stride":1},"sum":{}},
    {"name":"node_depth","metric":"gauge","type":"u64","slot":3}]}]}"#;
const PROGRAMS: &str = r#"{"name":"shop","groups":[{"kind":"plain","blocks":1,"fields":[
    {"name":"orders_total","metric":"counter","type":"u64","array":{"label":"kind","count":3,"stride":4}}]}]}"#;
/// Words of a row of [`TABLE`].
const ROW: usize = 6;

/// What is shown, but for the boot time, which a first look knows less well.
fn shown(world: &World) -> BTreeMap<String, f64> {
    let mut shown = world.shown("a");
    shown.retain(|text, _| !text.starts_with("node_boot_time"));
    shown
}

fn text(text: &str) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|at| text.as_bytes().get(at).copied().unwrap_or(0)))
}

/// Writes all of the fixed region but one block, which is as it was.
fn write(region: &Region, number: u64, host_ns: u64, but: Option<u16>) {
    for block in (0..2).filter(|block| Some(*block) != but) {
        let me = region.entry.identity.at(block);
        commit(region.words.block(usize::from(block)), me, host_ns, |payload| match block {
            0 => {
                payload.set_all(0, &[text("one"), 0, (number as f64).to_bits(), 10 + number, 0, 0, 0, 0, 0, 0, number])
            }
            _ => payload.set(133 - 124, 20 + number),
        });
    }
}

/// Writes rows of a table: place and device.
fn rows(region: &Region, number: u64, host_ns: u64, rows: &[(usize, &str)]) {
    commit(region.words.block(0), region.entry.identity, host_ns, |payload| {
        for place in 0..124 / ROW {
            payload.set(place * ROW, 0);
        }
        for (place, device) in rows {
            let generation = 7 + device.len() as u64;
            let row = [1 << 32 | generation, text(device), text("ssd"), number, 2 * number, 3];
            payload.set_all(place * ROW, &row);
        }
    });
}

#[test]
fn a_reading_by_words_shows_what_a_first_look_shows() {
    let (mut world, mut host) = (World::new(), Host::new(64));
    let (fixed, table) = (host.region(2, "node_cpu", &[], FIXED), host.region(3, "node_disk", &[], TABLE));
    let shop = host.region(300, "shop", &[("pid", "77")], PROGRAMS);
    for number in 0..8 {
        let host_ns = world.now_ns() + AHEAD_NS;
        write(&fixed, number, host_ns, None);
        shop.words.set(0, 1 + 4, number);
        let devices: &[(usize, &str)] = match number {
            0..=2 => &[(0, "a")],
            3 => &[(0, "a"), (2, "bb")],
            _ => &[(2, "bb"), (1, "ccc")],
        };
        rows(&table, number, host_ns, devices);
        world.read("a", &host);
        let mut first = World::new();
        first.read("a", &host);
        let mut was = shown(&world);
        // Rows that are gone are shown a while longer.
        was.retain(|text, _| number < 4 || !text.contains(r#"device="a""#));
        assert_eq!(was, shown(&first), "reading {number}");
        let series = [1 + 1 + 1 + 1 + 3, 3 * devices.len()];
        assert_eq!(was.len(), series.iter().sum::<usize>(), "{was:?}");
        world.pass(1_000_000_000);
    }
}

#[test]
fn of_a_torn_region_the_rest_goes_on_and_so_does_all_when_it_is_whole_again() {
    let (mut world, mut host) = (World::new(), Host::new(64));
    let fixed = host.region(2, "node_cpu", &[], FIXED);
    let of = |world: &World, name: &str| shown(world)[&format!("{name}{{instance=\"a\"}}")];
    let mut sum = 0.0;
    for number in 0..6 {
        let host_ns = world.now_ns() + AHEAD_NS;
        let is_torn = number % 3 == 2;
        write(&fixed, number, host_ns, None);
        if is_torn {
            // A payload that its checksum does not know: one CPU is missing.
            fixed.words.set(1, 60, number + 1);
        } else {
            sum = 30.0 + 2.0 * number as f64;
        }
        world.read("a", &host);
        assert_eq!(
            [of(&world, "node_level"), of(&world, "node_ticks_total")],
            [number as f64, sum],
            "reading {number}"
        );
        world.pass(1_000_000_000);
    }
}

/// Values of other widths in two blocks.
const TWO: &str = r#"{"name":"shop","groups":[{"kind":"plain","blocks":2,"fields":[
    {"name":"shop_seconds","metric":"histogram","type":"u64","slot":0,
     "histogram":{"grouping_power":1,"max_power":9}},
    {"name":"shop_depth","metric":"gauge","type":"u64","slot":127}]}]}"#;

/// What a look has that misses a block is not taken for what another one has that misses another, though each has one
/// series.
#[test]
fn blocks_that_are_bad_in_turn_are_not_taken_for_each_other() {
    let (mut world, mut host) = (World::new(), Host::new(64));
    let shop = host.region(300, "shop", &[("pid", "77")], TWO);
    let identities = [0, 1].map(|block| shop.words.block(block)[0].load(std::sync::atomic::Ordering::Relaxed));
    for number in 0..9 {
        let bad = [Some(0), Some(1), None][number % 3];
        for (block, identity) in identities.into_iter().enumerate() {
            shop.words.set(block, 0, if bad == Some(block) { 0 } else { identity });
        }
        shop.words.set(1, 1, number as u64);
        world.read("a", &host);
        let shown: Vec<(String, f64)> =
            world.shown("a").into_iter().filter(|(text, _)| text.contains("shop")).collect();
        assert_eq!(shown.len(), if number < 2 { 1 } else { 2 }, "reading {number}: {shown:?}");
        let depth = shown.iter().find(|(text, _)| text.starts_with("shop_depth")).map(|(_, depth)| *depth);
        let taken = if number < 2 { 0 } else { number - (number + 1) % 3 };
        assert_eq!(depth, Some(taken as f64), "reading {number}");
        world.pass(1_000_000_000);
    }
}

#[test]
fn a_text_that_changes_is_another_series() {
    let (mut world, mut host) = (World::new(), Host::new(64));
    let (fixed, table) = (host.region(2, "node_cpu", &[], FIXED), host.region(3, "node_disk", &[], TABLE));
    for (number, word) in ["one", "one", "two", "two", "one", "\u{e9}"].into_iter().enumerate() {
        let host_ns = world.now_ns() + AHEAD_NS;
        write(&fixed, number as u64, host_ns, None);
        rows(&table, number as u64, host_ns, &[(0, "a")]);
        for (region, slot) in [(&fixed, 0), (&table, 2)] {
            commit(region.words.block(0), region.entry.identity.at(0), host_ns, |payload| {
                payload.set(slot, text(word))
            });
        }
        world.read("a", &host);
        let infos: Vec<String> = world.shown("a").into_keys().filter(|text| text.contains("_info")).collect();
        assert_eq!(infos.len(), 2, "{infos:?}");
        assert!(infos.iter().all(|info| info.contains(&format!("value=\"{word}\""))), "reading {number}: {infos:?}");
        world.pass(1_000_000_000);
    }
}

#[test]
fn an_identity_has_one_schema() {
    let mut entities = super::Entities::default();
    let [one, other] = [1, 2].map(|byte| Some(super::SchemaId([byte; 16])));
    assert_eq!(entities.enter(7, one, true), Some(0));
    entities.regions.get_mut(&7).unwrap().entities = 3;
    assert_eq!(entities.enter(7, one, true), Some(3));
    assert_eq!(entities.enter(7, other, true), None);
    entities.regions.get_mut(&7).unwrap().entities = 0;
    assert_eq!(entities.enter(7, other, true), Some(0), "what was known has gone");
}

const QUEUE: &str = r#"{"name":"shop","groups":[{"kind":"guarded","blocks":1,"fields":[
    {"name":"queue","metric":"gauge","type":"f64","slot":0},
    {"name":"sales_total","metric":"counter","type":"u64","slot":1}]}]}"#;

#[test]
fn what_fails_a_check_is_a_series_of_its_own_and_the_last_valid_value_stands() {
    let queue = Rule { range: Some([0.0, 10.0]), quantiles: vec![1.0], ..Rule::of("queue") };
    let sales = Rule { absent_intervals: Some(3), ..Rule::of("sales_total") };
    let rules = Rules::new(&Checks { shipped: true, rules: vec![queue, sales] }).unwrap();
    let (mut world, mut host) = (World::of(Fleet::default().judged_by(rules)), Host::new(64));
    let shop = host.region(300, "shop", &[("pid", "77")], QUEUE);
    let say = |world: &World, queue: f64, sales: u64| {
        let host_ns = world.now_ns() + AHEAD_NS;
        commit(shop.words.block(0), shop.entry.identity, host_ns, |payload| {
            payload.set_all(0, &[queue.to_bits(), sales])
        });
    };
    let read = |world: &mut World, host: &Host| {
        world.read("a", host);
        let shown = shown(world);
        world.pass(1_000_000_000);
        let of = |text: &str| shown.get(text).copied();
        let invalid = |text: &str| {
            let labels = format!(r#"{{instance="a",metric={text}}}"#);
            Some((
                of(&format!("onlooker_invalid_samples_total{labels}"))?,
                of(&format!("onlooker_invalid_sample{labels}"))?,
            ))
        };
        (
            of(r#"queue{instance="a",pid="77"}"#).unwrap(),
            invalid(r#""queue",pid="77",reason="range""#),
            invalid(r#""sales_total",pid="77",reason="absent""#),
            of(r#"onlooker_moving_quantile{instance="a",metric="queue",pid="77",quantile="1"}"#).unwrap(),
        )
    };
    say(&world, 4.0, 1);
    assert_eq!(read(&mut world, &host), (4.0, None, None, 4.0));
    say(&world, 11.0, 2);
    assert_eq!(read(&mut world, &host), (4.0, Some((1.0, 11.0)), None, 4.0));
    say(&world, -3.0, 3);
    assert_eq!(read(&mut world, &host), (4.0, Some((2.0, -3.0)), None, 4.0));
    say(&world, 5.0, 4);
    for _ in 0..3 {
        assert_eq!(read(&mut world, &host), (5.0, Some((2.0, -3.0)), None, 5.0));
    }
    for _ in 0..2 {
        assert_eq!(read(&mut world, &host).2, Some((1.0, 4.0)), "told once");
    }
    world.pass(700_000_000_000);
    // Rows that are gone are shown a while longer.
    let again = (5..7 + PATIENCE_READINGS).map(|sales| {
        say(&world, 6.0, sales);
        read(&mut world, &host)
    });
    let last = again.last();
    assert_eq!(last, Some((6.0, None, None, 6.0)), "failures of long ago are not shown");
    let host = world.fleet.host("a").unwrap();
    assert_eq!(host.look().entities.invalid(), &BTreeMap::from([("absent", 1), ("range", 2)]));
}
