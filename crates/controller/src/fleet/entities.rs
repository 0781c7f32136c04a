// SPDX-License-Identifier: Apache-2.0
//! The entities of a host with their last rows.
//!
//! A series is there once: where two entities have one of the same name and labels, as a metric that is both computed and sampled, the better one is shown
//! ([`rank`]) and the other one steps in when it is gone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onlooker_region::columns::Sample;
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::{Acquisition, Metric};
use onlooker_transport::reader::{Frame, Session};

use crate::derive::{Derived, Fate, Sum};
use crate::series::{EntityKey, Form, Series, describe, fill, group_number, labels_of};
use crate::text::Labels;

/// A row that does not come any more is shown so long, in readings: a block that is torn now and then must not make it flicker.
pub(crate) const PATIENCE_READINGS: u64 = 16;

/// Group numbers of sums begin here; a schema has far fewer groups.
const SUMS: u32 = 1 << 31;

/// Region of what the controller itself knows of a host.
const OWN_REGION: &str = "controller";
const OWN_KEY: EntityKey = EntityKey { region: EntityKey::OWN_REGION, group: SUMS, row: None };
const BOOT_TIME: &str = "node_boot_time_seconds";
const BOOT_TIME_HELP: &str = "Node boot time, in unixtime.";
/// The boot time is worked out from two clocks, neither of them steady to the last: what is shown stays while it is no further from the truth than this.
const BOOT_TIME_SLACK_S: f64 = 1.0;

/// Which of several series of one name and labels is shown: the least. `region` is the region's name.
#[must_use]
pub fn rank(acquisition: Acquisition, region: &str) -> u8 {
    match acquisition {
        _ if region == OWN_REGION => 4,
        Acquisition::Computed => 0,
        Acquisition::Published => 1,
        Acquisition::Direct => 2,
        Acquisition::Sampled => 3,
    }
}

/// An entity's last row.
#[derive(Clone, Debug)]
pub struct Entity {
    /// Its series.
    pub series: Arc<[Series]>,
    /// Their texts ([`Series::text`]).
    pub texts: Arc<[Arc<str>]>,
    /// Which of them are not shown, since a better one has the same text.
    hidden: Vec<bool>,
    /// Their words.
    pub row: Vec<u64>,
    /// When the values were acquired, UTC ns.
    pub time_ns: u64,
    /// The same as the host's clock had it: what tells a new row from one that was there before, whatever becomes of our own clock.
    stamp_ns: u64,
    /// Name of its region.
    pub region: String,
    /// Number of its region's reading that had it last.
    seen: u64,
}

impl Entity {
    fn new(series: Arc<[Series]>, region: &str) -> Self {
        let texts = series.iter().map(|series| series.text().into()).collect();
        let hidden = vec![false; series.len()];
        Self { series, texts, hidden, row: Vec::new(), time_ns: 0, stamp_ns: 0, region: region.to_owned(), seen: 0 }
    }

    /// Its series that are shown, with their numbers and texts.
    pub fn shown(&self) -> impl Iterator<Item = (usize, &Series, &Arc<str>)> {
        let all = self.series.iter().zip(self.texts.iter()).enumerate();
        all.filter(|(at, _)| !self.hidden[*at]).map(|(at, (series, text))| (at, series, text))
    }
}

/// Where a series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    rank: u8,
    /// Of two alike the newer one: a row that was made anew follows itself.
    entered: Reverse<u64>,
    key: EntityKey,
    at: usize,
}

/// How often a region was there.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    /// Number of the host's last reading that had it.
    present: u64,
    /// Readings that looked into it.
    readings: u64,
}

/// All of a host.
#[derive(Debug, Default)]
pub struct Entities {
    by_key: BTreeMap<EntityKey, Entity>,
    /// Places of each text, the shown one first.
    by_text: HashMap<Arc<str>, Vec<Place>>,
    entered: u64,
    /// Grows with each entity that comes, goes or changes: places that were found are good for as long as it stays.
    changes: u64,
    derived: Derived,
    regions: HashMap<u64, Looks>,
    reading: u64,
}

/// When values were acquired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acquired {
    pub(super) utc_ns: u64,
    /// By the clock that timed it.
    pub(super) stamp_ns: u64,
}

/// What a reading says of an entity.
pub(super) struct News<'a> {
    pub(super) key: EntityKey,
    pub(super) entity: &'a Entity,
    /// First seen, or seen with other series than before.
    pub(super) is_new: bool,
    /// Acquired at another time than the row before.
    pub(super) has_moved: bool,
}

impl Entities {
    /// All, in the order of their regions.
    pub fn iter(&self) -> impl Iterator<Item = (&EntityKey, &Entity)> {
        self.by_key.iter()
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, key: &EntityKey) -> Option<&Entity> {
        self.by_key.get(key)
    }

