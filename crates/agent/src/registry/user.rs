// SPDX-License-Identifier: Apache-2.0
//! What one user has: ranges of its slab, connections, schemas; and how much of each it may have.

use std::collections::HashMap;

use onlooker_region::SchemaId;
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::slab::Ranges;

use crate::config::Quota;
use crate::protocol::{Code, Refusal};

/// What the registry keeps of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaRef {
    /// Schema id.
    pub id: SchemaId,
    /// Length of the canonical text.
    pub text_bytes: u32,
    /// Blocks of a region of this class.
    pub blocks: u32,
}

impl SchemaRef {
    /// Length of a region of this class.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        u64::from(self.blocks) * BLOCK_BYTES as u64
    }
}

#[derive(Debug)]
pub(super) struct User {
    pub(super) ranges: Ranges,
    pub(super) regions: u32,
    pub(super) adopted_bytes: u64,
    pub(super) connections: u32,
    pub(super) schemas: HashMap<SchemaId, u32>,
    pub(super) schema_bytes: u64,
}

impl User {
    pub(super) fn taken(&self) -> u64 {
        self.ranges.used() + self.adopted_bytes
    }

    /// Bytes that a schema would add.
    pub(super) fn added_schema_bytes(&self, schema: &SchemaRef) -> u64 {
        if self.schemas.contains_key(&schema.id) { 0 } else { u64::from(schema.text_bytes) }
    }

    pub(super) fn add_schema(&mut self, schema: &SchemaRef) {
        self.schema_bytes += self.added_schema_bytes(schema);
        *self.schemas.entry(schema.id).or_default() += 1;
    }

    pub(super) fn remove_schema(&mut self, schema: &SchemaRef) {
        let Some(count) = self.schemas.get_mut(&schema.id) else { return };
        *count -= 1;
        if *count == 0 {
            self.schemas.remove(&schema.id);
            self.schema_bytes -= u64::from(schema.text_bytes);
        }
    }

    pub(super) fn check_schema_quota(&self, uid: u32, schema: &SchemaRef, quota: &Quota) -> Result<(), Refusal> {
        let most = quota.schema_bytes_per_user;
        if self.schema_bytes + self.added_schema_bytes(schema) > most.as_bytes() {
            let hint = "let regions share schemas";
            return Err(over(format!("schemas of user {uid} exceed {most} ([quota] schema_bytes_per_user): {hint}")));
        }
        Ok(())
    }
}

/// Refused for a quota, which the message names.
pub(super) fn over(message: String) -> Refusal {
    Refusal::new(Code::Quota, message)
}
