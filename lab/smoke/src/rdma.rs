// SPDX-License-Identifier: Apache-2.0
//! One end of a READ: either it exposes a BPF array for REMOTE_READ, or it has memory of its own to READ into. Two ends
//! connect by exchanging [`Address`]es, within one guest or between two.
//!
//! Extended queue pairs on a basic completion queue: rxe's extended completion queue yields phantom completions.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid, GidEntry, GidType};
use sideway::ibverbs::completion::{GenericCompletionQueue, PollCompletionQueueError, WorkCompletionStatus};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::queue_pair::{
    ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SendOperationFlags,
    SetScatterGatherEntry, WorkRequestFlags,
};

use crate::bpf::MappedArray;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PORT: u8 = 1;
const FIRST_PSN: u32 = 0x00ab_cdef;
const LOCAL_WORDS: usize = crate::BLOCK_WORDS;
const COMPLETION_DEADLINE: Duration = Duration::from_secs(20);

/// What one end must know of the other.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    pub(crate) queue_pair: u32,
    pub(crate) rkey: u32,
    pub(crate) memory: u64,
    pub(crate) gid: [u8; 16],
}

/// Fields drop in order: queue pair and region before the memory.
pub(crate) struct End {
    queue_pair: ExtendedQueuePair,
    completions: GenericCompletionQueue,
    region: Arc<MemoryRegion>,
    gid: GidEntry,
    memory: Memory,
}

enum Memory {
    Exposed(MappedArray),
    Local(Box<[AtomicU64]>),
}

impl Memory {
    fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Exposed(array) => array.words(),
            Self::Local(words) => words,
        }
    }
}

impl End {
    /// An end whose array the other may READ and do nothing else with.
    pub(crate) fn exposing(array: MappedArray) -> Result<Self> {
        Self::new(Memory::Exposed(array), AccessFlags::RemoteRead)
    }

    /// An end that READs, one block at a time.
    pub(crate) fn reading() -> Result<Self> {
        Self::new(Memory::Local((0..LOCAL_WORDS).map(|_| AtomicU64::new(0)).collect()), AccessFlags::LocalWrite)
    }

    fn new(memory: Memory, access: AccessFlags) -> Result<Self> {
        let devices = DeviceList::new()?;
        let context = devices.get(0).ok_or("libibverbs lists no device")?.open()?;
        let domain = context.alloc_pd()?;
        let words = memory.words();
        // SAFETY: the words outlive the region (field order of Self), and they are atomics, so others may change them.
        let region = unsafe { domain.reg_mr(words.as_ptr() as usize, size_of_val(words), access) }?;
        let completions = GenericCompletionQueue::from(context.create_cq_builder().setup_cqe(16).build()?);
        let mut builder = domain.create_qp_builder();
        builder.setup_max_send_wr(4).setup_max_recv_wr(1).setup_send_ops_flags(SendOperationFlags::Read);
        builder.setup_send_cq(completions.clone()).setup_recv_cq(completions.clone());
        let queue_pair = builder.build_ex()?;
        Ok(Self { queue_pair, completions, region, gid: ipv4_gid(&context)?, memory })
    }

    pub(crate) fn address(&self) -> Address {
        Address {
            queue_pair: self.queue_pair.qp_number(),
            rkey: self.region.rkey(),
            memory: self.memory.words().as_ptr() as u64,
            gid: self.gid.gid().raw,
        }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// INIT, RTR, RTS (InfiniBand spec vol. 1, 10.3.1). max_rd_atomic 0 would let READs hang without an error.
    pub(crate) fn connect(&mut self, peer: &Address) -> Result<()> {
        let mut init = QueuePairAttribute::new();
        init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(PORT);
        init.setup_access_flags(AccessFlags::RemoteRead);
        self.queue_pair.modify(&init)?;

        let mut address = AddressHandleAttribute::new();
        address.setup_port(PORT).setup_grh_dest_gid(&Gid { raw: peer.gid }).setup_grh_hop_limit(64);
        address.setup_grh_src_gid_index(u8::try_from(self.gid.gid_index())?);
        let mut ready_to_receive = QueuePairAttribute::new();
        ready_to_receive.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(Mtu::Mtu1024);
        ready_to_receive.setup_dest_qp_num(peer.queue_pair).setup_rq_psn(FIRST_PSN).setup_max_dest_read_atomic(16);
        ready_to_receive.setup_min_rnr_timer(1).setup_address_vector(&address);
        self.queue_pair.modify(&ready_to_receive)?;

        let mut ready_to_send = QueuePairAttribute::new();
        ready_to_send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(FIRST_PSN).setup_max_read_atomic(16);
        // retry_cnt 7 never gives up on rxe; timeout 17 is half a second, enough for an emulated processor.
        ready_to_send.setup_timeout(17).setup_retry_cnt(6).setup_rnr_retry(1);
        self.queue_pair.modify(&ready_to_send)?;
        Ok(())
    }

    /// READs the other end's block number `block` and waits for the completion.
    pub(crate) fn read(&mut self, rkey: u32, peer_memory: u64, block: usize) -> Result<WorkCompletionStatus> {
        let Memory::Local(local) = &self.memory else {
            return Err("an end that exposes memory has none to READ into".into());
        };
        let remote = peer_memory + u64::try_from(block * crate::BLOCK_BYTES)?;
        let mut posting = self.queue_pair.start_post_send();
        let request = posting.construct_wr(1, WorkRequestFlags::Signaled).setup_read(rkey, remote);
        let length = u32::try_from(LOCAL_WORDS * 8)?;
        // SAFETY: the local memory is registered, `length` bytes long and outlives the queue pair (field order); its
        // words are atomics, so the device may write them behind our back.
        unsafe { request.setup_sge(self.region.lkey(), local.as_ptr() as u64, length) };
        posting.post()?;
        self.wait()
    }

    /// What the last READ left in this end's memory.
    pub(crate) fn block(&self) -> Vec<u64> {
        self.words().iter().take(crate::BLOCK_WORDS).map(|word| word.load(Ordering::Acquire)).collect()
    }

    fn wait(&self) -> Result<WorkCompletionStatus> {
        let deadline = Instant::now() + COMPLETION_DEADLINE;
        while Instant::now() < deadline {
            match self.completions.start_poll() {
                Ok(mut completions) => {
                    let completion = completions.next().ok_or("the completion queue was not empty but gave nothing")?;
                    return Ok(WorkCompletionStatus::from(completion.status()));
                }
                // Emulated processors are few: leave them to rxe.
                Err(PollCompletionQueueError::CompletionQueueEmpty) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error.into()),
            }
        }
        Err(format!("no completion after {COMPLETION_DEADLINE:?}").into())
    }
}

/// The RoCEv2 GID of the guest's IPv4 address. There are others; this one's address is known.
fn ipv4_gid(context: &DeviceContext) -> Result<GidEntry> {
    let table = context.query_gid_table()?;
    let mapped = |entry: &&GidEntry| entry.gid().raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let found = table.iter().filter(|entry| entry.gid_type() == GidType::RoceV2).find(mapped);
    found.copied().ok_or_else(|| format!("no RoCEv2 GID of an IPv4 address among {}", table.len()).into())
}
