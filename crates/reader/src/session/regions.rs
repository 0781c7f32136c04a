// SPDX-License-Identifier: Apache-2.0
//! The last step of a cycle: laying out the regions' memory, reading and checking their blocks, reading again what was torn.

use super::count;
use super::cycle::{SILENT_NS, Session, Step};
use super::empty::Occupied;
use super::fetch::Span;
use super::frame::{Problem, Served, State};
use super::resting;
use crate::Outcome;
use onlooker_region::checked::Verdicts;
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::{Block, Reject};
use onlooker_wire::tcp_read::Refusal;
use std::collections::HashMap;
use std::slice;
use std::sync::Arc;

impl Session {
    /// Reads the regions of the directory; what this cycle has read of unchanged ones already is kept.
    pub(super) fn begin_regions(&mut self, now_ns: u64) {
        self.lay_out_all(now_ns, |_| true);
        self.want(Step::Regions, now_ns);
        self.ask();
    }

    /// Lays out those regions that are `for_now`, and keeps what was read of them, where they are still the same.
    pub(super) fn lay_out_all(&mut self, now_ns: u64, for_now: impl Fn(&Served) -> bool) {
        // What met with silence is not asked again in this cycle, unless its entry has changed.
        let silence = self.via.is_silent().then_some(Problem::Read(Outcome::Timeout));
        let is_kept = |state: &&State| state.finished && (state.problem.is_none() || state.problem == silence);
        let served = self.served.clone();
        let before = std::mem::replace(&mut self.frames.served, served.clone());
        self.frames.unserved = self.unserved.clone();
        let (mut old, mut old_memory) = (Vec::new(), Vec::new());
        let is_same = self.rounds == 1 && Arc::ptr_eq(&before, &served);
        if is_same && self.frames.states.iter().all(|state| is_kept(&state)) {
            // The usual case: all of it stays where it is.
            self.frames.memory.truncate(self.held as usize);
        } else {
            std::mem::swap(&mut self.frames.states, &mut old);
            std::mem::swap(&mut self.frames.memory, &mut old_memory);
            self.held = 0;
        }
        let there = self.frames.states.len();
        let kept: HashMap<u64, &State> =
            old.iter().filter(is_kept).map(|state| (before[state.region].entry.identity.word(), state)).collect();
        let packed = self.packed.clone();
        let wanted = packed.filter(|packed| self.rests && packed.is_chosen(&self.chosen));
        let is_wanted = wanted.is_some();
        let packed = wanted.filter(|packed| !self.is_silent(&served[packed.region], now_ns));
        self.frames.packed = packed.as_ref().map_or_else(Arc::default, |packed| packed.entries.clone());
        for (region, of) in served.iter().enumerate() {
            if !self.chosen[region] || self.frames.states[..there].iter().any(|state| state.region == region) {
                continue;
            }
            let known = kept.get(&of.entry.identity.word());
            if let Some(state) = known.filter(|state| before[state.region].entry == of.entry) {
                let blocks = &old_memory[state.at as usize..][..state.blocks as usize];
                self.frames.memory.extend_from_slice(blocks);
                self.frames.states.push(State { region, at: self.held, ..(*state).clone() });
                self.held += state.blocks;
                continue;
            }
            let is_left_out = match (&packed, &self.packed) {
                (Some(packed), _) => packed.stands_for(region),
                (None, Some(packed)) => packed.region == region && !is_wanted,
                (None, None) => false,
            };
            if is_left_out || !for_now(of) {
                continue;
            }
            let state = self.lay_out(region, of, now_ns);
            self.held += state.blocks;
            self.frames.memory.resize(self.held as usize, Block::default());
            self.frames.states.push(state);
        }
    }

    /// Wants the READs of all that is laid out and not finished.
    pub(super) fn ask(&mut self) {
        for state in self.frames.states.iter().filter(|state| !state.finished) {
            let region = &self.served[state.region];
            let (va, rkey) = (region.entry.va, self.keys.region(&region.entry));
            let most = region.max_read_blocks(self.max_read_blocks);
            let all = 0..state.blocks;
            let occupied = self.occupied.get(&region.key()).filter(|_| !state.whole);
            for part in occupied.map_or(slice::from_ref(&all), |occupied| &occupied.parts) {
                let va = va + u64::from(part.start) * BLOCK_BYTES as u64;
                self.fetch.add(Span { va, rkey, at: state.at + part.start, blocks: part.end - part.start }, most);
            }
        }
    }

    /// Whether a region has given no answer a moment ago.
    fn is_silent(&self, served: &Served, now_ns: u64) -> bool {
        self.silent.get(&served.key()).is_some_and(|until_ns| now_ns < *until_ns)
    }

