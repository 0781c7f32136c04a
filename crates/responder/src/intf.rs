// SPDX-License-Identifier: Apache-2.0
//! The contract with the BPF programs, from this side: `bpf/intf.h` and `bpf/limits.h` are the other. Sizes and offsets are asserted on both sides against
//! literals, and here also against the skeleton, which comes from the compiled C; a test compares the enumerators with the header.

use crate::skeleton::types;

/// Bytes of a block.
pub const BLOCK_BYTES: u32 = 1024;
/// Largest `max_read_bytes` that may be configured.
pub const MAX_READ_BYTES: u32 = 8192;
/// Slabs of a responder.
pub const MAX_SLABS: u32 = 64;
/// Regions of a responder.
pub const MAX_REGIONS: u32 = 65_536;
/// Own addresses of a responder.
pub const MAX_ADDRESSES: u32 = 256;
/// Prefixes that may ask a responder.
pub const MAX_SOURCES: u32 = 1024;
/// Slots for collectors, slot 0 excluded.
pub const MAX_COLLECTORS: u32 = 64;
/// The slot of the program that finishes an answer.
pub const FINISH_SLOT: u32 = 0;

/// How a packet that was ours left the program. All but [`Exit::Answered`] and [`Exit::Passed`] are silent drops. The order is that of the checks: a
/// packet counted under one of them has passed all before it; [`Exit::Passed`] is beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Exit {
    /// Answered.
    Answered = 1,
    /// IPv4 options or IPv6 extension headers in front of UDP.
    Options = 2,
    /// Several datagrams were merged by receive offload (rx-udp-gro-forwarding).
    Aggregated = 3,
    /// The lease is over.
    Lease = 4,
    /// Source address that nobody can have on the device that the packet came in by.
    Martian = 5,
    /// Source address not allowed.
    Source = 6,
    /// Ends before the BTH does.
    Truncated = 7,
    /// Anything but an RC READ request.
    Opcode = 8,
    /// Transport version in the BTH.
    TransportVersion = 9,
    /// Partition key in the BTH.
    PartitionKey = 10,
    /// Not "don't fragment" alone.
    Ipv4Flags = 11,
    /// IPv4 header checksum.
    Ipv4Checksum = 12,
    /// IP length leaves no room for UDP, or goes beyond what was received.
    IpLength = 13,
    /// UDP length unlike the IP payload.
    UdpLength = 14,
    /// Not the length of a READ request.
    RoceLength = 15,
    /// Pad on a packet without payload.
    PadCount = 16,
    /// No such region.
    Rkey = 17,
    /// Outside of the region.
    Range = 18,
    /// Length or alignment that the profile does not serve.
    Profile = 19,
    /// Over the source's budget.
    SourceRate = 20,
    /// Over the processor's budget for all sources.
    CpuRate = 21,
    /// Request damaged.
    Icrc = 22,
    /// The region's entry names a slab or block that is not there.
    Slab = 23,
    /// The region is computed and its collector is not installed.
    Collector = 24,
    /// The collector had nothing to say.
    CollectorRefused = 25,
    /// The answer would be longer than the device's MTU, which was lowered since the attachment.
    Mtu = 26,
    /// The packet could not grow to the answer's size.
    Room = 27,
    /// RoCEv2's own port: a READ request that is not for this responder, left to the stack.
    Passed = 28,
}

impl Exit {
    /// Entries of the counters map; index 0 is never counted.
    pub const COUNT: usize = 29;
    /// All of them, in order.
    pub const ALL: [Exit; Self::COUNT - 1] = [
        Exit::Answered,
        Exit::Options,
        Exit::Aggregated,
        Exit::Lease,
        Exit::Martian,
        Exit::Source,
        Exit::Truncated,
        Exit::Opcode,
        Exit::TransportVersion,
        Exit::PartitionKey,
        Exit::Ipv4Flags,
        Exit::Ipv4Checksum,
        Exit::IpLength,
        Exit::UdpLength,
        Exit::RoceLength,
        Exit::PadCount,
        Exit::Rkey,
        Exit::Range,
        Exit::Profile,
        Exit::SourceRate,
        Exit::CpuRate,
        Exit::Icrc,
        Exit::Slab,
        Exit::Collector,
        Exit::CollectorRefused,
        Exit::Mtu,
        Exit::Room,
        Exit::Passed,
    ];

    /// Its name as a label value, as in `bpf/intf.h` without the prefix and in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Exit::Answered => "answered",
            Exit::Options => "options",
            Exit::Aggregated => "aggregated",
            Exit::Lease => "lease",
            Exit::Martian => "martian",
            Exit::Source => "source",
            Exit::Truncated => "truncated",
            Exit::Opcode => "opcode",
            Exit::TransportVersion => "transport_version",
            Exit::PartitionKey => "partition_key",
            Exit::Ipv4Flags => "ipv4_flags",
            Exit::Ipv4Checksum => "ipv4_checksum",
            Exit::IpLength => "ip_length",
            Exit::UdpLength => "udp_length",
            Exit::RoceLength => "roce_length",
            Exit::PadCount => "pad_count",
            Exit::Rkey => "rkey",
            Exit::Range => "range",
            Exit::Profile => "profile",
            Exit::SourceRate => "source_rate",
            Exit::CpuRate => "cpu_rate",
            Exit::Icrc => "icrc",
            Exit::Slab => "slab",
            Exit::Collector => "collector",
            Exit::CollectorRefused => "collector_refused",
            Exit::Mtu => "mtu",
            Exit::Room => "room",
            Exit::Passed => "passed",
        }
    }
}

