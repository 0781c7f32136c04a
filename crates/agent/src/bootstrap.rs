// SPDX-License-Identifier: Apache-2.0
//! The bootstrap endpoint (docs/format/bootstrap.md): one question, one answer, over TLS.
//!
//! A thread a connection, at most 16 that answer and 4 that say `busy`, each for at most 5 s. The secret is read anew for each request.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use onlooker_bootstrap::{
    Answer, Code, Control, Failure, MAX_BOOTSTRAPS, REQUEST_TIMEOUT, Request, Responder, TCP, frame,
};
use onlooker_region::control::Place;
use onlooker_wire::tcp_read::MAX_READ_BYTES;
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, ServerConnection};

use crate::counters::{Counter, Counters};
use crate::deadline::{DeadlineStream, is_timeout};
use crate::host::{self, Host};
use crate::identity::{Identity, StateDir};
use crate::rate::Rates;

/// Beyond them so many are told that the agent is busy; the rest are closed.
const MAX_BUSY: usize = 4;
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
}

/// The endpoint.
pub struct Endpoint {
    announcement: Announcement,
    state: StateDir,
    tls: Option<Arc<ServerConfig>>,
    counters: Counters,
    open: AtomicUsize,
    rates: Mutex<Rates>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ok,
    Denied,
    BadRequest,
    Version,
    Busy,
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
    /// An endpoint; [`Endpoint::accept`] gives it connections.
    #[must_use]
    pub fn new(
        announcement: Announcement,
        state: StateDir,
        tls: Option<Arc<ServerConfig>>,
        counters: Counters,
    ) -> Arc<Self> {
        Arc::new(Self {
            announcement,
            state,
            tls,
            counters,
            open: AtomicUsize::new(0),
            rates: Mutex::new(Rates::new(MAX_PER_SOURCE_PER_S)),
        })
    }

    /// Takes a connection, or closes it at once with a counter. Never blocks.
    pub fn accept(self: &Arc<Self>, stream: TcpStream, source: IpAddr) {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let granted = rates.take(source.to_canonical(), 1, host::boot_time_ns());
        drop(rates);
        if granted == 0 {
            return self.counters.add(Counter::BootstrapBusy, 1);
        }
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        if before >= MAX_BOOTSTRAPS + MAX_BUSY {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return self.counters.add(Counter::BootstrapBusy, 1);
        }
        let own = self.clone();
        let thread = std::thread::Builder::new().name("bootstrap".into()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            let outcome = own.serve(stream, before >= MAX_BOOTSTRAPS);
            own.counters.add(
                match outcome {
                    Outcome::Ok => Counter::BootstrapOk,
                    Outcome::Denied => Counter::BootstrapDenied,
                    Outcome::BadRequest => Counter::BootstrapBad,
                    Outcome::Version => Counter::BootstrapVersion,
                    Outcome::Busy => Counter::BootstrapBusy,
                    Outcome::Tls => Counter::BootstrapTls,
                    Outcome::Slow => Counter::BootstrapSlow,
                    Outcome::Internal => Counter::BootstrapInternal,
                },
                1,
            );
            own.open.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            self.open.fetch_sub(1, Ordering::Relaxed);
            self.counters.add(Counter::BootstrapInternal, 1);
        }
    }

    fn serve(&self, stream: TcpStream, busy: bool) -> Outcome {
        if stream.set_nonblocking(false).is_err() {
            return Outcome::Internal;
        }
        let mut stream = DeadlineStream::new(stream, REQUEST_TIMEOUT);
        let Some(tls) = &self.tls else { return self.converse(&mut stream, busy) };
        let Ok(mut connection) = ServerConnection::new(tls.clone()) else { return Outcome::Internal };
        while connection.is_handshaking() {
            if let Err(error) = connection.complete_io(&mut stream) {
                // The peer learns why, as far as TLS has an alert for it.
                let _ = connection.write_tls(&mut stream);
                return if is_timeout(&error) { Outcome::Slow } else { Outcome::Tls };
            }
        }
        let outcome = self.converse(&mut rustls::Stream::new(&mut connection, &mut stream), busy);
        connection.send_close_notify();
        let _ = connection.complete_io(&mut stream);
        outcome
    }

    fn converse(&self, stream: &mut (impl Read + Write), busy: bool) -> Outcome {
        let (outcome, answer) = match read_message(stream) {
            Ok(_) if busy => {
                (Outcome::Busy, failure(Code::Busy, "16 bootstraps are under way: try again in a few seconds"))
            }
            Ok(body) => self.judge(&body),
            Err(error) if is_timeout(&error) => return Outcome::Slow,
            Err(error) => (Outcome::BadRequest, failure(Code::BadRequest, &error.to_string())),
        };
        let sent = frame::encode(&answer).map_err(io::Error::other).and_then(|bytes| stream.write_all(&bytes));
        match sent.and_then(|()| stream.flush()) {
            Err(error) if is_timeout(&error) => Outcome::Slow,
            _ => outcome,
        }
    }

    fn judge(&self, body: &[u8]) -> (Outcome, Vec<u8>) {
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
        match self.state.secret() {
            Ok(secret) if secret == request.secret => (Outcome::Ok, self.announcement.answer().encode()),
            Ok(_) => (Outcome::Denied, failure(Code::Denied, denied)),
            Err(_) => {
                let message = "the agent cannot read its token secret: run `onlooker-agent token` on the host to see why, then try again";
                (Outcome::Internal, failure(Code::Busy, message))
            }
        }
    }
}

impl Announcement {
    fn answer(&self) -> Answer {
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
            responders: vec![Responder { kind: TCP.into(), port: self.tcp_port, max_read_bytes: None }],
        }
    }
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
