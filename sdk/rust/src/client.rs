// SPDX-License-Identifier: Apache-2.0
//! The registration socket (docs/format/registration.md), the program's side. Nothing that an agent answers is trusted.

use crate::region::Inner;
use onlooker_region::limits::{MAX_GENERATION, MAX_REGION_ID};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

const VERSION: u32 = 1;
/// Longest packet (registration.md, "Limits").
const MAX_PACKET_BYTES: usize = 131_072;
/// Answers are short; a longer one is not an agent's.
const MAX_ANSWER_BYTES: usize = 16_384;
/// An agent answers within microseconds; one that does not for so long is stuck, and another may take its place.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What went wrong with the connection; it is closed then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("{operation} on {socket}: {errno}")]
    System { operation: &'static str, socket: String, errno: Errno },
    #[error("the agent closed the connection")]
    Closed,
    #[error("the agent did not answer `{0}` for 5 s")]
    Silent(&'static str),
    #[error("the agent's answer to `{op}` is not one: {message}")]
    Answer { op: &'static str, message: String },
    #[error("the agent refused `hello`: {0}")]
    Hello(String),
}

/// A refusal: code and sentence.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// A region as the agent gave it, checked as far as the answer goes.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) id: u32,
    pub(crate) generation: u32,
    pub(crate) offset: u64,
    pub(crate) resumed: bool,
    pub(crate) slab: OwnedFd,
}

/// A connection after `hello`.
pub(crate) struct Client {
    fd: OwnedFd,
    name: String,
}

#[derive(Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Request<'a> {
    Hello {
        version: u32,
        sdk: &'static str,
    },
    Create {
        name: &'a str,
        instance: &'a str,
        labels: &'a BTreeMap<String, String>,
        schema: &'a onlooker_region::Schema,
    },
    Publish {
        region: u32,
    },
    Remove {
        region: u32,
    },
}

impl Request<'_> {
    fn op(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Create { .. } => "create",
            Self::Publish { .. } => "publish",
            Self::Remove { .. } => "remove",
        }
    }
}

/// Keys that a later agent adds are passed over.
#[derive(Debug, Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: String,
    #[serde(default)]
    message: String,
    version: Option<u32>,
    region: Option<RegionAnswer>,
}

#[derive(Debug, Deserialize)]
struct RegionAnswer {
    id: u32,
    generation: u32,
    offset: u64,
    bytes: u64,
    mapped_bytes: u64,
    resumed: bool,
}

