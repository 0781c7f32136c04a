// SPDX-License-Identifier: Apache-2.0
//! What is handed on is what PromQL reads.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use onlooker_framestore::client::Description;
use onlooker_framestore::layout::Layout;
use onlooker_promql::Query;
use onlooker_promql::labels::Labels;
use onlooker_promql::source::STALE;
use onlooker_series::series::Series;

use super::*;
use crate::Recorder;
use crate::tests::fixture::{MS, S, T0, World, description, gauge, pair};

/// Samples by the text of the labels, ns since T0.
type All = BTreeMap<String, Vec<(u64, u64)>>;

#[derive(Default)]
struct Kept {
    all: All,
    /// Takes so many more.
    most: Option<usize>,
}

impl Taker for Kept {
    type About = ();

    fn name(&mut self, labels: BTreeMap<String, String>, _: &Series) -> Option<(Box<[u8]>, ())> {
        Some((text(labels.into_iter()).into_bytes().into(), ()))
    }

    fn take(&mut self, key: &[u8], (): &(), samples: &mut dyn Iterator<Item = (i64, f64)>) -> ControlFlow<()> {
        let own = self.all.entry(String::from_utf8(key.to_vec()).unwrap()).or_default();
        own.extend(samples.map(|(time_ns, value)| (time_ns.cast_unsigned() - T0, value.to_bits())));
        assert!(own.is_sorted_by(|one, next| one.0 < next.0), "{own:?}");
        match &mut self.most {
            Some(0) => ControlFlow::Break(()),
            Some(most) => {
                *most -= 1;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Continue(()),
        }
    }
}

fn text(labels: impl Iterator<Item = (String, String)>) -> String {
    labels.map(|(name, value)| format!("{name}={value};")).collect()
}

/// All that PromQL reads.
fn read(world: &mut World, selector: &str, until_ns: u64) -> All {
    let all = world.samples(selector, 0, until_ns).into_iter();
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let bits = |samples: Vec<(u64, f64)>| samples.into_iter().map(|(at, value)| (at, value.to_bits())).collect();
    all.map(|(labels, samples)| (text(labels.iter().map(owned)), bits(samples))).collect()
}

/// What there is later on.
fn after(all: &All, done_ns: u64) -> All {
    let later = |samples: &Vec<(u64, u64)>| samples.iter().filter(|(time_ns, _)| *time_ns > done_ns).copied().collect();
    let all = all.iter().map(|(name, samples)| (name.clone(), later(samples)));
    all.filter(|(_, samples): &(String, Vec<_>)| !samples.is_empty()).collect()
}

fn follower(world: &World, selectors: &[&str], quantum_ns: u64) -> Follower<()> {
    let selectors: Vec<_> = selectors.iter().map(|text| Query::selector(text).unwrap()).collect();
    Follower::new(world.store.clone(), &selectors, quantum_ns, T0).unwrap()
}

/// Slices of five seconds.
fn advance(world: &mut World, follower: &mut Follower<()>, kept: &mut Kept, until_ns: u64) {
    world.writer.turn().unwrap();
    while follower.done_ns() < T0 + until_ns {
        let to_ns = (follower.done_ns() + 5 * S).min(T0 + until_ns);
        assert_eq!(follower.advance(to_ns, kept).unwrap(), Slice::default());
    }
}

#[test]
fn what_is_handed_on_is_what_promql_reads() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load"), gauge("more")], vec![gauge("seldom")]]));
    // A part that has something new every 30 s, a silence of 20 s, and an end.
    for at in (1..=1_200u64).filter(|at| !(600..800).contains(at)) {
        let time_ns = T0 + at * 100 * MS;
        let seldom_ns = T0 + (at / 300 * 30 * S).max(100 * MS);
        let words = [time_ns - MS, (at as f64).to_bits(), 2.5f64.to_bits(), seldom_ns, (at as f64).to_bits()];
        world.append(track, time_ns, &words);
    }
    let (mut kept, mut follower) = (Kept::default(), follower(&world, &[], 1));
    advance(&mut world, &mut follower, &mut kept, 200 * S);
    let expected = read(&mut world, "{__name__!=\"\"}", 200 * S);
    assert_eq!(expected.len(), 3);
    assert_eq!(kept.all, expected);
    assert_eq!((follower.series(), follower.tracks.len()), (0, 0));
}

