// SPDX-License-Identifier: Apache-2.0
//! The entities of a host with their last rows.
//!
//! A series is there once: where two entities have one of the same name and labels, as a metric that is both computed and sampled, the better one is shown
//! ([`Rivals`]) and the other one steps in when it is gone. What the agent vouches for is never hidden by what a program says, nor a program's by a newcomer's.

mod entity;
mod judged;
mod said;
mod take;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onlooker_checks::{Now, Rules};
use onlooker_reader::{Frame, Session};
use onlooker_region::SchemaId;
use onlooker_region::control::RegionEntry;
use onlooker_series::PATIENCE_READINGS;
use onlooker_series::derive::Derived;
use onlooker_series::in_order::InOrder;
use onlooker_series::rank::{Rank, Rivals};
use onlooker_series::series::EntityKey;

pub use entity::Entity;
use entity::Named;
use judged::{Failed, Judged};
use said::Said;
pub(super) use take::Room;

use super::quota::{Cost, Ledger, Quota, replace};

/// Region of what the controller itself knows of a host.
const OWN_REGION: &str = "controller";
const OWN_KEY: EntityKey = EntityKey { region: EntityKey::OWN_REGION, group: EntityKey::SUMS, row: None };
/// The boot time is worked out from two clocks, neither of them steady to the last: what is shown stays while it is no further from the truth than this.
const BOOT_TIME_SLACK_S: f64 = 1.0;

/// Where a series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    key: EntityKey,
    at: usize,
}

/// How often a region was there.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    /// What its entities are described by.
    schema: Option<SchemaId>,
    /// Number of the host's reading that had it first.
    since: u64,
    /// Number of the host's last reading that had it.
    present: u64,
    /// Readings that looked into it.
    readings: u64,
    /// Entities that are there of it.
    entities: u64,
}

/// All of a host.
#[derive(Default)]
pub struct Entities {
    by_key: InOrder<EntityKey, Entity>,
    /// Their rows, in the order in which they came, with gaps where one has gone: what a reading asks for one behind the
    /// other lies so.
    words: Vec<u64>,
    /// Words of gaps.
    gaps: usize,
    /// By the text that they have in common.
    by_text: HashMap<Arc<str>, Rivals<Place>>,
    entered: u64,
    /// Grows with each entity that comes, goes or changes: places that were found are good for as long as it stays.
    changes: u64,
    /// None while a region is being taken, and before the first.
    derived: Option<Box<Derived>>,
    regions: InOrder<u64, Looks>,
    reading: u64,
    ledger: Ledger,
    rules: Arc<Rules>,
    judged: Judged,
    /// Number of the reading of the region that is being taken.
    looks: u64,
    /// Entities that were there of the regions that this reading has looked into, and those of them that it had.
    expected: u64,
    had: u64,
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
    pub(super) row: &'a [u64],
    /// When its row was acquired, UTC ns.
    pub(super) time_ns: u64,
    /// First seen, or seen with other series than before.
    pub(super) is_new: bool,
    /// Acquired at another time than the row before.
    pub(super) has_moved: bool,
    /// Its words differ from those of the row before.
    pub(super) is_other: bool,
    /// Its row may be stored.
    pub(super) may_log: bool,
}

/// An entity as a reading has it.
struct Found<'a> {
    key: EntityKey,
    region: &'a str,
    /// Of the region.
    labels: &'a [(String, String)],
    series: usize,
    /// What tells its texts from others.
    texts: u64,
    /// The same of its names, where a block is missing; 0: none is.
    which: u64,
    acquired: Acquired,
}

impl<'a> Found<'a> {
    fn new(entry: &'a RegionEntry, key: EntityKey, series: usize, acquired: Acquired) -> Self {
        Self { key, region: &entry.name, labels: &entry.labels, series, texts: 0, which: 0, acquired }
    }
}

