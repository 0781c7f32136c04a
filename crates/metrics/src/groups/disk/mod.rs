// SPDX-License-Identifier: Apache-2.0
//! Group disk: disks.

mod computed;
mod facts;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};

impl Group {
    /// Disks.
    pub const DISK: Self = Self {
        descriptor: &Descriptor {
            name: "disk",
            region: "node_disk",
            computed: Some(
                Computed::new(19, |with| computed::prepare(with.discovery))
                    .absent(computed::absence)
                    .rows("disks without a row", computed::present),
            ),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}

/// What a column is made of.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Unit {
    /// Operations.
    Count,
    /// 512 bytes each, exported in bytes.
    SectorBytes,
    /// The same, exported as they are.
    Sectors,
    /// Time, ns here and ms there.
    Time,
    /// Time with something to do, ticks here and ms there.
    Busy,
    /// Operations under way.
    Now,
}

/// Metrics in the order of the columns of /proc/diskstats behind the name, which is also that of the program: name, unit,
/// help.
const METRICS: [(&str, Unit, &str); 17] = [
    ("node_disk_reads_completed_total", Unit::Count, "The total number of reads completed successfully."),
    ("node_disk_reads_merged_total", Unit::Count, "The total number of reads merged."),
    ("node_disk_read_bytes_total", Unit::SectorBytes, "The total number of bytes read successfully."),
    ("node_disk_read_time_seconds_total", Unit::Time, "The total number of seconds spent by all reads."),
    ("node_disk_writes_completed_total", Unit::Count, "The total number of writes completed successfully."),
    ("node_disk_writes_merged_total", Unit::Count, "The number of writes merged."),
    ("node_disk_written_bytes_total", Unit::SectorBytes, "The total number of bytes written successfully."),
    ("node_disk_write_time_seconds_total", Unit::Time, "This is the total number of seconds spent by all writes."),
    (IN_FLIGHT, Unit::Now, "The number of I/Os currently in progress."),
    ("node_disk_io_time_seconds_total", Unit::Busy, "Total seconds spent doing I/Os."),
    ("node_disk_io_time_weighted_seconds_total", Unit::Time, "The weighted # of seconds spent doing I/Os."),
    ("node_disk_discards_completed_total", Unit::Count, "The total number of discards completed successfully."),
    ("node_disk_discards_merged_total", Unit::Count, "The total number of discards merged."),
    ("node_disk_discarded_sectors_total", Unit::Sectors, "The total number of sectors discarded successfully."),
    ("node_disk_discard_time_seconds_total", Unit::Time, "This is the total number of seconds spent by all discards."),
    ("node_disk_flush_requests_total", Unit::Count, "The total number of flush requests completed successfully"),
    (
        "node_disk_flush_requests_time_seconds_total",
        Unit::Time,
        "This is the total number of seconds spent by all flush requests.",
    ),
];
const IN_FLIGHT: &str = "node_disk_io_now";

/// A sector of /proc/diskstats, whatever the disk's are (Documentation/admin-guide/iostats.rst).
const SECTOR_BYTES: f64 = 512.0;

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
}
