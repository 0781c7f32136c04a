// SPDX-License-Identifier: Apache-2.0
//! What is known of a host, copied out of its lock, so that nobody formats anything while a reading waits.
//!
//! What changes with every reading is numbers: they are copied. What the values are called stays until an entity comes,
//! goes or changes: that is the host's [`Plan`], made outside of the lock by the first who misses it and shared by all
//! who look afterwards. Cost under the lock: a copy of the rows and some searches in two histograms, a few us; when
//! entities have changed, a clone of two pointers each besides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlooker_reader::clock::{Relation, steady_ns};
use onlooker_reader::{Counters, Pair};
use onlooker_series::series::{EntityKey, Series};
use onlooker_series::template::{LabelSet, Template};
use onlooker_series::text::Text;

use super::{Entities, Entity, Excess, Host, Limit, Over, Region, Shown, ShownGap, Whose};
use crate::sink::State;

/// What a host's values are called.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    /// [`Entities::changes`] when it was made.
    changes: u64,
    /// Labels of all its series.
    pub(crate) labels: LabelSet,
    /// In the order of their keys.
    pub(crate) entities: Vec<Planned>,
}

/// An entity, but for its values.
#[derive(Clone)]
pub(crate) struct Planned {
    pub(crate) key: EntityKey,
    pub(crate) series: Arc<[Series]>,
    pub(crate) texts: Arc<[Arc<str>]>,
    /// Which of them are not shown, if any.
    pub(crate) hidden: Option<Box<[bool]>>,
    /// Name of its region.
    pub(crate) region: Text,
    /// When that was made, by the host's clock.
    pub(crate) created_ns: Option<u64>,
    pub(crate) template: Arc<Template>,
    /// Labels of all its series that are not the host's.
    pub(crate) labels: Arc<LabelSet>,
}

impl Planned {
    /// Its series that are shown, with their texts.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&Series, &Arc<str>)> {
        let is_shown = |at: usize| self.hidden.as_ref().is_none_or(|hidden| !hidden[at]);
        let all = self.series.iter().zip(self.texts.iter()).enumerate();
        all.filter(move |(at, _)| is_shown(*at)).map(|(_, pair)| pair)
    }
}

/// Values of a host, entity by entity as its plan has them; memory that is used again.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// Each has as many as its template says.
    pub(crate) words: Vec<u64>,
    /// When they were acquired, UTC ns.
    pub(crate) times_ns: Vec<u64>,
}

impl Values {
    fn clear(&mut self) {
        self.words.clear();
        self.times_ns.clear();
    }

    fn push(&mut self, row: &[u64], time_ns: u64, words: usize) {
        debug_assert_eq!(row.len(), words, "a row has the words of its series");
        let end = self.words.len() + words;
        self.words.extend_from_slice(row);
        // Whatever a row was: those behind it stay where they are.
        self.words.resize(end, 0);
        self.times_ns.push(time_ns);
    }
}

/// What a plan is made of: copied under the lock.
struct Raw {
    changes: u64,
    entities: Vec<RawEntity>,
    /// Identity words of regions, and when they were made.
    created: Vec<(u64, u64)>,
}

struct RawEntity {
    key: EntityKey,
    series: Arc<[Series]>,
    texts: Arc<[Arc<str>]>,
    hidden: Option<Box<[bool]>>,
    region: Text,
}

impl Raw {
    fn of(shown: &Shown) -> Self {
        let entities = shown.entities.iter().map(|(key, entity)| {
            let (series, texts, region) =
                (entity.named.series.clone(), entity.named.texts.clone(), Text::from(entity.region()));
            RawEntity { key: *key, series, texts, hidden: hidden(entity), region }
        });
        let created = shown.regions.iter().map(|Region { entry, .. }| (entry.identity.word(), entry.created_ns));
        Self { changes: shown.entities.changes(), entities: entities.collect(), created: created.collect() }
    }

