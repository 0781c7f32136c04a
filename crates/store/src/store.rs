// SPDX-License-Identifier: Apache-2.0
//! Rings, log and index put together: rows go in hot, are sealed into tiles, and become durable with the next sync.
//!
//! One owner. Appending is elsewhere ([`Appender`], a thread each); defining and sealing are here, the rest in `store/`. Durable means fdatasynced, and is exported by track.
//! Invariants: a row's sequence number is never given twice; rows are durable in the order of their numbers; what is lost (damage, a full disk) becomes a gap.

mod open;
mod read;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use crate::column::Kind;
use crate::error::StoreError;
use crate::gaps::{Gaps, Shared};
use crate::index::{Index, TileRef, encode_leaf};
use crate::log::{Log, Place, is_disk_full};
use crate::record::{Gap, MAX_COLUMNS, MAX_META_BYTES, MAX_TILE_ROWS, Record, Tile, TileHead, TrackId, encode};
use crate::ring::{Appender, Arena, Owner, Ring};

pub use open::Recovery;
pub use read::Rows;

/// Where and how large a store is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the log, on a disk.
    pub dir: PathBuf,
    /// File of the hot rows, on tmpfs.
    pub hot: PathBuf,
    /// Bytes of the hot file. Taken as they are used.
    pub hot_bytes: u64,
    /// Rows of a tile.
    pub tile_rows: usize,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// Bytes of the whole log; the oldest segments go first.
    pub max_bytes: u64,
}

#[derive(Default)]
struct Track {
    kinds: Vec<Kind>,
    meta: Arc<[u8]>,
    ring: Option<Ring>,
    appending: bool,
    /// Its ring goes once it is sealed.
    retired: bool,
    /// Last row that is in the log, durable or not.
    sealed: u64,
    /// Last row that is durable, and its time.
    durable: u64,
    durable_until_ns: u64,
    sealed_until_ns: u64,
    index: Index,
    gaps: Gaps,
}

/// What one [`Store::seal`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Tiles written.
    pub tiles: u64,
    /// Rows in them.
    pub rows: u64,
    /// Segments deleted to keep within [`Config::max_bytes`] or for want of room.
    pub dropped_segments: u64,
    /// Those of them for which the disk had no room, though the log was within its limit; since the seal before.
    pub dropped_for_room: u64,
}

/// A store.
pub struct Store {
    config: Config,
    log: Log,
    arena: Arena,
    free_rings: Vec<Ring>,
    tracks: BTreeMap<TrackId, Track>,
    by_meta: HashMap<Arc<[u8]>, TrackId>,
    shared_gaps: Shared,
    next: u32,
    buffer: Vec<u8>,
    dropped_for_room: u64,
    /// The current segment's end may not be what was written, and no other one could be begun yet.
    is_broken: bool,
}

/// Reason of the gap that damage leaves.
pub const DAMAGED: &str = "damaged";

impl Store {
    /// The track that `meta` describes; made where there is none. `meta` is any text that tells tracks apart, and is not empty. Its ring has room for `rows`
    /// rows ([`crate::ring_rows`]).
    ///
    /// # Errors
    /// [`StoreError::Definition`], [`StoreError::HotMemory`], [`StoreError::Io`].
    pub fn define(&mut self, columns: &[Kind], meta: &[u8], rows: u64) -> Result<TrackId, StoreError> {
        if meta.is_empty() || meta.len() > MAX_META_BYTES {
            return Err(StoreError::Definition { bytes: meta.len(), limit: MAX_META_BYTES });
        }
        if columns.len() > MAX_COLUMNS {
            return Err(StoreError::Definition { bytes: columns.len(), limit: MAX_COLUMNS });
        }
        if let Some(id) = self.by_meta.get(meta).copied() {
            self.ensure_ring(id, rows)?;
            return Ok(id);
        }
        let id = TrackId(self.next);
        let mut bytes = Vec::new();
        encode_definition(id, columns, meta, &mut bytes);
        self.write(&bytes)?;
        self.next += 1; // 2^32 tracks would take a hundred terabytes of definitions
        let track = track(&mut self.tracks, id);
        (track.kinds, track.meta) = (columns.to_vec(), meta.into());
        self.by_meta.insert(track.meta.clone(), id);
        self.ensure_ring(id, rows)?;
        Ok(id)
    }

    fn ensure_ring(&mut self, id: TrackId, rows: u64) -> Result<(), StoreError> {
        let count = self.tracks.len();
        let track = self.tracks.get_mut(&id).ok_or(StoreError::NoTrack(id.0))?;
        if track.ring.is_some() {
            return Ok(());
        }
        let owner = Owner { track: id, meta_crc: meta_crc(&track.meta) };
        let columns = track.kinds.len();
        let fits = |ring: &Ring| ring.columns() == columns && ring.capacity() == rows;
        let ring = match self.free_rings.iter().position(fits) {
            Some(at) => Some(self.arena.reuse(&self.free_rings.swap_remove(at), owner, track.sealed)),
            None => self.arena.ring(owner, columns, rows, track.sealed)?,
        };
        track.ring = ring;
        let no_room = StoreError::HotMemory { tracks: count, limit_bytes: self.config.hot_bytes };
        if track.ring.is_some() { Ok(()) } else { Err(no_room) }
    }

