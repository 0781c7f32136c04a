// SPDX-License-Identifier: Apache-2.0
//! Sealing: rows become tiles, tiles batches, and batches durable, all tracks' together; then readers and appenders are told.
//!
//! Until a batch is durable nothing points to it: its rows are read from the rings. So a write or a sync that fails costs nothing but to do it again.

use super::{TrackId, Writer};
use crate::batch::{Builder, Entry, max_rows};
use crate::batches::BatchRef;
use crate::error::{StoreError, io_error};
use crate::log::{Place, is_disk_full};
use crate::ring::steady_ns;

/// Batches are written together up to so many bytes.
const WRITE_BYTES: u64 = 4 << 20;
/// Tiles that are entered while readers wait.
const ENTER_TILES: usize = 1024;

/// What one [`Writer::seal`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Tiles written.
    pub tiles: u64,
    /// Rows in them.
    pub rows: u64,
    /// Segments deleted to keep within [`super::Config::max_bytes`] or for want of room.
    pub dropped_segments: u64,
    /// Those of them for which the disk had no room, though the log was within its limit; since the seal before.
    pub dropped_for_room: u64,
}

/// A tile that becomes durable.
struct New {
    track: TrackId,
    segment: u32,
    last: u64,
    until_ns: u64,
    logged_bytes: u64,
}

/// What a seal has packed and written.
#[derive(Default)]
struct Pass {
    /// Rows that it does not seal have come since, [`steady_ns`].
    begun_ns: u64,
    builder: Builder,
    /// Times of the last rows of the builder's tiles.
    until_ns: Vec<u64>,
    /// Records that are not written yet, and what they have.
    out: Vec<u8>,
    packed: Vec<(u64, u64, Vec<Entry>, Vec<u64>)>,
    batches: Vec<(u32, BatchRef)>,
    tiles: Vec<New>,
    sealed: Sealed,
}

impl Writer {
    /// Seals what fills a tile and, however little it is, what has come before `before_ns` of [`steady_ns`] (0: nothing, `u64::MAX`: everything), and makes it
    /// durable. To be called about every second, and oftener where rings are short.
    ///
    /// # Errors
    /// [`StoreError::Io`]: rows stay hot, and rings that fill refuse more. A full disk costs the oldest segments first.
    pub fn seal(&mut self, before_ns: u64) -> Result<Sealed, StoreError> {
        let mut pass = Pass { begun_ns: steady_ns(), ..Pass::default() };
        let flushed = self.flush();
        let written = self.write_rows(before_ns, &mut pass);
        self.sync()?;
        let mut sealed = self.enter(pass);
        flushed.and(written)?;
        let dropped = self.keep_within_bounds()?;
        self.free_rings();
        if self.catalogue.is_due() {
            // Only the room on the disk depends on it.
            if self.write_catalogue().is_err() {
                self.catalogue.put_off();
            }
        }
        sealed.dropped_for_room = std::mem::take(&mut self.dropped_for_room);
        sealed.dropped_segments = dropped + sealed.dropped_for_room;
        Ok(sealed)
    }

