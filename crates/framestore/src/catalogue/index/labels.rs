// SPDX-License-Identifier: Apache-2.0
//! Label sets of hosts and regions, each once, with postings; and which label of a series comes from where.
//!
//! A *shape* is the names of a label set. What a series' labels are called in the end, and from which side each comes,
//! follows from shapes alone ([`labels_of`] renames what clashes, whatever the values), so it is worked out once for
//! thousands of hosts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onlooker_region::schema::Metric;
use onlooker_series::series::labels_of;

use super::super::item::Pairs;
use super::matcher::Matcher;

/// Names of a label set; of series' own labels also the metric, by which a name may be reserved.
#[derive(Clone, Debug)]
struct Shape {
    names: Arc<[Arc<str>]>,
    metric: Metric,
}

/// Number of a shape.
pub(crate) type ShapeNumber = u32;
/// The one without names.
pub(crate) const NO_NAMES: ShapeNumber = 0;

/// Where a label comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The host's labels, and which of them.
    Host(usize),
    /// The region's.
    Region(usize),
    /// The line's.
    Line(usize),
    /// The series' own.
    Own(usize),
}

/// Shapes of host, region, line and series.
pub(crate) type Shapes4 = [ShapeNumber; 4];

/// Names of a series' labels as they are in the end, sorted, and where each comes from.
pub(crate) type Resolved = Vec<(String, Origin)>;

/// Names, and the one that is reserved.
type ShapeKey = (Arc<[Arc<str>]>, Option<&'static str>);

/// All shapes.
#[derive(Debug)]
pub(crate) struct Shapes {
    shapes: Vec<Shape>,
    numbers: HashMap<ShapeKey, ShapeNumber>,
}

impl Default for Shapes {
    fn default() -> Self {
        let mut shapes = Self { shapes: Vec::new(), numbers: HashMap::new() };
        assert_eq!(shapes.number([].into_iter(), Metric::Gauge), NO_NAMES, "it is the first");
        shapes
    }
}

impl Shapes {
    /// The shape of labels with these names, of a series of this metric, or of a gauge for what is no series.
    pub(crate) fn number<'a>(&mut self, names: impl Iterator<Item = &'a str>, metric: Metric) -> ShapeNumber {
        let key = (names.map(Arc::from).collect::<Arc<[Arc<str>]>>(), metric.reserved_label());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = u32::try_from(self.shapes.len()).expect("as many shapes as there are schemas");
        self.shapes.push(Shape { names: key.0.clone(), metric });
        self.numbers.insert(key, number);
        number
    }

    pub(crate) fn names(&self, shape: ShapeNumber) -> &[Arc<str>] {
        &self.shapes[shape as usize].names
    }

    /// What the labels of a series are called. The rule is asked, with marks for values, not written down a second
    /// time.
    pub(crate) fn resolve(&self, [host, region, line, own]: Shapes4) -> Resolved {
        let marked = |shape: ShapeNumber, mark: char| {
            let names = self.names(shape).iter().enumerate();
            names.map(move |(at, name)| (name.to_string(), format!("{mark}{at}")))
        };
        let common: BTreeMap<String, String> = marked(host, 'h').collect();
        let region: Vec<_> = marked(region, 'r').collect();
        let lines_and_own = marked(line, 'l').chain(marked(own, 'o')).collect();
        let labels = labels_of(&common, &region, lines_and_own, self.shapes[own as usize].metric);
        let origin = |mark: &str| {
            let at = mark[1..].parse().ok()?;
            Some(match mark.as_bytes()[0] {
                b'h' => Origin::Host(at),
                b'r' => Origin::Region(at),
                b'l' => Origin::Line(at),
                _ => Origin::Own(at),
            })
        };
        labels.into_iter().filter_map(|(name, mark)| Some((name, origin(&mark)?))).collect()
    }
}

/// Where a label of this name comes from; `None`: the series has none.
pub(crate) fn origin_of(resolved: &Resolved, name: &str) -> Option<Origin> {
    let at = resolved.binary_search_by(|(other, _)| other.as_str().cmp(name)).ok()?;
    Some(resolved[at].1)
}

