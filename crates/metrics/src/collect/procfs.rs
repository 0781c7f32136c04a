// SPDX-License-Identifier: Apache-2.0
//! What procfs says of the metrics that collectors compute: what they are checked against.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

/// Values by series, and how far from the true value each may be.
pub(crate) type Reading = HashMap<String, Procfs>;

/// A value of procfs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Procfs {
    /// As exported; not a number where procfs has none.
    pub(crate) value: f64,
    /// What rounding may have taken off or added; where procfs has none, the most that the value can be.
    pub(crate) rounding: f64,
}

impl Procfs {
    /// A number that procfs prints as it is.
    #[allow(clippy::cast_precision_loss, reason = "as exported")]
    pub(crate) fn exact(value: u64) -> Self {
        Self { value: value as f64, rounding: 0.0 }
    }

    /// procfs has no such value: all that can be said is that it is 0 to `most`.
    pub(crate) fn none(most: f64) -> Self {
        Self { value: f64::NAN, rounding: most }
    }
}

/// A series by name and labels, in one form for kernel and procfs.
pub(crate) fn series<'a>(name: &str, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let labels: BTreeMap<&str, &str> = labels.into_iter().collect();
    let labels: Vec<String> = labels.into_iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
    format!("{name}{{{}}}", labels.join(","))
}

/// Modes of a `cpu` line of /proc/stat in its order: metric, mode.
const STAT_MODES: [(&str, &str); 10] = [
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

/// /proc/stat. Run queues and context switches are there as sums: series without a label `cpu`.
pub(crate) fn cpu() -> io::Result<Reading> {
    let text = fs::read_to_string("/proc/stat")?;
    let hertz = f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100));
    let mut reading = Reading::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next() else { continue };
        let numbers = words.map_while(|word| word.parse::<u64>().ok());
        #[allow(clippy::cast_precision_loss, reason = "as exported")]
        let mut numbers = numbers.map(|number| number as f64);
        match name {
            "ctxt" | "procs_running" => {
                let metric =
                    if name == "ctxt" { "onlooker_context_switches_total" } else { "onlooker_run_queue_length" };
                let value = numbers.next().unwrap_or(0.0);
                reading.insert(series(metric, []), Procfs { value, rounding: 0.0 });
            }
            _ => {
                let Some(cpu) = name.strip_prefix("cpu").filter(|cpu| !cpu.is_empty()) else { continue };
                for ((metric, mode), ticks) in STAT_MODES.into_iter().zip(numbers) {
                    let key = series(metric, [("cpu", cpu), ("mode", mode)]);
                    reading.insert(key, Procfs { value: ticks / hertz, rounding: 1.0 / hertz });
                }
            }
        }
    }
    Ok(reading)
}

/// The three averages of /proc/loadavg.
pub(crate) fn loads() -> io::Result<[f64; 3]> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let mut words = text.split_ascii_whitespace().map_while(|word| word.parse::<f64>().ok());
    let mut next = || words.next().ok_or(io::ErrorKind::InvalidData);
    Ok([next()?, next()?, next()?])
}

/// /proc/loadavg.
pub(crate) fn load() -> io::Result<Reading> {
    let names = ["node_load1", "node_load5", "node_load15"];
    let series =
        names.into_iter().zip(loads()?).map(|(name, value)| (series(name, []), Procfs { value, rounding: 0.01 }));
    Ok(series.collect())
}

/// Threads: behind the slash of /proc/loadavg.
pub(crate) fn threads() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let word = text.split_ascii_whitespace().nth(3).and_then(|word| word.split_once('/')?.1.parse().ok());
    word.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Open files and the most that there can be: /proc/sys/fs/file-nr. It is kept open, since it counts itself, and between two looks the kernel is to have as many.
pub(crate) fn files() -> io::Result<(u64, u64)> {
    static FILE: OnceLock<File> = OnceLock::new();
    let path = "/proc/sys/fs/file-nr";
    let file = match FILE.get() {
        Some(file) => file,
        None => {
            let opened = File::open(path)?;
            FILE.get_or_init(|| opened)
        }
    };
    let mut buffer = [0; 96];
    let length = file.read_at(&mut buffer, 0)?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    let mut numbers = text.split_ascii_whitespace().map_while(|word| word.parse().ok());
    let mut next = |skip: usize| numbers.nth(skip).ok_or(io::ErrorKind::InvalidData);
    Ok((next(0)?, next(1)?))
}

/// Processes that /proc shows: all there are, in the first pid namespace and without hidepid.
pub(crate) fn processes() -> io::Result<u64> {
    let is_process = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
    Ok(fs::read_dir("/proc")?.flatten().filter(is_process).count() as u64)
}

