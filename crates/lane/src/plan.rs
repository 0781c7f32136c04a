// SPDX-License-Identifier: Apache-2.0
//! Which changes make a lane on a device.

use crate::LaneError;
use crate::act::Act;
use crate::arguments::Set;
use crate::device::Device;
use crate::ethtool::{self, ethtool};
use crate::napi;

/// In the order in which they are made.
///
/// # Errors
/// The device cannot have one.
pub fn plan(set: &Set, device: &Device, port: u16) -> Result<Vec<Act>, LaneError> {
    let name = &device.name;
    let last = device.queues.checked_sub(1).ok_or_else(|| LaneError::Unable(format!("{name} has no receive queue")))?;
    let queue = set.queue.unwrap_or(last);
    if queue > last {
        return Err(LaneError::Usage(format!("{name} has receive queues 0 to {last}, not {queue}")));
    }
    let mut acts = Vec::new();
    // It has NAPI instances only while it merges packets, or has an XDP program.
    if ethtool::driver(name).as_deref() == Some("veth") && napi::of(device)?.by_queue.is_empty() {
        acts.push(Act::Feature { name: "generic-receive-offload".to_owned(), on: true });
    }
    if !set.shared && !set.steered {
        acts.extend(steering(device, queue, port)?);
    }
    let (queues, of) = if set.shared { (0..=last, None) } else { (queue..=queue, Some(queue)) };
    acts.push(if set.shared { Act::Threads { on: true } } else { Act::Thread { queue, on: true } });
    acts.push(Act::Priority { queue: of, priority: set.priority });
    acts.extend(set.cpus.iter().map(|list| Act::Cpus { queue: of, list: list.clone() }));
    // The thread would pass its packets to the queues of other CPUs, where they wait as without it.
    acts.extend(queues.map(|queue| Act::Rps { queue, cpus: "0".to_owned() }));
    Ok(acts)
}

/// READs to the queue, and nothing else.
fn steering(device: &Device, queue: u32, port: u16) -> Result<Vec<Act>, LaneError> {
    let name = device.name.as_str();
    let unable = |why: &str| {
        LaneError::Unable(format!(
            "{name} cannot give READs a receive queue of their own: {why}. If something else steers them, say so with \
             --queue N --steered; --shared gives all that {name} receives real-time priority"
        ))
    };
    if device.queues < 2 {
        return Err(unable("it has only one"));
    }
    let rules = match ethtool(&["-n", name]) {
        Ok(text) => ethtool::parse_rules(&text),
        Err(LaneError::Command { what, .. }) => return Err(unable(&format!("no rules (ethtool -n {name}: {what})"))),
        Err(error) => return Err(error),
    };
    let mut acts = Vec::new();
    match ethtool::parse_feature(&ethtool(&["-k", name])?, "ntuple-filters") {
        Some((false, false)) => return Err(unable("ntuple-filters are off, and cannot be switched on")),
        Some((false, true)) => acts.push(Act::Feature { name: "ntuple-filters".to_owned(), on: true }),
        _ => {}
    }
    for flow in ["udp4", "udp6"] {
        match rules.iter().find(|rule| rule.flow == flow && rule.port == port) {
            Some(rule) if rule.queue == queue => {}
            Some(rule) => {
                let (id, other) = (rule.id, rule.queue);
                return Err(unable(&format!("rule {id} sends {flow} port {port} to queue {other} already")));
            }
            None => acts.push(Act::Rule { flow: flow.to_owned(), port, queue }),
        }
    }
    let spread = ethtool(&["-x", name]).ok().and_then(|text| ethtool::parse_weights(&text, device.queues));
    if let (Some(mut weights), Ok(at)) = (spread, usize::try_from(queue)) {
        weights[at] = 0;
        if weights.iter().all(|weight| *weight == 0) {
            return Err(unable(&format!("all other packets come by queue {queue}, too")));
        }
        acts.push(Act::Weights { weights });
    }
    Ok(acts)
}
