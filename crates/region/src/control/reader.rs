// SPDX-License-Identifier: Apache-2.0
//! The controller's side: which control blocks to read, and what they say. Sans-IO: blocks are given, block numbers are asked for.

use super::entry::{ENTRIES_PER_BLOCK, ENTRY_WORDS, RING};
use super::{CONTROL_REGION, ControlError, Entry, Header, RegionEntry, SchemaEntry};
use crate::block::{Block, Identity};
use crate::guard;
use crate::limits::{BLOCK_BYTES, GUARDED_BYTES};
use crate::schema::{Schema, SchemaId};
use std::collections::BTreeSet;

/// A reader's copy of one host's directory.
#[derive(Clone, Debug)]
pub struct Directory {
    incarnation: u32,
    header: Option<Header>,
    /// Generation up to which `entries` is complete.
    known: Option<u64>,
    entries: Vec<Entry>,
}

impl Directory {
    /// Empty; `incarnation` is the generation that bootstrap told.
    #[must_use]
    pub fn new(incarnation: u32) -> Self {
        Self { incarnation, header: None, known: None, entries: Vec::new() }
    }

    fn check<'b>(&self, index: u32, block: &'b Block) -> Result<guard::Accepted<'b>, ControlError> {
        let at = u16::try_from(index).map_err(|_| ControlError::Header {
            what: "block",
            got: index.into(),
            limit: 65_535,
        })?;
        let expected = Identity { region: CONTROL_REGION, generation: self.incarnation, index: at };
        guard::check(block, expected).map_err(|reject| ControlError::Block { index, reject })
    }

    /// Takes block 0 and returns the entry blocks that must be read now; none where nothing changed.
    ///
    /// # Errors
    /// Whatever is wrong with the block or the header; the directory is unchanged then.
    pub fn header(&mut self, block: &Block) -> Result<Vec<u32>, ControlError> {
        let header = Header::decode(self.check(0, block)?.payload())?;
        let behind = self.known.and_then(|known| header.generation.checked_sub(known));
        let wanted = match (self.known, behind) {
            (Some(known), Some(behind)) if behind <= RING as u64 => {
                let named = (1..=behind).map(|change| header.ring_at(known + change)).collect::<BTreeSet<u32>>();
                named.iter().all(|index| (1..=header.entry_blocks).contains(index)).then(|| named.into_iter().collect())
            }
            _ => None,
        };
        let wanted = wanted.unwrap_or_else(|| (1..=header.entry_blocks).collect());
        self.entries.resize(header.entry_blocks as usize * ENTRIES_PER_BLOCK, Entry::Free);
        self.header = Some(header);
        Ok(wanted)
    }

    /// Takes an entry block that [`Directory::header`] asked for.
    ///
    /// # Errors
    /// [`ControlError::Block`]; read it again, or the whole directory next time.
    pub fn entry_block(&mut self, index: u32, block: &Block) -> Result<(), ControlError> {
        let accepted = self.check(index, block)?;
        let from = (index as usize - 1) * ENTRIES_PER_BLOCK;
        for (at, words) in accepted.payload().chunks_exact(ENTRY_WORDS).enumerate() {
            if let Some(entry) = self.entries.get_mut(from + at) {
                *entry = Entry::decode(words);
            }
        }
        Ok(())
    }

    /// To be called when all blocks that [`Directory::header`] asked for were taken: from now on only changes are asked for.
    pub fn complete(&mut self) {
        self.known = self.header.as_ref().map(|header| header.generation);
    }

    /// Whether it was complete once.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// The last header taken.
    #[must_use]
    pub fn last_header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Every slot.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The data regions.
    pub fn regions(&self) -> impl Iterator<Item = &RegionEntry> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Region(region) => Some(region),
            _ => None,
        })
    }

    /// The schema of an id.
    #[must_use]
    pub fn schema(&self, id: SchemaId) -> Option<&SchemaEntry> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Schema(schema) if schema.id == id => Some(schema),
            _ => None,
        })
    }

    /// Slots whose entries cannot be right, with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| match entry {
            Entry::Refused(what) => Some((slot, *what)),
            _ => None,
        })
    }
}

/// Blocks of the control region that hold a schema's text: first and number.
///
/// # Errors
/// [`ControlError::SchemaText`] where the entry points outside of the control region.
pub fn schema_extent(schema: &SchemaEntry, control_va: u64, control_bytes: u64) -> Result<(u32, u32), ControlError> {
    let wrong = |what| ControlError::SchemaText { id: schema.id.to_string(), what };
    let offset = schema.va.wrapping_sub(control_va);
    let count = schema.bytes.div_ceil(GUARDED_BYTES as u64);
    if !offset.is_multiple_of(BLOCK_BYTES as u64)
        || offset >= control_bytes
        || count * BLOCK_BYTES as u64 > control_bytes - offset
    {
        return Err(wrong("lies outside of the control region"));
    }
    match (u32::try_from(offset / BLOCK_BYTES as u64), u32::try_from(count)) {
        (Ok(first), Ok(count)) => Ok((first, count)),
        _ => Err(wrong("lies outside of the control region")),
    }
}

/// The schema from its blocks, `first` being the first one's number in the control region.
///
/// # Errors
/// A block that is not accepted, a text that does not hash to the id, a schema that breaks a rule.
pub fn assemble_schema(
    entry: &SchemaEntry,
    incarnation: u32,
    first: u32,
    blocks: &[Block],
) -> Result<Schema, ControlError> {
    let wrong = |what| ControlError::SchemaText { id: entry.id.to_string(), what };
    let directory = Directory::new(incarnation);
    let mut text = Vec::with_capacity(blocks.len() * GUARDED_BYTES);
    for (index, block) in (first..).zip(blocks) {
        let accepted = directory.check(index, block)?;
        text.extend_from_slice(bytemuck::cast_slice(accepted.payload()));
    }
    let length = usize::try_from(entry.bytes).unwrap_or(usize::MAX);
    let text = text.get(..length).ok_or_else(|| wrong("fewer blocks than its length needs"))?;
    let text = std::str::from_utf8(text).map_err(|_| wrong("is not UTF-8"))?;
    if SchemaId::of(text) != entry.id {
        return Err(wrong("does not hash to its id"));
    }
    Schema::read(text).map_err(|error| ControlError::Schema { id: entry.id.to_string(), error })
}
