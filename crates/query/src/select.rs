// SPDX-License-Identifier: Apache-2.0
//! Matchers to series: which tracks, parts and lines make a series of Prometheus.
//!
//! The catalogue is locked name by name and track by track, for as long as a few of its entries take: definitions of
//! new hosts wait no longer. Names are matched without a lock. In between the query's budget is asked: what is found
//! counts until the next selection.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use onlooker_framestore::catalogue;
use onlooker_framestore::types::{Line, TrackId};
use onlooker_framestore::{Named, Store};
use onlooker_promql::QueryError;
use onlooker_promql::labels::{BUCKET, Comparison, Labels, Matcher, NAME};
use onlooker_promql::limits::{Budget, Held};
use onlooker_promql::source::{Chunks, Found, Newest, SeriesSource, Shared, SourceError, Span, Summary, Windows};
use onlooker_series::rank::Rank;
use onlooker_series::series::{EntityKey, Series};

use crate::exported::{Exported, exported, native, possible_names};
use crate::lane::may_be_thinned;
use crate::merge::{self, Merged};
use crate::plan::{LanePlan, Lanes, best};
use crate::recorded;
use crate::shown::Shown;
use crate::tracks::{MAX_SILENCE_NS, Tracks, times};
use crate::window::{Edges, grid_ns};

/// What it costs to name a series, in units of a budget, and to look whether a track has rows of a time.
const SERIES: usize = 200;
const TRACK: usize = 20;
/// What it costs to match a name, or to ask the catalogue once.
pub(crate) const ASK: usize = 100;
/// Rows from one step to the next from which on only the last ones before each step are looked at.
const SPARSE_ROWS: u64 = 128;
/// Of longer steps rows are looked for one by one, however few of them a grid leaves.
const MOST_STEP_NS: i64 = 300_000_000_000;
/// Memory of a text beside itself: its counters, and its place in the set.
const TEXT_BYTES: usize = 48;
/// Rows are dense of which a cell of the grid has more.
const DENSE_ROWS: u64 = 5;
/// Tracks that are looked for between two questions to the budget.
const TRACKS: usize = 1 << 10;
/// Memory of a label of a series that is found: its name and its value are there once for all.
const PAIR_BYTES: usize = 2 * size_of::<Arc<str>>();
/// And of a series beside its labels and lanes: in the map of those that are found.
const FOUND_BYTES: usize = 2 * size_of::<Found>() + size_of::<Vec<LanePlan>>();

/// The store as PromQL sees it. One a query: it remembers what the query has found last, and what it has decoded.
pub struct StoreSource<'a> {
    tracks: Tracks<'a>,
    found: RefCell<Selected>,
}

/// What was found, and the memory that it takes.
#[derive(Default)]
struct Selected {
    lanes: Arc<Vec<Lanes>>,
    _held: Option<Held>,
}

/// Matchers as the catalogue has them.
pub struct Wanted {
    all: Vec<catalogue::Matcher>,
    /// Those of labels: names are ours there, and Prometheus' here.
    of_labels: Vec<catalogue::Matcher>,
}

