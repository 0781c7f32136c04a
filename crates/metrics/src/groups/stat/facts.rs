// SPDX-License-Identifier: Apache-2.0
//! What group stat's program is told, from this side: `facts.h` is the other, and asserts the same sizes and offsets.

use super::totals::Totals;

/// CPUs of a block of group stat.
pub(super) const STAT_CPUS_PER_BLOCK: u32 = 4;

/// `struct onlooker_stat_cpu`.
#[derive(Default)]
pub(super) struct StatCpu {
    pub(super) kstat: u64,
    pub(super) irq_stat: u64,
    pub(super) pending: u64,
    pub(super) hot: u64,
    pub(super) runqueue: u64,
    pub(super) mce_exceptions: u64,
    pub(super) mce_polls: u64,
    pub(super) files: u64,
    pub(super) processes: u64,
}

impl StatCpu {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { kstat, irq_stat, pending, hot, runqueue, mce_exceptions, mce_polls, files, processes } = *self;
        let words = [kstat, irq_stat, pending, hot, runqueue, mce_exceptions, mce_polls, files, processes];
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

/// `struct onlooker_stat_facts`.
pub(super) fn facts_bytes(total_forks: u64, totals: Totals) -> Vec<u8> {
    let words = [total_forks, totals.threads, totals.most_files, totals.files];
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::intf::layout::{Header, word};

    const HEADER: Header = Header(include_str!("facts.h"));

    #[test]
    fn the_facts_are_as_in_the_header() {
        assert_eq!(HEADER.defined("COLLECT_STAT_CPUS_PER_BLOCK"), STAT_CPUS_PER_BLOCK);
        let stat = StatCpu {
            kstat: word(1),
            irq_stat: word(2),
            pending: word(3),
            hot: word(4),
            runqueue: word(5),
            mce_exceptions: word(6),
            mce_polls: word(7),
            files: word(8),
            processes: word(9),
        };
        let fields = [
            ("kstat", &[1; 8][..]),
            ("irq_stat", &[2; 8]),
            ("pending", &[3; 8]),
            ("hot", &[4; 8]),
            ("runqueue", &[5; 8]),
            ("mce_exceptions", &[6; 8]),
            ("mce_polls", &[7; 8]),
            ("files", &[8; 8]),
            ("processes", &[9; 8]),
        ];
        HEADER.is_laid_out("onlooker_stat_cpu", &stat.to_bytes(), &fields);
        HEADER.has_size("onlooker_stat_cpu", stat.to_bytes().len());
        let totals = Totals { threads: word(2), most_files: word(3), files: word(4), file_parts: 0 };
        let bytes = facts_bytes(word(1), totals);
        let fields = [("total_forks", &[1; 8][..]), ("threads", &[2; 8]), ("most_files", &[3; 8]), ("files", &[4; 8])];
        HEADER.is_laid_out("onlooker_stat_facts", &bytes, &fields);
        HEADER.has_size("onlooker_stat_facts", bytes.len());
    }
}
