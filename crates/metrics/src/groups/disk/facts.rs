// SPDX-License-Identifier: Apache-2.0
//! What group disk's program is told, from this side: `facts.h` is the other, and asserts the same sizes and offsets.

/// CPUs of a table of group disk.
pub(super) const DISK_CPUS: u32 = 6;
/// Bytes of a disk's name in its row.
pub(super) const DISK_NAME_BYTES: u32 = 32;
/// Bytes of `struct onlooker_disk`.
pub(super) const DISK_BYTES: usize = 64;

/// `struct onlooker_disks`, as its loader writes it.
pub(super) fn disks_bytes(list: u64, capacity: u32) -> Vec<u8> {
    let mut bytes = list.to_le_bytes().to_vec();
    bytes.resize(40, 0);
    bytes.extend(capacity.to_le_bytes());
    bytes.resize(64, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::intf::layout::{Header, half, word};

    const HEADER: Header = Header(include_str!("facts.h"));

    #[test]
    fn the_facts_are_as_in_the_header() {
        let name_bytes = 8 * HEADER.defined("COLLECT_DISK_NAME_WORDS");
        assert_eq!((HEADER.defined("COLLECT_DISK_CPUS"), name_bytes), (DISK_CPUS, DISK_NAME_BYTES));
        HEADER.has_size("onlooker_disk", DISK_BYTES);
        let bytes = disks_bytes(word(1), half(0x11));
        HEADER.is_laid_out("onlooker_disks", &bytes, &[("list", &[1; 8]), ("capacity", &[0x11; 4])]);
        HEADER.has_size("onlooker_disks", bytes.len());
    }
}
