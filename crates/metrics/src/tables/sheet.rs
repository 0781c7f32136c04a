// SPDX-License-Identifier: Apache-2.0
//! Rows of a table that is written as a whole: one run puts every row that there is, then each block is committed once.
//!
//! [`onlooker_region::table::Table`] commits a block for every row that changes; with thousands of rows a run that would be most of its cost. A sheet keeps the words in
//! private memory and copies each block once. Written by one thread; readers see blocks (docs/format/table.md).
//!
//! Invariants: a row belongs to one *entity* (a socket's cookie, a cgroup's inode, a process's start) under its key; the same key with another entity is another row
//! generation, so nobody compares the new one's counters with the old one's. A row that a run does not put is free after it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use onlooker_region::block::Identity;
use onlooker_region::guard::commit;
use onlooker_region::limits::{BLOCK_WORDS, GUARDED_SLOTS};
use onlooker_region::map::Map;
use onlooker_region::table::{LIVE, Layout};

const GENERATION: u64 = 0xffff_ffff;

/// For [`Sheet::put_at`]: the entity's row is not known.
pub const NO_ROW: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, Default)]
struct Owner {
    entity: u64,
    /// The last run that put it, from 1 on; 0: the row is free.
    run: u64,
}

/// Why a row was not put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unplaced {
    /// All rows are taken. After [`Sheet::sweep`] some may be free.
    Full,
    /// This run has put another entity under the same key.
    Twice,
}

/// A row that was put.
#[derive(Debug)]
pub struct Placed<'a> {
    /// Its row, for [`Sheet::put_at`].
    pub row: u32,
    /// Its values, as the last run left them; all 0 where it is new.
    pub values: &'a mut [u64],
    /// Whether its entity had no row before.
    pub is_new: bool,
}

/// The sheet, with keys of `K` words.
pub struct Sheet<const K: usize> {
    layout: Layout,
    memory: Map,
    first: Identity,
    words: Vec<u64>,
    owners: Vec<Owner>,
    index: HashMap<[u64; K], u32>,
    free: Vec<u32>,
    /// Blocks to be committed although no row in them is live.
    emptied: Vec<bool>,
    run: u64,
}

impl<const K: usize> Sheet<K> {
    /// Takes over the group's `memory`, whose first block has identity `first`, with at most `rows` rows, all free. Every block is committed, so that an empty table
    /// is readable.
    ///
    /// # Panics
    /// If keys are not of the layout's length, or `memory` is too short.
    #[must_use]
    pub fn new(layout: Layout, rows: usize, memory: Map, first: Identity, now_ns: u64) -> Self {
        let blocks = memory.words().len() / BLOCK_WORDS;
        assert!(layout.key_words == K && rows <= blocks * layout.rows_per_block());
        let free = (0..u32::try_from(rows).unwrap_or(u32::MAX)).rev().collect();
        let mut sheet = Self {
            layout,
            memory,
            first,
            words: vec![0; rows * layout.row_words()],
            owners: vec![Owner::default(); rows],
            index: HashMap::with_capacity(rows.min(1024)),
            free,
            emptied: vec![true; blocks],
            run: 0,
        };
        sheet.commit(now_ns);
        sheet
    }

    /// Live rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether no row is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Row, generation and entity of each live row; for tests and diagnosis.
    pub fn live(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        let rows = self.words.chunks_exact(self.layout.row_words()).zip(&self.owners).enumerate();
        let live = rows.filter(|(_, (words, _))| words[0] & LIVE != 0);
        live.map(|(row, (words, owner))| (row, words[0] & GENERATION, owner.entity))
    }

    /// Begins a run.
    pub fn begin(&mut self) {
        self.run += 1;
    }

