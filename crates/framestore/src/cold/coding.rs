// SPDX-License-Identifier: Apache-2.0
//! Words as numbers that SQL computes with, and back: which of the columns `int_value`, `float_value` and `word` has
//! what, and what the scale is there.

use onlooker_region::histogram::Shape;
use onlooker_region::number::exported;
use onlooker_series::series::{Form, Series};

use super::columns::Numbers;
use crate::damage::Damage;

/// Powers of ten that are tried for floats: what gauges are usually rounded to.
const MAX_POWER: u8 = 4;
/// Largest integer that a float has exactly, 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Whole numbers from here on are no i64.
const TOO_LARGE: u64 = 1 << 63;

/// How the rows of a run make words, column `form`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// As the number is.
    Plain(Form),
    /// A float that is a whole number / divisor.
    Decimal,
    /// The sum of a histogram.
    Sum(Shape),
    /// One of its buckets.
    Bucket(Shape, usize),
}

impl Coding {
    pub(super) fn text(self) -> String {
        let shape = |shape: Shape| format!("histogram {}/{}", shape.grouping_power, shape.max_power);
        match self {
            Self::Plain(Form::Unsigned) => "u64".into(),
            Self::Plain(Form::Signed) => "i64".into(),
            Self::Plain(Form::Float) => "f64".into(),
            Self::Plain(Form::Text) => "text".into(),
            Self::Decimal => "decimal".into(),
            Self::Plain(Form::Histogram(of)) | Self::Sum(of) => shape(of),
            Self::Bucket(of, number) => format!("{} {number}", shape(of)),
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, Damage> {
        let known = match text {
            "u64" => Some(Self::Plain(Form::Unsigned)),
            "i64" => Some(Self::Plain(Form::Signed)),
            "f64" => Some(Self::Plain(Form::Float)),
            "text" => Some(Self::Plain(Form::Text)),
            "decimal" => Some(Self::Decimal),
            _ => text.strip_prefix("histogram ").and_then(|text| {
                let (powers, bucket) =
                    text.split_once(' ').map_or((text, None), |(powers, bucket)| (powers, Some(bucket)));
                let (grouping, max) = powers.split_once('/')?;
                let shape = Shape { grouping_power: grouping.parse().ok()?, max_power: max.parse().ok()? };
                let is_one = shape.is_valid() && shape.buckets() <= onlooker_region::limits::MAX_HISTOGRAM_BUCKETS;
                let coding = match bucket {
                    None => Self::Sum(shape),
                    Some(number) => Self::Bucket(shape, number.parse().ok().filter(|at| *at < shape.buckets())?),
                };
                is_one.then_some(coding)
            }),
        };
        known.ok_or(Damage::Wrong("the form of a series"))
    }

    /// What the words are, of which this is some.
    pub(super) fn form(self) -> Form {
        match self {
            Self::Plain(form) => form,
            Self::Decimal => Form::Float,
            Self::Sum(shape) | Self::Bucket(shape, _) => Form::Histogram(shape),
        }
    }

    /// Of floats that are whole numbers / divisor 1 + the power of ten that divides; else 0.
    pub(super) fn power(self, divisor: f64) -> u8 {
        let is_it = |power: &u8| power_of(*power).is_some_and(|known| known.to_bits() == divisor.to_bits());
        (1..=MAX_POWER + 1).find(is_it).filter(|_| self == Self::Decimal).unwrap_or(0)
    }

    /// What its name has behind the series'.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Plain(_) | Self::Decimal => "",
            Self::Sum(_) => "_sum",
            Self::Bucket(..) => "_bucket",
        }
    }
}

/// What a scale is in SQL, which cannot know our rule for it (`onlooker_region::number::exported`): the divisor and the
/// multiplier of which one is 1.
#[allow(clippy::float_cmp)] // exactly the reciprocal is meant
pub(super) fn parts_of(scale: f64) -> (f64, f64) {
    // What `exported` makes of 1 is 1 / divisor for a scale that divides, and nothing else tells those from others.
    const EXACT: f64 = (1u64 << 53) as f64;
    let whole = (1.0 / scale).round();
    if scale < 1.0 && whole < EXACT && 1.0 / whole == scale { (whole, 1.0) } else { (1.0, scale) }
}

/// The scale whose parts these are.
#[allow(clippy::float_cmp)]
pub(super) fn scale_of(divisor: f64, multiplier: f64) -> f64 {
    if divisor == 1.0 { multiplier } else { 1.0 / divisor }
}

