// SPDX-License-Identifier: Apache-2.0
//! Directory and regions of the agent itself, begun anew or taken over from an earlier agent: its counters, sampled kernel metrics.
//!
//! An own region goes on under the same rkey, address, id and generation as long as its schema is the same; counters then go on, too.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use onlooker_metrics::groups::Group;
use onlooker_metrics::procfs::{process_stat, read_small};
use onlooker_metrics::sampled::{Covered, Set};
use onlooker_region::Schema;
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::map::Map;

use crate::card::Card;
use crate::config::{self, Config};
use crate::counters::{self, Counters};
use crate::directory::{Backing, Directory, SchemaText};
use crate::error::{AgentError, system_error};
use crate::host::{self, Host};
use crate::ids::Ids;
use crate::kernel::child::{self, Task};
use crate::kernel::ledger::{Record, Role, Source};
use crate::kernel::load::{CollectorState, Report, State};
use crate::kernel::{Kernel, Recovered, user};
use crate::leftovers::Leftovers;
use crate::publisher::{PublishError, Publisher};
use crate::sampler::Sampler;
use crate::served::Served;
use crate::system;
use crate::tables::Tables;

/// A responder that is there: what the loader said, the handle to it, and what of an earlier agent goes on.
pub type Loaded = (Report, Kernel, Recovered);

/// Runs the loader and opens what it has made. Where that fails the operator is told, and there is none.
#[must_use]
pub fn load(config: &config::Kernel, host: &Host) -> Option<Loaded> {
    let report = child::run(config, Task::Replace);
    let opened = match &report.error {
        Some(error) => Err(error.clone()),
        None => Kernel::open(config, host, &report.telemetry).map_err(|error| error.to_string()),
    };
    match opened {
        Ok((kernel, recovered)) => {
            match report.responder {
                State::Replaced => system::log("the kernel responder's programs were replaced in place; regions go on"),
                State::Reloaded => system::log(
                    "warning: the kernel responder that was there could not be taken over (other sizes, another layout): it was removed, its regions have ended",
                ),
                State::Loaded | State::Kept | State::None => {}
            }
            report.devices.iter().for_each(|device| system::log(&device.to_string()));
            report.telemetry.iter().for_each(|table| system::log(&table.to_string()));
            if let Some(error) = &report.telemetry_error {
                system::log(&format!("WARNING: NO TELEMETRY REPORTS ARE TAKEN: {error}"));
            }
            Some((report, kernel, recovered))
        }
        Err(error) => {
            system::log(&format!("WARNING: NO KERNEL RESPONDER, READs are answered over TCP only: {error}"));
            None
        }
    }
}

/// Directory and own regions while they are made.
pub struct Own {
    /// The directory.
    pub directory: Directory,
    /// Regions of programs that go on.
    pub recovered: Recovered,
    /// What the loader said.
    pub report: Option<Report>,
    /// Own regions of an earlier agent that have not been taken over (yet).
    earlier: Vec<Record>,
    ids: Ids,
}

impl Own {
    /// The directory, with what of an earlier one goes on.
    ///
    /// # Errors
    /// No memory, no randomness, tables that cannot be changed.
    pub fn begin(
        config: &Config,
        host: &Host,
        served: Arc<Served>,
        loaded: Option<Loaded>,
    ) -> Result<Self, AgentError> {
        let (reuse_delay_ns, now_ns) = (config.limits.reuse_delay.as_ns(), host::boot_time_ns());
        let Some((report, kernel, mut recovered)) = loaded else {
            let directory = Directory::new(host, served, reuse_delay_ns, now_ns)?;
            let recovered = Recovered::default();
            return Ok(Self { directory, recovered, report: None, earlier: Vec::new(), ids: Ids::default() });
        };
        for record in recovered.records.iter_mut().filter(|record| record.keep.role == Role::Program) {
            record.entry.orphan |= !is_alive(record);
        }
        let mut directory = Directory::resume(host, served, Rc::new(kernel), &mut recovered, reuse_delay_ns, now_ns)?;
        // Before anything has an address.
        directory.set_card(Card::new(&config.verbs));
        let (earlier, programs) =
            std::mem::take(&mut recovered.records).into_iter().partition(|record| record.keep.role == Role::Own);
        recovered.records = programs;
        let earlier: Vec<Record> = earlier;
        // Programs', too: an older agent gave them ids that are for own regions now.
        let ids = Ids::taken(earlier.iter().chain(&recovered.records).map(Record::number));
        Ok(Self { directory, recovered, report: Some(report), earlier, ids })
    }

