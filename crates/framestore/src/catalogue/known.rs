// SPDX-License-Identifier: Apache-2.0
//! What the catalogue knows, in memory: everything once, by its number and by what it is.
//!
//! The catalogue's owner enters what it hears, readers look; neither waits for a disk meanwhile. A million tracks take
//! about a hundred bytes each, beside their labels.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onlooker_region::limits::MAX_HISTOGRAM_BUCKETS;
use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use super::index::Index;
use super::index::labels::ShapeNumber;
use super::item::{Item, Pairs};
use super::{HostId, TrackKey};
use crate::damage::Damage;
use crate::layout::{ContentId, Layout, Part};
use crate::types::{Line, TrackId};

/// Words of a row at most: a chunk has a column for each.
const MAX_ROW_WORDS: usize = crate::chunk::MAX_COLUMNS;
/// Parts of a layout at most.
const MAX_PARTS: usize = 1 << 12;
/// Bytes of a part's content at most.
pub(super) const MAX_CONTENT_BYTES: usize = 4 << 20;
/// Bytes of a text, or of a label set, at most.
pub(super) const MAX_TEXT_BYTES: usize = 64 << 10;

#[derive(Debug)]
struct Host {
    name: Arc<str>,
    /// Number of its label set.
    labels: u32,
    tracks: u32,
}

#[derive(Debug)]
pub(super) struct Track {
    host: HostId,
    pub(super) class: u32,
    /// Number of the region's label set.
    labels: u32,
    pub(super) texts: Pairs,
    source: u64,
    created_ns: u64,
}

#[derive(Debug)]
pub(super) struct LineEntry {
    pub(super) labels: Pairs,
    pub(super) texts: Pairs,
    pub(super) shape: ShapeNumber,
    since_ns: u64,
}

/// Numbers that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) host: u32,
    pub(super) track: u32,
}

/// A track, as one is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackInfo {
    /// Whose.
    pub host: HostId,
    /// Which region of the host, as [`TrackKey`] has it.
    pub source: u64,
    /// Labels of the region.
    pub labels: Vec<(String, String)>,
    /// Texts of its infos, by [`text_key`].
    pub texts: Vec<(String, String)>,
    /// What stands in its rows.
    pub layout: Arc<Layout>,
    /// When it was first seen, UTC ns.
    pub created_ns: u64,
}

/// A line of a table, as one is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineInfo {
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Texts of its infos, by [`text_key`] with part 0.
    pub texts: Vec<(String, String)>,
    /// When it was first seen, UTC ns.
    pub since_ns: u64,
}

/// How many of each there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Parts.
    pub parts: usize,
    /// Layouts.
    pub layouts: usize,
    /// Hosts: one whose labels have changed is another one.
    pub hosts: usize,
    /// Tracks.
    pub tracks: usize,
    /// Lines of tables.
    pub lines: usize,
}

/// By what the text of an info is known: numbers of the part in the layout and of the series in it.
#[must_use]
pub fn text_key(part: u32, series: u32) -> String {
    format!("{part}.{series}")
}

/// The text of an info among those of a track or a line.
#[must_use]
pub fn text_of(texts: &[(String, String)], part: u32, series: u32) -> Option<&str> {
    if texts.is_empty() {
        return None;
    }
    let key = text_key(part, series);
    texts.iter().find(|(of, _)| *of == key).map(|(_, text)| text.as_str())
}

/// What there is.
#[derive(Debug)]
pub struct Known {
    parts: HashMap<ContentId, u32>,
    /// Contents under zstd, by the parts' numbers: for the next snapshot.
    contents: Vec<(ContentId, Box<[u8]>)>,
    layouts: HashMap<ContentId, u32>,
    hosts: BTreeMap<HostId, Host>,
    host_numbers: HashMap<(Arc<str>, u32), HostId>,
    pub(super) tracks: BTreeMap<TrackId, Track>,
    pub(super) lines: BTreeMap<(TrackId, Line), LineEntry>,
    line_numbers: HashMap<(TrackId, Pairs, Pairs), Line>,
    pub(super) index: Index,
    pub(super) next: Next,
    /// Tracks that were defined since the start, how often, and have not ended: rows of them may be under way.
    pub(super) uses: HashMap<TrackId, u32>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            parts: HashMap::new(),
            contents: Vec::new(),
            layouts: HashMap::new(),
            hosts: BTreeMap::new(),
            host_numbers: HashMap::new(),
            tracks: BTreeMap::new(),
            lines: BTreeMap::new(),
            line_numbers: HashMap::new(),
            index: Index::default(),
            // 0 is a default that nobody has meant.
            next: Next { host: 1, track: 1 },
            uses: HashMap::new(),
        }
    }
}

