// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a store.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Part of a column.
    #[error("a column's {0} cannot be right")]
    Column(&'static str),
    /// Part of a record.
    #[error("a record's {0} cannot be right")]
    Record(&'static str),
    /// Bytes differ from what was written.
    #[error("the checksum does not match")]
    Checksum,
}

/// Why a store cannot do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call failed.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("the store {path} is in use by another process: stop that, or give this one a directory of its own", path = .0.display())]
    InUse(PathBuf),
    /// Made by another version.
    #[error("{path} has store format {found}, this program knows {known}: use the program that wrote it, or another directory", path = path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// No room for another track's rows in memory.
    #[error(
        "{tracks} tracks need more than the {limit_bytes} bytes of hot memory: raise hot_bytes or watch fewer regions"
    )]
    HotMemory {
        /// Tracks there are.
        tracks: usize,
        /// The limit.
        limit_bytes: u64,
    },
    /// A definition that is too large.
    #[error("a definition of {bytes} bytes exceeds {limit}")]
    Definition {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Something unknown was named.
    #[error("no track {0} is defined")]
    NoTrack(u32),
    /// A row of another width than its track's.
    #[error("track {track} has {columns} columns, the row has {given}")]
    Width {
        /// Which track.
        track: u32,
        /// Its columns.
        columns: usize,
        /// Values given.
        given: usize,
    },
}

pub(crate) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { operation, path, source }
}
