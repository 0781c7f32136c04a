// SPDX-License-Identifier: Apache-2.0
//! Gives back the pages of the program's own file that were mapped while it worked: a long-lived process that mostly sleeps needs few of them again.
//!
//! The kernel maps sixteen pages around each one that is touched, so that starting, and forty registrations, make nearly all of a program resident, what it never runs included. Pages that
//! are dropped here stay in the page cache and are mapped again when they are touched (a minor fault, about a microsecond). Lossless by what the kernel itself says:
//! only mappings are dropped that cannot be written and of which no page was ever written (`Anonymous: 0 kB`), so not the relocated part of read-only data.
#![allow(unsafe_code)]

use std::fs;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Drops what can be dropped; returns how many bytes of address space that was. Where procfs does not tell, nothing is.
pub fn release_program() -> usize {
    let (Ok(program), Ok(smaps)) = (fs::read_link("/proc/self/exe"), fs::read_to_string("/proc/self/smaps")) else {
        return 0;
    };
    let clean = clean_mappings(&smaps, &program.to_string_lossy());
    let release = |range: &Range<usize>| {
        let bytes = range.len();
        // SAFETY: a private mapping of a file without a page of its own: what is dropped is read from the file again, the same. The kernel checks that the range is
        // mapped; nobody unmaps the program's own text.
        let released = unsafe { madvise(std::ptr::without_provenance_mut(range.start), bytes, Advice::LinuxDontNeed) };
        if released.is_ok() { bytes } else { 0 }
    };
    clean.iter().map(release).sum()
}

/// The mappings of `program` in a text like /proc/self/smaps that are not writable and have no page that differs from the file.
fn clean_mappings(smaps: &str, program: &str) -> Vec<Range<usize>> {
    let mut clean = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        let mut fields = line.split_ascii_whitespace();
        match fields.next() {
            Some("Anonymous:") if fields.next() == Some("0") => clean.extend(candidate.take()),
            Some(range) if range.contains('-') => {
                let private = fields.next().is_some_and(|rights| rights.ends_with('p') && !rights.contains('w'));
                // Offset, device, inode; the rest of the line is the path.
                candidate = range_of(range).filter(|_| private && line.ends_with(&format!(" {program}")));
            }
            _ => {}
        }
    }
    clean
}

fn range_of(text: &str) -> Option<Range<usize>> {
    let (begin, end) = text.split_once('-')?;
    let parse = |text| usize::from_str_radix(text, 16).ok();
    Some(parse(begin)?..parse(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clean_read_only_mappings_of_the_program_are_named() {
        let mapping = |range: &str, rights: &str, path: &str, own: u32| {
            format!(
                "{range} {rights} 00001000 fe:00 1234                     {path}\nSize: 4 kB\nAnonymous:           {own} kB\nVmFlags: rd ex\n"
            )
        };
        let smaps = [
            mapping("1000-2000", "r--p", "/usr/bin/a program", 0),
            mapping("2000-3000", "r-xp", "/usr/bin/a program", 0),
            mapping("3000-4000", "r--p", "/usr/bin/a program", 4),
            mapping("4000-5000", "rw-p", "/usr/bin/a program", 0),
            mapping("5000-6000", "r-xs", "/usr/bin/a program", 0),
            mapping("6000-7000", "r-xp", "/usr/lib/another program", 0),
            mapping("7000-8000", "r-xp", "", 0),
        ];
        assert_eq!(clean_mappings(&smaps.concat(), "/usr/bin/a program"), [0x1000..0x2000, 0x2000..0x3000]);
        assert!(clean_mappings("rubbish - \nAnonymous: 0 kB\n", "x").is_empty());
    }

    #[test]
    fn a_program_goes_on_with_less() {
        let text_kib = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
            line.split_ascii_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap()
        };
        let before = text_kib();
        assert!(release_program() > 0);
        let after = text_kib();
        assert!(after < before, "{after} of {before} KiB");
    }
}
