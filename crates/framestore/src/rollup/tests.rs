// SPDX-License-Identifier: Apache-2.0
//! Rollups are what their samples say, however the rows are cut into chunks and the time into windows, and through
//! whichever widths they are made.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::chunk::{Builder, Head, increase, is_nan};
use crate::layout::Part;
use crate::types::{Line, TrackId};

const INTEGER: Column = Column::Value(Kind::Integer { signed: false });
const SIGNED: Column = Column::Value(Kind::Integer { signed: true });
const COUNTER: Column = Column::Value(Kind::Counter);
const FLOAT: Column = Column::Value(Kind::Float);
const FLOAT_COUNTER: Column = Column::FloatCounter;
const RATED: Column = Column::Rated { is_float: false };
const RATED_FLOAT: Column = Column::Rated { is_float: true };
const START_NS: u64 = 1_700_000_040_000_000_000;

type Row = (Line, u64, Vec<u64>);
/// Time, time and value before, value.
type Step = (u64, Option<(u64, u64)>, u64);
type Buckets = BTreeMap<(Line, u64), Vec<u64>>;

fn shape(columns: &[Column], is_table: bool) -> Shape {
    Shape { columns: columns.into(), is_table, bucket_s: 0 }
}

fn build(shape: &Shape, rows: &[Row], lengths: &[u8]) -> Vec<Vec<u8>> {
    // As layouts say it of rows.
    let stored = shape.columns.iter().map(|column| match column {
        Column::Time => Column::Time,
        column => Column::Value(column.kind()),
    });
    let stored = Shape { columns: stored.collect(), ..shape.clone() };
    let (mut builder, mut chunks) = (Builder::new(TrackId(5), stored), Vec::new());
    let mut lengths = lengths.iter().map(|length| usize::from(*length).max(1));
    let mut length = lengths.next();
    for (line, time_ns, words) in rows {
        builder.push(*line, *time_ns, words);
        if length.is_some_and(|length| builder.rows() >= length) {
            chunks.extend(builder.finish());
            length = lengths.next();
        }
    }
    chunks.extend(builder.finish());
    chunks
}

fn rolled(shape: &Shape, chunks: &[Vec<u8>], from_ns: u64, to_ns: u64, bucket_s: u32) -> Vec<Vec<u8>> {
    let chunks: Vec<Chunk> = chunks.iter().map(|bytes| Chunk::parse(bytes).unwrap()).collect();
    roll(&chunks, shape, from_ns, to_ns, bucket_s).unwrap()
}

fn buckets(chunks: &[Vec<u8>]) -> Buckets {
    let mut found = Buckets::new();
    for bytes in chunks {
        let chunk = Chunk::parse(bytes).unwrap();
        let mut times_ns = Vec::new();
        chunk.times(&mut times_ns).unwrap();
        let lines: Vec<Line> = chunk.lines().flat_map(|(line, rows)| std::iter::repeat_n(line, rows)).collect();
        let mut words = vec![Vec::new(); times_ns.len()];
        for number in 0..chunk.head().columns {
            let mut values = Vec::new();
            chunk.column(number, &mut values).unwrap();
            words.iter_mut().zip(values).for_each(|(words, value)| words.push(value));
        }
        for ((line, time_ns), words) in lines.into_iter().zip(times_ns).zip(words) {
            assert!(found.insert((line, time_ns), words).is_none(), "one row a bucket");
        }
    }
    found
}

/// The sums of seconds, and then of each wider bucket up to `width_s`.
fn sum(samples: &[(u64, f64)], width_s: u32) -> f64 {
    let mut sums = samples.to_vec();
    for width_s in WIDTHS_S.into_iter().filter(|finer_s| *finer_s <= width_s) {
        let mut wider: BTreeMap<u64, f64> = BTreeMap::new();
        for (time_ns, value) in sums {
            *wider.entry(time_ns / (u64::from(width_s) * SECOND_NS)).or_insert(0.0) += value;
        }
        let to_ns = |(number, value)| (number * u64::from(width_s) * SECOND_NS, value);
        sums = wider.into_iter().map(to_ns).collect();
    }
    assert_eq!(sums.len(), 1);
    sums[0].1
}

fn order(kind: Kind) -> impl Fn(&u64, &u64) -> std::cmp::Ordering {
    move |a, b| match kind {
        Kind::Integer { signed: true } => a.cast_signed().cmp(&b.cast_signed()),
        Kind::Float => f64::from_bits(*a).total_cmp(&f64::from_bits(*b)),
        _ => a.cmp(b),
    }
}

