// SPDX-License-Identifier: Apache-2.0
//! The state machine of a cycle.

use super::fetch::{Fetch, Span};
use super::keys::Keys;
use super::mirror::{Mirror, Mirrored};
use super::resolve::{Class, Classes, Wanted};
use super::{Counters, Frame, Frames, Limits, ReadError, count, outcome_name};
use crate::{Completion, Outcome, Read, Via};
use onlooker_bootstrap::{Answer, Control};
use onlooker_region::control::{ControlError, Directory, RegionEntry};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::{Block, Reject, Schema};
use onlooker_wire::tcp_read::Refusal;
use std::collections::HashMap;
use std::sync::Arc;

/// Pauses before the tries of what was torn or busy, ns. The first are at once, since a commit takes a microsecond; the last outlast a
/// writer that lost its CPU for a scheduler tick in the middle of one.
const PAUSES_NS: [u64; 8] = [0, 0, 100_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000];

/// Tries of a torn header beside a directory that is known. An agent that was killed in the middle of a commit leaves its header so
/// until the next one starts; the regions that it served go on, and an identity tells those that have moved.
const HEADER_TRIES: u32 = 3;

/// How long a READ to a responder that is [silent](Via::is_silent) is waited for: the requester has repeated it several times by then.
const SILENCE_NS: u64 = 250_000_000;
/// How long a region is left alone whose READs such a responder has not answered.
pub(super) const SILENT_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Header,
    Entries,
    Schemas,
    Regions,
    Done,
}

pub(super) type Filter = Box<dyn Fn(&RegionEntry, &Schema) -> bool + Send>;

/// Follows one host.
pub struct Session {
    pub(super) control: Control,
    pub(super) keys: Keys,
    pub(super) via: Via,
    pub(super) max_read_blocks: u32,
    pub(super) limits: Limits,
    pub(super) filter: Filter,
    pub(super) directory: Directory,
    /// Its regions that this session serves.
    pub(super) entries: Vec<Arc<RegionEntry>>,
    /// The others.
    pub(super) unserved: Arc<[Arc<RegionEntry>]>,
    /// Whether these, and all their schemas, are as the directory has them.
    pub(super) settled: bool,
    pub(super) classes: Classes,
    /// What the cycle has so far; scratch is behind it in its memory.
    pub(super) frames: Frames,
    /// Blocks of the memory's front that belong to its states.
    pub(super) held: u32,
    pub(super) entry_blocks: Vec<u32>,
    pub(super) fetch: Fetch,
    pub(super) step: Step,
    pub(super) tries: u32,
    pub(super) rounds: u32,
    /// Bytes that this cycle may still cost.
    pub(super) budget: u64,
    pub(super) not_before_ns: u64,
    pub(super) asked_ns: u64,
    pub(super) deadline_ns: u64,
    pub(super) counters: Counters,
    /// Control blocks that were given up, with the reason.
    pub(super) control_refused: Vec<(u32, Reject)>,
    /// Regions (identity word and key) that were met with silence, and when to try again.
    pub(super) silent: HashMap<(u64, u32), u64>,
    /// Whether regions are left alone that cannot have moved.
    pub(super) rests: bool,
    /// Those (as above), and until when.
    pub(super) resting: HashMap<(u64, u32), u64>,
    /// A copy of the control region on this machine, if there is one.
    pub(super) mirrored: Mirrored,
    /// Whether this round goes by it.
    pub(super) is_mirrored: bool,
}

impl Session {
    /// For the host that gave `answer`, READ through `via` by a requester of READs of up to `max_read_blocks`. Regions that others serve are left out. Through an RDMA
    /// device the answer is the one with the host's queue pair.
    ///
    /// # Panics
    /// If the limits allow no try, or no round.
    #[must_use]
    pub fn new(answer: &Answer, via: Via, max_read_blocks: u32, limits: Limits) -> Self {
        assert!(limits.tries > 0 && limits.rounds > 0 && max_read_blocks > 0);
        // A batch has no more READs than blocks, and numbers them with 20 bits.
        let limits = Limits { bytes: limits.bytes.min(1 << 30), ..limits };
        Self {
            control: answer.control,
            keys: Keys::new(answer, via),
            via,
            max_read_blocks,
            limits,
            filter: Box::new(|_, _| true),
            directory: Directory::new(answer.control.generation),
            entries: Vec::new(),
            unserved: Arc::default(),
            settled: false,
            classes: Classes::default(),
            frames: Frames::default(),
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
            silent: HashMap::new(),
            rests: false,
            resting: HashMap::new(),
            mirrored: Mirrored::default(),
            is_mirrored: false,
        }
    }

