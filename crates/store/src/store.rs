// SPDX-License-Identifier: Apache-2.0
//! Rings, log and index put together: rows go in hot, are sealed into tiles, and become durable with the next sync.
//!
//! One owner. Appending is elsewhere ([`Appender`], a thread each); sealing, defining and reading are here. Durable means fdatasynced, and is exported by track.
//! Invariants: a row's sequence number is never given twice; rows are durable in the order of their numbers; what is lost (damage, a full disk) becomes a gap.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use crate::column::Kind;
use crate::error::StoreError;
use crate::log::{Damaged, Log, Place, is_disk_full};
use crate::record::{Gap, MAX_COLUMNS, MAX_META_BYTES, MAX_TILE_ROWS, Record, Tile, TileHead, TrackId, encode};
use crate::ring::{Appender, Arena, Owner, Ring};

/// Where and how large a store is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the log, on a disk.
    pub dir: PathBuf,
    /// File of the hot rows, on tmpfs.
    pub hot: PathBuf,
    /// Bytes of the hot file. Taken as they are used.
    pub hot_bytes: u64,
    /// Rows of a track's ring: twice those of a tile leave room while a tile waits for the disk.
    pub ring_rows: u64,
    /// Rows of a tile.
    pub tile_rows: usize,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// Bytes of the whole log; the oldest segments go first.
    pub max_bytes: u64,
}

/// Rows that the log has of a track.
#[derive(Clone, Copy, Debug)]
struct TileRef {
    head: TileHead,
    place: Place,
    /// Rows at its beginning that an earlier tile has, too: it was sealed again after a failed sync.
    skip: usize,
}

#[derive(Default)]
struct Track {
    kinds: Vec<Kind>,
    meta: Vec<u8>,
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
    tiles: Vec<TileRef>,
    gaps: Vec<Gap>,
}

/// What opening found.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Tiles that are whole.
    pub tiles: u64,
    /// Rows in them.
    pub rows: u64,
    /// Tiles of tracks that no whole definition tells of.
    pub unknown_tiles: u64,
    /// Rows that were hot and are there again.
    pub hot_rows: u64,
    /// Rings of tracks that the log does not know any more.
    pub unknown_rings: u64,
    /// Bytes of the log that are no records.
    pub damaged: Vec<Damaged>,
    /// Rows that are missing between whole tiles; each such hole is a gap of its track by now.
    pub lost_rows: u64,
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
    by_meta: HashMap<Vec<u8>, TrackId>,
    next: u32,
    buffer: Vec<u8>,
    dropped_for_room: u64,
    /// The current segment's end may not be what was written, and no other one could be begun yet.
    is_broken: bool,
}

/// Reason of the gap that damage leaves.
pub const DAMAGED: &str = "damaged";

impl Store {
    /// Opens or makes a store and recovers what is there.
    ///
    /// # Errors
    /// [`StoreError`]. Damage is no error: see [`Recovery`].
    pub fn open(config: Config) -> Result<(Self, Recovery), StoreError> {
        let mut recovery = Recovery::default();
        let mut tracks = BTreeMap::new();
        let mut in_use = BTreeSet::new();
        let (log, damaged) = Log::open(&config.dir, |place, frame, payload| {
            if frame.is_tile() {
                if let Ok(head) = TileHead::parse(payload) {
                    in_use.insert(place.segment);
                    index(track(&mut tracks, head.track), &mut recovery, head, place);
                }
                return;
            }
            match frame.decode(payload) {
                Ok(Record::Definition { track: id, columns, meta }) => {
                    let track = track(&mut tracks, id);
                    (track.kinds, track.meta) = (columns, meta);
                }
                Ok(Record::Gap(gap)) => {
                    in_use.insert(place.segment);
                    track(&mut tracks, gap.track).gaps.push(gap);
                }
                _ => {}
            }
        })?;
        in_use.extend(damaged.iter().map(|damaged| damaged.place.segment));
        recovery.damaged = damaged;
        let next = tracks.last_key_value().map_or(1, |(id, _)| id.0 + 1);
        tracks.retain(|_, track: &mut Track| {
            let known = !track.meta.is_empty();
            recovery.unknown_tiles += if known { 0 } else { track.tiles.len() as u64 };
            known
        });
        let (arena, rings) = Arena::open(&config.hot, config.hot_bytes)?;
        let by_meta = tracks.iter().map(|(id, track)| (track.meta.clone(), *id)).collect();
        let mut store = Self {
            config,
            log,
            arena,
            free_rings: Vec::new(),
            tracks,
            by_meta,
            next,
            buffer: Vec::new(),
            dropped_for_room: 0,
            is_broken: false,
        };
        store.adopt(rings, &mut recovery);
        store.log.append(&store.definitions())?;
        store.log.sync()?;
        store.log.retain(|segment| in_use.contains(&segment))?;
        Ok((store, recovery))
    }

