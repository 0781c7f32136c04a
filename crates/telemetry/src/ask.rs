// SPDX-License-Identifier: Apache-2.0
//! Values and counts by key.

use onlooker_dta::Geometry;
use onlooker_dta::hash::Hash;
use onlooker_dta::increment::{self, Counters, Epoch};
use onlooker_dta::key_write::{Consensus, Found, MAX_COPIES, Stamp, Table as KeyWrite};
use onlooker_region::Block;

use crate::memory::{AskError, Readable, part};
use crate::table::Table;

/// What a table has of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Nothing, or nothing any more.
    Empty,
    /// A value.
    Value {
        /// The payload.
        payload: Vec<u8>,
        /// When it was written.
        stamp: Stamp,
        /// How many of its copies are there.
        copies: u8,
        /// Copies of other values are there, too.
        is_disputed: bool,
    },
    /// Different values, none of which counts.
    Conflict,
}

impl From<Found<'_>> for Asked {
    fn from(found: Found<'_>) -> Self {
        match found {
            Found::Empty => Self::Empty,
            Found::Conflict => Self::Conflict,
            Found::Value { payload, stamp, copies, is_disputed } => {
                Self::Value { payload: payload.to_vec(), stamp, copies, is_disputed }
            }
        }
    }
}

/// How often a key was counted; by chance more, never less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// In the epoch that counts.
    pub now: u64,
    /// In the one before, if there was one.
    pub before: Option<u64>,
}

/// The values of keys. Entries that are being written fit no key, so a key that is looked for at that instant is asked for once more.
///
/// # Errors
/// [`AskError`].
pub fn values(
    memory: &mut (impl Readable + ?Sized),
    table: &Table,
    keys: &[impl AsRef<[u8]>],
    consensus: Consensus,
) -> Result<Vec<Asked>, AskError> {
    let Geometry::KeyWrite(of) = table.geometry else { return Err(other(table)) };
    let hashes: Vec<Hash> = keys.iter().map(|key| of.hash(key.as_ref())).collect();
    let mut blocks = Vec::new();
    let mut found = look(memory, table, &of, &hashes, consensus, &mut blocks)?;
    let missing: Vec<usize> = (0..found.len()).filter(|at| found[*at] == Asked::Empty).collect();
    if !missing.is_empty() {
        let again: Vec<Hash> = missing.iter().map(|at| hashes[*at]).collect();
        let again = look(memory, table, &of, &again, consensus, &mut blocks)?;
        for (at, asked) in missing.into_iter().zip(again) {
            found[at] = asked;
        }
    }
    Ok(found)
}

fn look(
    memory: &mut (impl Readable + ?Sized),
    table: &Table,
    of: &KeyWrite,
    hashes: &[Hash],
    consensus: Consensus,
    blocks: &mut Vec<Block>,
) -> Result<Vec<Asked>, AskError> {
    let offsets: Vec<u64> = hashes.iter().flat_map(|hash| (0..MAX_COPIES).map(|copy| of.offset(hash, copy))).collect();
    memory.blocks(table, &offsets, blocks)?;
    let copies = usize::from(MAX_COPIES);
    let asked =
        hashes.iter().zip(offsets.chunks(copies).zip(blocks.chunks(copies))).map(|(hash, (offsets, blocks))| {
            let entries =
                std::array::from_fn(|at| part(&blocks[at], offsets[at], of.entry_bytes()).unwrap_or_default());
            of.find(hash, entries, consensus).into()
        });
    Ok(asked.collect())
}

/// The epoch that counts.
///
/// # Errors
/// [`AskError`].
pub fn epoch(memory: &mut (impl Readable + ?Sized), table: &Table) -> Result<Epoch, AskError> {
    let Geometry::KeyIncrement(_) = table.geometry else { return Err(other(table)) };
    let mut blocks = Vec::new();
    memory.blocks(table, &[0], &mut blocks)?;
    Ok(blocks.first().map(Block::bytes).and_then(<[u8]>::first_chunk).map(Epoch::from_bytes).unwrap_or_default())
}

/// The counts of keys, of which reports wrote so many copies, and their epoch. Where one begins meanwhile they are asked for again.
///
/// # Errors
/// [`AskError`].
pub fn counts(
    memory: &mut (impl Readable + ?Sized),
    table: &Table,
    keys: &[impl AsRef<[u8]>],
    copies: u8,
) -> Result<(Epoch, Vec<Count>), AskError> {
    let Geometry::KeyIncrement(of) = table.geometry else { return Err(other(table)) };
    let hashes: Vec<Hash> = keys.iter().map(|key| of.hash(key.as_ref())).collect();
    let copies = copies.clamp(1, MAX_COPIES);
    loop {
        let before = epoch(memory, table)?;
        let now = count(memory, table, &of, &hashes, copies, before.number)?;
        let earlier = match before.number.checked_sub(1) {
            Some(number) => count(memory, table, &of, &hashes, copies, number)?.into_iter().map(Some).collect(),
            None => vec![None; now.len()],
        };
        if epoch(memory, table)?.number == before.number {
            let counts = now.into_iter().zip(earlier).map(|(now, before)| Count { now, before });
            return Ok((before, counts.collect()));
        }
    }
}

fn count(
    memory: &mut (impl Readable + ?Sized),
    table: &Table,
    of: &Counters,
    hashes: &[Hash],
    copies: u8,
    epoch: u64,
) -> Result<Vec<u64>, AskError> {
    let offsets: Vec<u64> =
        hashes.iter().flat_map(|hash| (0..copies).map(move |copy| of.offset(hash, copy, epoch))).collect();
    let mut blocks = Vec::new();
    memory.blocks(table, &offsets, &mut blocks)?;
    let counter = |(block, offset): (&Block, &u64)| {
        let bytes = part(block, *offset, increment::COUNTER_BYTES).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let counters: Vec<u64> = blocks.iter().zip(&offsets).map(counter).collect();
    let least = |of: &[u64]| of.iter().copied().min().unwrap_or(0);
    Ok(counters.chunks(copies.into()).map(least).collect())
}

pub(crate) fn other(table: &Table) -> AskError {
    AskError::Primitive { name: table.name.clone(), primitive: table.geometry.primitive() }
}
