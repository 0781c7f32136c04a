// SPDX-License-Identifier: Apache-2.0
//! The one who writes. A turn takes what is in the ring into heads and the log, makes it durable, and cuts heads that are full; their chunks are written in the
//! turn behind that (`pack.rs`).

use std::sync::Arc;

use super::clock::Trusted;
use super::rolling::Rolling;
use super::rows::{HEAD_AGE_NS, Pushed, Rows, Track};
use super::{Config, DAMAGED, Shared, lock, steady_ns, utc_ns};
use crate::catalogue::Catalogue;
use crate::chunk::max_rows;
use crate::damage::StoreError;
use crate::framing::files::is_disk_full;
use crate::gaps::GapLog;
use crate::ring::{Consumer, ROW};
use crate::told::{DEFINED, END, GAP, decode_gap};
use crate::types::{Gap, TrackId};
use crate::wal::Wal;
use crate::warm::{Level, Warm};

/// Bytes of the ring that one record of the log takes: it ends where a drain of the ring ends.
const DRAIN_BYTES: usize = 8 << 20;
/// Records of the ring that are taken under one lock.
const LOCKED_RECORDS: usize = 256;
/// A head is cut with so many bytes, if it has rows enough for a chunk that is worth it, or with so many rows.
const HEAD_BYTES: usize = 96 << 10;
const HEAD_ROWS: u32 = 256;
const MOST_ROWS: u32 = 1024;
const MOST_TABLE_ROWS: u32 = 4096;
/// Heads are looked through for old ones so often, ns.
const AGE_LOOK_NS: u64 = 5_000_000_000;

/// The owner of a store's files.
pub struct Writer {
    pub(super) config: Config,
    pub(super) shared: Arc<Shared>,
    pub(super) catalogue: Catalogue,
    pub(super) consumer: Consumer,
    pub(super) wal: Wal,
    pub(super) warm: Warm,
    pub(super) gaps: GapLog,
    /// What comes out of the ring is of a process before this one.
    pub(super) is_opening: bool,
    /// Records of the ring up to this number are in the log since before the start.
    pub(super) covered: u64,
    /// Tracks with rows that the log does not have yet.
    pub(super) dirty: Vec<TrackId>,
    /// Tracks with rows that are not durable yet.
    pub(super) unsynced: Vec<TrackId>,
    /// Tracks with heads that were cut.
    pub(super) cut: Vec<TrackId>,
    pub(super) looked_ns: u64,
    /// The last turn has left nothing in the ring.
    pub(super) is_drained: bool,
    pub(super) rolling: Rolling,
    /// When files were last looked at that may be too old, steady ns.
    pub(super) aged_ns: u64,
    pub(super) trusted: Trusted,
    /// What a test has the clock show.
    #[cfg(test)]
    pub(super) shown_ns: Option<u64>,
    /// Steady time before which all rows have come that are durable.
    pub(super) durable_ns: u64,
    pub(super) turned: Turned,
}

/// What a turn has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turned {
    /// Rows that the log has got.
    pub rows: u64,
    /// Rows of tracks that nobody has defined, or of another width than theirs: damage in the ring.
    pub unknown_rows: u64,
    /// Files that were deleted.
    pub dropped_files: u64,
    /// Those of them that made room on a full disk.
    pub dropped_for_room: u64,
}

impl Writer {
    /// Makes durable what has come, and packs what is full.
    ///
    /// # Errors
    /// [`StoreError`]: the next turn tries again. What was done until then is told by the next one that succeeds.
    pub fn turn(&mut self) -> Result<Turned, StoreError> {
        loop {
            match self.try_turn() {
                Err(error) if is_disk_full(&error) && self.drop_oldest()? => self.turned.dropped_for_room += 1,
                Err(error) => {
                    self.tell_figures();
                    return Err(error);
                }
                Ok(()) => break,
            }
        }
        self.retain()?;
        if self.is_drained {
            self.roll()?;
        }
        self.drop_old()?;
        self.tell_figures();
        Ok(std::mem::take(&mut self.turned))
    }

    pub(super) fn try_turn(&mut self) -> Result<(), StoreError> {
        let begin_ns = steady_ns();
        self.is_drained = false;
        while self.wal.has_room() && !self.is_drained {
            self.is_drained = self.drain();
            self.log()?;
        }
        self.sync()?;
        self.durable_ns = begin_ns;
        self.pack()?;
        self.cut_full();
        Ok(())
    }

