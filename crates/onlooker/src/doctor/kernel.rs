// SPDX-License-Identifier: Apache-2.0
//! Checks of this machine's kernel responder: what it needs, where it is pinned, what it drops and why, where it could be attached.
//!
//! The advice is that of docs/responder.md. Needs root: BPF objects are shown to nobody else.

use super::Check;
use crate::number::span;
use onlooker_reader::clock::steady_ns;
use onlooker_responder::{Attachment, Device, Error, Exit, Home, Hook, Pinned, attach, probe};
use onlooker_wire::profile::DEFAULT_MAX_READ_BYTES;
use std::fs;
use std::path::Path;

/// Longest READ that a device is checked for where no responder says otherwise: the profile's.
const MAX_READ_BYTES: u32 = DEFAULT_MAX_READ_BYTES;
/// A lease that ends sooner than the agent renews it will end.
const SHORT_LEASE_NS: u64 = 3_600_000_000_000;

/// All of them, for the BPF file system `bpffs`.
pub(super) fn checks(bpffs: &Path) -> Vec<Check> {
    if !rustix::process::geteuid().is_root() {
        return vec![Check::ok("kernel responder", "not looked at: that needs root")];
    }
    let mut checks: Vec<Check> = probe::all().iter().map(probed).collect();
    checks.extend(pinned(bpffs));
    checks.extend(devices(&fs::read_to_string("/proc/net/dev").unwrap_or_default()));
    checks
}

fn probed(probe: &probe::Probe) -> Check {
    let what = format!("kernel feature {}", probe.name);
    match &probe.found {
        Ok(()) => Check::ok(what, format!("there (Linux {})", probe.since)),
        Err(why) => Check::warn(what, format!("{why} (first in Linux {})", probe.since), probe.without),
    }
}

/// Every responder on a BPF file system.
fn pinned(bpffs: &Path) -> Vec<Check> {
    let base = bpffs.join("onlooker");
    let mut names: Vec<String> = fs::read_dir(&base)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    if names.is_empty() {
        return vec![Check::ok("kernel responder", format!("none is pinned in {}", base.display()))];
    }
    names.iter().flat_map(|name| responder(bpffs, name)).collect()
}

fn responder(bpffs: &Path, name: &str) -> Vec<Check> {
    let what = |part: &str| format!("responder {name}{part}");
    let pinned = match Home::new(bpffs, name).and_then(|home| Pinned::open(&home)) {
        Ok(pinned) => pinned,
        Err(error) => {
            return vec![Check::fail(what(""), error.to_string(), "onlooker-agent purge, then start the agent")];
        }
    };
    let allowed: Vec<_> = pinned.allowed().iter().map(ToString::to_string).collect();
    let regions = pinned.regions().map_or_else(|error| error.to_string(), |regions| regions.len().to_string());
    let config = pinned.config();
    let detail = format!(
        "UDP port {}, READs of up to {} bytes, {regions} regions in {} slabs, sources {}",
        config.port,
        config.max_read_bytes,
        pinned.slabs().map_or(0, |slabs| slabs.len()),
        if allowed.is_empty() { "none".to_owned() } else { allowed.join(" ") },
    );
    let mut checks = vec![if allowed.is_empty() {
        Check::warn(what(""), detail, "it answers nobody: set [kernel] allow in agent.toml and restart the agent")
    } else {
        Check::ok(what(""), detail)
    }];
    checks.push(lease(what(" lease"), pinned.lease_until_ns(), steady_ns()));
    let attachments = pinned.attachments();
    if attachments.is_empty() {
        let advice = "it answers nobody: set [kernel] devices in agent.toml and restart the agent";
        checks.push(Check::warn(what(" devices"), "none", advice));
    }
    checks.extend(attachments.iter().map(|attachment| attached(what(" device"), attachment)));
    match pinned.counters() {
        Ok(counters) => {
            checks.extend(counters.iter().filter(|(_, count)| *count > 0).map(|(exit, count)| match exit {
                Exit::Passed => Check::ok(what(" passed on"), format!("{count} READs {}", advice(exit))),
                Exit::Answered => Check::ok(what(" answered"), format!("{count} READs{}", run_time(&pinned))),
                exit => Check::warn(what(&format!(" dropped {exit}")), format!("{count} packets"), advice(exit)),
            }))
        }
        Err(error) => checks.push(Check::fail(what(" counters"), error.to_string(), "see the kernel log")),
    }
    checks
}

/// What its programs took, where the kernel has counted it.
fn run_time(pinned: &Pinned) -> String {
    let infos = pinned.programs().filter_map(|(_, program)| program.info().ok());
    let (runs, ns) = infos.fold((0, 0), |(runs, ns), info| (runs + info.runs, ns + info.run_time_ns));
    match u64::checked_div(ns, runs) {
        Some(mean) => format!("; its programs ran {runs} times for {ns} ns, {mean} ns each (kernel.bpf_stats_enabled)"),
        None => String::new(),
    }
}