    /// The one who appends rows to a track; `None` while it is with somebody else or unknown.
    pub fn appender(&mut self, id: TrackId) -> Option<Appender> {
        let track = self.tracks.get_mut(&id).filter(|track| !track.appending)?;
        let appender = track.ring.as_ref()?.appender();
        (track.appending, track.retired) = (true, false);
        Some(appender)
    }

    /// Ends a track's life in memory: with the next [`Store::seal`] what is hot is sealed, and its ring goes to another. Reading goes on, and whoever wants the
    /// appender until then gets it. `appender` must be the track's own.
    pub fn retire(&mut self, id: TrackId, appender: Appender) {
        drop(appender);
        if let Some(track) = self.tracks.get_mut(&id) {
            (track.appending, track.retired) = (false, true);
        }
    }

    /// Gives away the rings of retired tracks that have nothing left to lose.
    fn free_rings(&mut self) {
        for track in self.tracks.values_mut().filter(|track| track.retired) {
            if track.ring.as_ref().is_some_and(|ring| ring.published() == track.durable) {
                track.retired = false;
                // Marked as nobody's, lest it be taken for the track's after a restart.
                let ring = track.ring.take();
                self.free_rings.extend(ring.map(|ring| self.arena.reuse(&ring, Owner::NOBODY, 0)));
            }
        }
    }

    /// Records that there are no rows between two times, and why.
    ///
    /// # Errors
    /// [`StoreError::NoTrack`], [`StoreError::Io`].
    pub fn gap(&mut self, gap: Gap) -> Result<(), StoreError> {
        if !self.tracks.contains_key(&gap.track) {
            return Err(StoreError::NoTrack(gap.track.0));
        }
        let mut bytes = Vec::new();
        encode(&Record::Gap(gap.clone()), &[], &mut bytes);
        self.write(&bytes)?;
        if let Some(track) = self.tracks.get_mut(&gap.track) {
            track.gaps.push(&gap, &mut self.shared_gaps);
        }
        Ok(())
    }

    /// Seals what fills a tile and, however little it is, what is older than `older_than_ns` (0: nothing, `u64::MAX`: everything), and makes it durable. To be called
    /// about every second, and oftener where rings are short.
    ///
    /// # Errors
    /// [`StoreError::Io`]: rows stay hot, and rings that fill refuse more. A full disk costs the oldest segments first.
    pub fn seal(&mut self, older_than_ns: u64) -> Result<Sealed, StoreError> {
        let mut sealed = Sealed::default();
        let ages: Vec<(TrackId, u64)> =
            self.tracks.iter().map(|(id, track)| (*id, if track.retired { u64::MAX } else { older_than_ns })).collect();
        for (id, older_than_ns) in ages {
            let one = self.seal_track(id, older_than_ns)?;
            sealed.tiles += one.tiles;
            sealed.rows += one.rows;
        }
        let dropped = self.keep_within_bounds()?;
        self.sync()?;
        self.put_tiles_away();
        self.free_rings();
        sealed.dropped_for_room = std::mem::take(&mut self.dropped_for_room);
        sealed.dropped_segments = dropped + sealed.dropped_for_room;
        Ok(sealed)
    }

    fn seal_track(&mut self, id: TrackId, older_than_ns: u64) -> Result<Sealed, StoreError> {
        let mut sealed = Sealed::default();
        while let Some(tile) = self.next_tile(id, older_than_ns) {
            let track = &self.tracks[&id];
            let mut bytes = std::mem::take(&mut self.buffer);
            bytes.clear();
            let rows = tile.times_ns.len();
            let head = TileHead {
                track: id,
                first: tile.first,
                rows: u32::try_from(rows).expect("at most MAX_TILE_ROWS"),
                from_ns: tile.times_ns.iter().copied().min().unwrap_or(0),
                to_ns: tile.times_ns.iter().copied().max().unwrap_or(0),
            };
            let until_ns = tile.times_ns[rows - 1];
            encode(&Record::Tile(tile), &track.kinds, &mut bytes);
            let written = self.write(&bytes);
            self.buffer = bytes;
            let place = written?;
            let logged_bytes = self.buffer.len() as u64;
            let track = self.tracks.get_mut(&id).ok_or(StoreError::NoTrack(id.0))?;
            track.sealed = head.first + rows as u64 - 1;
            // Of the last row, not the greatest: a clock may have been set back, and rows that come after that are not durable by then.
            track.sealed_until_ns = until_ns;
            track.index.tiles.push(TileRef::new(&head, place));
            track.ring.iter().for_each(|ring| ring.add_logged(logged_bytes));
            sealed.tiles += 1;
            sealed.rows += rows as u64;
        }
        Ok(sealed)
    }

