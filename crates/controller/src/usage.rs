// SPDX-License-Identifier: Apache-2.0
//! What this process takes of its machine, and how much there is of it: /proc/self, control groups, network devices.
//!
//! Nobody but the kernel writes these; the answer to one who asks is kept for a second, so that many scrapes cost what
//! one does: some 10 us a thread. Times by thread never fall, whatever threads come and go: of those that ended
//! between two looks, what is not known is `OTHER`'s, and all together are the process's.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use rustix::param::clock_ticks_per_second;
use rustix::system::sysinfo;
use rustix::time::{ClockId, clock_gettime};

/// Nothing is looked at more often.
const AGE: Duration = Duration::from_secs(1);
/// Threads under their own names.
const NAMED: [&str; 10] =
    ["engine", "store", "cold", "own", "rules", "alertmanager", "forward", "files", "query", "http"];
/// Those with a number each, and a core each to fill. Configuration bounds how many there are.
const PROCESSOR: &str = "processor-";
/// Threads of any other name, and what cannot be told apart.
const OTHER: &str = "other";
/// Megabits a second, as sysfs has them, in bytes.
const MEGABIT_BYTES: f64 = 125_000.0;

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// CPU time by thread, s.
    pub(crate) threads_s: BTreeMap<String, f64>,
    /// Resident memory by kind, bytes.
    pub(crate) memory_bytes: Vec<(&'static str, u64)>,
    /// Of the machine, or of a control group that allows less.
    pub(crate) memory_limit_bytes: Option<u64>,
    /// Processors that this process may use.
    pub(crate) cpus: usize,
    /// Devices with an address that hosts are read from, and what they carry, bytes/s.
    pub(crate) links: Vec<(String, f64)>,
}

/// Who looks.
#[derive(Debug, Default)]
pub struct Usage(Mutex<Looked>);

#[derive(Debug, Default)]
struct Looked {
    at: Option<Instant>,
    threads: Threads,
    last: Look,
}

impl Usage {
    /// What there is now, or was within [`AGE`]. `locals`: addresses that hosts are read from.
    pub(crate) fn look(&self, locals: impl FnOnce() -> BTreeSet<IpAddr>) -> Look {
        let mut looked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.at.is_none_or(|at| at.elapsed() >= AGE) {
            looked.at = Some(Instant::now());
            looked.threads.count(tasks(), process_s());
            looked.last = Look {
                threads_s: looked.threads.by_name.clone(),
                memory_bytes: fs::read_to_string("/proc/self/status").map(|text| resident(&text)).unwrap_or_default(),
                memory_limit_bytes: memory_limit_bytes(),
                cpus: available_parallelism().map_or(1, usize::from),
                links: links(&locals()),
            };
        }
        looked.last.clone()
    }
}

/// CPU time by name.
#[derive(Debug, Default)]
struct Threads {
    /// Of each thread, s.
    seen: HashMap<u32, f64>,
    by_name: BTreeMap<String, f64>,
}

impl Threads {
    /// `tasks`: number, name and CPU time of each thread; `process_s`: of all, those that have ended included.
    fn count(&mut self, tasks: Vec<(u32, String, f64)>, process_s: f64) {
        let mut seen = HashMap::with_capacity(tasks.len());
        for (task, name, time_s) in tasks {
            // A number whose time fell is another thread's.
            let before_s = self.seen.get(&task).copied().filter(|before_s| *before_s <= time_s).unwrap_or(0.0);
            seen.insert(task, time_s);
            let name = shown(&name);
            if name != OTHER {
                *self.by_name.entry(name.to_owned()).or_default() += time_s - before_s;
            }
        }
        self.seen = seen;
        let named_s: f64 = self.by_name.iter().filter(|(name, _)| *name != OTHER).map(|(_, time_s)| time_s).sum();
        let other_s = self.by_name.entry(OTHER.to_owned()).or_default();
        *other_s = other_s.max(process_s - named_s);
    }
}

/// Under which name a thread is shown: there are few, whatever threads are called.
fn shown(name: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match name {
        _ if NAMED.contains(&name) => name,
        _ if name.strip_prefix(PROCESSOR).is_some_and(is_number) => name,
        _ if name.strip_prefix("connect-").is_some_and(is_number) => "connect",
        _ => OTHER,
    }
}

fn process_s() -> f64 {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default().as_secs_f64()
}

fn tasks() -> Vec<(u32, String, f64)> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let task = |entry: fs::DirEntry| {
        let (name, time_s) = task_of(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
        Some((entry.file_name().to_str()?.parse().ok()?, name, time_s))
    };
    entries.flatten().filter_map(task).collect()
}

/// Name and CPU time of a line of `stat` (proc_pid_stat(5)): a name may have brackets in it.
fn task_of(stat: &str) -> Option<(String, f64)> {
    let (name, fields) = stat.split_once('(')?.1.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11).map(|field| field.parse::<u32>().ok().map(f64::from));
    let ticks = times.next()?? + times.next()??;
    #[allow(clippy::cast_precision_loss)] // a hundred
    Some((name.to_owned(), ticks / clock_ticks_per_second() as f64))
}

/// Kinds of memory in a `status`, bytes: the kernel takes back what is of files.
fn resident(status: &str) -> Vec<(&'static str, u64)> {
    let kinds = [("anonymous", "RssAnon:"), ("file", "RssFile:"), ("shared", "RssShmem:")];
    let kib = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    kinds.into_iter().filter_map(|(kind, key)| Some((kind, kib(key)? << 10))).collect()
}

