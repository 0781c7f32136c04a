// SPDX-License-Identifier: Apache-2.0
//! Heads that were cut become chunks; segments of the log whose rows are all in durable chunks are deleted, and the oldest files when there are too many.

use std::time::{Duration, Instant};

use super::lock;
use super::rows::{Cut, Likeness};
use super::turn::Writer;
use crate::chunk::{Builder, Head, Shape};
use crate::damage::StoreError;
use crate::types::TrackId;
use crate::warm::Level;

/// A turn packs for so long: more waits for the next one.
const MOST_TIME: Duration = Duration::from_millis(100);

impl Writer {
    /// Writes chunks of heads that were cut, as far as the log says durably that they were.
    pub(super) fn pack(&mut self) -> Result<(), StoreError> {
        let begin = Instant::now();
        let waiting = self.cut.clone();
        for id in waiting {
            self.make_chunks(id)?;
            if begin.elapsed() > MOST_TIME {
                break;
            }
        }
        // What could not be written the last time, too.
        self.warm.write()?;
        let mut rows = lock(&self.shared.rows);
        self.cut.retain(|id| {
            let Some(track) = rows.tracks.get_mut(id) else { return false };
            track.cut.retain(|cut| cut.chunk.is_none());
            !track.cut.is_empty()
        });
        Ok(())
    }

    /// Makes chunks of a track's heads, without a lock; readers find them once they are written.
    fn make_chunks(&mut self, id: TrackId) -> Result<(), StoreError> {
        let cuts: Vec<(usize, Cut)> = {
            let rows = lock(&self.shared.rows);
            let cuts = rows.tracks.get(&id).into_iter().flat_map(|track| track.cut.iter().enumerate());
            let ready = cuts.filter(|(_, cut)| cut.is_durable && cut.chunk.is_none());
            ready.map(|(at, cut)| (at, cut.clone())).collect()
        };
        let Some(layout) = self.catalogue.look().layout_of(id).cloned() else { return Ok(()) };
        let mut builder = Builder::new(id, Shape::of(&layout));
        for (at, cut) in cuts {
            builder.mark(cut.sequence);
            // They were encoded by this process, or looked at when they came out of the log.
            let _ = cut.rows.rows(|line, time_ns, words| builder.push(line, time_ns, words));
            let Some(chunk) = builder.finish() else { continue };
            let damaged = |damage| StoreError::Damaged { path: self.config.dir.clone(), offset: 0, damage };
            let head = Head::parse(&chunk).map_err(damaged)?;
            let (from_ns, to_ns, rows, bytes) = (head.from_ns, head.to_ns, head.rows, chunk.len());
            self.warm.append(Level::Raw, &chunk).map_err(damaged)?;
            let mut all = lock(&self.shared.rows);
            if let Some(cut) = all.tracks.get_mut(&id).and_then(|track| track.cut.get_mut(at)) {
                cut.chunk = Some(Likeness { from_ns, to_ns, rows, bytes });
            }
        }
        Ok(())
    }

    /// Deletes what is of no use any more, and the oldest rows where there are too many.
    pub(super) fn retain(&mut self) -> Result<(), StoreError> {
        while self.bytes() > self.config.max_bytes {
            if !self.drop_oldest()? {
                break;
            }
        }
        if self.wal.segment_of_now() > self.wal.oldest_segment() {
            self.warm.sync()?;
            let rows = lock(&self.shared.rows);
            let oldest = rows.tracks.values().filter_map(super::rows::Track::oldest_segment).min();
            drop(rows);
            self.wal.delete_before(oldest.unwrap_or(u32::MAX).min(self.wal.segment_of_now()))?;
        }
        Ok(())
    }

    /// Deletes the oldest file of rows; false: there is none but those that are written.
    pub(super) fn drop_oldest(&mut self) -> Result<bool, StoreError> {
        if self.warm.drop_oldest(Level::Raw)?.is_none() {
            return Ok(false);
        }
        self.turned.dropped_files += 1;
        self.forget_over()?;
        Ok(true)
    }

    /// Forgets tracks that have no rows left, and gaps that are older than all rows.
    fn forget_over(&mut self) -> Result<(), StoreError> {
        let reader = self.warm.reader();
        let mut rows = lock(&self.shared.rows);
        let with_chunks: std::collections::HashSet<TrackId> = reader.tracks(Level::Raw).into_iter().collect();
        rows.tracks.retain(|id, track| !track.is_ended || !track.is_packed() || with_chunks.contains(id));
        let is_there = |id: TrackId| rows.tracks.contains_key(&id) || with_chunks.contains(&id);
        self.catalogue.keep(is_there);
        let oldest_ns = reader.oldest_ns(Level::Raw).unwrap_or(0);
        self.gaps.keep(oldest_ns, is_there)
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        let reader = self.warm.reader();
        let warm: u64 = Level::ALL.into_iter().map(|level| reader.bytes(level)).sum();
        warm + self.wal.bytes() + self.gaps.bytes() + self.catalogue.bytes()
    }
}
