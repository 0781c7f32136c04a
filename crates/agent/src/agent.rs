// SPDX-License-Identifier: Apache-2.0
//! Puts the parts together and runs them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use onlooker_region::Schema;
use onlooker_region::block::Identity;
use onlooker_region::map::{Map, MapError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::bootstrap::{self, Announcement, Endpoint};
use crate::config::Config;
use crate::counters::{self, Counters};
use crate::directory::{Directory, DirectoryError, Published, SchemaText};
use crate::host::{self, Host};
use crate::identity::{IdentityError, StateDir};
use crate::listen::{self, ListenError};
use crate::node::Sampled;
use crate::policy::Policy;
use crate::protocol::{Labels, Refusal};
use crate::registration::{FIRST_REGION_ID, Registration};
use crate::sampler::Sampler;
use crate::served::Served;
use crate::server::Server;
use crate::system;
use crate::tcp::Responder;

/// Descriptors that programs do not get: listeners, procfs files, bootstraps, slabs.
const RESERVED_DESCRIPTORS: u64 = 256;

/// Why the agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A value of the configuration that only this host can judge.
    #[error("{0}")]
    Config(String),
    /// The state directory.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The registration socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A TCP listener.
    #[error(
        "cannot listen on {address} ([{section}] listen): {source}; is another agent running, or the address not this host's?"
    )]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Section of agent.toml.
        section: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// TLS.
    #[error("TLS: {0}; remove identity.pem from the state directory to have a new one made")]
    Tls(#[from] rustls::Error),
    /// The control region.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Memory of the agent's own regions.
    #[error("memory of the agent's own regions: {0}")]
    Memory(#[from] MapError),
    /// The agent's own regions.
    #[error("the agent's own region {name}: {refusal}")]
    Own {
        /// Which.
        name: &'static str,
        /// Why.
        refusal: Refusal,
    },
    /// Anything else of the system.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn system_error(operation: &'static str) -> impl FnOnce(io::Error) -> AgentError {
    move |source| AgentError::System { operation, source }
}

/// Runs until a signal asks to stop.
///
/// # Errors
/// [`AgentError`]; nothing is left behind then but the state directory and the socket's lock file.
pub fn run(config: &Config) -> Result<(), AgentError> {
    system::drop_privileges().map_err(system_error("drop capabilities"))?;
    let open_files = system::raise_open_files();
    let policy = resolve_policy(config)?;
    let state = StateDir::open(&config.agent.state_dir)?;
    state.secret()?;
    for warning in config.warnings() {
        system::log(&format!("warning: {warning}"));
    }
    let tls =
        config.bootstrap.tls.then(|| bootstrap::tls_config(state.identity()?).map_err(AgentError::from)).transpose()?;
    let stops = signals(&[SIGTERM, SIGINT]).map_err(system_error("receive signals"))?;
    let hangups = signals(&[SIGHUP]).map_err(system_error("receive signals"))?;
    let (registration_listener, listening) = listen::listen(&config.agent.socket)?;
    let state_lock = state.lock()?;
    let tcp_listener = bind(config.tcp.listen, "tcp")?;
    let bootstrap_listener = bind(config.bootstrap.listen, "bootstrap")?;
    let tcp_address = tcp_listener.local_addr().map_err(system_error("learn the TCP port"))?;
    let bootstrap_address = bootstrap_listener.local_addr().map_err(system_error("learn the bootstrap port"))?;

    let host = Host::read(&config.agent.host, &config.agent.state_dir).map_err(system_error("identify the host"))?;
    let served = Arc::new(Served::default());
    let mut directory = Directory::new(&host, served.clone(), config.limits.reuse_delay.as_ns(), host::boot_time_ns())?;
    let mut ids = 1..FIRST_REGION_ID;
    let counters = own_counters(&mut directory, &mut ids)?;
    let sampler = sampler(config, &mut directory, &mut ids, &counters)?;
    sampler.start().map_err(system_error("start the sampler thread"))?;

    let control = directory.place();
    let announcement = Announcement { host, control, control_bytes: directory.bytes(), tcp_port: tcp_address.port() };
    let for_programs = open_files.saturating_sub(RESERVED_DESCRIPTORS + u64::from(config.tcp.max_connections)) / 2;
    let server = Server {
        registration_listener,
        tcp_listener,
        bootstrap_listener,
        stops,
        hangups,
        registration: Registration::new(config, directory, policy, counters.clone()),
        responder: Responder::new(&config.tcp, served, sampler, counters.clone()),
        endpoint: Endpoint::new(announcement, config.bootstrap.allow.clone(), state, tls, counters.clone()),
        counters,
        max_connections: usize::try_from(for_programs).unwrap_or(usize::MAX),
    };
    let mode = if config.bootstrap.tls { "TLS" } else { "plain" };
    let socket = config.agent.socket.display();
    system::log(&format!(
        "ready: registration {socket}, bootstrap {bootstrap_address} ({mode}), READs over TCP {tcp_address}"
    ));
    system::notify("READY=1\nSTATUS=Serving");
    let ended = server.run().map_err(system_error("wait for events"));
    system::notify("STOPPING=1");
    drop((listening, state_lock));
    system::log("stopped");
    ended
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

fn bind(address: SocketAddr, section: &'static str) -> Result<TcpListener, AgentError> {
    TcpListener::bind(address).map_err(|source| AgentError::Bind { address, section, source })
}

fn own_counters(directory: &mut Directory, ids: &mut impl Iterator<Item = u32>) -> Result<Counters, AgentError> {
    let identity = own_identity(ids)?;
    let counters = Counters::new(identity)?;
    publish_own(directory, counters::REGION, &counters::schema(), identity, counters.memory())?;
    Ok(counters)
}

fn sampler(
    config: &Config,
    directory: &mut Directory,
    ids: &mut impl Iterator<Item = u32>,
    counters: &Counters,
) -> Result<Arc<Sampler>, AgentError> {
    let mut groups = config.sampled.groups.clone();
    groups.sort_unstable();
    groups.dedup();
    let mut ready = Vec::new();
    for group in groups {
        let identity = own_identity(ids)?;
        match Sampled::new(group, config.sampled.interval.as_ns(), identity) {
            Ok(sampled) => {
                publish_own(directory, sampled.name, &sampled.schema, identity, sampled.memory.clone())?;
                ready.push(sampled);
            }
            Err(error) => system::log(&format!("warning: kernel metrics {group:?} are not served: {error}")),
        }
    }
    Ok(Sampler::new(ready, config.sampled.interval.as_duration(), counters.clone()))
}

fn own_identity(ids: &mut impl Iterator<Item = u32>) -> Result<Identity, AgentError> {
    let generation = host::random_generation().map_err(system_error("get random numbers"))?;
    let id =
        ids.next().ok_or_else(|| system_error("number the agent's own regions")(io::ErrorKind::OutOfMemory.into()))?;
    Ok(Identity::first(id, generation))
}

fn publish_own(
    directory: &mut Directory,
    name: &'static str,
    schema: &Schema,
    identity: Identity,
    memory: Map,
) -> Result<(), AgentError> {
    let now_ns = host::boot_time_ns();
    let labels = Labels::new();
    let published = Published {
        id: identity.region,
        generation: identity.generation,
        name,
        labels: &labels,
        pid: std::process::id(),
        uid: rustix::process::geteuid().as_raw(),
        created_ns: now_ns,
    };
    let schema = SchemaText::of(schema);
    directory.publish(&published, &schema, memory, now_ns).map_err(|refusal| AgentError::Own { name, refusal })
}
