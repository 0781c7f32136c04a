// SPDX-License-Identifier: Apache-2.0
//! Entries of a list, printed, now or as they come.

use std::io::Write as _;
use std::time::Duration;

use onlooker_telemetry::text::Format;
use onlooker_telemetry::{Entries, Table, Tail};
use serde_json::json;

use super::{Collector, Connected, TelemetryError, note_lost, span};
use crate::{End, Failure, output};

/// How long, and from where on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Following {
    pub(super) follow: bool,
    pub(super) new: bool,
    pub(super) every: Duration,
}

pub(super) fn tail(collector: &Collector, name: &str, format: &Format, how: Following) -> Result<End, Failure> {
    let mut connected = collector.connect()?;
    let mut table = connected.table(name)?;
    let mut tail = begin(&mut connected, &table, how.new)?;
    let mut count = 0;
    loop {
        match connected.ask(|memory| tail.read(memory, &table)) {
            Ok(entries) if entries == Entries::default() => {
                if !how.follow {
                    return Ok(if count == 0 { End::NothingMatched } else { End::Done });
                }
                std::thread::sleep(how.every);
            }
            Ok(entries) => {
                count += entries.entries.len();
                write(collector, &connected, format, &entries)?;
                note_lost(entries.lost);
            }
            Err(error) if how.follow => {
                // Its agent may have been started again: the same list goes on, at the same place, under another address.
                output::note(&format!("{error}; connecting again"));
                std::thread::sleep(how.every);
                if let Ok(again) = collector.connect()
                    && let Ok(found) = again.table(name)
                {
                    let is_same = found.geometry == table.geometry;
                    (connected, table) = (again, found);
                    if !is_same {
                        output::note("the list was made anew");
                        tail = begin(&mut connected, &table, false)?;
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn begin(connected: &mut Connected, table: &Table, new: bool) -> Result<Tail, TelemetryError> {
    connected.ask(|memory| if new { Tail::newest(memory, table) } else { Tail::oldest(memory, table) })
}

fn write(collector: &Collector, connected: &Connected, format: &Format, entries: &Entries) -> std::io::Result<()> {
    let now_ns = connected.now_ns();
    let mut out = output::stdout();
    for (number, stamp, entry) in &entries.entries {
        let (shown, age_ns) = (format.show(entry), stamp.age_ns(now_ns));
        if collector.json {
            writeln!(out, "{}", json!({"number": number, "age_ms": age_ns / 1_000_000, "entry": shown}))?;
        } else {
            writeln!(out, "{number} {shown} ({} ago)", span(age_ns))?;
        }
    }
    if collector.json && entries.lost > 0 {
        writeln!(out, "{}", json!({"lost": entries.lost}))?;
    }
    out.flush()
}
