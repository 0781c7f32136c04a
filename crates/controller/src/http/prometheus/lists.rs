// SPDX-License-Identifier: Apache-2.0
//! `/api/v1/series`, `labels`, `label/{name}/values`, `metadata`.

use std::collections::BTreeSet;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use onlooker_query::lists::{self, Asked};
use serde_json::{Map, Value, json};

use super::super::Shared;
use super::super::turns::Gone;
use super::parameters::Parameters;
use super::query::{budget, fault};
use super::{Fault, Kind, TRUNCATED, success};

/// Those that were asked for, with a word where they are not all.
fn listed(all: impl Iterator<Item = Value>, most: usize) -> Response {
    let mut all = all.peekable();
    let told: Vec<Value> = all.by_ref().take(most).collect();
    let warnings: &[&str] = if all.peek().is_some() { &[TRUNCATED] } else { &[] };
    success(&told.into(), warnings)
}

pub(super) async fn series(
    State(shared): State<Shared>,
    Extension(gone): Extension<Gone>,
    asked: Parameters,
) -> Result<Response, Fault> {
    let selectors = asked.selectors()?;
    if selectors.is_empty() {
        return Err(Fault::new(Kind::BadData, "no match[] parameter provided"));
    }
    let wanted = Asked { selectors: &selectors, span: asked.span()?, budget: &budget(&gone) };
    let all = lists::series(&shared.store, &wanted).map_err(|error| fault(&shared, &error))?;
    let labels = all.iter().map(|labels| {
        let pairs = labels.iter().map(|(name, value)| (name.to_owned(), value.into()));
        Value::Object(pairs.collect::<Map<_, _>>())
    });
    Ok(listed(labels, asked.most("limit")?))
}

pub(super) async fn labels(
    State(shared): State<Shared>,
    Extension(gone): Extension<Gone>,
    asked: Parameters,
) -> Result<Response, Fault> {
    let selectors = asked.selectors()?;
    let wanted = Asked { selectors: &selectors, span: asked.span()?, budget: &budget(&gone) };
    let names = lists::label_names(&shared.store, &wanted).map_err(|error| fault(&shared, &error))?;
    texts(names, &asked)
}

pub(super) async fn values(
    State(shared): State<Shared>,
    Extension(gone): Extension<Gone>,
    Path(name): Path<String>,
    asked: Parameters,
) -> Result<Response, Fault> {
    let selectors = asked.selectors()?;
    let wanted = Asked { selectors: &selectors, span: asked.span()?, budget: &budget(&gone) };
    let values = lists::label_values(&shared.store, &name, &wanted).map_err(|error| fault(&shared, &error))?;
    texts(values, &asked)
}

fn texts(all: BTreeSet<String>, asked: &Parameters) -> Result<Response, Fault> {
    Ok(listed(all.into_iter().map(Value::String), asked.most("limit")?))
}

pub(super) async fn metadata(
    State(shared): State<Shared>,
    Extension(gone): Extension<Gone>,
    asked: Parameters,
) -> Result<Response, Fault> {
    // As Prometheus: 0 means none of the metrics, but all of what is said of one.
    let most = asked.number("limit")?.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let most_of_metric = asked.number("limit_per_metric")?.filter(|most| *most > 0);
    let most_of_metric = most_of_metric.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let metric = asked.get("metric");
    let all = lists::metadata(&shared.store, &budget(&gone)).map_err(|error| fault(&shared, &error))?;
    let wanted = all.into_iter().filter(|(name, _)| metric.is_empty() || name == metric).take(most);
    let data = wanted.map(|(name, said)| {
        let said = said.into_iter().take(most_of_metric);
        let said = said.map(|said| json!({ "type": said.kind, "help": said.help, "unit": said.unit }));
        (name, said.collect::<Value>())
    });
    Ok(success(&Value::Object(data.collect::<Map<_, _>>()), &[]))
}
