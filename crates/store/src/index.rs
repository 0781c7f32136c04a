// SPDX-License-Identifier: Apache-2.0
//! Where a track's tiles are in logs of versions 1 and 2, which had a record for each tile: some in memory, the others in *leaves*, records that list tiles.
//!
//! A leaf lists durable tiles of one segment and lies in that segment or a later one, so that it is there as long as they are. It only saves looking: a lost one
//! is replaced by a look through the segment. Nothing of it is written any more.

use crate::log::Place;
use crate::record::{Tile, TileHead};

/// A tile in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TileRef {
    /// Sequence number of its first row.
    pub(crate) first: u64,
    /// Earliest time of a row, ns.
    pub(crate) from_ns: u64,
    /// Latest time of a row, ns.
    pub(crate) to_ns: u64,
    /// Where it is.
    pub(crate) place: Place,
    /// Rows.
    pub(crate) rows: u16,
    /// Rows at its beginning that an earlier tile has, too: it was sealed again after a failed sync.
    pub(crate) skip: u16,
}

impl TileRef {
    /// A tile with this head, all rows of which count.
    pub(crate) fn new(head: &TileHead, place: Place) -> Self {
        let rows = u16::try_from(head.rows).unwrap_or(u16::MAX); // at most MAX_TILE_ROWS
        Self { first: head.first, from_ns: head.from_ns, to_ns: head.to_ns, place, rows, skip: 0 }
    }

    /// Sequence number of its last row.
    pub(crate) fn last(&self) -> u64 {
        self.first + u64::from(self.rows) - 1
    }

    /// Leaves out what lies before row `first`.
    pub(crate) fn beginning_at(mut self, first: u64) -> Self {
        self.skip = u16::try_from(first.saturating_sub(self.first)).unwrap_or(u16::MAX);
        self
    }
}

/// Tiles that a record of the log lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// Where the record is.
    pub(crate) place: Place,
    /// Segment of the tiles.
    pub(crate) segment: u32,
    /// How many they are.
    pub(crate) tiles: u32,
    /// Sequence number of the first row.
    pub(crate) first: u64,
    /// Sequence number of the last row.
    pub(crate) last: u64,
    /// Earliest time, ns.
    pub(crate) from_ns: u64,
    /// Latest time, ns.
    pub(crate) to_ns: u64,
}

impl Leaf {
    fn new(place: Place, tiles: &[TileRef]) -> Option<Self> {
        let (first, last) = (tiles.first()?, tiles.last()?);
        Some(Self {
            place,
            segment: first.place.segment,
            tiles: u32::try_from(tiles.len()).ok()?,
            first: first.first + u64::from(first.skip),
            last: last.last(),
            from_ns: tiles.iter().map(|tile| tile.from_ns).min()?,
            to_ns: tiles.iter().map(|tile| tile.to_ns).max()?,
        })
    }

    /// Whether these are the tiles that it was made of.
    pub(crate) fn is_of(&self, tiles: &[TileRef]) -> bool {
        Self::new(self.place, tiles) == Some(*self)
    }
}

/// All tiles of a track, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Oldest first, all before `tiles`.
    pub(crate) leaves: Vec<Leaf>,
    /// Those that no leaf has.
    pub(crate) tiles: Vec<TileRef>,
}

impl Index {
    /// How many tiles there are.
    pub(crate) fn count(&self) -> u64 {
        self.leaves.iter().map(|leaf| u64::from(leaf.tiles)).sum::<u64>() + self.tiles.len() as u64
    }

    /// Earliest time of the oldest tile, ns.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        let leaf = self.leaves.first().map(|leaf| leaf.from_ns);
        leaf.or_else(|| self.tiles.first().map(|tile| tile.from_ns))
    }

    /// Forgets what lay in segments before `oldest`.
    pub(crate) fn keep_from(&mut self, oldest: u32) {
        self.leaves.retain(|leaf| leaf.segment >= oldest);
        self.tiles.retain(|tile| tile.place.segment >= oldest);
    }

    /// Replaces the oldest tiles in memory by the leaf at `place`; `None` where it lists others than these.
    pub(crate) fn put_away(&mut self, listed: &[TileRef], place: Place) -> Option<()> {
        let leaf = Leaf::new(place, listed).filter(|_| self.tiles.starts_with(listed))?;
        self.leaves.push(leaf);
        self.tiles.drain(..listed.len());
        Some(())
    }
}

/// The tiles that a leaf's record lists; `None` where it makes no sense.
pub(crate) fn decode_leaf(table: &Tile) -> Option<Vec<TileRef>> {
    let [segments, offsets, firsts, rows, to_ns, skips] = &table.columns[..] else { return None };
    let tile = |row: usize| {
        Some(TileRef {
            first: firsts[row],
            from_ns: table.times_ns[row],
            to_ns: to_ns[row],
            place: Place { segment: u32::try_from(segments[row]).ok()?, offset: offsets[row] },
            rows: u16::try_from(rows[row]).ok().filter(|rows| *rows > 0)?,
            skip: u16::try_from(skips[row]).ok()?,
        })
    };
    (0..table.times_ns.len()).map(tile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_takes_the_place_of_the_oldest_tiles() {
        let tile = |i: u64| TileRef {
            first: 1 + 64 * i,
            from_ns: 1_000 + 640 * i,
            to_ns: 1_630 + 640 * i,
            place: Place { segment: 1 + u32::from(i == 63), offset: 24 + 1_000 * i },
            rows: 64,
            skip: 0,
        };
        let all: Vec<TileRef> = (0..64).map(tile).collect();
        let mut index = Index { leaves: Vec::new(), tiles: all.clone() };
        let place = Place { segment: 2, offset: 8 };
        assert_eq!(index.put_away(&all[1..63], place), None, "not the oldest");
        assert_eq!(index.put_away(&all[..63], place), Some(()));
        assert_eq!((index.count(), index.tiles.len(), index.leaves[0].last), (64, 1, 63 * 64));
        assert!(index.leaves[0].is_of(&all[..63]) && !index.leaves[0].is_of(&all[1..63]));
        index.keep_from(2);
        assert_eq!((index.count(), index.leaves.len()), (1, 0));
    }
}
