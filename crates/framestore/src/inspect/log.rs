// SPDX-License-Identifier: Apache-2.0
//! Rows of the log, decoded as the store does it when it starts.

use std::collections::HashMap;

use crate::catalogue::Known;
use crate::damage::Damage;
use crate::head::Head;
use crate::types::TrackId;
use crate::wal::Entry;

/// Heads as far as the log has been read.
pub(super) struct Heads<'a> {
    known: &'a Known,
    tracks: HashMap<TrackId, Track>,
    /// Rows of tracks that the catalogue does not have: forgotten, or newer than the look at it.
    pub(super) unknown_rows: u64,
}

struct Track {
    head: Head,
    /// Values of a row.
    width: u64,
    /// What follows cannot be decoded until another head begins.
    is_broken: bool,
}

/// Rows that were decoded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) rows: u64,
    pub(super) values: u64,
    /// Times of the head that they are in, as far as it is.
    pub(super) times_ns: Option<(u64, u64)>,
}

impl<'a> Heads<'a> {
    pub(super) fn new(known: &'a Known) -> Self {
        Self { known, tracks: HashMap::new(), unknown_rows: 0 }
    }

    /// Takes what the log says next.
    ///
    /// # Errors
    /// [`Damage`]: the rows are not what was said of them. The rest of their head is passed over.
    pub(super) fn take(&mut self, entry: &Entry<'_>) -> Result<Taken, Damage> {
        let (id, told, bytes) = match *entry {
            Entry::Rows { track, rows, bytes } => (track, rows, bytes),
            Entry::Cut { track } | Entry::Lost { track, .. } => {
                if let Some(track) = self.tracks.get_mut(&track) {
                    drop(track.head.take());
                    track.is_broken = false;
                }
                return Ok(Taken::default());
            }
        };
        if !self.tracks.contains_key(&id) {
            let Some(layout) = self.known.layout_of(id) else {
                self.unknown_rows += u64::from(told);
                return Ok(Taken::default());
            };
            let head = Head::new(layout.kinds().clone(), layout.is_table());
            self.tracks.insert(id, Track { head, width: values(layout), is_broken: false });
        }
        let Some(track) = self.tracks.get_mut(&id).filter(|track| !track.is_broken) else {
            return Ok(Taken::default());
        };
        let found = track.head.extend(bytes);
        if found != Ok(told) {
            track.is_broken = true;
            return Err(found.err().unwrap_or(Damage::Wrong("the number of rows")));
        }
        let rows = u64::from(told);
        Ok(Taken { rows, values: rows * track.width, times_ns: track.head.times_ns() })
    }
}

/// Values of a row with this layout: its words but the times of parts.
pub(super) fn values(layout: &crate::layout::Layout) -> u64 {
    layout.parts().iter().map(|placed| placed.part.width() as u64).sum()
}
