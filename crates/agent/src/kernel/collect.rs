// SPDX-License-Identifier: Apache-2.0
//! Puts the kernel's own metrics into a responder that is there: computed and published groups, users' collectors, how
//! long tasks wait, TCP connections.
//!
//! The loader's process runs it, as it does [`super::load`]. What a kernel lacks is left out, with the reason.

use onlooker_metrics::collect::{InstalledGroup, Options, Packed, install, packed, remove, stop_publishing};
use onlooker_metrics::groups::Group;
use onlooker_metrics::{connections, scheduler};
use onlooker_region::SchemaId;
use onlooker_responder::{Home, Pinned, probe};
use rustix::thread::CapabilitySet;

use super::load::{CollectorState, Report, explain, lacks, lock};
use super::recover::OWN_SLAB;
use super::slots::{Standing, assign, standing};
use super::{KernelError, user};
use crate::config;
use crate::config::acquisition::Acquisition;
use crate::units::Span;

/// Puts the configured groups of kernel metrics into a responder that is there, each metric checked against procfs, and users' collectors ([`user`]), and takes out the
/// others. Half a second, in which those that are there go on.
///
/// `short_lived`: TCP connections are wanted, too; `true`: with those that end between two runs.
#[must_use]
pub fn collect(config: &config::Kernel, short_lived: Option<bool>) -> Report {
    let mut connections = None;
    let mut done = || -> Result<Report, KernelError> {
        let home = Home::new(&config.bpffs, &config.name)?;
        let _lock = lock(config)?;
        let pinned = Pinned::open(&home)?;
        // A kernel without it has everything else all the same.
        let done = match short_lived {
            Some(short_lived) => connections::install(&home, short_lived),
            None => connections::remove(&home),
        };
        connections = done.err().map(|error| explain_tracing(&error.into()));
        let groups = config.computed_groups();
        let unwanted: Vec<Group> = Group::computed().filter(|group| !groups.contains(group)).collect();
        let installed = install(&pinned, &Options { groups, ..Options::default() })?;
        remove(&pinned, &unwanted);
        installed.groups.iter().try_for_each(|group| group.pin_devices(&home))?;
        let interval_of = |group: Group| match config.acquisition_of(group) {
            Acquisition::Published(interval) => Some(interval),
            Acquisition::Computed | Acquisition::Sampled => None,
        };
        Group::computed().try_for_each(|group| stop_publishing(&home, group))?;
        for group in installed.groups.iter().filter(|group| interval_of(group.group).is_some()) {
            group.pin_twin(&pinned, &pinned.slab(OWN_SLAB)?, &home)?;
        }
        let good = installed.groups.iter().map(|group| CollectorState {
            name: group.name.to_owned(),
            slot: group.slot,
            schema: match interval_of(group.group) {
                Some(interval) => group.published_schema(interval.as_duration()).canonical(),
                None => group.schema.canonical(),
            },
            published_ns: interval_of(group.group).map(Span::as_ns),
            cost_ns: None,
            left_out: group
                .checks
                .iter()
                .filter(|check| !check.verdict.is_served())
                .map(|check| check.metric.clone())
                .chain(group.uncovered.iter().cloned())
                .collect(),
            error: None,
        });
        let hidden = installed.findings.iter().find(|finding| finding.name == "kallsyms");
        let hidden = hidden.and_then(|finding| finding.result.as_ref().err());
        let refused = installed.refused.iter().map(|(group, reason)| CollectorState {
            name: group.region().to_owned(),
            slot: group.slot().unwrap_or_default(),
            schema: String::new(),
            published_ns: None,
            cost_ns: None,
            left_out: Vec::new(),
            // What is behind it, where the kernel has the group.
            error: Some(match hidden {
                Some(hidden) if group.absence().is_none() => format!("{hidden}; {reason}"),
                _ => reason.clone(),
            }),
        });
        let mut collectors: Vec<CollectorState> = good.chain(refused).collect();
        let schemas = installed.groups.iter().flat_map(|group| &group.schema.groups);
        let taken = schemas.flat_map(|group| &group.fields).map(|field| field.name.clone()).collect();
        let ledger = pinned.ledger()?.map_or_else(|| Ok(Vec::new()), |ledger| ledger.all())?;
        let standing = standing(ledger);
        let computed = installed.groups.iter().filter(|group| interval_of(group.group).is_none());
        collectors.extend(pack(config, &pinned, computed, &standing));
        collectors.extend(user::collect(config, &pinned, &standing, &taken));
        collectors.extend(latency(config, &pinned, &home)?);
        Ok(Report { collectors, ..Report::default() })
    };
    let report = done();
    let report = report.unwrap_or_else(|error| Report { error: Some(explain_tracing(&error)), ..Report::default() });
    Report { connections, ..report }
}

/// The words of several groups in one answer, where that is wanted and saves any.
fn pack<'a>(
    config: &config::Kernel,
    pinned: &Pinned,
    groups: impl Iterator<Item = &'a InstalledGroup>,
    standing: &[Standing],
) -> Option<CollectorState> {
    let packed = config.packed.then(|| Packed::of(groups)).flatten();
    let schema = packed.as_ref().map(|packed| packed.schema.canonical());
    let wanted = schema.as_ref().map(|schema| (packed::REGION, SchemaId::of(schema)));
    let slot = assign(packed::SLOTS, wanted.as_slice(), standing).first().copied().flatten();
    let installed = packed.zip(slot).map(|(packed, slot)| packed.install(pinned, slot));
    for other in packed::SLOTS.filter(|other| Some(*other) != slot) {
        // ENOENT where it is empty, which is what is wanted.
        let _ = pinned.remove_collector(other);
    }
    let error = match installed? {
        Ok(()) => None,
        Err(error) => Some(error.to_string()),
    };
    Some(CollectorState {
        name: packed::REGION.to_owned(),
        slot: slot?,
        schema: schema.filter(|_| error.is_none()).unwrap_or_default(),
        published_ns: None,
        cost_ns: None,
        left_out: Vec::new(),
        error,
    })
}

/// How long tasks wait, where that is wanted. A kernel without it has everything else all the same.
fn latency(config: &config::Kernel, pinned: &Pinned, home: &Home) -> Result<Option<CollectorState>, KernelError> {
    scheduler::remove(home)?;
    if !config.scheduler_latency {
        return Ok(None);
    }
    let slab = pinned.slab(OWN_SLAB)?;
    let installed = scheduler::install(home, &slab).and_then(|()| scheduler::cpus());
    Ok(Some(CollectorState {
        name: scheduler::REGION.to_owned(),
        slot: 0,
        schema: installed.as_ref().map_or_else(|_| String::new(), |cpus| scheduler::schema(*cpus).canonical()),
        cost_ns: None,
        published_ns: Some(0),
        left_out: Vec::new(),
        error: installed.err().map(|error| error.to_string()),
    }))
}

/// Why programs that read the kernel's memory cannot be had: a line where the reason is known, else all that was said.
fn explain_tracing(error: &KernelError) -> String {
    if let Some(lacks) = lacks(&[("CAP_BPF", CapabilitySet::BPF), ("CAP_PERFMON", CapabilitySet::PERFMON)]) {
        lacks
    } else if !probe::has_btf() {
        format!(
            "this kernel has no BTF ({} is not there: CONFIG_DEBUG_INFO_BTF), by which its variables are found",
            probe::BTF
        )
    } else if !probe::reads_memory() {
        "this kernel lets no program read its memory: it is in lockdown mode \"confidentiality\" (/sys/kernel/security/lockdown)".to_owned()
    } else {
        explain(error)
    }
}
