// SPDX-License-Identifier: Apache-2.0
//! A reliable connection (IBA 9.7), at either end: from its making over RESET, INIT, RTR and RTS to READs, WRITEs and messages, and back after an error.
//!
//! Recovery is for both ends: each is reset, or made anew, which gives it a fresh packet number, and is connected to what the other end tells then. A queue pair that was connected
//! with the packet numbers of before would take answers of then for answers of now.
#![allow(unsafe_code)]

use onlooker_wire::Psn;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, PostSendGuard as _, QueuePair as _, QueuePairAttribute, QueuePairAttributeMask, QueuePairState,
    SendOperationFlags, SetScatterGatherEntry as _, WorkRequestFlags,
};

use crate::completion::{CompletionQueue, Reservation};
use crate::device::Device;
use crate::endpoint::{Endpoint, Path};
use crate::error::{Error, MAKING_PAIR, cause, system};
use crate::memory::{Landing, Readable};
use crate::work_request::WorkRequest;

/// Hops that packets may take, as IP's usual time to live.
const HOP_LIMIT: u8 = 64;
/// Pause that a receiver that is not ready asks for (IBA table 45): 0.64 ms. READs and WRITEs never meet one, messages that are counted (credits.rs) neither.
const NOT_READY_TIMER: u8 = 12;

/// One WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Comes back in the completion.
    pub id: u64,
    /// Where it begins within the registered memory.
    pub offset: u64,
    /// Length.
    pub bytes: u32,
    /// Address at the other end.
    pub va: u64,
    /// Key there.
    pub rkey: u32,
}

/// What a request does with memory of our own, beside the batches of READs.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Read {
        va: u64,
        rkey: u32,
    },
    Write {
        va: u64,
        rkey: u32,
    },
    /// Goes into the memory of the other end's next RECV.
    Send,
}

/// One end of a connection.
#[derive(Debug)]
pub struct QueuePair {
    inner: GenericQueuePair,
    // Goes after the queue pair: its completions may be there until then.
    reservation: Reservation,
    device: Device,
    packet: u32,
    allows_writes: bool,
    /// What it was made for: an extended one has no functions for anything else.
    kinds: SendOperationFlags,
}

impl QueuePair {
    /// Unconnected, for at most `depth` READs outstanding, whose completions go to `queue`. A pair that only answers has a depth of 1.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::System`].
    pub fn new(queue: &CompletionQueue, depth: u32) -> Result<Self, Error> {
        Self::with(queue, (depth, 0), SendOperationFlags::Read)
    }

    /// As [`QueuePair::new`], for WRITEs, too: at most `depth` requests outstanding. Every WRITE is signalled, and completes under its id on the queue; until that was
    /// polled it takes a place of the `depth`, and the caller counts.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::System`].
    pub fn for_writes(queue: &CompletionQueue, depth: u32) -> Result<Self, Error> {
        Self::with(queue, (depth, 0), SendOperationFlags::Read | SendOperationFlags::Write)
    }

    /// As [`QueuePair::new`], for messages, too: at most `depth` requests and as many RECVs outstanding.
    pub(crate) fn for_messages(queue: &CompletionQueue, depth: u32) -> Result<Self, Error> {
        Self::with(queue, (depth, depth), SendOperationFlags::Read | SendOperationFlags::Send)
    }

    fn with(queue: &CompletionQueue, (depth, receives): (u32, u32), kinds: SendOperationFlags) -> Result<Self, Error> {
        let device = queue.device().clone();
        let limit = device.limits().work_requests;
        if depth > limit {
            let (wanted, limit) = (depth.into(), limit.into());
            return Err(Error::Limit { device: device.name().into(), what: "work requests", wanted, limit });
        }
        let mut builder = device.domain().create_qp_builder();
        builder.setup_max_send_wr(depth).setup_max_recv_wr(receives.max(1));
        builder.setup_send_cq(queue.handle()).setup_recv_cq(queue.handle());
        builder.setup_send_ops_flags(kinds);
        // Each request completes once at most, and each RECV that is posted.
        let reservation = queue.reserve(depth.saturating_add(receives))?;
        // Drivers of some cards have the basic kind only.
        let inner = match builder.build_ex() {
            Ok(pair) => GenericQueuePair::from(pair),
            Err(error) if Errno::from_io_error(&cause(&error)) == Some(Errno::OPNOTSUPP) => {
                GenericQueuePair::from(builder.build().map_err(system(device.name(), MAKING_PAIR))?)
            }
            Err(error) => return Err(system(device.name(), MAKING_PAIR)(error)),
        };
        let mut pair = Self { inner, reservation, device, packet: 0, allows_writes: false, kinds };
        pair.packet = pair.random_packet()?;
        Ok(pair)
    }

