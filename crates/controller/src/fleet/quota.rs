// SPDX-License-Identifier: Apache-2.0
//! What a host may cost the controller, and what it does cost: whoever lists more than its quota loses what is beyond
//! it, and nobody else loses anything.
//!
//! A host has each quota twice: once for the regions of its agent and once for those of all its programs, so that no
//! program takes a row from the machine's own metrics. Who was there first stays; what comes later and does not fit
//! gets no texts, no track and no rows, and is counted under the quota that it exceeds. Owned by the host's
//! [`Entities`](super::Entities), written by the processing thread. Cost: a few additions an entity that comes or goes,
//! none a row.

use std::collections::{BTreeMap, HashMap};

use onlooker_region::Identity;

/// Reason of the gap that rows leave which exceed a quota.
pub(super) const OVER_QUOTA: &str = "over_quota";
/// What was exceeded is told again when it had been kept for so long, ns.
const CALM_NS: u64 = 60_000_000_000;
/// Memory that a series takes beside its texts and its words, bytes: its description, its places in the tables of
/// series.
const SERIES_BYTES: u64 = 400;
/// How often a series' texts are there: as a whole, as labels, in the pool of texts.
const TEXT_COPIES: u64 = 3;
/// How often its words are there: as the last row, in the host's row, and twice as what the store tells differences
/// from; some dozens of rows of differences beside.
const WORD_COPIES: u64 = 20;
/// What a row takes in the log beside its values, bytes: its time, its share of a tile's head.
const ROW_BYTES: u64 = 4;

/// What the regions of a host's agent may cost, and those of its programs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Series.
    pub series: u64,
    /// Entities: fixed groups of regions, and rows of tables.
    pub tracks: u64,
    /// Memory of texts and values, bytes.
    pub memory_bytes: u64,
    /// Entities that are new: each is a definition in the log.
    pub new_tracks_per_hour: u64,
    /// Values that are decoded: all hosts share one thread for it.
    pub values_per_s: u64,
    /// What rows may take in the log for good, bytes.
    pub log_bytes_per_s: u64,
    /// And before that.
    pub log_burst_bytes: u64,
}

impl Default for Quota {
    /// With everything on, a host of 1,000 processes has 25,000 series and 1,400 entities, and 27 KB/s at 10 ms.
    fn default() -> Self {
        Self {
            series: 50_000,
            tracks: 5_000,
            memory_bytes: 64 << 20,
            new_tracks_per_hour: 20_000,
            values_per_s: 200_000,
            log_bytes_per_s: 256 << 10,
            log_burst_bytes: 16 << 20,
        }
    }
}

/// Whose regions they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The agent's own.
    Agent,
    /// All programs' of the host.
    Programs,
}

impl Whose {
    /// By a region's identity word.
    fn of(region: u64) -> Self {
        match Identity::from_word(region) {
            Some(identity) if identity.is_agents() => Self::Agent,
            _ => Self::Programs,
        }
    }

    /// As answers have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Programs => "programs",
        }
    }

    fn index(self) -> usize {
        usize::from(self == Self::Programs)
    }
}

/// Which quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// [`Quota::series`]
    Series,
    /// [`Quota::tracks`]
    Tracks,
    /// [`Quota::memory_bytes`]
    Memory,
    /// [`Quota::new_tracks_per_hour`]
    NewTracks,
    /// [`Quota::values_per_s`]
    Values,
    /// [`Quota::log_bytes_per_s`]
    LogBytes,
}

impl Limit {
    /// Its key in `[quota]` of controller.toml.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Series => "series",
            Self::Tracks => "tracks",
            Self::Memory => "memory",
            Self::NewTracks => "new_tracks_per_hour",
            Self::Values => "values_per_s",
            Self::LogBytes => "log_bytes_per_s",
        }
    }
}

/// What an entity costs, and entities together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) series: u64,
    pub(super) tracks: u64,
    pub(super) memory_bytes: u64,
}

