// SPDX-License-Identifier: Apache-2.0
//! Group memory: `memory.bpf.c`. The kernel keeps these numbers for the whole machine; CPUs hold back a few pages each for up to a second, in
//! procfs as here.

use std::collections::HashMap;
use std::fs;
use std::io;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Type};

use super::facts::{MEMORY_ITEMS, MemoryFacts, STATS, ZONE_STATS};
use crate::collect::counterpart::{Counterpart, Procfs, Reading, round, series};
use crate::collect::object::{Content, Image, Prepared};
use crate::discover::{Discovery, Read};
use crate::procfs::numbers;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/memory.bpf.o"));
const ZONE: &str = "zone_stat_item";
const NODE: &str = "node_stat_item";
/// Always 0.
const NOTHING: u8 = 127;
const _: () = assert!(NOTHING as u32 == STATS - 1);

/// A metric: its name, and the one or two statistics that it is the sum of.
type Item = (&'static str, (&'static str, &'static str), Option<(&'static str, &'static str)>);

/// As meminfo_proc_show has them; those without a counterpart in procfs are ours.
const ITEMS: [Item; 31] = [
    ("node_memory_MemFree_bytes", (ZONE, "NR_FREE_PAGES"), None),
    ("node_memory_SwapCached_bytes", (NODE, "NR_SWAPCACHE"), None),
    ("node_memory_Active_bytes", (NODE, "NR_ACTIVE_ANON"), Some((NODE, "NR_ACTIVE_FILE"))),
    ("node_memory_Inactive_bytes", (NODE, "NR_INACTIVE_ANON"), Some((NODE, "NR_INACTIVE_FILE"))),
    ("node_memory_Active_anon_bytes", (NODE, "NR_ACTIVE_ANON"), None),
    ("node_memory_Inactive_anon_bytes", (NODE, "NR_INACTIVE_ANON"), None),
    ("node_memory_Active_file_bytes", (NODE, "NR_ACTIVE_FILE"), None),
    ("node_memory_Inactive_file_bytes", (NODE, "NR_INACTIVE_FILE"), None),
    ("node_memory_Unevictable_bytes", (NODE, "NR_UNEVICTABLE"), None),
    ("node_memory_Mlocked_bytes", (ZONE, "NR_MLOCK"), None),
    ("node_memory_Dirty_bytes", (NODE, "NR_FILE_DIRTY"), None),
    ("node_memory_Writeback_bytes", (NODE, "NR_WRITEBACK"), None),
    ("node_memory_AnonPages_bytes", (NODE, "NR_ANON_MAPPED"), None),
    ("node_memory_Mapped_bytes", (NODE, "NR_FILE_MAPPED"), None),
    ("node_memory_Shmem_bytes", (NODE, "NR_SHMEM"), None),
    ("node_memory_KReclaimable_bytes", (NODE, "NR_SLAB_RECLAIMABLE_B"), Some((NODE, "NR_KERNEL_MISC_RECLAIMABLE"))),
    ("node_memory_Slab_bytes", (NODE, "NR_SLAB_RECLAIMABLE_B"), Some((NODE, "NR_SLAB_UNRECLAIMABLE_B"))),
    ("node_memory_SReclaimable_bytes", (NODE, "NR_SLAB_RECLAIMABLE_B"), None),
    ("node_memory_SUnreclaim_bytes", (NODE, "NR_SLAB_UNRECLAIMABLE_B"), None),
    (KERNEL_STACK, (NODE, "NR_KERNEL_STACK_KB"), None),
    ("node_memory_PageTables_bytes", (NODE, "NR_PAGETABLE"), None),
    ("node_memory_SecPageTables_bytes", (NODE, "NR_SECONDARY_PAGETABLE"), None),
    ("node_memory_NFS_Unstable_bytes", (NODE, "NR_UNSTABLE_NFS"), None),
    ("node_memory_Bounce_bytes", (ZONE, "NR_BOUNCE"), None),
    ("node_memory_WritebackTmp_bytes", (NODE, "NR_WRITEBACK_TEMP"), None),
    ("node_memory_AnonHugePages_bytes", (NODE, "NR_ANON_THPS"), None),
    ("node_memory_ShmemHugePages_bytes", (NODE, "NR_SHMEM_THPS"), None),
    ("node_memory_ShmemPmdMapped_bytes", (NODE, "NR_SHMEM_PMDMAPPED"), None),
    ("node_memory_FileHugePages_bytes", (NODE, "NR_FILE_THPS"), None),
    ("node_memory_FilePmdMapped_bytes", (NODE, "NR_FILE_PMDMAPPED"), None),
    (FILE_PAGES, (NODE, "NR_FILE_PAGES"), None),
];
/// Counted in KiB, all else in pages.
const KERNEL_STACK: &str = "node_memory_KernelStack_bytes";
/// `Cached`, `Buffers` and `SwapCached` together: the kernel tells them apart only by a walk over all block devices.
const FILE_PAGES: &str = "onlooker_memory_file_bytes";

/// Finds the statistics.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    let vmstat = numbers("/proc/vmstat").map_err(|error| format!("/proc/vmstat: {error}"))?;
    let zones = zones().map_err(|error| format!("/proc/zoneinfo: {error}"))?;
    let meminfo = numbers("/proc/meminfo").map_err(|error| format!("/proc/meminfo: {error}"))?;
    let page_bytes = u32::try_from(rustix::param::page_size()).map_err(|_| "pages of 4 GiB or more".to_owned())?;
    let statistics = Statistics::new(discovery)?;
    let functions = ["si_mem_available", "si_meminfo", "meminfo_proc_show"];
    let zone_stat = discovery.global("vm_zone_stat", &functions, |at, read: &Read<'_>| {
        statistics.begins(ZONE, &["NR_FREE_PAGES"], at, read, &vmstat)
    })?;
    let node_stat = discovery.global("vm_node_stat", &functions, |at, read: &Read<'_>| {
        statistics.begins(NODE, &["NR_SLAB_RECLAIMABLE_B", "NR_LRU_BASE", "NR_FILE_PAGES"], at, read, &vmstat)
    })?;
    let total = meminfo.get("MemTotal").map_or(0, |kib| kib * 1024 / u64::from(page_bytes));
    let total_ram =
        discovery.global("_totalram_pages", &["si_meminfo", "si_mem_available"], |at, read: &Read<'_>| {
            (u64::from_le_bytes(read(at, 8)?.try_into().ok()?) == total).then_some(at)
        })?;
    let mut facts = MemoryFacts {
        zone_stat,
        node_stat,
        total_ram,
        deferred: deferred_pages(discovery, page_bytes)?,
        total_reserve_pages: zones.total_reserve_pages,
        watermark_low_pages: zones.watermark_low_pages,
        zone_stats: statistics.zone_stats,
        node_stats: statistics.node_stats,
        items: [[NOTHING; 2]; MEMORY_ITEMS],
        available: [NOTHING; 5],
    };
    let mut fields = Vec::new();
    for (slot, (name, first, second)) in ITEMS.into_iter().enumerate() {
        let number = |(of, name): (&'static str, &'static str)| statistics.numbers.get(&(of, name)).copied();
        let Some(first) = number(first) else { continue };
        let Some(second) = second.map_or(Some(NOTHING), number) else { continue };
        facts.items[slot] = [first, second];
        let scale = if name == KERNEL_STACK { 1024 } else { page_bytes };
        fields.push(field(name, slot, scale));
    }
    fields.push(field("node_memory_MemTotal_bytes", MEMORY_ITEMS, page_bytes));
    let parts = [
        (ZONE, "NR_FREE_PAGES"),
        (NODE, "NR_ACTIVE_FILE"),
        (NODE, "NR_INACTIVE_FILE"),
        (NODE, "NR_SLAB_RECLAIMABLE_B"),
        (NODE, "NR_KERNEL_MISC_RECLAIMABLE"),
    ];
    if let Some(parts) =
        parts.into_iter().map(|part| statistics.numbers.get(&part).copied()).collect::<Option<Vec<u8>>>()
    {
        facts.available.copy_from_slice(&parts);
        fields.push(field("node_memory_MemAvailable_bytes", MEMORY_ITEMS + 1, page_bytes));
    }
    let mut group = Group::new(Kind::Computed, 1, fields);
    group.acquisition = Acquisition::Computed;
    let schema = Schema { name: super::Group::MEMORY.region().into(), groups: vec![group] };
    let contents = vec![Content::array("facts", [facts.to_bytes()])];
    let image = Image { object: OBJECT, contents, maps: &[] };
    Ok(Prepared { image, schema, counterpart: Counterpart::Samples(adjust) })
}

