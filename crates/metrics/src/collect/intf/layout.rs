// SPDX-License-Identifier: Apache-2.0
//! For tests: what a header asserts of its structs, beside what the Rust side does.

use std::collections::BTreeSet;

/// A header that asserts with COLLECT_SIZE and COLLECT_OFFSET.
pub(crate) struct Header(pub(crate) &'static str);

impl Header {
    /// The offsets that the header asserts of a struct are those at which `bytes` have these values, each of which is
    /// there once.
    pub(crate) fn is_laid_out(&self, name: &str, bytes: &[u8], fields: &[(&str, &[u8])]) {
        let ours: BTreeSet<String> = fields
            .iter()
            .map(|(field, value)| {
                let found: Vec<usize> =
                    bytes.windows(value.len()).enumerate().filter(|(_, at)| at == value).map(|(at, _)| at).collect();
                assert_eq!(found.len(), 1, "{name}.{field}");
                format!("COLLECT_OFFSET({name}, {field}, {});", found[0])
            })
            .collect();
        let prefix = format!("COLLECT_OFFSET({name}, ");
        let lines = self.0.lines().filter(|line| line.starts_with(&prefix));
        assert_eq!(ours, lines.map(str::to_owned).collect());
    }

    pub(crate) fn has_offset(&self, name: &str, field: &str, at: usize) {
        let line = format!("COLLECT_OFFSET({name}, {field}, {at});");
        assert!(self.0.contains(&line), "{line}");
    }

    pub(crate) fn has_size(&self, name: &str, bytes: usize) {
        let line = format!("COLLECT_SIZE({name}, {bytes});");
        assert!(self.0.contains(&line), "{line}");
    }

    /// The number that a name is defined as.
    pub(crate) fn defined(&self, name: &str) -> u32 {
        let line = self.0.lines().find(|line| line.starts_with(&format!("#define {name} "))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// A number none of whose bytes is another's.
pub(crate) fn word(number: u8) -> u64 {
    u64::from_le_bytes([number; 8])
}

/// The same, of four bytes.
pub(crate) fn half(number: u8) -> u32 {
    u32::from_le_bytes([number; 4])
}
