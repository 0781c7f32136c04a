// SPDX-License-Identifier: Apache-2.0
//! The machine as a whole, out of its series: processors, load, memory, network.

use super::model::Model;
use super::series::{Role, Series};
use std::collections::BTreeMap;

/// `None` where the host has no such series, or not twice yet.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Machine {
    /// Processor and the part of its time in which it works, 0 to 1.
    pub(super) cpus: Vec<(u32, Option<f64>)>,
    pub(super) load: [Option<f64>; 3],
    /// Tasks running or waiting for a processor right now.
    pub(super) run_queue: Option<f64>,
    /// Bytes in use and in all.
    pub(super) memory: Option<(f64, f64)>,
    /// Device, bytes received and sent a second; the busiest first.
    pub(super) network: Vec<(String, f64, f64)>,
}

impl Machine {
    pub(super) fn of(model: &Model) -> Self {
        let mut machine = Self::default();
        let mut cpus: BTreeMap<u32, (f64, f64, bool)> = BTreeMap::new();
        let mut network: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        let (mut total, mut available) = (None, None);
        for series in &model.series {
            match &series.role {
                Role::Other => {}
                Role::Cpu { cpu, idle } => {
                    let rate = series.motion.rate();
                    let (busy, all, known) = cpus.entry(*cpu).or_insert((0.0, 0.0, false));
                    *all += rate.unwrap_or(0.0);
                    *busy += rate.filter(|_| !idle).unwrap_or(0.0);
                    *known |= rate.is_some();
                }
                Role::Load(which) => machine.load[*which] = Some(scaled(series)),
                Role::RunQueue => machine.run_queue = Some(machine.run_queue.unwrap_or(0.0) + scaled(series)),
                Role::MemoryTotal => total = Some(scaled(series)),
                Role::MemoryAvailable => available = Some(scaled(series)),
                Role::Network { device, sent } => {
                    let (received_rate, sent_rate) = network.entry(device).or_default();
                    *(if *sent { sent_rate } else { received_rate }) += series.motion.rate().unwrap_or(0.0);
                }
            }
        }
        let busy = |(cpu, (busy, all, known)): (u32, (f64, f64, bool))| {
            (cpu, (known && all > 0.0).then(|| (busy / all).clamp(0.0, 1.0)))
        };
        machine.cpus = cpus.into_iter().map(busy).collect();
        machine.memory =
            total.zip(available).map(|(total, available): (f64, f64)| ((total - available).max(0.0), total));
        machine.network =
            network.into_iter().map(|(device, (received, sent))| (device.to_owned(), received, sent)).collect();
        // Stable: equal ones stay in the order of their names.
        machine.network.sort_by(|a, b| (b.1 + b.2).total_cmp(&(a.1 + a.2)));
        machine
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Mean of all processors.
    #[allow(clippy::cast_precision_loss)] // a count of processors
    pub(super) fn busy(&self) -> Option<f64> {
        let known: Vec<f64> = self.cpus.iter().filter_map(|(_, busy)| *busy).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }
}

fn scaled(series: &Series) -> f64 {
    series.value.scaled(series.scale)
}