    /// The row of an entity in this run.
    ///
    /// # Errors
    /// [`Unplaced`].
    pub fn put(&mut self, key: &[u64; K], entity: u64) -> Result<Placed<'_>, Unplaced> {
        self.put_at(NO_ROW, key, entity)
    }

    /// The same, with the row that the entity had when it was last put: while it has it still, its key is compared, not hashed.
    ///
    /// # Errors
    /// [`Unplaced`].
    pub fn put_at(&mut self, row: u32, key: &[u64; K], entity: u64) -> Result<Placed<'_>, Unplaced> {
        let (words, run) = (self.layout.row_words(), self.run);
        let (row, is_new) = if self.is_row_of(row, key, entity) {
            (row, false)
        } else {
            match self.index.entry(*key) {
                Entry::Occupied(known) => {
                    let owner = self.owners[*known.get() as usize];
                    if owner.run == run && owner.entity != entity {
                        return Err(Unplaced::Twice);
                    }
                    (*known.get(), owner.entity != entity)
                }
                Entry::Vacant(place) => (*place.insert(self.free.pop().ok_or(Unplaced::Full)?), true),
            }
        };
        let at = row as usize;
        self.owners[at] = Owner { entity, run };
        let all = &mut self.words[at * words..][..words];
        if is_new {
            // 0 means "never used".
            let generation = ((all[0] + 1) & GENERATION).max(1);
            all[0] = LIVE | generation;
            all[1..=K].copy_from_slice(key);
            all[1 + K..].fill(0);
        }
        Ok(Placed { row, values: &mut all[1 + K..], is_new })
    }

    /// Whether a row is live, of this entity and under this key: a socket that is connected anew keeps its cookie.
    fn is_row_of(&self, row: u32, key: &[u64; K], entity: u64) -> bool {
        let at = row as usize;
        let Some(owner) = self.owners.get(at) else { return false };
        let is_owner = owner.run != 0 && owner.entity == entity;
        is_owner && self.words[at * self.layout.row_words()..][1..=K] == key[..]
    }

    /// Whether a key has a row.
    #[must_use]
    pub fn contains(&self, key: &[u64; K]) -> bool {
        self.index.contains_key(key)
    }

    /// Frees what this run has not put. `ended` is told of each with its key and values.
    pub fn sweep(&mut self, mut ended: impl FnMut(&[u64; K], &[u64])) {
        let (words, run, per_block) = (self.layout.row_words(), self.run, self.layout.rows_per_block());
        let Self { index, owners, words: all, free, emptied, .. } = self;
        for (at, (owner, row_words)) in owners.iter_mut().zip(all.chunks_exact_mut(words)).enumerate() {
            if owner.run == 0 || owner.run == run {
                continue;
            }
            if let Some((key, row)) = row_words[1..].first_chunk::<K>().and_then(|key| index.remove_entry(key)) {
                ended(&key, &row_words[1 + K..]);
                free.push(row);
            }
            *owner = Owner::default();
            row_words[0] &= GENERATION;
            row_words[1..].fill(0);
            emptied[at / per_block] = true;
        }
    }

    /// Writes all blocks with live rows, and those that had one before.
    pub fn commit(&mut self, now_ns: u64) {
        let (words, per_block) = (self.layout.row_words(), self.layout.rows_per_block());
        for (block, memory) in self.memory.words().chunks_exact(BLOCK_WORDS).enumerate() {
            let begin = (block * per_block * words).min(self.words.len());
            let end = (begin + per_block * words).min(self.words.len());
            let rows = &self.words[begin..end];
            let is_live = rows.chunks_exact(words).any(|row| row[0] & LIVE != 0);
            if !is_live && !self.emptied[block] {
                continue;
            }
            self.emptied[block] = false;
            debug_assert!(rows.len() <= GUARDED_SLOTS);
            let index = u16::try_from(usize::from(self.first.index) + block).unwrap_or(u16::MAX);
            commit(memory, self.first.at(index), now_ns, |payload| payload.set_all(0, rows));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use onlooker_region::Block;
    use onlooker_region::guard;
    use onlooker_region::map::sealed_memfd;
    use onlooker_region::table::rows;

    const ME: Identity = Identity { region: 3, generation: 7, index: 2 };
    const LAYOUT: Layout = Layout { key_words: 1, value_words: 39 };

    /// Memory of so many blocks.
    pub(in crate::tables) fn memory(blocks: u64) -> Map {
        let bytes = blocks * 1024;
        Map::of(sealed_memfd("test", bytes).unwrap(), 0, bytes, true).unwrap()
    }

    fn sheet(rows: usize) -> (Map, Sheet<1>) {
        let memory = memory(2);
        (memory.clone(), Sheet::new(LAYOUT, rows, memory, ME, 1))
    }

    /// Key, generation and first value of each live row, as a reader sees them.
    fn read(memory: &Map) -> Vec<(u64, u32, u64)> {
        let mut all = Vec::new();
        for (number, words) in (2..).zip(memory.words().chunks_exact(BLOCK_WORDS)) {
            let mut block = Block::default();
            block.copy_from(words);
            let accepted = guard::check(&block, ME.at(number)).unwrap();
            all.extend(rows(LAYOUT, accepted.payload()).map(|row| (row.key[0], row.generation, row.values[0])));
        }
        all.sort_unstable();
        all
    }

    fn run(sheet: &mut Sheet<1>, entities: &[(u64, u64)]) -> (Vec<Unplaced>, Vec<u64>) {
        sheet.begin();
        let mut again = Vec::new();
        let mut unplaced = Vec::new();
        for (key, entity) in entities {
            match sheet.put(&[*key], *entity) {
                Ok(placed) => placed.values[0] += entity,
                Err(Unplaced::Full) => again.push((*key, *entity)),
                Err(why) => unplaced.push(why),
            }
        }
        let mut ended = Vec::new();
        sheet.sweep(|key, _| ended.push(key[0]));
        for (key, entity) in again {
            match sheet.put(&[key], entity) {
                Ok(placed) => placed.values[0] += entity,
                Err(why) => unplaced.push(why),
            }
        }
        sheet.commit(9);
        ended.sort_unstable();
        (unplaced, ended)
    }

    #[test]
    fn a_key_of_another_entity_is_another_row_generation() {
        let (memory, mut sheet) = sheet(6);
        assert!(read(&memory).is_empty());
        assert_eq!(run(&mut sheet, &[(1, 10), (2, 20)]), (vec![], vec![]));
        assert_eq!(run(&mut sheet, &[(1, 10), (2, 21)]), (vec![], vec![]));
        assert_eq!(read(&memory), [(1, 1, 20), (2, 2, 21)], "values go on, those of a new entity begin at 0");
        assert_eq!(run(&mut sheet, &[(2, 21)]), (vec![], vec![1]));
        assert_eq!(run(&mut sheet, &[(1, 10), (2, 21)]).0, []);
        assert_eq!(read(&memory)[0].1, 2, "ended and came again: a new row, although key and entity are the same");
    }

    #[test]
    fn a_full_sheet_says_so_and_rows_that_end_make_room_in_the_same_run() {
        let (memory, mut sheet) = sheet(5);
        let first: Vec<(u64, u64)> = (0..5).map(|key| (key, 100)).collect();
        assert_eq!(run(&mut sheet, &first).0, []);
        assert_eq!(run(&mut sheet, &[first.clone(), vec![(9, 1)]].concat()).0, [Unplaced::Full]);
        let second: Vec<(u64, u64)> = (10..16).map(|key| (key, 200)).collect();
        assert_eq!(run(&mut sheet, &second), (vec![Unplaced::Full], vec![0, 1, 2, 3, 4]));
        let seen = read(&memory);
        assert_eq!(seen.iter().map(|row| row.1).collect::<Vec<_>>(), [2; 5], "each row is another one's now");
        assert_eq!(sheet.len(), 5);
        assert_eq!(run(&mut sheet, &[(7, 1), (7, 2)]).0, [Unplaced::Twice]);
        assert_eq!(read(&memory), [(7, 3, 1)]);
    }

    #[test]
    fn a_known_row_is_taken_only_while_it_is_the_entitys_under_its_key() {
        let (memory, mut sheet) = sheet(6);
        let put = |sheet: &mut Sheet<1>, row, key, entity| {
            let Placed { row, values, is_new } = sheet.put_at(row, &[key], entity)?;
            values[0] += 1;
            Ok::<_, Unplaced>((row, is_new))
        };
        sheet.begin();
        let (row, is_new) = put(&mut sheet, NO_ROW, 1, 10).unwrap();
        assert!(is_new);
        assert_eq!(put(&mut sheet, row + 1, 0, 0), Ok((row + 1, true)), "a free row is nobody's, although it is all 0");
        sheet.begin();
        let kept = std::mem::take(&mut sheet.index);
        assert_eq!(put(&mut sheet, row, 1, 10), Ok((row, false)), "the index is not asked");
        sheet.index = kept;
        assert_eq!(put(&mut sheet, row, 1, 11), Err(Unplaced::Twice), "another entity");
        let (other, is_new) = put(&mut sheet, row, 2, 10).unwrap();
        assert!(is_new && other != row, "another key");
        sheet.sweep(|_, _| ());
        sheet.commit(2);
        assert_eq!(read(&memory), [(1, 1, 2), (2, 1, 1)]);
        sheet.begin();
        assert_eq!(put(&mut sheet, row, 1, 11), Ok((row, true)), "the key is another entity's now");
        assert_eq!(put(&mut sheet, row, 1, 10), Err(Unplaced::Twice));
        sheet.begin();
        sheet.sweep(|_, _| ());
        assert!(put(&mut sheet, row, 1, 11).unwrap().1, "it was free in between");
    }
}