/// Two agents' schemas one after the other, and a program with a series of the agent's name, whose samples are somewhat
/// earlier.
#[test]
fn several_lanes_of_a_series_are_one() {
    let mut world = World::new();
    let first = world.track(&description("a", vec![vec![gauge("load")]]));
    let second = world.track(&description("a", vec![vec![gauge("load"), gauge("new")]]));
    let program = Description { source: (7 << 32) | 9, ..description("a", vec![vec![gauge("load")]]) };
    let program = world.track(&program);
    let mut row = |track, at: u64, words: &[f64]| {
        let words: Vec<u64> = words.iter().map(|value| value.to_bits()).collect();
        let early_ns = if track == program { MS } else { 0 };
        world.append(track, T0 + at * S + u64::from(words.len() == 2) * MS - early_ns, &words);
    };
    for at in 1..=100u64 {
        if at <= 30 {
            row(first, at, &[1.0]);
        } else if at < 60 {
            row(second, at, &[2.0, 3.0]);
        }
        row(program, at, &[9.0]);
    }
    let (mut kept, mut follower) = (Kept::default(), follower(&world, &[], 1));
    advance(&mut world, &mut follower, &mut kept, 150 * S);
    let expected = read(&mut world, "{__name__!=\"\"}", 150 * S);
    assert_eq!(kept.all, expected);
    assert_eq!(follower.series(), 0);
    // Who begins again knows which of them is shown.
    for done_ns in [10, 29, 30, 45, 62, 70, 104].map(|at| at * S) {
        let mut kept = Kept::default();
        let mut again = Follower::new(world.store.clone(), &[], 1, T0 + done_ns).unwrap();
        advance(&mut world, &mut again, &mut kept, 150 * S);
        assert_eq!(kept.all, after(&expected, done_ns), "{done_ns}");
    }
}

#[test]
fn lines_of_a_table_come_and_go() {
    let mut world = World::new();
    let table =
        Layout::new(vec![onlooker_framestore::layout::Part::new("disks", 0, vec![gauge("reads")]).shared()], true);
    let table = Description { layout: table.into(), ..description("a", Vec::new()) };
    let track = world.track(&table);
    for (name, from, to) in [("sda", 0, 200u64), ("sdb", 50, 60)] {
        let line = world.appender.line(track, &[pair("device", name)], &[], T0).unwrap();
        for at in from..to {
            world.appender.append(track, line, T0 + (at + 1) * S, &[(at as f64).to_bits()]).unwrap();
        }
    }
    let (mut kept, mut follower) = (Kept::default(), follower(&world, &["{device=~\"sd.\"}"], 1));
    advance(&mut world, &mut follower, &mut kept, 400 * S);
    assert_eq!(kept.all, read(&mut world, "{__name__!=\"\"}", 400 * S));
    assert_eq!(kept.all.len(), 2);
}

#[test]
fn a_follower_that_begins_again_hands_on_the_rest_and_ends_what_has_ended() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load"), gauge("more")]]));
    (1..=40u64).for_each(|at| world.append(track, T0 + at * S, &[at, 2].map(|value| (value as f64).to_bits())));
    let expected = read(&mut world, "{__name__!=\"\"}", 60 * S);
    // Broken off within the second slice, of which one series was taken.
    let mut kept = Kept { most: Some(3), ..Kept::default() };
    let mut before = follower(&world, &[], 1);
    assert!(!before.advance(T0 + 10 * S, &mut kept).unwrap().is_broken);
    assert!(before.advance(T0 + 20 * S, &mut kept).unwrap().is_broken);
    assert_eq!(before.done_ns(), T0 + 10 * S);
    // Ended at 45 s: who begins at 42 s knows that something goes on.
    for done_ns in [10 * S, 42 * S] {
        let mut kept = Kept::default();
        let mut again = Follower::new(world.store.clone(), &[], 1, T0 + done_ns).unwrap();
        advance(&mut world, &mut again, &mut kept, 60 * S);
        assert_eq!(kept.all, after(&expected, done_ns));
        assert_eq!(kept.all.len(), 2);
    }
}

