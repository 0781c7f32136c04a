// SPDX-License-Identifier: Apache-2.0
//! Questions to telemetry tables, by READs of a collector's memory: the collector's processors have no part in it but for the responder's answers.
//!
//! ```text
//! directory ──► table    which tables there are, and where
//! keys ──► ask           their values or counts: four READs a key, all under way at once
//! list ──► tail          what has been appended since the last time, and how much was lost
//! ```
//!
//! What the memory means is `onlooker_dta`'s, who sends READs the caller's ([`onlooker_reader::Requester`]). One thread a requester: several readers of a list have
//! a [`Tail`] each.
#![forbid(unsafe_code)]

mod ask;
mod memory;
mod table;
mod tail;
pub mod text;

#[cfg(test)]
mod tests;

pub use ask::{Asked, Count, counts, epoch, values};
pub use memory::{AskError, Memory, Readable};
pub use table::Table;
pub use tail::{Entries, Tail};
