// SPDX-License-Identifier: Apache-2.0
//! Rules: the thread that evaluates them, over what the store has, and what others see of them (docs/alerts.md).
//!
//! ```text
//! files ─► groups ─► due: queries of the store ─► recorded series and ALERTS, into the store
//!                     │ who fires is written to the state file first
//!                     └► notices ─► a thread for each Alertmanager
//! ```
//!
//! One thread evaluates one rule at a time: [`onlooker_alerts`] says which and what it means. It reads as other queries
//! do, so rows of hosts never wait for it; one that takes too long is ended. What requests show is a copy of each group
//! that is made after its evaluation.

mod files;
mod manager;
mod state;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onlooker_alerts as alerts;
use onlooker_alerts::{Context, Group, Groups, Notice, Sample, World};
use onlooker_framestore::Store;
use onlooker_promql::labels::Labels;
use onlooker_promql::limits::{Cancel, Limits};
use onlooker_promql::value::{Point, Series, Value};
use onlooker_promql::{Options, Query, Times};
use onlooker_query::{NotRecorded, Recorder, StoreSource};
use onlooker_reader::clock::{Moment, steady_ns};
use onlooker_targets::Say;

use crate::keep::{Ingest, Turns};
use crate::niceness::come_after_reading;

pub use files::{RulesError, read};
pub use manager::{Manager, ManagerError, Managers};
use state::StateFile;

/// A rule's query takes no longer: the others wait meanwhile.
const QUERY_TIME: Duration = Duration::from_secs(10);
/// What one may cost: less than a query of somebody who waits for it.
const LIMITS: Limits =
    Limits { series: 20_000, samples: 100_000_000, steps: 1, subquery_steps: 100_000, bytes: 64 << 20 };
/// The thread looks at the clock at least so often: it may have been set.
const LOOK: Duration = Duration::from_secs(1);

/// Series that go on at once.
const MAX_SERIES: usize = 50_000;
/// A query waits no longer for the store to take up what was recorded.
const VISIBLE: Duration = Duration::from_secs(1);
/// Why samples are not recorded: others of their series are as new, too many series, the store takes none.
pub const REFUSALS: [&str; 3] = ["late", "too_many_series", "store"];

/// What others see.
pub struct View {
    groups: RwLock<Vec<Arc<Group>>>,
    /// Series that rules record.
    pub series: AtomicUsize,
    /// Who is told.
    pub managers: Managers,
    /// Samples that were not recorded, by reason.
    pub refused: [AtomicU64; REFUSALS.len()],
    /// Times that the state file could not be written.
    pub state_failures: AtomicU64,
}

impl View {
    /// All groups, as they were after their last evaluation.
    #[must_use]
    pub fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn show_all(&self, groups: &[Group]) {
        let all = groups.iter().cloned().map(Arc::new).collect();
        *self.groups.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    fn show(&self, at: usize, group: &Group) {
        if let Some(place) = self.groups.write().unwrap_or_else(PoisonError::into_inner).get_mut(at) {
            *place = Arc::new(group.clone());
        }
    }
}

/// Where rules run and what they share.
pub struct Setting {
    /// What they read.
    pub store: Store,
    /// Where they record.
    pub ingest: Arc<Ingest>,
    /// So that the next rule finds what one has recorded.
    pub turns: Turns,
    /// Time between two evaluations of a group that says nothing else.
    pub interval: Duration,
    /// What their templates see, and all alerts get.
    pub context: Context,
    /// Where alerts outlive a restart.
    pub state_file: PathBuf,
    /// Who hears what an operator wants to know.
    pub say: Say,
}

/// Other groups.
type Order = Vec<onlooker_rules::Group>;

/// The thread. Dropping it ends it, with the alerts written.
pub struct Evaluator {
    thread: Mutex<Option<(Sender<Order>, JoinHandle<()>)>>,
    cancel: Cancel,
    view: Arc<View>,
}

impl Evaluator {
    /// Takes up what an earlier process left, and starts.
    ///
    /// # Errors
    /// No thread.
    pub fn start(setting: Setting, groups: Vec<onlooker_rules::Group>, managers: Managers) -> std::io::Result<Self> {
        let view = Arc::new(View {
            groups: RwLock::default(),
            series: AtomicUsize::new(0),
            managers,
            refused: Default::default(),
            state_failures: AtomicU64::new(0),
        });
        let (orders, todo) = channel();
        let cancel = Cancel::default();
        let mut running = Running {
            state: StateFile::new(setting.state_file.clone()),
            groups: Groups::default(),
            recording: Recording { recorder: Recorder::new(MAX_SERIES), is_new: false },
            view: view.clone(),
            cancel: cancel.clone(),
            setting,
        };
        running.begin(groups);
        let thread = thread::Builder::new().name("rules".into()).spawn(move || {
            come_after_reading();
            running.run(&todo);
        })?;
        Ok(Self { thread: Mutex::new(Some((orders, thread))), cancel, view })
    }

