// SPDX-License-Identifier: Apache-2.0
//! Parsers of the procfs files that the sampler reads. Plain functions of lines; no allocation per sample.
//!
//! [`Source`] keeps a descriptor and reads it from the start with pread, through a fixed buffer, line by line. procfs text is the kernel's, but
//! it is parsed as if it were anybody's: what does not parse is skipped, never indexed out of bounds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags};

/// Longest part of a line that a parser sees. The `intr` line of /proc/stat is far longer; only its first number is of use.
pub const LINE_BYTES: usize = 4096;

/// A procfs file that is read again and again.
#[derive(Debug)]
pub struct Source<R = File> {
    file: R,
}

impl Source {
    /// Opens a file of procfs.
    ///
    /// # Errors
    /// As opening has it.
    pub fn open(path: &str) -> io::Result<Self> {
        Ok(Self { file: File::open(path)? })
    }
}

impl<R: FileExt> Source<R> {
    /// Calls `line` for each line, without its end; of longer ones it gets the first [`LINE_BYTES`].
    ///
    /// # Errors
    /// As pread has it; lines before the error have been seen.
    pub fn each_line(&self, buffer: &mut [u8; LINE_BYTES], mut line: impl FnMut(&[u8])) -> io::Result<()> {
        let (mut offset, mut kept, mut skipping) = (0u64, 0usize, false);
        loop {
            let got = match self.file.read_at(&mut buffer[kept..], offset) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            offset += got as u64;
            let end = kept + got;
            let mut start = 0;
            while let Some(length) = buffer[start..end].iter().position(|byte| *byte == b'\n') {
                if !skipping {
                    line(&buffer[start..start + length]);
                }
                skipping = false;
                start += length + 1;
            }
            if got == 0 {
                if start < end && !skipping {
                    line(&buffer[start..end]);
                }
                return Ok(());
            }
            if start == 0 && end == LINE_BYTES {
                if !skipping {
                    line(&buffer[..end]);
                }
                skipping = true;
                kept = 0;
            } else {
                buffer.copy_within(start..end, 0);
                kept = end - start;
            }
        }
    }
}

/// Reads a file of at most 4 KiB with one read, as procfs and sysfs want it.
///
/// # Errors
/// As open and read have it, with the path.
pub fn read_small(path: &str) -> io::Result<String> {
    let with_path = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
    let fd =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|e| with_path(e.into()))?;
    let mut buffer = [0; 4096];
    let got = rustix::io::read(&fd, &mut buffer).map_err(|e| with_path(e.into()))?;
    Ok(String::from_utf8_lossy(&buffer[..got]).into_owned())
}

/// Words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A decimal number; `None` for anything else.
#[must_use]
pub fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Modes of /proc/stat's cpu lines in their order, with node_exporter's metric and label; the last two are parts of `user` and `nice`.
pub const CPU_MODES: [(&str, &str); 10] = [
    ("node_cpu_seconds_total", "user"),
    ("node_cpu_seconds_total", "nice"),
    ("node_cpu_seconds_total", "system"),
    ("node_cpu_seconds_total", "idle"),
    ("node_cpu_seconds_total", "iowait"),
    ("node_cpu_seconds_total", "irq"),
    ("node_cpu_seconds_total", "softirq"),
    ("node_cpu_seconds_total", "steal"),
    ("node_cpu_guest_seconds_total", "user"),
    ("node_cpu_guest_seconds_total", "nice"),
];

/// Place of `iowait` in [`CPU_MODES`].
const IOWAIT: usize = 4;

/// What a line of /proc/stat says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stat {
    /// Clock ticks of one CPU, in the order of [`CPU_MODES`].
    Cpu {
        /// Number of the CPU.
        cpu: usize,
        /// Ticks.
        ticks: [u64; CPU_MODES.len()],
    },
    /// Boot time, seconds since 1970.
    BootTime(u64),
    /// Context switches.
    ContextSwitches(u64),
    /// Forks.
    Forks(u64),
    /// Interrupts.
    Interrupts(u64),
    /// Runnable processes.
    Running(u64),
    /// Processes that wait for I/O.
    Blocked(u64),
}

