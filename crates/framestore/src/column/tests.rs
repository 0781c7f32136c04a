// SPDX-License-Identifier: Apache-2.0
//! Every column comes back, usual ones are small, and damage is an error.

use super::block::{MASKED, SHIFTED, WHOLE};
use super::*;

const KINDS: [Kind; 4] = [Kind::Integer { signed: false }, Kind::Integer { signed: true }, Kind::Counter, Kind::Float];

fn round_trip_in_runs(kind: Kind, values: &[u64], runs: &[u32]) -> usize {
    let (mut bytes, mut back) = (Vec::new(), vec![7]);
    encode(kind, values, runs, &mut bytes);
    let size = bytes.len();
    bytes.extend([1, 2, 3]);
    assert_eq!(decode(&bytes, values.len(), runs, &mut back).unwrap(), [1, 2, 3]);
    assert_eq!(back[0], 7, "values are appended");
    assert_eq!(&back[1..], values);
    assert_eq!(skip(&bytes, values.len(), runs).unwrap(), [1, 2, 3]);
    // Nothing behind it that loads could read.
    let mut again = Vec::new();
    assert_eq!(decode(&bytes[..size], values.len(), runs, &mut again).unwrap(), [0u8; 0]);
    assert_eq!(again, values);
    assert!(size <= 1 + values.len() * 8);
    size
}

fn round_trip(kind: Kind, values: &[u64]) -> usize {
    round_trip_in_runs(kind, values, &[])
}

/// Cuts `rows` into runs of these lengths and whatever is left.
fn runs_of(rows: usize, lengths: &[u8]) -> Vec<u32> {
    let (mut left, mut runs) = (u32::try_from(rows).unwrap(), Vec::new());
    for length in lengths {
        let length = u32::from(*length).clamp(1, left.max(1));
        if length < left {
            runs.push(length);
            left -= length;
        }
    }
    runs.push(left);
    runs
}

#[test]
fn every_column_comes_back_bit_for_bit() {
    bolero::check!().with_type::<(u8, Vec<u64>, Vec<u8>)>().for_each(|(kind, values, lengths)| {
        let kind = KINDS[usize::from(kind % 4)];
        round_trip(kind, values);
        round_trip_in_runs(kind, values, &runs_of(values.len(), lengths));
    });
    // Slow movers with pauses, in all widths and at the ends of the number range.
    bolero::check!().with_type::<(u64, u64, u8, Vec<u32>, Vec<u8>)>().for_each(
        |(first, step, bits, noise, lengths)| {
            let mut value = *first;
            let mut values = vec![value];
            for noise in noise.iter().cycle().take(noise.len() * 5) {
                if noise % 3 > 0 {
                    value = value.wrapping_add(*step).wrapping_add(u64::from(*noise) << (bits % 64));
                }
                values.push(value);
            }
            for kind in KINDS {
                round_trip(kind, &values);
                round_trip_in_runs(kind, &values, &runs_of(values.len(), lengths));
            }
        },
    );
}

#[test]
fn every_width_and_length_comes_back() {
    for width in 0..=64u32 {
        for rows in [1, 2, 8, 63, 64, 65, 66, 130] {
            let mut state = 0x1234_5678_9abc_def1u64;
            let mut noise = || {
                state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ state >> 29;
                if width == 0 { 0 } else { state >> (64 - width) }
            };
            let mut value = 0u64;
            let counter: Vec<u64> = (0..rows)
                .map(|_| {
                    value = value.wrapping_add(noise());
                    value
                })
                .collect();
            let jumps: Vec<u64> = (0..rows).map(|row| if row % 5 == 0 { noise() << 3 } else { 0 }).collect();
            for kind in KINDS {
                round_trip(kind, &counter);
                round_trip(kind, &jumps);
            }
        }
    }
}

