// SPDX-License-Identifier: Apache-2.0
//! Takes what the engine reads into the fleet and the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onlooker_region::block::Identity;
use onlooker_region::columns::Sample;
use onlooker_region::schema::Acquisition;
use onlooker_store::{Appender, TrackId};
use onlooker_transport::clock::{Moment, Relation};
use onlooker_transport::reader::Frame;
use serde::{Deserialize, Serialize};

use super::{Entity, Fleet, Region, Shown, ShownGap};
use crate::keep::{Counters, Tracks};
use crate::series::{EntityKey, Series, kinds};
use crate::sink::{Gap, Reading, Sink, State};
use crate::target::Target;

/// The session's counters are copied so often, ns.
const COUNTERS_INTERVAL_NS: u64 = 1_000_000_000;
/// A gap that goes on is stored in pieces of this length, ns.
const MAX_GAP_PIECE_NS: u64 = 10_000_000_000;

/// What the store is told of a track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Name of the host.
    pub host: String,
    /// Name of the region.
    pub region: String,
    /// Which entity; another one has another track.
    pub entity: (u64, u32, Option<(u32, u32)>),
    /// What stands in its rows.
    pub series: Vec<Series>,
}

impl Meta {
    fn of(target: &Target, EntityKey { region, group, row }: EntityKey, entity: &Entity) -> Self {
        let series = entity.series.to_vec();
        Self { host: target.name.clone(), region: entity.region.clone(), entity: (region, group, row), series }
    }
}

enum Keep {
    Asked,
    Rows(TrackId, Appender),
}

/// The tracks of one host.
#[derive(Default)]
struct Kept {
    entities: HashMap<EntityKey, (u64, Keep)>,
    /// A gap that goes on: it is stored when it ends, or in pieces.
    gap: Option<ShownGap>,
}

/// The sink.
pub struct FleetSink {
    fleet: Arc<Fleet>,
    counters: Arc<Counters>,
    tracks: Tracks,
    kept: HashMap<String, Kept>,
    tags: HashMap<u64, (String, EntityKey)>,
    next_tag: u64,
}

impl FleetSink {
    /// Writes to `fleet` and to the store behind `tracks`.
    #[must_use]
    pub fn new(fleet: Arc<Fleet>, tracks: Tracks, counters: Arc<Counters>) -> Self {
        Self { fleet, counters, tracks, kept: HashMap::new(), tags: HashMap::new(), next_tag: 0 }
    }

    /// Takes the tracks that are ready by now.
    fn take_made(&mut self) {
        while let Some(made) = self.tracks.made() {
            let name = self.tags.remove(&made.tag);
            let keep = name.and_then(|(host, key)| self.kept.get_mut(&host)?.entities.get_mut(&key));
            match keep {
                Some((tag, keep)) if *tag == made.tag => *keep = Keep::Rows(made.track, made.appender),
                // The entity has gone meanwhile.
                _ => self.tracks.retire(vec![(made.track, made.appender)]),
            }
        }
    }
}

