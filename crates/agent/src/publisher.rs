// SPDX-License-Identifier: Apache-2.0
//! Regions of sampled groups. Here a group of this host is drafted, gets memory and its first sample, and is announced;
//! and where it has other series by now, another region takes its region's place.
//!
//! For readers over TCP a region is a whole group, in memory of this process. For those over the kernel responder it is
//! what no collector computes, in the agent's slab, where it outlives the agent. When to sample is for the owner of the
//! [`Set`] to say: [`crate::sampler`] and [`crate::leftovers`].

use std::rc::Rc;
use std::time::Instant;

use onlooker_local::registration::Refusal;
use onlooker_metrics::groups::Group;
use onlooker_metrics::sampled::{Covered, Draft, NodeError, Sampled, Set};
use onlooker_region::block::Identity;
use onlooker_region::map::Map;
use onlooker_region::schema::SchemaId;
use onlooker_region::slab::Range;

use crate::counters::Counters;
use crate::devices::Devices;
use crate::directory::{Backing, Directory, SchemaText};
use crate::error::AgentError;
use crate::host;
use crate::ids::Ids;
use crate::kernel::ledger::Source;
use crate::kernel::recover::OWN_SLAB;
use crate::kernel::{Kernel, KernelError};
use crate::system;

/// Why a group has no region.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// It cannot be sampled, or has no memory.
    #[error(transparent)]
    Sampled(#[from] NodeError),
    /// The slab has no room.
    #[error(transparent)]
    Slab(#[from] KernelError),
    /// It cannot be numbered.
    #[error(transparent)]
    Number(#[from] AgentError),
    /// The directory refuses it.
    #[error("{0}")]
    Refused(Refusal),
}

/// A group that can have a region.
pub struct Drafted {
    /// The group.
    pub draft: Draft,
    /// Its class.
    pub text: SchemaText,
}

impl Drafted {
    fn of(draft: Draft) -> Self {
        Self { text: SchemaText::of(&draft.schema), draft }
    }
}

/// Makes regions of groups, all for the same readers.
pub struct Publisher {
    /// The kernel responder and what it computes; without it regions are for readers over TCP.
    beside: Option<(Rc<Kernel>, Covered)>,
    interval_ns: u64,
    devices: Devices,
    counters: Counters,
}

impl Publisher {
    /// For readers over TCP. Groups are sampled every `interval_ns`, or as often as they are worth.
    #[must_use]
    pub fn over_tcp(interval_ns: u64, counters: Counters) -> Self {
        Self { beside: None, interval_ns, devices: Devices::Unasked, counters }
    }

    /// For readers over the kernel responder, beside what it computes.
    #[must_use]
    pub fn beside(kernel: Rc<Kernel>, computed: Covered, interval_ns: u64, counters: Counters) -> Self {
        Self { beside: Some((kernel, computed)), ..Self::over_tcp(interval_ns, counters) }
    }

    /// What there is of these groups here. The operator is told which this host has not got, and what there is to say of
    /// the others.
    pub fn drafts(&mut self, set: &mut Set, groups: &[Group]) -> Vec<Drafted> {
        let (mut drafts, mut absent) = (Vec::new(), Vec::new());
        for group in groups {
            match self.draft(set, *group) {
                Ok(draft) => drafts.extend(draft.map(Drafted::of)),
                Err(error) => absent.push(format!("{group}: {error}")),
            }
        }
        for Drafted { draft, .. } in &drafts {
            draft.notes.iter().for_each(|note| system::log(&format!("{}: {note}", draft.group)));
        }
        if !absent.is_empty() {
            system::log(&format!("kernel metrics that this host has not got: {}", absent.join("; ")));
        }
        if let (Some((kernel, _)), true) = (&self.beside, drafts.iter().any(|drafted| drafted.draft.wants_devices())) {
            self.devices = Devices::of(kernel, &self.counters);
        }
        drafts
    }

    /// All of a group, or what is left of it beside computed metrics; `None` where nothing is.
    fn draft(&self, set: &mut Set, group: Group) -> Result<Option<Draft>, NodeError> {
        set.draft(group, self.interval_ns, self.beside.as_ref().map(|(_, computed)| computed))
    }

    /// Puts a group into the set and announces its region, in the place of `old` if there is one: that of the set, or of
    /// an earlier agent, which goes on if its class is the same. With `samples` the first sample is there before anybody
    /// can read it.
    ///
    /// # Errors
    /// [`PublishError`]; the old region stands then, and the set has the group no more or has the old one.
    pub fn publish(
        &mut self,
        (directory, ids): (&mut Directory, &mut Ids),
        set: &mut Set,
        Drafted { draft, text }: Drafted,
        old: Option<u32>,
        samples: bool,
    ) -> Result<(), PublishError> {
        let standing = old.and_then(|id| directory.entry(id)).filter(|(entry, _)| entry.schema == text.id);
        let standing = standing.map(|(entry, source)| (entry.identity, source));
        if let (Some((kernel, _)), Some((identity, Some(Source::Slab { range, .. })))) = (&self.beside, standing) {
            let memory = whole(&kernel.own_range(range)?, &draft);
            self.put(set, draft.over(memory, identity), samples);
            directory.now_owned_by(identity.region, std::process::id(), host::boot_time_ns());
            return Ok(());
        }
        let (group, name) = (draft.group, draft.name().to_owned());
        let identity = ids.take()?;
        let (sampled, range) = self.give_memory(draft, identity).inspect_err(|_| ids.give(identity.region))?;
        let backing = match range {
            Some(range) => Backing::Kernel(Source::Slab { slab: OWN_SLAB, range }),
            None => Backing::Tcp(sampled.memory().clone()),
        };
        self.put(set, sampled, samples);
        ids.publish(directory, old, &name, &text, identity, backing).map_err(|refusal| {
            set.remove(group);
            ids.give(identity.region);
            if let (Some((kernel, _)), Some(range)) = (&self.beside, range) {
                kernel.give_own(range);
            }
            PublishError::Refused(refusal)
        })
    }

    fn give_memory(&self, draft: Draft, identity: Identity) -> Result<(Sampled, Option<Range>), PublishError> {
        let Some((kernel, _)) = &self.beside else { return Ok((draft.alone(identity)?, None)) };
        let (range, map) = kernel.own_memory(draft.bytes())?;
        let memory = whole(&map, &draft);
        Ok((draft.over(memory, identity), Some(range)))
    }

    fn put(&mut self, set: &mut Set, sampled: Sampled, samples: bool) {
        let group = sampled.group;
        set.put(sampled);
        if samples {
            self.devices.hear(&self.counters);
            self.counters.lost(set.sample_one(group, self.devices.with_row()));
        }
    }

    /// Samples what is due; whether groups have other series than their regions have places for.
    pub fn sample(&mut self, set: &mut Set) -> bool {
        let begin = Instant::now();
        self.devices.hear(&self.counters);
        let loss = set.sample(host::boot_time_ns(), self.devices.with_row());
        self.counters.sampled(begin, loss);
        loss.changed
    }

    /// Regions of groups that have other series now: another file system, another interrupt.
    pub fn renew(&mut self, directory: &mut Directory, ids: &mut Ids, set: &mut Set) {
        for group in set.take_changed() {
            let standing = set.groups().iter().find(|sampled| sampled.group == group);
            let standing = standing.map(|sampled| (SchemaText::of(&sampled.schema).id, sampled.identity().region));
            let mut renewed = self.renew_one((directory, ids), set, group, standing);
            if let (Err(_), Some((_, id))) = (&renewed, standing) {
                // There may be no room for both.
                set.remove(group);
                ids.end(directory, id);
                renewed = self.renew_one((directory, ids), set, group, None);
            }
            if let Err(error) = renewed {
                self.warn(group, &error);
            }
        }
    }

    /// A group's new region, in the place of its old one, whose class and number are `standing`.
    fn renew_one(
        &mut self,
        (directory, ids): (&mut Directory, &mut Ids),
        set: &mut Set,
        group: Group,
        standing: Option<(SchemaId, u32)>,
    ) -> Result<(), PublishError> {
        let old = standing.map(|(_, id)| id);
        let Some(draft) = self.draft(set, group)? else {
            if let Some(id) = old {
                set.remove(group);
                ids.end(directory, id);
            }
            return Ok(());
        };
        let drafted = Drafted::of(draft);
        if standing.is_some_and(|(schema, _)| schema == drafted.text.id) {
            return Ok(());
        }
        self.publish((directory, ids), set, drafted, old, true)
    }

    /// Tells the operator that a group has no region.
    pub fn warn(&self, group: Group, error: &PublishError) {
        let (name, readers) = match &self.beside {
            Some(_) => (group.left_region(), "by the kernel responder"),
            None => (group.region().to_owned(), "over TCP"),
        };
        system::log(&format!("warning: {name} is not served {readers}: {error}"));
    }
}

/// As much of a range as a draft needs.
fn whole(map: &Map, draft: &Draft) -> Map {
    map.window(0..usize::try_from(draft.bytes() / 8).unwrap_or(0))
}
