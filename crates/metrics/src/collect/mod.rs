// SPDX-License-Identifier: Apache-2.0
//! Collectors: the kernel's own metrics, computed in softirq when a READ asks for them, and their published twins.
//!
//! [`install`] finds the kernel's variables ([`crate::discover`]), loads a pair of programs a group ([`crate::groups`]),
//! compares every metric with procfs as the group's samples have it ([`crate::sampled`]), leaves out what does not match,
//! and puts the programs into their slots of a responder. From then on nothing runs until a READ comes. The programs live
//! in the responder's program arrays: with a pinned responder they go on when the process that installed them is gone.
//!
//! [`Packed`] puts the words of several groups into one answer.
//!
//! [`InstalledGroup::publish`] starts a timer in the kernel that writes the same blocks into a slab, for responders that can only read memory.
//!
//! Who writes what: this crate the addresses in the collectors' maps, once; the programs the scratch and, for twins, the slab's blocks. Invariants: a block
//! covers at most 8 CPUs (a row of a disk 6, responder and stat 4, netstat 2) or 8 devices and is no sum over CPUs; every metric of a schema was equal to procfs
//! at installation, or within its bounds where procfs has none ([`crate::groups::is_held_to_bounds`]).
//! Cost: 0.2-1.2 us a READ (docs/kernel-metrics.md); installing 0.3-0.5 s.

mod check;
pub(crate) mod counterpart;
pub(crate) mod intf;
mod local;
pub(crate) mod object;
pub mod packed;
pub(crate) mod percpu;
mod publish;
mod samples;

use std::os::fd::AsFd as _;

use libbpf_rs::Object;
use onlooker_region::Schema;
use onlooker_responder::error::{Error, Result};
use onlooker_responder::program::info_of;
use onlooker_responder::{Home, ProgramInfo, Responder};

use crate::discover::{Discovery, Finding};
use crate::groups::network::devices;
use crate::groups::{Group, Preparing};
use crate::measure;

pub use check::{Check, Verdict};
pub use local::Local;
use object::{Image, Prepared, Purpose};
pub use packed::Packed;
pub use publish::{Publication, Published, Twin, stop_publishing};

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
        Self { groups: Group::computed().collect(), devices: 0, data_symbols: true }
    }
}

/// A group that answers READs.
#[derive(Debug)]
pub struct InstalledGroup {
    /// Which.
    pub group: Group,
    /// The region's name.
    pub name: &'static str,
    /// The collector's slot, for [`Kind::Computed`](onlooker_responder::Kind::Computed).
    pub slot: u32,
    /// Blocks of the region.
    pub blocks: u32,
    /// The region's class: only metrics that passed their check.
    pub schema: Schema,
    /// Every metric, those that were left out too.
    pub checks: Vec<Check>,
    /// Groups network and disk: devices that are there and have no row at installation, since their drivers count in ways of their own: procfs has to be
    /// sampled for them. [`DeviceRows`](crate::groups::network::DeviceRows) says it of now, for network.
    pub uncovered: Vec<String>,
    /// The programs for tc and XDP, as the kernel has them.
    pub programs: Vec<ProgramInfo>,
    image: Image,
    devices: Option<devices::Handles>,
}

impl InstalledGroup {
    /// Group network: lets other processes ask which devices have a row now
    /// ([`DeviceRows`](crate::groups::network::DeviceRows)), until the home is purged. Nothing for other groups.
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
#[cfg(feature = "hooks")]
pub fn install_as_if(responder: &Responder, options: &Options, cpus: u32) -> Result<Installed> {
    install_all(responder, options, Discovery::as_if(cpus)?)
}

/// Takes the collectors of these groups out of a responder again; those that are not installed are passed over.
pub fn remove(responder: &Responder, groups: &[Group]) {
    for slot in groups.iter().filter_map(|group| group.slot()) {
        let _ = responder.remove_collector(slot);
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
        let mut with = Preparing { responder: None, discovery: &mut discovery, devices: options.devices };
        let result = group.prepare(&mut with).and_then(|prepared| {
            let object = prepared.image.load(Purpose::Measure).map_err(|error| error.to_string())?;
            let checks = check::check(group, &prepared, &|block| object::compute(&object, block))?;
            uncovered(&mut discovery, group, &prepared, &object)?;
            let costs = (0..prepared.schema.blocks()).map(|block| measure::run_ns(&object, "collect_tc", block));
            cost_ns = costs.collect::<Result<Vec<_>>>().map_err(|error| error.to_string())?.into_iter().max();
            Ok(checks)
        });
        groups.push(SurveyedGroup { group, result, cost_ns });
    }
    Ok(Survey { groups, findings: discovery.into_findings() })
}

/// Devices without a row, noted.
fn uncovered(
    discovery: &mut Discovery,
    group: Group,
    prepared: &Prepared,
    object: &Object,
) -> std::result::Result<Vec<String>, String> {
    let Some(rows) = group.rows() else { return Ok(Vec::new()) };
    let present = (rows.present)()?;
    let devices = check::devices_without_row(prepared, present, &|block| object::compute(object, block))?;
    if !devices.is_empty() {
        let reason = format!("{}: they count in ways of their own; sample procfs for them", devices.join(", "));
        discovery.note(rows.note, Err(reason));
    }
    Ok(devices)
}

fn install_group(
    responder: &Responder,
    discovery: &mut Discovery,
    options: &Options,
    group: Group,
) -> std::result::Result<InstalledGroup, String> {
    let mut with = Preparing { responder: Some(responder), discovery, devices: options.devices };
    let prepared = group.prepare(&mut with)?;
    let text = |error: Error| error.to_string();
    let object = prepared.image.load(Purpose::Serve(responder)).map_err(text)?;
    let (checks, uncovered, schema) = if discovery.is_real() {
        let checks = check::check(group, &prepared, &|block| object::compute(&object, block))?;
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
    let devices = (group == Group::NETWORK).then(|| devices::Handles::of(&object)).transpose().map_err(text)?;
    let slot = group.slot().ok_or_else(|| format!("group {group} has no slot"))?;
    responder.install_collector(slot, tc, xdp).map_err(text)?;
    Ok(InstalledGroup {
        group,
        name: group.region(),
        slot,
        blocks: schema.blocks(),
        schema,
        checks,
        uncovered,
        programs,
        image: prepared.image,
        devices,
    })
}
