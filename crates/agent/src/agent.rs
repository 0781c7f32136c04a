// SPDX-License-Identifier: Apache-2.0
//! Puts the parts together and runs them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use onlooker_local::listen::AGENT;
use onlooker_metrics::tables::cgroups;
use onlooker_settings::service;
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::address;
use crate::bootstrap::{self, Announcement, Endpoint};
use crate::card::{self, Card};
use crate::config::{self, Config};
use crate::epochs::Epochs;
use crate::error::{AgentError, system_error};
use crate::host::{self, Host};
use crate::identity::StateDir;
use crate::kernel;
use crate::kernel::child::{self, Task};
use crate::kernel::upkeep::Upkeep;
use crate::own::{self, Own};
use crate::policy::Policy;
use crate::processors::Processors;
use crate::registration::Registration;
use crate::renewal::Renewal;
use crate::served::Served;
use crate::server::{End, Server};
use crate::system::{self, KERNEL_CAPABILITIES};
use crate::tcp::Responder;
use crate::units::Span;

/// Descriptors that programs do not get: listeners, procfs files, bootstraps, slabs.
const RESERVED_DESCRIPTORS: u64 = 256;

/// Runs until a signal asks to stop.
///
/// # Errors
/// [`AgentError`]; nothing is left behind then but the state directory and the socket's lock file.
pub fn run(config: &Config) -> Result<(), AgentError> {
    if !config.kernel.is_on() {
        system::drop_privileges(CapabilitySet::empty()).map_err(system_error("drop capabilities"))?;
    }
    let open_files = system::raise_open_files();
    let policy = resolve_policy(config)?;
    let state = StateDir::open(&config.agent.state_dir)?;
    state.secret()?;
    for warning in config.warnings().into_iter().chain(address::warnings(config)) {
        system::log(&format!("warning: {warning}"));
    }
    let tls =
        config.bootstrap.tls.then(|| bootstrap::tls_config(state.identity()?).map_err(AgentError::from)).transpose()?;
    let stops = signals(&[SIGTERM, SIGINT]).map_err(system_error("receive signals"))?;
    let hangups = signals(&[SIGHUP]).map_err(system_error("receive signals"))?;
    let (registration_listener, listening) = AGENT.listen(&config.agent.socket)?;
    let state_lock = state.lock()?;
    let tcp_listener = bind(config.tcp.listen, "tcp")?;
    let bootstrap_listener = bind(config.bootstrap.listen, "bootstrap")?;
    let tcp_address = tcp_listener.local_addr().map_err(system_error("learn the TCP port"))?;
    let bootstrap_address = bootstrap_listener.local_addr().map_err(system_error("learn the bootstrap port"))?;

    let host = Host::read(&config.agent.host, &config.agent.state_dir).map_err(system_error("identify the host"))?;
    let processors = Processors::known();
    // Behind the locks: nobody else has the responder's tables now. Before capabilities go: the first time, loading may need more than is kept.
    // After a renewal without an agent it stays silent until there are new keys.
    let is_renewed = state.is_renewed()?;
    let lease = if is_renewed { Span::from_ns(0) } else { config.kernel.lease };
    let for_load = config::Kernel { lease, ..config.kernel.clone() };
    let loaded = if config.kernel.is_on() { own::load(&for_load, &host) } else { None };
    let collecting = loaded.as_ref().map(|_| child::spawn(&config.kernel, collecting_task(config)));
    if config.kernel.is_on() {
        let kept = if loaded.is_some() { KERNEL_CAPABILITIES } else { CapabilitySet::empty() };
        system::drop_privileges(kept).map_err(system_error("drop capabilities"))?;
    } else if kernel::load::is_pinned(&config.kernel) {
        system::log(
            "warning: a kernel responder of an earlier configuration is pinned and answers until its lease ends: remove it with `onlooker-agent purge`",
        );
    }
    if loaded.is_none()
        && let Some(line) = kernel::user::unserved(&config.kernel)
    {
        system::log(&line);
    }
    if (loaded.is_none() || config.verbs.address.is_empty()) && card::release(&config.verbs.holder).is_ok() {
        system::log(
            "the holder has ended what an earlier agent had registered: no device answers by this configuration",
        );
    }
    let served = Arc::new(Served::default());
    let mut regions = Own::begin(config, &host, served.clone(), loaded)?;
    let counters = regions.counters()?;
    let sampler = regions.sampler(config, &counters)?;
    sampler.start().map_err(system_error("start the sampler thread"))?;
    let tables = regions.tables(config, &counters);
    let (Own { mut directory, recovered, report, .. }, mut metrics) = regions.end(config, &counters, sampler.clone());

    let now_ns = host::boot_time_ns();
    let kernel = directory.kernel().cloned();
    let telemetry = report.as_ref().map(|report| report.telemetry.clone()).unwrap_or_default();
    if let Err(refusal) = directory.publish_telemetry(&telemetry, now_ns) {
        system::log(&format!("warning: telemetry tables cannot be read: {refusal}"));
    }
    let epochs = kernel.clone().map(|kernel| Epochs::new(kernel, &config.kernel.telemetry, &telemetry, now_ns));
    let upkeep = kernel
        .as_ref()
        .zip(report)
        .map(|(kernel, report)| Upkeep::new(kernel.clone(), &config.kernel, counters.clone(), report, now_ns));
    let mut upkeep = upkeep.transpose().map_err(system_error("watch the kernel responder"))?;
    if let (Some(upkeep), Some(child)) = (&mut upkeep, collecting)
        && !upkeep.await_collectors(child)
    {
        metrics.install(&mut directory, &[]);
    }
    let mut registration = Registration::new(config, directory, policy, counters.clone());
    registration.restore(recovered, now_ns);
    let mut renewal =
        Renewal::new(state.clone(), kernel.is_none()).map_err(system_error("watch the state directory (inotify)"))?;
    let directory = registration.directory();
    let is_moved = renewal.follow(directory);
    if let (true, Some(kernel)) = (is_renewed, &kernel) {
        if !is_moved {
            return Err(AgentError::Renewal);
        }
        kernel.renew(config.kernel.lease.as_duration())?;
    }
    let announcement = Announcement {
        card: directory.card().map(Card::link),
        host,
        control: directory.place(),
        control_bytes: directory.bytes(),
        tcp_port: tcp_address.port(),
        kernel: kernel.as_ref().map(|kernel| kernel.entry()),
    };
    let for_tables = if config.cgroups.enabled { cgroups::most_open() } else { 0 };
    let reserved = RESERVED_DESCRIPTORS + for_tables + u64::from(config.tcp.max_connections);
    let for_programs = open_files.saturating_sub(reserved) / 2;
    let server = Server {
        registration_listener,
        tcp_listener,
        bootstrap_listener,
        stops,
        hangups,
        registration,
        responder: Responder::new(&config.tcp, served, sampler, counters.clone()),
        upkeep,
        epochs,
        renewal,
        metrics,
        tables,
        processors,
        endpoint: Endpoint::new(announcement, config.bootstrap.allow.clone(), state, tls, counters.clone()),
        counters,
        max_connections: usize::try_from(for_programs).unwrap_or(usize::MAX),
    };
    let mode = if config.bootstrap.tls { "TLS" } else { "plain" };
    let socket = config.agent.socket.display();
    system::log(&format!(
        "ready: registration {socket}, bootstrap {bootstrap_address} ({mode}), READs over TCP {tcp_address}"
    ));
    service::notify("READY=1\nSTATUS=Serving");
    let ended = server.run().map_err(system_error("wait for events"));
    service::notify("STOPPING=1");
    drop((listening, state_lock));
    system::log("stopped");
    match ended? {
        End::Asked => Ok(()),
        End::Outgrown => Err(AgentError::Outgrown),
    }
}

/// Names in the policy, by this host's files.
///
/// # Errors
/// [`AgentError::Config`].
pub fn resolve_policy(config: &Config) -> Result<Policy, AgentError> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    Policy::resolve(&config.policy, &read("/etc/passwd"), &read("/etc/group")).map_err(AgentError::Config)
}

/// A stream that becomes readable with each of `signals`.
fn signals(signals: &[i32]) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    for signal in signals {
        pipe::register(*signal, theirs.try_clone()?)?;
    }
    Ok(ours)
}

fn collecting_task(config: &Config) -> Task {
    let wanted = &config.connections;
    if wanted.enabled { Task::CollectWithConnections(wanted.short_lived) } else { Task::Collect }
}

fn bind(address: SocketAddr, section: &'static str) -> Result<TcpListener, AgentError> {
    address::listener(address).map_err(|source| AgentError::Bind { address, section, source })
}
