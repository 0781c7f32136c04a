// SPDX-License-Identifier: Apache-2.0
//! What a query knows of tracks that all their series share: what was decoded, and how long each may be silent.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use onlooker_framestore::damage::StoreError;
use onlooker_framestore::types::{Line, TrackId};
use onlooker_framestore::{Columns, Decoded, Store};
use onlooker_promql::source::{SourceError, Span};

/// Time that is read at once, in whole multiples: between two pieces a query looks whether it was cancelled.
pub(crate) const PIECE_NS: u64 = 3_600_000_000_000;
/// A host that was not read for so long, or for so many intervals, has left.
pub(crate) const SILENCE_NS: u64 = 5_000_000_000;
pub(crate) const INTERVALS: u64 = 3;
/// The same of a line of a table.
pub(crate) const LINE_SILENCE_NS: u64 = 60_000_000_000;
/// Nothing goes on for longer without being seen: PromQL looks no further back.
pub(crate) const MAX_SILENCE_NS: u64 = 300_000_000_000;
/// What a query keeps decoded: the rows of a head of 1,000 columns some times.
pub(crate) const DECODED_BYTES: usize = 32 << 20;

/// The last time of the piece that a time is in.
pub(crate) fn piece_end_ns(time_ns: u64) -> u64 {
    (time_ns / PIECE_NS + 1).saturating_mul(PIECE_NS) - 1
}

/// Times as the store has them, both included; `None`: there are none.
pub(crate) fn times(span: Span) -> Option<(u64, u64)> {
    let from_ns = u64::try_from(span.after_ns.saturating_add(1)).unwrap_or(0);
    let to_ns = u64::try_from(span.until_ns).ok()?;
    (from_ns <= to_ns).then_some((from_ns, to_ns))
}

/// A track, and a time, both ends included.
type Asked = (TrackId, (u64, u64));

pub(crate) struct Tracks<'a> {
    pub(crate) store: &'a Store,
    pub(crate) decoded: Decoded,
    /// By track and number of the piece.
    silences_ns: RefCell<HashMap<(TrackId, u64), u64>>,
    /// How many rows there are of a time, of what was asked for last.
    rows: Cell<Option<(Asked, u64)>>,
    /// The one that was read last.
    last: Cell<Option<TrackId>>,
}

impl<'a> Tracks<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        let (silences_ns, rows, last) = Default::default();
        Self { store, decoded: Decoded::new(DECODED_BYTES), silences_ns, rows, last }
    }

    /// From now on a series is read that has rows of one track only. They come in the order of their tracks, so what was
    /// decoded of another one is not asked for again, and its memory is still in the processor's cache.
    pub(crate) fn go_to(&self, track: TrackId) {
        if self.last.replace(Some(track)) != Some(track) {
            self.decoded.clear();
        }
    }

    /// About how many rows a track has of a time, both ends included.
    pub(crate) fn rows(&self, track: TrackId, time: (u64, u64)) -> u64 {
        match self.rows.get() {
            Some((asked, rows)) if asked == (track, time) => rows,
            _ => {
                let rows = self.store.extent_between(track, time.0, time.1).map_or(0, |extent| extent.rows);
                self.rows.set(Some(((track, time), rows)));
                rows
            }
        }
    }

    /// How long there may be no rows in the piece that a time is in before series end.
    pub(crate) fn silence_ns(&self, columns: &Columns, time_ns: u64) -> Result<u64, SourceError> {
        if columns.line != Line::ONLY {
            return Ok(LINE_SILENCE_NS);
        }
        let key = (columns.track, time_ns / PIECE_NS);
        if let Some(silence_ns) = self.silences_ns.borrow().get(&key) {
            return Ok(*silence_ns);
        }
        let silence_ns = self.silence_of_rows_ns(columns.track, time_ns)?;
        self.silences_ns.borrow_mut().insert(key, silence_ns);
        Ok(silence_ns)
    }

    /// The same of a track that has no lines, looked up.
    pub(crate) fn silence_of_rows_ns(&self, track: TrackId, time_ns: u64) -> Result<u64, StoreError> {
        let interval_ns = self.interval_ns(track, time_ns)?;
        Ok(interval_ns.saturating_mul(INTERVALS).clamp(SILENCE_NS, MAX_SILENCE_NS))
    }

    /// Time between two rows of a track, in this piece and the one before; of one that has none there, 0.
    fn interval_ns(&self, track: TrackId, time_ns: u64) -> Result<u64, StoreError> {
        let to_ns = piece_end_ns(time_ns);
        let from_ns = to_ns.saturating_sub(2 * PIECE_NS);
        let Some(rows) = self.store.extent_between(track, from_ns, to_ns) else { return Ok(0) };
        let mean_ns = (rows.to_ns - rows.from_ns) / rows.rows.saturating_sub(1).max(1);
        if mean_ns.saturating_mul(INTERVALS) <= SILENCE_NS {
            return Ok(mean_ns);
        }
        // That may be a pause.
        Ok(self.store.interval_ns(&self.decoded, track, from_ns, to_ns)?.unwrap_or(0))
    }
}
