// SPDX-License-Identifier: Apache-2.0
//! What group netstat's program is told, from this side: `facts.h` is the other, and asserts the same sizes and offsets.

use crate::collect::intf::Space;

/// Slots of a CPU in group netstat.
pub(super) const NETSTAT_SLOTS: usize = 62;
/// Lists that group netstat reads on a CPU, at most.
pub(super) const MIBS: usize = 12;
/// Numbers of such a list, at most.
pub(super) const MIB_WORDS: u32 = 160;
/// Numbers of all of them.
pub(super) const MIB_ROOM: u32 = 480;

/// `struct onlooker_mib`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mib {
    pub(super) first: u64,
    pub(super) words: u32,
    pub(super) at: u32,
}

impl Mib {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.first.to_le_bytes().to_vec();
        bytes.extend([self.words, self.at].into_iter().flat_map(u32::to_le_bytes));
        bytes
    }
}

/// `struct onlooker_netstat_facts`.
pub(super) struct NetstatFacts {
    pub(super) space: Space,
    pub(super) mibs: Vec<Mib>,
    pub(super) items: [u16; NETSTAT_SLOTS],
}

impl NetstatFacts {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::intf::layout::{Header, half, word};

    const HEADER: Header = Header(include_str!("facts.h"));

    #[test]
    fn the_facts_are_as_in_the_header() {
        assert_eq!(HEADER.defined("COLLECT_NETSTAT_SLOTS") as usize, NETSTAT_SLOTS);
        assert_eq!(HEADER.defined("COLLECT_MIBS") as usize, MIBS);
        assert_eq!((HEADER.defined("COLLECT_MIB_WORDS"), HEADER.defined("COLLECT_MIB_ROOM")), (MIB_WORDS, MIB_ROOM));
        let space = Space { net: word(1), cookie: word(2) };
        let mib = Mib { first: word(3), words: half(0x11), at: half(0x12) };
        let fields = [("first", &[3; 8][..]), ("words", &[0x11; 4]), ("at", &[0x12; 4])];
        HEADER.is_laid_out("onlooker_mib", &mib.to_bytes(), &fields);
        HEADER.has_size("onlooker_mib", mib.to_bytes().len());
        let facts = NetstatFacts { space, mibs: vec![mib], items: [0x2121; NETSTAT_SLOTS] };
        let fields = [("space", space.to_bytes()), ("mibs", mib.to_bytes()), ("items", vec![0x21; 2 * NETSTAT_SLOTS])];
        let fields: Vec<(&str, &[u8])> = fields.iter().map(|(name, value)| (*name, value.as_slice())).collect();
        HEADER.is_laid_out("onlooker_netstat_facts", &facts.to_bytes(), &fields);
        assert!(HEADER.0.contains("COLLECT_SIZE(onlooker_netstat_facts, 16 + 16 * COLLECT_MIBS + 128);"));
        assert_eq!(facts.to_bytes().len(), 16 + 16 * MIBS + 128);
    }
}
