// SPDX-License-Identifier: Apache-2.0
//! What holds for all histograms. Counts are small whole numbers, sums of which are exact.

use std::collections::{BTreeMap, BTreeSet};

use bolero::check;

use super::*;

/// Schema, width of the bucket of zero, its count, and counts of others by their distance.
type Exponential = (u8, u8, u8, Vec<(i8, u8)>, Vec<(i8, u8)>);
/// Bounds, and counts by their places.
type Custom = (Vec<u8>, Vec<(u8, u8)>);

fn buckets(counts: impl Iterator<Item = (i32, u8)>) -> Buckets {
    let mut all: BTreeMap<i32, f64> = BTreeMap::new();
    counts
        .filter(|(_, count)| *count > 0)
        .for_each(|(number, count)| *all.entry(number).or_default() += f64::from(count));
    all.into_iter().collect()
}

fn with_totals(mut histogram: Histogram) -> Histogram {
    histogram.count = histogram.buckets().iter().map(|bucket| bucket.count).sum();
    histogram.sum = histogram.count * 2.0;
    histogram
}

fn exponential((schema, width, zero_count, positive, negative): &Exponential) -> Histogram {
    let schema = i8::try_from(schema % 13).unwrap_or_default() + MIN_SCHEMA;
    let zero_threshold = [0.0, 0.001, 0.25, 1.0][usize::from(*width) % 4];
    let scale = Scale::Exponential { schema, zero_threshold };
    let side = |counts: &[(i8, u8)]| {
        let mut side = buckets(counts.iter().take(8).map(|(number, count)| (i32::from(number % 20), *count)));
        // None lies in the bucket of zero.
        side.retain(|(number, _)| bounds::exponential(number - 1, schema) >= zero_threshold);
        side
    };
    let (positive, negative, zero_count) = (side(positive), side(negative), f64::from(*zero_count));
    with_totals(Histogram { positive, negative, zero_count, ..Histogram::empty(scale) })
}

fn custom((bounds, counts): &Custom) -> Histogram {
    let bounds: BTreeSet<u8> = bounds.iter().take(6).map(|bound| bound % 16).collect();
    let scale = Scale::Custom(bounds.iter().map(|bound| f64::from(*bound)).collect());
    let places = i32::try_from(bounds.len() + 1).unwrap_or(i32::MAX);
    let positive = buckets(counts.iter().take(8).map(|(place, count)| (i32::from(*place) % places, *count)));
    with_totals(Histogram { positive, ..Histogram::empty(scale) })
}

fn each_pair(hold: impl Fn(Histogram, Histogram) + std::panic::RefUnwindSafe) {
    check!()
        .with_iterations(2_000)
        .with_type::<[Exponential; 2]>()
        .for_each(|[a, b]| hold(exponential(a), exponential(b)));
    check!().with_iterations(2_000).with_type::<[Custom; 2]>().for_each(|[a, b]| hold(custom(a), custom(b)));
}

fn plus(a: &Histogram, b: &Histogram, times: f64) -> Histogram {
    a.plus(b, times).expect("buckets of the same kind")
}

#[test]
fn sums_have_all_there_was_whoever_is_first() {
    each_pair(|a, b| {
        let sum = plus(&a, &b, 1.0);
        assert_eq!(sum, plus(&b, &a, 1.0));
        assert_eq!(sum, with_totals(sum.clone()), "{a} and {b}");
        assert_eq!(sum.count, a.count + b.count);
        let mut kahan = a.sums();
        kahan.add(&b, 1.0).expect("buckets of the same kind");
        assert_eq!(kahan.total(), sum);
    });
}

#[test]
fn what_was_added_can_be_taken_away() {
    each_pair(|a, b| {
        // With the buckets that both have.
        assert_eq!(plus(&plus(&a, &b, 1.0), &b, -1.0), plus(&a, &b, 0.0), "{a} and {b}");
    });
}

#[test]
fn what_grows_was_not_reset_what_falls_was() {
    each_pair(|a, b| {
        let sum = plus(&a, &b, 1.0);
        assert!(!sum.is_reset_after(&a), "{a} and {b}");
        // Custom bounds that differ say nothing by themselves.
        let is_finer = !a.is_custom() && a.scale != sum.scale;
        assert_eq!(a.is_reset_after(&sum), a.count < sum.count || is_finer, "{a} and {b}");
        assert!(sum.clone().with_hint(Hint::Reset).is_reset_after(&a));
    });
}