/// Kernels that set up their pages late count them as free in /proc/meminfo and not in vm_zone_stat.
fn deferred_pages(discovery: &mut Discovery, page_bytes: u32) -> Result<u64, String> {
    if !discovery.has_function("deferred_pages_count") {
        return Ok(0);
    }
    let deferred = deferred_now(page_bytes).map_err(|error| format!("/proc/vmstat: {error}"))?;
    discovery.global("deferred_pages", &["deferred_pages_count"], |at, read: &Read<'_>| {
        let value = i64::from_le_bytes(read(at, 8)?.try_into().ok()?);
        (value == deferred).then_some(at)
    })
}

fn field(name: &str, slot: usize, scale: u32) -> Field {
    let mut field = Field::new(name, Metric::Gauge, Type::U64, u32::try_from(slot).unwrap_or(u32::MAX));
    (field.unit, field.scale) = ("bytes".into(), f64::from(scale));
    field.help = match name.strip_prefix("node_memory_").and_then(|name| name.strip_suffix("_bytes")) {
        Some(name) => format!("Memory information field {name}."),
        None => "File pages: Cached, Buffers and SwapCached together.".into(),
    };
    field
}

/// Numbers of the statistics in the program's list, by BTF.
struct Statistics {
    numbers: HashMap<(&'static str, &'static str), u8>,
    zone_stats: u32,
    node_stats: u32,
}

