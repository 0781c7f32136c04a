// SPDX-License-Identifier: Apache-2.0
//! One entity: its place among the host's words, and what it is called.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlooker_checks::{Checked, Rules};
use onlooker_framestore::layout::{ContentId, Part};
use onlooker_series::series::{Series, named};
use onlooker_series::text::Labels;

use super::Found;
use super::said::Described;
use crate::fleet::quota::Cost;
use crate::fleet::source::{Source, source};

/// An entity's last row. What a reading does not need is behind [`Entity::named`]: with many hosts nothing of one is in
/// a cache when its next reading comes.
#[derive(Clone, Debug)]
pub struct Entity {
    /// What was said of it when it was first seen.
    pub named: Box<Named>,
    /// Where its row is among [`Entities::words`].
    pub(super) at: usize,
    pub(super) width: usize,
    /// When the values were acquired, UTC ns.
    pub time_ns: u64,
    /// The same as the host's clock had it: what tells a new row from one that was there before, whatever becomes of our own clock.
    pub(super) stamp_ns: u64,
    /// Number of its region's reading that had it last; 0: it has no row yet.
    pub(super) seen: u64,
    /// What tells its texts from others, and its names, where the look at it missed a block.
    pub(super) texts_mark: u64,
    pub(super) which: u64,
    /// Number of its series.
    pub(super) series: usize,
    /// In whose row the store has it.
    pub(in crate::fleet) source: Source,
    /// What judges its rows; none: nobody does.
    pub(super) checked: Option<Box<Checked>>,
}

/// What an entity is called.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its series.
    pub series: Arc<[Series]>,
    /// Their texts ([`Series::text`]).
    pub texts: Arc<[Arc<str>]>,
    /// Which of them are not shown, since a better one has the same text.
    pub(super) hidden: Vec<bool>,
    /// What the store knows it as: what all hosts have in common, and what of it is this one's.
    pub(in crate::fleet) stored: Stored,
    pub(super) cost: Cost,
}

/// An entity as the store has it.
#[derive(Clone, Debug)]
pub(in crate::fleet) struct Stored {
    pub(in crate::fleet) id: ContentId,
    pub(in crate::fleet) part: Arc<Part>,
    /// Labels of its region.
    pub(in crate::fleet) region: Arc<[(String, String)]>,
    /// Labels of its row, in tables.
    pub(in crate::fleet) row: Vec<(String, String)>,
}

impl Entity {
    pub(super) fn new(
        said: Described,
        found: &Found<'_>,
        common: &BTreeMap<String, String>,
        cost: Cost,
        rules: &Rules,
    ) -> Self {
        let Described { own, row, texts } = said;
        let mut before: Option<Labels> = None;
        let full = |(own, text): (&Series, &Option<String>)| {
            let series = named(own, &row, found.labels, common, text.as_deref());
            let labels = series.labels.shared_with(before.as_ref());
            before = Some(labels.clone());
            Series { labels, ..series }
        };
        let series: Arc<[Series]> = own.iter().zip(&texts).map(full).collect();
        let texts = series.iter().map(|series| series.text().into()).collect();
        let hidden = vec![false; series.len()];
        let (id, part) = Part::new(found.region, found.key.group, own).shared();
        let stored = Stored { id, part, region: found.labels.into(), row };
        let (count, named) = (series.len(), Box::new(Named { series, texts, hidden, stored, cost }));
        let (width, time_ns, stamp_ns, seen) = (named.stored.part.width(), 0, 0, 0);
        let (texts_mark, which, source) = (found.texts, found.which, source(found.key, found.labels));
        let checked = if found.key.is_own() { None } else { rules.of(&named.series) };
        Self { named, at: 0, width, time_ns, stamp_ns, seen, texts_mark, which, series: count, source, checked }
    }

    /// Name of its region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.named.stored.part.region
    }

    /// Its series that are shown, with their numbers and texts.
    pub fn shown(&self) -> impl Iterator<Item = (usize, &Series, &Arc<str>)> {
        let all = self.named.series.iter().zip(self.named.texts.iter()).enumerate();
        all.filter(|(at, _)| !self.named.hidden[*at]).map(|(at, (series, text))| (at, series, text))
    }
}