fn lease(what: String, until_ns: Result<u64, Error>, now_ns: u64) -> Check {
    let renew = "the agent renews it while it runs: start it, and see its log";
    match until_ns {
        Ok(0) => Check::fail(what, "was never begun: it answers nobody", renew),
        Ok(until_ns) if until_ns <= now_ns => {
            Check::fail(what, format!("over since {}: it answers nobody", span((now_ns - until_ns).into())), renew)
        }
        Ok(until_ns) => {
            let detail = format!("{} left", span((until_ns - now_ns).into()));
            if until_ns - now_ns < SHORT_LEASE_NS { Check::warn(what, detail, renew) } else { Check::ok(what, detail) }
        }
        Err(error) => Check::fail(what, error.to_string(), "see the kernel log"),
    }
}

fn attached(what: String, attachment: &Attachment) -> Check {
    let Attachment { hook, ifindex, filter } = attachment;
    let how = if filter.is_some() { " (clsact filter)" } else { "" };
    match Device::indexed(*ifindex) {
        Ok(device) => {
            let addresses = device.addresses().unwrap_or_default();
            let shown: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            if shown.is_empty() {
                let advice = "it answers for the device's addresses: give it one";
                return Check::warn(what, format!("{hook}{how} on {device}, which has no address"), advice);
            }
            Check::ok(what, format!("{hook}{how} on {device}: {}", shown.join(", ")))
        }
        Err(Error::NoDevice { .. }) => Check::warn(
            what,
            format!("{hook}{how} on a device with index {ifindex}, which is gone or in another network namespace"),
            "run doctor in its namespace; if the device is gone, restart the agent",
        ),
        Err(error) => Check::fail(what, error.to_string(), "see `ip link`"),
    }
}

/// Devices of this network namespace: which could have a responder, and why not. `table`: as /proc/net/dev, since /sys/class/net may be another
/// namespace's.
fn devices(table: &str) -> Vec<Check> {
    let names = table.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim()));
    names
        .filter_map(|name| Device::named(name).ok())
        .map(|device| {
            let what = format!("device {device}");
            match attach::check(&device, Hook::Tc, MAX_READ_BYTES) {
                Ok(()) => Check::ok(what, "a kernel responder could be attached"),
                Err(error @ Error::Taken { .. }) => Check::ok(what, error.to_string()),
                Err(error) => Check::ok(what, format!("no kernel responder: {error}")),
            }
        })
        .collect()
}

/// What to do when packets leave the responder this way (docs/responder.md).
fn advice(exit: Exit) -> &'static str {
    match exit {
        Exit::Answered => "",
        Exit::Options => {
            "with IPv4 options or IPv6 extension headers, which no reader sends: find out who it is, or what on the way adds them"
        }
        Exit::Martian => {
            "from addresses that nobody outside can have (loopback, this host's own, groups): somebody forges them, or a network is looped back"
        }
        Exit::Lease => "they came after the lease: the agent is gone or does not renew it",
        Exit::Aggregated => "the device merges datagrams: ethtool -K DEVICE rx-udp-gro-forwarding off",
        Exit::Source => "from addresses that may not ask: add them to [kernel] allow, or find out who it is",
        Exit::SourceRate | Exit::CpuRate => "over the budget: raise it in [kernel], or read less",
        Exit::Truncated | Exit::Opcode | Exit::TransportVersion | Exit::PartitionKey => {
            "no READ requests: somebody else uses the port (verbs peers send other opcodes)"
        }
        Exit::Ipv4Flags
        | Exit::Ipv4Checksum
        | Exit::IpLength
        | Exit::UdpLength
        | Exit::RoceLength
        | Exit::PadCount
        | Exit::Profile => "a requester with a fault, or damage on the way",
        Exit::Rkey | Exit::Range => {
            "for memory that is not registered (any more): normal after a region ended until readers have noticed; otherwise somebody guesses"
        }
        Exit::Icrc => {
            "damaged, or their sender numbers its IP packets: see docs/soft-requester.md for the socket's options"
        }
        Exit::Slab => "a region entry points nowhere: a fault of the agent; restart it and report this",
        Exit::Collector | Exit::CollectorRefused => {
            "a computed region has no collector, or it had nothing to say: see the agent's log"
        }
        Exit::Passed => {
            "to UDP port 4791, not for regions of this host, and left to the port's other owner; if devices get no answers: is the reader in [kernel] allow, and the lease on?"
        }
        Exit::Room => "answers could not grow in the packet: XDP on veth does this; use tc",
        Exit::Mtu => "answers are longer than the device's MTU, which was lowered since: raise it or read less at once",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn leases_are_told_by_what_is_left() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let of = |until_ns| lease(String::new(), Ok(until_ns), 100 * HOUR_NS);
        for (until_ns, status, part) in [
            (0, Status::Fail, "never begun"),
            (99 * HOUR_NS, Status::Fail, "over since 60 min"),
            (100 * HOUR_NS + 1_000_000_000, Status::Warn, "1.0 s left"),
            (124 * HOUR_NS, Status::Ok, "24 h left"),
        ] {
            let check = of(until_ns);
            assert!(check.status == status && check.detail.contains(part), "{check:?}");
        }
    }

    #[test]
    fn every_drop_has_advice_and_a_row_in_the_docs() {
        let docs = include_str!("../../../../docs/responder.md");
        for exit in Exit::ALL {
            assert_eq!(advice(exit).is_empty(), exit == Exit::Answered, "{exit}");
            assert!(docs.contains(&format!("`{exit}`")), "{exit}");
        }
    }
}
