// SPDX-License-Identifier: Apache-2.0
//! Groups of sampled kernel metrics: names, regions, how often they are worth sampling.

use serde::{Deserialize, Serialize};

use crate::units::Span;

/// A group of sampled kernel metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// /proc/stat
    Cpu,
    /// /proc/loadavg
    Load,
    /// /proc/meminfo
    Memory,
    /// rtnetlink, /proc/net/arp
    Network,
    /// rtnetlink
    Qdisc,
    /// /proc/vmstat
    Vmstat,
    /// /proc/net/netstat, snmp, snmp6
    Netstat,
    /// /proc/net/sockstat, sockstat6
    Sockstat,
    /// `/proc/net/softnet_stat`
    Softnet,
    /// /proc/diskstats
    Disk,
    /// /proc/pressure
    Pressure,
    /// /proc/schedstat
    Schedstat,
    /// Single numbers of /proc/sys, adjtimex, uname
    Host,
    /// /proc/self
    Agent,
    /// /proc/interrupts
    Interrupts,
    /// `sock_diag`, /proc/net/udp
    Sockets,
    /// statfs of what is mounted
    Filesystem,
    /// /proc/PID/stat
    Processes,
    /// sysfs
    Sensors,
    /// How the others' samples went; after them
    Scrape,
}

/// A group's names.
struct Names {
    region: &'static str,
    left: &'static str,
}

macro_rules! names {
    ($name:literal) => {
        Names { region: concat!("node_", $name), left: concat!("node_", $name, "_sampled") }
    };
}

impl Group {
    /// All there are.
    pub const ALL: [Self; 20] = [
        Self::Cpu,
        Self::Load,
        Self::Memory,
        Self::Network,
        Self::Qdisc,
        Self::Vmstat,
        Self::Netstat,
        Self::Sockstat,
        Self::Softnet,
        Self::Disk,
        Self::Pressure,
        Self::Schedstat,
        Self::Host,
        Self::Agent,
        Self::Interrupts,
        Self::Sockets,
        Self::Filesystem,
        Self::Processes,
        Self::Sensors,
        Self::Scrape,
    ];

    const fn names(self) -> Names {
        match self {
            Self::Cpu => names!("cpu"),
            Self::Load => names!("load"),
            Self::Memory => names!("memory"),
            Self::Network => names!("network"),
            Self::Qdisc => names!("qdisc"),
            Self::Vmstat => names!("vmstat"),
            Self::Netstat => names!("netstat"),
            Self::Sockstat => names!("sockstat"),
            Self::Softnet => names!("softnet"),
            Self::Disk => names!("disk"),
            Self::Pressure => names!("pressure"),
            Self::Schedstat => names!("schedstat"),
            Self::Host => names!("host"),
            Self::Agent => names!("agent"),
            Self::Interrupts => names!("interrupts"),
            Self::Sockets => names!("sockets"),
            Self::Filesystem => names!("filesystem"),
            Self::Processes => names!("processes"),
            Self::Sensors => names!("sensors"),
            Self::Scrape => names!("scrape"),
        }
    }

    /// Region of all of it.
    #[must_use]
    pub const fn region(self) -> &'static str {
        self.names().region
    }

    /// Region of what is left of it beside a computed one.
    #[must_use]
    pub const fn left_region(self) -> &'static str {
        self.names().left
    }

    /// It is not sampled more often than this: it costs too much, or moves too slowly.
    #[must_use]
    pub const fn shortest_interval(self) -> Span {
        match self {
            Self::Interrupts | Self::Sockets => Span::from_s(10),
            Self::Filesystem | Self::Processes | Self::Sensors => Span::from_s(30),
            _ => Span::from_ns(0),
        }
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.region().trim_start_matches("node_"))
    }
}
