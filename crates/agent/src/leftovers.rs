// SPDX-License-Identifier: Apache-2.0
//! Leftovers: kernel metrics that no collector computes, sampled from procfs into the agent's slab for readers over the kernel responder.
//!
//! Part of the main thread's event loop: one deadline. What is computed is known from the collectors' loader, for devices asked at each sample, so that a
//! reader gets no series twice; its regions have names of their own (`node_memory_sampled`) and are not served over TCP, where the whole groups are. How
//! often: [`crate::pace`]. Blocks stay readable while there is no agent; their time tells their age. Cost: docs/agent.md.

use std::collections::BTreeMap;
use std::rc::Rc;

use onlooker_metrics::groups::Group;
use onlooker_metrics::sampled::{Covered, Set};

use crate::counters::{Counter, Counters};
use crate::directory::Directory;
use crate::ids::Ids;
use crate::kernel::Kernel;
use crate::pace::Pace;
use crate::publisher::Publisher;
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
    set: Set,
    publisher: Publisher,
    pace: Pace,
}

impl Leftovers {
    /// For these groups; without any it never samples. `earlier` are in the directory until [`Leftovers::install`].
    #[must_use]
    pub fn new(
        kernel: Rc<Kernel>,
        groups: Vec<Group>,
        interval_ns: u64,
        counters: Counters,
        earlier: BTreeMap<String, u32>,
    ) -> Self {
        let publisher = Publisher::beside(kernel.clone(), Covered::default(), interval_ns, counters.clone());
        let (set, pace) = (Set::default(), Pace::new(interval_ns));
        Self { kernel, groups, interval_ns, counters, earlier, set, publisher, pace }
    }

    /// Takes what is left beside the `covered` metrics, samples it and publishes it. Regions of an earlier agent whose class is the same go on, others end.
    pub fn install(&mut self, directory: &mut Directory, ids: &mut Ids, covered: &Covered, now_ns: u64) {
        let Self { kernel, groups, interval_ns, counters, earlier, set, publisher, .. } = self;
        *publisher = Publisher::beside(kernel.clone(), covered.clone(), *interval_ns, counters.clone());
        let drafts = publisher.drafts(set, groups);
        // First those that end, since their memory may be wanted.
        let goes_on = |name: &str, id: u32| {
            let entry = directory.entry(id);
            entry.is_some_and(|(entry, _)| {
                drafts.iter().any(|drafted| drafted.draft.name() == name && drafted.text.id == entry.schema)
            })
        };
        let (mut go_on, end): (BTreeMap<String, u32>, BTreeMap<String, u32>) =
            std::mem::take(earlier).into_iter().partition(|(name, id)| goes_on(name, *id));
        end.into_values().for_each(|id| ids.end(directory, id));
        let mut names = Vec::new();
        for drafted in drafts {
            let (group, metrics, name) = (drafted.draft.group, drafted.draft.metrics(), drafted.text.name.clone());
            match publisher.publish((directory, ids), set, drafted, go_on.remove(&name), true) {
                Ok(()) => names.push(format!("{name} ({metrics} metrics)")),
                Err(error) => publisher.warn(group, &error),
            }
        }
        if names.is_empty() {
            return;
        }
        let interval = Span::from_ns(self.interval_ns);
        system::log(&format!("not computed, so sampled every {interval} while it is read: {}", names.join(", ")));
        self.pace.begin(now_ns, self.answered());
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
        if is_due && self.pace.is_wanted(now_ns, self.answered()) && self.publisher.sample(&mut self.set) {
            self.publisher.renew(directory, ids, &mut self.set);
        }
    }

    /// READs answered; without an answer the last number holds, and nothing is sampled for it.
    fn answered(&self) -> u64 {
        self.kernel.answered().unwrap_or_else(|_| {
            self.counters.add(Counter::KernelErrors, 1);
            self.pace.answered()
        })
    }
}
