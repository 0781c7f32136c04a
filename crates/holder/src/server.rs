// SPDX-License-Identifier: Apache-2.0
//! The holder's loop: one poll(2) for the socket, the agent's connection, the device and the end. Decisions are
//! elsewhere ([`crate::state`]).
//!
//! Cost: it sleeps while nothing is asked, the device has nothing to tell and no grace is to end; READs wake it never.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use onlooker_local::{closing, seqpacket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{Shutdown, UCred, shutdown};
use rustix::process::geteuid;

use crate::protocol::{self, Code, MAX_PACKET_BYTES, Refusal};
use crate::state::{Core, Owner};

/// Pause when a connection cannot be accepted, for want of descriptors most likely: the listener stays readable.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(10);

/// Why the holder has ended otherwise than by a signal.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Its device is gone. Whoever starts it anew has the agent register anew.
    #[error("{0}; ending, since all that was registered is gone with it: start the holder again")]
    Device(Refusal),
    /// Nothing can be waited for.
    #[error("cannot wait for events: {0}; start the holder again")]
    Wait(Errno),
}

/// Writes a line to standard error, which a service manager takes to its journal: starts, stops, agents that come and
/// go.
pub fn log(message: &str) {
    let _ = writeln!(io::stderr().lock(), "onlooker-holder: {message}");
}

/// The agent's connection.
struct Agent {
    socket: OwnedFd,
    process: i32,
}

/// What there is to do.
struct Ready {
    listener: bool,
    stops: bool,
    agent: bool,
    device: bool,
}

/// What the loop serves.
pub struct Server<D: Owner> {
    core: Core<D>,
    listener: OwnedFd,
    stops: OwnedFd,
    agent: Option<Agent>,
    begin: Instant,
    buffer: Vec<u8>,
}

impl<D: Owner> Server<D> {
    /// On a listening socket; `stops` is readable when it shall end.
    #[must_use]
    pub fn new(listener: OwnedFd, stops: OwnedFd, core: Core<D>) -> Self {
        Self { core, listener, stops, agent: None, begin: Instant::now(), buffer: vec![0; MAX_PACKET_BYTES] }
    }

    /// Serves until it is told to stop.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn run(&mut self) -> Result<(), ServerError> {
        loop {
            let ready = self.wait().map_err(ServerError::Wait)?;
            if ready.stops {
                return Ok(());
            }
            if ready.device {
                self.core.events().map_err(ServerError::Device)?;
            }
            let now_ns = self.now_ns();
            self.core.expire(now_ns);
            // First, since an agent that has gone makes room for one that waits.
            if ready.agent {
                self.packet();
            }
            if ready.listener {
                self.accept();
            }
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn wait(&self) -> Result<Ready, Errno> {
        let pause = self.core.next_deadline_ns().map(|until_ns| {
            let ns = until_ns.saturating_sub(self.now_ns());
            let tv_sec = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
            Timespec { tv_sec, tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0) }
        });
        let agent = self.agent.as_ref().map(|agent| agent.socket.as_fd());
        let watched = [Some(self.listener.as_fd()), Some(self.stops.as_fd()), agent, self.core.device()];
        let there = watched.iter().flatten();
        let mut polled: Vec<_> = there.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        match poll(&mut polled, pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        // Errors and ends are to be looked at, too.
        let mut told = polled.iter().map(|one| !one.revents().is_empty());
        let [listener, stops, agent, device] = watched.map(|fd| fd.is_some() && told.next().unwrap_or(false));
        Ok(Ready { listener, stops, agent, device })
    }

    fn accept(&mut self) {
        let socket = match seqpacket::accept(&self.listener) {
            Ok(socket) => socket,
            Err(error) => {
                if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                    std::thread::sleep(NO_DESCRIPTOR_PAUSE);
                }
                return;
            }
        };
        match self.admit(&socket) {
            Ok(process) => {
                log(&format!("an agent is here: process {process}"));
                self.agent = Some(Agent { socket, process });
            }
            Err(refusal) => {
                self.core.connection_refused();
                refuse(socket, refusal);
            }
        }
    }

