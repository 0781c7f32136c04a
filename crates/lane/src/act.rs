// SPDX-License-Identifier: Apache-2.0
//! One change of a device, its line for people, and what undoes it.

use serde::{Deserialize, Serialize};

use crate::LaneError;
use crate::device::{self, Device};
use crate::ethtool::{self, ethtool};
use crate::napi::{self, Instances};
use crate::threads::{self, Thread};

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A feature of the device.
    Feature {
        /// ethtool's name of it.
        name: String,
        /// On or off.
        on: bool,
    },
    /// The shares that queues have of what no rule steers.
    Weights {
        /// By queue.
        weights: Vec<u32>,
    },
    /// A rule for a UDP port.
    Rule {
        /// `udp4` or `udp6`.
        flow: String,
        /// Destination.
        port: u16,
        /// To this queue.
        queue: u32,
    },
    /// A rule goes.
    DeleteRule {
        /// ethtool's number.
        id: u32,
    },
    /// CPUs that a queue's packets are given to.
    Rps {
        /// Which.
        queue: u32,
        /// A mask; 0: none but the one that received it.
        cpus: String,
    },
    /// A thread for a queue's NAPI instance, or none.
    Thread {
        /// Which.
        queue: u32,
        /// Or none.
        on: bool,
    },
    /// Threads for all NAPI instances of the device, or none.
    Threads {
        /// Or none.
        on: bool,
    },
    /// Priority of threads.
    Priority {
        /// Of this queue, or of all.
        queue: Option<u32>,
        /// In SCHED_FIFO; 0: an ordinary thread.
        priority: u8,
    },
    /// CPUs of threads.
    Cpus {
        /// Of this queue, or of all.
        queue: Option<u32>,
        /// As taskset takes them.
        list: String,
    },
}

/// The threads of a queue or of all; at least one.
fn threads(device: &Device, queue: Option<u32>) -> Result<Vec<Thread>, LaneError> {
    let none = |what: &str| LaneError::NoThread(format!("{}: {what}", device.name));
    let Instances { by_queue, mut threads } = napi::of(device)?;
    if let Some(queue) = queue {
        let napi = by_queue.get(&queue);
        let napi = *napi
            .ok_or_else(|| none(&format!("its driver does not say which NAPI instance has receive queue {queue}")))?;
        threads.retain(|id, _| *id == napi);
    }
    let threads: Vec<Thread> = threads.into_values().filter_map(threads::look).collect();
    match (threads.is_empty(), queue) {
        (false, _) => Ok(threads),
        (true, Some(queue)) => Err(none(&format!("receive queue {queue} has no thread"))),
        (true, None) => Err(none("it has no threads")),
    }
}

/// Runs a program with each thread's number as its last argument.
fn for_each(threads: &[Thread], program: &str, arguments: &[&str]) -> Result<(), LaneError> {
    threads.iter().try_for_each(|thread| {
        let pid = thread.pid.to_string();
        ethtool::run(program, &[arguments, &[&pid]].concat()).map(drop)
    })
}