impl Wanted {
    /// Of a selector's.
    ///
    /// # Errors
    /// An expression that is too large.
    pub fn new(matchers: &[Matcher]) -> Result<Self, QueryError> {
        let all = matchers.iter().map(|Matcher { name, comparison, value }| {
            let comparison = match comparison {
                Comparison::Equal => catalogue::Comparison::Equal,
                Comparison::NotEqual => catalogue::Comparison::NotEqual,
                Comparison::Regex => catalogue::Comparison::Regex,
                Comparison::NotRegex => catalogue::Comparison::NotRegex,
            };
            catalogue::Matcher::new(name, comparison, value)
        });
        let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|error| QueryError::Invalid(error.to_string()))?;
        let is_of_labels =
            |matcher: &&catalogue::Matcher| matcher.name() != NAME && !recorded::is_hidden(matcher.name());
        let of_labels = all.iter().filter(is_of_labels).cloned().collect();
        Ok(Self { all, of_labels })
    }

    pub(crate) fn takes_name(&self, name: &str) -> bool {
        self.all.iter().filter(|matcher| matcher.name() == NAME).all(|matcher| matcher.is_match(name))
    }

    /// Whether a series with these labels matches.
    #[must_use]
    pub fn takes_labels(&self, labels: &Labels) -> bool {
        self.all.iter().all(|matcher| matcher.is_match(labels.get(matcher.name())))
    }

    /// Whether a series matches that one of ours is to Prometheus.
    pub(crate) fn takes(&self, series: &Series, exported: &Exported) -> bool {
        self.all.iter().all(|matcher| match matcher.name() {
            NAME => matcher.is_match(&exported.name),
            BUCKET if exported.le.is_some() => matcher.is_match(exported.le.as_deref().unwrap_or_default()),
            label if recorded::is_hidden(label) => matcher.is_match(""),
            label => matcher.is_match(series.labels.get(label).unwrap_or_default()),
        })
    }

    /// Names that series of ours have which may match.
    fn names(&self, store: &Store, budget: &Budget) -> Result<Vec<catalogue::Matcher>, SourceError> {
        let (parts, mut names) = (store.known().parts(), BTreeMap::new());
        for part in &parts {
            for series in &part.series {
                budget.work(1)?;
                if !names.contains_key(&*series.name) {
                    budget.work(ASK)?;
                    let is_wanted = possible_names(&series.name).iter().any(|name| self.takes_name(name));
                    names.insert(&*series.name, is_wanted);
                }
            }
        }
        let wanted = names.into_iter().filter(|(_, is_wanted)| *is_wanted);
        let matcher = |(name, _)| catalogue::Matcher::new(NAME, catalogue::Comparison::Equal, name);
        Ok(wanted.map(matcher).collect::<Result<Vec<_>, _>>()?)
    }

    /// Gives all of the store's series of a time that may match to `visit`, part by part; also those of tracks that have
    /// rows so long before only that they may still go on. Returns these tracks.
    fn each(
        &self,
        store: &Store,
        (from_ns, to_ns): (u64, u64),
        budget: &Budget,
        mut visit: impl FnMut(Named) -> Result<(), SourceError>,
    ) -> Result<HashSet<TrackId>, SourceError> {
        let (mut is_in_time, mut before): (HashMap<TrackId, bool>, _) = (HashMap::new(), HashSet::new());
        let since_ns = from_ns.saturating_sub(MAX_SILENCE_NS);
        for name in self.names(store, budget)? {
            let matchers: Vec<_> = [name].into_iter().chain(self.of_labels.iter().cloned()).collect();
            budget.work(ASK)?;
            let found = store.known().select(&matchers);
            let _held = budget.hold(size_of_val(&found[..]))?;
            budget.work(found.len())?;
            let mut fresh: Vec<TrackId> = found.iter().map(|(track, ..)| *track).collect();
            fresh.dedup();
            fresh.retain(|track| !is_in_time.contains_key(track));
            for some in fresh.chunks(TRACKS) {
                budget.work(some.len() * TRACK)?;
                is_in_time.extend(some.iter().map(|track| (*track, false)));
                let there = store.in_time(some.to_vec(), since_ns, to_ns);
                is_in_time.extend(there.iter().map(|track| (*track, true)));
                before.extend(there.iter().copied());
                store.in_time(there, from_ns, to_ns).iter().for_each(|track| _ = before.remove(track));
            }
            for of_part in found.chunk_by(|one, next| (one.0, one.1) == (next.0, next.1)) {
                let (track, part, _) = of_part[0];
                if !is_in_time[&track] {
                    continue;
                }
                budget.work(ASK)?;
                let mut numbers: Vec<u32> = of_part.iter().map(|(.., number)| *number).collect();
                if store.known().track(track).is_some_and(|track| track.source == EntityKey::RECORDED_NATIVE) {
                    // All columns of such a table are one series.
                    numbers.truncate(1);
                }
                let lines = self.lines(store, track, part, &numbers);
                for named in store.series_at(track, part, &lines, &numbers) {
                    visit(named)?;
                }
            }
        }
        Ok(before)
    }

    fn lines(&self, store: &Store, track: TrackId, part: u32, numbers: &[u32]) -> BTreeSet<Line> {
        let lines = |number: &u32| store.known().lines(track, part, *number, &self.of_labels);
        numbers.iter().flat_map(lines).collect()
    }
}

