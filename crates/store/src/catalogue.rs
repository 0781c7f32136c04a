// SPDX-License-Identifier: Apache-2.0
//! What tracks are: their definitions, apart from the log, so that neither a segment nor a sync has anything to do with how many there are.
//!
//! Two files, `definitions-a` and `definitions-b`, with the same records: whatever happens to one of them, the other has all. A definition is written to both
//! before its track gets a row, and is durable before any of its rows is. What is forgotten stays until it is half of a file; then both are written again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::column::Kind;
use crate::description::Packed;
use crate::error::{StoreError, io_error};
use crate::log::{VERSION, scan, sync_dir};
use crate::private;
use crate::record::{self, Record, TrackId};

const NAMES: [&str; 2] = ["definitions-a", "definitions-b"];
/// Forgotten definitions that are not worth writing the others again.
const LEAST_FORGOTTEN_BYTES: u64 = 1 << 20;

/// A track's definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) kinds: Arc<[Kind]>,
    pub(crate) described: Packed,
}

impl Definition {
    /// As a record has it.
    pub(crate) fn read(columns: Vec<Kind>, meta: &[u8]) -> Self {
        Self { kinds: columns.into(), described: Packed::from_bytes(meta) }
    }

    /// Bytes of its record.
    fn bytes(&self) -> u64 {
        (record::HEADER_BYTES + (8 + self.kinds.len() + self.described.bytes().len())).next_multiple_of(8) as u64
    }

    fn encode(&self, track: TrackId, out: &mut Vec<u8>) {
        let (columns, meta) = (self.kinds.to_vec(), self.described.bytes().to_vec());
        record::encode(&Record::Definition { track, columns, meta }, &[], out);
    }
}

/// The files.
pub(crate) struct Catalogue {
    dir: PathBuf,
    /// `None`: they must be written again before anything is durable.
    files: Option<[File; 2]>,
    /// Of each file.
    bytes: u64,
    forgotten_bytes: u64,
    dirty: bool,
}

/// What is there of it.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) definitions: BTreeMap<TrackId, Definition>,
    /// Bytes that are no records, of both files.
    pub(crate) damaged_bytes: u64,
    /// Length of both, where they are alike and whole.
    bytes: Option<u64>,
}

