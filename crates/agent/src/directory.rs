// SPDX-License-Identifier: Apache-2.0
//! The control region and the tables of what is served, kept in step: a region is in all of them or in none.
//!
//! Owned by the main thread. A region becomes readable before its entry announces it and its entry goes before it stops being readable, so that
//! a reader who follows the directory is never refused for the order of our stores. With a kernel responder the control region lives in its memory and is taken
//! over after a restart ([`Directory::resume`]); the ledger has what a region's entry does not say.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use onlooker_local::registration::{Code, Labels, Refusal};
use onlooker_region::control::{
    ControlError, ControlWriter, Entry, Place, RESPONDER_KERNEL, RESPONDER_TCP, RegionEntry,
};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::map::{Map, MapError, sealed_memfd};
use onlooker_region::{Schema, SchemaId};

use crate::card::Card;
use crate::counters::{Counter, Counters};
use crate::facts::SchemaRef;
use crate::host::{self, Host};
use crate::kernel::ledger::{Keep, Record, Source, Stage};
use crate::kernel::{Kernel, KernelError, Recovered};
use crate::served::{Address, Addresses, Served};
use push::Pushed;
use telemetry::Announced;

mod device;
mod publish;
mod push;
mod renew;
mod telemetry;

/// Blocks of a control region in a memfd: room for MAX_ENTRY_BLOCKS entry blocks and 28,671 schema blocks. Only what is used takes memory.
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
    /// The kernel responder.
    #[error("control region: {0}")]
    Kernel(#[from] KernelError),
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
    /// Blocks of a region of this class.
    pub blocks: u32,
}

impl SchemaText {
    /// Of a checked schema.
    #[must_use]
    pub fn of(schema: &Schema) -> Self {
        let canonical = schema.canonical();
        Self { id: SchemaId::of(&canonical), name: schema.name.clone(), canonical, blocks: schema.blocks() }
    }

    /// What is kept of it beside the text.
    #[must_use]
    pub fn class(&self) -> SchemaRef {
        let text_bytes = u32::try_from(self.canonical.len()).unwrap_or(u32::MAX);
        SchemaRef { id: self.id, text_bytes, blocks: self.blocks }
    }
}

/// Who can serve a region, and where the kernel responder finds its bytes.
#[derive(Debug)]
pub enum Backing {
    /// Memory that only this process serves.
    Tcp(Map),
    /// Memory in a slab of the kernel responder.
    Slab(Map, Source),
    /// Only the kernel responder: a collector of it, or memory in a slab that is not for readers over TCP.
    Kernel(Source),
}

struct Slot {
    slot: usize,
    entry: RegionEntry,
    /// Of regions that the kernel responder serves.
    keep: Option<Keep>,
    removed: bool,
}

impl Slot {
    const fn address(&self) -> Address {
        Address { va: self.entry.va, rkey: self.entry.rkey }
    }

    fn slab(&self) -> Option<u32> {
        match self.keep.as_ref()?.source {
            Source::Slab { slab, .. } => Some(slab),
            Source::Computed { .. } => None,
        }
    }

    /// The address that a slab has if this region's follows from it.
    fn base(&self, of: u32) -> Option<u64> {
        match self.keep.as_ref()?.source {
            Source::Slab { slab, range } if slab == of => self.entry.va.checked_sub(range.offset),
            _ => None,
        }
    }

    fn record(&self) -> Option<Record> {
        let stage =
            if self.removed { Stage::Removed { slot: self.slot } } else { Stage::Published { slot: self.slot } };
        Some(Record { entry: self.entry.clone(), stage, keep: self.keep.clone()? })
    }
}

/// The directory.
pub struct Directory {
    control: ControlWriter<Map>,
    bytes: u64,
    served: Arc<Served>,
    addresses: Addresses,
    slots: HashMap<u32, Slot>,
    telemetry: Vec<Announced>,
    kernel: Option<Rc<Kernel>>,
    card: Option<Card>,
    pushed: Pushed,
    counters: Option<Counters>,
}

impl Directory {
    /// An empty control region in a memfd, readable at once.
    ///
    /// # Errors
    /// No memory, no randomness.
    pub fn new(host: &Host, served: Arc<Served>, reuse_delay_ns: u64, now_ns: u64) -> Result<Self, DirectoryError> {
        let bytes = CONTROL_BLOCKS * BLOCK_BYTES as u64;
        let memory = Map::of(sealed_memfd("onlooker-control", bytes)?, 0, bytes, true)?;
        let mut addresses = Addresses::default();
        let address = addresses.take(bytes)?;
        let incarnation = host::random_generation()?;
        let place = Place { va: address.va, rkey: address.rkey, incarnation, responders: RESPONDER_TCP };
        let control = ControlWriter::new(memory.clone(), place, host.host_id.0, host.boot_id.0, reuse_delay_ns, now_ns);
        served.insert(address, memory);
        Ok(Self::of(control, served, addresses, None))
    }

