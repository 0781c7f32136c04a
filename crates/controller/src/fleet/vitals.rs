// SPDX-License-Identifier: Apache-2.0
//! The few figures by which hosts are told apart at a glance: how busy, how full, how much they send.
//!
//! A thread of the controller samples all hosts every [`INTERVAL`], whoever looks, so that who looks first finds rates,
//! and what was. It makes them of the values that are there anyway, whose places it looks for again only when a host's
//! series have changed.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlooker_series::devices::{counts_on_its_own, used_share};
use onlooker_series::rate::{Growth, per_second};
use onlooker_series::series::Series;
use onlooker_series::text::Text;

use super::{Fleet, Host, Plan, Values};

/// Time between two samples.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Kinds of pressure, as the kernel calls them.
pub(crate) const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];
/// TCP segments a second, first and further times, of which a share says something.
const ENOUGH_SEGMENTS: f64 = 4.0;
const PRESSURES: [&str; 3] = [
    "node_pressure_cpu_waiting_seconds_total",
    "node_pressure_memory_waiting_seconds_total",
    "node_pressure_io_waiting_seconds_total",
];

/// Of one host; what it does not publish is `None`. Shares are from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Vital {
    /// Share of all CPUs' time in which they did something.
    pub(crate) cpu: Option<f64>,
    /// CPUs that are online.
    pub(crate) cores: usize,
    /// Load average of a minute.
    pub(crate) load1: Option<f64>,
    /// Share of the memory that programs cannot get.
    pub(crate) memory: Option<f64>,
    /// Share of the swap space that is used, where there is some.
    pub(crate) swap: Option<f64>,
    /// Share of the fullest file system as `df` has it, and where that is mounted; none that is read-only.
    pub(crate) filesystem: Option<(f64, Text)>,
    /// Bytes a second, of all devices that count on their own; where there are none, of all but `lo`.
    pub(crate) receive: Option<f64>,
    /// The same that are sent.
    pub(crate) transmit: Option<f64>,
    /// Share of all TCP segments sent that had been sent before; of a few a second it says nothing.
    pub(crate) retransmit: Option<f64>,
    /// Share of the time in which some task waited for each of [`RESOURCES`].
    pub(crate) pressure: [Option<f64>; 3],
}

/// By hosts' names, those that are read.
pub(crate) type Vitals = BTreeMap<String, Vital>;

/// What was sampled last, for all who look.
#[derive(Debug, Default)]
pub struct Shown(Mutex<Arc<Vitals>>);

impl Shown {
    pub(crate) fn get(&self) -> Arc<Vitals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Samples hosts.
#[derive(Default)]
pub(crate) struct Sampler {
    known: BTreeMap<String, Known>,
    values: Values,
}

struct Known {
    plan: Arc<Plan>,
    places: Places,
    rates: [Rate; 8],
}

impl Sampler {
    /// Looks at all hosts, and shows what it has found.
    pub(crate) fn sample(&mut self, fleet: &Fleet, shown: &Shown) {
        let (mut vitals, mut before) = (Vitals::new(), mem::take(&mut self.known));
        for host in fleet.hosts().iter() {
            let name = &host.target.name;
            if let Some((known, vital)) = look(host, before.remove(name), &mut self.values) {
                self.known.insert(name.clone(), known);
                vitals.insert(name.clone(), vital);
            }
        }
        *shown.0.lock().unwrap_or_else(PoisonError::into_inner) = vitals.into();
    }
}

fn look(host: &Host, before: Option<Known>, values: &mut Values) -> Option<(Known, Vital)> {
    let (_, plan) = host.snapshot(|figures| host.freshness(figures).1, values);
    let plan = plan?;
    let (places, mut rates) = match before {
        Some(known) if Arc::ptr_eq(&known.plan, &plan) => (known.places, known.rates),
        known => (Places::new(&plan), known.map(|known| known.rates).unwrap_or_default()),
    };
    rates.iter_mut().zip(places.counted()).for_each(|(rate, of)| rate.follow(Sum::of(of, values)));
    let vital = places.vital(values, &rates);
    Some((Known { plan, places, rates }, vital))
}

/// Where a number is among a host's values.
struct Place {
    /// Number of its entity, and where its row begins.
    entity: usize,
    row: usize,
    series: Series,
}

impl Place {
    fn number(&self, values: &Values) -> Option<f64> {
        values.words.get(self.row..).and_then(|row| self.series.number(row)).filter(|number| number.is_finite())
    }
}

/// Where everything is that vitals are made of.
#[derive(Default)]
struct Places {
    cores: usize,
    idle: Vec<Place>,
    load1: Option<Place>,
    memory: [Option<Place>; 2],
    swap: [Option<Place>; 2],
    /// By mount point: size, free, available to who is not root, whether it is read-only.
    filesystems: BTreeMap<Text, [Option<Place>; 4]>,
    receive: Vec<Place>,
    transmit: Vec<Place>,
    segments: Vec<Place>,
    retransmitted: Vec<Place>,
    pressure: [Vec<Place>; 3],
}

impl Places {
    fn new(plan: &Plan) -> Self {
        let (mut places, mut row) = (Self::default(), 0);
        for (entity, planned) in plan.entities.iter().enumerate() {
            planned.shown().for_each(|(series, _)| places.take(entity, row, series));
            row += planned.template.words();
        }
        for devices in [&mut places.receive, &mut places.transmit] {
            let is_own = |place: &Place| place.series.labels.get("device").is_some_and(counts_on_its_own);
            if devices.iter().any(is_own) {
                devices.retain(is_own);
            }
        }
        places
    }