    /// Whether this is the agent; its process.
    fn admit(&self, socket: &OwnedFd) -> Result<i32, Refusal> {
        let peer = socket_peercred(socket).map_err(|errno| {
            Refusal::new(Code::Denied, format!("finding out who connects (SO_PEERCRED): {errno}; connect again"))
        })?;
        is_trusted(&peer)?;
        if let Some(Agent { process, .. }) = &self.agent {
            let message = format!("connecting: process {process} is connected, and one agent is served; stop that one");
            return Err(Refusal::new(Code::Busy, message));
        }
        Ok(peer.pid.as_raw_nonzero().get())
    }

    fn packet(&mut self) {
        let now_ns = self.now_ns();
        let Some(agent) = &self.agent else { return };
        let packet = match seqpacket::receive(&agent.socket, &mut self.buffer) {
            // An empty packet and the end of the connection look alike (seqpacket in unix(7)); neither is a request.
            Ok(packet) if packet.bytes > 0 || packet.truncated => packet,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Ok(_) | Err(_) => return self.gone(),
        };
        let answer = if packet.truncated || packet.more_descriptors {
            let message = format!("a packet has at most {MAX_PACKET_BYTES} bytes and one descriptor: send less");
            protocol::encode(&Err(Refusal::new(Code::BadRequest, message)))
        } else {
            self.core.answer(&self.buffer[..packet.bytes], &packet.descriptors, now_ns)
        };
        // An agent that asks and does not read the answers is none, either.
        if seqpacket::send(&agent.socket, &answer, None).is_err() {
            self.gone();
        }
    }

    fn gone(&mut self) {
        if let Some(Agent { process, .. }) = self.agent.take() {
            log(&format!("the agent has gone: process {process}; what it has registered stays"));
        }
    }
}

/// Root, and the holder's own user.
fn is_trusted(peer: &UCred) -> Result<(), Refusal> {
    let own = geteuid();
    if peer.uid.is_root() || peer.uid == own {
        return Ok(());
    }
    let (peer, own) = (peer.uid.as_raw(), own.as_raw());
    let message = format!("connecting as user {peer}: the holder serves user {own} and root; run it as the agent's");
    Err(Refusal::new(Code::Denied, message))
}

