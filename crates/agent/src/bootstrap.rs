// SPDX-License-Identifier: Apache-2.0
//! The bootstrap endpoint (docs/format/bootstrap.md): one question, one answer, over TLS.
//!
//! A thread a connection, at most 16 and 4 of one source, each for at most 5 s, and 1 s where nothing comes. Those who find no place get `busy` in plain mode, from
//! the main thread; over TLS that would cost a handshake, so they are closed. The secret is read anew for each request.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use onlooker_bootstrap::{
    Answer, Code, Control, Failure, MAX_BOOTSTRAPS, REQUEST_TIMEOUT, Request, Responder, TCP, VERBS, VerbsAnswer,
    VerbsRequest, frame,
};
use onlooker_local::deadline::{DeadlineStream, is_timeout};
use onlooker_region::control::Place;
use onlooker_wire::tcp_read::MAX_READ_BYTES;
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, ServerConnection};

use crate::card;
use crate::counters::{Counter, Counters};
use crate::host::{self, Host};
use crate::identity::{Identity, StateDir};
use crate::places::{Full, Places};
use crate::prefix::Prefix;
use crate::rate::Rates;
use crate::system;

/// Bootstraps at once that one source gets.
const MAX_OF_SOURCE: usize = 4;
/// A peer that says nothing for so long is let go: places are few.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bootstraps a second that one source gets: a handshake costs 0.3 ms of CPU, which nobody without a token shall use at will.
const MAX_PER_SOURCE_PER_S: u32 = 100;
/// The handshake's arithmetic needs more stack than the rest of the agent.
const STACK_BYTES: usize = 256 * 1024;

/// What a reader is told.
#[derive(Debug, Clone)]
pub struct Announcement {
    /// The host.
    pub host: Host,
    /// Where the control region is.
    pub control: Place,
    /// Its length.
    pub control_bytes: u64,
    /// Port of the TCP responder.
    pub tcp_port: u16,
    /// The kernel responder, if there is one.
    pub kernel: Option<Responder>,
    /// The RDMA device's holder, if one is configured.
    pub card: Option<card::Shared>,
}

/// The endpoint.
pub struct Endpoint {
    announcement: Mutex<Announcement>,
    state: StateDir,
    tls: Option<Arc<ServerConfig>>,
    counters: Counters,
    allow: Vec<Prefix>,
    places: Arc<Places>,
    rates: Mutex<Rates>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ok,
    Denied,
    BadRequest,
    Version,
    Tls,
    Slow,
    Internal,
}

/// TLS 1.3 with this identity, no tickets, no sessions kept.
///
/// # Errors
/// The key does not fit the certificate.
pub fn tls_config(identity: Identity) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate], identity.key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

impl Endpoint {
    /// An endpoint for sources in `allow`; [`Endpoint::accept`] gives it connections.
    #[must_use]
    pub fn new(
        announcement: Announcement,
        allow: Vec<Prefix>,
        state: StateDir,
        tls: Option<Arc<ServerConfig>>,
        counters: Counters,
    ) -> Arc<Self> {
        Arc::new(Self {
            announcement: Mutex::new(announcement),
            state,
            tls,
            counters,
            allow,
            places: Places::new(MAX_BOOTSTRAPS, MAX_OF_SOURCE),
            rates: Mutex::new(Rates::new(MAX_PER_SOURCE_PER_S)),
        })
    }

    /// The control region is elsewhere from now on.
    pub fn set_control(&self, control: Place) {
        self.announcement.lock().unwrap_or_else(PoisonError::into_inner).control = control;
    }