    /// The agent's counters.
    ///
    /// # Errors
    /// No memory, no place in the directory.
    pub fn counters(&mut self) -> Result<Counters, AgentError> {
        let schema = counters::schema();
        let text = SchemaText::of(&schema);
        let bytes = BLOCK_BYTES as u64;
        let kernel = self.directory.kernel().cloned();
        let earlier = self.earlier_in_slab(counters::REGION, &text);
        let counters = if let (Some(kernel), Some((record, range))) = (&kernel, earlier) {
            let memory = block(&kernel.own_range(range)?);
            let identity = record.entry.identity;
            self.directory.restore(record, Some(memory.clone()));
            self.directory.now_owned_by(identity.region, std::process::id(), host::boot_time_ns());
            Counters::over(memory, identity, true)
        } else {
            let identity = self.ids.take()?;
            let (counters, backing) = match kernel {
                Some(kernel) => {
                    let (range, map) = kernel.own_memory(bytes)?;
                    let counters = Counters::over(block(&map), identity, false);
                    let source = Source::Slab { slab: crate::kernel::recover::OWN_SLAB, range };
                    let backing = Backing::Slab(counters.memory(), source);
                    (counters, backing)
                }
                None => {
                    let counters = Counters::new(identity)?;
                    let memory = counters.memory();
                    (counters, Backing::Tcp(memory))
                }
            };
            let published = self.ids.publish(&mut self.directory, None, counters::REGION, &text, identity, backing);
            published.map_err(|refusal| AgentError::Own { name: counters::REGION, refusal })?;
            counters
        };
        self.directory.count_in(counters.clone());
        Ok(counters)
    }

    fn earlier_in_slab(&mut self, name: &str, text: &SchemaText) -> Option<(Record, onlooker_region::slab::Range)> {
        let at = self.earlier.iter().position(|record| record.entry.name == name && record.entry.schema == text.id)?;
        let Source::Slab { range, .. } = self.earlier[at].keep.source else { return None };
        Some((self.earlier.swap_remove(at), range))
    }

    /// Sampled kernel metrics. Their memory is this process's: over TCP only. A reader's first READ takes the first sample.
    ///
    /// # Errors
    /// No place in the directory, no descriptor.
    pub fn sampler(&mut self, config: &Config, counters: &Counters) -> Result<Arc<Sampler>, AgentError> {
        let (interval, mut set) = (config.sampled.interval, Set::default());
        let mut publisher = Publisher::over_tcp(interval.as_ns(), counters.clone());
        for drafted in publisher.drafts(&mut set, &groups(config)) {
            let group = drafted.draft.group;
            match publisher.publish((&mut self.directory, &mut self.ids), &mut set, drafted, None, false) {
                Ok(()) => {}
                Err(PublishError::Refused(refusal)) => return Err(AgentError::Own { name: group.region(), refusal }),
                Err(error) => publisher.warn(group, &error),
            }
        }
        Sampler::new(set, interval.as_duration(), counters.clone())
            .map_err(system_error("make a descriptor for the sampler"))
    }

    /// Tables of what the host has many of.
    #[must_use]
    pub fn tables(&mut self, config: &Config, counters: &Counters) -> Tables {
        Tables::install(config, &mut self.directory, &mut self.ids, counters)
    }

