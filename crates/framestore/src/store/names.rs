// SPDX-License-Identifier: Apache-2.0
//! The series of a host, as they are called.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlooker_region::schema::Acquisition;
use onlooker_series::series::{Series, named};

use super::{Columns, Store};
use crate::catalogue::{Known, text_of};
use crate::layout::{ContentId, Layout, Placed};
use crate::types::{Line, TrackId};

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
    fn of(known: &Known, id: TrackId) -> Option<Self> {
        let info = known.track(id)?;
        let (_, common) = known.host(info.host)?;
        let lines = known.lines_of(id).filter_map(|line| {
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
        self.named(number, self.layout.parts().get(number as usize)?, Line::ONLY, &[], &self.texts)
    }

    /// The series of a line of a table.
    pub(crate) fn line(&self, line: Line) -> Option<Named> {
        let at = self.lines.binary_search_by_key(&line, |(line, ..)| *line).ok()?;
        let (_, labels, texts) = &self.lines[at];
        self.named(0, self.layout.parts().first()?, line, labels, texts)
    }

    fn named(
        &self,
        part: u32,
        placed: &Placed,
        line: Line,
        labels: &[(String, String)],
        texts: &[(String, String)],
    ) -> Option<Named> {
        let own = &placed.part.series;
        let series = (0..).zip(own).map(|(at, own)| {
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
        Track::of(&self.known(), id)
    }

    /// All series of a host that have ever been stored and have rows left, the oldest tracks first. Cost: a look at each track of the store, and some
    /// microseconds a series, without a lock.
    #[must_use]
    pub fn series_of(&self, host: &str) -> Vec<Named> {
        let tracks: Vec<Track> = {
            let known = self.known();
            known.tracks_of(host).into_iter().filter_map(|id| Track::of(&known, id)).collect()
        };
        let mut all = Vec::new();
        for track in &tracks {
            for (number, placed) in (0..).zip(track.layout.parts()) {
                if track.layout.is_table() {
                    let lines = track.lines.iter();
                    all.extend(
                        lines.filter_map(|(line, labels, texts)| track.named(number, placed, *line, labels, texts)),
                    );
                } else {
                    all.extend(track.named(number, placed, Line::ONLY, &[], &track.texts));
                }
            }
        }
        all
    }
}
