// SPDX-License-Identifier: Apache-2.0
//! Takes what the engine reads into the fleet and the store.

use std::collections::HashMap;
use std::sync::Arc;

use onlooker_checks::Now;
use onlooker_reader::clock::{Moment, Relation};
use onlooker_reader::{Frame, Frames};
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::Acquisition;
use onlooker_series::series::EntityKey;
use onlooker_targets::{Say, Target};

use super::entities::{Acquired, News, Room};
use super::quota::{Limit, OVER_QUOTA, Whose};
use super::rows::{Hole, Rows, To};
use super::utc::Utc;
use super::{Fleet, Host, Region, Shown, ShownGap};
use crate::keep::{Counters, Ingest};
use crate::sink::{Gap, Reading, Sink, State};

/// A gap that goes on is stored in pieces of this length, ns.
const MAX_GAP_PIECE_NS: u64 = 10_000_000_000;
/// Entities that are first seen so long after a host's first reading were there before, ns: a region that was torn just
/// then.
const COMING_BACK_NS: u64 = 1_000_000_000;
/// Reason of the gap between what the clock showed before it was set and after.
const CLOCK_STEP: &str = "clock_step";

/// What the store gets of one host.
struct Kept {
    host: Arc<Host>,
    rows: Rows,
    /// A gap that goes on: it is stored when it ends, or in pieces.
    gap: Option<ShownGap>,
    /// While the host's first readings bring its entities back: the time that no controller ran.
    down: Option<Hole>,
    /// Rows that exceed what the host may write: from the first to the last of each entity, until one is stored again.
    unlogged: HashMap<EntityKey, Hole>,
}

/// The sink of a processing thread. Several may write to one fleet and one store, each of hosts of its own.
pub struct FleetSink {
    fleet: Arc<Fleet>,
    counters: Arc<Counters>,
    ingest: Arc<Ingest>,
    kept: HashMap<String, Kept>,
    clock: Clock,
    utc: Utc,
    say: Say,
    room: Room,
}

/// What tells the time.
pub type Clock = Box<dyn Fn() -> Moment + Send>;

impl FleetSink {
    /// Writes to `fleet` and, through `ingest`, to the store.
    #[must_use]
    pub fn new(fleet: Arc<Fleet>, ingest: Arc<Ingest>, counters: Arc<Counters>) -> Self {
        Self::with_clock(fleet, ingest, counters, Box::new(Moment::now))
    }

    /// As [`FleetSink::new`], by another clock than the system's: its steady part must be the engine's, its UTC may be
    /// set.
    #[must_use]
    pub fn with_clock(fleet: Arc<Fleet>, ingest: Arc<Ingest>, counters: Arc<Counters>, clock: Clock) -> Self {
        let (utc, say) = (Utc::new(clock()), Arc::new(|_: &str| {}));
        Self { fleet, counters, ingest, kept: HashMap::new(), clock, utc, say, room: Room::default() }
    }

    /// `say` is told what an operator wants to know of the hosts, once.
    #[must_use]
    pub fn saying(mut self, say: Say) -> Self {
        self.say = say;
        self
    }

    /// Looks at the clock; where it was set, that is a gap of all that is kept. `at_ns` is when what is told now
    /// happened.
    fn follow_clock(&mut self, at_ns: u64) {
        let now = (self.clock)();
        let before_ns = self.utc.of(now.steady_ns.into());
        if let Some(step) = self.utc.follow(now, at_ns) {
            let hole = Hole { from_ns: step.from_ns, to_ns: step.to_ns, reason: CLOCK_STEP };
            for kept in self.kept.values_mut() {
                kept.store_gap(&self.ingest, &self.counters);
                let (rows, mut to) = kept.to(&self.ingest, &self.counters);
                rows.stepped(hole, &mut to);
            }
            // What is sampled seldom would be from the future, or as old as the step, until it is sampled again.
            let by_ns = self.utc.of(now.steady_ns.into()).cast_signed() - before_ns.cast_signed();
            for kept in self.kept.values() {
                let mut shown = kept.host.look();
                shown.entities.shift(by_ns);
                shown.newest_ns = shown.newest_ns.map(|newest_ns| newest_ns.saturating_add_signed(by_ns));
            }
        }
    }