    /// Ends the earlier agent's own regions that this agent does not have. Computed regions, and those sampled beside them, stay until the loader has said what is
    /// computed now ([`Metrics::install`]).
    #[must_use]
    pub fn end(mut self, config: &Config, counters: &Counters, sampler: Arc<Sampler>) -> (Self, Metrics) {
        let mut regions = BTreeMap::new();
        let mut left = BTreeMap::new();
        let groups = if config.kernel.sample.as_ns() > 0 { groups(config) } else { Vec::new() };
        for record in std::mem::take(&mut self.earlier) {
            let (number, name, source) = (record.number(), record.entry.name.clone(), record.keep.source);
            self.directory.restore(record, None);
            let earlier = match source {
                Source::Computed { .. } => Some(&mut regions),
                Source::Slab { .. } if groups.iter().any(|group| group.left_region() == name) => Some(&mut left),
                Source::Slab { .. } if config.kernel.is_published(&name) => Some(&mut regions),
                Source::Slab { .. } => None,
            };
            match earlier.filter(|earlier| !earlier.contains_key(&name)) {
                Some(earlier) => drop(earlier.insert(name, number)),
                None => self.ids.end(&mut self.directory, number),
            }
        }
        let leftovers = self
            .directory
            .kernel()
            .cloned()
            .map(|kernel| Leftovers::new(kernel, groups, config.kernel.sample.as_ns(), counters.clone(), left));
        let metrics = Metrics {
            computed: regions,
            leftovers,
            sampler,
            over_tcp: Publisher::over_tcp(config.sampled.interval.as_ns(), counters.clone()),
            ids: std::mem::take(&mut self.ids),
        };
        (self, metrics)
    }
}

/// Regions of kernel metrics as they come and go: those that the kernel responder computes and what the agent samples beside them, and those that it samples for readers
/// over TCP.
pub struct Metrics {
    /// Ids of computed regions by name.
    computed: BTreeMap<String, u32>,
    /// What is sampled for the kernel responder's readers, if there is one.
    leftovers: Option<Leftovers>,
    /// What is sampled for readers over TCP. Readable when [`Metrics::renew`] has something to do.
    pub sampler: Arc<Sampler>,
    over_tcp: Publisher,
    ids: Ids,
}

impl Metrics {
    /// Publishes what is computed now, and what is left. A region whose class is the same stays as it is; others end.
    pub fn install(&mut self, directory: &mut Directory, collectors: &[CollectorState]) {
        let now_ns = host::boot_time_ns();
        let mut earlier = std::mem::take(&mut self.computed);
        let mut covered = Covered::default();
        for collector in collectors.iter().filter(|collector| collector.error.is_none()) {
            match self.install_one(directory, collector, earlier.remove(&collector.name), now_ns) {
                // A user's collector is no substitute for what the agent samples, whatever its metrics are called.
                Ok(_) if user::is_user(collector) => {}
                Ok(schema) => covered.add(&schema),
                Err(error) => {
                    system::log(&format!("warning: {} is not served by the kernel responder: {error}", collector.name));
                }
            }
        }
        for id in earlier.into_values() {
            self.ids.end(directory, id);
        }
        if let Some(leftovers) = &mut self.leftovers {
            leftovers.install(directory, &mut self.ids, &covered, now_ns);
        }
    }

