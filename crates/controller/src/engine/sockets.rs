// SPDX-License-Identifier: Apache-2.0
//! The soft requesters' sockets, one for each of our addresses that leads to hosts.
//!
//! Each bounds what is in flight by its own receive buffer; the engine bounds what is in flight over all.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, PoisonError};

use onlooker_reader::{Broken, Completion, Memory, Read};
use onlooker_targets::Say;
use onlooker_transport::soft::{self, FlowConfig, FlowId, Socket, Totals};

use super::waiter::Waiter;
use super::{Config, Pressure};

/// A flow and the socket that it is on: another one, made later for the same address, has another number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    local: IpAddr,
    number: u32,
    flow: FlowId,
}

pub(super) struct Sockets {
    config: soft::Config,
    af_xdp: bool,
    say: Say,
    pressure: Arc<Pressure>,
    /// With their numbers.
    sockets: HashMap<IpAddr, (u32, Socket)>,
    made: u32,
    /// Of sockets that broke.
    gone: Totals,
}

impl Sockets {
    pub(super) fn new(config: &Config, pressure: Arc<Pressure>) -> Self {
        let Config { credit_bytes, af_xdp, ref say, .. } = *config;
        Self {
            config: soft::Config { credit_bytes },
            af_xdp,
            say: say.clone(),
            pressure,
            sockets: HashMap::new(),
            made: 0,
            gone: Totals::default(),
        }
    }

    fn open(&self, local: IpAddr) -> Result<Socket, soft::Error> {
        let mut socket = Socket::bind(SocketAddr::new(local, 0), self.config)?;
        let mut shown = "UDP".to_owned();
        if self.af_xdp {
            match socket.open_bypass() {
                Ok(bypass) => {
                    shown = bypass.description();
                    (self.say)(&format!("hosts that {local} leads to are read by {shown}"));
                }
                Err(error) => {
                    shown = format!("UDP ({error})");
                    (self.say)(&format!("{error}. Hosts that {local} leads to are read by UDP sockets"));
                }
            }
        }
        self.pressure.sockets.lock().unwrap_or_else(PoisonError::into_inner).insert(local, shown);
        Ok(socket)
    }

    /// Adds a flow to a host, on the socket of the address that leads there.
    pub(super) fn add(&mut self, peer: SocketAddr, flow: FlowConfig, waiter: &Waiter) -> Result<Place, soft::Error> {
        let failed = |operation| move |source| soft::Error::System { operation, address: peer, source };
        let local = own_address(peer).map_err(failed("route look-up"))?;
        let socket = match self.sockets.remove(&local) {
            Some(socket) => socket,
            None => {
                let socket = self.open(local)?;
                socket
                    .descriptors()
                    .try_for_each(|descriptor| waiter.watch(descriptor))
                    .map_err(failed("epoll_ctl"))?;
                self.made = self.made.wrapping_add(1);
                (self.made, socket)
            }
        };
        let (number, socket) = self.sockets.entry(local).or_insert(socket);
        Ok(Place { local, number: *number, flow: socket.add_flow(peer, flow)? })
    }

    fn socket(&self, place: Place) -> Option<&Socket> {
        self.sockets.get(&place.local).filter(|(number, _)| *number == place.number).map(|(_, socket)| socket)
    }

    fn socket_mut(&mut self, place: Place) -> Option<&mut Socket> {
        self.sockets.get_mut(&place.local).filter(|(number, _)| *number == place.number).map(|(_, socket)| socket)
    }

    /// Ends a flow; its READs are over.
    pub(super) fn remove(&mut self, place: Place) {
        if let Some(socket) = self.socket_mut(place) {
            socket.remove_flow(place.flow, &mut Vec::new());
        }
    }

    /// Longest READ of a flow.
    pub(super) fn max_read_blocks(&self, place: Place) -> u32 {
        self.socket(place).map_or(1, |socket| socket.exchange().max_read_blocks(place.flow))
    }

    /// As [`onlooker_reader::Requester::submit`].
    pub(super) fn submit(&mut self, place: Place, reads: &[Read]) -> Result<usize, Broken> {
        self.socket_mut(place).map_or(Err(Broken::Closed), |socket| socket.submit(place.flow, reads))
    }

    /// As [`Socket::poll`], for all. A socket that breaks goes: its READs have completed as lost, and the next flow
    /// makes a new one.
    pub(super) fn poll(&mut self, memory: &mut impl Memory, now_ns: u64, completions: &mut Vec<Completion>) {
        self.sockets.retain(|_, (_, socket)| {
            let is_sound = socket.poll(memory, now_ns, completions).is_ok();
            if !is_sound {
                self.gone += *socket.exchange().totals();
            }
            is_sound
        });
    }

    /// What all that there ever were have counted.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = self.gone;
        self.sockets.values().for_each(|(_, socket)| totals += *socket.exchange().totals());
        totals
    }

    /// Requests of a flow that were sent again.
    pub(super) fn repeated(&self, place: Place) -> u64 {
        self.socket(place).map_or(0, |socket| socket.exchange().counters(place.flow).repeated)
    }

    /// When [`Sockets::poll`] has something to do even if nothing arrives.
    pub(super) fn wake_ns(&self) -> Option<u64> {
        self.sockets.values().filter_map(|(_, socket)| socket.wake_ns()).min()
    }
}

/// The address of ours from which datagrams to a host go.
fn own_address(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    // Connecting a datagram socket sends nothing; it looks up the route.
    let probe = UdpSocket::bind(any)?;
    probe.connect(peer)?;
    Ok(probe.local_addr()?.ip())
}
