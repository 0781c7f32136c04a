// SPDX-License-Identifier: Apache-2.0
//! Which files of a control group have which values, in both versions of cgroups (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ of the kernel), and how they are read.
//!
//! Pure. What is not there is 0, and so is what does not parse: a controller that is turned off takes away its files, and its lines of cpu.stat.

use super::super::schema::{Column, counter, gauge};

/// Values of a group, as columns of its row. Names are cAdvisor's where it has them.
pub(super) const COLUMNS: [Column; 27] = [
    counter("container_cpu_usage_seconds_total", "CPU time.").seconds(1e-9),
    counter("container_cpu_user_seconds_total", "CPU time in user mode.").seconds(1e-9),
    counter("container_cpu_system_seconds_total", "CPU time in the kernel.").seconds(1e-9),
    counter("container_cpu_cfs_periods_total", "Periods of CPU bandwidth control."),
    counter("container_cpu_cfs_throttled_periods_total", "Of these, periods in which it was throttled."),
    counter("container_cpu_cfs_throttled_seconds_total", "Time for which it was throttled.").seconds(1e-9),
    gauge("container_memory_usage_bytes", "Memory charged to it, page cache included.").bytes(),
    gauge("container_memory_working_set_bytes", "Of this, all but inactive file pages.").bytes(),
    gauge("container_memory_rss", "Anonymous memory.").bytes(),
    gauge("container_memory_cache", "Page cache.").bytes(),
    gauge("container_memory_swap", "Swap.").bytes(),
    gauge("container_memory_max_usage_bytes", "Most memory that it has had.").bytes(),
    gauge("container_spec_memory_limit_bytes", "Memory limit; 0: none.").bytes(),
    counter("container_memory_failcnt", "Times that memory was at its limit."),
    counter("container_oom_events_total", "Processes that the OOM killer has killed."),
    counter("container_fs_reads_bytes_total", "Bytes read from block devices.").bytes(),
    counter("container_fs_writes_bytes_total", "Bytes written to block devices.").bytes(),
    counter("container_fs_reads_total", "Reads of block devices."),
    counter("container_fs_writes_total", "Writes to block devices."),
    gauge("container_threads", "Tasks."),
    gauge("container_threads_max", "Most tasks that it may have; 0: no limit."),
    counter("container_pressure_cpu_waiting_seconds_total", "Time in which some task waited for a CPU.").seconds(1e-6),
    counter("container_pressure_cpu_stalled_seconds_total", "Time in which all tasks waited for a CPU.").seconds(1e-6),
    counter("container_pressure_memory_waiting_seconds_total", "Time in which some task waited for memory.")
        .seconds(1e-6),
    counter("container_pressure_memory_stalled_seconds_total", "Time in which all tasks waited for memory.")
        .seconds(1e-6),
    counter("container_pressure_io_waiting_seconds_total", "Time in which some task waited for I/O.").seconds(1e-6),
    counter("container_pressure_io_stalled_seconds_total", "Time in which all tasks waited for I/O.").seconds(1e-6),
];

/// Slot of each column.
const USAGE: usize = 0;
const USER: usize = 1;
const SYSTEM: usize = 2;
const PERIODS: usize = 3;
const THROTTLED: usize = 4;
const THROTTLED_TIME: usize = 5;
const MEMORY: usize = 6;
const WORKING_SET: usize = 7;
const RSS: usize = 8;
const CACHE: usize = 9;
const SWAP: usize = 10;
const PEAK: usize = 11;
const LIMIT: usize = 12;
const FAILURES: usize = 13;
const OOM: usize = 14;
const READ_BYTES: usize = 15;
const WRITTEN_BYTES: usize = 16;
const READS: usize = 17;
const WRITES: usize = 18;
const TASKS: usize = 19;
const TASKS_MAX: usize = 20;
const CPU_PRESSURE: usize = 21;
const MEMORY_PRESSURE: usize = 23;
const IO_PRESSURE: usize = 25;
/// Behind the columns: what the working set is computed from.
const INACTIVE: usize = COLUMNS.len();
/// Numbers that a reading has.
pub const NUMBERS: usize = COLUMNS.len() + 1;

