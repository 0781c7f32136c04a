// SPDX-License-Identifier: Apache-2.0
//! Which batches the log has: 32 bytes of memory each, whatever the number of tracks. A track's rows are in those whose tracks and times touch; which of them
//! really have some, their directories say.

use std::collections::BTreeMap;

use crate::batch::Entry;
use crate::log::Place;
use crate::record::TrackId;

/// A batch in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchRef {
    /// In units of 8 bytes: segments are shorter than 32 GiB.
    offset_words: u32,
    first_track: TrackId,
    last_track: TrackId,
    /// Earliest time of a row, ns.
    pub(crate) from_ns: u64,
    /// Latest time of a row, ns.
    pub(crate) to_ns: u64,
}

impl BatchRef {
    /// Of a batch with these tiles; `None` without any.
    pub(crate) fn new(offset: u64, tiles: &[Entry]) -> Option<Self> {
        let tracks = || tiles.iter().map(|tile| tile.head.track);
        Some(Self {
            offset_words: u32::try_from(offset / 8).ok()?,
            first_track: tracks().min()?,
            last_track: tracks().max()?,
            from_ns: tiles.iter().map(|tile| tile.head.from_ns).min()?,
            to_ns: tiles.iter().map(|tile| tile.head.to_ns).max()?,
        })
    }

    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.offset_words) * 8
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Batches(BTreeMap<u32, Segment>);

#[derive(Debug)]
struct Segment {
    from_ns: u64,
    to_ns: u64,
    batches: Vec<BatchRef>,
}

impl Batches {
    /// Takes one that was written after all others.
    pub(crate) fn push(&mut self, segment: u32, batch: BatchRef) {
        let empty = || Segment { from_ns: u64::MAX, to_ns: 0, batches: Vec::new() };
        let segment = self.0.entry(segment).or_insert_with(empty);
        segment.from_ns = segment.from_ns.min(batch.from_ns);
        segment.to_ns = segment.to_ns.max(batch.to_ns);
        segment.batches.push(batch);
    }

    /// Those that may have rows of a track between two times, with their places, in the order of writing.
    pub(crate) fn between(&self, track: TrackId, from_ns: u64, to_ns: u64) -> Vec<(Place, BatchRef)> {
        let touching = self.0.iter().filter(|(_, segment)| segment.from_ns <= to_ns && segment.to_ns >= from_ns);
        let all = touching.flat_map(|(number, segment)| segment.batches.iter().map(|batch| (*number, batch)));
        let mine = all.filter(|(_, batch)| {
            (batch.first_track..=batch.last_track).contains(&track) && batch.from_ns <= to_ns && batch.to_ns >= from_ns
        });
        mine.map(|(segment, batch)| (Place { segment, offset: batch.offset() }, *batch)).collect()
    }

    /// Earliest time of a row, ns.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        self.0.values().map(|segment| segment.from_ns).min()
    }

    /// Forgets what lay in segments before `oldest`.
    pub(crate) fn keep_from(&mut self, oldest: u32) {
        self.0 = self.0.split_off(&oldest);
    }
}
