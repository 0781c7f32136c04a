// SPDX-License-Identifier: Apache-2.0
//! `/api/v1/live`: values as they come, as server-sent events.
//!
//! Each stream looks at the host's last rows when there is news, at most every `every_ms`. Nothing waits for a slow page: between two looks of its task the last
//! value counts, and what the page has not taken yet is bounded by a queue.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_core::Stream;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_stream::wrappers::ReceiverStream;

use super::Shared;
use super::answer::{Failure, Wanted, ms, number, one, parameters};
use super::hosts::state_name;
use super::series::value;
use crate::fleet::{Host, ShownGap};
use crate::series::EntityKey;

const DEFAULT_EVERY_MS: f64 = 100.0;
const LEAST_EVERY_MS: f64 = 10.0;
const MOST_EVERY_MS: f64 = 60_000.0;
/// Series of one stream.
const MAX_SERIES: usize = 2_000;
/// A host that is not there after this time has been forgotten.
const REPLACEMENT: Duration = Duration::from_millis(50);
/// Events that a page may be behind.
const QUEUE: usize = 256;

pub(super) async fn live(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Failure> {
    let pairs = parameters(query.as_deref(), &["host", "series", "match", "every_ms"])?;
    let name = one(&pairs, "host")?.ok_or_else(|| Failure::bad("`host` is missing"))?;
    let every_ms = number(&pairs, "every_ms", LEAST_EVERY_MS, MOST_EVERY_MS)?.unwrap_or(DEFAULT_EVERY_MS);
    let mut wanted = Wanted::of(&pairs, MAX_SERIES)?;
    let host = shared.fleet.host(name).ok_or_else(|| Failure::no_host(name))?;
    {
        let shown = host.look();
        let all = shown.entities.iter().flat_map(|(_, entity)| entity.shown());
        wanted.expand(all.map(|(_, series, text)| (&*series.name, &**text)))?;
    }
    let (send, receive) = mpsc::channel(QUEUE);
    tokio::spawn(follow(shared, host, wanted.series, Duration::from_secs_f64(every_ms / 1e3), send));
    Ok(Sse::new(ReceiverStream::new(receive)).keep_alive(KeepAlive::default()))
}

struct Follower {
    wanted: Vec<String>,
    places: Vec<Option<(EntityKey, usize)>>,
    /// [`crate::fleet::Entities::changes`] when they were found.
    found: Option<u64>,
    state: &'static str,
    gap: Option<ShownGap>,
    times_ns: Vec<u64>,
    /// Rows that did not fit the queue.
    skipped: u64,
    send: mpsc::Sender<Result<Event, Infallible>>,
}

async fn follow(
    shared: Shared,
    mut host: Arc<Host>,
    wanted: Vec<String>,
    every: Duration,
    send: mpsc::Sender<Result<Event, Infallible>>,
) {
    let count = wanted.len();
    let mut follower = Follower {
        wanted,
        places: vec![None; count],
        found: None,
        state: "",
        gap: None,
        times_ns: vec![0; count],
        skipped: 0,
        send: send.clone(),
    };
    let mut ticks = interval_at(Instant::now(), every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut news = host.news();
    follower.open(&host);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = send.closed() => return,
        }
        if !follower.look(&host) {
            return;
        }
        tokio::select! {
            _ = news.changed() => {
                let mut now = shared.fleet.host(&host.target.name);
                if now.is_none() {
                    // A target that takes the place of another of its name is there at once.
                    tokio::time::sleep(REPLACEMENT).await;
                    now = shared.fleet.host(&host.target.name);
                }
                let Some(now) = now else { return };
                if !Arc::ptr_eq(&now, &host) {
                    (news, host) = (now.news(), now);
                    news.mark_changed();
                    follower.found = None;
                }
            },
            () = send.closed() => return,
        }
    }
}

impl Follower {
    fn open(&mut self, host: &Host) {
        let shown = host.look();
        let described: Vec<Value> = self
            .wanted
            .iter()
            .map(|text| {
                let series =
                    shown.entities.find(text).and_then(|(key, at)| Some(&shown.entities.get(&key)?.series[at]));
                json!({ "series": text, "type": series.map(|s| s.metric), "unit": series.map(|s| &*s.unit) })
            })
            .collect();
        let interval_ms = host.target.interval.as_secs_f64() * 1e3;
        drop(shown);
        self.event("open", &json!({ "series": described, "interval_ms": interval_ms }));
    }

    /// False once the page has gone.
    fn look(&mut self, host: &Host) -> bool {
        let mut events = Vec::new();
        {
            let shown = host.look();
            let state = state_name(&shown.state);
            if state != self.state {
                self.state = state;
                events.push(("host", json!({ "state": state })));
            }
            if shown.last_gap != self.gap {
                self.gap.clone_from(&shown.last_gap);
                if let Some(gap) = &self.gap {
                    let gap = json!({ "from_ms": ms(gap.from_ns), "to_ms": ms(gap.to_ns), "reason": gap.reason });
                    events.push(("gap", gap));
                }
            }
            let (mut newest_ns, mut has_moved) = (0, false);
            let mut values = Vec::with_capacity(self.wanted.len());
            let entities = &shown.entities;
            if self.found != Some(entities.changes()) {
                self.found = Some(entities.changes());
                self.places = self.wanted.iter().map(|text| entities.find(text)).collect();
            }
            for at in 0..self.wanted.len() {
                let place = self.places[at].and_then(|(key, series)| Some((entities.get(&key)?, series)));
                values.push(place.map_or(Value::Null, |(entity, series)| {
                    has_moved |= self.times_ns[at] != entity.time_ns;
                    self.times_ns[at] = entity.time_ns;
                    newest_ns = newest_ns.max(entity.time_ns);
                    value(&entity.series[series], &entity.row)
                }));
            }
            if has_moved {
                events.push(("row", json!({ "t_ms": ms(newest_ns), "v": values })));
            }
        }
        events.into_iter().all(|(name, data)| self.event(name, &data))
    }

    fn event(&mut self, name: &str, data: &Value) -> bool {
        if self.skipped > 0 {
            let told = Event::default().event("skipped").data(json!({ "rows": self.skipped }).to_string());
            match self.send.try_send(Ok(told)) {
                Ok(()) => self.skipped = 0,
                Err(TrySendError::Full(_)) => {
                    self.skipped += 1;
                    return true;
                }
                Err(TrySendError::Closed(_)) => return false,
            }
        }
        match self.send.try_send(Ok(Event::default().event(name).data(data.to_string()))) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.skipped += 1;
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }
}
