// SPDX-License-Identifier: Apache-2.0
//! The tables that a host's directory names. It is not trusted: what does not fit together is no table.

use std::collections::BTreeMap;

use onlooker_dta::Geometry;
use onlooker_region::control::{Directory, Entry, TABLE_PART_BYTES, TableEntry};
use onlooker_region::limits::BLOCK_BYTES;

/// A table, and where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// What it is like.
    pub geometry: Geometry,
    /// Address and key of each part.
    parts: Vec<(u64, u32)>,
    /// Bytes of it that can be read.
    bytes: u64,
}

impl Table {
    /// All tables of a directory that are there as a whole, by number.
    #[must_use]
    pub fn all(directory: &Directory) -> Vec<Self> {
        let mut parts: BTreeMap<u16, BTreeMap<u8, &TableEntry>> = BTreeMap::new();
        for entry in directory.entries() {
            if let Entry::Table(part) = entry {
                parts.entry(part.number).or_default().insert(part.part, part);
            }
        }
        parts.values().filter_map(Self::of).collect()
    }

    pub(crate) fn of(parts: &BTreeMap<u8, &TableEntry>) -> Option<Self> {
        let (_, first) = parts.first_key_value()?;
        let geometry = Geometry::from_bits(first.geometry, first.seed)?;
        let is_whole = (0..).zip(parts).all(|(number, (at, part))| {
            let is_last = usize::from(number) + 1 == parts.len();
            let alike = (part.geometry, part.seed, &part.name) == (first.geometry, first.seed, &first.name);
            *at == number && alike && (is_last || part.bytes == TABLE_PART_BYTES)
        });
        let bytes = parts.values().map(|part| part.bytes).sum();
        let (name, number) = (first.name.clone(), first.number);
        let parts = parts.values().map(|part| (part.va, part.rkey)).collect();
        (is_whole && bytes >= geometry.len_bytes()).then_some(Self { name, number, geometry, parts, bytes })
    }

    /// Address and key of the block that has the byte at `offset`.
    pub(crate) fn block(&self, offset: u64) -> Option<(u64, u32)> {
        let (va, rkey) = self.parts.get(usize::try_from(offset / TABLE_PART_BYTES).ok()?)?;
        let block = offset % TABLE_PART_BYTES / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        (offset < self.bytes).then_some((va + block, *rkey))
    }
}

#[cfg(test)]
mod tests {
    use onlooker_dta::key_write::{CheckBytes, Table as KeyWrite};

    use super::*;

    fn part(number: u16, part: u8, bytes: u64, geometry: Geometry) -> TableEntry {
        TableEntry {
            geometry: geometry.to_bits(),
            seed: geometry.seed(),
            number,
            part,
            va: u64::from(part + 1) << 40,
            bytes,
            rkey: 100 + u32::from(part),
            responders: 2,
            created_ns: 1,
            name: "flows".into(),
        }
    }

    fn table(parts: &[TableEntry]) -> Option<Table> {
        Table::of(&parts.iter().map(|part| (part.part, part)).collect())
    }

    #[test]
    fn only_whole_tables_are_tables() {
        let geometry = |slots_log2| {
            Geometry::KeyWrite(KeyWrite { seed: [1; 16], slots_log2, payload_bytes: 20, check: CheckBytes::Eight })
        };
        let small = geometry(10);
        let good = part(3, 0, small.len_bytes(), small);
        let found = table(std::slice::from_ref(&good)).unwrap();
        assert_eq!((found.geometry, found.number), (small, 3));
        assert_eq!(found.block(5000), Some((good.va + 4096, 100)));
        assert_eq!(found.block(small.len_bytes()), None);
        assert_eq!(table(&[TableEntry { bytes: 1024, ..good.clone() }]), None, "shorter than what it is like");
        assert_eq!(table(&[TableEntry { geometry: 7, ..good.clone() }]), None);
        assert_eq!(table(&[TableEntry { part: 1, ..good }]), None, "its beginning is missing");
        // 32 bytes an entry.
        let large = geometry(26);
        let parts = [part(3, 0, TABLE_PART_BYTES, large), part(3, 1, TABLE_PART_BYTES, large)];
        let found = table(&parts).unwrap();
        assert_eq!(found.block(TABLE_PART_BYTES + 1500), Some(((2 << 40) + 1024, 101)));
        assert_eq!(table(&parts[..1]), None);
        let [first, second] = parts;
        assert_eq!(table(&[first.clone(), TableEntry { seed: [2; 16], ..second.clone() }]), None, "of another table");
        assert_eq!(table(&[TableEntry { bytes: 1 << 29, ..first }, second]), None);
    }
}
