// SPDX-License-Identifier: Apache-2.0
//! The state machine of a cycle.

use super::fetch::{Fetch, Span};
use super::frame::{Problem, State, missed};
use super::resolve::{Class, Classes, Wanted};
use super::{Counters, Frame, Limits, ReadError, count, outcome_name, reason};
use crate::{Completion, Outcome, Read};
use onlooker_bootstrap::{Answer, Control};
use onlooker_region::control::{ControlError, Directory, RegionEntry};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::{Block, Reject, Schema};
use onlooker_wire::tcp_read::Refusal;

/// Pauses before the tries of what was torn or busy, ns. The first are at once, since a commit takes a microsecond; the last outlast a
/// writer that lost its CPU for a scheduler tick in the middle of one.
const PAUSES_NS: [u64; 8] = [0, 0, 100_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Header,
    Entries,
    Schemas,
    Regions,
    Done,
}

type Filter = Box<dyn Fn(&RegionEntry, &Schema) -> bool + Send>;

/// Follows one host.
pub struct Session {
    control: Control,
    max_read_blocks: u32,
    limits: Limits,
    filter: Filter,
    directory: Directory,
    classes: Classes,
    states: Vec<State>,
    memory: Vec<Block>,
    /// Blocks of the memory's front that belong to `states`; scratch is behind.
    held: u32,
    entry_blocks: Vec<u32>,
    fetch: Fetch,
    step: Step,
    tries: u32,
    rounds: u32,
    /// Bytes that this cycle may still cost.
    budget: u64,
    not_before_ns: u64,
    asked_ns: u64,
    deadline_ns: u64,
    counters: Counters,
    /// Control blocks that were given up, with the reason.
    control_refused: Vec<(u32, Reject)>,
}

impl Session {
    /// For the host that gave `answer`, READ by a requester of READs of up to `max_read_blocks`.
    ///
    /// # Panics
    /// If the limits allow no try, or no round.
    #[must_use]
    pub fn new(answer: &Answer, max_read_blocks: u32, limits: Limits) -> Self {
        assert!(limits.tries > 0 && limits.rounds > 0 && max_read_blocks > 0);
        // Blocks are numbered with 32 bits.
        let limits = Limits { bytes: limits.bytes.min(1 << 40), ..limits };
        Self {
            control: answer.control,
            max_read_blocks,
            limits,
            filter: Box::new(|_, _| true),
            directory: Directory::new(answer.control.generation),
            classes: Classes::default(),
            states: Vec::new(),
            memory: Vec::new(),
            held: 0,
            entry_blocks: Vec::new(),
            fetch: Fetch::default(),
            step: Step::Done,
            tries: 0,
            rounds: 0,
            budget: 0,
            not_before_ns: 0,
            asked_ns: 0,
            deadline_ns: 0,
            counters: Counters::default(),
            control_refused: Vec::new(),
        }
    }

    /// From the next cycle on reads only the regions that `filter` wants.
    pub fn select(&mut self, filter: impl Fn(&RegionEntry, &Schema) -> bool + Send + 'static) {
        self.filter = Box::new(filter);
    }

    /// Begins a cycle that ends at `deadline_ns`. READs of an unfinished one must have completed: the memory is laid out anew.
    pub fn begin(&mut self, now_ns: u64, deadline_ns: u64) {
        self.deadline_ns = deadline_ns;
        self.budget = self.limits.bytes;
        self.rounds = 0;
        self.states.clear();
        self.held = 0;
        self.begin_round(now_ns);
    }

    fn begin_round(&mut self, now_ns: u64) {
        self.rounds += 1;
        self.control_refused.clear();
        self.want(Step::Header, now_ns);
        self.scratch(1);
        self.fetch.add(Span { va: self.control.va, rkey: self.control.rkey, at: self.held, blocks: 1 }, 1);
    }

    /// Begins a step with an empty batch.
    fn want(&mut self, step: Step, now_ns: u64) {
        self.step = step;
        self.tries = 1;
        self.not_before_ns = now_ns;
        self.asked_ns = now_ns;
        self.fetch.begin();
    }