impl Cost {
    /// Of one entity, but for its texts.
    pub(super) fn of(series: usize, words: usize) -> Self {
        let memory_bytes = series as u64 * SERIES_BYTES + words as u64 * 8 * WORD_COPIES;
        Self { series: series as u64, tracks: 1, memory_bytes }
    }

    /// With so many bytes of names and labels.
    pub(super) fn with_texts(self, bytes: u64) -> Self {
        Self { memory_bytes: self.memory_bytes + bytes * TEXT_COPIES, ..self }
    }

    fn parts(&self) -> [(Limit, u64); 3] {
        [(Limit::Series, self.series), (Limit::Tracks, self.tracks), (Limit::Memory, self.memory_bytes)]
    }

    fn change(&mut self, by: &Self, change: impl Fn(u64, u64) -> u64) {
        self.series = change(self.series, by.series);
        self.tracks = change(self.tracks, by.tracks);
        self.memory_bytes = change(self.memory_bytes, by.memory_bytes);
    }
}

/// What a row takes in the log, nearly: the bytes in which it differs from the one before, and its time.
fn row_bytes(before: &[u64], row: &[u64]) -> u64 {
    let differs = |(at, word): (usize, &u64)| {
        let by = word.wrapping_sub(before.get(at).copied().unwrap_or(0)).cast_signed();
        // Small changes have few bits, whatever their sign.
        let bits = u64::BITS - ((by << 1) ^ (by >> 63)).leading_zeros();
        u64::from(bits.div_ceil(8))
    };
    ROW_BYTES + row.iter().enumerate().map(differs).sum::<u64>()
}

/// Puts a row in the place of the one before. Says whether it is another one, and what it takes in the log
/// ([`row_bytes`]).
pub(super) fn replace(row: &mut [u64], words: &[u64]) -> (bool, u64) {
    if row == words {
        return (false, row_bytes(&[], &[]));
    }
    let bytes = row_bytes(row, words);
    row.copy_from_slice(words);
    (true, bytes)
}

/// What comes back with time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// In billionths; below 0: taken in advance.
    left: i128,
    at_ns: Option<u64>,
    /// Empty, and closed until half of it has come back: on and off with each row would be as many gaps.
    is_shut: bool,
}

const BILLION: i128 = 1_000_000_000;

impl Bucket {
    fn full(most: u64) -> Self {
        Self { left: i128::from(most) * BILLION, at_ns: None, is_shut: false }
    }

    fn flow(&mut self, now_ns: u64, per_s_billionths: i128, most: u64) {
        let passed_ns = now_ns.saturating_sub(self.at_ns.unwrap_or(now_ns));
        self.at_ns = Some(now_ns);
        let most = i128::from(most) * BILLION;
        self.left = (self.left + i128::from(passed_ns) * per_s_billionths / BILLION).min(most);
        if self.left <= 0 {
            self.is_shut = true;
        } else if self.left >= most / 2 {
            self.is_shut = false;
        }
    }

    fn take(&mut self, amount: u64) {
        self.left -= i128::from(amount) * BILLION;
        self.is_shut |= self.left <= 0;
    }
}

/// Values that may come at once: two seconds'.
fn most_values(quota: &Quota) -> u64 {
    quota.values_per_s.saturating_mul(2)
}

/// What a region had no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Whose region it is.
    pub whose: Whose,
    /// The first quota that it exceeds.
    pub limit: Limit,
    /// Entities that are not kept.
    pub entities: u64,
    /// Their series.
    pub series: u64,
    /// The least that one of them needs.
    least: Cost,
}

impl Excess {
    /// Whether this quota was the first.
    #[must_use]
    pub fn is_of(&self, whose: Whose, limit: Limit) -> bool {
        (self.whose, self.limit) == (whose, limit)
    }
}

