// SPDX-License-Identifier: Apache-2.0
//! The way to a host's memory, and what carries it.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::clock::Wear;
use onlooker_reader::{Pair, Requester as _, SchemaCache, Session, Via};
use onlooker_transport::open::kernel_flow;
use onlooker_transport::soft::FlowConfig;
use onlooker_transport::tcp::TcpRequester;
use onlooker_transport::verbs::{Card, Settings};

use super::Config;
use super::devices::{self, Alarm, Devices};
use super::sockets::{self, Sockets, Waiter};
use crate::connect::{Connected, Way};

/// What carries the READs of all hosts, but for those that have a connection of their own.
pub(super) struct Carriers<P: Alarm> {
    pub(super) sockets: Sockets,
    pub(super) devices: Devices<P>,
}

/// What carries a host's READs.
pub(super) enum Carrier {
    Device(devices::Place),
    Soft(sockets::Place),
    Tcp(Box<TcpRequester>),
}

/// The way to a host's memory.
pub(super) struct Link {
    pub(super) told: Bootstrapped,
    pub(super) session: Session,
    /// Who asks and who answers.
    pub(super) pair: Pair,
    pub(super) carrier: Carrier,
    /// Readings in a row that got no answer.
    pub(super) silences: u32,
    /// Whether any reading has succeeded.
    pub(super) is_proven: bool,
    /// When the session's counters were last told.
    pub(super) counted_ns: u64,
    pub(super) since_ns: u64,
    /// When its clock is asked for again.
    pub(super) wear: Wear,
}

impl Link {
    /// To the host that gave `told`, by READs of up to `max_read_blocks`.
    pub(super) fn new(
        told: Bootstrapped,
        (pair, carrier): (Pair, Carrier),
        max_read_blocks: u32,
        config: &Config,
        now_ns: u64,
    ) -> Self {
        let mut session = Session::new(&told.answer, pair.via, max_read_blocks, config.limits);
        let skip = config.skip.clone();
        session.select(move |entry, _| !skip.contains(&entry.name));
        session.rest();
        let wear = Wear::default();
        Self { told, session, pair, carrier, silences: 0, is_proven: false, counted_ns: 0, since_ns: now_ns, wear }
    }

    /// What the connector has brought. All links have the same `schemas`.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) fn of(
        Connected { told, way, .. }: Connected,
        carriers: &mut Carriers<Card>,
        waiter: &Waiter,
        schemas: &Arc<SchemaCache>,
        config: &Config,
        now_ns: u64,
    ) -> Result<Self, String> {
        let mut mirror = None;
        let (pair, carrier, max_read_blocks) = match way {
            Way::Verbs(pair, copy) => {
                let (responder, _) = told.responder(Via::Verbs).map_err(|error| error.to_string())?;
                let most = told.answer.max_read_blocks(responder).min(Settings::default().max_read_blocks);
                mirror = copy.mirror();
                let place = carriers.devices.add(told.local, *pair, mirror.clone())?;
                (Pair::VERBS_VERBS, Carrier::Device(place), most)
            }
            Way::Kernel => {
                let (address, flow) = kernel_flow(&told).map_err(|error| error.to_string())?;
                let flow = FlowConfig { credit_bytes: config.host_credit_bytes, ..flow };
                let place = carriers.sockets.add(address, flow, waiter).map_err(|error| error.to_string())?;
                (Pair::SOFT_KERNEL, Carrier::Soft(place), carriers.sockets.max_read_blocks(place))
            }
            Way::Tcp(requester) => {
                waiter.watch(requester.as_fd()).map_err(|error| format!("epoll: {error}"))?;
                let most = requester.max_read_blocks();
                (Pair::TCP, Carrier::Tcp(requester), most)
            }
        };
        let mut link = Self::new(told, (pair, carrier), max_read_blocks, config, now_ns);
        link.session.share(schemas);
        if let Some(mirror) = mirror {
            link.session.mirror(Box::new(mirror));
        }
        Ok(link)
    }

    /// READs under way are over.
    pub(super) fn end<P: Alarm>(self, carriers: &mut Carriers<P>) {
        match self.carrier {
            Carrier::Device(place) => carriers.devices.remove(place),
            Carrier::Soft(place) => carriers.sockets.remove(place),
            Carrier::Tcp(_) => {}
        }
    }

    /// Where its queue pair is, if it has one.
    pub(super) fn device(&self) -> Option<devices::Place> {
        match self.carrier {
            Carrier::Device(place) => Some(place),
            Carrier::Soft(_) | Carrier::Tcp(_) => None,
        }
    }
}
