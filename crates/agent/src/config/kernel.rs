// SPDX-License-Identifier: Apache-2.0
//! `[kernel]` of agent.toml: the kernel responder, off unless devices are named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Deserializer, Serialize};

use onlooker_metrics::groups::Group;
use onlooker_metrics::scheduler;

use super::acquisition::{Acquisition, PUBLISHED};
use super::prefixes;
use super::refused::Refused;
use super::telemetry::Telemetry;
use crate::prefix::Prefix;
use crate::units::{Size, Span};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::slab::PAGE_BYTES;
use onlooker_wire::ROCE_PORT;

/// IFNAMSIZ of linux/if.h, without the NUL.
const MAX_DEVICE_BYTES: usize = 15;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// In the place of names of groups: all of them.
pub const ALL_GROUPS: &str = "all";

/// Where packets are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// tc ingress.
    Tc,
    /// XDP in the driver.
    Xdp,
}

/// The kernel responder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kernel {
    /// Network devices that it answers on; empty: there is none.
    pub devices: Vec<String>,
    /// Where on them.
    pub hook: Hook,
    /// UDP port that it owns there.
    pub port: u16,
    /// Whether it answers RDMA devices, too, on RoCEv2's own port.
    pub roce: bool,
    /// Sources that may READ.
    pub allow: Vec<Prefix>,
    /// Differentiated services code point of answers.
    pub dscp: u8,
    /// Largest READ.
    pub max_read_bytes: Size,
    /// READs a second that one source address gets answered.
    pub source_reads_per_s: u32,
    /// READs a second that one processor answers for all sources: a READ of n blocks counts n, a computed block its time (docs/responder.md, Budgets).
    pub cpu_reads_per_s: u32,
    /// Size of a user's slab. All of it is kernel memory at once.
    pub slab: Size,
    /// Size of the control region. All of it is kernel memory at once.
    pub control: Size,
    /// How long it answers after the agent is gone.
    pub lease: Span,
    /// A BPF file system.
    pub bpffs: PathBuf,
    /// Its directory there, under `onlooker/`.
    pub name: String,
    /// Groups of kernel metrics that are computed when they are read, by name; [`ALL_GROUPS`]: all that this version has.
    pub groups: Vec<String>,
    /// Whether the words of small groups are also served side by side in few blocks.
    pub packed: bool,
    /// How often what is not computed is sampled for readers over the kernel responder; 0: never.
    #[serde(deserialize_with = "span_or_off")]
    pub sample: Span,
    /// Directory of users' collectors: files that end with `.toml`.
    pub collectors: PathBuf,
    /// How long a block of theirs may take.
    pub collector_budget: Span,
    /// Histograms of how long tasks wait for a CPU, counted at every wake-up and every switch of tasks.
    pub scheduler_latency: bool,
    /// How values of single groups are acquired, by name; others are computed.
    pub acquisition: BTreeMap<String, Acquisition>,
    /// Tables that telemetry reports write to.
    pub telemetry: Telemetry,
}

/// A span, or `off`.
fn span_or_off<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
    span_or(deserializer, "off")
}

/// A span, or a word in the place of 0.
pub(super) fn span_or<'de, D: Deserializer<'de>>(deserializer: D, zero: &str) -> Result<Span, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == zero { Ok(Span::from_ns(0)) } else { Span::deserialize(text.as_str().into_deserializer()) }
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            hook: Hook::Tc,
            port: 7179,
            roce: false,
            allow: prefixes(&["127.0.0.0/8", "::1/128"]),
            dscp: 0,
            max_read_bytes: Size::from_bytes(BLOCK),
            source_reads_per_s: 100_000,
            cpu_reads_per_s: 400_000,
            slab: Size::from_mib(4),
            control: Size::from_mib(2),
            lease: Span::from_s(24 * 3600),
            bpffs: "/sys/fs/bpf".into(),
            name: "agent".into(),
            groups: vec![ALL_GROUPS.into()],
            packed: true,
            sample: Span::from_s(5),
            collectors: "/etc/onlooker/collectors.d".into(),
            collector_budget: Span::from_ns(5000),
            scheduler_latency: false,
            acquisition: BTreeMap::new(),
            telemetry: Telemetry::default(),
        }
    }
}

