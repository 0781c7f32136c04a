// SPDX-License-Identifier: Apache-2.0
//! The contract with the BPF programs, from this side: `bpf/dta.h` is the other. A test compares the enumerators.

use crate::skeleton::types;

/// The one list of exits.
macro_rules! exits {
    ($($(#[$doc:meta])* $exit:ident = $number:literal, $name:literal;)*) => {
        /// What became of a packet to the translator's port. All but [`Exit::Stored`] and [`Exit::Probe`] are discarded.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Exit {
            $($(#[$doc])* $exit = $number,)*
        }

        impl Exit {
            /// All of them, in the order of the checks but for the first two of reports.
            pub const ALL: &[Self] = &[$(Self::$exit),*];

            /// A short stable name, for counters; of what `onlooker_dta` finds, too, the same as there.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$exit => $name,)*
                }
            }
        }
    };
}

exits! {
    /// IPv4 options or IPv6 extension headers in front of UDP.
    Options = 2, "options";
    /// Several datagrams were merged by receive offload.
    Aggregated = 3, "aggregated";
    /// The lease is over.
    Lease = 4, "lease";
    /// Source address that nobody can have on the device that the packet came in by.
    Martian = 5, "martian";
    /// Source address not allowed.
    Source = 6, "source";
    /// A fragment.
    Fragment = 11, "fragment";
    /// IPv4 header checksum.
    Ipv4Checksum = 12, "ipv4_checksum";
    /// IP length leaves no room for UDP, or goes beyond what was received.
    IpLength = 13, "ip_length";
    /// UDP length unlike the IP payload.
    UdpLength = 14, "udp_length";
    /// Stored.
    Stored = 32, "stored";
    /// A question, answered.
    Probe = 33, "probe";
    /// Shorter than a header.
    Truncated = 34, "truncated";
    /// Not version 1.
    Version = 35, "version";
    /// Importance or reserved bits, or a probe without a number.
    Flags = 36, "flags";
    /// A number, and cannot be sent again.
    Sequence = 37, "sequence";
    /// Not as long as key and payload.
    Length = 38, "length";
    /// None of the four primitives.
    Primitive = 39, "primitive";
    /// No key, one that is too long, or one where none belongs.
    KeyLength = 40, "key_length";
    /// Likewise a payload.
    PayloadLength = 41, "payload_length";
    /// None of the copies that there are.
    Copies = 42, "copies";
    /// No such table.
    Table = 43, "table";
    /// Another access key than the table's.
    Access = 44, "access";
    /// Over the source's budget.
    Budget = 45, "budget";
    /// The table is of another primitive.
    OtherPrimitive = 46, "other_primitive";
    /// Not as long as the table's payloads.
    OtherPayload = 47, "other_payload";
    /// Came before.
    Duplicate = 48, "duplicate";
    /// Others are missing before it.
    Gap = 49, "gap";
    /// Numbered, and nobody has said where the reporter begins.
    UnknownReporter = 50, "unknown_reporter";
    /// Another processor has the list, or still writes the batch before.
    Busy = 51, "busy";
    /// The table names a slab or block that is not there.
    Slab = 52, "slab";
}

/// Bytes of `struct onlooker_dta_table`.
pub(crate) const TABLE_BYTES: usize = 48;

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<types::onlooker_dta_table>() == TABLE_BYTES);
    assert!(offset_of!(types::onlooker_dta_table, access) == 16);
    assert!(offset_of!(types::onlooker_dta_table, slab) == 20);
    assert!(offset_of!(types::onlooker_dta_table, first_block) == 24);
    assert!(offset_of!(types::onlooker_dta_table, slots_mask) == 28);
    assert!(offset_of!(types::onlooker_dta_table, slot_bytes) == 32);
    assert!(offset_of!(types::onlooker_dta_table, list) == 36);
    assert!(offset_of!(types::onlooker_dta_table, primitive) == 40);
    assert!(offset_of!(types::onlooker_dta_table, payload_bytes) == 41);
    assert!(offset_of!(types::onlooker_dta_table, check_bytes) == 42);
    assert!(offset_of!(types::onlooker_dta_table, batch) == 43);
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const OURS: &str = include_str!("../bpf/dta.h");
    const RESPONDERS: &str = include_str!("../../responder/bpf/intf.h");

    /// Enumerators of a header by number, without their prefix.
    fn enumerators(header: &str, name: &str, prefix: &str) -> BTreeMap<u32, String> {
        let body = header.split_once(&format!("enum {name} {{")).unwrap().1.split_once("};").unwrap().0;
        let pairs = body.lines().filter_map(|line| line.trim().split_once(" = "));
        let number = |rest: &str| rest.split(',').next().unwrap().parse().unwrap();
        pairs.map(|(name, rest)| (number(rest), name.strip_prefix(prefix).unwrap().to_lowercase())).collect()
    }

    #[test]
    fn exits_are_those_of_the_headers() {
        let mut all = enumerators(OURS, "onlooker_dta_exit", "DTA_");
        let (_, last) = all.pop_last().unwrap();
        assert_eq!(last, "exits");
        let shared = enumerators(RESPONDERS, "onlooker_exit", "ONLOOKER_");
        for exit in Exit::ALL.iter().filter(|exit| (**exit as u32) < Exit::Stored as u32) {
            all.insert(*exit as u32, shared[&(*exit as u32)].clone());
        }
        // Fragments are refused by the flags of their header.
        all.insert(Exit::Fragment as u32, "fragment".to_owned());
        let ours: BTreeMap<u32, String> = Exit::ALL.iter().map(|exit| (*exit as u32, exit.name().to_owned())).collect();
        assert_eq!(ours, all);
    }
}
