// SPDX-License-Identifier: Apache-2.0
//! Rates are what the vectors say that the dashboard's tests read, too.

mod cases;

use cases::{Case, cases};
use onlooker_series::rate::{Growth, Missing};

const MS: u64 = 1_000_000;

#[test]
fn rates_are_those_of_the_vectors() {
    for Case { what, rows, gaps, rates } in cases() {
        let missing = Missing::of(gaps.iter().map(|(from_ms, to_ms)| (from_ms * MS, to_ms * MS)));
        let rate = |((then_ms, then), (now_ms, now)): (&(u64, f64), &(u64, f64))| {
            missing.rate(Growth::of(*then, *now).increase, then_ms * MS, now_ms * MS)
        };
        let got: Vec<Option<f64>> = std::iter::once(None).chain(rows.iter().zip(&rows[1..]).map(rate)).collect();
        let text = |rates: &[Option<f64>]| rates.iter().map(|rate| format!("{rate:.6?}")).collect::<Vec<_>>();
        assert_eq!(text(&got), text(&rates), "{what}");
    }
}
