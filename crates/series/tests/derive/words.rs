// SPDX-License-Identifier: Apache-2.0
//! By words a region gives what it gives by samples, whatever stands in its blocks.

use onlooker_region::block::Identity;
use onlooker_region::checked::Verdicts;
use onlooker_region::columns::Plan;
use onlooker_region::control::RegionEntry;
use onlooker_region::{Block, Schema};
use onlooker_series::derive::{Derived, Given, Room, Words, row_of, texts_mark};
use onlooker_series::series::fill;

use crate::machine::{Machine, allocations, blocks_of, entry, samples};

/// All kinds of groups and fields; sums that replace their elements and sums that stand beside them, over several
/// groups, of rows, of a computed group and its twin.
const SCHEMA: &str = r#"{"name":"all","groups":[
    {"kind":"plain","blocks":1,"fields":[
        {"name":"plain_total","metric":"counter","type":"u64","slot":3}]},
    {"kind":"guarded","blocks":3,"fields":[
        {"name":"guarded_info","metric":"info","type":"text","bytes":16},
        {"name":"guarded","metric":"gauge","type":"f64","slot":130},
        {"name":"cpu_total","metric":"counter","type":"u64","slot":2,
         "array":{"label":"cpu","count":5,"stride":60},"sum":{}},
        {"name":"queue","metric":"gauge","type":"i64","slot":3,
         "array":{"label":"cpu","count":5,"stride":60},"sum":{"name":"queues","help":"Of all."}},
        {"name":"latency","metric":"histogram","type":"u64","slot":304,
         "histogram":{"grouping_power":1,"max_power":9}}]},
    {"kind":"guarded","blocks":1,"fields":[
        {"name":"cpu_total","metric":"counter","type":"u64","slot":9,
         "array":{"label":"cpu","count":2,"stride":1,"values":["5","6"]},"sum":{}}]},
    {"kind":"foreign","blocks":1,"fields":[
        {"name":"narrow","metric":"gauge","type":"i16","slot":6},
        {"name":"foreign_info","metric":"info","type":"text","slot":32,"bytes":8},
        {"name":"float","metric":"gauge","type":"f32","slot":20}]},
    {"kind":"table","blocks":2,"key":[{"name":"k","type":"text","bytes":8}],"fields":[
        {"name":"row_info","metric":"info","type":"text","slot":0,"bytes":8},
        {"name":"row_total","metric":"counter","type":"u64","slot":1,
         "array":{"label":"cpu","count":3,"stride":2},"sum":{}},
        {"name":"level","metric":"gauge","type":"f64","slot":2}]},
    {"kind":"computed","blocks":1,"acquisition":"computed","fields":[
        {"name":"twin_total","metric":"counter","type":"u64","array":{"label":"cpu","count":2,"stride":1},"sum":{}},
        {"name":"twin","metric":"gauge","type":"u64","slot":2}]},
    {"kind":"guarded","blocks":1,"acquisition":"published","twin_of":5,"fields":[
        {"name":"twin_total","metric":"counter","type":"u64","array":{"label":"cpu","count":2,"stride":1},"sum":{}},
        {"name":"twin","metric":"gauge","type":"u64","slot":2}]}]}"#;

/// Group, row, words, series with the mark of their texts, time; of sums their set, behind all groups, and the labels of the row.
type Got = (u32, Option<(u32, u32)>, Vec<u64>, (usize, u64), Option<u64>, Vec<(String, String)>);

fn of_sum(sum: &onlooker_series::derive::Sum<'_>) -> Got {
    (u32::MAX - sum.set, sum.row, sum.words.to_vec(), (sum.metrics.len(), 0), sum.time_ns, sum.row_labels.to_vec())
}

/// What a region gives by samples.
fn by_samples(derived: &mut Derived, entry: &RegionEntry, plan: &Plan, blocks: &[Block]) -> Vec<Got> {
    let mut got = Vec::new();
    derived.read(entry, plan, &samples(entry, plan, blocks), |given| match given {
        Given::Values { group, samples, series } => {
            assert_eq!(samples.len(), series);
            let mut words = Vec::new();
            fill(samples, &mut words);
            got.push((
                group,
                row_of(&samples[0]),
                words,
                (series, texts_mark(samples)),
                samples[0].time_ns,
                Vec::new(),
            ));
        }
        Given::Sum(sum) => got.push(of_sum(&sum)),
    });
    got
}

