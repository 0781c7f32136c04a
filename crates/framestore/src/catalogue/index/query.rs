// SPDX-License-Identifier: Apache-2.0
//! One question to the index, with what was found out for it on the way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use onlooker_series::series::Series;

use super::labels::{Matching, NO_NAMES, Origin, Resolved, Shapes4, origin_of};
use super::matcher::Matcher;
use super::{Class, Index, NAME, is_dynamic, own};
use crate::types::TrackId;

/// With so many times more tracks than label sets of a side that match, the few are looked up and the others not looked
/// at.
const FEW: usize = 16;

/// A matcher that a side's label decides: which side, which matcher, the label's place in the side's shape.
type Predicate = (bool, usize, usize);

/// Series of a part on which the same is asked of the tracks.
struct Group {
    /// Label sets of hosts that match; `None`: all.
    hosts: Option<Rc<Matching>>,
    /// The same of regions.
    regions: Option<Rc<Matching>>,
    series: Vec<u32>,
}

pub(super) struct Query<'q> {
    index: &'q Index,
    matchers: &'q [Matcher],
    resolved: HashMap<Shapes4, Rc<Resolved>>,
    /// By shape of host and region, part, and whether it is a table's.
    groups: HashMap<(u32, u32, u32, bool), Rc<[Group]>>,
    /// By side, matcher, and name of the label there.
    matching: HashMap<(bool, usize, &'q str), Rc<Matching>>,
}

impl<'q> Query<'q> {
    pub(super) fn new(index: &'q Index, matchers: &'q [Matcher]) -> Self {
        let (resolved, groups, matching) = Default::default();
        Self { index, matchers, resolved, groups, matching }
    }

    pub(super) fn run(mut self) -> Vec<(TrackId, u32, u32)> {
        let mut found = Vec::new();
        for part in self.parts() {
            for (layout, at) in &self.index.parts[part as usize].layouts {
                for class in &self.index.layouts[*layout as usize].classes {
                    let class = &self.index.classes[*class as usize];
                    if class.tracks.is_empty() {
                        continue;
                    }
                    for group in self.groups(class, part).iter() {
                        let track = |track| found.extend(group.series.iter().map(|series| (track, *at, *series)));
                        each_track(class, group, track);
                    }
                }
            }
        }
        found.sort_unstable();
        found
    }

    fn names_match(&self, name: &str) -> bool {
        self.matchers.iter().filter(|matcher| matcher.name() == NAME).all(|matcher| matcher.is_match(name))
    }

    /// Parts that have series whose names match.
    fn parts(&self) -> BTreeSet<u32> {
        let only = self.matchers.iter().find(|matcher| matcher.name() == NAME && matcher.only_value().is_some());
        let names = &self.index.names;
        match only.and_then(Matcher::only_value) {
            Some(name) if self.names_match(name) => names.get(name).into_iter().flatten().copied().collect(),
            Some(_) => BTreeSet::new(),
            None => {
                names.iter().filter(|(name, _)| self.names_match(name)).flat_map(|(_, parts)| parts).copied().collect()
            }
        }
    }

    /// Series of a part that can match in a class.
    fn groups(&mut self, class: &Class, part: u32) -> Rc<[Group]> {
        let index = self.index;
        let is_table = index.layouts[class.layout as usize].layout.is_table();
        let key = (class.host, class.region, part, is_table);
        if let Some(groups) = self.groups.get(&key) {
            return groups.clone();
        }
        let mut by_predicates: BTreeMap<Vec<Predicate>, Vec<u32>> = BTreeMap::new();
        let entry = &index.parts[part as usize];
        for ((series, shape), number) in entry.part.series.iter().zip(&entry.shapes).zip(0..) {
            if self.names_match(&series.name) {
                let resolved = self.resolve([class.host, class.region, NO_NAMES, *shape]);
                if let Some(predicates) = self.predicates(class, is_table, series, &resolved) {
                    by_predicates.entry(predicates).or_default().push(number);
                }
            }
        }
        let groups = by_predicates.into_iter().map(|(predicates, series)| self.group(class, &predicates, series));
        let groups: Rc<[Group]> = groups.collect::<Vec<_>>().into();
        self.groups.insert(key, groups.clone());
        groups
    }