    fn adopt(&mut self, rings: Vec<Ring>, recovery: &mut Recovery) {
        for ring in rings {
            let owner = ring.owner();
            if owner == Owner::NOBODY {
                self.free_rings.push(ring);
                continue;
            }
            self.next = self.next.max(owner.track.0.saturating_add(1));
            let known = self.tracks.get_mut(&owner.track).filter(|track| {
                track.ring.is_none() && track.kinds.len() == ring.columns() && meta_crc(&track.meta) == owner.meta_crc
            });
            match known {
                Some(track) => {
                    if let Some((first, last)) = ring.recover(track.sealed) {
                        let mut values = Vec::new();
                        track.skip_to(owner.track, first, ring.copy(first, &mut values), recovery);
                        recovery.hot_rows += last - first + 1;
                    }
                    // Unless somebody asks for its appender until the next seal.
                    (track.ring, track.retired) = (Some(ring), true);
                }
                None => {
                    recovery.unknown_rings += 1;
                    self.free_rings.push(self.arena.reuse(&ring, Owner::NOBODY, 0));
                }
            }
        }
    }

    /// The track that `meta` describes; made where there is none. `meta` is any text that tells tracks apart, and is not empty.
    ///
    /// # Errors
    /// [`StoreError::Definition`], [`StoreError::HotMemory`], [`StoreError::Io`].
    pub fn define(&mut self, columns: &[Kind], meta: &[u8]) -> Result<TrackId, StoreError> {
        if meta.is_empty() || meta.len() > MAX_META_BYTES {
            return Err(StoreError::Definition { bytes: meta.len(), limit: MAX_META_BYTES });
        }
        if columns.len() > MAX_COLUMNS {
            return Err(StoreError::Definition { bytes: columns.len(), limit: MAX_COLUMNS });
        }
        if let Some(id) = self.by_meta.get(meta).copied() {
            self.ensure_ring(id)?;
            return Ok(id);
        }
        let id = TrackId(self.next);
        let mut bytes = Vec::new();
        encode_definition(id, columns, meta, &mut bytes);
        self.write(&bytes)?;
        self.next += 1; // 2^32 tracks would take a hundred terabytes of definitions
        let track = track(&mut self.tracks, id);
        (track.kinds, track.meta) = (columns.to_vec(), meta.to_vec());
        self.by_meta.insert(meta.to_vec(), id);
        self.ensure_ring(id)?;
        Ok(id)
    }

