// SPDX-License-Identifier: Apache-2.0
//! Whoever is told of alerts: Alertmanagers, by their API v2, each from a thread and a queue of its own.
//!
//! A batch that could not be told comes back to the queue's beginning and is tried again, later and later: until it is
//! told, or newer notices of its alerts have taken its place, or too many wait. What an Alertmanager refuses (4xx) is
//! dropped and counted: it would refuse it again.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onlooker_alerts::{Notice, Queue, Sender};
use onlooker_promql::labels::Labels;
use onlooker_targets::Say;
use serde_json::Value;

use crate::client::{self, AuthoritiesError};

/// A request takes no longer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Waits after failures: the first one, and the longest.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// At the end, what waits is told for so long; an Alertmanager that does not answer holds up nobody for longer.
const LAST: Duration = Duration::from_secs(1);

/// Why nobody can be told.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The certificate authorities.
    #[error("[rules] alertmanager_ca_file: {0}")]
    Client(#[from] AuthoritiesError),
    /// The thread.
    #[error("cannot start a thread for an Alertmanager: {0}")]
    Thread(#[from] std::io::Error),
}

/// All of them.
#[derive(Default)]
pub struct Managers(Vec<(Arc<Manager>, Thread)>);

/// One that can be waited for, once.
type Thread = Mutex<Option<JoinHandle<()>>>;

/// One of them, and what has become of what it was to be told.
#[derive(Debug)]
pub struct Manager {
    /// Its URL, as it is configured.
    pub url: String,
    /// Alerts that it took.
    pub sent: AtomicU64,
    /// Alerts of requests that failed; those that are tried again count each time.
    pub errors: AtomicU64,
    /// Alerts that it refused, or for which there was no room.
    pub dropped: AtomicU64,
    waiting: Mutex<Waiting>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: Queue,
    /// From when on all is to end.
    ending: Option<Instant>,
}

impl Managers {
    /// Starts a thread for each URL.
    ///
    /// # Errors
    /// [`ManagerError`].
    pub fn start(urls: &[String], ca: &Path, token: Option<&str>, say: &Say) -> Result<Self, ManagerError> {
        let mut all = Self::default();
        for url in urls {
            let manager = Arc::new(Manager {
                url: url.clone(),
                sent: AtomicU64::new(0),
                errors: AtomicU64::new(0),
                dropped: AtomicU64::new(0),
                waiting: Mutex::default(),
                bell: Condvar::new(),
            });
            let client = Client {
                url: manager.endpoint(),
                agent: client::agent(url, ca, TIMEOUT)?,
                bearer: token.map(|token| format!("Bearer {token}")),
            };
            let (own, say) = (manager.clone(), say.clone());
            let thread = thread::Builder::new().name("alertmanager".into()).spawn(move || own.run(&client, &say))?;
            all.0.push((manager, Mutex::new(Some(thread))));
        }
        Ok(all)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Manager> {
        self.0.iter().map(|(manager, _)| &**manager)
    }

    /// Has all of them told; waits for nobody.
    pub(super) fn tell(&self, notices: &[Notice], sender: &Sender) {
        let all: Vec<_> = notices.iter().map(|notice| (notice.labels.clone(), notice.json(sender))).collect();
        for manager in self.iter() {
            manager.dropped.fetch_add(manager.lock().queue.push(all.clone()) as u64, Ordering::Relaxed);
            manager.bell.notify_one();
        }
    }

    /// Ends all threads, once they have told what waits or after [`LAST`].
    pub(super) fn stop(&self) {
        let until = Instant::now() + LAST;
        for manager in self.iter() {
            manager.lock().ending = Some(until);
            manager.bell.notify_one();
        }
        for (manager, thread) in &self.0 {
            let Some(thread) = thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { continue };
            while !thread.is_finished() && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            let left = manager.lock().queue.len() as u64;
            manager.dropped.fetch_add(left, Ordering::Relaxed);
            // One that hangs in a request ends with the process.
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

/// Why a batch was not told.
enum Failure {
    /// It would be refused again.
    Refused(String),
    /// It may go better later.
    Later(String),
}

struct Client {
    url: String,
    agent: ureq::Agent,
    bearer: Option<String>,
}

impl Client {
    fn post(&self, batch: &[(Labels, Value)]) -> Result<(), Failure> {
        let body: Value = batch.iter().map(|(_, json)| json.clone()).collect();
        let mut request = self.agent.post(&self.url);
        if let Some(bearer) = &self.bearer {
            request = request.header("Authorization", bearer);
        }
        let sent = request.content_type("application/json").send(body.to_string());
        let mut answer = sent.map_err(|error| Failure::Later(error.to_string()))?;
        let status = answer.status().as_u16();
        let text = client::text(&mut answer);
        match status {
            200..=299 => Ok(()),
            // Too many, or too slowly: later.
            408 | 429 | 500..=599 => Err(Failure::Later(format!("HTTP status {status} {text}"))),
            _ => Err(Failure::Refused(format!("HTTP status {status} {text}"))),
        }
    }
}

impl Manager {
    /// How many alerts wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    /// Where alerts are posted.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("{}/api/v2/alerts", self.url.trim_end_matches('/'))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, client: &Client, say: &Say) {
        let (mut wait, mut has_failed) = (WAITS[0], false);
        while let Some(batch) = self.next() {
            let count = batch.len() as u64;
            let failure = match client.post(&batch) {
                Ok(()) => {
                    self.sent.fetch_add(count, Ordering::Relaxed);
                    if std::mem::take(&mut has_failed) {
                        say(&format!("alertmanager {}: it takes alerts again", self.url));
                    }
                    wait = WAITS[0];
                    continue;
                }
                Err(failure) => failure,
            };
            self.errors.fetch_add(count, Ordering::Relaxed);
            let (Failure::Refused(error) | Failure::Later(error)) = &failure;
            if !std::mem::replace(&mut has_failed, true) {
                say(&format!("alertmanager {}: {count} alerts were not taken: {error}", self.url));
            }
            if matches!(failure, Failure::Refused(_)) {
                self.dropped.fetch_add(count, Ordering::Relaxed);
                continue;
            }
            let dropped = self.lock().queue.put_back(batch) as u64;
            self.dropped.fetch_add(dropped, Ordering::Relaxed);
            if !self.rest(wait) {
                return;
            }
            wait = (wait * 2).min(WAITS[1]);
        }
    }

    /// Waits for a batch; `None`: it is time to end.
    fn next(&self) -> Option<Vec<(Labels, Value)>> {
        let mut waiting = self.lock();
        loop {
            let is_over = waiting.ending.is_some_and(|until| waiting.queue.is_empty() || Instant::now() >= until);
            if is_over {
                return None;
            }
            if !waiting.queue.is_empty() {
                return Some(waiting.queue.batch());
            }
            waiting = self.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits, whatever comes meanwhile; `false`: it is time to end.
    fn rest(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut waiting = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if waiting.ending.is_some() || left.is_zero() {
                return waiting.ending.is_none();
            }
            waiting = self.bell.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