/// A line of /proc/stat; `None` for those of no interest.
#[must_use]
pub fn stat(line: &[u8]) -> Option<Stat> {
    let mut words = words(line);
    let name = words.next()?;
    if let Some(cpu) = name.strip_prefix(b"cpu") {
        // The sum over all CPUs has no number: readers add up themselves.
        let cpu = usize::try_from(number(cpu)?).ok()?;
        let mut ticks = [0; CPU_MODES.len()];
        let mut seen = 0;
        for (tick, word) in ticks.iter_mut().zip(words) {
            *tick = number(word)?;
            seen += 1;
        }
        return (seen >= 4).then_some(Stat::Cpu { cpu, ticks });
    }
    let value = number(words.next()?)?;
    match name {
        b"btime" => Some(Stat::BootTime(value)),
        b"ctxt" => Some(Stat::ContextSwitches(value)),
        b"processes" => Some(Stat::Forks(value)),
        b"intr" => Some(Stat::Interrupts(value)),
        b"procs_running" => Some(Stat::Running(value)),
        b"procs_blocked" => Some(Stat::Blocked(value)),
        _ => None,
    }
}

/// Ticks of a CPU to show, from those shown before and those read now. The kernel's idle and iowait of a tickless CPU are estimates and may be taken
/// back (get_cpu_idle_time_us in kernel/time/tick-sched), which readers would take for the counter's reset. So a mode that went back keeps its value,
/// as in node_exporter; where one fell by `reset_ticks` or more the CPU has begun anew, and all its modes are taken. Not so for iowait: a whole sleep can
/// move from it to idle when the awaited I/O ends elsewhere.
#[must_use]
pub fn steady_ticks(
    old: &[u64; CPU_MODES.len()],
    new: &[u64; CPU_MODES.len()],
    reset_ticks: u64,
) -> [u64; CPU_MODES.len()] {
    let anew = |mode: usize| mode != IOWAIT && old[mode].saturating_sub(new[mode]) >= reset_ticks;
    if (0..CPU_MODES.len()).any(anew) {
        return *new;
    }
    std::array::from_fn(|mode| old[mode].max(new[mode]))
}

/// The three load averages.
#[must_use]
pub fn loadavg(line: &[u8]) -> Option<[f64; 3]> {
    let mut loads = [0.0; 3];
    let mut words = words(line);
    for load in &mut loads {
        *load = std::str::from_utf8(words.next()?).ok()?.parse().ok().filter(|load: &f64| load.is_finite())?;
    }
    Some(loads)
}

/// A line of /proc/meminfo: name, value, whether the value is in kB.
#[must_use]
pub fn meminfo(line: &[u8]) -> Option<(&[u8], u64, bool)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let mut words = words(&line[colon + 1..]);
    let value = number(words.next()?)?;
    Some((&line[..colon], value, words.next() == Some(b"kB")))
}

/// The name that node_exporter gives a line of /proc/meminfo: `Active(anon)` becomes `node_memory_Active_anon_bytes`.
#[must_use]
pub fn meminfo_metric(name: &[u8], kib: bool) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?.replace('(', "_").replace(')', "");
    let fine = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fine.then(|| format!("node_memory_{name}{}", if kib { "_bytes" } else { "" }))
}

/// node_exporter's metrics of /proc/net/dev, in the order of its columns: name, unit, help.
pub const NETWORK_COLUMNS: [(&str, &str, &str); 16] = [
    ("node_network_receive_bytes_total", "bytes", "Received bytes."),
    ("node_network_receive_packets_total", "", "Received packets."),
    ("node_network_receive_errs_total", "", "Receive errors."),
    ("node_network_receive_drop_total", "", "Received packets that were dropped."),
    ("node_network_receive_fifo_total", "", "Receive FIFO errors."),
    ("node_network_receive_frame_total", "", "Receive framing errors."),
    ("node_network_receive_compressed_total", "", "Received compressed packets."),
    ("node_network_receive_multicast_total", "", "Received multicast packets."),
    ("node_network_transmit_bytes_total", "bytes", "Transmitted bytes."),
    ("node_network_transmit_packets_total", "", "Transmitted packets."),
    ("node_network_transmit_errs_total", "", "Transmit errors."),
    ("node_network_transmit_drop_total", "", "Packets dropped on transmission."),
    ("node_network_transmit_fifo_total", "", "Transmit FIFO errors."),
    ("node_network_transmit_colls_total", "", "Collisions."),
    ("node_network_transmit_carrier_total", "", "Carrier losses."),
    ("node_network_transmit_compressed_total", "", "Transmitted compressed packets."),
];

