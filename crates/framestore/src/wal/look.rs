// SPDX-License-Identifier: Apache-2.0
//! Reading the log of a store that somebody else may be writing: nothing is written here, and nothing locked.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use zstd::bulk::Decompressor;

use super::record::{ENTRIES, Entries, PARITY, Parity, SEGMENT, Segment};
use super::replay::{Entry, Recovery, Replay, Source};
use super::{DIRECTORY, EXTENSION};
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::bytes::Input;
use crate::framing::{Found, Reader, Record, files};

/// A segment that is held open: it can be read whoever deletes it.
pub(crate) struct Held {
    pub(crate) number: u32,
    pub(crate) path: PathBuf,
    pub(crate) file: File,
}

/// All segments of the store in `dir`, in order.
pub(crate) fn hold(dir: &Path) -> Result<Vec<Held>, StoreError> {
    let dir = dir.join(DIRECTORY);
    let mut held = Vec::new();
    for number in files::numbers(&dir, EXTENSION)? {
        let path = files::numbered(&dir, number, EXTENSION);
        held.extend(files::open_to_read(&path)?.map(|file| Held { number, path, file }));
    }
    Ok(held)
}

/// Gives what is in these segments to `visit`, in the order of writing, as [`super::Wal::open`] does.
///
/// # Errors
/// [`StoreError::Version`], [`StoreError::Io`]. Damage is no error: see [`Recovery`].
pub(crate) fn replay(segments: &[Held], visit: impl FnMut(&Source, Entry<'_>)) -> Result<Recovery, StoreError> {
    let Some(first) = segments.first() else { return Ok(Recovery::default()) };
    let mut replay = Replay::new(visit).map_err(io_error("take memory for unpacking", &first.path))?;
    for Held { number, path, file } in segments {
        replay.opened(file, path, *number)?;
    }
    Ok(replay.end().0)
}

/// Looks at records one by one, where they stand.
pub(crate) struct Checker {
    zstd: Decompressor<'static>,
    raw: Vec<u8>,
}

impl Checker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { zstd: Decompressor::new()?, raw: Vec::new() })
    }

    /// What is wrong with a record of a segment with this number, but for the rows that are in it.
    pub(crate) fn check(&mut self, segment: u32, record: &Record<'_>) -> Result<(), Damage> {
        match record.kind {
            SEGMENT if Segment::parse(record.payload)?.number == segment => Ok(()),
            SEGMENT => Err(Damage::Wrong("number of the segment")),
            ENTRIES => Entries::parse(record.payload, &mut self.zstd, &mut self.raw).map(|_| ()),
            PARITY => Parity::parse(record.payload).map(|_| ()),
            _ => Err(Damage::Wrong("kind")),
        }
    }
}

/// Where the record begins that an entry came from.
pub(crate) fn offset_of(segment: &Held, source: &Source) -> Result<Option<u64>, StoreError> {
    let failed = |error| io_error("read", &segment.path)(error);
    let is_it = |payload: &[u8]| -> Result<bool, Damage> {
        let mut input = Input(payload);
        let (_, sequence) = (input.word()?, input.word()?);
        let (_, shard) = (input.word()?, input.byte()?);
        Ok((sequence, shard) == (source.sequence, source.shard))
    };
    let mut reader = Reader::new(&segment.file).map_err(failed)?;
    while let Some(found) = reader.next().map_err(failed)? {
        if let Found::Record(record) = found
            && record.kind == ENTRIES
            && is_it(record.payload) == Ok(true)
        {
            return Ok(Some(record.offset));
        }
    }
    Ok(None)
}
