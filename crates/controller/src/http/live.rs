// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/live`: values as they come, as server-sent events.
//!
//! Each stream looks at the host's last rows when there is news, at most every `every_ms`, and only when its client has
//! taken what was there before: a slow page loses rows, and hears how many. Each value comes once, with the time at
//! which it was acquired: what is sampled every second comes every second, however often the host is read. New words
//! are copied under the host's lock and written afterwards. What a stream has in memory is bounded by the words of its
//! values ([`super::limits`]).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::header;
use axum::response::IntoResponse;
use onlooker_series::series::{EntityKey, Series};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_stream::wrappers::ReceiverStream;

use super::Shared;
use super::answer::{Failure, Wanted, ms, number, one, parameters};
use super::limits::{self, Full, Limits, Refusal, STREAM_WORDS};
use super::series::value;
use super::summary::Gap;
use crate::fleet::{Entities, Host, Planned, Shown, ShownGap, Values};

const DEFAULT_EVERY_MS: f64 = 100.0;
const LEAST_EVERY_MS: f64 = 10.0;
const MOST_EVERY_MS: f64 = 60_000.0;
/// Series of one stream.
const MAX_SERIES: usize = 2_000;
/// A host that is not there after this time has been forgotten.
const REPLACEMENT: Duration = Duration::from_millis(50);
/// After this time without an event a comment is sent, so that nobody on the way takes the stream for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const COMMENT: &str = ":\n\n";

