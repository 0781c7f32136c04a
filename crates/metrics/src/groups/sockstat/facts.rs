// SPDX-License-Identifier: Apache-2.0
//! What group sockstat's program is told, from this side: `facts.h` is the other, and asserts the same sizes and offsets.

use crate::collect::intf::Space;

/// Numbers of group sockstat that are kept once.
pub(super) const SOCKSTAT_WHOLES: usize = 12;
/// Numbers of group sockstat of a CPU.
pub(super) const SOCKSTAT_PARTS: usize = 12;

/// `struct onlooker_number`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Number {
    pub(super) address: u64,
    pub(super) beside: u64,
    pub(super) width: u32,
    pub(super) add: i32,
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
pub(super) struct SockstatFacts {
    pub(super) space: Space,
    pub(super) wholes: [Number; SOCKSTAT_WHOLES],
    pub(super) parts: [Number; SOCKSTAT_PARTS],
}

impl SockstatFacts {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.space.to_bytes();
        for number in self.wholes.iter().chain(&self.parts) {
            bytes.extend(number.to_bytes());
        }
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
        assert_eq!(HEADER.defined("COLLECT_SOCKSTAT_WHOLES") as usize, SOCKSTAT_WHOLES);
        assert_eq!(HEADER.defined("COLLECT_SOCKSTAT_PARTS") as usize, SOCKSTAT_PARTS);
        let space = Space { net: word(1), cookie: word(2) };
        let number = Number { address: word(3), beside: word(4), width: half(0x11), add: 0x1212_1212 };
        let fields = [("address", &[3; 8][..]), ("beside", &[4; 8]), ("width", &[0x11; 4]), ("add", &[0x12; 4])];
        HEADER.is_laid_out("onlooker_number", &number.to_bytes(), &fields);
        HEADER.has_size("onlooker_number", number.to_bytes().len());
        let part = Number { address: word(5), beside: word(6), width: half(0x13), add: 0x1414_1414 };
        let facts = SockstatFacts { space, wholes: [number; SOCKSTAT_WHOLES], parts: [part; SOCKSTAT_PARTS] };
        let all = |number: Number, count| std::iter::repeat_n(number.to_bytes(), count).flatten().collect::<Vec<u8>>();
        let fields = [
            ("space", space.to_bytes()),
            ("wholes", all(number, SOCKSTAT_WHOLES)),
            ("parts", all(part, SOCKSTAT_PARTS)),
        ];
        let fields: Vec<(&str, &[u8])> = fields.iter().map(|(name, value)| (*name, value.as_slice())).collect();
        HEADER.is_laid_out("onlooker_sockstat_facts", &facts.to_bytes(), &fields);
        let size =
            "COLLECT_SIZE(onlooker_sockstat_facts, 16 + 24 * (COLLECT_SOCKSTAT_WHOLES + COLLECT_SOCKSTAT_PARTS));";
        assert!(HEADER.0.contains(size));
        assert_eq!(facts.to_bytes().len(), 16 + 24 * (SOCKSTAT_WHOLES + SOCKSTAT_PARTS));
    }
}
