// SPDX-License-Identifier: Apache-2.0
//! The RDMA device that answers beside the kernel responder. Its holder registers the slabs, the regions' entries
//! carry its keys, and it writes readers' copies of the control region.
//!
//! The main thread calls this: when it may look for the holder, when a region gets a place in a slab, and once a turn
//! of the loop. The device does not answer for a region whose entry has no key.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

use onlooker_region::control::{Entry, RESPONDER_VERBS, RegionEntry};

use super::push::Pushed;
use super::{Directory, Slot};
use crate::card::{Card, Held};
use crate::kernel::CONTROL_SLAB;

impl Directory {
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
    pub(super) fn hold(&mut self, slab: u32) -> Option<Held> {
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
    pub(super) fn renew_key(&mut self, id: u32, now_ns: u64) {
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
}

/// A device's key, or that none answers.
pub(super) fn set_key(entry: &mut RegionEntry, device_rkey: u32) {
    entry.device_rkey = device_rkey;
    entry.responders &= !RESPONDER_VERBS;
    if device_rkey != 0 {
        entry.responders |= RESPONDER_VERBS;
    }
}
