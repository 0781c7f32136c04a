// SPDX-License-Identifier: Apache-2.0
//! Doubles as the format has them: one decimal text each, and what a scale makes of a stored value.

/// A double's decimal text as canonical forms have it: the fewest digits that read back to it.
#[must_use]
pub fn decimal(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-5..1e16).contains(&size) {
        return format!("{value:e}");
    }
    let text = value.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

/// A field's scale: one that is the reciprocal of a whole number divides, so that 3 ns are 3e-9 s and not
/// 3.0000000000000004e-9 (docs/format/schema.md, `scale`).
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    number: f64,
    divides: bool,
}

impl Scale {
    /// What a schema says.
    #[must_use]
    #[allow(clippy::float_cmp)] // exactly the reciprocal is meant
    pub fn new(scale: f64) -> Self {
        const EXACT: f64 = (1u64 << 53) as f64;
        let whole = (1.0 / scale).round();
        let divides = scale < 1.0 && whole < EXACT && 1.0 / whole == scale;
        Self { number: if divides { whole } else { scale }, divides }
    }

    /// What a stored value is under it.
    #[must_use]
    pub fn of(self, stored: f64) -> f64 {
        if self.divides { stored / self.number } else { stored * self.number }
    }
}

/// A stored value under a field's scale.
#[must_use]
pub fn exported(stored: f64, scale: f64) -> f64 {
    Scale::new(scale).of(stored)
}