#[derive(Debug)]
struct Set {
    labels: Pairs,
    shape: ShapeNumber,
    users: u32,
}

/// Label sets of one side, and for each label the sets that have it.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    sets: Vec<Option<Set>>,
    free: Vec<u32>,
    numbers: HashMap<Pairs, u32>,
    postings: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Vec<u32>>>,
}

impl Sets {
    /// The set with these labels, for one more user.
    pub(crate) fn take(&mut self, labels: &Pairs, shapes: &mut Shapes) -> u32 {
        if let Some(number) = self.numbers.get(labels) {
            if let Some(set) = &mut self.sets[*number as usize] {
                set.users += 1;
            }
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.sets.push(None);
            u32::try_from(self.sets.len() - 1).expect("no more sets than tracks")
        });
        let shape = shapes.number(labels.iter().map(|(name, _)| name), Metric::Gauge);
        self.sets[number as usize] = Some(Set { labels: labels.clone(), shape, users: 1 });
        self.numbers.insert(labels.clone(), number);
        for (name, value) in labels.iter() {
            let values = entry(&mut self.postings, name);
            let sets = entry(values, value);
            if let Err(at) = sets.binary_search(&number) {
                sets.insert(at, number);
            }
        }
        number
    }

    /// One user less.
    pub(crate) fn give_back(&mut self, number: u32) {
        let Some(set) = &mut self.sets[number as usize] else { return };
        set.users -= 1;
        if set.users > 0 {
            return;
        }
        let labels = set.labels.clone();
        self.sets[number as usize] = None;
        self.numbers.remove(&labels);
        self.free.push(number);
        for (name, value) in labels.iter() {
            let Some(values) = self.postings.get_mut(name) else { continue };
            if let Some(sets) = values.get_mut(value) {
                if let Ok(at) = sets.binary_search(&number) {
                    sets.remove(at);
                }
                if sets.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.postings.remove(name);
            }
        }
    }

    /// The set with these labels, if anybody has it.
    pub(crate) fn find(&self, labels: &Pairs) -> Option<u32> {
        self.numbers.get(labels).copied()
    }

    pub(crate) fn shape(&self, number: u32) -> ShapeNumber {
        self.sets[number as usize].as_ref().map_or(0, |set| set.shape)
    }

    pub(crate) fn labels(&self, number: u32) -> Option<&Pairs> {
        Some(&self.sets.get(number as usize)?.as_ref()?.labels)
    }

    /// Sets that have a label of this name with a value that matches.
    pub(super) fn matching(&self, name: &str, matcher: &Matcher) -> Matching {
        let Some(values) = self.postings.get(name) else { return Matching::default() };
        let sets: Vec<u32> = match matcher.only_value() {
            Some(value) => values.get(value).cloned().unwrap_or_default(),
            None => {
                let values = values.iter().filter(|(value, _)| matcher.is_match(value));
                let mut sets: Vec<u32> = values.flat_map(|(_, sets)| sets).copied().collect();
                sets.sort_unstable();
                sets
            }
        };
        Matching::new(sets)
    }
}

fn entry<'a, V: Default>(map: &'a mut BTreeMap<Arc<str>, V>, key: &str) -> &'a mut V {
    if !map.contains_key(key) {
        map.insert(key.into(), V::default());
    }
    map.get_mut(key).expect("it was inserted if it was not there")
}

/// Some sets, to be walked and to be asked.
#[derive(Debug, Default)]
pub(super) struct Matching {
    /// In order.
    pub(super) sets: Vec<u32>,
    has: Vec<bool>,
}

impl Matching {
    fn new(sets: Vec<u32>) -> Self {
        let mut has = vec![false; sets.last().map_or(0, |last| *last as usize + 1)];
        sets.iter().for_each(|set| has[*set as usize] = true);
        Self { sets, has }
    }

    pub(super) fn has(&self, set: u32) -> bool {
        self.has.get(set as usize).copied().unwrap_or(false)
    }

    /// Those that are in the other, too.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self::new(self.sets.iter().copied().filter(|set| other.has(*set)).collect())
    }
}
