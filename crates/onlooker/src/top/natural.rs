// SPDX-License-Identifier: Apache-2.0
//! Order of names for people.

use std::cmp::Ordering;

/// Order of texts in which numbers count as numbers: `cpu=2` before `cpu=10`.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a, b) {
            ([], []) => return Ordering::Equal,
            ([], _) => return Ordering::Less,
            (_, []) => return Ordering::Greater,
            ([x, ..], [y, ..]) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (number, rest) = digits(a);
                let (other, other_rest) = digits(b);
                // Without leading zeros the longer one is the greater one.
                let order = number.len().cmp(&other.len()).then_with(|| number.cmp(other));
                if order != Ordering::Equal {
                    return order;
                }
                (a, b) = (rest, other_rest);
            }
            ([x, a_rest @ ..], [y, b_rest @ ..]) => {
                if x != y {
                    return x.cmp(y);
                }
                (a, b) = (a_rest, b_rest);
            }
        }
    }
}

/// The number at the beginning, without leading zeros, and the rest.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let zeros = number.iter().take_while(|digit| **digit == b'0').count();
    (&number[zeros..], rest)
}
