// SPDX-License-Identifier: Apache-2.0
//! Collectors: the kernel's own metrics, computed in softirq when a READ asks for them, and their published twins.
//!
//! [`install`] finds the kernel's variables ([`crate::discover`]), loads a pair of programs a group (`bpf/collect/`), compares every metric with procfs,
//! leaves out what does not match, and puts the programs into their slots of a responder. From then on nothing runs until a READ comes. The programs live
//! in the responder's program arrays: with a pinned responder they go on when the process that installed them is gone.
//!
//! [`InstalledGroup::publish`] starts a timer in the kernel that writes the same blocks into a slab, for responders that can only read memory.
//!
//! Who writes what: this crate the addresses in the collectors' maps, once; the programs the scratch and, for twins, the slab's blocks. Invariants: a block
//! covers at most 8 CPUs (a row of a disk 6, responder and stat 4, netstat 2) or 8 devices and is no sum over CPUs; every metric of a schema was equal to procfs
//! at installation, or within its bounds where procfs has none ([`HELD_TO_BOUNDS`]).
//! Cost: 0.2-1.2 us a READ (docs/kernel-metrics.md); installing 0.3-0.5 s.

mod check;
mod cpu;
mod devices;
mod disk;
pub(crate) mod intf;
mod load;
mod local;
mod memory;
mod netstat;
mod network;
pub(crate) mod object;
mod percpu;
mod pressure;
pub(crate) mod procfs;
mod publish;
mod responder;
mod schedstat;
mod sockstat;
mod softnet;
mod stat;
mod totals;
mod vmstat;

use std::os::fd::AsFd as _;

use libbpf_rs::Object;
use onlooker_region::Schema;

use crate::discover::{Discovery, Finding};
use crate::error::{Error, Result};
use crate::home::Home;
use crate::measure;
use crate::program::{ProgramInfo, info_of};
use crate::responder::Responder;

pub use check::{Check, Verdict};
pub use devices::{DeviceKey, DeviceRows};
pub use local::Local;
use object::{Image, Prepared, Purpose};
pub use publish::{Publication, Published, Twin, stop_publishing};

/// Metrics that procfs has not: all that a check can say of them is that they are within their bounds ([`Verdict::Bounds`]).
pub const HELD_TO_BOUNDS: [&str; 2] = [stat::PENDING, pressure::IN_PROGRESS];

/// A group of metrics: one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Times, run queue and context switches of each CPU.
    Cpu,
    /// Load averages.
    Load,
    /// Memory of the whole machine.
    Memory,
    /// Network devices of the loader's namespace.
    Network,
    /// The responder's own counters.
    Responder,
    /// Counters of the network protocols of the loader's namespace.
    Netstat,
    /// Backlogs of received packets of each CPU.
    Softnet,
    /// Sockets of the loader's namespace.
    Sockstat,
    /// Interrupts, softirqs, forks.
    Stat,
    /// Times that tasks ran and waited on each CPU.
    Schedstat,
    /// Stalls for want of CPU, memory and I/O.
    Pressure,
    /// Events of the memory.
    Vmstat,
    /// Disks.
    Disk,
}

impl Group {
    /// All there are.
    pub const ALL: [Self; 13] = [
        Self::Cpu,
        Self::Load,
        Self::Memory,
        Self::Network,
        Self::Responder,
        Self::Netstat,
        Self::Softnet,
        Self::Sockstat,
        Self::Stat,
        Self::Schedstat,
        Self::Pressure,
        Self::Vmstat,
        Self::Disk,
    ];

    /// As configurations name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Load => "load",
            Self::Memory => "memory",
            Self::Network => "network",
            Self::Responder => "responder",
            Self::Netstat => "netstat",
            Self::Softnet => "softnet",
            Self::Sockstat => "sockstat",
            Self::Stat => "stat",
            Self::Schedstat => "schedstat",
            Self::Pressure => "pressure",
            Self::Vmstat => "vmstat",
            Self::Disk => "disk",
        }
    }

    /// The region's name.
    #[must_use]
    pub const fn region(self) -> &'static str {
        match self {
            Self::Cpu => "node_cpu",
            Self::Load => "node_load",
            Self::Memory => "node_memory",
            Self::Network => "node_network",
            Self::Responder => "onlooker_responder",
            Self::Netstat => "node_netstat",
            Self::Softnet => "node_softnet",
            Self::Sockstat => "node_sockstat",
            Self::Stat => "node_stat",
            Self::Schedstat => "node_schedstat",
            Self::Pressure => "node_pressure",
            Self::Vmstat => "node_vmstat",
            Self::Disk => "node_disk",
        }
    }

    /// Why the running kernel keeps nothing of the group, where it is built or started without it. Then [`install`] refuses the group with this reason.
    #[must_use]
    pub fn absence(self) -> Option<String> {
        match self {
            Self::Schedstat => schedstat::absence(),
            Self::Pressure => pressure::absence(),
            Self::Disk => disk::absence(),
            _ => None,
        }
    }

    /// The collector's slot in the responder.
    #[must_use]
    pub const fn slot(self) -> u32 {
        match self {
            Self::Cpu => 1,
            Self::Load => 2,
            Self::Memory => 3,
            Self::Network => 4,
            Self::Responder => 5,
            Self::Netstat => 16,
            Self::Softnet => 17,
            Self::Sockstat => 18,
            Self::Stat => 8,
            Self::Schedstat => 9,
            Self::Pressure => 10,
            Self::Vmstat => 11,
            Self::Disk => 19,
        }
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What to install.
#[derive(Debug, Clone)]
pub struct Options {
    /// Groups, each once.
    pub groups: Vec<Group>,
    /// Network devices that there is to be room for; at least twice those of the present are.
    pub devices: u32,
    /// Whether addresses of variables may come from /proc/kallsyms where it has them; tests say no, to go the way of kernels without KALLSYMS_ALL.
    pub data_symbols: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { groups: Group::ALL.to_vec(), devices: 0, data_symbols: true }
    }
}

