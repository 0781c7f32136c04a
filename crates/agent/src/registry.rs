// SPDX-License-Identifier: Apache-2.0
//! Who has which region: users, connections, regions, quotas and deadlines, as functions of requests and time. No I/O.
//!
//! The rim ([`crate::server`]) asks, does what was decided (memory, control entries, answers) and reports back. Written and read by the
//! main thread only. Invariants: live and resting ranges of a slab never overlap; no user exceeds a quota, orphans, resting ranges and
//! subordinate uids included; (region id, generation) names one region for ever. Cost: logarithmic in regions and linear in users, except at the
//! end of a connection (its regions).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use onlooker_local::registration::{Code, Labels, Refusal};
use onlooker_region::limits::MAX_REGION_ID;
use onlooker_region::slab::{Range, Ranges};

use crate::config::{Limits, Quota};
use crate::facts::{Facts, Peer, Process, SchemaRef};
use crate::subordinates::Subordinates;

use user::{Had, User, over};

/// A connection, numbered by the rim, never reused.
pub type ConnectionId = u64;

/// Where a region's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A range in its user's slab.
    Slab(Range),
    /// The program's own descriptor.
    Adopted,
}

/// Where a region is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Created, not yet visible.
    Hidden,
    /// Published.
    Live,
    /// Its owner is gone or has removed it; ends at the deadline.
    Orphan {
        /// When it ends, CLOCK_BOOTTIME ns.
        until_ns: u64,
        /// Whether its process may come back to it.
        resumable: bool,
    },
}

/// A region.
#[derive(Debug, Clone)]
pub struct Region {
    /// What it is.
    pub facts: Facts,
    /// Its memory.
    pub memory: Memory,
    /// State.
    pub state: State,
    connection: Option<ConnectionId>,
}

/// A request for a region.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Region name.
    pub name: String,
    /// Instance.
    pub instance: String,
    /// All labels, the agent's own included.
    pub labels: Labels,
    /// Class.
    pub schema: SchemaRef,
    /// Whether the memory is the program's own.
    pub adopted: bool,
}

/// What became of a request for a region.
#[derive(Debug)]
pub struct Created {
    /// Region id.
    pub id: u32,
    /// Whether it is the old region, published as before.
    pub resumed: bool,
    /// An orphan of the same name that ended for it.
    pub ended: Option<Region>,
}

#[derive(Debug)]
struct Connection {
    peer: Peer,
    regions: BTreeSet<u32>,
}

/// The registry.
#[derive(Debug)]
pub struct Registry {
    quota: Quota,
    limits: Limits,
    /// Entries of the directory that are programs'.
    entries: u32,
    subordinates: Subordinates,
    users: BTreeMap<u32, User>,
    connections: BTreeMap<ConnectionId, Connection>,
    regions: BTreeMap<u32, Region>,
    names: HashMap<Name, u32>,
    deadlines: BTreeSet<(u64, u32)>,
    first_id: u32,
    next_id: u32,
}

/// What is unique: user, process, name, instance. The user because a process that has changed its uid must not come back to the slab of the old one.
type Name = (u32, Process, String, String);

fn name_of(facts: &Facts) -> Name {
    (facts.owner.uid, facts.owner.process, facts.name.clone(), facts.instance.clone())
}

/// What the end of a connection brought about.
#[derive(Debug, Default)]
pub struct Ended {
    /// Regions that had not been published.
    pub freed: Vec<Region>,
    /// Regions that turned orphan.
    pub orphans: Vec<u32>,
    /// The user whose slab is not needed any more.
    pub slab: Option<u32>,
}

fn no_region(id: u32) -> Refusal {
    Refusal::new(
        Code::NotFound,
        format!("no region {id} was created on this connection, or it has ended: create it again"),
    )
}

impl Registry {
    /// An empty registry for a directory with so many entries for programs; ids begin at `first_id` (the agent's own regions come before).
    #[must_use]
    pub fn new(quota: Quota, limits: Limits, entries: u32, first_id: u32) -> Self {
        Self {
            quota,
            limits,
            entries,
            subordinates: Subordinates::default(),
            users: BTreeMap::new(),
            connections: BTreeMap::new(),
            regions: BTreeMap::new(),
            names: HashMap::new(),
            deadlines: BTreeSet::new(),
            first_id,
            next_id: first_id,
        }
    }

    /// Who counts as whom from now on.
    pub fn set_subordinates(&mut self, subordinates: Subordinates) {
        self.subordinates = subordinates;
    }

    /// The user that a uid counts as.
    #[must_use]
    pub fn user_of(&self, uid: u32) -> u32 {
        self.subordinates.user_of(uid)
    }

    fn had(&self, uid: u32, now_ns: u64) -> Had {
        let uid = self.user_of(uid);
        let mut had = Had { uid, ..Had::default() };
        let own = self.users.iter().filter(|(other, _)| self.user_of(**other) == uid);
        own.for_each(|(_, user)| had.add(user, now_ns));
        had
    }

