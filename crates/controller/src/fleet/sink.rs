// SPDX-License-Identifier: Apache-2.0
//! Takes what the engine reads into the fleet and the store.

use std::collections::HashMap;
use std::sync::Arc;

use onlooker_reader::Frame;
use onlooker_reader::clock::{Moment, Relation};
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::Acquisition;
use onlooker_series::series::{EntityKey, Series};
use onlooker_store::Description;
use onlooker_targets::{Say, Target};

use super::entities::{Acquired, News};
use super::quota::{Limit, OVER_QUOTA, Whose};
use super::track::{Hole, Track};
use super::utc::Utc;
use super::{Fleet, Region, Shown, ShownGap};
use crate::keep::{Counters, Tracks};
use crate::sink::{Gap, Reading, Sink, State};

/// A gap that goes on is stored in pieces of this length, ns.
const MAX_GAP_PIECE_NS: u64 = 10_000_000_000;
/// Entities that are first seen so long after a host's first reading were there before, ns: a region that was torn just then.
const COMING_BACK_NS: u64 = 1_000_000_000;
/// Reason of the gap between what the clock showed before it was set and after.
const CLOCK_STEP: &str = "clock_step";

/// The tracks of one host.
#[derive(Default)]
struct Kept {
    entities: HashMap<EntityKey, Track>,
    /// A gap that goes on: it is stored when it ends, or in pieces.
    gap: Option<ShownGap>,
    /// While the host's first readings bring its entities back: the time that no controller ran.
    down: Option<Hole>,
    /// Rows that exceed what the host may write: from the first to the last of each entity, until one is stored again.
    unlogged: HashMap<EntityKey, Hole>,
}

/// The sink.
pub struct FleetSink {
    fleet: Arc<Fleet>,
    counters: Arc<Counters>,
    tracks: Tracks,
    kept: HashMap<String, Kept>,
    tags: HashMap<u64, (String, EntityKey)>,
    /// Tracks of entities that were over before the store had made them, by tag.
    leaving: HashMap<u64, Track>,
    next_tag: u64,
    clock: Clock,
    utc: Utc,
    say: Say,
}

/// What tells the time.
pub type Clock = Box<dyn Fn() -> Moment + Send>;

impl FleetSink {
    /// Writes to `fleet` and to the store behind `tracks`.
    #[must_use]
    pub fn new(fleet: Arc<Fleet>, tracks: Tracks, counters: Arc<Counters>) -> Self {
        Self::with_clock(fleet, tracks, counters, Box::new(Moment::now))
    }

    /// As [`FleetSink::new`], by another clock than the system's: its steady part must be the engine's, its UTC may be set.
    #[must_use]
    pub fn with_clock(fleet: Arc<Fleet>, tracks: Tracks, counters: Arc<Counters>, clock: Clock) -> Self {
        let utc = Utc::new(clock());
        let (kept, tags, leaving) = (HashMap::new(), HashMap::new(), HashMap::new());
        let say: Say = Arc::new(|_| {});
        Self { fleet, counters, tracks, kept, tags, leaving, next_tag: 0, clock, utc, say }
    }

    /// `say` is told what an operator wants to know of the hosts, once.
    #[must_use]
    pub fn saying(mut self, say: Say) -> Self {
        self.say = say;
        self
    }

    /// Looks at the clock; where it was set, that is a gap of all that is kept. `at_ns` is when what is told now happened.
    fn follow_clock(&mut self, at_ns: u64) {
        let now = (self.clock)();
        let before_ns = self.utc.of(now.steady_ns.into());
        if let Some(step) = self.utc.follow(now, at_ns) {
            for kept in self.kept.values_mut() {
                kept.store_gap(&self.tracks);
                let hole = Hole { from_ns: step.from_ns, to_ns: step.to_ns, reason: CLOCK_STEP };
                kept.entities.values_mut().for_each(|track| track.stepped(hole, &self.tracks));
            }
            // What is sampled seldom would be from the future, or as old as the step, until it is sampled again.
            let by_ns = self.utc.of(now.steady_ns.into()).cast_signed() - before_ns.cast_signed();
            self.fleet.hosts().iter().for_each(|host| host.look().entities.shift(by_ns));
        }
    }