/// Texts that many labels have: each once a selector.
#[derive(Default)]
struct Texts {
    all: HashSet<Arc<str>>,
    /// Of those that are new.
    bytes: usize,
}

impl Texts {
    fn take(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.all.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.bytes += text.len() + TEXT_BYTES;
        self.all.insert(text.clone());
        text
    }

    /// What those take that have come since the last call.
    fn take_bytes(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }
}

impl<'a> StoreSource<'a> {
    /// Of a store.
    #[must_use]
    pub fn new(store: &'a Store) -> Self {
        Self { tracks: Tracks::new(store), found: RefCell::default() }
    }

    /// Bytes that it holds of what was found and decoded.
    #[cfg(test)]
    pub(crate) fn decoded_bytes(&self) -> usize {
        self.tracks.decoded.bytes()
    }

    fn lanes(&self, key: u64) -> Result<Lanes, SourceError> {
        let number = usize::try_from(key & u64::from(u32::MAX)).ok();
        let lanes = number.and_then(|number| self.found.borrow().lanes.get(number).cloned());
        let lanes = lanes.ok_or("a series that was not selected")?;
        if let [only] = &*lanes {
            self.tracks.go_to(only.track);
        }
        Ok(lanes)
    }

    /// Region by region the older one is shown: its number grows with each.
    fn age(&self, lanes: &mut [LanePlan], oldest: &mut HashMap<String, HashMap<u64, TrackId>>) {
        if lanes.len() < 2 {
            return;
        }
        for lane in lanes.iter_mut().filter(|lane| matches!(lane.rank, Rank::Programs { .. })) {
            let host = {
                let known = self.tracks.store.known();
                known.track(lane.track).and_then(|track| Some(known.host(track.host)?.0.to_owned()))
            };
            let Some(host) = host else { continue };
            let oldest = oldest.entry(host).or_insert_with_key(|host| self.tracks.store.oldest_tracks(host));
            let since = oldest.get(&lane.source).unwrap_or(&lane.track);
            lane.rank = Rank::Programs { since: since.0.into() };
        }
        lanes.sort_by_key(|lane| (lane.rank, lane.track));
    }
}

