// SPDX-License-Identifier: Apache-2.0
//! Schemas of a directory: which are needed, where their text is, what they say.

use super::Limits;
use super::fetch::Span;
use super::keys::Keys;
use crate::Via;
use onlooker_bootstrap::Control;
use onlooker_region::columns::Plan;
use onlooker_region::control::{ControlError, Directory, Entry, SchemaEntry, assemble_schema, schema_extent};
use onlooker_region::{Block, Schema, SchemaId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Longest rest of a region that moves seldom, ns.
const MAX_REST_NS: u64 = 1_000_000_000;

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
    /// Decodes its regions, which have rest for so long, ns; kept as long as the directory refers to it.
    Known(Arc<Plan>, u64),
    /// Cannot be had, and why; looked for again in the next round.
    Refused(String),
}

/// Schemas by id.
#[derive(Debug, Default)]
pub(super) struct Classes {
    known: HashMap<SchemaId, Class>,
    /// Bytes of the texts that have been parsed.
    held: HashMap<SchemaId, u64>,
    /// Text on its way.
    pub(super) wanted: Vec<Wanted>,
}

impl Classes {
    pub(super) fn get(&self, id: SchemaId) -> Option<&Class> {
        self.known.get(&id)
    }

    /// Drops what nobody refers to and finds the texts of what is new. They go to `memory_at` and behind; returns the blocks that they take.
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
        let mut held: u64 = self.held.values().sum();
        let texts: HashMap<SchemaId, &SchemaEntry> = directory
            .entries()
            .iter()
            .filter_map(|entry| match entry {
                Entry::Schema(schema) => Some((schema.id, schema)),
                _ => None,
            })
            .collect();
        self.wanted.clear();
        let mut at = memory_at;
        for id in wanted {
            if self.known.contains_key(&id) {
                continue;
            }
            let refused = |what: String| Class::Refused(what);
            let Some(entry) = texts.get(&id) else {
                self.known.insert(id, refused(format!("schema {id} is not in the directory")));
                continue;
            };
            if !keys.serves_schema(entry) {
                self.known.insert(id, refused(format!("schema {id} is not served by the {via} responder")));
                continue;
            }
            match schema_extent(entry, control.va, control.bytes) {
                Err(error) => {
                    self.known.insert(id, refused(error.to_string()));
                }
                Ok(_) if held + entry.bytes > most_held => {
                    let why = format!("schema {id} does not fit: a host has at most {most_held} bytes of schemas");
                    self.known.insert(id, refused(why));
                }
                Ok((first, blocks)) => {
                    let cost = entry.bytes * Limits::SCHEMA_COST + u64::from(blocks) * 1024;
                    let Some(left) = budget.checked_sub(cost) else {
                        self.known.insert(id, refused(format!("schema {id} does not fit into the limit for a host")));
                        continue;
                    };
                    *budget = left;
                    held += entry.bytes;
                    let rkey = keys.schema(entry);
                    self.wanted.push(Wanted { entry: (*entry).clone(), rkey, first, at, blocks });
                    at += blocks;
                }
            }
        }
        at - memory_at
    }

    /// Takes the texts that are whole in `memory`; how many are not, and stay wanted.
    pub(super) fn take_whole(&mut self, incarnation: u32, memory: &[Block]) -> usize {
        for wanted in std::mem::take(&mut self.wanted) {
            match assemble_schema(&wanted.entry, incarnation, wanted.first, &memory[wanted.place().0]) {
                Ok(schema) => self.learn(&wanted.entry, schema),
                Err(_) => self.wanted.push(wanted),
            }
        }
        self.wanted.len()
    }

    fn learn(&mut self, entry: &SchemaEntry, schema: Schema) {
        let rest_ns = (schema.moves_every_ns() / 4).min(MAX_REST_NS);
        self.held.insert(entry.id, entry.bytes);
        self.known.insert(entry.id, Class::Known(Arc::new(Plan::new(schema)), rest_ns));
    }

    /// Takes the texts that have arrived; returns those with blocks that are worth another try.
    pub(super) fn take(&mut self, incarnation: u32, memory: &[Block]) -> Vec<(Wanted, &'static str)> {
        let mut again = Vec::new();
        for wanted in std::mem::take(&mut self.wanted) {
            let blocks = &memory[wanted.at as usize..][..wanted.blocks as usize];
            let class = match assemble_schema(&wanted.entry, incarnation, wanted.first, blocks) {
                Ok(schema) => {
                    self.learn(&wanted.entry, schema);
                    continue;
                }
                Err(ControlError::Block { reject, .. }) if reject.is_transient() => {
                    again.push((wanted, reject.name()));
                    continue;
                }
                Err(error) => Class::Refused(error.to_string()),
            };
            self.known.insert(wanted.entry.id, class);
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
