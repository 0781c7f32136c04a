// SPDX-License-Identifier: Apache-2.0
//! What the contracts with collectors' programs have in common, from this side: `bpf/intf.h` is the other, and asserts the
//! same sizes and offsets. A group's own are `facts.rs` and `facts.h` of its folder.

/// CPUs of a block of eight.
pub(crate) const CPUS_PER_BLOCK: u32 = 8;
/// Slots that two CPUs share.
pub(crate) const PAIR_SLOTS: u32 = 31;
/// Slots of a CPU.
pub(crate) const CPU_SLOTS: u32 = 15;

/// Rows of a block of a table, at most.
pub(crate) const ROWS_PER_BLOCK: u32 = 16;
/// `struct onlooker_table`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableFacts {
    pub(crate) first_row: u32,
    pub(crate) rows: u32,
    pub(crate) row_words: u32,
    pub(crate) width: u32,
    pub(crate) first_cpu: u32,
    pub(crate) cpus: u32,
}

impl TableFacts {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let words = [self.first_row, self.rows, self.row_words, self.width, self.first_cpu, self.cpus];
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// The reverse; `None` for bytes of another length.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<4>() else { return None };
        let &[first_row, rows, row_words, width, first_cpu, cpus] = words else { return None };
        let [first_row, rows, row_words, width, first_cpu, cpus] =
            [first_row, rows, row_words, width, first_cpu, cpus].map(u32::from_le_bytes);
        Some(Self { first_row, rows, row_words, width, first_cpu, cpus })
    }
}

/// Pieces of a packed block, at most.
pub(crate) const PACKED_PIECES: usize = 16;
/// `struct onlooker_packed_piece`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedPiece {
    pub(crate) collector: u8,
    pub(crate) block: u8,
    pub(crate) at: u8,
    pub(crate) words: u8,
}

impl PackedPiece {
    pub(crate) fn to_bytes(self) -> [u8; 4] {
        [self.collector, self.block, self.at, self.words]
    }
}

/// `struct onlooker_packed_block`.
pub(crate) fn packed_block_bytes(pieces: &[PackedPiece]) -> Vec<u8> {
    let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    let mut bytes: Vec<u8> = count.to_le_bytes().into();
    bytes.extend(pieces.iter().flat_map(|piece| piece.to_bytes()));
    bytes.resize(4 + 4 * PACKED_PIECES, 0);
    bytes
}

/// Bytes of `struct publication` before its facts: the timer, which user space never sees.
pub(crate) const TIMER_BYTES: usize = 16;

/// `struct onlooker_publication_facts`, as its loader writes it.
pub(crate) struct PublicationFacts {
    pub(crate) interval_ns: u64,
    pub(crate) identity: u64,
    pub(crate) first_block: u32,
    pub(crate) blocks: u32,
    pub(crate) turn_blocks: u32,
}

/// Most blocks of a turn.
pub(crate) const TURN_BLOCKS: u32 = 8;

impl PublicationFacts {
    pub(crate) const BYTES: usize = 48;
    /// Where `runs` stands.
    pub(crate) const RUNS: usize = 32;
    /// Where `spent_ns` stands.
    pub(crate) const SPENT: usize = 40;

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = [self.interval_ns, self.identity].into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend([self.first_block, self.blocks, 0, self.turn_blocks].into_iter().flat_map(u32::to_le_bytes));
        bytes.resize(Self::BYTES, 0);
        bytes
    }
}

/// A number that no statistic has.
pub(crate) const NONE: u8 = 0xff;
/// `struct onlooker_space`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) net: u64,
    pub(crate) cookie: u64,
}

impl Space {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.net, self.cookie].into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

/// Facts that are one address: `struct onlooker_load_facts`, and the elements of a CPU of schedstat, vmstat and pressure.
pub(crate) fn address_bytes(address: u64) -> Vec<u8> {
    address.to_le_bytes().to_vec()
}

#[cfg(test)]
pub(crate) mod layout;
#[cfg(test)]
mod tests;
