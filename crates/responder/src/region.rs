// SPDX-License-Identifier: Apache-2.0
//! Entries of the region table: what an rkey stands for. A registration is one such entry, not a kernel object.

use crate::error::{Error, Result};
use crate::intf::{BLOCK_BYTES, FINISH_SLOT, MAX_COLLECTORS, MAX_SLABS, REGION_BYTES};

/// Where a region's bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A range of a slab.
    Memory {
        /// Slab.
        slab: u32,
        /// The region's first block within it.
        first_block: u32,
    },
    /// Filled by a collector when the READ arrives; read one whole block at a time.
    Computed {
        /// The collector's slot, 1 to 63.
        collector: u32,
        /// Identity word of the region's block 0; the programs add the block index (docs/format/block.md).
        identity: u64,
    },
}

/// What an rkey stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Virtual address of its first byte, for READs; any number, random for those who should not guess it.
    pub va: u64,
    /// Its blocks.
    pub blocks: u32,
    /// Where they come from.
    pub kind: Kind,
}

impl Region {
    /// # Errors
    /// [`Error::Limit`].
    pub(crate) fn check(&self) -> Result<()> {
        let limit = |what, value: u64, limits: &str| Err(Error::Limit { what, value, limits: limits.to_owned() });
        if self.blocks == 0 {
            return limit("blocks of a region", 0, "at least 1");
        }
        if self.va.checked_add(self.bytes() - 1).is_none() {
            return limit("va of a region", self.va, "the region's end must not pass 2^64");
        }
        match self.kind {
            Kind::Memory { slab, .. } if slab >= MAX_SLABS => limit("slab", slab.into(), "0 to 63"),
            Kind::Memory { first_block, .. } if first_block.checked_add(self.blocks).is_none() => {
                limit("first block of a region", first_block.into(), "the region must end within the slab")
            }
            Kind::Computed { collector, .. } if collector == FINISH_SLOT || collector >= MAX_COLLECTORS => {
                limit("collector", collector.into(), "1 to 63")
            }
            Kind::Memory { .. } | Kind::Computed { .. } => Ok(()),
        }
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.blocks) * u64::from(BLOCK_BYTES)
    }

    /// `struct onlooker_region`.
    pub(crate) fn to_bytes(self) -> [u8; REGION_BYTES] {
        let (identity, slab, first_block, kind) = match self.kind {
            Kind::Memory { slab, first_block } => (0, slab, first_block, 0),
            Kind::Computed { collector, identity } => (identity, 0, 0, collector),
        };
        let mut bytes = [0; REGION_BYTES];
        for (index, word) in [self.va, self.bytes(), identity].into_iter().enumerate() {
            bytes[8 * index..8 * index + 8].copy_from_slice(&word.to_le_bytes());
        }
        for (index, half) in [slab, first_block, kind].into_iter().enumerate() {
            bytes[24 + 4 * index..28 + 4 * index].copy_from_slice(&half.to_le_bytes());
        }
        bytes
    }

    /// The reverse; `None` for what [`Region::to_bytes`] does not write.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REGION_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let kind = match half(32) {
            0 => Kind::Memory { slab: half(24), first_block: half(28) },
            collector => Kind::Computed { collector, identity: word(16) },
        };
        Some(Self { va: word(0), blocks: u32::try_from(word(8) / u64::from(BLOCK_BYTES)).ok()?, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_survives_its_bytes() {
        for kind in
            [Kind::Memory { slab: 3, first_block: 7 }, Kind::Computed { collector: 2, identity: 0x0102_0304 << 16 }]
        {
            let region = Region { va: 0xdead_0000_0000_0400, blocks: 5, kind };
            region.check().unwrap();
            assert_eq!(Region::from_bytes(&region.to_bytes()), Some(region));
        }
    }

    #[test]
    fn impossible_regions_are_refused() {
        let memory = |slab, first_block| Kind::Memory { slab, first_block };
        let computed = |collector| Kind::Computed { collector, identity: 0 };
        let good = Region { va: 0, blocks: 1, kind: memory(0, 0) };
        for bad in [
            Region { blocks: 0, ..good },
            Region { va: u64::MAX - 1022, ..good },
            Region { kind: memory(MAX_SLABS, 0), ..good },
            Region { kind: memory(0, u32::MAX), ..good },
            Region { kind: computed(0), ..good },
            Region { kind: computed(MAX_COLLECTORS), ..good },
        ] {
            assert!(matches!(bad.check(), Err(Error::Limit { .. })), "{bad:?}");
        }
        Region { va: u64::MAX - 1023, ..good }.check().unwrap();
    }
}
