// SPDX-License-Identifier: Apache-2.0
//! Announcing a region: an address, the responder's table, its entry in the control region, its record.
//!
//! In that order, so that a reader who finds the entry can read the region. A failure takes back what was done before.

use std::io;

use onlooker_local::registration::{Code, Refusal};
use onlooker_region::block::Identity;
use onlooker_region::control::{Entry, RESPONDER_KERNEL, RESPONDER_TCP, RegionEntry};

use super::device::set_key;
use super::{Backing, Directory, SchemaText, Slot, missing, pairs, refusal};
use crate::facts::Facts;
use crate::kernel::ledger::{Keep, Record, Source, Stage};
use crate::served::Address;

impl Directory {
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
    pub(super) fn place_for(&mut self, source: Option<Source>, bytes: u64) -> io::Result<(Address, u32)> {
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
