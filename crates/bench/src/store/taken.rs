// SPDX-License-Identifier: Apache-2.0
//! What was read of hosts, entity by entity as the controller has them, until it is made rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlooker_framestore::layout::{ContentId, Layout, Part};
use onlooker_reader::clock::{Relation, steady_ns};
use onlooker_reader::{Frame, Session};
use onlooker_region::control::RegionEntry;
use onlooker_series::derive::{Derived, Given, row_of};
use onlooker_series::series::{EntityKey, Form, Series, describe_own, fill};

use super::recording::{Labels, Recording, Track};

/// A group of a region, a set of its sums, or one row of either, with all its rows.
struct Entity {
    region: String,
    labels: Labels,
    is_agents: bool,
    line: Labels,
    series: Vec<Series>,
    /// When its last row was acquired, by the clock that timed it.
    stamp_ns: u64,
    /// Number of the reading, and when it was acquired, UTC ns.
    rows: Vec<(u32, u64)>,
    words: Vec<u64>,
}

impl Entity {
    fn new(entry: &RegionEntry, line: Labels, series: Vec<Series>) -> Self {
        let (region, labels, is_agents) = (entry.name.clone(), entry.labels.clone(), entry.identity.is_agents());
        Self { region, labels, is_agents, line, series, stamp_ns: 0, rows: Vec::new(), words: Vec::new() }
    }

    fn width(&self) -> usize {
        self.series.iter().map(|series| series.form.words()).sum()
    }

    /// Its row of a reading, if that had a new one. `cursor` is where the last look ended.
    fn row(&self, reading: u32, cursor: &mut usize) -> Option<(u64, &[u64])> {
        let (_, time_ns) = self.rows.get(*cursor).filter(|row| row.0 == reading)?;
        *cursor += 1;
        Some((*time_ns, &self.words[(*cursor - 1) * self.width()..][..self.width()]))
    }
}

/// All readings of one host.
#[derive(Default)]
pub(crate) struct Taken {
    entities: BTreeMap<EntityKey, Entity>,
    /// When each reading ended, UTC ns; 0: there was none.
    ended_ns: Vec<u64>,
    derived: Derived,
}

impl Taken {
    /// Takes a reading; the relation of the clocks becomes better where it can.
    pub(crate) fn take(&mut self, reading: u32, session: &Session, relation: &mut Relation) {
        let mut derived = std::mem::take(&mut self.derived);
        derived.begin(session.directory().last_header().map(|header| header.boot_id));
        let (first, now_ns) = (*relation, steady_ns());
        let utc_ns = |steady_ns| u64::try_from(first.own_utc_ns(steady_ns)).unwrap_or(0);
        for frame in session.frames() {
            let (entry, Some(plan)) = (frame.entry(), frame.plan()) else { continue };
            if frame.is_resting() {
                derived.region(entry, plan);
                continue;
            }
            frame.sharpen(relation, utc_ns, now_ns);
            let (mut samples, mut words) = (Vec::new(), Vec::new());
            frame.decode(|sample| samples.push(sample));
            let relation = &*relation;
            derived.read(entry, plan, &samples, |given| match given {
                Given::Values { group, samples, .. } => {
                    let key = EntityKey { region: entry.identity.word(), group, row: row_of(&samples[0]) };
                    let times = acquired(samples[0].time_ns, &frame, relation);
                    let width: usize = samples.iter().map(|sample| Form::of(&sample.value).words()).sum();
                    let made = || Entity::new(entry, samples[0].row_labels(), describe_own(entry, samples));
                    if let Some(row) = self.admit(key, reading, times, width, made) {
                        fill(samples, &mut words);
                        row.extend(&words);
                    }
                }
                Given::Sum(sum) => {
                    let key =
                        EntityKey { region: entry.identity.word(), group: EntityKey::SUMS | sum.set, row: sum.row };
                    let times = acquired(sum.time_ns, &frame, relation);
                    let series = || sum.metrics.iter().zip(0..).map(|(metric, at)| metric.series(at)).collect();
                    let made = || Entity::new(entry, sum.row_labels.to_vec(), series());
                    if let Some(row) = self.admit(key, reading, times, sum.words.len(), made) {
                        row.extend(sum.words);
                    }
                }
            });
        }
        self.derived = derived;
        self.ended_ns.resize(reading as usize + 1, 0);
        self.ended_ns[reading as usize] = utc_ns(now_ns);
    }

    /// Where the words of a row go that is new; `None` for one that was there before, or lacks a block.
    fn admit(
        &mut self,
        key: EntityKey,
        reading: u32,
        (stamp_ns, time_ns): (u64, u64),
        width: usize,
        made: impl FnOnce() -> Entity,
    ) -> Option<&mut Vec<u64>> {
        // More than before: the first look at it missed a block.
        if self.entities.get(&key).is_none_or(|known| known.width() < width) {
            self.entities.insert(key, made());
        }
        let entity = self.entities.get_mut(&key)?;
        if entity.width() != width || entity.stamp_ns == stamp_ns {
            return None;
        }
        entity.stamp_ns = stamp_ns;
        entity.rows.push((reading, time_ns));
        Some(&mut entity.words)
    }
}