    fn finish(&mut self, mut kept: Kept) {
        kept.store_gap(&self.ingest, &self.counters);
        kept.store_all_unlogged(&self.ingest, &self.counters);
        let host = kept.host.clone();
        kept.rows.finish(&mut to(&host, &self.ingest, &self.counters));
    }
}

impl Drop for FleetSink {
    /// What was not stored yet is.
    fn drop(&mut self) {
        for (_, kept) in std::mem::take(&mut self.kept) {
            self.finish(kept);
        }
    }
}

impl Sink for FleetSink {
    fn reading(&mut self, target: &Arc<Target>, reading: &Reading) {
        self.follow_clock(reading.began_ns);
        let known = self.kept.get(&target.name).map(|kept| &kept.host).filter(|host| Arc::ptr_eq(&host.target, target));
        let host = known.cloned().unwrap_or_else(|| self.fleet.enter(target));
        let mut look = host.look();
        let shown = &mut *look;
        shown.cycles += 1;
        shown.repeated = reading.repeated;
        (shown.read_from_ns, shown.read_at_ns) = (Some(reading.began_ns), Some(reading.ended_ns));
        shown.latency.record(reading.ended_ns - reading.due_ns, reading.ended_ns);
        shown.lateness.record(reading.began_ns - reading.due_ns, reading.ended_ns);
        if let Some(counters) = &reading.counters {
            shown.reads.clone_from(counters);
        }
        let began_ns = self.utc.of(reading.began_ns.into());
        if !self.kept.contains_key(&target.name) {
            let down = self.ingest.left_of(&target.name).map(|(last_ns, reason)| match last_ns <= began_ns {
                true => Hole { from_ns: last_ns, to_ns: began_ns, reason },
                false => Hole { from_ns: began_ns, to_ns: last_ns, reason: CLOCK_STEP },
            });
            let (rows, unlogged) = (Rows::default(), HashMap::new());
            self.kept.insert(target.name.clone(), Kept { host: host.clone(), rows, gap: None, down, unlogged });
        }
        let Some(kept) = self.kept.get_mut(&target.name) else { return };
        kept.store_gap(&self.ingest, &self.counters);
        kept.down = kept.down.filter(|down| began_ns.saturating_sub(down.to_ns) < COMING_BACK_NS);
        let utc = self.utc;
        let now = Now { utc_ns: utc.of(reading.ended_ns.into()), interval_ns: target.interval_ns() };
        shown.entities.begin(reading.boot, reading.ended_ns, now);
        let (ingest, counters) = (&*self.ingest, &*self.counters);
        let mut newest_ns = shown.newest_ns;
        let mut tell = |news: News<'_>| {
            if !news.key.is_own() && news.has_moved {
                newest_ns = newest_ns.max(Some(news.time_ns));
            }
            if news.is_new {
                kept.store_unlogged(news.key, ingest, counters);
            }
            let left_out = news.has_moved && !news.may_log;
            if left_out {
                kept.leave_out(news.key, news.time_ns, ingest, counters);
            } else if news.has_moved && kept.unlogged.contains_key(&news.key) {
                kept.store_unlogged(news.key, ingest, counters);
            }
            kept.rows.take(&news, kept.down, &mut to(&host, ingest, counters));
        };
        let mut left_out = Vec::new();
        reading.frames.load();
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
            if !shown.entities.take(&frame, &host.labels, acquired, &mut self.room, &mut tell) {
                left_out.push(frame.entry().identity.word());
            }
        }
        show_unserved(&mut shown.regions, &reading.frames);
        if let Some(relation) = &shown.relation {
            let boot_ns = utc.of(relation.steady_ns(0));
            shown.entities.boot(boot_ns, now.utc_ns, &host.labels, &mut tell);
            shown.entities.judged(&host.labels, &mut tell);
        }
        shown.entities.end(|key| {
            kept.store_unlogged(key, ingest, counters);
            kept.rows.forget(key, &mut to(&host, ingest, counters));
        });
        let ended_ns = now.utc_ns;
        for (key, _) in left_out.iter().flat_map(|region| shown.entities.of_region(*region)) {
            kept.leave_out(*key, ended_ns, ingest, counters);
        }
        kept.rows.end(ended_ns, &mut to(&host, ingest, counters));
        shown.newest_ns = newest_ns;
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
                kept.store_gap(&self.ingest, &self.counters);
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
        // Up to the last due time: from now on nobody asks, and silence is no gap.
        if let Some(kept) = self.kept.remove(&target.name) {
            self.finish(kept);
        }
        self.fleet.leave(&target.name);
    }
}

