// SPDX-License-Identifier: Apache-2.0
//! The reading as a table for people, with rates where there was an earlier one.

use super::directory::label_text;
use super::samples::{Collected, Row};
use crate::number::{age, with_unit};
use crate::output::{Table, shown};
use onlooker_reader::clock::Relation;
use onlooker_region::columns::Value;
use onlooker_region::histogram::Shape;
use onlooker_region::number::exported;
use onlooker_region::schema::Metric;
use std::collections::HashMap;
use std::io::{self, Write};

/// Counters of the last reading: stored value (of histograms the count) and when it was acquired.
#[derive(Debug, Default)]
pub(super) struct Rates {
    last: HashMap<String, (Value, i128)>,
}

/// When a row's value was acquired, on the reader's steady clock.
fn acquired_ns(row: &Row, relation: &Relation) -> i128 {
    i128::from(row.answered_ns) - row.time_ns.map_or(0, |time_ns| relation.age_ns(time_ns, row.answered_ns))
}

pub(super) fn write(
    out: &mut impl Write,
    collected: &Collected,
    relation: &Relation,
    rates: Option<&mut Rates>,
) -> io::Result<()> {
    let headings: &[&str] = match rates {
        Some(_) => &["METRIC", "LABELS", ">VALUE", ">RATE", ">AGE"],
        None => &["METRIC", "LABELS", ">VALUE", ">AGE"],
    };
    let mut table = Table::new(headings);
    let mut before = rates;
    let mut next = HashMap::new();
    for row in &collected.rows {
        let mut cells = vec![shown(&row.name), label_text(&row.labels), value(row)];
        if let Some(rates) = &before {
            cells.push(rate(row, relation, rates, &mut next));
        }
        cells.push(match row.time_ns {
            Some(time_ns) => age(relation.age_ns(time_ns, row.answered_ns)),
            None => "live".into(),
        });
        table.row(cells);
    }
    if let Some(rates) = &mut before {
        rates.last = next;
    }
    // Headings over nothing would look like an answer.
    if collected.rows.is_empty() { Ok(()) } else { table.write(out) }
}

fn value(row: &Row) -> String {
    let (unit, scale) = (&*shown(&row.unit), row.scale);
    match &row.value {
        Value::Text(text) => shown(text),
        Value::Histogram { buckets, shape, sum } => histogram(buckets, *shape, *sum, scale, unit),
        // Small integers are not worth shortening.
        Value::U64(number) if scale.to_bits() == 1f64.to_bits() && unit.is_empty() => number.to_string(),
        Value::I64(number) if scale.to_bits() == 1f64.to_bits() && unit.is_empty() => number.to_string(),
        other => with_unit(other.scaled(scale), unit),
    }
}

#[allow(clippy::cast_precision_loss)] // for people
fn histogram(buckets: &[u64], shape: Shape, sum: u64, scale: f64, unit: &str) -> String {
    let count = buckets.iter().fold(0u64, |count, bucket| count.wrapping_add(*bucket));
    if count == 0 {
        return "n=0".into();
    }
    let mean = with_unit(exported(sum as f64 / count as f64, scale), unit);
    let [median, high] = [0.5, 0.99].map(|part| {
        let wanted = (count as f64 * part).ceil();
        let mut seen = 0u64;
        let found = buckets.iter().position(|bucket| {
            seen = seen.wrapping_add(*bucket);
            seen as f64 >= wanted
        });
        match found {
            Some(index) if index + 1 < buckets.len() => {
                format!("<={}", with_unit(exported(shape.range(index).1 as f64, scale), unit))
            }
            _ => format!(">={}", with_unit(exported(shape.range(buckets.len() - 1).0 as f64, scale), unit)),
        }
    });
    format!("n={count} mean={mean} p50{median} p99{high}")
}

