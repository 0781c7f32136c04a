// SPDX-License-Identifier: Apache-2.0
//! Rows come back as columns, whatever they are; statistics are what they say; damage is an error.

use super::*;
use crate::types::{Kind, LATE_NS, TrackId};

const KINDS: [Column; 5] = [
    Column::Value(Kind::Integer { signed: false }),
    Column::Value(Kind::Integer { signed: true }),
    Column::Value(Kind::Counter),
    Column::Value(Kind::Float),
    Column::Time,
];
const TRACK: TrackId = TrackId(7);

struct Row {
    line: Line,
    time_ns: u64,
    words: Vec<u64>,
}

fn shape(columns: &[Column], is_table: bool) -> Shape {
    Shape { columns: columns.into(), is_table, bucket_s: 0 }
}

fn build(shape: &Shape, rows: &[Row]) -> Vec<u8> {
    let mut builder = Builder::new(TRACK, shape.clone());
    rows.iter().for_each(|row| builder.push(row.line, row.time_ns, &row.words));
    builder.mark(99);
    let bytes = builder.finish().unwrap();
    assert_eq!((builder.rows(), builder.finish()), (0, None));
    // Nothing of what a builder had before is in what it makes next.
    let other = self::shape(&KINDS[1..], true);
    builder.restart(TrackId(8), other);
    builder.push(Line(77), 12, &[1, 2, 3, 4]);
    builder.push(Line(76), 13, &[5, 6, 7, 8]);
    builder.restart(TRACK, shape.clone());
    rows.iter().for_each(|row| builder.push(row.line, row.time_ns, &row.words));
    builder.mark(99);
    assert!(builder.finish().unwrap() == bytes);
    bytes
}

/// The rows of a chunk as they stand in it.
fn rows_of(bytes: &[u8]) -> Vec<(Line, u64, Vec<u64>)> {
    let chunk = Chunk::parse(bytes).unwrap();
    let (mut times_ns, mut columns) = (Vec::new(), Vec::new());
    chunk.times(&mut times_ns).unwrap();
    for number in 0..chunk.head().columns {
        let mut values = Vec::new();
        chunk.column(number, &mut values).unwrap();
        assert_eq!(values.len(), chunk.head().rows);
        columns.push(values);
    }
    let lines = chunk.lines().flat_map(|(line, rows)| std::iter::repeat_n(line, rows));
    let words = |row: usize| columns.iter().map(|column| column[row]).collect();
    lines.zip(times_ns).enumerate().map(|(row, (line, time_ns))| (line, time_ns, words(row))).collect()
}

fn expected(is_table: bool, rows: &[Row]) -> Vec<(Line, u64, Vec<u64>)> {
    let line = |row: &Row| if is_table { row.line } else { Line::ONLY };
    let mut rows: Vec<_> = rows.iter().map(|row| (line(row), row.time_ns, row.words.clone())).collect();
    rows.sort_by_key(|(line, ..)| *line);
    rows
}

/// Rows out of arbitrary numbers: some columns stand still, some walk, some jump.
fn rows_from(columns: usize, noise: &[(u8, u64)]) -> Vec<Row> {
    let mut words = vec![0u64; columns];
    let mut time_ns = 1_700_000_000_000_000_000u64;
    let mut rows = Vec::new();
    for (at, (line, noise)) in noise.iter().enumerate() {
        time_ns += noise % 1_000_000;
        for (column, word) in words.iter_mut().enumerate() {
            match (column + at) % 7 {
                0 if column % 3 > 0 => *word = word.wrapping_add(noise >> (column % 60)),
                3 if column % 5 == 4 => *word = noise.rotate_left(7),
                _ => {}
            }
        }
        rows.push(Row { line: Line(u32::from(*line)), time_ns, words: words.clone() });
    }
    rows
}

#[test]
fn rows_come_back_as_columns_and_merged_ones_are_the_same() {
    type Input = (bool, u8, Vec<(u8, u64)>, u16);
    bolero::check!().with_type::<Input>().for_each(|(is_table, columns, noise, cut): &Input| {
        if noise.is_empty() {
            return;
        }
        let columns: Vec<Column> = (0..usize::from(columns % 90)).map(|number| KINDS[number % 4]).collect();
        let shape = shape(&columns, *is_table);
        let rows = rows_from(columns.len(), noise);
        let whole = build(&shape, &rows);
        assert_eq!(rows_of(&whole), expected(*is_table, &rows));
        assert_eq!(Chunk::parse(&whole).unwrap().shape().unwrap(), shape);
        check_front(&whole[..Head::parse(&whole).unwrap().front_bytes]).unwrap();
        let cut = usize::from(*cut) % rows.len();
        if cut > 0 {
            let parts = [build(&shape, &rows[..cut]), build(&shape, &rows[cut..])];
            let merged = merge(&parts.each_ref().map(|part| Chunk::parse(part).unwrap())).unwrap();
            assert_eq!(merged, whole, "byte for byte");
        }
    });
}

