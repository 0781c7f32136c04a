// SPDX-License-Identifier: Apache-2.0
//! From what the connector brings to a host that can be read.
//!
//! A host that is to be read by a device goes to the connector twice, and in between its queue pair is made here.
//! Devices are opened there, too, since that takes its time; whoever needs one meanwhile waits.

use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use onlooker_bootstrap::VERBS;
use onlooker_reader::Via;
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_targets::Choice;
use onlooker_transport::Error;
use onlooker_transport::verbs::{Card, Unconnected};

use super::Engine;
use super::host::{self, Host};
use super::link::Link;
use super::opening::{Next, too_late};
use crate::connect::{Answer, Connected, Step, Way};
use crate::sink::State;

/// A host that waits for a device to be opened.
pub(super) type Waiting = (u64, Box<Bootstrapped>);

/// Why a host has no queue pair here.
enum Without {
    /// There is no device.
    Device(String),
    /// There is one that gives none.
    QueuePair(String),
}

fn find(hosts: &mut [Option<Host>], ticket: u64) -> Option<&mut Host> {
    hosts.get_mut(host::index_of(ticket)).and_then(Option::as_mut).filter(|host| host.ticket() == ticket)
}

/// The host has a device that it cannot be read by now: it may be later.
fn is_away(connected: &Connected) -> bool {
    let responder = connected.told.answer.responder(VERBS);
    responder.is_some_and(|responder| responder.problem.is_some())
}

impl Engine {
    pub(super) fn take_answers(&mut self, now_ns: u64) {
        while let Some(answer) = self.connector.answer() {
            match answer {
                Answer::Host(ticket, Ok(Step::Told(told))) => {
                    self.pair(ticket, told, now_ns);
                    // Memory is registered for it, which takes a millisecond: readings that are due go first.
                    super::orders::ring(&self.bell);
                    return;
                }
                Answer::Host(ticket, Ok(Step::Linked(connected))) => self.link(ticket, *connected, now_ns),
                Answer::Host(ticket, Err(error)) => self.failed(ticket, error.to_string(), now_ns),
                Answer::Device(local, opened) => self.take_device(local, opened, now_ns),
                Answer::Clock(ticket, told) => {
                    if let Some(host) = find(&mut self.hosts, ticket) {
                        host.told_clock(&told, now_ns);
                    }
                }
            }
        }
    }

    /// Makes a queue pair for a host that is to be read by a device, and has the connector go on with it.
    fn pair(&mut self, ticket: u64, told: Box<Bootstrapped>, now_ns: u64) {
        let Some(host) = find(&mut self.hosts, ticket) else { return };
        let local = told.local;
        let found = if self.opening.is_under_way(local) { None } else { self.carriers.devices.find(local, now_ns) };
        let made = match found {
            None => match self.opening.wait(local, (ticket, told), now_ns) {
                Next::Open => return self.connector.open(local),
                Next::Wait => return,
                Next::Without((ticket, told)) => {
                    return self.go_without(ticket, told, Without::Device(too_late(local)), now_ns);
                }
            },
            Some(Err(why)) => Err(Without::Device(why.to_owned())),
            Some(Ok(card)) => Unconnected::for_host(card, &told)
                .and_then(|pair| Ok((pair, host.reader_id()?)))
                .map_err(|error| Without::QueuePair(error.to_string())),
        };
        match made {
            Ok(pair) => {
                self.connector.pair((ticket, host.wanted()), told, pair, (host.first(now_ns), host.has_failed()))
            }
            Err(without) => self.go_without(ticket, told, without, now_ns),
        }
    }

    /// Has a host that is read another way asked for a queue pair again, if it is time. Nobody is asked while this
    /// machine has no device.
    pub(super) fn improve(&mut self, index: usize, now_ns: u64) {
        let Some(host) = self.hosts[index].as_mut() else { return };
        let Some(local) = host.wants_device(now_ns) else { return };
        if self.opening.is_under_way(local) {
            return;
        }
        match self.carriers.devices.find(local, now_ns) {
            Some(Ok(_)) => {
                host.asking();
                self.connector.ask(host.ticket(), host.wanted(), Via::Verbs, false);
            }
            Some(Err(_)) => host.no_queue_pair(now_ns),
            None => {
                self.opening.begin(local, now_ns);
                self.connector.open(local);
            }
        }
    }