/// The rate of a counter since the last reading; remembers it for the next one.
#[allow(clippy::cast_precision_loss)] // for people
fn rate(row: &Row, relation: &Relation, rates: &Rates, next: &mut HashMap<String, (Value, i128)>) -> String {
    let counted = match (&row.value, row.metric) {
        (Value::Histogram { buckets, .. }, _) => {
            Value::U64(buckets.iter().fold(0, |sum, bucket| sum.wrapping_add(*bucket)))
        }
        (value, Metric::Counter) => value.clone(),
        _ => return String::new(),
    };
    let is_histogram = row.metric == Metric::Histogram;
    // A row of another generation, or a region of another incarnation, is another series.
    let key = format!("{} {:?} {:?} {:?}", row.name, row.labels, row.row, row.entry.identity);
    let now_ns = acquired_ns(row, relation);
    let text = match rates.last.get(&key) {
        None => "-".into(),
        Some((_, then_ns)) if now_ns <= *then_ns => "-".into(),
        Some((before, then_ns)) => {
            let seconds = (now_ns - then_ns) as f64 / 1e9;
            let difference = match (&counted, before) {
                (Value::U64(now), Value::U64(before)) => now.checked_sub(*before).map(|difference| difference as f64),
                (now, before) => Some(now.scaled(1.0) - before.scaled(1.0)).filter(|difference| *difference >= 0.0),
            };
            let scale = if is_histogram { 1.0 } else { row.scale };
            match (difference, &*row.unit) {
                (None, _) => "reset".into(),
                (Some(difference), "bytes") => with_unit(exported(difference, scale) / seconds, "bytes_per_second"),
                (Some(difference), "seconds") if !is_histogram => {
                    format!("{} s/s", with_unit(exported(difference, scale) / seconds, ""))
                }
                (Some(difference), _) => format!("{}/s", with_unit(exported(difference, scale) / seconds, "")),
            }
        }
    };
    next.insert(key, (counted, now_ns));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{fixture, samples};
    use onlooker_reader::Session;
    use onlooker_series::derive::Derived;

    fn table(session: &Session, rates: Option<&mut Rates>) -> Vec<Vec<String>> {
        let mut out = Vec::new();
        write(&mut out, &samples::collect(session, &[], &mut Derived::default()), &fixture::relation(), rates).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines()
            .map(|line| line.split("  ").map(str::trim).filter(|c| !c.is_empty()).map(String::from).collect())
            .collect()
    }

    #[test]
    fn values_have_units_and_ages() {
        let lines = table(&fixture::session(), None);
        assert_eq!(lines[0], ["METRIC", "LABELS", "VALUE", "AGE"]);
        // The host's clock says 1001 s at the reading, and the block is of 999.5 s.
        assert_eq!(lines[1], ["queue_depth", "device=eth0,exported_pid=3,pid=4321,program=\"my shop\"", "-5", "1.5 s"]);
        assert_eq!(lines[2][2..], ["n=7 mean=14.286 ns p50>=8 ns p99>=8 ns", "live"]);
        assert_eq!(lines[3][2..], ["18446744073709551615", "live"]);
        assert_eq!(lines[5][2], "v1 \"x\"\\\\n", "a line end is escaped");
    }

    #[test]
    fn counters_get_rates_from_the_second_reading_on() {
        let host = fixture::host();
        let mut rates = Rates::default();
        let session = fixture::read(&host);
        let first = table(&session, Some(&mut rates));
        assert_eq!(first[3][3], "-");
        // As if the first reading had been two seconds earlier, with five requests fewer on one CPU and more on the other.
        for (key, (value, time_ns)) in &mut rates.last {
            *time_ns -= 2_000_000_000;
            if key.contains("shop_requests_total") {
                *value = if key.contains("\"0\"") { Value::U64(u64::MAX - 5) } else { Value::U64(8) };
            }
        }
        let second = table(&session, Some(&mut rates));
        assert_eq!(second[3][3], "2.5/s");
        assert_eq!(second[4][3], "reset");
        assert_eq!(second[2][3], "0/s", "a histogram's rate is that of its count");
        assert_eq!(second[1].len(), 4, "a gauge has none");
        assert_eq!(table(&session, Some(&mut rates))[3][3], "-", "nothing new was acquired");
    }
}