impl SeriesSource for StoreSource<'_> {
    fn select(&self, matchers: &[Matcher], span: Span, budget: &Budget) -> Result<Vec<Found>, SourceError> {
        // What was found before is read by now.
        self.found.take();
        let Some(time) = times(span) else { return Ok(Vec::new()) };
        let (wanted, mut texts) = (Wanted::new(matchers)?, Texts::default());
        let mut all: BTreeMap<Labels, Vec<LanePlan>> = BTreeMap::new();
        // Whoever asked counts labels himself once he has them.
        let (mut held, mut of_labels) = (budget.hold(0)?, budget.hold(0)?);
        let before = wanted.each(self.tracks.store, time, budget, |named| {
            for series in &named.series {
                let shown = match named.source {
                    EntityKey::RECORDED_NATIVE => recorded::native(series).into_iter().collect(),
                    EntityKey::RECORDED => recorded::number(series),
                    _ => exported(series).into_iter().chain(native(series)).collect(),
                };
                for exported in shown.into_iter().filter(|exported| wanted.takes(series, exported)) {
                    budget.work(SERIES)?;
                    let own = [(NAME, exported.name.as_str())].into_iter().chain(recorded::shown(&series.labels));
                    let pairs = own.chain(exported.le.as_deref().map(|le| (BUCKET, le)));
                    let pairs: Vec<_> = pairs.map(|(name, value)| (texts.take(name), texts.take(value))).collect();
                    of_labels.grow(pairs.len() * PAIR_BYTES + FOUND_BYTES + texts.take_bytes())?;
                    held.grow(size_of::<LanePlan>() + size_of::<Lanes>())?;
                    let (track, line, part, time) = {
                        let columns = &named.columns;
                        (columns.track, columns.line, columns.part, columns.time)
                    };
                    let Exported { words, reading, .. } = exported;
                    // Of both kinds that are recorded none is better.
                    let source = if recorded::is(named.source) { EntityKey::RECORDED } else { named.source };
                    let rank = Rank::of_source(source, named.acquisition, 0);
                    let lane = LanePlan { track, line, part, time, words, reading, rank, source };
                    all.entry(Labels::new(pairs)).or_default().push(lane);
                }
            }
            Ok(budget.series(all.len())?)
        })?;
        let mut oldest = HashMap::new();
        let series = all.into_iter().filter_map(|(labels, mut lanes)| {
            self.age(&mut lanes, &mut oldest);
            // What was before may stand in the way of a worse one, but is no series of this time.
            let is_in_time = |lane: &&LanePlan| !before.contains(&lane.track);
            let worst = lanes.iter().filter(is_in_time).map(|lane| lane.rank).max()?;
            lanes.retain(|lane| is_in_time(&lane) || lane.rank < worst);
            Some((labels, Lanes::from(lanes)))
        });
        let mut series: Vec<(Labels, Lanes)> = series.collect();
        budget.work(series.len() * ASK)?;
        // Those of one track, and of one part and line, follow one another: what is decoded for one is for the next.
        series.sort_by_key(|(_, lanes)| {
            let first = &lanes[0];
            (first.track, first.part, first.line, first.words.start)
        });
        let found = |(number, (labels, lanes)): (u64, (Labels, Lanes))| {
            // Whose first rows are of one track share them.
            (Found { key: u64::from(lanes[0].track.0) << 32 | number, labels }, lanes)
        };
        let (found, lanes): (_, Vec<_>) = (0..).zip(series).map(found).unzip();
        self.found.replace(Selected { lanes: lanes.into(), _held: Some(held) });
        Ok(found)
    }

    fn read<'a>(&'a self, key: u64, span: Span) -> Result<Box<dyn Chunks + 'a>, SourceError> {
        Ok(Box::new(Merged::new(&self.tracks, &self.lanes(key)?, times(span))?))
    }

    fn newest(&self, key: u64, span: Span) -> Result<Newest, SourceError> {
        let lanes = self.lanes(key)?;
        times(span).map_or(Ok(Newest::Nothing), |time| merge::newest(&self.tracks, &lanes, time))
    }

    fn summaries(
        &self,
        key: u64,
        windows: Windows,
        budget: &Budget,
        take: &mut dyn FnMut(usize, Summary),
    ) -> Result<bool, SourceError> {
        let shown = Shown::find(&self.tracks, &self.lanes(key)?, Edges::new(windows), budget)?;
        Ok(shown.map(|shown| shown.finish(take)).is_some())
    }

    fn last_samples(
        &self,
        key: u64,
        windows: Windows,
        budget: &Budget,
        take: &mut dyn FnMut(usize, i64, f64),
    ) -> Result<bool, SourceError> {
        let shown = Shown::find(&self.tracks, &self.lanes(key)?, Edges::of_last(windows), budget)?;
        Ok(shown.map(|shown| shown.finish_last(take)).is_some())
    }

    fn share(&self) -> Option<Shared<'_>> {
        let (store, lanes) = (self.tracks.store, self.found.borrow().lanes.clone());
        Some(Box::new(move || {
            let found = Selected { lanes, _held: None };
            Box::new(Self { tracks: Tracks::new(store), found: found.into() })
        }))
    }

    fn prefers_newest(&self, key: u64, span: Span, step_ns: i64) -> Result<bool, SourceError> {
        let (lanes, Some((from_ns, to_ns))) = (self.lanes(key)?, times(span)) else { return Ok(false) };
        let steps = (to_ns - from_ns) / step_ns.unsigned_abs().max(1) + 1;
        let rows: u64 = lanes.iter().map(|lane| self.tracks.rows(lane.track, (from_ns, to_ns))).sum();
        let is_read = lanes.iter().any(LanePlan::is_read_whole);
        // Steps of a grid need few of such rows, which are known once somebody has asked.
        let is_dense = |grid_ns: u64| rows.saturating_mul(grid_ns) > DENSE_ROWS.saturating_mul(to_ns - from_ns);
        let best = best(&lanes);
        let is_thinned = step_ns <= MOST_STEP_NS
            && grid_ns(&[step_ns, span.until_ns]).is_some_and(is_dense)
            && !best.is_empty()
            && best.iter().all(may_be_thinned);
        Ok(!is_read && !is_thinned && rows / steps >= SPARSE_ROWS)
    }
}
