// SPDX-License-Identifier: Apache-2.0
//! From a bootstrap answer to a connected queue pair: this machine's device, a second bootstrap with this end of the connection, the host's end
//! (docs/format/bootstrap.md, Queue pairs).

use super::copy::DirectoryCopy;
use super::requester::VerbsRequester;
use crate::Error;
use onlooker_bootstrap::{Id, QueuePairEnd, VerbsRequest};
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::{Error as HostError, Via};
use onlooker_verbs::{Card, CardPair, CompletionQueue, Device, Endpoint, Path, Settings};
use std::net::IpAddr;

/// What the other end is told of this one.
#[must_use]
pub fn end_of(endpoint: &Endpoint) -> QueuePairEnd {
    let Endpoint { queue_pair, packet, gid, mtu_bytes, reads_answered } = *endpoint;
    QueuePairEnd { queue_pair, packet, gid: Id(gid), mtu_bytes, reads_answered }
}

/// The reverse of [`end_of`].
#[must_use]
pub fn endpoint_of(end: &QueuePairEnd) -> Endpoint {
    let QueuePairEnd { queue_pair, packet, gid: Id(gid), mtu_bytes, reads_answered } = *end;
    Endpoint { queue_pair, packet, gid, mtu_bytes, reads_answered }
}

/// The device that has `local` as an address, with a completion queue for so many hosts.
///
/// # Errors
/// [`Error::Device`]: no libibverbs, no such device, no room in it.
pub fn open(local: IpAddr, hosts: u32) -> Result<Card, Error> {
    let device = Device::of(local.to_canonical())?;
    let entries = hosts.max(1).saturating_mul(Settings::default().depth).min(device.limits().completions);
    Ok(Card::new(CompletionQueue::new(&device, entries)?))
}

/// A queue pair that waits for the host's end.
#[derive(Debug)]
pub struct Unconnected {
    pub(super) pair: CardPair,
    pub(super) copy: DirectoryCopy,
}

impl Unconnected {
    /// On this device.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn new(card: &Card) -> Result<Self, Error> {
        Ok(Self { pair: card.pair(Settings::default())?, copy: DirectoryCopy::default() })
    }

    /// On this device, for the host that gave `told`: with memory for a copy of its directory, where it writes one.
    ///
    /// # Errors
    /// [`Error::Host`]: the host has no such responder; [`Error::Device`].
    pub fn for_host(card: &Card, told: &Bootstrapped) -> Result<Self, Error> {
        let (responder, _) = told.responder(Via::Verbs)?;
        let mut new = Self::new(card)?;
        new.copy = DirectoryCopy::of(card, &mut new.pair, told, responder);
        Ok(new)
    }

    /// The host's directory is written there. The queue pair's owner keeps it: [`super::Flows::add_with_copy`].
    #[must_use]
    pub fn copy(&self) -> DirectoryCopy {
        self.copy.clone()
    }

    /// What the second bootstrap asks with. `reader_id`: [`crate::packet::reader_id`].
    #[must_use]
    pub fn request(&self, reader_id: Id) -> VerbsRequest {
        VerbsRequest { reader_id, end: end_of(&self.pair.endpoint()), copy: self.copy.told() }
    }

    /// Connects to what that was answered.
    ///
    /// # Errors
    /// [`Error::Host`]: the host has no queue pair for it; [`Error::Connect`].
    pub fn connect(mut self, told: &Bootstrapped) -> Result<CardPair, Error> {
        let peer = || told.peer.to_string();
        let (responder, _) = told.responder(Via::Verbs)?;
        let answer = responder.verbs.ok_or_else(|| HostError::NoQueuePair { peer: peer() })?;
        let connected = self.pair.connect(&endpoint_of(&answer.end), Path::default());
        connected.map_err(|source| Error::Connect { peer: peer(), source })?;
        Ok(self.pair)
    }
}

/// A requester to the host that gave `told`, by the device of the address that led there. `ask` is one more bootstrap at [`Bootstrapped::peer`] with the request given; its
/// answer, returned, is the one that holds.
///
/// # Errors
/// [`Error::Host`]: the host has no such responder and was not asked, or what `ask` says; [`Error::Device`]; as
/// [`Unconnected::connect`].
pub fn connect(
    told: &Bootstrapped,
    reader_id: Id,
    ask: impl FnOnce(VerbsRequest) -> Result<Bootstrapped, HostError>,
) -> Result<(Bootstrapped, VerbsRequester), Error> {
    told.responder(Via::Verbs)?;
    let card = open(told.local, 1)?;
    let pair = Unconnected::for_host(&card, told)?;
    let copy = pair.copy();
    let told = ask(pair.request(reader_id))?;
    let pair = pair.connect(&told)?;
    let max_read_blocks = told.answer.max_read_blocks(told.responder(Via::Verbs)?.0);
    Ok((told, VerbsRequester::with_copy(card, pair, max_read_blocks, &copy)))
}
