// SPDX-License-Identifier: Apache-2.0
//! Requests carried out: the registry decides, this module does it to slabs and directory and reports back. No sockets.
//!
//! Owned by the main thread. Invariant: a region is in the directory exactly while the registry has it live or orphaned; its memory is zero when
//! it is given out, and given back to the system when the region ends.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use onlooker_region::Schema;
use onlooker_region::control::pack_labels;
use onlooker_region::limits::{BLOCK_BYTES, MAX_LABEL_VALUE_BYTES, MAX_LABELS};
use onlooker_region::map::{Map, sealed_memfd};
use onlooker_region::schema::{check_label, check_name};
use onlooker_region::slab::{PAGE_BYTES, Range};
use rustix::fs::{FallocateFlags, SealFlags, SeekFrom, fallocate, fcntl_get_seals, fstatfs, seek};

use crate::config::Config;
use crate::counters::{Counter, Counters};
use crate::directory::{Directory, Published, SchemaText};
use crate::host;
use crate::policy::Policy;
use crate::protocol::{
    Adopt, Answer, Code, Create, Labels, MAX_INSTANCE_BYTES, Refusal, RegionAnswer, Request, Update,
};
use crate::registry::{ConnectionId, Memory, Peer, Region, Registry, SchemaRef, State, Wanted};

/// First id of programs' regions; those below are the agent's own.
pub const FIRST_REGION_ID: u32 = 16;
/// `f_type` of memfds that are not of huge pages (statfs(2)). Huge pages can be missing at the moment of access, which would kill the agent.
const TMPFS_MAGIC: i64 = 0x0102_1994;

struct Slab {
    descriptor: OwnedFd,
    memory: Map,
    bytes: u64,
}

/// Everything that requests change.
pub struct Registration {
    registry: Registry,
    directory: Directory,
    policy: Policy,
    counters: Counters,
    slab_bytes: u64,
    slabs: HashMap<u32, Slab>,
    /// Texts of hidden regions' schemas: from publish on the control region has them.
    texts: HashMap<u32, SchemaText>,
}

/// An answer and whether the user's slab goes with it.
pub struct Reply {
    /// The answer.
    pub answer: Result<Answer, Refusal>,
    /// The user whose slab's descriptor is to be passed.
    pub slab_of: Option<u32>,
}

impl Registration {
    /// Without regions yet.
    #[must_use]
    pub fn new(config: &Config, directory: Directory, policy: Policy, counters: Counters) -> Self {
        Self {
            registry: Registry::new(config.quota.clone(), config.limits.clone(), FIRST_REGION_ID),
            directory,
            policy,
            counters,
            slab_bytes: config.quota.bytes_per_user.as_bytes(),
            slabs: HashMap::new(),
            texts: HashMap::new(),
        }
    }

    /// A program has connected.
    ///
    /// # Errors
    /// `denied`, `quota`.
    pub fn connect(&mut self, id: ConnectionId, peer: Peer, groups: &[u32]) -> Result<(), Refusal> {
        self.policy.check(peer.uid, groups)?;
        self.registry.connect(id, peer)
    }

    /// Carries out one request; `hello` is the caller's.
    pub fn handle(
        &mut self,
        connection: ConnectionId,
        program: &str,
        request: Request,
        descriptors: Vec<OwnedFd>,
        now_ns: u64,
    ) -> Reply {
        let mut slab_of = None;
        let wanted = usize::from(matches!(request, Request::Adopt(_)));
        let answer = if descriptors.len() == wanted {
            match request {
                Request::Hello { .. } => Err(Refusal::new(Code::BadRequest, "hello comes once, as the first packet")),
                Request::Create(create) => self.create(connection, program, create, now_ns).map(|(answer, uid)| {
                    slab_of = Some(uid);
                    answer
                }),
                Request::Publish { region } => self.publish(connection, region, now_ns),
                Request::Update(update) => self.update(connection, program, update, now_ns),
                Request::Remove { region } => self.remove(connection, region, now_ns),
                Request::Adopt(adopt) => self.adopt(connection, program, adopt, &descriptors[0], now_ns),
            }
        } else {
            let got = descriptors.len();
            Err(Refusal::new(Code::BadRequest, format!("this request needs {wanted} descriptors, {got} came with it")))
        };
        self.show();
        Reply { answer, slab_of }
    }