    /// What others see.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.view.clone()
    }

    /// Other groups from now on; alerts of rules that stay go on.
    pub fn set(&self, groups: Vec<onlooker_rules::Group>) {
        if let Some((orders, _)) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            // A panic of that thread has been printed already.
            let _ = orders.send(groups);
        }
    }

    /// Ends it, whoever still has it.
    pub fn stop(&self) {
        self.cancel.cancel();
        let Some((orders, thread)) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        drop(orders);
        let _ = thread.join();
        self.view.managers.stop();
    }
}

impl Drop for Evaluator {
    fn drop(&mut self) {
        self.stop();
    }
}

fn now_ns() -> i64 {
    Moment::now().utc_ns.cast_signed()
}

struct Running {
    setting: Setting,
    groups: Groups,
    state: StateFile,
    recording: Recording,
    view: Arc<View>,
    cancel: Cancel,
}

impl Running {
    fn make(&self, groups: Vec<onlooker_rules::Group>) -> Groups {
        let interval_ns = i64::try_from(self.setting.interval.as_nanos()).unwrap_or(i64::MAX);
        Groups::new(groups, interval_ns, self.setting.context.clone(), now_ns())
    }

    fn begin(&mut self, groups: Vec<onlooker_rules::Group>) {
        self.groups = self.make(groups);
        // Without rules nobody leaves a file behind, and nobody looks for one.
        if !self.groups.all().is_empty() {
            match self.state.read() {
                Ok(saved) => {
                    let alerts::Restored { alerts, forgotten } = self.groups.restore(saved, now_ns());
                    if alerts + forgotten > 0 {
                        (self.setting.say)(&format!(
                            "rules: {alerts} alerts go on as before; {forgotten} are of rules that are gone, or too old"
                        ));
                    }
                }
                Err(error) => (self.setting.say)(&format!("rules: {error}; all alerts begin anew")),
            }
        }
        self.view.show_all(self.groups.all());
    }

    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let due_ns = self.groups.next_ns().map_or(i64::MAX, |due_ns| due_ns.saturating_sub(now_ns()).max(0));
            let wait = Duration::from_nanos(due_ns.unsigned_abs()).min(LOOK);
            match orders.recv_timeout(wait) {
                Ok(groups) => {
                    let old = std::mem::take(&mut self.groups);
                    self.groups = self.make(groups);
                    self.groups.adopt(old);
                    self.view.show_all(self.groups.all());
                    self.state.changed(alerts::Change::Small);
                }
                Err(RecvTimeoutError::Timeout) => self.evaluate(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.keep(false);
        }
        self.keep(true);
    }