    fn ensure_ring(&mut self, id: TrackId) -> Result<(), StoreError> {
        let count = self.tracks.len();
        let track = self.tracks.get_mut(&id).ok_or(StoreError::NoTrack(id.0))?;
        if track.ring.is_some() {
            return Ok(());
        }
        let owner = Owner { track: id, meta_crc: meta_crc(&track.meta) };
        let (columns, rows) = (track.kinds.len(), self.config.ring_rows);
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
            track.gaps.push(gap);
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
            let track = self.tracks.get_mut(&id).ok_or(StoreError::NoTrack(id.0))?;
            track.sealed = head.first + rows as u64 - 1;
            // Of the last row, not the greatest: a clock may have been set back, and rows that come after that are not durable by then.
            track.sealed_until_ns = until_ns;
            track.tiles.push(TileRef { head, place, skip: 0 });
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
            track.tiles.retain(|tile| tile.place.segment >= oldest);
            let kept_from_ns = track.tiles.first().map_or(track.sealed_until_ns, |tile| tile.head.from_ns);
            track.gaps.retain(|gap| gap.to_ns >= kept_from_ns);
        }
        let by_meta = &mut self.by_meta;
        self.tracks.retain(|_, track| {
            let over = track.ring.is_none() && track.tiles.is_empty() && track.gaps.is_empty();
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

    /// Time up to which a track's rows are durable, ns.
    #[must_use]
    pub fn durable_until_ns(&self, id: TrackId) -> Option<u64> {
        self.tracks.get(&id).map(|track| track.durable_until_ns)
    }

    /// Time of a track's last row, durable or not, ns.
    #[must_use]
    pub fn newest_ns(&self, id: TrackId) -> Option<u64> {
        let track = self.tracks.get(&id)?;
        let last = track.ring.as_ref().map_or(0, Ring::published);
        let hot = track.ring.as_ref().filter(|_| last > track.sealed).map(|ring| ring.copy(last, &mut Vec::new()));
        hot.or_else(|| (track.sealed > 0).then_some(track.sealed_until_ns))
    }

    /// Whether a track has rows in hot memory or room for them.
    #[must_use]
    pub fn is_hot(&self, id: TrackId) -> bool {
        self.tracks.get(&id).is_some_and(|track| track.ring.is_some())
    }

    /// Bytes of the log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Bytes of the hot file that rings take.
    #[must_use]
    pub fn hot_bytes(&self) -> u64 {
        self.arena.used_bytes()
    }

    /// Time of the oldest row in the log, ns.
    #[must_use]
    pub fn oldest_ns(&self) -> Option<u64> {
        self.tracks.values().filter_map(|track| track.tiles.first()).map(|tile| tile.head.from_ns).min()
    }

    /// Age at `now_ns` of the oldest row that is not durable, ns.
    #[must_use]
    pub fn durable_lag_ns(&self, now_ns: u64) -> Option<u64> {
        let mut values = Vec::new();
        let waiting = self.tracks.values().filter_map(|track| {
            let ring = track.ring.as_ref().filter(|ring| ring.published() > track.durable)?;
            Some(ring.copy(track.durable + 1, &mut values))
        });
        waiting.min().map(|oldest_ns| now_ns.saturating_sub(oldest_ns))
    }

    /// All tracks, with what was said of them when they were defined.
    pub fn tracks(&self) -> impl Iterator<Item = (TrackId, &[Kind], &[u8])> {
        self.tracks.iter().map(|(id, track)| (*id, track.kinds.as_slice(), track.meta.as_slice()))
    }

    /// A track's gaps that touch a time.
    pub fn gaps(&self, id: TrackId, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Gap> {
        let gaps = self.tracks.get(&id).map_or(&[][..], |track| &track.gaps);
        gaps.iter().filter(move |gap| gap.from_ns <= to_ns && gap.to_ns >= from_ns)
    }

    /// Gives all rows of a track between two times (both included) to `visit`: sequence number, time and values, in the order in which they were appended.
    /// Tiles that turn out to be damaged are returned as gaps.
    ///
    /// # Errors
    /// [`StoreError::NoTrack`], [`StoreError::Io`].
    pub fn read(
        &self,
        id: TrackId,
        from_ns: u64,
        to_ns: u64,
        mut visit: impl FnMut(u64, u64, &[u64]),
    ) -> Result<Vec<Gap>, StoreError> {
        let track = self.tracks.get(&id).ok_or(StoreError::NoTrack(id.0))?;
        let mut damaged = Vec::new();
        let mut values = Vec::with_capacity(track.kinds.len());
        let within = |time_ns: u64| (from_ns..=to_ns).contains(&time_ns);
        for TileRef { head, place, skip } in &track.tiles {
            if head.from_ns > to_ns || head.to_ns < from_ns {
                continue;
            }
            match self.log.read(*place)? {
                Ok(Record::Tile(tile)) if tile.track == id && tile.columns.len() == track.kinds.len() => {
                    let rows = tile.times_ns.iter().enumerate().skip(*skip);
                    for (row, time_ns) in rows.filter(|(_, time_ns)| within(**time_ns)) {
                        values.clear();
                        values.extend(tile.columns.iter().map(|column| column[row]));
                        visit(tile.first + row as u64, *time_ns, &values);
                    }
                }
                _ => damaged.push(Gap { track: id, from_ns: head.from_ns, to_ns: head.to_ns, reason: DAMAGED.into() }),
            }
        }
        if let Some(ring) = &track.ring {
            for sequence in track.sealed + 1..=ring.published() {
                let time_ns = ring.copy(sequence, &mut values);
                if within(time_ns) {
                    visit(sequence, time_ns, &values);
                }
            }
        }
        Ok(damaged)
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
    /// The next row that there is has number `first`; rows before it that are not there were lost to damage, unless they were deleted with their segment.
    fn skip_to(&mut self, id: TrackId, first: u64, from_ns: u64, recovery: &mut Recovery) {
        let missing = first.saturating_sub(self.sealed + 1);
        if missing > 0 && self.sealed > 0 {
            recovery.lost_rows += missing;
            let gap = Gap { track: id, from_ns: self.sealed_until_ns, to_ns: from_ns, reason: DAMAGED.into() };
            self.gaps.push(gap);
        }
        self.sealed = self.sealed.max(first - 1);
    }

    fn forget_unsynced(&mut self) {
        self.tiles.retain(|tile| tile.head.first <= self.durable);
        (self.sealed, self.sealed_until_ns) = (self.durable, self.durable_until_ns);
    }
}

/// Takes a tile that was found in the log into the index.
fn index(track: &mut Track, recovery: &mut Recovery, head: TileHead, place: Place) {
    let last = head.first + u64::from(head.rows) - 1;
    if last <= track.sealed {
        return;
    }
    track.skip_to(head.track, head.first, head.from_ns, recovery);
    let skip = track.sealed + 1 - head.first;
    track.sealed = last;
    track.sealed_until_ns = head.to_ns;
    (track.durable, track.durable_until_ns) = (track.sealed, track.sealed_until_ns);
    track.tiles.push(TileRef { head, place, skip: usize::try_from(skip).unwrap_or(usize::MAX) });
    recovery.tiles += 1;
    recovery.rows += u64::from(head.rows) - skip;
}
