// SPDX-License-Identifier: Apache-2.0
//! `onlooker report`: sends telemetry reports, one for each line of standard input, or the bytes of each flow of a capture.

use std::io::{self, BufRead as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use onlooker_reporter::{Report, Reporter};
use onlooker_telemetry::text::Bytes;
use onlooker_wire::dta::{Body, Copies, Importance, PORT};

use super::{TelemetryError, flows};
use crate::number::parse_duration;
use crate::{End, Failure, output};

/// What the user asks for.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A line is KEY VALUE for key-write, VALUE for append, KEY ADDEND for key-increment; empty lines and lines that begin with # count for nothing. \
Keys and values: SOURCE:PORT>DESTINATION:PORT/PROTOCOL, an address, u32:1,2 (u8, u16, u64), text:..., or 0x and hexadecimal digits."
)]
pub(crate) struct Arguments {
    /// What reports do
    #[arg(value_enum)]
    primitive: Primitive,
    /// Collectors, each with the port of its translator [default port: 40040]; of several each key and each list has one
    #[arg(required = true, value_name = "HOST[:PORT]")]
    collectors: Vec<String>,
    /// Number of the table or list
    #[arg(long, short, value_parser = clap::value_parser!(u16).range(..1024))]
    table: u16,
    /// File with the table's access key, eight hexadecimal digits [default: $ONLOOKER_ACCESS_KEY]
    #[arg(long, value_name = "PATH")]
    access_key_file: Option<PathBuf>,
    /// Count the bytes of each flow in this capture of packets (pcap; `-`: standard input), instead of reading lines
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Copies of each key's entry
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    copies: u8,
    /// High: they are sent until they have come
    #[arg(long, value_enum, default_value = "medium")]
    importance: Level,
    /// This reporter's number
    #[arg(long, default_value_t = 0)]
    reporter: u32,
    /// Generation of the list of collectors
    #[arg(long, default_value_t = 0)]
    generation: u8,
    /// How long is waited for what is important to have come
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Primitive {
    KeyWrite,
    Append,
    KeyIncrement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    Low,
    Medium,
    High,
}

/// A line's key, payload and addend.
struct Line {
    key: Bytes,
    payload: Bytes,
    addend: u64,
}

impl Primitive {
    fn parse(self, line: &str) -> Result<Line, String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let none = || Bytes(Vec::new());
        match (self, &words[..]) {
            (Self::KeyWrite, [key, value]) => Ok(Line { key: key.parse()?, payload: value.parse()?, addend: 0 }),
            (Self::Append, [value]) => Ok(Line { key: none(), payload: value.parse()?, addend: 0 }),
            (Self::KeyIncrement, [key, addend]) => {
                let addend = addend.parse().map_err(|_| format!("\"{addend}\" is no number to add"))?;
                Ok(Line { key: key.parse()?, payload: none(), addend })
            }
            (Self::KeyWrite, _) => Err("a line is KEY VALUE".to_owned()),
            (Self::Append, _) => Err("a line is VALUE".to_owned()),
            (Self::KeyIncrement, _) => Err("a line is KEY ADDEND".to_owned()),
        }
    }
}

/// Reads lines and sends.
pub(crate) fn run(arguments: &Arguments) -> Result<End, Failure> {
    let access = access(arguments)?;
    let collectors = arguments.collectors.iter().map(|text| address(text)).collect::<Result<Vec<_>, _>>()?;
    let failed = |error: io::Error| TelemetryError::Report(format!("cannot send reports: {error}"));
    let mut reporter = Reporter::new(arguments.reporter, &collectors, arguments.generation).map_err(failed)?;
    let importance = match arguments.importance {
        Level::Low => Importance::Low,
        Level::Medium => Importance::Medium,
        Level::High => Importance::High,
    };
    let send = |reporter: &mut Reporter, body: Body<'_>| -> Result<bool, String> {
        let report = Report { importance, ..Report::new(arguments.table, access, body) };
        reporter.report(&report).map_err(|error| error.to_string())
    };
    let copies = Copies::All(arguments.copies);
    let mut bad = 0;
    if let Some(path) = &arguments.pcap {
        if arguments.primitive != Primitive::KeyIncrement {
            return Err(TelemetryError::Report("a capture's flows are counted: take key-increment".to_owned()).into());
        }
        let counted = flows::count(path, |flow, bytes| {
            let body = Body::KeyIncrement { key: flow, addend: bytes, copies };
            match send(&mut reporter, body) {
                Ok(true) => Ok(()),
                Ok(false) => Err(silent(arguments)),
                Err(what) => Err(what),
            }
        });
        let counted = counted.map_err(TelemetryError::Report)?;
        output::note(&format!(
            "{} packets of {} bytes are of flows, {} others",
            counted.packets, counted.bytes, counted.others
        ));
    } else {
        for (number, line) in (1u64..).zip(io::stdin().lock().lines()) {
            let line = line.map_err(failed)?;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let sent = arguments.primitive.parse(line).and_then(|Line { key, payload, addend }| {
                let body = match arguments.primitive {
                    Primitive::KeyWrite => Body::KeyWrite { key: &key.0, payload: &payload.0, copies },
                    Primitive::Append => Body::Append { payload: &payload.0 },
                    Primitive::KeyIncrement => Body::KeyIncrement { key: &key.0, addend, copies },
                };
                send(&mut reporter, body)
            });
            match sent {
                Ok(true) => {}
                Ok(false) => return Err(TelemetryError::Report(silent(arguments)).into()),
                Err(what) => {
                    output::note(&format!("line {number}: {what}"));
                    bad += 1;
                }
            }
        }
    }
    let under_way = reporter.finish(arguments.timeout).map_err(failed)?;
    let counts = reporter.counts();
    output::note(&format!(
        "{} reports sent, {} of them again, {} lines not understood",
        counts.sent, counts.again, bad
    ));
    if under_way > 0 {
        return Err(TelemetryError::Report(format!("{under_way} reports have not come: {}", silent(arguments))).into());
    }
    if counts.failed > 0 {
        output::note(&format!(
            "this machine has not taken {} datagrams: is there a way to the collector?",
            counts.failed
        ));
    }
    Ok(if bad > 0 || counts.failed > 0 { End::Incomplete } else { End::Done })
}

fn silent(arguments: &Arguments) -> String {
    format!(
        "{} does not answer: are table and access key right, and this machine in [kernel.telemetry] allow of its agent.toml?",
        arguments.collectors.join(", ")
    )
}

fn access(arguments: &Arguments) -> Result<u32, TelemetryError> {
    let bad = |what: String| TelemetryError::Report(what);
    let text = match &arguments.access_key_file {
        Some(path) => std::fs::read_to_string(path).map_err(|error| bad(format!("{}: {error}", path.display())))?,
        None => std::env::var("ONLOOKER_ACCESS_KEY")
            .map_err(|_| bad("no access key: give --access-key-file, or set ONLOOKER_ACCESS_KEY".to_owned()))?,
    };
    u32::from_str_radix(text.trim(), 16).map_err(|_| bad("the access key is not eight hexadecimal digits".to_owned()))
}

fn address(text: &str) -> Result<SocketAddr, TelemetryError> {
    let bad = |what: String| TelemetryError::Report(format!("collector {text}: {what}"));
    let (host, port) = onlooker_targets::target::parse_address(text).map_err(|what| bad(what.to_owned()))?;
    let mut found = (host.as_str(), port.unwrap_or(PORT)).to_socket_addrs().map_err(|error| bad(error.to_string()))?;
    found.next().ok_or_else(|| bad("it has no address".to_owned()))
}
