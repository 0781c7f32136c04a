// SPDX-License-Identifier: Apache-2.0
//! The first batch of most cycles: the directory's header together with the agent's own regions. Nearly always the header
//! says that nothing has changed; then a host without programs is read in one round trip in place of two.
//!
//! The header is the last READ of the batch, behind all regions in memory. What has become another region since is told by
//! its identity. Not in the batch are programs' regions, and own ones that were replaced once (mounts, interrupts): what
//! has gone is met with silence by a kernel responder, and that would hold up the header.

use super::ReadError;
use super::cycle::{SILENT_NS, Session, Step};
use super::fetch::Span;
use crate::{Outcome, Via};

impl Session {
    /// Whether this cycle may begin so: the directory is known, and what was read last need not be read again.
    pub(super) fn is_early(&self) -> bool {
        self.rounds == 1 && self.settled && self.rests && self.via == Via::Kernel
    }

    pub(super) fn begin_early(&mut self, now_ns: u64) {
        self.lay_out_all(now_ns, |served| served.is_steady);
        self.want(Step::Early, now_ns);
        self.ask();
        self.want_header();
    }

    /// Keeps the regions that came whole; all others are read as if nobody had asked for them. Goes on with the header.
    pub(super) fn take_early(&mut self, now_ns: u64) -> Result<(), ReadError> {
        let results: Vec<(Span, Outcome)> = self.fetch.results().collect();
        let header = results.last().map(|(_, outcome)| *outcome).filter(|outcome| *outcome != Outcome::Done);
        if let Some(error) = header.and_then(ReadError::of_control) {
            return Err(error);
        }
        let served = self.frames.served.clone();
        for state in self.frames.states.iter_mut().filter(|state| !state.finished) {
            let region = &served[state.region];
            let range = state.at..state.at + state.blocks;
            let begin = results.partition_point(|(span, _)| span.at + span.blocks <= range.start);
            let mine = || results[begin..].iter().take_while(|(span, _)| span.at < range.end);
            if mine().any(|(_, outcome)| *outcome == Outcome::Timeout) {
                self.silent.insert(region.key(), now_ns.saturating_add(SILENT_NS));
            }
            let Ok(plan) = &region.plan else { continue };
            if mine().all(|(_, outcome)| *outcome == Outcome::Done) {
                let memory = &self.frames.memory[range.start as usize..range.end as usize];
                let is_read = |block: usize| Span::have(&results, range.start as usize + block);
                state.verdicts.take(plan, region.entry.identity, memory, is_read);
                state.finished = state.verdicts.refused().is_empty();
                (state.asked_ns, state.answered_ns) = (self.asked_ns, now_ns);
            }
        }
        self.step = Step::Header;
        self.header_came(now_ns)
    }
}
