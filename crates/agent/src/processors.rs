// SPDX-License-Identifier: Apache-2.0
//! Processors that are added while the agent runs. Metrics know the processors that were there when they were made, so sums would leave the new ones out without a word:
//! the agent ends, where a service manager starts it anew at once, and regions of programs and of the kernel responder go on meanwhile.

use std::path::{Path, PathBuf};

/// Time between two looks; each is a read of a file of some bytes.
const PAUSE_NS: u64 = 10_000_000_000;
const PRESENT: &str = "/sys/devices/system/cpu/present";

/// The processors of the beginning.
#[derive(Debug)]
pub struct Processors {
    path: PathBuf,
    known: Option<String>,
    next_ns: u64,
}

impl Processors {
    /// Those that are there now.
    #[must_use]
    pub fn known() -> Self {
        Self::of(Path::new(PRESENT))
    }

    fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), known: std::fs::read_to_string(path).ok(), next_ns: 0 }
    }

    /// The list of processors, where it is another one than before; at most once in ten seconds, and once for each change.
    pub fn changed(&mut self, now_ns: u64) -> Option<&str> {
        if now_ns < self.next_ns {
            return None;
        }
        self.next_ns = now_ns.saturating_add(PAUSE_NS);
        let now = std::fs::read_to_string(&self.path).ok()?;
        if self.known.as_ref() == Some(&now) {
            return None;
        }
        self.known = Some(now);
        self.known.as_deref().map(str::trim_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_and_not_looked_for_all_the_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("present");
        std::fs::write(&path, "0-3\n").unwrap();
        let mut processors = Processors::of(&path);
        assert_eq!(processors.changed(1), None);
        std::fs::write(&path, "0-7\n").unwrap();
        assert_eq!(processors.changed(PAUSE_NS), None, "too soon");
        assert_eq!(processors.changed(PAUSE_NS + 1), Some("0-7"));
        assert_eq!(processors.changed(3 * PAUSE_NS), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(processors.changed(5 * PAUSE_NS), None, "nothing is known of what cannot be read");
    }

    #[test]
    fn this_machines_do_not_change() {
        assert_eq!(Processors::known().changed(u64::MAX), None);
    }
}
