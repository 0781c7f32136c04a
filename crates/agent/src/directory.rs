// SPDX-License-Identifier: Apache-2.0
//! The control region and the tables of what is served, kept in step: a region is in all of them or in none.
//!
//! Owned by the main thread. A region becomes readable before its entry announces it and its entry goes before it stops being readable, so that
//! a reader who follows the directory is never refused for the order of our stores. With a kernel responder the control region lives in its memory and is taken
//! over after a restart ([`Directory::resume`]); the ledger has what a region's entry does not say.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::sync::Arc;

use onlooker_local::registration::{Code, Labels, Refusal};
use onlooker_region::block::Identity;
use onlooker_region::control::{
    ControlError, ControlWriter, Entry, Place, RESPONDER_KERNEL, RESPONDER_TCP, RESPONDER_VERBS, RegionEntry,
};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::map::{Map, MapError, sealed_memfd};
use onlooker_region::{Schema, SchemaId};

use crate::card::{Card, Held};
use crate::counters::{Counter, Counters};
use crate::facts::{Facts, SchemaRef};
use crate::host::{self, Host};
use crate::kernel::ledger::{Keep, Record, Source, Stage};
use crate::kernel::{CONTROL_SLAB, Kernel, KernelError, Recovered};
use crate::served::{Address, Addresses, Served};
use push::Pushed;

