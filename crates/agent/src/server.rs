// SPDX-License-Identifier: Apache-2.0
//! The event loop: one epoll on the main thread for the registration socket, its connections, their processes, both TCP listeners, the kernel responder's upkeep, the holder, the deadline
//! timer and signals.
//!
//! Decisions are elsewhere ([`crate::registration`], [`crate::tcp`], [`crate::bootstrap`]); here bytes come and go. Nothing is polled: the timer is armed only
//! while a deadline is pending, so that an idle agent has no wake-ups. One packet an event, so that no program can hold up the others; all that wait to be
//! connected, or those who come next would wait a turn for each of them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onlooker_local::registration::{
    Answer, Code, MAX_BAD_PACKETS, MAX_PACKET_BYTES, Refusal, Request, VERSION, decode, encode,
};
use onlooker_local::{closing, seqpacket};
use onlooker_settings::{service, suggest};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::bootstrap::Endpoint;
use crate::card::Card;
use crate::counters::{Counter, Counters, refused};
use crate::epochs::Epochs;
use crate::host::boot_time_ns;
use crate::kernel::upkeep::Upkeep;
use crate::own::Metrics;
use crate::processors::Processors;
use crate::registration::{Registration, Reply};
use crate::registry::ConnectionId;
use crate::renewal::Renewal;
use crate::system;
use crate::tables::Tables;
use crate::tcp::Responder;

mod accepting;

/// Events taken at once.
const EVENTS: usize = 256;
/// Descriptors of a user that may wait to be closed; while there are more, whichever of its programs sends a packet loses its connection.
const MAX_CLOSING: usize = 512;
/// What work needed of the program is given back: after a sample at once, else after so long without work, and so often at most.
const QUIET_NS: u64 = 1_000_000_000;
const RELEASE_PAUSE_NS: u64 = 4_000_000_000;
/// The packets of one user take so long of a turn, and so do new connections; the rest wait for the next one, and other users do not.
const USER_TURN: Duration = Duration::from_millis(5);

const REGISTRATION: u64 = 0;
const TCP: u64 = 1;
const BOOTSTRAP: u64 = 2;
const TIMER: u64 = 3;
const STOP: u64 = 4;
const HANGUP: u64 = 5;
const KERNEL: u64 = 6;
const SAMPLER: u64 = 7;
const HOLDER: u64 = 8;
const RENEWAL: u64 = 9;
/// Tokens of a connection are twice its id (socket) and one more (process).
const FIRST_CONNECTION: ConnectionId = 8;

struct Connection {
    socket: OwnedFd,
    /// Held so that epoll keeps watching it.
    _pidfd: Option<OwnedFd>,
    program: String,
    uid: u32,
    /// The user that this uid counts as: who pays for its time, and waits for its closes.
    user: u32,
    greeting: Greeting,
    bad_packets: u32,
}

enum Greeting {
    Awaited,
    Done,
    /// To be told with the answer to the first packet.
    Refused(Refusal),
}

/// What the loop serves.
pub struct Server {
    /// The registration socket.
    pub registration_listener: OwnedFd,
    /// READs over TCP.
    pub tcp_listener: TcpListener,
    /// Bootstraps.
    pub bootstrap_listener: TcpListener,
    /// Readable when the agent shall stop.
    pub stops: UnixStream,
    /// Readable when somebody hopes that the agent reads its configuration again.
    pub hangups: UnixStream,
    /// Requests.
    pub registration: Registration,
    /// READs.
    pub responder: Arc<Responder>,
    /// Bootstraps.
    pub endpoint: Arc<Endpoint>,
    /// The kernel responder's, if there is one.
    pub upkeep: Option<Upkeep>,
    /// Epochs of telemetry counters.
    pub epochs: Option<Epochs>,
    /// Renewals of the token.
    pub renewal: Renewal,
    /// Regions of kernel metrics.
    pub metrics: Metrics,
    /// Tables.
    pub tables: Tables,
    /// Processors that metrics know of.
    pub processors: Processors,
    /// Counters.
    pub counters: Counters,
    /// Programs that may be connected at once, by the limit of open files.
    pub max_connections: usize,
}

