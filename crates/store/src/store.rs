// SPDX-License-Identifier: Apache-2.0
//! Rings, log and index put together: rows go in hot, are sealed into tiles, and become durable with the next sync.
//!
//! One owner, the [`Writer`]: it defines tracks, seals, and does all that a disk can hold up, without a lock. What readers look at is the [`Store`], behind a lock
//! that the writer takes for moments only: no disk and no packing is waited for under it. Appending is elsewhere ([`crate::Appender`], a thread each). Durable
//! means fdatasynced, and is exported by track. Invariants: a row's sequence number is never given twice; rows are durable in the order of their numbers; a
//! ring's row is written over only when it is durable; what is lost (damage, a full disk) becomes a gap.

mod open;
mod read;
mod seal;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::batches::Batches;
use crate::catalogue::Definition;
use crate::gaps::Gaps;
use crate::index::Index;
use crate::record::TrackId;
use crate::ring::Ring;

pub use open::Recovery;
pub use read::Rows;
pub use seal::Sealed;
pub use writer::Writer;

/// Where and how large a store is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the log, on a disk.
    pub dir: PathBuf,
    /// File of the hot rows, on tmpfs.
    pub hot: PathBuf,
    /// Bytes of the hot file. Taken as they are used.
    pub hot_bytes: u64,
    /// Rows that are worth a tile before they are old.
    pub tile_rows: usize,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// Bytes of the whole log and of the definitions; the oldest segments go first.
    pub max_bytes: u64,
}

struct Track {
    definition: Definition,
    ring: Option<Ring>,
    /// Somebody has its appender.
    is_appended: bool,
    /// Last row that is durable, and its time.
    durable: u64,
    durable_until_ns: u64,
    /// Segment of its last tile in a batch.
    newest_segment: u32,
    /// Tiles of earlier versions.
    index: Index,
    gaps: Gaps,
}

impl Track {
    fn new(definition: Definition) -> Self {
        Self {
            definition,
            ring: None,
            is_appended: false,
            durable: 0,
            durable_until_ns: 0,
            newest_segment: 0,
            index: Index::default(),
            gaps: Gaps::default(),
        }
    }

    /// Whether nothing is there of it, not even room for rows.
    fn is_over(&self, oldest_segment: u32) -> bool {
        let has_rows = self.newest_segment >= oldest_segment && self.durable > 0;
        self.ring.is_none() && !has_rows && self.index.count() == 0 && self.gaps.is_empty()
    }
}

/// What readers look at.
pub struct Store {
    dir: PathBuf,
    tracks: BTreeMap<TrackId, Track>,
    batches: Batches,
    bytes: u64,
    hot_bytes: u64,
}

/// Reason of the gap that damage leaves.
pub const DAMAGED: &str = "damaged";