    fn evaluate(&mut self) {
        let (setting, recording) = (&self.setting, &mut self.recording);
        let mut world = Live { view: &self.view, setting, recording, cancel: &self.cancel };
        let Some((at, outcome)) = self.groups.evaluate(now_ns(), &mut world) else { return };
        // One that was ended by our own end says nothing.
        if self.cancel.is_cancelled() {
            return;
        }
        let group = &self.groups.all()[at];
        for (rule, error) in &outcome.failures {
            (self.setting.say)(&format!("rules: {}, rule {rule}: {error}", group.key()));
        }
        self.state.changed(outcome.change);
        self.view.show(at, group);
        self.keep(false);
        let group = &self.groups.all()[at];
        for (rule, notices) in outcome.notices {
            self.tell(&group.rules[rule].rule.expr, &notices);
        }
    }

    fn tell(&self, expr: &str, notices: &[Notice]) {
        let Context { external_labels, external_url } = &self.setting.context;
        let query: String = form_urlencoded::byte_serialize(expr.as_bytes()).collect();
        let sender = alerts::Sender {
            external_labels: external_labels.clone(),
            generator_url: format!("{}/api/v1/query?query={query}", external_url.trim_end_matches('/')),
        };
        self.view.managers.tell(notices, &sender);
    }

    /// Writes the state file, if it is time.
    fn keep(&mut self, is_last: bool) {
        if let Some(result) = self.state.keep(&self.groups, is_last) {
            self.view.state_failures.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
            if let Err(Some(error)) = result {
                (self.setting.say)(&format!("rules: {error}; alerts would begin anew after a restart"));
            }
        }
    }
}

struct Recording {
    recorder: Recorder,
    /// Queries may not find the last of it yet.
    is_new: bool,
}

/// The store, for one turn.
struct Live<'a> {
    view: &'a View,
    setting: &'a Setting,
    recording: &'a mut Recording,
    cancel: &'a Cancel,
}

impl World for Live<'_> {
    fn query(&mut self, expr: &str, time_ns: i64) -> Result<Vec<Sample>, String> {
        let query = Query::parse(expr, Times::instant(time_ns)).map_err(|error| error.to_string())?;
        let until = Some(Instant::now() + QUERY_TIME);
        let options = Options { limits: LIMITS, until, cancel: self.cancel.clone(), ..Options::default() };
        if std::mem::take(&mut self.recording.is_new) {
            self.setting.turns.turn(VISIBLE);
        }
        let answer = query.run(&StoreSource::new(&self.setting.store), &options).map_err(|error| error.to_string())?;
        match answer.value {
            Value::Vector(all) => {
                let of = |one: Series| Some(Sample { value: one.point(0)?, labels: one.labels });
                Ok(all.into_iter().filter_map(of).collect())
            }
            Value::Scalar(values) => {
                let of = |value: f64| Sample { labels: Labels::default(), value: value.into() };
                Ok(values.into_iter().take(1).map(of).collect())
            }
            Value::String(_) | Value::Matrix(_) => Err("rule result is not a vector or scalar".to_owned()),
        }
    }

    fn record(&mut self, time_ns: i64, samples: Vec<(Labels, Point)>) -> Result<(), String> {
        let (mut count, mut first) = (0, None);
        for (labels, value) in samples {
            // Hosts' rows wait for a sample at most.
            let appender = &mut self.setting.ingest.appender();
            let recorder = &mut self.recording.recorder;
            let taken = match value {
                Point::Float(value) => recorder.record(appender, &labels, time_ns, value),
                Point::Histogram(histogram) => recorder.record_histogram(appender, &labels, time_ns, &histogram),
            };
            if let Err(error) = taken {
                self.view.refused[refusal(&error)].fetch_add(1, Ordering::Relaxed);
                count += 1;
                first.get_or_insert(error);
            }
        }
        self.recording.is_new = true;
        self.view.series.store(self.recording.recorder.series(), Ordering::Relaxed);
        first.map_or(Ok(()), |error| Err(format!("{count} samples were not recorded: {error}")))
    }

    fn steady_ns(&mut self) -> u64 {
        steady_ns()
    }
}

fn refusal(error: &NotRecorded) -> usize {
    match error {
        NotRecorded::Late => 0,
        NotRecorded::TooMany(_) => 1,
        _ => 2,
    }
}
