// SPDX-License-Identifier: Apache-2.0
//! Two connected queue pairs of one device: the responder's end exposes a BPF array, the requester's end READs it.
//!
//! Extended queue pairs on a basic completion queue: rxe's extended completion queue yields completions that never were.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, GidEntry, GidType};
use sideway::ibverbs::completion::{GenericCompletionQueue, PollCompletionQueueError, WorkCompletionStatus};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SendOperationFlags,
    SetScatterGatherEntry, WorkRequestFlags,
};

use crate::bpf::MappedArray;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PORT: u8 = 1;
const FIRST_PSN: u32 = 0x00ab_cdef;
const LOCAL_WORDS: usize = 512;
const COMPLETION_DEADLINE: Duration = Duration::from_secs(20);

/// A requester and a responder on one device. Fields drop in order: queue pairs and regions before the memory.
pub(crate) struct Loopback {
    requester: ExtendedQueuePair,
    _responder: ExtendedQueuePair,
    completions: GenericCompletionQueue,
    exposed_region: Arc<MemoryRegion>,
    local_region: Arc<MemoryRegion>,
    exposed: MappedArray,
    local: Box<[AtomicU64]>,
}

impl Loopback {
    /// Registers `exposed` for REMOTE_READ only and connects two queue pairs of the first device to each other.
    pub(crate) fn connect(exposed: MappedArray) -> Result<Self> {
        let devices = DeviceList::new()?;
        let context = devices.get(0).ok_or("libibverbs lists no device")?.open()?;
        let domain = context.alloc_pd()?;
        let local: Box<[AtomicU64]> = (0..LOCAL_WORDS).map(|_| AtomicU64::new(0)).collect();
        let exposed_region = register(&domain, exposed.words(), AccessFlags::RemoteRead)?;
        let local_region = register(&domain, &local, AccessFlags::LocalWrite)?;
        let completions = GenericCompletionQueue::from(context.create_cq_builder().setup_cqe(16).build()?);
        let mut requester = queue_pair(&domain, &completions)?;
        let mut responder = queue_pair(&domain, &completions)?;
        let gid = ipv4_gid(&context)?;
        let (requester_number, responder_number) = (requester.qp_number(), responder.qp_number());
        bring_up(&mut requester, responder_number, &gid)?;
        bring_up(&mut responder, requester_number, &gid)?;
        Ok(Self { requester, _responder: responder, completions, exposed_region, local_region, exposed, local })
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.exposed_region.rkey()
    }

    pub(crate) fn exposed_words(&self) -> &[AtomicU64] {
        self.exposed.words()
    }

    /// What the READs so far have left in the requester's memory.
    pub(crate) fn local_words(&self) -> Vec<u64> {
        self.local.iter().take(crate::BLOCK_WORDS).map(|word| word.load(Ordering::Acquire)).collect()
    }

    /// READs `words` words from the exposed word `first` on and waits for the completion.
    pub(crate) fn read(&mut self, rkey: u32, first: usize, words: usize) -> Result<WorkCompletionStatus> {
        if words > LOCAL_WORDS || first + words > self.exposed.words().len() {
            return Err("a READ of more words than there are".into());
        }
        let remote = (self.exposed.words()[first..].as_ptr()) as u64;
        let length = u32::try_from(words * 8)?;
        let mut posting = self.requester.start_post_send();
        let request = posting.construct_wr(1, WorkRequestFlags::Signaled).setup_read(rkey, remote);
        // SAFETY: the local region is registered, at least `length` bytes long and outlives the queue pair (field
        // order); its words are atomics, so the device may write them behind our back.
        unsafe { request.setup_sge(self.local_region.lkey(), self.local.as_ptr() as u64, length) };
        posting.post()?;
        self.wait()
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

fn register(domain: &Arc<ProtectionDomain>, words: &[AtomicU64], access: AccessFlags) -> Result<Arc<MemoryRegion>> {
    // SAFETY: the caller keeps the words for longer than the region (field order of Loopback), and they are atomics.
    Ok(unsafe { domain.reg_mr(words.as_ptr() as usize, size_of_val(words), access) }?)
}

fn queue_pair(domain: &Arc<ProtectionDomain>, completions: &GenericCompletionQueue) -> Result<ExtendedQueuePair> {
    let mut builder = domain.create_qp_builder();
    builder.setup_max_send_wr(4).setup_max_recv_wr(1).setup_send_ops_flags(SendOperationFlags::Read);
    builder.setup_send_cq(completions.clone()).setup_recv_cq(completions.clone());
    Ok(builder.build_ex()?)
}

/// The RoCEv2 GID of an IPv4 address, which is in the guest's NIC (the link-local IPv6 one would do, but is not ours).
fn ipv4_gid(context: &DeviceContext) -> Result<GidEntry> {
    let table = context.query_gid_table()?;
    let mapped = |entry: &&GidEntry| entry.gid().raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let found = table.iter().filter(|entry| entry.gid_type() == GidType::RoceV2).find(mapped);
    found.copied().ok_or_else(|| format!("no RoCEv2 GID of an IPv4 address among {}", table.len()).into())
}

/// INIT, RTR, RTS (InfiniBand spec vol. 1, 10.3.1). max_rd_atomic 0 would let READs hang without an error.
fn bring_up(queue_pair: &mut ExtendedQueuePair, peer_number: u32, gid: &GidEntry) -> Result<()> {
    let mut init = QueuePairAttribute::new();
    init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(PORT);
    init.setup_access_flags(AccessFlags::RemoteRead);
    queue_pair.modify(&init)?;

    let mut address = AddressHandleAttribute::new();
    address.setup_port(PORT).setup_grh_dest_gid(&gid.gid()).setup_grh_hop_limit(64);
    address.setup_grh_src_gid_index(u8::try_from(gid.gid_index())?);
    let mut ready_to_receive = QueuePairAttribute::new();
    ready_to_receive.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(Mtu::Mtu1024);
    ready_to_receive.setup_dest_qp_num(peer_number).setup_rq_psn(FIRST_PSN).setup_max_dest_read_atomic(16);
    ready_to_receive.setup_min_rnr_timer(1).setup_address_vector(&address);
    queue_pair.modify(&ready_to_receive)?;

    let mut ready_to_send = QueuePairAttribute::new();
    ready_to_send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(FIRST_PSN).setup_max_read_atomic(16);
    // retry_cnt 7 never gives up on rxe; timeout 17 is half a second, enough for an emulated processor.
    ready_to_send.setup_timeout(17).setup_retry_cnt(6).setup_rnr_retry(1);
    queue_pair.modify(&ready_to_send)?;
    Ok(())
}
