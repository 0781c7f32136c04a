// SPDX-License-Identifier: Apache-2.0
//! The first steps of a cycle, up to the regions: header, changed entry blocks, texts of schemas that nobody has. Each
//! comes from the copy on this machine where that is right; else it is READ from the host.

use super::cycle::{Session, Step};
use super::fetch::Span;
use super::frame::Served;
use super::packed::Packed;
use super::resolve::Wanted;
use super::{ReadError, count, outcome_name};
use crate::Outcome;
use onlooker_region::Reject;
use onlooker_region::control::{ControlError, RegionEntry};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_wire::tcp_read::Refusal;
use std::collections::HashMap;
use std::sync::Arc;

/// Tries of a torn header beside a directory that is known. An agent that was killed in the middle of a commit leaves its header so
/// until the next one starts; the regions that it served go on, and an identity tells those that have moved.
const HEADER_TRIES: u32 = 3;

impl Session {
    /// A batch of control blocks that did not come as a whole: tries again where it makes sense. True: the step is to be tried again.
    fn control_failed(&mut self, now_ns: u64) -> Result<bool, ReadError> {
        let failed = self.fetch.results().map(|(_, outcome)| outcome).find(|outcome| *outcome != Outcome::Done);
        let Some(failed) = failed else { return Ok(false) };
        match ReadError::of_control(failed) {
            Some(error) => Err(error),
            None if self.again(now_ns) => Ok(true),
            None => Err(ReadError::Overloaded),
        }
    }

    /// Wants the header, behind what is held.
    pub(super) fn want_header(&mut self) {
        self.scratch(1);
        self.fetch.add(self.header_span(), 1);
    }

    fn header_span(&self) -> Span {
        Span { va: self.control.va, rkey: self.keys.control(), at: self.held, blocks: 1 }
    }

    fn want_entries(&mut self) {
        let blocks = std::mem::take(&mut self.entry_blocks);
        for (at, index) in (self.held..).zip(&blocks) {
            let va = self.control.va + u64::from(*index) * BLOCK_BYTES as u64;
            self.fetch.add(Span { va, rkey: self.keys.control(), at, blocks: 1 }, self.max_read_blocks);
        }
        self.entry_blocks = blocks;
    }

    pub(super) fn take_header(&mut self, now_ns: u64) -> Result<(), ReadError> {
        if self.control_failed(now_ns)? {
            self.fetch.add(self.header_span(), 1);
            return Ok(());
        }
        self.header_came(now_ns)
    }

    /// A block that should be the header is in its place.
    pub(super) fn header_came(&mut self, now_ns: u64) -> Result<(), ReadError> {
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
                    self.fetch.add(self.header_span(), 1);
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

    pub(super) fn take_entries(&mut self, now_ns: u64) -> Result<(), ReadError> {
        if self.control_failed(now_ns)? {
            self.want_entries();
            return Ok(());
        }
        let mut again = Vec::new();
        let is_changed = !self.entry_blocks.is_empty();
        self.settled &= !is_changed;
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
            // The agent wrote a schema to one block and its region to another between our READs of the two.
            if is_changed && self.classes.is_incomplete && self.has_another_round(now_ns) {
                self.begin_round(now_ns);
                return Ok(());
            }
            self.scratch(blocks);
            if self.is_mirrored {
                self.take_mirrored_schemas();
            }
            self.want_schemas();
        }
        Ok(())
    }

    fn want_schemas(&mut self) {
        for wanted in &self.classes.wanted {
            self.fetch.add(wanted.span(), self.max_read_blocks);
        }
    }

    pub(super) fn take_schemas(&mut self, now_ns: u64) -> Result<(), ReadError> {
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
        if !self.settled {
            self.serve();
        }
        self.settled = self.control_refused.is_empty() && self.classes.are_known();
        self.begin_regions(now_ns);
        Ok(())
    }

    /// Sorts out the directory's regions, and what is known of them.
    fn serve(&mut self) {
        let (mut served, unserved): (Vec<_>, Vec<_>) =
            self.directory.regions().cloned().map(Arc::new).partition(|entry| self.serves(entry));
        // Programs' regions must not use up what the agent's own need.
        served.sort_by_key(|entry| !entry.identity.is_agents());
        // By name: where a region of it was replaced, another one may be soon.
        let before: HashMap<&str, (&RegionEntry, bool)> =
            self.served.iter().map(|one| (one.entry.name.as_str(), (&*one.entry, one.is_steady))).collect();
        let is_steady = |entry: &RegionEntry| {
            let before = before.get(entry.name.as_str());
            let is_same = before.is_none_or(|(old, was)| *was && old.identity == entry.identity);
            entry.identity.is_agents() && is_same
        };
        let serve = |entry: Arc<RegionEntry>| {
            let is_steady = is_steady(&entry);
            Served { is_steady, ..self.classes.serve(entry) }
        };
        self.served = served.into_iter().map(serve).collect();
        self.packed = Packed::of(&self.served).map(Arc::new);
        self.unserved = unserved.into();
        self.choose();
    }

    /// Takes header and changed entry blocks from the copy, and wants READs of those that it has not. False: the cycle is to begin with the host's header, since the copy
    /// is not good for it, or nothing at all would be READ: then nobody would notice that the host has gone.
    pub(super) fn take_mirrored(&mut self, now_ns: u64) -> bool {
        if !self.mirrored.is_good_for(now_ns) {
            return false;
        }
        let incarnation = self.control.generation;
        let found = self.mirrored.header(incarnation, self.control.bytes / BLOCK_BYTES as u64);
        let found = found.and_then(|(block, header)| match self.directory.header(&block) {
            Ok(wanted) => Ok((wanted, header)),
            Err(_) => Err("header"),
        });
        let (wanted, header) = match found {
            Ok(found) => found,
            Err(why) => {
                count(&mut self.counters.mirror_fell_back, why);
                return false;
            }
        };
        self.settled &= wanted.is_empty();
        let mut missing = Vec::new();
        for index in wanted {
            let taken = self.mirrored.entry_block(index, &header, incarnation);
            let taken = taken.and_then(|block| match self.directory.entry_block(index, &block) {
                Ok(()) => Ok(block),
                Err(_) => Err("block"),
            });
            match taken {
                Ok(block) => self.mirrored.took(index, &block),
                Err(why) => {
                    count(&mut self.counters.mirror_fell_back, why);
                    missing.push(index);
                }
            }
        }
        let blocks = u32::try_from(missing.len()).unwrap_or(u32::MAX);
        if !self.spend(blocks) {
            return false;
        }
        self.is_mirrored = true;
        self.entry_blocks = missing;
        self.want(Step::Entries, now_ns);
        self.scratch(blocks);
        self.want_entries();
        self.advance(now_ns).is_ok() && !self.is_done()
    }

    /// Takes the texts that the copy has; the others stay wanted.
    fn take_mirrored_schemas(&mut self) {
        for wanted in &self.classes.wanted {
            let (to, first) = wanted.place();
            self.mirrored.text(first, &mut self.frames.memory[to]);
        }
        for _ in 0..self.classes.take_whole(self.control.generation, &self.frames.memory) {
            count(&mut self.counters.mirror_fell_back, "schema");
        }
    }
}
