// SPDX-License-Identifier: Apache-2.0
//! Outlines: what is left of a file of raw chunks when its samples are in a cold file (`cold`).
//!
//! A Parquet file has each sample once, with its names: neither the times of rows, nor which track and line they were
//! of, nor what a part without anything new had. The outline has that, chunk by chunk in the order of the file, so that
//! both together give the chunk again, byte for byte. Whoever converts reads everything back before the file of chunks
//! goes; what does not come back, in whole or in one column, stands in the outline as it was.
//!
//! ```text
//! warm/raw-<number>-<name of the cold file>.outline        as a file of chunks (`file.rs`), with kind 5 for 2
//! warm/raw-<number>-<name of the cold file>.outline.tmp    one in the making, or one that goes
//!
//! kind 5  length of what follows (LEB128), Zstandard: the chunk's record header, its front, its recipe (`recipe.rs`)
//! ```
//! **Safety.** The name with `.tmp` is durable before the cold file has one, and the whole outline before the file of
//! chunks goes. So after a kill: with `.tmp`, the file of chunks counts, and the cold file is removed; without, the
//! outline counts, and the file of chunks is removed. One that goes gets `.tmp` first. Nothing is there twice.
//!
//! **Cost.** Bytes of outlines: not measured yet. A column costs its row groups, the last few of which stay decoded
//! ([`KEPT_GROUPS`]).

mod draft;
mod recipe;

use std::collections::VecDeque;
use std::fs;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::Level;
use super::entry::{ChunkRef, Entry};
use super::frame::{self, BOUND, HEADER_BYTES, OUTLINE, Opened};
use crate::chunk::{Chunk, Head, check_front};
use crate::cold::{self, Group, GroupSamples};
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::bytes::Input;
use crate::framing::files::{remove as remove_file, sync_dir};
pub(crate) use draft::{Made, RawFile, Sketch, Strip};
use recipe::{Origin, Recipe};

/// Row groups that stay decoded, of all files.
const KEPT_GROUPS: usize = 8;
/// Largest chunk with what is said of it.
const MAX_BYTES: usize = 2 * frame::MAX_PAYLOAD_BYTES;
const LEVEL: i32 = 3;
const ENDING: &str = ".outline";
const TEMPORARY: &str = ".outline.tmp";

/// Level and number as a file of chunks has them in its name, and the name of the cold file.
pub(super) fn parse(name: &str) -> Option<(&str, &str)> {
    parse_ended(name, ENDING)
}

/// The same of one in the making, or one that goes.
pub(super) fn parse_temporary(name: &str) -> Option<(&str, &str)> {
    parse_ended(name, TEMPORARY)
}

fn parse_ended<'a>(name: &'a str, ending: &str) -> Option<(&'a str, &'a str)> {
    let stem = name.strip_suffix(ending)?;
    let (second, _) = stem.match_indices('-').nth(1)?;
    let (of, cold) = (&stem[..second], &stem[second + 1..]);
    cold::is_name(cold).then_some((of, cold))
}

pub(super) fn path(dir: &Path, level: Level, number: u32, cold: &str) -> PathBuf {
    dir.join(format!("{}-{number:010}-{cold}{ENDING}", level.name()))
}

fn temporary(dir: &Path, level: Level, number: u32, cold: &str) -> PathBuf {
    path(dir, level, number, cold).with_extension("outline.tmp")
}

/// Whether a path is one of an outline.
pub(super) fn is_one(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "outline")
}

/// The store that files of chunks are of.
pub(super) fn store_of(dir: &Path) -> &Path {
    dir.parent().unwrap_or(dir)
}

/// Removes what kills have left: conversions that were not ended, files of chunks whose outline is whole, outlines that
/// were on their way out.
///
/// # Errors
/// [`StoreError::Io`].
pub(super) fn clean(dir: &Path) -> Result<(), StoreError> {
    for name in names(dir)? {
        if let Some((_, cold)) = parse_temporary(&name) {
            discard(dir, cold, &dir.join(&name))?;
        } else if let Some((of, _)) = parse(&name) {
            remove_file(&dir.join(of).with_extension("chunks"))?;
        }
    }
    cold::Cold::open(store_of(dir)).map(drop)
}

fn names(dir: &Path) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        names.extend(entry.map_err(io_error("list", dir))?.file_name().into_string());
    }
    Ok(names)
}

/// Outlines in the making, or that go, of the files in `dir`.
pub(super) fn temporaries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    Ok(names(dir)?.iter().filter(|name| parse_temporary(name).is_some()).map(|name| dir.join(name)).collect())
}

