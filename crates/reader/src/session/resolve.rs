// SPDX-License-Identifier: Apache-2.0
//! Schemas of a directory: which are needed, which of them no other session has, where their text is, what they say.

use super::Limits;
use super::fetch::Span;
use super::frame::Served;
use super::keys::Keys;
use crate::{SchemaCache, Via};
use onlooker_bootstrap::Control;
use onlooker_region::columns::Plan;
use onlooker_region::control::{
    ControlError, Directory, Entry, RegionEntry, SchemaEntry, assemble_schema, schema_extent,
};
use onlooker_region::{Block, SchemaId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A schema's text on its way.
#[derive(Debug)]
pub(super) struct Wanted {
    entry: SchemaEntry,
    rkey: u32,
    first: u32,
    at: u32,
    blocks: u32,
}

impl Wanted {
    pub(super) fn id(&self) -> SchemaId {
        self.entry.id
    }

    pub(super) fn span(&self) -> Span {
        Span { va: self.entry.va, rkey: self.rkey, at: self.at, blocks: self.blocks }
    }

    /// Where it goes in the session's memory, and the control block that it begins with.
    pub(super) fn place(&self) -> (std::ops::Range<usize>, u32) {
        (self.at as usize..(self.at + self.blocks) as usize, self.first)
    }

    /// Whether a READ into `span` was for this text.
    pub(super) fn touches(&self, span: Span) -> bool {
        span.at < self.at + self.blocks && self.at < span.at + span.blocks
    }
}

/// What is known of a schema id.
#[derive(Clone, Debug)]
pub(super) enum Class {
    /// Decodes its regions, and whether those may be left alone; kept as long as the directory refers to it.
    Known(Arc<Plan>, bool),
    /// Cannot be had, and why; looked for again in the next round.
    Refused(String),
}

/// Schemas by id.
#[derive(Debug, Default)]
pub(super) struct Classes {
    known: HashMap<SchemaId, Class>,
    /// Bytes of the texts of those that decode regions, whoever else has them.
    held: HashMap<SchemaId, u64>,
    /// Text on its way.
    pub(super) wanted: Vec<Wanted>,
    /// Whether the directory had regions without their schema.
    pub(super) is_incomplete: bool,
    /// What other sessions have.
    pub(super) shared: Arc<SchemaCache>,
}

/// What the schemas that are new may cost. What need not be READ counts as if it were, so that it makes no difference
/// to a host's limits what other hosts have.
struct Room<'a> {
    /// Bytes of all texts held.
    held: u64,
    most_held: u64,
    budget: &'a mut u64,
}

impl Room<'_> {
    /// Takes what a text in so many blocks needs, if there is enough.
    fn take(&mut self, entry: &SchemaEntry, blocks: u32) -> Result<(), String> {
        let (id, most_held) = (entry.id, self.most_held);
        if self.held.saturating_add(entry.bytes) > most_held {
            return Err(format!("schema {id} does not fit: a host has at most {most_held} bytes of schemas"));
        }
        let cost = entry.bytes * Limits::SCHEMA_COST + u64::from(blocks) * 1024;
        let left = self.budget.checked_sub(cost);
        *self.budget = left.ok_or_else(|| format!("schema {id} does not fit into the limit for a host"))?;
        self.held += entry.bytes;
        Ok(())
    }
}

impl Classes {
    pub(super) fn get(&self, id: SchemaId) -> Option<&Class> {
        self.known.get(&id)
    }

    /// A region with what is known of its schema.
    pub(super) fn serve(&self, entry: Arc<RegionEntry>) -> Served {
        let (plan, may_rest) = match self.get(entry.schema) {
            Some(Class::Known(plan, may_rest)) => (Ok(plan.clone()), *may_rest),
            Some(Class::Refused(why)) => (Err(why.clone()), false),
            None => (Err(format!("schema {} was not read", entry.schema)), false),
        };
        Served { entry, plan, may_rest, is_steady: false }
    }

