// SPDX-License-Identifier: Apache-2.0
//! Group load's facts are one address: `facts.h` asserts the same.

use crate::collect::intf::address_bytes;
use crate::collect::intf::layout::{Header, word};

const HEADER: Header = Header(include_str!("facts.h"));

#[test]
fn the_facts_are_as_in_the_header() {
    HEADER.is_laid_out("onlooker_load_facts", &address_bytes(word(1)), &[("avenrun", &[1; 8])]);
    HEADER.has_size("onlooker_load_facts", address_bytes(0).len());
}