struct Loop {
    server: Server,
    epoll: OwnedFd,
    timer: OwnedFd,
    armed_ns: Option<u64>,
    /// How often the service manager wants a sign of life, and when next, ns.
    watchdog: Option<(u64, u64)>,
    /// When the program's pages are given back next, and when they were last, ns.
    release_at_ns: Option<u64>,
    released_ns: u64,
    /// Given up for a moment when descriptors run out, to accept and close what waits.
    reserve: Option<File>,
    connections: HashMap<ConnectionId, Connection>,
    /// What each user's packets have taken of this turn.
    taken: HashMap<u32, Duration>,
    refused: usize,
    next: ConnectionId,
    buffer: Vec<u8>,
}

/// Why the loop has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By a signal.
    Asked,
    /// Metrics do not know all processors: to be started anew.
    Outgrown,
}

impl Server {
    /// Serves until a signal asks to stop, or a service manager is to start the agent anew.
    ///
    /// # Errors
    /// epoll or timerfd fail.
    pub fn run(self) -> io::Result<End> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let reserve = File::open("/dev/null").ok();
        self.tcp_listener.set_nonblocking(true)?;
        self.bootstrap_listener.set_nonblocking(true)?;
        let watch = |fd: &dyn AsFdDyn, token| epoll::add(&epoll, fd.fd(), EventData::new_u64(token), EventFlags::IN);
        watch(&self.registration_listener, REGISTRATION)?;
        watch(&self.tcp_listener, TCP)?;
        watch(&self.bootstrap_listener, BOOTSTRAP)?;
        watch(&timer, TIMER)?;
        watch(&self.stops, STOP)?;
        watch(&self.hangups, HANGUP)?;
        watch(&self.renewal, RENEWAL)?;
        watch(&self.metrics.sampler, SAMPLER)?;
        if let Some(upkeep) = &self.upkeep {
            watch(upkeep, KERNEL)?;
        }
        let mut state = Loop {
            server: self,
            epoll,
            timer,
            armed_ns: None,
            watchdog: service::watchdog().map(|every| (u64::try_from(every.as_nanos()).unwrap_or(u64::MAX), 0)),
            // Most of the program has done its work: configuration, certificate, loading.
            release_at_ns: Some(boot_time_ns() + QUIET_NS),
            released_ns: 0,
            reserve,
            connections: HashMap::new(),
            taken: HashMap::new(),
            refused: 0,
            next: FIRST_CONNECTION,
            buffer: vec![0; MAX_PACKET_BYTES],
        };
        state.run()
    }
}

trait AsFdDyn {
    fn fd(&self) -> std::os::fd::BorrowedFd<'_>;
}

impl<T: AsFd> AsFdDyn for T {
    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.as_fd()
    }
}

