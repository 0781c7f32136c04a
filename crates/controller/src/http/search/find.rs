// SPDX-License-Identifier: Apache-2.0
//! Which metrics of which hosts a search finds: counted, not walked series by series.
//!
//! Series of one kind ([`Template`]: most often a group of a region, on thousands of hosts) differ in the labels of
//! their host and of their entity alone. So names, helps and a kind's own labels are looked at once a kind, a host's
//! labels once a host, an entity's once; how many series of a metric an entity has with these words is a sum then.
//! Equal neighbours, as the rows of a table are, are counted together.
//!
//! `cargo test --release -p onlooker-controller --lib -- --ignored --nocapture search_of_ten_thousand` says what it
//! costs.

use std::collections::HashMap;
use std::sync::Arc;

use onlooker_region::schema::Metric;
use onlooker_series::template::Template;
use onlooker_series::text::Text;

use super::words::{Bits, Fit, Place, Words};
use crate::fleet::{Plan, Planned};

/// A metric that was found: a name with a type.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: Text,
    pub(super) metric: Metric,
    pub(super) unit: Text,
    pub(super) help: Text,
    /// Unit and help are those of a host's agent.
    is_vouched_for: bool,
    /// Series with these words, on so many hosts.
    pub(super) series: u64,
    pub(super) hosts: u32,
    /// The best of them.
    rank: u32,
    /// Number of the last of its hosts, from 1.
    last: u32,
}

impl Found {
    fn place(&self, words: &Words) -> Place<'_> {
        words.at(self.rank, &self.name, self.metric == Metric::Info)
    }
}

/// What the words say of a kind of series.
struct Kind {
    /// So that its address stays its own.
    _template: Arc<Template>,
    families: Vec<Family>,
    series: u64,
    needs_labels: bool,
}

/// A metric of a kind.
struct Family {
    /// Which metric.
    at: usize,
    fit: Fit,
    /// Words that occur in labels of the kind's own, and how many series have these.
    own: Vec<(Bits, u64)>,
}

/// Looks through hosts, one after the other.
pub(super) struct Finder<'a> {
    words: &'a Words,
    /// No other metric is of interest.
    only: Option<&'a str>,
    metrics: Vec<Found>,
    by_name: HashMap<(Text, Metric), usize>,
    kinds: Vec<Kind>,
    by_template: HashMap<usize, usize>,
    /// Of entities of which not all series are shown.
    by_hidden: HashMap<(usize, Box<[bool]>), usize>,
    room: String,
    pub(super) hosts: u32,
    /// Series that were looked through.
    pub(super) series: u64,
}

impl<'a> Finder<'a> {
    pub(super) fn new(words: &'a Words, only: Option<&'a str>) -> Self {
        Self {
            words,
            only,
            metrics: Vec::new(),
            by_name: HashMap::new(),
            kinds: Vec::new(),
            by_template: HashMap::new(),
            by_hidden: HashMap::new(),
            room: String::new(),
            hosts: 0,
            series: 0,
        }
    }

    /// The next host; returns how many of its series were found.
    pub(super) fn host(&mut self, plan: &Plan) -> u64 {
        self.hosts += 1;
        let of_host = self.words.within(plan.labels.text(), &mut self.room);
        let (mut found, mut before) = (0, None);
        let mut run = (usize::MAX, 0, 0);
        for planned in &plan.entities {
            let kind = match before {
                Some((same, kind)) if Arc::ptr_eq(same, &planned.template) && planned.hidden.is_none() => kind,
                _ => self.kind(planned),
            };
            before = planned.hidden.is_none().then_some((&planned.template, kind));
            let mut bits = of_host;
            if self.kinds[kind].needs_labels {
                bits |= self.words.within(planned.labels.text(), &mut self.room);
            }
            if (kind, bits) == (run.0, run.1) {
                run.2 += 1;
                continue;
            }
            found += self.count(run);
            run = (kind, bits, 1);
        }
        found + self.count(run)
    }

