// SPDX-License-Identifier: Apache-2.0
//! What group network's program is told, from this side: `facts.h` is the other, and asserts the same sizes and offsets.

/// Buckets of a namespace's devices: a scan that is there is complete.
pub(super) const BUCKETS: u32 = 256;
/// CPUs of a table of group network.
pub(super) const DEVICE_CPUS: u32 = 8;
/// Bytes of `struct onlooker_row`.
pub(super) const ROW_BYTES: usize = 56;
/// `enum onlooker_way`.
pub(super) const WAY_LSTATS: u32 = 1;
/// `enum onlooker_way`.
pub(super) const WAY_TSTATS: u32 = 2;
/// `enum onlooker_way`.
pub(super) const WAY_VETH: u32 = 3;

/// `struct onlooker_namespace`: where the programs keep what a reader of the devices looks at.
pub(super) mod namespace {
    pub(in super::super) const USED: usize = 12;
    pub(in super::super) const SEQUENCE: usize = 20;
    pub(in super::super) const CURSOR: usize = 24;
    pub(in super::super) const FREE: usize = 32;
}

/// `struct onlooker_namespace`, as its loader writes it.
pub(super) fn namespace_bytes(net: u64, capacity: u32) -> Vec<u8> {
    let mut bytes = net.to_le_bytes().to_vec();
    bytes.extend(capacity.to_le_bytes());
    bytes.resize(40, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::intf::layout::{Header, half, word};

    const HEADER: Header = Header(include_str!("facts.h"));

    #[test]
    fn the_facts_are_as_in_the_header() {
        assert_eq!(HEADER.defined("COLLECT_BUCKETS"), BUCKETS);
        assert_eq!(HEADER.defined("COLLECT_DEVICE_CPUS"), DEVICE_CPUS);
        for (name, way) in [("LSTATS", WAY_LSTATS), ("TSTATS", WAY_TSTATS), ("VETH", WAY_VETH)] {
            assert!(HEADER.0.contains(&format!("ONLOOKER_WAY_{name} = {way},")), "{name}");
        }
        HEADER.has_size("onlooker_row", ROW_BYTES);
        let bytes = namespace_bytes(word(1), half(0x11));
        assert_eq!((&bytes[..8], &bytes[8..12]), (&[1; 8][..], &[0x11; 4][..]));
        for (field, at) in [
            ("net", 0),
            ("capacity", 8),
            ("used", namespace::USED),
            ("sequence", namespace::SEQUENCE),
            ("cursor", namespace::CURSOR),
            ("free", namespace::FREE),
        ] {
            HEADER.has_offset("onlooker_namespace", field, at);
        }
        HEADER.has_size("onlooker_namespace", bytes.len());
    }
}
