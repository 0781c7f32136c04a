// SPDX-License-Identifier: Apache-2.0
//! What is taken of a track's rows: part by part which samples there are, and of each series what they are.

use std::ops::{ControlFlow, Range};

use onlooker_promql::source::STALE;

use super::holders::{Holder, Holders};
use super::taker::Taker;
use super::thin::{is_end, thin};
use crate::exported::Reading;
use crate::out::Out;
use crate::tracks::LINE_SILENCE_NS;

/// Stands for an end among numbers of rows.
const END: usize = usize::MAX;

/// What of a row is acquired together.
pub(super) struct Part<A> {
    pub(super) out: Out<usize>,
    is_line: bool,
    time: Option<usize>,
    /// Earlier samples were another track's, or are too old for anybody.
    floor_ns: u64,
    last_ns: u64,
    pub(super) own: Vec<Own<A>>,
}

/// One series of a part.
pub(super) struct Own<A> {
    pub(super) holder: Holder,
    pub(super) about: A,
    pub(super) words: Range<usize>,
    pub(super) reading: Reading,
}

/// Rows of a line.
#[derive(Default)]
pub(super) struct Block {
    pub(super) times_ns: Vec<u64>,
    pub(super) words: Vec<u64>,
}

impl<A: Clone> Part<A> {
    /// Of the series in `own`; `time` is the word with the time at which they were acquired, if that is not the row's.
    /// Samples before `floor_ns` are left out.
    pub(super) fn new(own: Vec<Own<A>>, is_line: bool, is_recorded: bool, time: Option<usize>, floor_ns: u64) -> Self {
        let mut out = Out::new(is_line, is_recorded, END);
        out.silence_ns = LINE_SILENCE_NS;
        Self { out, is_line, time, floor_ns, last_ns: 0, own }
    }

    /// Takes rows; what comes out are their numbers. Where it is no line, it ends so long after its last row.
    pub(super) fn feed(&mut self, block: &Block, of_rows_ns: u64) {
        if !self.is_line {
            self.out.silence_ns = of_rows_ns;
        }
        let width = block.words.len().checked_div(block.times_ns.len()).unwrap_or(0);
        for (at, row_ns) in block.times_ns.iter().enumerate() {
            let sample_ns = self.time.map_or(*row_ns, |time| block.words[at * width + time]);
            let is_end = match self.own.first().filter(|_| self.out.is_recorded) {
                Some(own) => is_end(own.reading.value(&block.words[at * width..][own.words.clone()])),
                None => false,
            };
            self.out.row(*row_ns, sample_ns, if is_end { END } else { at }, false);
            self.out.has_ended |= is_end;
        }
        self.out.settle();
    }

    /// Hands on what came out; what rivals have, too, waits for the end of the slice.
    pub(super) fn give<T: Taker<About = A>>(
        &mut self,
        block: &Block,
        quantum_ns: u64,
        holders: &mut Holders<A>,
        taker: &mut T,
    ) -> ControlFlow<()> {
        let width = block.words.len().checked_div(block.times_ns.len()).unwrap_or(0);
        let times = self.out.times_ns.iter().map(|time_ns| time_ns.cast_unsigned());
        let mut picks: Vec<(u64, usize)> = times.zip(self.out.values.iter().copied()).collect();
        picks.retain(|(time_ns, _)| *time_ns >= self.floor_ns);
        self.out.clear();
        let all = picks.clone();
        thin(&mut picks, quantum_ns, &mut self.last_ns, |at| at == END);
        for own in &self.own {
            let value = |at: usize| match at {
                END => STALE,
                at => own.reading.value(&block.words[at * width..][own.words.clone()]),
            };
            if holders.keep(&own.holder, all.iter().map(|(time_ns, at)| (*time_ns, value(*at)))) {
                continue;
            }
            let last_ns = holders.last_ns(&own.holder);
            // Another track may have had the series before.
            let late = picks.partition_point(|(time_ns, _)| *time_ns <= *last_ns);
            let mut samples = picks[late..].iter().map(|(time_ns, at)| (time_ns.cast_signed(), value(*at)));
            if let Some((time_ns, _)) = picks.last() {
                *last_ns = (*last_ns).max(*time_ns);
                taker.take(&own.holder.key, &own.about, &mut samples)?;
            }
        }
        self.remember(holders);
        ControlFlow::Continue(())
    }

    /// Notes of its series whether they go on.
    fn remember(&self, holders: &mut Holders<A>) {
        let goes_on = self.out.goes_on();
        self.own.iter().for_each(|own| holders.remember(&own.holder, goes_on));
    }
}
