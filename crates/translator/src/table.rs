// SPDX-License-Identifier: Apache-2.0
//! What the programs are told of a table.

use onlooker_dta::append::List;
use onlooker_dta::increment::Counters;
use onlooker_dta::key_write::{CheckBytes, Table as KeyWrite};
use onlooker_dta::translator::Shape;
use onlooker_responder::intf::BLOCK_BYTES;

use crate::intf::TABLE_BYTES;

/// Where a table begins. Where a slab of 2^20 blocks ends it goes on in the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The slab's place in the responder's table.
    pub slab: u32,
    /// The block in it.
    pub first_block: u32,
}

/// A table that reports may write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// What a reporter must know.
    pub access: u32,
    /// What it is like; of counters also which set counts.
    pub shape: Shape,
    /// Where it is.
    pub place: Place,
}

impl Table {
    /// `struct onlooker_dta_table`; a list has the place `list` among lists.
    pub(crate) fn to_bytes(self, list: u32) -> [u8; TABLE_BYTES] {
        let Place { slab, mut first_block } = self.place;
        let mask = |slots_log2: u8| u32::try_from((1u64 << slots_log2) - 1).unwrap_or(u32::MAX);
        let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let (seed, slots_mask, slot_bytes, small) = match self.shape {
            Shape::KeyWrite(table @ KeyWrite { seed, slots_log2, payload_bytes, check }) => {
                let check = if check == CheckBytes::Four { 4 } else { 8 };
                (seed, mask(slots_log2), size(table.entry_bytes()), [1, payload_bytes, check, 0])
            }
            Shape::Append(list @ List { entry_bytes, batch, batches_log2 }, _) => {
                ([0; 16], mask(batches_log2), size(list.batch_bytes()), [2, entry_bytes, 0, batch])
            }
            Shape::KeyIncrement(counters @ Counters { seed, slots_log2 }, epoch) => {
                let blocks = counters.set_offset(epoch) / u64::from(BLOCK_BYTES);
                first_block += u32::try_from(blocks).unwrap_or(u32::MAX);
                (seed, mask(slots_log2), 8, [3, 8, 0, 0])
            }
        };
        let mut bytes = [0; TABLE_BYTES];
        bytes[..16].copy_from_slice(&seed);
        let words = [self.access, slab, first_block, slots_mask, slot_bytes, list];
        bytes[16..40].chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes[40..44].copy_from_slice(&small);
        bytes
    }
}
