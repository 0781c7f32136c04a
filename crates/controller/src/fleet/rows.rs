// SPDX-License-Identifier: Apache-2.0
//! The rows of one host as the store gets them: all that its agent has in one, each region of a program in one of its own, tables line by line.
//!
//! Entities come one by one while a reading is taken ([`Rows::take`]); what belongs in one row is put into it at once and appended when the reading ends
//! ([`Rows::end`]). A row's words stay from reading to reading, so that what has nothing new costs nothing: it keeps its words and its time. When an entity comes
//! or goes, its row has another layout from then on, which is another track.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onlooker_framestore::client::{Appender, Description};
use onlooker_framestore::layout::{ContentId, Layout, Part};
use onlooker_framestore::types::{Gap, Line, TrackId};
use onlooker_series::in_order::InOrder;
use onlooker_series::series::EntityKey;

use super::entities::News;
use super::source::Source;
use crate::keep::{Counters, Ingest};

/// Reason of the gap that rows leave which the store could not take.
pub(super) const STORE_BEHIND: &str = "store_behind";
/// A line of a table that does not change is stored again after this time, ns: whoever looks for it finds that it was there.
const REPEAT_NS: u64 = 10_000_000_000;

/// A time without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) reason: &'static str,
}

/// What a host has in the ring.
#[derive(Default)]
struct Share {
    /// What the ring had given back when the first of it was appended.
    since: u64,
    bytes: u64,
}

impl Share {
    /// Whether there is room for a row of it. Where the ring is more than half full, a host may have a 64th of it.
    fn admits(&mut self, words: usize, appender: &Appender) -> bool {
        let (released, room) = (appender.released_bytes(), appender.capacity_bytes());
        if released != self.since {
            *self = Self { since: released, bytes: 0 };
        }
        self.bytes += words as u64 * 8;
        appender.used_bytes() <= room / 2 || self.bytes <= room / 64
    }
}

/// What the store is reached by.
pub(super) struct To<'a> {
    pub(super) ingest: &'a Ingest,
    pub(super) counters: &'a Counters,
    /// Name and labels of the host.
    pub(super) host: &'a str,
    pub(super) common: &'a BTreeMap<String, String>,
}

/// The rows of one host.
#[derive(Default)]
pub(super) struct Rows {
    fixed: BTreeMap<Source, Fixed>,
    tables: InOrder<(Source, ContentId), Table>,
    /// Which of them an entity is in.
    places: InOrder<EntityKey, Place>,
    share: Share,
}

#[derive(Clone, Copy)]
enum Place {
    Fixed(Source),
    Table(Source, ContentId, Line),
}

/// A row of several parts.
#[derive(Default)]
struct Fixed {
    /// By their keys.
    members: Vec<(EntityKey, Member)>,
    /// Behind the one that was asked for last: a reading has them in the same order, most often.
    next: usize,
    /// Labels of the region, where it is one program's.
    labels: Arc<[(String, String)]>,
    /// What the members make; none: one has come or gone since.
    track: Option<Track>,
    words: Vec<u64>,
    /// One of them has something new; so many values are.
    is_fresh: bool,
    fresh_values: u64,
    /// The earliest time of that, ns.
    fresh_ns: Option<u64>,
    /// What the next track begins with.
    holes: Vec<Hole>,
    /// The store takes no such rows: they are too wide, or their names too long.
    is_refused: bool,
}

/// An entity in a row, or a line of a table.
struct Member {
    said: Box<Said>,
    /// Where its time and its words are, once there is a layout.
    time: Option<u32>,
    at: u32,
    time_ns: u64,
}

/// What is asked for only when a layout is made.
struct Said {
    id: ContentId,
    part: Arc<Part>,
    /// Texts of its infos, with their numbers among its series.
    texts: Vec<(u32, String)>,
    /// Its last row.
    row: Vec<u64>,
}

struct Table {
    track: Track,
    words: Vec<u64>,
    /// With the entity that each is of: of two with the same labels the newer one.
    lines: InOrder<Line, (EntityKey, Member)>,
}

/// A track with what could not be appended to it.
struct Track {
    id: TrackId,
    last_ns: u64,
    /// Times of the first row that was refused since the last one that was taken, and of the last.
    refused: Option<(u64, u64)>,
}

