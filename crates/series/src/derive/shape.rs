// SPDX-License-Identifier: Apache-2.0
//! What becomes of the fields of a schema: which go into which sum, and which columns of a group stand in its row.
//!
//! Nothing of it is of a host, so all who share a [`Plan`] share it.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use onlooker_region::columns::Plan;
use onlooker_region::schema::{self, Field, Group, Schema, Type};

use super::field::{block_of, sum_in};
use super::sums::Parts;

/// What becomes of a group's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They are shown.
    Shown,
    /// They are replaced by their sums.
    Replaced,
    /// Some are: [`Region::kept`](super::Region::kept).
    Partly,
}

/// Of the regions of a schema.
#[derive(Default)]
pub(super) struct Shape {
    pub(super) fates: Vec<Fate>,
    /// Of each group: which of its fields are replaced; empty: none.
    pub(super) replaced: Vec<Vec<bool>>,
    /// Which set of sums a group feeds.
    pub(super) feeds: Vec<Option<usize>>,
    pub(super) sets: Vec<Parts>,
    /// Of each group.
    pub(super) kept: Vec<Kept>,
}

/// What of a group no sum replaces, as columns ([`onlooker_region::compiled`]).
#[derive(Default)]
pub(super) struct Kept {
    /// Those that are words of its row: all but texts.
    pub(super) columns: Vec<Range<usize>>,
    /// How many.
    pub(super) words: usize,
    /// Those that are texts.
    pub(super) texts: Vec<usize>,
    /// Its series, texts too.
    pub(super) series: usize,
    /// All values of the group, kept or not.
    pub(super) values: usize,
    /// The block whose time the row has: that of the first of them.
    pub(super) block: usize,
}

/// The two shapes that a schema can have.
#[derive(Default)]
struct Shapes {
    agents: OnceLock<Arc<Shape>>,
    programs: OnceLock<Arc<Shape>>,
}

impl Shape {
    /// That of regions of the agent, or of programs.
    pub(super) fn of(plan: &Plan, is_agents: bool) -> Arc<Self> {
        let shapes = plan.derived(|_| Shapes::default());
        let shape = if is_agents { &shapes.agents } else { &shapes.programs };
        shape.get_or_init(|| Arc::new(Self::new(plan, is_agents))).clone()
    }

    fn new(plan: &Plan, is_agents: bool) -> Self {
        let schema = plan.schema();
        let replaced = |group: &Group| -> Vec<bool> {
            let replaces = |field| sum_in(is_agents, field).is_some_and(schema::Sum::replaces);
            group.fields.iter().map(replaces).collect()
        };
        let mut shape = Self {
            replaced: schema.groups.iter().map(replaced).collect(),
            feeds: vec![None; schema.groups.len()],
            ..Self::default()
        };
        for (number, replaced) in shape.replaced.iter().enumerate() {
            shape.fates.push(match (replaced.contains(&true), replaced.contains(&false)) {
                (true, true) => Fate::Partly,
                (true, false) => Fate::Replaced,
                (false, _) => Fate::Shown,
            });
            shape.kept.push(Kept::new(plan, number, replaced));
        }
        for groups in sets(schema, is_agents) {
            groups.iter().for_each(|group| shape.feeds[*group] = Some(shape.sets.len()));
            shape.sets.push(Parts::new(plan, &groups));
        }
        shape
    }
}

impl Kept {
    fn new(plan: &Plan, number: usize, replaced: &[bool]) -> Self {
        let (group, compiled) = (&plan.schema().groups[number], &plan.compiled().groups()[number]);
        let mut kept = Self::default();
        for (at, field) in group.fields.iter().enumerate() {
            kept.values += field.elements() as usize;
            if replaced[at] {
                continue;
            }
            if kept.series == 0 {
                kept.block = block_of(group, field, 0);
            }
            kept.series += field.elements() as usize;
            let columns = compiled.columns(at);
            if field.kind == Type::Text {
                kept.texts.extend(columns);
                continue;
            }
            kept.words += columns.len();
            match kept.columns.last_mut() {
                Some(last) if last.end == columns.start => last.end = columns.end,
                _ => kept.columns.push(columns),
            }
        }
        kept
    }

    /// The words of a row; `room` is for those that do not stand side by side.
    pub(super) fn words<'r>(&self, columns: &'r [u64], room: &'r mut Vec<u64>) -> &'r [u64] {
        match &*self.columns {
            [] => &[],
            [all] => &columns[all.clone()],
            parts => {
                room.clear();
                parts.iter().for_each(|part| room.extend_from_slice(&columns[part.clone()]));
                room
            }
        }
    }
}

/// Groups whose sums are made together: elements that are spread over groups are; a published twin repeats its group.
fn sets(schema: &Schema, is_agents: bool) -> impl Iterator<Item = Vec<usize>> {
    let mut members: Vec<(HashSet<&str>, bool, Vec<usize>)> = Vec::new();
    for (number, group) in schema.groups.iter().enumerate() {
        let name = |field| Some(Field::sum_name(field, sum_in(is_agents, field)?));
        let mut names: HashSet<&str> = group.fields.iter().filter_map(name).collect();
        if names.is_empty() {
            continue;
        }
        let is_twin = group.twin_of.is_some();
        let shares =
            |(other, twin, _): &mut (HashSet<&str>, bool, Vec<usize>)| *twin == is_twin && !other.is_disjoint(&names);
        let shared: Vec<_> = members.extract_if(.., shares).collect();
        let mut groups = vec![number];
        for (others, _, of) in shared {
            names.extend(others);
            groups.extend(of);
        }
        groups.sort_unstable();
        members.push((names, is_twin, groups));
    }
    members.into_iter().map(|(_, _, groups)| groups)
}
