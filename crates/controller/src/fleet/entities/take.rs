// SPDX-License-Identifier: Apache-2.0
//! Takes what was read of a region: by words where all that it has is known, else by samples, which have names.
//!
//! Cost: by words some ns a value and no allocation; by samples some dozens of ns a value.

use std::collections::BTreeMap;

use onlooker_reader::Frame;
use onlooker_region::Checked;
use onlooker_region::columns::{Plan, Sample};
use onlooker_region::control::RegionEntry;
use onlooker_series::derive::{self, Given, Sum, Words, is_same, row_of, texts_mark};
use onlooker_series::series::{EntityKey, fill};

use super::said::{Said, samples_of};
use super::{Acquired, Entities, Found, News, of_region};
use crate::fleet::quota::{Cost, Limit};

/// Memory that is used again, for all hosts.
#[derive(Default)]
pub(in crate::fleet) struct Room {
    derived: derive::Room,
    words: Vec<u64>,
}

impl Entities {
    /// Takes a region's values; false: there were too many of late, and it stays as it was. `acquired` says when values
    /// were acquired, from what the host says of it. Entities of which a block is missing stay as they were.
    pub(in crate::fleet) fn take(
        &mut self,
        frame: &Frame<'_>,
        common: &BTreeMap<String, String>,
        acquired: impl Fn(Option<u64>) -> Acquired,
        room: &mut Room,
        tell: &mut impl FnMut(News<'_>),
    ) -> bool {
        let entry = frame.entry();
        let region = entry.identity.word();
        let (by_key, ledger) = (&self.by_key, &mut self.ledger);
        if !ledger.may_decode(region, || of_region(by_key, region).count() as u64) {
            self.rest(frame);
            return false;
        }
        let Some(entities) = self.enter(region, Some(entry.schema), true) else { return true };
        let is_known = entities > 0;
        let Some(plan) = frame.plan() else { return true };
        if !is_known && self.ledger.is_shut_out(region) {
            return true;
        }
        let is_whole = frame.refused().is_empty() && self.ledger.excess(region).is_none();
        if let Some(checked) = frame.checked().filter(|_| is_known && is_whole) {
            self.take_words(frame, (plan, checked), common, &acquired, room, tell);
            return true;
        }
        self.ledger.look(region);
        let samples = self.samples(frame, region);
        let mut derived = self.derived.take().unwrap_or_default();
        derived.read(entry, plan, &samples, |given| match given {
            Given::Values { group, samples, series } => {
                let key = EntityKey { region, group, row: row_of(&samples[0]) };
                fill(samples, &mut room.words);
                let texts = texts_mark(samples);
                let which = if samples.len() == series { 0 } else { derive::names_mark(samples) };
                let acquired = acquired(samples[0].time_ns);
                let found = Found { texts, which, ..Found::new(entry, key, samples.len(), acquired) };
                self.take_one(&found, common, &room.words, &Said::Samples(entry, samples), tell);
            }
            Given::Sum(sum) => self.take_sum(entry, &sum, common, &acquired, tell),
        });
        self.derived = Some(derived);
        true
    }

    /// As the rest of [`Entities::take`], of a region that is known and whole: nothing has to be described but rows
    /// that have come since.
    fn take_words(
        &mut self,
        frame: &Frame<'_>,
        (plan, checked): (&Plan, Checked<'_, '_>),
        common: &BTreeMap<String, String>,
        acquired: &impl Fn(Option<u64>) -> Acquired,
        room: &mut Room,
        tell: &mut impl FnMut(News<'_>),
    ) {
        let (entry, region) = (frame.entry(), frame.entry().identity.word());
        let mut derived = self.derived.take().unwrap_or_default();
        let mut named: Option<Vec<Sample<'_>>> = None;
        let values = derived.read_words(entry, plan, checked, &mut room.derived, |given| match given {
            Words::Values { group, row, words, series, texts, time_ns } => {
                let key = EntityKey { region, group, row };
                let found = Found { texts, ..Found::new(entry, key, series, acquired(time_ns)) };
                if self.renew(&found, words, tell) {
                    return;
                }
                let named = named.get_or_insert_with(|| self.samples(frame, region));
                let samples = samples_of(entry, plan.schema(), named, group, row);
                if samples.len() == series {
                    self.take_one(&found, common, words, &Said::Samples(entry, &samples), tell);
                }
            }
            Words::Sum(sum) => self.take_sum(entry, &sum, common, acquired, tell),
        });
        self.derived = Some(derived);
        if named.is_none() {
            self.ledger.decoded(region, values);
        }
    }

    fn take_sum(
        &mut self,
        entry: &RegionEntry,
        sum: &Sum<'_>,
        common: &BTreeMap<String, String>,
        acquired: &impl Fn(Option<u64>) -> Acquired,
        tell: &mut impl FnMut(News<'_>),
    ) {
        let key = EntityKey { region: entry.identity.word(), group: EntityKey::SUMS | sum.set, row: sum.row };
        let found = Found::new(entry, key, sum.metrics.len(), acquired(sum.time_ns));
        self.take_one(&found, common, sum.words, &Said::Sum(entry, sum), tell);
    }

    /// The values of a region, but for more than any quota has room for.
    fn samples<'a>(&mut self, frame: &Frame<'a>, region: u64) -> Vec<Sample<'a>> {
        let (mut samples, mut left_out) = (Vec::new(), 0);
        let most = self.ledger.most_series();
        frame.decode(|sample| if samples.len() < most { samples.push(sample) } else { left_out += 1 });
        self.ledger.decoded(region, samples.len() + left_out);
        if left_out > 0 {
            // The last one may be a part of its entity.
            let whole = samples.iter().rposition(|sample| !is_same(sample, samples.last().unwrap_or(sample)));
            let cut = samples.len() - whole.map_or(0, |at| at + 1);
            samples.truncate(samples.len() - cut);
            self.ledger.exceed(region, Limit::Series, 1, Cost::of(left_out + cut, 0));
        }
        samples
    }
}
