// SPDX-License-Identifier: Apache-2.0
//! Requests carried out: the registry decides, this module does it to slabs and directory and reports back. No sockets.
//!
//! Owned by the main thread. Invariant: a region is in the directory exactly while the registry has it live or orphaned; its memory is zero when
//! it is given out, and given back to the system when the region ends.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use onlooker_local::registration::{
    Adopt, Answer, Code, Create, Labels, MAX_INSTANCE_BYTES, Refusal, RegionAnswer, Request, Update,
};
use onlooker_region::Schema;
use onlooker_region::control::pack_labels;
use onlooker_region::limits::{MAX_LABEL_VALUE_BYTES, MAX_LABELS};
use onlooker_region::schema::{check_label, check_name};

use crate::config::Config;
use crate::counters::{Counter, Counters};
use crate::directory::{Backing, Directory, SchemaText};
use crate::facts::{Peer, SchemaRef};
use crate::host;
use crate::kernel::Recovered;
use crate::kernel::ledger::{Record, Source, Stage};
use crate::policy::Policy;
use crate::registry::{ConnectionId, Memory, Region, Registry, State, Wanted};
use crate::subordinates::Source as SubordinateUids;
use crate::system;

mod memory;
use memory::{Slab, adopted_memory};

/// First id of programs' regions; those below are the agent's own.
pub const FIRST_REGION_ID: u32 = onlooker_region::limits::FIRST_PROGRAM_REGION;

/// Entries of the directory that are kept for the agent's own regions and their schemas, or half of a small one.
const OWN_ENTRIES: u32 = 128;