    /// When [`Metrics::expire`] has something to do next, if ever.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.leftovers.as_ref().and_then(Leftovers::next_deadline_ns)
    }

    /// A reader may begin.
    pub fn wake(&mut self, now_ns: u64) {
        if let Some(leftovers) = &mut self.leftovers {
            leftovers.wake(now_ns);
        }
    }

    /// Does what is due.
    pub fn expire(&mut self, directory: &mut Directory, now_ns: u64) {
        if let Some(leftovers) = &mut self.leftovers {
            leftovers.expire(directory, &mut self.ids, now_ns);
        }
    }

    /// Makes the regions of sampled groups anew that have other series now.
    pub fn renew(&mut self, directory: &mut Directory) {
        let Self { sampler, over_tcp, ids, .. } = self;
        sampler.renew(|set| over_tcp.renew(directory, ids, set));
    }

    fn install_one(
        &mut self,
        directory: &mut Directory,
        collector: &CollectorState,
        earlier: Option<u32>,
        now_ns: u64,
    ) -> Result<Schema, String> {
        let schema = Schema::parse(&collector.schema).map_err(|error| error.to_string())?;
        let text = SchemaText::of(&schema);
        let standing = earlier.and_then(|id| directory.entry(id)).filter(|(entry, _)| entry.schema == text.id);
        let standing = standing.map(|(entry, source)| (entry.identity, source));
        if let (Some(id), Some((identity, Some(source)))) = (earlier, standing) {
            let goes_on = match (collector.published_ns, source) {
                (None, Source::Computed { collector: slot }) => slot == collector.slot,
                (Some(ns), Source::Slab { range, .. }) => {
                    let started = start_twin(directory, collector, range, &schema, (ns, identity.word()));
                    started.inspect_err(|error| system::log(&format!("warning: {}: {error}", collector.name))).is_ok()
                }
                _ => false,
            };
            if goes_on {
                directory.now_owned_by(id, std::process::id(), now_ns);
                self.computed.insert(collector.name.clone(), id);
                return Ok(schema);
            }
        }
        if let Some(id) = earlier {
            self.ids.end(directory, id);
        }
        let identity = self.ids.take().map_err(|error| error.to_string())?;
        let id = identity.region;
        let source = match collector.published_ns {
            None => Ok(Source::Computed { collector: collector.slot }),
            Some(ns) => take_for_twin(directory, collector, &schema, (ns, identity.word())),
        };
        let source = source.inspect_err(|_| self.ids.give(id))?;
        let backing = Backing::Kernel(source);
        let published = self.ids.publish(directory, None, &collector.name, &text, identity, backing);
        published.map_err(|refusal| refusal.to_string())?;
        self.computed.insert(collector.name.clone(), id);
        Ok(schema)
    }
}

/// Memory for a published group, into which the kernel writes from now on.
fn take_for_twin(
    directory: &Directory,
    collector: &CollectorState,
    schema: &Schema,
    every: (u64, u64),
) -> Result<Source, String> {
    let kernel = directory.kernel().ok_or("there is no kernel responder")?;
    let bytes = u64::from(schema.blocks()) * BLOCK_BYTES as u64;
    let (range, _) = kernel.own_memory(bytes).map_err(|error| error.to_string())?;
    match start_twin(directory, collector, range, schema, every) {
        Ok(()) => Ok(Source::Slab { slab: crate::kernel::recover::OWN_SLAB, range }),
        Err(error) => {
            kernel.give_own(range);
            Err(error)
        }
    }
}

fn start_twin(
    directory: &Directory,
    collector: &CollectorState,
    range: onlooker_region::slab::Range,
    schema: &Schema,
    every: (u64, u64),
) -> Result<(), String> {
    let kernel = directory.kernel().ok_or("there is no kernel responder")?;
    kernel.start_twin(&collector.name, range, schema, every).map_err(|error| error.to_string())
}

/// Configured groups of sampled metrics, each once.
fn groups(config: &Config) -> Vec<Group> {
    let mut groups = config.sampled.groups.clone();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// The first block of a range.
fn block(map: &Map) -> Map {
    map.window(0..BLOCK_BYTES / 8)
}

/// Whether a region's program still lives: the very process, not another one with its number.
fn is_alive(record: &Record) -> bool {
    read_small(&format!("/proc/{}/stat", record.entry.pid))
        .ok()
        .and_then(|stat| process_stat(stat.as_bytes()))
        .is_some_and(|(_, start_ticks)| start_ticks == record.keep.start_ticks)
}