/// A quota that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// Rows that were not kept because of it.
    pub rows: u64,
    /// Since when, the controller's steady clock, ns.
    pub since_ns: u64,
    /// The last time.
    pub last_ns: u64,
    /// What there is of it already.
    pub used: u64,
    /// The quota.
    pub limit: u64,
}

/// The account of one host.
#[derive(Debug)]
pub struct Ledger {
    quota: Quota,
    used: [Cost; 2],
    births: [Bucket; 2],
    values: [Bucket; 2],
    log: [Bucket; 2],
    now_ns: u64,
    /// Regions that had no room at the last look.
    excess: HashMap<u64, Excess>,
    over: BTreeMap<(Whose, Limit), Over>,
    /// What was exceeded in this reading and had been kept before.
    news: Vec<(Whose, Limit)>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(Quota::default())
    }
}

impl Ledger {
    pub(super) fn new(quota: Quota) -> Self {
        Self {
            quota,
            used: [Cost::default(); 2],
            // All that a host may have can come at once.
            births: [Bucket::full(quota.tracks.max(quota.new_tracks_per_hour)); 2],
            values: [Bucket::full(most_values(&quota)); 2],
            log: [Bucket::full(quota.log_burst_bytes); 2],
            now_ns: 0,
            excess: HashMap::new(),
            over: BTreeMap::new(),
            news: Vec::new(),
        }
    }