    /// The other end may WRITE what is registered [`Writable`](crate::Writable), from the next [`QueuePair::connect`] on.
    pub fn allow_writes(&mut self) {
        self.allows_writes = true;
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether its completions go to this queue.
    pub(crate) fn is_on(&self, queue: &CompletionQueue) -> bool {
        queue.is_of(&self.reservation)
    }

    fn random_packet(&self) -> Result<u32, Error> {
        let mut bytes = [0; 4];
        let got = getrandom(&mut bytes, GetRandomFlags::empty());
        got.map_err(|errno| Error::System {
            device: self.device.name().into(),
            operation: "getrandom",
            source: errno.into(),
        })?;
        Ok(Psn::wrapping(u32::from_le_bytes(bytes)).get())
    }

    /// What the other end has to know.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            queue_pair: self.inner.qp_number(),
            packet: self.packet,
            gid: self.device.gid(),
            mtu_bytes: bytes_of(self.device.mtu()),
            reads_answered: self.device.limits().reads_answered,
        }
    }

    /// Takes this number for its first packet instead of a fresh one, until it is reset: for an other end that keeps none and counts from it. Before it is connected.
    pub fn set_packet(&mut self, packet: u32) {
        self.packet = Psn::wrapping(packet).get();
    }

    /// Connects to the other end, which may READ what is registered [`Readable`](crate::Readable), and may be READ where it answers any.
    ///
    /// # Errors
    /// [`Error::Peer`] for what cannot be an end or a path; [`Error::System`]: among others there is no way to the other end's address.
    pub fn connect(&mut self, peer: &Endpoint, path: Path) -> Result<(), Error> {
        let checked = peer.check().and_then(|()| path.check());
        checked.map_err(|source| Error::Peer { device: self.device.name().into(), source })?;
        let limits = self.device.limits();
        let (port, gid_index) = self.device.address();
        let mut init = QueuePairAttribute::new();
        init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(port);
        let writes = if self.allows_writes { AccessFlags::RemoteWrite } else { AccessFlags::none() };
        init.setup_access_flags(AccessFlags::RemoteRead | writes);
        self.modify(&init, "INIT of a queue pair")?;

        let mut way = AddressHandleAttribute::new();
        way.setup_port(port).setup_grh_dest_gid(&Gid { raw: peer.gid });
        way.setup_grh_src_gid_index(gid_index).setup_grh_hop_limit(HOP_LIMIT);
        let mut receive = QueuePairAttribute::new();
        receive.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(of_bytes(peer.mtu_bytes, self.device.mtu()));
        receive.setup_dest_qp_num(peer.queue_pair).setup_rq_psn(peer.packet);
        receive.setup_max_dest_read_atomic(limits.reads_answered).setup_min_rnr_timer(NOT_READY_TIMER);
        receive.setup_address_vector(&way);
        self.modify(&receive, "RTR of a queue pair")?;

        let mut send = QueuePairAttribute::new();
        send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(self.packet);
        send.setup_timeout(path.timeout_exponent).setup_retry_cnt(path.retries).setup_rnr_retry(path.retries);
        // One that answers none is not asked; 0 would hang without an error if it were.
        send.setup_max_read_atomic(peer.reads_from(limits.reads_sent).unwrap_or(1));
        self.modify(&send, "RTS of a queue pair")
    }

    /// Back to the beginning, with a fresh packet number. What was outstanding never completes: poll before, or abandon it.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn reset(&mut self) -> Result<(), Error> {
        let mut reset = QueuePairAttribute::new();
        reset.setup_state(QueuePairState::Reset);
        self.modify(&reset, "RESET of a queue pair")?;
        self.packet = self.random_packet()?;
        Ok(())
    }

    /// Whether it can be of use: connected, and not in error.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn is_ready(&self) -> Result<bool, Error> {
        let asked = self.inner.query(QueuePairAttributeMask::State);
        let (told, _) = asked.map_err(system(self.device.name(), "asking for the state of a queue pair"))?;
        Ok(matches!(told.state(), QueuePairState::ReadyToReceive | QueuePairState::ReadyToSend))
    }

    fn modify(&mut self, attributes: &QueuePairAttribute, operation: &'static str) -> Result<(), Error> {
        self.inner.modify(attributes).map_err(system(self.device.name(), operation))
    }

    /// Posts READs into `landing`.
    ///
    /// # Errors
    /// [`Error::System`]: none was posted, or, by the basic kind, some.
    pub(crate) fn post(&mut self, landing: &Landing, batch: &[WorkRequest]) -> Result<(), Error> {
        let mut posting = self.inner.start_post_send();
        for request in batch {
            let (lkey, address) = landing.place(request.at);
            let flags = if request.is_signalled { WorkRequestFlags::Signaled } else { WorkRequestFlags::none() };
            let handle = posting.construct_wr(request.id, flags).setup_read(request.rkey, request.va);
            // SAFETY: lkey names the registration of `landing`, whose memory outlives the queue pair (port.rs), and the device checks the bounds of both ends.
            unsafe { handle.setup_sge(lkey, address, request.bytes) };
        }
        posting.post().map_err(system(self.device.name(), "posting READs"))
    }

    /// Posts one WRITE out of registered memory, which stays registered until it has completed: it fails otherwise.
    ///
    /// # Errors
    /// [`Error::Limit`]: it would begin or end outside of the memory. [`Error::System`]: it was not posted: among others too many are outstanding.
    ///
    /// # Panics
    /// If it is empty, or this pair was not made [for writes](QueuePair::for_writes).
    pub fn write(&mut self, from: &Readable, write: &Write) -> Result<(), Error> {
        let Write { id, offset, bytes, va, rkey } = *write;
        // Some cards take a length of 0 for 2 GiB.
        assert!(bytes > 0, "an empty WRITE");
        let place = from.place(offset, bytes.into()).ok_or_else(|| Error::Limit {
            device: self.device.name().into(),
            what: "bytes of registered memory",
            wanted: offset.saturating_add(bytes.into()),
            limit: from.bytes(),
        })?;
        self.post_one(id, Operation::Write { va, rkey }, place, bytes)
    }

    /// Posts one request for `bytes` at a local key and address. It is signalled.
    ///
    /// # Errors
    /// [`Error::System`]: it was not posted.
    ///
    /// # Panics
    /// If this pair was not made for it.
    pub(crate) fn post_one(
        &mut self,
        id: u64,
        operation: Operation,
        (lkey, address): (u32, u64),
        bytes: u32,
    ) -> Result<(), Error> {
        let kind = match operation {
            Operation::Read { .. } => SendOperationFlags::Read,
            Operation::Write { .. } => SendOperationFlags::Write,
            Operation::Send => SendOperationFlags::Send,
        };
        assert!(self.kinds.contains(kind), "{kind:?} by a queue pair that was made for {:?}", self.kinds);
        let mut posting = self.inner.start_post_send();
        let (handle, what) = match operation {
            Operation::Read { va, rkey } => {
                (posting.construct_wr(id, WorkRequestFlags::Signaled).setup_read(rkey, va), "posting a READ")
            }
            Operation::Write { va, rkey } => {
                (posting.construct_wr(id, WorkRequestFlags::Signaled).setup_write(rkey, va), "posting a WRITE")
            }
            // A message wakes who sleeps for messages (CompletionQueue::arm_for_messages).
            Operation::Send => {
                let flags = WorkRequestFlags::Signaled | WorkRequestFlags::Solicited;
                (posting.construct_wr(id, flags).setup_send(), "posting a SEND")
            }
        };
        // SAFETY: lkey names a registration; the device checks the bounds and the rights of both ends, and stops at the registration's end, before the memory's.
        unsafe { handle.setup_sge(lkey, address, bytes) };
        posting.post().map_err(system(self.device.name(), what))
    }

    /// Posts one RECV into `bytes` at a local key and address.
    ///
    /// # Errors
    /// [`Error::System`]: it was not posted.
    pub(crate) fn receive(&mut self, id: u64, (lkey, address): (u32, u64), bytes: u32) -> Result<(), Error> {
        let mut posting = self.inner.start_post_recv();
        // SAFETY: as above.
        unsafe { posting.construct_wr(id).setup_sge(lkey, address, bytes) };
        posting.post().map_err(system(self.device.name(), "posting a RECV"))
    }
}

pub(crate) fn bytes_of(mtu: Mtu) -> u16 {
    match mtu {
        Mtu::Mtu256 => 256,
        Mtu::Mtu512 => 512,
        Mtu::Mtu1024 => 1024,
        Mtu::Mtu2048 => 2048,
        Mtu::Mtu4096 => 4096,
    }
}

/// The smaller of both ends'.
fn of_bytes(bytes: u16, own: Mtu) -> Mtu {
    let least = bytes.min(bytes_of(own));
    let all = [Mtu::Mtu4096, Mtu::Mtu2048, Mtu::Mtu1024, Mtu::Mtu512];
    all.into_iter().find(|mtu| bytes_of(*mtu) <= least).unwrap_or(Mtu::Mtu256)
}