    fn forget_track(&mut self, track: Track) {
        forget_track(track, &self.tracks, &mut self.leaving);
    }

    /// Takes the tracks that are ready by now.
    fn take_made(&mut self) {
        while let Some(tag) = self.tracks.waits() {
            let name = self.tags.get(&tag);
            let track = name.and_then(|(host, key)| self.kept.get_mut(host)?.entities.get_mut(key));
            match track.filter(|track| track.tag == tag) {
                Some(track) => track.wait(&self.counters),
                // The entity has gone meanwhile, or this is the answer to a cancellation.
                None => {
                    self.leaving.remove(&tag);
                    if self.tags.remove(&tag).is_some() {
                        self.tracks.cancel(tag);
                    }
                }
            }
        }
        while let Some(made) = self.tracks.made() {
            let name = self.tags.remove(&made.tag);
            let track = name.and_then(|(host, key)| self.kept.get_mut(&host)?.entities.get_mut(&key));
            match track.filter(|track| track.tag == made.tag) {
                Some(track) => track.made(made, &self.tracks, &self.counters),
                // The entity has gone meanwhile.
                None => {
                    let mut track = self.leaving.remove(&made.tag).unwrap_or_else(|| Track::asked(made.tag));
                    track.made(made, &self.tracks, &self.counters);
                    self.forget_track(track);
                }
            }
        }
    }
}

impl Drop for FleetSink {
    /// What was not stored yet is, as far as there are tracks for it.
    fn drop(&mut self) {
        self.take_made();
        for (_, mut kept) in std::mem::take(&mut self.kept) {
            kept.store_gap(&self.tracks);
            kept.store_all_unlogged(&self.tracks);
            for track in kept.entities.into_values() {
                self.forget_track(track);
            }
        }
    }
}

