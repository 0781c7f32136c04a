// SPDX-License-Identifier: Apache-2.0
//! What a chunk knows of a column beside its values: the first rollup.
//!
//! ```text
//! none     0
//! rising   1, first, last: the first is the least, the last the largest, the increase of a counter the difference
//! ends     2, first, last, min, max
//! counted  3, first, last, min, max, increase: of counters
//! extent   4, min, max: of tables, whose rows are of many lines
//! ```
//! The first number of each is a word: an integer, zigzag if the kind is signed, of a float with swapped bytes. Others
//! are the difference to it, zigzag, of floats the other bits, swapped. An increase is an integer. All are LEB128.

use crate::column::{Input, put_signed, put_unsigned};
use crate::damage::Damage;
use crate::types::Kind;

const NONE: u8 = 0;
const RISING: u8 = 1;
const ENDS: u8 = 2;
const COUNTED: u8 = 3;
const EXTENT: u8 = 4;

/// Of a column's values in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The least, in the order of its kind. Of floats -0 is less than 0, and what is no number counts for nothing: if
    /// all are none, this is none, either.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// Of tables not there.
    pub ends: Option<Ends>,
}

/// How a column that is of one line begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The first value.
    pub first: u64,
    /// The last value.
    pub last: u64,
    /// What a counter has gone up by from the first to the last, resets not counted as going down; otherwise 0. What it
    /// went up by before the first, since the last of the chunk before, is [`increase`]`(that, first)`.
    pub increase: u64,
}

/// What a counter has gone up by from one value to the next. If it went down it began again at 0.
#[must_use]
pub fn increase(before: u64, value: u64) -> u64 {
    if value < before { value } else { value - before }
}

/// A number that is the greater the greater the word is in the order of its kind.
pub(crate) fn rank(kind: Kind, word: u64) -> u64 {
    const SIGN: u64 = 1 << 63;
    match kind {
        Kind::Integer { signed: false } | Kind::Counter => word,
        Kind::Integer { signed: true } => word ^ SIGN,
        Kind::Float if word & SIGN > 0 => !word,
        Kind::Float => word ^ SIGN,
    }
}

/// The word of a [`rank`].
pub(crate) fn unrank(kind: Kind, rank: u64) -> u64 {
    const SIGN: u64 = 1 << 63;
    match kind {
        Kind::Integer { signed: false } | Kind::Counter => rank,
        Kind::Integer { signed: true } => rank ^ SIGN,
        Kind::Float if rank & SIGN > 0 => rank ^ SIGN,
        Kind::Float => !rank,
    }
}

impl Statistics {
    /// Of values in the order of arrival; `None` of none.
    pub(super) fn of(kind: Kind, values: &[u64], is_table: bool) -> Option<Self> {
        let (first, last) = (*values.first()?, *values.last()?);
        let numbers = values.iter().filter(|value| kind != Kind::Float || !is_nan(**value));
        let (least, most) = numbers.fold((u64::MAX, 0), |(least, most), value| {
            let rank = rank(kind, *value);
            (rank.min(least), rank.max(most))
        });
        let (min, max) = if least > most { (NAN, NAN) } else { (unrank(kind, least), unrank(kind, most)) };
        let steps = values.windows(2).filter(|_| kind == Kind::Counter);
        let increase = || steps.fold(0, |sum: u64, pair| sum.wrapping_add(increase(pair[0], pair[1])));
        let ends = (!is_table).then(|| Ends { first, last, increase: increase() });
        Some(Self { min, max, ends })
    }

    /// Of a column that has one value only.
    pub(super) fn constant(kind: Kind, value: u64, is_table: bool) -> Self {
        let extent = if kind == Kind::Float && is_nan(value) { NAN } else { value };
        let ends = (!is_table).then_some(Ends { first: value, last: value, increase: 0 });
        Self { min: extent, max: extent, ends }
    }
}

/// What all that is no number counts as.
pub(crate) const NAN: u64 = f64::NAN.to_bits();

pub(crate) fn is_nan(word: u64) -> bool {
    f64::from_bits(word).is_nan()
}

pub(super) fn put_word(kind: Kind, word: u64, out: &mut Vec<u8>) {
    match kind {
        Kind::Integer { signed: false } | Kind::Counter => put_unsigned(word, out),
        Kind::Integer { signed: true } => put_signed(word, out),
        Kind::Float => put_unsigned(word.swap_bytes(), out),
    }
}

pub(super) fn take_word(kind: Kind, input: &mut Input) -> Result<u64, Damage> {
    match kind {
        Kind::Integer { signed: false } | Kind::Counter => input.unsigned(),
        Kind::Integer { signed: true } => input.signed(),
        Kind::Float => Ok(input.unsigned()?.swap_bytes()),
    }
}

fn put_other(kind: Kind, first: u64, word: u64, out: &mut Vec<u8>) {
    match kind {
        Kind::Float => put_unsigned((first ^ word).swap_bytes(), out),
        _ => put_signed(word.wrapping_sub(first), out),
    }
}

fn take_other(kind: Kind, first: u64, input: &mut Input) -> Result<u64, Damage> {
    Ok(match kind {
        Kind::Float => first ^ input.unsigned()?.swap_bytes(),
        _ => first.wrapping_add(input.signed()?),
    })
}

pub(super) fn put(kind: Kind, statistics: Option<Statistics>, out: &mut Vec<u8>) {
    let Some(Statistics { min, max, ends }) = statistics else { return out.push(NONE) };
    let Some(Ends { first, last, increase }) = ends else {
        out.push(EXTENT);
        put_word(kind, min, out);
        return put_other(kind, min, max, out);
    };
    let is_counter = kind == Kind::Counter;
    let is_rising = (min, max) == (first, last) && (!is_counter || increase == last.wrapping_sub(first));
    out.push(if is_rising {
        RISING
    } else if is_counter {
        COUNTED
    } else {
        ENDS
    });
    put_word(kind, first, out);
    put_other(kind, first, last, out);
    if !is_rising {
        put_other(kind, first, min, out);
        put_other(kind, first, max, out);
        if is_counter {
            put_unsigned(increase, out);
        }
    }
}

pub(super) fn skip(input: &mut Input) -> Result<(), Damage> {
    let numbers = match input.byte()? {
        NONE => 0,
        RISING | EXTENT => 2,
        ENDS => 4,
        COUNTED => 5,
        _ => return Err(Damage::Wrong("a column's statistics")),
    };
    (0..numbers).try_for_each(|_| input.unsigned().map(|_| ()))
}

pub(super) fn take(kind: Kind, input: &mut Input) -> Result<Option<Statistics>, Damage> {
    let form = input.byte()?;
    if form == NONE {
        return Ok(None);
    }
    let first = take_word(kind, input)?;
    let other = take_other(kind, first, input)?;
    let (mut min, mut max) = (first, other);
    let mut increase = if kind == Kind::Counter { other.wrapping_sub(first) } else { 0 };
    match form {
        RISING => {}
        EXTENT => return Ok(Some(Statistics { min, max, ends: None })),
        ENDS | COUNTED => {
            (min, max) = (take_other(kind, first, input)?, take_other(kind, first, input)?);
            increase = if form == COUNTED { input.unsigned()? } else { 0 };
        }
        _ => return Err(Damage::Wrong("a column's statistics")),
    }
    Ok(Some(Statistics { min, max, ends: Some(Ends { first, last: other, increase }) }))
}
