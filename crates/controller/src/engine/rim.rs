// SPDX-License-Identifier: Apache-2.0
//! The engine with what is real: the clock, epoll, sockets, devices and the connector's threads.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use onlooker_bootstrap::Id;
use onlooker_reader::bootstrap::{Bootstrapped, Parting};
use onlooker_reader::{Pair, Via};
use onlooker_targets::Target;
use onlooker_transport::Error;
use onlooker_transport::verbs::{self, Card, Unconnected};

use super::carriers::{Carriers, Place};
use super::devices;
use super::outside::{Added, Connect};
use super::waiter::Waiter;
use super::{Config, Engine, EngineError, Next, Orders, Pressure, system};
use crate::connect::{Answer, Connector, Way};
use crate::processor::Processor;

/// The engine that reads this machine's hosts.
pub(super) type RealEngine = Engine<Connector>;

/// Without hosts yet. Stays in the thread that made it.
pub(super) fn engine(
    config: Config,
    processor: Processor,
    pressure: Arc<Pressure>,
) -> Result<(RealEngine, Orders), EngineError> {
    let waiter = Waiter::new().map_err(system("make an epoll with an eventfd"))?;
    let bell = waiter.bell().clone();
    let wake = {
        let bell = bell.clone();
        move || bell.ring()
    };
    let connector =
        Connector::new(config.connectors, config.timeout, wake).map_err(system("start connector threads"))?;
    let (send, orders) = channel();
    let carriers = Carriers::new(waiter, &config, pressure.clone());
    let engine = Engine::new(config, carriers, connector, processor, orders, pressure);
    Ok((engine, Orders::new(send, bell)))
}

/// Reads until it is told to stop. `clock` tells the time, ns.
pub(super) fn run(engine: &mut RealEngine, clock: impl Fn() -> u64) -> Result<(), EngineError> {
    loop {
        match engine.turn(&clock) {
            Next::Stop => return Ok(()),
            Next::Again => {}
            Next::Sleep { until_ns } => {
                let carriers = engine.carriers();
                if carriers.is_quiet() {
                    let timeout = until_ns.map(|until_ns| Duration::from_nanos(until_ns.saturating_sub(clock())));
                    carriers.wait(timeout).map_err(system("wait"))?;
                }
            }
        }
    }
}

impl Connect for Connector {
    type Carriers = Carriers<Card>;
    type Way = Way;

    fn ask(&self, id: u64, target: Arc<Target>, first: Via, has_failed: bool) {
        Self::ask(self, id, target, first, has_failed);
    }

    fn rest(&self, id: u64, target: Arc<Target>, told: Box<Bootstrapped>, turn: (Via, bool)) {
        Self::rest(self, id, target, told, turn);
    }

    fn clock(&self, id: u64, target: Arc<Target>, peer: SocketAddr) {
        Self::clock(self, id, target, peer);
    }

    fn part(&self, parting: Parting) {
        Self::part(self, parting);
    }

    fn end(&self, remains: Box<dyn Send>) {
        Self::end(self, remains);
    }

    fn open(&self, local: IpAddr) {
        Self::open(self, local);
    }

    fn reader_id(&self) -> Result<Id, Error> {
        Ok(verbs::reader_id()?)
    }

    fn pair(
        &self,
        carriers: &Carriers<Card>,
        asked: (u64, Arc<Target>),
        told: Box<Bootstrapped>,
        reader_id: Id,
        turn: (Via, bool),
    ) -> Result<(), (Box<Bootstrapped>, String)> {
        let made = match carriers.devices.port(told.local) {
            Some(card) => Unconnected::for_host(card, &told).map_err(|error| error.to_string()),
            None => Err(devices::gone(told.local)),
        };
        match made {
            Ok(pair) => Self::pair(self, asked, told, (pair, reader_id), turn),
            Err(why) => return Err((told, why)),
        }
        Ok(())
    }

    fn answer(&mut self, carriers: &mut Carriers<Card>, now_ns: u64) -> Option<Answer<Way, ()>> {
        Some(match Self::answer(self)? {
            Answer::Host(id, step) => Answer::Host(id, step),
            Answer::Clock(id, told) => Answer::Clock(id, told),
            Answer::Device(local, Ok(card)) => {
                carriers.opened(local, Ok(card), now_ns);
                Answer::Device(local, Ok(()))
            }
            Answer::Device(local, Err(error)) => {
                carriers.opened(local, Err(error.to_string()), now_ns);
                Answer::Device(local, Err(error))
            }
        })
    }

    fn pair_of(way: &Way) -> Pair {
        match way {
            Way::Verbs(..) => Pair::VERBS_VERBS,
            Way::Kernel => Pair::SOFT_KERNEL,
            Way::Tcp(_) => Pair::TCP,
        }
    }

    fn add(
        &self,
        carriers: &mut Carriers<Card>,
        told: &Bootstrapped,
        way: Way,
        host_credit_bytes: u32,
    ) -> Result<Added<Place>, String> {
        carriers.add(told, way, host_credit_bytes)
    }
}
