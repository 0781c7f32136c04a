// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/status` and `/readyz`: the controller itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use onlooker_reader::clock::Moment;
use serde_json::{Value, json};

use super::Shared;
use super::answer::ms;
use crate::forward::Progress;
use crate::sink::State as HostState;

/// Averages over at least this time are told as rates.
const RATE_INTERVAL: Duration = Duration::from_secs(1);
const COUNTED: usize = 3;

/// What was counted at some time, and the rates until then.
#[derive(Debug)]
pub struct Rates(Mutex<(Instant, [u64; COUNTED], [f64; COUNTED])>);

impl Default for Rates {
    fn default() -> Self {
        Self(Mutex::new((Instant::now(), [0; COUNTED], [0.0; COUNTED])))
    }
}

impl Rates {
    fn of(&self, counted: [u64; COUNTED]) -> [f64; COUNTED] {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = last.0.elapsed();
        if passed >= RATE_INTERVAL {
            #[allow(clippy::cast_precision_loss)] // a rate for people
            let rate = |at: usize| counted[at].saturating_sub(last.1[at]) as f64 / passed.as_secs_f64();
            *last = (Instant::now(), counted, std::array::from_fn(rate));
        }
        last.2
    }
}

pub(super) async fn status(State(shared): State<Shared>) -> Json<Value> {
    let now_ns = Moment::now().utc_ns;
    let mut states = HostState::NAMES.map(|name| (name, 0));
    let (mut cycles, mut reads, mut blocks) = (0, 0, 0);
    for host in shared.fleet.hosts().iter() {
        let shown = host.look();
        let name = shown.state.name();
        states.iter_mut().filter(|(state, _)| *state == name).for_each(|(_, count)| *count += 1);
        cycles += shown.cycles;
        reads += shown.reads.reads;
        blocks += shown.reads.blocks;
    }
    let rows = shared.counters.rows.load(Ordering::Relaxed);
    let [reads_per_s, blocks_per_s, rows_per_s] = shared.rates.of([reads, blocks, rows]);
    let pressure = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let store = &shared.store;
    let (bytes, hot_bytes, lag_ns, oldest_ns) =
        (store.bytes(), store.hot_bytes(), store.durable_lag_ns(), store.oldest_ns());
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started_ms": ms(shared.started_ns),
        "now_ms": ms(now_ns),
        "hosts": states.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "cycles": cycles,
        "reads": reads,
        "blocks": blocks,
        "rows": rows,
        "reads_per_s": reads_per_s,
        "blocks_per_s": blocks_per_s,
        "rows_per_s": rows_per_s,
        "credits": {
            "total_bytes": pressure(&shared.pressure.total_bytes),
            "in_flight_bytes": pressure(&shared.pressure.in_flight_bytes),
            "decreases": pressure(&shared.pressure.decreases),
        },
        "sockets": shared.pressure.sockets.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        "store": {
            "bytes": bytes,
            "max_bytes": shared.max_store_bytes,
            "hot_bytes": hot_bytes,
            "durable_lag_ms": lag_ns.map(ms),
            "oldest_ms": oldest_ns.map(ms),
            "values": shared.counters.values.load(Ordering::Relaxed),
            "refused_rows": shared.counters.refused_rows.load(Ordering::Relaxed),
            "dropped_segments": shared.counters.dropped_segments.load(Ordering::Relaxed),
            "failed": shared.counters.last_error(),
        },
        "forward": shared.forwarding.iter().map(|target| forward(target)).collect::<Vec<_>>(),
    }))
}

fn forward(target: &Progress) -> Value {
    let (gaps, gap_ns) = target.gaps();
    let sum = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| counts.map(|(_, count)| count).sum::<u64>();
    json!({
        "name": target.name,
        "kind": target.kind,
        "lag_ms": ms(target.lag_ns()),
        "series": target.series(),
        "samples": target.samples(),
        "dropped_samples": sum(&mut target.dropped()),
        "retries": sum(&mut target.retries()),
        "gaps": gaps,
        "gap_ms": ms(gap_ns),
        "failed": target.last_error(),
    })
}

pub(super) async fn ready(State(shared): State<Shared>) -> (StatusCode, String) {
    match shared.counters.last_error() {
        None => (StatusCode::OK, "ok".into()),
        Some(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("store: {error}")),
    }
}