#[test]
fn a_head_says_whose_rows_and_when() {
    let times = [Column::Time, KINDS[2], Column::Time, KINDS[0]];
    let rows = [
        (1_000, vec![950, 5, 0, 0]),
        (2_000, vec![1_990, 6, 0, 0]),
        // The second part is read late and the first has nothing new.
        (3_000, vec![1_990, 6, 3_200, 8]),
    ];
    let rows = rows.map(|(time_ns, words)| Row { line: Line::ONLY, time_ns, words });
    let bytes = build(&shape(&times, false), &rows);
    let head = Head::parse(&bytes).unwrap();
    assert_eq!((head.track, head.rows, head.columns, head.lines), (TRACK, 3, 4, 1));
    assert_eq!((head.from_ns, head.to_ns, head.mark, head.bucket_s), (950, 3_200, 99, 0));
    // The next chunk knows that these times are not new.
    let mut builder = Builder::new(TRACK, shape(&times, false));
    rows.iter().for_each(|row| builder.push(row.line, row.time_ns, &row.words));
    builder.finish().unwrap();
    builder.push(Line::ONLY, 4_000, &[1_990, 6, 3_200, 8]);
    let head = Head::parse(&builder.finish().unwrap()).unwrap();
    assert_eq!((head.from_ns, head.to_ns), (4_000, 4_000));
    let mut builder = Builder::new(TRACK, shape(&times, false));
    builder.begin_after(&rows[2].words);
    builder.push(Line::ONLY, 4_000, &[3_900, 6, 3_200, 8]);
    let head = Head::parse(&builder.finish().unwrap()).unwrap();
    assert_eq!((head.from_ns, head.to_ns), (3_900, 4_000));
    // As after a restart, nobody knows the row before: what is as old as no sample that comes late is not new.
    let late_behind = |behind: u64, of_part: u64, next: u64| {
        let mut builder = Builder::new(TRACK, shape(&times, false));
        builder.begin_behind(behind);
        builder.push(Line::ONLY, 100 * LATE_NS, &[100 * LATE_NS - 5, 6, of_part, 8]);
        builder.push(Line::ONLY, 100 * LATE_NS + 9, &[100 * LATE_NS - 5, 6, next, 8]);
        let head = Head::parse(&builder.finish().unwrap()).unwrap();
        (head.from_ns, head.to_ns)
    };
    let late = |of_part: u64, next: u64| late_behind(0, of_part, next);
    assert_eq!(late(LATE_NS, LATE_NS), (100 * LATE_NS - 5, 100 * LATE_NS + 9));
    assert_eq!(late(99 * LATE_NS, 99 * LATE_NS), (99 * LATE_NS, 100 * LATE_NS + 9));
    assert_eq!(late(LATE_NS, 2 * LATE_NS), (2 * LATE_NS, 100 * LATE_NS + 9), "it is new in the second row");
    // It begins behind the one before, also where a part is told with another time; but not where a clock was set back.
    let part_ns = 100 * LATE_NS - 20;
    assert_eq!(late_behind(part_ns, part_ns, part_ns - 1), (part_ns + 1, 100 * LATE_NS + 9));
    assert_eq!(late_behind(part_ns - 1, part_ns, part_ns), (part_ns, 100 * LATE_NS + 9));
    assert_eq!(late_behind(100 * LATE_NS, part_ns, part_ns), (part_ns, 100 * LATE_NS + 9));
}

