// SPDX-License-Identifier: Apache-2.0
//! Opening: what the log and the rings hold is found again, and what is missing is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use super::writer::{Hot, owner};
use super::{Config, DAMAGED, Store, Track, Writer};
use crate::arena::Arena;
use crate::batch::{Batch, Packer};
use crate::batches::{BatchRef, Batches};
use crate::catalogue::{Catalogue, Definition};
use crate::error::{StoreError, io_error};
use crate::gaps::Shared;
use crate::index::{TileRef, decode_leaf};
use crate::log::{Damaged, Log, Place};
use crate::record::{Frame, Gap, Record, TileHead, TrackId};
use crate::ring::{Owner, Ring};

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
    /// Bytes of definitions that are no records. Each stands twice.
    pub damaged_definition_bytes: u64,
    /// Rows that are missing between whole tiles; each such hole is a gap of its track by now.
    pub lost_rows: u64,
}

/// What is found in the log.
#[derive(Default)]
struct Finding {
    recovery: Recovery,
    tracks: BTreeMap<TrackId, Track>,
    /// Tiles of each track.
    tiles: BTreeMap<TrackId, u64>,
    batches: Batches,
    shared_gaps: Shared,
    /// Segments with anything but definitions.
    in_use: BTreeSet<u32>,
}

impl Store {
    /// Opens or makes a store and recovers what is there.
    ///
    /// # Errors
    /// [`StoreError`]. Damage is no error: see [`Recovery`].
    pub fn open(config: Config) -> Result<(Writer, Recovery), StoreError> {
        let mut finding = Finding::default();
        let (mut log, damaged) = Log::open(&config.dir, |place, frame, payload| finding.visit(place, frame, payload))?;
        let found = &Catalogue::read(&config.dir)?;
        finding.in_use.extend(damaged.iter().map(|damaged| damaged.place.segment));
        finding.recovery.damaged = damaged;
        finding.recovery.damaged_definition_bytes = found.damaged_bytes;
        for (id, definition) in &found.definitions {
            finding.track(*id).definition = definition.clone();
        }
        let Finding { mut recovery, mut tracks, tiles, batches, mut shared_gaps, in_use } = finding;
        let mut next = tracks.last_key_value().map_or(1, |(id, _)| id.0 + 1);
        tracks.retain(|id, track: &mut Track| {
            let known = !track.definition.described.bytes().is_empty();
            recovery.unknown_tiles += if known { 0 } else { tiles.get(id).copied().unwrap_or(0) };
            known
        });
        log.retain(|segment| in_use.contains(&segment))?;
        let (mut arena, left) = Arena::open(&config.hot, config.hot_bytes)?;
        let mut rings = BTreeMap::new();
        for ring in left {
            next = next.max(ring.owner().track.0.saturating_add(1));
            match adopt(&ring, &mut tracks, &mut recovery, &mut shared_gaps) {
                Some(hot) => drop(rings.insert(ring.owner().track, hot)),
                None => {
                    recovery.unknown_rings += 1;
                    arena.free(&ring);
                }
            }
        }
        let oldest = log.oldest();
        tracks.retain(|_, track| !track.is_over(oldest));
        let kept = tracks.iter().map(|(id, track)| (*id, &track.definition));
        let catalogue = Catalogue::open(&config.dir, found, kept)?;
        let by_description = tracks.iter().map(|(id, track)| (track.definition.described.repacked(), *id)).collect();
        let (bytes, hot_bytes) = (log.bytes() + catalogue.bytes(), arena.used_bytes());
        let store = Self { dir: config.dir.clone(), tracks, batches, bytes, hot_bytes };
        let packer = Packer::new().map_err(io_error("take memory for packing for", &config.dir))?;
        let mut writer = Writer {
            config,
            store: Arc::new(Mutex::new(store)),
            log,
            catalogue,
            arena,
            packer,
            rings,
            by_description,
            shared_gaps,
            next,
            unsynced: Vec::new(),
            written: 0,
            dropped_for_room: 0,
            is_broken: false,
        };
        writer.sync()?;
        Ok((writer, recovery))
    }
}

