// SPDX-License-Identifier: Apache-2.0
//! What clients may take of the controller, at once: in all and of one source, so that no source takes everything. One
//! page of limits; no I/O.
//!
//! A *source* is an IPv4 address, or the first 64 bits of an IPv6 one. Whatever is taken is a [`Place`], given back
//! when it is dropped. Every refusal is counted (`onlooker_controller_http_refusals_total` in `/metrics`). Cost: a
//! short lock at the beginning and the end of what takes a place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use onlooker_bootstrap::source;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::Failure;
use crate::config::Http;

/// Time to a whole request header, and a kept connection's time to its next one.
pub(super) const HEADER_TIME: Duration = Duration::from_secs(10);
/// Time to a whole request body.
pub(super) const BODY_TIME: Duration = Duration::from_secs(10);
/// Body of a request.
pub(super) const MAX_BODY_BYTES: usize = 64 << 10;
/// A client that takes nothing of what waits for it for so long is gone.
pub(super) const WRITE_STALL: Duration = Duration::from_secs(20);
/// A whole answer that is no stream is taken within this time.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(60);
/// What hyper buffers of a connection, either way; also the longest request header.
pub(super) const BUFFER_BYTES: usize = 64 << 10;
/// What the kernel buffers of what a client has not taken; it doubles the number.
pub(super) const SEND_BUFFER_BYTES: usize = 128 << 10;
/// Time of a TLS handshake.
pub(super) const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Handshakes, and those of one source.
const HANDSHAKES: [usize; 2] = [256, 64];
/// From SIGTERM on: requests that are under way may end.
pub(super) const STOP_TIME: Duration = Duration::from_millis(400);
/// Of all file descriptors at most this part is connections' of clients; the rest is hosts', the store's and our own.
const DESCRIPTOR_PART: u64 = 4;

/// Words of the values of one stream: two thousand numbers, or some histograms.
pub(super) const STREAM_WORDS: usize = 64 << 10;
/// Words of all streams, and of those of one source. An event has at most three numbers a word, and a stream at most
/// three events in memory.
const STREAMS_WORDS: [usize; 2] = [1 << 20, 512 << 10];

/// Range queries that run, and those that run or wait: in all, and of one source.
const RANGES: (usize, [usize; 2]) = (4, [64, 32]);
/// The same of Prometheus' API: a dashboard of Grafana asks for all of its panels at once.
const QUERIES: (usize, [usize; 2]) = (4, [128, 64]);
/// The same of `/metrics`: one keeps a processor busy for a second with ten thousand hosts.
const METRICS: (usize, [usize; 2]) = (1, [8, 4]);
/// The same of what lists series and hosts.
const LISTS: (usize, [usize; 2]) = (2, [64, 32]);
/// The same of the controller's own status, which waits for the store.
const STATUS: (usize, [usize; 2]) = (1, [64, 32]);
/// The same of boards, which are files of up to 1 MiB.
const BOARDS: (usize, [usize; 2]) = (4, [64, 32]);
/// A query waits so long for its turn.
const TURN_TIME: Duration = Duration::from_secs(10);
/// Answers that clients have not taken yet, or what they are made of meanwhile, bytes: in all, and of one source. One
/// that is longer than a source's share is let through alone.
const ANSWERS_BYTES: [usize; 2] = [128 << 20, 64 << 20];

/// Why somebody was refused or cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// All connections are taken.
    Connections,
    /// A source has its share of them.
    SourceConnections,
    /// The system gave no connection.
    Accept,
    /// All TLS handshakes are taken.
    Handshakes,
    /// A source has its share of them.
    SourceHandshakes,
    /// A handshake took too long, or was none.
    Handshake,
    /// A header, or the next request of a kept connection, took too long.
    Header,
    /// A body took too long, or is too long.
    Body,
    /// A client took nothing of its answer for too long.
    Stalled,
    /// An answer was not taken in time.
    SlowAnswer,
    /// All streams are taken.
    Streams,
    /// A source has its share of them.
    SourceStreams,
    /// Streams of too many values.
    StreamValues,
    /// Too many queries wait.
    Queries,
    /// A query's turn did not come in time.
    Turn,
    /// A query took too long.
    QueryTime,
    /// A query's answer would be too long.
    QueryBytes,
    /// Too much waits to be taken by clients.
    Answers,
    /// Another name than ours in `Host`.
    Host,
    /// A page of another origin asked.
    Origin,
}