/// Everything that requests change.
pub struct Registration {
    registry: Registry,
    subordinate_uids: SubordinateUids,
    directory: Directory,
    policy: Policy,
    counters: Counters,
    slab_bytes: u64,
    /// How long a range that may still be written to is left alone.
    rest_ns: u64,
    slabs: HashMap<u32, Slab>,
    /// Texts of hidden regions' schemas: from publish on the control region has them.
    texts: HashMap<u32, SchemaText>,
    /// It has been said that slabs cannot be made in the kernel.
    told: bool,
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
        let entries = directory.capacity() - OWN_ENTRIES.min(directory.capacity() / 2);
        Self {
            registry: Registry::new(config.quota.clone(), config.limits.clone(), entries, FIRST_REGION_ID),
            subordinate_uids: SubordinateUids::default(),
            directory,
            policy,
            counters,
            slab_bytes: config.quota.bytes_per_user.as_bytes(),
            rest_ns: config.limits.grace.as_ns().saturating_add(config.limits.reuse_delay.as_ns()),
            slabs: HashMap::new(),
            texts: HashMap::new(),
            told: false,
        }
    }

    /// The directory, for the agent's own regions.
    pub fn directory(&mut self) -> &mut Directory {
        &mut self.directory
    }

    /// Who counts as whom may have changed. Cost: a stat.
    pub fn follow_subordinates(&mut self) {
        if let Some(subordinates) = self.subordinate_uids.look() {
            self.registry.set_subordinates(subordinates);
        }
    }

    /// The user that a uid counts as: whose shares it has.
    #[must_use]
    pub fn user_of(&self, uid: u32) -> u32 {
        self.registry.user_of(uid)
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
        descriptors: &[OwnedFd],
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
        self.slabs.get(&uid).map(Slab::descriptor)
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
            id: region.facts.id,
            generation: region.facts.generation,
            offset: Some(range.offset),
            bytes: region.facts.schema.region_bytes(),
            mapped_bytes: Some(range.bytes),
            slab_bytes: Some(slab.bytes()),
            resumed: Some(created.resumed),
        };
        if created.resumed {
            let labels = region.facts.labels.clone();
            self.directory.update(created.id, Some(&labels), None, false, now_ns)?;
            self.counters.add(Counter::RegionsResumed, 1);
        } else {
            let zeroed = slab.zero(range);
            if let Some(slab) = slab.index() {
                self.directory.reserve(&region.facts, Source::Slab { slab, range }, now_ns);
            }
            if let Err(error) = zeroed {
                self.directory.remove(created.id, now_ns);
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
        let (Memory::Slab(range), Some(slab)) = (region.memory, self.slabs.get(&region.facts.owner.uid)) else {
            return Err(unknown_connection());
        };
        let memory = slab.region(range, region.facts.schema.region_bytes())?;
        let backing = match slab.index() {
            Some(slab) => Backing::Slab(memory, Source::Slab { slab, range }),
            None => Backing::Tcp(memory),
        };
        let text = self.texts.get(&id).ok_or_else(unknown_connection)?;
        self.directory.publish(&region.facts, text, backing, now_ns)?;
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
        let (id, live) = (region.facts.id, region.state == State::Live);
        let labels = match update.labels {
            Some(labels) => Some(complete_labels(
                &region.facts.name,
                &region.facts.instance,
                labels,
                program,
                region.facts.owner.process.pid,
            )?),
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
            None => self.directory.removed(id, now_ns),
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
        if let Err(refusal) = self.directory.publish(&region.facts, &text, Backing::Tcp(memory), now_ns) {
            self.registry.forget(created.id, now_ns);
            return Err(refusal);
        }
        let answer = RegionAnswer {
            id: region.facts.id,
            generation: region.facts.generation,
            offset: None,
            bytes: region.facts.schema.region_bytes(),
            mapped_bytes: None,
            slab_bytes: None,
            resumed: None,
        };
        self.registry.published(created.id);
        self.counters.add(Counter::RegionsCreated, 1);
        Ok(Answer::Region(answer))
    }

    fn ensure_slab(&mut self, uid: u32) -> Result<(), Refusal> {
        if self.slabs.contains_key(&uid) {
            return Ok(());
        }
        let user_of = |uid| self.registry.user_of(uid);
        let in_kernel = self.directory.kernel().and_then(|kernel| match kernel.create_slab(uid, user_of) {
            Ok(slab) => Some(Slab::Kernel(slab)),
            Err(error) => {
                self.counters.add(Counter::KernelErrors, 1);
                if !std::mem::replace(&mut self.told, true) {
                    system::log(&format!(
                        "warning: user {uid} is served over TCP only: no slab in the kernel: {error}"
                    ));
                }
                None
            }
        });
        let slab = in_kernel.map_or_else(|| Slab::memfd(uid, self.slab_bytes), Ok)?;
        self.enter_slab(uid, slab);
        Ok(())
    }

    fn enter_slab(&mut self, uid: u32, slab: Slab) {
        self.registry.set_slab(uid, slab.bytes(), slab.index().is_some());
        self.slabs.insert(uid, slab);
    }

    /// Takes over what an earlier agent has left of programs: users' slabs, and regions as orphans that their processes may come back to.
    pub fn restore(&mut self, recovered: Recovered, now_ns: u64) {
        let Recovered { records, rest, users } = recovered;
        for uid in users {
            match self.directory.kernel().map(|kernel| kernel.slab(uid)) {
                Some(Ok(Some(slab))) => self.enter_slab(uid, Slab::Kernel(slab)),
                _ => self.counters.add(Counter::KernelErrors, 1),
            }
        }
        let mut count = 0;
        for record in records {
            let id = record.number();
            if self.restore_region(record, now_ns).is_some() {
                count += 1;
            } else {
                self.counters.add(Counter::KernelErrors, 1);
                self.directory.remove(id, now_ns);
            }
        }
        let until_ns = now_ns.saturating_add(self.rest_ns);
        for (index, range) in rest {
            let user = self.slabs.iter().find(|(_, slab)| slab.index() == Some(index)).map(|(uid, _)| *uid);
            if let Some(uid) = user {
                self.registry.rest(uid, range, until_ns);
            }
        }
        if count > 0 {
            system::log(&format!("{count} regions of an earlier agent go on"));
        }
        self.show();
    }

    fn restore_region(&mut self, record: Record, now_ns: u64) -> Option<()> {
        let uid = record.entry.uid;
        let Source::Slab { range, .. } = record.keep.source else { return None };
        let memory = self.slabs.get(&uid)?.region(range, record.entry.bytes).ok()?;
        let (facts, removed) = (record.facts(), matches!(record.stage, Stage::Removed { .. }));
        self.directory.restore(record, Some(memory));
        self.registry.restore(facts, range, removed, now_ns).then_some(())
    }

    /// A region is over: nobody finds it any more, then its memory goes.
    fn ended(&mut self, region: &Region, now_ns: u64) {
        self.texts.remove(&region.facts.id);
        self.directory.remove(region.facts.id, now_ns);
        if let (Memory::Slab(range), Some(slab)) = (region.memory, self.slabs.get(&region.facts.owner.uid)) {
            slab.release(range);
        }
        self.counters.add(Counter::RegionsEnded, 1);
    }

    /// A user has no regions and no connections any more, and its slab is not kept.
    fn drop_slab(&mut self, uid: Option<u32>) {
        if let Some(uid) = uid {
            self.slabs.remove(&uid);
        }
    }

    fn show(&self) {
        self.counters.set(Counter::Regions, self.registry.len() as u64);
        self.counters.set(Counter::RegionBytes, self.registry.bytes());
    }
}

fn parse_schema(json: &str) -> Result<(SchemaRef, SchemaText), Refusal> {
    let schema = Schema::parse(json).map_err(|error| Refusal::new(Code::Schema, error.to_string()))?;
    let text = SchemaText::of(&schema);
    Ok((text.class(), text))
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

fn internal(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::Internal, error.to_string())
}

fn unknown_connection() -> Refusal {
    Refusal::new(Code::Internal, "the agent has lost track of this connection: connect again")
}

#[cfg(test)]
mod tests;
