// SPDX-License-Identifier: Apache-2.0
//! The bootstrap client: one question to the agent's endpoint, one answer (docs/format/bootstrap.md).
//!
//! Blocking, with one time limit over everything. TLS 1.3 towards exactly the token's certificate; a plain stream for tokens without fingerprint.

use crate::Via;
use crate::clock::{Moment, Relation};
use crate::error::{Error, escaped};
use crate::tls::Pinned;
use onlooker_bootstrap::frame::{self, Decoded, FrameError};
use onlooker_bootstrap::{Answer, AnswerError, Fingerprint, Goodbye, Request, Responder, Token, VerbsRequest};
use onlooker_local::deadline::DeadlineStream;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// What a host told.
#[derive(Clone, Debug)]
pub struct Bootstrapped {
    /// The answer, checked.
    pub answer: Answer,
    /// The address that answered.
    pub peer: SocketAddr,
    /// The address of this machine that leads there.
    pub local: IpAddr,
    /// The host's clock against ours.
    pub relation: Relation,
    /// From sending the request to having the answer, without connection and handshake.
    pub round_trip: Duration,
}

impl Bootstrapped {
    /// A responder and its address: the one that answered the bootstrap, with the responder's port; 0 where the kind has none.
    ///
    /// # Errors
    /// [`Error::NoResponder`], [`Error::Problem`].
    pub fn responder(&self, via: Via) -> Result<(&Responder, SocketAddr), Error> {
        let is_one = |responder: &&Responder| responder.port != 0 || !via.has_port();
        let responder = self.answer.responder(via.kind()).filter(is_one).ok_or_else(|| {
            let kinds: Vec<_> = self.answer.responders.iter().map(|responder| escaped(&responder.kind)).collect();
            let offered = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
            Error::NoResponder { peer: self.peer.to_string(), wanted: via.kind(), offered }
        })?;
        if let Some(problem) = responder.problem.clone() {
            return Err(Error::Problem { peer: self.peer.to_string(), kind: via.kind(), problem });
        }
        let mut address = self.peer;
        address.set_port(responder.port);
        Ok((responder, address))
    }
}

/// Addresses of a host.
///
/// # Errors
/// [`Error::Resolve`].
pub fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let failed = |source| Error::Resolve { host: escaped(host), source };
    let addresses: Vec<_> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    if addresses.is_empty() { Err(failed(io::ErrorKind::NotFound.into())) } else { Ok(addresses) }
}

/// Connects to the first of several addresses that takes it, and says which.
///
/// # Errors
/// That of the last address.
///
/// # Panics
/// If there are no addresses.
pub fn connect(
    addresses: &[SocketAddr],
    what: &'static str,
    timeout: Duration,
) -> Result<(TcpStream, SocketAddr), Error> {
    let end = Instant::now() + timeout;
    let mut last = None;
    for address in addresses {
        let left = end.saturating_duration_since(Instant::now());
        let connected = match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => TcpStream::connect_timeout(address, left),
        };
        match connected {
            Ok(stream) => return Ok((stream, *address)),
            Err(source) => last = Some(Error::io(&address.to_string(), what, timeout, source)),
        }
    }
    Err(last.expect("at least one address"))
}

/// Asks the endpoint at one of `addresses`. `reader` is this program's name and version, for the agent's log.
///
/// # Errors
/// Whatever stands between: see [`Error`].
///
/// # Panics
/// If there are no addresses.
pub fn bootstrap(
    addresses: &[SocketAddr],
    token: &Token,
    reader: &str,
    timeout: Duration,
) -> Result<Bootstrapped, Error> {
    bootstrap_with(addresses, token, reader, None, timeout)
}

/// As [`bootstrap`]; with `verbs` the host is asked for a queue pair, too. That is for hosts that list such a responder: agents that do not know it refuse the request.
///
/// # Errors
/// As [`bootstrap`].
///
/// # Panics
/// If there are no addresses.
pub fn bootstrap_with(
    addresses: &[SocketAddr],
    token: &Token,
    reader: &str,
    verbs: Option<VerbsRequest>,
    timeout: Duration,
) -> Result<Bootstrapped, Error> {
    let request = Request { secret: token.secret.clone(), reader: reader.to_owned(), verbs, goodbye: None };
    ask(addresses, token.fingerprint, &request, timeout)
}