impl Entities {
    /// None, and room for so much.
    pub(super) fn within(quota: Quota) -> Self {
        Self { ledger: Ledger::new(quota), ..Self::default() }
    }

    /// Their samples are judged by these rules.
    pub(super) fn judged_by(self, rules: Arc<Rules>) -> Self {
        Self { rules, ..self }
    }

    /// What they cost, and what there was no room for.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// All, in the order of their regions.
    pub fn iter(&self) -> impl Iterator<Item = (&EntityKey, &Entity)> {
        self.by_key.iter()
    }

    /// Those of a region, by its identity word.
    pub fn of_region(&self, region: u64) -> impl Iterator<Item = (&EntityKey, &Entity)> {
        of_region(&self.by_key, region)
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, key: &EntityKey) -> Option<&Entity> {
        self.by_key.get(key)
    }

    /// The words of an entity's series.
    #[must_use]
    pub fn row(&self, entity: &Entity) -> &[u64] {
        &self.words[entity.at..][..entity.width]
    }

    /// Number of series that are shown.
    #[must_use]
    pub fn series(&self) -> usize {
        self.by_text.len()
    }

    /// Where a series is, by its text.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<(EntityKey, usize)> {
        self.by_text.get(text)?.iter().next().map(|place| (place.key, place.at))
    }

    /// What [`Entities::find`] has said holds while this number stays.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What a session's last reading had, without labels of the host.
    pub(crate) fn of(session: &Session, quota: Quota) -> Self {
        let (mut entities, mut room) = (Self::within(quota), Room::default());
        let labels = BTreeMap::new();
        let never = |_| Acquired { utc_ns: 0, stamp_ns: 0 };
        for frame in session.frames() {
            entities.take(&frame, &labels, never, &mut room, &mut |_| {});
        }
        entities
    }

    /// The clock was set: what is there now was acquired by so much earlier or later than it was said to be.
    pub(super) fn shift(&mut self, by_ns: i64) {
        self.by_key.values_mut().for_each(|entity| entity.time_ns = entity.time_ns.saturating_add_signed(by_ns));
    }

    /// A region is there in this reading, which looks into it or leaves it alone. Returns the number of its entities;
    /// `None`: they are of another schema. An identity has one, so somebody lies: what is known of it goes first.
    fn enter(&mut self, region: u64, schema: Option<SchemaId>, is_read: bool) -> Option<u64> {
        let new = Looks { since: self.reading, ..Looks::default() };
        let at = self.regions.find(&region).unwrap_or_else(|| self.regions.insert(region, new));
        let looks = self.regions.at_mut(at);
        looks.present = self.reading;
        looks.readings += u64::from(is_read);
        self.looks = looks.readings;
        self.expected += if is_read { looks.entities } else { 0 };
        if looks.entities == 0 {
            looks.schema = schema;
        }
        (looks.schema == schema).then_some(looks.entities)
    }

    /// Begins a reading that ended at `now_ns` of the steady clock.
    pub(super) fn begin(&mut self, boot: Option<[u8; 16]>, now_ns: u64, now: Now) {
        self.judged.now = now;
        self.reading += 1;
        (self.expected, self.had) = (0, 0);
        self.by_key.rewind();
        self.ledger.begin(now_ns);
        self.derived.get_or_insert_default().begin(boot);
    }

    /// A region is there, and was not read.
    pub(super) fn rest(&mut self, frame: &Frame<'_>) {
        self.enter(frame.entry().identity.word(), Some(frame.entry().schema), false);
        if let Some(plan) = frame.plan() {
            self.derived.get_or_insert_default().region(frame.entry(), plan);
        }
    }

    /// Takes the host's boot time, which comes with the relation of the clocks.
    pub(super) fn boot(
        &mut self,
        boot_ns: u64,
        now_ns: u64,
        common: &BTreeMap<String, String>,
        tell: &mut impl FnMut(News<'_>),
    ) {
        self.enter(OWN_KEY.region, None, true);
        #[allow(clippy::cast_precision_loss)] // seconds
        let exact_s = boot_ns as f64 / 1e9;
        let shown = self.by_key.get(&OWN_KEY).map(|entity| f64::from_bits(self.words[entity.at]));
        let boot_s =
            shown.filter(|shown| (shown - exact_s).abs() <= BOOT_TIME_SLACK_S).unwrap_or_else(|| exact_s.round());
        // Once a second is often enough for what does not move.
        let acquired = Acquired { utc_ns: now_ns, stamp_ns: now_ns / 1_000_000_000 };
        self.take_own(OWN_KEY, acquired, &[boot_s.to_bits()], &Said::Boot, common, tell);
    }

    fn take_one(
        &mut self,
        found: &Found<'_>,
        common: &BTreeMap<String, String>,
        words: &[u64],
        said: &Said<'_, '_>,
        tell: &mut impl FnMut(News<'_>),
    ) {
        if self.renew(found, words, tell) {
            return;
        }
        let (key, known) = (found.key, self.by_key.get(&found.key));
        let old = known.map(|entity| entity.named.cost).unwrap_or_default();
        let Some(cost) = self.admit(found, words.len(), &old, said) else {
            // What there is of it has a track, until it goes: there, rows are missing from now on.
            if let Some(entity) = self.by_key.get(&key) {
                let time_ns = found.acquired.utc_ns;
                let (is_new, has_moved, is_other, may_log) = (false, true, true, false);
                let row = self.row(entity);
                tell(News { key, entity, row, time_ns, is_new, has_moved, is_other, may_log });
            }
            return;
        };
        self.forget(key);
        let at = self.words.len();
        let entity = Entity { at, ..Entity::new(said.described(), found, common, cost, &self.rules) };
        self.judged.enter(key, &entity, common);
        self.words.resize(at + entity.width, 0);
        self.by_key.insert(key, entity);
        self.index(key);
        self.renew(found, words, tell);
    }

    /// Takes the words of an entity that is known. False: it is not, or is to be described anew: its texts are others,
    /// or it has more than before, since the first look at it missed a block. Of one that has less, or as much but
    /// something else, since another block is missing, everything stays.
    fn renew(&mut self, found: &Found<'_>, words: &[u64], tell: &mut impl FnMut(News<'_>)) -> bool {
        let Found { key, acquired, series, .. } = *found;
        let Some(entity) = self.by_key.find_mut(&key) else { return false };
        if series != entity.series {
            return series < entity.series;
        }
        if found.which != entity.which {
            return true;
        }
        if found.texts != entity.texts_mark {
            return false;
        }
        let is_new = entity.seen == 0;
        // What it is stored as has room for so many.
        if words.len() != entity.width {
            return true;
        }
        let has_moved = is_new || entity.stamp_ns != acquired.stamp_ns;
        let may_log = has_moved && (key.is_own() || self.ledger.may_log(key.region));
        let row = &mut self.words[entity.at..][..entity.width];
        let Judged { now, failed, held, .. } = &mut self.judged;
        if let Some(checked) = &mut entity.checked {
            let named = &entity.named;
            if has_moved {
                let before = (!is_new).then_some(&*row);
                checked.judge(before, words, acquired.utc_ns, |failure, place| {
                    failed.push(Failed::of(named, failure));
                    held.push(place);
                });
            } else {
                checked.miss(row, entity.time_ns, *now, false, |failure| failed.push(Failed::of(named, failure)));
            }
        }
        let (is_other, bytes) = replace(row, words);
        held.drain(..).for_each(|(at, word)| row[at] = word);
        if may_log && !key.is_own() {
            self.ledger.logged(key.region, bytes);
        }
        entity.seen = self.looks;
        self.had += 1;
        if has_moved {
            (entity.time_ns, entity.stamp_ns) = (acquired.utc_ns, acquired.stamp_ns);
        }
        let time_ns = entity.time_ns;
        tell(News { key, entity, row, time_ns, is_new, has_moved, is_other, may_log });
        true
    }

    /// What an entity costs from now on, if there is room for it in the place of what it was. The controller's own is not the host's to pay.
    fn admit(&mut self, found: &Found<'_>, words: usize, old: &Cost, said: &Said<'_, '_>) -> Option<Cost> {
        if found.key.is_own() {
            return Some(Cost::default());
        }
        self.ledger.admit(found.key.region, old, Cost::of(found.series, words), || said.text_bytes())
    }

    /// Enters an entity's series by their texts, and hides those that are not the best of theirs.
    fn index(&mut self, key: EntityKey) {
        self.entered += 1;
        self.changes += 1;
        self.expected += 1;
        let Some(entity) = self.by_key.get(&key) else { return };
        let (texts, series) = (entity.named.texts.clone(), entity.named.series.clone());
        let looks = self.regions.get_mut(&key.region);
        let since = looks.map_or(self.reading, |looks| {
            looks.entities += 1;
            looks.since
        });
        for (at, (text, series)) in texts.iter().zip(series.iter()).enumerate() {
            let rank = Rank::of(&key, series.acquisition, since);
            let rivals = self.by_text.entry(text.clone()).or_default();
            rivals.enter(rank, self.entered, Place { key, at });
            show_first(&mut self.by_key, rivals);
        }
    }

    /// Takes an entity out.
    fn forget(&mut self, key: EntityKey) {
        let Some(entity) = self.by_key.remove(&key) else { return };
        self.gaps += entity.width;
        if self.gaps > self.words.len() / 2 {
            self.close_gaps();
        }
        self.ledger.release(key.region, &entity.named.cost);
        self.changes += 1;
        if let Some(looks) = self.regions.get_mut(&key.region) {
            looks.entities -= 1;
        }
        for text in entity.named.texts.iter() {
            let Some(rivals) = self.by_text.get_mut(text) else { continue };
            if rivals.keep(|place| place.key != key) {
                show_first(&mut self.by_key, rivals);
            } else {
                self.by_text.remove(text);
            }
        }
    }

    fn close_gaps(&mut self) {
        let before = std::mem::take(&mut self.words);
        for entity in self.by_key.values_mut() {
            let row = &before[entity.at..][..entity.width];
            entity.at = self.words.len();
            self.words.extend_from_slice(row);
        }
        self.gaps = 0;
    }

    /// Ends a reading: what is over goes, and is told.
    pub(super) fn end(&mut self, mut gone: impl FnMut(EntityKey)) {
        let (reading, regions) = (self.reading, self.regions.len());
        self.regions.retain(|_, looks| looks.present == reading);
        let (has_lost, regions) = (regions > self.regions.len(), &self.regions);
        self.ledger.end(|region| regions.get(&region).is_some());
        if !has_lost && self.had >= self.expected {
            return;
        }
        let stays = |key: &EntityKey, entity: &Entity| {
            regions.get(&key.region).is_some_and(|looks| looks.readings - entity.seen <= PATIENCE_READINGS)
        };
        let over: Vec<EntityKey> =
            self.by_key.iter().filter(|(key, entity)| !stays(key, entity)).map(|(key, _)| *key).collect();
        for key in over {
            self.miss(key);
            self.forget(key);
            gone(key);
        }
    }
}

fn of_region(by_key: &InOrder<EntityKey, Entity>, region: u64) -> impl Iterator<Item = (&EntityKey, &Entity)> {
    let first = EntityKey { region, group: 0, row: None };
    by_key.range(first..).take_while(move |(key, _)| key.region == region)
}

fn show_first(entities: &mut InOrder<EntityKey, Entity>, rivals: &Rivals<Place>) {
    for (number, place) in rivals.iter().enumerate() {
        if let Some(entity) = entities.get_mut(&place.key) {
            entity.named.hidden[place.at] = number > 0;
        }
    }
}

#[cfg(test)]
mod tests;
