// SPDX-License-Identifier: Apache-2.0
//! The rows of each track that are in memory, and what is known of those that are not.
//!
//! The store thread writes, readers copy; both hold the lock for moments.

use std::collections::HashMap;

use crate::chunk::max_rows;
use crate::head::{Head, Snapshot};
use crate::layout::Layout;
use crate::types::{LATE_NS, Line, TrackId};
use crate::warm::{ChunkRef, Extent, Place};

/// A head is cut when its first row is so old, ns.
pub(super) const HEAD_AGE_NS: u64 = 600_000_000_000;
/// A head that has fewer rows is not cut where time goes back: rows that come in another order would make a chunk each.
const ROWS_BEFORE_BACK: usize = 64;

/// All tracks that have had rows since the start.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) tracks: HashMap<TrackId, Track>,
}

/// The rows of one track.
pub(super) struct Track {
    pub(super) head: Head,
    /// Heads that were cut, and have no chunk yet; the oldest first.
    pub(super) cut: Vec<Cut>,
    /// The last row that is in a chunk, where rows have several parts: times that are the same in the next one are old.
    pub(super) packed: Vec<u64>,
    /// Bytes and rows of the head that the log has, written or not.
    pub(super) logged_bytes: usize,
    pub(super) logged_rows: u32,
    /// Segment that the head's first row is in.
    pub(super) segment: u32,
    /// The log's record that has the last of them covers the ring up to here.
    pub(super) sequence: u64,
    /// When the head's first row came, steady ns.
    pub(super) began_ns: u64,
    /// Times of the last row, and of the last durable one, UTC ns.
    pub(super) newest_ns: u64,
    pub(super) durable_until_ns: u64,
    /// Rows are lost behind this time: those that come next tell until when.
    pub(super) lost_since_ns: Option<u64>,
    /// No more rows come, as far as is known.
    pub(super) is_ended: bool,
    /// It has rows that the log does not have yet.
    pub(super) is_dirty: bool,
    /// It has rows that are not durable yet.
    pub(super) is_unsynced: bool,
}

/// A head that was cut.
#[derive(Clone)]
pub(super) struct Cut {
    pub(super) rows: Snapshot,
    pub(super) segment: u32,
    /// All rows of the ring up to here that are not in this head are in earlier ones.
    pub(super) sequence: u64,
    /// The log's record that says so is durable, so that a chunk may be written.
    pub(super) is_durable: bool,
    /// The chunk that was made of it, and that readers may find from now on.
    pub(super) chunk: Option<Likeness>,
}

/// By what a chunk is known among those of its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Likeness {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

impl Likeness {
    pub(super) fn of(chunk: &ChunkRef) -> Self {
        let ChunkRef { from_ns, to_ns, bytes, .. } = *chunk;
        Self { from_ns, to_ns, rows: chunk.rows().into(), bytes: bytes as usize }
    }
}

impl Track {
    pub(super) fn new(layout: &Layout) -> Self {
        Self {
            head: Head::new(layout.kinds().clone(), layout.is_table()),
            cut: Vec::new(),
            packed: Vec::new(),
            logged_bytes: 0,
            logged_rows: 0,
            segment: 0,
            sequence: 0,
            began_ns: 0,
            newest_ns: 0,
            durable_until_ns: 0,
            lost_since_ns: None,
            is_ended: false,
            is_dirty: false,
            is_unsynced: false,
        }
    }

    /// Takes the head's rows out, all of which the log has.
    pub(super) fn cut(&mut self) {
        if self.head.rows() > 0 {
            let (rows, segment, sequence) = (self.head.take(), self.segment, self.sequence);
            self.cut.push(Cut { rows, segment, sequence, is_durable: false, chunk: None });
            (self.logged_bytes, self.logged_rows) = (0, 0);
        }
    }

    /// Whether its rows are all in chunks.
    pub(super) fn is_packed(&self) -> bool {
        self.head.rows() == 0 && self.cut.is_empty()
    }

    /// How much of it is in memory.
    pub(super) fn extent(&self) -> Option<Extent> {
        self.extent_between(0, u64::MAX)
    }

    /// The same of heads that may have some of a time.
    pub(super) fn extent_between(&self, from_ns: u64, to_ns: u64) -> Option<Extent> {
        let of = |rows: u32, times_ns: Option<(u64, u64)>| {
            times_ns.map(|(from_ns, to_ns)| Extent { rows: rows.into(), from_ns, to_ns })
        };
        let of_cut = |rows: &Snapshot| of(rows.len(), rows.times_ns());
        let heads = self.heads(&[], from_ns, to_ns, of_cut, |head| of(head.rows(), head.times_ns()));
        heads.into_iter().flatten().reduce(Extent::joined)
    }