    /// Makes room for `blocks` behind what is held.
    fn scratch(&mut self, blocks: u32) {
        self.memory.resize((self.held + blocks) as usize, Block::default());
    }

    /// Whether the cycle is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Appends READs to be submitted, at most `most`; none before [`Session::wake_ns`].
    pub fn wanted(&self, now_ns: u64, most: usize, reads: &mut Vec<Read>) {
        if now_ns >= self.not_before_ns {
            self.fetch.wanted(most, self.deadline_ns, reads);
        }
    }

    /// The first `count` of the READs wanted are under way.
    pub fn submitted(&mut self, count: usize) {
        self.fetch.submitted(count);
    }

    /// When READs that are wanted may go out, where that is later than now; else far away.
    #[must_use]
    pub fn wake_ns(&self, now_ns: u64) -> u64 {
        if self.not_before_ns > now_ns { self.not_before_ns } else { u64::MAX }
    }

    /// The memory that READs go to.
    pub fn memory(&mut self) -> &mut [Block] {
        &mut self.memory
    }

    /// Length of a READ of the present batch.
    #[must_use]
    pub fn blocks_of(&self, id: u64) -> u32 {
        self.fetch.blocks_of(id)
    }

    /// Takes a completion; when it was the last of its batch the cycle goes on.
    ///
    /// # Errors
    /// [`ReadError`]: the cycle has ended without a directory.
    pub fn complete(&mut self, completion: Completion, now_ns: u64) -> Result<(), ReadError> {
        if !self.fetch.complete(completion) {
            return Ok(());
        }
        match completion.outcome {
            Outcome::Done => {
                self.counters.reads += 1;
                self.counters.blocks += u64::from(self.blocks_of(completion.id));
            }
            outcome => count(&mut self.counters.failed, outcome_name(outcome)),
        }
        // A step may find nothing to read and be over at once.
        while self.step != Step::Done && self.fetch.is_over() {
            let advanced = match self.step {
                Step::Header => self.take_header(now_ns),
                Step::Entries => self.take_entries(now_ns),
                Step::Schemas => self.take_schemas(now_ns),
                Step::Regions => {
                    self.take_regions(now_ns);
                    Ok(())
                }
                Step::Done => Ok(()),
            };
            if let Err(error) = advanced {
                self.step = Step::Done;
                return Err(error);
            }
        }
        Ok(())
    }

    /// A batch of control blocks that did not come as a whole: tries again where it makes sense. True: the step is to be tried again.
    fn control_failed(&mut self, now_ns: u64) -> Result<bool, ReadError> {
        let failed = self.fetch.results().map(|(_, outcome)| outcome).find(|outcome| *outcome != Outcome::Done);
        match failed {
            None => Ok(false),
            Some(Outcome::Refused(Refusal::Overloaded)) => match self.again(now_ns) {
                true => Ok(true),
                false => Err(ReadError::Overloaded),
            },
            Some(refused @ Outcome::Refused(_)) => Err(ReadError::Gone(outcome_name(refused).into())),
            Some(Outcome::Lost) => Err(ReadError::Lost),
            Some(Outcome::Timeout | Outcome::Done) => Err(ReadError::Timeout),
        }
    }

    /// Begins the next try of the present step, after a pause; false where there is none left. The batch is empty then.
    fn again(&mut self, now_ns: u64) -> bool {
        if self.tries >= self.limits.tries || now_ns >= self.deadline_ns {
            return false;
        }
        let pause = PAUSES_NS[(self.tries as usize - 1).min(PAUSES_NS.len() - 1)];
        self.tries += 1;
        self.not_before_ns = now_ns.saturating_add(pause);
        self.asked_ns = now_ns;
        self.fetch.begin();
        true
    }

    /// Takes blocks from the budget.
    fn spend(&mut self, blocks: u32) -> bool {
        match self.budget.checked_sub(u64::from(blocks) * BLOCK_BYTES as u64) {
            Some(left) => {
                self.budget = left;
                true
            }
            None => false,
        }
    }

    fn want_entries(&mut self) {
        let blocks = std::mem::take(&mut self.entry_blocks);
        for (at, index) in (self.held..).zip(&blocks) {
            let va = self.control.va + u64::from(*index) * BLOCK_BYTES as u64;
            self.fetch.add(Span { va, rkey: self.control.rkey, at, blocks: 1 }, self.max_read_blocks);
        }
        self.entry_blocks = blocks;
    }

