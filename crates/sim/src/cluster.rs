// SPDX-License-Identifier: Apache-2.0
//! The networks of the published experiments (credit-based flow control), as far as they are stated; what is not is
//! marked as assumed.

/// A READ and its answer, bytes of payload. The published fragment, which is one packet at an MTU of 4096.
pub const FRAGMENT_BYTES: u64 = onlooker_flow::FRAGMENT_BYTES;
/// Of an answer beside its payload: preamble and gap 20, Ethernet 18, IPv4 20, UDP 8, BTH 12, AETH 4, ICRC 4.
pub const OVERHEAD_BYTES: u64 = 86;
/// Of a request on the wire: the same without AETH, with RETH 16.
pub const REQUEST_BYTES: u64 = 98;

/// A network, and what is configured for it.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// What it is called.
    pub name: &'static str,
    /// Of every link, bits a second.
    pub bits_per_s: u64,
    /// From a request to its answer with no queue anywhere, without the time on the links, ns.
    pub round_trip_ns: u64,
    /// Answers are marked with rising probability from so many bytes in the queue on, and all from four times as many;
    /// `None`: no ECN.
    pub mark_bytes: Option<u64>,
    /// From so many bytes in the queue on hosts are paused (PFC). Assumed: published is only at how many hosts it begins.
    pub pause_bytes: u64,
    /// READs of a queue pair that the card has under way.
    pub reads_of_pair: u64,
    /// Credit of a flow with the bandwidth-delay product, bytes.
    pub product_bytes: u32,
    /// T of the published credits, bytes.
    pub credit_bytes: u32,
    /// What a thread takes from sockets. Assumed: a seventh and a fifth of the link.
    pub socket_bytes_per_s: u64,
}

/// Cluster 1: 25 GbE, PFC, no ECN.
pub const SLOW: Cluster = Cluster {
    name: "25g_pfc",
    bits_per_s: 25_000_000_000,
    round_trip_ns: 5_500,
    mark_bytes: None,
    pause_bytes: 10 << 20,
    reads_of_pair: 16,
    product_bytes: 16 << 10,
    credit_bytes: 8 << 20,
    socket_bytes_per_s: 450_000_000,
};

/// Cluster 2: 200 GbE, ECN, and PFC where that does not do.
pub const FAST: Cluster = Cluster {
    name: "200g_ecn",
    bits_per_s: 200_000_000_000,
    round_trip_ns: 4_000,
    mark_bytes: Some(1_000 << 10),
    pause_bytes: 24 << 20,
    reads_of_pair: 32,
    product_bytes: 96 << 10,
    credit_bytes: 1 << 20,
    socket_bytes_per_s: 5_000_000_000,
};

impl Cluster {
    /// How long so many bytes are on a link.
    #[must_use]
    pub fn wire_ns(&self, bytes: u64) -> u64 {
        (bytes * 8_000_000_000).div_ceil(self.bits_per_s)
    }

    /// How long an answer is.
    #[must_use]
    pub fn answer_ns(&self) -> u64 {
        self.wire_ns(FRAGMENT_BYTES + OVERHEAD_BYTES)
    }
}
