// SPDX-License-Identifier: Apache-2.0
//! What is made of rollups is what is made of rows.

use std::path::Path;
use std::sync::Arc;

use onlooker_framestore::client::{Appender, Description};
use onlooker_framestore::layout::{Layout, Part};
use onlooker_framestore::types::Line;
use onlooker_framestore::warm::Level;
use onlooker_framestore::{Config, Writer, open};
use onlooker_region::histogram::Shape;
use onlooker_region::schema::Metric;
use serde_json::Value;

use super::*;

const FROM_NS: u64 = 1_700_006_400_000_000_000;
const STEP_NS: u64 = 500_000_000;
const ROWS: u64 = 12_000;
const SHAPE: Shape = Shape { grouping_power: 2, max_power: 8 };

fn description() -> Description {
    let series = |name: &str, metric, form| Series { scale: 0.5, ..Series::new(name, metric, form) };
    let first = [
        series("done_total", Metric::Counter, Form::Unsigned),
        series("load", Metric::Gauge, Form::Float),
        series("balance", Metric::Gauge, Form::Signed),
    ];
    let second = [
        series("latency", Metric::Histogram, Form::Histogram(SHAPE)),
        series("version", Metric::Info, Form::Text),
        series("slow_total", Metric::Counter, Form::Unsigned),
    ];
    let parts = [("first", first), ("second", second)].map(|(name, series)| Part::new(name, 0, series.into()).shared());
    Description {
        host: "a".into(),
        common: Vec::new(),
        source: 0,
        region: Vec::new(),
        layout: Arc::new(Layout::new(parts.into(), false)),
        texts: vec![(1, 1, "6.1".into())],
    }
}

/// Rows of which the second part is new now and then, with a counter that begins again.
fn append(appender: &mut Appender) {
    let description = description();
    let track = appender.track(&description, 1).unwrap();
    let (mut counts, mut slow) = (vec![0u64; SHAPE.slots()], [0, 0]);
    for at in 0..ROWS {
        let time_ns = FROM_NS + at * STEP_NS;
        let noise = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        if at % 7 == 0 {
            counts[usize::try_from(noise).unwrap() % SHAPE.buckets()] += 1;
            slow = [time_ns + 9, at / 7];
        }
        let balance = 40i64 - i64::try_from(noise % 100).unwrap();
        let load = (noise as f64 / 3.0).to_bits();
        let mut row = vec![time_ns + 5, at * 3 % 5_000, load, balance.cast_unsigned(), slow[0]];
        row.extend(&counts);
        row.push(slow[1]);
        appender.append(track, Line::ONLY, time_ns, &row).unwrap();
    }
}

fn opened(dir: &Path) -> (Store, Writer, Appender) {
    let (dir, ring) = (dir.join("store"), dir.join("ring"));
    let config = Config::keeping_all(dir, ring, 16 << 20, 1 << 30);
    let (store, writer, appender, _) = open(config).unwrap();
    (store, writer, appender)
}

fn answer(store: &Store, seconds: u64, points: usize) -> Value {
    let names = ["done_total", "load", "balance", "latency", "version{value=\"6.1\"}", "slow_total"];
    let pairs: Vec<(String, String)> = names.map(|name| ("series".to_owned(), name.to_owned())).into();
    let span = Span { from_ns: FROM_NS, to_ns: FROM_NS + seconds * 1_000_000_000, points };
    let query = Query { store, span, gone: Gone::default(), until: Instant::now() + MAX_TIME };
    let text = query.answer("a", Wanted::of(&pairs, MAX_SERIES).unwrap()).ok().expect("an answer");
    let mut answer: Value = serde_json::from_slice(&text).unwrap();
    for series in answer["series"].as_array_mut().unwrap() {
        assert!(series["t_ms"].as_array().unwrap().len() > 10, "{series}");
        series.as_object_mut().unwrap().remove("durable_until_ms");
    }
    answer
}

/// Least and greatest rates, which are taken out of a series.
fn take_extremes(series: &mut Value) -> Vec<[Option<f64>; 2]> {
    let mut take = |name| series.as_object_mut().unwrap().remove(name);
    let (Some(least), Some(greatest)) = (take("rate_min"), take("rate_max")) else { return Vec::new() };
    let numbers = |list: &Value| list.as_array().unwrap().iter().map(Value::as_f64).collect::<Vec<_>>();
    numbers(&least).into_iter().zip(numbers(&greatest)).map(Into::into).collect()
}

#[test]
fn a_burst_between_two_rows_is_seen_at_every_width() {
    let dir = tempfile::tempdir().unwrap();
    let (_, mut writer, mut appender) = opened(dir.path());
    let series = vec![Series::new("busy_total", Metric::Counter, Form::Unsigned)];
    let layout = Arc::new(Layout::new(vec![Part::new("first", 0, series).shared()], false));
    let track = appender.track(&Description { layout, texts: Vec::new(), ..description() }, 1).unwrap();
    // Ten a row, a hundred rows a second; 5,000 in one of them.
    let (row_ns, burst) = (10_000_000, 90_123);
    for at in 0..240_000u64 {
        let value = at * 10 + if at >= burst { 4_990 } else { 0 };
        appender.append(track, Line::ONLY, FROM_NS + at * row_ns, &[value]).unwrap();
        if at % 1_000 == 999 {
            writer.turn().unwrap();
        }
    }
    drop((writer, appender));
    // What can be rolled up is looked for at once.
    let (store, mut writer, _appender) = opened(dir.path());
    (0..200).for_each(|_| _ = writer.turn().unwrap());
    assert!(store.level_bytes(Level::Second) > 0);
    for (seconds, points) in [(2_400, 2_000), (2_400, 40), (2_400, 300), (1_000, 1_000)] {
        let span = Span { from_ns: FROM_NS, to_ns: FROM_NS + seconds * 1_000_000_000, points };
        let query = Query { store: &store, span, gone: Gone::default(), until: Instant::now() + MAX_TIME };
        let pairs = [("series".to_owned(), "busy_total".to_owned())];
        let text = query.answer("a", Wanted::of(&pairs, MAX_SERIES).unwrap()).ok().expect("an answer");
        let mut answer: Value = serde_json::from_slice(&text).unwrap();
        let bands: Vec<[f64; 2]> = take_extremes(&mut answer["series"][0])
            .into_iter()
            .map(|band| band.map(Option::unwrap_or_default))
            .collect();
        let high: Vec<_> = bands.iter().filter(|[_, greatest]| *greatest > 1_001.0).collect();
        assert_eq!(high.len(), 1, "{bands:?}");
        assert!((999.0..=1_000.0).contains(&high[0][0]) && (500_000.0..500_500.0).contains(&high[0][1]), "{high:?}");
    }
}

