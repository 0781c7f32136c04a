// SPDX-License-Identifier: Apache-2.0
//! Reading back: rows from tiles and rings, gaps, and how far they go.

use std::ops::ControlFlow;

use super::{DAMAGED, Store};
use crate::batch::Batch;
use crate::batches::BatchRef;
use crate::description::Packed;
use crate::error::StoreError;
use crate::index::{Leaf, TileRef, decode_leaf};
use crate::log::{Place, Reader};
use crate::record::{Gap, Record, Tile, TileHead, TrackId};
use crate::ring::{Ring, steady_ns};

impl Store {
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
        let hot = track.ring.as_ref().filter(|_| last > track.durable).map(|ring| ring.time_ns(last));
        hot.or_else(|| (track.durable > 0).then_some(track.durable_until_ns))
    }

    /// Whether a track has rows in hot memory or room for them.
    #[must_use]
    pub fn is_hot(&self, id: TrackId) -> bool {
        self.tracks.get(&id).is_some_and(|track| track.ring.is_some())
    }

    /// Whether somebody has a track's appender.
    #[must_use]
    pub fn is_appended(&self, id: TrackId) -> bool {
        self.tracks.get(&id).is_some_and(|track| track.is_appended)
    }

    /// Bytes of the log and of the definitions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the hot file that rings take.
    #[must_use]
    pub fn hot_bytes(&self) -> u64 {
        self.hot_bytes
    }

    /// Time of the oldest row in the log, ns.
    #[must_use]
    pub fn oldest_ns(&self) -> Option<u64> {
        let tiles = self.tracks.values().filter_map(|track| track.index.oldest_ns()).min();
        tiles.into_iter().chain(self.batches.oldest_ns()).min()
    }

    /// How long the row that has waited longest to be durable has been here, ns.
    #[must_use]
    pub fn durable_lag_ns(&self) -> Option<u64> {
        let waiting = self.tracks.values().filter_map(|track| {
            let ring = track.ring.as_ref().filter(|ring| ring.published() > track.durable)?;
            Some(ring.waiting_since_ns())
        });
        waiting.min().map(|since_ns| steady_ns().saturating_sub(since_ns))
    }

    /// All tracks, each with what it is.
    pub fn tracks(&self) -> impl Iterator<Item = (TrackId, &Packed)> {
        self.tracks.iter().map(|(id, track)| (*id, &track.definition.described))
    }

    /// The tracks of a host, the oldest first. Cost: a comparison for each track of the store.
    #[must_use]
    pub fn tracks_of(&self, host: &str) -> Vec<(TrackId, Packed)> {
        let is_of_host = Packed::is_of(host);
        let of_host = self.tracks().filter(|(_, described)| is_of_host(described));
        of_host.map(|(id, described)| (id, described.clone())).collect()
    }

    /// A track's gaps that touch a time.
    pub fn gaps(&self, id: TrackId, from_ns: u64, to_ns: u64) -> impl Iterator<Item = Gap> {
        let track = self.tracks.get(&id).into_iter();
        track.flat_map(move |track| track.gaps.between(id, from_ns, to_ns))
    }

    /// The rows of a track between two times (both included), to be looked at without the store: what is hot is copied, where the tiles are is written down.
    ///
    /// # Errors
    /// [`StoreError::NoTrack`].
    pub fn rows(&self, id: TrackId, from_ns: u64, to_ns: u64) -> Result<Rows, StoreError> {
        let track = self.tracks.get(&id).ok_or(StoreError::NoTrack(id.0))?;
        let mut hot = Vec::new();
        if let Some(ring) = &track.ring {
            for sequence in track.durable + 1..=ring.published() {
                let mut values = Vec::with_capacity(track.definition.kinds.len());
                let time_ns = ring.copy(sequence, &mut values);
                hot.push((sequence, time_ns, values));
            }
        }
        hot.retain(|(_, time_ns, _)| (from_ns..=to_ns).contains(time_ns));
        let touches = |first_ns: u64, last_ns: u64| first_ns <= to_ns && last_ns >= from_ns;
        let (leaves, tiles) = (track.index.leaves.iter(), track.index.tiles.iter());
        Ok(Rows {
            reader: Reader::new(&self.dir),
            track: id,
            columns: track.definition.kinds.len(),
            from_ns,
            to_ns,
            leaves: leaves.filter(|leaf| touches(leaf.from_ns, leaf.to_ns)).copied().collect(),
            tiles: tiles.filter(|tile| touches(tile.from_ns, tile.to_ns)).copied().collect(),
            batches: self.batches.between(id, from_ns, to_ns),
            durable: track.durable,
            hot,
            next: 0,
            until_ns: from_ns,
            unread: None,
        })
    }

    /// Gives all rows of a track between two times (both included) to `visit`, as [`Rows::read`] does.
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
        self.rows(id, from_ns, to_ns)?.read(|sequence, time_ns, values| {
            visit(sequence, time_ns, values);
            ControlFlow::Continue(())
        })
    }
}

/// Rows of a track, as they were when [`Store::rows`] was asked for them. Reading them takes time, and the store goes on meanwhile: what it deletes is not there
/// any more, and is no gap.
#[derive(Debug)]
pub struct Rows {
    reader: Reader,
    track: TrackId,
    columns: usize,
    from_ns: u64,
    to_ns: u64,
    leaves: Vec<Leaf>,
    tiles: Vec<TileRef>,
    batches: Vec<(Place, BatchRef)>,
    /// The last row in the log.
    durable: u64,
    /// Sequence number, time and values.
    hot: Vec<(u64, u64, Vec<u64>)>,
    /// The row that comes next, 0 before the first one is known: a row that was sealed twice is there once.
    next: u64,
    /// Time of the last row.
    until_ns: u64,
    /// Time of batches since then that are not what was written; whether this track had rows in them, the next row's number says.
    unread: Option<(u64, u64)>,
}

