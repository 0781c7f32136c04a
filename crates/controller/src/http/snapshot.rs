// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/snapshot`: some series of many hosts, read now, with the time in which all of them were read.
//!
//! Hosts are called out of turn: their READs go out together, as far as there is credit, which is the opposite of what
//! the schedule does. The answer waits for them, and says from when to when it all was.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use onlooker_promql::Query;
use onlooker_promql::labels::{Labels, NAME};
use onlooker_query::Wanted;
use onlooker_reader::clock::{Moment, steady_ns};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::answer::{Failure, ms, number, parameters};
use crate::fleet::{Host, Values};
use crate::sink::State as HostState;

/// How long hosts are waited for, ms.
const DEFAULT_TIMEOUT_MS: f64 = 2_000.0;
const MAX_TIMEOUT_MS: f64 = 60_000.0;
const MAX_SKEW_MS: f64 = 60_000.0;
/// Values in an answer.
const MAX_VALUES: usize = 200_000;

/// The answer. Times are ms since 1970, UTC.
#[derive(Serialize)]
pub(super) struct Snapshot {
    asked_ms: f64,
    /// All READs were sent and answered between these two.
    from_ms: Option<f64>,
    to_ms: Option<f64>,
    skew_ms: Option<f64>,
    /// Whether no host is missing and the skew is what was asked for.
    within: bool,
    hosts: Vec<OfHost>,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct OfHost {
    name: String,
    from_ms: f64,
    to_ms: f64,
    /// Bound of the error of values' times, against each other and these.
    clock_error_ms: Option<f64>,
    series: Vec<Sample>,
}

#[derive(Serialize)]
struct Sample {
    series: String,
    t_ms: f64,
    /// `null` where it is no number that JSON has.
    value: f64,
}

#[derive(Serialize)]
struct Missing {
    name: String,
    why: String,
}

pub(super) async fn snapshot(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
) -> Result<Json<Snapshot>, Failure> {
    let pairs = parameters(query.as_deref(), &["match[]", "host", "max_skew_ms", "timeout_ms"])?;
    let all = |name: &'static str| pairs.iter().filter(move |(other, _)| other == name).map(|(_, value)| value);
    let wanted: Vec<Wanted> = all("match[]").map(|text| wanted(text)).collect::<Result<_, _>>()?;
    if wanted.is_empty() {
        return Err(Failure::bad(
            "`match[]` is missing: which series, like match[]=node_load1; it may be there many times",
        ));
    }
    let max_skew_ms = number(&pairs, "max_skew_ms", 0.0, MAX_SKEW_MS)?;
    let timeout_ms = number(&pairs, "timeout_ms", 1.0, MAX_TIMEOUT_MS)?.unwrap_or(DEFAULT_TIMEOUT_MS);
    let named: Vec<Arc<Host>> = all("host")
        .map(|name| shared.fleet.host(name).ok_or_else(|| Failure::no_host(name)))
        .collect::<Result<_, _>>()?;
    let hosts: Arc<[Arc<Host>]> = if named.is_empty() { shared.fleet.hosts() } else { named.into() };

    let asked = Moment::now();
    shared.orders.call(hosts.iter().map(|host| host.target.name.clone()).collect());
    let until = Instant::now() + Duration::from_secs_f64(timeout_ms / 1e3);
    for host in hosts.iter() {
        // Who is over the time is missing, and so it is found below.
        let _ = timeout_at(until, is_read(host, asked.steady_ns)).await;
    }
    let utc_ms =
        |at_ns: u64| ms(asked.utc_ns.saturating_add_signed(at_ns.cast_signed() - asked.steady_ns.cast_signed()));
    let mut found = Snapshot {
        asked_ms: ms(asked.utc_ns),
        from_ms: None,
        to_ms: None,
        skew_ms: None,
        within: false,
        hosts: Vec::new(),
        missing: Vec::new(),
    };
    let (mut values, mut count, mut window) = (Values::default(), 0, None);
    for host in hosts.iter() {
        let name = host.target.name.clone();
        match time_of(host, asked.steady_ns) {
            Err(why) => found.missing.push(Missing { name, why }),
            Ok((from_ns, to_ns, clock_error_ns)) => {
                let (first_ns, last_ns) = window.get_or_insert((from_ns, to_ns));
                (*first_ns, *last_ns) = (from_ns.min(*first_ns), to_ns.max(*last_ns));
                let series = samples(host, &wanted, &mut values);
                count += series.len();
                if count > MAX_VALUES {
                    let most = format!("that are more than {MAX_VALUES} values: ask for fewer series or hosts");
                    return Err(Failure::bad(most));
                }
                let clock_error_ms = clock_error_ns.map(ms);
                found.hosts.push(OfHost {
                    name,
                    from_ms: utc_ms(from_ns),
                    to_ms: utc_ms(to_ns),
                    clock_error_ms,
                    series,
                });
            }
        }
    }
    if let Some((from_ns, to_ns)) = window {
        let skew_ms = ms(to_ns - from_ns);
        (found.from_ms, found.to_ms, found.skew_ms) = (Some(utc_ms(from_ns)), Some(utc_ms(to_ns)), Some(skew_ms));
        found.within = found.missing.is_empty() && max_skew_ms.is_none_or(|most_ms| skew_ms <= most_ms);
    }
    Ok(Json(found))
}

fn wanted(text: &str) -> Result<Wanted, Failure> {
    let wrong = |error: String| Failure::bad(format!("`match[]` is `{text}`: {error}"));
    let matchers = Query::selector(text).map_err(|error| wrong(error.to_string()))?;
    Wanted::new(&matchers).map_err(|error| wrong(error.to_string()))
}

/// Waits until a host has a reading that began later, or will not have one.
async fn is_read(host: &Host, asked_ns: u64) {
    let mut news = host.news();
    while is_awaited(host, asked_ns) && news.changed().await.is_ok() {}
}

fn is_awaited(host: &Host, asked_ns: u64) -> bool {
    let shown = host.look();
    shown.read_from_ns.is_none_or(|from_ns| from_ns < asked_ns) && matches!(shown.state, HostState::Reading(_))
}

/// From when to when it was read, and how far its clock may be off.
fn time_of(host: &Host, asked_ns: u64) -> Result<(u64, u64, Option<u64>), String> {
    let shown = host.look();
    let error_ns = shown.relation.map(|relation| relation.error_ns(steady_ns()));
    match (shown.read_from_ns, shown.read_at_ns) {
        (Some(from_ns), Some(to_ns)) if from_ns >= asked_ns => Ok((from_ns, to_ns, error_ns)),
        _ if matches!(shown.state, HostState::Reading(_)) => Err("it did not answer in time".to_owned()),
        _ => Err(format!("it is {}", shown.state.name())),
    }
}

fn samples(host: &Host, wanted: &[Wanted], values: &mut Values) -> Vec<Sample> {
    let plan = host.values(values);
    let mut rest = &*values.words;
    let mut samples = Vec::new();
    for (planned, time_ns) in plan.entities.iter().zip(&values.times_ns) {
        let (row, behind) = rest.split_at(planned.template.words());
        rest = behind;
        for (series, text) in planned.shown() {
            let labels = Labels::new(series.labels.iter().chain([(NAME, &*series.name)]));
            if !wanted.iter().any(|wanted| wanted.takes_labels(&labels)) {
                continue;
            }
            let value = series.number(row).unwrap_or(f64::NAN);
            samples.push(Sample { series: text.to_string(), t_ms: ms(*time_ns), value });
        }
    }
    samples
}
