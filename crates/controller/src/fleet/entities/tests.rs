// SPDX-License-Identifier: Apache-2.0
//! What a host is shown with after many readings, most of them by words, is what it is shown with at a first look,
//! which is by samples.
#![allow(clippy::cast_precision_loss)] // small numbers

use std::collections::BTreeMap;

use onlooker_region::guard::commit;

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
