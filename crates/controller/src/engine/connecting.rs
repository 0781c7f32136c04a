// SPDX-License-Identifier: Apache-2.0
//! From what the connector brings to a host that can be read.
//!
//! A host that is to be read by a device goes to the connector twice, and in between its queue pair is made here.
//! Devices are opened there, too, since that takes its time; whoever needs one meanwhile waits.

use std::net::IpAddr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use onlooker_bootstrap::VERBS;
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::{By, Via};
use onlooker_targets::Choice;
use onlooker_transport::Error;

use super::Engine;
use super::host::{self, Host};
use super::link::Link;
use super::opening::{Next, too_late};
use super::outside::{Carry as _, Connect};
use crate::connect::{Answer, Connected, Step};
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

fn find<P: Copy>(hosts: &mut [Option<Host<P>>], ticket: u64) -> Option<&mut Host<P>> {
    hosts.get_mut(host::index_of(ticket)).and_then(Option::as_mut).filter(|host| host.ticket() == ticket)
}

/// The host has a device that it cannot be read by now: it may be later.
fn is_away<W>(connected: &Connected<W>) -> bool {
    let responder = connected.told.answer.responder(VERBS);
    responder.is_some_and(|responder| responder.problem.is_some())
}

impl<N: Connect> Engine<N> {
    /// True: there may be more, but what it takes to go on is done in time for readings that are due.
    pub(super) fn take_answers(&mut self, now_ns: u64) -> bool {
        while let Some(answer) = self.connector.answer(&mut self.carriers, now_ns) {
            match answer {
                Answer::Host(ticket, Ok(Step::Told(told))) => {
                    self.pair(ticket, told, now_ns);
                    // Memory is registered for it, which takes a millisecond: readings that are due go first.
                    return true;
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
        false
    }

    /// Makes a queue pair for a host that is to be read by a device, and has the connector go on with it.
    fn pair(&mut self, ticket: u64, told: Box<Bootstrapped>, now_ns: u64) {
        let Some(host) = find(&mut self.hosts, ticket) else { return };
        let local = told.local;
        let is_under_way = self.opening.is_under_way(local);
        let found = if is_under_way { None } else { self.carriers.device(local, now_ns) };
        match found {
            None => match self.opening.wait(local, (ticket, told), now_ns) {
                Next::Open => return self.connector.open(local),
                Next::Wait => return,
                Next::Without((ticket, told)) => {
                    return self.go_without(ticket, told, Without::Device(too_late(local)), now_ns);
                }
            },
            Some(Err(why)) => {
                let why = why.to_owned();
                return self.go_without(ticket, told, Without::Device(why), now_ns);
            }
            Some(Ok(())) => {}
        }
        let turn = (host.first(now_ns), host.has_failed());
        let made = match host.reader_id(|| self.connector.reader_id()) {
            Ok(id) => self.connector.pair(&self.carriers, (ticket, host.wanted()), told, id, turn),
            Err(error) => Err((told, error.to_string())),
        };
        if let Err((told, why)) = made {
            self.go_without(ticket, told, Without::QueuePair(why), now_ns);
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
        match self.carriers.device(local, now_ns) {
            Some(Ok(())) => {
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

    fn take_device(&mut self, local: IpAddr, opened: Result<(), Error>, now_ns: u64) {
        if opened.is_err_and(|error| !error.is_absence()) {
            self.pressure.detours.fetch_add(1, Ordering::Relaxed);
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

    pub(super) fn link(&mut self, ticket: u64, mut connected: Connected<N::Way>, now_ns: u64) {
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
        let Connected { told, way, .. } = connected;
        let pair = N::pair_of(&way);
        match self.connector.add(&mut self.carriers, &told, way, self.config.host_credit_bytes) {
            Ok(added) => {
                let mut locals = self.pressure.locals.lock().unwrap_or_else(PoisonError::into_inner);
                locals.insert(told.local.to_canonical());
                drop(locals);
                if host.link(Link::new(told, pair, added, &self.schemas, &self.config, now_ns)) {
                    self.processor.state(&host.target, State::Reading(pair));
                }
            }
            Err(why) => {
                self.pressure.unusable[pair.by as usize].fetch_add(1, Ordering::Relaxed);
                if pair.by == By::Verbs {
                    host.no_queue_pair(now_ns);
                    self.pressure.detours.fetch_add(1, Ordering::Relaxed);
                }
                self.give_up(ticket, why, now_ns);
            }
        }
        self.part_if_unused(ticket);
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