pub(crate) fn memory_limit_bytes() -> Option<u64> {
    let info = sysinfo();
    let machine = u64::from(info.mem_unit).checked_mul(info.totalram).filter(|bytes| *bytes > 0);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(group_limit_bytes(&groups, Path::new("/sys/fs/cgroup"))).min()
}

/// The least that a control group of ours or one above it allows, of either version (cgroups(7), /proc/pid/cgroup).
fn group_limit_bytes(groups: &str, root: &Path) -> Option<u64> {
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let (top, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let limit = |group: &Path| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        let group: PathBuf = top.join(path);
        group.ancestors().take_while(|group| group.starts_with(&top)).filter_map(limit).min()
    };
    groups.lines().filter_map(of_line).min()
}

/// What the devices with these addresses carry. Those of virtual machines seldom say.
fn links(locals: &BTreeSet<IpAddr>) -> Vec<(String, f64)> {
    let Ok(addresses) = getifaddrs() else { return Vec::new() };
    let ip = |address: &SockaddrStorage| match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(address), _) => Some(IpAddr::V4(address.ip())),
        (_, Some(address)) => Some(IpAddr::V6(address.ip())),
        _ => None,
    };
    let is_ours =
        |address: &Option<SockaddrStorage>| address.as_ref().and_then(ip).is_some_and(|ip| locals.contains(&ip));
    let ours = addresses.filter(|found| is_ours(&found.address)).map(|found| found.interface_name);
    let devices: BTreeSet<String> = ours.collect();
    let speed = |device: &String| {
        let text = fs::read_to_string(Path::new("/sys/class/net").join(device).join("speed")).ok()?;
        text.trim().parse::<f64>().ok().filter(|megabits| *megabits > 0.0)
    };
    let known = |device: String| speed(&device).map(|megabits| (device, megabits * MEGABIT_BYTES));
    devices.into_iter().filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u32, name: &str, time_s: f64) -> (u32, String, f64) {
        (number, name.to_owned(), time_s)
    }

    #[test]
    fn times_never_fall_and_are_together_the_process() {
        let mut threads = Threads::default();
        threads.count(vec![task(1, "onlooker", 0.5), task(2, "engine", 2.0), task(3, "query", 1.0)], 4.0);
        assert_eq!((threads.by_name["engine"], threads.by_name["query"], threads.by_name[OTHER]), (2.0, 1.0, 1.0));
        // The query's thread has ended after another quarter of a second; its number is a shorter one's now.
        threads.count(vec![task(1, "onlooker", 0.5), task(2, "engine", 3.0), task(3, "query", 0.25)], 5.5);
        assert_eq!((threads.by_name["engine"], threads.by_name["query"], threads.by_name[OTHER]), (3.0, 1.25, 1.25));
        // Times of threads are coarser than the process's.
        threads.count(vec![task(2, "engine", 4.5)], 5.6);
        assert_eq!((threads.by_name["engine"], threads.by_name[OTHER]), (4.5, 1.25));
    }

    #[test]
    fn there_are_few_names() {
        for (name, expected) in [
            ("engine", "engine"),
            ("processor-12", "processor-12"),
            ("processor-x", OTHER),
            ("processor-", OTHER),
            ("connect-7", "connect"),
            ("anything", OTHER),
        ] {
            assert_eq!(shown(name), expected);
        }
    }

    #[test]
    fn files_of_the_kernel_are_understood() {
        let stat = "77 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1";
        let (name, time_s) = task_of(stat).unwrap();
        #[allow(clippy::cast_precision_loss)]
        let expected_s = 200.0 / clock_ticks_per_second() as f64;
        assert!(name == "a) b (c" && (time_s - expected_s).abs() < 1e-9, "{name} {time_s}");
        assert!(task_of("77 (cut").is_none() && task_of("77 (cut) S 1").is_none());
        let status = "Name:\tx\nVmRSS:\t    9 kB\nRssAnon:\t    4 kB\nRssFile:\t    3 kB\nRssShmem:\t   2 kB\n";
        assert_eq!(resident(status), [("anonymous", 4096), ("file", 3072), ("shared", 2048)]);
        assert!(resident("RssAnon: no\n").is_empty());
    }

    #[test]
    fn the_least_of_all_control_groups_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "4096\n");
        write("memory/c/memory.limit_in_bytes", "1024\n");
        let limit = |groups| group_limit_bytes(groups, dir.path());
        assert_eq!(limit("0::/a/b\n"), Some(4096));
        assert_eq!(limit("7:cpu:/c\n3:x,memory:/c\n0::/a\n"), Some(1024));
        assert_eq!(limit("0::/none\n1:cpu:/c\nnonsense\n"), None);
    }

    #[test]
    fn this_process_is_looked_at() {
        let look = Usage::default().look(BTreeSet::new);
        let used_s: f64 = look.threads_s.values().sum();
        assert!(used_s > 0.0 && look.cpus > 0 && look.links.is_empty(), "{look:?}");
        let resident: u64 = look.memory_bytes.iter().map(|(_, bytes)| bytes).sum();
        assert!(resident > 1 << 20 && look.memory_limit_bytes.is_some_and(|limit| limit > resident), "{look:?}");
    }
}