impl Track {
    fn of(id: TrackId) -> Self {
        Self { id, last_ns: 0, refused: None }
    }

    /// Appends a row in which so many values are new.
    fn append(&mut self, (line, time_ns): (Line, u64), words: &[u64], values: u64, share: &mut Share, to: &mut To<'_>) {
        let mut appender = to.ingest.appender();
        let is_taken = share.admits(words.len(), &appender) && appender.append(self.id, line, time_ns, words).is_ok();
        drop(appender);
        if is_taken {
            to.counters.values.fetch_add(values, Ordering::Relaxed);
            self.last_ns = time_ns;
            self.tell_refused(time_ns, to);
        } else {
            to.counters.refused_rows.fetch_add(1, Ordering::Relaxed);
            let from_ns = self.refused.map_or(self.last_ns, |(from_ns, _)| from_ns);
            self.refused = Some((if from_ns == 0 { time_ns } else { from_ns }, time_ns));
        }
    }

    fn tell_refused(&mut self, to_ns: u64, to: &mut To<'_>) {
        if let Some((from_ns, _)) = self.refused.take() {
            self.hole(None, Hole { from_ns, to_ns, reason: STORE_BEHIND }, to);
        }
    }

    fn hole(&self, of: Option<u32>, hole: Hole, to: &mut To<'_>) {
        let Hole { from_ns, to_ns, reason } = hole;
        to.ingest.appender().gap(&Gap { track: self.id, of, from_ns, to_ns, reason: reason.to_owned() });
    }

    /// Its end.
    fn end(mut self, to: &mut To<'_>) {
        let until_ns = self.refused.map_or(0, |(_, to_ns)| to_ns);
        self.tell_refused(until_ns, to);
        to.ingest.appender().end(self.id);
    }
}

impl Rows {
    /// Takes an entity's row.
    pub(super) fn take(&mut self, news: &News<'_>, down: Option<Hole>, to: &mut To<'_>) {
        if news.is_new {
            self.forget(news.key, to);
            self.enter(news, down, to);
        }
        if !news.has_moved || !news.may_log {
            return;
        }
        if news.key.row.is_none() {
            if let Some(fixed) = self.fixed.get_mut(&news.entity.source) {
                fixed.take(news);
            }
            return;
        }
        match self.places.find(&news.key).map(|at| *self.places.at_mut(at)) {
            Some(Place::Table(source, id, line)) => {
                let Some(table) = self.tables.find_mut(&(source, id)) else { return };
                let Some((key, member)) = table.lines.find_mut(&line) else { return };
                if *key != news.key {
                    return;
                }
                if news.is_other || news.is_new || news.time_ns.abs_diff(member.time_ns) >= REPEAT_NS {
                    member.time_ns = news.time_ns;
                    member.put(news.row, &mut table.words);
                    let values = table.words.len() as u64;
                    table.track.append((line, news.time_ns), &table.words, values, &mut self.share, to);
                }
            }
            Some(Place::Fixed(_)) | None => {}
        }
    }

    fn enter(&mut self, news: &News<'_>, down: Option<Hole>, to: &mut To<'_>) {
        let (key, entity, time_ns) = (news.key, news.entity, news.time_ns);
        let stored = &entity.named.stored;
        let source = entity.source;
        let texts =
            (0..).zip(entity.named.series.iter()).filter_map(|(at, series)| Some((at, series.info()?.to_owned())));
        let texts: Vec<(u32, String)> = texts.collect();
        let (id, part) = (stored.id, stored.part.clone());
        let said = Box::new(Said { id, part, texts, row: Vec::new() });
        let member = Member { said, time: None, at: 0, time_ns: 0 };
        if key.row.is_none() {
            let fixed = self.fixed.entry(source).or_default();
            fixed.labels = stored.region.clone();
            fixed.enter(key, member);
            fixed.holes.extend(down.filter(|down| !fixed.holes.contains(down)));
            fixed.undo(to);
            self.places.insert(key, Place::Fixed(source));
            return;
        }
        let at = match self.tables.find(&(source, stored.id)) {
            Some(at) => at,
            None => {
                let layout = Arc::new(Layout::new(vec![(stored.id, stored.part.clone())], true));
                let described = description(source, &stored.region, layout, to);
                let Ok(id) = to.ingest.appender().track(&described, time_ns) else { return };
                let track = Track::of(id);
                if let Some(down) = down {
                    track.hole(None, down, to);
                }
                let table = Table { track, words: vec![0; stored.part.width()], lines: InOrder::default() };
                self.tables.insert((source, stored.id), table)
            }
        };
        let table = self.tables.at_mut(at);
        let Ok(line) = to.ingest.appender().line(table.track.id, &stored.row, &member.said.texts, time_ns) else {
            return;
        };
        table.lines.remove(&line);
        table.lines.insert(line, (key, member));
        self.places.insert(key, Place::Table(source, stored.id, line));
    }

