// SPDX-License-Identifier: Apache-2.0
//! Leftovers: kernel metrics that no collector computes, sampled from procfs into the agent's slab for readers over the kernel responder.
//!
//! Part of the main thread's event loop: one deadline. What is computed is known from the collectors' loader, for devices asked at each sample ([`DeviceRows`]), so that a
//! reader gets no series twice; its regions have names of their own (`node_memory_sampled`) and are not served over TCP, where the whole groups are. Nobody tells the
//! agent that the kernel has answered READs, so it looks at the responder's counter when a sample is due: while there were none it takes none, and waits twice as
//! long up to a minute. Blocks stay readable while there is no agent; their time tells their age. Cost: docs/agent.md.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use onlooker_metrics::groups::Group;
use onlooker_metrics::groups::network::{DeviceKey, DeviceRows};
use onlooker_metrics::sampled::{Covered, Draft, Loss, Sampled, Set};
use onlooker_region::map::Map;
use onlooker_region::schema::SchemaId;
use rustix::thread::CapabilitySet;

use crate::counters::{Counter, Counters};
use crate::directory::{Backing, Directory, SchemaText};
use crate::kernel::Kernel;
use crate::kernel::ledger::Source;
use crate::kernel::recover::OWN_SLAB;
use crate::own::{self, Ids};
use crate::system;
use crate::units::Span;

/// Longest pause between two looks at the counter while nobody reads.
const LONGEST_PAUSE_NS: u64 = 60_000_000_000;

/// The sampler for the kernel responder's readers.
pub struct Leftovers {
    kernel: Rc<Kernel>,
    groups: Vec<Group>,
    interval_ns: u64,
    counters: Counters,
    /// Ids by name of regions that an earlier agent has left.
    earlier: BTreeMap<String, u32>,
    /// What is computed.
    covered: Covered,
    set: Set,
    devices: Devices,
    pace: Pace,
}

/// Network devices with a computed row.
enum Devices {
    /// Nobody wants to know, since all are sampled.
    Unasked,
    /// To be asked for; what was heard last, and whether it is worth anything.
    Asked { rows: Box<DeviceRows>, names: Vec<DeviceKey>, are_known: bool },
    /// They cannot be asked for: only what no device has computed is sampled.
    Unknown,
}

impl Devices {
    fn with_row(&self) -> Option<&[DeviceKey]> {
        match self {
            Self::Asked { names, are_known: true, .. } => Some(names),
            Self::Unasked | Self::Unknown | Self::Asked { .. } => None,
        }
    }
}

impl Leftovers {
    /// For these groups; an interval of 0, or no groups: never samples. `earlier` are in the directory until [`Leftovers::install`].
    #[must_use]
    pub fn new(
        kernel: Rc<Kernel>,
        groups: Vec<Group>,
        interval_ns: u64,
        counters: Counters,
        earlier: BTreeMap<String, u32>,
    ) -> Self {
        let (devices, pace) = (Devices::Unasked, Pace::new(interval_ns));
        let (covered, set) = (Covered::default(), Set::default());
        Self { kernel, groups, interval_ns, counters, earlier, covered, set, devices, pace }
    }

    /// Takes what is left beside the `covered` metrics, samples it and publishes it. Regions of an earlier agent whose class is the same go on, others end.
    pub fn install(&mut self, directory: &mut Directory, ids: &mut Ids, covered: &Covered, now_ns: u64) {
        self.covered = covered.clone();
        let mut drafts = Vec::new();
        let mut absent = Vec::new();
        if self.interval_ns > 0 {
            for group in &self.groups {
                match self.set.draft_left(*group, self.interval_ns, covered) {
                    Ok(draft) => drafts.extend(draft.map(|draft| (SchemaText::of(&draft.schema), draft))),
                    Err(error) => absent.push(format!("{group}: {error}")),
                }
            }
        }
        own::tell(&absent, drafts.iter().map(|(_, draft)| draft));
        // First those that end, since their memory may be wanted.
        let goes_on = |name: &str, id: u32| {
            let entry = directory.entry(id);
            entry.is_some_and(|(entry, _)| {
                drafts.iter().any(|(text, draft)| draft.name() == name && text.id == entry.schema)
            })
        };
        let (mut go_on, end): (BTreeMap<String, u32>, BTreeMap<String, u32>) =
            std::mem::take(&mut self.earlier).into_iter().partition(|(name, id)| goes_on(name, *id));
        end.into_values().for_each(|id| ids.end(directory, id));
        self.devices = self.ask_for_devices(&drafts);
        let mut names = Vec::new();
        for (text, draft) in drafts {
            let (metrics, name) = (draft.metrics(), draft.name().to_owned());
            match self.install_one(directory, ids, &text, draft, go_on.remove(&name), now_ns) {
                Ok(()) => names.push(format!("{name} ({metrics} metrics)")),
                Err(error) => system::log(&format!("warning: {name} is not served by the kernel responder: {error}")),
            }
        }
        if names.is_empty() {
            return;
        }
        let interval = Span::from_ns(self.interval_ns);
        system::log(&format!("not computed, so sampled every {interval} while it is read: {}", names.join(", ")));
        self.pace.begin(now_ns, self.answered());
    }

