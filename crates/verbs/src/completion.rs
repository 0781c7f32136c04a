// SPDX-License-Identifier: Apache-2.0
//! Completion queues: what became of work requests, told in order for each queue pair.
//!
//! Basic queues, with a channel to sleep on: the extended kind tells of completions that never were on soft-RoCE. Every work request of a queue pair that ends in error
//! completes, signalled or not; so a queue has an entry for each that can be outstanding (`reserve`), and never overflows.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys::{
    ibv_ack_cq_events, ibv_get_cq_event, ibv_poll_cq, ibv_req_notify_cq, ibv_wc, ibv_wc_opcode, ibv_wc_status,
};
use sideway::ibverbs::completion::{
    BasicCompletionQueue, CompletionChannel, CompletionQueue as _, GenericCompletionQueue,
};

use crate::device::Device;
use crate::error::{Error, last, system};

/// Completions that one poll takes at most.
pub const MAX_POLL: usize = 64;

/// How a work request ended (IBA 11.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Done,
    /// Not done, since one before it has failed or the queue pair has been moved to the error state.
    Flushed,
    /// The other end refuses key, range or right.
    Access,
    /// The other end takes it for no request that it can answer.
    Invalid,
    /// The other end has failed.
    Remote,
    /// No answer, however often it was asked for.
    NoAnswer,
    /// This end has failed: the raw status (`enum ibv_wc_status`).
    Local(u32),
}

impl Status {
    pub(crate) fn of(raw: u32) -> Self {
        match raw {
            ibv_wc_status::IBV_WC_SUCCESS => Self::Done,
            ibv_wc_status::IBV_WC_WR_FLUSH_ERR => Self::Flushed,
            ibv_wc_status::IBV_WC_REM_ACCESS_ERR => Self::Access,
            ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => Self::Invalid,
            ibv_wc_status::IBV_WC_REM_OP_ERR | ibv_wc_status::IBV_WC_REM_ABORT_ERR => Self::Remote,
            ibv_wc_status::IBV_WC_RETRY_EXC_ERR
            | ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR
            | ibv_wc_status::IBV_WC_RESP_TIMEOUT_ERR => Self::NoAnswer,
            other => Self::Local(other),
        }
    }

    /// A word for it, for counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Flushed => "flushed",
            Self::Access => "access",
            Self::Invalid => "invalid",
            Self::Remote => "remote",
            Self::NoAnswer => "no_answer",
            Self::Local(_) => "local",
        }
    }
}

/// A work request that has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// As it was posted.
    pub id: u64,
    /// How it ended.
    pub status: Status,
}

/// A work request that has completed, and how much was received by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// As it was posted.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// Length of the message, if it is a RECV and done; else 0.
    pub bytes: u32,
}

/// A completion queue and its channel.
#[derive(Debug)]
pub struct CompletionQueue {
    device: Device,
    queue: Arc<BasicCompletionQueue>,
    channel: Arc<CompletionChannel>,
    entries: u32,
    room: Arc<Room>,
}

/// Entries that queue pairs may need, and of these, entries of queue pairs that are gone, whose completions may still be in the queue.
#[derive(Debug, Default)]
struct Room {
    reserved: AtomicU32,
    leaving: AtomicU32,
}

/// Room in a completion queue. It is free again once the queue was polled empty after this value's end.
#[derive(Debug)]
pub(crate) struct Reservation {
    room: Arc<Room>,
    entries: u32,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.room.leaving.fetch_add(self.entries, Ordering::Relaxed);
    }
}

