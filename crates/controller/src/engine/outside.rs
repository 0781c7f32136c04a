// SPDX-License-Identifier: Apache-2.0
//! All that the engine needs of the world: something that carries READs, and something that finds ways to hosts.
//!
//! The real ones are [`super::carriers`] and [`crate::connect::Connector`]; tests have hosts in memory. Times are
//! given; nothing here waits. The engine is compiled for those that it has: carriers are called for each batch of READs.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use onlooker_bootstrap::Id;
use onlooker_reader::bootstrap::{Bootstrapped, Parting};
use onlooker_reader::{Broken, Completion, Memory, Mirror, Pair, Read, Via};
use onlooker_targets::Target;
use onlooker_transport::Error;
use onlooker_transport::soft::Totals;

use crate::connect::Answer;

/// Carries the READs of all hosts. How much is under way is not its concern.
pub(super) trait Carry {
    /// Where a host's READs go.
    type Place: Copy;

    /// As [`onlooker_reader::Requester::submit`].
    fn submit(&mut self, place: Self::Place, reads: &[Read]) -> Result<usize, Broken>;

    /// Takes what has come, and tells which READs have ended. Devices that are of no use any more go; their READs have
    /// ended.
    fn poll(&mut self, memory: &mut impl Memory, now_ns: u64, completions: &mut Vec<Completion>, gone: &mut Vec<Gone>);

    /// Why a place takes no READs any more, if that is so.
    fn broken(&mut self, place: Self::Place) -> Option<Broken>;

    /// Ends a place; its READs are over.
    fn remove(&mut self, place: Self::Place);

    /// The number of the device that a place is on.
    fn device_of(place: Self::Place) -> Option<u32>;

    /// The device of an address of this machine: whether it is there; why there is none; `None`: it is to be opened.
    fn device(&self, local: IpAddr, now_ns: u64) -> Option<Result<(), &str>>;

    /// READs of a place that were sent again.
    fn repeated(&self, place: Self::Place) -> u64;

    /// What soft requesters' sockets have counted.
    fn totals(&self) -> Totals;

    /// When [`Carry::poll`] has something to do even if nothing comes.
    fn wake_ns(&self) -> Option<u64>;
}

/// A device that was of no use any more.
pub(super) struct Gone {
    /// As in [`Carry::device_of`]: one that is opened later has another number.
    pub(super) number: u32,
    /// Why.
    pub(super) why: String,
    /// Ending it takes its time.
    pub(super) remains: Box<dyn Send>,
}

/// A way to a host, ready for READs.
pub(super) struct Added<P> {
    pub(super) place: P,
    /// Longest READ.
    pub(super) max_read_blocks: u32,
    /// Where the host writes its directory to.
    pub(super) mirror: Option<Box<dyn Mirror + Send>>,
}

/// Where a host's READs go, of who finds ways to hosts.
pub(super) type PlaceOf<N> = <<N as Connect>::Carriers as Carry>::Place;

/// Finds ways to hosts, without making anybody wait: what it is told to do it answers later.
pub(super) trait Connect {
    /// Where ways are put.
    type Carriers: Carry;
    /// What it brings of a host.
    type Way;

    /// As [`crate::connect::Connector::ask`].
    fn ask(&self, id: u64, target: Arc<Target>, first: Via, has_failed: bool);

    /// As [`crate::connect::Connector::rest`].
    fn rest(&self, id: u64, target: Arc<Target>, told: Box<Bootstrapped>, turn: (Via, bool));

    /// As [`crate::connect::Connector::clock`].
    fn clock(&self, id: u64, target: Arc<Target>, peer: SocketAddr);

    /// As [`crate::connect::Connector::part`].
    fn part(&self, parting: Parting);

    /// As [`crate::connect::Connector::end`].
    fn end(&self, remains: Box<dyn Send>);

    /// As [`crate::connect::Connector::open`].
    fn open(&self, local: IpAddr);

    /// A random name.
    ///
    /// # Errors
    /// No random numbers.
    fn reader_id(&self) -> Result<Id, Error>;

    /// Makes a queue pair of the device that leads to the host which gave `told`, and goes on as
    /// [`crate::connect::Connector::pair`]. Takes a millisecond.
    ///
    /// # Errors
    /// The device gives none.
    fn pair(
        &self,
        carriers: &Self::Carriers,
        asked: (u64, Arc<Target>),
        told: Box<Bootstrapped>,
        reader_id: Id,
        turn: (Via, bool),
    ) -> Result<(), (Box<Bootstrapped>, String)>;

    /// The next answer, if there is one. A device that was opened is among the carriers then.
    fn answer(&mut self, carriers: &mut Self::Carriers, now_ns: u64) -> Option<Answer<Self::Way, ()>>;

    /// Who asks and who answers on this way.
    fn pair_of(way: &Self::Way) -> Pair;

    /// Puts a way among the carriers; of one host at most `host_credit_bytes` will be asked for.
    ///
    /// # Errors
    /// It cannot be used.
    fn add(
        &self,
        carriers: &mut Self::Carriers,
        told: &Bootstrapped,
        way: Self::Way,
        host_credit_bytes: u32,
    ) -> Result<Added<PlaceOf<Self>>, String>;
}