impl Sink for FleetSink {
    fn reading(&mut self, target: &Arc<Target>, reading: &Reading) {
        self.take_made();
        self.follow_clock(reading.began_ns);
        let host = self.fleet.enter(target);
        let mut look = host.look();
        let shown = &mut *look;
        shown.cycles += 1;
        shown.repeated = reading.repeated;
        shown.read_at_ns = Some(reading.ended_ns);
        let _ = shown.latency.record(reading.ended_ns - reading.due_ns);
        let _ = shown.lateness.record(reading.began_ns - reading.due_ns);
        if let Some(counters) = &reading.counters {
            shown.reads.clone_from(counters);
        }
        let began_ns = self.utc.of(reading.began_ns.into());
        if !self.kept.contains_key(&target.name) {
            let left = self.tracks.take_left(&target.name);
            let down = left.map(|(last_ns, reason)| match last_ns <= began_ns {
                true => Hole { from_ns: last_ns, to_ns: began_ns, reason },
                false => Hole { from_ns: began_ns, to_ns: last_ns, reason: CLOCK_STEP },
            });
            self.kept.insert(target.name.clone(), Kept { down, ..Kept::default() });
        }
        let Some(kept) = self.kept.get_mut(&target.name) else { return };
        kept.store_gap(&self.tracks);
        kept.down = kept.down.filter(|down| began_ns.saturating_sub(down.to_ns) < COMING_BACK_NS);
        let utc = self.utc;
        shown.entities.begin(reading.boot, reading.ended_ns);
        let mut tell = |news: News<'_>| {
            if news.is_new {
                if let Some(track) = kept.entities.remove(&news.key) {
                    kept.store_unlogged(news.key, &self.tracks);
                    forget_track(track, &self.tracks, &mut self.leaving);
                }
                self.next_tag += 1;
                let description = Description {
                    host: target.name.clone(),
                    region: news.entity.region.clone(),
                    entity: news.key,
                    series: news.entity.series.to_vec(),
                };
                self.tracks.define(self.next_tag, description, row_interval_ns(target, &news.entity.series));
                self.tags.insert(self.next_tag, (target.name.clone(), news.key));
                let mut track = Track::asked(self.next_tag);
                if let Some(down) = kept.down {
                    track.hole(down, &self.tracks);
                }
                kept.entities.insert(news.key, track);
            }
            if news.has_moved && !news.may_log {
                kept.leave_out(news.key, news.time_ns, &self.tracks);
            } else if news.has_moved
                && let Some(track) = kept.entities.get_mut(&news.key)
            {
                if let Some(hole) = kept.unlogged.remove(&news.key) {
                    track.hole(hole, &self.tracks);
                }
                track.append(news.time_ns, &news.entity.row, &self.tracks, &self.counters);
            }
        };
        let mut left_out = Vec::new();
        for (at, frame) in reading.frames.iter().enumerate() {
            show(&mut shown.regions, at, &frame);
            if frame.is_resting() {
                shown.entities.rest(&frame);
                continue;
            }
            let relation = shown.relation.get_or_insert(reading.relation);
            *relation = relation.or_better(reading.relation, reading.ended_ns);
            frame.sharpen(relation, |steady_ns| utc.of(steady_ns.into()), reading.ended_ns);
            let relation = *relation;
            let acquired = |host_ns: Option<u64>| acquired(host_ns, &frame, &relation, &utc);
            if !shown.entities.take(&frame, &host.labels, acquired, &mut tell) {
                left_out.push(frame.entry().identity.word());
            }
        }
        show_unserved(&mut shown.regions, reading.frames.iter().count(), reading.frames.unserved());
        if let Some(relation) = &shown.relation {
            let boot_ns = utc.of(relation.steady_ns(0));
            shown.entities.boot(boot_ns, utc.of(reading.ended_ns.into()), &host.labels, &mut tell);
        }
        shown.entities.end(|key| {
            kept.store_unlogged(key, &self.tracks);
            if let Some(track) = kept.entities.remove(&key) {
                forget_track(track, &self.tracks, &mut self.leaving);
            }
        });
        for (key, _) in left_out.iter().flat_map(|region| shown.entities.of_region(*region)) {
            kept.leave_out(*key, utc.of(reading.ended_ns.into()), &self.tracks);
        }
        let news = shown.entities.ledger_mut().take_news();
        let news: Vec<String> =
            news.into_iter().map(|(whose, limit)| over_quota(&target.name, shown, whose, limit)).collect();
        drop(look);
        news.iter().for_each(|text| (self.say)(text));
        host.tell();
    }

    fn gap(&mut self, target: &Arc<Target>, gap: Gap) {
        self.follow_clock(gap.from_ns);
        let host = self.fleet.enter(target);
        let (from_ns, to_ns) = (self.utc.of(gap.from_ns.into()), self.utc.of(gap.to_ns.into()));
        let mut shown = host.look();
        *shown.gaps.entry(gap.reason).or_default() += gap.due_times;
        shown.late += if gap.reason == "late" { gap.due_times } else { 0 };
        // One that goes on grows: a dead host is one gap, not one for each due time.
        let next = ShownGap { from_ns, to_ns, reason: gap.reason };
        shown.last_gap = Some(joined(shown.last_gap.take(), &next, target));
        drop(shown);
        if let Some(kept) = self.kept.get_mut(&target.name) {
            let whole = joined(kept.gap.take(), &next, target);
            let is_long = whole.to_ns.saturating_sub(whole.from_ns) >= MAX_GAP_PIECE_NS;
            kept.gap = Some(whole);
            if is_long {
                kept.store_gap(&self.tracks);
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
        if let Some(mut kept) = self.kept.remove(&target.name) {
            // Up to the last due time: from now on nobody asks, and silence is no gap.
            kept.store_gap(&self.tracks);
            kept.store_all_unlogged(&self.tracks);
            let mut ended = Vec::new();
            for track in kept.entities.into_values() {
                if track.is_made() {
                    ended.extend(track.end(&self.tracks));
                } else {
                    forget_track(track, &self.tracks, &mut self.leaving);
                }
            }
            self.tracks.retire(ended);
        }
        self.fleet.leave(&target.name);
    }
}

/// Time between two rows of an entity, at least: it is not read more often, and what the agent samples has the time of its sample.
fn row_interval_ns(target: &Target, series: &[Series]) -> u64 {
    let sampled = |series: &Series| match series.acquisition {
        Acquisition::Sampled => series.resolution_ns,
        // Each reading has a time of its own: also one of values that seldom change, where another group of its region is read more often.
        Acquisition::Computed | Acquisition::Direct | Acquisition::Published => 0,
    };
    let read_ns = target.interval_ns();
    read_ns.max(series.iter().map(sampled).min().unwrap_or(0))
}

/// A gap and the next due time's: one gap where it follows at once. Another reason does not begin another gap: the first one is the cause.
fn joined(gap: Option<ShownGap>, next: &ShownGap, target: &Target) -> ShownGap {
    let interval_ns = target.interval_ns();
    match gap {
        Some(gap) if next.from_ns.saturating_sub(gap.to_ns) <= interval_ns.saturating_mul(2) => {
            ShownGap { to_ns: next.to_ns.max(gap.to_ns), ..gap }
        }
        _ => next.clone(),
    }
}

impl Kept {
    /// Stores the gap that goes on, if there is one.
    fn store_gap(&mut self, tracks: &Tracks) {
        if let Some(ShownGap { from_ns, to_ns, reason }) = self.gap.take() {
            self.entities.values_mut().for_each(|track| track.hole(Hole { from_ns, to_ns, reason }, tracks));
        }
    }

    /// A row exceeds what the host may write.
    fn leave_out(&mut self, key: EntityKey, time_ns: u64, tracks: &Tracks) {
        let first = Hole { from_ns: time_ns, to_ns: time_ns, reason: OVER_QUOTA };
        let hole = self.unlogged.entry(key).or_insert(first);
        hole.to_ns = hole.to_ns.max(time_ns);
        if hole.to_ns - hole.from_ns >= MAX_GAP_PIECE_NS {
            self.store_unlogged(key, tracks);
        }
    }

    fn store_unlogged(&mut self, key: EntityKey, tracks: &Tracks) {
        if let (Some(hole), Some(track)) = (self.unlogged.remove(&key), self.entities.get_mut(&key)) {
            track.hole(hole, tracks);
        }
    }

    fn store_all_unlogged(&mut self, tracks: &Tracks) {
        let keys: Vec<EntityKey> = self.unlogged.keys().copied().collect();
        keys.into_iter().for_each(|key| self.store_unlogged(key, tracks));
    }
}

/// What the operator is told of a quota that a host exceeds.
fn over_quota(host: &str, shown: &Shown, whose: Whose, limit: Limit) -> String {
    let ledger = shown.entities.ledger();
    let most = ledger.over(true).find(|over| (over.0, over.1) == (whose, limit)).map_or(0, |over| over.2.limit);
    let of_whom = match whose {
        Whose::Agent => "its agent",
        Whose::Programs => "its programs",
    };
    let first = shown
        .regions
        .iter()
        .find(|region| ledger.excess(region.entry.identity.word()).is_some_and(|excess| excess.is_of(whose, limit)));
    let first =
        first.map(|Region { entry, .. }| format!(", first {} of pid {}, uid {}", entry.name, entry.pid, entry.uid));
    let key = limit.key();
    format!(
        "host {host}: the regions of {of_whom} exceed [quota] {key} ({most}): what is beyond it is not kept{}; other hosts lose nothing. GET /api/v1/hosts/{{host}} has all of it",
        first.unwrap_or_default()
    )
}

/// No more rows for it; one that the store has not made yet is kept until then.
fn forget_track(track: Track, tracks: &Tracks, leaving: &mut HashMap<u64, Track>) {
    if track.is_made() {
        let ended = track.end(tracks);
        tracks.retire(ended.into_iter().collect());
    } else if track.waits() {
        // It has no rows.
        tracks.cancel(track.tag);
    } else {
        leaving.insert(track.tag, track);
    }
}

/// When values were acquired, by the host's clock if they say; else in the middle of their READ. Whatever is said, it was not after the answer.
fn acquired(host_ns: Option<u64>, frame: &Frame<'_>, relation: &Relation, utc: &Utc) -> Acquired {
    let (asked_ns, answered_ns) = frame.times_ns();
    let middle_ns = asked_ns / 2 + answered_ns / 2;
    let (steady_ns, stamp_ns) = match host_ns {
        Some(host_ns) => (relation.steady_ns(host_ns).min(answered_ns.into()), host_ns),
        None => (middle_ns.into(), middle_ns),
    };
    Acquired { utc_ns: utc.of(steady_ns), stamp_ns }
}

/// Puts a region in its place of the list. That is most often as it was.
fn show(regions: &mut Vec<Region>, at: usize, frame: &Frame<'_>) {
    let is_good = frame.problem().is_none() && frame.refused().is_empty();
    let is_as_it_was = |old: &Region| is_good && old.problem.is_none() && Arc::ptr_eq(&old.entry, frame.entry());
    if regions.get(at).is_some_and(is_as_it_was) {
        return;
    }
    regions.truncate(at);
    let mut acquisition: Vec<Acquisition> = Vec::new();
    for group in frame.schema().map_or(&[][..], |schema| &schema.groups) {
        let said = frame.entry().acquisition(group);
        if !acquisition.contains(&said) {
            acquisition.push(said);
        }
    }
    let refused = frame.refused().first();
    let refused = refused.map(|refused| format!("block {} was not accepted: {}", refused.block, refused.reject));
    let problem = frame.problem().map(ToString::to_string).or(refused);
    regions.push(Region { entry: frame.entry().clone(), acquisition, problem });
}

/// Behind the regions that were read, those that could not be.
fn show_unserved(regions: &mut Vec<Region>, at: usize, unserved: &[Arc<RegionEntry>]) {
    let is_shown = |(old, entry): (&Region, &Arc<RegionEntry>)| Arc::ptr_eq(&old.entry, entry);
    if regions.len() == at + unserved.len() && regions[at..].iter().zip(unserved).all(is_shown) {
        return;
    }
    regions.truncate(at);
    for entry in unserved {
        let why = "not read: the responder that this host is read by does not serve it, others do (via)";
        let problem = (!has_twin(entry, &regions[..at])).then(|| why.to_owned());
        regions.push(Region { entry: entry.clone(), acquisition: Vec::new(), problem });
    }
}

/// Whether the agent serves what is in a region of its own by other ones here: computed ones of the same name, or the sampled rest beside them. Then nothing is
/// missing that an operator could do something about.
fn has_twin(entry: &RegionEntry, served: &[Region]) -> bool {
    let is_agents = |entry: &RegionEntry| entry.identity.is_agents();
    let is_twin = |other: &RegionEntry| {
        let name = other.name.strip_suffix("_sampled").unwrap_or(&other.name);
        is_agents(other) && name == entry.name
    };
    is_agents(entry) && served.iter().any(|region| is_twin(&region.entry))
}

impl Shown {
    /// Time of the newest values, UTC ns.
    #[must_use]
    pub fn newest_ns(&self) -> Option<u64> {
        self.entities.iter().filter(|(key, _)| !key.is_own()).map(|(_, entity)| entity.time_ns).max()
    }
}

#[cfg(test)]
mod tests;
