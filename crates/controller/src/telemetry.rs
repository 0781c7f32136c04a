// SPDX-License-Identifier: Apache-2.0
//! Questions to hosts' telemetry tables, for those who ask over HTTP: a connection a host beside the engine's, made when somebody asks and kept for a minute.
//!
//! Each has a thread, since requesters stay on theirs, and questions to one host come one after another. The caller waits.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlooker_reader::bootstrap::resolve;
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::{DriveError, read_host};
use onlooker_reader::{Limits, Pair, Requester};
use onlooker_targets::Target;
use onlooker_telemetry::{AskError, Memory, Table};
use onlooker_transport::Error;
use onlooker_transport::open::{Way, open};

use crate::connect::asker;

/// A connection that nobody has used for so long ends.
const KEPT: Duration = Duration::from_secs(60);
/// A responder that has other keys by now is silent.
const ANSWER: Duration = Duration::from_secs(1);

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// No connection.
    #[error(transparent)]
    Open(#[from] Error),
    /// The directory.
    #[error("its directory: {0}")]
    Directory(#[from] DriveError),
    /// No such table.
    #[error("it has no telemetry table of this name; its tables: {0}")]
    NoTable(String),
    /// A table.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// No thread, or it has panicked.
    #[error("the question could not be asked: {0}")]
    Thread(String),
}

/// A host's tables and memory.
pub struct Collector {
    target: Arc<Target>,
    way: Way,
    tables: Vec<Table>,
}

impl Collector {
    fn open(target: &Arc<Target>, timeout: Duration) -> Result<Self, TelemetryError> {
        let asker = asker(target, timeout);
        let told =
            resolve(&target.host, target.port).and_then(|addresses| asker.ask(&addresses)).map_err(Error::from)?;
        // Tables are the kernel responder's memory.
        let mut way = open(&told, &[Pair::SOFT_KERNEL], &asker)?;
        let mut session = way.session(Limits::default());
        session.select(|_, _| false);
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        read_host(&mut *way.requester, &mut session, steady_ns().saturating_add(timeout_ns), steady_ns)?;
        let tables = Table::all(session.directory());
        Ok(Self { target: target.clone(), way, tables })
    }

    /// Its tables, by number.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// A table by its name.
    ///
    /// # Errors
    /// [`TelemetryError::NoTable`].
    pub fn table(&self, name: &str) -> Result<Table, TelemetryError> {
        let found = self.tables.iter().find(|table| table.name == name).cloned();
        let names = || self.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| TelemetryError::NoTable(names()))
    }

    /// Its memory.
    pub fn memory(&mut self) -> Memory<'_, dyn Requester> {
        Memory { requester: &mut *self.way.requester, timeout: ANSWER }
    }

    /// Time of its clock now, ns since it began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.way.told.relation.age_ns(0, steady_ns())).unwrap_or(0)
    }
}

type Job = Box<dyn FnOnce(&mut Option<Collector>) + Send>;

/// Connections to hosts that somebody asks, each by its thread.
#[derive(Debug, Default)]
pub struct Telemetry {
    threads: Mutex<HashMap<String, Sender<Job>>>,
}

impl Telemetry {
    /// Asks a host. One whose agent was started anew meanwhile is connected and asked once more.
    ///
    /// # Errors
    /// [`TelemetryError`].
    pub fn ask<T: Send + 'static>(
        &self,
        target: &Arc<Target>,
        timeout: Duration,
        question: impl FnMut(&mut Collector) -> Result<T, TelemetryError> + Send + 'static,
    ) -> Result<T, TelemetryError> {
        let (tell, told) = channel();
        let (of, name) = (target.clone(), target.name.clone());
        let job: Job = Box::new(move |collector| {
            // Whoever asked may have gone.
            let _ = tell.send(answer(collector, &of, timeout, question));
        });
        self.give(name, job)?;
        told.recv().map_err(|_| TelemetryError::Thread("it has failed".to_owned()))?
    }

    /// To the host's thread, which is started where there is none (any more).
    fn give(&self, name: String, mut job: Job) -> Result<(), TelemetryError> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = threads.get(&name) {
            match thread.send(job) {
                Ok(()) => return Ok(()),
                Err(SendError(back)) => job = back,
            }
        }
        let (sender, jobs) = channel();
        let started = std::thread::Builder::new().name("telemetry".into()).spawn(move || serve(&jobs));
        started.map_err(|error| TelemetryError::Thread(error.to_string()))?;
        // It has just begun to wait.
        let _ = sender.send(job);
        threads.insert(name, sender);
        Ok(())
    }
}

/// Until nobody asks any more.
fn serve(jobs: &Receiver<Job>) {
    let mut collector = None;
    while let Ok(job) = jobs.recv_timeout(KEPT) {
        job(&mut collector);
    }
}

fn answer<T>(
    known: &mut Option<Collector>,
    target: &Arc<Target>,
    timeout: Duration,
    mut question: impl FnMut(&mut Collector) -> Result<T, TelemetryError>,
) -> Result<T, TelemetryError> {
    if let Some(mut collector) = known.take().filter(|collector| Arc::ptr_eq(&collector.target, target)) {
        let answer = question(&mut collector);
        let is_stale = match &answer {
            Err(TelemetryError::Ask(error)) => !matches!(error, AskError::Primitive { .. }),
            // A table that is not there may be by now.
            Err(TelemetryError::NoTable(_)) => true,
            Ok(_) | Err(_) => false,
        };
        if !is_stale {
            *known = Some(collector);
            return answer;
        }
    }
    question(known.insert(Collector::open(target, timeout)?))
}