impl Loop {
    fn run(&mut self) -> io::Result<End> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        // Regions that an earlier agent has left have their deadlines already.
        self.arm()?;
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            for event in &events {
                match event.data.u64() {
                    REGISTRATION => self.accept_programs(),
                    TCP => self.accept_tcp(),
                    BOOTSTRAP => self.accept_bootstrap(),
                    TIMER => {
                        self.expire();
                        if self.is_outgrown() {
                            return Ok(End::Outgrown);
                        }
                    }
                    STOP => return Ok(End::Asked),
                    HANGUP => self.hangup(),
                    KERNEL => {
                        if let Some(upkeep) = &mut self.server.upkeep
                            && let Some(collectors) = upkeep.ready(boot_time_ns())
                        {
                            self.server.metrics.install(self.server.registration.directory(), &collectors);
                            self.server.tables.wake(boot_time_ns());
                        }
                    }
                    RENEWAL => {
                        self.server.renewal.take();
                        self.renew();
                    }
                    HOLDER => self.server.registration.directory().card_lost(boot_time_ns()),
                    SAMPLER => self.server.metrics.renew(self.server.registration.directory()),
                    token if token & 1 == 0 => self.packet_in_turn(token / 2),
                    token => self.close(token / 2, Counter::ClosedProcess),
                }
            }
            self.taken.clear();
            if events.iter().any(|event| event.data.u64() != TIMER) {
                self.release_at_ns = Some((boot_time_ns() + QUIET_NS).max(self.released_ns + RELEASE_PAUSE_NS));
            }
            // Once for all that these have changed.
            self.server.registration.directory().push(boot_time_ns());
            self.arm()?;
        }
    }

    fn hangup(&mut self) {
        while matches!(self.server.hangups.read(&mut [0; 64]), Ok(1..)) {}
        system::log("SIGHUP: the configuration is read at start only; restart the agent to use a new one");
    }

    /// New keys, if the token has been renewed.
    fn renew(&mut self) {
        let directory = self.server.registration.directory();
        if self.server.renewal.follow(directory) {
            self.server.endpoint.set_control(directory.place());
        }
    }

    /// Sets the timer to the next deadline, or stops it.
    fn arm(&mut self) -> io::Result<()> {
        let kernel = self.server.upkeep.as_ref().map(Upkeep::next_deadline_ns);
        let sample = self.server.metrics.next_deadline_ns();
        let table = self.server.tables.next_deadline_ns();
        let card = self.server.registration.directory().card().and_then(Card::next_deadline_ns);
        let deadlines = self.server.registration.next_deadline_ns().into_iter().chain(kernel).chain(sample).chain(card);
        let own = self.watchdog.map(|(_, next_ns)| next_ns).into_iter().chain(self.release_at_ns);
        let epoch = self.server.epochs.as_ref().and_then(Epochs::next_deadline_ns);
        let deadline = deadlines.chain(table).chain(epoch).chain(own).min();
        if deadline != self.armed_ns {
            let at = deadline.map_or(0, |ns| ns.max(1));
            let it_value = Timespec {
                tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(at % 1_000_000_000).unwrap_or(0),
            };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
            self.armed_ns = deadline;
        }
        Ok(())
    }

    fn expire(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.timer, &mut count);
        self.armed_ns = None;
        let now_ns = boot_time_ns();
        if let Some((every_ns, next_ns)) = &mut self.watchdog
            && *next_ns <= now_ns
        {
            service::notify("WATCHDOG=1");
            *next_ns = now_ns.saturating_add(*every_ns);
        }
        let samples = self.server.metrics.next_deadline_ns().into_iter().chain(self.server.tables.next_deadline_ns());
        let has_sampled = samples.min().is_some_and(|at_ns| at_ns <= now_ns);
        self.server.registration.expire(now_ns);
        self.look_for_holder(now_ns);
        if let Some(upkeep) = &mut self.server.upkeep {
            upkeep.expire(now_ns);
        }
        self.server.metrics.expire(self.server.registration.directory(), now_ns);
        self.server.tables.expire(now_ns);
        if let Some(epochs) = &mut self.server.epochs {
            epochs.expire(now_ns);
        }
        let is_quiet = self.release_at_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if is_quiet || has_sampled && now_ns.saturating_sub(self.released_ns) >= RELEASE_PAUSE_NS {
            onlooker_responder::resident::release_program();
            (self.release_at_ns, self.released_ns) = (None, now_ns);
        }
    }

    fn look_for_holder(&mut self, now_ns: u64) {
        let directory = self.server.registration.directory();
        if !directory.card_due(now_ns) {
            return;
        }
        if let Some(card) = directory.card()
            // Its answers are for whoever has asked, which may be another thread.
            && let Err(errno) =
                card.watch(|fd| epoll::add(&self.epoll, fd, EventData::new_u64(HOLDER), EventFlags::RDHUP))
            && errno != rustix::io::Errno::EXIST
        {
            system::log(&format!("warning: the holder is not watched: epoll: {errno}"));
        }
        // What it could not be asked for before it has done by now.
        self.renew();
    }

    /// Whether to end for processors that metrics do not know. Looked for when the timer wakes us anyway: for samples, tables, the lease.
    fn is_outgrown(&mut self) -> bool {
        let Some(count) = self.server.processors.more(boot_time_ns()) else { return false };
        // Without the kernel responder the regions of programs would end with us.
        let ends = self.server.upkeep.is_some() && service::is_supervised();
        if !ends {
            system::log(&format!(
                "warning: this machine has {count} processors now: restart the agent, or sums leave out the new ones"
            ));
        }
        ends
    }

    /// What waits for longer than its user's share is told of again by epoll, behind the others.
    fn packet_in_turn(&mut self, id: ConnectionId) {
        let Some(user) = self.connections.get(&id).map(|connection| connection.user) else { return };
        if self.taken.get(&user).is_some_and(|taken| *taken >= USER_TURN) {
            return;
        }
        let begin = Instant::now();
        self.packet(id);
        *self.taken.entry(user).or_default() += begin.elapsed();
    }

    fn packet(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if closing::waiting(connection.user) > MAX_CLOSING {
            return self.close(id, Counter::ClosedBadPackets);
        }
        let packet = match seqpacket::receive(&connection.socket, &mut self.buffer) {
            Ok(packet) => packet,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Err(_) => return self.close(id, Counter::ClosedEnd),
        };
        // An empty packet and the end of the connection look alike (seqpacket in unix(7)); neither is a request.
        if packet.bytes == 0 && !packet.truncated {
            closing::close(connection.user, packet.descriptors);
            return self.close(id, Counter::ClosedEnd);
        }
        if let Greeting::Refused(refusal) = &connection.greeting {
            closing::close(connection.user, packet.descriptors);
            let answer = encode(&Err(refusal.clone()));
            let _ = seqpacket::send(&connection.socket, &answer, None);
            return self.close(id, Counter::ClosedEnd);
        }
        let text = &self.buffer[..packet.bytes];
        let reply = if packet.truncated {
            bad(format!("the packet is longer than {MAX_PACKET_BYTES} bytes (MAX_PACKET_BYTES)"))
        } else if packet.more_descriptors {
            bad("more descriptors than any request takes".into())
        } else {
            match (decode(text), &connection.greeting) {
                (Err(what), _) => bad(format!(
                    "{}; send one JSON object as docs/format/registration.md says",
                    suggest::explain(&what)
                )),
                (Ok(Request::Hello { version, .. }), Greeting::Awaited) => hello(connection, version),
                (Ok(_), Greeting::Awaited) => bad("the first packet must be hello".into()),
                (Ok(request), _) => self.server.registration.handle(
                    id,
                    &connection.program,
                    request,
                    &packet.descriptors,
                    boot_time_ns(),
                ),
            }
        };
        closing::close(connection.user, packet.descriptors);
        self.answer(id, &reply);
    }

    fn answer(&mut self, id: ConnectionId, reply: &Reply) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let counter = reply.answer.as_ref().map_or_else(|refusal| refused(refusal.code), |_| Counter::RequestOk);
        self.server.counters.add(counter, 1);
        let misunderstood = matches!(&reply.answer, Err(refusal) if refusal.code == Code::BadRequest);
        connection.bad_packets = if misunderstood { connection.bad_packets + 1 } else { 0 };
        let slab = reply.slab_of.and_then(|uid| self.server.registration.slab(uid));
        let sent = seqpacket::send(&connection.socket, &encode(&reply.answer), slab);
        if sent.is_err() {
            // A program that asks and does not read the answers.
            self.close(id, Counter::ClosedUnread);
        } else if connection.bad_packets >= MAX_BAD_PACKETS {
            self.close(id, Counter::ClosedBadPackets);
        }
    }

    fn close(&mut self, id: ConnectionId, reason: Counter) {
        let Some(connection) = self.connections.remove(&id) else { return };
        let _ = epoll::delete(&self.epoll, &connection.socket);
        // Its packets may have descriptors whose close waits. The pidfd goes here, and with it out of epoll: nobody else has it.
        closing::close(connection.user, [connection.socket]);
        self.server.counters.add(reason, 1);
        self.server.counters.set(Counter::Connections, self.connections.len() as u64);
        if matches!(connection.greeting, Greeting::Refused(_)) {
            self.refused -= 1;
        } else {
            self.server.registration.disconnect(id, boot_time_ns());
        }
    }
}

fn hello(connection: &mut Connection, version: u32) -> Reply {
    let answer = if version == VERSION {
        connection.greeting = Greeting::Done;
        let agent = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Answer::Hello { version: VERSION, agent, socket_uid: connection.uid })
    } else {
        let message = format!(
            "registration version {version} is not supported, this agent speaks {VERSION}: upgrade the older side"
        );
        Err(Refusal::new(Code::Version, message))
    };
    Reply { answer, slab_of: None }
}

fn bad(message: String) -> Reply {
    Reply { answer: Err(Refusal::new(Code::BadRequest, message)), slab_of: None }
}
