// SPDX-License-Identifier: Apache-2.0
//! The threads of NAPI instances: `napi/DEVICE-NUMBER`, in the process list of every network namespace.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// `SCHED_FIFO` of linux/sched.h.
const FIFO: u32 = 1;

/// How a thread is scheduled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thread {
    /// Its process number.
    pub pid: u32,
    /// Its priority in SCHED_FIFO; 0: it is an ordinary one.
    pub priority: u8,
    /// The CPUs that it may use.
    pub cpus: String,
}

/// Process numbers of a device's threads by NAPI number.
#[must_use]
pub fn of_device(name: &str) -> BTreeMap<u32, u32> {
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|text| text.parse().ok()) else { continue };
        let Ok(comm) = fs::read_to_string(entry.path().join("comm")) else { continue };
        // 0: a transmit queue's.
        if let Some(napi) = parse_name(comm.trim_end(), name).filter(|napi| *napi != 0) {
            threads.insert(napi, pid);
        }
    }
    threads
}

fn parse_name(comm: &str, device: &str) -> Option<u32> {
    comm.strip_prefix("napi/")?.strip_prefix(device)?.strip_prefix('-')?.parse().ok()
}

/// How it is scheduled; `None`: it has ended.
#[must_use]
pub fn look(pid: u32) -> Option<Thread> {
    let directory = Path::new("/proc").join(pid.to_string());
    let stat = fs::read_to_string(directory.join("stat")).ok()?;
    // proc(5): behind the name in brackets come fields 3 and on; rt_priority is 40, policy 41.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (priority, policy): (u8, u32) = (fields.get(37)?.parse().ok()?, fields.get(38)?.parse().ok()?);
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
    Some(Thread { pid, priority: if policy == FIFO { priority } else { 0 }, cpus })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_threads() {
        assert_eq!(parse_name("napi/eth0-8199", "eth0"), Some(8199));
        assert_eq!(parse_name("napi/eth0-1-8199", "eth0"), None);
        assert_eq!(parse_name("napi/eth0-1-8199", "eth0-1"), Some(8199));
        assert_eq!(parse_name("ksoftirqd/0", "eth0"), None);
    }

    #[test]
    fn this_process_is_an_ordinary_one() {
        let thread = look(std::process::id()).unwrap();
        assert_eq!(thread.priority, 0);
        assert!(!thread.cpus.is_empty());
    }
}