    /// Drops what nobody refers to, takes what other sessions have, and finds the texts of what is new. They go to
    /// `memory_at` and behind; returns the blocks that they take.
    pub(super) fn plan(
        &mut self,
        directory: &Directory,
        control: Control,
        (via, keys): (Via, Keys),
        memory_at: u32,
        budget: &mut u64,
        most_held: u64,
    ) -> u32 {
        // The agent's own come first where there is not room for all.
        let (agents, programs): (Vec<_>, Vec<_>) = directory.regions().partition(|entry| entry.identity.is_agents());
        let mut used = HashSet::new();
        let wanted = agents.into_iter().chain(programs).map(|region| region.schema);
        let wanted: Vec<SchemaId> = wanted.filter(|id| used.insert(*id)).collect();
        self.known.retain(|id, class| used.contains(id) && matches!(class, Class::Known(..)));
        self.held.retain(|id, _| self.known.contains_key(id));
        let texts: HashMap<SchemaId, &SchemaEntry> = directory
            .entries()
            .iter()
            .filter_map(|entry| match entry {
                Entry::Schema(schema) => Some((schema.id, schema)),
                _ => None,
            })
            .collect();
        self.wanted.clear();
        self.is_incomplete = wanted.iter().any(|id| !texts.contains_key(id));
        let mut room = Room { held: self.held.values().sum(), most_held, budget };
        let mut at = memory_at;
        for id in wanted {
            if self.known.contains_key(&id) {
                continue;
            }
            let extent = match texts.get(&id) {
                None => Err(format!("schema {id} is not in the directory")),
                Some(entry) if !keys.serves_schema(entry) => {
                    Err(format!("schema {id} is not served by the {via} responder"))
                }
                Some(entry) => match schema_extent(entry, control.va, control.bytes) {
                    Err(error) => Err(error.to_string()),
                    Ok((first, blocks)) => room.take(entry, blocks).map(|()| (*entry, first, blocks)),
                },
            };
            match extent.and_then(|(entry, first, blocks)| Ok((self.find_shared(entry)?, entry, first, blocks))) {
                Err(why) => self.refuse(id, why),
                Ok((Some(plan), entry, ..)) => self.learn(entry, plan),
                Ok((None, entry, first, blocks)) => {
                    let rkey = keys.schema(entry);
                    self.wanted.push(Wanted { entry: entry.clone(), rkey, first, at, blocks });
                    at += blocks;
                }
            }
        }
        at - memory_at
    }

    /// The schema of an entry if another session has it: its text was READ from another host, and hashes to the id.
    fn find_shared(&self, entry: &SchemaEntry) -> Result<Option<Arc<Plan>>, String> {
        match self.shared.find(entry.id) {
            Some((_, bytes)) if bytes != entry.bytes => {
                // A text of another length has another hash: this host's would be refused, too, if it were READ.
                Err(format!("schema {}: its entry says {} bytes, and it has {bytes}", entry.id, entry.bytes))
            }
            found => Ok(found.map(|(plan, _)| plan)),
        }
    }

    /// The schema of a text that has arrived.
    fn assemble(&self, wanted: &Wanted, incarnation: u32, memory: &[Block]) -> Result<Arc<Plan>, ControlError> {
        let entry = &wanted.entry;
        if let Ok(Some(plan)) = self.find_shared(entry) {
            return Ok(plan);
        }
        let schema = assemble_schema(entry, incarnation, wanted.first, &memory[wanted.place().0])?;
        Ok(self.shared.enter(entry.id, entry.bytes, schema))
    }

    /// Takes the texts that are whole in `memory`; how many are not, and stay wanted.
    pub(super) fn take_whole(&mut self, incarnation: u32, memory: &[Block]) -> usize {
        for wanted in std::mem::take(&mut self.wanted) {
            match self.assemble(&wanted, incarnation, memory) {
                Ok(plan) => self.learn(&wanted.entry, plan),
                Err(_) => self.wanted.push(wanted),
            }
        }
        self.wanted.len()
    }

    fn learn(&mut self, entry: &SchemaEntry, plan: Arc<Plan>) {
        let may_rest = plan.schema().moves_every_ns() > 0;
        self.held.insert(entry.id, entry.bytes);
        self.known.insert(entry.id, Class::Known(plan, may_rest));
    }

    /// Takes the texts that have arrived; returns those with blocks that are worth another try.
    pub(super) fn take(&mut self, incarnation: u32, memory: &[Block]) -> Vec<(Wanted, &'static str)> {
        let mut again = Vec::new();
        for wanted in std::mem::take(&mut self.wanted) {
            match self.assemble(&wanted, incarnation, memory) {
                Ok(plan) => self.learn(&wanted.entry, plan),
                Err(ControlError::Block { reject, .. }) if reject.is_transient() => {
                    again.push((wanted, reject.name()));
                }
                Err(error) => self.refuse(wanted.entry.id, error.to_string()),
            }
        }
        again
    }

    /// Whether none was refused.
    pub(super) fn are_known(&self) -> bool {
        self.known.values().all(|class| matches!(class, Class::Known(..)))
    }

    pub(super) fn refuse(&mut self, id: SchemaId, why: String) {
        self.known.insert(id, Class::Refused(why));
    }
}