impl Statistics {
    fn new(discovery: &mut Discovery) -> Result<Self, String> {
        let zone_stats = discovery.enumerator(ZONE, "NR_VM_ZONE_STAT_ITEMS")?;
        let node_stats = discovery.enumerator(NODE, "NR_VM_NODE_STAT_ITEMS")?;
        if zone_stats > ZONE_STATS || node_stats >= STATS - ZONE_STATS {
            return Err(format!(
                "{zone_stats} zone and {node_stats} node statistics are more than the program has room for"
            ));
        }
        let mut numbers = HashMap::new();
        let of_items = ITEMS.iter().flat_map(|(_, first, second)| std::iter::once(*first).chain(*second));
        for (of, name) in of_items.chain(RECOGNISED.map(|(of, name, ..)| (of, name))).chain([(NODE, "NR_LRU_BASE")]) {
            let first = if of == ZONE { 0 } else { ZONE_STATS };
            match discovery.enumerator(of, name) {
                Ok(number) => {
                    if let Ok(number) = u8::try_from(first + number) {
                        numbers.insert((of, name), number);
                    }
                }
                Err(reason) => discovery.note(name, Err(reason)),
            }
        }
        Ok(Self { numbers, zone_stats, node_stats })
    }

    /// Where the list begins if `address` is that of one of these statistics of it, and most of what is there agrees with /proc/vmstat.
    fn begins(
        &self,
        of: &'static str,
        names: &[&'static str],
        address: u64,
        read: &Read<'_>,
        vmstat: &HashMap<String, u64>,
    ) -> Option<u64> {
        let (first, count) = if of == ZONE { (0, self.zone_stats) } else { (ZONE_STATS, self.node_stats) };
        names.iter().find_map(|name| {
            let number = u64::from(*self.numbers.get(&(of, *name))?).checked_sub(u64::from(first))?;
            let begin = address.checked_sub(8 * number)?;
            let list = || read(begin, 8 * count as usize);
            // Roughly first, which rules out all but the right one; then, since memory moves, with a fresh reading.
            let rough =
                self.agrees(of, first, &list()?, vmstat, |value, procfs| value / 4 <= procfs && procfs / 4 <= value);
            let close = |value: u64, procfs: u64| value.abs_diff(procfs) <= 64 + procfs / 50;
            let exact = || {
                let vmstat = numbers("/proc/vmstat").ok()?;
                self.agrees(of, first, &list()?, &vmstat, close).then_some(begin)
            };
            if rough { (0..RECOGNITION_TRIES).find_map(|_| exact()) } else { None }
        })
    }

    /// Whether what a list is recognised by agrees with /proc/vmstat.
    fn agrees(
        &self,
        of: &str,
        first: u32,
        list: &[u8],
        vmstat: &HashMap<String, u64>,
        agrees: impl Fn(u64, u64) -> bool,
    ) -> bool {
        RECOGNISED.iter().filter(|(group, ..)| *group == of).all(|(group, name, key, never_zero)| {
            let Some(number) = self.numbers.get(&(*group, *name)) else { return true };
            let at = 8 * (usize::from(*number) - first as usize);
            let value = list.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
            let (Some(value), Some(procfs)) = (value, vmstat.get(*key)) else { return false };
            (value > 0 || !*never_zero) && agrees(value, *procfs)
        })
    }
}

/// Attempts at reading a list and /proc/vmstat while nothing moves.
const RECOGNITION_TRIES: u32 = 20;

/// What a list is recognised by: rather steady numbers, their names in /proc/vmstat, and whether they are never 0 (on a machine that runs from
/// its initramfs there are no file pages).
const RECOGNISED: [(&str, &str, &str, bool); 7] = [
    (ZONE, "NR_FREE_PAGES", "nr_free_pages", true),
    (ZONE, "NR_ZONE_INACTIVE_FILE", "nr_zone_inactive_file", false),
    (ZONE, "NR_ZONE_INACTIVE_ANON", "nr_zone_inactive_anon", false),
    (NODE, "NR_SLAB_UNRECLAIMABLE_B", "nr_slab_unreclaimable", true),
    (NODE, "NR_SLAB_RECLAIMABLE_B", "nr_slab_reclaimable", true),
    (NODE, "NR_KERNEL_STACK_KB", "nr_kernel_stack", true),
    (NODE, "NR_ANON_MAPPED", "nr_anon_pages", true),
];

/// Adds the sum of the file pages to a sample. The kernel takes boosts off MemAvailable, once of the file pages and once of
/// what it can reclaim of its own; the collector does not.
fn adjust(reading: &mut Reading) {
    let bytes = |name: &str| reading.get(&format!("node_memory_{name}_bytes{{}}")).map_or(0.0, |procfs| procfs.value);
    let value = ["Cached", "Buffers", "SwapCached"].map(bytes).iter().sum();
    reading.insert(series(FILE_PAGES, []), Procfs { value, rounding: 0.0 });
    let boosts = 2 * zones().map_or(0, |zones| zones.boost_pages) * rustix::param::page_size() as u64;
    round(reading, "node_memory_MemAvailable_bytes", Procfs::exact(boosts).value);
}

/// What MemFree has beyond vm_zone_stat, found while nothing moves.
fn deferred_now(page_bytes: u32) -> io::Result<i64> {
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
struct Zones {
    /// As calculate_totalreserve_pages of mm/page_alloc.c.
    total_reserve_pages: u64,
    /// Sum of the zones' low watermarks, without boosts.
    watermark_low_pages: u64,
    /// What all watermarks of the zones are higher by at present (boost_watermark of mm/page_alloc.c), until kswapd has freed as much.
    boost_pages: u64,
}

/// /proc/zoneinfo.
fn zones() -> io::Result<Zones> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