impl Rows {
    /// Gives the rows to `visit`, until it has enough: sequence number, time and values, in the order in which they were appended. Tiles that turn out to be
    /// damaged are returned as gaps.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn read(mut self, mut visit: impl FnMut(u64, u64, &[u64]) -> ControlFlow<()>) -> Result<Vec<Gap>, StoreError> {
        let mut damaged = Vec::new();
        for leaf in std::mem::take(&mut self.leaves) {
            for tile in self.tiles_of(&leaf, &mut damaged)? {
                if self.read_tile(&tile, &mut damaged, &mut visit)?.is_break() {
                    return Ok(damaged);
                }
            }
        }
        for tile in std::mem::take(&mut self.tiles) {
            if self.read_tile(&tile, &mut damaged, &mut visit)?.is_break() {
                return Ok(damaged);
            }
        }
        for (place, batch) in std::mem::take(&mut self.batches) {
            if self.read_batch(place, &batch, &mut damaged, &mut visit)?.is_break() {
                return Ok(damaged);
            }
        }
        if self.next <= self.durable {
            damaged.extend(self.unread.take().map(|(from_ns, to_ns)| self.damage(from_ns, to_ns)));
        }
        for (sequence, time_ns, values) in std::mem::take(&mut self.hot) {
            if sequence >= self.next && visit(sequence, time_ns, &values).is_break() {
                break;
            }
        }
        Ok(damaged)
    }

    fn read_tile(
        &mut self,
        at: &TileRef,
        damaged: &mut Vec<Gap>,
        visit: &mut impl FnMut(u64, u64, &[u64]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        if at.from_ns > self.to_ns || at.to_ns < self.from_ns {
            return Ok(ControlFlow::Continue(()));
        }
        match self.reader.read(at.place)? {
            None => {}
            Some(Ok(Record::Tile(tile))) if tile.track == self.track && tile.columns.len() == self.columns => {
                return Ok(self.give(&tile, at.skip.into(), visit));
            }
            Some(_) => damaged.push(self.damage(at.from_ns, at.to_ns)),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn read_batch(
        &mut self,
        place: Place,
        at: &BatchRef,
        damaged: &mut Vec<Gap>,
        visit: &mut impl FnMut(u64, u64, &[u64]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let tiles = match self.reader.read(place)? {
            None => return Ok(ControlFlow::Continue(())),
            Some(Ok(Record::Batch(payload))) => {
                let tiles = Batch::parse(&payload).and_then(|batch| batch.tiles(self.track));
                tiles.ok().filter(|tiles| tiles.iter().all(|tile| tile.columns.len() == self.columns))
            }
            Some(_) => None,
        };
        let Some(tiles) = tiles else {
            let from_ns = self.unread.map_or(if self.next > 0 { self.until_ns } else { at.from_ns }, |unread| unread.0);
            self.unread = Some((from_ns, at.to_ns));
            return Ok(ControlFlow::Continue(()));
        };
        for tile in tiles {
            if let Some((from_ns, _)) = self.unread.take()
                && (self.next == 0 || tile.first > self.next)
            {
                damaged.push(self.damage(from_ns, tile.times_ns[0]));
            }
            if self.give(&tile, 0, visit).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Gives the rows of a tile that are asked for and were not given before.
    fn give(
        &mut self,
        tile: &Tile,
        skip: usize,
        visit: &mut impl FnMut(u64, u64, &[u64]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut values = Vec::with_capacity(self.columns);
        for (row, time_ns) in tile.times_ns.iter().enumerate().skip(skip) {
            let sequence = tile.first + row as u64;
            if sequence < self.next {
                continue;
            }
            (self.next, self.until_ns) = (sequence + 1, *time_ns);
            if (self.from_ns..=self.to_ns).contains(time_ns) {
                values.clear();
                values.extend(tile.columns.iter().map(|column| column[row]));
                visit(sequence, *time_ns, &values)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The tiles of a leaf; those that are in its segment where the leaf itself is not what was written, and gaps in `damaged` for those that are not.
    fn tiles_of(&mut self, leaf: &Leaf, damaged: &mut Vec<Gap>) -> Result<Vec<TileRef>, StoreError> {
        if let Ok(Some(Ok(Record::Leaf(table)))) = self.reader.read(leaf.place)
            && let Some(tiles) = decode_leaf(&table).filter(|tiles| table.track == self.track && leaf.is_of(tiles))
        {
            return Ok(tiles);
        }
        let mut tiles: Vec<TileRef> = Vec::new();
        let (mut next, mut until_ns) = (leaf.first, leaf.from_ns);
        let is_there = self.reader.look_through(leaf.segment, |place, frame, payload| {
            let head = frame.is_tile().then(|| TileHead::parse(payload).ok()).flatten();
            let Some(head) = head.filter(|head| head.track == self.track) else { return };
            let tile = TileRef::new(&head, place).beginning_at(next);
            if tile.last() < next || tile.last() > leaf.last {
                return;
            }
            if tile.first > next {
                damaged.push(self.damage(until_ns, tile.from_ns));
            }
            (next, until_ns) = (tile.last() + 1, tile.to_ns);
            tiles.push(tile);
        })?;
        if is_there && next <= leaf.last {
            damaged.push(self.damage(until_ns, leaf.to_ns));
        }
        Ok(tiles)
    }

    fn damage(&self, from_ns: u64, to_ns: u64) -> Gap {
        Gap { track: self.track, from_ns, to_ns, reason: DAMAGED.into() }
    }
}
