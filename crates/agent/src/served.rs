// SPDX-License-Identifier: Apache-2.0
//! What may be read over TCP: rkey to memory. Written by the main thread, read by the connection threads.
//!
//! A lookup holds the read lock for the copy of at most 64 blocks, so that an entry is never freed under a copy. Bounds are exact: a READ lies
//! within one region or gets nothing of it. Cost: a hash lookup and 30 ns a block.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock};

use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::map::Map;
use onlooker_wire::tcp_read::{MAX_READ_BYTES, Read, Refusal};

use crate::host;

/// Alignment of a region's address: the largest page that a card or kernel maps with one entry.
const VA_ALIGNMENT: u64 = 2 << 20;

/// Where a region is for READs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Address of its first byte.
    pub va: u64,
    /// Key.
    pub rkey: u32,
}

#[derive(Debug)]
struct Entry {
    va: u64,
    memory: Map,
}

/// The table.
#[derive(Debug, Default)]
pub struct Served {
    entries: RwLock<HashMap<u32, Entry>>,
}

/// Addresses in use. Owned by the main thread.
#[derive(Debug, Default)]
pub struct Addresses {
    /// First address to end of the span, both multiples of [`VA_ALIGNMENT`].
    spans: BTreeMap<u64, u64>,
    /// With the span that goes with a key, if one does.
    rkeys: HashMap<u32, Option<u64>>,
}

impl Addresses {
    /// A random rkey and a random address that nothing else has; neither tells anything about other regions.
    ///
    /// # Errors
    /// No randomness.
    pub fn take(&mut self, bytes: u64) -> io::Result<Address> {
        let (va, rkey) = (self.take_span(bytes)?, self.unused_rkey()?);
        self.rkeys.insert(rkey, Some(va));
        Ok(Address { va, rkey })
    }

    /// A random rkey for a part of a span.
    ///
    /// # Errors
    /// No randomness.
    pub fn take_within(&mut self, va: u64) -> io::Result<Address> {
        let rkey = self.unused_rkey()?;
        self.rkeys.insert(rkey, None);
        Ok(Address { va, rkey })
    }

    /// A random address that nothing else has, for good.
    ///
    /// # Errors
    /// No randomness.
    pub fn take_span(&mut self, bytes: u64) -> io::Result<u64> {
        let span = bytes.next_multiple_of(VA_ALIGNMENT);
        loop {
            let va = host::random_u64()? & !(VA_ALIGNMENT - 1);
            let Some(end) = va.checked_add(span) else { continue };
            // 0 looks like an address that was forgotten; keep clear of it.
            let before = self.spans.range(..end).next_back();
            if va != 0 && before.is_none_or(|(_, other_end)| *other_end <= va) {
                self.spans.insert(va, end);
                return Ok(va);
            }
        }
    }

    /// Gives such an address back.
    pub fn give_span(&mut self, va: u64) {
        self.spans.remove(&va);
    }

    fn unused_rkey(&self) -> io::Result<u32> {
        loop {
            let rkey = u32::from_le_bytes(host::random()?);
            if rkey != 0 && !self.rkeys.contains_key(&rkey) {
                return Ok(rkey);
            }
        }
    }

    /// An address of a region that was there before. Whether nothing else has it; parts of one span share it.
    pub fn restore(&mut self, address: Address, bytes: u64) -> bool {
        let span = bytes.checked_next_multiple_of(VA_ALIGNMENT).and_then(|span| address.va.checked_add(span));
        let Some(end) = span.filter(|_| !self.rkeys.contains_key(&address.rkey)) else { return false };
        let before = self.spans.range(..end).next_back();
        let free = before.is_none_or(|(_, other_end)| *other_end <= address.va);
        if free {
            self.spans.insert(address.va, end);
        }
        self.rkeys.insert(address.rkey, free.then_some(address.va));
        free
    }

    /// Gives an address back. It is not kept from reuse: it is random.
    pub fn give(&mut self, address: Address) {
        if let Some(Some(va)) = self.rkeys.remove(&address.rkey) {
            self.spans.remove(&va);
        }
    }
}

impl Served {
    /// Makes `memory` readable at `address`.
    pub fn insert(&self, address: Address, memory: Map) {
        let entry = Entry { va: address.va, memory };
        self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(address.rkey, entry);
    }