    fn ask_for_devices(&self, drafts: &[(SchemaText, Draft)]) -> Devices {
        if !drafts.iter().any(|(_, draft)| draft.wants_devices()) {
            return Devices::Unasked;
        }
        match self.kernel.device_rows() {
            Ok(rows) => Devices::Asked { rows: Box::new(rows), names: Vec::new(), are_known: false },
            Err(error) => {
                self.counters.add(Counter::KernelErrors, 1);
                system::log(&format!("warning: devices without a computed row are not sampled: {error}"));
                Devices::Unknown
            }
        }
    }

    fn install_one(
        &mut self,
        directory: &mut Directory,
        ids: &mut Ids,
        text: &SchemaText,
        draft: Draft,
        earlier: Option<u32>,
        now_ns: u64,
    ) -> Result<(), String> {
        let text_of = |error: &dyn std::fmt::Display| error.to_string();
        let bytes = draft.bytes();
        let whole = |map: &Map| map.window(0..usize::try_from(bytes / 8).unwrap_or(0));
        let standing = earlier.and_then(|id| directory.entry(id)).filter(|(entry, _)| entry.schema == text.id);
        let standing = standing.map(|(entry, source)| (entry.identity, source));
        if let Some((identity, Some(Source::Slab { range, .. }))) = standing {
            let memory = whole(&self.kernel.own_range(range).map_err(|error| text_of(&error))?);
            self.add(draft.over(memory, identity));
            directory.now_owned_by(identity.region, std::process::id(), now_ns);
            return Ok(());
        }
        let (range, map) = self.kernel.own_memory(bytes).map_err(|error| text_of(&error))?;
        let identity = ids.take().map_err(|error| text_of(&error));
        let published = identity.and_then(|identity| {
            let source = Source::Slab { slab: OWN_SLAB, range };
            let backing = Backing::Kernel(source);
            let (name, group) = (draft.name().to_owned(), draft.group);
            // Before anybody can read it.
            self.add(draft.over(whole(&map), identity));
            ids.publish(directory, earlier, &name, text, identity, backing).map_err(|refusal| {
                ids.give(identity.region);
                self.set.remove(group);
                refusal.to_string()
            })
        });
        published.inspect_err(|_| self.kernel.give_own(range))
    }

    /// A group from now on; its first sample.
    fn add(&mut self, sampled: Sampled) {
        self.hear_of_devices();
        let group = sampled.group;
        self.set.put(sampled);
        let loss = self.set.sample_one(group, self.devices.with_row());
        self.count(loss);
    }

    /// Regions of groups that have other series now: another file system, another interrupt.
    fn renew(&mut self, directory: &mut Directory, ids: &mut Ids, now_ns: u64) {
        for group in self.set.take_changed() {
            let standing = self.set.groups().iter().find(|sampled| sampled.group == group);
            let standing = standing.map(|sampled| (SchemaText::of(&sampled.schema).id, sampled.identity().region));
            let renewed = self.renew_one(directory, ids, group, standing, now_ns);
            let Err(error) = renewed else { continue };
            // The slab may have no room for both.
            if let Some((_, id)) = standing {
                self.set.remove(group);
                ids.end(directory, id);
            }
            let again = standing.map_or(Err(error), |_| self.renew_one(directory, ids, group, None, now_ns));
            if let Err(error) = again {
                let name = group.left_region();
                system::log(&format!("warning: {name} is not served by the kernel responder: {error}"));
            }
        }
    }

    /// A group's new region, in the place of its old one, whose schema and number are `standing`.
    fn renew_one(
        &mut self,
        directory: &mut Directory,
        ids: &mut Ids,
        group: Group,
        standing: Option<(SchemaId, u32)>,
        now_ns: u64,
    ) -> Result<(), String> {
        let draft = self.set.draft_left(group, self.interval_ns, &self.covered).map_err(|error| error.to_string())?;
        let old = standing.map(|(_, id)| id);
        let Some(draft) = draft else {
            if let Some(id) = old {
                self.set.remove(group);
                ids.end(directory, id);
            }
            return Ok(());
        };
        let text = SchemaText::of(&draft.schema);
        if standing.is_some_and(|(schema, _)| schema == text.id) {
            return Ok(());
        }
        self.install_one(directory, ids, &text, draft, old, now_ns)
    }

