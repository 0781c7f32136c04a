// SPDX-License-Identifier: Apache-2.0
//! The contract with the collectors' programs, from this side: `bpf/collect/intf.h` is the other, and asserts the same sizes.

/// CPUs of a block of group cpu.
pub(super) const CPUS_PER_BLOCK: u32 = 8;
/// Slots that two CPUs share.
pub(super) const PAIR_SLOTS: u32 = 31;
/// Slots of a CPU.
pub(super) const CPU_SLOTS: u32 = 15;

/// CPUs of a block of group responder.
pub(super) const RESPONDER_CPUS_PER_BLOCK: u32 = 4;
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

/// Buckets of a namespace's devices: a scan that is there is complete.
pub(super) const BUCKETS: u32 = 256;
/// Rows of a block of group network, at most.
pub(super) const ROWS_PER_BLOCK: u32 = 16;
/// CPUs of a table of group network.
pub(super) const DEVICE_CPUS: u32 = 8;
/// Bytes of `struct onlooker_row`.
pub(super) const ROW_BYTES: usize = 48;
/// `enum onlooker_way`.
pub(super) const WAY_LSTATS: u32 = 1;
/// `enum onlooker_way`.
pub(super) const WAY_TSTATS: u32 = 2;
/// `enum onlooker_way`.
pub(super) const WAY_TSTATS_IF_TYPED: u32 = 3;

/// `struct onlooker_namespace`, as its loader writes it.
pub(super) fn namespace_bytes(net: u64, capacity: u32) -> Vec<u8> {
    let mut bytes = net.to_le_bytes().to_vec();
    bytes.extend(capacity.to_le_bytes());
    bytes.resize(40, 0);
    bytes
}

/// `struct onlooker_table`.
pub(super) struct TableFacts {
    pub(super) first_row: u32,
    pub(super) rows: u32,
    pub(super) row_words: u32,
    pub(super) width: u32,
    pub(super) first_cpu: u32,
    pub(super) cpus: u32,
}

impl TableFacts {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let words = [self.first_row, self.rows, self.row_words, self.width, self.first_cpu, self.cpus];
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }
}

/// Bytes of `struct publication` before its facts: the timer, which user space never sees.
pub(super) const TIMER_BYTES: usize = 16;

/// `struct onlooker_publication_facts`, as its loader writes it.
pub(super) struct PublicationFacts {
    pub(super) interval_ns: u64,
    pub(super) identity: u64,
    pub(super) first_block: u32,
    pub(super) blocks: u32,
}

impl PublicationFacts {
    pub(super) const BYTES: usize = 40;
    /// Where `runs` stands.
    pub(super) const RUNS: usize = 32;

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = [self.interval_ns, self.identity].into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend([self.first_block, self.blocks].into_iter().flat_map(u32::to_le_bytes));
        bytes.resize(Self::BYTES, 0);
        bytes
    }
}

/// `struct onlooker_cpu`.
pub(super) struct Cpu {
    pub(super) runqueue: u64,
    pub(super) cpustat: u64,
    pub(super) tick: u64,
}

impl Cpu {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        [self.runqueue, self.cpustat, self.tick].into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../bpf/collect/intf.h");

    fn defined(name: &str) -> u32 {
        let line = HEADER.lines().find(|line| line.starts_with(&format!("#define {name} "))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn numbers_and_sizes_are_those_of_the_header() {
        assert_eq!(defined("COLLECT_CPUS_PER_BLOCK"), CPUS_PER_BLOCK);
        assert_eq!(defined("COLLECT_PAIR_SLOTS"), PAIR_SLOTS);
        assert_eq!(defined("COLLECT_CPU_SLOTS"), CPU_SLOTS);
        assert_eq!(defined("COLLECT_RESPONDER_CPUS_PER_BLOCK"), RESPONDER_CPUS_PER_BLOCK);
        assert_eq!(defined("COLLECT_STATS"), STATS);
        assert_eq!(defined("COLLECT_ZONE_STATS"), ZONE_STATS);
        assert_eq!(defined("COLLECT_MEMORY_ITEMS") as usize, MEMORY_ITEMS);
        let memory = MemoryFacts {
            zone_stat: 0,
            node_stat: 0,
            total_ram: 0,
            deferred: 0,
            total_reserve_pages: 0,
            watermark_low_pages: 0,
            zone_stats: 0,
            node_stats: 0,
            items: [[0; 2]; MEMORY_ITEMS],
            available: [0; 5],
        };
        let size = |name: &str, bytes: usize| assert!(HEADER.contains(&format!("COLLECT_SIZE({name}, {bytes});")));
        size("onlooker_cpu", Cpu { runqueue: 0, cpustat: 0, tick: 0 }.to_bytes().len());
        assert_eq!(defined("COLLECT_ROWS_PER_BLOCK"), ROWS_PER_BLOCK);
        assert_eq!(defined("COLLECT_BUCKETS"), BUCKETS);
        assert_eq!(defined("COLLECT_DEVICE_CPUS"), DEVICE_CPUS);
        let table = TableFacts { first_row: 0, rows: 0, row_words: 0, width: 0, first_cpu: 0, cpus: 0 };
        size("onlooker_table", table.to_bytes().len());
        size("onlooker_row", ROW_BYTES);
        size("onlooker_namespace", namespace_bytes(0, 0).len());
        for (name, way) in [("LSTATS", WAY_LSTATS), ("TSTATS", WAY_TSTATS), ("TSTATS_IF_TYPED", WAY_TSTATS_IF_TYPED)] {
            assert!(HEADER.contains(&format!("ONLOOKER_WAY_{name} = {way},")), "{name}");
        }
        size("onlooker_publication_facts", PublicationFacts::BYTES);
        size("onlooker_memory_facts", memory.to_bytes().len());
    }
}
