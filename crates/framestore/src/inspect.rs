// SPDX-License-Identifier: Apache-2.0
//! Looking into a store from outside, whether a controller writes to it or not: what takes the room ([`survey`]), and
//! what is damaged ([`verify`]).
//!
//! Nothing is written, no lock is taken, and files that their owner deletes meanwhile are passed over. What is in the
//! ring is not looked at: it is in memory and not in the store's directory. The log is held open first, then come the
//! chunks, and the catalogue last, so that rows on their way from one to the other are seen at least once.

#[cfg(test)]
pub(crate) mod fixture;
mod log;
mod survey;
#[cfg(test)]
mod tests;
mod verify;

use std::path::PathBuf;

pub use survey::{Amount, HostShare, Survey, survey};
pub use verify::{Verified, verify};

use crate::damage::Damage;

/// What it means that bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// What was in them is lost.
    Lost,
    /// They are damaged, and nothing is lost: a checksum, a group of records, or a twin has what they were.
    Mended,
    /// A write that was not ended has left them. Nothing durable is lost.
    Unfinished,
}

/// Bytes of a file that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which file.
    pub path: PathBuf,
    /// Where they begin.
    pub offset: u64,
    /// How many; 0 where nobody knows.
    pub bytes: u64,
    /// What is wrong with them.
    pub what: String,
    /// What that means.
    pub weight: Weight,
}

impl Finding {
    fn new(path: PathBuf, (offset, bytes): (u64, u64), what: impl Into<String>, weight: Weight) -> Self {
        Self { path, offset, bytes, what: what.into(), weight }
    }

    fn of(path: PathBuf, place: (u64, u64), damage: Damage, weight: Weight) -> Self {
        Self::new(path, place, damage.to_string(), weight)
    }
}