    fn take(&mut self, entity: usize, row: usize, series: &Series) {
        // Few of a host's series are wanted: the others are not copied.
        if !series.name.starts_with("node_") {
            return;
        }
        let place = || Place { entity, row, series: series.clone() };
        let label = |name: &str| series.labels.get(name).unwrap_or_default();
        let (mount, filesystems) = (|| Text::from(label("mountpoint")), &mut self.filesystems);
        match &*series.name {
            "node_cpu_seconds_total" if matches!(label("mode"), "idle" | "iowait") => {
                self.cores += usize::from(label("mode") == "idle");
                self.idle.push(place());
            }
            "node_load1" => self.load1 = Some(place()),
            "node_memory_MemTotal_bytes" => self.memory[0] = Some(place()),
            "node_memory_MemAvailable_bytes" => self.memory[1] = Some(place()),
            "node_memory_SwapTotal_bytes" => self.swap[0] = Some(place()),
            "node_memory_SwapFree_bytes" => self.swap[1] = Some(place()),
            "node_filesystem_size_bytes" => filesystems.entry(mount()).or_default()[0] = Some(place()),
            "node_filesystem_free_bytes" => filesystems.entry(mount()).or_default()[1] = Some(place()),
            "node_filesystem_avail_bytes" => filesystems.entry(mount()).or_default()[2] = Some(place()),
            "node_filesystem_readonly" => filesystems.entry(mount()).or_default()[3] = Some(place()),
            "node_network_receive_bytes_total" if label("device") != "lo" => self.receive.push(place()),
            "node_network_transmit_bytes_total" if label("device") != "lo" => self.transmit.push(place()),
            "node_netstat_Tcp_OutSegs" => self.segments.push(place()),
            "node_netstat_Tcp_RetransSegs" => self.retransmitted.push(place()),
            name => {
                if let Some(at) = PRESSURES.iter().position(|pressure| *pressure == name) {
                    self.pressure[at].push(place());
                }
            }
        }
    }

    /// Counters of which rates are wanted: what the CPUs idled, bytes received and sent, TCP segments sent for the first
    /// time and again, time that tasks waited.
    fn counted(&self) -> [&[Place]; 8] {
        let [cpu, memory, io] = &self.pressure;
        [&self.idle, &self.receive, &self.transmit, &self.segments, &self.retransmitted, cpu, memory, io]
    }

    fn vital(&self, values: &Values, rates: &[Rate; 8]) -> Vital {
        let number = |place: &Option<Place>| place.as_ref().and_then(|place| place.number(values));
        let used = |total: &Option<Place>, left: &Option<Place>| {
            let (total, left) = (number(total).filter(|total| *total > 0.0)?, number(left)?);
            Some((1.0 - left / total).clamp(0.0, 1.0))
        };
        let fullest = self.filesystems.iter().filter_map(|(mount, [size, free, available, read_only])| {
            let is_fixed = number(read_only).is_some_and(|read_only| read_only > 0.0);
            let share = used_share(number(size)?, number(free)?, number(available)?)?;
            Some((share, mount)).filter(|_| !is_fixed)
        });
        let [idle, receive, transmit, segments, retransmitted, pressures @ ..] = rates.map(|rate| rate.per_second);
        #[allow(clippy::cast_precision_loss)] // so many CPUs have no host
        let cores = self.cores as f64;
        Vital {
            cpu: idle.filter(|_| cores > 0.0).map(|idle| (1.0 - idle / cores).clamp(0.0, 1.0)),
            cores: self.cores,
            load1: number(&self.load1),
            memory: used(&self.memory[0], &self.memory[1]),
            swap: used(&self.swap[0], &self.swap[1]),
            // Mounted several times, it is called by its shortest place.
            filesystem: fullest
                .max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.len().cmp(&one.1.len())))
                .map(|(share, mount)| (share, mount.clone())),
            receive,
            transmit,
            // OutSegs does not count those that are sent again.
            retransmit: segments.zip(retransmitted).and_then(|(first, again)| {
                let all = first + again;
                (all >= ENOUGH_SEGMENTS).then(|| again / all)
            }),
            pressure: pressures.map(|pressure| pressure.map(|share| share.clamp(0.0, 1.0))),
        }
    }
}

/// Counters, added up.
#[derive(Clone, Copy, Debug)]
struct Sum {
    /// When the newest of them was acquired, UTC ns.
    time_ns: u64,
    value: f64,
    /// Of how many: with another number of them there is no rate.
    count: usize,
}

impl Sum {
    fn of(places: &[Place], values: &Values) -> Option<Self> {
        let numbers: Option<Vec<f64>> = places.iter().map(|place| place.number(values)).collect();
        let time_ns = places.iter().filter_map(|place| values.times_ns.get(place.entity)).max();
        Some(Self { time_ns: *time_ns?, value: numbers?.iter().sum(), count: places.len() })
    }
}

/// What went up by how much.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    last: Option<Sum>,
    per_second: Option<f64>,
}

impl Rate {
    fn follow(&mut self, now: Option<Sum>) {
        let then = self.last;
        // What was not acquired since goes as it went.
        if then.map(|then| then.time_ns) == now.map(|now| now.time_ns) {
            return;
        }
        self.last = now;
        self.per_second = then.zip(now).filter(|(then, now)| then.count == now.count).and_then(|(then, now)| {
            let growth = Growth::of(then.value, now.value);
            per_second(growth.increase, then.time_ns, now.time_ns).filter(|_| !growth.is_reset)
        });
    }
}

#[cfg(test)]
mod tests;