/// The number after one that was given.
fn after(next: u32, number: u32) -> Result<u32, Damage> {
    number.checked_add(1).map(|after| next.max(after)).ok_or(Damage::Wrong("number"))
}

fn is(holds: bool, otherwise: &'static str) -> Result<(), Damage> {
    if holds { Ok(()) } else { Err(Damage::Wrong(otherwise)) }
}

impl Known {
    /// Enters an item; false if it is known. After an error nothing has changed.
    pub(super) fn enter(&mut self, item: &Item<'_>) -> Result<bool, Damage> {
        match item {
            Item::Part { id, content } => self.enter_part(*id, content),
            Item::Layout { id, is_table, parts } => self.enter_layout(*id, *is_table, parts),
            Item::Host { number, name, labels } => self.enter_host(*number, name, labels),
            Item::Track { number, host, source, created_ns, layout, labels, texts } => {
                self.enter_track(*number, (*host, *source, *created_ns), *layout, (labels, texts))
            }
            Item::Line { track, line, since_ns, labels, texts } => {
                self.enter_line((*track, *line), *since_ns, labels, texts)
            }
            Item::ForgottenHost(number) => self.forget_host(*number),
            Item::ForgottenTrack(number) => Ok(self.forget_track(*number)),
            Item::ForgottenLine(track, line) => Ok(self.forget_line(*track, *line)),
        }
    }

    fn enter_part(&mut self, id: ContentId, content: &[u8]) -> Result<bool, Damage> {
        if self.parts.contains_key(&id) {
            return Ok(false);
        }
        is(content.len() <= MAX_CONTENT_BYTES && ContentId::of(content) == id, "content of a part")?;
        let part: Part = serde_json::from_slice(content).map_err(|_| Damage::Wrong("content of a part"))?;
        for series in &part.series {
            if let Form::Histogram(shape) = series.form {
                is(shape.is_valid() && shape.buckets() <= MAX_HISTOGRAM_BUCKETS, "shape of a histogram")?;
            }
        }
        let width = part.width();
        is(width <= MAX_ROW_WORDS, "width of a part")?;
        let is_within = |series: &Series| series.at.checked_add(series.form.words()).is_some_and(|end| end <= width);
        is(part.series.iter().all(is_within), "place of a series")?;
        let packed = zstd::bulk::compress(content, 1).map_err(|_| Damage::Wrong("packing"))?;
        self.contents.push((id, packed.into()));
        self.parts.insert(id, self.index.enter_part(&Arc::new(part)));
        Ok(true)
    }

    fn enter_layout(&mut self, id: ContentId, is_table: bool, parts: &[ContentId]) -> Result<bool, Damage> {
        if self.layouts.contains_key(&id) {
            return Ok(false);
        }
        is((1..=MAX_PARTS).contains(&parts.len()) && !(is_table && parts.len() > 1), "number of parts")?;
        let numbers: Option<Vec<u32>> = parts.iter().map(|part| self.parts.get(part).copied()).collect();
        let numbers = numbers.ok_or(Damage::Wrong("part of a layout"))?;
        let width: usize = numbers.iter().map(|part| 1 + self.index.part(*part).width()).sum();
        is(width <= MAX_ROW_WORDS, "width of a layout")?;
        let placed = parts.iter().zip(&numbers).map(|(id, number)| (*id, self.index.part(*number).clone()));
        let layout = Layout::new(placed.collect(), is_table);
        is(layout.id() == id, "id of a layout")?;
        self.layouts.insert(id, self.index.enter_layout(layout, numbers));
        Ok(true)
    }