    /// Takes what is in the ring into heads; true: nothing is left in it.
    pub(super) fn drain(&mut self) -> bool {
        let now_ns = steady_ns();
        let mut left = DRAIN_BYTES;
        let mut is_empty = false;
        while left > 0 && !is_empty {
            let shared = self.shared.clone();
            let mut rows = lock(&shared.rows);
            for _ in 0..LOCKED_RECORDS {
                if left == 0 {
                    break;
                }
                let Some(record) = self.consumer.next() else {
                    is_empty = true;
                    break;
                };
                left = left.saturating_sub(record.words().len() * 8 + 40);
                if record.sequence <= self.covered {
                    continue;
                }
                match record.kind {
                    ROW => {
                        let (track, line, time_ns) = (record.track, record.line, record.time_ns);
                        let mut take = Take {
                            rows: &mut rows,
                            catalogue: &self.catalogue,
                            wal: &mut self.wal,
                            cut: &mut self.cut,
                            now_ns,
                        };
                        match take.row(track, line, time_ns, record.words()) {
                            Pushed::Taken { is_first, lost_since_ns } => {
                                if is_first {
                                    self.dirty.push(track);
                                }
                                if let Some(from_ns) = lost_since_ns {
                                    let reason = DAMAGED.to_owned();
                                    self.gaps.push(&Gap { track, of: None, from_ns, to_ns: time_ns, reason });
                                }
                            }
                            Pushed::Unknown | Pushed::Crowded | Pushed::Wrong => self.turned.unknown_rows += 1,
                        }
                    }
                    DEFINED if self.is_opening => self.catalogue.take_left(record.bytes()),
                    DEFINED => self.catalogue.take_defined(record.bytes()),
                    GAP => {
                        if let Ok(gap) = decode_gap(record.bytes()) {
                            self.gaps.push(&gap);
                        }
                    }
                    END => {
                        let track = record.bytes().first_chunk().map(|track| TrackId(u32::from_le_bytes(*track)));
                        if let Some(track) = track.and_then(|track| rows.tracks.get_mut(&track)) {
                            track.is_ended = true;
                        }
                        if let Some(track) = track.filter(|_| !self.is_opening) {
                            self.catalogue.ended(track);
                        }
                    }
                    _ => {}
                }
            }
        }
        is_empty
    }

    /// Writes what heads have got to the log, and gives its room in the ring back.
    pub(super) fn log(&mut self) -> Result<(), StoreError> {
        let position = self.consumer.position();
        let segment = self.wal.segment_of_now();
        let shared = self.shared.clone();
        let mut rows = lock(&shared.rows);
        // One that cannot be entered stays: the next turn tries again.
        while let Some(id) = self.dirty.last().copied() {
            if let Some(track) = rows.tracks.get_mut(&id) {
                let entered = match enter(id, track, segment, &mut self.wal) {
                    Err(StoreError::Limit { .. }) => {
                        self.wal.split(SHARD);
                        enter(id, track, segment, &mut self.wal)
                    }
                    entered => entered,
                };
                self.turned.rows += u64::from(entered?);
                (track.is_dirty, track.sequence) = (false, position.sequence());
                self.unsynced.push(id);
            }
            self.dirty.pop();
        }
        drop(rows);
        self.wal.finish(SHARD, position.sequence());
        // Definitions before the rows that need them.
        self.catalogue.write()?;
        self.gaps.write()?;
        self.wal.write()?;
        self.consumer.release(position);
        Ok(())
    }

    /// Makes durable what was written.
    fn sync(&mut self) -> Result<(), StoreError> {
        self.catalogue.sync()?;
        self.gaps.sync()?;
        self.wal.sync()?;
        let shared = self.shared.clone();
        let mut rows = lock(&shared.rows);
        for id in self.unsynced.drain(..) {
            if let Some(track) = rows.tracks.get_mut(&id) {
                track.durable_until_ns = track.newest_ns;
            }
        }
        for id in &self.cut {
            let cut = rows.tracks.get_mut(id).into_iter().flat_map(|track| &mut track.cut);
            cut.for_each(|cut| cut.is_durable = true);
        }
        Ok(())
    }