    /// The control region in the kernel responder's memory: taken over with what of `recovered` can be, or begun anew. What goes on is left in `recovered`; regions of
    /// programs that have ended shall have their orphan flag set there.
    ///
    /// # Errors
    /// Tables that cannot be changed, memory that cannot be mapped, no randomness.
    pub fn resume(
        host: &Host,
        served: Arc<Served>,
        kernel: Rc<Kernel>,
        recovered: &mut Recovered,
        reuse_delay_ns: u64,
        now_ns: u64,
    ) -> Result<Self, DirectoryError> {
        let memory = kernel.control_memory()?;
        let bytes = memory.words().len() as u64 * 8;
        let place = |kernel: &Kernel| {
            let (address, incarnation) = kernel.control_place();
            Place { va: address.va, rkey: address.rkey, incarnation, responders: RESPONDER_TCP | RESPONDER_KERNEL }
        };
        let (host_id, boot_id) = (host.host_id.0, host.boot_id.0);
        let entries: Vec<(usize, RegionEntry)> =
            recovered.records.iter().filter_map(|record| Some((record.slot()?, record.entry.clone()))).collect();
        let resumed =
            ControlWriter::resume(memory.clone(), place(&kernel), host_id, boot_id, reuse_delay_ns, now_ns, &entries);
        let control = if let Some(resumed) = resumed {
            drop_lost(&kernel, recovered, &resumed.lost);
            resumed.writer
        } else {
            *recovered = Recovered::default();
            kernel.begin()?;
            ControlWriter::new(memory.clone(), place(&kernel), host_id, boot_id, reuse_delay_ns, now_ns)
        };
        let mut addresses = Addresses::default();
        let (address, _) = kernel.control_place();
        addresses.restore(address, bytes);
        served.insert(address, memory);
        kernel.add_control()?;
        Ok(Self::of(control, served, addresses, Some(kernel)))
    }

    /// Without regions.
    fn of(control: ControlWriter<Map>, served: Arc<Served>, addresses: Addresses, kernel: Option<Rc<Kernel>>) -> Self {
        let bytes = control.memory().words().len() as u64 * 8;
        let (slots, telemetry, pushed) = (HashMap::new(), Vec::new(), Pushed::default());
        Self { control, bytes, served, addresses, slots, telemetry, kernel, card: None, pushed, counters: None }
    }