fn to<'a>(host: &'a Host, ingest: &'a Ingest, counters: &'a Counters) -> To<'a> {
    To { ingest, counters, host: &host.target.name, common: &host.labels }
}

/// A gap and the next due time's: one gap where it follows at once. Another reason does not begin another gap: the
/// first one is the cause.
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
    fn to<'a>(&'a mut self, ingest: &'a Ingest, counters: &'a Counters) -> (&'a mut Rows, To<'a>) {
        (&mut self.rows, to(&self.host, ingest, counters))
    }

    /// Stores the gap that goes on, if there is one.
    fn store_gap(&mut self, ingest: &Ingest, counters: &Counters) {
        if let Some(ShownGap { from_ns, to_ns, reason }) = self.gap.take() {
            let (rows, mut to) = self.to(ingest, counters);
            rows.hole(Hole { from_ns, to_ns, reason }, &mut to);
        }
    }

    /// A row exceeds what the host may write.
    fn leave_out(&mut self, key: EntityKey, time_ns: u64, ingest: &Ingest, counters: &Counters) {
        let first = Hole { from_ns: time_ns, to_ns: time_ns, reason: OVER_QUOTA };
        let hole = self.unlogged.entry(key).or_insert(first);
        hole.to_ns = hole.to_ns.max(time_ns);
        if hole.to_ns - hole.from_ns >= MAX_GAP_PIECE_NS {
            self.store_unlogged(key, ingest, counters);
        }
    }

    fn store_unlogged(&mut self, key: EntityKey, ingest: &Ingest, counters: &Counters) {
        if let Some(hole) = self.unlogged.remove(&key) {
            let (rows, mut to) = self.to(ingest, counters);
            rows.hole_of(key, hole, &mut to);
        }
    }

    fn store_all_unlogged(&mut self, ingest: &Ingest, counters: &Counters) {
        let keys: Vec<EntityKey> = self.unlogged.keys().copied().collect();
        keys.into_iter().for_each(|key| self.store_unlogged(key, ingest, counters));
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
        "host {host}: the regions of {of_whom} exceed [quota] {key} ({most}): what is beyond it is not kept{}; other hosts lose nothing. GET /api/onlooker/v1/hosts/{{host}} has all of it",
        first.unwrap_or_default()
    )
}

/// When values were acquired, by the host's clock if they say; else in the middle of their READ. Whatever is said, it
/// was not after the answer.
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
fn show_unserved(regions: &mut Vec<Region>, frames: &Frames) {
    let (at, unserved) = (frames.iter().count(), frames.unserved());
    let is_shown = |(old, entry): (&Region, &Arc<RegionEntry>)| Arc::ptr_eq(&old.entry, entry);
    if regions.len() == at + unserved.len() && regions[at..].iter().zip(unserved).all(is_shown) {
        return;
    }
    regions.truncate(at);
    for entry in unserved {
        let why = "not read: the responder that this host is read by does not serve it, others do (via)";
        let is_told = has_twin(entry, &regions[..at]) || frames.has_packed(&entry.name);
        let problem = (!is_told).then(|| why.to_owned());
        regions.push(Region { entry: entry.clone(), acquisition: Vec::new(), problem });
    }
}

/// Whether the agent serves what is in a region of its own by other ones here: computed ones of the same name, or the
/// sampled rest beside them. Then nothing is missing that an operator could do something about.
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