/// A group that answers READs.
#[derive(Debug)]
pub struct InstalledGroup {
    /// Which.
    pub group: Group,
    /// The region's name.
    pub name: &'static str,
    /// The collector's slot, for [`crate::Kind::Computed`].
    pub slot: u32,
    /// Blocks of the region.
    pub blocks: u32,
    /// The region's class: only metrics that passed their check.
    pub schema: Schema,
    /// Every metric, those that were left out too.
    pub checks: Vec<Check>,
    /// Groups network and disk: devices that are there and have no row at installation, since their drivers count in ways of their own: procfs has to be
    /// sampled for them. [`DeviceRows`] says it of now, for network.
    pub uncovered: Vec<String>,
    /// The programs for tc and XDP, as the kernel has them.
    pub programs: Vec<ProgramInfo>,
    image: Image,
    devices: Option<devices::Handles>,
}

impl InstalledGroup {
    /// Group network: lets other processes ask which devices have a row now ([`DeviceRows`]), until the home is purged. Nothing for other groups.
    ///
    /// # Errors
    /// [`Error::System`] from pinning.
    pub fn pin_devices(&self, home: &Home) -> Result<()> {
        self.devices.as_ref().map_or(Ok(()), |handles| handles.pin(home))
    }
}

/// What [`install`] did.
#[derive(Debug)]
pub struct Installed {
    /// Groups that answer now.
    pub groups: Vec<InstalledGroup>,
    /// Groups that do not, and why.
    pub refused: Vec<(Group, String)>,
    /// What was found of the kernel, and how.
    pub findings: Vec<Finding>,
}

/// A group in a [`Survey`].
#[derive(Debug)]
pub struct SurveyedGroup {
    /// Which.
    pub group: Group,
    /// Its metrics against procfs, or why it cannot be had here.
    pub result: std::result::Result<Vec<Check>, String>,
    /// What its dearest block takes, ns, median, caches warm; of groups that can be had.
    pub cost_ns: Option<u64>,
}

/// What [`survey`] found.
#[derive(Debug)]
pub struct Survey {
    /// Each group.
    pub groups: Vec<SurveyedGroup>,
    /// What was found of the kernel, and how.
    pub findings: Vec<Finding>,
}

/// Installs collectors. A group that cannot be had, or none of whose metrics passes its check, is refused with the reason; that is no error.
///
/// # Errors
/// [`Error::Load`], [`Error::Bpf`] where not even the programs that look for variables can be loaded or run.
pub fn install(responder: &Responder, options: &Options) -> Result<Installed> {
    install_all(responder, options, Discovery::new(options.data_symbols)?)
}

fn install_all(responder: &Responder, options: &Options, mut discovery: Discovery) -> Result<Installed> {
    let mut installed = Installed { groups: Vec::new(), refused: Vec::new(), findings: Vec::new() };
    for &group in &options.groups {
        match install_group(responder, &mut discovery, options, group) {
            Ok(group) => installed.groups.push(group),
            Err(reason) => installed.refused.push((group, reason)),
        }
    }
    installed.findings = discovery.into_findings();
    Ok(installed)
}

/// Installs collectors as on a machine with `cpus` CPUs, each of those that are not there being one that is. To measure what a block costs on larger
/// machines: nothing is compared with procfs, and what is answered is of no use. Counters of the responder itself have no more CPUs than there are.
///
/// # Errors
/// As [`install`].
pub fn install_as_if(responder: &Responder, options: &Options, cpus: u32) -> Result<Installed> {
    install_all(responder, options, Discovery::as_if(cpus)?)
}

/// Takes the collectors of these groups out of a responder again; those that are not installed are passed over.
pub fn remove(responder: &Responder, groups: &[Group]) {
    for group in groups {
        let _ = responder.remove_collector(group.slot());
    }
}

