// SPDX-License-Identifier: Apache-2.0
//! Numbers that can be summed up: plainly, or so that rounding loses next to nothing.

/// A sum and what rounding lost of it (Kahan's, with Neumaier's improvement).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kahan {
    pub(crate) sum: f64,
    pub(crate) lost: f64,
}

impl Kahan {
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        if sum.is_infinite() {
            self.lost = 0.0;
        } else if self.sum.abs() >= value.abs() {
            self.lost += (self.sum - sum) + value;
        } else {
            self.lost += (value - sum) + self.sum;
        }
        self.sum = sum;
    }

    pub(crate) fn total(self) -> f64 {
        self.sum + self.lost
    }
}

/// What counts of a histogram are: f64, or sums of many.
pub trait Number: Copy {
    /// What it begins with.
    fn of(value: f64) -> Self;
    /// Takes one more.
    fn add(&mut self, other: Self);
    /// Becomes so many times what it is.
    fn scale(&mut self, factor: f64);
    /// Becomes that part of what it is.
    fn divide(&mut self, divisor: f64);
    /// What it is.
    fn value(self) -> f64;
    /// Whether it is exactly 0.
    fn is_zero(self) -> bool;
}

impl Number for f64 {
    fn of(value: f64) -> Self {
        value
    }

    fn add(&mut self, other: Self) {
        *self += other;
    }

    fn scale(&mut self, factor: f64) {
        *self *= factor;
    }

    fn divide(&mut self, divisor: f64) {
        *self /= divisor;
    }

    fn value(self) -> f64 {
        self
    }

    fn is_zero(self) -> bool {
        self == 0.0
    }
}

impl Number for Kahan {
    fn of(value: f64) -> Self {
        Self { sum: value, lost: 0.0 }
    }

    fn add(&mut self, other: Self) {
        Self::add(self, other.sum);
        if other.lost != 0.0 {
            Self::add(self, other.lost);
        }
    }

    fn scale(&mut self, factor: f64) {
        self.sum *= factor;
        self.lost *= factor;
    }

    fn divide(&mut self, divisor: f64) {
        self.sum /= divisor;
        self.lost /= divisor;
    }

    fn value(self) -> f64 {
        self.total()
    }

    fn is_zero(self) -> bool {
        self.sum == 0.0 && self.lost == 0.0
    }
}