    /// Takes a connection, or closes it at once with a counter. Never blocks.
    pub fn accept(self: &Arc<Self>, stream: TcpStream, source: IpAddr) {
        if !self.allow.iter().any(|prefix| prefix.contains(source)) {
            return self.counters.add(Counter::BootstrapSource, 1);
        }
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let granted = rates.take(onlooker_bootstrap::source(source), 1, host::boot_time_ns());
        drop(rates);
        if granted == 0 {
            return self.turn_away(stream, "this source has asked too often");
        }
        let place = match self.places.take(source) {
            Ok(place) => place,
            Err(Full::Source) => return self.turn_away(stream, "4 bootstraps of this source are under way"),
            Err(Full::All) => return self.turn_away(stream, "16 bootstraps are under way"),
        };
        let own = self.clone();
        let thread = std::thread::Builder::new().name("bootstrap".into()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            system::drop_thread_capabilities();
            // Whoever sees the connection end finds a place.
            let last = stream.try_clone();
            let outcome = own.serve(stream, source);
            drop(place);
            drop(last);
            own.counters.add(
                match outcome {
                    Outcome::Ok => Counter::BootstrapOk,
                    Outcome::Denied => Counter::BootstrapDenied,
                    Outcome::BadRequest => Counter::BootstrapBad,
                    Outcome::Version => Counter::BootstrapVersion,
                    Outcome::Tls => Counter::BootstrapTls,
                    Outcome::Slow => Counter::BootstrapSlow,
                    Outcome::Internal => Counter::BootstrapInternal,
                },
                1,
            );
        });
        if spawned.is_err() {
            self.counters.add(Counter::BootstrapInternal, 1);
        }
    }

    /// Closes a connection for which there is no place. A new socket has room for this little, and an answer in the clear needs no question.
    fn turn_away(&self, mut stream: TcpStream, why: &str) {
        self.counters.add(Counter::BootstrapBusy, 1);
        let answer = frame::encode(&failure(Code::Busy, &format!("{why}: try again in a few seconds")));
        if let (None, Ok(answer), Ok(())) = (&self.tls, answer, stream.set_nonblocking(true)) {
            let _ = stream.write(&answer);
            // What has come is taken, so that closing does not reset the connection before the answer is read (RFC 2525, 2.17).
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read(&mut [0; 1024]);
        }
    }

    fn serve(&self, stream: TcpStream, source: IpAddr) -> Outcome {
        if stream.set_nonblocking(false).is_err() || stream.set_read_timeout(Some(FIRST_BYTE_TIMEOUT)).is_err() {
            return Outcome::Internal;
        }
        let mut stream = DeadlineStream::new(stream, Instant::now() + REQUEST_TIMEOUT);
        if stream.stream().peek(&mut [0]).is_err_and(|error| is_timeout(&error)) {
            return Outcome::Slow;
        }
        let Some(tls) = &self.tls else { return self.converse(&mut stream, source) };
        let Ok(mut connection) = ServerConnection::new(tls.clone()) else { return Outcome::Internal };
        while connection.is_handshaking() {
            if let Err(error) = connection.complete_io(&mut stream) {
                // The peer learns why, as far as TLS has an alert for it.
                let _ = connection.write_tls(&mut stream);
                return if is_timeout(&error) { Outcome::Slow } else { Outcome::Tls };
            }
        }
        let outcome = self.converse(&mut rustls::Stream::new(&mut connection, &mut stream), source);
        connection.send_close_notify();
        let _ = connection.complete_io(&mut stream);
        outcome
    }

    fn converse(&self, stream: &mut (impl Read + Write), source: IpAddr) -> Outcome {
        let (outcome, answer) = match read_message(stream) {
            Ok(body) => self.judge(&body, source),
            Err(error) if is_timeout(&error) => return Outcome::Slow,
            Err(error) => (Outcome::BadRequest, failure(Code::BadRequest, &error.to_string())),
        };
        let sent = frame::encode(&answer).map_err(io::Error::other).and_then(|bytes| stream.write_all(&bytes));
        match sent.and_then(|()| stream.flush()) {
            Err(error) if is_timeout(&error) => Outcome::Slow,
            _ => outcome,
        }
    }

    fn judge(&self, body: &[u8], source: IpAddr) -> (Outcome, Vec<u8>) {
        let denied = "the token is not this agent's: get it with `onlooker-agent token` on the host";
        let request = match Request::decode(body) {
            Ok(request) => request,
            Err(error) => {
                return match error.code() {
                    Code::Version => (Outcome::Version, failure(Code::Version, &error.to_string())),
                    Code::Denied => (Outcome::Denied, failure(Code::Denied, denied)),
                    _ => (Outcome::BadRequest, failure(Code::BadRequest, &error.to_string())),
                };
            }
        };
        // The secret is looked at again when the answer is there: keys that were made for a renewed one are for nobody who has shown the old one.
        let is_open = || self.state.secret().map(|secret| secret == request.secret);
        let answer = || {
            let announcement = self.announcement.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let (Some(goodbye), Some(link)) = (request.goodbye, &announcement.card) {
                card::lock(link).part(goodbye);
            }
            announcement.answer(request.verbs.as_ref(), source).encode()
        };
        let answered =
            is_open().and_then(|open| if open { Ok((answer(), is_open()?)) } else { Ok((Vec::new(), false)) });
        match answered {
            Ok((answer, true)) => (Outcome::Ok, answer),
            Ok((_, false)) => (Outcome::Denied, failure(Code::Denied, denied)),
            Err(_) => {
                let message = "the agent cannot read its token secret: run `onlooker-agent token` on the host to see why, then try again";
                (Outcome::Internal, failure(Code::Busy, message))
            }
        }
    }
}

impl Announcement {
    fn answer(&self, verbs: Option<&VerbsRequest>, source: IpAddr) -> Answer {
        let responder = |kind: &str, port| Responder { kind: kind.into(), port, ..Responder::default() };
        let tcp = responder(TCP, self.tcp_port);
        let kernel = self.kernel.clone();
        let card = self.card.as_ref().map(|link| {
            let mut responder = responder(VERBS, 0);
            responder.push = link.can_push();
            match verbs.map(|request| queue_pair(link, request, source)) {
                Some(Ok(answer)) => responder.verbs = Some(answer),
                Some(Err(problem)) => responder.problem = Some(problem),
                None => {}
            }
            responder
        });
        Answer {
            agent: env!("CARGO_PKG_VERSION").into(),
            host: self.host.name.clone(),
            host_id: self.host.host_id,
            boot_id: self.host.boot_id,
            boot_clock_ns: host::boot_time_ns(),
            wall_clock_ns: host::wall_time_ns(),
            control: Control {
                rkey: self.control.rkey,
                va: self.control.va,
                bytes: self.control_bytes,
                generation: self.control.incarnation,
            },
            max_read_bytes: MAX_READ_BYTES,
            responders: std::iter::once(tcp).chain(kernel).chain(card).collect(),
        }
    }
}

/// For a reader at its own address only: the holder waits for its neighbour, and the device sends there.
fn queue_pair(link: &card::Shared, request: &VerbsRequest, source: IpAddr) -> Result<VerbsAnswer, String> {
    let wanted = match source.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    if request.end.gid.0 != wanted.octets() {
        return Err(format!("the reader's device has another address than {source}, from which it asks"));
    }
    card::lock(link).pair(request)
}

fn failure(code: Code, message: &str) -> Vec<u8> {
    Failure { code, message: message.into() }.encode()
}

/// Reads one message; memory grows with what arrives, not with what is promised.
fn read_message(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        match frame::decode(&bytes).map_err(io::Error::other)? {
            frame::Decoded::Message { body, .. } => return Ok(body.to_vec()),
            frame::Decoded::Need { missing_bytes } => {
                let before = bytes.len();
                stream.take(missing_bytes as u64).read_to_end(&mut bytes)?;
                if bytes.len() == before {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}