impl Act {
    /// Does it, and says what undoes it; nothing where all was so already.
    ///
    /// # Errors
    /// The device or the kernel refuses.
    pub fn perform(&self, device: &Device) -> Result<Option<Act>, LaneError> {
        let name = device.name.as_str();
        match self {
            Self::Feature { name: feature, on } => {
                let before = ethtool::parse_feature(&ethtool(&["-k", name])?, feature);
                ethtool(&["-K", name, feature, if *on { "on" } else { "off" }])?;
                Ok(before.filter(|(was, _)| was != on).map(|(was, _)| Self::Feature { name: feature.clone(), on: was }))
            }
            Self::Weights { weights } => {
                let before = ethtool::parse_weights(&ethtool(&["-x", name])?, device.queues);
                let texts: Vec<String> = weights.iter().map(ToString::to_string).collect();
                let mut arguments = vec!["-X", name, "weight"];
                arguments.extend(texts.iter().map(String::as_str));
                ethtool(&arguments)?;
                Ok(before.filter(|before| before != weights).map(|weights| Self::Weights { weights }))
            }
            Self::Rule { flow, port, queue } => {
                let (port, queue) = (port.to_string(), queue.to_string());
                let said = ethtool(&["-N", name, "flow-type", flow, "dst-port", &port, "action", &queue])?;
                Ok(ethtool::parse_added(&said).map(|id| Self::DeleteRule { id }))
            }
            Self::DeleteRule { id } => ethtool(&["-N", name, "delete", &id.to_string()]).map(|_| None),
            Self::Rps { queue, cpus } => {
                let path = device.rps_file(*queue);
                let before = device::read(&path)?;
                device::write(&path, cpus)?;
                Ok(Some(Self::Rps { queue: *queue, cpus: before }))
            }
            Self::Thread { queue, on } => {
                if threads(device, Some(*queue)).is_ok() == *on {
                    return Ok(None);
                }
                match napi::of(device)?.by_queue.get(queue).map(|napi| napi::set_threaded(*napi, *on)) {
                    Some(Ok(())) => Ok(Some(Self::Thread { queue: *queue, on: !on })),
                    // Not for one alone before Linux 6.17, nor where it is not known which.
                    _ => Self::Threads { on: *on }.perform(device),
                }
            }
            Self::Threads { on } => {
                let path = device.file("threaded");
                let before = device::read(&path)?;
                let wanted = if *on { "1" } else { "0" };
                device::write(&path, wanted)?;
                Ok((before != wanted).then_some(Self::Threads { on: !on }))
            }
            Self::Priority { queue, priority } => {
                let before = threads(device, *queue)?;
                let policy = if *priority == 0 { "-o" } else { "-f" };
                for_each(&before, "chrt", &[policy, "-p", &priority.to_string()])?;
                Ok(Some(Self::Priority { queue: *queue, priority: before[0].priority }))
            }
            Self::Cpus { queue, list } => {
                let before = threads(device, *queue)?;
                for_each(&before, "taskset", &["-c", "-p", list])?;
                Ok(Some(Self::Cpus { queue: *queue, list: before[0].cpus.clone() }))
            }
        }
    }

    /// What was done, as an operator would type it, where `undo` undoes it.
    #[must_use]
    pub fn done_line(&self, device: &Device, undo: Option<&Act>) -> String {
        match (self, undo) {
            // It had to be all of the device's.
            (Self::Thread { on, .. }, Some(Self::Threads { .. })) => Self::Threads { on: *on }.to_line(device),
            _ => self.to_line(device),
        }
    }

    /// As an operator would type it.
    #[must_use]
    pub fn to_line(&self, device: &Device) -> String {
        let name = &device.name;
        let state = |on: bool| if on { "on" } else { "off" };
        let of = |queue: &Option<u32>| {
            let pids = threads(device, *queue).unwrap_or_default();
            let pids: Vec<String> = pids.iter().map(|thread| thread.pid.to_string()).collect();
            let pids = if pids.is_empty() { "PID".to_owned() } else { pids.join(" ") };
            let whose =
                queue.map_or_else(|| "all threads".to_owned(), |queue| format!("thread of receive queue {queue}"));
            format!("{pids} # {whose} of {name}")
        };
        match self {
            Self::Feature { name: feature, on } => format!("ethtool -K {name} {feature} {}", state(*on)),
            Self::Weights { weights } => {
                let weights: Vec<String> = weights.iter().map(ToString::to_string).collect();
                format!("ethtool -X {name} weight {}", weights.join(" "))
            }
            Self::Rule { flow, port, queue } => {
                format!("ethtool -N {name} flow-type {flow} dst-port {port} action {queue}")
            }
            Self::DeleteRule { id } => format!("ethtool -N {name} delete {id}"),
            Self::Rps { queue, cpus } => format!("echo {cpus} >{}", device.rps_file(*queue).display()),
            Self::Thread { queue, on } => {
                format!(
                    "napi-set threaded {} # receive queue {queue} of {name}, by netlink; before Linux 6.17 `threaded` of {name}",
                    state(*on)
                )
            }
            Self::Threads { on } => format!("echo {} >{}", u8::from(*on), device.file("threaded").display()),
            Self::Priority { queue, priority } => {
                let policy = if *priority == 0 { "-o" } else { "-f" };
                format!("chrt {policy} -p {priority} {}", of(queue))
            }
            Self::Cpus { queue, list } => format!("taskset -c -p {list} {}", of(queue)),
        }
    }
}
