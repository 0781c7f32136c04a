// SPDX-License-Identifier: Apache-2.0
//! What READs have on a device: looked up in the kernel, not in what was set.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::LaneError;
use crate::device::Device;
use crate::ethtool::{self, Rule};
use crate::napi::{self, Instances};
use crate::record::Record;
use crate::threads::{self, Thread};

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// Its name.
    pub device: String,
    /// Its driver's name, where ethtool tells.
    pub driver: Option<String>,
    /// Number of its receive queues.
    pub receive_queues: u32,
    /// Rules that send UDP ports to queues; `None`: it cannot have any.
    pub rules: Option<Vec<Rule>>,
    /// Threads of receive queues that have one.
    pub threads: BTreeMap<u32, Thread>,
    /// Threads of which the driver does not say whose they are.
    pub other_threads: Vec<Thread>,
    /// `lane set` was here, and not yet `lane undo`.
    pub is_set: bool,
}

fn look(device: Device, state: &Path) -> Result<Shown, LaneError> {
    let Instances { by_queue, threads: mut by_napi } = napi::of(&device)?;
    let mut queue_threads = BTreeMap::new();
    for (queue, napi) in by_queue {
        if let Some(thread) = by_napi.remove(&napi).and_then(threads::look) {
            queue_threads.insert(queue, thread);
        }
    }
    Ok(Shown {
        driver: ethtool::driver(&device.name),
        receive_queues: device.queues,
        rules: ethtool::rules(&device.name),
        threads: queue_threads,
        other_threads: by_napi.into_values().filter_map(threads::look).collect(),
        is_set: Record::read(state, &device.name)?.is_some_and(|record| record.index == device.index),
        device: device.name,
    })
}

fn thread_line(thread: &Thread) -> String {
    let policy = match thread.priority {
        0 => "ordinary".to_owned(),
        priority => format!("SCHED_FIFO {priority}"),
    };
    format!("pid {}, {policy}, CPUs {}", thread.pid, thread.cpus)
}

impl Shown {
    fn lines(&self) -> Vec<String> {
        let queues = match self.receive_queues {
            1 => "1 receive queue".to_owned(),
            count => format!("{count} receive queues"),
        };
        let driver = self.driver.as_deref().unwrap_or("driver unknown: no ethtool");
        let mut lines = vec![format!("{}: {driver}, {queues}", self.device)];
        match &self.rules {
            None => lines.push("  rules    this device cannot have any".to_owned()),
            Some(rules) if rules.is_empty() => lines.push("  rules    none for UDP".to_owned()),
            Some(rules) => {
                lines.extend(rules.iter().map(|rule| {
                    format!("  rule {:<4} {} port {} to queue {}", rule.id, rule.flow, rule.port, rule.queue)
                }))
            }
        }
        if self.threads.is_empty() && self.other_threads.is_empty() {
            lines.push("  threads  none: softirq, and ksoftirqd under load".to_owned());
        }
        for (queue, thread) in &self.threads {
            lines.push(format!("  thread   of queue {queue}: {}", thread_line(thread)));
        }
        lines.extend(self.other_threads.iter().map(|thread| format!("  thread   {}", thread_line(thread))));
        if self.is_set {
            lines.push(format!("  lane     set; `onlooker-agent lane undo {}` undoes it", self.device));
        }
        lines
    }
}

/// Shows devices: those named, or all.
///
/// # Errors
/// There is none of a name.
pub fn show(
    names: &[String],
    state: &Path,
    json: bool,
    say: &mut dyn FnMut(&str) -> io::Result<()>,
) -> Result<(), LaneError> {
    let devices = if names.is_empty() {
        Device::all()?
    } else {
        names.iter().map(|name| Device::find(name)).collect::<Result<_, _>>()?
    };
    let shown: Vec<Shown> = devices.into_iter().map(|device| look(device, state)).collect::<Result<_, _>>()?;
    if json {
        let text = serde_json::to_string_pretty(&shown).map_err(|error| LaneError::Output(error.into()))?;
        return say(&text).map_err(LaneError::Output);
    }
    shown.iter().flat_map(Shown::lines).try_for_each(|line| say(&line)).map_err(LaneError::Output)
}