    /// Entries that there can be: regions and schemas.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.control.capacity()
    }

    /// Where failures are counted, from now on.
    pub fn count_in(&mut self, counters: Counters) {
        self.counters = Some(counters);
    }

    /// Where the control region is.
    #[must_use]
    pub fn place(&self) -> Place {
        self.control.place()
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The kernel responder, if there is one.
    #[must_use]
    pub const fn kernel(&self) -> Option<&Rc<Kernel>> {
        self.kernel.as_ref()
    }

    /// A region that an earlier agent has left, whose entry stands; `memory` makes it readable over TCP, too.
    pub fn restore(&mut self, record: Record, memory: Option<Map>) {
        let Some(slot) = record.slot() else { return };
        let address = Address { va: record.entry.va, rkey: record.entry.rkey };
        self.addresses.restore(address, record.entry.bytes);
        if let Some(memory) = memory {
            self.served.insert(address, memory);
        }
        let removed = matches!(record.stage, Stage::Removed { .. });
        let Record { entry, keep, .. } = record;
        let id = entry.identity.region;
        self.slots.insert(id, Slot { slot, entry, keep: Some(keep), removed });
        // With a device the key that stands is good until the holder says another.
        if self.card.is_none() {
            self.renew_key(id, host::boot_time_ns());
        }
    }

    /// A region's entry, and where its bytes come from if the kernel responder has it.
    #[must_use]
    pub fn entry(&self, id: u32) -> Option<(&RegionEntry, Option<Source>)> {
        let slot = self.slots.get(&id)?;
        Some((&slot.entry, slot.keep.as_ref().map(|keep| keep.source)))
    }

    /// A region of the agent's own is another process's by now.
    pub fn now_owned_by(&mut self, id: u32, pid: u32, now_ns: u64) {
        let Some(mut slot) = self.slots.remove(&id) else { return };
        if slot.entry.pid != pid {
            slot.entry.pid = pid;
            self.note(&slot, now_ns);
            // The entry was encoded before, so that it fits again.
            let _ = self.control.replace(slot.slot, &Entry::Region(slot.entry.clone()), now_ns);
        }
        self.slots.insert(id, slot);
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
        let mut slot = self.slots.remove(&id).ok_or_else(|| missing(id))?;
        let result = self.change(&mut slot, labels, schema, orphan, now_ns);
        self.slots.insert(id, slot);
        result
    }

    fn change(
        &mut self,
        slot: &mut Slot,
        labels: Option<&Labels>,
        schema: Option<&SchemaText>,
        orphan: bool,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        let mut entry = slot.entry.clone();
        entry.orphan = orphan;
        if let Some(labels) = labels {
            entry.labels = pairs(labels);
        }
        entry.to_words().map_err(refusal)?;
        if let Some(schema) = schema {
            self.control.hold_schema(schema.id, &schema.name, &schema.canonical, now_ns).map_err(refusal)?;
            entry.schema = schema.id;
            if let Some(keep) = &mut slot.keep {
                keep.schema = schema.class();
            }
        }
        // A program that comes back to its region finds its entry as it left it: nothing for readers to read.
        let old = std::mem::replace(&mut slot.entry, entry);
        if old != slot.entry {
            self.note(slot, now_ns);
            self.control.replace(slot.slot, &Entry::Region(slot.entry.clone()), now_ns).map_err(refusal)?;
        }
        if schema.is_some() {
            self.control.release_schema(old.schema, now_ns);
        }
        Ok(())
    }

    /// A region whose program has removed it: an orphan that nobody may come back to, also after a restart.
    pub fn removed(&mut self, id: u32, now_ns: u64) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.removed = true;
        }
        // The entry was encoded before, so that it fits again.
        let _ = self.update(id, None, None, true, now_ns);
    }

    /// Takes a region out of the directory and makes it unreadable. Unknown regions (never published) are fine.
    pub fn remove(&mut self, id: u32, now_ns: u64) {
        if let Some(slot) = self.forget(id) {
            self.control.remove(slot.slot, now_ns);
            self.end(&slot, now_ns);
        }
    }

    /// What a region whose entry is gone had beside it.
    fn end(&mut self, slot: &Slot, now_ns: u64) {
        self.control.release_schema(slot.entry.schema, now_ns);
        self.withdraw(slot.address(), slot.keep.is_some());
    }

    /// Drops a region's record; what it says of it is returned.
    fn forget(&mut self, id: u32) -> Option<Slot> {
        if let Some(kernel) = &self.kernel {
            kernel.forget(id);
        }
        self.slots.remove(&id)
    }

    /// Ends an address.
    fn withdraw(&mut self, address: Address, in_kernel: bool) {
        self.served.remove(address.rkey);
        if let (Some(kernel), true) = (&self.kernel, in_kernel) {
            kernel.remove_region(address.rkey);
        }
        self.addresses.give(address);
    }

    /// Writes a region's record. If that fails, the region ends with this process.
    fn note(&self, slot: &Slot, now_ns: u64) {
        if let (Some(kernel), Some(record)) = (&self.kernel, slot.record()) {
            self.check(kernel.put(&record, now_ns));
        }
    }

    fn check(&self, result: Result<(), KernelError>) -> bool {
        if let (Err(_), Some(counters)) = (&result, &self.counters) {
            counters.add(Counter::KernelErrors, 1);
        }
        result.is_ok()
    }
}

/// Regions whose schema is damaged end here; their ranges rest.
fn drop_lost(kernel: &Kernel, recovered: &mut Recovered, lost: &[usize]) {
    let (gone, kept): (Vec<Record>, Vec<Record>) = std::mem::take(&mut recovered.records)
        .into_iter()
        .partition(|record| record.slot().is_none_or(|slot| lost.contains(&slot)));
    recovered.records = kept;
    for record in gone {
        kernel.forget(record.number());
        kernel.remove_region(record.entry.rkey);
        if let Source::Slab { slab, range } = record.keep.source {
            recovered.rest.push((slab, range));
        }
    }
}

/// Sorted by key, as control.md has it.
fn pairs(labels: &Labels) -> Vec<(String, String)> {
    labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn missing(id: u32) -> Refusal {
    Refusal::new(Code::Internal, format!("region {id} is not in the directory"))
}

fn refusal(error: ControlError) -> Refusal {
    let code = if matches!(error, ControlError::LabelsTooLong(_)) { Code::BadRequest } else { Code::Quota };
    Refusal::new(code, error.to_string())
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
