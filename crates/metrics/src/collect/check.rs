// SPDX-License-Identifier: Apache-2.0
//! Every metric against procfs, before it is served. procfs is read, the blocks are computed, procfs is read again: a value of the kernel must lie between
//! both readings, give or take what procfs rounds. The world moves meanwhile, so a metric that failed is tried again; one that fails always is left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::AtomicU64;

use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;
use onlooker_region::guard::commit;
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::schema::Field;
use onlooker_region::{Block, Schema};
use onlooker_responder::error::Result;

use super::counterpart::{Procfs, Reading, name_of, series};
use super::object::Prepared;
use crate::groups::{Group, is_held_to_bounds};

/// Most attempts: a loaded machine changes its memory and run queues between any two readings.
const TRIES: u32 = 50;

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Equal to procfs, as far as procfs has its values: served.
    Equal,
    /// procfs has no such metric, and all its values are within their bounds ([`crate::groups::is_held_to_bounds`]): served.
    Bounds,
    /// Some value is unlike procfs, or beyond its bounds: left out.
    Unlike,
    /// procfs has none of its values here, so nothing was compared: left out.
    NotCompared,
}

impl Verdict {
    /// Whether the metric is in the schema.
    #[must_use]
    pub const fn is_served(self) -> bool {
        matches!(self, Self::Equal | Self::Bounds)
    }

    /// For people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Bounds => "within bounds",
            Self::Unlike => "unlike",
            Self::NotCompared => "not compared",
        }
    }
}

/// A metric against procfs.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// Name and constant labels.
    pub metric: String,
    /// The kernel's value: of the element that does not agree, else of the first.
    pub kernel: f64,
    /// procfs's before and after; not numbers where it has none.
    pub procfs: (f64, f64),
    /// What came of it.
    pub verdict: Verdict,
    /// What was compared, or why the metric is left out.
    pub reason: String,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { metric, kernel, procfs: (before, after), verdict, reason } = self;
        let left_out = if verdict.is_served() { "" } else { ", LEFT OUT" };
        write!(f, "{metric}: {}{left_out}: kernel {kernel}, procfs {before} to {after}; {reason}", verdict.name())
    }
}

/// A computed value.
struct Element {
    /// With all its labels.
    series: String,
    /// What its CPUs add up to, where procfs has sums.
    over_cpus: String,
    value: f64,
}

/// A metric of a schema: what Prometheus sees as one. Arrays may be several fields.
fn metrics(schema: &Schema) -> Vec<String> {
    let mut metrics: Vec<String> = schema.groups.iter().flat_map(|group| &group.fields).map(metric_of).collect();
    let mut seen = BTreeSet::new();
    metrics.retain(|metric| seen.insert(metric.clone()));
    metrics
}

fn metric_of(field: &Field) -> String {
    series(&field.name, field.labels.iter().map(|(label, value)| (label.as_str(), value.as_str())))
}

/// Checks every metric.
///
/// # Errors
/// The reason why nothing can be checked.
pub(crate) fn check(
    group: Group,
    prepared: &Prepared,
    compute: &dyn Fn(u32) -> Result<Option<Vec<u64>>>,
) -> std::result::Result<Vec<Check>, String> {
    let plan = Plan::new(prepared.schema.clone());
    let metrics = metrics(&prepared.schema);
    let mut checks: Vec<Option<Check>> = vec![None; metrics.len()];
    for _ in 0..TRIES {
        let mut read = prepared.counterpart.reader(group).map_err(|error| format!("procfs: {error}"))?;
        let mut procfs = || read().map_err(|error| format!("procfs: {error}"));
        let mut before = procfs()?;
        let payloads: Vec<Vec<u64>> = (0..prepared.schema.blocks())
            .map(|block| match compute(block) {
                Ok(Some(payload)) => Ok(payload),
                Ok(None) => Err(format!("the collector has nothing to say of block {block}")),
                Err(error) => Err(error.to_string()),
            })
            .collect::<std::result::Result<_, _>>()?;
        let mut after = procfs()?;
        let elements = decode(&plan, &payloads);
        [&mut before, &mut after].into_iter().for_each(|reading| add_bounds(&elements, reading));
        for (metric, check) in metrics.iter().zip(&mut checks) {
            if check.as_ref().is_none_or(|check| !check.verdict.is_served()) {
                let elements = elements.get(metric).map_or(&[][..], Vec::as_slice);
                *check = Some(compare(metric, elements, &before, &after));
            }
        }
        if checks.iter().flatten().all(|check| check.verdict.is_served()) {
            break;
        }
    }
    Ok(checks.into_iter().flatten().collect())
}

