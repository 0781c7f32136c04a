// SPDX-License-Identifier: Apache-2.0
//! The one who writes: makes tracks, gives their rings away and takes them back, writes down gaps.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Config, Store, Track};
use crate::arena::Arena;
use crate::batch::Packer;
use crate::catalogue::{Catalogue, Definition};
use crate::column::Kind;
use crate::description::{Description, Packed};
use crate::error::StoreError;
use crate::gaps::Shared;
use crate::log::{Log, is_disk_full};
use crate::record::{Gap, MAX_COLUMNS, MAX_META_BYTES, Record, TrackId, encode};
use crate::ring::{Appender, Owner, Ring};

/// Gaps that wait for a disk that does not work, in bytes: then they are refused.
const MAX_UNSYNCED_BYTES: usize = 64 << 20;
/// A ring that has more times the rows that are wanted of it is given back.
const MAX_EXCESS: u64 = 4;

/// A track that has a ring, as the writer knows it: without a look at what readers look at.
pub(super) struct Hot {
    pub(super) ring: Ring,
    pub(super) kinds: Arc<[Kind]>,
    appending: bool,
    /// Its ring goes once it is sealed.
    pub(super) retired: bool,
    /// Last row that is durable.
    pub(super) durable: u64,
}

impl Hot {
    /// One that was found by a restart: it is given away unless somebody asks for its appender until the next seal.
    pub(super) fn found(ring: Ring, kinds: Arc<[Kind]>, durable: u64) -> Self {
        Self { ring, kinds, appending: false, retired: true, durable }
    }
}

/// The owner of a store.
pub struct Writer {
    pub(super) config: Config,
    pub(super) store: Arc<Mutex<Store>>,
    pub(super) log: Log,
    pub(super) catalogue: Catalogue,
    pub(super) arena: Arena,
    pub(super) packer: Packer,
    pub(super) rings: BTreeMap<TrackId, Hot>,
    /// By what [`Packed::repacked`] makes of each.
    pub(super) by_description: HashMap<Packed, TrackId>,
    pub(super) shared_gaps: Shared,
    pub(super) next: u32,
    /// Records of gaps that are not durable yet, and how many of their bytes are written.
    pub(super) unsynced: Vec<u8>,
    pub(super) written: usize,
    pub(super) dropped_for_room: u64,
    /// A sync has failed: the current segment's end may not be what was written, and no other one could be begun yet.
    pub(super) is_broken: bool,
}

impl Writer {
    /// What readers look at. They may hold it up for as long as nobody minds that rows are not durable meanwhile.
    #[must_use]
    pub fn store(&self) -> Arc<Mutex<Store>> {
        self.store.clone()
    }

