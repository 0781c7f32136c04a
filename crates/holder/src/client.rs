// SPDX-License-Identifier: Apache-2.0
//! The agent's side: a connection to the holder. Each call is a request and its answer, and blocks for at most
//! [`PATIENCE`] each way.
//!
//! An answer that comes too late would be taken for the next one's, so that a connection on which a call has failed
//! (and not: was refused) is of no use any more: connect anew, and let [`Holder::hello`] tell what the holder has. To
//! register again what it has already gives the same key.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use onlooker_bootstrap::Id;
use onlooker_local::call::Caller;
use rustix::net::{Shutdown, shutdown};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::protocol::{
    Code, ControlCopy, Done, End, Hello, MAX_PACKET_BYTES, Paired, Parted, Pushed, Refusal, Registered, Request,
    Status, VERSION,
};

/// How long a request may wait to be taken, and then its answer to come. Registering makes memory resident: about a
/// second for a few GiB.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Why a call has failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no holder, or it does not answer; connect anew.
    #[error("{operation} at the holder {path}: {source}; is onlooker-holder.service running, as the agent's user?")]
    Gone {
        /// What was tried.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It answers that it will not.
    #[error("the holder refuses: {0}")]
    Refused(#[from] Refusal),
    /// It answers something else; connect anew.
    #[error("the holder's answer is not understood: {0}; upgrade the older of agent and holder")]
    Garbage(String),
}

/// A connection to the holder. Its descriptor is readable when the holder has gone.
#[derive(Debug)]
pub struct Holder {
    caller: Caller,
    path: PathBuf,
    buffer: Vec<u8>,
    is_over: bool,
}

impl AsFd for Holder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.caller.as_fd()
    }
}

impl Holder {
    /// Connects to the holder's socket. One that has another agent says so in answer to the first call.
    ///
    /// # Errors
    /// [`ClientError::Gone`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let (path, operation) = (path.to_owned(), "connecting");
        match Caller::connect(&path, PATIENCE) {
            Ok(caller) => Ok(Self { caller, path, buffer: vec![0; MAX_PACKET_BYTES], is_over: false }),
            Err(source) => Err(ClientError::Gone { operation, path, source }),
        }
    }

    /// Has the device opened that has this address, if it is not open, and tells what is there already.
    ///
    /// # Errors
    /// [`ClientError`]: `busy` while something of another device is registered, `no_device`, `no_library`, `device`,
    /// `limit`.
    pub fn hello(&mut self, address: IpAddr) -> Result<Hello, ClientError> {
        self.ask("hello", &Request::Hello { version: VERSION, address }, None)
    }

    /// Registers the first `bytes` of `memory` for READs at `va`, and returns the key that they name.
    ///
    /// # Errors
    /// [`ClientError`]: `exists` for a name that stands for something else, `memory`, `limit`, `device`.
    pub fn register(&mut self, name: &str, memory: BorrowedFd, va: u64, bytes: u64) -> Result<u32, ClientError> {
        let request = Request::Register { name: name.to_owned(), va, bytes };
        self.ask("register", &request, Some(memory)).map(|Registered { rkey }| rkey)
    }

    /// Ends a registration, after a grace ([`crate::state::GRACE_NS`]).
    ///
    /// # Errors
    /// [`ClientError`]: `unknown`.
    pub fn end(&mut self, name: &str) -> Result<(), ClientError> {
        self.ask("end", &Request::End { name: name.to_owned() }, None).map(|Done {}| ())
    }

    /// Makes a queue pair for a reader (an id, 32 hexadecimal digits), connects it to the reader's end and returns its
    /// own. An earlier one of this reader ends. `copy` is for holders whose [`Hello`] counts copies; others refuse it.
    ///
    /// # Errors
    /// [`ClientError`]: `bad_request` for what cannot be an id or an end, `device`, `limit`.
    pub fn pair(&mut self, reader: &str, end: &End, copy: Option<ControlCopy>) -> Result<Paired, ClientError> {
        let no_id = |_| Refusal::new(Code::BadRequest, "a reader's id is 32 hexadecimal digits, and this one is not");
        let request = Request::Pair { reader: reader.parse::<Id>().map_err(no_id)?, end: *end, copy };
        self.ask("pair", &request, None)
    }

    /// Ends the queue pair of a reader that has gone, if it still is the one that is connected to this number of the reader's. For holders that know it; others refuse it.
    ///
    /// # Errors
    /// [`ClientError`]: `unknown` where there is none.
    pub fn part(&mut self, reader: Id, queue_pair: u32) -> Result<Parted, ClientError> {
        self.ask("part", &Request::Part { reader, queue_pair }, None)
    }

    /// Writes ranges of a registration, at most [`MAX_RANGES`](crate::protocol::MAX_RANGES), to all readers' copies of
    /// the control region, which begins at `base`. Returns before they have arrived, and how many copies there are.
    ///
    /// # Errors
    /// [`ClientError`]: `unknown`, `bad_request` for ranges outside of the registration, `device`.
    pub fn push(&mut self, name: &str, base: u64, ranges: &[(u64, u64)]) -> Result<u64, ClientError> {
        let request = Request::Push { name: name.to_owned(), base, ranges: ranges.to_vec() };
        self.ask("push", &request, None).map(|Pushed { copies }| copies)
    }

    /// What there is, and what has happened.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn status(&mut self) -> Result<Status, ClientError> {
        self.ask("status", &Request::Status {}, None)
    }

    /// Ends all queue pairs and registrations at once. The device stays open.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn release(&mut self) -> Result<(), ClientError> {
        self.ask("release", &Request::Release {}, None).map(|Done {}| ())
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        operation: &'static str,
        request: &Request,
        descriptor: Option<BorrowedFd>,
    ) -> Result<T, ClientError> {
        let answer = match self.exchange(request, descriptor) {
            Ok(bytes) => understood(&self.buffer[..bytes]),
            Err(source) => Err(ClientError::Gone { operation, path: self.path.clone(), source }),
        };
        if !matches!(answer, Ok(_) | Err(ClientError::Refused(_))) {
            self.is_over = true;
            let _ = shutdown(&self.caller, Shutdown::Both);
        }
        answer
    }

    /// Sends a request and receives the answer into the buffer; its length.
    fn exchange(&mut self, request: &Request, descriptor: Option<BorrowedFd>) -> io::Result<usize> {
        if self.is_over {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(self.caller.ask(&serde_json::to_vec(request)?, descriptor, &mut self.buffer)?.bytes)
    }
}

