// SPDX-License-Identifier: Apache-2.0
//! The control region and the table of what is served, kept in step: a region is in both or in neither.
//!
//! Owned by the main thread. A region becomes readable before its entry announces it and its entry goes before it stops being readable, so that
//! a reader who follows the directory is never refused for the order of our stores.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use onlooker_region::block::Identity;
use onlooker_region::control::{ControlError, ControlWriter, Entry, Place, RESPONDER_TCP, RegionEntry};
use onlooker_region::map::{Map, MapError, sealed_memfd};
use onlooker_region::{Schema, SchemaId};

use crate::host::{self, Host};
use crate::protocol::{Code, Labels, Refusal};
use crate::served::{Address, Addresses, Served};

/// Blocks of the control region: room for MAX_ENTRY_BLOCKS entry blocks and 28,671 schema blocks. Only what is used takes memory.
const CONTROL_BLOCKS: u64 = 32_768;

/// Why the control region could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Its memory.
    #[error("control region: {0}")]
    Memory(#[from] MapError),
    /// Randomness.
    #[error("random numbers for the control region: {0}")]
    Random(#[from] io::Error),
}

/// What the directory is told of a region.
#[derive(Debug, Clone)]
pub struct Published<'a> {
    /// Region id.
    pub id: u32,
    /// Generation of its identities.
    pub generation: u32,
    /// Region name.
    pub name: &'a str,
    /// Labels.
    pub labels: &'a Labels,
    /// Owner's pid.
    pub pid: u32,
    /// Owner's uid.
    pub uid: u32,
    /// Creation, CLOCK_BOOTTIME ns.
    pub created_ns: u64,
}

/// A schema with its text.
#[derive(Debug, Clone)]
pub struct SchemaText {
    /// Id.
    pub id: SchemaId,
    /// Class name.
    pub name: String,
    /// Canonical form.
    pub canonical: String,
}

impl SchemaText {
    /// Of a checked schema.
    #[must_use]
    pub fn of(schema: &Schema) -> Self {
        let canonical = schema.canonical();
        Self { id: SchemaId::of(&canonical), name: schema.name.clone(), canonical }
    }
}

struct Slot {
    slot: usize,
    address: Address,
    entry: RegionEntry,
}

/// The directory.
pub struct Directory {
    control: ControlWriter<Map>,
    served: Arc<Served>,
    addresses: Addresses,
    slots: HashMap<u32, Slot>,
}

impl Directory {
    /// An empty control region, readable at once.
    ///
    /// # Errors
    /// No memory or no randomness.
    pub fn new(host: &Host, served: Arc<Served>, reuse_delay_ns: u64, now_ns: u64) -> Result<Self, DirectoryError> {
        let bytes = CONTROL_BLOCKS * 1024;
        let memory = Map::of(sealed_memfd("onlooker-control", bytes)?, 0, bytes, true)?;
        let mut addresses = Addresses::default();
        let address = addresses.take(bytes)?;
        let place = Place {
            va: address.va,
            rkey: address.rkey,
            incarnation: host::random_generation()?,
            responders: RESPONDER_TCP,
        };
        let control = ControlWriter::new(memory.clone(), place, host.host_id.0, host.boot_id.0, reuse_delay_ns, now_ns);
        served.insert(address, memory);
        Ok(Self { control, served, addresses, slots: HashMap::new() })
    }

    /// Where the control region is.
    #[must_use]
    pub fn place(&self) -> Place {
        self.control.place()
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        CONTROL_BLOCKS * 1024
    }

    /// Makes a region readable and announces it.
    ///
    /// # Errors
    /// `bad_request` for labels that do not fit, `quota` where the control region is full, `internal` without randomness. Nothing has changed then.
    pub fn publish(
        &mut self,
        region: &Published,
        schema: &SchemaText,
        memory: Map,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        let bytes = memory.words().len() as u64 * 8;
        self.control.hold_schema(schema.id, &schema.name, &schema.canonical, now_ns).map_err(refusal)?;
        match self.announce(region, schema.id, memory, bytes, now_ns) {
            Ok(slot) => {
                self.slots.insert(region.id, slot);
                Ok(())
            }
            Err(refusal) => {
                self.control.release_schema(schema.id, now_ns);
                Err(refusal)
            }
        }
    }

    fn announce(
        &mut self,
        region: &Published,
        schema: SchemaId,
        memory: Map,
        bytes: u64,
        now_ns: u64,
    ) -> Result<Slot, Refusal> {
        let address = self
            .addresses
            .take(bytes)
            .map_err(|error| Refusal::new(Code::Internal, format!("random address: {error}")))?;
        let entry = RegionEntry {
            identity: Identity::first(region.id, region.generation),
            va: address.va,
            bytes,
            rkey: address.rkey,
            responders: RESPONDER_TCP,
            schema,
            pid: region.pid,
            uid: region.uid,
            created_ns: region.created_ns,
            orphan: false,
            name: region.name.to_owned(),
            labels: pairs(region.labels),
        };
        self.served.insert(address, memory);
        match self.control.add(&Entry::Region(entry.clone()), now_ns) {
            Ok(slot) => Ok(Slot { slot, address, entry }),
            Err(error) => {
                self.served.remove(address.rkey);
                self.addresses.give(address);
                Err(refusal(error))
            }
        }
    }

    /// New labels, schema or orphan flag of a region.
    ///
    /// # Errors
    /// As [`Directory::publish`], and `internal` for a region that is not there.
    pub fn update(
        &mut self,
        id: u32,
        labels: Option<&Labels>,
        schema: Option<&SchemaText>,
        orphan: bool,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        let slot = self
            .slots
            .get_mut(&id)
            .ok_or_else(|| Refusal::new(Code::Internal, format!("region {id} is not in the directory")))?;
        let mut entry = slot.entry.clone();
        entry.orphan = orphan;
        if let Some(labels) = labels {
            entry.labels = pairs(labels);
        }
        if let Some(schema) = schema {
            self.control.hold_schema(schema.id, &schema.name, &schema.canonical, now_ns).map_err(refusal)?;
            entry.schema = schema.id;
        }
        if let Err(error) = self.control.replace(slot.slot, &Entry::Region(entry.clone()), now_ns) {
            if let Some(schema) = schema {
                self.control.release_schema(schema.id, now_ns);
            }
            return Err(refusal(error));
        }
        if schema.is_some() {
            self.control.release_schema(slot.entry.schema, now_ns);
        }
        slot.entry = entry;
        Ok(())
    }

    /// Takes a region out of the directory and makes it unreadable. Unknown regions (never published) are fine.
    pub fn remove(&mut self, id: u32, now_ns: u64) {
        if let Some(Slot { slot, address, entry }) = self.slots.remove(&id) {
            self.control.remove(slot, now_ns);
            self.control.release_schema(entry.schema, now_ns);
            self.served.remove(address.rkey);
            self.addresses.give(address);
        }
    }
}

/// Sorted by key, as control.md has it.
fn pairs(labels: &Labels) -> Vec<(String, String)> {
    labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn refusal(error: ControlError) -> Refusal {
    let code = if matches!(error, ControlError::LabelsTooLong(_)) { Code::BadRequest } else { Code::Quota };
    Refusal::new(code, error.to_string())
}
