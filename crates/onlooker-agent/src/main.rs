// SPDX-License-Identifier: Apache-2.0
//! The agent's command line: the one place that puts agent and installer together. Exit codes: 0 done, 1 failed while
//! running, 2 wrong usage or configuration.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onlooker_agent_lib::address;
use onlooker_agent_lib::agent;
use onlooker_agent_lib::card;
use onlooker_agent_lib::config::{self, Config, ConfigError};
use onlooker_agent_lib::error::AgentError;
use onlooker_agent_lib::identity::{IdentityError, StateDir};
use onlooker_agent_lib::kernel::child::Task;
use onlooker_agent_lib::kernel::{self, KernelError};
use onlooker_agent_lib::prefix::Prefix;
use onlooker_agent_lib::renewal::{self, RenewalError};
use onlooker_agent_lib::system;
use onlooker_join::JoinError;
use onlooker_lane::LaneError;
use onlooker_local::listen::{AGENT, ListenError};

/// Lets readers observe this host's memory: registers regions, keeps their directory, then sleeps.
#[derive(Debug, Parser)]
#[command(name = "onlooker-agent", version)]
struct Arguments {
    /// Configuration [default: /etc/onlooker/agent.toml if it exists, else built-in defaults]
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Run in the foreground (the default)
    Run,
    /// Print the join token that a reader needs
    Token {
        /// Make a new token; the old one is refused from now on, and all reading that used it ends
        #[arg(long)]
        renew: bool,
    },
    /// Check the configuration and say what it means
    CheckConfig,
    /// Load or repair the kernel responder ([kernel] in agent.toml), and exit; the agent does this itself
    Load {
        /// Report as JSON
        #[arg(long)]
        json: bool,
        /// Remove a responder that cannot be taken over (other sizes, another layout), with all its regions
        #[arg(long)]
        replace: bool,
        /// Install only the computed kernel metrics, in the existing responder
        #[arg(long, conflicts_with = "replace")]
        collect: bool,
        /// With --collect: install the iterator of TCP connections, too
        #[arg(long, requires = "collect")]
        connections: bool,
        /// With --connections: notice connections that end between two runs
        #[arg(long, requires = "connections")]
        short_lived: bool,
        /// [kernel] as JSON from standard input instead of the configuration
        #[arg(long, hide = true)]
        settings_from_stdin: bool,
    },
    /// Say which telemetry tables there are, and what became of reports (docs/telemetry.md)
    Telemetry {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Your own collectors (docs/user-collectors.md)
    Collectors {
        #[command(subcommand)]
        action: Collectors,
    },
    /// Give READs a way of their own through a host that packets flood: a receive queue and a real-time thread (docs/responder.md)
    Lane(onlooker_lane::Options),
    /// Let a controller watch this host: configuration, unit, start, registration; run it again to do the remaining steps
    Join(Box<onlooker_join::Options>),
    /// Remove what a stopped or killed agent left behind: the kernel responder with all its regions, and a stale socket
    Purge,
}

#[derive(Debug, Clone, Subcommand)]
enum Collectors {
    /// Say whether the files would be accepted, what they read and what a block costs; install nothing
    Check {
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Renewal(#[from] RenewalError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("no kernel responder: {0}")]
    Load(String),
    #[error(
        "no translator takes telemetry reports here: see [kernel.telemetry], and what the agent has said at its start"
    )]
    Telemetry,
    #[error("the kernel responder is not there: {0}")]
    Kernel(KernelError),
    #[error("{0} of these collectors would be refused")]
    Collectors(usize),
    #[error("settings on standard input: {0}")]
    Settings(#[source] serde_json::Error),
    #[error("the kernel responder is not removed: {0}")]
    Purge(#[from] KernelError),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Lane(#[from] LaneError),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match act(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            system::log(&failure.to_string());
            match failure {
                Failure::Join(error) if error.is_usage() => ExitCode::from(2),
                Failure::Lane(error) if error.is_usage() => ExitCode::from(2),
                Failure::Config(_) | Failure::Agent(AgentError::Config(_)) => ExitCode::from(2),
                _ => ExitCode::from(1),
            }
        }
    }
}

fn act(arguments: &Arguments) -> Result<(), Failure> {
    let command = arguments.command.clone().unwrap_or(Command::Run);
    if let Command::Load { json, replace, collect, connections, short_lived, settings_from_stdin: true } = command {
        let settings = serde_json::from_reader(io::stdin().lock()).map_err(Failure::Settings)?;
        return load(&settings, json, wanted(replace, collect, connections, short_lived));
    }
    if let Command::Join(options) = &command {
        return Ok(onlooker_join::run(options, arguments.config.as_deref())?);
    }
    let config = Config::load(arguments.config.as_deref())?;
    match command {
        Command::Run => Ok(agent::run(&config)?),
        Command::Token { renew } => {
            let state = StateDir::open(&config.agent.state_dir)?;
            let renewed = if renew { renewal::renew(&state, &config) } else { Ok(()) };
            say(&state.token(config.bootstrap.tls)?)?;
            Ok(renewed?)
        }
        Command::CheckConfig => {
            agent::resolve_policy(&config)?;
            for warning in config.warnings().into_iter().chain(address::warnings(&config)) {
                system::log(&format!("warning: {warning}"));
            }
            say(&format!(
                "configuration is fine\nregistration {}\nbootstrap {} ({}) for {}\nREADs over TCP {} for {}",
                config.agent.socket.display(),
                config.bootstrap.listen,
                if config.bootstrap.tls { "TLS" } else { "plain: the token crosses the network in the clear" },
                sources(&config.bootstrap.allow),
                config.tcp.listen,
                sources(&config.tcp.allow),
            ))?;
            say(&kernel_summary(&config.kernel))
        }
        Command::Load { json, replace, collect, connections, short_lived, .. } => {
            if !config.kernel.is_on() {
                return Err(Failure::Load(
                    "[kernel] devices is empty: name the devices that it shall answer on".into(),
                ));
            }
            load(&config.kernel, json, wanted(replace, collect, connections, short_lived))
        }
        Command::Telemetry { json } => telemetry(&config.kernel, json),
        Command::Collectors { action: Collectors::Check { files } } => check_collectors(&config.kernel, &files),
        Command::Lane(options) => {
            let mut line = |text: &str| writeln!(io::stdout().lock(), "{text}");
            Ok(onlooker_lane::run(&options, config.kernel.port, &mut line)?)
        }
        Command::Purge => purge(&config),
        // Above: it has a configuration only when it is done.
        Command::Join(_) => Ok(()),
    }
}

fn wanted(replace: bool, collect: bool, connections: bool, short_lived: bool) -> Task {
    match (collect, connections) {
        (true, true) => Task::CollectWithConnections(short_lived),
        (true, false) => Task::Collect,
        (false, _) if replace => Task::Replace,
        (false, _) => Task::PutRight,
    }
}

fn load(settings: &config::Kernel, json: bool, task: Task) -> Result<(), Failure> {
    let (report, collect) = match task {
        Task::Replace => (kernel::load::load(settings, true), false),
        Task::PutRight => (kernel::load::load(settings, false), false),
        Task::Collect => (kernel::collect::collect(settings, None), true),
        Task::CollectWithConnections(short_lived) => (kernel::collect::collect(settings, Some(short_lived)), true),
    };
    if json {
        say(&serde_json::to_string(&report).map_err(Failure::Settings)?)?;
    } else if report.error.is_none() {
        let state = match report.responder {
            kernel::load::State::Loaded => "loaded",
            kernel::load::State::Replaced => "has new programs in place; regions go on",
            kernel::load::State::Reloaded => "loaded; one that could not be taken over was removed with its regions",
            kernel::load::State::Kept | kernel::load::State::None => "is there",
        };
        if !collect {
            say(&format!("kernel responder {} {state}", settings.name))?;
        }
        for collector in &report.collectors {
            say(&collector.to_string())?;
        }
        for device in &report.devices {
            say(&device.to_string())?;
        }
    }
    report.error.map_or(Ok(()), |error| Err(Failure::Load(error)))
}

fn telemetry(config: &config::Kernel, json: bool) -> Result<(), Failure> {
    let Some((tables, counters)) = kernel::telemetry::status(config).map_err(Failure::Kernel)? else {
        return Err(Failure::Telemetry);
    };
    let counted: Vec<_> = counters.iter().filter(|(_, count)| *count > 0).collect();
    if json {
        let tables: Vec<_> =
            tables.iter().map(|table| serde_json::json!({"name": table.name, "number": table.number})).collect();
        let reports: serde_json::Map<_, _> =
            counted.iter().map(|(exit, count)| (exit.name().to_owned(), (*count).into())).collect();
        return say(&serde_json::json!({"tables": tables, "reports": reports}).to_string());
    }
    tables.iter().try_for_each(|table| say(&table.to_string()))?;
    say("reports since the translator was loaded:")?;
    counted.iter().try_for_each(|(exit, count)| say(&format!("  {:<17} {count}", exit.name())))?;
    if counted.is_empty() { say("  none") } else { Ok(()) }
}

fn check_collectors(config: &config::Kernel, files: &[PathBuf]) -> Result<(), Failure> {
    let checked = onlooker_metrics::user::check(files, config.collector_budget.as_duration());
    let mut refused = 0;
    for collector in checked {
        match collector {
            Ok(collector) => {
                let costs: Vec<String> = collector.cost_ns.iter().map(ToString::to_string).collect();
                let (file, region) = (collector.file.display(), &collector.region);
                let (blocks, budget) = (collector.schema.blocks(), config.collector_budget);
                say(&format!("{file}: region {region}, {blocks} blocks of {} ns (budget {budget})", costs.join(", ")))?;
                collector.lines.iter().try_for_each(|line| say(&format!("  {line}")))?;
            }
            Err(refusal) => {
                refused += 1;
                system::log(&format!("refused: {refusal}"));
            }
        }
    }
    if refused == 0 { Ok(()) } else { Err(Failure::Collectors(refused)) }
}

fn purge(config: &Config) -> Result<(), Failure> {
    let socket = &config.agent.socket;
    // First, since it tells whether an agent lives, whose responder that is.
    if AGENT.purge(socket)? {
        say(&format!("removed the stale socket {}", socket.display()))?;
    } else {
        say(&format!("nothing to remove: no socket at {}", socket.display()))?;
    }
    release(&config.verbs)?;
    let place = config.kernel.bpffs.join("onlooker").join(&config.kernel.name);
    if !config.kernel.is_on() && !kernel::load::is_pinned(&config.kernel) {
        return Ok(());
    }
    let done = kernel::load::purge(&config.kernel)?;
    if done.is_empty() {
        return say(&format!("nothing to remove: no kernel responder in {}", place.display()));
    }
    done.iter().try_for_each(|line| say(line))
}

/// What the holder has registered of the responder's memory, whatever the configuration says by now.
fn release(verbs: &config::Verbs) -> Result<(), Failure> {
    let socket = verbs.holder.display();
    match card::release(&verbs.holder) {
        Ok(()) => say(&format!("ended queue pairs and registrations of the holder at {socket}")),
        Err(error) if !verbs.address.is_empty() => say(&format!("nothing was asked of the holder: {error}")),
        Err(_) => Ok(()),
    }
}

fn kernel_summary(kernel: &config::Kernel) -> String {
    if !kernel.is_on() {
        return "kernel responder off ([kernel] devices is empty)".to_owned();
    }
    let hook = match kernel.hook {
        config::kernel::Hook::Tc => "tc",
        config::kernel::Hook::Xdp => "XDP",
    };
    format!(
        "kernel responder on {} ({hook}), UDP port {} for {}, pins in {}/onlooker/{}; kernel memory {} for the control region ({} entries) and {} for each user",
        kernel.devices.join(", "),
        kernel.port,
        sources(&kernel.allow),
        kernel.bpffs.display(),
        kernel.name,
        kernel.control,
        kernel.control_entries(),
        kernel.slab,
    ) + &telemetry_summary(&kernel.telemetry)
}

fn telemetry_summary(telemetry: &config::telemetry::Telemetry) -> String {
    if !telemetry.is_on() {
        return String::new();
    }
    let tables: Vec<String> =
        telemetry.tables.iter().map(|table| format!("{} ({})", table.name, table.memory)).collect();
    format!(
        "\ntelemetry reports at UDP port {} from {} into {}",
        telemetry.port,
        sources(&telemetry.allow),
        tables.join(", ")
    )
}

fn sources(allow: &[Prefix]) -> String {
    let allow: Vec<String> = allow.iter().map(ToString::to_string).collect();
    if allow.is_empty() { "nobody".to_owned() } else { allow.join(", ") }
}

fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(())
}