    /// Makes what is readable under a key readable at another address instead; when this returns no copy by the old one is under way any more.
    pub fn relocate(&self, old_rkey: u32, address: Address) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.remove(&old_rkey) {
            entries.insert(address.rkey, Entry { va: address.va, memory: entry.memory });
        }
    }

    /// Ends it; when this returns no copy is under way any more.
    pub fn remove(&self, rkey: u32) {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(&rkey);
    }

    /// Number of regions that can be read, the control region included.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // the control region is always there
    pub fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Copies what `read` asks for into the front of `out`, with aligned 8-byte loads (block.md, Copying).
    ///
    /// # Errors
    /// `InvalidRequest` for a length or address that is not whole blocks, `Access` for an unknown rkey or a range that is not within its region.
    pub fn read(&self, read: &Read, out: &mut [u8]) -> Result<(), Refusal> {
        let block = BLOCK_BYTES as u64;
        let length = read.length_bytes as usize;
        if length == 0
            || read.length_bytes > MAX_READ_BYTES
            || !length.is_multiple_of(BLOCK_BYTES)
            || !read.va.is_multiple_of(block)
        {
            return Err(Refusal::InvalidRequest);
        }
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(&read.rkey).ok_or(Refusal::Access)?;
        let words = entry.memory.words();
        let from =
            read.va.checked_sub(entry.va).and_then(|offset| usize::try_from(offset / 8).ok()).ok_or(Refusal::Access)?;
        let end = from.checked_add(length / 8).filter(|end| *end <= words.len()).ok_or(Refusal::Access)?;
        for (to, word) in out[..length].as_chunks_mut::<8>().0.iter_mut().zip(&words[from..end]) {
            *to = word.load(Ordering::Relaxed).to_le_bytes();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_region::map::sealed_memfd;

    fn served() -> (Served, Address) {
        let fd = sealed_memfd("served", 8192).unwrap();
        let map = Map::of(&fd, 0, 8192, true).unwrap();
        (0u64..).zip(map.words()).for_each(|(i, word)| word.store(i, Ordering::Relaxed));
        let served = Served::default();
        let address = Address { va: 5 * VA_ALIGNMENT, rkey: 77 };
        // A region of 4 blocks in the middle of a slab of 8.
        served.insert(address, map.window(2 * 128..6 * 128));
        (served, address)
    }

    #[test]
    fn reads_are_exactly_within_their_region() {
        let (served, Address { va, rkey }) = served();
        let mut out = vec![0; MAX_READ_BYTES as usize];
        let mut ask = |va: u64, rkey, length_bytes| {
            served
                .read(&Read { va, rkey, length_bytes }, &mut out)
                .map(|()| u64::from_le_bytes(out[..8].try_into().unwrap()))
        };
        assert_eq!(ask(va, rkey, 1024), Ok(256));
        assert_eq!(ask(va + 3072, rkey, 1024), Ok(256 + 3 * 128));
        assert_eq!(ask(va, rkey, 4096), Ok(256));
        for (va, rkey, length, refusal) in [
            (va, rkey + 1, 1024, Refusal::Access),
            (va + 4096, rkey, 1024, Refusal::Access),
            (va - 1024, rkey, 1024, Refusal::Access),
            (va + 3072, rkey, 2048, Refusal::Access),
            (va, rkey, 5120, Refusal::Access),
            (0, rkey, 1024, Refusal::Access),
            (u64::MAX - 1023, rkey, 1024, Refusal::Access),
            (va, rkey, 0, Refusal::InvalidRequest),
            (va, rkey, 1000, Refusal::InvalidRequest),
            (va + 8, rkey, 1024, Refusal::InvalidRequest),
            (va, rkey, MAX_READ_BYTES + 1024, Refusal::InvalidRequest),
        ] {
            assert_eq!(ask(va, rkey, length), Err(refusal), "{va} {rkey} {length}");
        }
        served.remove(rkey);
        assert_eq!(ask(va, rkey, 1024), Err(Refusal::Access));
    }

    #[test]
    fn parts_of_a_span_have_keys_of_their_own_and_leave_the_span() {
        let mut addresses = Addresses::default();
        let span = addresses.take_span(1 << 20).unwrap();
        let parts: Vec<Address> = (0..8).map(|part| addresses.take_within(span + part * 4096).unwrap()).collect();
        let keys: std::collections::BTreeSet<u32> = parts.iter().map(|part| part.rkey).collect();
        assert_eq!(keys.len(), parts.len());
        parts.iter().for_each(|part| addresses.give(*part));
        assert!(addresses.rkeys.is_empty() && addresses.spans.len() == 1);
        // After a restart: the first of them takes the span, the others their keys.
        let mut again = Addresses::default();
        assert!(parts.iter().enumerate().all(|(at, part)| again.restore(*part, 4096) == (at == 0)));
        assert_eq!((again.rkeys.len(), again.spans.len()), (8, 1));
    }

    #[test]
    fn addresses_are_aligned_apart_and_whole() {
        let mut addresses = Addresses::default();
        let mut taken: Vec<(Address, u64)> = Vec::new();
        for bytes in (0..2000).map(|i| 1024 * (1 + i * 37 % 65_536)) {
            let address = addresses.take(bytes).unwrap();
            assert!(address.va.is_multiple_of(VA_ALIGNMENT) && address.va.checked_add(bytes).is_some());
            taken.push((address, bytes));
        }
        taken.sort_by_key(|(address, _)| address.va);
        assert!(taken.windows(2).all(|pair| pair[0].0.va + pair[0].1 <= pair[1].0.va));
        assert!(taken.iter().all(|(address, bytes)| !addresses.restore(*address, *bytes)));
        let mut again = Addresses::default();
        assert!(taken.iter().all(|(address, bytes)| again.restore(*address, *bytes)));
        taken.iter().for_each(|(address, _)| addresses.give(*address));
        assert!(addresses.spans.is_empty() && addresses.rkeys.is_empty());
    }
}