    /// The oldest segment that has a row which is in no durable chunk.
    pub(super) fn oldest_segment(&self) -> Option<u32> {
        let head = (self.head.rows() > 0 && self.logged_rows > 0).then_some(self.segment);
        self.cut.first().map(|cut| cut.segment).into_iter().chain(head).min()
    }

    /// Rows that are in memory and in none of these chunks, in the order in which they came: heads that may have some
    /// of a time, both ends included. Others are not copied.
    pub(super) fn in_memory(&self, chunks: &[Place], from_ns: u64, to_ns: u64) -> Vec<Snapshot> {
        self.heads(chunks, from_ns, to_ns, Snapshot::clone, Head::snapshot)
    }

    /// What `of_cut` and `of_head` make of these heads.
    pub(super) fn heads<T>(
        &self,
        chunks: &[Place],
        from_ns: u64,
        to_ns: u64,
        of_cut: impl Fn(&Snapshot) -> T,
        of_head: impl Fn(&Head) -> T,
    ) -> Vec<T> {
        let is_wanted = |times_ns: Option<(u64, u64)>| times_ns.is_some_and(|times| touches(times, from_ns, to_ns));
        let is_read = |cut: &Cut| chunks.iter().any(|place| cut.chunk == Some(Likeness::of(place.chunk())));
        let cut = self.cut.iter().filter(|cut| is_wanted(cut.rows.times_ns()) && !is_read(cut));
        let head = is_wanted(self.head.times_ns()).then(|| of_head(&self.head));
        cut.map(|cut| of_cut(&cut.rows)).chain(head).collect()
    }
}

/// Whether rows of these times, earliest and latest, may have samples of a time, both ends included. Parts are not
/// acquired when their rows are, but not long before.
pub(super) fn touches((first_ns, last_ns): (u64, u64), from_ns: u64, to_ns: u64) -> bool {
    last_ns.saturating_add(LATE_NS) >= from_ns && first_ns <= to_ns.saturating_add(LATE_NS)
}

impl Rows {
    pub(super) fn durable_until_ns(&self, track: TrackId) -> Option<u64> {
        self.tracks.get(&track).map(|track| track.durable_until_ns)
    }

    pub(super) fn newest_ns(&self, track: TrackId) -> Option<u64> {
        self.tracks.get(&track).map(|track| track.newest_ns).filter(|newest_ns| *newest_ns > 0)
    }

    /// Time of the last row of all, UTC ns.
    pub(super) fn newest_ns_of_all(&self) -> Option<u64> {
        self.tracks.values().map(|track| track.newest_ns).max()
    }

    pub(super) fn head_bytes(&self) -> usize {
        self.tracks.values().map(|track| track.head.memory_bytes() + size_of::<Track>()).sum()
    }

    /// Appends a row to a head that is there.
    pub(super) fn push(&mut self, track: TrackId, line: Line, time_ns: u64, words: &[u64], now_ns: u64) -> Pushed {
        let Some(track) = self.tracks.get_mut(&track) else { return Pushed::Unknown };
        if track.head.kinds().len() != words.len() || (line != Line::ONLY && !track.head.is_table()) {
            return Pushed::Wrong;
        }
        // A chunk takes no more; and chunks are read by their earliest times, so one that has rows of a clock that was
        // set back would come before one whose rows came before its own.
        let rows = track.head.rows() as usize;
        let is_back = || track.head.times_ns().is_some_and(|(from_ns, _)| time_ns < from_ns);
        if rows >= max_rows(words.len()) || (rows >= ROWS_BEFORE_BACK && is_back()) {
            return Pushed::Crowded;
        }
        if track.head.rows() == 0 {
            track.began_ns = now_ns;
        }
        match track.head.push(line, time_ns, words) {
            Ok(()) => {
                track.newest_ns = track.newest_ns.max(time_ns);
                (track.is_ended, track.is_unsynced) = (false, true);
                let was_dirty = std::mem::replace(&mut track.is_dirty, true);
                Pushed::Taken { is_first: !was_dirty, lost_since_ns: track.lost_since_ns.take() }
            }
            Err(_) => Pushed::Crowded,
        }
    }
}

/// What became of a row.
pub(super) enum Pushed {
    Taken {
        /// The track had nothing new for the log before.
        is_first: bool,
        /// Since when rows were lost.
        lost_since_ns: Option<u64>,
    },
    /// The track has no head yet.
    Unknown,
    /// The head has to be cut first.
    Crowded,
    /// It is not as wide as the track.
    Wrong,
}