/// How the words of a column of a series stand in the file, and what its numbers are to be divided by and multiplied
/// with.
pub(super) fn coded(series: &Series, column: usize, words: &[u64]) -> (Coding, f64, f64) {
    let (divisor, multiplier) = parts_of(series.scale);
    match series.form {
        Form::Histogram(shape) if column < shape.buckets() => (Coding::Bucket(shape, column), 1.0, 1.0),
        Form::Histogram(shape) => (Coding::Sum(shape), divisor, multiplier),
        Form::Text => (Coding::Plain(Form::Text), 1.0, 1.0),
        Form::Float if series.scale.to_bits() == 1f64.to_bits() => match decimal(words) {
            Some(power) => (Coding::Decimal, power, 1.0),
            None => (Coding::Plain(Form::Float), 1.0, 1.0),
        },
        form => (Coding::Plain(form), divisor, multiplier),
    }
}

/// What [`Coding::power`] was made of; nothing for 0.
pub(super) fn power_of(power: u8) -> Option<f64> {
    (power > 0).then(|| 10f64.powi(i32::from(power) - 1))
}

/// The least power of ten that makes all these floats integers from which they come back bit for bit.
fn decimal(words: &[u64]) -> Option<f64> {
    (0..=MAX_POWER).map(|power| 10f64.powi(power.into())).find(|power| {
        words.iter().all(|word| whole(*word, *power).is_some_and(|whole| of_whole(whole, *power) == *word))
    })
}

#[allow(clippy::cast_possible_truncation)] // below 2^53
fn whole(word: u64, power: f64) -> Option<u64> {
    let rounded = (f64::from_bits(word) * power).round();
    (rounded.abs() < EXACT).then_some((rounded as i64).cast_unsigned())
}

/// The float that a whole number is some power of ten of: minus zero, for one, does not come back.
#[allow(clippy::cast_precision_loss)] // below 2^53
pub(super) fn of_whole(whole: u64, power: f64) -> u64 {
    (whole.cast_signed() as f64 / power).to_bits()
}

/// A bucket's least and largest value.
#[allow(clippy::cast_precision_loss)] // a bound is as exact as a double is
pub(super) fn bounds(coding: Coding, scale: f64) -> Option<(f64, f64)> {
    let of = |shape: Shape, number: usize| {
        let (low, high) = shape.range(number);
        // The last one counts whatever is larger, too.
        let high = if number + 1 == shape.buckets() { f64::INFINITY } else { exported(high as f64, scale) };
        (exported(low as f64, scale), high)
    };
    match coding {
        Coding::Bucket(shape, number) => Some(of(shape, number)),
        _ => None,
    }
}

/// Splits words that are coded so into the columns of numbers.
pub(super) fn put_words(coding: Coding, divisor: f64, words: &[u64], numbers: &mut Numbers) {
    let Numbers { integers, floats, words: exact } = numbers;
    match coding {
        Coding::Plain(Form::Float) => {
            integers.skip(words.len());
            floats.extend(words.iter().copied());
            exact.skip(words.len());
        }
        Coding::Decimal => {
            integers.extend(words.iter().map(|word| whole(*word, divisor).unwrap_or(0)));
            floats.skip(words.len());
            exact.skip(words.len());
        }
        // A text counts as 1.
        Coding::Plain(Form::Text) => {
            integers.skip(words.len());
            floats.extend(std::iter::repeat_n(1f64.to_bits(), words.len()));
            exact.extend(words.iter().copied());
        }
        Coding::Plain(Form::Unsigned) | Coding::Sum(_) | Coding::Bucket(..) => {
            for words in words.chunk_by(|a, b| (*a < TOO_LARGE) == (*b < TOO_LARGE)) {
                if words[0] < TOO_LARGE {
                    integers.extend(words.iter().copied());
                    floats.skip(words.len());
                    exact.skip(words.len());
                } else {
                    integers.skip(words.len());
                    #[allow(clippy::cast_precision_loss)] // as `Value::scaled` has it
                    floats.extend(words.iter().map(|word| (*word as f64).to_bits()));
                    exact.extend(words.iter().copied());
                }
            }
        }
        Coding::Plain(_) => {
            integers.extend(words.iter().copied());
            floats.skip(words.len());
            exact.skip(words.len());
        }
    }
}