    /// The descriptor of a user's slab.
    #[must_use]
    pub fn slab(&self, uid: u32) -> Option<BorrowedFd<'_>> {
        self.slabs.get(&uid).map(|slab| slab.descriptor.as_fd())
    }

    /// A connection or its process has ended.
    pub fn disconnect(&mut self, connection: ConnectionId, now_ns: u64) {
        let ended = self.registry.disconnect(connection, now_ns);
        for region in &ended.freed {
            self.ended(region, now_ns);
        }
        for id in ended.orphans {
            self.counters.add(Counter::RegionsOrphaned, 1);
            // The entry was encoded before, so that it fits again.
            let _ = self.directory.update(id, None, None, true, now_ns);
        }
        self.drop_slab(ended.slab);
        self.show();
    }

    /// Ends what is over by now.
    pub fn expire(&mut self, now_ns: u64) {
        for (region, slab) in self.registry.expire(now_ns) {
            self.ended(&region, now_ns);
            self.drop_slab(slab);
        }
        self.show();
    }

    /// When [`Registration::expire`] is due.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.registry.next_deadline_ns()
    }

    fn create(
        &mut self,
        connection: ConnectionId,
        program: &str,
        create: Create,
        now_ns: u64,
    ) -> Result<(Answer, u32), Refusal> {
        let (schema, text) = parse_schema(create.schema.get())?;
        let peer = self.registry.peer(connection).cloned().ok_or_else(unknown_connection)?;
        let labels = complete_labels(&create.name, &create.instance, create.labels, program, peer.process.pid)?;
        self.ensure_slab(peer.uid)?;
        let wanted = Wanted { name: create.name, instance: create.instance, labels, schema, adopted: false };
        let generation = host::random_generation().map_err(internal)?;
        let created = self.registry.create(connection, wanted, generation, now_ns)?;
        if let Some(old) = &created.ended {
            self.ended(old, now_ns);
        }
        let region = self.registry.region(created.id).ok_or_else(unknown_connection)?;
        let (Memory::Slab(range), Some(slab)) = (region.memory, self.slabs.get(&peer.uid)) else {
            return Err(unknown_connection());
        };
        let answer = RegionAnswer {
            id: region.id,
            generation: region.generation,
            offset: Some(range.offset),
            bytes: region.schema.region_bytes(),
            mapped_bytes: Some(range.bytes),
            slab_bytes: Some(slab.bytes),
            resumed: Some(created.resumed),
        };
        if created.resumed {
            let labels = region.labels.clone();
            self.directory.update(created.id, Some(&labels), None, false, now_ns)?;
            self.counters.add(Counter::RegionsResumed, 1);
        } else {
            if let Err(error) = zero(slab, range) {
                self.registry.forget(created.id, now_ns);
                return Err(error);
            }
            self.texts.insert(created.id, text);
            self.counters.add(Counter::RegionsCreated, 1);
        }
        Ok((Answer::Region(answer), peer.uid))
    }

    fn publish(&mut self, connection: ConnectionId, id: u32, now_ns: u64) -> Result<Answer, Refusal> {
        let region = self.registry.region_of(connection, id)?;
        if region.state == State::Live {
            return Ok(Answer::Done);
        }
        let (Memory::Slab(range), Some(slab)) = (region.memory, self.slabs.get(&region.owner.uid)) else {
            return Err(unknown_connection());
        };
        let memory = window(&slab.memory, range.offset, region.schema.region_bytes())?;
        let text = self.texts.get(&id).ok_or_else(unknown_connection)?;
        self.directory.publish(&published(region), text, memory, now_ns)?;
        self.registry.published(id);
        self.texts.remove(&id);
        Ok(Answer::Done)
    }

    fn update(
        &mut self,
        connection: ConnectionId,
        program: &str,
        update: Update,
        now_ns: u64,
    ) -> Result<Answer, Refusal> {
        let region = self.registry.region_of(connection, update.region)?;
        let (id, live) = (region.id, region.state == State::Live);
        let labels = match update.labels {
            Some(labels) => {
                Some(complete_labels(&region.name, &region.instance, labels, program, region.owner.process.pid)?)
            }
            None => None,
        };
        let schema = update.schema.map(|schema| parse_schema(schema.get())).transpose()?;
        self.registry.check_update(connection, id, schema.as_ref().map(|(schema, _)| schema), now_ns)?;
        if live {
            let text = schema.as_ref().map(|(_, text)| text);
            self.directory.update(id, labels.as_ref(), text, false, now_ns)?;
        }
        let (schema, text) = schema.unzip();
        self.registry.updated(id, labels, schema, now_ns);
        if let (Some(text), false) = (text, live) {
            self.texts.insert(id, text);
        }
        Ok(Answer::Done)
    }

    fn remove(&mut self, connection: ConnectionId, id: u32, now_ns: u64) -> Result<Answer, Refusal> {
        match self.registry.remove(connection, id, now_ns)? {
            Some(region) => self.ended(&region, now_ns),
            None => {
                // As in `disconnect`.
                let _ = self.directory.update(id, None, None, true, now_ns);
            }
        }
        Ok(Answer::Done)
    }

    fn adopt(
        &mut self,
        connection: ConnectionId,
        program: &str,
        adopt: Adopt,
        descriptor: &OwnedFd,
        now_ns: u64,
    ) -> Result<Answer, Refusal> {
        self.policy.check_adopt()?;
        let (schema, text) = parse_schema(adopt.schema.get())?;
        let peer = self.registry.peer(connection).cloned().ok_or_else(unknown_connection)?;
        let labels = complete_labels(&adopt.name, &adopt.instance, adopt.labels, program, peer.process.pid)?;
        let memory = adopted_memory(descriptor, adopt.offset, schema.region_bytes())?;
        let wanted = Wanted { name: adopt.name, instance: adopt.instance, labels, schema, adopted: true };
        let generation = host::random_generation().map_err(internal)?;
        let created = self.registry.create(connection, wanted, generation, now_ns)?;
        if let Some(old) = &created.ended {
            self.ended(old, now_ns);
        }
        let region = self.registry.region(created.id).ok_or_else(unknown_connection)?;
        if let Err(refusal) = self.directory.publish(&published(region), &text, memory, now_ns) {
            self.registry.forget(created.id, now_ns);
            return Err(refusal);
        }
        let answer = RegionAnswer {
            id: region.id,
            generation: region.generation,
            offset: None,
            bytes: region.schema.region_bytes(),
            mapped_bytes: None,
            slab_bytes: None,
            resumed: None,
        };
        self.registry.published(created.id);
        self.counters.add(Counter::RegionsCreated, 1);
        Ok(Answer::Region(answer))
    }

    fn ensure_slab(&mut self, uid: u32) -> Result<(), Refusal> {
        if !self.slabs.contains_key(&uid) {
            let descriptor = sealed_memfd(&format!("onlooker-slab-{uid}"), self.slab_bytes).map_err(internal)?;
            let memory = Map::of(&descriptor, 0, self.slab_bytes, false).map_err(internal)?;
            self.slabs.insert(uid, Slab { descriptor, memory, bytes: self.slab_bytes });
        }
        Ok(())
    }

    /// A region is over: nobody finds it any more, then its memory goes.
    fn ended(&mut self, region: &Region, now_ns: u64) {
        self.texts.remove(&region.id);
        self.directory.remove(region.id, now_ns);
        if let (Memory::Slab(range), Some(slab)) = (region.memory, self.slabs.get(&region.owner.uid)) {
            // It is zeroed again before it is given out, so a failure here costs memory only.
            let _ = zero(slab, range);
        }
        self.counters.add(Counter::RegionsEnded, 1);
    }

    fn drop_slab(&mut self, uid: Option<u32>) {
        uid.map(|uid| self.slabs.remove(&uid));
    }

    fn show(&self) {
        self.counters.set(Counter::Regions, self.registry.len() as u64);
        self.counters.set(Counter::RegionBytes, self.registry.bytes());
    }
}