    /// Writes gaps that are in memory only.
    ///
    /// # Errors
    /// [`StoreError::Io`]; they are written with a later call then.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.is_broken {
            self.leave_broken()?;
        }
        if self.written < self.unsynced.len() {
            let records = self.unsynced[self.written..].to_vec();
            self.write(&records)?;
            // A sync on the way has taken out what was written before.
            self.written = self.unsynced.len();
        }
        Ok(())
    }

    fn write_rows(&mut self, before_ns: u64, pass: &mut Pass) -> Result<(), StoreError> {
        let rings = std::mem::take(&mut self.rings);
        let result = rings.iter().try_for_each(|(id, hot)| {
            let (mut first, last) = (hot.durable + 1, hot.ring.published());
            let waiting = (last + 1).saturating_sub(first);
            let is_due = hot.retired || waiting >= self.config.tile_rows as u64;
            if waiting == 0 || !(is_due || hot.ring.waiting_since_ns() < before_ns) {
                return Ok(());
            }
            while first <= last {
                let rows = max_rows(hot.kinds.len()).min(last + 1 - first);
                let count = u32::try_from(rows).unwrap_or(u32::MAX); // at most MAX_TILE_ROWS
                pass.until_ns.push(pass.builder.push(*id, &hot.ring, &hot.kinds, first, count));
                first += rows;
                if pass.builder.is_full() {
                    self.pack(pass)?;
                }
            }
            Ok(())
        });
        self.rings = rings;
        result?;
        self.pack(pass)?;
        self.write_packed(pass)
    }

    fn pack(&mut self, pass: &mut Pass) -> Result<(), StoreError> {
        let offset = pass.out.len() as u64;
        if let Some(entries) = pass.builder.finish(&mut self.packer, &mut pass.out) {
            let bytes = pass.out.len() as u64 - offset;
            pass.packed.push((offset, bytes, entries, std::mem::take(&mut pass.until_ns)));
        }
        let limit = WRITE_BYTES.min(self.config.segment_bytes / 4);
        if pass.out.len() as u64 >= limit { self.write_packed(pass) } else { Ok(()) }
    }

    fn write_packed(&mut self, pass: &mut Pass) -> Result<(), StoreError> {
        if pass.out.is_empty() {
            return Ok(());
        }
        let Place { segment, offset: start } = self.write(&pass.out)?;
        pass.out.clear();
        for (offset, bytes, entries, until_ns) in pass.packed.drain(..) {
            let Some(batch) = BatchRef::new(start + offset, &entries) else { continue };
            pass.batches.push((segment, batch));
            let all: u64 = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
            for (entry, until_ns) in entries.iter().zip(until_ns) {
                pass.sealed.tiles += 1;
                pass.sealed.rows += u64::from(entry.head.rows);
                pass.tiles.push(New {
                    track: entry.head.track,
                    segment,
                    last: entry.head.first + u64::from(entry.head.rows) - 1,
                    until_ns,
                    // Its share of what all have become.
                    logged_bytes: (bytes * u64::from(entry.bytes)).div_ceil(all.max(1)),
                });
            }
        }
        Ok(())
    }

    /// What is durable by now is told to readers and appenders. The batches first: rows that are in a ring, too, are read once.
    fn enter(&mut self, pass: Pass) -> Sealed {
        let bytes = self.bytes();
        let store = self.store.clone();
        let lock = || store.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut now = lock();
        now.bytes = bytes;
        pass.batches.into_iter().for_each(|(segment, batch)| now.batches.push(segment, batch));
        drop(now);
        for tiles in pass.tiles.chunks(ENTER_TILES) {
            let mut now = lock();
            for tile in tiles {
                let Some(track) = now.tracks.get_mut(&tile.track) else { continue };
                (track.durable, track.durable_until_ns) = (tile.last, tile.until_ns);
                track.newest_segment = tile.segment;
                if let Some(hot) = self.rings.get_mut(&tile.track) {
                    hot.durable = tile.last;
                    hot.ring.add_logged(tile.logged_bytes);
                    // Under the lock: readers copy what is not durable, and it must not be written over meanwhile.
                    hot.ring.set_durable(tile.last, pass.begun_ns);
                }
            }
        }
        pass.sealed
    }

    /// Appends records, in a new segment where they do not fit; makes room where the disk is full.
    fn write(&mut self, records: &[u8]) -> Result<Place, StoreError> {
        loop {
            let attempt = self.roll_for(records.len()).and_then(|()| self.log.append(records));
            match attempt {
                Ok(place) => return Ok(place),
                Err(error) if is_disk_full(&error) && self.drop_oldest()? => self.dropped_for_room += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn roll_for(&mut self, bytes: usize) -> Result<(), StoreError> {
        if self.is_broken {
            self.leave_broken()?;
        }
        if self.log.has_begun() && self.log.segment_bytes() + bytes as u64 > self.config.segment_bytes {
            self.sync()?;
            self.log.roll()?;
        }
        Ok(())
    }

    /// On to a segment that no failed sync has touched.
    fn leave_broken(&mut self) -> Result<(), StoreError> {
        self.log.roll()?;
        self.is_broken = false;
        Ok(())
    }

    fn keep_within_bounds(&mut self) -> Result<u64, StoreError> {
        let mut dropped = 0;
        while self.bytes() > self.config.max_bytes && self.drop_oldest()? {
            dropped += 1;
        }
        Ok(dropped)
    }

    /// Makes durable what is written; definitions first, without which rows mean nothing.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        if self.catalogue.is_broken() {
            self.write_catalogue()?;
        }
        self.catalogue.sync()?;
        if self.is_broken {
            let source = std::io::Error::other("a sync has failed, and no other segment was begun yet");
            return Err(io_error("sync", &self.config.dir)(source));
        }
        let synced = self.log.sync();
        if synced.is_err() {
            // The kernel may have dropped what it could not write, and will not say so again: it is all written once more, elsewhere.
            self.is_broken = true;
            self.written = 0;
            return synced;
        }
        self.unsynced.drain(..self.written);
        self.written = 0;
        Ok(())
    }
}
