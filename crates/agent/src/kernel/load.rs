// SPDX-License-Identifier: Apache-2.0
//! Loads the kernel responder, or puts right the one that is pinned: programs, slabs of the agent, ledger, sources, devices, addresses, lease.
//!
//! Run in a process of its own (`onlooker-agent load`), so that what libbpf needs for loading is gone afterwards. Everything that is as it should be is left alone:
//! running it again changes nothing, and the data plane goes on meanwhile. One at a time: the BPF file system's root directory is locked.

use std::fs::File;
use std::net::IpAddr;
use std::time::Duration;

use onlooker_metrics::collect::stop_publishing;
use onlooker_metrics::groups::Group;
use onlooker_metrics::scheduler;
use onlooker_responder::{Config, Device, Error, Home, Hook, Outcome, Pinned, Rate, Reattached, Standing, probe};
use onlooker_translator::Translator;
use rustix::fs::{FlockOperation, flock};
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};

use super::recover::OWN_SLAB;
use super::sources::prefixes;
use super::telemetry::{self, TableState};
use super::{CONTROL_SLAB, KernelError, own_blocks};
use crate::config;
use crate::units::Span;

/// What there is now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// What was done to the responder.
    pub responder: State,
    /// Configured devices, in that order.
    pub devices: Vec<DeviceState>,
    /// Groups of kernel metrics that are computed now ([`super::collect`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collectors: Vec<CollectorState>,
    /// Why there are no TCP connections although they are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<String>,
    /// Tables of telemetry, in no order; only where an agent begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub telemetry: Vec<TableState>,
    /// Why there are none although they are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry_error: Option<String>,
    /// Why there is no responder; the rest is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A group of kernel metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorState {
    /// Its region's name.
    pub name: String,
    /// The collector's slot.
    pub slot: u32,
    /// The region's class, canonical: metrics that agree with procfs. Empty where there is an error.
    pub schema: String,
    /// What its dearest block takes, ns, where that was measured: users' collectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// The kernel is to write it into memory so often, ns ([`super::Kernel::start_twin`]); the class is that of what it writes then. 0: at each event of the scheduler
    /// ([`onlooker_metrics::scheduler`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_ns: Option<u64>,
    /// Metrics that are left out, or disagree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Why it is not computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What was done to the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// There is none.
    #[default]
    None,
    /// It was loaded.
    Loaded,
    /// It was there.
    Kept,
    /// It was there with other programs or settings, which were replaced in place: regions go on.
    Replaced,
    /// One that could not be taken over was removed for it, with all its regions.
    Reloaded,
}

/// A configured device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    /// Its name.
    pub name: String,
    /// Its index; none: it is not there.
    pub index: Option<u32>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Why nothing is answered on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl std::fmt::Display for DeviceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, addresses, error, .. } = self;
        if let Some(error) = error {
            return write!(f, "kernel responder does not answer on {name}: {error}");
        }
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let addresses = if addresses.is_empty() { "no address yet".to_owned() } else { addresses.join(", ") };
        write!(f, "kernel responder answers on {name}: {addresses}")
    }
}

impl std::fmt::Display for CollectorState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, left_out, error, published_ns, cost_ns, .. } = self;
        match (error, published_ns) {
            (Some(error), Some(0)) => return write!(f, "{name} is not there: {error}"),
            (Some(error), _) => return write!(f, "{name} is not computed: {error}"),
            (None, None) => write!(f, "{name} is computed when it is read")?,
            (None, Some(0)) => write!(f, "{name} is written at every wake-up and every switch of tasks")?,
            (None, Some(ns)) => write!(f, "{name} is published every {}", Span::from_ns(*ns))?,
        }
        if let Some(ns) = cost_ns {
            write!(f, ", {ns} ns a block")?;
        }
        if left_out.is_empty() { Ok(()) } else { write!(f, ", without {}", left_out.join(", ")) }
    }
}

/// Carries it out. `replace`: a responder that cannot be taken over is removed with all its regions; otherwise that is an error.
#[must_use]
pub fn load(config: &config::Kernel, replace: bool) -> Report {
    put_right(config, replace).unwrap_or_else(|error| Report { error: Some(explain(&error)), ..Report::default() })
}

