// SPDX-License-Identifier: Apache-2.0
//! What group responder's program is told, from this side: `facts.h` is the other, and asserts the same sizes and offsets.

/// CPUs of a block of group responder.
pub(super) const RESPONDER_CPUS_PER_BLOCK: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::intf::layout::Header;

    const HEADER: Header = Header(include_str!("facts.h"));

    #[test]
    fn the_facts_are_as_in_the_header() {
        assert_eq!(HEADER.defined("COLLECT_RESPONDER_CPUS_PER_BLOCK"), RESPONDER_CPUS_PER_BLOCK);
    }
}