/// Tells why and closes. A socket that is closed with packets unread resets its peer, who would never see the answer:
/// so no more are taken, and those that are there are thrown away.
fn refuse(socket: OwnedFd, refusal: Refusal) {
    let _ = shutdown(&socket, Shutdown::Read);
    let uid = closing::user_of(&socket);
    let mut scrap = [0; 64];
    while let Ok(packet) = seqpacket::receive(&socket, &mut scrap)
        && packet.bytes > 0
    {
        closing::close(uid, packet.descriptors);
    }
    let _ = seqpacket::send(&socket, &protocol::encode(&Err(refusal)), None);
    closing::close(uid, [socket]);
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::thread::JoinHandle;

    use onlooker_bootstrap::Id;
    use onlooker_local::listen::HOLDER;
    use onlooker_region::map::sealed_memfd;
    use rustix::process::{Gid, Pid, Uid};

    use super::*;
    use crate::client::{ClientError, Holder};
    use crate::fake::{FAILING, Shared};
    use crate::protocol::{ControlCopy, End};

    const HERE: &str = "10.0.0.1";

    /// A holder of a device that is none. Ends when its stream is dropped.
    fn start(path: &Path) -> (UnixStream, JoinHandle<Result<(), ServerError>>) {
        let (listener, listening) = HOLDER.listen(path).unwrap();
        let (stop, stops) = UnixStream::pair().unwrap();
        let served = std::thread::spawn(move || {
            let _listening = listening;
            Server::new(listener, stops.into(), Core::new(Shared::new(8, 8).opener())).run()
        });
        (stop, served)
    }

    fn is_readable(socket: BorrowedFd<'_>) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    fn refused(error: &ClientError) -> Option<Code> {
        if let ClientError::Refused(Refusal { code, .. }) = error { Some(*code) } else { None }
    }

    #[test]
    fn what_an_agent_registers_outlives_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holder.sock");
        let (stop, served) = start(&path);
        let memory = sealed_memfd("test", 8192).unwrap();
        let end = End { queue_pair: 17, packet: 5, gid: Id([2; 16]), mtu_bytes: 1024, reads_answered: 16 };

        let mut first = Holder::connect(&path).unwrap();
        assert!(first.hello(HERE.parse().unwrap()).unwrap().memory.is_empty());
        let rkey = first.register("slab-3", memory.as_fd(), 1 << 40, 8192).unwrap();
        let copy = ControlCopy { va: 4096, rkey: 7, bytes: 4096 };
        let paired = first.pair(&"ab".repeat(16), &end, Some(copy)).unwrap();
        assert_eq!((paired.end.gid, paired.copies), (Id([1; 16]), 1));
        assert_eq!(first.pair("me", &end, None).as_ref().map_err(refused), Err(Some(Code::BadRequest)));
        assert_eq!(first.push("slab-3", 4096, &[(1024, 1024), (0, 1024)]).unwrap(), 1);
        assert_eq!(first.push("slab-4", 0, &[(0, 1024)]).as_ref().map_err(refused), Err(Some(Code::Unknown)));
        drop(first);

        let mut second = Holder::connect(&path).unwrap();
        let there = second.hello(HERE.parse().unwrap()).unwrap();
        assert_eq!((there.memory[0].rkey, there.memory[0].bytes, there.pairs), (rkey, 8192, 1));
        assert_eq!(there.copies, Some(1));
        assert_eq!(second.register("slab-3", memory.as_fd(), 1 << 40, 8192).unwrap(), rkey);
        assert_eq!(second.end("slab-4").as_ref().map_err(refused), Err(Some(Code::Unknown)));
        second.end("slab-3").unwrap();
        let status = second.status().unwrap();
        assert_eq!((status.registrations, status.resting, status.pairs), (0, 1, 1));
        second.release().unwrap();
        assert_eq!(second.status().unwrap().registered_bytes, 0);
        assert!(!is_readable(second.as_fd()));
        drop(stop);
        served.join().unwrap().unwrap();
        assert!(is_readable(second.as_fd()) && !path.exists());
        assert!(matches!(second.status(), Err(ClientError::Gone { .. })));
    }

    #[test]
    fn one_agent_is_served_and_another_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holder.sock");
        let (stop, served) = start(&path);
        let mut first = Holder::connect(&path).unwrap();
        first.status().unwrap();
        for _ in 0..20 {
            let error = Holder::connect(&path).unwrap().status().unwrap_err();
            assert_eq!(refused(&error), Some(Code::Busy), "{error}");
            assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        }
        assert_eq!(first.status().unwrap().counters.connections_refused, 20);
        drop((first, stop));
        served.join().unwrap().unwrap();
    }

    #[test]
    fn a_packet_that_is_too_long_has_an_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holder.sock");
        let (stop, served) = start(&path);
        let socket = seqpacket::connected(&path).unwrap();
        seqpacket::send(&socket, &vec![b' '; MAX_PACKET_BYTES + 1], None).unwrap();
        let mut answer = vec![0; MAX_PACKET_BYTES];
        let bytes = seqpacket::receive(&socket, &mut answer).unwrap().bytes;
        assert!(answer[..bytes].starts_with(br#"{"error":"bad_request""#));
        drop((socket, stop));
        served.join().unwrap().unwrap();
    }

    #[test]
    fn the_end_of_the_device_is_the_holders() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holder.sock");
        let (_stop, served) = start(&path);
        let mut agent = Holder::connect(&path).unwrap();
        agent.hello(FAILING.parse().unwrap()).unwrap();
        assert!(matches!(served.join().unwrap(), Err(ServerError::Device(_))));
        assert!(is_readable(agent.as_fd()));
    }

    #[test]
    fn only_root_and_our_own_user_are_served() {
        let peer = |uid| UCred { pid: Pid::INIT, uid: Uid::from_raw(uid), gid: Gid::ROOT };
        let own = geteuid().as_raw();
        assert_eq!((is_trusted(&peer(0)), is_trusted(&peer(own))), (Ok(()), Ok(())));
        assert_eq!(is_trusted(&peer(own + 1)).unwrap_err().code, Code::Denied);
    }
}
