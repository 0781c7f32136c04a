// SPDX-License-Identifier: Apache-2.0
//! One region as a cycle found it.

use super::reason;
use crate::Outcome;
use onlooker_region::block::check_plain;
use onlooker_region::columns::{Plan, Refused, Sample};
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::{Acquisition, Group, Kind, Schema};
use onlooker_region::{Block, Identity, Reject, guard};
use std::collections::HashSet;
use std::sync::Arc;

/// Why a region gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Its schema is missing, damaged or refused.
    #[error("{0}")]
    Schema(String),
    /// The entry's length is not the schema's.
    #[error("its entry says {got} blocks, its schema {needed}")]
    Length {
        /// Blocks of the schema.
        needed: u32,
        /// Blocks of the entry.
        got: u64,
    },
    /// A READ failed.
    #[error("a READ of it ended as `{}`", super::outcome_name(*.0))]
    Read(Outcome),
    /// It gave no answer a moment ago.
    #[error("a READ of it got no answer a moment ago; it is asked again every second")]
    Silent,
    /// The host's limit is used up.
    #[error("the limit of {0} bytes for a host is used up; raise it or ask for fewer metrics")]
    Limit(u64),
}

/// A region's state within a cycle.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) entry: Arc<RegionEntry>,
    pub(super) plan: Option<Arc<Plan>>,
    /// First block in the session's memory.
    pub(super) at: u32,
    pub(super) blocks: u32,
    /// It is left alone in this cycle: its values cannot have moved yet.
    pub(super) resting: bool,
    /// How long it may be left alone, ns.
    pub(super) rest_ns: u64,
    /// Nothing more is to be read for it in this cycle.
    pub(super) finished: bool,
    pub(super) problem: Option<Problem>,
    /// Blocks that were not accepted at the last look.
    pub(super) refused: Vec<Refused>,
    /// When the READ began and ended whose blocks these are, the reader's clock; of the last retry.
    pub(super) asked_ns: u64,
    pub(super) answered_ns: u64,
}

/// A region and what was read of it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub(super) state: &'a State,
    pub(super) memory: &'a [Block],
}

impl<'a> Frame<'a> {
    /// Its directory entry.
    #[must_use]
    pub fn entry(&self) -> &'a Arc<RegionEntry> {
        &self.state.entry
    }

    /// Its schema, where that could be had.
    #[must_use]
    pub fn schema(&self) -> Option<&'a Schema> {
        self.state.plan.as_ref().map(|plan| plan.schema())
    }

    /// Whether it was not read, since its values cannot have moved yet ([`super::Session::rest`]); what an earlier cycle read still stands.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.state.resting
    }

    /// Why nothing was read, if so.
    #[must_use]
    pub fn problem(&self) -> Option<&'a Problem> {
        self.state.problem.as_ref()
    }

    /// Blocks that were read and not accepted; those of computed groups whose published twin stands in are not listed.
    #[must_use]
    pub fn refused(&self) -> &'a [Refused] {
        &self.state.refused
    }

    /// When it was asked for and answered, the reader's steady clock.
    #[must_use]
    pub fn times_ns(&self) -> (u64, u64) {
        (self.state.asked_ns, self.state.answered_ns)
    }

    /// Keeps it beyond the next cycle. What `kept` has allocated is used again.
    pub fn keep(&self, kept: &mut Kept) {
        kept.state.clone_from(self.state);
        kept.memory.clear();
        kept.memory.extend_from_slice(self.memory);
    }

    /// Hands over every value of the accepted blocks. Of a computed group and its published twin only one is given: the computed one if all of it was
    /// accepted.
    pub fn decode(&self, mut sink: impl FnMut(Sample<'a>)) {
        if self.state.problem.is_some() || self.state.resting {
            return;
        }
        let Some(plan) = &self.state.plan else { return };
        let schema = plan.schema();
        let silent = silent_groups(schema, self.state.entry.identity, self.memory);
        let silent: HashSet<*const _> = silent.iter().map(|index| std::ptr::from_ref(&schema.groups[*index])).collect();
        // The number of blocks was checked against the schema before they were read.
        let _ = plan.decode(self.state.entry.identity, self.memory, |sample| {
            if !silent.contains(&std::ptr::from_ref(sample.group)) {
                sink(sample);
            }
        });
    }
}