#[test]
fn a_step_has_the_last_sample_of_each_and_ends() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")]]));
    (1..=300u64).for_each(|at| world.append(track, T0 + at * 100 * MS, &[(at as f64).to_bits()]));
    let (mut kept, mut follower) = (Kept::default(), follower(&world, &["load"], 10 * S));
    world.writer.turn().unwrap();
    for to in [10, 20, 30, 40] {
        // A slice ends where a step does.
        follower.advance(T0 + to * S - 1, &mut kept).unwrap();
    }
    let samples = kept.all.values().next().unwrap();
    let expected = [(9_900, 99.0), (19_900, 199.0), (29_900, 299.0), (30_000, 300.0)];
    assert_eq!(samples[..4], expected.map(|(at, value): (u64, f64)| (at * MS, value.to_bits())));
    assert_eq!(samples[4..], [(35 * S, STALE.to_bits())]);
}

/// Rows that come late, and a clock that is set back.
#[test]
fn late_rows_are_handed_on_with_the_next_slice() {
    let mut world = World::new();
    let (one, other) =
        (world.track(&description("a", vec![vec![gauge("load")]])), description("b", vec![vec![gauge("load")]]));
    let other = world.track(&other);
    (1..=10u64).for_each(|at| world.append(one, T0 + at * S, &[1.0f64.to_bits()]));
    world.append(other, T0 + S, &[1.0f64.to_bits()]);
    let (mut kept, mut follower) = (Kept::default(), follower(&world, &[], 1));
    advance(&mut world, &mut follower, &mut kept, 4 * S);
    (2..=10u64).for_each(|at| world.append(other, T0 + at * S, &[2.0f64.to_bits()]));
    advance(&mut world, &mut follower, &mut kept, 11 * S);
    assert_eq!(kept.all, read(&mut world, "{__name__!=\"\"}", 11 * S));
}

#[test]
fn rows_that_have_gone_are_passed_over() {
    let mut world = World::new();
    let track = world.track(&description("a", vec![vec![gauge("load")]]));
    (100..=110u64).for_each(|at| world.append(track, T0 + at * S, &[(at as f64).to_bits()]));
    let (mut kept, mut follower) = (Kept::default(), follower(&world, &[], 1));
    world.writer.turn().unwrap();
    assert_eq!(follower.skip_gone(100 * S), None);
    assert_eq!(follower.skip_gone(60 * S), Some((T0 + 1, T0 + 100 * S - 1)));
    assert_eq!(follower.skip_gone(0), None);
    advance(&mut world, &mut follower, &mut kept, 110 * S);
    assert_eq!(kept.all, read(&mut world, "load", 110 * S));
}

#[test]
fn recorded_series_are_handed_on_with_their_own_ends() {
    let (mut world, mut recorder) = (World::new(), Recorder::new(10));
    let one = Labels::new([("__name__", "job:load:sum"), ("job", "a")]);
    for (at, value) in [(1, 1.5), (100, 2.5), (110, STALE), (200, 4.0), (300, STALE)] {
        recorder.record(&mut world.appender, &one, (T0 + at * S).cast_signed(), value).unwrap();
    }
    let (mut kept, mut follower) = (Kept::default(), follower(&world, &[], 1));
    advance(&mut world, &mut follower, &mut kept, 250 * S);
    assert_eq!(follower.series(), 1, "it goes on over any silence");
    advance(&mut world, &mut follower, &mut kept, 400 * S);
    assert_eq!(kept.all, read(&mut world, "job:load:sum", 400 * S));
    assert_eq!(follower.series(), 0);
}
