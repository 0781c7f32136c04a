// SPDX-License-Identifier: Apache-2.0
//! The controller as a process: everything started, told, and stopped in order.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onlooker_alerts::Context;
use onlooker_framestore::Recovery;
use onlooker_framestore::damage::StoreError;
use onlooker_framestore::migrate::migrate;
use onlooker_reader::clock::Moment;
use onlooker_targets::{Book, Change, JoinedError, Say};
use rustix::process::{Resource, getrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;

use crate::boards::Boards;
use crate::config::{Config, ConfigError, Rules};
use crate::engine::{self, EngineError, Orders, Running};
use crate::fleet::{Fleet, FleetSink};
use crate::forward::{ForwardError, Forwarding};
use crate::http::{self, Ending, Limits, Names, Recording, ServeError, Shared, Tls, TlsError};
use crate::keep::Keeper;
use crate::niceness::come_after_reading;
use crate::rules::{self, Evaluator, ManagerError, Managers, RulesError, Setting};
use crate::sources::{Sources, SourcesError};

/// Why the controller does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store.
    #[error("store: {0}")]
    Store(#[from] StoreError),
    /// Its thread.
    #[error("store: its thread has ended, as was told before; rows since then are lost")]
    StoreEnded,
    /// The reading thread.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Hosts that were added.
    #[error(transparent)]
    Joined(#[from] JoinedError),
    /// Other targets.
    #[error(transparent)]
    Targets(#[from] SourcesError),
    /// Forwarding.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// HTTP.
    #[error(transparent)]
    Http(#[from] ServeError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Rule files.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// Whoever is told of alerts.
    #[error(transparent)]
    Alertmanagers(#[from] ManagerError),
    /// Anything else of the system.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The engine and the store are looked at so often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Hosts that are read at a time before they are accepted: each takes a thread meanwhile.
const TRIALS: usize = 8;
/// Time between two lines about a migration.
const PROGRESS: Duration = Duration::from_secs(5);
/// In the store's directory.
const ALERTS_FILE: &str = "alerts.state";
/// Nobody waits longer for the hosts of the start.
const MAX_ENTRY: Duration = Duration::from_secs(5);

/// Runs until SIGTERM or SIGINT. `say` is told what an operator wants to know; `ready` the address of the dashboard,
/// once it is served.
///
/// # Errors
/// [`ServiceError`]; what was read until then is in the store.
pub fn run(
    path: &Path,
    config: &Config,
    say: impl Fn(&str) + Send + Sync + 'static,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServiceError> {
    let say: Say = Arc::new(say);
    // Before anything is made: a mistake is told and nothing has happened.
    config.read_targets(path)?;
    let groups = rules::read(&config.rules)?;
    let alertmanager_token = config.alertmanager_token(path)?;
    let token = config.http_token(path)?;
    let join_token = config.join_token(path)?;
    let tls = match (&config.http.tls_certificate, &config.http.tls_key) {
        (certificate, key) if !certificate.as_os_str().is_empty() => Some(Tls::load(certificate, key)?),
        _ => None,
    };
    if !config.http.listen.ip().is_loopback() {
        warn(config.http.listen, token.is_some(), tls.is_some(), &say);
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime =
        runtime.worker_threads(2).thread_name("http").on_thread_start(come_after_reading).enable_all().build();
    let runtime = runtime.map_err(|source| ServiceError::System { operation: "start HTTP threads", source })?;
    let listener = runtime.block_on(http::bind(config.http.listen))?;
    let address = listener.local_addr().map_err(ServeError::from)?;
    if let Some(parent) = config.store.hot_file.parent() {
        let made = std::fs::create_dir_all(parent);
        made.map_err(|source| ServiceError::System { operation: "make the directory of [store] hot_file", source })?;
    }
    migrated(&config.store(), &say)?;
    let (keeper, ingest, recovery) = Keeper::start(config.store(), {
        let say = say.clone();
        move |text: &str| say(text)
    })?;
    tell(&recovery, &say);
    let fleet = Arc::new(Fleet::within(config.quota()).judged_by(config.checks(path)?));
    let counters = keeper.counters();
    let sink = |_| FleetSink::new(fleet.clone(), ingest.clone(), counters.clone()).saying(say.clone());
    let engine = Running::start(
        engine::Config { say: say.clone(), ..config.engine() },
        (0..config.processing_threads()).map(sink).collect(),
    )?;
    let orders = engine.orders().clone();
    let book = Arc::new(Book::open(config.joined.clone(), move |change| order(&orders, change))?);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let Rules { interval, alertmanagers, alertmanager_ca_file, .. } = &config.rules;
    let managers = Managers::start(alertmanagers, alertmanager_ca_file, alertmanager_token.as_deref(), &say)?;
    let setting = Setting {
        store: keeper.store(),
        ingest: ingest.clone(),
        turns: keeper.turns(),
        interval: interval.as_duration(),
        context: context(&config.rules, scheme, address),
        state_file: config.store.dir.join(ALERTS_FILE),
        say: say.clone(),
    };
    let evaluator = Arc::new(Evaluator::start(setting, groups, managers).map_err(thread)?);
    let late = config.read.timeout.as_duration();
    let forwarding = Forwarding::start(&config.forward, &keeper.store(), &config.store.dir, late, &say)?;
    let shared = Shared {
        forwarding: forwarding.progress(),
        rules: evaluator.view(),
        limits: limits(config, &say),
        helpers: http::helpers(),
        names: Names::new(&config.http.names, token.is_some()),
        telemetry: Arc::default(),
        boards: Arc::new(Boards::new(&config.http.boards)),
        ending: Ending::default(),
        orders: engine.orders().clone(),
        pressure: engine.pressure(),
        rates: Arc::default(),
        vitals: Arc::default(),
        usage: Arc::default(),
        fleet: fleet.clone(),
        store: keeper.store(),
        counters,
        max_store_bytes: config.store.max_bytes.as_bytes(),
        started_ns: Moment::now().utc_ns,
        token,
        tls: tls.clone(),
        join_token,
        book: book.clone(),
        read_interval: config.read.interval.as_duration(),
        read_timeout: config.read.timeout.as_duration(),
        trials: Arc::new(Semaphore::new(TRIALS)),
    };
    let sources = Arc::new(Sources::start(path, config, book.clone(), evaluator.clone(), say.clone())?);
    let recording = Recording::start(shared.clone(), ingest).map_err(thread)?;
    let hangup = {
        let _inside = runtime.enter();
        signal(SignalKind::hangup())
    };
    let reloads = runtime.spawn(reload(hangup, sources.clone()));
    let watched = book.watched();
    enter(&fleet, watched, &engine);
    let stopped = {
        let _inside = runtime.enter();
        stopped()
    };
    say(&format!("watching {watched} hosts; dashboard {scheme}://{address}/"));
    onlooker_settings::service::notify(&format!("READY=1\nSTATUS=Watching {watched} hosts"));
    ready(address);
    runtime.block_on(async {
        let renewals = async {
            match &tls {
                Some(tls) => tls.follow(&*say).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = http::serve(listener, shared, stopped) => {}
            () = renewals => {}
            // Who reads or stores nothing must not look alive; why it ended is said below.
            () = ended(&engine, &keeper) => {}
        }
    });
    onlooker_settings::service::notify("STOPPING=1");
    reloads.abort();
    drop(sources);
    drop(recording);
    evaluator.stop();
    drop(forwarding);
    // The sinks go before the store: what they have appended is sealed then.
    drop(engine.stop()?);
    let has_ended = keeper.has_ended();
    drop(keeper);
    // Queries that are under way must not hold up the end: nobody waits for them any more.
    runtime.shutdown_background();
    if has_ended {
        return Err(ServiceError::StoreEnded);
    }
    say("stopped");
    Ok(())
}

fn thread(source: std::io::Error) -> ServiceError {
    ServiceError::System { operation: "start a thread", source }
}

/// What rules and alerts know of this controller.
fn context(rules: &Rules, scheme: &str, address: SocketAddr) -> Context {
    let external_url = match (rules.external_url.as_str(), address.ip().is_unspecified()) {
        ("", true) => {
            format!("{scheme}://{}:{}", rustix::system::uname().nodename().to_string_lossy(), address.port())
        }
        ("", false) => format!("{scheme}://{address}"),
        (url, _) => url.to_owned(),
    };
    Context { external_labels: rules.external_labels.clone(), external_url }
}

fn order(orders: &Orders, change: Change) {
    match change {
        Change::Watch(target) => orders.watch(target),
        Change::Forget(name) => orders.forget(&name),
    }
}

/// Waits until the hosts of the start are known: a page that comes back at once must not hear that its host is gone.
fn enter(fleet: &Fleet, watched: usize, engine: &Running<FleetSink>) {
    let begin = Instant::now();
    while fleet.hosts().len() < watched && begin.elapsed() < MAX_ENTRY && !engine.has_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What clients may take, by the file descriptors that there are.
fn limits(config: &Config, say: &Say) -> Arc<Limits> {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let limits = Limits::new(&config.http, descriptors);
    let most = limits.max_connections();
    if most < config.http.max_connections {
        say(&format!(
            "warning: HTTP takes {most} connections and not [http] max_connections = {}: this process may open {descriptors} files, and most of them are kept for hosts and the store",
            config.http.max_connections
        ));
    }
    limits
}

/// Ends when the engine or the store has stopped by itself.
async fn ended(engine: &Running<FleetSink>, keeper: &Keeper) {
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    while !engine.has_ended() && !keeper.has_ended() {
        ticks.tick().await;
    }
}

/// What an address that others reach lacks.
fn warn(listen: SocketAddr, has_token: bool, has_tls: bool, say: &Say) {
    if !has_token {
        say(&format!(
            "warning: {listen} is no loopback address and [http] token_file is empty: everybody who reaches it sees everything"
        ));
    }
    if !has_tls {
        say(&format!(
            "warning: {listen} is no loopback address and [http] tls_certificate is empty: what is shown{} can be read on the way",
            if has_token { ", and the token," } else { "" }
        ));
    }
}

/// Reads targets again with each SIGHUP.
async fn reload(hangup: std::io::Result<Signal>, sources: Arc<Sources>) {
    let Ok(mut hangup) = hangup else { return };
    while hangup.recv().await.is_some() {
        let sources = sources.clone();
        // Reads files.
        let _ = tokio::task::spawn_blocking(move || sources.reload()).await;
    }
}

/// Ends when we are told to. From the call on, not only once it is awaited: whoever hears that we are ready may stop us
/// at once.
fn stopped() -> impl Future<Output = ()> {
    let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let wait = async |signal: std::io::Result<Signal>| match signal {
        Ok(mut signal) => drop(signal.recv().await),
        // Without it only the default action stops us.
        Err(_) => std::future::pending().await,
    };
    async move {
        tokio::select! {
            () = wait(terminate) => {}
            () = wait(interrupt) => {}
        }
    }
}

fn tell(recovery: &Recovery, say: &Say) {
    let Recovery { tracks, log_rows, ring_records, unknown_rows, log, ring, catalogue, chunks, gaps } = recovery;
    if tracks + usize::from(*log_rows + *ring_records > 0) > 0 {
        say(&format!("store: {tracks} tracks, {log_rows} rows in the log, {ring_records} records in the ring"));
    }
    let mended = log.mended_records + log.rebuilt_records + catalogue.mended_records;
    if mended > 0 {
        say(&format!("store: {mended} damaged records were put right, and nothing of them is lost"));
    }
    for damaged in chunks {
        say(&format!(
            "store: {} is damaged at byte {} ({} bytes: {}); what was in them is a gap now",
            damaged.path.display(),
            damaged.offset,
            damaged.bytes,
            damaged.damage
        ));
    }
    for (path, damaged) in &catalogue.damaged {
        say(&format!("store: {} is damaged at byte {}; its mirror has it", path.display(), damaged.offset));
    }
    let lost = log.lost_rows + ring.lost + unknown_rows;
    if lost + gaps + u64::from(catalogue.unusable_items > 0) > 0 {
        say(&format!(
            "store: {lost} rows that were not in chunks yet, {gaps} bytes of gaps and {} definitions were lost to damage",
            catalogue.unusable_items
        ));
    }
}

/// Brings a store of an earlier version to this one's; that is told, since it takes a while.
fn migrated(config: &onlooker_framestore::Config, say: &Say) -> Result<(), StoreError> {
    let mut told = Instant::now();
    let done = migrate(config, |done, of| {
        if done == 0 || told.elapsed() >= PROGRESS {
            told = Instant::now();
            say(&format!("store: {done} of {of} tracks of the earlier version are migrated"));
        }
    })?;
    if let Some(done) = done {
        let (tracks, rows, gaps) = (done.tracks, done.rows, done.gaps);
        say(&format!("store: migrated from the earlier version: {tracks} tracks, {rows} rows, {gaps} gaps"));
    }
    Ok(())
}
