// SPDX-License-Identifier: Apache-2.0
//! Rows that come back, in how many bytes, and bytes that are none.

use super::*;
use crate::types::SECOND_NS;

const INTEGER: Kind = Kind::Integer { signed: false };

/// Kinds of so many columns, all of them among these.
fn mixed(columns: usize) -> Vec<Kind> {
    (0..columns).map(|at| [Kind::Counter, Kind::Float, INTEGER, Kind::Integer { signed: true }][at % 4]).collect()
}

/// Encodes rows, checks that they come back one by one, and returns the bytes of each. All have the same time: a byte.
fn round_trip(kinds: &[Kind], rows: &[Vec<u64>]) -> Vec<Vec<u8>> {
    round_trip_at(kinds, rows, &vec![0; rows.len()])
}

fn round_trip_at(kinds: &[Kind], rows: &[Vec<u64>], times_ns: &[u64]) -> Vec<Vec<u8>> {
    let (mut clock, mut state) = (Clock::default(), vec![0; state_words(kinds.len())]);
    let (mut clock_back, mut back) = (clock, state.clone());
    let mut encoded = |row: &Vec<u64>, time_ns: u64| {
        let mut bytes = vec![1, 2, 3];
        encode(&mut clock, &mut state, kinds, time_ns, row, &mut bytes);
        let encoded = bytes.split_off(3);
        assert_eq!(bytes, [1, 2, 3]);
        let mut followed = encoded.clone();
        followed.extend([0xee; 12]);
        let mut input = &followed[..];
        assert_eq!(decode(&mut clock_back, &mut back, kinds, &mut input), Ok(time_ns));
        assert_eq!(input, [0xee; 12]);
        assert_eq!(back[..kinds.len()], row[..]);
        assert_eq!((clock_back, &back), (clock, &state), "both sides refer to the same");
        encoded
    };
    rows.iter().zip(times_ns).map(|(row, time_ns)| encoded(row, *time_ns)).collect()
}

/// Bytes of each row's words.
fn bytes_of(kinds: &[Kind], rows: &[Vec<u64>]) -> Vec<usize> {
    round_trip(kinds, rows).iter().map(|bytes| bytes.len() - 1).collect()
}