impl Sink for FleetSink {
    fn reading(&mut self, target: &Arc<Target>, reading: &Reading<'_>) {
        self.take_made();
        let host = self.fleet.enter(target);
        let mut shown = host.look();
        let shown = &mut *shown;
        shown.cycles += 1;
        shown.repeated = reading.repeated;
        let _ = shown.latency.record(reading.ended_ns - reading.due_ns);
        let _ = shown.lateness.record(reading.began_ns - reading.due_ns);
        if reading.ended_ns - shown.reads_at_ns >= COUNTERS_INTERVAL_NS {
            shown.reads.clone_from(reading.session.counters());
            shown.reads_at_ns = reading.ended_ns;
        }
        let common = common_labels(target);
        let now = Moment::now();
        if !self.kept.contains_key(&target.name) {
            self.kept.insert(target.name.clone(), Kept::default());
        }
        let Some(kept) = self.kept.get_mut(&target.name) else { return };
        if let Some(gap) = kept.gap.take() {
            store_gap(&self.tracks, kept, &gap);
        }
        shown.entities.begin();
        shown.regions.clear();
        for frame in reading.session.frames() {
            let relation = shown.relation.get_or_insert(*reading.relation);
            sharpen(relation, &frame, now);
            shown.regions.push(region(&frame));
            let relation = *relation;
            let utc_ns = |sample: &Sample<'_>| acquired_ns(sample, &frame, &relation);
            shown.entities.take(&frame, &common, utc_ns, |news| {
                if news.is_new {
                    if let Some((_, Keep::Rows(track, appender))) = kept.entities.remove(&news.key) {
                        self.tracks.retire(vec![(track, appender)]);
                    }
                    self.next_tag += 1;
                    if let Ok(meta) = serde_json::to_vec(&Meta::of(target, news.key, news.entity)) {
                        self.tracks.define(self.next_tag, kinds(&news.entity.series), meta);
                        self.tags.insert(self.next_tag, (target.name.clone(), news.key));
                        kept.entities.insert(news.key, (self.next_tag, Keep::Asked));
                    }
                } else if news.has_moved
                    && let Some((_, Keep::Rows(_, appender))) = kept.entities.get_mut(&news.key)
                    && appender.append(news.entity.time_ns, &news.entity.row).is_err()
                {
                    self.counters.refused_rows.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        shown.entities.end(|key| {
            if let Some((_, Keep::Rows(track, appender))) = kept.entities.remove(&key) {
                self.tracks.retire(vec![(track, appender)]);
            }
        });
        host.tell();
    }

    fn gap(&mut self, target: &Arc<Target>, gap: Gap) {
        let host = self.fleet.enter(target);
        let now = Moment::now();
        let utc_ns = |steady_ns: u64| now.utc_ns.saturating_sub(now.steady_ns.saturating_sub(steady_ns));
        let (from_ns, to_ns) = (utc_ns(gap.from_ns), utc_ns(gap.to_ns));
        let mut shown = host.look();
        *shown.gaps.entry(gap.reason).or_default() += gap.due_times;
        shown.late += if gap.reason == "late" { gap.due_times } else { 0 };
        // One that goes on grows: a dead host is one gap, not one for each due time.
        let next = ShownGap { from_ns, to_ns, reason: gap.reason };
        shown.last_gap = Some(joined(shown.last_gap.take(), &next, target));
        drop(shown);
        if let Some(kept) = self.kept.get_mut(&target.name) {
            let whole = joined(kept.gap.take(), &next, target);
            if whole.to_ns - whole.from_ns >= MAX_GAP_PIECE_NS {
                store_gap(&self.tracks, kept, &whole);
            } else {
                kept.gap = Some(whole);
            }
        }
        host.tell();
    }

    fn state(&mut self, target: &Arc<Target>, state: State) {
        let host = self.fleet.enter(target);
        let mut shown = host.look();
        if shown.state != state {
            shown.since_ns = Moment::now().utc_ns;
            shown.state = state;
            if matches!(shown.state, State::Reading(_)) {
                // Another boot, perhaps, or another clock.
                shown.relation = None;
            }
        }
        drop(shown);
        host.tell();
    }

    fn gone(&mut self, target: &Arc<Target>) {
        self.take_made();
        // Tracks that are still being made are retired when they come.
        self.tags.retain(|_, (host, _)| *host != target.name);
        if let Some(mut kept) = self.kept.remove(&target.name) {
            if let Some(gap) = kept.gap.take() {
                // Up to the last due time: from now on nobody asks, and silence is no gap.
                store_gap(&self.tracks, &kept, &gap);
            }
            let rows = kept.entities.into_values().filter_map(|(_, keep)| match keep {
                Keep::Rows(track, appender) => Some((track, appender)),
                Keep::Asked => None,
            });
            self.tracks.retire(rows.collect());
        }
        self.fleet.leave(&target.name);
    }
}

/// A gap and the next due time's: one gap where it follows at once. Another reason does not begin another gap: the first one is the cause.
fn joined(gap: Option<ShownGap>, next: &ShownGap, target: &Target) -> ShownGap {
    let interval_ns = u64::try_from(target.interval.as_nanos()).unwrap_or(u64::MAX);
    match gap {
        Some(gap) if next.from_ns.saturating_sub(gap.to_ns) <= interval_ns.saturating_mul(2) => {
            ShownGap { to_ns: next.to_ns.max(gap.to_ns), ..gap }
        }
        _ => next.clone(),
    }
}

fn store_gap(tracks: &Tracks, kept: &Kept, gap: &ShownGap) {
    for (_, keep) in kept.entities.values() {
        if let Keep::Rows(track, _) = keep {
            let ShownGap { from_ns, to_ns, reason } = *gap;
            tracks.gap(onlooker_store::Gap { track: *track, from_ns, to_ns, reason: reason.to_owned() });
        }
    }
}

/// Labels for all series of a host.
fn common_labels(target: &Target) -> BTreeMap<String, String> {
    let mut labels = target.labels.clone();
    labels.insert("instance".into(), target.name.clone());
    labels
}

/// A computed block was made between asking and answering, which bounds the host's clock better the faster the answer was.
fn sharpen(relation: &mut Relation, frame: &Frame<'_>, now: Moment) {
    let computed = |sample: &Sample<'_>| sample.group.acquisition == Acquisition::Computed;
    let mut host_ns = None;
    if frame.schema().is_some_and(|schema| schema.groups.iter().any(|g| g.acquisition == Acquisition::Computed)) {
        frame.decode(|sample| host_ns = host_ns.or(sample.time_ns.filter(|_| computed(&sample))));
    }
    let Some(host_ns) = host_ns else { return };
    let (asked_ns, answered_ns) = frame.times_ns();
    let moment = |steady_ns: u64| Moment {
        steady_ns,
        utc_ns: now.utc_ns.saturating_sub(now.steady_ns.saturating_sub(steady_ns)),
    };
    let candidate = Relation::new(host_ns, moment(asked_ns), moment(answered_ns));
    if candidate.error_ns(now.steady_ns) < relation.error_ns(now.steady_ns) {
        *relation = candidate;
    }
}

/// UTC of a sample's acquisition; of values that carry no time, of the middle of their READ.
fn acquired_ns(sample: &Sample<'_>, frame: &Frame<'_>, relation: &Relation) -> u64 {
    let (asked_ns, answered_ns) = frame.times_ns();
    let utc_ns = match sample.time_ns {
        Some(host_ns) => relation.utc_ns(host_ns),
        None => relation.own_utc_ns(asked_ns / 2 + answered_ns / 2),
    };
    u64::try_from(utc_ns.max(0)).unwrap_or(u64::MAX)
}

fn region(frame: &Frame<'_>) -> Region {
    let entry = frame.entry();
    let mut acquisition: Vec<Acquisition> = Vec::new();
    for group in frame.schema().map_or(&[][..], |schema| &schema.groups) {
        if !acquisition.contains(&group.acquisition) {
            acquisition.push(group.acquisition);
        }
    }
    let refused = frame.refused().first();
    let refused = refused.map(|refused| format!("block {} was not accepted: {}", refused.block, refused.reject));
    Region {
        name: entry.name.clone(),
        labels: entry.labels.clone(),
        acquisition,
        responders: entry.responders,
        bytes: entry.bytes,
        pid: entry.pid,
        uid: entry.uid,
        orphan: entry.orphan,
        problem: frame.problem().map(ToString::to_string).or(refused),
        identity: Identity::word(entry.identity),
    }
}

impl Shown {
    /// Time of the newest values, UTC ns.
    #[must_use]
    pub fn newest_ns(&self) -> Option<u64> {
        self.entities.iter().map(|(_, entity)| entity.time_ns).max()
    }
}