    fn take_header(&mut self, now_ns: u64) -> Result<(), ReadError> {
        let header_span = Span { va: self.control.va, rkey: self.control.rkey, at: self.held, blocks: 1 };
        if self.control_failed(now_ns)? {
            self.fetch.add(header_span, 1);
            return Ok(());
        }
        match self.directory.header(&self.memory[self.held as usize]) {
            Ok(wanted) => {
                // The entry blocks lie within the control region that bootstrap told, or READs would go elsewhere.
                let blocks = self.control.bytes / BLOCK_BYTES as u64;
                if let Some(outside) = wanted.iter().find(|index| u64::from(**index) >= blocks) {
                    let (got, limit) = (u64::from(*outside), blocks);
                    return Err(ControlError::Header { what: "entry_blocks", got, limit }.into());
                }
                let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
                if !self.spend(count) {
                    return Err(ReadError::Limit(self.limits.bytes));
                }
                self.entry_blocks = wanted;
                self.want(Step::Entries, now_ns);
                self.scratch(count);
                self.want_entries();
                Ok(())
            }
            Err(ControlError::Block { reject, .. }) if reject.is_transient() => {
                if !self.again(now_ns) {
                    return Err(ControlError::Block { index: 0, reject }.into());
                }
                count(&mut self.counters.retries, reason(reject));
                self.fetch.add(header_span, 1);
                Ok(())
            }
            Err(ControlError::Block { reject: Reject::Identity, .. }) => Err(ReadError::Gone("identity".into())),
            Err(error) => Err(error.into()),
        }
    }

    fn take_entries(&mut self, now_ns: u64) -> Result<(), ReadError> {
        if self.control_failed(now_ns)? {
            self.want_entries();
            return Ok(());
        }
        let mut again = Vec::new();
        for (at, index) in (self.held as usize..).zip(std::mem::take(&mut self.entry_blocks)) {
            match self.directory.entry_block(index, &self.memory[at]) {
                Ok(()) => {}
                Err(ControlError::Block { reject, .. }) if reject.is_transient() => again.push((index, reject)),
                Err(ControlError::Block { reject, .. }) => self.control_refused.push((index, reject)),
                Err(error) => return Err(error.into()),
            }
        }
        let more = u32::try_from(again.len()).unwrap_or(u32::MAX);
        if !again.is_empty() && self.spend(more) && self.again(now_ns) {
            again.iter().for_each(|(_, reject)| count(&mut self.counters.retries, reason(*reject)));
            self.entry_blocks = again.into_iter().map(|(index, _)| index).collect();
            self.want_entries();
            return Ok(());
        }
        for (index, reject) in again {
            self.control_refused.push((index, reject));
        }
        for (_, reject) in &self.control_refused {
            count(&mut self.counters.refused, reason(*reject));
        }
        if self.control_refused.is_empty() {
            self.directory.complete();
        }
        self.counters.entries += self.directory.refused().count() as u64;
        self.want(Step::Schemas, now_ns);
        let blocks = self.classes.plan(&self.directory, self.control, self.held, &mut self.budget);
        self.scratch(blocks);
        self.want_schemas();
        Ok(())
    }

    fn want_schemas(&mut self) {
        for wanted in &self.classes.wanted {
            self.fetch.add(wanted.span(), self.max_read_blocks);
        }
    }

