// SPDX-License-Identifier: Apache-2.0
//! The series of a host, as they are called.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use onlooker_region::schema::Acquisition;
use onlooker_series::series::{Series, named};

use super::rows::touches;
use super::visit::Columns;
use super::{Store, lock};
use crate::catalogue::{Known, text_of};
use crate::layout::{ContentId, Layout, Placed};
use crate::types::{Line, TrackId};
use crate::warm::{Extent, Level};

/// Tracks that are looked for under one lock.
const LOCKED_TRACKS: usize = 256;

/// Series that are acquired together: those of a part, or of one line of it.
#[derive(Clone, Debug)]
pub struct Named {
    /// What of the rows they are, without words.
    pub columns: Columns,
    /// Whose: 0 the agent's, `u64::MAX` the controller's own, else one region by its identity word.
    pub source: u64,
    /// Name of the region.
    pub region: String,
    /// How values get there.
    pub acquisition: Acquisition,
    /// With all their labels; [`Series::at`] is the first word in the track's rows.
    pub series: Vec<Series>,
}

/// Names and values.
type Pairs = Vec<(String, String)>;

/// A track, copied out of the catalogue.
pub(crate) struct Track {
    id: TrackId,
    source: u64,
    common: BTreeMap<String, String>,
    region: Pairs,
    texts: Pairs,
    pub(crate) layout: Arc<Layout>,
    /// Labels and texts of each.
    lines: Vec<(Line, Pairs, Pairs)>,
}

impl Track {
    fn of(known: &Known, id: TrackId, is_wanted: impl Fn(Line) -> bool) -> Option<Self> {
        let info = known.track(id)?;
        let (_, common) = known.host(info.host)?;
        let lines = known.lines_of(id).filter(|line| is_wanted(*line)).filter_map(|line| {
            let said = known.line(id, line)?;
            Some((line, said.labels, said.texts))
        });
        let lines = lines.collect();
        Some(Self {
            id,
            source: info.source,
            common,
            region: info.labels,
            texts: info.texts,
            layout: info.layout,
            lines,
        })
    }

    /// The series of a part of a track that is no table.
    pub(crate) fn part(&self, number: u32) -> Option<Named> {
        self.named(number, self.layout.parts().get(number as usize)?, Line::ONLY, &[], &self.texts, |_| true)
    }

    /// The series of a line of a table.
    pub(crate) fn line(&self, line: Line) -> Option<Named> {
        let at = self.lines.binary_search_by_key(&line, |(line, ..)| *line).ok()?;
        let (_, labels, texts) = &self.lines[at];
        self.named(0, self.layout.parts().first()?, line, labels, texts, |_| true)
    }

