// SPDX-License-Identifier: Apache-2.0
//! What group memory's program is told, from this side: `facts.h` is the other, and asserts the same sizes and offsets.

/// Numbers of the program's list of memory statistics.
pub(super) const STATS: u32 = 128;
/// Of these, zone statistics come first.
pub(super) const ZONE_STATS: u32 = 32;
/// Items of group memory.
pub(super) const MEMORY_ITEMS: usize = 48;

/// `struct onlooker_memory_facts`.
pub(super) struct MemoryFacts {
    pub(super) zone_stat: u64,
    pub(super) node_stat: u64,
    pub(super) total_ram: u64,
    pub(super) deferred: u64,
    pub(super) total_reserve_pages: u64,
    pub(super) watermark_low_pages: u64,
    pub(super) zone_stats: u32,
    pub(super) node_stats: u32,
    pub(super) items: [[u8; 2]; MEMORY_ITEMS],
    pub(super) available: [u8; 5],
}

impl MemoryFacts {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let words = [
            self.zone_stat,
            self.node_stat,
            self.total_ram,
            self.deferred,
            self.total_reserve_pages,
            self.watermark_low_pages,
        ];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend([self.zone_stats, self.node_stats].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(self.items.as_flattened());
        bytes.extend(self.available);
        bytes.extend([0; 3]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::intf::layout::{Header, half, word};

    const HEADER: Header = Header(include_str!("facts.h"));

    #[test]
    fn the_facts_are_as_in_the_header() {
        assert_eq!(HEADER.defined("COLLECT_STATS"), STATS);
        assert_eq!(HEADER.defined("COLLECT_ZONE_STATS"), ZONE_STATS);
        assert_eq!(HEADER.defined("COLLECT_MEMORY_ITEMS") as usize, MEMORY_ITEMS);
        let memory = MemoryFacts {
            zone_stat: word(1),
            node_stat: word(2),
            total_ram: word(3),
            deferred: word(4),
            total_reserve_pages: word(5),
            watermark_low_pages: word(6),
            zone_stats: half(0x11),
            node_stats: half(0x12),
            items: [[0x21; 2]; MEMORY_ITEMS],
            available: [0x31; 5],
        };
        let fields = [
            ("zone_stat", &[1; 8][..]),
            ("node_stat", &[2; 8]),
            ("total_ram", &[3; 8]),
            ("deferred", &[4; 8]),
            ("total_reserve_pages", &[5; 8]),
            ("watermark_low_pages", &[6; 8]),
            ("zone_stats", &[0x11; 4]),
            ("node_stats", &[0x12; 4]),
            ("items", &[0x21; 2 * MEMORY_ITEMS]),
            ("free", &[0x31; 5]),
        ];
        HEADER.is_laid_out("onlooker_memory_facts", &memory.to_bytes(), &fields);
        HEADER.has_size("onlooker_memory_facts", memory.to_bytes().len());
    }
}