mod push;
mod renew;

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
        let (slots, pushed) = (HashMap::new(), Pushed::default());
        Self { control, bytes, served, addresses, slots, kernel, card: None, pushed, counters: None }
    }

    /// Entries that there can be: regions and schemas.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.control.capacity()
    }

    /// A device that shall answer beside the kernel responder, as soon as its holder is there.
    pub fn set_card(&mut self, card: Option<Card>) {
        self.card = card.filter(|_| self.kernel.is_some());
        if let (Some(card), Some(kernel)) = (&self.card, &self.kernel) {
            kernel.set_unseen_readers(card.has_readers());
        }
    }

    /// That device.
    #[must_use]
    pub const fn card(&self) -> Option<&Card> {
        self.card.as_ref()
    }

    /// Its holder has gone.
    pub fn card_lost(&mut self, now_ns: u64) {
        if let Some(card) = &mut self.card {
            card.disconnect(now_ns);
        }
    }

    /// Looks for its holder, if that is due, and has it register all slabs. True where it is there anew.
    pub fn card_due(&mut self, now_ns: u64) -> bool {
        if !self.card.as_mut().is_some_and(|card| card.connect(now_ns)) {
            return false;
        }
        let used: BTreeSet<u32> = self.slots.values().filter_map(Slot::slab).collect();
        if let Some(card) = &mut self.card {
            card.end_others(|slab| slab == CONTROL_SLAB || used.contains(&slab));
        }
        for slab in used {
            self.hold(slab);
        }
        let ids: Vec<u32> = self.slots.keys().copied().collect();
        ids.into_iter().for_each(|id| self.renew_key(id, now_ns));
        let left_out = self.slots.values().filter(|slot| slot.slab().is_some() && slot.entry.device_rkey == 0).count();
        // Last: a reader that begins finds the keys of all regions.
        let control = self.hold(CONTROL_SLAB).and_then(|held| held.rkey);
        if let Some(card) = &mut self.card {
            match control {
                Some(rkey) => card.control(rkey),
                None => card.ask_again(now_ns),
            }
            card.tell_left_out(left_out);
            if left_out > 0 {
                card.ask_again(now_ns);
            }
        }
        // What readers' copies were told last, by whoever was here, is not known.
        self.pushed = Pushed::default();
        true
    }

    /// Has readers' copies of the control region written where it has changed since the last call: once per turn of the main loop. Costs nothing where there are none. Where the
    /// holder is just asked for a queue pair the next turn does it; readers look at the host's own header meanwhile.
    pub fn push(&mut self, now_ns: u64) {
        let generation = self.control.generation();
        let Some(card) = self.card.as_ref().filter(|card| card.has_copies()) else {
            return self.pushed.follow(generation, now_ns);
        };
        if !self.pushed.is_at(generation) {
            let changes = self.pushed.changes(self.control.memory().words(), self.control.place().va);
            if card.push(&changes) {
                self.pushed.follow(generation, now_ns);
            }
        }
    }

    /// A slab as the device has it, registered now where it is not; `None` without a device.
    fn hold(&mut self, slab: u32) -> Option<Held> {
        let (kernel, card) = (self.kernel.as_ref()?, self.card.as_mut()?);
        let held = card.held(slab);
        if let Some(held) = held.filter(|held| held.rkey.is_some() || !card.is_connected()) {
            return Some(held);
        }
        let (memory, bytes) = kernel.open_slab(slab).ok()?;
        let mut bases = self.slots.values().filter_map(|slot| slot.base(slab)).peekable();
        let va = match (held, bases.peek().copied()) {
            _ if slab == CONTROL_SLAB => self.control.place().va,
            // An earlier agent's registration, unless no region is there that it fits.
            (Some(held), first) if first.is_none() || bases.any(|base| base == held.va) => held.va,
            (_, Some(first)) => first,
            _ => self.addresses.take_span(bytes).ok()?,
        };
        Some(card.register(slab, memory.as_fd(), va, bytes))
    }

    /// The device's key in a region's entry, where the region's address is that of its slab.
    fn renew_key(&mut self, id: u32, now_ns: u64) {
        let Some(mut slot) = self.slots.remove(&id) else { return };
        let held = slot.slab().and_then(|slab| self.hold(slab).filter(|held| slot.base(slab) == Some(held.va)));
        let device_rkey = held.and_then(|held| held.rkey).unwrap_or(0);
        if slot.entry.device_rkey != device_rkey {
            set_key(&mut slot.entry, device_rkey);
            self.note(&slot, now_ns);
            // The entry was encoded before, so that it fits again.
            let _ = self.control.replace(slot.slot, &Entry::Region(slot.entry.clone()), now_ns);
        }
        self.slots.insert(id, slot);
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

    /// Remembers a range that was given to a program, whose region is not announced yet.
    pub fn reserve(&self, region: &Facts, source: Source, now_ns: u64) {
        let Some(kernel) = &self.kernel else { return };
        let entry = new_entry(region, Address { va: 0, rkey: 0 }, 0);
        let keep = Keep::of(region, source);
        self.check(kernel.put(&Record { entry, stage: Stage::Hidden, keep }, now_ns));
    }

    /// Makes a region readable and announces it.
    ///
    /// # Errors
    /// `bad_request` for labels that do not fit, `quota` where the control region is full, `internal` without randomness. Nothing has changed then.
    pub fn publish(
        &mut self,
        region: &Facts,
        schema: &SchemaText,
        backing: Backing,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        self.publish_in(None, region, schema, backing, now_ns)
    }

    /// The same in the place of the region `old`, which ends: a reader finds the one or the other, never both and never neither.
    ///
    /// # Errors
    /// As [`Directory::publish`], and `internal` where there is no `old`.
    pub fn replace(
        &mut self,
        old: u32,
        region: &Facts,
        schema: &SchemaText,
        backing: Backing,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        let slot = self.slots.get(&old).ok_or_else(|| missing(old))?.slot;
        self.publish_in(Some(slot), region, schema, backing, now_ns)?;
        if let Some(slot) = self.forget(old) {
            self.end(&slot, now_ns);
        }
        Ok(())
    }

    fn publish_in(
        &mut self,
        slot: Option<usize>,
        region: &Facts,
        schema: &SchemaText,
        backing: Backing,
        now_ns: u64,
    ) -> Result<(), Refusal> {
        self.control.hold_schema(schema.id, &schema.name, &schema.canonical, now_ns).map_err(refusal)?;
        match self.announce(slot, region, backing, now_ns) {
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

    /// Announces a region, in a slot that has an entry or a free one.
    fn announce(
        &mut self,
        slot: Option<usize>,
        region: &Facts,
        backing: Backing,
        now_ns: u64,
    ) -> Result<Slot, Refusal> {
        let (memory, source, wanted) = match backing {
            Backing::Tcp(memory) => (Some(memory), None, RESPONDER_TCP),
            Backing::Slab(memory, source) => (Some(memory), Some(source), RESPONDER_TCP | RESPONDER_KERNEL),
            Backing::Kernel(source) => (None, Some(source), RESPONDER_KERNEL),
        };
        let (address, device_rkey) = self
            .place_for(source, region.schema.region_bytes())
            .map_err(|error| Refusal::new(Code::Internal, format!("random address: {error}")))?;
        let mut entry = new_entry(region, address, wanted);
        set_key(&mut entry, device_rkey);
        let mut kept = None;
        if let (Some(kernel), Some(source)) = (&self.kernel, source) {
            // The slot is not known yet, and for the responder's table it does not matter.
            let record = Record { entry: entry.clone(), stage: Stage::Hidden, keep: Keep::of(region, source) };
            if self.check(kernel.add_region(&record)) {
                kept = Some(record.keep);
            } else {
                entry.responders &= !RESPONDER_KERNEL;
            }
        }
        if entry.responders == 0 {
            self.addresses.give(address);
            return Err(Refusal::new(Code::Internal, "the kernel responder's table of regions cannot be changed"));
        }
        if let Some(memory) = memory {
            self.served.insert(address, memory);
        }
        let announced = Entry::Region(entry.clone());
        let put = match slot {
            Some(slot) => self.control.replace(slot, &announced, now_ns).map(|()| slot),
            None => self.control.add(&announced, now_ns),
        };
        match put {
            Ok(slot) => {
                let slot = Slot { slot, entry, keep: kept, removed: false };
                // A kill before this loses the region that nobody was told of yet: its program asks again.
                self.note(&slot, now_ns);
                Ok(slot)
            }
            Err(error) => {
                self.withdraw(address, kept.is_some());
                Err(refusal(error))
            }
        }
    }

    /// An address for a region, and the device's key.
    fn place_for(&mut self, source: Option<Source>, bytes: u64) -> io::Result<(Address, u32)> {
        let held = match source {
            Some(Source::Slab { slab, range }) => self.hold(slab).map(|held| (held, range.offset)),
            _ => None,
        };
        match held {
            Some((held, offset)) => {
                Ok((self.addresses.take_within(held.va.wrapping_add(offset))?, held.rkey.unwrap_or(0)))
            }
            None => Ok((self.addresses.take(bytes)?, 0)),
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

/// A device's key, or that none answers.
fn set_key(entry: &mut RegionEntry, device_rkey: u32) {
    entry.device_rkey = device_rkey;
    entry.responders &= !RESPONDER_VERBS;
    if device_rkey != 0 {
        entry.responders |= RESPONDER_VERBS;
    }
}

fn new_entry(region: &Facts, address: Address, responders: u32) -> RegionEntry {
    RegionEntry {
        identity: Identity::first(region.id, region.generation),
        va: address.va,
        bytes: region.schema.region_bytes(),
        rkey: address.rkey,
        device_rkey: 0,
        responders,
        schema: region.schema.id,
        pid: region.owner.process.pid,
        uid: region.owner.uid,
        created_ns: region.created_ns,
        orphan: false,
        name: region.name.clone(),
        labels: pairs(&region.labels),
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
