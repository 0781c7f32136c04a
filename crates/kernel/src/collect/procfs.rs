// SPDX-License-Identifier: Apache-2.0
//! What procfs says of the metrics that collectors compute: what they are checked against.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;

/// Values by series, and how far from the true value each may be.
pub(super) type Reading = HashMap<String, Procfs>;

/// A value of procfs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Procfs {
    /// As exported.
    pub(super) value: f64,
    /// What rounding may have taken off or added.
    pub(super) rounding: f64,
}

/// A series by name and labels, in one form for kernel and procfs.
pub(super) fn series<'a>(name: &str, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
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
pub(super) fn cpu() -> io::Result<Reading> {
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
pub(super) fn loads() -> io::Result<[f64; 3]> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let mut words = text.split_ascii_whitespace().map_while(|word| word.parse::<f64>().ok());
    let mut next = || words.next().ok_or(io::ErrorKind::InvalidData);
    Ok([next()?, next()?, next()?])
}

/// /proc/loadavg.
pub(super) fn load() -> io::Result<Reading> {
    let names = ["node_load1", "node_load5", "node_load15"];
    let series =
        names.into_iter().zip(loads()?).map(|(name, value)| (series(name, []), Procfs { value, rounding: 0.01 }));
    Ok(series.collect())
}

/// Lines of a name and a number.
pub(super) fn numbers(path: &str) -> io::Result<HashMap<String, u64>> {
    let text = fs::read_to_string(path)?;
    let lines = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(|separator: char| separator == ':' || separator.is_ascii_whitespace())?;
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some((name.to_owned(), value))
    });
    Ok(lines.collect())
}

/// /proc/meminfo, and the sum of its file pages.
pub(super) fn memory() -> io::Result<Reading> {
    let numbers = numbers("/proc/meminfo")?;
    let kib = |name: &str| numbers.get(name).copied().unwrap_or(0);
    let files = kib("Cached") + kib("Buffers") + kib("SwapCached");
    #[allow(clippy::cast_precision_loss, reason = "as exported")]
    let value = |kib: u64| Procfs { value: (kib * 1024) as f64, rounding: 0.0 };
    let mut reading = Reading::from([(series(super::memory::FILE_PAGES, []), value(files))]);
    for (name, kib) in &numbers {
        let name = name.replace('(', "_").replace(')', "");
        reading.insert(series(&format!("node_memory_{name}_bytes"), []), value(*kib));
    }
    Ok(reading)
}

/// What MemFree has beyond vm_zone_stat, found while nothing moves.
pub(super) fn deferred_pages(page_bytes: u32) -> io::Result<i64> {
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
pub(super) struct Zones {
    /// As calculate_totalreserve_pages of mm/page_alloc.c.
    pub(super) total_reserve_pages: u64,
    /// Sum of the zones' low watermarks.
    pub(super) watermark_low_pages: u64,
}

/// /proc/zoneinfo.
pub(super) fn zones() -> io::Result<Zones> {
    Ok(zones_of(&fs::read_to_string("/proc/zoneinfo")?))
}

fn zones_of(text: &str) -> Zones {
    let mut zones = Zones::default();
    // A zone's lines: `Node 0, zone DMA`, then among others boost, low, high, managed, protection.
    for zone in text.split("Node ").skip(1) {
        let number = |key: &str| {
            let line = zone.lines().find(|line| line.split_ascii_whitespace().next() == Some(key));
            line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
        };
        // As the kernel: watermarks of all zones, reserves of those that have pages.
        zones.watermark_low_pages += number("low");
        let protection = zone.lines().find_map(|line| line.trim().strip_prefix("protection: (")?.strip_suffix(')'));
        let protection =
            protection.into_iter().flat_map(|list| list.split(", ")).filter_map(|pages| pages.parse().ok());
        let reserve = protection.max().unwrap_or(0u64) + number("high").saturating_sub(number("boost"));
        zones.total_reserve_pages += reserve.min(number("managed"));
    }
    zones
}

/// Columns of /proc/net/dev behind the name that are collected: metric, place.
const DEVICE_COLUMNS: [(&str, usize); 4] = [
    ("node_network_receive_bytes_total", 0),
    ("node_network_receive_packets_total", 1),
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
pub(super) fn device_names() -> io::Result<Vec<String>> {
    Ok(devices()?.into_iter().map(|(name, _)| name).collect())
}

/// /proc/net/dev, which has sums over CPUs.
pub(super) fn network() -> io::Result<Reading> {
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

/// CPUs that are present, counted to the highest.
pub(super) fn cpu_count() -> io::Result<u32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/present")?;
    let last = list.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_add_up_their_reserves_and_watermarks() {
        let text = "Node 0, zone      DMA\n  pages free     3840\n        boost    0\n        min      10\n        low      13\n        high     16\n\
            \x20       managed  3840\n        protection: (0, 1990, 24000, 24000, 24000)\nNode 0, zone   Normal\n        boost    5\n        low      100\n\
            \x20       high     155\n        managed  900000\n        protection: (0, 0, 0, 0, 0)\nNode 0, zone  Movable\n        low 32\n        high 32\n        managed 0\n";
        assert_eq!(zones_of(text), Zones { total_reserve_pages: 3840 + 150, watermark_low_pages: 145 });
    }
}
