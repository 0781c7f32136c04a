// SPDX-License-Identifier: Apache-2.0
//! `onlooker store export`: Parquet files of what a store has, an hour each.

use super::{Dir, StoreFailure, utc};
use crate::number::with_unit;
use crate::output::{self, Progress};
use crate::suggest::nearest;
use crate::{End, Failure};
use onlooker_framestore::Store;
use onlooker_framestore::cold::Window;
use onlooker_framestore::damage::StoreError;
use onlooker_framestore::export::{Export, Exported, Request};
use onlooker_framestore::framing::files::Lock;
use onlooker_framestore::store::open_to_read;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

/// Write rows as Parquet files, an hour each; no controller may run
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    dir: Dir,
    /// Whose rows: a host's name, or `all`
    #[arg(long, value_name = "NAME|all")]
    host: String,
    /// The first time, UTC, as 2026-11-24T10:30 [default: the earliest]
    #[arg(long, value_name = "TIME", value_parser = utc::parse)]
    from: Option<u64>,
    /// The first time that is not wanted [default: behind the latest]
    #[arg(long, value_name = "TIME", value_parser = utc::parse)]
    to: Option<u64>,
    /// Where to write: into `cold` in this directory, which is made
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<End, Failure> {
    let dir = arguments.dir.there()?;
    if let (Some(from), Some(to)) = (arguments.from, arguments.to)
        && from >= to
    {
        return Err(StoreFailure::Times.into());
    }
    let lock = Lock::take(dir).map_err(StoreFailure::from)?;
    let (store, damaged) = open_to_read(&lock).map_err(StoreFailure::from)?;
    let host = Some(&*arguments.host).filter(|host| *host != "all");
    if let Some(host) = host
        && !has_host(&store, host)
    {
        return Ok(End::NothingMatched);
    }
    let Arguments { from, to, ref out, .. } = *arguments;
    let export = Export::begin(store, &Request { store: dir, host, from, to, out }).map_err(StoreFailure::from)?;
    if export.windows().is_empty() {
        output::note(&format!("nothing is left to export to {}: all that is wanted is there", out.display()));
        return Ok(End::Done);
    }
    let damaged = damaged + write(&export)?;
    if damaged > 0 {
        output::note("the store is damaged, so rows are missing: `onlooker store verify` says where");
    }
    Ok(if damaged == 0 { End::Done } else { End::Incomplete })
}

/// Says so if the store has no host of this name.
fn has_host(store: &Store, host: &str) -> bool {
    let known = store.known();
    let names: BTreeSet<String> = known.hosts().filter_map(|id| Some(known.host(id)?.0.to_owned())).collect();
    if names.contains(host) {
        return true;
    }
    let near = nearest(host, names.iter().map(String::as_str));
    let advice = match &near[..] {
        [] => "`onlooker store info` has the largest ones".to_owned(),
        near => format!("did you mean {}?", near.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    output::note(&format!("the store has no host `{host}`: {advice}"));
    false
}

#[allow(clippy::cast_precision_loss)] // for people
fn bytes(bytes: u64) -> String {
    with_unit(bytes as f64, "bytes")
}

/// Writes a file after the other, and a line for each. Returns how many times rows could not be read.
fn write(export: &Export) -> Result<usize, Failure> {
    let (mut out, mut progress) = (output::stdout(), Progress::new());
    let (mut files, mut all_bytes, mut rows, mut damaged) = (0, 0, 0, 0);
    for (done, window) in export.windows().iter().enumerate() {
        progress.show(|| said(done, export.windows().len(), *window, all_bytes));
        let Exported { written, damaged: of_window } = export.write(*window).map_err(failed)?;
        damaged += of_window.len();
        progress.clear();
        for gap in of_window {
            let (from, to) = (utc::text(gap.from_ns), utc::text(gap.to_ns));
            output::note(&format!(
                "rows of track {} from {from} to {to} UTC are damaged; the files have a gap",
                gap.track.0
            ));
        }
        if let Some(written) = written {
            let path = output::shown(&written.path.to_string_lossy());
            writeln!(out, "{path}  {} rows, {}", written.rows, bytes(written.bytes))?;
            out.flush()?;
            (files, all_bytes, rows) = (files + 1, all_bytes + written.bytes, rows + written.rows);
        }
    }
    writeln!(out, "{files} files, {rows} rows, {}", bytes(all_bytes))?;
    out.flush()?;
    Ok(damaged)
}

fn said(done: usize, all: usize, window: Window, written: u64) -> String {
    format!("{done} of {all} hours, {} written; at {} UTC", bytes(written), utc::text(window.from_ns()))
}

fn failed(error: StoreError) -> Failure {
    StoreFailure::from(error).into()
}
