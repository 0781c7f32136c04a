// SPDX-License-Identifier: Apache-2.0
//! `onlooker`: the reader's command line.
//!
//! Exit codes of all subcommands: 0 done, 1 it could not be done (the message says what to do next), 2 wrong usage, 3 nothing matched.
//! Of `store verify` 1 is what it looks for, damage, and 2 that it could not be done.
#![forbid(unsafe_code)]

mod capacity;
mod controller;
mod demo;
mod doctor;
mod host;
mod number;
mod output;
mod read;
mod rules;
mod store;
mod suggest;
mod telemetry;
mod token;
mod top;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Watches hosts by reading their memory.
#[derive(Debug, Parser)]
#[command(name = "onlooker", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read a host's metrics now
    Read(read::Arguments),
    /// Look at a host live, in a terminal
    Top(top::Arguments),
    /// Watch hosts: read them, store their metrics and show them
    Controller(controller::Arguments),
    /// Say how many more hosts a controller carries, and what ends first, by what it has recorded of itself. Ends with 1
    /// if its loads differ too little to predict anything
    Capacity(capacity::Arguments),
    /// Look into a controller's store: what takes the room, what is damaged; take rows out as Parquet files
    Store(store::Arguments),
    /// Ask a collector's telemetry tables: values and counts by key, entries of lists
    Telemetry(telemetry::Arguments),
    /// Send telemetry reports to collectors, one for each line of standard input
    Report(telemetry::report::Arguments),
    /// Check files of alerting and recording rules
    Rules(rules::Arguments),
    /// See Onlooker at work on this machine
    Demo(demo::Arguments),
    /// Check what this machine, or the way to a host, needs
    Doctor(doctor::Arguments),
    #[command(hide = true)]
    Within(demo::within::Arguments),
}

/// How a subcommand ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// 0.
    Done,
    /// 1: something that was asked for could not be had; it has been said on standard error.
    Incomplete,
    /// 3.
    NothingMatched,
}

/// Why a subcommand failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Host(#[from] host::HostError),
    #[error(transparent)]
    Controller(#[from] onlooker_controller::service::ServiceError),
    #[error(transparent)]
    Capacity(#[from] capacity::history::HistoryError),
    #[error(transparent)]
    Store(#[from] store::StoreFailure),
    #[error(transparent)]
    Verify(store::StoreFailure),
    #[error(transparent)]
    Telemetry(#[from] telemetry::TelemetryError),
    #[error("demo: {0}")]
    Demo(#[from] demo::DemoError),
    #[error("cannot write: {0}")]
    Output(#[from] std::io::Error),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let end = match &arguments.command {
        Command::Read(arguments) => read::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Controller(arguments) => controller::run(arguments),
        Command::Capacity(arguments) => capacity::run(arguments),
        Command::Store(arguments) => store::run(arguments),
        Command::Telemetry(arguments) => telemetry::run(arguments),
        Command::Report(arguments) => telemetry::report::run(arguments),
        Command::Rules(arguments) => rules::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Within(arguments) => demo::within::run(arguments),
    };
    match end {
        Ok(End::Done) => ExitCode::SUCCESS,
        Ok(End::Incomplete) => ExitCode::from(1),
        Ok(End::NothingMatched) => ExitCode::from(3),
        // Whoever closed the pipe has seen enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            output::note(&failure.to_string());
            ExitCode::from(if matches!(failure, Failure::Verify(_)) { 2 } else { 1 })
        }
    }
}