fn published(region: &Region) -> Published<'_> {
    Published {
        id: region.id,
        generation: region.generation,
        name: &region.name,
        labels: &region.labels,
        pid: region.owner.process.pid,
        uid: region.owner.uid,
        created_ns: region.created_ns,
    }
}

fn parse_schema(json: &str) -> Result<(SchemaRef, SchemaText), Refusal> {
    let schema = Schema::parse(json).map_err(|error| Refusal::new(Code::Schema, error.to_string()))?;
    let text = SchemaText::of(&schema);
    let text_bytes = u32::try_from(text.canonical.len()).map_err(internal)?;
    Ok((SchemaRef { id: text.id, text_bytes, blocks: schema.blocks() }, text))
}

/// Checks name, instance and labels, and adds the agent's own: `program`, `pid`, `instance` (registration.md, create). Readers may rely on `pid`, so that
/// it cannot be given; `program` and `instance` are the program's word in any case: it can change its comm, too.
fn complete_labels(name: &str, instance: &str, mut labels: Labels, program: &str, pid: u32) -> Result<Labels, Refusal> {
    let bad = |message: String| Refusal::new(Code::BadRequest, message);
    check_name(name).map_err(|error| bad(format!("name: {error}")))?;
    if instance.len() > MAX_INSTANCE_BYTES || instance.contains('\0') {
        return Err(bad(format!("instance must be at most {MAX_INSTANCE_BYTES} bytes without NUL")));
    }
    for (label, value) in &labels {
        check_label(label).map_err(|error| bad(format!("labels: {error}")))?;
        if value.is_empty() || value.len() > MAX_LABEL_VALUE_BYTES || value.contains('\0') {
            return Err(bad(format!(
                "labels: the value of `{label}` must be 1 to {MAX_LABEL_VALUE_BYTES} bytes without NUL"
            )));
        }
    }
    if labels.contains_key("pid") {
        return Err(bad("labels: `pid` is the agent's to give: leave it out, or name yours otherwise".into()));
    }
    let pid = pid.to_string();
    for (label, value) in [("program", program), ("pid", &pid), ("instance", instance)] {
        if !value.is_empty() && !labels.contains_key(label) {
            labels.insert(label.to_owned(), value.to_owned());
        }
    }
    if labels.len() > MAX_LABELS {
        return Err(bad(format!("{} labels with the agent's own exceed MAX_LABELS = {MAX_LABELS}", labels.len())));
    }
    let pairs: Vec<(String, String)> = labels.iter().map(|(label, value)| (label.clone(), value.clone())).collect();
    pack_labels(&pairs).map_err(|error| bad(format!("{error}: shorten them")))?;
    Ok(labels)
}

