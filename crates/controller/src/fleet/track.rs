// SPDX-License-Identifier: Apache-2.0
//! The track of one entity, as the processing thread sees it: rows and gaps go in, wherever the store is with it.
//!
//! Until the store has made the track, its rows wait here, a bounded number. What the store cannot take (it is behind, or its disk is full) is counted and
//! becomes a gap. Rows are in order of time, but where the clock was set.

use std::sync::atomic::Ordering;

use onlooker_store::{Appender, Gap, TrackId};

use crate::keep::{Counters, Made, Tracks};

/// Rows that wait for their track: two and a half seconds at 10 ms, as the store's rings.
const MAX_WAITING_ROWS: usize = 256;
/// Reason of the gap that rows leave which the store could not take.
pub(super) const STORE_BEHIND: &str = "store_behind";

/// A time without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) reason: &'static str,
}

/// A track.
pub(super) struct Track {
    /// What it was asked for as.
    pub(super) tag: u64,
    to: Option<(TrackId, Appender)>,
    waiting: Vec<(u64, Vec<u64>)>,
    holes: Vec<Hole>,
    /// Time of the last row, to keep order.
    last_ns: u64,
    /// Times of the last row that was taken and of the last one that was not.
    refused: Option<(u64, u64)>,
    /// There is no hot memory for it.
    waits: bool,
}

impl Track {
    /// One that the store has been asked for.
    pub(super) fn asked(tag: u64) -> Self {
        Self { tag, to: None, waiting: Vec::new(), holes: Vec::new(), last_ns: 0, refused: None, waits: false }
    }

    /// Whether the store has made it.
    pub(super) fn is_made(&self) -> bool {
        self.to.is_some()
    }

    /// Whether there is no hot memory for it until now.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// The store has no hot memory for it: rows are not kept until it has. Those that have waited are not, either: memory is what there is none of.
    pub(super) fn wait(&mut self, counters: &Counters) {
        self.waits = true;
        let waiting = std::mem::take(&mut self.waiting);
        counters.refused_rows.fetch_add(waiting.len() as u64, Ordering::Relaxed);
        if let (Some((from_ns, _)), Some((to_ns, _))) = (waiting.first(), waiting.last()) {
            let (from_ns, to_ns) = (*from_ns, self.refused.map_or(*to_ns, |(_, to_ns)| to_ns));
            self.refused = Some((self.refused.map_or(from_ns, |(before_ns, _)| before_ns.min(from_ns)), to_ns));
        }
    }

    /// The store has made it.
    pub(super) fn made(&mut self, made: Made, tracks: &Tracks, counters: &Counters) {
        self.to = Some((made.track, made.appender));
        self.waits = false;
        // The first one is the time that no controller ran, if there was one: it began where this track's rows end, if those after that are lost.
        if let (Some(first), Some(left_ns)) = (self.holes.first_mut(), made.left_ns) {
            first.from_ns = first.from_ns.min(left_ns);
        }
        for hole in std::mem::take(&mut self.holes) {
            self.hole(hole, tracks);
        }
        let last_ns = self.last_ns;
        for (time_ns, row) in std::mem::take(&mut self.waiting) {
            self.put(time_ns, &row, tracks, counters);
        }
        self.last_ns = last_ns;
    }

    /// Takes a row.
    pub(super) fn append(&mut self, time_ns: u64, row: &[u64], tracks: &Tracks, counters: &Counters) {
        // A relation of clocks that has become better may put a time before the last one, within its error.
        let time_ns = time_ns.max(self.last_ns + 1);
        self.put(time_ns, row, tracks, counters);
        self.last_ns = time_ns;
    }

    fn put(&mut self, time_ns: u64, row: &[u64], tracks: &Tracks, counters: &Counters) {
        let is_taken = match &mut self.to {
            Some((_, appender)) => {
                let is_appended = appender.append(time_ns, row).is_ok();
                counters.values.fetch_add(if is_appended { row.len() as u64 } else { 0 }, Ordering::Relaxed);
                is_appended
            }
            None if !self.waits && self.waiting.len() < MAX_WAITING_ROWS => {
                self.waiting.push((time_ns, row.to_vec()));
                true
            }
            None => false,
        };
        if is_taken {
            self.tell_refused(time_ns, tracks);
        } else {
            counters.refused_rows.fetch_add(1, Ordering::Relaxed);
            let from_ns = self.refused.map_or(self.last_ns, |(from_ns, _)| from_ns);
            self.refused = Some((if from_ns == 0 { time_ns } else { from_ns }, time_ns));
        }
    }

    fn tell_refused(&mut self, to_ns: u64, tracks: &Tracks) {
        if let Some((from_ns, _)) = self.refused.take() {
            self.hole(Hole { from_ns, to_ns, reason: STORE_BEHIND }, tracks);
        }
    }

    /// Takes a time without rows.
    pub(super) fn hole(&mut self, hole: Hole, tracks: &Tracks) {
        let Hole { from_ns, to_ns, reason } = hole;
        match &self.to {
            Some((track, _)) => tracks.gap(Gap { track: *track, from_ns, to_ns, reason: reason.to_owned() }),
            None if self.holes.len() < MAX_WAITING_ROWS => self.holes.push(hole),
            None => {}
        }
    }

    /// The clock was set: times may go back.
    pub(super) fn stepped(&mut self, hole: Hole, tracks: &Tracks) {
        self.tell_refused(self.refused.map_or(0, |(_, to_ns)| to_ns), tracks);
        self.last_ns = 0;
        self.hole(hole, tracks);
    }

    /// Its end: what the store could not take is told, and the appender goes back.
    pub(super) fn end(mut self, tracks: &Tracks) -> Option<(TrackId, Appender)> {
        self.tell_refused(self.refused.map_or(0, |(_, to_ns)| to_ns), tracks);
        self.to.take()
    }
}
