// SPDX-License-Identifier: Apache-2.0
//! Directory and regions of the agent itself, begun anew or taken over from an earlier agent: its counters, sampled kernel metrics.
//!
//! An own region goes on under the same rkey, address, id and generation as long as its schema is the same; counters then go on, too.

use std::rc::Rc;
use std::sync::Arc;

use onlooker_region::Schema;
use onlooker_region::block::Identity;
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::map::Map;

use crate::agent::{AgentError, system_error};
use crate::config::{self, Config};
use crate::counters::{self, Counters};
use crate::directory::{Backing, Directory, Published, SchemaText};
use crate::host::{self, Host, read_small};
use crate::kernel::child;
use crate::kernel::ledger::{Keep, Record, Role, Source};
use crate::kernel::load::{Report, State};
use crate::kernel::{Kernel, Recovered};
use crate::node::Sampled;
use crate::procfs::process_stat;
use crate::protocol::Labels;
use crate::registration::FIRST_REGION_ID;
use crate::registry::SchemaRef;
use crate::sampler::Sampler;
use crate::served::Served;
use crate::system;

/// A responder that is there: what the loader said, the handle to it, and what of an earlier agent goes on.
pub type Loaded = (Report, Kernel, Recovered);

/// Runs the loader and opens what it has made. Where that fails the operator is told, and there is none.
#[must_use]
pub fn load(config: &config::Kernel, host: &Host) -> Option<Loaded> {
    let report = child::run(config, true);
    let opened = match &report.error {
        Some(error) => Err(error.clone()),
        None => Kernel::open(config, host).map_err(|error| error.to_string()),
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
    used: Vec<u32>,
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
            return Ok(Self { directory, recovered, report: None, earlier: Vec::new(), used: Vec::new() });
        };
        for record in recovered.records.iter_mut().filter(|record| record.keep.role == Role::Program) {
            record.entry.orphan |= !is_alive(record);
        }
        let directory = Directory::resume(host, served, Rc::new(kernel), &mut recovered, reuse_delay_ns, now_ns)?;
        let (earlier, programs) =
            std::mem::take(&mut recovered.records).into_iter().partition(|record| record.keep.role == Role::Own);
        recovered.records = programs;
        let earlier: Vec<Record> = earlier;
        let used = earlier.iter().map(Record::number).collect();
        Ok(Self { directory, recovered, report: Some(report), earlier, used })
    }

    /// The agent's counters.
    ///
    /// # Errors
    /// No memory, no place in the directory.
    pub fn counters(&mut self) -> Result<Counters, AgentError> {
        let schema = counters::schema();
        let text = SchemaText::of(&schema);
        let bytes = BLOCK_BYTES as u64;
        let counters = if let Some((record, range)) = self.earlier_in_slab(counters::REGION, &text) {
            let kernel = self.directory.kernel().cloned();
            let memory = kernel.as_ref().map(|kernel| kernel.own_range(range)).transpose()?.map(|map| block(&map));
            let memory = memory.unwrap_or_else(|| unreachable!("what was recovered has a responder"));
            let identity = record.entry.identity;
            self.directory.restore(record, Some(memory.clone()));
            self.directory.now_owned_by(identity.region, std::process::id(), host::boot_time_ns());
            Counters::over(memory, identity, true)
        } else {
            let identity = self.identity()?;
            let kernel = self.directory.kernel().cloned();
            let (counters, backing) = match kernel {
                Some(kernel) => {
                    let (range, map) = kernel.own_memory(bytes)?;
                    let counters = Counters::over(block(&map), identity, false);
                    let source = Source::Slab { slab: crate::kernel::recover::OWN_SLAB, range };
                    let backing = Backing::Slab(counters.memory(), keep(source, &schema, &text));
                    (counters, backing)
                }
                None => {
                    let counters = Counters::new(identity)?;
                    let memory = counters.memory();
                    (counters, Backing::Tcp(memory))
                }
            };
            self.publish(counters::REGION, &text, identity, backing)?;
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

    /// Sampled kernel metrics. Their memory is this process's: over TCP only.
    ///
    /// # Errors
    /// No memory, no place in the directory.
    pub fn sampler(&mut self, config: &Config, counters: &Counters) -> Result<Arc<Sampler>, AgentError> {
        let mut groups = config.sampled.groups.clone();
        groups.sort_unstable();
        groups.dedup();
        let mut ready = Vec::new();
        for group in groups {
            let identity = self.identity()?;
            match Sampled::new(group, config.sampled.interval.as_ns(), identity) {
                Ok(sampled) => {
                    let text = SchemaText::of(&sampled.schema);
                    self.publish(sampled.name, &text, identity, Backing::Tcp(sampled.memory.clone()))?;
                    ready.push(sampled);
                }
                Err(error) => system::log(&format!("warning: kernel metrics {group:?} are not served: {error}")),
            }
        }
        Ok(Sampler::new(ready, config.sampled.interval.as_duration(), counters.clone()))
    }

    /// What an earlier agent had of its own and this one has not, ends.
    #[must_use]
    pub fn end(mut self) -> Self {
        let now_ns = host::boot_time_ns();
        for record in std::mem::take(&mut self.earlier) {
            let number = record.number();
            self.directory.restore(record, None);
            self.directory.remove(number, now_ns);
        }
        self
    }

    fn identity(&mut self) -> Result<Identity, AgentError> {
        let generation = host::random_generation().map_err(system_error("get random numbers"))?;
        let full = || system_error("number the agent's own regions")(std::io::ErrorKind::OutOfMemory.into());
        let id = (1..FIRST_REGION_ID).find(|id| !self.used.contains(id)).ok_or_else(full)?;
        self.used.push(id);
        Ok(Identity::first(id, generation))
    }

    fn publish(
        &mut self,
        name: &'static str,
        text: &SchemaText,
        identity: Identity,
        backing: Backing,
    ) -> Result<(), AgentError> {
        let now_ns = host::boot_time_ns();
        let labels = Labels::new();
        let published = Published {
            id: identity.region,
            generation: identity.generation,
            name,
            labels: &labels,
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
            created_ns: now_ns,
        };
        self.directory.publish(&published, text, backing, now_ns).map_err(|refusal| AgentError::Own { name, refusal })
    }
}

/// The first block of a range.
fn block(map: &Map) -> Map {
    map.window(0..BLOCK_BYTES / 8)
}

fn keep(source: Source, schema: &Schema, text: &SchemaText) -> Keep {
    let text_bytes = u32::try_from(text.canonical.len()).unwrap_or(u32::MAX);
    let schema = SchemaRef { id: text.id, text_bytes, blocks: schema.blocks() };
    Keep { source, role: Role::Own, start_ticks: 0, schema, instance: String::new(), image: String::new() }
}

/// Whether a region's program still lives: the very process, not another one with its number.
fn is_alive(record: &Record) -> bool {
    read_small(&format!("/proc/{}/stat", record.entry.pid))
        .ok()
        .and_then(|stat| process_stat(stat.as_bytes()))
        .is_some_and(|(_, start_ticks)| start_ticks == record.keep.start_ticks)
}