    /// The same, locked.
    pub fn look(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The track of this description; made where there is none. Its ring has room for `rows` rows ([`crate::ring_rows`]), unless somebody has its appender by now.
    ///
    /// # Errors
    /// [`StoreError::Definition`], [`StoreError::HotMemory`], [`StoreError::Io`]; nothing is there of the track then that was not before.
    pub fn define(&mut self, description: &Description, rows: u64) -> Result<TrackId, StoreError> {
        let (kinds, described) = (description.kinds(), description.pack());
        let bytes = described.bytes().len();
        if bytes > MAX_META_BYTES {
            return Err(StoreError::Definition { bytes, limit: MAX_META_BYTES });
        }
        if kinds.len() > MAX_COLUMNS {
            return Err(StoreError::Definition { bytes: kinds.len(), limit: MAX_COLUMNS });
        }
        if let Some(id) = self.by_description.get(&described).copied() {
            self.ensure_ring(id, rows)?;
            return Ok(id);
        }
        let id = TrackId(self.next);
        let definition = Definition { kinds: kinds.into(), described };
        // Memory first: it is what there may be none of, and a definition would have been written for nothing.
        let ring = self.reserve(definition.kinds.len(), rows)?.of(owner(id, &definition.described), 0);
        if let Err(error) = self.write_definition(id, &definition) {
            self.arena.free(&ring);
            return Err(error);
        }
        self.arena.own(&ring);
        self.next += 1; // 2^32 tracks would take a hundred terabytes of definitions
        self.by_description.insert(definition.described.clone(), id);
        self.look().tracks.insert(id, Track::new(definition.clone()));
        self.enter_ring(id, ring, definition.kinds, 0);
        Ok(id)
    }

    fn write_definition(&mut self, id: TrackId, definition: &Definition) -> Result<(), StoreError> {
        if self.catalogue.is_broken() {
            self.write_catalogue()?;
        }
        loop {
            match self.catalogue.append(id, definition) {
                Err(error) if is_disk_full(&error) && self.drop_oldest()? => self.dropped_for_room += 1,
                written => return written,
            }
        }
    }

    fn reserve(&mut self, columns: usize, rows: u64) -> Result<Ring, StoreError> {
        let tracks = self.rings.len();
        self.arena
            .reserve(columns, rows)?
            .ok_or(StoreError::HotMemory { tracks: tracks + 1, limit_bytes: self.config.hot_bytes })
    }

    fn enter_ring(&mut self, id: TrackId, ring: Ring, kinds: Arc<[Kind]>, durable: u64) {
        let used = self.arena.used_bytes();
        let mut store = self.look();
        store.hot_bytes = used;
        if let Some(track) = store.tracks.get_mut(&id) {
            track.ring = Some(ring.clone());
        }
        drop(store);
        self.rings.insert(id, Hot { ring, kinds, appending: false, retired: false, durable });
    }

    fn ensure_ring(&mut self, id: TrackId, rows: u64) -> Result<(), StoreError> {
        if let Some(hot) = self.rings.get(&id) {
            let fits = (rows..=rows.saturating_mul(MAX_EXCESS)).contains(&hot.ring.capacity());
            return if hot.appending || fits { Ok(()) } else { self.replace_ring(id, rows) };
        }
        let store = self.look();
        let track = store.tracks.get(&id).ok_or(StoreError::NoTrack(id.0))?;
        let (definition, durable) = (track.definition.clone(), track.durable);
        drop(store);
        let ring = self.reserve(definition.kinds.len(), rows)?.of(owner(id, &definition.described), durable);
        self.arena.own(&ring);
        self.enter_ring(id, ring, definition.kinds, durable);
        Ok(())
    }

    /// A ring of another length, with the same rows; the old one stays where there is no memory for both.
    fn replace_ring(&mut self, id: TrackId, rows: u64) -> Result<(), StoreError> {
        let Some(hot) = self.rings.get(&id) else { return Err(StoreError::NoTrack(id.0)) };
        let (old, kinds, durable) = (hot.ring.clone(), hot.kinds.clone(), hot.durable);
        let rows = rows.max(old.published() - durable);
        let ring = match self.reserve(kinds.len(), rows) {
            Ok(ring) => ring.of(old.owner(), durable),
            Err(StoreError::HotMemory { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let (mut appender, mut values) = (ring.appender(), Vec::new());
        for sequence in durable + 1..=old.published() {
            let time_ns = old.copy(sequence, &mut values);
            // It has room for all of them.
            let _ = appender.append(time_ns, &values);
        }
        // From here on two have this owner, with the same rows: whichever a restart finds first is right.
        self.arena.own(&ring);
        self.enter_ring(id, ring, kinds, durable);
        self.arena.free(&old);
        let used = self.arena.used_bytes();
        self.look().hot_bytes = used;
        Ok(())
    }

    /// The one who appends rows to a track; `None` while it is with somebody else or unknown.
    pub fn appender(&mut self, id: TrackId) -> Option<Appender> {
        let hot = self.rings.get_mut(&id).filter(|hot| !hot.appending)?;
        (hot.appending, hot.retired) = (true, false);
        let appender = hot.ring.appender();
        self.set_appended(id, true);
        Some(appender)
    }

    /// Ends a track's life in memory: with the next [`Writer::seal`] what is hot is sealed, and its ring goes to another. Reading goes on, and whoever wants the
    /// appender until then gets it. `appender` must be the track's own.
    pub fn retire(&mut self, id: TrackId, appender: Appender) {
        drop(appender);
        if let Some(hot) = self.rings.get_mut(&id) {
            (hot.appending, hot.retired) = (false, true);
            self.set_appended(id, false);
        }
    }

    fn set_appended(&self, id: TrackId, is_appended: bool) {
        if let Some(track) = self.look().tracks.get_mut(&id) {
            track.is_appended = is_appended;
        }
    }

    /// Gives away the rings of retired tracks that have nothing left to lose.
    pub(super) fn free_rings(&mut self) {
        let over = |hot: &Hot| hot.retired && hot.ring.published() == hot.durable;
        let over: Vec<TrackId> = self.rings.iter().filter(|(_, hot)| over(hot)).map(|(id, _)| *id).collect();
        if over.is_empty() {
            return;
        }
        let oldest = self.log.oldest();
        let mut forgotten = Vec::new();
        let mut store = self.look();
        for id in &over {
            let Some(track) = store.tracks.get_mut(id) else { continue };
            track.ring = None;
            if track.is_over(oldest) {
                forgotten.extend(store.tracks.remove_entry(id));
            }
        }
        drop(store);
        self.forget(forgotten);
        for id in over {
            if let Some(hot) = self.rings.remove(&id) {
                self.arena.free(&hot.ring);
            }
        }
        let used = self.arena.used_bytes();
        self.look().hot_bytes = used;
    }

    /// Tracks of which nothing is left.
    fn forget(&mut self, tracks: Vec<(TrackId, Track)>) {
        for (id, track) in tracks {
            let key = track.definition.described.repacked();
            // Versions that knew packed ones only have made a second track beside a plain one.
            if self.by_description.get(&key) == Some(&id) {
                self.by_description.remove(&key);
            }
            self.catalogue.forget(&track.definition);
        }
    }

    /// Records that there are no rows between two times, and why. It is in the log with the next [`Writer::flush`], and durable with the next [`Writer::seal`].
    ///
    /// # Errors
    /// [`StoreError::NoTrack`]; [`StoreError::Io`] where the disk has not worked for so long that too many wait for it.
    pub fn gap(&mut self, gap: &Gap) -> Result<(), StoreError> {
        if self.unsynced.len() >= MAX_UNSYNCED_BYTES {
            self.flush()?;
            self.sync()?;
        }
        let store = self.store.clone();
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        let track = store.tracks.get_mut(&gap.track).ok_or(StoreError::NoTrack(gap.track.0))?;
        track.gaps.push(gap, &mut self.shared_gaps);
        drop(store);
        encode(&Record::Gap(gap.clone()), &[], &mut self.unsynced);
        Ok(())
    }

    pub(super) fn drop_oldest(&mut self) -> Result<bool, StoreError> {
        if !self.log.drop_oldest()? {
            return Ok(false);
        }
        let (oldest, bytes) = (self.log.oldest(), self.bytes());
        let mut store = self.look();
        store.bytes = bytes;
        store.batches.keep_from(oldest);
        store.tracks.values_mut().for_each(|track| track.index.keep_from(oldest));
        let kept_from_ns = store.oldest_ns().unwrap_or(0);
        store.tracks.values_mut().for_each(|track| track.gaps.keep_from(kept_from_ns));
        let over: Vec<TrackId> =
            store.tracks.iter().filter(|(_, track)| track.is_over(oldest)).map(|(id, _)| *id).collect();
        let forgotten = over.iter().filter_map(|id| store.tracks.remove_entry(id)).collect();
        drop(store);
        self.forget(forgotten);
        Ok(true)
    }

    /// Writes all definitions again.
    pub(super) fn write_catalogue(&mut self) -> Result<(), StoreError> {
        let definition = |(id, track): (&TrackId, &Track)| (*id, track.definition.clone());
        let all: Vec<(TrackId, Definition)> = self.look().tracks.iter().map(definition).collect();
        loop {
            match self.catalogue.write_again(all.iter().map(|(id, definition)| (*id, definition))) {
                Err(error) if is_disk_full(&error) && self.drop_oldest()? => self.dropped_for_room += 1,
                written => break written?,
            }
        }
        let bytes = self.bytes();
        self.look().bytes = bytes;
        Ok(())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.log.bytes() + self.catalogue.bytes()
    }
}

pub(super) fn owner(track: TrackId, described: &Packed) -> Owner {
    Owner { track, meta_crc: crc32c::crc32c(described.bytes()) }
}