/// Removes what attempts have left that could neither be ended nor removed, of a file whose outline nobody reads.
///
/// # Errors
/// [`StoreError::Io`].
pub(super) fn remove_left(dir: &Path, level: Level, number: u32) -> Result<(), StoreError> {
    for name in names(dir)? {
        let parsed = parse(&name).or_else(|| parse_temporary(&name));
        if let Some((_, cold)) = parsed.filter(|(of, _)| *of == format!("{}-{number:010}", level.name())) {
            remove(dir, level, number, cold)?;
        }
    }
    Ok(())
}

/// Bytes of a cold file and what is beside it.
pub(super) fn cold_bytes(dir: &Path, cold: &str) -> u64 {
    let bytes = |path: PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
    cold::paths(store_of(dir), cold).into_iter().map(bytes).sum()
}

/// Removes a cold file, and then what says whose it is.
fn discard(dir: &Path, cold: &str, temporary: &Path) -> Result<(), StoreError> {
    for path in cold::paths(store_of(dir), cold) {
        remove_file(&path)?;
        remove_file(&path.with_extension(format!("{}.tmp", path.extension().unwrap_or_default().display())))?;
    }
    remove_file(temporary)
}

/// Removes an outline and its cold file.
///
/// # Errors
/// [`StoreError::Io`]; what is left goes when the store is opened.
pub(super) fn remove(dir: &Path, level: Level, number: u32, cold: &str) -> Result<(), StoreError> {
    let (path, temporary) = (path(dir, level, number, cold), temporary(dir, level, number, cold));
    match fs::rename(&path, &temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io_error("rename", &path)(error)),
        _ => sync_dir(dir)?,
    }
    discard(dir, cold, &temporary)
}

/// The record of a chunk, and what it takes by its own words.
pub(super) fn entry(payload: &[u8], number: u32, at: u64) -> Result<Option<Entry>, Damage> {
    let unpacked = unpack(payload)?;
    let (header, front, _) = split(&unpacked)?;
    Ok(Entry::new(&Head::parse(front)?, frame::parse(header)?.payload_bytes, number, at))
}

fn unpack(payload: &[u8]) -> Result<Vec<u8>, Damage> {
    let mut input = Input(payload);
    let length = input.count(MAX_BYTES)?;
    let unpacked = zstd::bulk::decompress(input.0, length).map_err(|_| Damage::Wrong("what is packed"))?;
    if unpacked.len() == length { Ok(unpacked) } else { Err(Damage::Wrong("what is packed")) }
}

/// Header, front, recipe.
type Parts<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn split(unpacked: &[u8]) -> Result<Parts<'_>, Damage> {
    let end = Damage::Wrong("a chunk's end");
    let (header, rest) = unpacked.split_at_checked(HEADER_BYTES).ok_or(end)?;
    let (front, recipe) = rest.split_at_checked(Head::parse(rest)?.front_bytes).ok_or(end)?;
    Ok((header, front, recipe))
}

/// A row group by number of its file and its own.
type Kept = ((u32, u32), Arc<Group>);

/// Row groups that were decoded last.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<VecDeque<Kept>>);

impl Groups {
    fn get(&self, samples: &GroupSamples, file: u32, number: u32) -> Result<Arc<Group>, StoreError> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, group)) = lock().iter().find(|(of, _)| *of == (file, number)) {
            return Ok(group.clone());
        }
        let group = Arc::new(samples.group(number)?);
        let mut kept = lock();
        kept.truncate(KEPT_GROUPS - 1);
        kept.push_front(((file, number), group.clone()));
        Ok(group)
    }

    /// Lets go what is of files before this one.
    pub(super) fn close_before(&self, file: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|((of, _), _)| *of >= file);
    }
}

/// An outline that is open, and its cold file, if that is what it should be.
#[derive(Debug)]
pub(super) struct Outline {
    opened: Opened,
    number: u32,
    /// Of the cold file.
    samples: Result<GroupSamples, Damage>,
    samples_path: PathBuf,
    groups: Arc<Groups>,
}

impl Outline {
    pub(super) fn open(
        dir: &Path,
        level: Level,
        number: u32,
        cold: &str,
        groups: Arc<Groups>,
    ) -> Result<Self, StoreError> {
        let path = path(dir, level, number, cold);
        let opened = Opened { file: File::open(&path).map_err(io_error("open", &path))?, path };
        let bytes = opened.file.metadata().map_err(io_error("look at", &opened.path))?.len();
        let [samples_path, ..] = cold::paths(store_of(dir), cold);
        let samples = match bound(&opened, bytes)? {
            Some(bound) => match GroupSamples::open(&samples_path, Some(bound)) {
                Err(StoreError::Damaged { damage, .. }) => Err(damage),
                samples => Ok(samples?),
            },
            None => Err(Damage::Wrong("what binds an outline to it")),
        };
        Ok(Self { opened, number, samples, samples_path, groups })
    }

