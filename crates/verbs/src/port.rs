// SPDX-License-Identifier: Apache-2.0
//! What [`Reads`](crate::Reads) needs of a device: to post, to poll, and to look at what has landed.

use onlooker_region::Block;

use crate::completion::{Completed, CompletionQueue, MAX_POLL};
use crate::endpoint::{Endpoint, Path};
use crate::error::Error;
use crate::memory::Landing;
use crate::queue_pair::{QueuePair, bytes_of};
use crate::settings::Settings;
use crate::work_request::WorkRequest;

/// A device with one completion queue.
pub trait Port {
    /// A queue pair with the memory that its answers land in.
    type Pair;

    /// What a pair of this port was made for; `None`: it is another port's.
    fn settings(&self, pair: &Self::Pair) -> Option<Settings>;

    /// Posts all.
    ///
    /// # Errors
    /// It did not: the pair is of no use any more.
    fn post(&mut self, pair: &mut Self::Pair, batch: &[WorkRequest]) -> Result<(), Error>;

    /// As [`CompletionQueue::poll`].
    ///
    /// # Errors
    /// Completions were lost.
    fn poll(&mut self, completed: &mut [Completed; MAX_POLL]) -> Result<usize, Error>;

    /// Copies what has landed: so many bytes from a block on.
    fn landed(&self, pair: &Self::Pair, from: (u32, u32), to: &mut [Block]);

    /// Ends a queue pair. Completions of it may still come.
    fn retire(&mut self, pair: Self::Pair);
}

/// A real device.
#[derive(Debug)]
pub struct Card {
    queue: CompletionQueue,
}

/// A queue pair of a [`Card`] and the memory that its answers land in.
#[derive(Debug)]
pub struct CardPair {
    // Goes first: its memory must outlive it.
    pair: QueuePair,
    landing: Landing,
    settings: Settings,
}

impl Card {
    /// With this completion queue.
    #[must_use]
    pub fn new(queue: CompletionQueue) -> Self {
        Self { queue }
    }

    /// Its completion queue, to sleep on.
    #[must_use]
    pub fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Longest payload of a packet that its port takes.
    #[must_use]
    pub fn mtu_bytes(&self) -> u16 {
        bytes_of(self.queue.device().mtu())
    }

    /// A queue pair for one host, to be connected.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::System`].
    pub fn pair(&self, settings: Settings) -> Result<CardPair, Error> {
        let Settings { depth, max_read_blocks } = settings;
        let blocks = depth.checked_mul(max_read_blocks).ok_or_else(|| Error::Limit {
            device: self.queue.device().name().into(),
            what: "blocks for answers",
            wanted: u64::from(depth) * u64::from(max_read_blocks),
            limit: u32::MAX.into(),
        })?;
        let pair = QueuePair::new(&self.queue, depth)?;
        Ok(CardPair { pair, landing: Landing::new(self.queue.device(), blocks)?, settings })
    }
}

impl CardPair {
    /// What the host has to know.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.pair.endpoint()
    }

    /// As [`QueuePair::set_packet`].
    pub fn set_packet(&mut self, packet: u32) {
        self.pair.set_packet(packet);
    }

    /// The host may WRITE what is registered [`Writable`](crate::Writable), from the next [`CardPair::connect`] on.
    pub fn allow_writes(&mut self) {
        self.pair.allow_writes();
    }

    /// Connects to what the host has told.
    ///
    /// # Errors
    /// [`Error::Peer`] if that cannot be, or it answers no READs; [`Error::System`].
    pub fn connect(&mut self, host: &Endpoint, path: Path) -> Result<(), Error> {
        let device = self.pair.device();
        let reads = host.reads_from(device.limits().reads_sent);
        reads.map_err(|source| Error::Peer { device: device.name().into(), source })?;
        self.pair.connect(host, path)
    }
}

impl Port for Card {
    type Pair = CardPair;

    fn settings(&self, pair: &CardPair) -> Option<Settings> {
        pair.pair.is_on(&self.queue).then_some(pair.settings)
    }

    fn post(&mut self, pair: &mut CardPair, batch: &[WorkRequest]) -> Result<(), Error> {
        pair.pair.post(&pair.landing, batch)
    }

    fn poll(&mut self, completed: &mut [Completed; MAX_POLL]) -> Result<usize, Error> {
        self.queue.poll(completed)
    }

    fn landed(&self, pair: &CardPair, from: (u32, u32), to: &mut [Block]) {
        pair.landing.copy(from, to);
    }

    fn retire(&mut self, pair: CardPair) {
        drop(pair);
    }
}