/// Devices of procfs without a row: their drivers count in ways that are not known, or there are too many of them.
///
/// # Errors
/// The reason why nothing can be said.
pub(crate) fn devices_without_row(
    prepared: &Prepared,
    present: Vec<String>,
    compute: &dyn Fn(u32) -> Result<Option<Vec<u64>>>,
) -> std::result::Result<Vec<String>, String> {
    let payloads: Vec<Vec<u64>> = (0..prepared.schema.blocks())
        .map(|block| compute(block).map(Option::unwrap_or_default).map_err(|error| error.to_string()))
        .collect::<std::result::Result<_, _>>()?;
    let plan = Plan::new(prepared.schema.clone());
    let covered: BTreeSet<String> =
        decode(&plan, &payloads).into_values().flatten().map(|element| element.over_cpus).collect();
    let metrics = metrics(&prepared.schema);
    let has_row = |device: &String| {
        let name = metrics.first().map_or("", |metric| name_of(metric));
        covered.contains(&series(name, [("device", device.as_str())]))
    };
    Ok(present.into_iter().filter(|device| !has_row(device)).collect())
}

/// The schema without the metrics that failed.
pub(crate) fn keep(schema: &Schema, checks: &[Check]) -> Schema {
    let mut kept = schema.clone();
    for group in &mut kept.groups {
        group.fields.retain(|field| {
            let metric = metric_of(field);
            checks.iter().any(|check| check.metric == metric && check.verdict.is_served())
        });
    }
    kept
}

/// Bounds of those metrics that procfs has not.
fn add_bounds(elements: &HashMap<String, Vec<Element>>, reading: &mut Reading) {
    let held = elements.iter().filter(|(metric, _)| is_held_to_bounds(name_of(metric)));
    reading.extend(held.flat_map(|(_, elements)| elements).map(|element| (element.series.clone(), Procfs::none(1.0))));
}

/// The values of each metric.
fn decode(plan: &Plan, payloads: &[Vec<u64>]) -> HashMap<String, Vec<Element>> {
    let identity = Identity::first(1, 1);
    let blocks: Vec<Block> = (0u16..)
        .zip(payloads)
        .map(|(index, payload)| {
            let words: [AtomicU64; BLOCK_WORDS] = std::array::from_fn(|_| AtomicU64::new(0));
            commit(&words, identity.at(index), 1, |to| to.set_all(0, payload));
            let mut block = Block::default();
            block.copy_from(&words);
            block
        })
        .collect();
    let mut values: HashMap<String, Vec<Element>> = HashMap::new();
    let refused = plan.decode(identity, &blocks, |sample| {
        let labels = sample.labels();
        let labels = || labels.iter().map(|(label, value)| (label.as_str(), value.as_str()));
        let name = &sample.field.name;
        let over_cpus = match &sample.field.sum {
            Some(sum) if !sum.replaces() => {
                let labels = sum.labels.as_ref().unwrap_or(&sample.field.labels);
                series(&sum.name, labels.iter().map(|(label, value)| (label.as_str(), value.as_str())))
            }
            _ => series(name, labels().filter(|(label, _)| *label != "cpu")),
        };
        values.entry(metric_of(sample.field)).or_default().push(Element {
            series: series(name, labels()),
            over_cpus,
            value: sample.scaled(),
        });
    });
    debug_assert!(refused.is_ok_and(|refused| refused.is_empty()));
    values
}

