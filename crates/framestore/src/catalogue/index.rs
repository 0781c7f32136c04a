// SPDX-License-Identifier: Apache-2.0
//! Which series have which names and labels: matchers in, (track, part, series) out.
//!
//! A series' labels come from three sides: its host, its region, itself. Own labels and names are of *parts*, which
//! thousands of hosts share; so postings are of parts for those, and of label sets for the other two. A *class* is all
//! tracks that have one layout and one shape of labels on each side: within it, what a label is called and where it
//! comes from is the same for a series of every track, so matchers are decided once a class and part, and of the tracks
//! only two numbers are looked at. Nothing is ever kept a series and track.
//!
//! The catalogue enters; whoever asks reads. Cost: 20 to 40 bytes a track; to select, some microseconds a class, some
//! nanoseconds a track of it.
//!
//! What only rows know is not decided here: the text of an info (label `value`), a histogram's `le`, and in tables
//! whatever a line's labels may say (`Known::lines` does). Such matchers let everything pass.

pub(super) mod labels;
pub(super) mod matcher;
mod query;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use onlooker_series::series::{Form, Series};

use self::labels::{NO_NAMES, Origin, Resolved, Sets, ShapeNumber, Shapes, Shapes4, origin_of};
use self::matcher::Matcher;
use self::query::Query;
use crate::layout::{Layout, Part};
use crate::types::TrackId;

/// Label that a metric's name is called by.
pub(super) const NAME: &str = "__name__";

/// A part, with what is asked of it.
#[derive(Debug)]
struct PartEntry {
    part: Arc<Part>,
    /// Of each series' own labels.
    shapes: Vec<ShapeNumber>,
    /// Layouts that have it, and where.
    layouts: Vec<(u32, u32)>,
}

#[derive(Debug)]
struct LayoutEntry {
    layout: Arc<Layout>,
    parts: Vec<u32>,
    classes: Vec<u32>,
}

/// Tracks that differ in values of labels only.
#[derive(Debug)]
pub(super) struct Class {
    host: ShapeNumber,
    region: ShapeNumber,
    layout: u32,
    /// Label sets of host and region, number.
    tracks: BTreeSet<(u32, u32, u32)>,
    /// Label sets of region and host, number; of none where regions have no labels.
    by_region: BTreeSet<(u32, u32, u32)>,
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) hosts: Sets,
    pub(super) regions: Sets,
    pub(super) shapes: Shapes,
    parts: Vec<PartEntry>,
    layouts: Vec<LayoutEntry>,
    /// Parts that have series of a name.
    names: BTreeMap<Arc<str>, Vec<u32>>,
    class_numbers: HashMap<(ShapeNumber, ShapeNumber, u32), u32>,
    classes: Vec<Class>,
}

impl Index {
    /// Enters a part; returns its number.
    pub(super) fn enter_part(&mut self, part: &Arc<Part>) -> u32 {
        let number = u32::try_from(self.parts.len()).expect("as many as fit in memory");
        let mut shapes = Vec::with_capacity(part.series.len());
        for series in &part.series {
            shapes.push(self.shapes.number(own(series).map(|(name, _)| name), series.metric));
            if !self.names.contains_key(&*series.name) {
                self.names.insert(Arc::from(&*series.name), Vec::new());
            }
            if let Some(parts) = self.names.get_mut(&*series.name).filter(|parts| parts.last() != Some(&number)) {
                parts.push(number);
            }
        }
        self.parts.push(PartEntry { part: part.clone(), shapes, layouts: Vec::new() });
        number
    }

    /// Enters a layout of parts with these numbers; returns its own.
    pub(super) fn enter_layout(&mut self, layout: Layout, parts: Vec<u32>) -> u32 {
        let number = u32::try_from(self.layouts.len()).expect("as many as fit in memory");
        for (part, at) in parts.iter().zip(0..) {
            self.parts[*part as usize].layouts.push((number, at));
        }
        self.layouts.push(LayoutEntry { layout: Arc::new(layout), parts, classes: Vec::new() });
        number
    }

    pub(super) fn part(&self, number: u32) -> &Arc<Part> {
        &self.parts[number as usize].part
    }

    pub(super) fn layout(&self, number: u32) -> &Arc<Layout> {
        &self.layouts[number as usize].layout
    }

    /// The class of tracks with these label sets and this layout.
    pub(super) fn class(&mut self, host: u32, region: u32, layout: u32) -> u32 {
        let key = (self.hosts.shape(host), self.regions.shape(region), layout);
        if let Some(class) = self.class_numbers.get(&key) {
            return *class;
        }
        let class = u32::try_from(self.classes.len()).expect("no more classes than tracks");
        let (tracks, by_region) = (BTreeSet::new(), BTreeSet::new());
        self.classes.push(Class { host: key.0, region: key.1, layout, tracks, by_region });
        self.class_numbers.insert(key, class);
        self.layouts[layout as usize].classes.push(class);
        class
    }

    pub(super) fn enter_track(&mut self, class: u32, host: u32, region: u32, track: TrackId) {
        let class = &mut self.classes[class as usize];
        class.tracks.insert((host, region, track.0));
        if class.region != NO_NAMES {
            class.by_region.insert((region, host, track.0));
        }
    }

