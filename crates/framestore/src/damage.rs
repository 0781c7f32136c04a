// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with stored bytes, and with the store.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Something in them contradicts the format.
    #[error("{0} cannot be right")]
    Wrong(&'static str),
    /// Bytes differ from what was written.
    #[error("the checksum does not match")]
    Checksum,
}

/// Why the store cannot do what it was asked to.
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
    /// A file says what cannot be.
    #[error("{path} is damaged at byte {offset}: {damage}", path = path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What.
        damage: Damage,
    },
    /// Something exceeds a limit.
    #[error("{what} of {got} exceeds {limit}")]
    Limit {
        /// What.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// What was asked for.
        got: usize,
    },
}

pub(crate) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { operation, path, source }
}
