// SPDX-License-Identifier: Apache-2.0
//! Operators of which a side is a native histogram.

use super::Eval;
use crate::expr::{Binary, Operator};
use crate::histogram::{Hint, Histogram, Keep};
use crate::value::Point;

/// What becomes of two values.
pub(super) enum Outcome {
    /// They have nothing to do with each other: there is no result, not even of `bool`.
    Nothing,
    /// A comparison does not hold.
    No,
    Is(Point),
}

impl Outcome {
    pub(super) fn point(self, to_bool: bool) -> Option<Point> {
        match self {
            Self::Is(point) if !to_bool => Some(point),
            Self::Is(_) => Some(Point::Float(1.0)),
            Self::No if to_bool => Some(Point::Float(0.0)),
            Self::No | Self::Nothing => None,
        }
    }
}

fn kind(point: &Point) -> &'static str {
    if matches!(point, Point::Histogram(_)) { "histogram" } else { "float" }
}

impl Eval<'_> {
    /// Of a histogram and something else; or of two floats that only histograms could be.
    pub(super) fn native_outcome(&self, binary: &Binary, left: &Point, right: &Point) -> Outcome {
        use Operator::{Add, Divide, Equal, Multiply, NotEqual, Subtract, TrimLower, TrimUpper};
        let changed = |histogram: &Histogram, change: &dyn Fn(&mut Histogram)| {
            let mut histogram = histogram.clone();
            change(&mut histogram);
            Outcome::Is(histogram.into())
        };
        match (binary.operator, left, right) {
            (Multiply, Point::Float(factor), Point::Histogram(own))
            | (Multiply, Point::Histogram(own), Point::Float(factor)) => changed(own, &|own| own.multiply(*factor)),
            (Divide, Point::Histogram(own), Point::Float(divisor)) => changed(own, &|own| own.divide(*divisor)),
            (TrimUpper, Point::Histogram(own), Point::Float(at)) => Outcome::Is(own.trimmed(*at, Keep::Below).into()),
            (TrimLower, Point::Histogram(own), Point::Float(at)) => Outcome::Is(own.trimmed(*at, Keep::Above).into()),
            (Equal | NotEqual, Point::Histogram(own), Point::Histogram(other)) => {
                match own.is_same(other) == (binary.operator == Equal) {
                    true => Outcome::Is(left.clone()),
                    false => Outcome::No,
                }
            }
            (Add | Subtract, Point::Histogram(own), Point::Histogram(other)) => self.sum(binary, own, other),
            (operator, left, right) => {
                self.notes.mixed_types([kind(left), kind(right)], operator.text(), binary.at);
                Outcome::Nothing
            }
        }
    }

    fn sum(&self, binary: &Binary, own: &Histogram, other: &Histogram) -> Outcome {
        let is_difference = binary.operator == Operator::Subtract;
        let (times, operation) = if is_difference { (-1.0, "subtraction") } else { (1.0, "addition") };
        let mut sum = own.clone();
        let Some(combined) = sum.add(other, times) else {
            self.notes.mixed_buckets_of_operator(binary.operator.text(), binary.at);
            return Outcome::Nothing;
        };
        if combined.is_reconciled {
            self.notes.reconciled(operation, binary.at);
        }
        if combined.is_collision {
            self.notes.reset_collision(operation, binary.at);
            return Outcome::Nothing;
        }
        let hint = if is_difference { Hint::Gauge } else { sum.hint };
        Outcome::Is(sum.with_hint(hint).into())
    }
}