    /// From the next cycle on takes the directory from a copy that the host's device writes, where that is right; what is not is READ. At least every
    /// [`MIRROR_CHECK_NS`](super::MIRROR_CHECK_NS) the host's header is READ all the same, and so is the whole directory in the first cycle.
    pub fn mirror(&mut self, mirror: Box<dyn Mirror + Send>) {
        self.mirrored.mirror = Some(mirror);
    }

    /// Who answers its READs.
    #[must_use]
    pub fn via(&self) -> Via {
        self.via
    }

    /// Whether a region can be read by this session.
    #[must_use]
    pub fn serves(&self, entry: &RegionEntry) -> bool {
        self.keys.serves(entry)
    }

    /// From the next cycle on reads only the regions that `filter` wants.
    pub fn select(&mut self, filter: impl Fn(&RegionEntry, &Schema) -> bool + Send + 'static) {
        self.filter = Box::new(filter);
    }

    /// From the next cycle on leaves a region alone for a quarter of the time in which its values can move by its schema, a second at most
    /// ([`Frame::is_resting`]): for who reads much more often than that, and keeps what was read.
    pub fn rest(&mut self) {
        self.rests = true;
    }

    /// What was read last is lost to whoever keeps it: the next cycle leaves nothing alone.
    pub fn wake(&mut self) {
        self.resting.clear();
    }

    /// Begins a cycle that ends at `deadline_ns`. READs of an unfinished one must have completed: the memory is laid out anew.
    pub fn begin(&mut self, now_ns: u64, deadline_ns: u64) {
        self.deadline_ns = deadline_ns;
        self.budget = self.limits.bytes;
        self.rounds = 0;
        self.frames.states.clear();
        self.held = 0;
        self.begin_round(now_ns);
    }

    pub(super) fn begin_round(&mut self, now_ns: u64) {
        self.rounds += 1;
        self.control_refused.clear();
        // What has become another region since says that the copy is late.
        self.is_mirrored = self.rounds == 1 && self.take_mirrored(now_ns);
        if self.is_mirrored {
            self.counters.mirror_used += 1;
            return;
        }
        self.want(Step::Header, now_ns);
        self.scratch(1);
        self.fetch.add(Span { va: self.control.va, rkey: self.keys.control(), at: self.held, blocks: 1 }, 1);
    }

    /// Begins a step with an empty batch.
    pub(super) fn want(&mut self, step: Step, now_ns: u64) {
        self.step = step;
        self.tries = 1;
        self.not_before_ns = now_ns;
        self.asked_ns = now_ns;
        self.fetch.begin();
    }

    /// Makes room for `blocks` behind what is held.
    pub(super) fn scratch(&mut self, blocks: u32) {
        self.frames.memory.resize((self.held + blocks) as usize, Block::default());
    }

