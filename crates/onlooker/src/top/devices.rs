// SPDX-License-Identifier: Apache-2.0
//! File systems, disks, network devices and TCP, each out of its series. `None` where the host does not say.

use super::series::Series;
use onlooker_series::devices::used_share;
use std::collections::BTreeMap;

/// A file system is said to be full from this share on.
pub(super) const FULL: f64 = 0.9;
/// Kinds of file systems that are full, or empty, by design.
const NO_STORAGE: [&str; 2] = ["ramfs", "rootfs"];

/// A file system.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mount {
    pub(super) device: String,
    pub(super) mountpoint: String,
    /// Where else it is mounted.
    pub(super) others: usize,
    pub(super) fstype: String,
    pub(super) size: Option<f64>,
    free: Option<f64>,
    pub(super) available: Option<f64>,
    files: Option<f64>,
    files_free: Option<f64>,
    is_read_only: bool,
}

impl Mount {
    pub(super) fn new(device: &str, mountpoint: &str, fstype: &str) -> Self {
        let own = str::to_owned;
        Self { device: own(device), mountpoint: own(mountpoint), fstype: own(fstype), ..Self::default() }
    }

    /// `of`: the metric's name behind `node_filesystem_`.
    pub(super) fn take(&mut self, of: &str, value: f64) {
        match of {
            "size_bytes" => self.size = Some(value),
            "free_bytes" => self.free = Some(value),
            "avail_bytes" => self.available = Some(value),
            "files" => self.files = Some(value),
            "files_free" => self.files_free = Some(value),
            "readonly" => self.is_read_only = value > 0.0,
            _ => {}
        }
    }

    pub(super) fn used(&self) -> Option<f64> {
        Some(self.size? - self.free?)
    }

    /// As `df` has it.
    pub(super) fn share(&self) -> Option<f64> {
        used_share(self.size?, self.free?, self.available?)
    }

    /// Share of the files that it has room for.
    pub(super) fn inodes(&self) -> Option<f64> {
        let files = self.files.filter(|files| *files > 0.0)?;
        Some(1.0 - self.files_free? / files)
    }

    /// Whether nothing can be written there anyway: an image is full by design.
    pub(super) fn is_fixed(&self) -> bool {
        self.is_read_only || self.fstype == "squashfs"
    }
}

/// One for each file system, also if it is mounted several times: at its shortest place. The fullest first, images
/// last.
pub(super) fn mounts(all: impl Iterator<Item = Mount>) -> Vec<Mount> {
    let mut all: Vec<Mount> = all.filter(|of| !NO_STORAGE.contains(&of.fstype.as_str())).collect();
    all.sort_by_key(|of| of.mountpoint.len());
    let mut by_identity: BTreeMap<String, Mount> = BTreeMap::new();
    for mount in all {
        let is_device = mount.device.starts_with('/');
        let identity = if is_device { &mount.device } else { &mount.mountpoint }.clone();
        by_identity.entry(identity).and_modify(|first| first.others += 1).or_insert(mount);
    }
    let mut mounts: Vec<Mount> = by_identity.into_values().collect();
    mounts.sort_by(|a, b| {
        let share = |of: &Mount| of.share().unwrap_or(-1.0);
        a.is_fixed().cmp(&b.is_fixed()).then_with(|| share(b).total_cmp(&share(a)))
    });
    mounts
}

/// A disk; rates a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Disk {
    pub(super) device: String,
    /// Part of the time in which it works at something.
    pub(super) busy: Option<f64>,
    pub(super) read: Option<f64>,
    pub(super) written: Option<f64>,
    pub(super) reads: Option<f64>,
    pub(super) writes: Option<f64>,
    read_time: Option<f64>,
    write_time: Option<f64>,
    /// Requests under way.
    pub(super) queue: Option<f64>,
}

impl Disk {
    pub(super) fn new(device: &str) -> Self {
        Self { device: device.to_owned(), ..Self::default() }
    }

    /// `of`: the metric's name behind `node_disk_`.
    pub(super) fn take(&mut self, of: &str, series: &Series) {
        let rate = series.motion.rate();
        match of {
            "io_time_seconds_total" => self.busy = rate.map(|rate| rate.min(1.0)),
            "read_bytes_total" => self.read = rate,
            "written_bytes_total" => self.written = rate,
            "reads_completed_total" => self.reads = rate,
            "writes_completed_total" => self.writes = rate,
            "read_time_seconds_total" => self.read_time = rate,
            "write_time_seconds_total" => self.write_time = rate,
            "io_now" => self.queue = Some(series.scaled()),
            _ => {}
        }
    }