    fn named(
        &self,
        part: u32,
        placed: &Placed,
        line: Line,
        labels: &[(String, String)],
        texts: &[(String, String)],
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<Named> {
        let own = &placed.part.series;
        let series = (0..).zip(own).filter(|(at, _)| is_wanted(*at)).map(|(at, own)| {
            let text = text_of(texts, part, at);
            let series = named(own, labels, &self.region, &self.common, text);
            Series { at: placed.at + own.at, ..series }
        });
        let columns = Columns { track: self.id, line, part, time: placed.time, words: Vec::new() };
        // A part is one group, and a group one way of acquisition.
        let acquisition = own.first()?.acquisition;
        let (source, region) = (self.source, placed.part.region.clone());
        Some(Named { columns, source, region, acquisition, series: series.collect() })
    }
}

/// A part of a track, of those that a host has.
#[derive(Clone, Debug)]
pub(crate) struct PartOf {
    pub(crate) track: TrackId,
    /// Its number in the layout.
    pub(crate) number: u32,
    /// By what parts of different hosts are the same.
    pub(crate) id: ContentId,
    pub(crate) region: String,
    /// As [`Named::source`].
    pub(crate) source: u64,
    pub(crate) is_table: bool,
    /// The host's label `instance`, or its name.
    pub(crate) instance: String,
}

impl Store {
    /// Parts of all tracks of the wanted hosts.
    pub(crate) fn parts_of(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<PartOf> {
        let known = self.known();
        let mut parts = Vec::new();
        for (track, host) in known.tracks_with_hosts().filter(|(_, host)| is_wanted(host)) {
            let Some(info) = known.track(track) else { continue };
            let instance = known.host(info.host).and_then(|(_, mut labels)| labels.remove("instance"));
            let instance = instance.unwrap_or_else(|| host.to_owned());
            parts.extend((0..).zip(info.layout.parts()).map(|(number, placed)| PartOf {
                track,
                number,
                id: placed.id,
                region: placed.part.region.clone(),
                source: info.source,
                is_table: info.layout.is_table(),
                instance: instance.clone(),
            }));
        }
        parts
    }

    /// A track, to name its series.
    pub(crate) fn track(&self, id: TrackId) -> Option<Track> {
        Track::of(&self.known(), id, |_| true)
    }

    /// All series of a host that have ever been stored and have rows left, the oldest tracks first. Cost: a look at
    /// each track of the store, and some microseconds a series, without a lock.
    #[must_use]
    pub fn series_of(&self, host: &str) -> Vec<Named> {
        let tracks = self.known().tracks_of(host);
        self.series_in(&tracks)
    }

    /// The same, but of those tracks only that have rows or gaps of a time (UTC ns, both included), or may have: others
    /// are not named.
    #[must_use]
    pub fn series_between(&self, host: &str, from_ns: u64, to_ns: u64) -> Vec<Named> {
        let tracks = self.known().tracks_of(host);
        self.series_in(&self.in_time(tracks, from_ns, to_ns))
    }

    /// Those of these tracks that have rows or gaps of a time (UTC ns, both included), or may have.
    #[must_use]
    pub fn in_time(&self, mut tracks: Vec<TrackId>, from_ns: u64, to_ns: u64) -> Vec<TrackId> {
        // First what is in memory: when it is there no more, it is in chunks.
        let mut in_memory: HashSet<TrackId> = HashSet::new();
        for some in tracks.chunks(LOCKED_TRACKS) {
            let rows = lock(&self.0.rows);
            let extent = |id: &TrackId| rows.tracks.get(id).and_then(super::rows::Track::extent);
            let is_wanted = |rows: Extent| touches((rows.from_ns, rows.to_ns), from_ns, to_ns);
            in_memory.extend(some.iter().filter(|id| extent(id).is_some_and(is_wanted)));
        }
        let in_chunks = |id: TrackId| {
            let first_ns = |level: Level| self.0.chunks.first_ns(level, id, from_ns, false);
            Level::ALL.into_iter().filter_map(first_ns).any(|first_ns| first_ns <= to_ns)
        };
        let is_silent = |id: TrackId| lock(&self.0.gaps).has(id, from_ns, to_ns);
        tracks.retain(|id| in_memory.contains(id) || in_chunks(*id) || is_silent(*id));
        tracks
    }

    /// Series of a part of a track, with these numbers in it ([`Known::select`]), and of each of these lines
    /// ([`Known::lines`]). Cost: some microseconds a series, without a lock.
    #[must_use]
    pub fn series_at(&self, track: TrackId, part: u32, lines: &BTreeSet<Line>, numbers: &[u32]) -> Vec<Named> {
        let Some(track) = Track::of(&self.known(), track, |line| lines.contains(&line)) else { return Vec::new() };
        let Some(placed) = track.layout.parts().get(part as usize) else { return Vec::new() };
        let wanted = |number| numbers.contains(&number);
        if !track.layout.is_table() {
            return track.named(part, placed, Line::ONLY, &[], &track.texts, wanted).into_iter().collect();
        }
        let lines = track.lines.iter();
        lines.filter_map(|(line, labels, texts)| track.named(part, placed, *line, labels, texts, wanted)).collect()
    }

    /// Of each of a host's sources ([`Named::source`]) the oldest track, whenever it had rows.
    #[must_use]
    pub fn oldest_tracks(&self, host: &str) -> HashMap<u64, TrackId> {
        let (known, mut oldest) = (self.known(), HashMap::new());
        for id in known.tracks_of(host) {
            if let Some(track) = known.track(id) {
                oldest.entry(track.source).or_insert(id);
            }
        }
        oldest
    }

    /// All series of a track that is no table; of a table those of these lines.
    #[must_use]
    pub fn series_of_track(&self, track: TrackId, lines: &BTreeSet<Line>) -> Vec<Named> {
        let Some(track) = Track::of(&self.known(), track, |line| lines.contains(&line)) else { return Vec::new() };
        if track.layout.is_table() {
            return lines.iter().filter_map(|line| track.line(*line)).collect();
        }
        (0..).zip(track.layout.parts()).filter_map(|(number, _)| track.part(number)).collect()
    }

    fn series_in(&self, tracks: &[TrackId]) -> Vec<Named> {
        let tracks: Vec<Track> = {
            let known = self.known();
            tracks.iter().filter_map(|id| Track::of(&known, *id, |_| true)).collect()
        };
        let mut all = Vec::new();
        for track in &tracks {
            for (number, placed) in (0..).zip(track.layout.parts()) {
                if track.layout.is_table() {
                    let lines = track.lines.iter();
                    all.extend(lines.filter_map(|(line, labels, texts)| {
                        track.named(number, placed, *line, labels, texts, |_| true)
                    }));
                } else {
                    all.extend(track.named(number, placed, Line::ONLY, &[], &track.texts, |_| true));
                }
            }
        }
        all
    }
}