/// Time for a goodbye: whoever says it is about to end.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A reader's queue pair at a host. When this is dropped the host is told to end it, which takes a second at most; where that fails, the host keeps it until it needs its place.
pub struct Parting(Option<Box<Farewell>>);

/// What is said, and to whom.
struct Farewell {
    peer: SocketAddr,
    fingerprint: Option<Fingerprint>,
    request: Request,
}

impl Parting {
    /// Of the queue pair that was asked for with `request` at `peer`.
    #[must_use]
    pub fn new(peer: SocketAddr, token: &Token, reader: &str, request: &VerbsRequest) -> Self {
        let goodbye = Goodbye { reader_id: request.reader_id, queue_pair: request.end.queue_pair };
        let (secret, reader) = (token.secret.clone(), reader.to_owned());
        let request = Request { secret, reader, verbs: None, goodbye: Some(goodbye) };
        Self(Some(Box::new(Farewell { peer, fingerprint: token.fingerprint, request })))
    }

    /// Says nothing: the host has ended the queue pair itself, since it made another one for the same reader.
    pub fn replaced(mut self) {
        self.0 = None;
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        if let Some(Farewell { peer, fingerprint, request }) = self.0.as_deref() {
            // An agent that does not know of goodbyes refuses it.
            let _ = ask(&[*peer], *fingerprint, request, GOODBYE_TIMEOUT);
        }
    }
}

fn ask(
    addresses: &[SocketAddr],
    fingerprint: Option<Fingerprint>,
    request: &Request,
    timeout: Duration,
) -> Result<Bootstrapped, Error> {
    let end = Instant::now() + timeout;
    let (stream, peer) = connect(addresses, "bootstrap endpoint", timeout)?;
    let name = peer.to_string();
    let failed = |what| {
        let name = name.clone();
        move |source| Error::io(&name, what, timeout, source)
    };
    stream.set_nodelay(true).map_err(failed("socket option"))?;
    let local = stream.local_addr().map_err(failed("getsockname"))?.ip();
    let mut stream = DeadlineStream::new(stream, end);
    let conversation = match fingerprint {
        None => converse(&mut stream, request),
        Some(fingerprint) => {
            let pinned = Pinned::new(fingerprint);
            let tls = |error: rustls::Error| tls_error(&name, &pinned, &error);
            let config = pinned.config().map_err(tls)?;
            let mut connection = ClientConnection::new(config, ServerName::IpAddress(peer.ip().into())).map_err(tls)?;
            let shaken = shake_hands(&mut connection, &mut stream);
            shaken.and_then(|()| converse(&mut rustls::Stream::new(&mut connection, &mut stream), request)).map_err(
                |trouble| match trouble {
                    Trouble::Io(what, source) => {
                        let inner = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                        match inner {
                            Some(error) => Trouble::Known(Box::new(tls_error(&name, &pinned, error))),
                            None => Trouble::Io(what, source),
                        }
                    }
                    other => other,
                },
            )
        }
    };
    let (body, sent, received) = conversation.map_err(|trouble| trouble.into_error(&name, timeout))?;
    let answer = Answer::decode(&body).map_err(|error| answer_error(&name, error))?;
    let relation = Relation::new(answer.boot_clock_ns, sent, received);
    let round_trip = Duration::from_nanos(received.steady_ns.saturating_sub(sent.steady_ns));
    Ok(Bootstrapped { answer, peer, local, relation, round_trip })
}