    pub(super) fn forget_track(&mut self, class: u32, host: u32, region: u32, track: TrackId) {
        let class = &mut self.classes[class as usize];
        class.tracks.remove(&(host, region, track.0));
        class.by_region.remove(&(region, host, track.0));
    }

    /// Shapes of the label sets of a class' hosts and regions, and its layout.
    pub(super) fn of_class(&self, class: u32) -> (ShapeNumber, ShapeNumber, u32) {
        let class = &self.classes[class as usize];
        (class.host, class.region, class.layout)
    }

    pub(super) fn all_parts(&self) -> impl Iterator<Item = &Arc<Part>> {
        self.parts.iter().map(|entry| &entry.part)
    }

    /// Series of a part of a layout, each with the shape of its own labels.
    pub(super) fn series(&self, layout: u32, part: u32) -> impl Iterator<Item = (&Series, ShapeNumber)> {
        let part = self.layouts[layout as usize].parts.get(part as usize);
        let part = part.map(|part| &self.parts[*part as usize]);
        part.into_iter().flat_map(|part| part.part.series.iter().zip(part.shapes.iter().copied()))
    }

    /// Tracks with these label sets and this layout.
    pub(super) fn find(&self, host: u32, region: u32, layout: u32) -> Vec<TrackId> {
        let class = self.class_numbers.get(&(self.hosts.shape(host), self.regions.shape(region), layout));
        let tracks = class.map(|class| &self.classes[*class as usize].tracks);
        let of_sets = |tracks: &BTreeSet<(u32, u32, u32)>| {
            tracks.range((host, region, 0)..=(host, region, u32::MAX)).map(|track| TrackId(track.2)).collect()
        };
        tracks.map_or_else(Vec::new, of_sets)
    }

    /// Series that match: their tracks, numbers of their parts in the layout, numbers of the series in the part; in
    /// order.
    pub(super) fn select(&self, matchers: &[Matcher]) -> Vec<(TrackId, u32, u32)> {
        Query::new(self, matchers).run()
    }

    /// All names of labels of series that tracks have that are no tables, into `names`.
    pub(super) fn label_names(&self, names: &mut BTreeSet<String>) {
        self.each_kind(|_, _, _, resolved, _| {
            for name in resolved.iter().map(|(name, _)| name.as_str()).chain([NAME]) {
                if !names.contains(name) {
                    names.insert(name.to_owned());
                }
            }
        });
    }

    /// All values of a label of series that tracks have that are no tables, into `values`.
    pub(super) fn label_values(&self, label: &str, values: &mut BTreeSet<String>) {
        let mut done = BTreeSet::new();
        self.each_kind(|class, number, part, resolved, shape| {
            let of_shape = || part.part.series.iter().zip(&part.shapes).filter(|(_, other)| **other == shape);
            if label == NAME {
                values.extend(of_shape().map(|(series, _)| series.name.to_string()));
                return;
            }
            let (is_host, at) = match origin_of(resolved, label) {
                Some(Origin::Host(at)) => (true, at),
                Some(Origin::Region(at)) => (false, at),
                Some(Origin::Own(at)) => {
                    values.extend(of_shape().filter_map(|(series, _)| Some(own(series).nth(at)?.1.to_owned())));
                    return;
                }
                Some(Origin::Line(_)) | None => return,
            };
            // Once a class, whatever the parts.
            if done.insert((number, is_host, at)) {
                let sets: BTreeSet<u32> =
                    class.tracks.iter().map(|(host, region, _)| if is_host { *host } else { *region }).collect();
                let side = if is_host { &self.hosts } else { &self.regions };
                let of_set = |set: u32| Some(side.labels(set)?.iter().nth(at)?.1.to_owned());
                values.extend(sets.into_iter().filter_map(of_set));
            }
        });
    }

    /// Each kind of series that tracks have that are no tables: the class and its number, the part, what its labels are
    /// called, the shape of its own ones.
    fn each_kind(&self, mut visit: impl FnMut(&Class, u32, &PartEntry, &Resolved, ShapeNumber)) {
        let mut resolved: HashMap<Shapes4, Resolved> = HashMap::new();
        for (class, number) in self.classes.iter().zip(0..).filter(|(class, _)| !class.tracks.is_empty()) {
            let LayoutEntry { layout, parts, .. } = &self.layouts[class.layout as usize];
            for part in parts.iter().filter(|_| !layout.is_table()) {
                let part = &self.parts[*part as usize];
                for shape in part.shapes.iter().copied().collect::<BTreeSet<_>>() {
                    let key = [class.host, class.region, NO_NAMES, shape];
                    let resolved = resolved.entry(key).or_insert_with(|| self.resolve(key));
                    visit(class, number, part, resolved, shape);
                }
            }
        }
    }

    /// What labels of series of these shapes are called.
    pub(super) fn resolve(&self, shapes: Shapes4) -> Resolved {
        self.shapes.resolve(shapes)
    }
}

/// Own labels of a series that have a value.
pub(super) fn own(series: &Series) -> impl Iterator<Item = (&str, &str)> {
    series.labels.iter().filter(|(_, value)| !value.is_empty())
}

/// Whether only rows know what value a label has.
pub(super) fn is_dynamic(series: &Series, label: &str) -> bool {
    matches!((series.form, label), (Form::Text, "value") | (Form::Histogram(_), "le"))
}
