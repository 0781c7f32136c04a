// SPDX-License-Identifier: Apache-2.0
//! `onlooker store`: looks into a controller's store, and takes rows out of it.
//!
//! `info` and `verify` write nothing and take no lock, so a controller may run. `export` locks the store. Exit codes of
//! `verify` are those of tools that look for something: 0 nothing is damaged, 1 something is, 2 it could not be told.

mod export;
mod info;
mod utc;
mod verify;

use crate::{End, Failure};
use clap::Subcommand;
use onlooker_framestore::damage::StoreError;
use onlooker_framestore::export::ExportError;
use std::io;
use std::path::{Path, PathBuf};

/// Where a controller has its store if it is not told otherwise.
const DEFAULT_DIR: &str = "/var/lib/onlooker-controller/store";

/// What the user asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What takes the room, and how far back it goes; a controller may run
    Info(info::Arguments),
    /// Read all of it and say what is damaged; a controller may run. Ends with 1 if something is, with 2 if that
    /// cannot be told
    Verify(verify::Arguments),
    /// Write rows as Parquet files, an hour each; no controller may run
    Export(export::Arguments),
}

/// Which store.
#[derive(Debug, clap::Args)]
struct Dir {
    /// The store, as `[store] dir` of controller.toml has it
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR)]
    dir: PathBuf,
}

/// Why it cannot be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreFailure {
    #[error("there is no store in {}: --dir says where it is, as [store] dir of controller.toml has it", .0.display())]
    Nothing(PathBuf),
    #[error(
        "the store in {} is of an earlier version: start the controller of this one once, which migrates it",
        .0.display()
    )]
    Earlier(PathBuf),
    #[error(
        "cannot look at {}: {source}; its files are its owner's alone: run this as root or as the controller's user",
        path.display()
    )]
    Denied { path: PathBuf, source: io::Error },
    #[error(
        "the store {dir} is in use: a controller runs, or another export. Stop it for as long as the export takes \
         (`systemctl stop onlooker-controller`), or export a copy, which may be made while it runs: \
         `cp -a {dir}/{{wal,warm,catalogue,gaps.log}} COPY` in this order, then --dir COPY",
        dir = .0.display()
    )]
    InUse(PathBuf),
    #[error("{} of the store's files could not be read: what is in them was not verified", .0)]
    Unread(usize),
    #[error("--from is not before --to")]
    Times,
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Export(ExportError),
}

impl From<StoreError> for StoreFailure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::InUse(dir) => Self::InUse(dir),
            StoreError::Io { path, source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Self::Denied { path, source }
            }
            error => Self::Store(error),
        }
    }
}

impl From<ExportError> for StoreFailure {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Store(error) => error.into(),
            error @ ExportError::Taken { .. } => Self::Export(error),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<End, Failure> {
    match &arguments.what {
        What::Info(arguments) => info::run(arguments),
        What::Verify(arguments) => verify::run(arguments),
        What::Export(arguments) => export::run(arguments),
    }
}

impl Dir {
    /// The directory, if a store is there.
    fn there(&self) -> Result<&Path, StoreFailure> {
        let dir = &self.dir;
        let path = dir.join("catalogue");
        match std::fs::metadata(&path) {
            Ok(_) => Ok(dir),
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                Err(StoreFailure::Denied { path, source })
            }
            Err(_) if is_earlier(dir) => Err(StoreFailure::Earlier(dir.clone())),
            Err(_) => Err(StoreFailure::Nothing(dir.clone())),
        }
    }
}

/// Whether the version before this one has its files there.
fn is_earlier(dir: &Path) -> bool {
    let is_segment = |entry: io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.path().extension().is_some_and(|extension| extension == "olog"))
    };
    dir.join("definitions-a").exists() || std::fs::read_dir(dir).is_ok_and(|mut entries| entries.any(is_segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_where_the_controller_has_it() {
        let config = onlooker_controller::config::Config::default();
        assert_eq!(config.store.dir, Path::new(DEFAULT_DIR));
    }

    #[test]
    fn what_is_no_store_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let there = |dir: &Path| Dir { dir: dir.to_owned() }.there().map(drop).unwrap_err().to_string();
        assert!(there(dir.path()).starts_with("there is no store in "));
        assert!(there(&dir.path().join("none")).starts_with("there is no store in "));
        std::fs::write(dir.path().join("0000000001.olog"), "").unwrap();
        assert!(there(dir.path()).contains("of an earlier version"));
    }
}