/// A line of /proc/net/dev: device and its 16 counters; `None` for the two header lines.
#[must_use]
pub fn netdev(line: &[u8]) -> Option<(&str, [u64; NETWORK_COLUMNS.len()])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let device = std::str::from_utf8(line[..colon].trim_ascii()).ok().filter(|device| !device.is_empty())?;
    let mut counters = [0; NETWORK_COLUMNS.len()];
    let mut words = words(&line[colon + 1..]);
    for counter in &mut counters {
        *counter = number(words.next()?)?;
    }
    Some((device, counters))
}

/// Number of CPUs from a list as in /sys/devices/system/cpu/present (`0-3,8`): the highest number plus one.
#[must_use]
pub fn cpu_count(list: &str) -> Option<usize> {
    let last = |range: &str| range.rsplit('-').next().and_then(|cpu| cpu.trim().parse::<usize>().ok());
    list.trim().split(',').map(last).try_fold(0, |most, cpu| Some(most.max(cpu? + 1)))
}

/// Name (comm) and start time (field 22, clock ticks since boot) of /proc/PID/stat. The name may hold spaces and parentheses.
#[must_use]
pub fn process_stat(text: &[u8]) -> Option<(String, u64)> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
    // Field 3 follows the name.
    let start = number(words(text.get(close + 1..)?).nth(22 - 3)?)?;
    Some((name, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that gives a few bytes at a time, as seq_file does.
    struct Slow(Vec<u8>, usize);

    impl FileExt for Slow {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = &self.0[self.0.len().min(usize::try_from(offset).unwrap())..];
            let length = rest.len().min(self.1).min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn lines(text: &[u8], at_once: usize) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let source = Source { file: Slow(text.to_vec(), at_once) };
        source.each_line(&mut [0; LINE_BYTES], |line| lines.push(line.to_vec())).unwrap();
        lines
    }

    #[test]
    fn lines_are_the_same_however_they_are_read() {
        bolero::check!().with_type::<(Vec<u8>, u8, u16)>().for_each(|(text, at_once, long)| {
            let mut text = text.clone();
            text.extend(std::iter::repeat_n(b'x', usize::from(*long)));
            text.extend(b"\nlast");
            let mut expected: Vec<Vec<u8>> =
                text.split(|byte| *byte == b'\n').map(|line| line[..line.len().min(LINE_BYTES)].to_vec()).collect();
            expected.retain(|line| !line.is_empty());
            let mut got = lines(&text, usize::from(*at_once) + 1);
            got.retain(|line| !line.is_empty());
            assert_eq!(got, expected);
        });
    }

    #[test]
    fn stat_lines() {
        let cpu = stat(b"cpu12 1 2 3 4 5 6 7 8 9 10 11");
        assert_eq!(cpu, Some(Stat::Cpu { cpu: 12, ticks: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] }));
        assert_eq!(stat(b"cpu0 1 2 3 4"), Some(Stat::Cpu { cpu: 0, ticks: [1, 2, 3, 4, 0, 0, 0, 0, 0, 0] }));
        assert_eq!(stat(b"intr 1234 0 0 0"), Some(Stat::Interrupts(1234)));
        assert_eq!(stat(b"btime 1700000000"), Some(Stat::BootTime(1_700_000_000)));
        for line in ["cpu  1 2 3 4", "cpu0 1", "cpu0 a b c d", "", "softirq 1 2", "ctxt", "ctxt -1"] {
            assert_eq!(stat(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn cpu_times_do_not_step_back() {
        let old = [100, 101, 102, 1000, 104, 105, 106, 107, 108, 109];
        let with = |changes: &[(usize, u64)]| {
            let mut ticks = old;
            changes.iter().for_each(|(mode, value)| ticks[*mode] = *value);
            ticks
        };
        for (read, shown) in [
            (with(&[]), with(&[])),
            (with(&[(0, 110), (3, 1001)]), with(&[(0, 110), (3, 1001)])),
            // Idle and iowait a little back, the others on.
            (with(&[(0, 110), (3, 999), (4, 103)]), with(&[(0, 110)])),
            (with(&[(3, 701), (9, 0)]), with(&[])),
            // Another count altogether.
            (with(&[(0, 1), (3, 700), (4, 20)]), with(&[(0, 1), (3, 700), (4, 20)])),
            (with(&[(5, 5)]), with(&[])),
            ([0; 10], [0; 10]),
        ] {
            assert_eq!(steady_ticks(&old, &read, 300), shown, "{read:?}");
        }
        assert_eq!(steady_ticks(&[0; 10], &old, 300), old, "the first sample");
        let (waited, busy) = (with(&[(4, 9000)]), with(&[(0, 9000)]));
        assert_eq!(steady_ticks(&waited, &old, 300), waited, "iowait that turned out to be idle");
        assert_eq!(steady_ticks(&busy, &old, 300), old, "a CPU that was hardly idle begins anew");
    }

    #[test]
    fn meminfo_lines_have_node_exporters_names() {
        for (line, value, name) in [
            ("MemTotal:       24684264 kB", 24_684_264, "node_memory_MemTotal_bytes"),
            ("Active(anon):      12 kB", 12, "node_memory_Active_anon_bytes"),
            ("HugePages_Total:       3", 3, "node_memory_HugePages_Total"),
        ] {
            let (text, number, kib) = meminfo(line.as_bytes()).unwrap();
            assert_eq!((number, meminfo_metric(text, kib).as_deref()), (value, Some(name)));
        }
        assert_eq!(meminfo(b"MemTotal: lots"), None);
        assert_eq!(meminfo_metric(b"a b", false), None);
    }

    #[test]
    fn netdev_lines() {
        let (device, counters) = netdev(b"  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16").unwrap();
        assert_eq!((device, counters[0], counters[15]), ("eth0", 1, 16));
        assert_eq!(netdev(b" eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16").map(|(device, _)| device), Some("eth0"));
        assert_eq!(netdev(b" face |bytes    packets errs drop"), None);
        assert_eq!(netdev(b"eth0: 1 2 3"), None);
        assert_eq!(netdev(b": 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"), None);
    }

    #[test]
    fn process_names_may_look_like_the_rest() {
        let text = b"77 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(process_stat(text), Some(("a) b (c".into(), 4242)));
        assert_eq!(process_stat(b"77 (a) S 1"), None);
        assert_eq!(process_stat(b")("), None);
    }

    #[test]
    fn cpu_lists() {
        for (list, count) in [("0\n", Some(1)), ("0-3", Some(4)), ("0-3,8-11\n", Some(12)), ("", None), ("a-b", None)] {
            assert_eq!(cpu_count(list), count, "{list:?}");
        }
    }

    #[test]
    fn loads() {
        assert_eq!(loadavg(b"0.38 0.57 1.25 1/99 4242"), Some([0.38, 0.57, 1.25]));
        assert_eq!(loadavg(b"0.38 0.57"), None);
        assert_eq!(loadavg(b"inf 0 0"), None);
    }

    #[test]
    fn no_line_breaks_a_parser() {
        bolero::check!().for_each(|line: &[u8]| {
            let _ = (stat(line), loadavg(line), meminfo(line), netdev(line), process_stat(line));
            let _ = std::str::from_utf8(line).map(cpu_count);
        });
    }

    #[test]
    fn this_machines_files_parse() {
        let mut buffer = Box::new([0; LINE_BYTES]);
        let (mut cpus, mut others, mut memory, mut devices) = (0, 0, 0, 0);
        let mut count = |path: &str, line: &mut dyn FnMut(&[u8])| {
            Source::open(path).expect(path).each_line(&mut buffer, line).expect(path);
        };
        count("/proc/stat", &mut |line| match stat(line) {
            Some(Stat::Cpu { .. }) => cpus += 1,
            Some(_) => others += 1,
            None => {}
        });
        count("/proc/meminfo", &mut |line| memory += usize::from(meminfo(line).is_some()));
        count("/proc/net/dev", &mut |line| devices += usize::from(netdev(line).is_some()));
        assert!(cpus >= 1 && others == 6 && memory >= 20 && devices >= 1, "{cpus} {others} {memory} {devices}");
    }
}