fn float_step(before: u64, value: u64) -> f64 {
    let (before, value) = (f64::from_bits(before), f64::from_bits(value));
    let step = if value < before { value } else { value - before };
    if step.is_finite() { step } else { 0.0 }
}

/// What a bucket has to say of a column, from its samples in order of time.
fn told(statistic: Statistic, kind: Kind, samples: &[Step], width_s: u32) -> u64 {
    let values = || samples.iter().map(|(_, _, value)| *value);
    let numbers = || values().filter(|word| kind != Kind::Float || !is_nan(*word));
    match statistic {
        Statistic::Last => values().next_back().unwrap(),
        Statistic::Count => samples.len() as u64,
        Statistic::Min => numbers().min_by(order(kind)).unwrap_or(f64::NAN.to_bits()),
        Statistic::Max => numbers().max_by(order(kind)).unwrap_or(f64::NAN.to_bits()),
        Statistic::Sum => {
            let float = |word: u64| match kind {
                Kind::Float => f64::from_bits(word),
                Kind::Integer { signed: true } => word.cast_signed() as f64,
                _ => word as f64,
            };
            let samples: Vec<(u64, f64)> = samples.iter().map(|(time_ns, _, word)| (*time_ns, float(*word))).collect();
            let sum = sum(&samples, width_s);
            if sum.is_nan() { f64::NAN.to_bits() } else { sum.to_bits() }
        }
        Statistic::Before => {
            samples.first().map(|(_, before, value)| before.map_or(*value, |(_, before)| before)).unwrap()
        }
        Statistic::Increase if kind == Kind::Float => {
            let steps = samples
                .iter()
                .filter_map(|(time_ns, before, value)| Some((*time_ns, float_step(before.as_ref()?.1, *value))));
            let mut steps: Vec<(u64, f64)> = steps.collect();
            // Of the first sample of all nothing is known.
            steps.extend(samples.first().map(|(time_ns, ..)| (*time_ns, 0.0)));
            steps.sort_by_key(|(time_ns, _)| *time_ns);
            sum(&steps, width_s).to_bits()
        }
        Statistic::Increase => {
            let steps =
                samples.iter().filter_map(|(_, before, value)| before.map(|(_, before)| increase(before, *value)));
            steps.fold(0, u64::wrapping_add)
        }
        Statistic::Slowest | Statistic::Fastest => {
            let rates = samples.iter().filter_map(|(time_ns, before, value)| {
                let (before_ns, before) = before.filter(|(before_ns, _)| before_ns < time_ns)?;
                let step = match kind {
                    Kind::Float if float_step(before, *value) > 0.0 => float_step(before, *value),
                    Kind::Float => 0.0,
                    _ => increase(before, *value) as f64,
                };
                Some(step * (1.0 / ((time_ns - before_ns) as f64 / 1e9)))
            });
            let mut rates: Vec<f64> = rates.collect();
            rates.sort_by(f64::total_cmp);
            // Eleven bits say it, the first of which is not written.
            let (bits, unit) = (|rate: &f64| rate.to_bits() >> 42 << 42, 1 << 42);
            match statistic {
                Statistic::Slowest => rates.first().map(bits),
                _ => rates.last().map(|rate| if bits(rate) < rate.to_bits() { bits(rate) + unit } else { bits(rate) }),
            }
            .unwrap_or(f64::NAN.to_bits())
        }
    }
}