    /// A reading begins.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let quota = self.quota;
        let births = i128::from(quota.new_tracks_per_hour) * BILLION / 3600;
        for bucket in &mut self.births {
            bucket.flow(now_ns, births, quota.tracks.max(quota.new_tracks_per_hour));
        }
        for bucket in &mut self.values {
            bucket.flow(now_ns, i128::from(quota.values_per_s) * BILLION, most_values(&quota));
        }
        for bucket in &mut self.log {
            bucket.flow(now_ns, i128::from(quota.log_bytes_per_s) * BILLION, quota.log_burst_bytes);
        }
    }

    fn most(&self, limit: Limit) -> u64 {
        match limit {
            Limit::Series => self.quota.series,
            Limit::Tracks => self.quota.tracks,
            Limit::Memory => self.quota.memory_bytes,
            Limit::NewTracks => self.quota.new_tracks_per_hour,
            Limit::Values => self.quota.values_per_s,
            Limit::LogBytes => self.quota.log_bytes_per_s,
        }
    }

    /// More series than this of one region have no room, however little else there is.
    pub(super) fn most_series(&self) -> usize {
        usize::try_from(self.quota.series).unwrap_or(usize::MAX)
    }

    /// The first quota that has no room for `new` in the place of `old`.
    fn lacks(&self, whose: Whose, old: &Cost, new: &Cost) -> Option<Limit> {
        let (used, old, new) = (self.used[whose.index()].parts(), old.parts(), new.parts());
        let lacks = |at: &usize| used[*at].1 - old[*at].1 + new[*at].1 > self.most(used[*at].0);
        (0..used.len()).find(lacks).map(|at| used[at].0).or_else(|| {
            let births = &self.births[whose.index()];
            (births.left < BILLION).then_some(Limit::NewTracks)
        })
    }

    /// Takes an entity of a region, in the place of what it was before, if there is room; `texts` are its bytes of
    /// names and labels.
    pub(super) fn admit(&mut self, region: u64, old: &Cost, new: Cost, texts: impl FnOnce() -> u64) -> Option<Cost> {
        let whose = Whose::of(region);
        // Texts are looked at only where all else fits.
        let lacks = self.lacks(whose, old, &new);
        let new = if lacks.is_none() { new.with_texts(texts()) } else { new };
        if let Some(limit) = lacks.or_else(|| self.lacks(whose, old, &new)) {
            self.exceed(region, limit, 1, new);
            return None;
        }
        self.births[whose.index()].take(1);
        self.used[whose.index()].change(&new, |used, new| used + new);
        Some(new)
    }

    /// An entity has gone.
    pub(super) fn release(&mut self, region: u64, cost: &Cost) {
        self.used[Whose::of(region).index()].change(cost, |used, gone| used - gone);
    }

    /// Entities of a region that are not kept.
    pub(super) fn exceed(&mut self, region: u64, limit: Limit, entities: u64, least: Cost) {
        let whose = Whose::of(region);
        let new = Excess { whose, limit, entities: 0, series: 0, least };
        let excess = self.excess.entry(region).or_insert(new);
        excess.entities += entities;
        excess.series += least.series;
        if least.series < excess.least.series {
            excess.least = least;
        }
        self.count(whose, limit, entities);
    }

    fn count(&mut self, whose: Whose, limit: Limit, rows: u64) {
        let (now_ns, most) = (self.now_ns, self.most(limit));
        let of = self.used[whose.index()].parts().into_iter().find(|(other, _)| *other == limit);
        let used = of.map_or(most, |(_, used)| used);
        let over = self.over.entry((whose, limit)).or_insert_with(|| {
            self.news.push((whose, limit));
            Over { rows: 0, since_ns: now_ns, last_ns: now_ns, used, limit: most }
        });
        if now_ns.saturating_sub(over.last_ns) > CALM_NS {
            over.since_ns = now_ns;
            self.news.push((whose, limit));
        }
        (over.last_ns, over.used) = (now_ns, used);
        over.rows += rows;
    }

    /// A look at a region, of which nothing is kept, begins. True: there is no more room for it than at the last look.
    pub(super) fn is_shut_out(&mut self, region: u64) -> bool {
        let Some(excess) = self.excess.get(&region).copied() else { return false };
        let is_shut_out = self.lacks(excess.whose, &Cost::default(), &excess.least).is_some();
        if is_shut_out {
            self.count(excess.whose, excess.limit, excess.entities);
        }
        is_shut_out
    }

    /// A region is looked at: what was said of it is said again, or not.
    pub(super) fn look(&mut self, region: u64) {
        self.excess.remove(&region);
    }

    /// Ends a reading. `is_there` knows the regions that the host still lists.
    pub(super) fn end(&mut self, is_there: impl Fn(u64) -> bool) {
        self.excess.retain(|region, _| is_there(*region));
    }

    /// Whether a region may be decoded; that its `rows` are not is counted.
    pub(super) fn may_decode(&mut self, region: u64, rows: impl FnOnce() -> u64) -> bool {
        let whose = Whose::of(region);
        let is_shut = self.values[whose.index()].is_shut;
        if is_shut {
            self.count(whose, Limit::Values, rows());
        }
        !is_shut
    }

    /// So many values were.
    pub(super) fn decoded(&mut self, region: u64, values: usize) {
        self.values[Whose::of(region).index()].take(values as u64);
    }

    /// Whether a row may be stored; that it is not is counted.
    pub(super) fn may_log(&mut self, region: u64) -> bool {
        let whose = Whose::of(region);
        let is_shut = self.log[whose.index()].is_shut;
        if is_shut {
            self.count(whose, Limit::LogBytes, 1);
        }
        !is_shut
    }

    /// So much was written of a region.
    pub(super) fn logged(&mut self, region: u64, bytes: u64) {
        self.log[Whose::of(region).index()].take(bytes);
    }

    /// What a region has no room for.
    #[must_use]
    pub fn excess(&self, region: u64) -> Option<&Excess> {
        self.excess.get(&region)
    }

    /// Quotas that have been exceeded, the last minute's or all there ever were.
    pub fn over(&self, ever: bool) -> impl Iterator<Item = (Whose, Limit, &Over)> {
        let is_shown = move |over: &Over| ever || self.now_ns.saturating_sub(over.last_ns) <= CALM_NS;
        let over = self.over.iter().filter(move |(_, over)| is_shown(over));
        over.map(|((whose, limit), over)| (*whose, *limit, over))
    }

    /// What is to be told to the operator.
    pub(super) fn take_news(&mut self) -> Vec<(Whose, Limit)> {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests;