fn put_right(config: &config::Kernel, replace: bool) -> Result<Report, KernelError> {
    let home = Home::new(&config.bpffs, &config.name)?;
    let _lock = lock(config)?;
    let (pinned, responder) = open_or_load(config, &home, replace)?;
    if replace {
        // The agent that begins may give their memory to others. Those that go on are started anew once all is installed.
        Group::computed().try_for_each(|group| stop_publishing(&home, group))?;
        scheduler::remove(&home)?;
    }
    for (index, blocks) in [(CONTROL_SLAB, config.control_blocks()), (OWN_SLAB, own_blocks())] {
        if !pinned.slabs()?.contains(&index) {
            pinned.create_slab(index, blocks)?;
        }
    }
    if pinned.ledger()?.is_none() {
        // One for each entry, the header, and those of hidden regions.
        pinned.create_ledger(2 * config.control_entries() + 1)?;
    }
    pinned.set_sources(&prefixes(&config.allow)?)?;
    // A running agent has the tables in its directory: they change with the next one.
    let telemetry = if replace { telemetry::put_right(&pinned, &config.telemetry) } else { Ok(Vec::new()) };
    let (telemetry, telemetry_error) = match telemetry {
        Ok(tables) => (tables, None),
        Err(error) => {
            // Its slabs become others' now: nothing may write there any more.
            Translator::uninstall(&pinned)?;
            (Vec::new(), Some(explain(&error)))
        }
    };
    let devices = attach(&pinned, config)?;
    pinned.set_lease(config.lease.as_duration())?;
    Ok(Report { responder, devices, telemetry, telemetry_error, ..Report::default() })
}