    /// A user whose slab has this size from now on; to be told before anything is taken from it.
    /// One that is `kept` is the user's for as long as we live: what was handed out cannot be taken back, so a user who is done
    /// and comes again gets the same memory, and not as much once more.
    pub fn set_slab(&mut self, uid: u32, bytes: u64, kept: bool) {
        let user = self.users.entry(uid).or_insert_with(|| User::new(bytes));
        user.ranges = Ranges::new(bytes);
        user.is_slab_kept = kept;
    }

    /// A range of a user's slab that is no region, but may still be written to until then.
    pub fn rest(&mut self, uid: u32, range: Range, until_ns: u64) {
        if let Some(user) = self.users.get_mut(&uid)
            && user.ranges.take_at(range, 0)
        {
            user.ranges.give(range, until_ns);
        }
    }

    /// A region that an earlier agent has left in a slab: an orphan, which its process may come back to unless it has removed it. After [`Registry::set_slab`] of its user;
    /// quotas do not apply, what is there is there. Whether it could be: nothing else has its id, name or range.
    pub fn restore(&mut self, facts: Facts, range: Range, removed: bool, now_ns: u64) -> bool {
        let (id, key) = (facts.id, name_of(&facts));
        let Some(user) = self.users.get_mut(&facts.owner.uid) else { return false };
        // Nobody comes back to a removed region, so that its name is free.
        let taken = self.regions.contains_key(&id) || (!removed && self.names.contains_key(&key));
        if taken || !user.ranges.take_at(range, now_ns) {
            return false;
        }
        user.regions += 1;
        user.add_schema(&facts.schema);
        if !removed {
            self.names.insert(key, id);
        }
        let region = Region { facts, memory: Memory::Slab(range), state: State::Hidden, connection: None };
        self.regions.insert(id, region);
        let limits = &self.limits;
        let time = if removed { limits.reuse_delay } else { limits.grace };
        self.orphan(id, now_ns.saturating_add(time.as_ns()), !removed);
        self.next_id = self.next_id.max(if id >= MAX_REGION_ID { self.first_id } else { id + 1 });
        true
    }

    /// A connection begins.
    ///
    /// # Errors
    /// `quota`: the user has too many.
    pub fn connect(&mut self, id: ConnectionId, peer: Peer) -> Result<(), Refusal> {
        let (most, slab_bytes) = (self.quota.connections_per_user, self.quota.bytes_per_user.as_bytes());
        let Had { uid, connections, .. } = self.had(peer.uid, 0);
        if connections >= most {
            return Err(over(format!(
                "user {uid} already has {most} connections ([quota] connections_per_user): close some"
            )));
        }
        self.users.entry(peer.uid).or_insert_with(|| User::new(slab_bytes)).connections += 1;
        self.connections.insert(id, Connection { peer, regions: BTreeSet::new() });
        Ok(())
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self, connection: ConnectionId) -> Option<&Peer> {
        self.connections.get(&connection).map(|connection| &connection.peer)
    }

    /// A connection or its process ended. Returns what became of its regions: hidden ones are gone, the others are orphans.
    pub fn disconnect(&mut self, connection: ConnectionId, now_ns: u64) -> Ended {
        let mut ended = Ended::default();
        let Some(Connection { peer, regions }) = self.connections.remove(&connection) else { return ended };
        for id in regions {
            match self.regions.get(&id).map(|region| region.state) {
                Some(State::Hidden) => ended.freed.extend(self.free(id, now_ns)),
                Some(State::Live) => {
                    self.orphan(id, now_ns.saturating_add(self.limits.grace.as_ns()), true);
                    ended.orphans.push(id);
                }
                Some(State::Orphan { .. }) | None => {}
            }
        }
        if let Some(user) = self.users.get_mut(&peer.uid) {
            user.connections -= 1;
        }
        ended.slab = self.drop_idle_user(peer.uid);
        ended
    }

    /// A region of this connection.
    ///
    /// # Errors
    /// `not_found`.
    pub fn region_of(&self, connection: ConnectionId, id: u32) -> Result<&Region, Refusal> {
        self.regions.get(&id).filter(|region| region.connection == Some(connection)).ok_or_else(|| no_region(id))
    }

    /// Any region.
    #[must_use]
    pub fn region(&self, id: u32) -> Option<&Region> {
        self.regions.get(&id)
    }

    /// All regions.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    /// The rim has made the region visible.
    pub fn published(&mut self, id: u32) {
        if let Some(region) = self.regions.get_mut(&id) {
            region.state = State::Live;
        }
    }

