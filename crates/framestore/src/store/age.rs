// SPDX-License-Identifier: Apache-2.0
//! What goes: segments of the log whose rows are all in durable chunks, files of chunks that are older than their level
//! is kept, and the oldest files where there are too many.
//!
//! Files go as a whole, when their last row is too old; so that this is soon, one is ended when its first row is as old
//! as a part of that time ([`PARTS`]). What was rolled up is made durable before raw rows go. Rollups take at most half
//! of the room: of what is beyond, the largest level loses its oldest file, else raw rows go. On a full disk raw rows go
//! first, of which there is most, then finer rollups before coarser ones.
//!
//! Files of raw rows that are old enough for cold files are told to whoever makes these (`cool.rs`).

use std::collections::HashSet;

use super::rows::Track;
use super::turn::Writer;
use super::{lock, steady_ns};
use crate::damage::StoreError;
use crate::framing::files::is_disk_full;
use crate::gaps::of_level;
use crate::types::{LATE_NS, TrackId};
use crate::warm::Level;

/// Files are ended when they have rows of so large a part of the time that their level is kept, and rows go at most so
/// much later.
const PARTS: u64 = 8;
/// A small store has so many files if it is full, so that one that goes is not all there is.
const LEAST_FILES: u64 = 32;
/// Files are looked at so often.
const LOOK_NS: u64 = if cfg!(test) { 1 } else { 60_000_000_000 };

impl Writer {
    /// Deletes what is of no use any more, and the oldest rows where there are too many.
    pub(super) fn retain(&mut self) -> Result<(), StoreError> {
        for level in Level::ALL {
            if self.warm.current_bytes(level) > self.config.max_bytes / LEAST_FILES {
                self.warm.close(level)?;
            }
        }
        while self.bytes() > self.config.max_bytes {
            let reader = self.warm.reader();
            let rolled = || Level::ALL.into_iter().skip(1).map(|level| (reader.bytes(level), level));
            let is_half = rolled().map(|(bytes, _)| bytes).sum::<u64>() > self.config.max_bytes / 2;
            // Before what rollups were made of goes.
            self.sync_rollups()?;
            let largest = rolled().max().map(|(_, level)| level).filter(|_| is_half);
            if !self.drop_first_of(largest.into_iter().chain(Level::ALL))? {
                break;
            }
        }
        if self.wal.segment_of_now() > self.wal.oldest_segment() {
            self.sync_rollups()?;
            let rows = lock(&self.shared.rows);
            let oldest = rows.tracks.values().filter_map(Track::oldest_segment).min();
            drop(rows);
            self.wal.delete_before(oldest.unwrap_or(u32::MAX).min(self.wal.segment_of_now()))?;
        }
        Ok(())
    }

    /// Deletes files whose rows are all older than their level is kept, and were rolled up: an earlier version's, or
    /// those from before a controller that did not run for long, are both too old and not rolled up yet.
    pub(super) fn drop_old(&mut self) -> Result<(), StoreError> {
        let now_ns = steady_ns();
        if now_ns.saturating_sub(self.aged_ns) < LOOK_NS || !self.rolling.is_done() {
            return Ok(());
        }
        self.aged_ns = now_ns;
        let utc_ns = self.trusted.follow(self.utc_ns(), now_ns);
        self.trusted.note(&mut self.gaps);
        // Before what rollups were made of goes.
        self.sync_rollups()?;
        let in_memory =
            lock(&self.shared.rows).tracks.values().filter_map(Track::extent).map(|rows| rows.from_ns).min();
        // Windows that end behind this may not be over yet.
        let open_ns = in_memory.map_or(u64::MAX, |from_ns| from_ns.saturating_sub(Level::Minute.window_ns() + LATE_NS));
        let mut bytes = 0;
        for (level, keep_ns) in Level::ALL.into_iter().zip(self.config.keep_ns) {
            self.warm.close_begun_before(level, utc_ns.saturating_sub(keep_ns / PARTS))?;
            // A clock that was behind has made the trusted time fall back: what is not of the future for one of the two
            // is good.
            let now_ns = self.trusted.utc_ns.max(self.utc_ns());
            bytes += self.warm.drop_before(level, utc_ns.saturating_sub(keep_ns).min(open_ns), now_ns)?;
        }
        let cold_after_ns = self.config.cold_after_ns;
        self.warm.close_begun_before(Level::Raw, utc_ns.saturating_sub(cold_after_ns / PARTS))?;
        let old = self.warm.ended_before(Level::Raw, utc_ns.saturating_sub(cold_after_ns).min(open_ns));
        lock(&self.shared.due)
            .set(old.into_iter().map(|(number, to_ns)| (number, to_ns.saturating_add(cold_after_ns))));
        if bytes > 0 { self.forget_over() } else { Ok(()) }
    }

    /// Deletes the oldest file of rows; false: there is none but those that are written.
    pub(super) fn drop_oldest(&mut self) -> Result<bool, StoreError> {
        self.drop_first_of(Level::ALL.into_iter())
    }

    /// Deletes the oldest file of the first of these levels that has one. What of rollups goes so is not made again.
    pub(super) fn drop_first_of(&mut self, levels: impl Iterator<Item = Level>) -> Result<bool, StoreError> {
        self.write_gaps()?;
        for level in levels {
            let oldest = self.warm.oldest(level).filter(|_| level > Level::Raw);
            let times = oldest.map(|number| self.warm.reader().in_file(level, number)).unwrap_or_default();
            if self.warm.drop_oldest(level)?.is_some() {
                self.turned.dropped_files += 1;
                for (track, from_ns, to_ns) in times {
                    self.gaps.leave_out(&of_level(track, level.bucket_s(), from_ns, to_ns));
                }
                return self.forget_over().map(|()| true);
            }
        }
        Ok(false)
    }

    /// Makes rollups durable, and before them the gaps that they have.
    fn sync_rollups(&mut self) -> Result<(), StoreError> {
        self.write_gaps()?;
        self.warm.sync()
    }

    /// Makes gaps durable, unless the disk is full: files that go make room for them.
    fn write_gaps(&mut self) -> Result<(), StoreError> {
        match self.gaps.write().and_then(|()| self.gaps.sync()) {
            Err(error) if is_disk_full(&error) => Ok(()),
            written => written,
        }
    }

    /// Forgets tracks that have no rows left, and gaps that are older than all rows.
    fn forget_over(&mut self) -> Result<(), StoreError> {
        let reader = self.warm.reader();
        let mut rows = lock(&self.shared.rows);
        let with_chunks: HashSet<TrackId> = Level::ALL.into_iter().flat_map(|level| reader.tracks(level)).collect();
        rows.tracks.retain(|id, track| !track.is_ended || !track.is_packed() || with_chunks.contains(id));
        let there: HashSet<TrackId> = rows.tracks.keys().copied().chain(with_chunks).collect();
        drop(rows);
        let is_there = |id: TrackId| there.contains(&id);
        self.catalogue.keep(is_there);
        self.gaps.keep(reader.oldest_of_all_ns().unwrap_or(0), is_there)
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        let reader = self.warm.reader();
        let warm: u64 = Level::ALL.into_iter().map(|level| reader.bytes(level)).sum();
        warm + self.wal.bytes() + self.gaps.bytes() + self.catalogue.bytes()
    }
}