/// And by words; and how many values were decoded.
fn by_words(derived: &mut Derived, entry: &RegionEntry, plan: &Plan, blocks: &[Block]) -> (Vec<Got>, usize) {
    let (mut got, mut room) = (Vec::new(), Room::default());
    let verdicts = Verdicts::of(plan, entry.identity, blocks).unwrap();
    let values = derived.read_words(entry, plan, verdicts.on(plan, blocks), &mut room, |given| match given {
        Words::Values { group, row, words, series, texts, time_ns } => {
            got.push((group, row, words.to_vec(), (series, texts), time_ns, Vec::new()));
        }
        Words::Sum(sum) => got.push(of_sum(&sum)),
    });
    (got, values)
}

#[test]
fn words_are_those_of_the_samples_whatever_is_read() {
    bolero::check!().with_type::<(bool, Vec<(u8, [u64; 7])>)>().for_each(|(is_agents, readings)| {
        let plan = Plan::new(Schema::parse(SCHEMA).unwrap());
        let identity = Identity { region: if *is_agents { 3 } else { 300 }, generation: 1, index: 0 };
        let entry = entry("all", identity, &plan);
        let (mut one, mut other) = (Derived::default(), Derived::default());
        for (number, (turn, noise)) in readings.iter().enumerate() {
            // Numbers grow, most often; rows come and go.
            let word = |group: usize, slot: usize| {
                let row_words = plan.schema().groups[group].layout().map(|layout| layout.row_words());
                let noise = noise[(group + slot + usize::from(*turn)) % 7];
                match row_words.map(|words| slot % 124 % words) {
                    Some(0) => Some((noise & 1) << 32 | noise >> 62),
                    Some(1) => Some(u64::from(b'a') + noise % 3),
                    _ => Some(if noise & 8 == 0 { noise } else { number as u64 + noise % 5 }),
                }
            };
            // Some blocks are older than those before, and the computed one is missing at times.
            let time = |block: usize| match block {
                8 if noise[0] & 1 == 1 => 0,
                _ => 100 + 10 * number as u64 - noise[block % 7] % 16,
            };
            let mut blocks = blocks_of(plan.schema(), time, word, identity);
            blocks[0].0[0] = identity.word();
            one.begin(Some([1; 16]));
            other.begin(Some([1; 16]));
            let verdicts = Verdicts::of(&plan, identity, &blocks).unwrap();
            assert_eq!(verdicts.refused(), []);
            let expected = by_samples(&mut one, &entry, &plan, &blocks);
            let (got, values) = by_words(&mut other, &entry, &plan, &blocks);
            assert_eq!(got, expected);
            assert_eq!(values, samples(&entry, &plan, &blocks).len());
        }
    });
}

/// One reading may go by samples and the next by words: the sums go on.
#[test]
fn sums_go_on_from_samples_to_words() {
    let mut machine = Machine::new(9, &["lo"]);
    let mut derived = Derived::default();
    for number in 0..4 {
        machine.cpus[number] = [100, 1];
        machine.now_ns += 1_000;
        derived.begin(Some([1; 16]));
        let (entry, plan, blocks) = machine.regions().remove(0);
        let got = match number % 2 {
            0 => by_samples(&mut derived, &entry, &plan, &blocks),
            _ => by_words(&mut derived, &entry, &plan, &blocks).0,
        };
        let count = number as u64 + 1;
        assert_eq!(got.last().unwrap().2, [100 * count, count]);
    }
}

#[test]
fn a_reading_by_words_allocates_nothing() {
    let machine = Machine::new(24, &["lo", "eth0"]);
    let (mut derived, mut room) = (Derived::default(), Room::default());
    let regions = machine.regions();
    let verdicts =
        |(entry, plan, blocks): &(RegionEntry, Plan, Vec<Block>)| Verdicts::of(plan, entry.identity, blocks).unwrap();
    let verdicts: Vec<Verdicts> = regions.iter().map(verdicts).collect();
    for reading in 0..4 {
        let (mut given, before) = (0, allocations());
        derived.begin(Some([1; 16]));
        for ((entry, plan, blocks), verdicts) in regions.iter().zip(&verdicts) {
            derived.read_words(entry, plan, verdicts.on(plan, blocks), &mut room, |_| given += 1);
        }
        assert_eq!(given, 1 + 1 + 2, "the CPUs' values and sums, and sums of two devices");
        assert!(reading == 0 || allocations() == before);
    }
}