    /// Cuts heads that are full, and, now and then, those that are old.
    fn cut_full(&mut self) {
        let now_ns = steady_ns();
        let shared = self.shared.clone();
        let mut rows = lock(&shared.rows);
        let is_look = now_ns.saturating_sub(self.looked_ns) >= AGE_LOOK_NS;
        if is_look {
            self.looked_ns = now_ns;
        }
        for (id, track) in &mut rows.tracks {
            // Those that began together are not full together.
            let age_ns = HEAD_AGE_NS + u64::from(id.0 % 64) * 1_000_000_000;
            let is_old = is_look && (track.is_ended || now_ns.saturating_sub(track.began_ns) >= age_ns);
            if track.head.rows() > 0 && !track.is_dirty && (is_full(track) || is_old) {
                // The next record has it. If that is full, the next turn does it.
                if self.wal.cut(*id).is_ok() {
                    track.cut();
                    self.cut.push(*id);
                }
            }
        }
    }

    /// What the clock shows, UTC ns.
    pub(super) fn utc_ns(&self) -> u64 {
        #[cfg(test)]
        if let Some(shown_ns) = self.shown_ns {
            return shown_ns;
        }
        utc_ns()
    }

    pub(super) fn tell_figures(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        let figures = &self.shared.figures;
        figures.bytes.store(self.bytes(), Relaxed);
        figures.ring_bytes.store(self.consumer.used_bytes(), Relaxed);
        figures.durable_ns.store(self.durable_ns, Relaxed);
        for (level, due_ns) in Level::ALL.into_iter().zip(&figures.due_ns) {
            due_ns.store(self.oldest_due_ns(level).unwrap_or(0), Relaxed);
        }
        figures.oldest_ns.store(self.shared.chunks.oldest_of_all_ns().unwrap_or(0), Relaxed);
    }
}

/// There is one processing thread.
pub(super) const SHARD: u8 = 0;

fn is_full(track: &Track) -> bool {
    let most = if track.head.is_table() { MOST_TABLE_ROWS } else { MOST_ROWS };
    let most = most.min(u32::try_from(max_rows(track.head.kinds().len())).unwrap_or(u32::MAX));
    let rows = track.head.rows();
    // Nearly: more rows come before the next turn looks.
    rows >= most - most / 4 || (rows >= HEAD_ROWS && track.head.len_bytes() >= HEAD_BYTES)
}

/// Enters into the log's record what a head has got since the last one.
fn enter(id: TrackId, track: &mut Track, segment: u32, wal: &mut Wal) -> Result<u32, StoreError> {
    let new = track.head.rows() - track.logged_rows;
    if new > 0 {
        if track.logged_rows == 0 {
            track.segment = segment;
        }
        wal.rows(id, new, track.head.bytes_since(track.logged_bytes))?;
        (track.logged_rows, track.logged_bytes) = (track.head.rows(), track.head.len_bytes());
    }
    Ok(new)
}

/// Takes a row into its head.
struct Take<'a> {
    rows: &'a mut Rows,
    catalogue: &'a Catalogue,
    wal: &'a mut Wal,
    cut: &'a mut Vec<TrackId>,
    now_ns: u64,
}

impl Take<'_> {
    fn row(&mut self, id: TrackId, line: crate::types::Line, time_ns: u64, words: &[u64]) -> Pushed {
        match self.rows.push(id, line, time_ns, words, self.now_ns) {
            Pushed::Unknown => {
                let Some(layout) = self.catalogue.look().layout_of(id).cloned() else { return Pushed::Unknown };
                self.rows.tracks.insert(id, Track::new(&layout));
                self.rows.push(id, line, time_ns, words, self.now_ns)
            }
            Pushed::Crowded => {
                self.make_room(id);
                self.rows.push(id, line, time_ns, words, self.now_ns)
            }
            pushed => pushed,
        }
    }

    /// Cuts a head in the middle of a record: more lines have come than its memory may be for, or more rows than a chunk takes.
    fn make_room(&mut self, id: TrackId) {
        let segment = self.wal.segment_of_now();
        let Some(track) = self.rows.tracks.get_mut(&id) else { return };
        if enter(id, track, segment, self.wal).is_ok() && self.wal.cut(id).is_ok() {
            // As if the record before this one had its last row: rows of the next head are in this one, too, and must not be taken for packed.
            track.cut();
            self.cut.push(id);
        }
    }
}
