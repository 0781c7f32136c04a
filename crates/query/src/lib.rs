// SPDX-License-Identifier: Apache-2.0
//! The series that PromQL asks for, out of the frame store.
//!
//! ```text
//! matchers ─► select   tracks, parts, lines from the catalogue; each Prometheus series with its *lanes*
//! key ──────► merge    the lanes of a series in the order of their times, the better one where two go on at once
//!               lane   one track's samples, as long as the series goes on, with a marker where it ends
//!               store  chunks, rollups where raw rows are gone, rows in memory
//!       shown, window  instead of merge: of windows only the samples at their edges, where one lane has all of them
//! ```
//!
//! Names, labels and values are those of `/metrics`: `exported` has what one of our series is to Prometheus. A histogram is
//! a native one besides, under its own name: `native`.
//! [`follow`] hands on all samples as they come, for whoever keeps them elsewhere. [`lists`] answers which names, labels and values there are.
//!
//! **Cost.** To find a series takes some microseconds. Series are read track by track, and what is decoded of a track is
//! kept for the next ones, 32 MiB a query at most: a chunk is opened once, columns that several series have are decoded
//! once, and heads once for all queries; so are samples next to whole seconds or minutes, of dense rows. What is held
//! beside that is some 16,384 samples of the series that is being read, all lanes together. An instant selector wants
//! the newest sample only: the last rows are looked at, from the newest back, and the series is read where these do not
//! tell all.
#![forbid(unsafe_code)]

mod exported;
pub mod follow;
mod lane;
pub mod lists;
mod merge;
mod native;
mod newest;
mod out;
mod plan;
mod recorded;
mod select;
mod shown;
mod structure;
#[cfg(test)]
mod tests;
mod tracks;
mod window;

pub use recorded::{NotRecorded, Recorder};
pub use select::{StoreSource, Wanted};