/// A metric against both readings: each value where procfs has it, else the sums over CPUs. Values that procfs has not (CPUs that are offline) are passed over.
fn compare(metric: &str, elements: &[Element], before: &Reading, after: &Reading) -> Check {
    let both = |key: &str| Some((*before.get(key)?, *after.get(key)?));
    let inside = |value: f64, (before, after): (Procfs, Procfs)| {
        if before.value.is_nan() {
            return (0.0..=before.rounding).contains(&value);
        }
        let (low, high) = (before.value.min(after.value), before.value.max(after.value));
        value >= low - before.rounding && value <= high + after.rounding
    };
    let check = |kernel: f64, (before, after): (Procfs, Procfs), verdict, reason: String| {
        let (procfs, metric) = ((before.value, after.value), metric.to_owned());
        Check { metric, kernel, procfs, verdict, reason }
    };
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for element in elements {
        *sums.entry(&element.over_cpus).or_default() += element.value;
    }
    let single = elements.iter().map(|element| (element.series.as_str(), element.value));
    for (values, what) in [(single.collect::<Vec<_>>(), "values"), (sums.into_iter().collect(), "sums over CPUs")] {
        let mut first = None;
        let (mut compared, mut is_in_procfs) = (0, false);
        for (series, value) in &values {
            let Some(procfs) = both(series) else { continue };
            if !inside(*value, procfs) {
                return check(*value, procfs, Verdict::Unlike, format!("{series} is unlike procfs"));
            }
            compared += 1;
            is_in_procfs |= !procfs.0.value.is_nan();
            first.get_or_insert((*value, procfs));
        }
        if let Some((value, procfs)) = first {
            let mut reason = format!("{compared} of {} {what}", values.len());
            if is_in_procfs {
                return check(value, procfs, Verdict::Equal, reason);
            }
            reason += &format!(" 0 to {}, all that can be checked: procfs has none", procfs.0.rounding);
            return check(value, procfs, Verdict::Bounds, reason);
        }
    }
    let nothing = Procfs { value: f64::NAN, rounding: 0.0 };
    let reason = match elements.len() {
        0 => "it has no values now".to_owned(),
        values => format!("procfs has none of its {values} values, nor their sums over CPUs"),
    };
    check(elements.first().map_or(f64::NAN, |first| first.value), (nothing, nothing), Verdict::NotCompared, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(value: f64) -> Reading {
        Reading::from([("m{cpu=\"0\"}".to_owned(), Procfs { value, rounding: 0.01 })])
    }

    fn elements(value: f64) -> Vec<Element> {
        vec![Element { series: "m{cpu=\"0\"}".to_owned(), over_cpus: "m{}".to_owned(), value }]
    }

    #[test]
    fn a_value_between_both_readings_is_equal_and_any_other_is_left_out() {
        let verdict = |value| compare("m{}", &elements(value), &reading(1.0), &reading(1.5)).verdict;
        assert_eq!([0.995, 1.2, 1.509].map(verdict), [Verdict::Equal; 3]);
        assert_eq!([0.98, 1.52, f64::NAN].map(verdict), [Verdict::Unlike; 3]);
    }

    #[test]
    fn what_procfs_has_not_is_held_to_its_bounds() {
        let bounds = Reading::from([("m{cpu=\"0\"}".to_owned(), Procfs::none(1.0))]);
        let verdict = |value| compare("m{}", &elements(value), &bounds, &bounds).verdict;
        assert_eq!([0.0, 1.0].map(verdict), [Verdict::Bounds; 2]);
        assert_eq!([-0.5, 1.5, f64::NAN].map(verdict), [Verdict::Unlike; 3]);
    }

    #[test]
    fn without_a_counterpart_the_sum_is_compared_and_without_one_for_the_sum_it_is_left_out() {
        let sum = Reading::from([("m{}".to_owned(), Procfs { value: 5.0, rounding: 0.0 })]);
        let two = [elements(2.0), elements(3.0)].into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(compare("m{}", &two, &sum, &sum).verdict, Verdict::Equal);
        assert_eq!(compare("m{}", &two[..1], &sum, &sum).verdict, Verdict::Unlike);
        for (elements, reason) in [(&two[..], "procfs has none of its 2 values"), (&two[..0], "it has no values")] {
            let check = compare("m{}", elements, &Reading::new(), &sum);
            assert!(check.verdict == Verdict::NotCompared && check.reason.starts_with(reason), "{check}");
        }
    }

    #[test]
    fn values_without_a_counterpart_are_passed_over_and_one_that_disagrees_is_enough() {
        let offline = Element { series: "m{cpu=\"1\"}".to_owned(), over_cpus: "m{}".to_owned(), value: 700.0 };
        let two = [elements(1.2), vec![offline]].into_iter().flatten().collect::<Vec<_>>();
        let check = compare("m{}", &two, &reading(1.0), &reading(1.5));
        assert_eq!((check.verdict, check.reason.as_str()), (Verdict::Equal, "1 of 2 values"));
        let with_both = |value| {
            let mut reading = reading(value);
            reading.insert("m{cpu=\"1\"}".to_owned(), Procfs::exact(3));
            reading
        };
        let check = compare("m{}", &two, &with_both(1.0), &with_both(1.5));
        assert_eq!((check.verdict, check.kernel), (Verdict::Unlike, 700.0));
    }

    #[test]
    fn only_what_agrees_or_is_within_bounds_is_served() {
        let all = [Verdict::Equal, Verdict::Bounds, Verdict::Unlike, Verdict::NotCompared];
        assert_eq!(all.map(Verdict::is_served), [true, true, false, false]);
        let names = all.map(Verdict::name);
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>().len(), all.len());
        let check = compare("m{}", &[], &Reading::new(), &Reading::new());
        assert!(check.to_string().starts_with("m{}: not compared, LEFT OUT: "), "{check}");
    }
}