impl CompletionQueue {
    /// With room for so many completions.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::System`].
    pub fn new(device: &Device, entries: u32) -> Result<Self, Error> {
        let name = device.name();
        let limit = device.limits().completions;
        if entries > limit {
            let (wanted, limit) = (entries.into(), limit.into());
            return Err(Error::Limit { device: name.into(), what: "completions", wanted, limit });
        }
        let channel = device.context().create_comp_channel().map_err(system(name, "making a completion channel"))?;
        channel.set_nonblocking(true).map_err(system(name, "fcntl of a completion channel"))?;
        let mut builder = device.context().create_cq_builder();
        builder.setup_cqe(entries).setup_comp_channel(&channel, 0);
        let queue = builder.build().map_err(system(name, "making a completion queue"))?;
        Ok(Self { device: device.clone(), queue, channel, entries, room: Arc::default() })
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Keeps room for what a queue pair can have outstanding.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub(crate) fn reserve(&self, entries: u32) -> Result<Reservation, Error> {
        let reserve = |reserved: u32| reserved.checked_add(entries).filter(|all| *all <= self.entries);
        let before = self.room.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        match before {
            Ok(_) => Ok(Reservation { room: self.room.clone(), entries }),
            Err(reserved) => Err(Error::Limit {
                device: self.device.name().into(),
                what: "entries of a completion queue",
                wanted: u64::from(reserved) + u64::from(entries),
                limit: self.entries.into(),
            }),
        }
    }

    /// Whether room was reserved in this queue.
    pub(crate) fn is_of(&self, reservation: &Reservation) -> bool {
        Arc::ptr_eq(&self.room, &reservation.room)
    }

    /// Takes completions, at most [`MAX_POLL`], into the front of `completed`; returns how many. Never waits.
    ///
    /// # Errors
    /// [`Error::Overrun`].
    pub fn poll(&self, completed: &mut [Completed; MAX_POLL]) -> Result<usize, Error> {
        self.take(|at, Arrived { id, status, .. }| completed[at] = Completed { id, status })
    }

    /// As [`CompletionQueue::poll`], with the lengths of what was received.
    ///
    /// # Errors
    /// [`Error::Overrun`].
    pub fn poll_arrived(&self, arrived: &mut [Arrived; MAX_POLL]) -> Result<usize, Error> {
        self.take(|at, one| arrived[at] = one)
    }

    fn take(&self, mut taken: impl FnMut(usize, Arrived)) -> Result<usize, Error> {
        let leaving = self.room.leaving.swap(0, Ordering::Relaxed);
        let mut entries = [const { MaybeUninit::<ibv_wc>::uninit() }; MAX_POLL];
        let most = i32::try_from(MAX_POLL).unwrap_or(i32::MAX);
        // SAFETY: the queue lives as long as `self`; as many entries are written as are counted, and only these are read.
        let count = unsafe { ibv_poll_cq(self.queue.cq().as_ptr(), most, entries.as_mut_ptr().cast()) };
        let count = usize::try_from(count).map_err(|_| Error::Overrun { device: self.device.name().into() })?;
        if count < MAX_POLL {
            // Whatever those that had left before could have in the queue was taken.
            self.room.reserved.fetch_sub(leaving, Ordering::Relaxed);
        } else {
            self.room.leaving.fetch_add(leaving, Ordering::Relaxed);
        }
        for (at, entry) in entries[..count.min(MAX_POLL)].iter().enumerate() {
            let entry = entry.as_ptr();
            // SAFETY: one of the first `count`. Of a failed request only these two are defined (ibv_poll_cq(3)).
            let (id, status) = unsafe { ((*entry).wr_id, Status::of((*entry).status)) };
            // SAFETY: as above, and it has not failed; the length is that of a RECV.
            let is_received = status == Status::Done && unsafe { (*entry).opcode } == ibv_wc_opcode::IBV_WC_RECV;
            // SAFETY: as above.
            let bytes = if is_received { unsafe { (*entry).byte_len } } else { 0 };
            taken(at, Arrived { id, status, bytes });
        }
        Ok(count.min(MAX_POLL))
    }

    /// Has the channel become readable at the next completion. Completions that came before make none: poll once more after this, before sleeping.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn arm(&self) -> Result<(), Error> {
        self.arm_for(false)
    }

    /// As [`CompletionQueue::arm`], but only at a message of [`rpc`](crate::rpc) or a failure of one to be received: that what was sent has arrived wakes nobody (IBA 11.4.2.2).
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn arm_for_messages(&self) -> Result<(), Error> {
        self.arm_for(true)
    }

    fn arm_for(&self, solicited_only: bool) -> Result<(), Error> {
        // What the channel told of is taken away, and acknowledged: destroying the queue waits for that.
        loop {
            let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: channel and queue live as long as `self`; both pointers are written before the call returns 0, and the only queue of this channel is ours.
            let got = unsafe {
                let got = ibv_get_cq_event(self.channel.comp_channel().as_ptr(), &raw mut queue, &raw mut context);
                if got == 0 {
                    ibv_ack_cq_events(queue, 1);
                }
                got
            };
            if got != 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(last(self.device.name(), "asking a completion channel")),
                }
            }
        }
        // SAFETY: the queue lives as long as `self`.
        match unsafe { ibv_req_notify_cq(self.queue.cq().as_ptr(), solicited_only.into()) } {
            0 => Ok(()),
            errno => Err(Error::System {
                device: self.device.name().into(),
                operation: "arming a completion queue",
                source: io::Error::from_raw_os_error(errno.abs()),
            }),
        }
    }

    pub(crate) fn handle(&self) -> GenericCompletionQueue {
        GenericCompletionQueue::from(self.queue.clone())
    }
}

/// Readable once something has completed after [`CompletionQueue::arm`].
impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the channel, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_raw_fd()) }
    }
}