    /// Whether a region may be given this schema.
    ///
    /// # Errors
    /// `not_found`, `schema` (another length), `quota`.
    pub fn check_update(
        &self,
        connection: ConnectionId,
        id: u32,
        schema: Option<&SchemaRef>,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        let region = self.region_of(connection, id)?;
        let Some(schema) = schema else { return Ok(()) };
        if schema.blocks != region.facts.schema.blocks {
            let (new, old) = (schema.blocks, region.facts.schema.blocks);
            let message = format!(
                "the new schema has {new} blocks, the region {old}: an update keeps the length; create a new region"
            );
            return Err(Refusal::new(Code::Schema, message));
        }
        let uid = region.facts.owner.uid;
        let (free, had) = (self.free_entries(), self.had(uid, now_ns));
        let user = self.users.get(&uid).ok_or_else(|| no_region(id))?;
        user.check_share(&had, 0, schema, free)?;
        user.check_schema_quota(&had, schema, &self.quota)
    }

    /// The rim has changed the region.
    pub fn updated(&mut self, id: u32, labels: Option<Labels>, schema: Option<SchemaRef>, now_ns: u64) {
        let until_ns = now_ns.saturating_add(self.limits.reuse_delay.as_ns());
        let Some(region) = self.regions.get_mut(&id) else { return };
        if let Some(labels) = labels {
            region.facts.labels = labels;
        }
        if let (Some(schema), Some(user)) = (schema, self.users.get_mut(&region.facts.owner.uid)) {
            user.add_schema(&schema);
            user.remove_schema(&region.facts.schema, now_ns, until_ns);
            region.facts.schema = schema;
        }
    }

    /// `remove`: a published region turns orphan, a hidden one ends at once and is returned.
    ///
    /// # Errors
    /// `not_found`.
    pub fn remove(&mut self, connection: ConnectionId, id: u32, now_ns: u64) -> Result<Option<Region>, Refusal> {
        let hidden = self.region_of(connection, id)?.state == State::Hidden;
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.regions.remove(&id);
        }
        if hidden {
            return Ok(self.free(id, now_ns));
        }
        self.orphan(id, now_ns.saturating_add(self.limits.reuse_delay.as_ns()), false);
        Ok(None)
    }

    /// Undoes a creation that the rim could not carry out.
    pub fn forget(&mut self, id: u32, now_ns: u64) -> Option<Region> {
        self.free(id, now_ns)
    }

    /// When [`Registry::expire`] has something to do next.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(until_ns, _)| *until_ns)
    }

    /// Ends the orphans whose time is over.
    pub fn expire(&mut self, now_ns: u64) -> Vec<(Region, Option<u32>)> {
        let mut ended = Vec::new();
        while let Some(&(until_ns, id)) = self.deadlines.first()
            && until_ns <= now_ns
        {
            self.deadlines.pop_first();
            if let Some(region) = self.free(id, now_ns) {
                let slab = self.drop_idle_user(region.facts.owner.uid);
                ended.push((region, slab));
            }
        }
        ended
    }

    /// Region memory in use. Resting ranges are not counted: the rim has given their memory back to the system.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.users.values().map(User::taken).sum()
    }

    /// Number of regions, orphans and hidden ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there is no region.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    fn free_entries(&self) -> u32 {
        self.entries.saturating_sub(self.users.values().map(User::entries).sum())
    }

    fn orphan(&mut self, id: u32, until_ns: u64, resumable: bool) {
        if let Some(region) = self.regions.get_mut(&id) {
            region.state = State::Orphan { until_ns, resumable };
            region.connection = None;
            self.deadlines.insert((until_ns, id));
        }
    }

    fn free(&mut self, id: u32, now_ns: u64) -> Option<Region> {
        let region = self.regions.remove(&id)?;
        if let State::Orphan { until_ns, .. } = region.state {
            self.deadlines.remove(&(until_ns, id));
        }
        if let Some(connection) = region.connection.and_then(|id| self.connections.get_mut(&id)) {
            connection.regions.remove(&id);
        }
        // A newer region may have taken the name of one that was removed.
        let key = name_of(&region.facts);
        if self.names.get(&key) == Some(&id) {
            self.names.remove(&key);
        }
        if let Some(user) = self.users.get_mut(&region.facts.owner.uid) {
            let until_ns = now_ns.saturating_add(self.limits.reuse_delay.as_ns());
            user.regions -= 1;
            user.remove_schema(&region.facts.schema, now_ns, until_ns);
            match region.memory {
                Memory::Slab(range) => user.ranges.give(range, until_ns),
                Memory::Adopted => user.adopted_bytes -= region.facts.schema.region_bytes(),
            }
        }
        Some(region)
    }

    /// A user without regions and connections has no slab, unless it is kept; returns its uid if that is so now.
    fn drop_idle_user(&mut self, uid: u32) -> Option<u32> {
        let user = self.users.get(&uid)?;
        if user.regions > 0 || user.connections > 0 || user.is_slab_kept {
            return None;
        }
        self.users.remove(&uid);
        Some(uid)
    }

    fn unused_id(&mut self) -> u32 {
        loop {
            let id = self.next_id;
            self.next_id = if id >= MAX_REGION_ID { self.first_id } else { id + 1 };
            if !self.regions.contains_key(&id) {
                return id;
            }
        }
    }
}

mod create;
#[cfg(test)]
mod tests;
mod user;