/// A window of a mapping, checked: ranges come from the registry, but a panic here would end the agent.
fn window(memory: &Map, offset: u64, bytes: u64) -> Result<Map, Refusal> {
    let words = |bytes: u64| usize::try_from(bytes / 8).map_err(internal);
    let (from, to) = (words(offset)?, words(offset + bytes)?);
    if to > memory.words().len() {
        return Err(Refusal::new(Code::Internal, "a range outside of its slab"));
    }
    Ok(memory.window(from..to))
}

fn adopted_memory(descriptor: &OwnedFd, offset: u64, bytes: u64) -> Result<Map, Refusal> {
    let bad = |message: String| Refusal::new(Code::BadDescriptor, message);
    if !offset.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(Refusal::new(
            Code::BadRequest,
            format!("offset {offset} is not a multiple of {BLOCK_BYTES}: regions are whole blocks"),
        ));
    }
    let kind = fstatfs(descriptor).map_err(|errno| bad(format!("fstatfs: {errno}")))?.f_type;
    if kind != TMPFS_MAGIC {
        return Err(bad("not a memfd of ordinary pages: make it with memfd_create, without MFD_HUGETLB".into()));
    }
    let page = offset / PAGE_BYTES * PAGE_BYTES;
    let length = bytes.checked_add(offset - page).ok_or_else(|| bad("offset and length overflow".into()))?;
    let map = Map::of(descriptor, page, length, false).map_err(|error| bad(error.to_string()))?;
    check_filled(descriptor, page, page + length)?;
    window(&map, offset - page, bytes)
}

/// A READ of a hole would allocate its page for the agent, beyond every quota. So every page must be there already, and stay: F_SEAL_FUTURE_WRITE
/// forbids hole punching, also through mappings made before it (shmem_fallocate in mm/shmem.c). The seal is looked at first, so that what is found
/// filled stays so.
fn check_filled(descriptor: &OwnedFd, from: u64, to: u64) -> Result<(), Refusal> {
    let bad = |message: String| Refusal::new(Code::BadDescriptor, message);
    if !fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(SealFlags::FUTURE_WRITE)) {
        let message = "the memfd lacks F_SEAL_FUTURE_WRITE, without which pages could be taken out of it later: map it for writing, then add the seal";
        return Err(bad(message.into()));
    }
    let failed = |errno| bad(format!("lseek: {errno}"));
    // The position is shared with the program.
    let position = seek(descriptor, SeekFrom::Current(0)).map_err(failed)?;
    let hole = seek(descriptor, SeekFrom::Hole(from)).map_err(failed)?;
    seek(descriptor, SeekFrom::Start(position)).map_err(failed)?;
    if hole < to {
        let message = format!(
            "the memfd has a hole at byte {hole}: write to every page of bytes {from} to {to} before adopting them"
        );
        return Err(bad(message));
    }
    Ok(())
}

/// Gives a range's pages back to the system; it reads as zeros afterwards.
fn zero(slab: &Slab, range: Range) -> Result<(), Refusal> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&slab.descriptor, flags, range.offset, range.bytes)
        .map_err(|errno| Refusal::new(Code::Internal, format!("fallocate of {} bytes of a slab: {errno}", range.bytes)))
}

fn internal(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::Internal, error.to_string())
}

fn unknown_connection() -> Refusal {
    Refusal::new(Code::Internal, "the agent has lost track of this connection: connect again")
}

#[cfg(test)]
mod tests;
