// SPDX-License-Identifier: Apache-2.0
//! The registration socket, the program's side. Nothing that an agent answers is trusted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crate::call::Caller;
use crate::registration::{Answer, MAX_PACKET_BYTES, Refused, Request, VERSION, decode_answer};

/// Answers are short; a longer one is not an agent's.
const MAX_ANSWER_BYTES: usize = 16_384;

/// What went wrong with a connection. It is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// A system call.
    #[error("{operation} on {socket}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On which socket.
        socket: String,
        /// What the system said.
        source: io::Error,
    },
    /// The other side is gone.
    #[error("the agent closed the connection")]
    Closed,
    /// An agent answers within microseconds; one that does not for so long is stuck, and another may take its place.
    #[error("the agent did not answer `{op}` for {} s", .patience.as_secs())]
    Silent {
        /// The request.
        op: &'static str,
        /// For how long.
        patience: Duration,
    },
    /// It answers something else.
    #[error("the agent's answer to `{op}` is not one: {message}")]
    Answer {
        /// The request.
        op: &'static str,
        /// What is wrong with the answer.
        message: String,
    },
    /// It does not want us, or speaks another version.
    #[error("the agent refused `hello`: {0}")]
    Hello(String),
}

/// A connection to an agent.
#[derive(Debug)]
pub struct Client {
    caller: Caller,
    socket: String,
    patience: Duration,
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.caller.as_fd()
    }
}

impl Client {
    /// Connects, and says nothing yet. `patience`: how long connecting, and then each answer, may take.
    ///
    /// # Errors
    /// [`Lost::System`]; [`Lost::Silent`] where too many wait to be accepted.
    pub fn open(path: &Path, patience: Duration) -> Result<Self, Lost> {
        let socket = path.display().to_string();
        match Caller::connect(path, patience) {
            Ok(caller) => Ok(Self { caller, socket, patience }),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Lost::Silent { op: "connect", patience }),
            Err(source) => Err(Lost::System { operation: "connect", socket, source }),
        }
    }

    /// Connects and says hello. `sdk`: who we are, for people.
    ///
    /// # Errors
    /// [`Lost`]: also where the agent refuses or speaks another version.
    pub fn connect(path: &Path, sdk: &str, patience: Duration) -> Result<Self, Lost> {
        let client = Self::open(path, patience)?;
        match client.hello(sdk)? {
            Ok(Answer::Hello { version: VERSION, .. }) => Ok(client),
            Ok(Answer::Hello { version, .. }) => {
                Err(Lost::Hello(format!("it speaks version {version}, not {VERSION}")))
            }
            Ok(_) => Err(Lost::Answer { op: "hello", message: "no `version`".to_owned() }),
            Err(refused) => Err(Lost::Hello(refused.to_string())),
        }
    }

    /// Says hello, which comes first on a connection.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn hello(&self, sdk: &str) -> Result<Result<Answer, Refused>, Lost> {
        let hello = Request::Hello { version: VERSION, sdk: sdk.into() };
        self.ask(&hello, None).map(|answer| answer.map(|(answer, _)| answer))
    }

    /// One request and its answer, with the descriptors that came along.
    ///
    /// # Errors
    /// [`Lost`]; a refusal leaves the connection as it is.
    pub fn ask(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd>,
    ) -> Result<Result<(Answer, Vec<OwnedFd>), Refused>, Lost> {
        let op = request.op();
        let bad = |message: String| Lost::Answer { op, message };
        let packet = serde_json::to_vec(request).map_err(|error| bad(error.to_string()))?;
        if packet.len() > MAX_PACKET_BYTES {
            // Too much for any agent: answered here, so that the connection stays.
            let message = format!("`{op}` of {} bytes, more than MAX_PACKET_BYTES = {MAX_PACKET_BYTES}", packet.len());
            return Ok(Err(Refused::new("bad_request".to_owned(), message)));
        }
        let mut buffer = vec![0; MAX_ANSWER_BYTES];
        let received = self.caller.ask(&packet, descriptor, &mut buffer).map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => Lost::Silent { op, patience: self.patience },
            io::ErrorKind::UnexpectedEof => Lost::Closed,
            io::ErrorKind::InvalidData => bad(source.to_string()),
            _ => Lost::System { operation: op, socket: self.socket.clone(), source },
        })?;
        let answer = decode_answer(&buffer[..received.bytes]).map_err(|error| bad(error.to_string()))?;
        Ok(answer.map(|answer| (answer, received.descriptors)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registration::{Code, Refusal, decode, encode};
    use crate::seqpacket;

    /// An agent's socket at which `answer` is said to the first request, whatever it is.
    fn answering(answer: &[u8]) -> (tempfile::TempDir, std::thread::JoinHandle<String>) {
        let dir = tempfile::tempdir().unwrap();
        let listener = seqpacket::listener(&dir.path().join("agent.sock")).unwrap();
        rustix::fs::fcntl_setfl(&listener, rustix::fs::OFlags::empty()).unwrap();
        let answer = answer.to_owned();
        let agent = std::thread::spawn(move || {
            let socket = seqpacket::accept(&listener).unwrap();
            rustix::fs::fcntl_setfl(&socket, rustix::fs::OFlags::empty()).unwrap();
            let mut buffer = vec![0; MAX_PACKET_BYTES];
            let packet = seqpacket::receive(&socket, &mut buffer).unwrap();
            seqpacket::send(&socket, &answer, None).unwrap();
            decode(&buffer[..packet.bytes]).unwrap().op().to_owned()
        });
        (dir, agent)
    }

    #[test]
    fn what_an_agent_says_to_hello_decides() {
        let hello = |version| Ok(Answer::Hello { version, agent: "test".to_owned(), socket_uid: 0 });
        for (answer, expected) in [
            (encode(&hello(VERSION)), None),
            (encode(&hello(7)), Some("it speaks version 7, not 1")),
            (encode(&Ok(Answer::Done)), Some("no `version`")),
            (encode(&Err(Refusal::new(Code::Denied, "not you"))), Some("refused `hello`: denied: not you")),
            (b"hm".to_vec(), Some("to `hello` is not one")),
            (vec![b' '; MAX_ANSWER_BYTES + 1], Some("longer than")),
        ] {
            let (dir, agent) = answering(&answer);
            let client = Client::connect(&dir.path().join("agent.sock"), "test", Duration::from_secs(30));
            let error = client.err().map(|error| error.to_string());
            match expected {
                None => assert_eq!(error, None),
                Some(part) => assert!(error.as_ref().is_some_and(|error| error.contains(part)), "{error:?}"),
            }
            assert_eq!(agent.join().unwrap(), "hello");
        }
    }

    #[test]
    fn a_request_that_no_agent_takes_is_refused_here() {
        let (dir, agent) = answering(&encode(&Ok(Answer::Done)));
        let client = Client::open(&dir.path().join("agent.sock"), Duration::from_secs(30)).unwrap();
        let long = Request::Hello { version: VERSION, sdk: "x".repeat(MAX_PACKET_BYTES).into() };
        let refused = client.ask(&long, None).unwrap().unwrap_err();
        assert!(refused.code == "bad_request" && refused.message.contains("MAX_PACKET_BYTES"), "{refused}");
        let done = client.ask(&Request::Publish { region: 17 }, None).unwrap().unwrap();
        assert_eq!((done.0, agent.join().unwrap().as_str()), (Answer::Done, "publish"));
        let error = client.ask(&Request::Publish { region: 17 }, None).unwrap_err();
        assert!(matches!(error, Lost::Closed | Lost::System { .. }), "{error}");
    }
}