/// When values were acquired: by the clock that timed them, and UTC; ns.
fn acquired(host_ns: Option<u64>, frame: &Frame<'_>, relation: &Relation) -> (u64, u64) {
    let (asked_ns, answered_ns) = frame.times_ns();
    let middle_ns = asked_ns / 2 + answered_ns / 2;
    let utc_ns = host_ns.map_or(relation.own_utc_ns(middle_ns), |host_ns| relation.utc_ns(host_ns));
    (host_ns.unwrap_or(middle_ns), u64::try_from(utc_ns).unwrap_or(0))
}

/// A track in the making: its entities, fixed ones by region and group, lines of a table as they came.
struct Made<'a> {
    track: u32,
    is_table: bool,
    entities: Vec<&'a Entity>,
    cursors: Vec<usize>,
    row: Vec<u64>,
}

/// Makes rows of what was taken.
pub(crate) fn assemble(interval_ns: u64, readings: u32, hosts: Vec<Taken>) -> Recording {
    let mut recording = Recording::new(interval_ns);
    let mut made: Vec<Vec<Made<'_>>> = Vec::new();
    for (host, taken) in (0u32..).zip(&hosts) {
        made.push(Vec::new());
        for (key, mut members) in tracks_of(taken) {
            if key.table.is_none() {
                members.sort_by(|(a, of_a), (b, of_b)| (&a.region, of_a).cmp(&(&b.region, of_b)));
            }
            let is_table = key.table.is_some();
            // All lines of a table have the columns of its first.
            let of_layout = if is_table { &members[..1] } else { &members[..] };
            let part = |(entity, group): &(&Entity, u32)| {
                let part = Part { region: entity.region.clone(), group: *group, series: entity.series.clone() };
                (part.content().0, Arc::new(part))
            };
            let parts: Vec<(ContentId, Arc<Part>)> = of_layout.iter().map(part).collect();
            let layout = Arc::new(Layout::new(parts, is_table));
            let lines = if is_table {
                members.iter().map(|(entity, _)| entity.line.clone()).collect()
            } else {
                vec![Labels::new()]
            };
            let (track, width) = (u32::try_from(recording.tracks.len()).unwrap_or(u32::MAX), layout.kinds().len());
            let entities: Vec<_> = members.into_iter().map(|(entity, _)| entity).collect();
            let (cursors, row) = (vec![0; entities.len()], vec![0; width]);
            recording.tracks.push(Track { host, source: key.source, labels: key.labels, layout, lines: lines.into() });
            made[host as usize].push(Made { track, is_table, entities, cursors, row });
        }
    }
    for reading in 0..readings {
        for (taken, made) in hosts.iter().zip(&mut made) {
            let ended_ns = taken.ended_ns.get(reading as usize).copied().unwrap_or(0);
            made.iter_mut().for_each(|made| made.give(reading, ended_ns, &mut recording));
        }
    }
    recording
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct TrackKey {
    /// 0: the host's agent.
    source: u64,
    labels: Labels,
    /// Region and group.
    table: Option<(u64, u32)>,
}

fn tracks_of(taken: &Taken) -> BTreeMap<TrackKey, Vec<(&Entity, u32)>> {
    let mut tracks: BTreeMap<TrackKey, Vec<(&Entity, u32)>> = BTreeMap::new();
    for (key, entity) in taken.entities.iter().filter(|(_, entity)| entity.width() > 0 && !entity.rows.is_empty()) {
        let source = if entity.is_agents { 0 } else { key.region };
        let table = key.row.map(|_| (key.region, key.group));
        tracks.entry(TrackKey { source, labels: entity.labels.clone(), table }).or_default().push((entity, key.group));
    }
    tracks
}

impl Made<'_> {
    /// Appends the rows of a reading: one with all that is there of a fixed track, of a table those that have changed.
    fn give(&mut self, reading: u32, ended_ns: u64, recording: &mut Recording) {
        let layout = recording.tracks[self.track as usize].layout.clone();
        let mut only_ns = None;
        for (at, (entity, cursor)) in self.entities.iter().zip(&mut self.cursors).enumerate() {
            let before = cursor.checked_sub(1).map(|before| &entity.words[before * entity.width()..][..entity.width()]);
            let Some((time_ns, words)) = entity.row(reading, cursor) else { continue };
            if self.is_table {
                if before != Some(words) && words.len() == self.row.len() {
                    let line = u32::try_from(at).unwrap_or(u32::MAX);
                    recording.push(reading, self.track, line, time_ns, words);
                }
                continue;
            }
            let placed = &layout.parts()[at];
            self.row[placed.at..][..words.len()].copy_from_slice(words);
            match placed.time {
                Some(word) => (self.row[word], only_ns) = (time_ns, Some(ended_ns)),
                None => only_ns = Some(time_ns),
            }
        }
        if let Some(time_ns) = only_ns {
            recording.push(reading, self.track, 0, time_ns, &self.row);
        }
    }
}
