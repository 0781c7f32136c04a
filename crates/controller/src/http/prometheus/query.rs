// SPDX-License-Identifier: Apache-2.0
//! `/api/v1/query` and `/api/v1/query_range`.

use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use onlooker_promql::limits::{Budget, Limits};
use onlooker_promql::{Helpers, Options, Query, QueryError, Times};
use onlooker_query::StoreSource;
use onlooker_reader::clock::Moment;
use serde_json::json;

use super::super::Shared;
use super::super::answer::accepts;
use super::super::limits::Refusal;
use super::super::turns::Gone;
use super::json::written;
use super::parameters::Parameters;
use super::{Fault, JSON, Kind, columns};

/// A query takes no longer, whatever `timeout` says.
const MAX_TIME: Duration = Duration::from_secs(30);
/// Points of a series.
const MAX_POINTS: i64 = 11_000;
/// A few queries run at a time, and ingest and the answers of others need memory, too.
const LIMITS: Limits =
    Limits { series: 100_000, samples: 500_000_000, steps: 11_000, subquery_steps: 1_000_000, bytes: 128 << 20 };

/// Threads that queries may have beside their own: half as many as there are processors.
#[must_use]
pub fn helpers() -> Helpers {
    Helpers::new(thread::available_parallelism().map_or(1, NonZero::get) / 2)
}

/// What a list may cost: as much as a query.
pub(super) fn budget(gone: &Gone) -> Budget {
    Budget::new(LIMITS, gone.flag().into(), Some(Instant::now() + MAX_TIME))
}

/// One time.
pub(super) async fn instant(
    State(shared): State<Shared>,
    Extension(gone): Extension<Gone>,
    asked: Parameters,
) -> Result<Response, Fault> {
    let now_ns = Moment::now().utc_ns.cast_signed();
    let times = Times::instant(asked.time_ns_or("time", now_ns)?);
    answer(&shared, &gone, &asked, times, Form::Instant)
}

/// Many.
pub(super) async fn range(
    State(shared): State<Shared>,
    Extension(gone): Extension<Gone>,
    headers: HeaderMap,
    asked: Parameters,
) -> Result<Response, Fault> {
    let (start_ns, end_ns) = (asked.time_ns("start")?, asked.time_ns("end")?);
    if end_ns < start_ns {
        return Err(Fault::parameter("end", "end timestamp must not be before start time"));
    }
    let step_ns = asked.duration_ns("step")?;
    if step_ns <= 0 {
        let why = "zero or negative query resolution step widths are not accepted. Try a positive integer";
        return Err(Fault::parameter("step", why));
    }
    if end_ns.saturating_sub(start_ns) / step_ns > MAX_POINTS {
        let why = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)";
        return Err(Fault::new(Kind::BadData, why));
    }
    let takes_columns = accepts(&headers, header::ACCEPT, |kind| kind.eq_ignore_ascii_case(columns::TYPE));
    let form = if takes_columns { Form::Columns } else { Form::Range };
    let mut response = answer(&shared, &gone, &asked, Times { start_ns, end_ns, step_ns }, form)?;
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

/// As what an answer is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Instant,
    Range,
    /// A range in columns, where they can have it.
    Columns,
}

fn answer(shared: &Shared, gone: &Gone, asked: &Parameters, times: Times, form: Form) -> Result<Response, Fault> {
    let began = Instant::now();
    let most = asked.most("limit")?;
    let time = asked.positive_ns("timeout")?.map_or(MAX_TIME, |ns| Duration::from_nanos(ns.unsigned_abs()));
    // A range of n steps has n + 1 points.
    let limits = Limits { steps: LIMITS.steps + 1, ..LIMITS };
    let (until, helpers) = (Some(began + time.min(MAX_TIME)), shared.helpers.clone());
    let mut options = Options { limits, until, cancel: gone.flag().into(), helpers, ..Options::default() };
    if let Some(lookback_ns) = asked.lookback_ns("lookback_delta")? {
        options.lookback_ns = lookback_ns;
    }
    let query = Query::parse(asked.get("query"), times).map_err(|error| Fault::parameter("query", error))?;
    let parsed = began.elapsed();
    let answer = query.run(&StoreSource::new(&shared.store), &options).map_err(|error| fault(shared, &error))?;
    let stats = (!asked.get("stats").is_empty()).then(|| {
        let (evaluated_s, all_s) = ((began.elapsed() - parsed).as_secs_f64(), began.elapsed().as_secs_f64());
        let timings = json!({
            "evalTotalTime": evaluated_s, "resultSortTime": 0.0, "queryPreparationTime": parsed.as_secs_f64(),
            "innerEvalTime": evaluated_s, "execQueueTime": 0.0, "execTotalTime": all_s,
        });
        json!({ "timings": timings }).to_string()
    });
    if form == Form::Columns
        && let Some(bytes) = columns::written(&answer, most, stats.as_deref())
    {
        return Ok(([(header::CONTENT_TYPE, columns::TYPE)], bytes).into_response());
    }
    let text = written(&answer, form != Form::Instant, most, stats.as_deref()).map_err(|error| {
        shared.limits.count(Refusal::QueryBytes);
        Fault::new(Kind::Execution, error)
    })?;
    Ok(([JSON], text).into_response())
}

pub(super) fn fault(shared: &Shared, error: &QueryError) -> Fault {
    let kind = match error {
        QueryError::Cancelled => Kind::Canceled,
        QueryError::Time => Kind::Timeout,
        QueryError::Source(_) => Kind::Internal,
        QueryError::Series { .. }
        | QueryError::Samples { .. }
        | QueryError::Steps { .. }
        | QueryError::Bytes { .. }
        | QueryError::Invalid(_) => Kind::Execution,
    };
    match error {
        QueryError::Time => shared.limits.count(Refusal::QueryTime),
        QueryError::Series { .. } | QueryError::Samples { .. } | QueryError::Bytes { .. } => {
            shared.limits.count(Refusal::QueryBytes);
        }
        _ => {}
    }
    Fault::new(kind, error)
}
