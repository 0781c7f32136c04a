// SPDX-License-Identifier: Apache-2.0
//! What is recorded sample by sample.

use onlooker_promql::labels::Labels;
use onlooker_promql::source::STALE;

use super::fixture::{S, T0, World, budget};
use crate::{NotRecorded, Recorder, lists};

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::new(pairs.iter().copied())
}

#[test]
fn samples_are_what_was_recorded_until_a_marker() {
    let (mut world, mut recorder) = (World::new(), Recorder::new(10));
    let [one, other] = ["a", "b"].map(|job| labels(&[("__name__", "job:load:sum"), ("job", job)]));
    let samples = [(1, 1.5), (2, f64::INFINITY), (3, -0.0), (100, 2.5), (110, STALE), (200, 4.0)];
    for (at, value) in samples {
        recorder.record(&mut world.appender, &one, (T0 + at * S).cast_signed(), value).unwrap();
    }
    recorder.record(&mut world.appender, &other, (T0 + 2 * S).cast_signed(), 7.0).unwrap();
    let all = world.samples("{__name__=\"job:load:sum\",job=\"a\"}", 0, 300 * S);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].0, one, "it has no other labels");
    let bits = |samples: &[(u64, f64)]| -> Vec<(u64, u64)> {
        samples.iter().map(|(at, value)| (*at, value.to_bits())).collect()
    };
    assert_eq!(bits(&all[0].1), bits(&samples.map(|(at, value)| (at * S, value))));
    assert!(lists::metadata(&world.store, &budget(1)).unwrap().is_empty(), "nobody has said what it is");
    // A value holds for five minutes, over any silence, and no longer than to its marker.
    let count = |world: &mut World, at: u64| world.query("count(job:load:sum)", at * S);
    assert_eq!(count(&mut world, 109), ["{} 2"]);
    assert_eq!(count(&mut world, 111), ["{} 1"]);
    assert_eq!(count(&mut world, 301), ["{} 2"]);
    assert_eq!(count(&mut world, 303), ["{} 1"]);
}

#[test]
fn a_recorder_that_begins_again_goes_on_with_its_series() {
    let mut world = World::new();
    let one = labels(&[("__name__", "up:sum")]);
    for at in 1..=3u64 {
        let time_ns = (T0 + at * S).cast_signed();
        Recorder::new(10).record(&mut world.appender, &one, time_ns, f64::from(u32::try_from(at).unwrap())).unwrap();
    }
    let all = world.samples("up:sum", 0, 10 * S);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].1, [(S, 1.0), (2 * S, 2.0), (3 * S, 3.0)]);
}

#[test]
fn what_cannot_be_recorded_is_an_error() {
    let (mut world, mut recorder) = (World::new(), Recorder::new(10));
    let nameless = recorder.record(&mut world.appender, &labels(&[("job", "a")]), 0, 1.0);
    assert!(matches!(nameless, Err(NotRecorded::Nameless)));
    let early = recorder.record(&mut world.appender, &labels(&[("__name__", "a")]), -1, 1.0);
    assert!(matches!(early, Err(NotRecorded::Time)));
    let mut record = |name: String| recorder.record(&mut world.appender, &labels(&[("__name__", &name)]), 1, 1.0);
    (0..10).for_each(|at| record(format!("a{at}")).unwrap());
    assert!(matches!(record("b".to_owned()), Err(NotRecorded::TooMany(10))));
}

#[test]
fn a_series_has_one_sample_a_time_and_one_end() {
    let (mut world, mut recorder) = (World::new(), Recorder::new(10));
    let one = labels(&[("__name__", "up:sum")]);
    let mut record = |at: u64, value: f64| {
        let recorded = recorder.record(&mut world.appender, &one, (T0 + at * S).cast_signed(), value);
        (recorded.map_err(|error| error.to_string()), recorder.series())
    };
    let late = Err(NotRecorded::Late.to_string());
    assert_eq!(record(1, STALE), (Ok(()), 0), "the end of nothing");
    assert_eq!(record(2, 1.0), (Ok(()), 1));
    assert_eq!(record(2, 5.0), (late.clone(), 1));
    assert_eq!(record(1, 5.0), (late, 1));
    assert_eq!(record(2, STALE), (Ok(()), 1), "it goes on");
    assert_eq!(record(3, STALE), (Ok(()), 0));
    assert_eq!(record(4, STALE), (Ok(()), 0));
    assert_eq!(record(5, 2.0), (Ok(()), 1));
    let all = world.samples("up:sum", 0, 10 * S);
    let bits: Vec<_> = all[0].1.iter().map(|(at, value)| (at / S, value.to_bits())).collect();
    assert_eq!(bits, [(2, 1.0), (3, STALE), (5, 2.0)].map(|(at, value): (u64, f64)| (at, value.to_bits())));
}
