// SPDX-License-Identifier: Apache-2.0
//! The series of a host, as they are called.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlooker_region::schema::Acquisition;
use onlooker_series::series::{Series, named};

use super::{Columns, Store};
use crate::catalogue::{Known, text_of};
use crate::layout::{Layout, Placed};
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

/// A track, copied out of the catalogue.
struct Track {
    id: TrackId,
    source: u64,
    common: BTreeMap<String, String>,
    region: Vec<(String, String)>,
    texts: Vec<(String, String)>,
    layout: Arc<Layout>,
    lines: Vec<(Line, Vec<(String, String)>, Vec<(String, String)>)>,
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

impl Store {
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
