// SPDX-License-Identifier: Apache-2.0
//! Telemetry tables in the directory: a part of one is a region of the responder, and an entry that says what the table is like.

use onlooker_local::registration::{Code, Refusal};
use onlooker_region::control::{Entry, RESPONDER_KERNEL, TableEntry};
use onlooker_region::limits::BLOCK_BYTES;

use super::{Directory, DirectoryError, refusal};
use crate::kernel::telemetry::{Part, TableState};
use crate::served::Address;

/// A part of a table that is announced.
pub(super) struct Announced {
    slot: usize,
    entry: TableEntry,
    part: Part,
}

impl Announced {
    const fn address(&self) -> Address {
        Address { va: self.entry.va, rkey: self.entry.rkey }
    }
}

impl Directory {
    /// Makes tables readable, and says so.
    ///
    /// # Errors
    /// `internal`: the responder's table, or no randomness; `quota`: no entry is free.
    pub fn publish_telemetry(&mut self, tables: &[TableState], now_ns: u64) -> Result<(), Refusal> {
        for table in tables {
            for (number, part) in (0..).zip(table.parts()) {
                let address = self.take_part(part).map_err(|error| Refusal::new(Code::Internal, error.to_string()))?;
                let entry = TableEntry {
                    geometry: table.geometry,
                    seed: table.seed,
                    number: table.number,
                    part: number,
                    va: address.va,
                    bytes: bytes(part),
                    rkey: address.rkey,
                    responders: RESPONDER_KERNEL,
                    created_ns: now_ns,
                    name: table.name.clone(),
                };
                let slot = self.control.add(&Entry::Table(entry.clone()), now_ns).map_err(refusal)?;
                self.telemetry.push(Announced { slot, entry, part });
            }
        }
        Ok(())
    }

    /// Gives them new addresses and keys.
    pub(super) fn renew_telemetry(&mut self, now_ns: u64) -> Result<(), DirectoryError> {
        for mut table in std::mem::take(&mut self.telemetry) {
            let old = table.address();
            let address = self.take_part(table.part)?;
            (table.entry.va, table.entry.rkey) = (address.va, address.rkey);
            // It was encoded before, so that it fits again.
            let _ = self.control.replace(table.slot, &Entry::Table(table.entry.clone()), now_ns);
            self.withdraw(old, true);
            self.telemetry.push(table);
        }
        Ok(())
    }

    fn take_part(&mut self, part: Part) -> Result<Address, DirectoryError> {
        let address = self.addresses.take(bytes(part))?;
        if let Some(kernel) = &self.kernel {
            kernel.add_part(address, part)?;
        }
        Ok(address)
    }
}

fn bytes((_, _, blocks): Part) -> u64 {
    u64::from(blocks) * BLOCK_BYTES as u64
}
