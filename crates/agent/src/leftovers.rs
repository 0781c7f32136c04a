// SPDX-License-Identifier: Apache-2.0
//! Leftovers: kernel metrics that no collector computes, sampled from procfs into the agent's slab for readers over the kernel responder.
//!
//! Part of the main thread's event loop: one deadline. What is computed is known from the collectors' loader, for devices asked at each sample ([`DeviceRows`]), so that a
//! reader gets no series twice; its regions have names of their own (`node_memory_sampled`) and are not served over TCP, where the whole groups are. How
//! often: [`crate::pace`]. Blocks stay readable while there is no agent; their time tells their age. Cost: docs/agent.md.

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
use crate::ids::Ids;
use crate::kernel::Kernel;
use crate::kernel::ledger::Source;
use crate::kernel::recover::OWN_SLAB;
use crate::pace::Pace;
use crate::system;
use crate::units::Span;

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
        tell(&absent, drafts.iter().map(|(_, draft)| draft));
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
        (!self.set.groups().is_empty()).then(|| self.pace.next_ns())
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
            self.pace.answered()
        })
    }

    fn count(&self, loss: Loss) {
        self.counters.add(Counter::SampleErrors, loss.failed);
        self.counters.add(Counter::SampleRowsDropped, loss.rows_dropped);
    }
}

/// Tells the operator, once, which groups this host has not got, and what there is to say of those that it has.
pub fn tell<'a>(absent: &[String], drafts: impl IntoIterator<Item = &'a Draft>) {
    for draft in drafts {
        draft.notes.iter().for_each(|note| system::log(&format!("{}: {note}", draft.group)));
    }
    if !absent.is_empty() {
        system::log(&format!("kernel metrics that this host has not got: {}", absent.join("; ")));
    }
}
