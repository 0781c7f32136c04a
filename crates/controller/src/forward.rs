// SPDX-License-Identifier: Apache-2.0
//! Forwarding: for each `[[forward]]` a thread that reads the store behind a cursor and sends what it reads.
//!
//! Nobody waits for it: it reads as queries do, and a target that is slow or down only stays behind. What it has not
//! sent when raw rows are deleted is a gap, counted and said.

mod http;
mod progress;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use onlooker_forward::answer::{Backoff, Verdict, verdict};
use onlooker_forward::config::Forward;
use onlooker_forward::cursor::{Cursor, CursorFile};
use onlooker_forward::{Body, Encoder, Family, Naming, Protocol};
use onlooker_framestore::Store;
use onlooker_framestore::damage::StoreError;
use onlooker_query::follow::{Follower, Taker};
use onlooker_reader::clock::Moment;
use onlooker_series::series::Series;
use onlooker_targets::Say;

use self::http::Http;
pub use self::http::HttpError;
pub use self::progress::Progress;
use crate::niceness::come_after_reading;

/// Rows that a reading was late with are there when so much more than its time limit has passed.
const SETTLE: Duration = Duration::from_secs(1);
/// A slice of time is not longer, but where a step is: it is read as a whole.
const MAX_SLICE_NS: u64 = 60_000_000_000;
/// How often it is looked whether a slice is due.
const LOOK: Duration = Duration::from_millis(250);
/// Rows are behind when they wait for longer: then it is looked whether they are still there.
const BEHIND_NS: u64 = 60_000_000_000;
/// Time after a failure of the disk.
const DISK_PAUSE: Duration = Duration::from_secs(10);
/// An end does not wait longer for an answer: what was not answered is sent again.
const MAX_END: Duration = Duration::from_secs(1);

