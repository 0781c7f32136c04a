// SPDX-License-Identifier: Apache-2.0
//! One cold file by its row groups, for those who know where in it something is ([`Spot`](super::Spot)).
//!
//! A row group is decoded as a whole, under a lock: the library moves the position of the one file that it has.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::coding::power_of;
use super::damaged;
use super::index::Binding;
use super::source::{Columns, Source};
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::files::open_to_read;

/// A cold file that is open.
pub(crate) struct Samples {
    path: PathBuf,
    state: Mutex<State>,
}

enum State {
    /// Nothing was read yet. It has to be the file of this length and with this checksum of its footer, if they are
    /// known.
    New(File, Option<Binding>),
    Read(Source),
}

impl State {
    fn source(&mut self, path: &Path) -> Result<&Source, StoreError> {
        if let Self::New(file, bound) = self {
            let source = Source::of_samples(file.try_clone().map_err(io_error("open", path))?, path)?;
            if bound.is_some_and(|bound| source.binding != bound) {
                return Err(damaged(path, Damage::Checksum));
            }
            *self = Self::Read(source);
        }
        match self {
            Self::Read(source) => Ok(source),
            Self::New(..) => Err(damaged(path, Damage::Wrong("its state"))),
        }
    }
}

impl Samples {
    /// Opens a file; if it is the right one shows when something is read.
    ///
    /// # Errors
    /// [`StoreError`]; a file that is not there is damage.
    pub(crate) fn open(path: &Path, bound: Option<(u64, u32)>) -> Result<Self, StoreError> {
        let file = open_to_read(path)?.ok_or_else(|| damaged(path, Damage::Wrong("its absence")))?;
        let bound = bound.map(|(bytes, footer)| Binding { bytes, footer });
        Ok(Self { path: path.to_owned(), state: Mutex::new(State::New(file, bound)) })
    }

    fn with<T>(&self, read: impl FnOnce(&Source) -> Result<T, StoreError>) -> Result<T, StoreError> {
        read(self.state.lock().unwrap_or_else(PoisonError::into_inner).source(&self.path)?)
    }

    /// Its length and the checksum of its footer.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn bound(&self) -> Result<(u64, u32), StoreError> {
        self.with(|source| Ok((source.binding.bytes, source.binding.footer)))
    }

    /// Reads a row group.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn group(&self, number: u32) -> Result<Group, StoreError> {
        self.with(|source| source.columns(number).map(Group))
    }

    pub(crate) fn damaged(&self, damage: Damage) -> StoreError {
        damaged(&self.path, damage)
    }
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Times and numbers of a row group.
pub(crate) struct Group(Columns);

impl Group {
    /// When these rows' values were acquired, UTC ns.
    pub(crate) fn times(&self, first: u32, rows: usize) -> Result<&[u64], Damage> {
        let first = first as usize;
        self.0.times.get(first..first + rows).ok_or(Damage::Wrong("the rows of a series"))
    }

    /// Words of these rows; `decimal` as the spot has it.
    pub(crate) fn words(&self, first: u32, rows: usize, decimal: u8) -> Result<Vec<u64>, Damage> {
        self.0.words(first as usize, rows, power_of(decimal))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("rows", &self.0.times.len()).finish_non_exhaustive()
    }
}
