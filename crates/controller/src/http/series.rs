// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/hosts/{host}/series`: what can be drawn. Searched in a copy: no reading waits for it.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use onlooker_region::columns::Value as Sample;
use onlooker_region::schema::Metric;
use onlooker_series::series::Series;
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Failure, ms, number, one, parameters};
use super::search::Words;
use crate::fleet::{Planned, Values};

const DEFAULT_LIMIT: f64 = 200.0;
const MAX_LIMIT: f64 = 10_000.0;

pub(super) async fn series(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Failure> {
    let pairs = parameters(query.as_deref(), &["search", "metric", "limit", "by"])?;
    let words = Words::new(one(&pairs, "search")?.unwrap_or_default());
    let metric = one(&pairs, "metric")?;
    let by_metric = match one(&pairs, "by")? {
        None => false,
        Some("metric") => true,
        Some(other) => return Err(Failure::bad(format!("`by` is `{other}`; only `metric` is known"))),
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within bounds
    let limit = number(&pairs, "limit", 1.0, MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT) as usize;
    let host = shared.fleet.host(&name).ok_or_else(|| Failure::no_host(&name))?;
    let mut values = Values::default();
    let plan = host.values(&mut values);
    let mut rest = &*values.words;
    let rows = plan.entities.iter().zip(&values.times_ns).map(|(planned, time_ns)| {
        let (row, behind) = rest.split_at(planned.template.words());
        rest = behind;
        Entity { planned, row, time_ns: *time_ns }
    });
    let rows: Vec<Entity<'_>> = rows.collect();
    let all = rows.iter().flat_map(|entity| entity.planned.shown().map(move |(series, text)| (entity, series, text)));
    let mut found: Vec<_> = all
        .filter(|(_, series, _)| metric.is_none_or(|metric| *series.name == *metric))
        .filter_map(|(entity, series, text)| {
            let is_info = series.metric == Metric::Info;
            Some((words.place(&series.name, text, &series.help, is_info)?, entity, series, text))
        })
        .collect();
    // Stable: series that fit alike stay in the directory's order.
    found.sort_by_key(|(place, ..)| *place);
    if !by_metric {
        let list: Vec<Value> =
            found.iter().take(limit).map(|(_, entity, series, text)| describe(entity, series, text)).collect();
        return Ok(Json(json!({ "more": found.len() > limit, "total": found.len(), "series": list })));
    }
    // Those of a metric may fit unequally: the best speaks for all.
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (_, _, series, _) in &found {
        *counts.entry(&series.name).or_default() += 1;
    }
    let metrics = counts.len();
    let firsts = found.iter().filter_map(|(_, entity, series, text)| {
        let count = counts.remove(&*series.name)?;
        let mut described = describe(entity, series, text);
        described["count"] = count.into();
        Some(described)
    });
    let list: Vec<Value> = firsts.take(limit).collect();
    Ok(Json(json!({ "more": metrics > limit, "total": metrics, "series": list })))
}

/// An entity with its values.
struct Entity<'a> {
    planned: &'a Planned,
    row: &'a [u64],
    time_ns: u64,
}

fn describe(entity: &Entity<'_>, series: &Series, text: &str) -> Value {
    json!({
        "series": text,
        "name": series.name,
        "labels": series.labels,
        "type": series.metric,
        "unit": series.unit,
        "help": series.help,
        "resolution_ms": ms(series.resolution_ns),
        "acquisition": series.acquisition,
        "region": entity.planned.region,
        "time_ms": ms(entity.time_ns),
        "value": value(series, entity.row),
    })
}

/// A value as JSON: exact where the number is whole and not scaled.
pub(super) fn value(series: &Series, row: &[u64]) -> Value {
    match series.value(row) {
        None => Value::Null,
        Some(Sample::Text(text)) => Value::String(text),
        Some(Sample::U64(number)) if series.scale.to_bits() == 1f64.to_bits() => number.into(),
        Some(Sample::I64(number)) if series.scale.to_bits() == 1f64.to_bits() => number.into(),
        // NaN and infinities have no JSON form.
        Some(sample @ (Sample::U64(_) | Sample::I64(_) | Sample::F64(_))) => sample.scaled(series.scale).into(),
        Some(Sample::Histogram { buckets, shape, sum }) => {
            let used: Vec<usize> = (0..buckets.len()).filter(|at| buckets[*at] > 0).collect();
            let bound = |number: u64| Sample::U64(number).scaled(series.scale);
            json!({
                "lows": used.iter().map(|at| bound(shape.range(*at).0)).collect::<Vec<_>>(),
                "bounds": used.iter().map(|at| bound(shape.range(*at).1)).collect::<Vec<_>>(),
                "counts": used.iter().map(|at| buckets[*at]).collect::<Vec<_>>(),
                "count": buckets.iter().fold(0u64, |all, count| all.wrapping_add(*count)),
                "sum": Sample::U64(sum).scaled(series.scale),
            })
        }
    }
}
