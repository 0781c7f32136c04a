// SPDX-License-Identifier: Apache-2.0
//! What a table is like, as its entry in a host's directory has it (docs/format/dta.md, Directory).

use crate::append::{List, MAX_BATCH};
use crate::hash::Seed;
use crate::increment::Counters;
use crate::key_write::{CheckBytes, Table};

use onlooker_wire::dta::MAX_PAYLOAD_BYTES;

/// A table of any primitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Geometry {
    /// Entries by key.
    KeyWrite(Table),
    /// A ring of batches.
    Append(List),
    /// Counters by key.
    KeyIncrement(Counters),
}

/// 2^2 slots, so that copies have places of their own, to 2^32; batches from 2^1 on.
const SLOTS_LOG2: std::ops::RangeInclusive<u8> = 2..=32;
const BATCHES_LOG2: std::ops::RangeInclusive<u8> = 1..=32;

impl Geometry {
    /// The primitive's name, as users have it.
    #[must_use]
    pub const fn primitive(&self) -> &'static str {
        match self {
            Self::KeyWrite(_) => "key-write",
            Self::Append(_) => "append",
            Self::KeyIncrement(_) => "key-increment",
        }
    }

    /// Length of the table's memory.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        match self {
            Self::KeyWrite(table) => table.len_bytes(),
            Self::Append(list) => list.len_bytes(),
            Self::KeyIncrement(counters) => counters.len_bytes(),
        }
    }

    /// Places in it: of entries, batches, counters of a set.
    #[must_use]
    pub const fn slots_log2(&self) -> u8 {
        match self {
            Self::KeyWrite(table) => table.slots_log2,
            Self::Append(list) => list.batches_log2,
            Self::KeyIncrement(counters) => counters.slots_log2,
        }
    }

    /// Of its keys' hash; of lists zeros.
    #[must_use]
    pub const fn seed(&self) -> Seed {
        match self {
            Self::KeyWrite(table) => table.seed,
            Self::Append(_) => [0; 16],
            Self::KeyIncrement(counters) => counters.seed,
        }
    }

    /// Bytes of what a report brings.
    #[must_use]
    pub const fn payload_bytes(&self) -> u8 {
        match self {
            Self::KeyWrite(table) => table.payload_bytes,
            Self::Append(list) => list.entry_bytes,
            Self::KeyIncrement(_) => 8,
        }
    }

    /// All but the seed.
    #[must_use]
    pub const fn to_bits(&self) -> u64 {
        let (primitive, last) = match self {
            Self::KeyWrite(Table { check: CheckBytes::Four, .. }) => (1, 4),
            Self::KeyWrite(_) => (1, 8),
            Self::Append(list) => (2, list.batch),
            Self::KeyIncrement(_) => (3, 0),
        };
        u64::from_le_bytes([primitive, self.slots_log2(), self.payload_bytes(), last, 0, 0, 0, 0])
    }

    /// The reverse; `None` for what no table is like.
    #[must_use]
    pub fn from_bits(bits: u64, seed: Seed) -> Option<Self> {
        let [primitive, slots_log2, payload_bytes, last, 0, 0, 0, 0] = bits.to_le_bytes() else { return None };
        let has_payload = (1..=MAX_PAYLOAD_BYTES).contains(&usize::from(payload_bytes));
        let slots = if primitive == 2 { BATCHES_LOG2 } else { SLOTS_LOG2 };
        if !has_payload || !slots.contains(&slots_log2) {
            return None;
        }
        match (primitive, payload_bytes, last) {
            (1, _, 4 | 8) => {
                let check = if last == 4 { CheckBytes::Four } else { CheckBytes::Eight };
                Some(Self::KeyWrite(Table { seed, slots_log2, payload_bytes, check }))
            }
            (2, entry_bytes, batch @ 1..=MAX_BATCH) => {
                Some(Self::Append(List { entry_bytes, batch, batches_log2: slots_log2 }))
            }
            (3, 8, 0) => Some(Self::KeyIncrement(Counters { seed, slots_log2 })),
            _ => None,
        }
    }

    /// The largest of its kind whose places take at most `bytes`: of `self` all is taken but their number. `None` where that is too few.
    #[must_use]
    pub fn within(self, bytes: u64) -> Option<Self> {
        let with = |slots_log2| match self {
            Self::KeyWrite(table) => Self::KeyWrite(Table { slots_log2, ..table }),
            Self::Append(list) => Self::Append(List { batches_log2: slots_log2, ..list }),
            Self::KeyIncrement(counters) => Self::KeyIncrement(Counters { slots_log2, ..counters }),
        };
        let slots = if matches!(self, Self::Append(_)) { BATCHES_LOG2 } else { SLOTS_LOG2 };
        let places = |geometry: &Self| match geometry {
            Self::KeyIncrement(counters) => 2 * counters.set_bytes(),
            other => other.len_bytes(),
        };
        slots.rev().map(with).find(|geometry| places(geometry) <= bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_say_all_and_nothing_else_is_taken() {
        bolero::check!().with_type::<(u64, Seed)>().for_each(|(bits, seed)| {
            // Most random ones are none; so those near real ones, too.
            for bits in [*bits, bits & 0x0000_0000_4741_1f03] {
                if let Some(geometry) = Geometry::from_bits(bits, *seed) {
                    assert_eq!(geometry.to_bits(), bits);
                    assert!(geometry.len_bytes() > 0 && geometry.payload_bytes() > 0);
                }
            }
        });
        let list = Geometry::Append(List { entry_bytes: 18, batch: 16, batches_log2: 12 });
        let counters = Geometry::KeyIncrement(Counters { seed: [7; 16], slots_log2: 20 });
        let table = Table { seed: [3; 16], slots_log2: 20, payload_bytes: 20, check: CheckBytes::Eight };
        for geometry in [list, counters, Geometry::KeyWrite(table)] {
            assert_eq!(Geometry::from_bits(geometry.to_bits(), geometry.seed()), Some(geometry));
            assert_eq!(geometry.within(geometry.len_bytes()), Some(geometry));
            assert_eq!(geometry.within(geometry.len_bytes() * 3 / 2), Some(geometry));
            assert_eq!(geometry.within(16), None);
        }
    }
}
