// SPDX-License-Identifier: Apache-2.0
//! What one user has: ranges of its slab, connections, schemas; and how much of each it may have, together with those who count as the same user
//! ([`crate::subordinates`]).

use std::collections::{HashMap, VecDeque};

use onlooker_local::registration::{Code, Refusal};
use onlooker_region::SchemaId;
use onlooker_region::slab::Ranges;

use crate::config::Quota;
use crate::facts::SchemaRef;

#[derive(Debug)]
pub(super) struct User {
    pub(super) ranges: Ranges,
    pub(super) is_slab_kept: bool,
    pub(super) regions: u32,
    pub(super) adopted_bytes: u64,
    pub(super) connections: u32,
    pub(super) schemas: HashMap<SchemaId, u32>,
    pub(super) schema_bytes: u64,
    /// Schemas that are over, but whose blocks in the control region rest until the time given: (until ns, bytes).
    pub(super) resting_schemas: VecDeque<(u64, u64)>,
}

impl User {
    /// With a slab of so many bytes and nothing else.
    pub(super) fn new(slab_bytes: u64) -> Self {
        Self {
            ranges: Ranges::new(slab_bytes),
            is_slab_kept: false,
            regions: 0,
            adopted_bytes: 0,
            connections: 0,
            schemas: HashMap::new(),
            schema_bytes: 0,
            resting_schemas: VecDeque::new(),
        }
    }

    pub(super) fn taken(&self) -> u64 {
        self.ranges.used() + self.adopted_bytes
    }

    /// Entries of the directory: regions, and schemas.
    pub(super) fn entries(&self) -> u32 {
        self.regions + u32::try_from(self.schemas.len()).unwrap_or(u32::MAX)
    }

    /// Whether so many regions more, and their schema, leave others their share of the directory: nobody may have more of its
    /// entries than are free then, so that one user alone gets half of them at most.
    pub(super) fn check_share(&self, had: &Had, regions: u32, schema: &SchemaRef, free: u32) -> Result<(), Refusal> {
        let more = regions + u32::from(!self.schemas.contains_key(&schema.id));
        let Had { uid, entries, .. } = *had;
        if more > 0 && entries + more > free.saturating_sub(more) {
            return Err(over(format!(
                "user {uid} has {entries} entries of the directory, regions and schemas, and {free} are free: nobody gets more \
                 than are left for others; let regions share schemas, or the operator raises [kernel] control"
            )));
        }
        Ok(())
    }

    /// Bytes that a schema would add.
    fn added_schema_bytes(&self, schema: &SchemaRef) -> u64 {
        if self.schemas.contains_key(&schema.id) { 0 } else { schema.control_bytes() }
    }

    pub(super) fn add_schema(&mut self, schema: &SchemaRef) {
        self.schema_bytes += self.added_schema_bytes(schema);
        *self.schemas.entry(schema.id).or_default() += 1;
    }

    /// One use less. What the last use frees counts until `until_ns`: otherwise a user who changes schemas without pause would fill the control
    /// region with resting ones, at the cost of all others.
    pub(super) fn remove_schema(&mut self, schema: &SchemaRef, now_ns: u64, until_ns: u64) {
        while self.resting_schemas.front().is_some_and(|(until_ns, _)| *until_ns <= now_ns) {
            self.resting_schemas.pop_front();
        }
        let Some(count) = self.schemas.get_mut(&schema.id) else { return };
        *count -= 1;
        if *count == 0 {
            self.schemas.remove(&schema.id);
            self.schema_bytes -= schema.control_bytes();
            self.resting_schemas.push_back((until_ns, schema.control_bytes()));
        }
    }

    pub(super) fn check_schema_quota(&self, had: &Had, schema: &SchemaRef, quota: &Quota) -> Result<(), Refusal> {
        let most = quota.schema_bytes_per_user;
        if had.schema_bytes + self.added_schema_bytes(schema) > most.as_bytes() {
            let hint = "let regions share schemas; former ones count until the reuse delay is over";
            let uid = had.uid;
            return Err(over(format!("schemas of user {uid} exceed {most} ([quota] schema_bytes_per_user): {hint}")));
        }
        Ok(())
    }
}

/// What a user has, those who count as it included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Had {
    pub(super) uid: u32,
    pub(super) regions: u32,
    pub(super) bytes: u64,
    pub(super) connections: u32,
    pub(super) entries: u32,
    /// With schemas whose blocks rest.
    pub(super) schema_bytes: u64,
}

impl Had {
    pub(super) fn add(&mut self, user: &User, now_ns: u64) {
        let resting = user.resting_schemas.iter().filter(|(until_ns, _)| *until_ns > now_ns);
        self.regions += user.regions;
        self.bytes += user.taken();
        self.connections += user.connections;
        self.entries += user.entries();
        self.schema_bytes += user.schema_bytes + resting.map(|(_, bytes)| bytes).sum::<u64>();
    }
}

/// Refused for a quota, which the message names.
pub(super) fn over(message: String) -> Refusal {
    Refusal::new(Code::Quota, message)
}
