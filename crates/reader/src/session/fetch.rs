// SPDX-License-Identifier: Apache-2.0
//! One batch of READs: what is wanted, what is under way, what came of it.

use crate::{Completion, Outcome, Read};

/// Where blocks are at the host and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) va: u64,
    pub(super) rkey: u32,
    pub(super) at: u32,
    pub(super) blocks: u32,
}

impl Span {
    /// Whether this block of the memory is in one of them, which are in the order of the memory.
    pub(super) fn have(results: &[(Self, Outcome)], block: usize) -> bool {
        let next = results.partition_point(|(span, _)| (span.at + span.blocks) as usize <= block);
        results.get(next).is_some_and(|(span, _)| span.at as usize <= block)
    }
}

/// Bits of a READ's place in its batch, and as many of the batch's number above: whoever reads many hosts has the rest for the host's.
const PLACE_BITS: u32 = 20;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// A batch. Ids carry the batch's number, so that completions of an earlier one are passed over.
#[derive(Debug, Default)]
pub(super) struct Fetch {
    number: u32,
    spans: Vec<Span>,
    outcomes: Vec<Option<Outcome>>,
    submitted: usize,
    completed: usize,
}

impl Fetch {
    /// Forgets everything and begins the next batch.
    pub(super) fn begin(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.spans.clear();
        self.outcomes.clear();
        (self.submitted, self.completed) = (0, 0);
    }

    /// Adds a range, joined to the last one where both ranges go on and the READ stays within `max_blocks`; longer ones are cut.
    pub(super) fn add(&mut self, span: Span, max_blocks: u32) {
        let mut rest = span;
        if let Some(last) = self.spans.last_mut().filter(|last| last.rkey == span.rkey) {
            let joins =
                last.va.wrapping_add(u64::from(last.blocks) * 1024) == span.va && last.at + last.blocks == span.at;
            if joins && last.blocks < max_blocks {
                let more = (max_blocks - last.blocks).min(span.blocks);
                last.blocks += more;
                rest = behind(span, more);
            }
        }
        while rest.blocks > 0 {
            let blocks = rest.blocks.min(max_blocks);
            self.spans.push(Span { blocks, ..rest });
            self.outcomes.push(None);
            rest = behind(rest, blocks);
        }
    }

    /// Appends READs that were not submitted yet, at most `most`.
    pub(super) fn wanted(&self, most: usize, deadline_ns: u64, reads: &mut Vec<Read>) {
        let next = self.spans.iter().enumerate().skip(self.submitted).take(most);
        reads.extend(next.map(|(index, span)| Read {
            id: self.id(index),
            va: span.va,
            rkey: span.rkey,
            at: span.at,
            blocks: span.blocks,
            deadline_ns,
        }));
    }

    /// The first `count` of the READs wanted are under way.
    pub(super) fn submitted(&mut self, count: usize) {
        self.submitted += count;
        debug_assert!(self.submitted <= self.spans.len());
    }

    /// Name of the READ at a place. The session's limits keep a batch within a million READs.
    fn id(&self, index: usize) -> u64 {
        (u64::from(self.number) & PLACE_MASK) << PLACE_BITS | index as u64 & PLACE_MASK
    }

    /// Takes a completion; false where it is none of this batch.
    pub(super) fn complete(&mut self, completion: Completion) -> bool {
        let index = self.under_way(completion.id);
        if let Some(index) = index {
            self.outcomes[index] = Some(completion.outcome);
            self.completed += 1;
        }
        index.is_some()
    }

    /// Length of a READ that is under way; 0 where none of this batch is.
    pub(super) fn blocks_of(&self, id: u64) -> u32 {
        self.under_way(id).map_or(0, |index| self.spans[index].blocks)
    }

    /// Where it is in the batch.
    #[allow(clippy::cast_possible_truncation)] // the low half is meant
    fn under_way(&self, id: u64) -> Option<usize> {
        let index = (id & PLACE_MASK) as usize;
        (id == self.id(index) && index < self.submitted && self.outcomes[index].is_none()).then_some(index)
    }

    /// True where nothing is left to be submitted or awaited.
    pub(super) fn is_over(&self) -> bool {
        self.completed == self.spans.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// What became of each.
    pub(super) fn results(&self) -> impl Iterator<Item = (Span, Outcome)> + '_ {
        self.spans.iter().zip(&self.outcomes).map(|(span, outcome)| (*span, outcome.unwrap_or(Outcome::Lost)))
    }
}

fn behind(span: Span, blocks: u32) -> Span {
    Span {
        va: span.va.wrapping_add(u64::from(blocks) * 1024),
        at: span.at + blocks,
        blocks: span.blocks - blocks,
        ..span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(va: u64, at: u32, blocks: u32) -> Span {
        Span { va, rkey: 1, at, blocks }
    }

    #[test]
    fn neighbours_are_joined_and_long_ranges_cut() {
        let mut fetch = Fetch::default();
        fetch.begin();
        for part in [span(0, 0, 1), span(1024, 1, 1), span(2048, 2, 5), span(7168, 9, 1), span(8192, 10, 1)] {
            fetch.add(part, 4);
        }
        fetch.add(Span { rkey: 2, ..span(9216, 11, 1) }, 4);
        let spans: Vec<_> = fetch.results().map(|(span, _)| (span.va, span.at, span.blocks)).collect();
        assert_eq!(spans, [(0, 0, 4), (4096, 4, 3), (7168, 9, 2), (9216, 11, 1)]);
    }

    #[test]
    fn every_block_is_asked_for_once() {
        bolero::check!().with_type::<(Vec<(u8, u8)>, u8)>().for_each(|(parts, most)| {
            let most = u32::from(*most % 64) + 1;
            let mut fetch = Fetch::default();
            fetch.begin();
            let (mut at, mut expected) = (0, Vec::new());
            for (va, blocks) in parts {
                let (va, blocks) = (u64::from(*va) * 1024, u32::from(*blocks));
                fetch.add(span(va, at, blocks), most);
                expected.extend((0..blocks).map(|i| (va + u64::from(i) * 1024, at + i)));
                at += blocks;
            }
            let blocks_of = |span: Span| (0..span.blocks).map(move |i| (span.va + u64::from(i) * 1024, span.at + i));
            assert!(fetch.results().all(|(span, _)| (1..=most).contains(&span.blocks)));
            assert_eq!(fetch.results().flat_map(|(span, _)| blocks_of(span)).collect::<Vec<_>>(), expected);
        });
    }

    #[test]
    fn completions_of_another_batch_or_twice_are_passed_over() {
        let mut fetch = Fetch::default();
        fetch.begin();
        fetch.add(span(0, 0, 1), 4);
        let mut reads = Vec::new();
        fetch.wanted(10, 5, &mut reads);
        let done = Completion { id: reads[0].id, outcome: Outcome::Done };
        assert!(!fetch.complete(done), "not submitted");
        fetch.submitted(1);
        assert!(!fetch.complete(Completion { id: done.id ^ 1 << PLACE_BITS, ..done }));
        assert!(!fetch.complete(Completion { id: done.id + 1, ..done }));
        assert!(fetch.complete(done) && !fetch.complete(done) && fetch.is_over());
    }
}
