// SPDX-License-Identifier: Apache-2.0
//! What a region is, whoever keeps it: registry, directory and ledger add where its memory is and where it is in its
//! life.

use onlooker_local::registration::Labels;
use onlooker_region::SchemaId;
use onlooker_region::limits::{BLOCK_BYTES, GUARDED_BYTES};
use onlooker_region::slab::PAGE_BYTES;

/// A process for ever: pids come again, pids with start times do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Process id as the agent sees it.
    pub pid: u32,
    /// Field 22 of /proc/PID/stat, clock ticks since boot.
    pub start_ticks: u64,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The process that connected.
    pub process: Process,
    /// Its user.
    pub uid: u32,
    /// What it executes, as far as the agent can see: changes with exec.
    pub image: String,
}

/// What is kept of a schema beside its text.
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
    /// Space that the text takes in the control region: guarded blocks, whole pages.
    #[must_use]
    pub fn control_bytes(&self) -> u64 {
        let blocks = (self.text_bytes as usize).div_ceil(GUARDED_BYTES) as u64;
        (blocks * BLOCK_BYTES as u64).next_multiple_of(PAGE_BYTES)
    }

    /// Length of a region of this class.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        u64::from(self.blocks) * BLOCK_BYTES as u64
    }
}

/// A region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Region id, 1 to [`onlooker_region::limits::MAX_REGION_ID`].
    pub id: u32,
    /// Generation of its identities.
    pub generation: u32,
    /// Region name.
    pub name: String,
    /// Instance within the process; the agent's own have none.
    pub instance: String,
    /// Labels as published.
    pub labels: Labels,
    /// Its class.
    pub schema: SchemaRef,
    /// Its owner.
    pub owner: Peer,
    /// When it was created, CLOCK_BOOTTIME ns.
    pub created_ns: u64,
}