pub(super) async fn live(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, Failure> {
    let pairs = parameters(query.as_deref(), &["host", "series", "match", "every_ms"])?;
    let name = one(&pairs, "host")?.ok_or_else(|| Failure::bad("`host` is missing"))?;
    let every_ms = number(&pairs, "every_ms", LEAST_EVERY_MS, MOST_EVERY_MS)?.unwrap_or(DEFAULT_EVERY_MS);
    let mut wanted = Wanted::of(&pairs, MAX_SERIES)?;
    let host = shared.fleet.host(name).ok_or_else(|| Failure::no_host(name))?;
    let limits = shared.limits.clone();
    if wanted.has_names() {
        let plan = host.values(&mut Values::default());
        let all = plan.entities.iter().flat_map(Planned::shown);
        wanted.expand(all.map(|(series, text)| (&*series.name, &**text)))?;
    }
    let mut follower = Follower::new(wanted.series, Room::new(limits, peer.ip())?);
    // Looked for before there is a stream, so that what is too much is refused and not broken off.
    follower.find(&host.look().entities)?;
    let (send, receive) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    tokio::spawn(async move {
        let ending = shared.ending.clone();
        tokio::select! {
            () = follow(shared, host, follower, Duration::from_secs_f64(every_ms / 1e3), &send) => {}
            () = send.closed() => {}
            () = ending.begun() => {}
        }
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(ReceiverStream::new(receive))))
}

/// What a stream takes of the limits.
struct Room {
    limits: Arc<Limits>,
    address: IpAddr,
    _stream: limits::Place,
    words: Option<limits::Place>,
}

impl Room {
    fn new(limits: Arc<Limits>, address: IpAddr) -> Result<Self, Failure> {
        let stream = limits
            .streams
            .take(address, 1)
            .map_err(|full| limits.busy(if full == Full::All { Refusal::Streams } else { Refusal::SourceStreams }))?;
        Ok(Self { limits, address, _stream: stream, words: None })
    }

    fn take(&mut self, words: usize) -> Result<(), Failure> {
        if words > STREAM_WORDS {
            self.limits.count(Refusal::StreamValues);
            let message = format!(
                "these series have {words} numbers (a histogram has many); a stream has {STREAM_WORDS} at most"
            );
            return Err(Failure::bad(message));
        }
        self.words = None;
        let place = self.limits.stream_words.take(self.address, words);
        self.words = Some(place.map_err(|_| self.limits.busy(Refusal::StreamValues))?);
        Ok(())
    }
}

/// Where a series is, and how to read it.
struct Place {
    key: EntityKey,
    entity: Arc<[Series]>,
    at: usize,
}

impl Place {
    fn series(&self) -> &Series {
        &self.entity[self.at]
    }
}

/// What is new of a series: where its words are among those that were copied, or that it has gone.
struct New {
    time_ns: u64,
    /// Its number among those that are wanted.
    number: usize,
    words: Option<Range<usize>>,
}

struct Follower {
    wanted: Vec<String>,
    places: Vec<Option<Place>>,
    /// [`Entities::changes`] when they were found.
    found: Option<u64>,
    /// What the last look has copied.
    news: Vec<New>,
    words: Vec<u64>,
    state: &'static str,
    gap: Option<ShownGap>,
    /// When each value was acquired that was sent last; 0: none, or the series has gone.
    times_ns: Vec<u64>,
    room: Room,
}

async fn follow(
    shared: Shared,
    mut host: Arc<Host>,
    mut follower: Follower,
    every: Duration,
    send: &mpsc::Sender<Result<Bytes, Infallible>>,
) {
    let mut ticks = interval_at(Instant::now(), every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut news = host.news();
    let mut text = follower.open(&host);
    loop {
        ticks.tick().await;
        let due = Instant::now();
        let Ok(permit) = send.reserve().await else { return };
        let skipped = due.elapsed().as_nanos() / every.max(host.target.interval).as_nanos().max(1);
        if skipped > 0 {
            event(&mut text, "skipped", &json!({ "rows": u64::try_from(skipped).unwrap_or(u64::MAX) }));
        }
        // A page that has gone wrong asks again, and hears why.
        if follower.look(&host, &mut text).is_err() {
            return;
        }
        if !text.is_empty() {
            permit.send(Ok(std::mem::take(&mut text).into()));
        }
        while timeout(KEEP_ALIVE, news.changed()).await.is_err() {
            if send.send(Ok(COMMENT.into())).await.is_err() {
                return;
            }
        }
        let Some(now) = again(&shared, &host).await else { return };
        if !Arc::ptr_eq(&now, &host) {
            (news, host) = (now.news(), now);
            news.mark_changed();
            follower.found = None;
        }
    }
}

/// The host of the same name, which may be another one by now.
async fn again(shared: &Shared, host: &Host) -> Option<Arc<Host>> {
    if let Some(now) = shared.fleet.host(&host.target.name) {
        return Some(now);
    }
    // A target that takes the place of another of its name is there at once.
    tokio::time::sleep(REPLACEMENT).await;
    shared.fleet.host(&host.target.name)
}

/// JSON has no line ends, so one line of data is enough.
fn event(text: &mut String, name: &str, data: &Value) {
    let written = write!(text, "event: {name}\ndata: {data}\n\n");
    debug_assert!(written.is_ok(), "a String takes everything");
}

impl Follower {
    fn new(wanted: Vec<String>, room: Room) -> Self {
        let count = wanted.len();
        let (places, times_ns) = ((0..count).map(|_| None).collect(), vec![0; count]);
        let (news, words) = (Vec::new(), Vec::new());
        Self { wanted, places, found: None, news, words, state: "", gap: None, times_ns, room }
    }

    /// Looks for the series where they may have moved.
    fn find(&mut self, entities: &Entities) -> Result<(), Failure> {
        if self.found == Some(entities.changes()) {
            return Ok(());
        }
        self.found = Some(entities.changes());
        let place = |text: &String| {
            let (key, at) = entities.find(text)?;
            let entity = entities.get(&key)?.named.series.clone();
            (at < entity.len()).then_some(Place { key, entity, at })
        };
        self.places = self.wanted.iter().map(place).collect();
        let words: usize = self.places.iter().flatten().map(|place| place.series().form.words()).sum();
        self.room.take(words.max(self.wanted.len()))
    }

    /// What the page is told first, of the series as they were found.
    fn open(&self, host: &Host) -> String {
        let described = self.wanted.iter().zip(&self.places).map(|(text, place)| {
            let series = place.as_ref().map(Place::series);
            json!({ "series": text, "type": series.map(|s| s.metric), "unit": series.map(|s| &*s.unit) })
        });
        let described: Vec<Value> = described.collect();
        let interval_ms = host.target.interval.as_secs_f64() * 1e3;
        let mut text = String::new();
        event(&mut text, "open", &json!({ "series": described, "interval_ms": interval_ms }));
        text
    }

    fn look(&mut self, host: &Host, text: &mut String) -> Result<(), Failure> {
        let shown = host.look();
        let state = shown.state.name();
        let gap = (shown.last_gap != self.gap).then(|| shown.last_gap.clone());
        let found = self.find(&shown.entities);
        if found.is_ok() {
            self.copy(&shown);
        }
        drop(shown);
        if state != self.state {
            self.state = state;
            event(text, "host", &json!({ "state": state }));
        }
        if let Some(gap) = gap {
            self.gap = gap;
            if let Some(gap) = &self.gap {
                event(text, "gap", &json!(Gap::from(gap)));
            }
        }
        found?;
        let rows = self.rows();
        if !rows.is_empty() {
            event(text, "row", &json!({ "rows": rows }));
        }
        Ok(())
    }

    /// Copies what is new.
    fn copy(&mut self, shown: &Shown) {
        self.news.clear();
        self.words.clear();
        let mut gone_ns = None;
        for (number, (place, known_ns)) in self.places.iter().zip(&mut self.times_ns).enumerate() {
            let entity = place.as_ref().and_then(|place| Some((place, shown.entities.get(&place.key)?)));
            match entity {
                Some((_, entity)) if entity.time_ns == *known_ns => {}
                Some((place, entity)) => {
                    *known_ns = entity.time_ns;
                    let from = self.words.len();
                    self.words.extend_from_slice(place.series().words(shown.entities.row(entity)));
                    let words = Some(from..self.words.len());
                    self.news.push(New { time_ns: entity.time_ns, number, words });
                }
                None if *known_ns == 0 => {}
                None => {
                    let newest_ns = *gone_ns.get_or_insert_with(|| shown.newest_ns().unwrap_or(0));
                    self.news.push(New { time_ns: newest_ns.max(*known_ns), number, words: None });
                    *known_ns = 0;
                }
            }
        }
    }

    /// What is new, by the time at which it was acquired: numbers of the series and their values, null for what has
    /// gone.
    fn rows(&self) -> Vec<Value> {
        let mut rows: BTreeMap<u64, (Vec<usize>, Vec<Value>)> = BTreeMap::new();
        for New { time_ns, number, words } in &self.news {
            let (series, values) = rows.entry(*time_ns).or_default();
            series.push(*number);
            let place = words.as_ref().zip(self.places[*number].as_ref());
            values.push(place.map_or(Value::Null, |(words, place)| {
                let series = Series { at: 0, ..place.series().clone() };
                value(&series, &self.words[words.clone()])
            }));
        }
        let row = |(time_ns, (series, values))| json!({ "t_ms": ms(time_ns), "series": series, "v": values });
        rows.into_iter().map(row).collect()
    }
}