impl Finding {
    fn track(&mut self, id: TrackId) -> &mut Track {
        self.tracks.entry(id).or_insert_with(|| Track::new(Definition::default()))
    }

    fn visit(&mut self, place: Place, frame: &Frame, payload: &[u8]) {
        if frame.is_batch() {
            return self.visit_batch(place, payload);
        }
        if frame.is_tile() {
            if let Ok(head) = TileHead::parse(payload)
                && let Some(first) = self.count(&head, place)
            {
                self.track(head.track).index.tiles.push(TileRef::new(&head, place).beginning_at(first));
            }
            return;
        }
        match frame.decode(payload) {
            Ok(Record::Leaf(table)) => {
                let listed = decode_leaf(&table).unwrap_or_default();
                if self.track(table.track).index.put_away(&listed, place).is_some() {
                    self.in_use.insert(place.segment);
                }
            }
            // As earlier versions wrote them.
            Ok(Record::Definition { track, columns, meta }) => {
                self.track(track).definition = Definition::read(columns, &meta);
            }
            Ok(Record::Gap(gap)) => {
                self.in_use.insert(place.segment);
                self.track(gap.track);
                if let Some(track) = self.tracks.get_mut(&gap.track) {
                    track.gaps.push(&gap, &mut self.shared_gaps);
                }
            }
            _ => {}
        }
    }

    fn visit_batch(&mut self, place: Place, payload: &[u8]) {
        let Ok(batch) = Batch::parse(payload) else { return };
        let Some(listed) = BatchRef::new(place.offset, &batch.entries) else { return };
        self.batches.push(place.segment, listed);
        for entry in &batch.entries {
            if self.count(&entry.head, place).is_some() {
                self.track(entry.head.track).newest_segment = place.segment;
            }
        }
    }

    /// Counts a tile; returns its first row that no earlier one had.
    fn count(&mut self, head: &TileHead, place: Place) -> Option<u64> {
        self.in_use.insert(place.segment);
        *self.tiles.entry(head.track).or_default() += 1;
        self.track(head.track);
        let track = self.tracks.get_mut(&head.track)?;
        let last = head.first + u64::from(head.rows) - 1;
        if last <= track.durable {
            return None;
        }
        track.skip_to(head.track, head.first, head.from_ns, &mut self.recovery, &mut self.shared_gaps);
        let first = track.durable + 1;
        (track.durable, track.durable_until_ns) = (last, head.to_ns);
        self.recovery.tiles += 1;
        self.recovery.rows += last + 1 - first;
        Some(first)
    }
}

/// Gives a ring that was found to its track, if there is one.
fn adopt(
    ring: &Ring,
    tracks: &mut BTreeMap<TrackId, Track>,
    recovery: &mut Recovery,
    shared: &mut Shared,
) -> Option<Hot> {
    let is_of = |track: &Track, Owner { track: id, .. }: Owner| {
        track.ring.is_none()
            && track.definition.kinds.len() == ring.columns()
            && owner(id, &track.definition.described) == ring.owner()
    };
    let id = ring.owner().track;
    let track = tracks.get_mut(&id).filter(|track| is_of(track, ring.owner()))?;
    if let Some((first, last)) = ring.recover(track.durable) {
        track.skip_to(id, first, ring.time_ns(first), recovery, shared);
        recovery.hot_rows += last - first + 1;
    }
    track.ring = Some(ring.clone());
    Some(Hot::found(ring.clone(), track.definition.kinds.clone(), track.durable))
}

impl Track {
    /// The next row that there is has number `first`; rows before it that are not there were lost to damage, unless they were deleted with their segment.
    fn skip_to(&mut self, id: TrackId, first: u64, from_ns: u64, recovery: &mut Recovery, shared: &mut Shared) {
        let missing = first.saturating_sub(self.durable + 1);
        if missing > 0 && self.durable > 0 {
            recovery.lost_rows += missing;
            let gap = Gap { track: id, from_ns: self.durable_until_ns, to_ns: from_ns, reason: DAMAGED.into() };
            self.gaps.push(&gap, shared);
        }
        self.durable = self.durable.max(first - 1);
    }
}