/// Lines of a name and a number.
pub(crate) fn numbers(path: &str) -> io::Result<HashMap<String, u64>> {
    let text = fs::read_to_string(path)?;
    let lines = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(|separator: char| separator == ':' || separator.is_ascii_whitespace())?;
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some((name.to_owned(), value))
    });
    Ok(lines.collect())
}

/// /proc/meminfo, and the sum of its file pages.
pub(crate) fn memory() -> io::Result<Reading> {
    let numbers = numbers("/proc/meminfo")?;
    let kib = |name: &str| numbers.get(name).copied().unwrap_or(0);
    let files = kib("Cached") + kib("Buffers") + kib("SwapCached");
    #[allow(clippy::cast_precision_loss, reason = "as exported")]
    let value = |kib: u64| Procfs { value: (kib * 1024) as f64, rounding: 0.0 };
    let mut reading = Reading::from([(series(crate::groups::memory::computed::FILE_PAGES, []), value(files))]);
    for (name, kib) in &numbers {
        let name = name.replace('(', "_").replace(')', "");
        reading.insert(series(&format!("node_memory_{name}_bytes"), []), value(*kib));
    }
    // The kernel takes boosts off, once of the file pages and once of what it can reclaim of its own; the collector does not.
    #[allow(clippy::cast_precision_loss, reason = "page counts are far below 2^53")]
    let boosts = 2.0 * (zones()?.boost_pages * rustix::param::page_size() as u64) as f64;
    if let Some(available) = reading.get_mut(&series("node_memory_MemAvailable_bytes", [])) {
        available.rounding = boosts;
    }
    Ok(reading)
}

/// What MemFree has beyond vm_zone_stat, found while nothing moves.
pub(crate) fn deferred_pages(page_bytes: u32) -> io::Result<i64> {
    let free = || Ok::<_, io::Error>(numbers("/proc/vmstat")?.get("nr_free_pages").copied().unwrap_or(0));
    let mut deferred = 0;
    for _ in 0..100 {
        let before = free()?;
        let total = numbers("/proc/meminfo")?.get("MemFree").copied().unwrap_or(0) * 1024 / u64::from(page_bytes);
        deferred = total.cast_signed() - before.cast_signed();
        if free()? == before {
            break;
        }
    }
    Ok(deferred)
}

/// What MemAvailable leaves out: constants of the kernel until a sysctl or memory hotplug changes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Zones {
    /// As calculate_totalreserve_pages of mm/page_alloc.c.
    pub(crate) total_reserve_pages: u64,
    /// Sum of the zones' low watermarks, without boosts.
    pub(crate) watermark_low_pages: u64,
    /// What all watermarks of the zones are higher by at present (boost_watermark of mm/page_alloc.c), until kswapd has freed as much.
    pub(crate) boost_pages: u64,
}

/// /proc/zoneinfo.
pub(crate) fn zones() -> io::Result<Zones> {
    Ok(zones_of(&fs::read_to_string("/proc/zoneinfo")?))
}

fn zones_of(text: &str) -> Zones {
    let mut zones = Zones::default();
    // A zone's lines: `Node 0, zone DMA`, then among others boost, low, high, managed, protection; low and high have the boost in them (wmark_pages).
    for zone in text.split("Node ").skip(1) {
        let number = |key: &str| {
            let line = zone.lines().find(|line| line.split_ascii_whitespace().next() == Some(key));
            line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
        };
        let boost = number("boost");
        zones.boost_pages += boost;
        // As the kernel: watermarks of all zones, reserves of those that have pages.
        zones.watermark_low_pages += number("low").saturating_sub(boost);
        let protection = zone.lines().find_map(|line| line.trim().strip_prefix("protection: (")?.strip_suffix(')'));
        let protection =
            protection.into_iter().flat_map(|list| list.split(", ")).filter_map(|pages| pages.parse().ok());
        let reserve = protection.max().unwrap_or(0u64) + number("high").saturating_sub(boost);
        zones.total_reserve_pages += reserve.min(number("managed"));
    }
    zones
}

/// Columns of /proc/net/dev behind the name that are collected: metric, place.
const DEVICE_COLUMNS: [(&str, usize); 6] = [
    ("node_network_receive_bytes_total", 0),
    ("node_network_receive_packets_total", 1),
    ("node_network_receive_drop_total", 3),
    ("node_network_transmit_drop_total", 11),
    ("node_network_transmit_bytes_total", 8),
    ("node_network_transmit_packets_total", 9),
];