    /// Whether the cycle is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Appends READs to be submitted, at most `most`; none before [`Session::wake_ns`]. Their ids are below 2^40.
    pub fn wanted(&self, now_ns: u64, most: usize, reads: &mut Vec<Read>) {
        if now_ns >= self.not_before_ns {
            let patience_ns = if self.via.is_silent() { SILENCE_NS } else { u64::MAX };
            self.fetch.wanted(most, self.deadline_ns.min(now_ns.saturating_add(patience_ns)), reads);
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
        &mut self.frames.memory
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
        self.advance(now_ns)
    }

    /// Goes on where the batch is over.
    pub(super) fn advance(&mut self, now_ns: u64) -> Result<(), ReadError> {
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
    pub(super) fn again(&mut self, now_ns: u64) -> bool {
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
    pub(super) fn spend(&mut self, blocks: u32) -> bool {
        match self.budget.checked_sub(u64::from(blocks) * BLOCK_BYTES as u64) {
            Some(left) => {
                self.budget = left;
                true
            }
            None => false,
        }
    }

    pub(super) fn want_entries(&mut self) {
        let blocks = std::mem::take(&mut self.entry_blocks);
        for (at, index) in (self.held..).zip(&blocks) {
            let va = self.control.va + u64::from(*index) * BLOCK_BYTES as u64;
            self.fetch.add(Span { va, rkey: self.keys.control(), at, blocks: 1 }, self.max_read_blocks);
        }
        self.entry_blocks = blocks;
    }

    fn take_header(&mut self, now_ns: u64) -> Result<(), ReadError> {
        let header_span = Span { va: self.control.va, rkey: self.keys.control(), at: self.held, blocks: 1 };
        if self.control_failed(now_ns)? {
            self.fetch.add(header_span, 1);
            return Ok(());
        }
        match self.directory.header(&self.frames.memory[self.held as usize]) {
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
                self.mirrored.checked(self.asked_ns);
                self.entry_blocks = wanted;
                self.want(Step::Entries, now_ns);
                self.scratch(count);
                self.want_entries();
                Ok(())
            }
            Err(ControlError::Block { reject, .. }) if reject.is_transient() => {
                let is_known = self.directory.is_known();
                if !(is_known && self.tries >= HEADER_TRIES) && self.again(now_ns) {
                    count(&mut self.counters.retries, reject.name());
                    self.fetch.add(header_span, 1);
                    return Ok(());
                }
                if !is_known {
                    return Err(ControlError::Block { index: 0, reject }.into());
                }
                self.control_refused.push((0, reject));
                self.want(Step::Entries, now_ns);
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
        self.settled &= self.entry_blocks.is_empty();
        for (at, index) in (self.held as usize..).zip(std::mem::take(&mut self.entry_blocks)) {
            match self.directory.entry_block(index, &self.frames.memory[at]) {
                Ok(()) => self.mirrored.took(index, &self.frames.memory[at]),
                Err(ControlError::Block { reject, .. }) if reject.is_transient() => again.push((index, reject)),
                Err(ControlError::Block { reject, .. }) => self.control_refused.push((index, reject)),
                Err(error) => return Err(error.into()),
            }
        }
        let more = u32::try_from(again.len()).unwrap_or(u32::MAX);
        if !again.is_empty() && self.spend(more) && self.again(now_ns) {
            again.iter().for_each(|(_, reject)| count(&mut self.counters.retries, reject.name()));
            self.entry_blocks = again.into_iter().map(|(index, _)| index).collect();
            self.want_entries();
            return Ok(());
        }
        for (index, reject) in again {
            self.control_refused.push((index, reject));
        }
        for (_, reject) in &self.control_refused {
            count(&mut self.counters.refused, reject.name());
        }
        if self.control_refused.is_empty() {
            self.directory.complete();
            self.mirrored.complete(self.directory.last_header().map(|header| header.generation));
        }
        self.want(Step::Schemas, now_ns);
        if !self.settled {
            self.counters.entries += self.directory.refused().count() as u64;
            let (ways, most_held) = ((self.via, self.keys), self.limits.schema_bytes);
            let blocks = self.classes.plan(&self.directory, self.control, ways, self.held, &mut self.budget, most_held);
            self.scratch(blocks);
            if self.is_mirrored {
                self.take_mirrored_schemas();
            }
            self.want_schemas();
            let (served, unserved): (Vec<_>, Vec<_>) =
                self.directory.regions().cloned().map(Arc::new).partition(|entry| self.serves(entry));
            (self.entries, self.unserved) = (served, unserved.into());
            // Programs' regions must not use up what the agent's own need.
            self.entries.sort_by_key(|entry| !entry.identity.is_agents());
        }
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
        again.extend(self.classes.take(self.control.generation, &self.frames.memory));
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
        self.settled = self.control_refused.is_empty() && self.classes.are_known();
        self.begin_regions(now_ns);
        Ok(())
    }

    /// The regions of the last cycle, the agent's own first, else in the directory's order; those that the filter did not want are left out.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.frames.iter()
    }

    /// Moves them out, and takes what `frames` had allocated in their place. The cycle is over; until the next one there are no regions here.
    ///
    /// # Panics
    /// In the middle of a cycle.
    pub fn take(&mut self, frames: &mut Frames) {
        assert!(self.is_done(), "READs go to this memory");
        std::mem::swap(&mut self.frames, frames);
        self.frames.states.clear();
        self.frames.memory.clear();
        self.held = 0;
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
            Some(Class::Known(plan, _)) => Some(plan.schema()),
            _ => None,
        }
    }

    /// Blocks of the control region that could not be read in the last cycle; without block 0 the directory is that of the cycle before.
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