    /// What matchers ask of a track's host and region for this series; `None` where it cannot match at all.
    fn predicates(
        &self,
        class: &Class,
        is_table: bool,
        series: &Series,
        resolved: &Resolved,
    ) -> Option<Vec<Predicate>> {
        let mut predicates = Vec::new();
        let matchers = self.matchers.iter().enumerate().filter(|(_, matcher)| matcher.name() != NAME);
        for (number, matcher) in matchers {
            let name = matcher.name();
            let (is_host, label) = match origin_of(resolved, name) {
                Some(Origin::Host(label)) => (true, label),
                Some(Origin::Region(label)) => (false, label),
                // A line's labels may be called so, or take the name from the series' own.
                _ if is_table || is_dynamic(series, name) => continue,
                Some(Origin::Own(label)) => {
                    let (_, value) = own(series).nth(label)?;
                    matcher.is_match(value).then_some(())?;
                    continue;
                }
                Some(Origin::Line(_)) | None => {
                    matcher.is_match("").then_some(())?;
                    continue;
                }
            };
            // One that has another name in the end may give way to a line's.
            let names = self.index.shapes.names(if is_host { class.host } else { class.region });
            if !is_table || &*names[label] == name {
                predicates.push((is_host, number, label));
            }
        }
        Some(predicates)
    }

    fn group(&mut self, class: &Class, predicates: &[Predicate], series: Vec<u32>) -> Group {
        let mut group = Group { hosts: None, regions: None, series };
        for (is_host, matcher, label) in predicates {
            let index = self.index;
            let (shape, side) = if *is_host { (class.host, &index.hosts) } else { (class.region, &index.regions) };
            let name: &'q str = &index.shapes.names(shape)[*label];
            let matchers = self.matchers;
            let matching = self.matching.entry((*is_host, *matcher, name));
            let matching = matching.or_insert_with(|| Rc::new(side.matching(name, &matchers[*matcher]))).clone();
            let slot = if *is_host { &mut group.hosts } else { &mut group.regions };
            *slot = Some(match slot.take() {
                Some(before) => Rc::new(before.and(&matching)),
                None => matching,
            });
        }
        group
    }

    fn resolve(&mut self, shapes: Shapes4) -> Rc<Resolved> {
        let index = self.index;
        self.resolved.entry(shapes).or_insert_with(|| Rc::new(index.resolve(shapes))).clone()
    }
}

/// Tracks of a class that a group asks for.
fn each_track(class: &Class, group: &Group, mut visit: impl FnMut(TrackId)) {
    let has = |matching: &Option<Rc<Matching>>, set: u32| matching.as_ref().is_none_or(|matching| matching.has(set));
    let is_few = |matching: &&Rc<Matching>| matching.sets.len() * FEW < class.tracks.len();
    let of_set = |set: u32| (set, 0, 0)..=(set, u32::MAX, u32::MAX);
    if let Some(hosts) = group.hosts.as_ref().filter(is_few) {
        let tracks = hosts.sets.iter().flat_map(|host| class.tracks.range(of_set(*host)));
        tracks.filter(|track| has(&group.regions, track.1)).for_each(|track| visit(TrackId(track.2)));
    } else if let Some(regions) = group.regions.as_ref().filter(is_few) {
        let tracks = regions.sets.iter().flat_map(|region| class.by_region.range(of_set(*region)));
        tracks.filter(|track| has(&group.hosts, track.1)).for_each(|track| visit(TrackId(track.2)));
    } else {
        let tracks = class.tracks.iter().filter(|track| has(&group.hosts, track.0) && has(&group.regions, track.1));
        tracks.for_each(|track| visit(TrackId(track.2)));
    }
}
