// SPDX-License-Identifier: Apache-2.0
//! The contract with the collectors' programs, from this side: `bpf/intf.h` is the other, and asserts the same sizes and offsets.

/// CPUs of a block of group cpu.
pub(crate) const CPUS_PER_BLOCK: u32 = 8;
/// Slots that two CPUs share.
pub(crate) const PAIR_SLOTS: u32 = 31;
/// Slots of a CPU.
pub(crate) const CPU_SLOTS: u32 = 15;

/// CPUs of a block of group responder.
pub(crate) const RESPONDER_CPUS_PER_BLOCK: u32 = 4;
/// Numbers of the program's list of memory statistics.
pub(crate) const STATS: u32 = 128;
/// Of these, zone statistics come first.
pub(crate) const ZONE_STATS: u32 = 32;
/// Items of group memory.
pub(crate) const MEMORY_ITEMS: usize = 48;

/// `struct onlooker_memory_facts`.
pub(crate) struct MemoryFacts {
    pub(crate) zone_stat: u64,
    pub(crate) node_stat: u64,
    pub(crate) total_ram: u64,
    pub(crate) deferred: u64,
    pub(crate) total_reserve_pages: u64,
    pub(crate) watermark_low_pages: u64,
    pub(crate) zone_stats: u32,
    pub(crate) node_stats: u32,
    pub(crate) items: [[u8; 2]; MEMORY_ITEMS],
    pub(crate) available: [u8; 5],
}

impl MemoryFacts {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
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
pub(crate) const BUCKETS: u32 = 256;
/// Rows of a block of group network, at most.
pub(crate) const ROWS_PER_BLOCK: u32 = 16;
/// CPUs of a table of group network.
pub(crate) const DEVICE_CPUS: u32 = 8;
/// Bytes of `struct onlooker_row`.
pub(crate) const ROW_BYTES: usize = 56;
/// `enum onlooker_way`.
pub(crate) const WAY_LSTATS: u32 = 1;
/// `enum onlooker_way`.
pub(crate) const WAY_TSTATS: u32 = 2;
/// `enum onlooker_way`.
pub(crate) const WAY_VETH: u32 = 3;

/// `struct onlooker_namespace`: where the programs keep what a reader of the devices looks at.
pub(crate) mod namespace {
    pub(crate) const USED: usize = 12;
    pub(crate) const SEQUENCE: usize = 20;
    pub(crate) const CURSOR: usize = 24;
    pub(crate) const FREE: usize = 32;
}

/// `struct onlooker_namespace`, as its loader writes it.
pub(crate) fn namespace_bytes(net: u64, capacity: u32) -> Vec<u8> {
    let mut bytes = net.to_le_bytes().to_vec();
    bytes.extend(capacity.to_le_bytes());
    bytes.resize(40, 0);
    bytes
}

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
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
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
/// Events of group vmstat, at most.
pub(crate) const VMSTAT_EVENTS: usize = 8;
/// States of group pressure, at most.
pub(crate) const PRESSURE_STATES: usize = 8;

/// CPUs of a block of group stat.
pub(crate) const STAT_CPUS_PER_BLOCK: u32 = 4;

/// `struct onlooker_stat_cpu`.
#[derive(Default)]
pub(crate) struct StatCpu {
    pub(crate) kstat: u64,
    pub(crate) irq_stat: u64,
    pub(crate) pending: u64,
    pub(crate) hot: u64,
    pub(crate) runqueue: u64,
    pub(crate) mce_exceptions: u64,
    pub(crate) mce_polls: u64,
    pub(crate) files: u64,
    pub(crate) processes: u64,
}

impl StatCpu {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Self { kstat, irq_stat, pending, hot, runqueue, mce_exceptions, mce_polls, files, processes } = *self;
        let words = [kstat, irq_stat, pending, hot, runqueue, mce_exceptions, mce_polls, files, processes];
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

/// `struct onlooker_cpu`.
pub(crate) struct Cpu {
    pub(crate) runqueue: u64,
    pub(crate) cpustat: u64,
    pub(crate) tick: u64,
}

impl Cpu {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [self.runqueue, self.cpustat, self.tick].into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

/// Slots of a CPU in group netstat.
pub(crate) const NETSTAT_SLOTS: usize = 62;
/// Lists that group netstat reads on a CPU, at most.
pub(crate) const MIBS: usize = 12;
/// Numbers of such a list, at most.
pub(crate) const MIB_WORDS: u32 = 160;
/// Numbers of all of them.
pub(crate) const MIB_ROOM: u32 = 480;

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

/// `struct onlooker_mib`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mib {
    pub(crate) first: u64,
    pub(crate) words: u32,
    pub(crate) at: u32,
}

impl Mib {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.first.to_le_bytes().to_vec();
        bytes.extend([self.words, self.at].into_iter().flat_map(u32::to_le_bytes));
        bytes
    }
}

/// `struct onlooker_netstat_facts`.
pub(crate) struct NetstatFacts {
    pub(crate) space: Space,
    pub(crate) mibs: Vec<Mib>,
    pub(crate) items: [u16; NETSTAT_SLOTS],
}

impl NetstatFacts {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.space.to_bytes();
        for place in 0..MIBS {
            let mib = self.mibs.get(place).copied().unwrap_or(Mib { first: 0, words: 0, at: 0 });
            bytes.extend(mib.to_bytes());
        }
        bytes.extend(self.items.into_iter().flat_map(u16::to_le_bytes));
        bytes.extend([0; 4]);
        bytes
    }
}

/// Numbers of group sockstat that are kept once.
pub(crate) const SOCKSTAT_WHOLES: usize = 12;
/// Numbers of group sockstat of a CPU.
pub(crate) const SOCKSTAT_PARTS: usize = 12;

/// `struct onlooker_number`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Number {
    pub(crate) address: u64,
    pub(crate) beside: u64,
    pub(crate) width: u32,
    pub(crate) add: i32,
}

impl Number {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes: Vec<u8> = [self.address, self.beside].into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(self.width.to_le_bytes());
        bytes.extend(self.add.to_le_bytes());
        bytes
    }
}

/// `struct onlooker_sockstat_facts`.
pub(crate) struct SockstatFacts {
    pub(crate) space: Space,
    pub(crate) wholes: [Number; SOCKSTAT_WHOLES],
    pub(crate) parts: [Number; SOCKSTAT_PARTS],
}

impl SockstatFacts {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.space.to_bytes();
        for number in self.wholes.iter().chain(&self.parts) {
            bytes.extend(number.to_bytes());
        }
        bytes
    }
}

/// CPUs of a table of group disk.
pub(crate) const DISK_CPUS: u32 = 6;
/// Bytes of a disk's name in its row.
pub(crate) const DISK_NAME_BYTES: u32 = 32;
/// Bytes of `struct onlooker_disk`.
pub(crate) const DISK_BYTES: usize = 64;

/// `struct onlooker_disks`, as its loader writes it.
pub(crate) fn disks_bytes(list: u64, capacity: u32) -> Vec<u8> {
    let mut bytes = list.to_le_bytes().to_vec();
    bytes.resize(40, 0);
    bytes.extend(capacity.to_le_bytes());
    bytes.resize(64, 0);
    bytes
}

/// `struct onlooker_load_facts`, and the elements of a CPU that have one address only: `onlooker_schedstat_cpu`, `onlooker_vmstat_cpu`,
/// `onlooker_pressure_cpu`.
pub(crate) fn address_bytes(address: u64) -> Vec<u8> {
    address.to_le_bytes().to_vec()
}

#[cfg(test)]
mod tests;