/// [`Exit::COUNT`] as the maps have it.
pub const EXITS: u32 = 29;
const _: () = assert!(EXITS as usize == Exit::COUNT);

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes of `struct onlooker_region`.
pub(crate) const REGION_BYTES: usize = 40;
/// Bytes of `struct onlooker_prefix`.
pub(crate) const PREFIX_BYTES: usize = 20;
/// Bytes of `struct onlooker_config`.
pub(crate) const CONFIG_BYTES: usize = 48;
/// Bytes of `struct onlooker_address`.
pub(crate) const ADDRESS_BYTES: usize = 16;

/// Words of an answer in front of its data: ONLOOKER_DATA_WORD.
const DATA_WORD: usize = 10;
/// Bytes of `struct onlooker_scratch`.
pub const SCRATCH_BYTES: usize = std::mem::size_of::<types::onlooker_scratch>();
/// Where the block begins in it. Operators' code may write there and nowhere else (crate metrics, `user::inspect`).
pub const BLOCK_AT: usize = std::mem::offset_of!(types::onlooker_scratch, packet) + 8 * DATA_WORD;
/// Where the offset of the bytes asked for stands in it.
pub const OFFSET_AT: usize = std::mem::offset_of!(types::onlooker_scratch, request)
    + std::mem::offset_of!(types::onlooker_request, offset_bytes);

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<types::onlooker_region>() == REGION_BYTES);
    assert!(offset_of!(types::onlooker_region, va) == 0);
    assert!(offset_of!(types::onlooker_region, bytes) == 8);
    assert!(offset_of!(types::onlooker_region, identity) == 16);
    assert!(offset_of!(types::onlooker_region, slab) == 24);
    assert!(offset_of!(types::onlooker_region, first_block) == 28);
    assert!(offset_of!(types::onlooker_region, kind) == 32);
    assert!(size_of::<types::onlooker_prefix>() == PREFIX_BYTES);
    assert!(offset_of!(types::onlooker_prefix, bits) == 0);
    assert!(offset_of!(types::onlooker_prefix, address) == 4);
    assert!(size_of::<types::onlooker_config>() == CONFIG_BYTES);
    assert!(offset_of!(types::onlooker_config, source_interval_ns) == 0);
    assert!(offset_of!(types::onlooker_config, source_burst_ns) == 8);
    assert!(offset_of!(types::onlooker_config, cpu_interval_ns) == 16);
    assert!(offset_of!(types::onlooker_config, cpu_burst_ns) == 24);
    assert!(offset_of!(types::onlooker_config, max_read_bytes) == 32);
    assert!(offset_of!(types::onlooker_config, port) == 36);
    assert!(offset_of!(types::onlooker_config, dscp) == 38);
    assert!(offset_of!(types::onlooker_config, skip_icrc) == 39);
    assert!(offset_of!(types::onlooker_config, roce) == 40);
    assert!(size_of::<types::onlooker_address>() == ADDRESS_BYTES);
    assert!(SCRATCH_BYTES == 8384 && BLOCK_AT == 184 && OFFSET_AT == 24);
    assert!(BLOCK_AT + MAX_READ_BYTES as usize + 8 == SCRATCH_BYTES);
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const HEADER: &str = include_str!("../bpf/intf.h");
    const LIMITS: &str = include_str!("../bpf/limits.h");

    #[test]
    fn exits_are_those_of_the_header() {
        let body = HEADER.split_once("enum onlooker_exit {").unwrap().1.split_once("};").unwrap().0;
        let mut header: BTreeMap<u32, String> = BTreeMap::new();
        for line in body.lines() {
            if let Some((name, rest)) = line.trim().split_once(" = ") {
                let number = rest.split(',').next().unwrap().parse().unwrap();
                header.insert(number, name.strip_prefix("ONLOOKER_").unwrap().to_lowercase());
            }
        }
        let mut ours: BTreeMap<u32, String> =
            Exit::ALL.iter().map(|&exit| (exit as u32, exit.name().to_owned())).collect();
        ours.insert(0, "go_on".to_owned());
        ours.insert(u32::try_from(Exit::COUNT).unwrap(), "exits".to_owned());
        assert_eq!(ours, header);
    }

    #[test]
    fn limits_are_those_of_the_header() {
        let limit = |name: &str| -> u32 {
            let line = LIMITS.lines().find(|line| line.starts_with(&format!("#define {name} "))).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        assert_eq!(limit("ONLOOKER_BLOCK_BYTES"), BLOCK_BYTES);
        assert_eq!(limit("ONLOOKER_MAX_READ_BYTES"), MAX_READ_BYTES);
        assert_eq!(limit("ONLOOKER_MAX_SLABS"), MAX_SLABS);
        assert_eq!(limit("ONLOOKER_MAX_REGIONS"), MAX_REGIONS);
        assert_eq!(limit("ONLOOKER_MAX_ADDRESSES"), MAX_ADDRESSES);
        assert_eq!(limit("ONLOOKER_MAX_SOURCES"), MAX_SOURCES);
        assert_eq!(limit("ONLOOKER_MAX_COLLECTORS"), MAX_COLLECTORS);
        assert_eq!(limit("ONLOOKER_FINISH_SLOT"), FINISH_SLOT);
        assert!(HEADER.contains(&format!("#define ONLOOKER_DATA_WORD {DATA_WORD}\n")));
        assert_eq!(
            (MAX_READ_BYTES, BLOCK_BYTES),
            (onlooker_wire::profile::LARGEST_MAX_READ_BYTES, onlooker_wire::profile::BLOCK_BYTES)
        );
    }
}