/// The directory is never removed, so that whoever has the lock has the place.
pub(super) fn lock(config: &config::Kernel) -> Result<File, KernelError> {
    let failed = |source| KernelError::System { operation: "lock the BPF file system", source };
    let root = File::open(&config.bpffs).map_err(failed)?;
    flock(&root, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    Ok(root)
}

fn open_or_load(config: &config::Kernel, home: &Home, replace: bool) -> Result<(Pinned, State), KernelError> {
    let wanted = responder_config(config);
    if !replace && home.exists() {
        // A running agent has the tables open: nothing may put others in their place.
        let pinned = Pinned::open(home)?;
        if !is_like(&pinned, config) {
            let what = "it has other sizes: restart the agent".to_owned();
            return Err(Error::Incompatible { path: home.path().display().to_string(), what }.into());
        }
    }
    let (pinned, outcome) = Pinned::ensure(&wanted, home)?;
    let state = match outcome {
        Outcome::Loaded => State::Loaded,
        Outcome::Reopened => State::Kept,
        Outcome::Replaced => State::Replaced,
        Outcome::Reloaded { .. } => State::Reloaded,
    };
    if is_like(&pinned, config) {
        return Ok((pinned, state));
    }
    home.purge()?;
    Ok((Pinned::load(&wanted, home)?, State::Reloaded))
}

fn responder_config(config: &config::Kernel) -> Config {
    // A tenth of a second's READs may come at once.
    let rate = |per_second: u32| Some(Rate { per_second, burst: (per_second / 10).max(1) });
    Config {
        max_read_bytes: u32::try_from(config.max_read_bytes.as_bytes()).unwrap_or(u32::MAX),
        dscp: config.dscp,
        source_rate: rate(config.source_reads_per_s),
        cpu_rate: rate(config.cpu_reads_per_s),
        roce: config.roce,
        ..Config::new(config.port)
    }
}

/// What cannot be changed in place: the sizes of the agent's slabs, the ledger's shape.
fn is_like(pinned: &Pinned, config: &config::Kernel) -> bool {
    let has = |index, blocks| match pinned.slabs() {
        Ok(slabs) if slabs.contains(&index) => pinned.slab(index).is_ok_and(|slab| slab.blocks() == blocks),
        Ok(_) => true,
        Err(_) => false,
    };
    has(CONTROL_SLAB, config.control_blocks()) && has(OWN_SLAB, own_blocks()) && pinned.ledger().is_ok()
}

/// Attaches what is not attached, detaches what is not configured (any more): names decide.
fn attach(pinned: &Pinned, config: &config::Kernel) -> Result<Vec<DeviceState>, KernelError> {
    let hook = match config.hook {
        config::kernel::Hook::Tc => Hook::Tc,
        config::kernel::Hook::Xdp => Hook::Xdp,
    };
    let wanted: Vec<(&str, Hook)> = config.devices.iter().map(|name| (name.as_str(), hook)).collect();
    let mut states = Vec::new();
    for Reattached { device: name, standing, .. } in pinned.reattach(&wanted)? {
        let error = match standing {
            Standing::Kept | Standing::Attached => None,
            Standing::Missing => Some("there is no such device now".to_owned()),
            Standing::Failed(error) => Some(error.to_string()),
            Standing::Unlisted(attachment) => {
                pinned.detach(&attachment)?;
                continue;
            }
            Standing::Gone => continue,
        };
        let device = Device::named(&name).ok();
        let addresses = device.as_ref().and_then(|device| device.addresses().ok()).unwrap_or_default();
        states.push(DeviceState { name, index: device.map(|device| device.index()), addresses, error });
    }
    Ok(states)
}

/// Capabilities that this process has not got, and what to do.
pub(super) fn lacks(all: &[(&str, CapabilitySet)]) -> Option<String> {
    let mut has = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    if has.contains(CapabilitySet::SYS_ADMIN) {
        // bpf_capable and perfmon_capable in include/linux/capability.h.
        has |= CapabilitySet::BPF | CapabilitySet::PERFMON;
    }
    let lacking: Vec<&str> = all.iter().filter(|(_, one)| !has.contains(*one)).map(|(name, _)| *name).collect();
    let lacking = (!lacking.is_empty()).then(|| lacking.join(" and no "))?;
    Some(format!(
        "this process has no {lacking}: run it as root, or with packaging/onlooker-agent.service.d/kernel.conf"
    ))
}

/// What failed, and what of it this process or this kernel lacks.
pub(super) fn explain(error: &KernelError) -> String {
    // Without CAP_PERFMON the verifier lets no offset into a packet be computed (allow_ptr_leaks and bypass_spec_v1 in kernel/bpf/verifier.c).
    let all = [
        ("CAP_BPF", CapabilitySet::BPF),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_PERFMON", CapabilitySet::PERFMON),
    ];
    if let Some(lacks) = lacks(&all) {
        // Of what was said the rest is the verifier's.
        return format!("{}; {lacks}", error.to_string().lines().next().unwrap_or_default());
    }
    let missing: Vec<String> = probe::all()
        .iter()
        .filter(|probe| probe.required)
        .filter_map(|probe| {
            let error = probe.found.as_ref().err()?;
            Some(format!("{} (Linux {}): {error}", probe.name, probe.since))
        })
        .collect();
    if missing.is_empty() { error.to_string() } else { format!("{error}; this kernel lacks {}", missing.join(", ")) }
}

/// Removes what is pinned: attachments, programs, slabs with all regions, ledger. Says what was done, a line each; nothing where nothing is.
///
/// # Errors
/// No BPF file system there, or a pin that cannot be removed.
pub fn purge(config: &config::Kernel) -> Result<Vec<String>, KernelError> {
    let home = Home::new(&config.bpffs, &config.name)?;
    if !home.exists() {
        return Ok(Vec::new());
    }
    let _lock = lock(config)?;
    Ok(home.purge()?)
}

/// Ends the lease of a pinned responder: it answers nobody until an agent renews it. False where nothing is pinned.
///
/// # Errors
/// What is pinned cannot be opened or changed.
pub fn silence(config: &config::Kernel) -> Result<bool, KernelError> {
    if !is_pinned(config) {
        return Ok(false);
    }
    Pinned::open(&Home::new(&config.bpffs, &config.name)?)?.set_lease(Duration::ZERO)?;
    Ok(true)
}

/// Whether a responder is pinned, as far as we may look; or may be, since somebody else has its directory.
#[must_use]
pub fn is_pinned(config: &config::Kernel) -> bool {
    match Home::new(&config.bpffs, &config.name) {
        Ok(home) => home.exists(),
        Err(error) => matches!(error, Error::NotOurs { .. }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_reach_the_programs() {
        for roce in [false, true] {
            let made = responder_config(&config::Kernel { port: 7000, dscp: 46, roce, ..config::Kernel::default() });
            assert_eq!((made.port, made.dscp, made.max_read_bytes, made.roce), (7000, 46, 1024, roce));
        }
    }
}
