// SPDX-License-Identifier: Apache-2.0
//! One region as a cycle found it: its blocks, and what their check has found. Nobody behind the session checks a block
//! again.

use crate::Outcome;
use crate::clock::{Moment, Relation};
use onlooker_region::Block;
use onlooker_region::checked::{Checked, Refused, Verdicts};
use onlooker_region::columns::{Plan, Sample};
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::{Acquisition, Group, Schema};
use std::sync::Arc;

/// Words of a cache line.
const LINE_WORDS: usize = 8;

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

impl Problem {
    /// In a word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Schema(_) => "schema",
            Self::Length { .. } => "length",
            Self::Read(outcome) => super::outcome_name(*outcome),
            Self::Silent => "timeout",
            Self::Limit(_) => "limit",
        }
    }
}

/// A region of the directory, and what is known of its schema: the same for all cycles in which the directory stays as it is.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) entry: Arc<RegionEntry>,
    /// Its decoding, or why that cannot be had.
    pub(super) plan: Result<Arc<Plan>, String>,
    /// Its values move seldom: it is left alone in between.
    pub(super) may_rest: bool,
    /// It is one of the agent's, none of whose name was replaced.
    pub(super) is_steady: bool,
}

impl Served {
    /// Longest READ of it: a computed block is one answer (docs/responder.md), whatever else the responder may send at once.
    pub(super) fn max_read_blocks(&self, most: u32) -> u32 {
        if self.plan.as_ref().is_ok_and(|plan| plan.compiled().is_computed()) { 1 } else { most }
    }

    /// Which region it is, and by which key it is READ.
    pub(super) fn key(&self) -> (u64, u32) {
        (self.entry.identity.word(), self.entry.rkey)
    }
}

/// A region's state within a cycle.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Which of the regions that are served.
    pub(super) region: usize,
    /// First block in the session's memory.
    pub(super) at: u32,
    pub(super) blocks: u32,
    /// It is left alone in this cycle: its values cannot have moved yet.
    pub(super) resting: bool,
    /// All of its blocks are read in this cycle; else those of its tables that were without a row a moment ago are not.
    pub(super) whole: bool,
    /// Nothing more is to be read for it in this cycle.
    pub(super) finished: bool,
    pub(super) problem: Option<Problem>,
    /// Of its blocks, as far as they have been read.
    pub(super) verdicts: Verdicts,
    /// When the READ began and ended whose blocks these are, the reader's clock; of the last retry.
    pub(super) asked_ns: u64,
    pub(super) answered_ns: u64,
}

/// A region and what was read of it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub(super) served: &'a Served,
    pub(super) state: &'a State,
    pub(super) memory: &'a [Block],
}

impl<'a> Frame<'a> {
    /// Its directory entry.
    #[must_use]
    pub fn entry(&self) -> &'a Arc<RegionEntry> {
        &self.served.entry
    }

    /// Its schema, where that could be had.
    #[must_use]
    pub fn schema(&self) -> Option<&'a Schema> {
        self.plan().map(|plan| plan.schema())
    }

    /// The decoding of its schema, where that could be had; all regions of that schema share it, of whatever host
    /// ([`crate::SchemaCache`]).
    #[must_use]
    pub fn plan(&self) -> Option<&'a Arc<Plan>> {
        self.served.plan.as_ref().ok()
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
        self.state.verdicts.refused()
    }

    /// When it was asked for and answered, the reader's steady clock.
    #[must_use]
    pub fn times_ns(&self) -> (u64, u64) {
        (self.state.asked_ns, self.state.answered_ns)
    }

    /// Its blocks, checked; `None` where nothing was read.
    #[must_use]
    pub fn checked(&self) -> Option<Checked<'a, 'a>> {
        let plan = self.plan().filter(|_| self.state.problem.is_none() && !self.state.resting)?;
        Some(self.state.verdicts.on(plan, self.memory))
    }

    /// Hands over every value of the accepted blocks. Of a computed group and its published twin only one is given: the computed one if all of it was
    /// accepted.
    pub fn decode(&self, sink: impl FnMut(Sample<'a>)) {
        if let Some(checked) = self.checked() {
            checked.decode(sink);
        }
    }

    /// Bounds the host's clock better, if it can: the agent's computed blocks were made between asking and answering.
    /// Programs' blocks do not count, since a program may write any time and say that it was computed. `utc_ns` tells
    /// UTC at an instant of the reader's steady clock. Cost: a comparison, most often; else the time of a block.
    pub fn sharpen(&self, relation: &mut Relation, utc_ns: impl Fn(u64) -> u64, now_ns: u64) {
        let (asked_ns, answered_ns) = self.times_ns();
        let is_computed = |group: &Group| self.entry().acquisition(group) == Acquisition::Computed;
        let is_told = || self.schema().is_some_and(|schema| schema.groups.iter().any(is_computed));
        if answered_ns.saturating_sub(asked_ns) / 2 >= relation.error_ns(now_ns) || !is_told() {
            return;
        }
        let (Some(checked), Some(schema)) = (self.checked(), self.schema()) else { return };
        let computed = schema.groups.iter().enumerate().filter(|(_, group)| is_computed(group));
        let time_ns = |(number, group): (usize, &Group)| {
            (0..group.blocks as usize).find_map(|block| checked.time_ns(number, block))
        };
        let Some(host_ns) = computed.filter_map(time_ns).next() else { return };
        let moment = |steady_ns| Moment { steady_ns, utc_ns: utc_ns(steady_ns) };
        *relation = relation.or_better(Relation::new(host_ns, moment(asked_ns), moment(answered_ns)), now_ns);
    }
}

/// All regions as a cycle found them, out of the session ([`super::Session::take`]): for who looks at them while the next cycle is under way.
#[derive(Debug, Default)]
pub struct Frames {
    /// The regions that the states are of; some have none, since the filter did not want them.
    pub(super) served: Arc<[Served]>,
    pub(super) states: Vec<State>,
    pub(super) memory: Vec<Block>,
    pub(super) unserved: Arc<[Arc<RegionEntry>]>,
    /// Regions in whose place packed blocks were read.
    pub(super) packed: Arc<[Arc<RegionEntry>]>,
}

impl Frames {
    /// Regions that the host has, and that other responders serve than the one that is read.
    #[must_use]
    pub fn unserved(&self) -> &[Arc<RegionEntry>] {
        &self.unserved
    }

    /// Whether the fields of a region of this name were read as packed blocks, in its place.
    #[must_use]
    pub fn has_packed(&self, name: &str) -> bool {
        self.packed.iter().any(|entry| entry.name == name)
    }

    /// The regions, as [`super::Session::frames`] has them.
    pub fn iter(&self) -> impl Iterator<Item = Frame<'_>> {
        self.states.iter().map(|state| {
            let memory = &self.memory[state.at as usize..][..state.blocks as usize];
            Frame { served: &self.served[state.region], state, memory }
        })
    }

    /// Has the processor load all blocks that were read. Another thread has written them, so that each cache line is
    /// waited for; here the waits overlap, and whoever decodes afterwards has none. A fifth of the cost of decoding is
    /// saved.
    pub fn load(&self) {
        let read = self.iter().filter(|frame| !frame.is_resting());
        let lines = read.flat_map(|frame| frame.memory).flat_map(|block| block.0.iter().step_by(LINE_WORDS));
        std::hint::black_box(lines.fold(0, |all, word| all ^ word));
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