/// Numbers without a pattern.
fn noise(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[test]
fn every_row_comes_back_bit_for_bit() {
    bolero::check!().with_type::<(u8, Vec<u64>)>().for_each(|(columns, values)| {
        let columns = usize::from(*columns).max(1);
        let rows: Vec<_> = values.chunks_exact(columns).map(<[u64]>::to_vec).collect();
        round_trip(&mixed(columns), &rows);
    });
    // As rows are: few columns move, by little or by much.
    bolero::check!().with_type::<(u16, Vec<(u16, u64, u8)>)>().for_each(|(columns, moves)| {
        let mut row = vec![0u64; usize::from(*columns % 1_200) + 1];
        let mut rows = vec![];
        for (column, by, shift) in moves {
            let column = usize::from(*column) % row.len();
            row[column] = row[column].wrapping_add(by >> (shift % 64));
            rows.push(row.clone());
        }
        round_trip(&mixed(row.len()), &rows);
    });
}

#[test]
fn rows_of_all_widths_come_back() {
    for columns in (0..=20).chain(60..=70).chain([127, 128, 129, 448, 511, 512, 513, 528, 529, 575, 577, 1_024, 1_100])
    {
        // All columns, then twice none, then one, then some of them.
        let rows: Vec<Vec<u64>> = (0..12)
            .map(|row: u64| {
                let value = |column: u64| match row {
                    0..3 => noise(column) | 1,
                    3 => (noise(column) | 1) + u64::from(column + 1 == columns as u64),
                    _ => noise(column).wrapping_add(if noise(column ^ row << 32).is_multiple_of(5) { row } else { 0 }),
                };
                (0..columns as u64).map(value).collect()
            })
            .collect();
        let bytes = bytes_of(&mixed(columns), &rows);
        assert!(bytes[2] <= 2 + columns / 256, "nothing changed in {columns} columns: {}", bytes[2]);
        assert!(bytes[3] <= 4 + columns / 256 + 9, "one of {columns} changed: {}", bytes[3]);
    }
}

#[test]
fn values_at_the_ends_of_the_range_come_back() {
    let ends = [0, u64::MAX, 1, 1 << 63, (1 << 63) - 1, 1 << 62, u64::MAX - 1, 0, 1 << 63, 0, u64::MAX];
    for kind in [Kind::Counter, INTEGER, Kind::Float] {
        let rows: Vec<_> = ends.iter().flat_map(|a| ends.iter().map(move |b| vec![*a, *b, a ^ b])).collect();
        round_trip(&[kind; 3], &rows);
    }
}

#[test]
fn usual_rows_are_small() {
    let rows = |value: &dyn Fn(u64) -> u64| (0..20).map(|row| vec![value(row)]).collect::<Vec<_>>();
    let of = |kind, value: &dyn Fn(u64) -> u64| bytes_of(&[kind], &rows(value));
    // A mask of one byte is in all of them.
    assert_eq!(of(Kind::Counter, &|_| 0), [1; 20]);
    let steady = of(Kind::Counter, &|row| 5_000_000_000 + row * 1_000_000);
    assert_eq!((steady[0], steady[1], &steady[3..]), (6, 4, &[2; 17][..]), "as soon as it is seen to be steady");
    let jitter = of(Kind::Counter, &|row| 1_000_000 * row + noise(row) % 60);
    assert!(jitter[4..].iter().all(|bytes| *bytes <= 3), "{jitter:?}");
    let gauge = of(INTEGER, &|row| 5_000_000_000 + noise(row) % 64);
    assert!(gauge[1..].iter().all(|bytes| *bytes <= 3), "{gauge:?}");
    // A jump costs one row, not the next ones.
    let jump = of(INTEGER, &|row| row % 2 + if row < 10 { 0 } else { 1 << 40 });
    assert_eq!((jump[9], jump[10], &jump[11..]), (2, 7, &[2; 9][..]));
    let whole = of(Kind::Float, &|row| (row as f64 + 1.0).to_bits());
    assert!(whole.iter().all(|bytes| *bytes <= 4), "{whole:?}");
    let any = of(Kind::Float, &|row| (row as f64 + 2.0).sqrt().to_bits());
    assert!(any.iter().all(|bytes| *bytes <= 10), "{any:?}");
    // Far columns do not cost those between, nor is it told again that they change: a byte says so of each block.
    let ends: Vec<_> = (0..9).map(|row| [vec![row], vec![0; 698], vec![row]].concat()).collect();
    assert_eq!(bytes_of(&[Kind::Counter; 700], &ends)[4..], [2 * (1 + 1); 5]);
}

#[test]
fn the_same_time_and_the_next_in_step_take_a_byte() {
    let times = |times: &[u64]| {
        let bytes = round_trip_at(&[], &vec![vec![]; times.len()], times);
        bytes.iter().map(Vec::len).collect::<Vec<_>>()
    };
    let start_ns = 1_790_000_000 * SECOND_NS;
    let at = |seconds: u64| start_ns + seconds * SECOND_NS;
    assert_eq!(times(&[at(0), at(1), at(2), at(3)])[2..], [1, 1]);
    // Lines of a table: all of one reading have one time.
    let lines: Vec<u64> = (0..60).map(|row| at(row / 10) + noise(row / 10) % 50_000).collect();
    assert!(times(&lines)[20..].iter().enumerate().all(|(row, bytes)| *bytes == 1 || row % 10 == 0 && *bytes <= 3));
    times(&[0, u64::MAX, 0, 0, 1 << 63, 1, 1, u64::MAX, u64::MAX - 1]);
    bolero::check!().with_type::<Vec<(u64, u8)>>().for_each(|steps| {
        let mut time_ns = 0u64;
        let all: Vec<u64> = steps
            .iter()
            .map(|(step, shift)| {
                time_ns = time_ns.wrapping_add(step >> (shift % 64));
                time_ns
            })
            .collect();
        times(&all);
    });
}

#[test]
fn times_of_parts_are_told_by_the_one_before() {
    // Readings that come when they can, of parts that come one after the other, some of them less often.
    let start_ns = 1_790_000_000_000_000_000;
    let time_ns = |row: u64| start_ns + row * 1_000_000_000 + noise(row) % 10_000_000;
    let part_ns = |row: u64, part: u64| {
        let row = if part % 4 == 3 { row - row % 5 } else { row };
        time_ns(row) + part * 20_000 + noise(row << 8 | part) % 1_000
    };
    let rows: Vec<Vec<u64>> =
        (0..40).map(|row| (0..20).flat_map(|part| [part_ns(row, part), part * 7]).collect()).collect();
    let times_ns: Vec<u64> = (0..40).map(time_ns).collect();
    let bytes: Vec<usize> = round_trip_at(&[INTEGER; 40], &rows, &times_ns).iter().map(Vec::len).collect();
    for (row, bytes) in bytes[20..].iter().enumerate() {
        let rare = if row % 5 == 0 { 5 * 5 } else { 0 };
        assert!(*bytes <= 4 + 1 + 5 + 15 * 2 + rare, "{bytes} at {row}");
    }
    // Words near the time that are none, and times that go anywhere, come back all the same.
    bolero::check!().with_type::<Vec<(u64, u64, u8)>>().for_each(|moves| {
        let row = |(a, b, shift): &(u64, u64, u8)| vec![start_ns.wrapping_add(a >> (shift % 64)), *b, start_ns ^ b];
        let times_ns: Vec<u64> = moves.iter().map(|(a, _, shift)| start_ns.wrapping_add(a << (shift % 64))).collect();
        round_trip_at(&[INTEGER; 3], &moves.iter().map(row).collect::<Vec<_>>(), &times_ns);
    });
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    bolero::check!().with_type::<(u16, Vec<u8>)>().for_each(|(columns, bytes)| {
        let kinds = mixed(usize::from(*columns % 1_100));
        let (mut clock, mut state) = (Clock::default(), vec![0; state_words(kinds.len())]);
        let mut input = &bytes[..];
        while !input.is_empty() && decode(&mut clock, &mut state, &kinds, &mut input).is_ok() {}
    });
    let decoded = |columns: usize, bytes: &[u8]| {
        decode(&mut Clock::default(), &mut vec![0; state_words(columns)], &mixed(columns), &mut &bytes[..])
    };
    // A row that was cut anywhere.
    let row: Vec<u64> = (0..600).map(|column| if column % 3 == 0 { noise(column) } else { 0 }).collect();
    let whole = &round_trip(&mixed(600), &[row])[0];
    assert_eq!(decoded(600, whole), Ok(0));
    (0..whole.len()).for_each(|end| assert!(decoded(600, &whole[..end]).is_err(), "{end} of {}", whole.len()));
    // Columns that are not there, and a float of nine bytes; in front is the time.
    let wrong = |columns: usize, bytes: &[u8]| decoded(columns, &[&[0], bytes, &[0; 32]].concat()).err();
    assert_eq!(wrong(3, &[8]), Some(Damage::Wrong("column of a row")));
    assert_eq!(wrong(20, &[4, 16]), Some(Damage::Wrong("column of a row")));
    assert_eq!(wrong(65, &[4, 1, 1]), Some(Damage::Wrong("column of a row")));
    assert_eq!(wrong(65, &[2, 1, 2]), Some(Damage::Wrong("column of a row")));
    assert_eq!(wrong(2, &[2, 0x0f]), Some(Damage::Wrong("length of a float")));
    assert_eq!(wrong(2, &[2, 0x80]), Some(Damage::Wrong("length of a float")));
}