/// From this on a v1 limit is none (PAGE_COUNTER_MAX in linux/page_counter.h, in bytes).
const NO_LIMIT: u64 = i64::MAX as u64 - (1 << 20);
/// ns of a tick as procfs and cgroupfs have them (USER_HZ is 100 on all architectures but alpha and ia64).
const TICK_NS: u64 = 10_000_000;

/// How a file is read.
#[derive(Debug, Clone, Copy)]
pub enum Format {
    /// One number, or `max`, which is 0.
    Number(usize),
    /// Lines of a name and a number: slot and factor of those that count.
    Named(&'static [(&'static str, usize, u64)]),
    /// `some ... total=` and `full ... total=`, in two slots from here on.
    Pressure(usize),
    /// Lines of a device and `name=number`s, summed over devices.
    Devices(&'static [(&'static str, usize)]),
    /// Lines of a device, `Read` or `Write`, and a number, summed over devices, in these slots.
    Operations(usize, usize),
}

/// A file of each control group.
#[derive(Debug, Clone, Copy)]
pub struct File {
    /// Hierarchy of version 1; version 2 has one.
    pub hierarchy: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What is in it.
    pub format: Format,
}

const fn file(hierarchy: &'static str, name: &'static str, format: Format) -> File {
    File { hierarchy, name, format }
}

/// Of version 2.
pub const V2: &[File] = &[
    file(
        "",
        "cpu.stat",
        Format::Named(&[
            ("usage_usec", USAGE, 1000),
            ("user_usec", USER, 1000),
            ("system_usec", SYSTEM, 1000),
            ("nr_periods", PERIODS, 1),
            ("nr_throttled", THROTTLED, 1),
            ("throttled_usec", THROTTLED_TIME, 1000),
        ]),
    ),
    file("", "memory.current", Format::Number(MEMORY)),
    file("", "memory.stat", Format::Named(&[("anon", RSS, 1), ("file", CACHE, 1), ("inactive_file", INACTIVE, 1)])),
    file("", "memory.swap.current", Format::Number(SWAP)),
    file("", "memory.peak", Format::Number(PEAK)),
    file("", "memory.max", Format::Number(LIMIT)),
    file("", "memory.events", Format::Named(&[("max", FAILURES, 1), ("oom_kill", OOM, 1)])),
    file(
        "",
        "io.stat",
        Format::Devices(&[("rbytes", READ_BYTES), ("wbytes", WRITTEN_BYTES), ("rios", READS), ("wios", WRITES)]),
    ),
    file("", "pids.current", Format::Number(TASKS)),
    file("", "pids.max", Format::Number(TASKS_MAX)),
    file("", "cpu.pressure", Format::Pressure(CPU_PRESSURE)),
    file("", "memory.pressure", Format::Pressure(MEMORY_PRESSURE)),
    file("", "io.pressure", Format::Pressure(IO_PRESSURE)),
];

