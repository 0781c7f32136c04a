// SPDX-License-Identifier: Apache-2.0
//! The machine as a whole, out of the agent's series: processors, load, memory, pressure, devices. Which devices count,
//! and how full a file system
//! is, are [`onlooker_series::devices`]' rules.

use super::devices::{Disk, Interface, Mount, Tcp, mounts};
use super::model::Model;
use super::series::Series;
use onlooker_series::devices::{counts_on_its_own, is_own_disk};
use std::collections::BTreeMap;

/// A series that its region has not had for so long is of a device that is gone.
const GONE_NS: u64 = 2_000_000_000;
/// Kinds of pressure, as the kernel calls them.
const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];

/// Shares of time in which some task, and all tasks, waited for something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pressure {
    pub(super) waiting: Option<f64>,
    pub(super) stalled: Option<f64>,
}

/// `None` where the host has no such series, or not twice yet.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Machine {
    /// Processor and the part of its time in which it works, 0 to 1.
    pub(super) cpus: Vec<(u32, Option<f64>)>,
    /// Parts of all processors' time by mode, idle and waiting for I/O too; in the order of their names.
    pub(super) modes: BTreeMap<String, f64>,
    pub(super) load: [Option<f64>; 3],
    /// Tasks running or waiting for a processor right now.
    pub(super) run_queue: Option<f64>,
    /// Bytes in use and in all.
    pub(super) memory: Option<(f64, f64)>,
    pub(super) swap: Option<(f64, f64)>,
    /// By resource.
    pub(super) pressure: BTreeMap<&'static str, Pressure>,
    /// The fullest first.
    pub(super) mounts: Vec<Mount>,
    /// The busiest first.
    pub(super) disks: Vec<Disk>,
    /// Those that count on their own first, then the busiest.
    pub(super) network: Vec<Interface>,
    pub(super) tcp: Tcp,
}

/// Bytes: in all and left.
#[derive(Default)]
struct Left {
    total: Option<f64>,
    left: Option<f64>,
}

impl Left {
    /// In use and in all; nothing of what is not there.
    fn used(&self) -> Option<(f64, f64)> {
        let (total, left) = (self.total.filter(|total| *total > 0.0)?, self.left?);
        Some(((total - left).max(0.0), total))
    }
}

/// While series are looked at.
#[derive(Default)]
struct Found<'a> {
    /// By processor: working, all, whether anything is known.
    cpus: BTreeMap<u32, (f64, f64, bool)>,
    memory: Left,
    swap: Left,
    mounts: BTreeMap<(&'a str, &'a str), Mount>,
    disks: BTreeMap<&'a str, Disk>,
    network: BTreeMap<&'a str, Interface>,
}

impl Machine {
    pub(super) fn of(model: &Model) -> Self {
        let (mut machine, mut found) = (Self::default(), Found::default());
        // Programs may call their metrics what they like.
        for series in model.series.iter().filter(|series| series.is_agents() && series.name.starts_with("node_")) {
            let read_ns = model.pace.read_ns(series.key.region).unwrap_or(0);
            if series.read_ns.saturating_add(GONE_NS) >= read_ns {
                machine.take(series, &mut found);
            }
        }
        machine.run_queue = model
            .series
            .iter()
            .filter(|series| series.is_agents() && series.name == "onlooker_run_queue_length")
            .map(Series::scaled)
            .reduce(|sum, more| sum + more);
        machine.finish(found);
        machine
    }