/// Devices of the calling thread's network namespace and their counters.
fn devices() -> io::Result<Vec<(String, Vec<u64>)>> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")?;
    let lines = text.lines().skip(2).filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        Some((name.trim().to_owned(), numbers.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()))
    });
    Ok(lines.collect())
}

/// Devices of the calling thread's network namespace.
pub(crate) fn device_names() -> io::Result<Vec<String>> {
    Ok(devices()?.into_iter().map(|(name, _)| name).collect())
}

/// /proc/net/dev, which has sums over CPUs.
pub(crate) fn network() -> io::Result<Reading> {
    let mut reading = Reading::new();
    for (device, numbers) in devices()? {
        for (metric, column) in DEVICE_COLUMNS {
            #[allow(clippy::cast_precision_loss, reason = "as exported")]
            let value = numbers.get(column).copied().unwrap_or(0) as f64;
            reading.insert(series(metric, [("device", device.as_str())]), Procfs { value, rounding: 0.0 });
        }
    }
    Ok(reading)
}

/// /proc/net/snmp, netstat and snmp6 of the calling thread's namespace, as node_netstat_*.
pub(crate) fn netstat() -> io::Result<Reading> {
    let mut reading = Reading::new();
    let mut add = |name: String, value: &str| {
        if let Ok(value) = value.parse() {
            reading.insert(series(&format!("node_netstat_{name}"), []), Procfs { value, rounding: 0.0 });
        }
    };
    for path in ["/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"] {
        let text = fs::read_to_string(path)?;
        let lines: Vec<&str> = text.lines().collect();
        // A line of names, a line of values.
        for pair in lines.chunks_exact(2) {
            let (Some((protocol, names)), Some((_, values))) = (pair[0].split_once(':'), pair[1].split_once(':'))
            else {
                continue;
            };
            for (name, value) in names.split_ascii_whitespace().zip(values.split_ascii_whitespace()) {
                add(format!("{protocol}_{name}"), value);
            }
        }
    }
    // Not there without IPv6.
    for line in fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default().lines() {
        let mut words = line.split_ascii_whitespace();
        if let (Some(name), Some(value)) = (words.next(), words.next())
            && let Some((protocol, name)) = name.split_once('6')
        {
            add(format!("{protocol}6_{name}"), value);
        }
    }
    Ok(reading)
}

/// /proc/net/softnet_stat: hexadecimal columns, a line a CPU that is online, whose number is the 13th column.
pub(crate) fn softnet() -> io::Result<Reading> {
    let text = fs::read_to_string("/proc/net/softnet_stat")?;
    let mut reading = Reading::new();
    for (line, at) in text.lines().zip(0u32..) {
        let columns: Vec<u32> =
            line.split_ascii_whitespace().map_while(|word| u32::from_str_radix(word, 16).ok()).collect();
        let cpu = columns.get(12).copied().unwrap_or(at).to_string();
        for (metric, _, column, _) in crate::groups::softnet::computed::METRICS {
            if let Some(value) = columns.get(column) {
                let value = Procfs { value: f64::from(*value), rounding: 0.0 };
                reading.insert(series(metric, [("cpu", cpu.as_str())]), value);
            }
        }
    }
    Ok(reading)
}

/// /proc/net/sockstat and sockstat6 of the calling thread's namespace, as node_sockstat_*.
pub(crate) fn sockstat() -> io::Result<Reading> {
    let mut text = fs::read_to_string("/proc/thread-self/net/sockstat")?;
    // Not there without IPv6.
    text.push_str(&fs::read_to_string("/proc/thread-self/net/sockstat6").unwrap_or_default());
    #[allow(clippy::cast_precision_loss, reason = "4096 or so")]
    let page_bytes = rustix::param::page_size() as f64;
    let mut reading = Reading::new();
    let mut add = |name: String, value: f64| {
        reading.insert(series(&format!("node_sockstat_{name}"), []), Procfs { value, rounding: 0.0 });
    };
    for line in text.lines() {
        let Some((protocol, rest)) = line.split_once(':') else { continue };
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        for pair in words.chunks_exact(2) {
            let Ok(value) = pair[1].parse::<f64>() else { continue };
            if pair[0] == "mem" {
                add(format!("{protocol}_mem_bytes"), value * page_bytes);
            }
            add(format!("{protocol}_{}", pair[0]), value);
        }
    }
    Ok(reading)
}