    /// So many entities of a kind, in whose labels these words occur.
    fn count(&mut self, (kind, bits, entities): (usize, Bits, u64)) -> u64 {
        let Some(kind) = self.kinds.get(kind) else { return 0 };
        self.series += kind.series * entities;
        let mut found = 0;
        for Family { at, fit, own } in &kind.families {
            let ranks = own.iter().filter_map(|(of_own, series)| Some((fit.with(bits | of_own)?, series)));
            let (series, rank) =
                ranks.fold((0, u32::MAX), |(all, best), (rank, series)| (all + series * entities, best.min(rank)));
            if series == 0 {
                continue;
            }
            found += series;
            let metric = &mut self.metrics[*at];
            metric.series += series;
            metric.rank = metric.rank.min(rank);
            metric.hosts += u32::from(metric.last != self.hosts);
            metric.last = self.hosts;
        }
        found
    }

    fn kind(&mut self, planned: &Planned) -> usize {
        let address = Arc::as_ptr(&planned.template).addr();
        let known = match &planned.hidden {
            None => self.by_template.get(&address),
            Some(hidden) => self.by_hidden.get(&(address, hidden.clone())),
        };
        if let Some(known) = known {
            return *known;
        }
        let (template, hidden) = (&planned.template, planned.hidden.as_deref());
        let (mut families, mut series, mut needs_labels) = (Vec::new(), 0, false);
        // A program may have as many names as a host may have series.
        let units: HashMap<&Text, &Text> = planned.series.iter().map(|one| (&one.name, &one.unit)).collect();
        let only = self.only;
        for family in template.families().iter().filter(|family| only.is_none_or(|only| *family.name == *only)) {
            let fit = self.words.fit(&family.name, &family.help);
            let mut own: Vec<(Bits, u64)> = Vec::new();
            for texts in template.own_texts(family, hidden) {
                let bits = texts.fold(0, |bits, text| bits | self.words.within(text, &mut self.room));
                match own.iter_mut().find(|(known, _)| *known == bits) {
                    Some((_, count)) => *count += 1,
                    None => own.push((bits, 1)),
                }
                series += 1;
            }
            if own.is_empty() {
                continue;
            }
            needs_labels |= fit.needs_labels();
            let unit = units.get(&family.name).copied();
            let at = self.metric(family, unit, planned.key.is_vouched_for());
            families.push(Family { at, fit, own });
        }
        let at = self.kinds.len();
        match &planned.hidden {
            None => self.by_template.insert(address, at),
            Some(hidden) => self.by_hidden.insert((address, hidden.clone()), at),
        };
        self.kinds.push(Kind { _template: template.clone(), families, series, needs_labels });
        at
    }

    fn metric(
        &mut self,
        family: &onlooker_series::template::Family,
        unit: Option<&Text>,
        is_vouched_for: bool,
    ) -> usize {
        let (name, metric) = (family.name.clone(), family.metric);
        let at = *self.by_name.entry((name.clone(), metric)).or_insert(self.metrics.len());
        let (help, unit) = (family.help.clone(), unit.cloned().unwrap_or_else(|| "".into()));
        match self.metrics.get_mut(at) {
            None => {
                let (series, hosts, rank, last) = (0, 0, u32::MAX, 0);
                self.metrics.push(Found { name, metric, unit, help, is_vouched_for, series, hosts, rank, last });
            }
            // What the agent says of its own stands, whatever a program says.
            Some(known) if is_vouched_for && !known.is_vouched_for => {
                (known.unit, known.help, known.is_vouched_for) = (unit, help, true);
            }
            Some(_) => {}
        }
        at
    }

    /// All that were found, the best first.
    pub(super) fn ranked(self) -> Vec<Found> {
        let (words, mut found) = (self.words, self.metrics);
        found.retain(|metric| metric.series > 0);
        found.sort_by(|a, b| a.place(words).cmp(&b.place(words)));
        found
    }
}