#[test]
fn statistics_are_those_of_the_values() {
    bolero::check!().with_type::<(u8, Vec<u64>)>().for_each(|(kind, values)| {
        let Some(first) = values.first() else { return };
        let column = KINDS[usize::from(kind % 4)];
        for is_table in [false, true] {
            let rows: Vec<Row> =
                values.iter().map(|word| Row { line: Line(3), time_ns: 1, words: vec![*word] }).collect();
            let bytes = build(&shape(&[column], is_table), &rows);
            let found = Chunk::parse(&bytes).unwrap().statistics(0).unwrap().unwrap();
            let numbers: Vec<u64> =
                values.iter().copied().filter(|word| column != KINDS[3] || !is_nan(*word)).collect();
            let ordered = |a: &&u64, b: &&u64| match column.kind() {
                Kind::Integer { signed: true } => a.cast_signed().cmp(&b.cast_signed()),
                Kind::Float => f64::from_bits(**a).total_cmp(&f64::from_bits(**b)),
                _ => a.cmp(b),
            };
            assert_eq!(found.min, numbers.iter().min_by(ordered).copied().unwrap_or(NAN));
            assert_eq!(found.max, numbers.iter().max_by(ordered).copied().unwrap_or(NAN));
            let increase = values
                .windows(2)
                .filter(|_| column == KINDS[2])
                .fold(0u64, |sum, pair| sum.wrapping_add(if pair[1] < pair[0] { pair[1] } else { pair[1] - pair[0] }));
            let ends = Ends { first: *first, last: values[values.len() - 1], increase };
            assert_eq!(found.ends, (!is_table).then_some(ends));
        }
    });
}

#[test]
fn increases_of_neighbours_can_be_joined() {
    let counts = [10u64, 15, 15, 3, 9, 9, 2, 40];
    let total = counts.windows(2).map(|pair| increase(pair[0], pair[1])).sum::<u64>();
    assert_eq!(total, 5 + 3 + 6 + 2 + 38);
    for cut in 1..counts.len() {
        let ends = [&counts[..cut], &counts[cut..]].map(|counts| {
            let rows: Vec<Row> =
                counts.iter().map(|word| Row { line: Line::ONLY, time_ns: 5, words: vec![*word] }).collect();
            let bytes = build(&shape(&KINDS[2..3], false), &rows);
            Chunk::parse(&bytes).unwrap().statistics(0).unwrap().unwrap().ends.unwrap()
        });
        assert_eq!(ends[0].increase + increase(ends[0].last, ends[1].first) + ends[1].increase, total);
    }
}

#[test]
fn a_part_counts_from_when_it_was_first_acquired() {
    let columns = [Column::Time, KINDS[2], Column::Time, KINDS[2], KINDS[0], Column::Time, KINDS[2]];
    let words = [[5, 100, 0, 0, 0, 0, 0], [9, 101, 8, 5_000, 1, 0, 0], [13, 102, 12, 5_003, 1, 0, 0]];
    let rows = words.map(|words| Row { line: Line::ONLY, time_ns: words[0], words: words.to_vec() });
    let bytes = build(&shape(&columns, false), &rows);
    let chunk = Chunk::parse(&bytes).unwrap();
    let of = |number: usize| chunk.statistics(number).unwrap().map(|known| (known.min, known.max, known.ends.unwrap()));
    assert_eq!(of(1), Some((100, 102, Ends { first: 100, last: 102, increase: 2 })));
    assert_eq!(of(3), Some((5_000, 5_003, Ends { first: 5_000, last: 5_003, increase: 3 })));
    assert_eq!(of(4), Some((1, 1, Ends { first: 1, last: 1, increase: 0 })));
    assert_eq!(of(6), None, "never");
}