    /// The state of a region that is to be read.
    fn lay_out(&mut self, region: usize, served: &Served, now_ns: u64) -> State {
        let (mut blocks, mut resting, mut problem) = (0, false, None);
        let is_before = |until_ns: &u64| now_ns < *until_ns;
        let occupied = self.occupied.get(&served.key()).filter(|_| self.rests);
        let whole = !occupied.is_some_and(|occupied| is_before(&occupied.until_ns));
        match &served.plan {
            Err(why) => problem = Some(Problem::Schema(why.clone())),
            Ok(plan) => {
                let needed = u32::try_from(plan.compiled().blocks()).unwrap_or(u32::MAX);
                let got = served.entry.bytes / BLOCK_BYTES as u64;
                if got != u64::from(needed) {
                    problem = Some(Problem::Length { needed, got });
                } else if self.is_silent(served, now_ns) {
                    problem = Some(Problem::Silent);
                } else if served.may_rest && self.resting.get(&served.key()).is_some_and(is_before) {
                    resting = true;
                } else if self.spend(needed) {
                    blocks = needed;
                } else {
                    problem = Some(Problem::Limit(self.limits.bytes));
                }
            }
        }
        State {
            region,
            at: self.held,
            blocks,
            resting,
            whole,
            finished: problem.is_some() || resting,
            problem,
            verdicts: Verdicts::default(),
            asked_ns: 0,
            answered_ns: 0,
        }
    }

    pub(super) fn take_regions(&mut self, now_ns: u64) {
        // Both lists are in the order of the memory.
        let results: Vec<(Span, Outcome)> = self.fetch.results().collect();
        let served = self.frames.served.clone();
        let mut stale = false;
        let mut again: Vec<(usize, Vec<u32>)> = Vec::new();
        for (number, state) in self.frames.states.iter_mut().enumerate().filter(|(_, state)| !state.finished) {
            let region = &served[state.region];
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
                if *outcome == Outcome::Timeout && self.via.is_silent() {
                    stale = true;
                    self.silent.insert(region.key(), now_ns.saturating_add(SILENT_NS));
                }
                continue;
            }
            let blocks = |span: &Span| span.at.max(range.start)..(span.at + span.blocks).min(range.end);
            let mut retry: Vec<u32> =
                failed.iter().flat_map(|(span, _)| blocks(span)).map(|at| at - range.start).collect();
            let plan = region.plan.as_ref().expect("only regions with a schema are read");
            let memory = &self.frames.memory[range.start as usize..range.end as usize];
            let is_read = |block: usize| Span::have(&results, range.start as usize + block);
            state.verdicts.take(plan, region.entry.identity, memory, is_read);
            if !failed.is_empty() {
                state.problem = Some(Problem::Read(failed[0].1));
            }
            let unanswered = retry.len();
            for refused in state.verdicts.refused() {
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
        self.frames.states.iter_mut().for_each(|state| state.finished = true);
        if stale && self.has_another_round(now_ns) {
            self.forget_stale();
            self.begin_round(now_ns);
            return;
        }
        self.silent.retain(|_, until_ns| now_ns < *until_ns);
        self.resting.retain(|_, until_ns| now_ns < *until_ns);
        self.occupied.retain(|_, occupied| now_ns < occupied.until_ns);
        if let Some(clock) = &mut self.clock {
            self.frames.iter().for_each(|frame| frame.sharpen(clock, |_| 0, now_ns));
        }
        for (frame, state) in self.frames.iter().zip(&self.frames.states) {
            let refused = state.verdicts.refused();
            let is_good = state.problem.is_none() && refused.is_empty();
            let region = &served[state.region];
            if self.rests && region.may_rest && !state.resting && is_good {
                self.resting.insert(region.key(), resting::until_ns(&frame, self.clock.as_ref()));
            }
            if self.rests && state.whole && !state.resting && is_good && region.entry.identity.is_agents() {
                let memory = &self.frames.memory[state.at as usize..][..state.blocks as usize];
                let plan = region.plan.as_ref().expect("only regions with a schema are read");
                let occupied = Occupied::of(plan.schema(), memory, state.asked_ns);
                self.occupied.extend(occupied.map(|occupied| (region.key(), occupied)));
            }
            refused.iter().for_each(|refused| count(&mut self.counters.refused, refused.reject.name()));
        }
        self.step = Step::Done;
    }

    /// Wants some blocks of a region once more.
    fn retry(&mut self, number: usize, blocks: &[u32]) {
        let cost = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        if !self.spend(cost) {
            self.frames.states[number].finished = true;
            return;
        }
        let state = &mut self.frames.states[number];
        // Whether the rest came is seen at the next look.
        state.problem = None;
        for refused in state.verdicts.refused().iter().filter(|refused| refused.reject.is_transient()) {
            count(&mut self.counters.retries, refused.reject.name());
        }
        let entry = &self.frames.served[state.region].entry;
        let rkey = self.keys.region(entry);
        for block in blocks {
            let va = entry.va + u64::from(*block) * BLOCK_BYTES as u64;
            self.fetch.add(Span { va, rkey, at: state.at + block, blocks: 1 }, self.max_read_blocks);
        }
    }

    /// Regions that have become others, or were not read, are looked at anew in the next round.
    fn forget_stale(&mut self) {
        for state in &mut self.frames.states {
            let identity = state.verdicts.refused().iter().any(|refused| refused.reject == Reject::Identity);
            state.finished &= !identity;
        }
    }
}
