// SPDX-License-Identifier: Apache-2.0
//! Reads what a collector is compared with ([`Counterpart`]), as it is now: most groups are sampled as
//! [`crate::sampled`] samples them, into memory that nobody else sees. Nothing of it outlives a check.

use std::io;
use std::sync::atomic::AtomicU64;

use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;
use onlooker_region::map::Map;
use onlooker_responder::clock::boot_time_ns;

use super::counterpart::{Counterpart, Procfs, Reading, series};
use crate::groups::Group;
use crate::procfs::LINE_BYTES;
use crate::sampled::scrape::Scrapes;
use crate::sampled::{Context, Draft, NodeError, Sampled};

/// Reads a counterpart as it is now.
pub(crate) type Reader<'a> = Box<dyn FnMut() -> io::Result<Reading> + 'a>;

impl Counterpart {
    /// Ready to read what there is of the group now.
    ///
    /// # Errors
    /// [`NodeError`]: it cannot be sampled.
    pub(crate) fn reader(&self, group: Group) -> Result<Reader<'_>, NodeError> {
        match self {
            Self::Own(read) => Ok(Box::new(read)),
            Self::Samples(adjust) => {
                let mut samples = Samples::of(group)?;
                Ok(Box::new(move || {
                    let mut reading = samples.read()?;
                    adjust(&mut reading);
                    Ok(reading)
                }))
            }
        }
    }
}

/// A group in memory that nobody else sees.
struct Samples {
    sampled: Sampled,
    plan: Plan,
    scrapes: Scrapes,
    buffer: Box<[u8; LINE_BYTES]>,
}

impl Samples {
    fn of(group: Group) -> Result<Self, NodeError> {
        let mut scrapes = Scrapes::default();
        let draft = Draft::new(group, 0, None, &mut scrapes)?.ok_or(NodeError::Nothing)?;
        let words: Vec<AtomicU64> = (0..draft.bytes() / 8).map(|_| AtomicU64::new(0)).collect();
        let sampled = draft.over(Map::shared(words), Identity::first(1, 1));
        let plan = Plan::new(sampled.schema.clone());
        Ok(Self { sampled, plan, scrapes, buffer: Box::new([0; LINE_BYTES]) })
    }

    fn read(&mut self) -> io::Result<Reading> {
        let Self { sampled: Sampled { place, schema, sampler, .. }, plan, scrapes, buffer } = self;
        // A sample keeps what an earlier one had more of (idle time that the kernel took back): this one is the first.
        sampler.begin(place, schema, boot_time_ns());
        sampler.sample(place, &mut Context::new(buffer, scrapes))?;
        let mut reading = Reading::new();
        let blocks = place.blocks();
        let refused = plan.decode(place.identity, &blocks, |sample| {
            let labels = sample.labels();
            let labels = labels.iter().map(|(label, value)| (label.as_str(), value.as_str()));
            let value = Procfs { value: sample.scaled(), rounding: 0.0 };
            reading.insert(series(&sample.field.name, labels), value);
        });
        debug_assert!(refused.is_ok_and(|refused| refused.is_empty()));
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::counterpart::round;

    #[test]
    fn each_reading_is_of_its_moment_and_rounded_as_the_group_says() {
        let samples = Counterpart::Samples(|reading| round(reading, "node_context_switches_total", 7.0));
        let mut reader = samples.reader(Group::CPU).unwrap();
        let mut read = || reader().unwrap()["node_context_switches_total{}"];
        let first = read();
        let moved = std::iter::repeat_with(read).take(10_000).find(|now| now.value > first.value);
        assert_eq!(moved.expect("tasks are switched").rounding.to_bits(), first.rounding.to_bits());
        assert_eq!(first.rounding.to_bits(), 7f64.to_bits());
    }
}
