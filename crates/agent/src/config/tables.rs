// SPDX-License-Identifier: Apache-2.0
//! `[connections]`, `[cgroups]` and `[processes]` of agent.toml: tables of what a host has many of, all off by default.

use std::path::PathBuf;

use onlooker_metrics::tables::processes::By;
use onlooker_metrics::tables::{cgroups, connections, processes};
use serde::{Deserialize, Serialize};

use super::refused::Refused;
use crate::units::Span;

/// TCP connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Connections {
    /// Whether there are the regions `tcp_connections` and `tcp_ports`.
    pub enabled: bool,
    /// Time between two runs.
    pub interval: Span,
    /// Rows of `tcp_connections`.
    pub rows: u32,
    /// Rows of `tcp_ports`.
    pub ports: u32,
    /// Whether each connection's end is noticed, too.
    pub short_lived: bool,
}

impl Default for Connections {
    fn default() -> Self {
        Self { enabled: false, interval: Span::from_s(5), rows: 16_384, ports: 64, short_lived: false }
    }
}

/// Control groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cgroups {
    /// Whether there is the region `cgroups`.
    pub enabled: bool,
    /// Time between two runs.
    pub interval: Span,
    /// Rows.
    pub rows: u32,
    /// Where cgroupfs is mounted.
    pub root: PathBuf,
}

impl Default for Cgroups {
    fn default() -> Self {
        Self { enabled: false, interval: Span::from_s(5), rows: 1024, root: "/sys/fs/cgroup".into() }
    }
}

impl Cgroups {
    /// What the table wants to know of it.
    #[must_use]
    pub fn options(&self) -> cgroups::Options {
        cgroups::Options { interval: self.interval, rows: self.rows, root: self.root.clone() }
    }

    pub(super) fn check(&self) -> Result<(), Refused> {
        if !is_interval(self.interval) {
            let message = "must be 100ms to 1h; a run costs about 0.1 ms of CPU for each group";
            return Err(("cgroups.interval", self.interval.to_string(), message));
        }
        if self.rows == 0 || self.rows > 8192 {
            return Err(("cgroups.rows", self.rows.to_string(), "must be 1 to 8192"));
        }
        if !self.root.is_absolute() {
            let message = "must be an absolute path: begin it with /";
            return Err(("cgroups.root", self.root.display().to_string(), message));
        }
        Ok(())
    }
}

/// Processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Processes {
    /// Whether there is the region `processes`.
    pub enabled: bool,
    /// Time between two runs.
    pub interval: Span,
    /// Rows.
    pub rows: u32,
    /// What shares a row.
    pub by: By,
}

impl Default for Processes {
    fn default() -> Self {
        Self { enabled: false, interval: Span::from_s(5), rows: 256, by: By::Name }
    }
}

impl Processes {
    /// What the table wants to know of it.
    #[must_use]
    pub fn options(&self) -> processes::Options {
        processes::Options { interval: self.interval, rows: self.rows, by: self.by }
    }

    pub(super) fn check(&self) -> Result<(), Refused> {
        if !is_interval(self.interval) {
            let message = "must be 100ms to 1h; a run costs about 20 us of CPU for each process";
            return Err(("processes.interval", self.interval.to_string(), message));
        }
        if self.rows == 0 || self.rows > 16_384 {
            return Err(("processes.rows", self.rows.to_string(), "must be 1 to 16384"));
        }
        Ok(())
    }
}

/// Whether a time between two runs can be used.
fn is_interval(interval: Span) -> bool {
    (Span::from_ms(100)..=Span::from_s(3600)).contains(&interval)
}

impl Connections {
    /// What the table wants to know of it.
    #[must_use]
    pub fn options(&self) -> connections::Options {
        connections::Options { interval: self.interval, rows: self.rows, ports: self.ports }
    }

    pub(super) fn check(&self) -> Result<(), Refused> {
        if !is_interval(self.interval) {
            let message = "must be 100ms to 1h; a run costs about 1 us of CPU for each connection";
            return Err(("connections.interval", self.interval.to_string(), message));
        }
        if self.rows == 0 || self.rows > 16_384 {
            return Err(("connections.rows", self.rows.to_string(), "must be 1 to 16384"));
        }
        if self.ports == 0 || self.ports > 1024 {
            return Err(("connections.ports", self.ports.to_string(), "must be 1 to 1024"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_by_its_key() {
        let with = |change: &dyn Fn(&mut Connections)| {
            let mut connections = Connections::default();
            change(&mut connections);
            connections.check().map_err(|(key, _, _)| key)
        };
        assert_eq!(with(&|_| ()), Ok(()));
        assert_eq!(with(&|connections| connections.interval = Span::from_ms(99)), Err("connections.interval"));
        assert_eq!(with(&|connections| connections.rows = 16_385), Err("connections.rows"));
        assert_eq!(with(&|connections| connections.ports = 0), Err("connections.ports"));
        let processes = Processes { rows: 16_385, ..Processes::default() };
        assert_eq!(processes.check().map_err(|(key, _, _)| key), Err("processes.rows"));
        let processes = Processes { interval: Span::from_ms(1), ..Processes::default() };
        assert_eq!(processes.check().map_err(|(key, _, _)| key), Err("processes.interval"));
        assert_eq!(Processes::default().check(), Ok(()));
        let with = |change: &dyn Fn(&mut Cgroups)| {
            let mut cgroups = Cgroups::default();
            change(&mut cgroups);
            cgroups.check().map_err(|(key, _, _)| key)
        };
        assert_eq!(with(&|_| ()), Ok(()));
        assert_eq!(with(&|cgroups| cgroups.interval = Span::from_s(3601)), Err("cgroups.interval"));
        assert_eq!(with(&|cgroups| cgroups.rows = 8193), Err("cgroups.rows"));
        assert_eq!(with(&|cgroups| cgroups.root = "sys".into()), Err("cgroups.root"));
    }
}