    /// Has a host asked for its clock again, if it is time.
    pub(super) fn renew_clock(&mut self, index: usize, now_ns: u64) {
        let Some(host) = self.hosts[index].as_mut() else { return };
        if let Some(peer) = host.wants_clock(&mut self.clocks, now_ns) {
            self.connector.clock(host.ticket(), host.target.clone(), peer);
        }
    }

    fn take_device(&mut self, local: IpAddr, opened: Result<Card, Error>, now_ns: u64) {
        if opened.as_ref().is_err_and(|error| !error.is_absence()) {
            self.pressure.detours.fetch_add(1, Ordering::Relaxed);
        }
        let watched = opened.map_err(|error| error.to_string()).and_then(|card| {
            let watched = self.waiter.watch_device(card.queue().as_fd());
            watched.map(|()| card).map_err(|error| format!("RDMA device of {local}: epoll: {error}"))
        });
        match watched {
            Ok(card) => self.carriers.devices.opened(local, card),
            Err(why) => self.carriers.devices.absent(local, why, now_ns),
        }
        for (ticket, told) in self.opening.end(local) {
            self.pair(ticket, told, now_ns);
        }
    }

    /// Hosts that have waited for a device for too long are read another way.
    pub(super) fn expire_openings(&mut self, now_ns: u64) {
        for (local, waiting) in self.opening.expire(now_ns) {
            self.pressure.detours.fetch_add(1, Ordering::Relaxed);
            for (ticket, told) in waiting {
                self.go_without(ticket, told, Without::Device(too_late(local)), now_ns);
            }
        }
    }

    fn go_without(&mut self, ticket: u64, told: Box<Bootstrapped>, without: Without, now_ns: u64) {
        let Some(host) = find(&mut self.hosts, ticket) else { return };
        host.no_queue_pair(now_ns);
        let why = match without {
            Without::Device(why) => why,
            Without::QueuePair(why) => {
                self.pressure.detours.fetch_add(1, Ordering::Relaxed);
                why
            }
        };
        if host.is_linked() {
            host.answered();
        } else if host.target.choice == Choice::Auto {
            self.connector.rest(ticket, host.target.clone(), told, (host.first(now_ns), host.has_failed()));
        } else {
            self.give_up(ticket, why, now_ns);
        }
    }

    pub(super) fn link(&mut self, ticket: u64, mut connected: Connected, now_ns: u64) {
        let parting = connected.parting.take();
        let Some(host) = find(&mut self.hosts, ticket) else {
            // It was forgotten meanwhile.
            parting.into_iter().for_each(|parting| self.connector.part(parting));
            return;
        };
        host.answered();
        parting.into_iter().for_each(|parting| host.paired(parting));
        if connected.instead.is_some() {
            self.pressure.detours.fetch_add(1, Ordering::Relaxed);
        }
        if host.target.choice == Choice::Auto && (connected.instead.is_some() || is_away(&connected)) {
            host.no_queue_pair(now_ns);
        }
        let is_device = matches!(connected.way, Way::Verbs(..));
        match Link::of(connected, &mut self.carriers, &self.waiter, &self.schemas, &self.config, now_ns) {
            Ok(link) => {
                let pair = link.pair;
                if host.link(link) {
                    self.processor.state(&host.target, State::Reading(pair));
                }
                self.part_if_unused(ticket);
            }
            Err(why) => {
                if is_device {
                    host.no_queue_pair(now_ns);
                    self.pressure.detours.fetch_add(1, Ordering::Relaxed);
                }
                self.give_up(ticket, why, now_ns);
                self.part_if_unused(ticket);
            }
        }
    }

    /// A host that is read without its queue pair is told that it may end it.
    fn part_if_unused(&mut self, ticket: u64) {
        let unused = find(&mut self.hosts, ticket).and_then(Host::part_if_unused);
        unused.into_iter().for_each(|parting| self.connector.part(parting));
    }

    /// The connector has failed.
    fn failed(&mut self, ticket: u64, why: String, now_ns: u64) {
        let Some(host) = find(&mut self.hosts, ticket) else { return };
        if host.is_linked() {
            // Only its device was asked for.
            self.pressure.detours.fetch_add(1, Ordering::Relaxed);
            host.no_queue_pair(now_ns);
        }
        self.give_up(ticket, why, now_ns);
    }

    /// A host that has got no link now: it waits, unless it is read all the same.
    fn give_up(&mut self, ticket: u64, why: String, now_ns: u64) {
        let Some(host) = find(&mut self.hosts, ticket) else { return };
        host.answered();
        if !host.is_linked() {
            host.back_off(now_ns);
            self.processor.state(&host.target, State::Failed(why));
        }
    }
}
