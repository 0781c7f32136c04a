// SPDX-License-Identifier: Apache-2.0
//! Closes what other programs have handed over, away from the thread that serves everybody.
//!
//! The last close of a descriptor can block for as long as its sender likes: a TCP socket with SO_LINGER and unsent data, a file
//! whose file system waits at flush. A socket closed with packets unread closes the descriptors in them in the same way, and so does
//! a receive whose control buffer is too small: the kernel drops these files in the receiver's context (fput, task work).
//! So received descriptors and programs' sockets end here: on at most `MAX_THREADS` threads, which live only while there is work.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::sockopt::{set_socket_linger, socket_domain};
use rustix::net::{AddressFamily, Shutdown, shutdown};

use crate::seqpacket;

/// Closing threads at once; a close that blocks holds one of them.
const MAX_THREADS: usize = 8;
/// Packets that one socket is relieved of; its queue is shorter (net.unix.max_dgram_qlen does not bound it, its buffer does).
const MAX_PACKETS: usize = 4096;
const STACK_BYTES: usize = 64 * 1024;

struct Queue {
    waiting: VecDeque<OwnedFd>,
    threads: usize,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), threads: 0 });

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many descriptors wait to be closed.
#[must_use]
pub fn waiting() -> usize {
    queue().waiting.len()
}

/// Closes these soon. Never blocks.
pub fn close(descriptors: impl IntoIterator<Item = OwnedFd>) {
    let mut queue = queue();
    queue.waiting.extend(descriptors);
    if queue.waiting.is_empty() || queue.threads >= MAX_THREADS {
        return;
    }
    let thread = std::thread::Builder::new().name("close".into()).stack_size(STACK_BYTES);
    // Where no thread can be made they wait for the next call.
    if thread.spawn(work).is_ok() {
        queue.threads += 1;
    }
}

fn work() {
    loop {
        let mut queue = queue();
        let Some(descriptor) = queue.waiting.pop_front() else {
            queue.threads -= 1;
            return;
        };
        drop(queue);
        defuse(&descriptor);
        drop(descriptor);
    }
}

/// Takes out of a descriptor what would make its close wait: lingering, and descriptors in packets that nobody has read.
fn defuse(descriptor: &OwnedFd) {
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
            Ok(packet) if packet.bytes > 0 || !packet.descriptors.is_empty() => close(packet.descriptors),
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
        close(received.descriptors);
        // The others are still unread.
        close([ours]);
        assert!(begin.elapsed() < Duration::from_secs(10));
        while queue().threads > 0 {
            assert!(begin.elapsed() < Duration::from_secs(30), "a close waits for the peer");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(waiting(), 0);
    }
}
