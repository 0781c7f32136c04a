// SPDX-License-Identifier: Apache-2.0
//! The entities of a host with their last rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlooker_region::columns::Sample;
use onlooker_region::control::RegionEntry;
use onlooker_transport::reader::{Frame, Session};

use crate::series::{EntityKey, Series, describe, fill, group_number};

/// A row that does not come any more is shown so long, in readings: a block that is torn now and then must not make it flicker.
const PATIENCE_READINGS: u64 = 16;

/// An entity's last row.
#[derive(Clone, Debug)]
pub struct Entity {
    /// Its series.
    pub series: Arc<[Series]>,
    /// Their words.
    pub row: Vec<u64>,
    /// When the values were acquired, UTC ns.
    pub time_ns: u64,
    /// The same as the host's clock had it: what tells a new row from one that was there before, whatever becomes of our own clock.
    stamp_ns: u64,
    /// Name of its region.
    pub region: String,
    /// Number of the reading that had it last.
    pub seen: u64,
}

/// All of a host.
#[derive(Debug, Default)]
pub struct Entities {
    by_key: BTreeMap<EntityKey, Entity>,
    /// Regions of this reading.
    present: Vec<u64>,
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

    /// Number of series.
    #[must_use]
    pub fn series(&self) -> usize {
        self.by_key.values().map(|entity| entity.series.len()).sum()
    }

    /// Where a series is, by its text.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<(EntityKey, usize)> {
        let name = text.split('{').next().unwrap_or_default();
        self.by_key.iter().find_map(|(key, entity)| {
            let at = entity.series.iter().position(|series| series.name == name && series.text() == text)?;
            Some((*key, at))
        })
    }

    /// What a session's last reading had, without labels of the host.
    pub(crate) fn of(session: &Session) -> Self {
        let mut entities = Self::default();
        let labels = BTreeMap::new();
        session
            .frames()
            .for_each(|frame| entities.take(&frame, &labels, |_| Acquired { utc_ns: 0, stamp_ns: 0 }, |_| {}));
        entities
    }

    pub(super) fn begin(&mut self) {
        self.reading += 1;
        self.present.clear();
    }

    /// Takes a region's values. `acquired` says when a sample was acquired. Entities of which a block is missing stay as they were.
    pub(super) fn take(
        &mut self,
        frame: &Frame<'_>,
        common: &BTreeMap<String, String>,
        mut acquired: impl FnMut(&Sample<'_>) -> Acquired,
        mut tell: impl FnMut(News<'_>),
    ) {
        let entry = frame.entry();
        let region = entry.identity.word();
        self.present.push(region);
        let Some(schema) = frame.schema() else { return };
        let mut samples = Vec::new();
        frame.decode(|sample| samples.push(sample));
        let same = |a: &Sample<'_>, b: &Sample<'_>| std::ptr::eq(a.group, b.group) && row_of(a) == row_of(b);
        for samples in samples.chunk_by(same) {
            let key = EntityKey { region, group: group_number(schema, samples[0].group), row: row_of(&samples[0]) };
            let acquired = acquired(&samples[0]);
            self.take_one(key, entry, common, samples, acquired, &mut tell);
        }
    }

    fn take_one(
        &mut self,
        key: EntityKey,
        entry: &RegionEntry,
        common: &BTreeMap<String, String>,
        samples: &[Sample<'_>],
        acquired: Acquired,
        tell: &mut impl FnMut(News<'_>),
    ) {
        let reading = self.reading;
        let mut is_new = false;
        let entity = self.by_key.entry(key).or_insert_with(|| {
            is_new = true;
            let series = describe(entry, common, samples).into();
            Entity { series, row: Vec::new(), time_ns: 0, stamp_ns: 0, region: entry.name.clone(), seen: reading }
        });
        if samples.len() > entity.series.len() {
            // The first look at it missed a block.
            is_new = true;
            entity.series = describe(entry, common, samples).into();
        }
        if samples.len() < entity.series.len() {
            return;
        }
        let has_moved = is_new || entity.stamp_ns != acquired.stamp_ns;
        fill(samples, &mut entity.row);
        entity.seen = reading;
        if has_moved {
            (entity.time_ns, entity.stamp_ns) = (acquired.utc_ns, acquired.stamp_ns);
        }
        tell(News { key, entity, is_new, has_moved });
    }

    /// Ends a reading: what is over goes, and is told.
    pub(super) fn end(&mut self, mut gone: impl FnMut(EntityKey)) {
        let (present, reading) = (&self.present, self.reading);
        self.by_key.retain(|key, entity| {
            let stays = present.contains(&key.region) && reading - entity.seen <= PATIENCE_READINGS;
            if !stays {
                gone(*key);
            }
            stays
        });
    }
}

fn row_of(sample: &Sample<'_>) -> Option<(u32, u32)> {
    sample.row.as_ref().map(|row| (u32::try_from(row.number).unwrap_or(u32::MAX), row.generation))
}