impl Kernel {
    /// Whether there is to be a kernel responder.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.devices.is_empty()
    }

    /// UDP ports that READs come to.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        if self.roce { vec![self.port, ROCE_PORT] } else { vec![self.port] }
    }

    /// Groups that have a collector: computed and published ones. What the responder itself counts is of use to everybody.
    #[must_use]
    pub fn computed_groups(&self) -> Vec<Group> {
        let is_wanted = |group: &Group| {
            let is_it = |name: &String| name == ALL_GROUPS || name == group.name();
            let is_sampled = self.acquisition.get(group.name()) == Some(&Acquisition::Sampled);
            *group == Group::RESPONDER || (self.groups.iter().any(is_it) && !is_sampled)
        };
        Group::computed().filter(is_wanted).collect()
    }

    /// How a group's values are acquired; [`Acquisition::Sampled`] where it is not in `groups`.
    #[must_use]
    pub fn acquisition_of(&self, group: Group) -> Acquisition {
        if !self.computed_groups().contains(&group) {
            return Acquisition::Sampled;
        }
        self.acquisition.get(group.name()).copied().unwrap_or(Acquisition::Computed)
    }

    /// Switches every group that would be computed at the READ to `published every <interval>`. Groups that the configuration sets to `computed` keep it.
    pub(super) fn publish(&mut self, interval: Span) {
        for group in self.computed_groups() {
            self.acquisition.entry(group.name().into()).or_insert(Acquisition::Published(interval));
        }
    }

    /// Whether the kernel writes a region of this name into memory.
    #[must_use]
    pub fn is_published(&self, region: &str) -> bool {
        if region == scheduler::REGION {
            return self.scheduler_latency;
        }
        let mut groups = Group::computed().filter(|group| group.region() == region);
        groups.any(|group| matches!(self.acquisition_of(group), Acquisition::Published(_)))
    }

    /// Blocks of the control region.
    #[must_use]
    pub fn control_blocks(&self) -> u32 {
        u32::try_from(self.control.as_bytes() / BLOCK).unwrap_or(u32::MAX)
    }

    /// Entries that the control region has: an eighth of its blocks are entry blocks, two entries each.
    #[must_use]
    pub fn control_entries(&self) -> u32 {
        self.control_blocks() / 4
    }

    pub(super) fn check(&self) -> Result<(), Refused> {
        let refuse = |key, value: &dyn ToString, message| Err((key, value.to_string(), message));
        let mut seen = BTreeSet::new();
        for device in &self.devices {
            let whole = !device.is_empty() && device.len() <= MAX_DEVICE_BYTES && !device.contains(['/', ' ', ':']);
            if !whole {
                return refuse("kernel.devices", device, "must be names of network devices, as `ip link` shows them");
            }
            if !seen.insert(device) {
                return refuse("kernel.devices", device, "is given twice: leave one out");
            }
        }
        if self.port == 0 {
            return refuse("kernel.port", &self.port, "must be 1 to 65535");
        }
        if self.roce && self.port == ROCE_PORT {
            let advice = "is where RDMA devices are answered (kernel.roce), otherwise than at a port of its own: take another, such as 7179";
            return refuse("kernel.port", &self.port, advice);
        }
        if self.dscp > 63 {
            return refuse("kernel.dscp", &self.dscp, "must be 0 to 63");
        }
        let read = self.max_read_bytes.as_bytes();
        if read == 0 || !read.is_multiple_of(BLOCK) || read > 8 * BLOCK {
            return refuse("kernel.max_read_bytes", &self.max_read_bytes, "must be a multiple of 1KiB, at most 8KiB");
        }
        for (key, rate) in
            [("kernel.source_reads_per_s", self.source_reads_per_s), ("kernel.cpu_reads_per_s", self.cpu_reads_per_s)]
        {
            if rate == 0 || rate > 1_000_000_000 {
                return refuse(key, &rate, "must be 1 to 1000000000; to serve nobody, empty kernel.allow");
            }
        }
        let slab = self.slab.as_bytes();
        if slab == 0 || !slab.is_multiple_of(PAGE_BYTES) || slab > 1 << 30 {
            return refuse("kernel.slab", &self.slab, "must be a multiple of 4KiB, at most 1GiB");
        }
        let control = self.control.as_bytes();
        if control < 64 * BLOCK || !control.is_multiple_of(PAGE_BYTES) || control > 64 << 20 {
            return refuse("kernel.control", &self.control, "must be a multiple of 4KiB from 64KiB to 64MiB");
        }
        if self.lease < Span::from_s(60) || self.lease > Span::from_s(30 * 24 * 3600) {
            return refuse("kernel.lease", &self.lease, "must be 1min to 30d");
        }
        if !self.bpffs.is_absolute() {
            return refuse("kernel.bpffs", &self.bpffs.display(), "must be an absolute path: begin it with /");
        }
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(good) {
            return refuse("kernel.name", &self.name, "must be 1 to 64 letters, digits, - and _");
        }
        if self.sample != Span::from_ns(0) && (self.sample < Span::from_ms(100) || self.sample > Span::from_s(3600)) {
            return refuse(
                "kernel.sample",
                &self.sample,
                "must be \"off\", or 100ms to 1h; sampling procfs costs about 0.2 ms of CPU each time",
            );
        }
        let is_known = |name: &String| name == ALL_GROUPS || Group::computed().any(|group| group.name() == name);
        if let Some(unknown) = self.groups.iter().find(|name| !is_known(name)) {
            return refuse(
                "kernel.groups",
                unknown,
                "is no group of computed metrics: take \"all\", or names of docs/kernel-metrics.md",
            );
        }
        if !self.collectors.is_absolute() {
            return refuse(
                "kernel.collectors",
                &self.collectors.display(),
                "must be an absolute path: begin it with /",
            );
        }
        if self.collector_budget < Span::from_ns(100) || self.collector_budget > Span::from_ns(100_000) {
            let advice = "must be 100ns to 100us; a collector runs in softirq, where nothing else can run meanwhile";
            return refuse("kernel.collector_budget", &self.collector_budget, advice);
        }
        self.check_acquisition()?;
        if self.allow.len() > 1024 {
            return refuse("kernel.allow", &self.allow.len(), "must be at most 1024 prefixes: join some");
        }
        Ok(())
    }

    fn check_acquisition(&self) -> Result<(), Refused> {
        const KEY: &str = "kernel.acquisition";
        for (name, acquisition) in &self.acquisition {
            let Some(group) = Group::computed().find(|group| group.name() == name) else {
                let advice = "is no group of computed metrics: take names of docs/kernel-metrics.md";
                return Err((KEY, name.clone(), advice));
            };
            match acquisition {
                Acquisition::Published(interval) if !PUBLISHED.contains(interval) => {
                    return Err((KEY, format!("{name} = published {interval}"), "must be every 1ms to 1h"));
                }
                Acquisition::Sampled if group == Group::RESPONDER => {
                    return Err((KEY, format!("{name} = sampled"), "cannot be: procfs knows nothing of the responder"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What is allowed but probably not meant.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.is_on() {
            return warnings;
        }
        if self.hook == Hook::Xdp {
            warnings.push(
                "[kernel] hook = \"xdp\": some drivers reset the device when it is attached, tcpdump sees neither requests nor answers, on veth use tc (docs/responder.md, Traps)".to_owned(),
            );
        }
        if self.port == ROCE_PORT {
            warnings.push(format!(
                "[kernel] port = {ROCE_PORT} is taken by RDMA cards in RoCE mode and by soft-RoCE: requests to it may never arrive"
            ));
        }
        if self.devices.iter().any(|device| device != "lo") && self.allow.iter().all(Prefix::is_loopback) {
            warnings.push(
                "[kernel] allow has no address but loopback: requests from other machines are dropped in silence"
                    .to_owned(),
            );
        }
        // IPv4 addresses are mapped into IPv6 in the responder's table (docs/responder.md, Traps).
        if self.allow.iter().any(|prefix| prefix.address().is_ipv6() && prefix.bits() < 96 && prefix.contains_mapped())
        {
            warnings.push("[kernel] allow has an IPv6 prefix that holds ::ffff:0:0/96: the kernel responder lets all of IPv4 ask, too".to_owned());
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Kernel)) -> Kernel {
        let mut kernel = Kernel { devices: vec!["eth0".into()], ..Kernel::default() };
        change(&mut kernel);
        kernel
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_key() {
        assert_eq!(Kernel::default().check(), Ok(()));
        assert_eq!(with(|kernel| kernel.roce = true).check(), Ok(()));
        assert!(!Kernel::default().is_on() && with(|_| ()).is_on());
        for (key, bad) in [
            ("kernel.devices", with(|kernel| kernel.devices.push("eth0".into()))),
            ("kernel.devices", with(|kernel| kernel.devices.push("a/b".into()))),
            ("kernel.devices", with(|kernel| kernel.devices.push("a-name-that-is-too-long".into()))),
            ("kernel.port", with(|kernel| kernel.port = 0)),
            ("kernel.port", with(|kernel| (kernel.port, kernel.roce) = (4791, true))),
            ("kernel.dscp", with(|kernel| kernel.dscp = 64)),
            ("kernel.max_read_bytes", with(|kernel| kernel.max_read_bytes = Size::from_bytes(1500))),
            ("kernel.max_read_bytes", with(|kernel| kernel.max_read_bytes = Size::from_bytes(9 * 1024))),
            ("kernel.source_reads_per_s", with(|kernel| kernel.source_reads_per_s = 0)),
            ("kernel.cpu_reads_per_s", with(|kernel| kernel.cpu_reads_per_s = u32::MAX)),
            ("kernel.slab", with(|kernel| kernel.slab = Size::from_bytes(5000))),
            ("kernel.control", with(|kernel| kernel.control = Size::from_bytes(4096))),
            ("kernel.lease", with(|kernel| kernel.lease = Span::from_s(1))),
            ("kernel.bpffs", with(|kernel| kernel.bpffs = "bpf".into())),
            ("kernel.name", with(|kernel| kernel.name = "a/b".into())),
            ("kernel.groups", with(|kernel| kernel.groups.push("cpus".into()))),
            ("kernel.collectors", with(|kernel| kernel.collectors = "collectors.d".into())),
            ("kernel.collector_budget", with(|kernel| kernel.collector_budget = Span::from_ns(99))),
            ("kernel.collector_budget", with(|kernel| kernel.collector_budget = Span::from_ms(1))),
            ("kernel.sample", with(|kernel| kernel.sample = Span::from_ms(99))),
            ("kernel.sample", with(|kernel| kernel.sample = Span::from_s(3601))),
        ] {
            assert_eq!(bad.check().map_err(|(key, _, _)| key), Err(key));
        }
    }

    #[test]
    fn groups_are_chosen_by_name() {
        assert_eq!(with(|_| ()).computed_groups(), Group::computed().collect::<Vec<_>>());
        assert_eq!(with(|kernel| kernel.groups.clear()).computed_groups(), [Group::RESPONDER]);
        let two = with(|kernel| kernel.groups = vec!["load".into(), "cpu".into()]);
        assert_eq!(two.computed_groups(), [Group::CPU, Group::LOAD, Group::RESPONDER]);
    }

    #[test]
    fn what_is_probably_not_meant_is_warned_of() {
        let open = |kernel: &mut Kernel| kernel.allow = prefixes(&["10.0.0.0/8"]);
        assert!(Kernel::default().warnings().is_empty());
        assert!(with(open).warnings().is_empty());
        assert_eq!(with(|_| ()).warnings().len(), 1, "loopback only");
        assert!(with(|kernel| kernel.devices = vec!["lo".into()]).warnings().is_empty());
        let careless = with(|kernel| {
            kernel.allow = prefixes(&["::/0"]);
            (kernel.hook, kernel.port) = (Hook::Xdp, 4791);
        });
        assert_eq!(careless.warnings().len(), 3);
    }

    fn kernel(text: &str) -> Kernel {
        toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn each_group_has_its_way() {
        let kernel = kernel(
            "groups = [\"cpu\", \"load\", \"memory\", \"netstat\"]\n[acquisition]\ncpu = \"published 10ms\"\nload = \"sampled\"\nmemory = \"computed\"\n",
        );
        assert_eq!(kernel.acquisition_of(Group::CPU), Acquisition::Published(Span::from_ms(10)));
        assert_eq!(kernel.acquisition_of(Group::LOAD), Acquisition::Sampled);
        assert_eq!(kernel.acquisition_of(Group::MEMORY), Acquisition::Computed);
        assert_eq!(kernel.acquisition_of(Group::NETSTAT), Acquisition::Computed);
        assert_eq!(kernel.acquisition_of(Group::NETWORK), Acquisition::Sampled, "it is not in groups");
        assert!(kernel.is_published("node_cpu") && !kernel.is_published("node_memory") && !kernel.is_published("x"));
        assert_eq!(
            kernel.computed_groups(),
            [Group::CPU, Group::MEMORY, Group::RESPONDER, Group::NETSTAT],
            "what is sampled needs no collector"
        );
        assert_eq!(kernel.check_acquisition(), Ok(()));
        // The loader is told all of it as JSON.
        let told = serde_json::to_string(&kernel.acquisition).unwrap();
        assert_eq!(told, r#"{"cpu":"published 10ms","load":"sampled","memory":"computed"}"#);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["cpu = \"polled\"", "cpu = \"published\"", "cpu = \"published soon\"", "cpu = 5"] {
            assert!(toml::from_str::<Kernel>(&format!("[acquisition]\n{text}\n")).is_err(), "{text}");
        }
        for text in ["cpus = \"computed\"", "cpu = \"published 100us\"", "responder = \"sampled\""] {
            let refused = kernel(&format!("[acquisition]\n{text}\n")).check_acquisition();
            assert!(matches!(refused, Err(("kernel.acquisition", ..))), "{text}: {refused:?}");
        }
    }
}