    fn take<'a>(&mut self, series: &'a Series, found: &mut Found<'a>) {
        let value = Some(series.scaled());
        match series.name.as_str() {
            "node_cpu_seconds_total" => self.processor(series, found),
            "node_load1" => self.load[0] = value,
            "node_load5" => self.load[1] = value,
            "node_load15" => self.load[2] = value,
            "node_memory_MemTotal_bytes" => found.memory.total = value,
            "node_memory_MemAvailable_bytes" => found.memory.left = value,
            "node_memory_SwapTotal_bytes" => found.swap.total = value,
            "node_memory_SwapFree_bytes" => found.swap.left = value,
            name => {
                if let Some(of) = name.strip_prefix("node_pressure_") {
                    self.pressed(of, series.motion.rate());
                } else if let Some(of) = name.strip_prefix("node_filesystem_") {
                    let labels = ["device", "mountpoint", "fstype"].map(|name| series.label(name).unwrap_or_default());
                    let [device, mountpoint, fstype] = labels;
                    let mount = found.mounts.entry((device, mountpoint));
                    mount.or_insert_with(|| Mount::new(device, mountpoint, fstype)).take(of, series.scaled());
                } else if let (Some(of), Some(device)) = (name.strip_prefix("node_disk_"), series.label("device")) {
                    found.disks.entry(device).or_insert_with(|| Disk::new(device)).take(of, series);
                } else if let (Some(of), Some(device)) = (name.strip_prefix("node_network_"), series.label("device")) {
                    found.network.entry(device).or_insert_with(|| Interface::new(device)).take(of, series);
                } else if let Some(of) = name.strip_prefix("node_netstat_") {
                    self.tcp.take(of, series);
                }
            }
        }
    }

    fn processor(&mut self, series: &Series, found: &mut Found) {
        let (Some(mode), Some(Ok(cpu))) = (series.label("mode"), series.label("cpu").map(str::parse)) else { return };
        let rate = series.motion.rate();
        let (busy, all, known) = found.cpus.entry(cpu).or_insert((0.0, 0.0, false));
        *all += rate.unwrap_or(0.0);
        *busy += rate.filter(|_| !matches!(mode, "idle" | "iowait")).unwrap_or(0.0);
        *known |= rate.is_some();
        if let Some(rate) = rate {
            *self.modes.entry(mode.to_owned()).or_default() += rate;
        }
    }

    /// `of`: the metric's name between prefix and unit.
    fn pressed(&mut self, of: &str, rate: Option<f64>) {
        let Some(of) = of.strip_suffix("_seconds_total") else { return };
        for resource in RESOURCES {
            match of.strip_prefix(resource) {
                Some("_waiting") => self.pressure.entry(resource).or_default().waiting = rate,
                Some("_stalled") => self.pressure.entry(resource).or_default().stalled = rate,
                _ => {}
            }
        }
    }

    fn finish(&mut self, found: Found) {
        let busy = |(cpu, (busy, all, known)): (u32, (f64, f64, bool))| {
            (cpu, (known && all > 0.0).then(|| (busy / all).clamp(0.0, 1.0)))
        };
        self.cpus = found.cpus.into_iter().map(busy).collect();
        let all: f64 = self.modes.values().sum();
        self.modes.values_mut().for_each(|time| *time /= if all > 0.0 { all } else { 1.0 });
        (self.memory, self.swap) = (found.memory.used(), found.swap.used());
        self.mounts = mounts(found.mounts.into_values());
        self.disks = found.disks.into_values().collect();
        // Stable: equal ones stay in the order of their names.
        self.disks.sort_by(|a, b| b.weight().total_cmp(&a.weight()));
        self.network = found.network.into_values().collect();
        self.network.sort_by(|a, b| {
            let is_others = |of: &Interface| !counts_on_its_own(&of.device);
            is_others(a).cmp(&is_others(b)).then_with(|| b.bytes().total_cmp(&a.bytes()))
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Mean of all processors.
    #[allow(clippy::cast_precision_loss)] // a count of processors
    pub(super) fn busy(&self) -> Option<f64> {
        let known: Vec<f64> = self.cpus.iter().filter_map(|(_, busy)| *busy).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// Bytes a second, received and sent, of all devices that count on their own; where there are none, of all but
    /// `lo`.
    pub(super) fn traffic(&self) -> Option<(f64, f64)> {
        let own = || self.network.iter().filter(|of| counts_on_its_own(&of.device));
        let sum = |of: &mut dyn Iterator<Item = &Interface>| {
            of.filter_map(|of| of.received.zip(of.sent)).reduce(|sum, more| (sum.0 + more.0, sum.1 + more.1))
        };
        if own().next().is_some() {
            sum(&mut own())
        } else {
            sum(&mut self.network.iter().filter(|of| of.device != "lo"))
        }
    }

    /// Bytes a second, read and written, of all disks that are not made of others.
    pub(super) fn disk_traffic(&self) -> Option<(f64, f64)> {
        let own = self.disks.iter().filter(|of| is_own_disk(&of.device));
        own.filter_map(|of| of.read.zip(of.written)).reduce(|sum, more| (sum.0 + more.0, sum.1 + more.1))
    }
}
