// SPDX-License-Identifier: Apache-2.0
//! Whether samples are what their metric can be.
//!
//! A [`config::Rule`] says of the series that a selector takes what is valid: a range, a rate of change, that it only
//! grows, that it moves at all, that it comes, that it is near the others. [`Rules`] looks at the series of an entity
//! once, when that comes, and makes what judges its rows ([`Checked`]); most entities have none.
//!
//! ```text
//! row ─► Checked::judge   sample by sample: range, monotone, rate, still, outlier; the first that fails is the reason
//!            │  failed: the last good value stands in the row, and a [`Failure`] has what came
//!            └► good: the moving average and quantiles, where the rule wants them
//! ```
//!
//! No I/O and no clock: times come with the samples. Cost: a sample with a range or `monotone` some ns and a byte; one with a
//! window some 100 ns and the window twice.
//!
//! Source: the checks of the acquisition module (range) and what it was made for (a pipeline of them, probes that have
//! crashed, outliers), and short-term processing by an exponential moving average.
#![forbid(unsafe_code)]

pub mod config;
mod judge;
mod rules;
mod state;
mod window;

pub use judge::{Checked, Failure, Now};
pub use rules::Rules;

/// Why a sample is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// None has come for so many intervals.
    Absent,
    /// It is not in its range.
    Range,
    /// It only grows, and has become less.
    Monotone,
    /// It changes too fast.
    Rate,
    /// It has been the same for too long.
    Still,
    /// It is too far from the median of the last ones.
    Outlier,
}

impl Reason {
    /// All, in the order in which they are looked for.
    pub const ALL: [Self; 6] = [Self::Absent, Self::Range, Self::Monotone, Self::Rate, Self::Still, Self::Outlier];

    /// The value of the label `reason`.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Range => "range",
            Self::Monotone => "monotone",
            Self::Rate => "rate",
            Self::Still => "still",
            Self::Outlier => "outlier",
        }
    }
}

#[cfg(test)]
mod tests;