    /// Number of series that are shown.
    #[must_use]
    pub fn series(&self) -> usize {
        self.by_text.len()
    }

    /// Where a series is, by its text.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<(EntityKey, usize)> {
        self.by_text.get(text)?.first().map(|place| (place.key, place.at))
    }

    /// What [`Entities::find`] has said holds while this number stays.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What a session's last reading had, without labels of the host.
    pub(crate) fn of(session: &Session) -> Self {
        let mut entities = Self::default();
        let labels = BTreeMap::new();
        let never = |_| Acquired { utc_ns: 0, stamp_ns: 0 };
        session.frames().for_each(|frame| entities.take(&frame, &labels, never, &mut |_| {}));
        entities
    }

    /// The clock was set: what is there now was acquired by so much earlier or later than it was said to be.
    pub(super) fn shift(&mut self, by_ns: i64) {
        self.by_key.values_mut().for_each(|entity| entity.time_ns = entity.time_ns.saturating_add_signed(by_ns));
    }

    /// A region is there in this reading, which looks into it or leaves it alone.
    fn enter(&mut self, region: u64, is_read: bool) {
        let looks = self.regions.entry(region).or_default();
        looks.present = self.reading;
        looks.readings += u64::from(is_read);
    }

    pub(super) fn begin(&mut self, boot: Option<[u8; 16]>) {
        self.reading += 1;
        self.derived.begin(boot);
    }

    /// A region is there, and was not read.
    pub(super) fn rest(&mut self, frame: &Frame<'_>) {
        self.enter(frame.entry().identity.word(), false);
        if let Some(schema) = frame.schema() {
            self.derived.region(frame.entry(), schema);
        }
    }

    /// Takes a region's values. `acquired` says when values were acquired, from what the host says of it. Entities of which a block is missing stay as they were.
    pub(super) fn take(
        &mut self,
        frame: &Frame<'_>,
        common: &BTreeMap<String, String>,
        acquired: impl Fn(Option<u64>) -> Acquired,
        tell: &mut impl FnMut(News<'_>),
    ) {
        let entry = frame.entry();
        let region = entry.identity.word();
        self.enter(region, true);
        let Some(schema) = frame.schema() else { return };
        let mut samples = Vec::new();
        frame.decode(|sample| samples.push(sample));
        let mut derived = std::mem::take(&mut self.derived);
        let sums = derived.region(entry, schema);
        let same = |a: &Sample<'_>, b: &Sample<'_>| std::ptr::eq(a.group, b.group) && row_of(a) == row_of(b);
        for samples in samples.chunk_by(same) {
            let group = group_number(schema, samples[0].group);
            let fate = sums.take(group as usize, samples);
            let kept = if fate == Fate::Partly { sums.kept(group as usize, samples) } else { Vec::new() };
            let samples = if fate == Fate::Partly { &kept } else { samples };
            if fate != Fate::Replaced {
                let key = EntityKey { region, group, row: row_of(&samples[0]) };
                let row = |row: &mut Vec<u64>| fill(samples, row);
                let series = || describe(entry, common, samples);
                self.take_one(key, &entry.name, samples.len(), series, row, acquired(samples[0].time_ns), tell);
            }
        }
        sums.finish(|sum| {
            let key = EntityKey { region, group: SUMS | sum.set, row: sum.row };
            let row = |row: &mut Vec<u64>| {
                row.clear();
                row.extend(sum.words);
            };
            let series = || describe_sum(entry, common, &sum);
            self.take_one(key, &entry.name, sum.metrics.len(), series, row, acquired(sum.time_ns), tell);
        });
        self.derived = derived;
    }

    /// Takes the host's boot time, which comes with the relation of the clocks.
    pub(super) fn boot(
        &mut self,
        boot_ns: u64,
        now_ns: u64,
        common: &BTreeMap<String, String>,
        tell: &mut impl FnMut(News<'_>),
    ) {
        self.enter(OWN_KEY.region, true);
        #[allow(clippy::cast_precision_loss)] // seconds
        let exact_s = boot_ns as f64 / 1e9;
        let shown = self.by_key.get(&OWN_KEY).and_then(|entity| entity.row.first()).map(|word| f64::from_bits(*word));
        let boot_s =
            shown.filter(|shown| (shown - exact_s).abs() <= BOOT_TIME_SLACK_S).unwrap_or_else(|| exact_s.round());
        // Once a second is often enough for what does not move.
        let acquired = Acquired { utc_ns: now_ns, stamp_ns: now_ns / 1_000_000_000 };
        let row = |row: &mut Vec<u64>| {
            row.clear();
            row.push(boot_s.to_bits());
        };
        let series = || vec![boot_series(common)];
        self.take_one(OWN_KEY, OWN_REGION, 1, series, row, acquired, tell);
    }

    #[allow(clippy::too_many_arguments)] // an entity's parts
    fn take_one(
        &mut self,
        key: EntityKey,
        region: &str,
        count: usize,
        series: impl FnOnce() -> Vec<Series>,
        row: impl FnOnce(&mut Vec<u64>),
        acquired: Acquired,
        tell: &mut impl FnMut(News<'_>),
    ) {
        // More than before: the first look at it missed a block.
        let is_new = self.by_key.get(&key).is_none_or(|entity| count > entity.series.len());
        if is_new {
            self.forget(key);
            self.by_key.insert(key, Entity::new(series().into(), region));
            self.index(key);
        }
        let reading = self.regions.get(&key.region).map_or(0, |looks| looks.readings);
        let Some(entity) = self.by_key.get_mut(&key).filter(|entity| count == entity.series.len()) else { return };
        let has_moved = is_new || entity.stamp_ns != acquired.stamp_ns;
        row(&mut entity.row);
        entity.seen = reading;
        if has_moved {
            (entity.time_ns, entity.stamp_ns) = (acquired.utc_ns, acquired.stamp_ns);
        }
        tell(News { key, entity, is_new, has_moved });
    }

    /// Enters an entity's series by their texts, and hides those that are not the best of theirs.
    fn index(&mut self, key: EntityKey) {
        self.entered += 1;
        self.changes += 1;
        let Some(entity) = self.by_key.get(&key) else { return };
        let (texts, series) = (entity.texts.clone(), entity.series.clone());
        let region = entity.region.clone();
        for (at, (text, series)) in texts.iter().zip(series.iter()).enumerate() {
            let place = Place { rank: rank(series.acquisition, &region), entered: Reverse(self.entered), key, at };
            let places = self.by_text.entry(text.clone()).or_insert_with(|| Vec::with_capacity(1));
            places.push(place);
            places.sort_unstable();
            show_first(&mut self.by_key, places);
        }
    }

    /// Takes an entity out.
    fn forget(&mut self, key: EntityKey) {
        let Some(entity) = self.by_key.remove(&key) else { return };
        self.changes += 1;
        for text in entity.texts.iter() {
            let Some(places) = self.by_text.get_mut(text) else { continue };
            places.retain(|place| place.key != key);
            if places.is_empty() {
                self.by_text.remove(text);
            } else {
                show_first(&mut self.by_key, places);
            }
        }
    }

    /// Ends a reading: what is over goes, and is told.
    pub(super) fn end(&mut self, mut gone: impl FnMut(EntityKey)) {
        let reading = self.reading;
        self.regions.retain(|_, looks| looks.present == reading);
        let regions = &self.regions;
        let stays = |key: &EntityKey, entity: &Entity| {
            regions.get(&key.region).is_some_and(|looks| looks.readings - entity.seen <= PATIENCE_READINGS)
        };
        let over: Vec<EntityKey> =
            self.by_key.iter().filter(|(key, entity)| !stays(key, entity)).map(|(key, _)| *key).collect();
        for key in over {
            self.forget(key);
            gone(key);
        }
    }
}

fn show_first(entities: &mut BTreeMap<EntityKey, Entity>, places: &[Place]) {
    for (number, place) in places.iter().enumerate() {
        if let Some(entity) = entities.get_mut(&place.key) {
            entity.hidden[place.at] = number > 0;
        }
    }
}

fn describe_sum(entry: &RegionEntry, common: &BTreeMap<String, String>, sum: &Sum<'_>) -> Vec<Series> {
    let series = |(at, metric): (usize, &crate::derive::Summed)| Series {
        name: metric.name.as_str().into(),
        labels: Labels::from(&labels_of(entry, common, sum.row_labels.iter().cloned().chain(metric.labels.clone()))),
        metric: metric.metric,
        unit: metric.unit.as_str().into(),
        help: metric.help.as_str().into(),
        scale: metric.scale,
        resolution_ns: metric.resolution_ns,
        acquisition: metric.acquisition,
        form: if metric.signed { Form::Signed } else { Form::Unsigned },
        at,
    };
    sum.metrics.iter().enumerate().map(series).collect()
}

fn boot_series(common: &BTreeMap<String, String>) -> Series {
    Series {
        name: BOOT_TIME.into(),
        labels: common.into(),
        metric: Metric::Gauge,
        unit: "seconds".into(),
        help: BOOT_TIME_HELP.into(),
        scale: 1.0,
        resolution_ns: 1_000_000_000,
        acquisition: Acquisition::Computed,
        form: Form::Float,
        at: 0,
    }
}

fn row_of(sample: &Sample<'_>) -> Option<(u32, u32)> {
    sample.row.as_ref().map(|row| (u32::try_from(row.number).unwrap_or(u32::MAX), row.generation))
}
