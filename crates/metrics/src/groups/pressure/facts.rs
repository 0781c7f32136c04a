// SPDX-License-Identifier: Apache-2.0
//! What group pressure's program is told, from this side: `facts.h` is the other, and asserts the same sizes and offsets.

/// States of group pressure, at most.
pub(super) const PRESSURE_STATES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::intf::address_bytes;
    use crate::collect::intf::layout::{Header, word};

    const HEADER: Header = Header(include_str!("facts.h"));

    #[test]
    fn the_facts_are_as_in_the_header() {
        HEADER.is_laid_out("onlooker_pressure_cpu", &address_bytes(word(1)), &[("group", &[1; 8])]);
        HEADER.has_size("onlooker_pressure_cpu", address_bytes(0).len());
        assert_eq!(HEADER.defined("COLLECT_PRESSURE_STATES") as usize, PRESSURE_STATES);
        HEADER.has_offset("onlooker_pressure_facts", "group", 0);
        HEADER.has_offset("onlooker_pressure_facts", "states", 8);
        HEADER.has_size("onlooker_pressure_facts", 8 + PRESSURE_STATES);
    }
}
