// SPDX-License-Identifier: Apache-2.0
//! Datagrams past the kernel's UDP: AF_XDP sockets on every queue of a device, for one address and UDP port.
//!
//! A [`Port`] receives what a small BPF program (`bpf/steer.bpf.c`) takes out of the device's frames before the stack
//! sees them, and sends frames that it writes itself. It has no tables of routes or neighbours: a [`Way`] to a peer is
//! learnt from a datagram of this peer. Who has none yet sends by an ordinary socket on the same port.
//!
//! Invariants: a frame is in one place, a ring, the kernel, or the list of free ones; whatever comes from the network
//! or stands in a ring makes none of this panic or touch other memory; the program goes with its [`Port`]. Needs
//! CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF; Linux 6.1.
#![deny(unsafe_code)]

mod frame;
mod memory;
mod queue;
mod ring;
mod skeleton;
mod steer;

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

pub use frame::{Arrived, Way};
use memory::Frames;
use onlooker_responder::{Device, sys};
use queue::Queue;
use rustix::io::Errno;
use steer::Steering;

/// Frames to receive into, over all queues, and at least and at most of a queue.
const FRAMES: u32 = 8192;
const QUEUE_FRAMES: std::ops::RangeInclusive<u32> = 512..=4096;
/// Queues of a device at most: what comes by others goes to the stack.
const MAX_QUEUES: u32 = 63;
/// Frames to send from.
const SEND_FRAMES: u32 = 2048;

/// How long a queue may stay taken by a socket that was closed.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// Who runs the BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The driver, before there is a packet of the stack.
    Native,
    /// The stack, on its packets.
    Generic,
}

/// Why there is no port.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No device of this machine has the address.
    #[error("AF_XDP: no network device has {0}")]
    NoDevice(SocketAddr),
    /// What the device is, or the list of devices.
    #[error("AF_XDP: {0}")]
    Device(#[from] onlooker_responder::Error),
    /// Only one XDP program fits a device.
    #[error(
        "AF_XDP: {device} has an XDP program already, and takes one; attach the responder to tc, or read by sockets"
    )]
    Taken {
        /// Its name.
        device: String,
    },
    /// The kernel refused the BPF program.
    #[error(
        "AF_XDP: loading the BPF program: {source}; needs CAP_BPF and CAP_NET_ADMIN. Last words of the loader:\n{log}"
    )]
    Load {
        /// Why.
        source: libbpf_rs::Error,
        /// The end of libbpf's and the verifier's output.
        log: String,
    },
    /// A BPF operation failed.
    #[error("AF_XDP: {operation} for {device}: {source}; needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW")]
    Bpf {
        /// What was tried.
        operation: &'static str,
        /// The device's name.
        device: String,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// A system call failed.
    #[error(
        "AF_XDP: {operation} of {device}: {source}; needs CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, and memory that may be locked (LimitMEMLOCK=, ulimit -l)"
    )]
    System {
        /// What was tried.
        operation: &'static str,
        /// The device's name.
        device: String,
        /// Why.
        source: std::io::Error,
    },
}

/// The Ethernet devices of this machine: whether an AF_XDP [`Port`] may be opened on each, as its place for an XDP
/// program is free. Changes nothing.
///
/// # Errors
/// This kernel has no AF_XDP, or this process may not use it.
pub fn survey() -> Result<Vec<(String, bool)>, Error> {
    let all = |operation| move |source| Error::System { operation, device: "all devices".into(), source };
    queue::open_socket().map_err(|errno| all("opening an AF_XDP socket")(errno.into()))?;
    let devices = Device::all_ethernet()?.into_iter().map(|device| {
        let taken = sys::xdp_programs(device.index()).map_err(all("querying the XDP programs"))?;
        Ok((device.name().to_owned(), taken.iter().all(|id| *id == 0)))
    });
    devices.collect()
}

/// [`Queue::open`]. The kernel gives a queue free some time after the socket was closed that had it: a controller that
/// restarts waits for that.
fn open_queue(
    device: u32,
    number: u32,
    size: u32,
    frames: &Frames,
    first: Option<&Queue>,
) -> Result<Queue, queue::Failed> {
    let end = Instant::now() + BUSY_TIMEOUT;
    loop {
        match Queue::open(device, number, size, frames, first) {
            Err((_, Errno::BUSY)) if Instant::now() < end => thread::sleep(BUSY_TIMEOUT / 50),
            ended => return ended,
        }
    }
}

/// All queues of a device, for one address and UDP port.
#[derive(Debug)]
pub struct Port {
    // Before the sockets: nothing is steered into one that is gone.
    steering: Steering,
    queues: Vec<Queue>,
    frames: Frames,
    device: String,
    /// The queue that is looked at first, so that none waits for the others.
    next: usize,
}

impl Port {
    /// On the device that has `own`'s address, for datagrams to `own`. An ordinary UDP socket must be bound to it, so
    /// that the port is nobody else's.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(own: SocketAddr) -> Result<Self, Error> {
        let device = Device::with_address(own.ip())?.ok_or(Error::NoDevice(own))?;
        let system = |(operation, errno): queue::Failed| Error::System {
            operation,
            device: device.name().to_owned(),
            source: std::io::Error::from(errno),
        };
        let count = device.receive_queues().min(MAX_QUEUES);
        let size = (FRAMES / count).next_power_of_two().clamp(*QUEUE_FRAMES.start(), *QUEUE_FRAMES.end());
        let steering = Steering::attach(&device, own, count)?;
        let mut frames =
            Frames::new(count * size + SEND_FRAMES).map_err(|errno| system(("allocating memory", errno)))?;
        let mut queues: Vec<Queue> = Vec::new();
        for number in 0..count {
            match open_queue(device.index(), number, size, &frames, queues.first()) {
                Ok(queue) => queues.push(queue),
                // It was made for more than it uses.
                Err((_, Errno::INVAL)) if number > 0 => break,
                Err(failed) => return Err(system(failed)),
            }
        }
        for queue in &mut queues {
            queue.refill(&mut frames, size);
            steering.steer(queue.number(), queue.as_fd()).map_err(|source| Error::Bpf {
                operation: "steering to a socket",
                device: device.name().to_owned(),
                source,
            })?;
        }
        Ok(Self { steering, queues, frames, device: device.name().to_owned(), next: 0 })
    }

    /// The device's name.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Who runs the program.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.steering.mode
    }

    /// Whether the device and this process use the same memory.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.queues.iter().all(Queue::is_zero_copy)
    }

    /// What to sleep on: each is readable while its queue has datagrams.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.as_fd())
    }

    /// Gives `each` the datagrams that came, at most `limit`; returns how many frames that were.
    pub fn receive(&mut self, limit: u32, mut each: impl FnMut(&Arrived<'_>)) -> u32 {
        let mut count = 0;
        self.next = self.next.wrapping_add(1);
        for turn in 0..self.queues.len() {
            let at = self.next.wrapping_add(turn) % self.queues.len();
            count += self.queues[at].receive(&mut self.frames, limit - count, &mut each);
        }
        count
    }

    /// Puts a datagram behind the others, to be sent by [`Port::flush`]. False: there is no room, try after that.
    pub fn push(&mut self, way: &Way, payload: &[u8]) -> bool {
        let queue = self.queues.get_mut(way.queue as usize);
        queue.is_some_and(|queue| queue.push(&mut self.frames, way, payload))
    }

    /// Sends what was pushed. False: something is left, to be sent by a later call.
    pub fn flush(&mut self) -> bool {
        let mut is_all = true;
        for queue in &mut self.queues {
            is_all &= queue.flush();
        }
        is_all
    }
}
