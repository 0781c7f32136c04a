// SPDX-License-Identifier: Apache-2.0
//! What a host's values are called, for everybody who shows or keeps them: the controller, its store, `onlooker read`
//! and `top`.
//!
//! The way of a value: decoded samples of a region go through [`mod@derive`], which adds up what its schema says;
//! [`series`] names what is left; [`rank`] chooses between equal series; [`rate`] makes rates of counters; [`devices`]
//! says which of a host's devices count; [`families`] decides what a name means where many hosts use it; [`exposition`]
//! writes Prometheus' text, [`template`] that of many hosts at once. Nothing here does any I/O.
#![forbid(unsafe_code)]

pub mod derive;
pub mod devices;
pub mod exposition;
pub mod families;
pub mod in_order;
pub mod rank;
pub mod rate;
pub mod series;
pub mod template;
pub mod text;

/// A row or a sum that does not come any more is kept for so many readings: a block that is torn now and then must not
/// make it flicker.
pub const PATIENCE_READINGS: u64 = 16;
