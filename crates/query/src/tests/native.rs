// SPDX-License-Identifier: Apache-2.0
//! Histograms as PromQL's native ones: those of regions, and recorded ones.

use onlooker_framestore::types::TrackId;
use onlooker_promql::histogram::{Hint, Histogram, Scale};
use onlooker_promql::labels::Labels;
use onlooker_promql::source::STALE;
use onlooker_region::histogram::Shape;
use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use super::fixture::{S, T0, World, budget, description};
use crate::lists::{self, Asked};
use crate::{NotRecorded, Recorder};

const SHAPE: Shape = Shape { grouping_power: 2, max_power: 10 };

fn waits(world: &mut World, shape: Shape) -> TrackId {
    let series = Series { scale: 0.001, ..Series::new("wait_seconds", Metric::Histogram, Form::Histogram(shape)) };
    world.track(&description("a", vec![vec![series]]))
}

/// A row's words after these observations, ms.
fn words(shape: Shape, observed: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut words = vec![0; shape.slots()];
    for value in observed {
        words[shape.index(value)] += 1;
        words[shape.buckets()] += value;
    }
    words
}

#[test]
fn all_buckets_are_there_with_their_bounds() {
    let mut world = World::new();
    let track = waits(&mut world, SHAPE);
    // 5 has a bucket of its own, 41 shares one with 40 to 47, 5,000 is in the last.
    world.append(track, T0 + S, &words(SHAPE, [0, 5, 5, 41, 5_000]));
    let all = "{count:5, sum:5.051, [-Inf,0]:1, (0.004,0.005]:2, (0.039,0.047]:1, (0.895,+Inf]:1}";
    assert_eq!(world.query("wait_seconds", S), [format!(r#"{{__name__="wait_seconds", instance="a"}} {all}"#)]);
    assert_eq!(world.query("histogram_count(wait_seconds)", S), [r#"{instance="a"} 5"#]);
    // A classic histogram has bounds at powers of two only.
    let of = |world: &mut World, selector: &str| {
        let answer = world.query(&format!("histogram_quantile(0.5, {selector})"), S);
        answer[0].rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let (native, classic) = (of(&mut world, "wait_seconds"), of(&mut world, "wait_seconds_bucket"));
    assert!(
        (0.004..=0.005).contains(&native) && (classic - 0.005).abs() > (native - 0.005).abs(),
        "{native} {classic}"
    );
}

#[test]
fn rates_are_those_of_the_classic_one_across_a_restart() {
    let mut world = World::new();
    let track = waits(&mut world, SHAPE);
    for at in 1..=120u64 {
        // It begins again after 70 s.
        let begun = if at > 70 { 70 } else { 0 };
        world.append(track, T0 + at * S, &words(SHAPE, (begun..at).flat_map(|one| [one, 3 * one])));
    }
    for (native, classic) in [
        ("histogram_count(rate(wait_seconds[1m]))", "rate(wait_seconds_count[1m])"),
        ("histogram_sum(increase(wait_seconds[30s]))", "increase(wait_seconds_sum[30s])"),
        ("histogram_count(sum(wait_seconds))", "sum(wait_seconds_count)"),
        ("count_over_time(wait_seconds[1m])", "count_over_time(wait_seconds_sum[1m])"),
    ] {
        for at in [60, 80, 110] {
            assert_eq!(world.query(native, at * S), world.query(classic, at * S), "{native} at {at}");
        }
    }
    assert_eq!(world.query("wait_seconds", 126 * S), [""; 0], "it has ended");
}

/// A program that comes back with other buckets has another track: one series, whose last histogram has those.
#[test]
fn a_series_may_change_its_buckets() {
    let mut world = World::new();
    let (wide, narrow) = (SHAPE, Shape { grouping_power: 4, ..SHAPE });
    let tracks = [waits(&mut world, wide), waits(&mut world, narrow)];
    for at in 1..=60u64 {
        let (track, shape) = if at <= 30 { (tracks[0], wide) } else { (tracks[1], narrow) };
        world.append(track, T0 + at * S, &words(shape, [41; 7]));
    }
    let at = |world: &mut World, at: u64| world.query("wait_seconds", at * S)[0].split_once("(").unwrap().1.to_owned();
    assert_eq!([20, 50].map(|time| at(&mut world, time)), ["0.039,0.047]:7}", "0.039,0.041]:7}"]);
    assert_eq!(world.query("count_over_time(wait_seconds[1m])", 60 * S), [r#"{instance="a"} 60"#]);
}

fn recorded(first_bucket: i32, buckets: usize) -> Histogram {
    let positive: Vec<(i32, f64)> = (first_bucket..).take(buckets).map(|number| (number, 1.5)).collect();
    Histogram {
        count: positive.iter().map(|(_, count)| count).sum::<f64>() + 1.0,
        sum: -4.5,
        zero_count: 1.0,
        positive,
        hint: Hint::Gauge,
        ..Histogram::empty(Scale::Exponential { schema: 2, zero_threshold: 0.001 })
    }
}

#[test]
fn what_is_recorded_comes_back_with_whatever_buckets() {
    let (mut world, mut recorder) = (World::new(), Recorder::new(10));
    let labels = Labels::new([("__name__", "job:wait:sum"), ("job", "a")]);
    let time_ns = |at: u64| (T0 + at * S).cast_signed();
    // As wide as the table of another width is, other buckets, numbers, and an end.
    let all = [recorded(-1, 2), recorded(-1, 2), recorded(3, 1), recorded(0, 40), recorded(900, 1_000)];
    for (at, histogram) in (1..).zip(&all) {
        recorder.record_histogram(&mut world.appender, &labels, time_ns(at), histogram).unwrap();
    }
    recorder.record(&mut world.appender, &labels, time_ns(10), 7.0).unwrap();
    recorder.record_histogram(&mut world.appender, &labels, time_ns(11), &all[0]).unwrap();
    recorder.record(&mut world.appender, &labels, time_ns(12), STALE).unwrap();
    let shown = |histogram: &Histogram| format!("{labels} {histogram}");
    for (at, histogram) in (1..).zip(&all) {
        assert_eq!(world.query("job:wait:sum", at * S), [shown(histogram)], "at {at}");
    }
    assert_eq!(world.query("job:wait:sum", 9 * S), [shown(&all[4])], "it holds until the next one");
    assert_eq!(world.query("job:wait:sum", 10 * S), [format!("{labels} 7")]);
    assert_eq!(world.query("job:wait:sum{job=\"a\"}", 11 * S), [shown(&all[0])]);
    assert_eq!(world.query("job:wait:sum", 12 * S), [""; 0]);
    assert_eq!(world.query("count_over_time(job:wait:sum[20s])", 15 * S), [r#"{job="a"} 7"#]);
    assert_eq!(world.query("count({__name__=~\".+\"})", 11 * S), ["{} 1"], "columns are no series");
    assert_eq!(world.query("job:wait:sum{__word__=\"\",__structure__!=\"x\"}", 11 * S), [shown(&all[0])]);
    assert_eq!(world.query("{__word__=\"1\",__name__=~\".+\"}", 11 * S), [""; 0], "nobody sees such a label");
    let few = budget(10);
    let asked = Asked { selectors: &[], span: super::names::ALL, budget: &few };
    assert_eq!(lists::label_names(&world.store, &asked).unwrap().iter().collect::<Vec<_>>(), ["__name__", "job"]);
    assert_eq!(lists::label_values(&world.store, "__name__", &asked).unwrap().len(), 1);
}

/// As Prometheus' storage says it.
#[test]
fn the_hint_says_whether_the_counter_went_on() {
    let (mut world, mut recorder) = (World::new(), Recorder::new(10));
    let labels = Labels::new([("__name__", "h")]);
    let of = |buckets, hint| Histogram { hint, ..recorded(0, buckets) };
    let unknown = Hint::Unknown;
    let all = [of(2, unknown), of(3, unknown), of(1, unknown), of(2, Hint::Gauge), of(3, unknown), of(4, Hint::Reset)];
    for (at, histogram) in (1..).zip(&all) {
        let time_ns = (T0 + at * S).cast_signed();
        recorder.record_histogram(&mut world.appender, &labels, time_ns, histogram).unwrap();
    }
    let hints = world.histograms("h", 0, 10 * S).into_iter().map(|histogram| histogram.hint).collect::<Vec<_>>();
    assert_eq!(hints, [unknown, Hint::NotReset, Hint::Reset, Hint::Gauge, unknown, Hint::Reset]);
}

#[test]
fn what_is_late_or_too_wide_is_not_recorded() {
    let (mut world, mut recorder) = (World::new(), Recorder::new(10));
    let labels = Labels::new([("__name__", "h")]);
    let mut record =
        |at: u64, of: &Histogram| recorder.record_histogram(&mut world.appender, &labels, (T0 + at).cast_signed(), of);
    record(2, &recorded(0, 1)).unwrap();
    assert!(matches!(record(2, &recorded(0, 1)), Err(NotRecorded::Late)));
    assert!(matches!(record(3, &recorded(0, 9_000)), Err(NotRecorded::Buckets(8_188))));
    record(4, &recorded(0, 2)).unwrap();
    assert_eq!(recorder.series(), 1);
}
