// SPDX-License-Identifier: Apache-2.0
//! Group `disk`: /proc/diskstats, the devices of node_exporter's default choice, a row each.

use std::io;

use onlooker_region::Schema;

use crate::procfs::{Source, number, words};
use crate::sampled::metric::Definition;
use crate::sampled::rows::{self, Rows};
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made, Place, Sampler};

const KEY_WORDS: usize = 4;
/// Rows are for twice the disks, at least so many and at most so many.
const ROWS: std::ops::RangeInclusive<usize> = 10..=160;
/// A sector of /proc/diskstats, whatever the disk's are (Documentation/admin-guide/iostats.rst).
const SECTOR_BYTES: f64 = 512.0;

const fn count(name: &'static str, help: &'static str) -> Definition {
    Definition::counter(name, help)
}
const fn time(name: &'static str, help: &'static str) -> Definition {
    Definition::counter(name, help).unit("seconds", 1e-3)
}
const fn bytes(name: &'static str, help: &'static str) -> Definition {
    Definition::counter(name, help).unit("bytes", SECTOR_BYTES)
}

/// Columns behind the name. Older kernels have the first 11 (since 4.18: 15, since 5.5: 17).
static COLUMNS: [Definition; 17] = [
    count("node_disk_reads_completed_total", "The total number of reads completed successfully."),
    count("node_disk_reads_merged_total", "The total number of reads merged."),
    bytes("node_disk_read_bytes_total", "The total number of bytes read successfully."),
    time("node_disk_read_time_seconds_total", "The total number of seconds spent by all reads."),
    count("node_disk_writes_completed_total", "The total number of writes completed successfully."),
    count("node_disk_writes_merged_total", "The number of writes merged."),
    bytes("node_disk_written_bytes_total", "The total number of bytes written successfully."),
    time("node_disk_write_time_seconds_total", "This is the total number of seconds spent by all writes."),
    Definition::gauge("node_disk_io_now", "The number of I/Os currently in progress."),
    time("node_disk_io_time_seconds_total", "Total seconds spent doing I/Os."),
    time("node_disk_io_time_weighted_seconds_total", "The weighted # of seconds spent doing I/Os."),
    count("node_disk_discards_completed_total", "The total number of discards completed successfully."),
    count("node_disk_discards_merged_total", "The total number of discards merged."),
    count("node_disk_discarded_sectors_total", "The total number of sectors discarded successfully."),
    time("node_disk_discard_time_seconds_total", "This is the total number of seconds spent by all discards."),
    count("node_disk_flush_requests_total", "The total number of flush requests completed successfully"),
    time(
        "node_disk_flush_requests_time_seconds_total",
        "This is the total number of seconds spent by all flush requests.",
    ),
];

struct Disk {
    source: Source,
    /// Columns that are served, in the order of value slots.
    columns: Vec<usize>,
    rows: Rows,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let source = Source::open("/proc/diskstats")?;
    let (mut disks, mut most) = (0, 0);
    timed(context, &["diskstats"], |context| {
        source.each_line(context.buffer, |line| {
            if let Some((_, _, count)) = parse(line) {
                (disks, most) = (disks + 1, most.max(count));
            }
        })
    })?;
    let columns: Vec<usize> = (0..most).filter(|column| ask.is_left(&COLUMNS[*column].field())).collect();
    let fields = columns.iter().map(|column| COLUMNS[*column].field()).collect();
    let groups = vec![rows::group("device", KEY_WORDS, fields, (disks * 2).clamp(*ROWS.start(), *ROWS.end()))];
    let groups = if columns.is_empty() { Vec::new() } else { groups };
    Ok(Made { groups, sampler: Box::new(Disk { source, columns, rows: Rows::new(KEY_WORDS) }) })
}

/// Whether node_exporter leaves a device out: `^(ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\d+n\d+p)\d+$`.
fn is_left_out(device: &str) -> bool {
    let stem = device.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() == device.len() {
        return false;
    }
    let is_partition = |disk: &str| {
        let letter = stem.strip_prefix(disk).map(str::as_bytes);
        matches!(letter, Some([b'a'..=b'z']))
    };
    let is_nvme_partition = || {
        let rest = stem.strip_prefix("nvme").and_then(|rest| rest.strip_suffix('p'));
        let (controller, namespace) = rest.and_then(|rest| rest.split_once('n')).unwrap_or_default();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number(controller) && is_number(namespace)
    };
    matches!(stem, "ram" | "loop" | "fd")
        || ["hd", "sd", "vd", "xvd"].into_iter().any(is_partition)
        || is_nvme_partition()
}

/// A line's device and columns, and how many it has; `None` for a device of no interest.
fn parse(line: &[u8]) -> Option<(&str, [u64; COLUMNS.len()], usize)> {
    let mut words = words(line).skip(2);
    let device = std::str::from_utf8(words.next()?).ok().filter(|device| !is_left_out(device))?;
    let mut columns = [0; COLUMNS.len()];
    let mut count = 0;
    for (column, word) in columns.iter_mut().zip(words) {
        *column = number(word)?;
        count += 1;
    }
    (count >= 11).then_some((device, columns, count))
}

impl Sampler for Disk {
    fn begin(&mut self, place: &Place, schema: &Schema, now_ns: u64) {
        self.rows.begin(place, 0, &schema.groups[0], now_ns);
    }

    fn sample(&mut self, _: &Place, context: &mut Context) -> io::Result<()> {
        let Self { source, columns, rows } = self;
        timed(context, &["diskstats"], |context| {
            let Context { now_ns, buffer, loss, .. } = context;
            source.each_line(buffer, |line| {
                if let Some((device, counters, _)) = parse(line) {
                    rows.put(device, *now_ns, loss, columns.iter().map(|column| counters[*column]));
                }
            })?;
            rows.end(*now_ns);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_the_default_choice() {
        for device in ["ram0", "loop12", "fd0", "sda1", "hdb2", "vdz10", "xvda3", "nvme0n1p1", "nvme10n2p14"] {
            assert!(is_left_out(device), "{device}");
        }
        for device in [
            "zram0",
            "sda",
            "vdb",
            "nvme0n1",
            "nvme0n1p",
            "md0",
            "dm-0",
            "sr0",
            "sdaa1",
            "mmcblk0p1",
            "nvmen1p1",
            "",
            "0",
        ] {
            assert!(!is_left_out(device), "{device}");
        }
    }

    #[test]
    fn lines() {
        let (device, columns, count) = parse(b" 254       0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17").unwrap();
        assert_eq!((device, columns[0], columns[16], count), ("vda", 1, 17, 17));
        assert_eq!(parse(b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11").map(|(_, _, count)| count), Some(11));
        // More columns than we know are of a later kernel.
        assert_eq!(
            parse(b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19").map(|(_, _, count)| count),
            Some(17)
        );
        for line in [
            "",
            "8 0",
            "8 0 sda",
            "8 0 sda 1 2 3",
            "8 0 sda1 1 2 3 4 5 6 7 8 9 10 11",
            "8 0 sda 1 2 3 4 5 6 7 8 9 10 x",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
