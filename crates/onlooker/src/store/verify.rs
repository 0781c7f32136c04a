// SPDX-License-Identifier: Apache-2.0
//! `onlooker store verify`: reads all of a store and says what is damaged.

use super::{Dir, StoreFailure};
use crate::number::with_unit;
use crate::output::{self, Progress};
use crate::{End, Failure};
use onlooker_framestore::inspect::{Finding, Verified, Weight, verify};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Read all of it and say what is damaged; a controller may run. Ends with 1 if something is, with 2 if that cannot be
/// told
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    dir: Dir,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<End, Failure> {
    let dir = arguments.dir.there().map_err(Failure::Verify)?;
    let begin = Instant::now();
    let mut progress = Progress::new();
    let verified = verify(dir, |done, all| progress.show(|| said(done, all, begin.elapsed())));
    drop(progress);
    let verified = verified.map_err(|error| Failure::Verify(error.into()))?;
    let mut out = output::stdout();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &document(&verified)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write(&mut out, &verified, begin.elapsed())?;
    }
    out.flush()?;
    verified.unread.iter().for_each(|error| output::note(&error.to_string()));
    match (verified.unread.len(), verified.is_whole()) {
        (0, true) => Ok(End::Done),
        (0, false) => Ok(End::Incomplete),
        (unread, _) => Err(Failure::Verify(StoreFailure::Unread(unread))),
    }
}

#[allow(clippy::cast_precision_loss)] // for people
fn said(done: u64, all: u64, time: Duration) -> String {
    let percent = 100.0 * done as f64 / all.max(1) as f64;
    format!("{percent:.0} % of {}, {}", with_unit(all as f64, "bytes"), rate(done, time))
}

#[allow(clippy::cast_precision_loss)] // for people
fn rate(bytes: u64, time: Duration) -> String {
    with_unit(bytes as f64 / time.as_secs_f64().max(1e-3), "bytes_per_second")
}

/// What has become of the bytes, in a word, and what that means.
fn weight(weight: Weight) -> (&'static str, &'static str) {
    match weight {
        Weight::Lost => ("damaged", "what was in it is lost"),
        Weight::Mended => ("damaged", "nothing is lost"),
        Weight::Unfinished => ("unfinished", "a write that was not ended; nothing durable is lost"),
    }
}

fn document(verified: &Verified) -> Value {
    let place = |finding: &Finding| {
        let (file, offset) = (finding.path.to_string_lossy(), finding.offset);
        let is_lost = finding.weight == Weight::Lost;
        json!({"file": file, "offset": offset, "bytes": finding.bytes, "what": finding.what, "lost": is_lost})
    };
    let of = |is_unfinished: bool| {
        let findings = verified.findings.iter();
        let findings = findings.filter(|finding| (finding.weight == Weight::Unfinished) == is_unfinished);
        findings.map(place).collect::<Vec<_>>()
    };
    json!({
        "ok": verified.is_whole() && verified.unread.is_empty(),
        "files": verified.files, "bytes": verified.bytes, "chunks": verified.chunks, "records": verified.records,
        "row_groups": verified.groups, "rows": verified.rows, "values": verified.values,
        "unknown_rows": verified.unknown_rows,
        "damaged": of(false), "unfinished": of(true),
        "unread": verified.unread.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

#[allow(clippy::cast_precision_loss)] // for people
fn write(out: &mut impl Write, verified: &Verified, time: Duration) -> io::Result<()> {
    for Finding { path, offset, bytes, what, weight: of } in &verified.findings {
        let (word, meaning) = weight(*of);
        let path = output::shown(&path.to_string_lossy());
        writeln!(out, "{word}  {path} at byte {offset}, {bytes} bytes: {what} ({meaning})")?;
    }
    if verified.unknown_rows > 0 {
        writeln!(
            out,
            "note  {} rows are of tracks that the catalogue does not have: forgotten, or newer than the look at it",
            verified.unknown_rows
        )?;
    }
    let damaged = verified.findings.iter().filter(|finding| finding.weight != Weight::Unfinished).count();
    let outcome = match damaged {
        0 => "nothing is damaged".to_owned(),
        1 => "1 place is damaged".to_owned(),
        places => format!("{places} places are damaged"),
    };
    writeln!(
        out,
        "{outcome}: {} files, {}, {} chunks, {} records of the log, {} row groups, {} rows, read at {}",
        verified.files,
        with_unit(verified.bytes as f64, "bytes"),
        verified.chunks,
        verified.records,
        verified.groups,
        verified.rows,
        rate(verified.bytes, time)
    )
}
