// SPDX-License-Identifier: Apache-2.0
//! What group cpu's program is told, from this side: `facts.h` is the other, and asserts the same sizes and offsets.

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
    use crate::collect::intf::layout::{Header, word};

    const HEADER: Header = Header(include_str!("facts.h"));

    #[test]
    fn the_facts_are_as_in_the_header() {
        let bytes = Cpu { runqueue: word(1), cpustat: word(2), tick: word(3) }.to_bytes();
        let fields = [("runqueue", &[1; 8][..]), ("cpustat", &[2; 8]), ("tick", &[3; 8])];
        HEADER.is_laid_out("onlooker_cpu", &bytes, &fields);
        HEADER.has_size("onlooker_cpu", bytes.len());
    }
}
