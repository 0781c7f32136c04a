// SPDX-License-Identifier: Apache-2.0
//! /proc/kallsyms: addresses of a few names, and where each function ends.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// All names that collectors ask for.
pub(super) const WANTED: [&str; 27] = [
    "_totalram_pages",
    "alloc_empty_file",
    "avenrun",
    "blk_mq_in_flight",
    "deferred_pages",
    "deferred_pages_count",
    "dev_get_tstats64",
    "files_stat",
    "get_avenrun",
    "loadavg_proc_show",
    "loopback_get_stats64",
    "meminfo_proc_show",
    "nr_files",
    "nr_threads",
    "proc_nr_files",
    "psi_cpu_show",
    "psi_io_show",
    "psi_memory_show",
    "psi_system",
    "runqueues",
    "show_stat",
    "si_mem_available",
    "si_meminfo",
    "total_forks",
    "veth_get_stats64",
    "vm_node_stat",
    "vm_zone_stat",
];

/// What the file says.
pub(super) struct Symbols {
    addresses: HashMap<String, u64>,
    /// Of all functions, in order.
    functions: Vec<u64>,
    lines: usize,
    data: usize,
    trouble: Option<String>,
}

impl Symbols {
    /// Reads the file; trouble is told by [`Symbols::summary`]. Without `data` only functions have addresses.
    pub(super) fn read(path: &str, wanted: &[&str], data: bool) -> Self {
        let mut symbols = Self { addresses: HashMap::new(), functions: Vec::new(), lines: 0, data: 0, trouble: None };
        match File::open(path) {
            Ok(file) => symbols.add(BufReader::new(file), wanted, data),
            Err(error) => symbols.trouble = Some(format!("{path}: {error}; mount procfs, or build with KALLSYMS")),
        }
        symbols
    }

    fn add(&mut self, mut file: impl BufRead, wanted: &[&str], data: bool) {
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            if let Ok(text) = std::str::from_utf8(&line) {
                let mut words = text.split_ascii_whitespace();
                // Symbols of modules have a fourth word; modules go, and something else is at their addresses then.
                if let (Some(address), Some(kind), Some(name), None) =
                    (words.next(), words.next(), words.next(), words.next())
                {
                    self.lines += 1;
                    let address = u64::from_str_radix(address, 16).unwrap_or(0);
                    let function = matches!(kind, "t" | "T" | "w" | "W");
                    if function {
                        self.functions.push(address);
                    } else if data {
                        self.data += 1;
                    }
                    if (function || data) && wanted.contains(&name) {
                        self.addresses.entry(name.to_owned()).or_insert(address);
                    }
                }
            }
            line.clear();
        }
        self.functions.sort_unstable();
        if self.functions.last().is_none_or(|last| *last == 0) {
            self.addresses.clear();
            self.trouble =
                Some("addresses are hidden: kernel.kptr_restrict is set, or CAP_SYSLOG is missing".to_owned());
        }
    }

    /// For people.
    pub(super) fn summary(&self) -> Result<String, String> {
        match &self.trouble {
            Some(trouble) => Err(trouble.clone()),
            None => Ok(format!(
                "{} functions, {} other symbols{}",
                self.functions.len(),
                self.data,
                if self.data < 1000 { " (no KALLSYMS_ALL: data is found otherwise)" } else { "" }
            )),
        }
    }

    /// Of a variable or function.
    pub(super) fn address(&self, name: &str) -> Option<u64> {
        self.addresses.get(name).copied()
    }

    /// Where a function begins and how long it is at most.
    pub(super) fn function(&self, name: &str) -> Option<(u64, usize)> {
        let begin = self.address(name)?;
        let next = self.functions.partition_point(|address| *address <= begin);
        let end = self.functions.get(next)?;
        Some((begin, usize::try_from(end - begin).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_functions_end_where_the_next_begins() {
        let text = b"ffffffff81000000 T get_avenrun\nffffffff81000040 t next\nffffffff82000000 B avenrun\n\
            ffffffffc0000000 t avenrun\t[module]\nnonsense\n";
        let mut symbols =
            Symbols { addresses: HashMap::new(), functions: Vec::new(), lines: 0, data: 0, trouble: None };
        symbols.add(&text[..], &WANTED, true);
        assert_eq!(symbols.address("avenrun"), Some(0xffff_ffff_8200_0000));
        assert_eq!(symbols.function("get_avenrun"), Some((0xffff_ffff_8100_0000, 0x40)));
        assert_eq!(symbols.function("next"), None);
        assert!(symbols.summary().is_ok());
        let mut functions =
            Symbols { addresses: HashMap::new(), functions: Vec::new(), lines: 0, data: 0, trouble: None };
        functions.add(&text[..text.iter().position(|byte| *byte == b'B').unwrap()], &WANTED, false);
        assert_eq!((functions.address("avenrun"), functions.functions.len()), (None, 2));
    }

    #[test]
    fn hidden_addresses_are_told() {
        let mut symbols =
            Symbols { addresses: HashMap::new(), functions: Vec::new(), lines: 0, data: 0, trouble: None };
        symbols.add(&b"0000000000000000 T get_avenrun\n"[..], &WANTED, true);
        assert_eq!(symbols.address("get_avenrun"), None);
        assert!(symbols.summary().unwrap_err().contains("kptr_restrict"));
    }
}