    fn enter_host(&mut self, number: HostId, name: &str, labels: &Pairs) -> Result<bool, Damage> {
        if let Some(known) = self.hosts.get(&number) {
            let is_same = *known.name == *name && self.index.hosts.labels(known.labels) == Some(labels);
            return is(is_same, "number of a host: it is another's").map(|()| false);
        }
        is(name.len() <= MAX_TEXT_BYTES && labels.bytes() <= MAX_TEXT_BYTES, "length of a host's labels")?;
        self.next.host = after(self.next.host, number.0)?;
        let set = self.index.hosts.take(labels, &mut self.index.shapes);
        let name: Arc<str> = name.into();
        self.host_numbers.entry((name.clone(), set)).or_insert(number);
        self.hosts.insert(number, Host { name, labels: set, tracks: 0 });
        Ok(true)
    }

    fn enter_track(
        &mut self,
        number: TrackId,
        (host, source, created_ns): (HostId, u64, u64),
        layout: ContentId,
        (labels, texts): (&Pairs, &Pairs),
    ) -> Result<bool, Damage> {
        let layout = *self.layouts.get(&layout).ok_or(Damage::Wrong("layout of a track"))?;
        if let Some(known) = self.tracks.get(&number) {
            let is_same = (known.host, known.source) == (host, source)
                && known.texts == *texts
                && self.index.of_class(known.class).2 == layout
                && self.index.regions.labels(known.labels) == Some(labels);
            return is(is_same, "number of a track: it is another's").map(|()| false);
        }
        is(labels.bytes() + texts.bytes() <= MAX_TEXT_BYTES, "length of a region's labels")?;
        let of_host = self.hosts.get_mut(&host).ok_or(Damage::Wrong("host of a track"))?;
        self.next.track = after(self.next.track, number.0)?;
        of_host.tracks += 1;
        let set = self.index.regions.take(labels, &mut self.index.shapes);
        let class = self.index.class(of_host.labels, set, layout);
        self.index.enter_track(class, of_host.labels, set, number);
        self.tracks.insert(number, Track { host, class, labels: set, texts: texts.clone(), source, created_ns });
        Ok(true)
    }

    fn enter_line(
        &mut self,
        key: (TrackId, Line),
        since_ns: u64,
        labels: &Pairs,
        texts: &Pairs,
    ) -> Result<bool, Damage> {
        if let Some(known) = self.lines.get(&key) {
            let is_same = known.labels == *labels && known.texts == *texts;
            return is(is_same, "number of a line: it is another's").map(|()| false);
        }
        is(labels.bytes() + texts.bytes() <= MAX_TEXT_BYTES, "length of a line's labels")?;
        let is_of_table = self.layout_of(key.0).is_some_and(|layout| layout.is_table());
        is(is_of_table && key.1.0 < u32::MAX, "track of a line")?;
        let shape = self.index.shapes.number(labels.iter().map(|(name, _)| name), Metric::Gauge);
        self.line_numbers.entry((key.0, labels.clone(), texts.clone())).or_insert(key.1);
        self.lines.insert(key, LineEntry { labels: labels.clone(), texts: texts.clone(), shape, since_ns });
        Ok(true)
    }

    fn forget_host(&mut self, number: HostId) -> Result<bool, Damage> {
        let Some(host) = self.hosts.get(&number) else { return Ok(false) };
        is(host.tracks == 0, "forgotten host: it has tracks")?;
        let key = (host.name.clone(), host.labels);
        if self.host_numbers.get(&key) == Some(&number) {
            self.host_numbers.remove(&key);
        }
        self.index.hosts.give_back(host.labels);
        self.hosts.remove(&number);
        Ok(true)
    }

