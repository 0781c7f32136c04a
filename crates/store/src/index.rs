// SPDX-License-Identifier: Apache-2.0
//! Where a track's tiles are: the newest in memory, the others in *leaves*, records of the log that list tiles.
//!
//! Memory stays bounded by the number of tracks and grows by one [`Leaf`] (56 bytes) for [`LEAF_TILES`] tiles. A leaf lists durable tiles of one segment and
//! lies in that segment or a later one, so that it is there as long as they are. It only saves looking: a lost one is replaced by a look through the segment.

use crate::column::Kind;
use crate::log::Place;
use crate::record::{Record, Tile, TileHead, TrackId, encode};

/// Tiles that a track has in memory before they go into a leaf.
pub(crate) const LEAF_TILES: usize = 64;
/// Tiles of a segment that is complete which are worth a leaf: tracks with a row every few seconds have a tile for each, and would keep 64 of them for minutes.
const LEAST_TILES: usize = 8;
const COLUMNS: usize = 6;

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

    /// Tiles that are due for a leaf, all of one segment; to be given to [`Index::put_away`].
    pub(crate) fn due(&self) -> Option<&[TileRef]> {
        let oldest = self.tiles.chunk_by(|a, b| a.place.segment == b.place.segment).next()?;
        let is_complete = oldest.len() < self.tiles.len() && oldest.len() >= LEAST_TILES;
        (is_complete || self.tiles.len() >= LEAF_TILES).then_some(oldest)
    }

    /// Replaces the oldest tiles in memory by the leaf at `place`; `None` where it lists others than these.
    pub(crate) fn put_away(&mut self, listed: &[TileRef], place: Place) -> Option<()> {
        let leaf = Leaf::new(place, listed).filter(|_| self.tiles.starts_with(listed))?;
        self.leaves.push(leaf);
        self.tiles.drain(..listed.len());
        Some(())
    }
}

/// Appends a leaf's record: a table like a tile's, with a row for each tile.
pub(crate) fn encode_leaf(track: TrackId, tiles: &[TileRef], out: &mut Vec<u8>) {
    let column = |word: fn(&TileRef) -> u64| tiles.iter().map(word).collect::<Vec<_>>();
    let table = Tile {
        track,
        first: tiles[0].first,
        times_ns: column(|tile| tile.from_ns),
        columns: vec![
            column(|tile| tile.place.segment.into()),
            column(|tile| tile.place.offset),
            column(|tile| tile.first),
            column(|tile| tile.rows.into()),
            column(|tile| tile.to_ns),
            column(|tile| tile.skip.into()),
        ],
    };
    encode(&Record::Leaf(table), &[Kind::Integer; COLUMNS], out);
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
    use crate::record::{Frame, HEADER_BYTES};

    fn tiles(count: u16, segment: u32) -> Vec<TileRef> {
        let tile = |i: u16| TileRef {
            first: 1 + 64 * u64::from(i),
            from_ns: 1_700_000_000_000_000_000 + 640_000_000 * u64::from(i),
            to_ns: 1_700_000_000_630_000_000 + 640_000_000 * u64::from(i),
            place: Place { segment, offset: 24 + 100_000 * u64::from(i) + u64::from(i % 7) * 8 },
            rows: 64,
            skip: 0,
        };
        (0..count).map(tile).collect()
    }

    #[test]
    fn a_leaf_is_read_as_it_was_written_and_is_small() {
        let tiles = tiles(32, 9);
        let mut bytes = Vec::new();
        encode_leaf(TrackId(4), &tiles, &mut bytes);
        assert!(bytes.len() < 32 * 12, "{} bytes for 32 tiles", bytes.len());
        let frame = Frame::parse(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
        assert!(frame.is_leaf() && !frame.is_tile());
        let payload = &bytes[HEADER_BYTES..HEADER_BYTES + frame.payload_bytes];
        let Ok(Record::Leaf(table)) = frame.decode(payload) else { panic!("no leaf") };
        assert_eq!((table.track, decode_leaf(&table)), (TrackId(4), Some(tiles)));
    }

    #[test]
    fn tiles_of_one_segment_go_into_a_leaf_when_there_are_enough() {
        let mut index = Index { leaves: Vec::new(), tiles: tiles(63, 1) };
        assert_eq!(index.due(), None);
        index.tiles.push(TileRef { place: Place { segment: 2, offset: 24 }, first: 63 * 64 + 1, ..tiles(1, 2)[0] });
        let due = index.due().unwrap().to_vec();
        assert_eq!(due.len(), LEAF_TILES - 1, "those of segment 1");
        let place = Place { segment: 2, offset: 8 };
        assert_eq!(index.put_away(&due[1..], place), None, "not the oldest");
        assert_eq!(index.put_away(&due, place), Some(()));
        assert_eq!((index.count(), index.tiles.len(), index.leaves[0].last), (64, 1, 63 * 64));
        assert!(index.leaves[0].is_of(&due) && !index.leaves[0].is_of(&due[1..]));
        index.keep_from(2);
        assert_eq!((index.count(), index.leaves.len()), (1, 0));
    }

    #[test]
    fn few_tiles_go_into_a_leaf_when_their_segment_is_complete() {
        let next = TileRef { first: 1_000, ..tiles(1, 2)[0] };
        for (count, due) in [(7, None), (8, Some(8))] {
            let mut index = Index { leaves: Vec::new(), tiles: tiles(count, 1) };
            assert_eq!(index.due(), None);
            index.tiles.push(next);
            assert_eq!(index.due().map(<[_]>::len), due);
        }
    }
}
