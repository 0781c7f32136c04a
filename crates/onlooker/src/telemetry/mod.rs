// SPDX-License-Identifier: Apache-2.0
//! `onlooker telemetry`: questions to a collector's telemetry tables, and `onlooker report`, which writes to them.

mod ask;
mod flows;
pub(crate) mod report;
mod tail;

use std::time::Duration;

use onlooker_reader::Limits;
use onlooker_reader::clock::steady_ns;
use onlooker_telemetry::text::{Bytes, Format};
use onlooker_telemetry::{AskError, Memory, Table};

use crate::host::{ByChoice, Choice, Connection, HostError, Options, Target, addresses};
use crate::number::parse_duration;
use crate::suggest::nearest;
use crate::{End, Failure, output, token};

/// What the user asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, clap::Subcommand)]
enum Question {
    /// The tables that a collector has
    Tables {
        #[command(flatten)]
        collector: Collector,
    },
    /// The newest values of keys
    Get {
        #[command(flatten)]
        collector: Collector,
        /// Name of a table for key-write
        table: String,
        /// Keys: SOURCE:PORT>DESTINATION:PORT/PROTOCOL, an address, u32:1,2 (u8, u16, u64), text:..., or 0x and hexadecimal digits
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<Bytes>,
        /// How values are shown: hex, u8, u16, u32, u64, text, flow, or several such as flow,u32,u8
        #[arg(long, default_value = "hex")]
        format: Format,
        /// No value where copies differ, instead of the one that most of them have
        #[arg(long)]
        strict: bool,
    },
    /// How often keys were counted
    Count {
        #[command(flatten)]
        collector: Collector,
        /// Name of a table for key-increment
        table: String,
        /// Keys, as of `get`
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<Bytes>,
        /// Copies that reports write; the default is theirs, too
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
        copies: u8,
    },
    /// Entries of a list
    Tail {
        #[command(flatten)]
        collector: Collector,
        /// Name of a list
        table: String,
        /// How entries are shown, as values of `get`
        #[arg(long, default_value = "hex")]
        format: Format,
        /// Wait for more, until interrupted
        #[arg(long, short)]
        follow: bool,
        /// Only what comes from now on
        #[arg(long, requires = "follow")]
        new: bool,
        /// How often is looked for more
        #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
        every: Duration,
    },
}

/// Which collector is asked, and how.
#[derive(Debug, clap::Args)]
struct Collector {
    /// The collector, with the port of its agent's bootstrap endpoint [default port: 7177]
    #[arg(value_name = "HOST[:PORT]")]
    target: Target,
    #[command(flatten)]
    token: token::Source,
    /// One JSON document a line
    #[arg(long)]
    json: bool,
    /// Time for connecting, and for each question
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TelemetryError {
    #[error("{target} has no telemetry table {name}{}", suggestion(.near, .has_any))]
    NoTable { target: Target, name: String, near: Vec<String>, has_any: bool },
    #[error("{target}: {source}")]
    Ask { target: Target, source: AskError },
    #[error("{0}")]
    Report(String),
}

fn suggestion(near: &[String], has_any: &bool) -> String {
    match (near, has_any) {
        ([], false) => ": it has none at all; see [kernel.telemetry] in its agent.toml".to_owned(),
        ([], true) => "; `onlooker telemetry tables` shows those that it has".to_owned(),
        (near, _) => format!(": did you mean {}?", near.join(" or ")),
    }
}

/// A collector that is connected.
struct Connected {
    target: Target,
    timeout: Duration,
    connection: Connection,
    tables: Vec<Table>,
}

impl Collector {
    fn connect(&self) -> Result<Connected, Failure> {
        let addresses = addresses(&self.target).map_err(HostError::from)?;
        let is_local = addresses.iter().all(|address| address.ip().is_loopback());
        let token = self.token.token(is_local).map_err(HostError::from)?;
        let options =
            Options { choice: Choice::Kernel, by: ByChoice::Soft, timeout: self.timeout, limits: Limits::default() };
        let mut connection = Connection::open(&self.target, addresses, token, options)?;
        // Of its regions nothing but where tables are.
        connection.read(&|session| session.select(|_, _| false))?;
        let tables = Table::all(connection.session.directory());
        Ok(Connected { target: self.target.clone(), timeout: self.timeout, connection, tables })
    }
}

impl Connected {
    fn table(&self, name: &str) -> Result<Table, TelemetryError> {
        let found = self.tables.iter().find(|table| table.name == name).cloned();
        found.ok_or_else(|| TelemetryError::NoTable {
            target: self.target.clone(),
            name: name.to_owned(),
            near: nearest(name, self.tables.iter().map(|table| table.name.as_str()))
                .iter()
                .map(ToString::to_string)
                .collect(),
            has_any: !self.tables.is_empty(),
        })
    }

    /// What its memory says.
    fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Memory<'_, dyn onlooker_reader::Requester>) -> Result<T, AskError>,
    ) -> Result<T, TelemetryError> {
        let mut memory = Memory { requester: &mut *self.connection.way.requester, timeout: self.timeout };
        question(&mut memory).map_err(|source| TelemetryError::Ask { target: self.target.clone(), source })
    }

    /// Time of its clock now, ns since it began.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.connection.told().relation.age_ns(0, steady_ns())).unwrap_or(0)
    }
}

/// Asks and prints.
pub(crate) fn run(arguments: &Arguments) -> Result<End, Failure> {
    match &arguments.question {
        Question::Tables { collector } => ask::tables(collector),
        Question::Get { collector, table, keys, format, strict } => ask::get(collector, table, keys, format, *strict),
        Question::Count { collector, table, keys, copies } => ask::count(collector, table, keys, *copies),
        Question::Tail { collector, table, format, follow, new, every } => {
            tail::tail(collector, table, format, tail::Following { follow: *follow, new: *new, every: *every })
        }
    }
}

/// A span in the unit that people read.
fn span(ns: u64) -> String {
    match ns {
        0..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        1_000_000_000..100_000_000_000 => format!("{}.{} s", ns / 1_000_000_000, ns / 100_000_000 % 10),
        100_000_000_000..6_000_000_000_000 => format!("{} min", ns / 60_000_000_000),
        _ => format!("{} h", ns / 3_600_000_000_000),
    }
}

fn note_lost(lost: u64) {
    if lost > 0 {
        output::note(&format!("{lost} entries are lost: the list was overtaken, or its translator was loaded again"));
    }
}