#[test]
fn usual_columns_are_small() {
    let integer = Kind::Integer { signed: false };
    let counter: Vec<u64> = (0..256).map(|i| 1_000_000 + i * 37 + i % 5).collect();
    assert!(round_trip(Kind::Counter, &counter) <= 8 + 256 * 3 / 8 + 4 * 2);
    let steady: Vec<u64> = (0..256).map(|i| 1_700_000_000_000_000_000 + i * 10_000_000).collect();
    assert!(round_trip(integer, &steady) <= 32, "{}", round_trip(integer, &steady));
    let rare: Vec<u64> = (0..1024).map(|i| 77 + i / 300 * 1_000_000).collect();
    assert!(round_trip(Kind::Counter, &rare) <= 48, "three changes in 16 blocks: {}", round_trip(Kind::Counter, &rare));
    let pages: Vec<u64> = (0..256u64).map(|i| (1_000_000 + i * i * 0x9e37 % 512) << 12).collect();
    assert!(round_trip(integer, &pages) <= 256 * 10 / 8 + 48, "multiples of a page: {}", round_trip(integer, &pages));
    let floats = |value: fn(u32) -> f64| (0..256).map(|i| value(i).to_bits()).collect::<Vec<u64>>();
    assert!(round_trip(Kind::Float, &floats(|i| f64::from(i % 7) / 100.0)) < 150, "load averages");
    assert!(round_trip(Kind::Float, &floats(|i| f64::from(i).sqrt())) <= 1 + 256 * 8);
    round_trip(Kind::Float, &[f64::NAN.to_bits(); 99]);
    round_trip(Kind::Float, &[(-0.0f64).to_bits(), 0, f64::NAN.to_bits(), f64::INFINITY.to_bits()]);
    round_trip(integer, &[0, u64::MAX, 1, 1 << 63]);
    // Few rows.
    assert_eq!(round_trip(integer, &[]), 0);
    assert_eq!(round_trip(integer, &[0, 0]), 2);
    assert!(round_trip(Kind::Counter, &[1_000_000, 1_000_037]) <= 6);
    assert_eq!(round_trip(integer, &[u64::MAX; 2]), 2);
}

#[test]
fn what_lies_between_the_lines_of_a_table_costs_one_number_each() {
    // A hundred processes, ten rows each, far from each other.
    let values: Vec<u64> =
        (0..1_000u64).map(|row| (row / 10 * 0x9e37_79b9 % 1_000_003) * 4_096 + row % 10 * 3).collect();
    let together = round_trip_in_runs(Kind::Counter, &values, &[10; 100]);
    let apart = round_trip(Kind::Counter, &values);
    assert!(together * 3 < apart * 2 && together < 600, "{together} of {apart}");
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    bolero::check!().with_type::<(u16, Vec<u8>, Vec<u8>)>().for_each(|(rows, bytes, lengths)| {
        let rows = usize::from(rows % 4_097);
        let runs = runs_of(rows, lengths);
        let mut values = vec![1];
        let result = decode(bytes, rows, &runs, &mut values);
        assert_eq!(values.len(), if result.is_ok() { 1 + rows } else { 1 });
        if let Ok(rest) = result {
            assert_eq!(skip(bytes, rows, &runs).map(<[u8]>::len), Ok(rest.len()));
        }
    });
    // Whatever is flipped or cut in real ones.
    let values: Vec<u64> = (0..200u64).map(|i| if i % 3 == 0 { i * i * 4_096 } else { i }).collect();
    for kind in KINDS {
        let mut bytes = Vec::new();
        encode(kind, &values, &[50, 150], &mut bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&bytes, values.len(), &[50, 150], &mut Vec::new());
            let _ = skip(&bytes, values.len(), &[50, 150]);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end], values.len(), &[50, 150], &mut Vec::new()).is_err(), "{kind:?} {end}");
        }
    }
    let wrong: [&[u8]; 10] = [
        &[9; 9],
        &[CONSTANT, 0x80],
        &[CONSTANT, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[DELTAS, 0, WHOLE + 2],
        &[DELTAS, 0, SHIFTED, 64, 0],
        &[DELTAS, 0, SHIFTED, 3, SHIFTED],
        &[DELTAS, 0, MASKED | 3, 1, 2, 0],
        &[SCALED, 5, 0, 0],
        &[XORED, 0, 64],
        &[RAW, 0, 0, 0, 0, 0, 0, 0],
    ];
    for bytes in wrong {
        assert!(decode(bytes, 2, &[], &mut Vec::new()).is_err(), "{bytes:?}");
    }
}