impl Refusal {
    const ALL: [(Self, &'static str); 20] = [
        (Self::Connections, "connections"),
        (Self::SourceConnections, "source_connections"),
        (Self::Accept, "accept"),
        (Self::Handshakes, "handshakes"),
        (Self::SourceHandshakes, "source_handshakes"),
        (Self::Handshake, "handshake"),
        (Self::Header, "header"),
        (Self::Body, "body"),
        (Self::Stalled, "stalled"),
        (Self::SlowAnswer, "slow_answer"),
        (Self::Streams, "streams"),
        (Self::SourceStreams, "source_streams"),
        (Self::StreamValues, "stream_values"),
        (Self::Queries, "queries"),
        (Self::Turn, "turn"),
        (Self::QueryTime, "query_time"),
        (Self::QueryBytes, "query_bytes"),
        (Self::Answers, "answers"),
        (Self::Host, "host"),
        (Self::Origin, "origin"),
    ];
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// All are taken.
    All,
    /// This source has its share.
    Source,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// Places of one kind.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    most_of_source: usize,
    taken: Mutex<Taken>,
}

/// Taken places; free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    source: IpAddr,
    count: usize,
}

impl Places {
    fn new([most, most_of_source]: [usize; 2]) -> Arc<Self> {
        Arc::new(Self { most, most_of_source, taken: Mutex::default() })
    }

    pub(super) fn take(self: &Arc<Self>, address: IpAddr, count: usize) -> Result<Place, Full> {
        let source = source(address);
        let mut taken = self.lock();
        let of_source = taken.by_source.get(&source).copied().unwrap_or(0);
        if of_source.saturating_add(count) > self.most_of_source {
            return Err(Full::Source);
        }
        if taken.all.saturating_add(count) > self.most {
            return Err(Full::All);
        }
        taken.all += count;
        taken.by_source.insert(source, of_source + count);
        Ok(Place { places: self.clone(), source, count })
    }

    fn taken(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all -= self.count;
        let of_source = taken.by_source.get(&self.source).map_or(0, |taken| taken - self.count);
        if of_source == 0 {
            taken.by_source.remove(&self.source);
        } else {
            taken.by_source.insert(self.source, of_source);
        }
    }
}

/// Queries of one kind: a few run, some wait.
#[derive(Debug)]
pub(super) struct Queue {
    running: Arc<Semaphore>,
    all: Arc<Places>,
}

/// A query's turn.
#[derive(Debug)]
pub(super) struct Turn {
    running: Option<OwnedSemaphorePermit>,
    queue: Arc<Semaphore>,
    _place: Place,
}

impl Turn {
    /// Lets others run while this query can do nothing; it stays one of those that run or wait.
    pub(super) fn rest(&mut self) {
        self.running = None;
    }

    /// Ready once it may run again.
    pub(super) async fn resume(&mut self) {
        if self.running.is_none() {
            // It is never closed.
            self.running = self.queue.clone().acquire_owned().await.ok();
        }
    }
}

impl Queue {
    fn new((running, all): (usize, [usize; 2])) -> Self {
        Self { running: Arc::new(Semaphore::new(running)), all: Places::new(all) }
    }

    /// Queries that run, rest or wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.all.taken()
    }

    pub(super) async fn turn(&self, address: IpAddr) -> Result<Turn, Refusal> {
        let place = self.all.take(address, 1).map_err(|_| Refusal::Queries)?;
        let running = tokio::time::timeout(TURN_TIME, self.running.clone().acquire_owned()).await;
        let running = running.ok().and_then(Result::ok).ok_or(Refusal::Turn)?;
        Ok(Turn { running: Some(running), queue: self.running.clone(), _place: place })
    }
}

/// All limits that count something.
#[derive(Debug)]
pub struct Limits {
    pub(super) connections: Arc<Places>,
    pub(super) handshakes: Arc<Places>,
    pub(super) streams: Arc<Places>,
    pub(super) stream_words: Arc<Places>,
    pub(super) answers: Arc<Places>,
    pub(super) ranges: Queue,
    pub(super) queries: Queue,
    pub(super) metrics: Queue,
    pub(super) lists: Queue,
    pub(super) status: Queue,
    pub(super) boards: Queue,
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl Limits {
    /// As configured, but with no more connections than their part of the file descriptors.
    #[must_use]
    pub fn new(http: &Http, max_descriptors: u64) -> Arc<Self> {
        let most = usize::try_from((max_descriptors / DESCRIPTOR_PART).max(1)).unwrap_or(usize::MAX);
        Arc::new(Self {
            connections: Places::new([http.max_connections.min(most), http.max_connections_per_source.min(most)]),
            handshakes: Places::new(HANDSHAKES),
            streams: Places::new([http.max_streams, http.max_streams_per_source]),
            stream_words: Places::new(STREAMS_WORDS),
            answers: Places::new(ANSWERS_BYTES),
            ranges: Queue::new(RANGES),
            queries: Queue::new(QUERIES),
            metrics: Queue::new(METRICS),
            lists: Queue::new(LISTS),
            status: Queue::new(STATUS),
            boards: Queue::new(BOARDS),
            refused: Default::default(),
        })
    }

    /// Connections at once, at most.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.connections.most
    }

    /// Connections and streams now.
    pub(super) fn open(&self) -> [usize; 2] {
        [self.connections.taken(), self.streams.taken()]
    }

    /// A place for an answer of this length.
    pub(super) fn answer(&self, address: IpAddr, bytes: usize) -> Result<Place, Full> {
        self.answers.take(address, bytes.min(ANSWERS_BYTES[1]))
    }