    /// Mean time of a request, seconds; none without any.
    pub(super) fn wait(&self) -> Option<f64> {
        let requests = Some(self.reads? + self.writes?).filter(|requests| *requests > 0.0)?;
        Some((self.read_time? + self.write_time?) / requests)
    }

    /// What moves more comes first.
    pub(super) fn weight(&self) -> f64 {
        let bytes = self.read.unwrap_or(0.0) + self.written.unwrap_or(0.0);
        self.busy.unwrap_or(0.0) + bytes / 1e12
    }
}

/// A network device; rates a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Interface {
    pub(super) device: String,
    pub(super) received: Option<f64>,
    pub(super) sent: Option<f64>,
    pub(super) received_packets: Option<f64>,
    pub(super) sent_packets: Option<f64>,
    /// In both directions.
    pub(super) errors: Option<f64>,
    pub(super) drops: Option<f64>,
    /// Bytes a second that it can carry.
    speed: Option<f64>,
    is_up: Option<bool>,
}

impl Interface {
    pub(super) fn new(device: &str) -> Self {
        Self { device: device.to_owned(), ..Self::default() }
    }

    /// `of`: the metric's name behind `node_network_`.
    pub(super) fn take(&mut self, of: &str, series: &Series) {
        let (rate, value) = (series.motion.rate(), series.scaled());
        let both = |sum: &mut Option<f64>| *sum = rate.map(|rate| sum.unwrap_or(0.0) + rate).or(*sum);
        match of {
            "receive_bytes_total" => self.received = rate,
            "transmit_bytes_total" => self.sent = rate,
            "receive_packets_total" => self.received_packets = rate,
            "transmit_packets_total" => self.sent_packets = rate,
            "receive_errs_total" | "transmit_errs_total" => both(&mut self.errors),
            "receive_drop_total" | "transmit_drop_total" => both(&mut self.drops),
            "speed_bytes" => self.speed = Some(value).filter(|speed| *speed > 0.0),
            "up" => self.is_up = Some(value > 0.0),
            _ => {}
        }
    }

    pub(super) fn bytes(&self) -> f64 {
        self.received.unwrap_or(0.0) + self.sent.unwrap_or(0.0)
    }

    /// The busier direction's share of what the device can carry.
    pub(super) fn load(&self) -> Option<f64> {
        let speed = self.speed?;
        Some(self.received.unwrap_or(0.0).max(self.sent.unwrap_or(0.0)) / speed)
    }

    /// What the kernel calls up; the loopback has no such state.
    pub(super) fn is_down(&self) -> bool {
        self.is_up == Some(false) && self.device != "lo"
    }
}

/// What TCP did, each second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tcp {
    sent: Option<f64>,
    again: Option<f64>,
    pub(super) timeouts: Option<f64>,
    /// Connections that found the queue of their listener full.
    pub(super) overflows: Option<f64>,
    pub(super) resets: Option<f64>,
    /// Now.
    pub(super) established: Option<f64>,
}

impl Tcp {
    /// Retransmits above this share slow connections down.
    pub(super) const MANY_AGAIN: f64 = 0.01;

    /// `of`: the metric's name behind `node_netstat_`.
    pub(super) fn take(&mut self, of: &str, series: &Series) {
        let rate = series.motion.rate();
        match of {
            "Tcp_OutSegs" => self.sent = rate,
            "Tcp_RetransSegs" => self.again = rate,
            "TcpExt_TCPTimeouts" => self.timeouts = rate,
            "TcpExt_ListenOverflows" => self.overflows = rate,
            "Tcp_OutRsts" => self.resets = rate,
            "Tcp_CurrEstab" => self.established = Some(series.scaled()),
            _ => {}
        }
    }

    /// Share of the segments sent that were sent again; none where none were sent.
    pub(super) fn retransmits(&self) -> Option<f64> {
        let sent = self.sent.filter(|sent| *sent > 0.0)?;
        Some(self.again? / sent)
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
