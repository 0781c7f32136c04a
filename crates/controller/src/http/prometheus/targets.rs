// SPDX-License-Identifier: Apache-2.0
//! `/api/v1/targets`: watched hosts as Prometheus tells of what it scrapes.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::Shared;
use super::parameters::Parameters;
use super::{Fault, success};
use crate::fleet::Host;
use crate::sink::State as HostState;

/// Prometheus says so of a target that it has not scraped yet.
const NEVER: &str = "0001-01-01T00:00:00Z";
/// All hosts are in one pool.
const POOL: &str = "onlooker";

pub(super) async fn targets(State(shared): State<Shared>, asked: Parameters) -> Result<Response, Fault> {
    let is_wanted = asked.get("state") != "dropped" && matches!(asked.get("scrapePool"), "" | POOL);
    let hosts = shared.fleet.hosts();
    let active: Vec<Value> = hosts.iter().filter(|_| is_wanted).map(|host| target(host)).collect();
    let nobody: [(); 0] = [];
    let counts: BTreeMap<&str, u64> = BTreeMap::from([(POOL, 0)]);
    Ok(success(&json!({ "activeTargets": active, "droppedTargets": nobody, "droppedTargetCounts": counts }), &[]))
}

#[allow(clippy::cast_precision_loss)] // a duration
fn target(host: &Host) -> Value {
    let (target, figures) = (&host.target, host.figures());
    let (health, error) = match &figures.state {
        HostState::Connecting => ("unknown", ""),
        HostState::Reading(_) => ("up", ""),
        HostState::Silent(error) | HostState::Failed(error) => ("down", error.as_str()),
    };
    let last = figures.newest_ns.and_then(|ns| OffsetDateTime::from_unix_timestamp_nanos(ns.into()).ok());
    let last = last.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| NEVER.to_owned());
    let [p50_ns, ..] = figures.latency_ns;
    let interval = format!("{}ms", target.interval.as_millis());
    json!({
        "discoveredLabels": { "__address__": target.address() },
        "labels": host.labels,
        "scrapePool": POOL,
        "scrapeUrl": target.address(),
        "globalUrl": target.address(),
        "lastError": error,
        "lastScrape": last,
        "lastScrapeDuration": p50_ns as f64 / 1e9,
        "health": health,
        "scrapeInterval": interval,
        "scrapeTimeout": interval,
    })
}
