// SPDX-License-Identifier: Apache-2.0
//! What the programs are told of a table.

use onlooker_dta::Geometry;
use onlooker_dta::append::{List, Position};
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
        let Place { slab, first_block } = self.place;
        let mask = |slots_log2: u8| u32::try_from((1u64 << slots_log2) - 1).unwrap_or(u32::MAX);
        let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let (first_block, slot_bytes, small) = match self.shape {
            Shape::KeyWrite(table @ KeyWrite { payload_bytes, check, .. }) => {
                let check = if check == CheckBytes::Four { 4 } else { 8 };
                (first_block, size(table.entry_bytes()), [1, payload_bytes, check, 0, 0])
            }
            Shape::Append(list @ List { entry_bytes, batch, .. }, _) => {
                (first_block, size(list.batch_bytes()), [2, entry_bytes, 0, batch, 0])
            }
            Shape::KeyIncrement(counters, epoch) => {
                (first_block + set_blocks(&counters, epoch), 8, [3, 8, 0, 0, u8::from(epoch & 1 == 1)])
            }
        };
        let geometry = self.shape.geometry();
        let mut bytes = [0; TABLE_BYTES];
        bytes[..16].copy_from_slice(&geometry.seed());
        let words = [self.access, slab, first_block, mask(geometry.slots_log2()), slot_bytes, list];
        bytes[16..40].chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes[40..45].copy_from_slice(&small);
        bytes
    }

    /// The reverse, and the place among lists. Where a list goes on is not in it; of an epoch only whether its number is odd. `None`: there is no table.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<(Self, u32)> {
        let bytes: &[u8; TABLE_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let [access, slab, first_block, mask, _, list] = std::array::from_fn(|index| word(16 + 4 * index));
        let [primitive, payload_bytes, check, batch, set] = std::array::from_fn(|index| bytes[40 + index]);
        let last = check.max(batch);
        let slots_log2 = u8::try_from((u64::from(mask) + 1).ilog2()).ok()?;
        let bits = u64::from_le_bytes([primitive, slots_log2, payload_bytes, last, 0, 0, 0, 0]);
        let (shape, before) = match Geometry::from_bits(bits, std::array::from_fn(|at| bytes[at]))? {
            Geometry::KeyWrite(table) => (Shape::KeyWrite(table), 0),
            Geometry::Append(list) => (Shape::Append(list, Position::default()), 0),
            Geometry::KeyIncrement(counters) => {
                (Shape::KeyIncrement(counters, set.into()), set_blocks(&counters, set.into()))
            }
        };
        let place = Place { slab, first_block: first_block.checked_sub(before)? };
        Some((Self { access, shape, place }, list))
    }
}

/// Blocks before an epoch's set.
fn set_blocks(counters: &Counters, epoch: u64) -> u32 {
    u32::try_from(counters.set_offset(epoch) / u64::from(BLOCK_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_survive_their_bytes() {
        let seed = [5; 16];
        let place = Place { slab: 60, first_block: 12 };
        let counters = Counters { seed, slots_log2: 20 };
        for shape in [
            Shape::KeyWrite(KeyWrite { seed, slots_log2: 32, payload_bytes: 20, check: CheckBytes::Eight }),
            Shape::KeyWrite(KeyWrite { seed, slots_log2: 2, payload_bytes: 1, check: CheckBytes::Four }),
            Shape::Append(List { entry_bytes: 18, batch: 16, batches_log2: 12 }, Position::default()),
            Shape::KeyIncrement(counters, 0),
            Shape::KeyIncrement(counters, 1),
        ] {
            let table = Table { access: 7, shape, place };
            assert_eq!(Table::from_bytes(&table.to_bytes(3)), Some((table, 3)));
        }
        assert_eq!(Table::from_bytes(&[0; TABLE_BYTES]), None);
    }
}