impl Client {
    /// Connects and says hello.
    pub(crate) fn connect(path: &Path) -> Result<Self, Lost> {
        let name = path.display().to_string();
        let failed = |operation: &'static str| {
            let socket = name.clone();
            move |errno| Lost::System { operation, socket, errno }
        };
        let address = match path.as_os_str().as_bytes() {
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name),
            _ => SocketAddrUnix::new(path),
        };
        let address = address.map_err(failed("address"))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let made = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let fd = made.map_err(failed("socket"))?;
        connect(&fd, &address).map_err(failed("connect"))?;
        let client = Self { fd, name };
        let hello = Request::Hello { version: VERSION, sdk: concat!("rust ", env!("CARGO_PKG_VERSION")) };
        let (answer, _) = client.ask(&hello)?;
        match answer {
            Answer { ok: true, version: Some(VERSION), .. } => Ok(client),
            Answer { ok: true, version, .. } => {
                Err(Lost::Hello(format!("it speaks version {version:?}, not {VERSION}")))
            }
            Answer { error, message, .. } => Err(Lost::Hello(format!("{error}: {message}"))),
        }
    }

    /// To be polled: readable when the agent is gone.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Asks for a range.
    pub(crate) fn create(&self, inner: &Inner) -> Result<Result<Given, Refusal>, Lost> {
        let Inner { name, instance, labels, schema, .. } = inner;
        let (answer, mut fds) = self.ask(&Request::Create { name, instance, labels, schema })?;
        if !answer.ok {
            return Ok(Err(Refusal { code: answer.error, message: answer.message }));
        }
        let wrong = |message: &str| Lost::Answer { op: "create", message: message.into() };
        let region = answer.region.ok_or_else(|| wrong("no `region`"))?;
        let slab = if fds.len() == 1 { fds.pop() } else { None };
        let slab = slab.ok_or_else(|| wrong("not one descriptor"))?;
        let RegionAnswer { id, generation, offset, bytes, mapped_bytes, resumed } = region;
        if !(1..=MAX_REGION_ID).contains(&id) || !(1..=MAX_GENERATION).contains(&generation) {
            return Err(wrong("`id` or `generation` out of range"));
        }
        if bytes != inner.bytes() || mapped_bytes < inner.place.bytes() as u64 {
            return Err(wrong("a range of another size"));
        }
        Ok(Ok(Given { id, generation, offset, resumed, slab }))
    }

    /// Makes a region visible.
    pub(crate) fn publish(&self, region: u32) -> Result<Result<(), Refusal>, Lost> {
        self.done(&Request::Publish { region })
    }

    /// Ends a region.
    pub(crate) fn remove(&self, region: u32) -> Result<Result<(), Refusal>, Lost> {
        self.done(&Request::Remove { region })
    }

    fn done(&self, request: &Request) -> Result<Result<(), Refusal>, Lost> {
        let (answer, _) = self.ask(request)?;
        Ok(if answer.ok { Ok(()) } else { Err(Refusal { code: answer.error, message: answer.message }) })
    }

    fn ask(&self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), Lost> {
        let op = request.op();
        let failed = |operation| move |errno| Lost::System { operation, socket: self.name.clone(), errno };
        let bad = |message: String| Lost::Answer { op, message };
        let packet = serde_json::to_vec(request).map_err(|error| bad(error.to_string()))?;
        if packet.len() > MAX_PACKET_BYTES {
            // Too much for any agent: answered here, so that the connection stays.
            let message = format!("`{op}` of {} bytes, more than MAX_PACKET_BYTES = {MAX_PACKET_BYTES}", packet.len());
            let answer = Answer { ok: false, error: "bad_request".into(), message, version: None, region: None };
            return Ok((answer, Vec::new()));
        }
        let end = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match send(&self.fd, &packet, SendFlags::NOSIGNAL) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.ready(PollFlags::OUT, end, op)?,
                Err(errno) => return Err(failed("send")(errno)),
            }
        }
        let mut buffer = vec![0; MAX_ANSWER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut buffer)];
            let received = recvmsg(&self.fd, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT);
            let message = match received {
                Ok(message) => message,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    self.ready(PollFlags::IN, end, op)?;
                    continue;
                }
                Err(errno) => return Err(failed("recvmsg")(errno)),
            };
            let fds = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            });
            let fds = fds.flatten().collect();
            let (bytes, flags) = (message.bytes, message.flags);
            if bytes == 0 {
                return Err(Lost::Closed);
            }
            if flags.contains(ReturnFlags::TRUNC) {
                return Err(bad(format!("longer than {MAX_ANSWER_BYTES} bytes")));
            }
            let answer = serde_json::from_slice(&buffer[..bytes]).map_err(|error| bad(error.to_string()))?;
            return Ok((answer, fds));
        }
    }

    fn ready(&self, events: PollFlags, end: Instant, op: &'static str) -> Result<(), Lost> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Lost::Silent(op));
        }
        wait_for(&mut [PollFd::new(&self.fd, events)], Some(left));
        Ok(())
    }
}

/// Polls; `None` waits without limit. A signal counts as nothing: callers look again.
pub(crate) fn wait_for(fds: &mut [PollFd], timeout: Option<Duration>) {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    if poll(fds, timeout.as_ref()).is_err() {
        // EINTR or no memory: nothing is ready.
        fds.iter_mut().for_each(PollFd::clear_revents);
    }
}

/// Whether something happened there.
pub(crate) fn is_ready(fd: &PollFd) -> bool {
    !fd.revents().is_empty()
}
