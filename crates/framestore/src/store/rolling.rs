// SPDX-License-Identifier: Apache-2.0
//! How far rollups are: what is done, what waits, and the window that is under way (`roll.rs`).

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::types::TrackId;
use crate::warm::Level;

/// How far rollups are.
#[derive(Default)]
pub(super) struct Rolling {
    /// Up to when.
    pub(super) done_ns: HashMap<(Level, TrackId), u64>,
    /// What is to be looked at.
    pub(super) queue: VecDeque<(Level, TrackId)>,
    /// What was found to be due, the oldest window of a level first: by its end.
    pub(super) due: BTreeSet<(Level, u64, TrackId)>,
    pub(super) job: Option<Job>,
    pub(super) looked_ns: u64,
}

/// A window that is being rolled up.
pub(super) struct Job {
    pub(super) level: Level,
    pub(super) track: TrackId,
    pub(super) from_ns: u64,
    /// Up to when its pieces are made.
    pub(super) at_ns: u64,
    pub(super) end_ns: u64,
    /// Chunks of each piece that has rows.
    pub(super) pieces: Vec<Vec<Vec<u8>>>,
    /// It stays even where its rows are hardly fewer: some of it is there already, or was made of a finer rollup.
    pub(super) is_kept: bool,
}

impl Rolling {
    /// Nothing is left that was due when it was last looked for.
    pub(super) fn is_done(&self) -> bool {
        self.looked_ns > 0 && self.job.is_none() && self.queue.is_empty() && self.due.is_empty()
    }
}