    /// An entity has gone.
    pub(super) fn forget(&mut self, key: EntityKey, to: &mut To<'_>) {
        match self.places.remove(&key) {
            Some(Place::Fixed(source)) => {
                let Some(fixed) = self.fixed.get_mut(&source) else { return };
                fixed.members.retain(|(other, _)| *other != key);
                fixed.undo(to);
                if fixed.members.is_empty() {
                    self.fixed.remove(&source);
                }
            }
            Some(Place::Table(source, id, line)) => {
                let Some(table) = self.tables.get_mut(&(source, id)) else { return };
                if table.lines.get(&line).is_some_and(|(of, _)| *of == key) {
                    table.lines.remove(&line);
                }
                if table.lines.is_empty()
                    && let Some(table) = self.tables.remove(&(source, id))
                {
                    table.track.end(to);
                }
            }
            None => {}
        }
    }

    /// Ends a reading: rows with something new are appended.
    pub(super) fn end(&mut self, now_ns: u64, to: &mut To<'_>) {
        self.places.rewind();
        self.tables.values_mut().for_each(|table| table.lines.rewind());
        for (source, fixed) in &mut self.fixed {
            if !std::mem::take(&mut fixed.is_fresh) {
                continue;
            }
            let since_ns = fixed.fresh_ns.take().unwrap_or(now_ns);
            fixed.make(*source, since_ns, to);
            let Some(track) = &mut fixed.track else {
                to.counters.refused_rows.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            // Where there is one part, its time is the row's.
            let only = fixed.members.first().map(|(_, only)| only).filter(|only| only.time.is_none());
            // A relation of clocks that has become better may put a time before the last one, within its error.
            let time_ns = only.map_or(now_ns, |only| only.time_ns).max(track.last_ns + 1);
            let values = std::mem::take(&mut fixed.fresh_values);
            track.append((Line::ONLY, time_ns), &fixed.words, values, &mut self.share, to);
        }
    }

    /// A time without rows of all that the host has.
    pub(super) fn hole(&mut self, hole: Hole, to: &mut To<'_>) {
        for fixed in self.fixed.values_mut() {
            match &fixed.track {
                Some(track) => track.hole(None, hole, to),
                None => fixed.holes.push(hole),
            }
        }
        self.tables.iter().for_each(|(_, table)| table.track.hole(None, hole, to));
    }

    /// A time without rows of one entity.
    pub(super) fn hole_of(&mut self, key: EntityKey, hole: Hole, to: &mut To<'_>) {
        match self.places.get(&key) {
            Some(Place::Fixed(source)) => {
                let Some(fixed) = self.fixed.get_mut(source) else { return };
                let number = fixed.members.iter().position(|(member, _)| *member == key);
                let number = number.and_then(|number| u32::try_from(number).ok());
                fixed.make(*source, hole.from_ns, to);
                if let Some(track) = &fixed.track {
                    track.hole(number, hole, to);
                }
            }
            Some(Place::Table(source, id, line)) => {
                if let Some(table) = self.tables.get(&(*source, *id)) {
                    table.track.hole(Some(line.0), hole, to);
                }
            }
            None => {}
        }
    }

    /// The clock was set: times may go back.
    pub(super) fn stepped(&mut self, hole: Hole, to: &mut To<'_>) {
        self.hole(hole, to);
        self.fixed.values_mut().filter_map(|fixed| fixed.track.as_mut()).for_each(|track| track.last_ns = 0);
    }

    /// No more rows come.
    pub(super) fn finish(self, to: &mut To<'_>) {
        let tracks = self.fixed.into_values().filter_map(|fixed| fixed.track);
        tracks.chain(self.tables.into_entries().map(|(_, table)| table.track)).for_each(|track| track.end(to));
    }
}

impl Fixed {
    /// Takes the row of one of its members.
    fn take(&mut self, news: &News<'_>) {
        let is_next = self.members.get(self.next).is_some_and(|(key, _)| *key == news.key);
        let found = if is_next { Ok(self.next) } else { self.members.binary_search_by_key(&news.key, |(key, _)| *key) };
        let Ok(at) = found else { return };
        self.next = at + 1;
        let (member, row) = (&mut self.members[at].1, news.row);
        member.time_ns = news.time_ns;
        if self.track.is_some() {
            member.put(row, &mut self.words);
        } else {
            member.said.row.clear();
            member.said.row.extend_from_slice(row);
        }
        self.is_fresh = true;
        self.fresh_values += row.len() as u64;
        self.fresh_ns = Some(self.fresh_ns.map_or(news.time_ns, |ns| ns.min(news.time_ns)));
    }

