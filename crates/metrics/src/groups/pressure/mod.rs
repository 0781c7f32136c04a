// SPDX-License-Identifier: Apache-2.0
//! Group pressure: stalls for want of CPU, memory and I/O.

mod computed;
mod facts;
mod procfs;

use super::{Computed, Descriptor, Group, Sampled};
use crate::sampled::metric::Definition;

/// A kind of stall.
struct Stall {
    /// Of enum psi_states.
    enumerator: &'static str,
    /// /proc/pressure/RESOURCE.
    resource: &'static str,
    /// Its line there is `full`, not `some`: no task could go on.
    is_full: bool,
    /// The total, in us as in procfs.
    total: Definition,
}

impl Stall {
    /// As node_exporter calls it.
    const fn kind(&self) -> &'static str {
        if self.is_full { "stalled" } else { "waiting" }
    }
}

macro_rules! stall {
    ($enumerator:literal, $resource:literal waiting, $help:literal) => {
        stall!(
            $enumerator,
            $resource,
            "waiting",
            false,
            concat!("Total time in seconds that processes have waited ", $help)
        )
    };
    ($enumerator:literal, $resource:literal stalled, $help:literal) => {
        stall!(
            $enumerator,
            $resource,
            "stalled",
            true,
            concat!("Total time in seconds no process could make progress ", $help)
        )
    };
    ($enumerator:literal, $resource:literal, $kind:literal, $is_full:literal, $help:expr) => {
        Stall {
            enumerator: $enumerator,
            resource: $resource,
            is_full: $is_full,
            total: Definition::counter(concat!("node_pressure_", $resource, "_", $kind, "_seconds_total"), $help)
                .unit("seconds", 1e-6),
        }
    };
}

/// In the order of the program's slots. Interrupts come last: not all kernels have them. The `full` of cpu is always 0 for
/// the system (psi_show in kernel/sched/psi.c), and node_exporter has it not.
static STALLS: [Stall; 6] = [
    stall!("PSI_CPU_SOME", "cpu" waiting, "for CPU time"),
    stall!("PSI_IO_SOME", "io" waiting, "due to IO congestion"),
    stall!("PSI_IO_FULL", "io" stalled, "due to IO congestion"),
    stall!("PSI_MEM_SOME", "memory" waiting, "for memory"),
    stall!("PSI_MEM_FULL", "memory" stalled, "due to memory congestion"),
    stall!("PSI_IRQ_FULL", "irq" stalled, "due to IRQ congestion"),
];

impl Group {
    /// Stalls for want of CPU, memory and I/O.
    pub const PRESSURE: Self = Self {
        descriptor: &Descriptor {
            name: "pressure",
            region: "node_pressure",
            computed: Some(
                Computed::new(10, |with| computed::prepare(with.discovery))
                    .absent(computed::absence)
                    .held_to_bounds(&[computed::IN_PROGRESS]),
            ),
            sampled: Some(Sampled::new(procfs::make)),
        },
    };
}