    /// The plan; what has not changed is taken from the one before.
    fn plan(self, labels: &BTreeMap<String, String>, before: &Plan) -> Plan {
        let host: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let created: BTreeMap<u64, u64> = self.created.into_iter().collect();
        let planned = |RawEntity { key, series, texts, hidden, region }: RawEntity| {
            let known = before.entities.binary_search_by_key(&key, |planned| planned.key);
            let known = known.ok().map(|at| &before.entities[at]);
            let known = known.filter(|planned| Arc::ptr_eq(&planned.series, &series));
            let (template, labels) = known.map_or_else(
                || {
                    let (template, labels) = Template::new(&series, &host);
                    (template.shared(), Arc::new(labels))
                },
                |planned| (planned.template.clone(), planned.labels.clone()),
            );
            let created_ns = created.get(&key.region).copied();
            Planned { key, series, texts, hidden, region, created_ns, template, labels }
        };
        Plan {
            changes: self.changes,
            labels: LabelSet::new(host.iter().copied()),
            entities: self.entities.into_iter().map(planned).collect(),
        }
    }
}

fn hidden(entity: &Entity) -> Option<Box<[bool]>> {
    if entity.shown().count() == entity.named.series.len() {
        return None;
    }
    let mut hidden = vec![true; entity.named.series.len()];
    entity.shown().for_each(|(at, ..)| hidden[at] = false);
    Some(hidden.into())
}

/// How it goes with a host: what is told of it beside its values.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) state: State,
    pub(crate) since_ns: u64,
    pub(crate) newest_ns: Option<u64>,
    pub(crate) relation: Option<Relation>,
    pub(crate) read_at_ns: Option<u64>,
    pub(crate) regions: usize,
    pub(crate) series: usize,
    /// Quotas that were exceeded.
    pub(crate) over: Vec<(Whose, Limit, Over)>,
    pub(crate) cycles: u64,
    pub(crate) late: u64,
    pub(crate) gaps: BTreeMap<&'static str, u64>,
    pub(crate) last_gap: Option<ShownGap>,
    pub(crate) invalid: BTreeMap<&'static str, u64>,
    pub(crate) reads: Counters,
    pub(crate) repeated: u64,
    /// 0.5, 0.9, 0.99 and the largest of the last minutes, ns.
    pub(crate) latency_ns: [u64; 4],
    /// 0.5, 0.99 and the largest of the last minutes, ns.
    pub(crate) lateness_ns: [u64; 3],
}

impl Figures {
    /// Who asks and who answers.
    pub(crate) fn pair(&self) -> Option<Pair> {
        match self.state {
            State::Reading(pair) => Some(pair),
            _ => None,
        }
    }

    /// Bound of the error of its times in UTC, ns.
    pub(crate) fn clock_error_ns(&self) -> Option<u64> {
        self.relation.map(|relation| relation.error_ns(steady_ns()))
    }
}

/// A host that has not been read for so long is not shown any more, or for three intervals if they are longer.
const STALE_NS: u64 = 5_000_000_000;

/// Which quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// In the last minute.
    Now,
    /// All there ever were.
    Ever,
}

impl Shown {
    fn figures(&self, exceeded: Exceeded) -> Figures {
        let ([p50, p90, p99], max) = self.latency.quantiles_ns([0.5, 0.9, 0.99]);
        let ([late_p50, late_p99], late_max) = self.lateness.quantiles_ns([0.5, 0.99]);
        let over = self.entities.ledger().over(exceeded == Exceeded::Ever);
        Figures {
            state: self.state.clone(),
            since_ns: self.since_ns,
            // A host that has not been read yet has no entities to look through.
            newest_ns: self.newest_ns.or_else(|| self.newest_ns()),
            relation: self.relation,
            read_at_ns: self.read_at_ns,
            regions: self.regions.len(),
            series: self.entities.series(),
            over: over.map(|(whose, limit, over)| (whose, limit, *over)).collect(),
            cycles: self.cycles,
            late: self.late,
            gaps: self.gaps.clone(),
            last_gap: self.last_gap.clone(),
            invalid: self.entities.invalid().clone(),
            reads: self.reads.clone(),
            repeated: self.repeated,
            latency_ns: [p50, p90, p99, max],
            lateness_ns: [late_p50, late_p99, late_max],
        }
    }