/// All regions as a cycle found them, out of the session ([`super::Session::take`]): for who looks at them while the next cycle is under way.
#[derive(Debug, Default)]
pub struct Frames {
    pub(super) states: Vec<State>,
    pub(super) memory: Vec<Block>,
    pub(super) unserved: Arc<[Arc<RegionEntry>]>,
}

impl Frames {
    /// Regions that the host has, and that other responders serve than the one that is read.
    #[must_use]
    pub fn unserved(&self) -> &[Arc<RegionEntry>] {
        &self.unserved
    }

    /// The regions, as [`super::Session::frames`] has them.
    pub fn iter(&self) -> impl Iterator<Item = Frame<'_>> {
        self.states.iter().map(|state| {
            let memory = &self.memory[state.at as usize..][..state.blocks as usize];
            Frame { state, memory }
        })
    }

    /// Bytes that it holds on to.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.capacity() * size_of::<Block>() + self.states.capacity() * size_of::<State>()
    }

    /// Bytes of them that the last cycle needed.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        size_of_val(&self.memory[..]) + size_of_val(&self.states[..])
    }
}

/// A region as some cycle found it.
#[derive(Clone, Debug)]
pub struct Kept {
    state: State,
    memory: Vec<Block>,
}

impl From<Frame<'_>> for Kept {
    fn from(frame: Frame<'_>) -> Self {
        Self { state: frame.state.clone(), memory: frame.memory.to_vec() }
    }
}

impl Kept {
    /// It.
    #[must_use]
    pub fn frame(&self) -> Frame<'_> {
        Frame { state: &self.state, memory: &self.memory }
    }
}

/// Groups whose values another group gives: twins of computed groups that were accepted as a whole, and computed groups that were not and have a twin.
fn silent_groups(schema: &Schema, first: Identity, blocks: &[Block]) -> Vec<usize> {
    let mut silent = Vec::new();
    for (twin, computed) in twins(schema) {
        let whole = group_rejects(schema, first, blocks, computed).next().is_none();
        silent.push(if whole { twin } else { computed });
    }
    silent
}

/// (index of the twin, index of its computed group).
fn twins(schema: &Schema) -> impl Iterator<Item = (usize, usize)> + '_ {
    let of = schema.groups.iter().enumerate().filter_map(|(twin, group)| Some((twin, group.twin_of? as usize)));
    of.filter(|(_, computed)| *computed < schema.groups.len())
}

fn group_rejects<'a>(
    schema: &'a Schema,
    first: Identity,
    blocks: &'a [Block],
    group: usize,
) -> impl Iterator<Item = Refused> + 'a {
    let (begin, group) = schema.placed_groups().nth(group).expect("an index of this schema");
    let begin = begin as usize;
    let mine = blocks[begin..begin + group.blocks as usize].iter().enumerate();
    mine.filter_map(move |(number, block)| {
        let index = begin + number;
        let expected = first.at(u16::try_from(index).ok()?);
        let reject = check(group.kind, block, expected).err()?;
        Some(Refused { block: index, reject })
    })
}

fn check(kind: Kind, block: &Block, expected: Identity) -> Result<(), Reject> {
    match kind {
        Kind::Foreign => Ok(()),
        Kind::Plain => check_plain(block, expected),
        Kind::Guarded | Kind::Computed | Kind::Table => guard::check(block, expected).map(|_| ()),
    }
}

/// Blocks that are not accepted and missed: not those of computed groups that have a twin.
pub(super) fn missed(schema: &Schema, first: Identity, blocks: &[Block]) -> Vec<Refused> {
    let stood_in: HashSet<usize> = twins(schema).map(|(_, computed)| computed).collect();
    let groups = (0..schema.groups.len()).filter(|group| !stood_in.contains(group));
    groups.flat_map(|group| group_rejects(schema, first, blocks, group)).collect()
}

impl State {
    /// Longest READ of it: a computed block is one answer (docs/responder.md), whatever else the responder may send at once.
    pub(super) fn max_read_blocks(&self, most: u32) -> u32 {
        let groups = self.plan.iter().flat_map(|plan| &plan.schema().groups);
        // A table can be computed, too: its kind says how it is laid out.
        let is_computed = |group: &Group| group.kind == Kind::Computed || group.acquisition == Acquisition::Computed;
        if groups.into_iter().any(is_computed) { 1 } else { most }
    }

    /// Reasons of the refused blocks, with their numbers.
    pub(super) fn reasons(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.refused.iter().map(|refused| reason(refused.reject))
    }
}