fn understood<T: DeserializeOwned>(packet: &[u8]) -> Result<T, ClientError> {
    #[derive(Deserialize)]
    struct Refused {
        error: Option<Code>,
        #[serde(default)]
        message: String,
    }
    let garbage = |error: serde_json::Error| ClientError::Garbage(error.to_string());
    let Refused { error, message } = serde_json::from_slice(packet).map_err(garbage)?;
    match error {
        Some(code) => Err(Refusal::new(code, message).into()),
        None => serde_json::from_slice(packet).map_err(garbage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Answer, encode};
    use onlooker_local::seqpacket;

    #[test]
    fn answers_are_told_from_refusals_and_from_garbage() {
        let answer = encode(&Ok(Answer::Registered(Registered { rkey: 7 })));
        assert_eq!(understood::<Registered>(&answer).unwrap(), Registered { rkey: 7 });
        let refusal = encode(&Err(Refusal::new(Code::Limit, "too many")));
        let error = understood::<Done>(&refusal).unwrap_err();
        assert_eq!(error.to_string(), "the holder refuses: limit: too many");
        for garbage in ["", "7", "{}", r#"{"error":"odd","message":""}"#, r#"{"rkey":-1}"#] {
            let error = understood::<Registered>(garbage.as_bytes()).unwrap_err();
            assert!(matches!(error, ClientError::Garbage(_)), "{garbage}: {error}");
        }
    }

    #[test]
    fn a_holder_that_does_not_answer_is_given_up_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holder.sock");
        let error = Holder::connect(&path).unwrap_err();
        assert!(error.to_string().contains("onlooker-holder.service"), "{error}");
        let listener = seqpacket::listener(&path).unwrap();
        let mut holder = Holder::connect(&path).unwrap();
        let accepted = seqpacket::accept(&listener).unwrap();
        let error = holder.status().unwrap_err();
        assert!(error.to_string().contains("nothing within 2 s"), "{error}");
        // Too late, and not to be taken for the answer to what comes next.
        let _ = seqpacket::send(&accepted, b"{\"rkey\":7}", None);
        assert!(matches!(holder.end("a"), Err(ClientError::Gone { .. })));
    }
}
