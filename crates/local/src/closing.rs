// SPDX-License-Identifier: Apache-2.0
//! Closes what other programs have handed over, away from the thread that serves everybody.
//!
//! The last close of a descriptor can block for as long as its sender likes: a TCP socket with SO_LINGER and unsent
//! data, a file whose file system waits at flush. A socket closed with packets unread closes the descriptors in them
//! in the same way, and so does a receive whose control buffer is too small: the kernel drops these files in the
//! receiver's context (fput, task work). So received descriptors and programs' sockets end here: on one thread a user
//! at most, which lives only while there is work. A user whose closes block waits for itself.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::sockopt::{set_socket_linger, socket_domain, socket_peercred};
use rustix::net::{AddressFamily, Shutdown, shutdown};

use crate::seqpacket;

/// Closing threads of all users; further users wait for one of them to end.
const MAX_THREADS: usize = 64;
/// Packets that are taken out of one socket; its queue is shorter (net.unix.max_dgram_qlen does not bound it, its
/// buffer does).
const MAX_PACKETS: usize = 4096;
const STACK_BYTES: usize = 64 * 1024;
/// Stands for a peer whose user the kernel does not name.
const NOBODY: u32 = u32::MAX;

/// What waits, by user. One whose thread has taken the last of it stays here, empty, until that thread ends.
struct Queue {
    users: Option<HashMap<u32, User>>,
    threads: usize,
}

#[derive(Default)]
struct User {
    waiting: VecDeque<OwnedFd>,
    has_thread: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { users: None, threads: 0 });

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The user at the other end of a socket.
pub fn user_of(socket: &OwnedFd) -> u32 {
    socket_peercred(socket).map_or(NOBODY, |peer| peer.uid.as_raw())
}

/// How many descriptors of a user wait to be closed.
#[must_use]
pub fn waiting(uid: u32) -> usize {
    queue().users.as_ref().and_then(|users| users.get(&uid)).map_or(0, |user| user.waiting.len())
}

/// Closes a user's descriptors soon. Never blocks.
pub fn close(uid: u32, descriptors: impl IntoIterator<Item = OwnedFd>) {
    let mut descriptors = descriptors.into_iter().peekable();
    if descriptors.peek().is_none() {
        return;
    }
    let mut queue = queue();
    queue.users.get_or_insert_default().entry(uid).or_default().waiting.extend(descriptors);
    queue.start();
}

impl Queue {
    /// Threads for users who have none. Where none can be made they wait for the next call.
    fn start(&mut self) {
        let Self { users: Some(users), threads } = self else { return };
        for (uid, user) in users.iter_mut().filter(|(_, user)| !user.has_thread) {
            let (uid, thread) = (*uid, std::thread::Builder::new().name("close".into()).stack_size(STACK_BYTES));
            if *threads >= MAX_THREADS || thread.spawn(move || work(uid)).is_err() {
                return;
            }
            user.has_thread = true;
            *threads += 1;
        }
    }

    /// The next descriptor of a user, for its thread, which ends where there is none.
    fn next(&mut self, uid: u32) -> Option<OwnedFd> {
        let users = self.users.get_or_insert_default();
        let next = users.get_mut(&uid).and_then(|user| user.waiting.pop_front());
        if next.is_none() {
            users.remove(&uid);
            self.threads -= 1;
            self.start();
        }
        next
    }
}

fn work(uid: u32) {
    loop {
        let next = queue().next(uid);
        let Some(descriptor) = next else { return };
        defuse(uid, &descriptor);
        drop(descriptor);
    }
}

/// Takes out of a descriptor what would make its close wait: lingering, and descriptors in packets that nobody has read.
fn defuse(uid: u32, descriptor: &OwnedFd) {
    // Anything but a socket says ENOTSOCK.
    let is_local = set_socket_linger(descriptor, None).and_then(|()| socket_domain(descriptor));
    if is_local != Ok(AddressFamily::UNIX) {
        return;
    }
    // No packet comes after this one.
    let _ = shutdown(descriptor, Shutdown::Read);
    let mut scrap = [0; 64];
    for _ in 0..MAX_PACKETS {
        match seqpacket::receive_now(descriptor, &mut scrap) {
            Ok(packet) if packet.bytes > 0 || !packet.descriptors.is_empty() => close(uid, packet.descriptors),
            Ok(_) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;

    /// A socket whose close takes a minute: nobody reads what it has been given.
    fn lingering() -> (TcpListener, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_socket_linger(&stream, Some(Duration::from_secs(60))).unwrap();
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 65_536]).is_ok() {}
        (listener, stream.into())
    }

    #[test]
    fn what_lingers_is_closed_without_waiting_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = seqpacket::listener(&path).unwrap();
        let program = seqpacket::connected(&path).unwrap();
        let ours = seqpacket::accept(&listener).unwrap();
        let (_peers, sockets): (Vec<_>, Vec<_>) = (0..12).map(|_| lingering()).unzip();
        for socket in &sockets {
            seqpacket::send(&program, b"x", Some(socket.as_fd())).unwrap();
        }
        drop(sockets);
        let begin = Instant::now();
        let received = seqpacket::receive(&ours, &mut [0; 8]).unwrap();
        assert_eq!(received.descriptors.len(), 1);
        close(user_of(&ours), received.descriptors);
        // The others are still unread.
        close(user_of(&ours), [ours]);
        assert!(begin.elapsed() < Duration::from_secs(10));
        let uid = rustix::process::getuid().as_raw();
        while queue().users.as_ref().is_some_and(|users| users.contains_key(&uid)) {
            assert!(begin.elapsed() < Duration::from_secs(30), "a close waits for the peer");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    #[test]
    fn a_close_that_blocks_holds_up_its_user_only() {
        const OTHER: u32 = 4242;
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut queue = queue();
        // A user whose thread is in a close that does not end.
        let stuck = User { waiting: VecDeque::from([writer]), has_thread: true };
        queue.users.get_or_insert_default().insert(OTHER + 1, stuck);
        queue.threads += 1;
        drop(queue);
        let (_, other) = rustix::pipe::pipe().unwrap();
        close(OTHER, [other]);
        let begin = Instant::now();
        while waiting(OTHER) > 0 {
            assert!(begin.elapsed() < Duration::from_secs(30), "another user's close waits");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(waiting(OTHER + 1), 1);
        drop(reader);
        work(OTHER + 1);
    }
}