/// Of version 1. It has no pressure of groups.
pub const V1: &[File] = &[
    file("cpuacct", "cpuacct.usage", Format::Number(USAGE)),
    file("cpuacct", "cpuacct.stat", Format::Named(&[("user", USER, TICK_NS), ("system", SYSTEM, TICK_NS)])),
    file(
        "cpu",
        "cpu.stat",
        Format::Named(&[
            ("nr_periods", PERIODS, 1),
            ("nr_throttled", THROTTLED, 1),
            ("throttled_time", THROTTLED_TIME, 1),
        ]),
    ),
    file("memory", "memory.usage_in_bytes", Format::Number(MEMORY)),
    file(
        "memory",
        "memory.stat",
        Format::Named(&[
            ("total_rss", RSS, 1),
            ("total_cache", CACHE, 1),
            ("total_swap", SWAP, 1),
            ("total_inactive_file", INACTIVE, 1),
        ]),
    ),
    file("memory", "memory.max_usage_in_bytes", Format::Number(PEAK)),
    file("memory", "memory.limit_in_bytes", Format::Number(LIMIT)),
    file("memory", "memory.failcnt", Format::Number(FAILURES)),
    file("memory", "memory.oom_control", Format::Named(&[("oom_kill", OOM, 1)])),
    file("blkio", "blkio.throttle.io_service_bytes_recursive", Format::Operations(READ_BYTES, WRITTEN_BYTES)),
    file("blkio", "blkio.throttle.io_serviced_recursive", Format::Operations(READS, WRITES)),
    file("pids", "pids.current", Format::Number(TASKS)),
    file("pids", "pids.max", Format::Number(TASKS_MAX)),
];

fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    if text == b"max" {
        return Some(0);
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Sets a file's slots to 0.
pub fn clear(format: Format, values: &mut [u64; NUMBERS]) {
    match format {
        Format::Number(slot) => values[slot] = 0,
        Format::Named(wanted) => wanted.iter().for_each(|(_, slot, _)| values[*slot] = 0),
        Format::Pressure(first) => values[first..first + 2].fill(0),
        Format::Devices(wanted) => wanted.iter().for_each(|(_, slot)| values[*slot] = 0),
        Format::Operations(reads, writes) => (values[reads], values[writes]) = (0, 0),
    }
}

/// Puts what a file says into its slots.
pub fn take(format: Format, text: &[u8], values: &mut [u64; NUMBERS]) {
    clear(format, values);
    let lines = || text.split(|byte| *byte == b'\n');
    let words = |line| <[u8]>::split(line, |byte| *byte == b' ');
    match format {
        Format::Number(slot) => {
            if let Some(number) = number(text) {
                values[slot] = number;
            }
        }
        Format::Named(wanted) => {
            for line in lines() {
                let mut words = words(line);
                let Some(name) = words.next() else { continue };
                let found = wanted.iter().find(|(wanted, ..)| wanted.as_bytes() == name);
                if let (Some((_, slot, factor)), Some(value)) = (found, words.next().and_then(number)) {
                    values[*slot] = value.saturating_mul(*factor);
                }
            }
        }
        Format::Pressure(first) => {
            for line in lines() {
                let mut words = words(line);
                let slot = match words.next() {
                    Some(b"some") => first,
                    Some(b"full") => first + 1,
                    _ => continue,
                };
                if let Some(total) = words.find_map(|word| word.strip_prefix(b"total=").and_then(number)) {
                    values[slot] = total;
                }
            }
        }
        Format::Devices(wanted) => {
            for word in lines().flat_map(words) {
                let Some(at) = word.iter().position(|byte| *byte == b'=') else { continue };
                let found = wanted.iter().find(|(name, _)| name.as_bytes() == &word[..at]);
                if let (Some((_, slot)), Some(value)) = (found, number(&word[at + 1..])) {
                    values[*slot] = values[*slot].saturating_add(value);
                }
            }
        }
        Format::Operations(reads, writes) => {
            for line in lines() {
                let mut words = words(line).skip(1);
                let slot = match words.next() {
                    Some(b"Read") => reads,
                    Some(b"Write") => writes,
                    _ => continue,
                };
                if let Some(value) = words.next().and_then(number) {
                    values[slot] = values[slot].saturating_add(value);
                }
            }
        }
    }
}

/// What follows from other values.
pub fn finish(values: &mut [u64; NUMBERS]) {
    values[WORKING_SET] = values[MEMORY].saturating_sub(values[INACTIVE]);
    if values[LIMIT] >= NO_LIMIT {
        values[LIMIT] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[File], texts: &[(&str, &str)]) -> [u64; NUMBERS] {
        let mut values = [0; NUMBERS];
        for (name, text) in texts {
            let file = files.iter().find(|file| file.name == *name).unwrap_or_else(|| panic!("{name}"));
            take(file.format, text.as_bytes(), &mut values);
        }
        finish(&mut values);
        values
    }

    #[test]
    fn version_2() {
        let values = read(
            V2,
            &[
                (
                    "cpu.stat",
                    "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnr_periods 4\nnr_throttled 1\nthrottled_usec 9\n",
                ),
                ("memory.current", "1000\n"),
                ("memory.stat", "anon 300\nfile 600\ninactive_file 250\nactive_file 350\n"),
                ("memory.max", "max\n"),
                ("memory.events", "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n"),
                (
                    "io.stat",
                    "8:16 rbytes=100 wbytes=200 rios=1 wios=2 dbytes=0 dios=0\n8:0 rbytes=11 wbytes=22 rios=3 wios=4 dbytes=0 dios=0\n253:1 \n",
                ),
                ("pids.current", "7\n"),
                ("pids.max", "512\n"),
                (
                    "cpu.pressure",
                    "some avg10=0.00 avg60=0.00 avg300=0.00 total=41\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=40\n",
                ),
                (
                    "io.pressure",
                    "some avg10=1.50 avg60=0.00 avg300=0.00 total=43\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=42\n",
                ),
            ],
        );
        assert_eq!(values[..6], [30_000, 20_000, 10_000, 4, 1, 9_000]);
        assert_eq!(values[6..15], [1000, 750, 300, 600, 0, 0, 0, 3, 5]);
        assert_eq!(values[15..21], [111, 222, 4, 6, 7, 512]);
        assert_eq!(values[21..27], [41, 40, 0, 0, 43, 42]);
    }

    #[test]
    fn version_1() {
        let values = read(
            V1,
            &[
                ("cpuacct.usage", "123456789\n"),
                ("cpuacct.stat", "user 7\nsystem 5\n"),
                ("cpu.stat", "nr_periods 4\nnr_throttled 1\nthrottled_time 99\n"),
                ("memory.usage_in_bytes", "1000\n"),
                ("memory.stat", "cache 1\nrss 2\ntotal_cache 600\ntotal_rss 300\ntotal_inactive_file 250\n"),
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"),
                (
                    "blkio.throttle.io_service_bytes_recursive",
                    "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\n8:16 Read 1\nTotal 31\n",
                ),
                ("blkio.throttle.io_serviced_recursive", "8:0 Read 1\n8:0 Write 2\nTotal 3\n"),
                ("pids.current", "7\n"),
            ],
        );
        assert_eq!(values[..6], [123_456_789, 70_000_000, 50_000_000, 4, 1, 99]);
        assert_eq!(values[6..15], [1000, 750, 300, 600, 0, 0, 0, 0, 5]);
        assert_eq!(values[15..21], [11, 20, 1, 2, 7, 0]);
    }

    #[test]
    fn nonsense_is_0() {
        for text in
            [&b"\xff\xfe\n\n \0"[..], b"", b"some total=\nfull total=x\nusage_usec -1\nanon 99999999999999999999\n"]
        {
            let mut values = [9; NUMBERS];
            V1.iter().chain(V2).for_each(|file| take(file.format, text, &mut values));
            values[WORKING_SET] = 0;
            assert_eq!(values, [0; NUMBERS]);
        }
    }

    #[test]
    fn lines_that_go_leave_0() {
        let mut values = [0; NUMBERS];
        take(V2[0].format, b"usage_usec 30\nnr_periods 4\nthrottled_usec 9\n", &mut values);
        assert_eq!(values[..6], [30_000, 0, 0, 4, 0, 9_000]);
        take(V2[0].format, b"usage_usec 31\n", &mut values);
        assert_eq!(values[..6], [31_000, 0, 0, 0, 0, 0], "without the controller cpu.stat has only what was used");
    }
}
