// SPDX-License-Identifier: Apache-2.0
//! The state machine of a cycle.

use super::empty::Occupied;
use super::fetch::Fetch;
use super::frame::Served;
use super::keys::Keys;
use super::mirror::{Mirror, Mirrored};
use super::packed::Packed;
use super::resolve::{Class, Classes};
use super::{Counters, Frame, Frames, Limits, ReadError, count, outcome_name};
use crate::clock::Relation;
use crate::{Completion, Outcome, Read, SchemaCache, Via};
use onlooker_bootstrap::{Answer, Control};
use onlooker_region::control::{Directory, RegionEntry};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::{Block, Reject, Schema};
use std::collections::HashMap;
use std::sync::Arc;

/// Pauses before the tries of what was torn or busy, ns. The first are at once, since a commit takes a microsecond; the last outlast a
/// writer that lost its CPU for a scheduler tick in the middle of one.
const PAUSES_NS: [u64; 8] = [0, 0, 100_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000];

/// How long a READ to a responder that is [silent](Via::is_silent) is waited for: the requester has repeated it several times by then.
const SILENCE_NS: u64 = 250_000_000;
/// How long a region is left alone whose READs such a responder has not answered.
pub(super) const SILENT_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Early,
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
    /// Its regions that this session serves, the agent's own first.
    pub(super) served: Arc<[Served]>,
    /// What the filter says of each of them.
    pub(super) chosen: Vec<bool>,
    /// Those of them that stand for others.
    pub(super) packed: Option<Arc<Packed>>,
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
    /// The host's clock, where somebody has told it.
    pub(super) clock: Option<Relation>,
    /// What is to be read of those (as above) that have tables.
    pub(super) occupied: HashMap<(u64, u32), Occupied>,
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
            served: Arc::default(),
            chosen: Vec::new(),
            packed: None,
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
            clock: None,
            occupied: HashMap::new(),
            mirrored: Mirrored::default(),
            is_mirrored: false,
        }
    }

    /// From the next cycle on takes the directory from a copy that the host's device writes, where that is right; what is not is READ. At least every
    /// [`MIRROR_CHECK_NS`](super::MIRROR_CHECK_NS) the host's header is READ all the same, and so is the whole directory in the first cycle.
    pub fn mirror(&mut self, mirror: Box<dyn Mirror + Send>) {
        self.mirrored.mirror = Some(mirror);
    }

    /// From now on takes schemas that other sessions with this cache have from there, and enters what it READs. To be called
    /// before the first cycle: what is known by then is its own.
    pub fn share(&mut self, schemas: &Arc<SchemaCache>) {
        self.classes.shared = schemas.clone();
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
        self.choose();
    }

    /// Asks the filter, which costs too much to be asked in each cycle. A region whose schema is not known is chosen:
    /// somebody has to hear why.
    pub(super) fn choose(&mut self) {
        let is_chosen = |one: &Served| one.plan.as_ref().map_or(true, |plan| (self.filter)(&one.entry, plan.schema()));
        self.chosen = self.served.iter().map(is_chosen).collect();
    }

    /// From the next cycle on leaves regions alone whose values cannot have moved ([`Frame::is_resting`]; `resting.rs` has
    /// the times), and blocks of the agent's tables without a row for a second or more: for who reads much more often than
    /// that, and keeps what was read. Regions whose fields are in packed blocks, too, are left out, and there is a frame of
    /// those in their place.
    pub fn rest(&mut self) {
        self.rests = true;
    }

    /// Tells it the host's clock as it is known now: when the next sample of a region is due that is sampled seldom.
    pub fn know_clock(&mut self, relation: Relation) {
        self.clock = Some(relation);
    }

    /// What was read last is lost to whoever keeps it: the next cycle leaves nothing alone.
    pub fn wake(&mut self) {
        self.resting.clear();
        self.occupied.clear();
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

    /// Whether the directory may be looked at once more in this cycle; counts it.
    pub(super) fn has_another_round(&mut self, now_ns: u64) -> bool {
        let has = self.rounds < self.limits.rounds && now_ns < self.deadline_ns;
        self.counters.rounds += u64::from(has);
        has
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
        if self.is_early() {
            self.begin_early(now_ns);
            return;
        }
        self.want(Step::Header, now_ns);
        self.want_header();
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

    /// Length of a READ that is under way; 0 where none is, as for one that has completed.
    #[must_use]
    pub fn blocks_of(&self, id: u64) -> u32 {
        self.fetch.blocks_of(id)
    }

    /// Takes a completion; when it was the last of its batch the cycle goes on.
    ///
    /// # Errors
    /// [`ReadError`]: the cycle has ended without a directory.
    pub fn complete(&mut self, completion: Completion, now_ns: u64) -> Result<(), ReadError> {
        let blocks = self.blocks_of(completion.id);
        if !self.fetch.complete(completion) {
            return Ok(());
        }
        match completion.outcome {
            Outcome::Done => {
                self.counters.reads += 1;
                self.counters.blocks += u64::from(blocks);
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
                Step::Early => self.take_early(now_ns),
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
                if self.rounds == 1 {
                    // Of what was read before the directory was known nothing is told.
                    self.frames.states.clear();
                    self.held = 0;
                }
                return Err(error);
            }
        }
        Ok(())
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
        // Plans of whatever host they were of are not kept.
        self.frames.served = self.served.clone();
        self.frames.packed = Arc::default();
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