/// node_exporter's default `--collector.diskstats.device-exclude`: ^(ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\d+n\d+p)\d+$.
fn is_shown_disk(name: &str) -> bool {
    let stem = name.trim_end_matches(|last: char| last.is_ascii_digit());
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let nvme = || {
        let rest = stem.strip_prefix("nvme")?.strip_suffix('p')?;
        let (controller, namespace) = rest.split_once('n')?;
        Some(digits(controller) && digits(namespace))
    };
    let drive = || {
        let letter = ["hd", "sd", "vd", "xvd"].iter().find_map(|front| stem.strip_prefix(front))?;
        Some(letter.len() == 1 && letter.bytes().all(|byte| byte.is_ascii_lowercase()))
    };
    let excluded = matches!(stem, "ram" | "loop" | "fd") || nvme() == Some(true) || drive() == Some(true);
    stem.len() == name.len() || !excluded
}

/// The lines of /proc/diskstats that node_exporter shows: name, and what is behind it.
fn diskstats() -> io::Result<Vec<(String, Vec<u64>)>> {
    let text = fs::read_to_string("/proc/diskstats")?;
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(2);
        let name = words.next().filter(|name| is_shown_disk(name))?;
        Some((name.to_owned(), words.filter_map(|word| word.parse().ok()).collect()))
    });
    Ok(lines.collect())
}

/// Disks that node_exporter shows.
pub(crate) fn disk_names() -> io::Result<Vec<String>> {
    Ok(diskstats()?.into_iter().map(|(name, _)| name).collect())
}

/// /proc/diskstats, which has sums over CPUs, and times in whole ms.
pub(crate) fn disks() -> io::Result<Reading> {
    use crate::groups::disk::computed::{METRICS, Unit};
    let mut reading = Reading::new();
    for (device, numbers) in diskstats()? {
        for (metric, unit, column, _) in METRICS {
            #[allow(clippy::cast_precision_loss, reason = "as exported")]
            let value = numbers.get(column).copied().unwrap_or(0) as f64;
            let (value, rounding) = match unit {
                Unit::SectorBytes => (value * 512.0, 0.0),
                Unit::Time | Unit::Busy => (value / 1e3, 0.001),
                Unit::Count | Unit::Sectors | Unit::Now => (value, 0.0),
            };
            reading.insert(series(metric, [("device", device.as_str())]), Procfs { value, rounding });
        }
    }
    Ok(reading)
}

/// CPUs that are present, counted to the highest.
pub(crate) fn cpu_count() -> io::Result<u32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/present")?;
    let last = list.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_those_that_node_exporter_shows() {
        for shown in [
            "sda",
            "vda",
            "xvda",
            "sdaa1",
            "nvme0n1",
            "nvme12n3",
            "mmcblk0",
            "mmcblk0p1",
            "zram0",
            "dm-0",
            "md127",
            "sr0",
        ] {
            assert!(is_shown_disk(shown), "{shown}");
        }
        for hidden in ["ram0", "loop12", "fd0", "sda1", "hdb12", "vdz3", "xvda1", "nvme0n1p1", "nvme12n3p14"] {
            assert!(!is_shown_disk(hidden), "{hidden}");
        }
    }

    #[test]
    fn zones_add_up_their_reserves_and_watermarks() {
        let text = "Node 0, zone      DMA\n  pages free     3840\n        boost    0\n        min      10\n        low      13\n        high     16\n\
            \x20       managed  3840\n        protection: (0, 1990, 24000, 24000, 24000)\nNode 0, zone   Normal\n        boost    5\n        low      100\n\
            \x20       high     155\n        managed  900000\n        protection: (0, 0, 0, 0, 0)\nNode 0, zone  Movable\n        low 32\n        high 32\n        managed 0\n";
        let expected = Zones { total_reserve_pages: 3840 + 150, watermark_low_pages: 140, boost_pages: 5 };
        assert_eq!(zones_of(text), expected);
    }

    #[test]
    fn a_boost_that_lasts_while_they_are_read_is_not_kept() {
        let zone = |boost: u64| {
            let [min, low, high] = [11_000, 13_750, 16_500].map(|pages| pages + boost);
            let text = format!(
                "Node 0, zone   Normal\n        boost    {boost}\n        min      {min}\n        low      {low}\n\
                 \x20       high     {high}\n        managed  500000\n        protection: (0, 0, 0, 0, 0)\n"
            );
            zones_of(&text)
        };
        assert_eq!(zone(0), Zones { total_reserve_pages: 16_500, watermark_low_pages: 13_750, boost_pages: 0 });
        assert_eq!(zone(4096), Zones { boost_pages: 4096, ..zone(0) });
    }
}