    /// When [`Leftovers::expire`] has something to do next, if ever.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        (!self.set.groups().is_empty()).then_some(self.pace.next_ns)
    }

    /// A reader may begin: the next sample is due as soon as the last is as old as the interval.
    pub fn wake(&mut self, now_ns: u64) {
        if !self.set.groups().is_empty() {
            self.pace.wake(now_ns);
        }
    }

    /// Does what is due.
    pub fn expire(&mut self, directory: &mut Directory, ids: &mut Ids, now_ns: u64) {
        let is_due = self.next_deadline_ns().is_some_and(|at| at <= now_ns);
        if is_due && self.pace.is_wanted(now_ns, self.answered()) && self.sample() {
            self.renew(directory, ids, now_ns);
        }
    }

    /// Samples what is worth it by now; whether a group has other series than its region has places for.
    fn sample(&mut self) -> bool {
        let begin = Instant::now();
        self.hear_of_devices();
        let loss = self.set.sample(crate::host::boot_time_ns(), self.devices.with_row());
        self.count(loss);
        self.counters.add(Counter::Samples, 1);
        self.counters.add(Counter::SampleNs, u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        loss.changed
    }

    fn hear_of_devices(&mut self) {
        if let Devices::Asked { rows, names, are_known } = &mut self.devices {
            let heard = system::with_capabilities(CapabilitySet::BPF, || rows.names(names));
            self.counters.add(Counter::KernelErrors, u64::from(heard.is_err()));
            *are_known = heard.unwrap_or(false);
        }
    }

    /// READs answered; without an answer the last number holds, and nothing is sampled for it.
    fn answered(&self) -> u64 {
        self.kernel.answered().unwrap_or_else(|_| {
            self.counters.add(Counter::KernelErrors, 1);
            self.pace.answered
        })
    }

    fn count(&self, loss: Loss) {
        self.counters.add(Counter::SampleErrors, loss.failed);
        self.counters.add(Counter::SampleRowsDropped, loss.rows_dropped);
    }
}

/// When to sample.
#[derive(Debug)]
pub(crate) struct Pace {
    interval_ns: u64,
    pause_ns: u64,
    sampled_ns: u64,
    next_ns: u64,
    /// READs answered when it was last looked.
    answered: u64,
    is_woken: bool,
}

impl Pace {
    /// When to look next.
    pub(crate) const fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The next look is not before then.
    pub(crate) fn not_before(&mut self, at_ns: u64) {
        self.next_ns = self.next_ns.max(at_ns);
        // A reader that begins waits as long.
        self.sampled_ns = self.sampled_ns.max(at_ns.saturating_sub(self.interval_ns));
    }

    pub(crate) fn new(interval_ns: u64) -> Self {
        Self { interval_ns, pause_ns: interval_ns, sampled_ns: 0, next_ns: u64::MAX, answered: 0, is_woken: false }
    }

    /// A sample was taken now; from here on it is looked who reads.
    pub(crate) fn begin(&mut self, now_ns: u64, answered: u64) {
        let next_ns = now_ns.saturating_add(self.interval_ns);
        *self = Self { sampled_ns: now_ns, next_ns, answered, ..Self::new(self.interval_ns) };
    }

    pub(crate) fn wake(&mut self, now_ns: u64) {
        self.is_woken = true;
        self.next_ns = self.next_ns.min(self.sampled_ns.saturating_add(self.interval_ns).max(now_ns));
    }

    /// Whether to sample now that it is due: if there were READs since the last look, or somebody begins.
    pub(crate) fn is_wanted(&mut self, now_ns: u64, answered: u64) -> bool {
        let is_wanted = answered != self.answered || self.is_woken;
        (self.answered, self.is_woken) = (answered, false);
        if is_wanted {
            (self.pause_ns, self.sampled_ns) = (self.interval_ns, now_ns);
        } else {
            self.pause_ns = self.pause_ns.saturating_mul(2).min(LONGEST_PAUSE_NS.max(self.interval_ns));
        }
        self.next_ns = now_ns.saturating_add(self.pause_ns);
        is_wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_reads_and_pauses_grow_to_a_minute() {
        const S: u64 = 1_000_000_000;
        let mut pace = Pace::new(5 * S);
        pace.begin(100 * S, 7);
        let mut steps = Vec::new();
        for _ in 0..6 {
            let now_ns = pace.next_ns;
            assert!(!pace.is_wanted(now_ns, 7));
            steps.push((pace.next_ns - now_ns) / S);
        }
        assert_eq!(steps, [10, 20, 40, 60, 60, 60]);
        let now_ns = pace.next_ns;
        assert!(pace.is_wanted(now_ns, 8), "somebody has read");
        assert_eq!(pace.next_ns, now_ns + 5 * S);
        assert!(!pace.is_wanted(now_ns + 5 * S, 8));
        // A reader that begins does not wait for the end of a pause, nor is there a sample for each of many.
        pace.wake(now_ns + 6 * S);
        assert_eq!(pace.next_ns, now_ns + 6 * S);
        assert!(pace.is_wanted(now_ns + 6 * S, 8));
        pace.wake(now_ns + 7 * S);
        assert_eq!(pace.next_ns, now_ns + 11 * S);
        // Intervals beyond a minute stay what they are.
        let mut pace = Pace::new(90 * S);
        pace.begin(0, 0);
        assert!(!pace.is_wanted(90 * S, 0));
        assert_eq!(pace.next_ns, 180 * S);
    }
}