#[test]
fn rollups_give_the_answer_that_rows_give() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, mut appender) = opened(dir.path());
    append(&mut appender);
    drop(appender);
    // Rows that a controller before has left: all of them are in memory now.
    let (store, mut writer, _appender) = opened(dir.path());
    let wanted = [(5_900, 2_000), (5_900, 400), (5_900, 90), (777, 100), (60, 5_000)];
    let of_rows = wanted.map(|(seconds, points)| answer(&store, seconds, points));
    assert_eq!(store.level_bytes(Level::Raw), 0);
    for _ in 0..200 {
        writer.turn().unwrap();
    }
    assert!(store.level_bytes(Level::Second) > 0 && store.level_bytes(Level::TenSeconds) > 0);
    let of_rollups = wanted.map(|(seconds, points)| answer(&store, seconds, points));
    for (mut rows, mut rollups) in of_rows.iter().cloned().zip(of_rollups) {
        assert_eq!(rows["bucket_ms"], rollups["bucket_ms"]);
        let all = |answer: &mut Value| answer["series"].as_array_mut().unwrap().clone();
        for (mut rows, mut rollups) in all(&mut rows).into_iter().zip(all(&mut rollups)) {
            let (exact, kept) = (take_extremes(&mut rows), take_extremes(&mut rollups));
            assert_eq!(rows, rollups);
            // Rollups round the least down and the greatest up.
            let is_near = |rate: f64, bound: f64, factor: f64| rate == bound || (rate * factor..=rate).contains(&bound);
            for (exact, kept) in exact.into_iter().zip(kept) {
                assert_eq!((exact[0].is_some(), exact[1].is_some()), (kept[0].is_some(), kept[1].is_some()));
                if let ([Some(slowest), Some(fastest)], [Some(least), Some(greatest)]) = (exact, kept) {
                    assert!(is_near(slowest, least, 0.999) && is_near(greatest, fastest, 0.999), "{exact:?} {kept:?}");
                }
            }
        }
    }
    let widths = of_rows.map(|answer| answer["bucket_ms"].as_f64().unwrap());
    assert_eq!(widths, [3_000.0, 20_000.0, 120_000.0, 8_000.0, 0.0]);
}

#[test]
fn of_a_time_without_rows_there_are_gaps_and_what_a_series_is() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut writer, mut appender) = opened(dir.path());
    append(&mut appender);
    let region = vec![("pid".into(), "7".into())];
    let other = appender.track(&Description { source: 9, region, ..description() }, 1).unwrap();
    let words = vec![0; description().layout.kinds().len()];
    let (late_ns, day_ns) = (FROM_NS + 20_000_000_000, FROM_NS + 86_400_000_000_000);
    appender.append(other, Line::ONLY, day_ns, &words).unwrap();
    writer.turn().unwrap();
    let ask = |kind: &str, text: &str| -> Value {
        let span = Span { from_ns: FROM_NS, to_ns: FROM_NS + 60_000_000_000, points: 10 };
        let query = Query { store: &store, span, gone: Gone::default(), until: Instant::now() + MAX_TIME };
        let wanted = Wanted::of(&[(kind.to_owned(), text.to_owned())], MAX_SERIES).unwrap();
        serde_json::from_slice(&query.answer("a", wanted).ok().expect("an answer")).unwrap()
    };
    let series = |answer: &Value| -> Vec<String> {
        let all = answer["series"].as_array().unwrap().iter();
        all.map(|one| one["series"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(series(&ask("match", "load")), ["load"], "the other has nothing of this time");
    let twice = [("series".to_owned(), "load".to_owned()), ("series".to_owned(), "load".to_owned())];
    let span = Span { from_ns: FROM_NS, to_ns: FROM_NS + 60_000_000_000, points: 10 };
    let query = Query { store: &store, span, gone: Gone::default(), until: Instant::now() + MAX_TIME };
    let text = query.answer("a", Wanted::of(&twice, MAX_SERIES).unwrap()).ok().expect("an answer");
    assert_eq!(series(&serde_json::from_slice(&text).unwrap()), ["load"]);
    let silent = ask("series", "load{pid=\"7\"}");
    assert_eq!((&silent["series"][0]["type"], &silent["series"][0]["t_ms"]), (&"gauge".into(), &Value::Array(vec![])));
    appender.gap(&Gap { track: other, of: None, from_ns: late_ns, to_ns: late_ns + 5, reason: "late".into() });
    writer.turn().unwrap();
    for silent in [ask("series", "load{pid=\"7\"}"), ask("match", "load")] {
        assert!(series(&silent).contains(&"load{pid=\"7\"}".to_owned()));
        assert_eq!(silent["gaps"][0]["reason"], "late");
    }
}