enum Trouble {
    Io(&'static str, io::Error),
    Frame(FrameError),
    Known(Box<Error>),
}

impl Trouble {
    fn into_error(self, peer: &str, timeout: Duration) -> Error {
        match self {
            Self::Io(what, source) => Error::io(peer, what, timeout, source),
            Self::Frame(FrameError::Tls) => Error::OnlyTls { peer: peer.to_owned() },
            Self::Frame(error) => Error::Garbage { peer: peer.to_owned(), what: error.to_string() },
            Self::Known(error) => *error,
        }
    }
}

fn shake_hands(connection: &mut ClientConnection, stream: &mut DeadlineStream) -> Result<(), Trouble> {
    while connection.is_handshaking() {
        connection.complete_io(stream).map_err(|source| Trouble::Io("TLS handshake", source))?;
    }
    Ok(())
}

/// Sends the request and returns the answer's body with the instants around it.
fn converse(stream: &mut (impl Read + Write), request: &Request) -> Result<(Vec<u8>, Moment, Moment), Trouble> {
    let request = frame::encode(&request.encode()).map_err(Trouble::Frame)?;
    let sent = Moment::now();
    stream
        .write_all(&request)
        .and_then(|()| stream.flush())
        .map_err(|source| Trouble::Io("bootstrap request", source))?;
    let mut bytes = Vec::new();
    loop {
        let missing_bytes = match frame::decode(&bytes).map_err(Trouble::Frame)? {
            Decoded::Message { body, .. } => return Ok((body.to_vec(), sent, Moment::now())),
            Decoded::Need { missing_bytes } => missing_bytes,
        };
        let filled = bytes.len();
        bytes.resize(filled + missing_bytes, 0);
        let got = match stream.read(&mut bytes[filled..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        };
        bytes.truncate(filled + got.map_err(|source| Trouble::Io("bootstrap answer", source))?);
    }
}

fn answer_error(peer: &str, error: AnswerError) -> Error {
    let peer = peer.to_owned();
    match error {
        AnswerError::Failure(failure) => Error::failure(&peer, failure),
        AnswerError::Version(_) => Error::Version { peer, what: error.to_string() },
        AnswerError::Bad(_) | AnswerError::Value(_) => Error::Garbage { peer, what: escaped(&error.to_string()) },
    }
}

fn tls_error(peer: &str, pinned: &Pinned, error: &rustls::Error) -> Error {
    let peer = peer.to_owned();
    match (pinned.other(), error) {
        (Some(got), _) => Error::Certificate { peer, got, expected: pinned.expected() },
        (None, rustls::Error::InvalidMessage(_)) => Error::NotTls { peer },
        (None, other) => Error::Garbage { peer, what: format!("TLS: {other}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_bootstrap::{Id, QueuePairEnd, Secret};
    use std::net::TcpListener;

    fn parting(peer: SocketAddr) -> Parting {
        let token = Token { fingerprint: None, secret: Secret::new([7; 32]) };
        let end = QueuePairEnd { queue_pair: 21, packet: 5, gid: Id([2; 16]), mtu_bytes: 1024, reads_answered: 0 };
        Parting::new(peer, &token, "test", &VerbsRequest { reader_id: Id([7; 16]), end, copy: None })
    }

    /// The request that the next connection brings.
    fn heard(listener: &TcpListener) -> Request {
        let mut stream = listener.accept().unwrap().0;
        let mut bytes = Vec::new();
        loop {
            match frame::decode(&bytes).unwrap() {
                Decoded::Message { body, .. } => return Request::decode(body).unwrap(),
                Decoded::Need { missing_bytes } => {
                    let before = bytes.len();
                    bytes.resize(before + missing_bytes, 0);
                    stream.read_exact(&mut bytes[before..]).unwrap();
                }
            }
        }
    }

    #[test]
    fn whoever_parts_says_so_and_who_was_replaced_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap();
        let parted = std::thread::spawn(move || {
            parting(peer).replaced();
            drop(parting(peer));
        });
        let said = heard(&listener);
        assert_eq!(said.goodbye, Some(Goodbye { reader_id: Id([7; 16]), queue_pair: 21 }));
        assert_eq!((said.verbs, said.secret), (None, Secret::new([7; 32])));
        parted.join().unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "it was said once");
    }

    #[test]
    fn a_host_that_says_nothing_does_not_hold_up_who_parts() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let began = Instant::now();
        drop(parting(silent.local_addr().unwrap()));
        let took = began.elapsed();
        assert!(took >= GOODBYE_TIMEOUT && took < 4 * GOODBYE_TIMEOUT, "{took:?}");
    }
}
