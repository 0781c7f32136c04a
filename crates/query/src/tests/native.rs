// SPDX-License-Identifier: Apache-2.0
//! Histograms as PromQL's native ones.

use onlooker_framestore::types::TrackId;
use onlooker_region::histogram::Shape;
use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use super::fixture::{S, T0, World, description};

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