/// The same from the rows themselves. Words of parts that were not acquired are left out.
fn from_rows(shape: &Shape, rows: &[Row], width_s: u32) -> BTreeMap<(Line, u64), Vec<Option<u64>>> {
    let wanted = rollup_columns(&shape.columns);
    let mut all: BTreeMap<(Line, u64), Vec<Option<u64>>> = BTreeMap::new();
    let lines: BTreeSet<Line> = rows.iter().map(|(line, ..)| *line).collect();
    for (line, (number, column)) in lines.iter().flat_map(|line| wanted.iter().enumerate().map(move |of| (line, of))) {
        let until = column.source.map_or(0, |source| source + 1);
        let time = shape.columns[..until].iter().rposition(|column| *column == Column::Time);
        let mut samples: BTreeMap<u64, Vec<Step>> = BTreeMap::new();
        let mut before: Option<(u64, u64)> = None;
        for (_, row_ns, words) in rows.iter().filter(|(of, ..)| of == line) {
            let time_ns = time.map_or(*row_ns, |time| words[time]);
            let value = column.source.map_or(*row_ns, |source| words[source]);
            if time.is_some() && (time_ns == 0 || before.is_some_and(|(before_ns, _)| before_ns == time_ns)) {
                continue;
            }
            let bucket_ns = time_ns - time_ns % (u64::from(width_s) * SECOND_NS);
            samples.entry(bucket_ns).or_default().push((time_ns, before, value));
            before = Some((time_ns, value));
        }
        for (bucket_ns, mut samples) in samples {
            samples.sort_by_key(|(time_ns, ..)| *time_ns);
            let kind = column.source.map_or(Kind::Counter, |source| shape.columns[source].kind());
            let row = all.entry((*line, bucket_ns)).or_insert_with(|| vec![None; wanted.len()]);
            row[number] = Some(told(column.statistic, kind, &samples, width_s));
        }
    }
    all
}

/// Rows of two parts, or of a table, with everything that happens to them: pauses, clocks that are set back, resets,
/// floats that are none.
fn rows_from(is_table: bool, noise: &[(u8, u16, u64)]) -> (Shape, Vec<Row>) {
    let columns = if is_table {
        vec![COUNTER, FLOAT, FLOAT_COUNTER, SIGNED, INTEGER, RATED, RATED_FLOAT]
    } else {
        let first = [Column::Time, COUNTER, FLOAT, FLOAT_COUNTER, RATED];
        let second = [Column::Time, SIGNED, INTEGER, COUNTER, FLOAT_COUNTER, RATED_FLOAT, RATED];
        [&first[..], &second].concat()
    };
    let (mut time_ns, mut words) = (START_NS, vec![0u64; columns.len()]);
    let mut rows = Vec::new();
    for (line, step, noise) in noise {
        time_ns += u64::from(*step) * 50_000;
        if noise % 61 == 0 {
            time_ns -= 2_700_000_000;
        }
        let mut is_new = true;
        for (word, column) in words.iter_mut().zip(&columns) {
            let noise = noise.rotate_left(u32::from(*line));
            if *column == Column::Time {
                is_new = noise % 5 > 0;
            }
            match column {
                _ if !is_new => {}
                Column::Time => *word = time_ns - noise % 1_000_000,
                Column::Value(Kind::Counter) | &RATED if noise % 17 == 0 => *word = noise % 5,
                Column::Value(Kind::Counter) | &RATED => *word += noise % 1_000,
                // Not even a number, now and then.
                Column::FloatCounter | &RATED_FLOAT if noise % 29 == 0 => *word = noise,
                Column::FloatCounter | &RATED_FLOAT if noise % 17 == 0 => {
                    *word = ((noise % 5) as f64 / 3.0).to_bits();
                }
                Column::FloatCounter | &RATED_FLOAT => {
                    *word = (f64::from_bits(*word) + (noise % 1_000) as f64 / 7.0).to_bits();
                }
                Column::Value(Kind::Float) if noise % 3 == 0 => *word = noise,
                Column::Value(Kind::Float) => *word = ((noise % 1_000) as f64 / 7.0).to_bits(),
                Column::Value(Kind::Integer { .. }) => *word = noise >> (noise % 64),
            }
        }
        rows.push((if is_table { Line(u32::from(line % 4)) } else { Line::ONLY }, time_ns, words.clone()));
    }
    (shape(&columns, is_table), rows)
}

#[test]
fn rollups_are_what_their_samples_say_through_whichever_widths() {
    type Input = (bool, Vec<(u8, u16, u64)>, Vec<u8>);
    bolero::check!().with_type::<Input>().for_each(|(is_table, noise, lengths): &Input| {
        let (shape, rows) = rows_from(*is_table, noise);
        let chunks = build(&shape, &rows, lengths);
        let mut finer = chunks.clone();
        for width_s in WIDTHS_S {
            let whole = rolled(&shape, &chunks, 0, u64::MAX, width_s);
            finer = rolled(&shape, &finer, 0, u64::MAX, width_s);
            assert_eq!(finer, whole, "{width_s} s of finer ones");
            let expected = from_rows(&shape, &rows, width_s);
            let found = buckets(&whole);
            assert!(found.keys().eq(expected.keys()));
            let wanted = rollup_columns(&shape.columns);
            for (key, words) in &expected {
                for (number, word) in words.iter().enumerate() {
                    match word {
                        Some(word) => assert_eq!(found[key][number], *word, "{key:?} {:?}", wanted[number]),
                        None if wanted[number].statistic == Statistic::Count => assert_eq!(found[key][number], 0),
                        None => {}
                    }
                }
            }
            if let Some(bytes) = whole.first() {
                assert_eq!(Chunk::parse(bytes).unwrap().shape().unwrap(), rolled_shape(&shape, width_s));
            }
        }
    });
}