    fn enter(&mut self, key: EntityKey, member: Member) {
        match self.members.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => self.members[at].1 = member,
            Err(at) => self.members.insert(at, (key, member)),
        }
    }

    /// One of its parts has come or gone: the next row is of another track.
    fn undo(&mut self, to: &mut To<'_>) {
        self.is_refused = false;
        let Some(track) = self.track.take() else { return };
        for (_, member) in self.members.iter_mut().filter(|(_, member)| member.time_ns > 0) {
            member.take(&self.words);
        }
        self.is_fresh |= self.members.iter().any(|(_, member)| member.time_ns > 0);
        track.end(to);
    }

    /// Makes the track of the members that there are now, with a first row of `since_ns`.
    fn make(&mut self, source: Source, since_ns: u64, to: &mut To<'_>) {
        if self.track.is_some() || self.is_refused {
            return;
        }
        let parts = self.members.iter().map(|(_, member)| (member.said.id, member.said.part.clone())).collect();
        let layout = Arc::new(Layout::new(parts, false));
        let texts = (0..).zip(&self.members).flat_map(|(part, (_, member))| {
            member.said.texts.iter().map(move |(series, text)| (part, *series, text.clone()))
        });
        let said = Description { texts: texts.collect(), ..description(source, &self.labels, layout.clone(), to) };
        let Ok(id) = to.ingest.appender().track(&said, since_ns) else {
            self.is_refused = true;
            return;
        };
        self.words.clear();
        self.words.resize(layout.kinds().len(), 0);
        for ((_, member), placed) in self.members.iter_mut().zip(layout.parts()) {
            (member.time, member.at) = (placed.time.map(small), small(placed.at));
            let row = std::mem::take(&mut member.said.row);
            if member.time_ns > 0 {
                member.put(&row, &mut self.words);
            }
        }
        let track = Track::of(id);
        std::mem::take(&mut self.holes).into_iter().for_each(|hole| track.hole(None, hole, to));
        self.track = Some(track);
    }
}

impl Member {
    /// Puts a row of the entity into the host's.
    fn put(&self, row: &[u64], into: &mut [u64]) {
        if let Some(time) = self.time {
            into[time as usize] = self.time_ns;
        }
        into[self.at as usize..][..row.len()].copy_from_slice(row);
    }

    /// Takes it back.
    fn take(&mut self, from: &[u64]) {
        let Said { row, part, .. } = &mut *self.said;
        row.clear();
        row.extend_from_slice(&from[self.at as usize..][..part.width()]);
    }
}

fn small(place: usize) -> u32 {
    u32::try_from(place).expect("a row of the store has less than 2^32 words")
}

fn description(source: Source, region: &[(String, String)], layout: Arc<Layout>, to: &To<'_>) -> Description {
    let common = to.common.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    Description { host: to.host.to_owned(), common, source, region: region.to_vec(), layout, texts: Vec::new() }
}

#[cfg(test)]
mod tests;
