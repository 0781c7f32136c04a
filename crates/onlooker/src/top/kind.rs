// SPDX-License-Identifier: Apache-2.0
//! The views: which question each answers, and which of the host's regions it reads for that. What a view does not
//! show,
//! it does not read.

use onlooker_metrics::groups::Group;
use onlooker_metrics::tables::{cgroups, processes};
use onlooker_region::control::RegionEntry;

/// A view. Its key is its place, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// CPU, memory, pressure, file systems, disks, network
    #[default]
    Machine,
    /// Who uses CPU and memory, and who grows
    Processes,
    /// Control groups: CPU, memory and its limit, throttling, I/O
    Containers,
    /// Metrics of the programs that publish some
    Programs,
    /// All series of the host
    Series,
}

/// A region of the host's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// Identity word.
    pub(super) word: u64,
    pub(super) name: String,
    /// It is the agent's own, and so is what its name promises.
    pub(super) is_agents: bool,
}

impl Region {
    pub(super) fn of(entry: &RegionEntry) -> Self {
        let identity = entry.identity;
        Self { word: identity.word(), name: crate::output::shown(&entry.name), is_agents: identity.is_agents() }
    }

    /// Whether the agent publishes these metrics there, or what it samples of them.
    fn has(&self, groups: &[Group]) -> bool {
        let group = self.name.strip_suffix("_sampled").unwrap_or(&self.name);
        self.is_agents && groups.iter().any(|wanted| wanted.region() == group)
    }
}

/// What tells how busy and how full the machine is, in a line.
const SUMMARY: [Group; 3] = [Group::CPU, Group::LOAD, Group::MEMORY];
/// What stands above all series.
const ABOVE: [Group; 4] = [Group::CPU, Group::LOAD, Group::MEMORY, Group::NETWORK];
const MACHINE: [Group; 8] = [
    Group::CPU,
    Group::LOAD,
    Group::MEMORY,
    Group::PRESSURE,
    Group::FILESYSTEM,
    Group::DISK,
    Group::NETWORK,
    Group::NETSTAT,
];

impl Kind {
    pub(super) const ALL: [Self; 5] = [Self::Machine, Self::Processes, Self::Containers, Self::Programs, Self::Series];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Processes => "processes",
            Self::Containers => "containers",
            Self::Programs => "programs",
            Self::Series => "series",
        }
    }

    /// What it is for.
    pub(super) fn question(self) -> &'static str {
        match self {
            Self::Machine => "is it busy, or full? CPU, memory, pressure, file systems, disks, network",
            Self::Processes => "who uses CPU and memory, and who grows?",
            Self::Containers => "which container or service is busy, throttled, near its limit?",
            Self::Programs => "what do the programs say that publish metrics?",
            Self::Series => "everything: all series of the host",
        }
    }

    /// Round and round.
    pub(super) fn next(self, back: bool) -> Self {
        let step = if back { Self::ALL.len() - 1 } else { 1 };
        Self::ALL[(self as usize + step) % Self::ALL.len()]
    }

    /// The agent's table that it shows.
    pub(super) fn table(self) -> Option<&'static str> {
        match self {
            Self::Processes => Some(processes::TABLE),
            Self::Containers => Some(cgroups::TABLE),
            Self::Machine | Self::Programs | Self::Series => None,
        }
    }

    /// Whether every reading fetches the region, whatever is in sight.
    pub(super) fn follows(self, region: &Region) -> bool {
        match self {
            Self::Machine => region.has(&MACHINE),
            Self::Processes | Self::Containers => {
                region.has(&SUMMARY) || region.is_agents && self.table() == Some(&region.name)
            }
            Self::Programs => !region.is_agents,
            Self::Series => region.has(&ABOVE),
        }
    }
}