#[test]
fn windows_together_are_the_whole() {
    type Input = (bool, Vec<(u8, u16, u64)>, Vec<u8>);
    bolero::check!().with_type::<Input>().for_each(|(is_table, noise, lengths): &Input| {
        let (shape, rows) = rows_from(*is_table, noise);
        let chunks = build(&shape, &rows, lengths);
        let wanted = rollup_columns(&shape.columns);
        for width_s in WIDTHS_S {
            let whole = buckets(&rolled(&shape, &chunks, 0, u64::MAX, width_s));
            let mut together = Buckets::new();
            for minute in 0..12 {
                let from_ns = START_NS - 60 * SECOND_NS + minute * 60 * SECOND_NS;
                let from_ns = if minute == 0 { 0 } else { from_ns };
                let to_ns = START_NS + minute * 60 * SECOND_NS;
                let to_ns = if minute == 11 { u64::MAX } else { to_ns };
                together.append(&mut buckets(&rolled(&shape, &chunks, from_ns, to_ns, width_s)));
            }
            assert!(together.keys().eq(whole.keys()));
            for (key, words) in &whole {
                let mut is_there = true;
                for (number, column) in wanted.iter().enumerate() {
                    // Of a part that was not acquired the other words say nothing.
                    if wanted.get(number + 1).is_some_and(|next| next.statistic == Statistic::Count) {
                        is_there = words[number + 1] > 0;
                    }
                    if is_there || column.statistic == Statistic::Count {
                        assert_eq!(together[key][number], words[number], "{key:?} {column:?}");
                    }
                }
            }
        }
    });
}

#[test]
fn columns_of_a_rollup_are_found() {
    let columns = [Column::Time, COUNTER, Column::Time, INTEGER];
    let list = rollup_columns(&columns);
    let of = |number: usize, statistic| find(&list, number, statistic);
    assert_eq!(list.len(), 2 + 2 + 2 + 4);
    assert_eq!(
        [of(1, Statistic::Last), of(1, Statistic::Increase), of(1, Statistic::Count)].map(Option::unwrap),
        [2, 3, 1]
    );
    assert_eq!(
        [of(3, Statistic::Sum), of(3, Statistic::Count), of(2, Statistic::Count)].map(Option::unwrap),
        [9, 5, 5]
    );
    assert_eq!((of(1, Statistic::Min), of(9, Statistic::Last)), (None, None));
    let list = rollup_columns(&[FLOAT]);
    assert_eq!(list[0], Rolled { source: None, statistic: Statistic::Last });
    assert_eq!((find(&list, 0, Statistic::Count), find(&list, 0, Statistic::Min)), (Some(1), Some(3)));
}

#[test]
fn a_slow_part_counts_when_it_is_new() {
    let shape = shape(&[Column::Time, COUNTER, Column::Time, INTEGER], false);
    // The second part is new every fifth row only, and a little before the row.
    let rows: Vec<Row> = (0..40u64)
        .map(|row| {
            let time_ns = START_NS + row * SECOND_NS / 2;
            let slow_ns = START_NS + row / 5 * 5 * SECOND_NS / 2 - 100_000_000;
            (Line::ONLY, time_ns, vec![time_ns, 100 + row * 3, slow_ns, row / 5])
        })
        .collect();
    let seconds = rolled(&shape, &build(&shape, &rows, &[16, 16]), START_NS, u64::MAX, 10);
    let head = Head::parse(&seconds[0]).unwrap();
    assert_eq!((head.bucket_s, head.from_ns, head.to_ns), (10, START_NS, START_NS + 20 * SECOND_NS - 1));
    let found: Vec<_> = buckets(&seconds).into_values().collect();
    let [first, second] = &found[..] else { panic!("two buckets") };
    let last_ns = |row: u64| START_NS + row * SECOND_NS / 2;
    // What is 100 ms before the beginning is not in it; the increase goes across the seam.
    assert_eq!(first[..4], [last_ns(19), 20, 100 + 57, 57]);
    assert_eq!(second[..4], [last_ns(39), 20, 100 + 117, 60]);
    assert_eq!((first[5], first[6], first[7], first[8]), (4, 4, 1, 4));
    assert_eq!(f64::from_bits(first[9]).to_bits(), 10.0f64.to_bits());
    assert_eq!((second[5], second[6]), (3, 7));
}

