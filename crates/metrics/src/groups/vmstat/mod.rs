// SPDX-License-Identifier: Apache-2.0
//! Group vmstat: events of the memory.

mod computed;
mod facts;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};
use crate::sampled::metric::Definition;

/// An event that the kernel counts.
struct Event {
    /// Of enum vm_event_item.
    enumerator: &'static str,
    /// Name in /proc/vmstat.
    line: &'static str,
    /// How many of what /proc/vmstat shows one count is: the kernel counts sectors and shows KiB (vmstat_start of
    /// mm/vmstat.c).
    per_count: f64,
    /// As /proc/vmstat shows it.
    metric: Definition,
}

macro_rules! event {
    ($enumerator:literal, $line:literal, $per_count:literal) => {
        Event {
            enumerator: $enumerator,
            line: $line,
            per_count: $per_count,
            // What grows is a counter; node_exporter has no types here.
            metric: Definition::counter(
                concat!("node_vmstat_", $line),
                concat!("/proc/vmstat information field ", $line, "."),
            ),
        }
    };
}

/// Those of node_exporter's default choice (`^(oom_kill|pgpg|pswp|pg.*fault).*`).
static EVENTS: [Event; 7] = [
    event!("PGPGIN", "pgpgin", 0.5),
    event!("PGPGOUT", "pgpgout", 0.5),
    event!("PSWPIN", "pswpin", 1.0),
    event!("PSWPOUT", "pswpout", 1.0),
    event!("PGFAULT", "pgfault", 1.0),
    event!("PGMAJFAULT", "pgmajfault", 1.0),
    event!("OOM_KILL", "oom_kill", 1.0),
];

impl Group {
    /// Events of the memory.
    pub const VMSTAT: Self = Self {
        descriptor: &Descriptor {
            name: "vmstat",
            region: "node_vmstat",
            computed: Some(Computed::new(11, |with| computed::prepare(with.discovery))),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