    pub(super) fn damaged(&self, chunk: &ChunkRef, damage: Damage) -> StoreError {
        StoreError::Damaged { path: self.opened.path.clone(), offset: chunk.offset(), damage }
    }

    fn samples(&self) -> Result<&GroupSamples, StoreError> {
        let damaged = |damage| StoreError::Damaged { path: self.samples_path.clone(), offset: 0, damage };
        self.samples.as_ref().map_err(|damage| damaged(*damage))
    }

    /// What there is of a chunk.
    fn load(&self, chunk: &ChunkRef) -> Result<Vec<u8>, StoreError> {
        let payload = self.opened.read_record(OUTLINE, chunk.offset(), u64::MAX);
        let payload = match payload {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::UnexpectedEof => None,
            payload => payload?,
        };
        let unpacked = payload.ok_or(Damage::Checksum).and_then(|payload| unpack(&payload));
        unpacked.map_err(|damage| self.damaged(chunk, damage))
    }

    /// All of a chunk: the header of its record, and the chunk.
    pub(super) fn read(&self, chunk: &ChunkRef, bytes: &mut Vec<u8>) -> Result<(), StoreError> {
        let unpacked = self.load(chunk)?;
        whole(&unpacked, bytes, &Of { outline: self, chunk })
    }

    /// The front of a chunk, into `bytes`, and columns of it, into `values`.
    pub(super) fn read_columns(
        &self,
        chunk: &ChunkRef,
        columns: Range<usize>,
        bytes: &mut Vec<u8>,
        values: &mut Vec<u64>,
    ) -> Result<(), StoreError> {
        let unpacked = self.load(chunk)?;
        let damaged = |damage| self.damaged(chunk, damage);
        let (_, front, recipe) = split(&unpacked).map_err(damaged)?;
        check_front(front).map_err(damaged)?;
        bytes.clear();
        bytes.extend(front);
        if columns.is_empty() {
            return Ok(());
        }
        let parsed = Chunk::parse_front(front).map_err(damaged)?;
        let recipe = Recipe::parse(recipe, &parsed).map_err(damaged)?;
        let origin = Of { outline: self, chunk };
        columns.into_iter().try_for_each(|column| recipe.column(&parsed, column, values, &origin))
    }
}

/// A chunk of an outline.
struct Of<'a> {
    outline: &'a Outline,
    chunk: &'a ChunkRef,
}

impl Origin for Of<'_> {
    fn group(&self, number: u32) -> Result<Arc<Group>, StoreError> {
        self.outline.groups.get(self.outline.samples()?, self.outline.number, number)
    }

    fn damaged(&self, damage: Damage) -> StoreError {
        self.outline.damaged(self.chunk, damage)
    }
}

/// The length of the cold file and the checksum of its footer, as an outline of so many bytes has them.
fn bound(opened: &Opened, bytes: u64) -> Result<Option<(u64, u32)>, StoreError> {
    // Behind the first record, which says more where there was a file before.
    for payload_bytes in [12, 24] {
        let record = opened.read_record(BOUND, frame::record_bytes(payload_bytes) as u64, bytes)?;
        if let Some(payload) = record {
            let mut input = Input(&payload);
            return Ok(input.word().and_then(|bytes| Ok((bytes, input.half()?))).ok());
        }
    }
    Ok(None)
}

/// Makes a chunk of what an outline has of it.
fn whole(unpacked: &[u8], bytes: &mut Vec<u8>, origin: &dyn Origin) -> Result<(), StoreError> {
    let damaged = |damage| origin.damaged(damage);
    let (header, front, recipe) = split(unpacked).map_err(damaged)?;
    check_front(front).map_err(damaged)?;
    let parsed = Chunk::parse_front(front).map_err(damaged)?;
    let recipe = Recipe::parse(recipe, &parsed).map_err(damaged)?;
    bytes.clear();
    bytes.extend(header);
    recipe.whole(front, &parsed, bytes, origin)
}

/// The header of a chunk's record, in a file of chunks or as an outline has it.
pub(super) fn header_of(opened: &Opened, place: ChunkRef) -> Option<[u8; HEADER_BYTES]> {
    if is_one(&opened.path) {
        let payload = opened.read_record(OUTLINE, place.offset(), u64::MAX).ok()??;
        return unpack(&payload).ok()?.first_chunk().copied();
    }
    let mut header = [0; HEADER_BYTES];
    opened.file.read_exact_at(&mut header, place.offset()).ok().map(|()| header)
}

#[cfg(test)]
mod tests;