    fn forget_track(&mut self, number: TrackId) -> bool {
        if self.uses.contains_key(&number) {
            return false;
        }
        let Some(track) = self.tracks.remove(&number) else { return false };
        let lines = self.lines.range((number, Line(0))..=(number, Line(u32::MAX))).map(|((_, line), _)| *line);
        for line in lines.collect::<Vec<_>>() {
            self.forget_line(number, line);
        }
        if let Some(host) = self.hosts.get_mut(&track.host) {
            host.tracks -= 1;
            self.index.forget_track(track.class, host.labels, track.labels, number);
        }
        self.index.regions.give_back(track.labels);
        true
    }

    fn forget_line(&mut self, track: TrackId, line: Line) -> bool {
        let Some(entry) = self.lines.remove(&(track, line)) else { return false };
        let key = (track, entry.labels, entry.texts);
        if self.line_numbers.get(&key) == Some(&line) {
            self.line_numbers.remove(&key);
        }
        true
    }

    /// Everything that there is, in an order in which it can be entered.
    pub(super) fn each_item(&self, mut visit: impl FnMut(&Item<'_>)) {
        for (id, packed) in &self.contents {
            // It was packed here.
            let content = zstd::bulk::decompress(packed, MAX_CONTENT_BYTES).unwrap_or_default();
            visit(&Item::Part { id: *id, content: &content });
        }
        for (id, layout) in &self.layouts {
            let layout = self.index.layout(*layout);
            let parts = layout.parts().iter().map(|part| part.id).collect();
            visit(&Item::Layout { id: *id, is_table: layout.is_table(), parts });
        }
        for (number, host) in &self.hosts {
            let Some(labels) = self.index.hosts.labels(host.labels).cloned() else { continue };
            visit(&Item::Host { number: *number, name: &host.name, labels });
        }
        for number in self.tracks.keys() {
            self.track_item(*number).iter().for_each(&mut visit);
        }
        for (track, line) in self.lines.keys() {
            self.line_item(*track, *line).iter().for_each(&mut visit);
        }
    }

    pub(super) fn track_item(&self, number: TrackId) -> Option<Item<'static>> {
        let Track { host, class, labels, texts, source, created_ns } = self.tracks.get(&number)?;
        let (host, class, labels, source, created_ns) = (*host, *class, *labels, *source, *created_ns);
        let (labels, texts) = (self.index.regions.labels(labels)?.clone(), texts.clone());
        let layout = self.index.layout(self.index.of_class(class).2).id();
        Some(Item::Track { number, host, source, created_ns, layout, labels, texts })
    }

