// SPDX-License-Identifier: Apache-2.0
//! Series by their names and labels, and the other way round.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use onlooker_series::series::{Series, labels_of};

use super::index::labels::{NO_NAMES, Origin, Resolved, Shapes4, origin_of};
use super::index::matcher::Matcher;
use super::index::{NAME, is_dynamic, own};
use super::item::Pairs;
use super::known::{Known, Track};
use crate::layout::Part;
use crate::types::{Line, TrackId};

fn take_texts(of: &Pairs, texts: &mut BTreeSet<String>) {
    for (_, text) in of.iter().filter(|(_, text)| !text.is_empty()) {
        if !texts.contains(text) {
            texts.insert(text.to_owned());
        }
    }
}

/// A line of a table, and its track.
pub type LineKey = (TrackId, Line);
/// Before all of them.
pub const FIRST_LINE: LineKey = (TrackId(0), Line(0));

/// Where the labels of a track's series come from.
struct Sides<'a> {
    host: &'a Pairs,
    region: &'a Pairs,
}

impl<'a> Sides<'a> {
    fn value(&self, origin: Origin, line: Option<&'a Pairs>, series: &'a Series) -> Option<&'a str> {
        match origin {
            Origin::Host(at) => self.host.iter().nth(at),
            Origin::Region(at) => self.region.iter().nth(at),
            Origin::Line(at) => line?.iter().nth(at),
            Origin::Own(at) => own(series).nth(at),
        }
        .map(|(_, value)| value)
    }
}

impl Known {
    /// Series that match: their tracks, numbers of their parts in the track's layout, numbers of the series in the
    /// part; in order.
    ///
    /// Names are those of [`Series`]. Whether a line of a table matches [`Known::lines`] says; the text of an info
    /// (label `value`) and a histogram's `le` only rows have: matchers of those are for the reader.
    #[must_use]
    pub fn select(&self, matchers: &[Matcher]) -> Vec<(TrackId, u32, u32)> {
        self.index.select(matchers)
    }

    /// All parts, each once, whoever has rows of it; its series have their own labels only.
    #[must_use]
    pub fn parts(&self) -> Vec<Arc<Part>> {
        self.index.all_parts().cloned().collect()
    }

    /// Lines of a track of which a series matches, in order; [`Line::ONLY`] for a series that matches of a track that
    /// is no table.
    #[must_use]
    pub fn lines(&self, track: TrackId, part: u32, series: u32, matchers: &[Matcher]) -> Vec<Line> {
        let found = || {
            let number = track;
            let track = self.tracks.get(&number)?;
            let (host, region, layout) = self.index.of_class(track.class);
            let (series, own) = self.index.series(layout, part).nth(series as usize)?;
            let sides = self.sides(track)?;
            let mut resolved: HashMap<Shapes4, Resolved> = HashMap::new();
            let mut is_match = |shape, line| {
                let key = [host, region, shape, own];
                let resolved = resolved.entry(key).or_insert_with(|| self.index.resolve(key));
                matchers.iter().all(|matcher| {
                    let name = matcher.name();
                    let value = || origin_of(resolved, name).and_then(|origin| sides.value(origin, line, series));
                    match name {
                        NAME => matcher.is_match(&series.name),
                        _ => is_dynamic(series, name) || matcher.is_match(value().unwrap_or("")),
                    }
                })
            };
            if !self.index.layout(layout).is_table() {
                return Some(if is_match(NO_NAMES, None) { vec![Line::ONLY] } else { Vec::new() });
            }
            let lines = self.lines.range((number, Line(0))..=(number, Line(u32::MAX)));
            let lines = lines.filter(|(_, line)| is_match(line.shape, Some(&line.labels)));
            Some(lines.map(|((_, line), _)| *line).collect())
        };
        found().unwrap_or_default()
    }

