// SPDX-License-Identifier: Apache-2.0
//! Opening: what the log and the rings hold is found again, and what is missing is told.

use std::collections::{BTreeMap, BTreeSet};

use super::{Config, DAMAGED, Store, Track, meta_crc, track};
use crate::error::StoreError;
use crate::gaps::Shared;
use crate::index::{TileRef, decode_leaf};
use crate::log::{Damaged, Log, Place};
use crate::record::{Gap, Record, TileHead, TrackId};
use crate::ring::{Arena, Owner, Ring};

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

impl Store {
    /// Opens or makes a store and recovers what is there.
    ///
    /// # Errors
    /// [`StoreError`]. Damage is no error: see [`Recovery`].
    pub fn open(config: Config) -> Result<(Self, Recovery), StoreError> {
        let mut recovery = Recovery::default();
        let mut tracks = BTreeMap::new();
        let mut shared_gaps = Shared::default();
        let mut in_use = BTreeSet::new();
        let (log, damaged) = Log::open(&config.dir, |place, frame, payload| {
            if frame.is_tile() {
                if let Ok(head) = TileHead::parse(payload) {
                    in_use.insert(place.segment);
                    index(track(&mut tracks, head.track), &mut recovery, &mut shared_gaps, head, place);
                }
                return;
            }
            match frame.decode(payload) {
                Ok(Record::Leaf(table)) => {
                    let listed = decode_leaf(&table).unwrap_or_default();
                    if track(&mut tracks, table.track).index.put_away(&listed, place).is_some() {
                        in_use.insert(place.segment);
                    }
                }
                Ok(Record::Definition { track: id, columns, meta }) => {
                    let track = track(&mut tracks, id);
                    (track.kinds, track.meta) = (columns, meta.into());
                }
                Ok(Record::Gap(gap)) => {
                    in_use.insert(place.segment);
                    track(&mut tracks, gap.track).gaps.push(&gap, &mut shared_gaps);
                }
                _ => {}
            }
        })?;
        in_use.extend(damaged.iter().map(|damaged| damaged.place.segment));
        recovery.damaged = damaged;
        let next = tracks.last_key_value().map_or(1, |(id, _)| id.0 + 1);
        tracks.retain(|_, track: &mut Track| {
            let known = !track.meta.is_empty();
            recovery.unknown_tiles += if known { 0 } else { track.index.count() };
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
            shared_gaps,
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
                        track.skip_to(
                            owner.track,
                            first,
                            ring.copy(first, &mut values),
                            recovery,
                            &mut self.shared_gaps,
                        );
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
}

impl Track {
    /// The next row that there is has number `first`; rows before it that are not there were lost to damage, unless they were deleted with their segment.
    fn skip_to(&mut self, id: TrackId, first: u64, from_ns: u64, recovery: &mut Recovery, shared: &mut Shared) {
        let missing = first.saturating_sub(self.sealed + 1);
        if missing > 0 && self.sealed > 0 {
            recovery.lost_rows += missing;
            let gap = Gap { track: id, from_ns: self.sealed_until_ns, to_ns: from_ns, reason: DAMAGED.into() };
            self.gaps.push(&gap, shared);
        }
        self.sealed = self.sealed.max(first - 1);
    }
}

/// Takes a tile that was found in the log into the index.
fn index(track: &mut Track, recovery: &mut Recovery, shared: &mut Shared, head: TileHead, place: Place) {
    let last = head.first + u64::from(head.rows) - 1;
    if last <= track.sealed {
        return;
    }
    track.skip_to(head.track, head.first, head.from_ns, recovery, shared);
    let tile = TileRef::new(&head, place).beginning_at(track.sealed + 1);
    track.sealed = last;
    track.sealed_until_ns = head.to_ns;
    (track.durable, track.durable_until_ns) = (track.sealed, track.sealed_until_ns);
    track.index.tiles.push(tile);
    recovery.tiles += 1;
    recovery.rows += u64::from(tile.rows - tile.skip);
}