/// Rows as hosts have them: two thirds of the columns stand still, the others count or swing, and stand still between
/// times.
fn usual(columns: usize, rows: usize) -> (Vec<Column>, Vec<(u64, Vec<u64>)>) {
    let mix = |number: u64| {
        let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (number ^ number >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    };
    let word = |column: u64, step: u64| {
        let size = 1 << (mix(column + 3) % 12);
        let steps = step * (mix(column + 9) % 90 + 10) / 100;
        let noise = mix(column << 32 | steps);
        match mix(column) % 100 {
            0..45 => 0,
            45..66 => mix(column) >> (mix(column + 7) % 40),
            66..90 => (mix(column) >> 12) + steps * size + noise % size,
            _ => (mix(column) >> 20) + noise % (16 * size),
        }
    };
    let kind = |column: u64| if mix(column) % 100 < 90 { KINDS[2] } else { KINDS[0] };
    let row = |step: u64| {
        let time_ns = 1_700_000_000_000_000_000 + step * 100_000_000 + mix(step) % 100_000;
        (time_ns, (0..columns as u64).map(|column| word(column, step)).collect())
    };
    ((0..columns as u64).map(kind).collect(), (0..rows as u64).map(row).collect())
}

#[test]
fn usual_rows_are_small_and_what_a_chunk_knows_costs_little() {
    for rows in [256, 1_024] {
        let (columns, words) = usual(600, rows);
        let rows: Vec<Row> =
            words.into_iter().map(|(time_ns, words)| Row { line: Line::ONLY, time_ns, words }).collect();
        let bytes = build(&shape(&columns, false), &rows);
        let chunk = Chunk::parse(&bytes).unwrap();
        let values = rows.len() * columns.len();
        let front = chunk.head().front_bytes - chunk.times.len();
        assert!(bytes.len() * 2 < values, "{} bytes of {values} values", bytes.len());
        assert!(front * 100 < values * 6, "{front} bytes beside {values} values");
    }
}

#[test]
fn rows_of_tables_share_their_times() {
    // Forty lines, each in every second one of a hundred readings.
    let rows: Vec<Row> = (0..100u64)
        .flat_map(|reading| {
            (0..40).filter(move |line| (reading + line) % 2 == 0).map(move |line| Row {
                line: Line(u32::try_from(line).unwrap() * 17),
                time_ns: 1_700_000_000_000_000_000 + reading * 1_000_000_000 + reading * reading * 7_919 % 100_000,
                words: vec![line * 1_000_000 + reading],
            })
        })
        .collect();
    let bytes = build(&shape(&KINDS[2..3], true), &rows);
    assert_eq!(rows_of(&bytes), expected(true, &rows));
    assert!(bytes.len() < rows.len(), "{} bytes of {} rows", bytes.len(), rows.len());
}

#[test]
fn only_neighbours_are_merged() {
    let row = |words: &[u64]| Row { line: Line::ONLY, time_ns: 1, words: words.to_vec() };
    let one = build(&shape(&KINDS[..2], false), &[row(&[1, 2])]);
    let others =
        [build(&shape(&KINDS[1..3], false), &[row(&[1, 2])]), build(&shape(&KINDS[..2], true), &[row(&[1, 2])])];
    let one = Chunk::parse(&one).unwrap();
    for other in &others {
        assert!(merge(&[one.clone(), Chunk::parse(other).unwrap()]).is_err());
    }
    assert!(merge(&[]).is_err());
    assert!(merge(&vec![one; MAX_ROWS + 1]).is_err());
}

/// Reads all that there is.
fn look_at(bytes: &[u8]) -> Result<(), Damage> {
    let chunk = Chunk::parse(bytes)?;
    let mut values = Vec::new();
    chunk.times(&mut values)?;
    for number in 0..chunk.head().columns {
        chunk.column(number, &mut values)?;
        chunk.statistics(number)?;
        chunk.constant(number)?;
    }
    assert!(chunk.column(chunk.head().columns, &mut values).is_err());
    merge(&[chunk]).map(|_| ())
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    for is_table in [false, true] {
        let noise: Vec<(u8, u64)> = (0..150u64).map(|at| ((at % 7) as u8, at * at * 0x9e37_79b9_7f4a)).collect();
        let columns: Vec<Column> = (0..12).map(|number| KINDS[number % 4]).collect();
        let bytes = build(&shape(&columns, is_table), &rows_from(columns.len(), &noise));
        look_at(&bytes).unwrap();
        let front_bytes = Head::parse(&bytes).unwrap().front_bytes;
        let mut flipped = bytes.clone();
        for bit in (0..front_bytes * 8).chain((front_bytes * 8..bytes.len() * 8).step_by(101)) {
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = look_at(&flipped);
            if bit / 8 < front_bytes {
                assert!(check_front(&flipped[..front_bytes]).is_err(), "bit {bit}");
            } else {
                // The one column that the bit is in does not fit its checksum.
                let chunk = Chunk::parse(&flipped).unwrap();
                let body = &flipped[front_bytes..];
                let checked = |number: &usize| chunk.checked_column(*number, 0, body, &mut Vec::new()).is_err();
                assert_eq!((0..columns.len()).filter(checked).count(), 1, "bit {bit}");
            }
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
        for end in 0..bytes.len() {
            assert!(Chunk::parse(&bytes[..end]).is_err());
        }
    }
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let _ = look_at(bytes);
        // With a head that makes sense as far as it goes.
        let (columns, _) = usual(9, 0);
        let mut whole = build(&shape(&columns, bytes.len() % 2 == 1), &rows_from(9, &[(1, 5), (2, 9), (1, 77)]));
        for (at, byte) in bytes.iter().enumerate() {
            let at = (at * 31 + usize::from(*byte)) % whole.len();
            whole[at] = *byte;
        }
        let _ = look_at(&whole);
    });
}
