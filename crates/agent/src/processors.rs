// SPDX-License-Identifier: Apache-2.0
//! Processors that are added while the agent runs. Metrics know the processors that were there when they were made, so sums would leave the new ones out without a word.
//! Where regions go on without the agent (the kernel responder) and a service manager starts it anew, it ends; else it says so.

use std::path::{Path, PathBuf};

use onlooker_metrics::procfs::cpu_count;

/// Least time between two looks; each is a read of a file of some bytes.
const PAUSE_NS: u64 = 10_000_000_000;
const PRESENT: &str = "/sys/devices/system/cpu/present";

/// The processors of the beginning.
#[derive(Debug)]
pub struct Processors {
    path: PathBuf,
    known: Option<usize>,
    next_ns: u64,
}

impl Processors {
    /// Those that are there now.
    #[must_use]
    pub fn known() -> Self {
        Self::of(Path::new(PRESENT))
    }

    fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), known: count(path), next_ns: 0 }
    }

    /// The highest number plus one, where that is more than before; once for each change.
    pub fn more(&mut self, now_ns: u64) -> Option<usize> {
        if now_ns < self.next_ns {
            return None;
        }
        self.next_ns = now_ns.saturating_add(PAUSE_NS);
        let now = count(&self.path)?;
        let before = self.known.filter(|known| *known >= now);
        if before.is_none() && self.known.replace(now).is_some() { Some(now) } else { None }
    }
}

fn count(path: &Path) -> Option<usize> {
    cpu_count(&std::fs::read_to_string(path).ok()?)
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
        assert_eq!(processors.more(1), None);
        std::fs::write(&path, "0-7\n").unwrap();
        assert_eq!(processors.more(PAUSE_NS), None, "too soon");
        assert_eq!(processors.more(PAUSE_NS + 1), Some(8));
        let mut now_ns = 3 * PAUSE_NS;
        for text in ["0-7\n", "0-3\n", "0,2-7\n", "", "nonsense\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(processors.more(now_ns), None, "{text}");
            now_ns += PAUSE_NS;
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(processors.more(now_ns), None);
        let mut late = Processors::of(&path);
        std::fs::write(&path, "0-3\n").unwrap();
        assert_eq!(late.more(1), None, "nothing was known before");
    }

    #[test]
    fn this_machines_do_not_change() {
        assert_eq!(Processors::known().more(u64::MAX), None);
    }
}
