// SPDX-License-Identifier: Apache-2.0
//! Accepting whoever connects: programs, READs over TCP, bootstraps; and what happens when descriptors run out.
//!
//! A listener that nobody accepts from stays readable, and the loop would spin. So the loop keeps a descriptor in
//! reserve and gives it up to accept and close what waits.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use onlooker_local::registration::{Code, Refusal};
use onlooker_local::{closing, seqpacket};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Connection, Greeting, Loop, USER_TURN};
use crate::counters::{Counter, Counters};
use crate::host::boot_time_ns;
use crate::peer::{self, Connected};

/// Refused programs that may wait with their first packet still unsent; more are closed at once.
const MAX_REFUSED: usize = 16;
/// Pause of the loop when not even the reserve is left.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(10);
/// How often, and after which pauses, the reserve's descriptor is taken back from what was closed.
const RESERVE_TRIES: u32 = 10;
const RESERVE_PAUSE: Duration = Duration::from_micros(100);
/// TCP connections accepted in one event, so that a flood of them does not hold up programs.
const ACCEPTS: usize = 16;

impl Loop {
    pub(super) fn accept_programs(&mut self) {
        self.server.registration.follow_subordinates();
        let begin = Instant::now();
        while self.accept_program() && begin.elapsed() < USER_TURN {}
    }

    /// False where nobody waits, or nobody can be let in.
    fn accept_program(&mut self) -> bool {
        let user_of = |socket: &OwnedFd| self.server.registration.user_of(closing::user_of(socket));
        let listener = &self.server.registration_listener;
        let socket = match restore(&mut self.reserve).and_then(|()| seqpacket::accept(listener)) {
            Ok(socket) => socket,
            Err(error) => {
                shed(
                    &mut self.reserve,
                    &error,
                    || {
                        seqpacket::accept(listener)
                            .into_iter()
                            .for_each(|socket| closing::close(user_of(&socket), [socket]))
                    },
                    &self.server.counters,
                    Counter::ConnectRefusedInternal,
                );
                return false;
            }
        };
        let counters = &self.server.counters;
        let id = self.next;
        self.next += 1;
        let (uid, user) = (closing::user_of(&socket), user_of(&socket));
        let entered = match peer::identify(&socket) {
            Ok(_) if self.connections.len() >= self.server.max_connections => Err(Refusal::new(
                Code::Quota,
                "the agent has no descriptors left for another program: raise LimitNOFILE of its unit",
            )),
            Ok(Connected { peer, program, groups, pidfd }) => {
                self.server.registration.connect(id, peer, &groups).map(|()| (program, pidfd))
            }
            Err(refusal) => Err(refusal),
        };
        let connection = match entered {
            Ok((program, pidfd)) => {
                counters.add(Counter::Accepted, 1);
                let greeting = Greeting::Awaited;
                Connection { socket, _pidfd: Some(pidfd), program, uid, user, greeting, bad_packets: 0 }
            }
            Err(refusal) => {
                counters.add(
                    match refusal.code {
                        Code::Quota => Counter::ConnectRefusedQuota,
                        Code::Denied => Counter::ConnectRefusedDenied,
                        _ => Counter::ConnectRefusedInternal,
                    },
                    1,
                );
                if self.refused >= MAX_REFUSED {
                    closing::close(user, [socket]);
                    return true;
                }
                self.refused += 1;
                let greeting = Greeting::Refused(refusal);
                Connection { socket, _pidfd: None, program: String::new(), uid, user, greeting, bad_packets: 0 }
            }
        };
        let watch = |fd: &OwnedFd, token| epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN);
        let watched = watch(&connection.socket, id * 2)
            .and_then(|()| connection._pidfd.as_ref().map_or(Ok(()), |fd| watch(fd, id * 2 + 1)));
        self.connections.insert(id, connection);
        if watched.is_err() {
            self.close(id, Counter::ConnectRefusedInternal);
        }
        self.server.counters.set(Counter::Connections, self.connections.len() as u64);
        true
    }

    pub(super) fn accept_tcp(&mut self) {
        for _ in 0..ACCEPTS {
            let listener = &self.server.tcp_listener;
            match restore(&mut self.reserve).and_then(|()| listener.accept()) {
                Ok((stream, peer)) => self.server.responder.accept(stream, peer),
                Err(error) => {
                    return shed(
                        &mut self.reserve,
                        &error,
                        || drop(listener.accept()),
                        &self.server.counters,
                        Counter::TcpRefusedInternal,
                    );
                }
            }
        }
    }

    pub(super) fn accept_bootstrap(&mut self) {
        for _ in 0..ACCEPTS {
            let listener = &self.server.bootstrap_listener;
            match restore(&mut self.reserve).and_then(|()| listener.accept()) {
                Ok((stream, peer)) => {
                    self.server.endpoint.accept(stream, peer.ip());
                    // A reader begins: what was left alone for want of readers shall be fresh.
                    self.server.metrics.wake(boot_time_ns());
                    self.server.tables.wake(boot_time_ns());
                }
                Err(error) => {
                    return shed(
                        &mut self.reserve,
                        &error,
                        || drop(listener.accept()),
                        &self.server.counters,
                        Counter::BootstrapInternal,
                    );
                }
            }
        }
    }
}

/// Takes the reserve back where another thread's close held it for long. Without it nobody is accepted: whoever is
/// would keep its place, and those behind would make the loop spin.
fn restore(reserve: &mut Option<File>) -> io::Result<()> {
    if reserve.is_none() {
        match File::open("/dev/null") {
            Ok(file) => *reserve = Some(file),
            Err(error) if peer::is_exhausted(&error) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(())
}

/// After a failed accept: where descriptors have run out, what waits is accepted and closed with the reserve's descriptor; otherwise the listener
/// would stay readable and the loop would spin.
fn shed(
    reserve: &mut Option<File>,
    error: &io::Error,
    accept_and_close: impl Fn(),
    counters: &Counters,
    counter: Counter,
) {
    if peer::is_exhausted(error) {
        if reserve.take().is_none() {
            // Another thread took the reserve's place last time. Nothing can be accepted now, and the listener stays readable.
            std::thread::sleep(NO_DESCRIPTOR_PAUSE);
        }
        accept_and_close();
        // Another thread closes it, most often at once.
        for _ in 0..RESERVE_TRIES {
            *reserve = File::open("/dev/null").ok();
            if reserve.is_some() {
                break;
            }
            std::thread::sleep(RESERVE_PAUSE);
        }
        counters.add(counter, 1);
    }
}