#[test]
fn rollups_of_large_tables_are_several_chunks() {
    let shape = shape(&[COUNTER], true);
    let rows: Vec<Row> = (0..9_000u64)
        .map(|row| (Line(u32::try_from(row % 300).unwrap()), START_NS + row / 300 * SECOND_NS, vec![row]))
        .collect();
    let chunks = build(&shape, &rows, &[250; 36]);
    let found = rolled(&shape, &chunks, 0, u64::MAX, 1);
    assert_eq!(found.iter().map(|bytes| Head::parse(bytes).unwrap().rows).collect::<Vec<_>>(), [4_096, 4_096, 808]);
    let increases = buckets(&found).into_values().map(|words| words[3]).sum::<u64>();
    assert_eq!(increases, 300 * 29 * 300);
}

#[test]
fn what_cannot_be_rolled_up_is_an_error() {
    let (fixed, rows) = rows_from(false, &[(1, 2, 3), (4, 5_000, 6), (7, 8_000, 9)]);
    let raw = build(&fixed, &rows, &[]);
    let seconds = rolled(&fixed, &raw, 0, u64::MAX, 1);
    let parse = |bytes: &[Vec<u8>]| roll(&[Chunk::parse(&bytes[0]).unwrap()], &fixed, 0, u64::MAX, 1);
    assert!(parse(&raw).is_ok() && parse(&seconds).is_err());
    let both = [Chunk::parse(&raw[0]).unwrap(), Chunk::parse(&seconds[0]).unwrap()];
    assert!(roll(&both, &fixed, 0, u64::MAX, 10).is_err());
    assert!(roll(&both[..1], &fixed, 0, u64::MAX, 7).is_err());
    assert_eq!(roll(&[], &fixed, 0, u64::MAX, 10), Ok(Vec::new()));
    // Damaged ones, too, and rows that only say that they are rolled up.
    for bytes in [&raw[0], &seconds[0]] {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(chunk) = Chunk::parse(&flipped) {
                for width_s in WIDTHS_S {
                    let _ = roll(std::slice::from_ref(&chunk), &fixed, 0, u64::MAX, width_s);
                }
            }
        }
    }
}

#[test]
fn float_counters_have_the_increase_that_integers_have() {
    let shape = shape(&[COUNTER, FLOAT_COUNTER], false);
    // Quarters are exact; both begin again twice.
    let value = |at: u64| (at % 700) * 5;
    let rows: Vec<Row> = (0..1_800)
        .map(|at| (Line::ONLY, START_NS + at * SECOND_NS / 10, vec![value(at), (value(at) as f64 / 4.0).to_bits()]))
        .collect();
    let wanted = rollup_columns(&shape.columns);
    let [integer, float] = [0, 1].map(|source| find(&wanted, source, Statistic::Increase).unwrap());
    let (last, before) = (find(&wanted, 1, Statistic::Last).unwrap(), find(&wanted, 1, Statistic::Before).unwrap());
    for width_s in WIDTHS_S {
        let mut ends_with = None;
        for words in buckets(&rolled(&shape, &build(&shape, &rows, &[250; 7]), 0, u64::MAX, width_s)).values() {
            assert_eq!(f64::from_bits(words[float]).to_bits(), (words[integer] as f64 / 4.0).to_bits());
            assert_eq!(words[before], ends_with.unwrap_or(0), "where the bucket before has ended");
            ends_with = Some(words[last]);
        }
    }
}

#[test]
fn an_info_at_the_end_of_a_row_has_no_column() {
    let series = |name: &str, form| Series::new(name, Metric::Counter, form);
    let parts = [vec![series("a", Form::Unsigned), series("i", Form::Text)], vec![series("i", Form::Text)]];
    let part = |(number, series)| Part::new("region", number, series).shared();
    let layout = Layout::new((0..).zip(parts).map(part).collect(), false);
    assert_eq!(*raw_shape(&layout).columns, [Column::Time, RATED, Column::Time]);
}
