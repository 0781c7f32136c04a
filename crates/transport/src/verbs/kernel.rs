// SPDX-License-Identifier: Apache-2.0
//! From a bootstrap answer to a queue pair that a host's kernel responder answers, on RoCEv2's own port (docs/responder.md, RDMA devices as requesters).
//!
//! That responder keeps nothing of its requesters, so nobody is asked and the other end is made up: it answers to the queue pair number that a request names, which must be
//! this end's own, and counts messages from packet 0, from which this end must count, too. It answers a READ by one packet, and what it does not serve by silence: then the
//! device repeats the READ until the queue pair fails.

use super::connect::{Unconnected, open};
use super::copy::DirectoryCopy;
use super::requester::VerbsRequester;
use crate::Error;
use onlooker_bootstrap::Responder;
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::{Error as HostError, Via};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_verbs::{Card, CardPair, Endpoint, Path, Settings};
use std::net::IpAddr;

/// Number of the first packet: the responder's message number is a request's packet number and 1 (docs/format/wire.md).
const FIRST_PACKET: u32 = 0;
/// READs that a device may have under way at once. The responder has no limit of its own; this is what devices answer that have one.
const READS_ANSWERED: u8 = 16;
/// 67 ms seven times, so that a READ that gets silence costs its queue pair half a second and not four, and that one that was lost comes before a session gives its region up
/// (a quarter of a second). A repeated READ does no harm: the responder keeps no state.
const PATH: Path = Path { timeout_exponent: 14, retries: 6 };

impl Unconnected {
    /// On this device, for the kernel responder of the host that gave `told`. A READ is as long as one packet carries: [`Port::settings`](onlooker_verbs::Port::settings) of the
    /// connected pair has that.
    ///
    /// # Errors
    /// [`Error::Host`]: the host has none that answers devices; [`Error::Device`]: the device refuses, or its packets
    /// do not carry a block.
    pub fn for_kernel(card: &Card, told: &Bootstrapped) -> Result<Self, Error> {
        let mtu_bytes = card.mtu_bytes();
        let max_read_blocks = max_read_blocks(told, mtu_bytes)?.ok_or_else(|| onlooker_verbs::Error::Limit {
            device: card.queue().device().name().to_owned(),
            what: "bytes a packet (a network MTU of 1200 gives them)",
            wanted: BLOCK_BYTES as u64,
            limit: mtu_bytes.into(),
        })?;
        let mut pair = card.pair(Settings { max_read_blocks, ..Settings::default() })?;
        pair.set_packet(FIRST_PACKET);
        Ok(Self { pair, copy: DirectoryCopy::default() })
    }

    /// Connects to the kernel responder of the host that gave `told`; it is told nothing.
    ///
    /// # Errors
    /// As [`Unconnected::for_kernel`]; [`Error::Connect`]: among others there is no way there.
    pub fn connect_kernel(mut self, told: &Bootstrapped) -> Result<CardPair, Error> {
        answering(told)?;
        let far_end = far_end(&self.pair.endpoint(), told.peer.ip());
        let connected = self.pair.connect(&far_end, PATH);
        connected.map_err(|source| Error::Connect { peer: told.peer.to_string(), source })?;
        Ok(self.pair)
    }
}

/// A requester to the kernel responder of the host that gave `told`, by the device of the address that led there. The session over it is one of [`Via::Kernel`].
///
/// # Errors
/// [`Error::Host`]: the host has none that answers devices; [`Error::Device`]: nor can this machine ask it;
/// [`Error::Connect`].
pub fn connect_kernel(told: &Bootstrapped) -> Result<VerbsRequester, Error> {
    answering(told)?;
    let card = open(told.local, 1)?;
    let pair = Unconnected::for_kernel(&card, told)?.connect_kernel(told)?;
    // The pair's own settings have the limit.
    Ok(VerbsRequester::new(card, pair, u32::MAX))
}

/// The host's kernel responder, if it answers devices.
fn answering(told: &Bootstrapped) -> Result<&Responder, HostError> {
    let (responder, _) = told.responder(Via::Kernel)?;
    if responder.roce {
        return Ok(responder);
    }
    let problem = "it answers no RDMA devices: set `[kernel] roce = true` in the host's agent.toml";
    Err(HostError::Problem { peer: told.peer.to_string(), kind: Via::Kernel.kind(), problem: problem.to_owned() })
}

/// Longest READ that one packet carries and the responder answers; `None`: a packet does not carry a block.
fn max_read_blocks(told: &Bootstrapped, mtu_bytes: u16) -> Result<Option<u32>, HostError> {
    let answered = told.answer.max_read_blocks(answering(told)?);
    let carried = u32::try_from(usize::from(mtu_bytes) / BLOCK_BYTES).unwrap_or(0);
    Ok((carried > 0).then_some(answered.min(carried)))
}

/// The other end, as this one has to see it.
fn far_end(own: &Endpoint, peer: IpAddr) -> Endpoint {
    let address = match peer.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    Endpoint {
        queue_pair: own.queue_pair,
        packet: FIRST_PACKET,
        gid: address.octets(),
        mtu_bytes: own.mtu_bytes,
        reads_answered: READS_ANSWERED,
    }
}

#[cfg(test)]
#[path = "kernel_tests.rs"]
mod tests;
