// SPDX-License-Identifier: Apache-2.0
//! A region for a program: a new one, if the quotas of its user and of the agent have room for it, or the one that the
//! same process had under this name.

use onlooker_local::registration::{Code, Labels, Refusal};
use onlooker_region::slab::PAGE_BYTES;

use super::user::over;
use super::{ConnectionId, Created, Memory, Region, Registry, State, Wanted, name_of, no_region};
use crate::facts::{Facts, Peer};
use crate::units::Size;

impl Registry {
    /// `create` and `adopt`: a new region, or the old one of the same process and name.
    ///
    /// # Errors
    /// `duplicate`, `quota`, `not_found` for an unknown connection. Nothing has changed then.
    pub fn create(
        &mut self,
        connection: ConnectionId,
        wanted: Wanted,
        generation: u32,
        now_ns: u64,
    ) -> Result<Created, Refusal> {
        let peer = self.peer(connection).cloned().ok_or_else(|| no_region(0))?;
        let key = (peer.uid, peer.process, wanted.name.clone(), wanted.instance.clone());
        let mut old_id = None;
        if let Some(old) = self.names.get(&key).and_then(|id| self.regions.get(id)) {
            let State::Orphan { resumable, .. } = old.state else {
                let (name, instance) = (&old.facts.name, &old.facts.instance);
                let hint = "remove it first, or give another instance";
                let message = format!(
                    "this process already has region `{name}` with instance `{instance}` (id {}): {hint}",
                    old.facts.id
                );
                return Err(Refusal::new(Code::Duplicate, message));
            };
            let id = old.facts.id;
            let same = old.facts.schema == wanted.schema
                && old.facts.owner.image == peer.image
                && matches!(old.memory, Memory::Slab(_));
            if resumable && same && !wanted.adopted {
                self.resume(connection, id, wanted.labels);
                return Ok(Created { id, resumed: true, ended: None });
            }
            old_id = Some(id);
        }
        let id = self.create_new(connection, peer, wanted, generation, now_ns)?;
        let ended = old_id.and_then(|old| self.free(old, now_ns));
        Ok(Created { id, resumed: false, ended })
    }

    fn create_new(
        &mut self,
        connection: ConnectionId,
        owner: Peer,
        wanted: Wanted,
        generation: u32,
        now_ns: u64,
    ) -> Result<u32, Refusal> {
        let length = wanted.schema.region_bytes();
        let bytes = if wanted.adopted { length } else { length.next_multiple_of(PAGE_BYTES) };
        if self.regions.len() >= self.quota.regions as usize {
            return Err(over(format!(
                "the agent has its {} regions ([quota] regions): the operator must raise it",
                self.quota.regions
            )));
        }
        if self.bytes().saturating_add(bytes) > self.quota.bytes.as_bytes() {
            return Err(over(format!("region memory of all users has reached {} ([quota] bytes)", self.quota.bytes)));
        }
        let free = self.free_entries();
        let (max_regions, max_bytes) = (self.quota.regions_per_user, self.quota.bytes_per_user);
        let had = self.had(owner.uid, now_ns);
        let user = self.users.get_mut(&owner.uid).ok_or_else(|| no_region(0))?;
        if had.regions >= max_regions {
            let hint = "removed ones count until their grace is over";
            return Err(over(format!("user {} has {max_regions} regions ([quota] regions_per_user); {hint}", had.uid)));
        }
        user.check_schema_quota(&had, &wanted.schema, &self.quota)?;
        user.check_share(&had, 1, &wanted.schema, free)?;
        let taken = user.taken();
        let full = || {
            let hint = "freed memory cannot be given out before the reuse delay is over";
            over(format!(
                "{bytes} bytes do not fit: user {} has {} of {max_bytes} ([quota] bytes_per_user); {hint}",
                had.uid, had.bytes
            ))
        };
        let slab = user.ranges.total();
        if !wanted.adopted && slab < max_bytes.as_bytes() && taken.saturating_add(bytes) > slab {
            let (slab, hint) = (Size::from_bytes(slab), "the operator can raise it, or [kernel] slab");
            return Err(over(format!(
                "{bytes} bytes do not fit: user {} has {taken} of a slab of {slab}; {hint}",
                owner.uid
            )));
        }
        if had.bytes.saturating_add(bytes) > max_bytes.as_bytes() {
            return Err(full());
        }
        let memory = if wanted.adopted {
            user.adopted_bytes += bytes;
            Memory::Adopted
        } else {
            Memory::Slab(user.ranges.take(bytes, now_ns).ok_or_else(full)?)
        };
        user.regions += 1;
        user.add_schema(&wanted.schema);
        let id = self.unused_id();
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.regions.insert(id);
        }
        let Wanted { name, instance, labels, schema, .. } = wanted;
        let facts = Facts { id, generation, name, instance, labels, schema, owner, created_ns: now_ns };
        self.names.insert(name_of(&facts), id);
        let region = Region { facts, memory, state: State::Hidden, connection: Some(connection) };
        self.regions.insert(id, region);
        Ok(id)
    }

    fn resume(&mut self, connection: ConnectionId, id: u32, labels: Labels) {
        let Some(region) = self.regions.get_mut(&id) else { return };
        if let State::Orphan { until_ns, .. } = region.state {
            self.deadlines.remove(&(until_ns, id));
        }
        region.state = State::Live;
        region.facts.labels = labels;
        region.connection = Some(connection);
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.regions.insert(id);
        }
    }
}