    fn regions(&self) -> Vec<RegionFigures> {
        let mut by_region: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        for (key, entity) in self.entities.iter() {
            let (newest_ns, series) = by_region.entry(key.region).or_default();
            *newest_ns = entity.time_ns.max(*newest_ns);
            *series += entity.named.series.len();
        }
        let figures = |region: &Region| {
            let identity = region.entry.identity.word();
            let found = by_region.get(&identity);
            RegionFigures {
                region: region.clone(),
                newest_ns: found.map(|(newest_ns, _)| *newest_ns),
                series: found.map_or(0, |(_, series)| *series),
                excess: self.entities.ledger().excess(identity).copied(),
            }
        };
        self.regions.iter().map(figures).collect()
    }
}

/// A region with what there is of it.
#[derive(Clone, Debug)]
pub(crate) struct RegionFigures {
    pub(crate) region: Region,
    /// Time of its newest values, UTC ns.
    pub(crate) newest_ns: Option<u64>,
    pub(crate) series: usize,
    pub(crate) excess: Option<Excess>,
}

/// A host's plan, once there is one.
#[derive(Default)]
pub(super) struct PlanCell(Mutex<Arc<Plan>>);

impl PlanCell {
    fn lock(&self) -> MutexGuard<'_, Arc<Plan>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// How it goes.
    pub(crate) fn figures(&self) -> Figures {
        self.look().figures(Exceeded::Now)
    }

    /// How long ago it was read last, ns, and whether that is not too long.
    pub(crate) fn freshness(&self, figures: &Figures) -> (Option<u64>, bool) {
        let age_ns = figures.read_at_ns.map(|read_ns| steady_ns().saturating_sub(read_ns));
        let most_ns = STALE_NS.max(self.target.interval_ns().saturating_mul(3));
        (age_ns, age_ns.is_some_and(|age_ns| age_ns <= most_ns))
    }

    /// How it goes with it and each of its regions.
    pub(crate) fn detail(&self) -> (Figures, Vec<RegionFigures>) {
        let shown = self.look();
        (shown.figures(Exceeded::Now), shown.regions())
    }

    /// How it goes, and, if that is `wanted`, its values into `values`, with what they are called.
    pub(crate) fn snapshot(
        &self,
        wanted: impl FnOnce(&Figures) -> bool,
        values: &mut Values,
    ) -> (Figures, Option<Arc<Plan>>) {
        let known = self.plan.lock().clone();
        let shown = self.look();
        let figures = shown.figures(Exceeded::Ever);
        if !wanted(&figures) {
            return (figures, None);
        }
        (figures, Some(self.copy(shown, known, values)))
    }

    /// Its values into `values`, and what they are called.
    pub(crate) fn values(&self, values: &mut Values) -> Arc<Plan> {
        let known = self.plan.lock().clone();
        self.copy(self.look(), known, values)
    }

    /// What its values are called.
    pub(crate) fn plan(&self) -> Arc<Plan> {
        let known = self.plan.lock().clone();
        let shown = self.look();
        if known.changes == shown.entities.changes() { known } else { self.planned(shown, &known) }
    }

    /// Another plan, since entities have changed; made outside of the lock.
    fn planned(&self, shown: MutexGuard<'_, Shown>, known: &Plan) -> Arc<Plan> {
        let raw = Raw::of(&shown);
        drop(shown);
        let plan = Arc::new(raw.plan(&self.labels, known));
        *self.plan.lock() = plan.clone();
        plan
    }

    fn copy(&self, shown: MutexGuard<'_, Shown>, known: Arc<Plan>, values: &mut Values) -> Arc<Plan> {
        values.clear();
        let entities: &Entities = &shown.entities;
        if known.changes == entities.changes() {
            for (planned, (_, entity)) in known.entities.iter().zip(entities.iter()) {
                values.push(shown.entities.row(entity), entity.time_ns, planned.template.words());
            }
            return known;
        }
        for (_, entity) in entities.iter() {
            let words = entity.named.series.iter().map(|series| series.at + series.form.words()).max().unwrap_or(0);
            values.push(shown.entities.row(entity), entity.time_ns, words);
        }
        self.planned(shown, &known)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Host as Memory, Region as Words, World};
    use super::*;
    use onlooker_region::guard::commit;
    use onlooker_series::exposition::samples;

