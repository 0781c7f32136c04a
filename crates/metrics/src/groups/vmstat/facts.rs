// SPDX-License-Identifier: Apache-2.0
//! What group vmstat's program is told, from this side: `facts.h` is the other, and asserts the same sizes and offsets.

/// Events of group vmstat, at most.
pub(super) const VMSTAT_EVENTS: usize = 8;

/// `struct onlooker_vmstat_facts`.
pub(super) fn facts(numbers: &[u32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().copied().flat_map(u32::to_le_bytes).collect();
    bytes.resize(4 * VMSTAT_EVENTS, 0);
    bytes.extend(u32::try_from(numbers.len()).unwrap_or(0).to_le_bytes());
    bytes.resize(4 * VMSTAT_EVENTS + 8, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::intf::address_bytes;
    use crate::collect::intf::layout::{Header, word};

    const HEADER: Header = Header(include_str!("facts.h"));

    #[test]
    fn the_facts_are_as_in_the_header() {
        HEADER.is_laid_out("onlooker_vmstat_cpu", &address_bytes(word(1)), &[("events", &[1; 8])]);
        HEADER.has_size("onlooker_vmstat_cpu", address_bytes(0).len());
        assert_eq!(HEADER.defined("COLLECT_VMSTAT_EVENTS") as usize, VMSTAT_EVENTS);
        HEADER.has_offset("onlooker_vmstat_facts", "numbers", 0);
        HEADER.has_offset("onlooker_vmstat_facts", "events", 4 * VMSTAT_EVENTS);
        HEADER.has_size("onlooker_vmstat_facts", 4 * VMSTAT_EVENTS + 8);
    }
}
