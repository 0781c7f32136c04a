// SPDX-License-Identifier: Apache-2.0
//! `/api/v1/hosts`: how it goes with each host.

use axum::Json;
use axum::extract::{Path, State};
use hdrhistogram::Histogram;
use onlooker_reader::clock::{Moment, steady_ns};
use onlooker_region::block::Identity;
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP, RESPONDER_VERBS};
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Failure, ms};
use crate::fleet::{Host, Limit, Region, Shown, Whose};
use crate::sink::State as HostState;

pub(super) fn state_name(state: &HostState) -> &'static str {
    match state {
        HostState::Connecting => "connecting",
        HostState::Reading(_) => "reading",
        HostState::Silent(_) => "silent",
        HostState::Failed(_) => "failed",
    }
}

pub(super) async fn hosts(State(shared): State<Shared>) -> Json<Value> {
    let hosts: Vec<Value> = shared.fleet.hosts().iter().map(|host| summary(host, &host.look())).collect();
    Json(json!({ "hosts": hosts }))
}

pub(super) async fn host(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<Value>, Failure> {
    let host = shared.fleet.host(&name).ok_or_else(|| Failure::no_host(&name))?;
    let shown = host.look();
    let mut value = summary(&host, &shown);
    let now_ns = Moment::now().utc_ns;
    value["over_quota"] = over_quota(&shown, now_ns, true);
    value["regions_list"] = shown.regions.iter().map(|region| region_value(region, &shown, now_ns)).collect();
    Ok(Json(value))
}

fn summary(host: &Host, shown: &Shown) -> Value {
    let target = &host.target;
    let error = match &shown.state {
        HostState::Silent(error) | HostState::Failed(error) => Some(error),
        HostState::Connecting | HostState::Reading(_) => None,
    };
    let now_ns = Moment::now().utc_ns;
    let us = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) / 1_000;
    let of = |counts: &std::collections::BTreeMap<&'static str, u64>, name| counts.get(name).copied().unwrap_or(0);
    json!({
        "name": target.name,
        "address": format!("{}:{}", target.host, target.port),
        "labels": target.labels,
        "state": state_name(&shown.state),
        "via": shown.pair().map(|pair| pair.via.kind()),
        "requester": shown.pair().map(|pair| pair.by.to_string()),
        "since_ms": ms(shown.since_ns),
        "error": error,
        "interval_ms": target.interval.as_secs_f64() * 1e3,
        "age_ms": shown.newest_ns().map(|newest_ns| ms(now_ns.saturating_sub(newest_ns))),
        "clock_error_ms": shown.clock_error_ns().map(ms),
        "regions": shown.regions.len(),
        "series": shown.entities.series(),
        "over_quota": over_quota(shown, now_ns, false),
        "cycles": shown.cycles,
        "late": shown.late,
        "gaps": shown.gaps,
        "last_gap": shown.last_gap.as_ref().map(|gap| {
            json!({ "from_ms": ms(gap.from_ns), "to_ms": ms(gap.to_ns), "reason": gap.reason })
        }),
        "reads": {
            "done": shown.reads.reads,
            "blocks": shown.reads.blocks,
            "repeated": shown.repeated,
            "timed_out": of(&shown.reads.failed, "timeout"),
            "refused": shown.reads.refused.values().sum::<u64>(),
            "failed": shown.reads.failed,
            "retries": shown.reads.retries,
            "latency_us": {
                "p50": us(&shown.latency, 0.5), "p90": us(&shown.latency, 0.9), "p99": us(&shown.latency, 0.99),
                "max": shown.latency.max() / 1_000,
            },
        },
        "lateness_us": {
            "p50": us(&shown.lateness, 0.5), "p99": us(&shown.lateness, 0.99), "max": shown.lateness.max() / 1_000,
        },
    })
}

/// Regions that are named for each quota.
const MAX_REGIONS_OVER: usize = 20;

/// What of the host is not kept, since it would cost too much.
fn over_quota(shown: &Shown, now_ns: u64, with_regions: bool) -> Value {
    let steady_ns = steady_ns();
    let utc_ms = |at_ns: u64| ms(now_ns.saturating_sub(steady_ns.saturating_sub(at_ns)));
    let over = shown.entities.ledger().over(false).map(|(whose, limit, over)| {
        let mut value = json!({
            "quota": limit.key(),
            "of": whose.name(),
            "limit": over.limit,
            "used": over.used,
            "rows": over.rows,
            "since_ms": utc_ms(over.since_ns),
            "last_ms": utc_ms(over.last_ns),
        });
        if with_regions {
            let mut all: Vec<Value> = regions_over(shown, whose, limit).collect();
            value["more_regions"] = all.len().saturating_sub(MAX_REGIONS_OVER).into();
            all.truncate(MAX_REGIONS_OVER);
            value["regions"] = all.into();
        }
        value
    });
    over.collect()
}

fn regions_over(shown: &Shown, whose: Whose, limit: Limit) -> impl Iterator<Item = Value> {
    let ledger = shown.entities.ledger();
    shown.regions.iter().filter_map(move |Region { entry, .. }| {
        let excess = ledger.excess(entry.identity.word()).filter(|excess| excess.is_of(whose, limit))?;
        Some(json!({
            "name": entry.name, "pid": entry.pid, "uid": entry.uid, "tracks": excess.entities, "series": excess.series,
        }))
    })
}

fn region_value(region: &Region, shown: &Shown, now_ns: u64) -> Value {
    let entry = &region.entry;
    let identity = Identity::word(entry.identity);
    let mine = || shown.entities.of_region(identity).map(|(_, entity)| entity);
    let excess = shown.entities.ledger().excess(identity);
    let over = excess.map(|excess| {
        let (key, tracks, series) = (excess.limit.key(), excess.entities, excess.series);
        format!("over_quota: {tracks} tracks with {series} series are not kept, since [quota] {key} has no room")
    });
    let newest_ns = mine().map(|entity| entity.time_ns).max();
    let bits = [(RESPONDER_KERNEL, "kernel"), (RESPONDER_TCP, "tcp"), (RESPONDER_VERBS, "verbs")];
    let via: Vec<&str> = bits.iter().filter(|(bit, _)| entry.responders & bit != 0).map(|(_, name)| *name).collect();
    json!({
        "name": entry.name,
        "labels": entry.labels.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "acquisition": region.acquisition,
        "via": via,
        "bytes": entry.bytes,
        "pid": entry.pid,
        "uid": entry.uid,
        "orphan": entry.orphan,
        "age_ms": newest_ns.map(|newest_ns| ms(now_ns.saturating_sub(newest_ns))),
        "problem": region.problem.clone().or(over),
        "series": mine().map(|entity| entity.series.len()).sum::<usize>(),
    })
}