/// Looks at what could be installed, without a responder and without attaching anything: for diagnosis.
///
/// # Errors
/// As [`install`].
pub fn survey(options: &Options) -> Result<Survey> {
    let mut discovery = Discovery::new(options.data_symbols)?;
    let mut groups = Vec::new();
    for &group in &options.groups {
        let mut cost_ns = None;
        let result = prepare(None, &mut discovery, options, group).and_then(|prepared| {
            let object = prepared.image.load(Purpose::Measure).map_err(|error| error.to_string())?;
            let checks = check::check(&prepared, &|block| object::compute(&object, block))?;
            uncovered(&mut discovery, group, &prepared, &object)?;
            let costs = (0..prepared.schema.blocks()).map(|block| measure::run_ns(&object, "collect_tc", block));
            cost_ns = costs.collect::<Result<Vec<_>>>().map_err(|error| error.to_string())?.into_iter().max();
            Ok(checks)
        });
        groups.push(SurveyedGroup { group, result, cost_ns });
    }
    Ok(Survey { groups, findings: discovery.into_findings() })
}

fn prepare(
    responder: Option<&Responder>,
    discovery: &mut Discovery,
    options: &Options,
    group: Group,
) -> std::result::Result<Prepared, String> {
    if let Some(reason) = group.absence() {
        return Err(reason);
    }
    match group {
        Group::Cpu => cpu::prepare(discovery),
        Group::Load => load::prepare(discovery),
        Group::Memory => memory::prepare(discovery),
        Group::Network => network::prepare(discovery, options.devices),
        Group::Responder => responder::prepare(responder),
        Group::Netstat => netstat::prepare(discovery),
        Group::Softnet => softnet::prepare(discovery),
        Group::Sockstat => sockstat::prepare(discovery),
        Group::Stat => stat::prepare(discovery),
        Group::Schedstat => schedstat::prepare(discovery),
        Group::Pressure => pressure::prepare(discovery),
        Group::Vmstat => vmstat::prepare(discovery),
        Group::Disk => disk::prepare(discovery),
    }
}

/// Devices without a row, noted.
fn uncovered(
    discovery: &mut Discovery,
    group: Group,
    prepared: &Prepared,
    object: &Object,
) -> std::result::Result<Vec<String>, String> {
    let present = match group {
        Group::Network => procfs::device_names().map_err(|error| format!("/proc/thread-self/net/dev: {error}"))?,
        Group::Disk => procfs::disk_names().map_err(|error| format!("/proc/diskstats: {error}"))?,
        _ => return Ok(Vec::new()),
    };
    let devices = check::devices_without_row(prepared, present, &|block| object::compute(object, block))?;
    if !devices.is_empty() {
        let reason = format!("{}: they count in ways of their own; sample procfs for them", devices.join(", "));
        discovery.note(if group == Group::Disk { "disks without a row" } else { "devices without a row" }, Err(reason));
    }
    Ok(devices)
}

fn install_group(
    responder: &Responder,
    discovery: &mut Discovery,
    options: &Options,
    group: Group,
) -> std::result::Result<InstalledGroup, String> {
    let prepared = prepare(Some(responder), discovery, options, group)?;
    let text = |error: Error| error.to_string();
    let object = prepared.image.load(Purpose::Serve(responder)).map_err(text)?;
    let (checks, uncovered, schema) = if discovery.is_real() {
        let checks = check::check(&prepared, &|block| object::compute(&object, block))?;
        let uncovered = uncovered(discovery, group, &prepared, &object)?;
        let schema = check::keep(&prepared.schema, &checks);
        (checks, uncovered, schema)
    } else {
        (Vec::new(), Vec::new(), prepared.schema.clone())
    };
    if schema.groups.iter().all(|group| group.fields.is_empty()) {
        let first = checks.iter().find(|check| !check.verdict.is_served());
        let reason = first.map_or_else(|| "it has no metrics here".to_owned(), |check| format!("{check}"));
        return Err(format!("none of its metrics agrees with procfs; the first: {reason}"));
    }
    schema.check().map_err(|error| format!("its schema: {error}"))?;
    if let Some(group) =
        schema.groups.iter().zip(&prepared.schema.groups).find(|(kept, all)| kept.layout() != all.layout())
    {
        // Rows are as wide as their last column: without it readers would look for them elsewhere than the program puts them.
        let last = group.1.fields.last().map_or("", |field| field.name.as_str());
        return Err(format!("{last} disagrees with procfs, and rows cannot be without their last column"));
    }
    let program = |name: &str| {
        let found = object.progs().find(|program| program.name() == name);
        found.ok_or_else(|| format!("the object of group {group} has no program {name}"))
    };
    let (tc, xdp) = (program("collect_tc")?, program("collect_xdp")?);
    let programs = [&tc, &xdp].map(|program| info_of(program.as_fd()));
    let programs = programs.into_iter().collect::<Result<Vec<_>>>().map_err(text)?;
    let devices = (group == Group::Network).then(|| devices::Handles::of(&object)).transpose().map_err(text)?;
    responder.install_collector(group.slot(), tc, xdp).map_err(text)?;
    Ok(InstalledGroup {
        group,
        name: group.region(),
        slot: group.slot(),
        blocks: schema.blocks(),
        schema,
        checks,
        uncovered,
        programs,
        image: prepared.image,
        devices,
    })
}