    fn next_tile(&self, id: TrackId, older_than_ns: u64) -> Option<Tile> {
        let track = self.tracks.get(&id)?;
        let ring = track.ring.as_ref()?;
        let waiting = ring.published() - track.sealed;
        let rows = waiting.min(self.config.tile_rows.clamp(1, MAX_TILE_ROWS) as u64);
        let mut values = Vec::with_capacity(track.kinds.len());
        let is_full = waiting >= self.config.tile_rows as u64;
        if rows == 0 || (!is_full && ring.copy(track.sealed + 1, &mut values) >= older_than_ns) {
            return None;
        }
        let mut tile = Tile {
            track: id,
            first: track.sealed + 1,
            times_ns: Vec::new(),
            columns: vec![Vec::with_capacity(usize::try_from(rows).ok()?); track.kinds.len()],
        };
        for sequence in tile.first..tile.first + rows {
            tile.times_ns.push(ring.copy(sequence, &mut values));
            for (column, value) in tile.columns.iter_mut().zip(&values) {
                column.push(*value);
            }
        }
        Some(tile)
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
        if self.log.segment_bytes() + bytes as u64 <= self.config.segment_bytes {
            return Ok(());
        }
        let definitions = self.definitions();
        // With very many tracks a segment becomes longer rather than nothing but definitions.
        if self.log.segment_bytes() <= 2 * definitions.len() as u64 {
            return Ok(());
        }
        self.log.roll()?;
        self.log.append(&definitions)?;
        self.mark_durable();
        Ok(())
    }

    fn definitions(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (id, track) in &self.tracks {
            encode_definition(*id, &track.kinds, &track.meta, &mut bytes);
        }
        bytes
    }

    fn keep_within_bounds(&mut self) -> Result<u64, StoreError> {
        let mut dropped = 0;
        while self.log.bytes() > self.config.max_bytes && self.drop_oldest()? {
            dropped += 1;
        }
        Ok(dropped)
    }

    fn drop_oldest(&mut self) -> Result<bool, StoreError> {
        let dropped = self.log.drop_oldest()?;
        let oldest = self.log.oldest();
        for track in self.tracks.values_mut() {
            track.index.keep_from(oldest);
            let kept_from_ns = track.index.oldest_ns().unwrap_or(track.sealed_until_ns);
            track.gaps.keep_from(kept_from_ns);
        }
        let by_meta = &mut self.by_meta;
        self.tracks.retain(|_, track| {
            let over = track.ring.is_none() && track.index.count() == 0 && track.gaps.is_empty();
            if over {
                by_meta.remove(&track.meta);
            }
            !over
        });
        Ok(dropped)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let synced = self.log.sync();
        if synced.is_ok() {
            self.mark_durable();
        } else {
            // The kernel may have dropped what it could not write, and will not say so again: seal it once more from the rings, elsewhere.
            self.tracks.values_mut().for_each(Track::forget_unsynced);
            self.is_broken = true;
            self.leave_broken()?;
        }
        synced
    }

    /// Goes on in a segment that no failed sync has touched.
    fn leave_broken(&mut self) -> Result<(), StoreError> {
        self.log.roll_unsynced()?;
        self.log.append(&self.definitions())?;
        self.is_broken = false;
        Ok(())
    }

    fn mark_durable(&mut self) {
        for track in self.tracks.values_mut() {
            track.durable = track.sealed;
            track.durable_until_ns = track.sealed_until_ns;
            if let Some(ring) = &track.ring {
                ring.set_durable(track.durable);
            }
        }
    }

    /// Lists in the log what tracks have many tiles of in memory. Only memory depends on it: what cannot be written now is tried again with the next seal.
    fn put_tiles_away(&mut self) {
        let due: Vec<TrackId> =
            self.tracks.iter().filter(|(_, track)| track.index.due().is_some()).map(|(id, _)| *id).collect();
        for id in due {
            while let Some(tiles) = self.tracks.get(&id).and_then(|track| track.index.due()).map(<[_]>::to_vec) {
                let mut bytes = Vec::new();
                encode_leaf(id, &tiles, &mut bytes);
                let Ok(place) = self.roll_for(bytes.len()).and_then(|()| self.log.append(&bytes)) else { return };
                let Some(track) = self.tracks.get_mut(&id) else { return };
                let Some(()) = track.index.put_away(&tiles, place) else { return };
            }
        }
    }
}

fn meta_crc(meta: &[u8]) -> u32 {
    crc32c::crc32c(meta)
}

/// Twice, so that no single flipped bit takes a track's tiles with it.
fn encode_definition(id: TrackId, columns: &[Kind], meta: &[u8], out: &mut Vec<u8>) {
    let record = Record::Definition { track: id, columns: columns.to_vec(), meta: meta.to_vec() };
    encode(&record, &[], out);
    encode(&record, &[], out);
}

/// The track of a number; one without a definition yet, if there is none.
fn track(tracks: &mut BTreeMap<TrackId, Track>, id: TrackId) -> &mut Track {
    tracks.entry(id).or_default()
}

impl Track {
    fn forget_unsynced(&mut self) {
        self.index.tiles.retain(|tile| tile.first <= self.durable);
        (self.sealed, self.sealed_until_ns) = (self.durable, self.durable_until_ns);
    }
}