    /// All labels of a series, sorted, without its name; `None` where there is none such.
    #[must_use]
    pub fn labels(&self, track: TrackId, line: Line, part: u32, series: u32) -> Option<Vec<(String, String)>> {
        let known = self.tracks.get(&track)?;
        let (_, _, layout) = self.index.of_class(known.class);
        let (series, _) = self.index.series(layout, part).nth(series as usize)?;
        let (host, region) = self.outside(known)?;
        let mut labels = Vec::new();
        if self.index.layout(layout).is_table() {
            labels.extend(self.lines.get(&(track, line))?.labels.to_vec());
        }
        labels.extend(own(series).map(|(name, value)| (name.to_owned(), value.to_owned())));
        Some(labels_of(&host.to_vec().into_iter().collect(), &region.to_vec(), labels, series.metric))
    }

    /// Names of all labels that series have which are of no table, `__name__` among them, sorted. Of those that only rows
    /// have there are none.
    #[must_use]
    pub fn label_names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.index.label_names(&mut names);
        names
    }

    /// The same of so many lines of tables, from one on. Returns where to go on.
    pub fn label_names_of_lines(&self, from: LineKey, most: usize, names: &mut BTreeSet<String>) -> Option<LineKey> {
        let mut done = BTreeSet::new();
        self.each_line(from, most, |_, shapes, resolved, _, _| {
            if done.insert(shapes) {
                names.extend(resolved.iter().map(|(name, _)| name.clone()));
                names.insert(NAME.to_owned());
            }
        })
    }

    /// All values of a label, or of `__name__`, of series which are of no table, sorted.
    #[must_use]
    pub fn label_values(&self, label: &str) -> BTreeSet<String> {
        let mut values = BTreeSet::new();
        self.index.label_values(label, &mut values);
        values
    }

    /// The same of so many lines of tables, from one on. Returns where to go on.
    pub fn label_values_of_lines(
        &self,
        label: &str,
        from: LineKey,
        most: usize,
        values: &mut BTreeSet<String>,
    ) -> Option<LineKey> {
        self.each_line(from, most, |sides, _, resolved, line, series| {
            let value = match label {
                NAME => Some(&*series.name),
                _ => origin_of(resolved, label).and_then(|origin| sides.value(origin, Some(line), series)),
            };
            if let Some(value) = value.filter(|value| !values.contains(*value)) {
                values.insert(value.to_owned());
            }
        })
    }

    /// Texts of infos of so many tracks that are no tables, from one on. Returns where to go on.
    pub fn texts_of_tracks(&self, from: TrackId, most: usize, texts: &mut BTreeSet<String>) -> Option<TrackId> {
        let mut tracks = self.tracks.range(from..);
        tracks.by_ref().take(most).for_each(|(_, track)| take_texts(&track.texts, texts));
        tracks.next().map(|(number, _)| *number)
    }

    /// The same of so many lines of tables.
    pub fn texts_of_lines(&self, from: LineKey, most: usize, texts: &mut BTreeSet<String>) -> Option<LineKey> {
        let mut lines = self.lines.range(from..);
        lines.by_ref().take(most).for_each(|(_, line)| take_texts(&line.texts, texts));
        lines.next().map(|(key, _)| *key)
    }

    fn sides(&self, track: &Track) -> Option<Sides<'_>> {
        let (host, region) = self.outside(track)?;
        Some(Sides { host, region })
    }

    /// Each series of each of so many lines of tables, from one on. Returns the line behind them.
    fn each_line<'a>(
        &'a self,
        from: LineKey,
        most: usize,
        mut visit: impl FnMut(&Sides<'a>, Shapes4, &Resolved, &'a Pairs, &'a Series),
    ) -> Option<LineKey> {
        let mut resolved: HashMap<Shapes4, Resolved> = HashMap::new();
        let mut lines = self.lines.range(from..);
        for ((number, _), entry) in lines.by_ref().take(most) {
            let Some(track) = self.tracks.get(number) else { continue };
            let Some(sides) = self.sides(track) else { continue };
            let (host, region, layout) = self.index.of_class(track.class);
            for (series, own) in self.index.series(layout, 0) {
                let key = [host, region, entry.shape, own];
                let resolved = resolved.entry(key).or_insert_with(|| self.index.resolve(key));
                visit(&sides, key, resolved, &entry.labels, series);
            }
        }
        lines.next().map(|(key, _)| *key)
    }
}