    fn take_schemas(&mut self, now_ns: u64) -> Result<(), ReadError> {
        let failed: Vec<(Span, Outcome)> =
            self.fetch.results().filter(|(_, outcome)| *outcome != Outcome::Done).collect();
        let mut again: Vec<(Wanted, &'static str)> = Vec::new();
        for wanted in std::mem::take(&mut self.classes.wanted) {
            match failed.iter().find(|(span, _)| wanted.touches(*span)).map(|(_, outcome)| *outcome) {
                None => self.classes.wanted.push(wanted),
                Some(outcome @ Outcome::Refused(Refusal::Overloaded)) => again.push((wanted, outcome_name(outcome))),
                Some(outcome) => {
                    let why = format!("schema {}: a READ of it ended as `{}`", wanted.id(), outcome_name(outcome));
                    self.classes.refuse(wanted.id(), why);
                }
            }
        }
        again.extend(self.classes.take(self.control.generation, &self.memory));
        if !again.is_empty() {
            let blocks: u32 = again.iter().map(|(wanted, _)| wanted.span().blocks).sum();
            if self.spend(blocks) && self.again(now_ns) {
                for (wanted, why) in again {
                    count(&mut self.counters.retries, why);
                    self.classes.wanted.push(wanted);
                }
                self.want_schemas();
                return Ok(());
            }
            for (wanted, why) in again {
                count(&mut self.counters.refused, why);
                self.classes.refuse(wanted.id(), format!("schema {}: a block of it stayed `{why}`", wanted.id()));
            }
        }
        self.begin_regions(now_ns);
        Ok(())
    }

    /// Lays out the regions of the directory; what an earlier round of this cycle has read of unchanged ones is kept.
    fn begin_regions(&mut self, now_ns: u64) {
        let old = std::mem::take(&mut self.states);
        let mut old_memory = std::mem::take(&mut self.memory);
        let mut kept: Vec<&State> = old.iter().filter(|state| state.finished && state.problem.is_none()).collect();
        kept.sort_unstable_by_key(|state| state.entry.identity.word());
        if kept.is_empty() {
            // The usual case keeps its allocation.
            std::mem::swap(&mut self.memory, &mut old_memory);
            self.memory.clear();
        }
        let entries: Vec<RegionEntry> = self.directory.regions().cloned().collect();
        self.held = 0;
        for entry in entries {
            let known = kept.binary_search_by_key(&entry.identity.word(), |state| state.entry.identity.word());
            if let Some(state) = known.ok().map(|index| kept[index]).filter(|state| state.entry == entry) {
                let blocks = &old_memory[state.at as usize..][..state.blocks as usize];
                self.memory.extend_from_slice(blocks);
                self.states.push(State { at: self.held, ..state.clone() });
                self.held += state.blocks;
                continue;
            }
            let Some(state) = self.lay_out(entry) else { continue };
            self.held += state.blocks;
            self.memory.resize(self.held as usize, Block::default());
            self.states.push(state);
        }
        self.want(Step::Regions, now_ns);
        for state in self.states.iter().filter(|state| !state.finished) {
            let RegionEntry { va, rkey, .. } = state.entry;
            self.fetch.add(Span { va, rkey, at: state.at, blocks: state.blocks }, self.max_read_blocks);
        }
    }

    /// The state of a region that is to be read; `None` where the filter does not want it.
    fn lay_out(&mut self, entry: RegionEntry) -> Option<State> {
        let (plan, mut problem) = match self.classes.get(entry.schema) {
            Some(Class::Known(plan)) => (Some(plan.clone()), None),
            Some(Class::Refused(why)) => (None, Some(Problem::Schema(why.clone()))),
            None => (None, Some(Problem::Schema(format!("schema {} was not read", entry.schema)))),
        };
        let mut blocks = 0;
        if let Some(plan) = &plan {
            if !(self.filter)(&entry, plan.schema()) {
                return None;
            }
            let (needed, got) = (plan.schema().blocks(), entry.bytes / BLOCK_BYTES as u64);
            if got != u64::from(needed) {
                problem = Some(Problem::Length { needed, got });
            } else if self.spend(needed) {
                blocks = needed;
            } else {
                problem = Some(Problem::Limit(self.limits.bytes));
            }
        }
        Some(State {
            entry,
            plan,
            at: self.held,
            blocks,
            finished: problem.is_some(),
            problem,
            refused: Vec::new(),
            asked_ns: 0,
            answered_ns: 0,
        })
    }

    fn take_regions(&mut self, now_ns: u64) {
        // Both lists are in the order of the memory.
        let results: Vec<(Span, Outcome)> = self.fetch.results().collect();
        let mut stale = false;
        let mut again: Vec<(usize, Vec<u32>)> = Vec::new();
        for (number, state) in self.states.iter_mut().enumerate().filter(|(_, state)| !state.finished) {
            let range = state.at..state.at + state.blocks;
            let begin = results.partition_point(|(span, _)| span.at + span.blocks <= range.start);
            let mine = results[begin..].iter().take_while(|(span, _)| span.at < range.end);
            let failed: Vec<(Span, Outcome)> = mine.filter(|(_, outcome)| *outcome != Outcome::Done).copied().collect();
            state.answered_ns = now_ns;
            state.asked_ns = self.asked_ns;
            if let Some((_, outcome)) = failed.iter().find(|(_, o)| *o != Outcome::Refused(Refusal::Overloaded)) {
                state.problem = Some(Problem::Read(*outcome));
                state.finished = true;
                stale |= *outcome == Outcome::Refused(Refusal::Access);
                continue;
            }
            let blocks = |span: &Span| span.at.max(range.start)..(span.at + span.blocks).min(range.end);
            let mut retry: Vec<u32> =
                failed.iter().flat_map(|(span, _)| blocks(span)).map(|at| at - range.start).collect();
            let schema = state.plan.as_ref().expect("only regions with a schema are read").schema();
            let memory = &self.memory[range.start as usize..range.end as usize];
            state.refused = missed(schema, state.entry.identity, memory);
            if !failed.is_empty() {
                state.problem = Some(Problem::Read(failed[0].1));
            }
            let unanswered = retry.len();
            for refused in &state.refused {
                if refused.reject.is_transient() {
                    retry.push(u32::try_from(refused.block).unwrap_or(u32::MAX));
                }
                stale |= refused.reject == Reject::Identity && unanswered == 0;
            }
            retry.sort_unstable();
            retry.dedup();
            if retry.is_empty() {
                state.finished = true;
            } else {
                again.push((number, retry));
            }
        }
        if !again.is_empty() && self.again(now_ns) {
            for (number, blocks) in again {
                self.retry(number, &blocks);
            }
            if !self.fetch.is_empty() {
                return;
            }
        }
        self.states.iter_mut().for_each(|state| state.finished = true);
        if stale && self.rounds < self.limits.rounds && now_ns < self.deadline_ns {
            self.counters.rounds += 1;
            self.forget_stale();
            self.begin_round(now_ns);
            return;
        }
        for state in &self.states {
            state.reasons().for_each(|reason| count(&mut self.counters.refused, reason));
        }
        self.step = Step::Done;
    }

    /// Wants some blocks of a region once more.
    fn retry(&mut self, number: usize, blocks: &[u32]) {
        let cost = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        if !self.spend(cost) {
            self.states[number].finished = true;
            return;
        }
        let state = &mut self.states[number];
        // Whether the rest came is seen at the next look.
        state.problem = None;
        for refused in state.refused.iter().filter(|refused| refused.reject.is_transient()) {
            count(&mut self.counters.retries, reason(refused.reject));
        }
        for block in blocks {
            let va = state.entry.va + u64::from(*block) * BLOCK_BYTES as u64;
            self.fetch.add(Span { va, rkey: state.entry.rkey, at: state.at + block, blocks: 1 }, self.max_read_blocks);
        }
    }

    /// Regions that have become others, or were not read, are looked at anew in the next round.
    fn forget_stale(&mut self) {
        for state in &mut self.states {
            let identity = state.refused.iter().any(|refused| refused.reject == Reject::Identity);
            state.finished &= !identity;
        }
    }

    /// The regions of the last cycle, in the directory's order; those that the filter did not want are left out.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.states.iter().map(|state| {
            let memory = &self.memory[state.at as usize..][..state.blocks as usize];
            Frame { state, memory }
        })
    }

    /// The host's directory.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The schema that a region of the directory has, where it is known.
    #[must_use]
    pub fn schema(&self, entry: &RegionEntry) -> Option<&Schema> {
        match self.classes.get(entry.schema) {
            Some(Class::Known(plan)) => Some(plan.schema()),
            _ => None,
        }
    }

    /// Entry blocks of the control region that could not be read in the last cycle.
    #[must_use]
    pub fn control_refused(&self) -> &[(u32, Reject)] {
        &self.control_refused
    }

    /// What happened since the session began.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
