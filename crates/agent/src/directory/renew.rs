// SPDX-License-Identifier: Apache-2.0
//! New addresses and keys for everything that is served: whoever reads by the old ones reads nothing any more. Regions, their memory, identities and programs stay.
//!
//! A kill in between leaves old keys to nobody who is not ended by the next agent: the renewal is not noted yet, so it begins new keys once more. Each region's record is
//! written between its new entry in the responder's table and the end of the old one, so that recovery keeps exactly one of them; only a kill while the control region itself
//! is moved (10 ms) costs regions, whose programs register again. Cost: a few map updates a region, and a grace period of RCU.

use onlooker_region::control::{RESPONDER_KERNEL, RegionEntry};
use onlooker_responder::barrier::wait_for_programs;

use super::device::set_key;
use super::push::Pushed;
use super::{Directory, DirectoryError, Slot};
use crate::served::Address;

impl Directory {
    /// Gives the control region and all regions new addresses and keys, ends the old ones, and has the device's holder end its queue pairs and registrations.
    ///
    /// # Errors
    /// No randomness, tables that cannot be changed. Some of the old keys are good then: call it again.
    pub fn renew_keys(&mut self, now_ns: u64) -> Result<(), DirectoryError> {
        if let Some(card) = &mut self.card {
            for va in card.revoke(now_ns) {
                self.addresses.give_span(va);
            }
        }
        // Emptied first: addresses of slabs that are not registered anywhere are guessed from those of their regions.
        let mut left: Vec<Slot> = std::mem::take(&mut self.slots).into_values().collect();
        let mut result = Ok(());
        while let Some(mut slot) = left.pop() {
            result = self.renew_slot(&mut slot, now_ns);
            self.slots.insert(slot.entry.identity.region, slot);
            if result.is_err() {
                break;
            }
        }
        self.slots.extend(left.into_iter().map(|slot| (slot.entry.identity.region, slot)));
        result?;
        self.renew_telemetry(now_ns)?;
        self.move_control(now_ns)?;
        // Copies of the old one are told nothing any more.
        self.pushed = Pushed::default();
        self.card_due(now_ns);
        Ok(())
    }

    /// Whether readers by a device may still read by old keys: its holder could not be asked to end them.
    #[must_use]
    pub fn is_revoking(&self) -> bool {
        self.card.as_ref().is_some_and(crate::card::Card::is_revoking)
    }

    /// A region's, but for its entry in the control region.
    fn renew_slot(&mut self, slot: &mut Slot, now_ns: u64) -> Result<(), DirectoryError> {
        let old = slot.address();
        let source = slot.keep.as_ref().map(|keep| keep.source);
        let (address, device_rkey) = self.place_for(source, slot.entry.bytes)?;
        (slot.entry.va, slot.entry.rkey) = (address.va, address.rkey);
        set_key(&mut slot.entry, device_rkey);
        if let (Some(kernel), Some(record)) = (&self.kernel, slot.record())
            && slot.entry.responders & RESPONDER_KERNEL != 0
            && !self.check(kernel.add_region(&record))
        {
            slot.entry.responders &= !RESPONDER_KERNEL;
        }
        self.served.relocate(old.rkey, address);
        self.note(slot, now_ns);
        if let (Some(kernel), true) = (&self.kernel, slot.keep.is_some()) {
            kernel.remove_region(old.rkey);
        }
        self.addresses.give(old);
        Ok(())
    }

    /// The control region last: its entries tell the new keys, so nobody may read them by the old one.
    fn move_control(&mut self, now_ns: u64) -> Result<(), DirectoryError> {
        let place = self.control.place();
        let old = Address { va: place.va, rkey: place.rkey };
        let address = self.addresses.take(self.bytes)?;
        if let Some(kernel) = self.kernel.clone() {
            kernel.move_control(address)?;
            kernel.remove_region(old.rkey);
            // Reads under way by the old key.
            wait_for_programs();
        }
        self.served.relocate(old.rkey, address);
        self.addresses.give(old);
        let regions: Vec<(usize, RegionEntry)> =
            self.slots.values().map(|slot| (slot.slot, slot.entry.clone())).collect();
        // The entries were encoded before, so that they fit again.
        let _ = self.control.relocate((address.va, address.rkey), &regions, now_ns);
        Ok(())
    }
}