    pub(super) fn line_item(&self, track: TrackId, line: Line) -> Option<Item<'static>> {
        let LineEntry { labels, texts, since_ns, .. } = self.lines.get(&(track, line))?;
        Some(Item::Line { track, line, since_ns: *since_ns, labels: labels.clone(), texts: texts.clone() })
    }

    /// Number of the host with this name and these labels.
    pub(super) fn find_host(&self, name: &str, labels: &Pairs) -> Option<HostId> {
        self.host_numbers.get(&(name.into(), self.index.hosts.find(labels)?)).copied()
    }

    /// The track that is what `key` says.
    #[must_use]
    pub fn find_track(&self, key: &TrackKey) -> Option<TrackId> {
        let region = self.index.regions.find(&Pairs::new(&key.labels))?;
        let found = self.index.find(self.hosts.get(&key.host)?.labels, region, *self.layouts.get(&key.layout)?);
        let texts = Pairs::new(&key.texts);
        let is_it = |track: &Track| (track.host, track.source) == (key.host, key.source) && track.texts == texts;
        found.into_iter().find(|number| self.tracks.get(number).is_some_and(is_it))
    }

    pub(super) fn find_line(&self, track: TrackId, labels: &Pairs, texts: &Pairs) -> Option<Line> {
        self.line_numbers.get(&(track, labels.clone(), texts.clone())).copied()
    }

    /// The line of a track after all that it has.
    pub(super) fn next_line(&self, track: TrackId) -> Line {
        let last = self.lines.range((track, Line(0))..=(track, Line(u32::MAX))).next_back();
        Line(last.map_or(1, |((_, line), _)| line.0 + 1))
    }

    /// The part with this id.
    #[must_use]
    pub fn part(&self, id: ContentId) -> Option<&Arc<Part>> {
        self.parts.get(&id).map(|number| self.index.part(*number))
    }

    /// The layout with this id.
    #[must_use]
    pub fn layout(&self, id: ContentId) -> Option<&Arc<Layout>> {
        self.layouts.get(&id).map(|number| self.index.layout(*number))
    }

    /// How many of each there are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (parts, layouts, lines) = (self.parts.len(), self.layouts.len(), self.lines.len());
        Counts { parts, layouts, hosts: self.hosts.len(), tracks: self.tracks.len(), lines }
    }

    /// All hosts, in the order of their numbers.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> {
        self.hosts.keys().copied()
    }

    /// Name and labels of a host.
    #[must_use]
    pub fn host(&self, number: HostId) -> Option<(&str, BTreeMap<String, String>)> {
        let host = self.hosts.get(&number)?;
        Some((&host.name, self.index.hosts.labels(host.labels)?.to_vec().into_iter().collect()))
    }

    /// All tracks, in the order of their numbers.
    pub fn tracks(&self) -> impl Iterator<Item = TrackId> {
        self.tracks.keys().copied()
    }

    /// A number that no track has, nor any with a greater one. Whoever numbers tracks himself begins there.
    #[must_use]
    pub fn next_track(&self) -> TrackId {
        TrackId(self.next.track)
    }

    /// What a track is.
    #[must_use]
    pub fn track(&self, number: TrackId) -> Option<TrackInfo> {
        let track = self.tracks.get(&number)?;
        Some(TrackInfo {
            host: track.host,
            source: track.source,
            labels: self.index.regions.labels(track.labels)?.to_vec(),
            texts: track.texts.to_vec(),
            layout: self.layout_of(number)?.clone(),
            created_ns: track.created_ns,
        })
    }

    /// When a track's first row was, as far as whoever defined it knew it, UTC ns.
    pub(crate) fn created_ns(&self, number: TrackId) -> Option<u64> {
        self.tracks.get(&number).map(|track| track.created_ns).filter(|created_ns| *created_ns > 0)
    }

    /// What stands in the rows of a track.
    #[must_use]
    pub fn layout_of(&self, track: TrackId) -> Option<&Arc<Layout>> {
        let track = self.tracks.get(&track)?;
        Some(self.index.layout(self.index.of_class(track.class).2))
    }

    /// Lines of a track, in the order of their numbers.
    pub fn lines_of(&self, track: TrackId) -> impl Iterator<Item = Line> {
        self.lines.range((track, Line(0))..=(track, Line(u32::MAX))).map(|((_, line), _)| *line)
    }

    /// What a line is.
    #[must_use]
    pub fn line(&self, track: TrackId, line: Line) -> Option<LineInfo> {
        let LineEntry { labels, texts, since_ns, .. } = self.lines.get(&(track, line))?;
        Some(LineInfo { labels: labels.to_vec(), texts: texts.to_vec(), since_ns: *since_ns })
    }

    /// Tracks of all hosts that have had this name, in the order of their numbers. Cost: a look at each track.
    #[must_use]
    pub fn tracks_of(&self, name: &str) -> Vec<TrackId> {
        let hosts: Vec<HostId> = self.hosts.iter().filter(|(_, host)| *host.name == *name).map(|(id, _)| *id).collect();
        self.tracks.iter().filter(|(_, track)| hosts.contains(&track.host)).map(|(id, _)| *id).collect()
    }

    /// All tracks, each with the name of its host.
    pub fn tracks_with_hosts(&self) -> impl Iterator<Item = (TrackId, &str)> {
        self.tracks.iter().filter_map(|(id, track)| Some((*id, &*self.hosts.get(&track.host)?.name)))
    }

    /// Label sets of a track's host and of its region.
    pub(super) fn outside(&self, track: &Track) -> Option<(&Pairs, &Pairs)> {
        let host = self.hosts.get(&track.host)?;
        Some((self.index.hosts.labels(host.labels)?, self.index.regions.labels(track.labels)?))
    }
}
