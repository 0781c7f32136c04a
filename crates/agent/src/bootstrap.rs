// SPDX-License-Identifier: Apache-2.0
//! The bootstrap endpoint (docs/format/bootstrap.md): one question, one answer, over TLS.
//!
//! A thread a connection, at most 16 that answer and 4 that say `busy`, each for at most 5 s. The secret is read anew for each request.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlooker_region::control::Place;
use onlooker_wire::tcp_read::MAX_READ_BYTES;
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, ServerConnection};
use serde::{Deserialize, Serialize};

use crate::counters::{Counter, Counters};
use crate::deadline::{DeadlineStream, is_timeout};
use crate::host::{self, Host};
use crate::identity::{Identity, StateDir};
use crate::rate::Rates;

/// Protocol version.
const VERSION: u32 = 1;
/// Longest message.
const MAX_MESSAGE_BYTES: u32 = 65_536;
/// Bootstraps that are answered at once.
const MAX_BOOTSTRAPS: u32 = 16;
/// Beyond them so many are told that the agent is busy; the rest are closed.
const MAX_BUSY: u32 = 4;
/// Bootstraps a second that one source gets: a handshake costs 0.3 ms of CPU, which nobody without a token shall use at will.
const MAX_PER_SOURCE_PER_S: u32 = 100;
/// Time for handshake, request and answer together.
const TIME: Duration = Duration::from_secs(5);
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
    open: AtomicU32,
    rates: Mutex<Rates>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    op: String,
    version: u32,
    token: String,
    #[serde(default, rename = "reader")]
    _reader: String,
}

#[derive(Debug, Serialize)]
struct Answer<'a> {
    ok: bool,
    version: u32,
    agent: &'a str,
    host: &'a str,
    host_id: String,
    boot_id: String,
    boot_clock_ns: u64,
    wall_clock_ns: u64,
    control: Control,
    max_read_bytes: u32,
    responders: [Responder; 1],
}

#[derive(Debug, Serialize)]
struct Control {
    rkey: u32,
    va: u64,
    bytes: u64,
    generation: u32,
}

#[derive(Debug, Serialize)]
struct Responder {
    kind: &'static str,
    port: u16,
}

#[derive(Debug, Serialize)]
struct Failure {
    ok: bool,
    error: &'static str,
    message: &'static str,
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
        Arc::new(Self { announcement, state, tls, counters, open: AtomicU32::new(0), rates: Mutex::new(Rates::new(MAX_PER_SOURCE_PER_S)) })
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
        let mut stream = DeadlineStream::new(stream, TIME);
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
        let request = match read_message(stream) {
            Ok(request) => request,
            Err(error) if is_timeout(&error) => return Outcome::Slow,
            Err(_) => {
                let _ = write_message(stream, &failure(Outcome::BadRequest));
                return Outcome::BadRequest;
            }
        };
        let outcome = if busy { Outcome::Busy } else { self.judge(&request) };
        let answer = if outcome == Outcome::Ok { self.announcement.answer() } else { failure(outcome) };
        match write_message(stream, &answer) {
            Ok(()) => outcome,
            Err(error) if is_timeout(&error) => Outcome::Slow,
            Err(_) => outcome,
        }
    }

    fn judge(&self, request: &[u8]) -> Outcome {
        let request: Request = match serde_json::from_slice(request) {
            Ok(request) => request,
            Err(_) => return Outcome::BadRequest,
        };
        if request.op != "bootstrap" {
            return Outcome::BadRequest;
        }
        if request.version != VERSION {
            return Outcome::Version;
        }
        match self.state.accepts(&request.token) {
            Ok(true) => Outcome::Ok,
            Ok(false) => Outcome::Denied,
            Err(_) => Outcome::Internal,
        }
    }
}

impl Announcement {
    fn answer(&self) -> Vec<u8> {
        let answer = Answer {
            ok: true,
            version: VERSION,
            agent: env!("CARGO_PKG_VERSION"),
            host: &self.host.name,
            host_id: host::hex(&self.host.host_id),
            boot_id: host::hex(&self.host.boot_id),
            boot_clock_ns: host::boot_time_ns(),
            wall_clock_ns: host::wall_time_ns(),
            control: Control {
                rkey: self.control.rkey,
                va: self.control.va,
                bytes: self.control_bytes,
                generation: self.control.incarnation,
            },
            max_read_bytes: MAX_READ_BYTES,
            responders: [Responder { kind: "tcp", port: self.tcp_port }],
        };
        serde_json::to_vec(&answer).unwrap_or_default()
    }
}

fn failure(outcome: Outcome) -> Vec<u8> {
    let (error, message) = match outcome {
        Outcome::Denied => ("denied", "the token is not this agent's: get it with `onlooker-agent token` on the host"),
        Outcome::Version => ("version", "this agent speaks bootstrap version 1: upgrade the older side"),
        Outcome::Busy => ("busy", "16 bootstraps are under way: try again in a few seconds"),
        Outcome::Internal => ("busy", "the agent cannot read its token secret: see its log, then try again"),
        _ => ("bad_request", "send one bootstrap request as docs/format/bootstrap.md says"),
    };
    serde_json::to_vec(&Failure { ok: false, error, message }).unwrap_or_default()
}

/// A message: u32 little-endian length, then as many bytes. Memory grows with what arrives, not with what is promised.
fn read_message(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut message)?;
    if message.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(message)
}

fn write_message(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    let mut whole = length.to_le_bytes().to_vec();
    whole.extend_from_slice(message);
    stream.write_all(&whole)?;
    stream.flush()
}