#[test]
fn buckets_of_two_kinds_are_not_added() {
    check!().with_iterations(100).with_type::<(Exponential, Custom)>().for_each(|(a, b)| {
        let (a, b) = (exponential(a), custom(b));
        assert!(a.plus(&b, 1.0).is_none() && b.plus(&a, 1.0).is_none());
        assert!(a.is_reset_after(&b) && b.is_reset_after(&a));
    });
}

fn number(estimate: Estimate) -> f64 {
    if let Estimate::Plain(number) = estimate { number } else { f64::NAN }
}

#[test]
fn quantiles_rise_and_fractions_are_their_inverse() {
    each_pair(|histogram, _| {
        if histogram.count == 0.0 {
            assert!(number(histogram.quantile(0.5)).is_nan());
            return;
        }
        // Without any bound there is nothing to go by.
        if matches!(&histogram.scale, Scale::Custom(bounds) if bounds.is_empty()) {
            return;
        }
        let quantiles = [0.0, 0.1, 0.3, 0.49, 0.5, 0.7, 0.99, 1.0].map(|quantile| number(histogram.quantile(quantile)));
        let is_risen = |pair: &[f64]| pair[0] <= pair[1] || (pair[0] - pair[1]).abs() <= 1e-9 * pair[0].abs().max(1e-9);
        assert!(quantiles.windows(2).all(is_risen), "{histogram}: {quantiles:?}");
        if !histogram.is_custom() {
            let part = number(histogram.fraction(f64::NEG_INFINITY, quantiles[2]));
            // A bucket of zero without width has no part.
            assert!((part - 0.3).abs() < 1e-9 || quantiles[2] == 0.0, "{histogram}: {part}");
        }
        assert!((number(histogram.fraction(f64::NEG_INFINITY, f64::INFINITY)) - 1.0).abs() < 1e-12);
    });
}

#[test]
fn what_is_trimmed_below_and_above_is_all() {
    check!().with_iterations(2_000).with_type::<(Exponential, i16)>().for_each(|(histogram, at)| {
        let (histogram, at) = (exponential(histogram), f64::from(*at) / 64.0);
        let [below, above] = [Keep::Below, Keep::Above].map(|keep| histogram.trimmed(at, keep));
        let apart = (below.count + above.count - histogram.count).abs();
        assert!(apart <= 1e-9 * histogram.count, "{histogram} at {at}: {below} and {above}");
        let least = number(below.quantile(0.0));
        assert!(least.is_nan() || least <= at, "{histogram} at {at}: {below}");
    });
}

#[test]
fn bounds_are_powers_up_to_the_largest_number() {
    assert_eq!([-1, 0, 1, 2].map(|number| bounds::exponential(number, 0)), [0.5, 1.0, 2.0, 4.0]);
    assert_eq!(bounds::exponential(1, -4), 65_536.0);
    assert_eq!(bounds::exponential(1, 1), 2_f64.sqrt());
    for schema in MIN_SCHEMA..=MAX_SCHEMA {
        let last = if schema < 0 { 1_024 >> -schema } else { 1_024 << schema };
        assert_eq!(bounds::exponential(last, schema), f64::MAX);
        assert_eq!(bounds::exponential(last + 1, schema), f64::INFINITY);
        assert!(bounds::exponential(last - 1, schema) < f64::MAX);
    }
}

#[test]
fn they_are_written_as_prometheus_writes_them() {
    let scale = Scale::Exponential { schema: 0, zero_threshold: 0.001 };
    let (positive, negative) = (vec![(1, 2.0)], vec![(0, 1e6)]);
    let own = Histogram { count: 7.5, sum: 1e7, zero_count: 0.5, positive, negative, ..Histogram::empty(scale) };
    assert_eq!(own.to_string(), "{count:7.5, sum:1e+07, [-1,-0.5):1e+06, [-0.001,0.001]:0.5, (1,2]:2}");
}