    pub(super) fn count(&self, refusal: Refusal) {
        let at = Refusal::ALL.iter().position(|(one, _)| *one == refusal).unwrap_or(0);
        self.refused[at].fetch_add(1, Ordering::Relaxed);
    }

    /// Who was refused, by reason.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::ALL.iter().zip(&self.refused).map(|((_, name), count)| (*name, count.load(Ordering::Relaxed)))
    }

    /// Counts, and says so to the client, who may try again.
    pub(super) fn busy(&self, refusal: Refusal) -> Failure {
        self.count(refusal);
        let (status, message) = match refusal {
            Refusal::Queries => (StatusCode::TOO_MANY_REQUESTS, "too many queries of this kind wait already"),
            Refusal::SourceStreams => (
                StatusCode::TOO_MANY_REQUESTS,
                "your address has all the live streams that one may have ([http] max_streams_per_source)",
            ),
            Refusal::Streams => {
                (StatusCode::SERVICE_UNAVAILABLE, "all live streams are taken ([http] max_streams); close a page")
            }
            Refusal::StreamValues => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the live streams of your address, or all of them, have as many values as is possible; close a page",
            ),
            Refusal::Turn => (StatusCode::SERVICE_UNAVAILABLE, "other queries of this kind took all the time"),
            Refusal::QueryTime => {
                (StatusCode::SERVICE_UNAVAILABLE, "the query took too long; ask for a shorter time or for fewer series")
            }
            _ => (StatusCode::SERVICE_UNAVAILABLE, "too many answers wait for their clients"),
        };
        Failure::new(status, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_source_takes_all_and_places_come_back() {
        let places = Places::new([10, 4]);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let mine = places.take(address("10.0.0.1"), 3).unwrap();
        // The same source, by its mapped address.
        assert_eq!(places.take(address("::ffff:10.0.0.1"), 2).unwrap_err(), Full::Source);
        let more = places.take(address("::ffff:10.0.0.1"), 1).unwrap();
        // Of one /64, and of others.
        let net = places.take(address("2001:db8::1"), 4).unwrap();
        assert_eq!(places.take(address("2001:db8::ffff"), 1).unwrap_err(), Full::Source);
        assert_eq!(places.take(address("2001:db8:0:1::1"), 3).unwrap_err(), Full::All);
        drop((mine, net));
        assert_eq!((places.taken(), places.lock().by_source.len()), (1, 1));
        drop(more);
        assert_eq!((places.taken(), places.lock().by_source.len()), (0, 0));
        assert_eq!(places.take(address("10.0.0.1"), usize::MAX).unwrap_err(), Full::Source);
    }

    #[tokio::test]
    async fn queries_wait_for_their_turn_and_only_so_many() {
        let queue = Queue::new((1, [3, 2]));
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let first = queue.turn(a).await.unwrap();
        {
            let waits = queue.turn(a);
            tokio::pin!(waits);
            assert!(tokio::time::timeout(Duration::from_millis(1), waits.as_mut()).await.is_err());
            // One source has its share, and then all is taken.
            assert_eq!(queue.turn(a).await.unwrap_err(), Refusal::Queries);
            let other = queue.turn(b);
            tokio::pin!(other);
            assert!(tokio::time::timeout(Duration::from_millis(1), other.as_mut()).await.is_err());
            assert_eq!(queue.turn(b).await.unwrap_err(), Refusal::Queries);
            drop(first);
            assert!(waits.await.is_ok());
        }
        // Whoever gave up left no place behind. One that rests is still there, and others run meanwhile.
        let mut resting = queue.turn(b).await.unwrap();
        resting.rest();
        let other = queue.turn(b).await.unwrap();
        assert_eq!(queue.turn(b).await.unwrap_err(), Refusal::Queries);
        {
            let resumes = resting.resume();
            tokio::pin!(resumes);
            assert!(tokio::time::timeout(Duration::from_millis(1), resumes.as_mut()).await.is_err());
            drop(other);
            resumes.await;
        }
        drop(resting);
        let failure = Limits::new(&Http::default(), 1024).busy(Refusal::Queries);
        let response = axum::response::IntoResponse::into_response(failure);
        assert!(response.status() == 429 && response.headers().contains_key("retry-after"));
    }

    #[test]
    fn descriptors_are_left_for_hosts() {
        let http = Http::default();
        assert_eq!(Limits::new(&http, 65_536).max_connections(), http.max_connections);
        assert_eq!(Limits::new(&http, 1024).max_connections(), 256);
    }

    #[test]
    fn refusals_are_counted_by_reason() {
        let limits = Limits::new(&Http::default(), 1024);
        for (refusal, name) in Refusal::ALL {
            limits.count(refusal);
            assert!(limits.refused().any(|(reason, count)| reason == name && count == 1), "{name}");
        }
        assert!(limits.refused().all(|(_, count)| count == 1));
    }
}