    const TABLE: &str = r#"{"name":"shop","groups":[{"kind":"table","blocks":2,"key":[{"name":"queue","type":"text","bytes":8}],
        "fields":[{"name":"shop_length","metric":"gauge","type":"u64"},{"name":"shop_age","metric":"gauge","type":"u64","slot":1,"scale":0.5}]}]}"#;

    /// The first row of a block.
    fn row(region: &Words, block: u16, queue: u8, words: [u64; 2]) {
        let slots = [1 << 32 | 1, u64::from(queue), words[0], words[1]];
        let (block, identity) = (region.words.block(block.into()), region.entry.identity.at(block));
        commit(block, identity, 9 + words[0], |payload| payload.set_all(0, &slots));
    }

    /// Lines of a host's values, from its plan and from its entities.
    fn lines(world: &World, values: &mut Values) -> [Vec<String>; 2] {
        let host = world.fleet.host("a").unwrap();
        let plan = host.values(values);
        let mut out = [String::new(), String::new()];
        let mut at = 0;
        for planned in &plan.entities {
            let template = &planned.template;
            let row = &values.words[at..at + template.words()];
            at += template.words();
            for family in template.families() {
                let labels = (plan.labels.view(), planned.labels.view());
                template.write(family, planned.hidden.as_deref(), labels, row, &mut out[0]);
            }
        }
        assert_eq!((at, plan.entities.len()), (values.words.len(), values.times_ns.len()));
        let shown = host.look();
        for (_, entity) in shown.entities.iter() {
            for (_, series, text) in entity.shown() {
                let value = series.value(shown.entities.row(entity)).unwrap();
                samples(&mut out[1], &series.name, &text[series.name.len()..], &value, series.scale);
            }
        }
        out.map(|out| {
            let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        })
    }

    #[test]
    fn a_plan_follows_what_comes_and_goes_and_is_kept_else() {
        let (mut world, mut host) = (World::new(), Memory::new(64));
        let shop = host.region(900, "shop", &[("pid", "77")], TABLE);
        row(&shop, 0, b'q', [7, 3]);
        world.read("a", &host);
        let mut values = Values::default();
        let [planned, shown] = lines(&world, &mut values);
        assert_eq!(planned, shown);
        assert!(planned.contains(&r#"shop_age{instance="a",pid="77",queue="q"} 1.5"#.to_owned()), "{planned:?}");
        let first = plan(&world);

        // Other values, the same plan.
        row(&shop, 0, b'q', [8, 3]);
        world.read("a", &host);
        let [planned, shown] = lines(&world, &mut values);
        assert_eq!(planned, shown);
        assert!(Arc::ptr_eq(&first, &plan(&world)));

        // Another row: what was there is taken over, and both rows have one template.
        row(&shop, 1, b'r', [9, 4]);
        world.read("a", &host);
        let [planned, shown] = lines(&world, &mut values);
        assert_eq!(planned, shown);
        let second = plan(&world);
        let rows: Vec<&Planned> = second.entities.iter().filter(|one| one.key.row.is_some()).collect();
        assert!(rows.len() == 2 && Arc::ptr_eq(&rows[0].template, &rows[1].template));
        let known = first.entities.iter().find(|one| one.key == rows[0].key).unwrap();
        assert!(Arc::ptr_eq(&known.labels, &rows[0].labels) && !Arc::ptr_eq(&first, &second));
        assert_eq!(rows[0].created_ns, Some(shop.entry.created_ns));

        // A series that two regions have is hidden in one of them.
        let other = host.region(901, "shop", &[("pid", "77")], TABLE);
        row(&other, 0, b'q', [66, 66]);
        world.read("a", &host);
        let [planned, shown] = lines(&world, &mut values);
        assert_eq!(planned, shown);
        assert!(plan(&world).entities.iter().any(|one| one.hidden.is_some()));
    }

    fn plan(world: &World) -> Arc<Plan> {
        world.fleet.host("a").unwrap().values(&mut Values::default())
    }
}