impl Catalogue {
    /// Reads what is there.
    pub(crate) fn read(dir: &Path) -> Result<Found, StoreError> {
        let mut found = Found::default();
        let mut files = Vec::new();
        for name in NAMES {
            let path = dir.join(name);
            let bytes = match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read.map_err(io_error("read", &path))?,
            };
            scan(0, &bytes, |_, record| match record {
                Ok((frame, payload)) => {
                    if let Ok(Record::Definition { track, columns, meta }) = frame.decode(payload) {
                        found.definitions.insert(track, Definition::read(columns, &meta));
                    }
                }
                Err((bytes, _)) => found.damaged_bytes += bytes,
            })
            .map_err(|version| StoreError::Version { path, found: version, known: VERSION })?;
            files.push(bytes);
        }
        let are_whole = files.len() == 2 && files[0] == files[1] && found.damaged_bytes == 0;
        found.bytes = are_whole.then(|| files[0].len() as u64);
        Ok(found)
    }

    /// Opens it, with just these definitions of what was found and what the log had; writes them where they are not there as they should be.
    pub(crate) fn open<'a>(
        dir: &Path,
        found: &Found,
        kept: impl Iterator<Item = (TrackId, &'a Definition)> + Clone,
    ) -> Result<Self, StoreError> {
        let mut all = Self { dir: dir.to_owned(), files: None, bytes: 0, forgotten_bytes: 0, dirty: false };
        let mut bytes = header().len() as u64;
        let mut is_known = true;
        for (track, definition) in kept.clone() {
            bytes += definition.bytes();
            is_known &= found.definitions.get(&track) == Some(definition);
        }
        match found.bytes {
            Some(length) if is_known && length <= 2 * bytes + LEAST_FORGOTTEN_BYTES => {
                let open = |name: &str| {
                    let path = dir.join(name);
                    let file = File::options().read(true).write(true).open(&path);
                    file.and_then(|file| private::restrict(&file).map(|()| file)).map_err(io_error("open", &path))
                };
                all.files = Some([open(NAMES[0])?, open(NAMES[1])?]);
                (all.bytes, all.forgotten_bytes, all.dirty) = (length, length.saturating_sub(bytes), true);
                all.sync()?;
            }
            _ => all.write_again(kept)?,
        }
        Ok(all)
    }

    /// Bytes of both files.
    pub(crate) fn bytes(&self) -> u64 {
        2 * self.bytes
    }

    /// Whether it is to be written again.
    pub(crate) fn is_due(&self) -> bool {
        self.files.is_none() || self.forgotten_bytes > LEAST_FORGOTTEN_BYTES.max(self.bytes / 2)
    }

    /// Whether it must be written again before anything else.
    pub(crate) fn is_broken(&self) -> bool {
        self.files.is_none()
    }

    /// Appends a definition to both files. It is durable after [`Catalogue::sync`].
    pub(crate) fn append(&mut self, track: TrackId, definition: &Definition) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        definition.encode(track, &mut bytes);
        let Some(files) = &self.files else {
            // It is in memory, and will be written with all others.
            return Err(io_error("write to", &self.dir.join(NAMES[0]))(io::ErrorKind::Other.into()));
        };
        for (file, name) in files.iter().zip(NAMES) {
            if let Err(error) = file.write_all_at(&bytes, self.bytes) {
                // Part of a record must not be taken for the beginning of one; a later attempt writes over it in any case.
                files.iter().for_each(|file| drop(file.set_len(self.bytes)));
                return Err(io_error("write to", &self.dir.join(name))(error));
            }
        }
        self.bytes += bytes.len() as u64;
        self.dirty = true;
        Ok(())
    }

    /// A track is forgotten.
    pub(crate) fn forget(&mut self, definition: &Definition) {
        self.forgotten_bytes += definition.bytes();
    }

    /// It could not be written again: not before as much again is forgotten.
    pub(crate) fn put_off(&mut self) {
        self.forgotten_bytes = 0;
    }

    /// Makes both files durable. What failed once may be lost without another word: then they are due to be written again.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        let Some(files) = self.files.as_ref().filter(|_| self.dirty) else { return Ok(()) };
        for (file, name) in files.iter().zip(NAMES) {
            if let Err(error) = file.sync_data() {
                self.files = None;
                return Err(io_error("sync", &self.dir.join(name))(error));
            }
        }
        self.dirty = false;
        Ok(())
    }

    /// Writes both files again, one after the other, so that there is a whole one at any time.
    pub(crate) fn write_again<'a>(
        &mut self,
        kept: impl Iterator<Item = (TrackId, &'a Definition)>,
    ) -> Result<(), StoreError> {
        let mut bytes = header();
        kept.for_each(|(track, definition)| definition.encode(track, &mut bytes));
        let write = |name: &str| {
            let (path, new) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(true).mode(private::MODE);
            let file = options.open(&new).map_err(io_error("create", &new))?;
            private::restrict(&file).map_err(io_error("restrict", &new))?;
            let written = file.write_all_at(&bytes, 0).and_then(|()| file.sync_data());
            if let Err(error) = written {
                // Its room is wanted.
                let _ = fs::remove_file(&new);
                return Err(io_error("write to", &new)(error));
            }
            fs::rename(&new, &path).map_err(io_error("rename", &path))?;
            sync_dir(&self.dir)?;
            Ok(file)
        };
        let first = write(NAMES[0])?;
        // From here on the open files are not the ones of these names.
        self.files = None;
        let files = [first, write(NAMES[1])?];
        (self.files, self.bytes, self.forgotten_bytes, self.dirty) = (Some(files), bytes.len() as u64, 0, false);
        Ok(())
    }
}

fn header() -> Vec<u8> {
    let mut bytes = Vec::new();
    record::encode(&Record::Segment { version: VERSION, number: 0 }, &[], &mut bytes);
    bytes
}