/// Why forwarding does not begin.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// What requests need.
    #[error("[[forward]] {name}: {error}")]
    Http {
        /// Which.
        name: String,
        /// What is wrong.
        error: HttpError,
    },
    /// A cursor.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread.
    #[error("cannot start a thread for [[forward]] {name}: {source}")]
    Thread {
        /// Which.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// All targets' threads.
#[derive(Default)]
pub struct Forwarding {
    threads: Vec<(Sender<()>, JoinHandle<()>)>,
    progress: Arc<[Arc<Progress>]>,
}

impl Forwarding {
    /// Starts a thread for each target. `late`: rows come at most so long after their time.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub fn start(
        targets: &[Forward],
        store: &Store,
        dir: &Path,
        late: Duration,
        say: &Say,
    ) -> Result<Self, ForwardError> {
        let (mut threads, mut progress) = (Vec::new(), Vec::new());
        for target in targets {
            let name = target.name.clone();
            let of_http = |error| ForwardError::Http { name: name.clone(), error };
            let own = Arc::new(Progress::new(&name, target.kind));
            let (stop, stopped) = channel();
            let sending = Sending {
                http: Http::new(target).map_err(of_http)?,
                naming: Naming::new(&target.relabel),
                encoder: Encoder::new(target.kind),
                families: BTreeMap::new(),
                max_bytes: usize::try_from(target.max_bytes.as_bytes()).unwrap_or(usize::MAX),
                backoff: Backoff::default(),
                is_failing: false,
                is_again: false,
                progress: own.clone(),
                say: say.clone(),
                stop: Stop { stopped, is_stopped: false },
            };
            let thread = Thread {
                target: target.clone(),
                store: store.clone(),
                file: CursorFile::new(dir, &name)?,
                settle_ns: ns(late + SETTLE),
                sending,
            };
            let spawned = thread::Builder::new().name("forward".into()).spawn(move || {
                come_after_reading();
                thread.run();
            });
            threads.push((stop, spawned.map_err(|source| ForwardError::Thread { name: name.clone(), source })?));
            progress.push(own);
        }
        Ok(Self { threads, progress: progress.into() })
    }

    /// How each is doing.
    #[must_use]
    pub fn progress(&self) -> Arc<[Arc<Progress>]> {
        self.progress.clone()
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        let (threads, end) = (std::mem::take(&mut self.threads), Instant::now() + MAX_END);
        for (stop, _) in &threads {
            let _ = stop.send(());
        }
        while Instant::now() < end && !threads.iter().all(|(_, thread)| thread.is_finished()) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the thread is to end.
struct Stop {
    stopped: Receiver<()>,
    is_stopped: bool,
}

impl Stop {
    /// Waits; breaks when it is to end.
    fn wait(&mut self, pause: Duration) -> ControlFlow<()> {
        self.is_stopped |= !matches!(self.stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout));
        if self.is_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

struct Thread {
    target: Forward,
    store: Store,
    file: CursorFile,
    settle_ns: u64,
    sending: Sending,
}

impl Thread {
    fn run(mut self) {
        // Until it is to end, or the follower is of no use any more.
        while !self.sending.stop.is_stopped {
            let outcome = self.follow();
            if let Err(error) = outcome {
                self.sending.failed("disk", &error.to_string());
                let _ = self.sending.stop.wait(DISK_PAUSE);
            }
        }
    }

    /// Follows the store from the cursor on, until it is broken off.
    fn follow(&mut self) -> Result<(), StoreError> {
        let mut cursor = match self.file.read()? {
            Some(cursor) => cursor,
            None => {
                let cursor = Cursor::at(Moment::now().utc_ns.saturating_sub(self.settle_ns));
                self.file.write(cursor)?;
                cursor
            }
        };
        // A selector was parsed when the configuration was.
        let selectors = self.target.matchers().unwrap_or_default();
        let quantum_ns = self.target.step.as_ns().max(self.target.kind.resolution_ns());
        let follower = Follower::<Arc<Family>>::new(self.store.clone(), &selectors, quantum_ns, cursor.done_ns);
        let Ok(mut follower) = follower else {
            self.sending.failed("match", "its selectors are none");
            let _ = self.sending.stop.wait(DISK_PAUSE);
            return Ok(());
        };
        loop {
            self.sending.progress.set(follower.done_ns(), follower.series());
            let Some(to_ns) = self.due(cursor) else {
                if self.sending.stop.wait(LOOK).is_break() {
                    return Ok(());
                }
                continue;
            };
            if Moment::now().utc_ns.saturating_sub(cursor.done_ns) > BEHIND_NS
                && let Some((from_ns, gone_ns)) = follower.skip_gone(BEHIND_NS.max(self.target.step.as_ns()))
            {
                self.sending.gap(from_ns, gone_ns);
                cursor = Cursor::at(gone_ns);
                self.file.write(cursor)?;
                continue;
            }
            self.sending.is_again = cursor.doing_ns > cursor.done_ns;
            self.file.write(Cursor { doing_ns: to_ns, ..cursor })?;
            let slice = follower.advance(to_ns, &mut self.sending)?;
            self.sending.progress.add_damaged(slice.damaged);
            if slice.is_broken || self.sending.flush().is_break() {
                return Ok(());
            }
            cursor = Cursor::at(to_ns);
            self.file.write(cursor)?;
        }
    }

    /// Where the next slice ends, if its time is over.
    fn due(&self, cursor: Cursor) -> Option<u64> {
        if cursor.doing_ns > cursor.done_ns {
            return Some(cursor.doing_ns);
        }
        let durable_lag_ns = self.store.durable_lag_ns()?;
        let settled_ns = Moment::now().utc_ns.saturating_sub(self.settle_ns.max(durable_lag_ns));
        let (step_ns, age_ns) = (self.target.step.as_ns(), self.target.max_age.as_ns());
        let to_ns = settled_ns.min(cursor.done_ns + MAX_SLICE_NS.max(step_ns * 2));
        // A step is whole.
        let steps = (to_ns + 1).checked_div(step_ns);
        let to_ns = steps.map_or(to_ns, |steps| (steps * step_ns).saturating_sub(1));
        (to_ns >= cursor.done_ns + age_ns.max(step_ns)).then_some(to_ns)
    }
}

/// What a target is sent.
struct Sending {
    http: Http,
    naming: Naming,
    encoder: Encoder,
    /// What is said of metrics, by name: the same for all its series.
    families: BTreeMap<String, Arc<Family>>,
    max_bytes: usize,
    backoff: Backoff,
    is_failing: bool,
    /// A part of this slice was sent before.
    is_again: bool,
    progress: Arc<Progress>,
    say: Say,
    stop: Stop,
}

impl Taker for Sending {
    type About = Arc<Family>;

    fn name(&mut self, labels: BTreeMap<String, String>, series: &Series) -> Option<(Box<[u8]>, Arc<Family>)> {
        let pairs = self.naming.name(labels)?;
        let name: &str = &series.name;
        let family = self.families.entry(name.to_owned()).or_insert_with(|| {
            let texts = [name, &*series.help, &*series.unit].map(Arc::from);
            let [name, help, unit] = texts;
            Arc::new(Family { name, metric: series.metric, help, unit })
        });
        Some((self.encoder.protocol().key(&pairs), family.clone()))
    }

    fn take(
        &mut self,
        key: &[u8],
        about: &Arc<Family>,
        samples: &mut dyn Iterator<Item = (i64, f64)>,
    ) -> ControlFlow<()> {
        self.encoder.push(key, about, samples);
        if self.encoder.bytes() >= self.max_bytes { self.flush() } else { ControlFlow::Continue(()) }
    }
}

impl Sending {
    /// Sends what was collected, as often as it takes; breaks when it is to end, or all is to be said in another way.
    fn flush(&mut self) -> ControlFlow<()> {
        let body = self.encoder.finish();
        self.progress.set_left(self.encoder.left());
        body.map_or(ControlFlow::Continue(()), |body| self.send(&body))
    }

    fn send(&mut self, body: &Body) -> ControlFlow<()> {
        let protocol = self.encoder.protocol();
        loop {
            self.stop.wait(Duration::ZERO)?;
            let (verdict, reason, what) = match self.http.post(protocol, &body.bytes) {
                Ok(answer) => {
                    let header = answer.retry_after.as_deref();
                    let what = format!("HTTP status {}: {}", answer.status, answer.text);
                    (verdict(protocol, answer.status, header, SystemTime::now()), "status", what)
                }
                Err(error) => (Verdict::Again(None), "unreachable", error.to_string()),
            };
            match verdict {
                Verdict::Taken => {
                    self.progress.sent(body);
                    self.worked();
                    return ControlFlow::Continue(());
                }
                Verdict::Refused => {
                    self.backoff.reset();
                    // It may have some of the series, and Prometheus takes none of a body then.
                    let apart = if self.is_again { body.apart() } else { Vec::new() };
                    if apart.is_empty() {
                        self.progress.refused(body, &what);
                    }
                    return apart.iter().try_for_each(|series| self.send(series));
                }
                Verdict::Older => {
                    let name = &self.progress.name;
                    (self.say)(&format!("forward {name}: it does not take remote write 2.0; it is sent 1.0"));
                    self.encoder = Encoder::new(Protocol::RemoteWrite1);
                    return ControlFlow::Break(());
                }
                Verdict::Again(wanted) => {
                    self.progress.retried(reason);
                    self.failed(reason, &what);
                    let pause = self.backoff.next(wanted);
                    self.stop.wait(pause)?;
                }
            }
        }
    }

    /// Says a failure once.
    fn failed(&mut self, reason: &str, what: &str) {
        self.progress.failed(Some(what));
        if !std::mem::replace(&mut self.is_failing, true) {
            let name = &self.progress.name;
            (self.say)(&format!(
                "forward {name}: {reason}: {what}. It is tried again; rows wait in the store meanwhile"
            ));
        }
    }

    fn worked(&mut self) {
        self.backoff.reset();
        self.progress.failed(None);
        if std::mem::replace(&mut self.is_failing, false) {
            (self.say)(&format!("forward {}: works again", self.progress.name));
        }
    }

    /// Rows of this time have gone before they were sent.
    fn gap(&mut self, from_ns: u64, to_ns: u64) {
        let span_ns = to_ns - from_ns + 1;
        self.progress.gap(span_ns);
        let (name, seconds) = (&self.progress.name, span_ns / 1_000_000_000);
        (self.say)(&format!(
            "forward {name}: rows of {seconds} s up to {} s since 1970 were deleted before they were sent: [store] keep_raw and max_bytes are what it may stay behind",
            to_ns / 1_000_000_000
        ));
    }
}
