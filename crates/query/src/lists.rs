// SPDX-License-Identifier: Apache-2.0
//! Which series, names, labels and values there are, and what names mean.

use std::collections::{BTreeMap, BTreeSet};

use onlooker_framestore::Store;
use onlooker_framestore::catalogue::{FIRST_LINE, Known};
use onlooker_framestore::types::TrackId;
use onlooker_promql::QueryError;
use onlooker_promql::labels::{BUCKET, Comparison, Labels, Matcher, NAME};
use onlooker_promql::limits::Budget;
use onlooker_promql::source::{SeriesSource as _, Span};
use onlooker_series::exposition::{Format, bounds};
use onlooker_series::series::Form;

use crate::exported::each_name;
use crate::recorded;
use crate::select::{ASK, StoreSource};

/// Label that has an info's text.
const TEXT: &str = "value";
/// Lines and tracks that are looked at under one lock, and what one costs.
const PIECE: usize = 1 << 10;
const LINE: usize = 20;
/// Memory of a text in a list beside itself, or of labels.
const ENTRY_BYTES: usize = 48;

/// What is asked for: series that match one of the selectors and may have samples in a time. No selector: all.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Matchers of each selector.
    pub selectors: &'a [Vec<Matcher>],
    /// Which time; without a selector names and values are those of all times.
    pub span: Span,
    /// How long it may take, how much it may hold, how many series there may be.
    pub budget: &'a Budget,
}

/// Series that match, in the order of their labels.
///
/// # Errors
/// What the budget says, or an expression that is too large.
pub fn series(store: &Store, asked: &Asked<'_>) -> Result<BTreeSet<Labels>, QueryError> {
    let (mut all, budget) = (BTreeSet::new(), asked.budget);
    let mut held = budget.hold(0)?;
    for matchers in asked.selectors {
        for found in StoreSource::new(store).select(matchers, asked.span, budget)? {
            held.grow(found.labels.bytes() + ENTRY_BYTES)?;
            all.insert(found.labels);
            budget.work(ASK)?;
        }
        budget.series(all.len())?;
    }
    Ok(all)
}

/// Asks the catalogue piece by piece: of each from where, and where to go on.
fn in_pieces<K>(
    store: &Store,
    budget: &Budget,
    first: K,
    mut piece: impl FnMut(&Known, K) -> Option<K>,
) -> Result<(), QueryError> {
    let mut next = Some(first);
    while let Some(from) = next {
        budget.work(PIECE * LINE)?;
        next = piece(&store.known(), from);
    }
    Ok(())
}

/// Names of labels, `__name__` among them.
///
/// # Errors
/// As [`series`].
pub fn label_names(store: &Store, asked: &Asked<'_>) -> Result<BTreeSet<String>, QueryError> {
    if !asked.selectors.is_empty() {
        let all = series(store, asked)?;
        return Ok(all.iter().flat_map(Labels::iter).map(|(name, _)| name.to_owned()).collect());
    }
    let mut names = store.known().label_names();
    in_pieces(store, asked.budget, FIRST_LINE, |known, from| known.label_names_of_lines(from, PIECE, &mut names))?;
    // The catalogue does not list those that only rows and texts have.
    let parts = store.known().parts();
    for series in parts.iter().flat_map(|part| &part.series) {
        asked.budget.work(1)?;
        match series.form {
            Form::Histogram(_) => _ = names.insert(BUCKET.to_owned()),
            Form::Text => _ = names.insert(TEXT.to_owned()),
            _ => {}
        }
    }
    names.retain(|name| !recorded::is_hidden(name));
    Ok(names)
}

/// Values of a label.
///
/// # Errors
/// As [`series`].
pub fn label_values(store: &Store, label: &str, asked: &Asked<'_>) -> Result<BTreeSet<String>, QueryError> {
    if asked.selectors.is_empty() {
        return all_values(store, label, asked.budget);
    }
    let has_it = Matcher { name: label.to_owned(), comparison: Comparison::NotEqual, value: String::new() };
    let with_it = |matchers: &Vec<Matcher>| matchers.iter().cloned().chain([has_it.clone()]).collect();
    let selectors: Vec<Vec<Matcher>> = asked.selectors.iter().map(with_it).collect();
    let all = series(store, &Asked { selectors: &selectors, ..*asked })?;
    Ok(all.iter().map(|labels| labels.get(label).to_owned()).collect())
}

/// Values of a label, whoever has it, by the catalogue alone.
fn all_values(store: &Store, label: &str, budget: &Budget) -> Result<BTreeSet<String>, QueryError> {
    let (mut values, mut held) = (BTreeSet::new(), budget.hold(0)?);
    if label != NAME {
        values = store.known().label_values(label);
        in_pieces(store, budget, FIRST_LINE, |known, from| {
            known.label_values_of_lines(label, from, PIECE, &mut values)
        })?;
    }
    if label == TEXT {
        in_pieces(store, budget, TrackId(0), |known, from| known.texts_of_tracks(from, PIECE, &mut values))?;
        in_pieces(store, budget, FIRST_LINE, |known, from| known.texts_of_lines(from, PIECE, &mut values))?;
    }
    if let NAME | BUCKET = label {
        let (parts, mut shapes) = (store.known().parts(), BTreeSet::new());
        for series in parts.iter().flat_map(|part| &part.series) {
            budget.work(ASK)?;
            match series.form {
                _ if label == NAME => {
                    values.insert(series.name.to_string());
                    each_name(series, |name| _ = values.insert(name.to_owned()));
                }
                Form::Histogram(shape) => {
                    let key = (shape.grouping_power, shape.max_power, series.scale.to_bits());
                    if shapes.insert(key) {
                        budget.work(shape.buckets())?;
                        values.extend(bounds(shape, series.scale).into_iter().map(|(le, _)| le));
                    }
                }
                _ => {}
            }
        }
    }
    held.grow(values.iter().map(|value| value.len() + ENTRY_BYTES).sum())?;
    Ok(values)
}

/// What is said of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metadata {
    /// As Prometheus' text format has it.
    pub kind: &'static str,
    /// Help, or nothing.
    pub help: String,
    /// Unit, or nothing.
    pub unit: String,
}

/// What is said of all names, by whoever uses them; a histogram is one name. Of what is recorded nobody says anything.
///
/// # Errors
/// What the budget says.
pub fn metadata(store: &Store, budget: &Budget) -> Result<BTreeMap<String, BTreeSet<Metadata>>, QueryError> {
    let mut all: BTreeMap<String, BTreeSet<Metadata>> = BTreeMap::new();
    let parts = store.known().parts();
    let said = parts.iter().filter(|part| !recorded::is_region(&part.region));
    for series in said.flat_map(|part| &part.series) {
        budget.work(ASK)?;
        let (_, kind) = Format::Text.declared(&series.name, series.metric);
        let said = Metadata { kind, help: series.help.to_string(), unit: series.unit.to_string() };
        all.entry(series.name.to_string()).or_default().insert(said);
    }
    Ok(all)
}
