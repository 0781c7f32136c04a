// SPDX-License-Identifier: Apache-2.0
//! A host given by the user, and the connection to it: bootstrap, requester, session; made anew when its agent was.

use crate::token::SourceError;
use onlooker_bootstrap::{DEFAULT_PORT, Token};
use onlooker_transport::bootstrap::{Bootstrapped, bootstrap, resolve};
use onlooker_transport::clock::steady_ns;
use onlooker_transport::drive::{DriveError, read_host};
use onlooker_transport::reader::{Limits, ReadError, Session};
use onlooker_transport::tcp::TcpRequester;
use onlooker_transport::{Error, Requester};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// Name and version told to agents.
pub(crate) const READER: &str = concat!("onlooker ", env!("CARGO_PKG_VERSION"));

/// `HOST[:PORT]`; IPv6 addresses with a port stand in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']').ok_or("`]` is missing")?;
                let port = match behind {
                    "" => None,
                    port => Some(port.strip_prefix(':').ok_or("`:PORT` or nothing is expected behind `]`")?),
                };
                (host, port)
            }
            // More than one colon: an IPv6 address without port.
            None => match text.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (text, None),
            },
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err("HOST or HOST:PORT is expected".into());
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| format!("`{port}` is not a port: 1 to 65535"))?,
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why a host could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error(transparent)]
    Transport(#[from] Error),
    #[error(transparent)]
    Token(#[from] SourceError),
    #[error("{target}: READs at {address}: {source}")]
    Drive { target: Target, address: SocketAddr, source: Box<DriveError> },
}

/// A connection to a host.
pub(crate) struct Connection {
    target: Target,
    addresses: Vec<SocketAddr>,
    token: Token,
    timeout: Duration,
    limits: Limits,
    pub(crate) told: Bootstrapped,
    pub(crate) session: Session,
    pub(crate) requester: TcpRequester,
}

/// The addresses of a target.
pub(crate) fn addresses(target: &Target) -> Result<Vec<SocketAddr>, Error> {
    resolve(&target.host, target.port)
}

fn open(
    addresses: &[SocketAddr],
    token: &Token,
    timeout: Duration,
    limits: Limits,
) -> Result<(Bootstrapped, TcpRequester, Session), Error> {
    let told = bootstrap(addresses, token, READER, timeout)?;
    let (responder, address) = told.tcp()?;
    let requester = TcpRequester::connect(address, told.answer.max_read_blocks(responder), timeout)?;
    let session = Session::new(&told.answer, requester.max_read_blocks(), limits);
    Ok((told, requester, session))
}

impl Connection {
    pub(crate) fn open(
        target: &Target,
        addresses: Vec<SocketAddr>,
        token: Token,
        timeout: Duration,
        limits: Limits,
    ) -> Result<Self, HostError> {
        let (told, requester, session) = open(&addresses, &token, timeout, limits)?;
        Ok(Self { target: target.clone(), addresses, token, timeout, limits, told, session, requester })
    }

    /// Reads the host once. `prepare` is called with each new session, before its first reading.
    pub(crate) fn read(&mut self, prepare: &dyn Fn(&mut Session)) -> Result<(), HostError> {
        let first = self.read_once(prepare);
        match first {
            Err(DriveError::Read(ReadError::Gone(_) | ReadError::Lost) | DriveError::Broken(_)) => {
                // The agent was restarted, or closed an idle connection: once more from the beginning.
                let (told, requester, session) = open(&self.addresses, &self.token, self.timeout, self.limits)?;
                (self.told, self.requester, self.session) = (told, requester, session);
                self.read_once(prepare)
            }
            other => other,
        }
        .map_err(|source| match self.told.tcp() {
            Ok((_, address)) => HostError::Drive { target: self.target.clone(), address, source: Box::new(source) },
            Err(error) => error.into(),
        })
    }

    fn read_once(&mut self, prepare: &dyn Fn(&mut Session)) -> Result<(), DriveError> {
        prepare(&mut self.session);
        let timeout_ns = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        read_host(&mut self.requester, &mut self.session, steady_ns().saturating_add(timeout_ns), steady_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_ports_or_the_usual_one() {
        for (text, host, port) in [
            ("web-3", "web-3", 7177),
            ("web-3:7000", "web-3", 7000),
            ("10.0.0.1:1", "10.0.0.1", 1),
            ("::1", "::1", 7177),
            ("[::1]", "::1", 7177),
            ("[fe80::1]:65535", "fe80::1", 65_535),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.host.as_str(), target.port), (host, port));
            assert_eq!(target.to_string().parse(), Ok(target));
        }
        for text in ["", ":7177", "web:", "web:0", "web:65536", "web:x", "[::1", "[::1]x", "a b", "[]:1"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        bolero::check!().with_type::<String>().for_each(|text| {
            let _ = text.parse::<Target>();
        });
    }
}
