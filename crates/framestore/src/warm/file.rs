// SPDX-License-Identifier: Apache-2.0
//! One warm file: how it is begun, ended and looked through.
//!
//! ```text
//! kind 1  file: format version (4), level (4), number of the file (4), then of the file before it, if there is one,
//!         number (4) and durable bytes of records (8); the first record
//! kind 2  a chunk (`chunk.rs`)
//! kind 3  index: number of chunks (LEB128), then columns (`column.rs`) of tracks, offsets / 8, bytes, rows,
//!         bytes of fronts / 8, earliest times, latest times, marks
//! kind 4  trailer: offset of the index (8); the last record
//! kind 5  what is left of a chunk whose samples are in a cold file (`outline.rs`)
//! kind 6  of that cold file length (8) and checksum of the footer (4)
//! ```
//! The index is written when the chunks are durable: where it is whole, so are they. Where a file has none, the next
//! one says what it must have.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::entry::{ChunkRef, Entry, rows_and_mark};
use super::frame::{self, CHUNK, FILE, HEADER_BYTES, INDEX, OUTLINE, Opened, TRAILER};
use super::{Level, outline};
use crate::chunk::{HEAD_BYTES, Head};
use crate::column::{self, Input};
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::Frame;
use crate::framing::files::MODE;
use crate::types::{Kind, TrackId};

/// Length of a file at most, unless one chunk is longer.
pub(super) const MAX_FILE_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 64 << 20 };
const VERSION: u32 = 1;
/// What a file's first record says of itself.
const OWN_BYTES: usize = 12;
const INDEX_COLUMNS: usize = 8;
const TRAILER_BYTES: usize = HEADER_BYTES + 8;
/// What is read at a time to find a record behind damage.
const PIECE_BYTES: usize = 64 << 10;

/// What a file says of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) number: u32,
    /// Of its records that were durable, without the index.
    pub(super) bytes: u64,
}

impl Before {
    fn encode(self, out: &mut Vec<u8>) {
        out.extend(self.number.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
    }

    fn parse(payload: &[u8]) -> Option<Self> {
        let (number, rest) = payload.split_first_chunk()?;
        Some(Self { number: u32::from_le_bytes(*number), bytes: u64::from_le_bytes(*rest.first_chunk()?) })
    }
}

pub(super) fn path(dir: &Path, level: Level, number: u32) -> PathBuf {
    dir.join(format!("{}-{number:010}.chunks", level.name()))
}

/// Level and number of a file by its name.
pub(super) fn parse(name: &str) -> Option<(Level, u32)> {
    let Listed { level, number, .. } = Listed::parse(name)?;
    Some((level, number))
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed {
    pub(super) level: Level,
    pub(super) number: u32,
    /// Of an outline the name of the cold file.
    pub(super) cold: Option<String>,
}

impl Listed {
    fn parse(name: &str) -> Option<Self> {
        let (stem, cold) = match name.strip_suffix(".chunks") {
            Some(stem) => (stem, None),
            None => outline::parse(name).map(|(stem, cold)| (stem, Some(cold.to_owned())))?,
        };
        let (level, number) = stem.split_once('-')?;
        let level = Level::ALL.into_iter().find(|known| known.name() == level)?;
        // The last number has no next one.
        Some(Self { level, number: number.parse().ok().filter(|number| *number < u32::MAX)?, cold })
    }

    pub(super) fn path(&self, dir: &Path) -> PathBuf {
        match &self.cold {
            Some(cold) => outline::path(dir, self.level, self.number, cold),
            None => path(dir, self.level, self.number),
        }
    }
}

/// The files that are there, in order, those that have an outline once.
pub(super) fn list(dir: &Path) -> Result<Vec<Listed>, StoreError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let name = entry.map_err(io_error("list", dir))?.file_name();
        files.extend(name.to_str().and_then(Listed::parse));
    }
    // Outlines first.
    files.sort_unstable_by(|one, other| {
        (one.level, one.number, &other.cold).cmp(&(other.level, other.number, &one.cold))
    });
    files.dedup_by_key(|file| (file.level, file.number));
    Ok(files)
}

/// Makes a file, and its name durable. Returns it with its length.
pub(super) fn create(
    dir: &Path,
    level: Level,
    number: u32,
    before: Option<Before>,
) -> Result<(Opened, u64), StoreError> {
    let path = path(dir, level, number);
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true).mode(MODE);
    let file = options.open(&path).map_err(io_error("create", &path))?;
    let beginning = beginning(level, number, before);
    let begun = file.write_all_at(&beginning, 0).and_then(|()| File::open(dir)?.sync_all());
    if let Err(error) = begun {
        let _ = fs::remove_file(&path);
        return Err(io_error("write to", &path)(error));
    }
    Ok((Opened { file, path }, beginning.len() as u64))
}

pub(super) fn beginning(level: Level, number: u32, before: Option<Before>) -> Vec<u8> {
    let (mut record, mut payload) = (Vec::new(), Vec::with_capacity(OWN_BYTES + 12));
    payload.extend([VERSION, level.bucket_s(), number].iter().flat_map(|word| word.to_le_bytes()));
    if let Some(before) = before {
        before.encode(&mut payload);
    }
    frame::append(FILE, &payload, &mut record);
    record
}

/// Writes the index and the trailer behind everything else, which ends at `bytes` and is durable. Returns the file's
/// length.
pub(super) fn seal(file: &File, bytes: u64, entries: &[Entry]) -> io::Result<u64> {
    let bytes = bytes.next_multiple_of(8);
    let mut records = Vec::new();
    frame::append(INDEX, &index(entries), &mut records);
    frame::append(TRAILER, &bytes.to_le_bytes(), &mut records);
    file.write_all_at(&records, bytes).inspect_err(|_| {
        // What is there of it says nothing and would only be reported as damage.
        let _ = file.set_len(bytes);
    })?;
    Ok(bytes + records.len() as u64)
}

fn index(entries: &[Entry]) -> Vec<u8> {
    let mut payload = Vec::new();
    column::put_unsigned(entries.len() as u64, &mut payload);
    for word in [
        (|entry: &Entry| entry.track.0.into()) as fn(&Entry) -> u64,
        |entry| entry.place.offset_words.into(),
        |entry| entry.place.bytes.into(),
        |entry| entry.place.rows().into(),
        |entry| entry.place.front_words.into(),
        |entry| entry.place.from_ns,
        |entry| entry.place.to_ns,
        |entry| entry.mark,
    ] {
        let words: Vec<u64> = entries.iter().map(word).collect();
        column::encode(Kind::Integer { signed: false }, &words, &[], &mut payload);
    }
    payload
}

/// The entries of an index that lies at `end` of file `number`.
fn parse_index(payload: &[u8], number: u32, end: u64, are_chunks: bool) -> Option<Vec<Entry>> {
    let mut input = Input(payload);
    let count = usize::try_from(input.unsigned().ok()?).ok()?;
    let least_bytes = frame::record_bytes(if are_chunks { HEAD_BYTES } else { 0 }) as u64;
    (count as u64).checked_mul(least_bytes).filter(|bytes| *bytes <= end.min(MAX_FILE_BYTES))?;
    let mut columns: [Vec<u64>; INDEX_COLUMNS] = Default::default();
    let mut rest = input.0;
    for column in &mut columns {
        rest = column::decode(rest, count, &[], column).ok()?;
    }
    let entry = |at: usize| {
        let [track, offset, bytes, rows, front, from_ns, to_ns, mark] = columns.each_ref().map(|column| column[at]);
        let place = ChunkRef {
            from_ns,
            to_ns,
            file: number,
            offset_words: u32::try_from(offset).ok()?,
            bytes: u32::try_from(bytes).ok()?,
            rows_and_mark: rows_and_mark(rows, mark)?,
            front_words: u16::try_from(front).ok()?,
        };
        let bytes = if are_chunks { place.bytes as usize } else { 0 };
        let is_inside = place.offset() + frame::record_bytes(bytes) as u64 <= end;
        let track = TrackId(u32::try_from(track).ok()?);
        (is_inside && from_ns <= to_ns).then_some(Entry { track, mark, place })
    };
    (0..count).map(entry).collect()
}

/// Bytes of a file that are no records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Which file.
    pub path: PathBuf,
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// What is wrong with them.
    pub damage: Damage,
}

impl Damaged {
    /// Number of the file, if it is of this level.
    #[must_use]
    pub fn number(&self, level: Level) -> Option<u32> {
        let (of, number) = parse(self.path.file_name()?.to_str()?)?;
        (of == level).then_some(number)
    }
}

/// What a file has.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) opened: Opened,
    pub(super) entries: Vec<Entry>,
    pub(super) damaged: Vec<Damaged>,
    pub(super) bytes: u64,
    /// Where the index begins, or the file ends.
    pub(super) ends_at: u64,
    pub(super) has_index: bool,
    /// What it says of the file before it.
    pub(super) before: Option<Before>,
}

/// Reads a file's index, or looks through all of it where there is none.
pub(super) fn load(dir: &Path, listed: &Listed) -> Result<Loaded, StoreError> {
    let path = listed.path(dir);
    let file = File::options().read(true).write(true).open(&path).map_err(io_error("open", &path))?;
    Loaded::of(file, path, listed.number)
}

impl Loaded {
    /// Of an open file: by its index, or looked through where there is none.
    pub(super) fn of(file: File, path: PathBuf, number: u32) -> Result<Self, StoreError> {
        let mut loaded = Self::indexed(file, path, number)?;
        if !loaded.has_index {
            loaded.look_through(number, |_| Ok(()))?;
            if outline::is_one(&loaded.opened.path) {
                // Nobody gives one its name before it has an index.
                let (path, offset, damage) =
                    (loaded.opened.path.clone(), loaded.bytes, Damage::Wrong("the end: it is missing"));
                loaded.damaged.push(Damaged { path, offset, bytes: 8, damage });
            }
        }
        Ok(loaded)
    }

    /// What its index says, if it has one.
    pub(super) fn indexed(file: File, path: PathBuf, number: u32) -> Result<Self, StoreError> {
        let bytes = file.metadata().map_err(io_error("look at", &path))?.len();
        let (entries, damaged, opened) = (Vec::new(), Vec::new(), Opened { file, path });
        let mut loaded = Self { opened, entries, damaged, bytes, ends_at: bytes, has_index: false, before: None };
        loaded.read_beginning()?;
        if let Some((entries, ends_at)) = loaded.read_index(number)? {
            (loaded.entries, loaded.ends_at, loaded.has_index) = (entries, ends_at, true);
        }
        Ok(loaded)
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), StoreError> {
        self.opened.file.read_exact_at(bytes, at).map_err(io_error("read", &self.opened.path))
    }

    /// The payload of the record at a place, if it is whole and of a kind.
    fn read_record(&self, kind: u8, at: u64) -> Result<Option<Vec<u8>>, StoreError> {
        self.opened.read_record(kind, at, self.bytes)
    }

    fn read_beginning(&mut self) -> Result<(), StoreError> {
        let Some(payload) = self.read_record(FILE, 0)? else { return Ok(()) };
        let found = payload.first_chunk().map_or(0, |version| u32::from_le_bytes(*version));
        self.before = payload.get(OWN_BYTES..).and_then(Before::parse);
        let path = self.opened.path.clone();
        if found == VERSION { Ok(()) } else { Err(StoreError::Version { path, found, known: VERSION }) }
    }

    /// The entries, and where the index is.
    fn read_index(&self, number: u32) -> Result<Option<(Vec<Entry>, u64)>, StoreError> {
        let Some(at) = self.bytes.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
        let Some(trailer) = self.read_record(TRAILER, at)? else { return Ok(None) };
        let Some(index) = trailer.first_chunk().map(|offset| u64::from_le_bytes(*offset)) else { return Ok(None) };
        let payload = self.read_record(INDEX, index)?;
        let are_chunks = !outline::is_one(&self.opened.path);
        Ok(payload.and_then(|payload| Some((parse_index(&payload, number, index, are_chunks)?, index))))
    }

    /// Reads every record: of a file that was not ended nobody knows what had reached the disk. What `check` says is
    /// wrong with a chunk is damage, too.
    pub(super) fn look_through(
        &mut self,
        number: u32,
        mut check: impl FnMut(&[u8]) -> Result<(), Damage>,
    ) -> Result<(), StoreError> {
        let (mut at, mut payload) = (0, Vec::new());
        while at < self.bytes {
            let left = self.bytes - at;
            let mut header = [0; HEADER_BYTES];
            let has_header = left >= HEADER_BYTES as u64;
            if has_header {
                self.read(&mut header, at)?;
            }
            let fits = |frame: &Frame| frame::record_bytes(frame.payload_bytes) as u64 <= left;
            let (length, damage) = match frame::parse(&header) {
                _ if !has_header => (left, Some(Damage::Wrong("the end"))),
                Err(damage) => (self.next_record(at + 8)? - at, Some(damage)),
                Ok(frame) if !fits(&frame) => (left, Some(Damage::Wrong("the end"))),
                Ok(frame) => {
                    payload.resize(frame.payload_bytes, 0);
                    self.read(&mut payload, at + HEADER_BYTES as u64)?;
                    let result = frame.check(&payload).and_then(|()| match frame.kind {
                        CHUNK => {
                            let head = Head::parse(&payload)?;
                            check(&payload).map(|()| Entry::new(&head, payload.len(), number, at))
                        }
                        OUTLINE => outline::entry(&payload, number, at),
                        _ => Ok(None),
                    });
                    self.entries.extend(result.ok().flatten());
                    (frame::record_bytes(frame.payload_bytes) as u64, result.err())
                }
            };
            let path = || self.opened.path.clone();
            self.damaged.extend(damage.map(|damage| Damaged { path: path(), offset: at, bytes: length, damage }));
            at += length;
        }
        Ok(())
    }

    /// Where the first good header at or behind a place is, or the end.
    fn next_record(&self, mut at: u64) -> Result<u64, StoreError> {
        let mut piece = vec![0; PIECE_BYTES + HEADER_BYTES];
        while at < self.bytes {
            let length = usize::try_from(self.bytes - at).map_or(piece.len(), |left| left.min(piece.len()));
            self.read(&mut piece[..length], at)?;
            let places = (0..PIECE_BYTES.min(length)).step_by(8);
            if let Some(place) = places.into_iter().find(|place| frame::parse(&piece[*place..length]).is_ok()) {
                return Ok(at + place as u64);
            }
            at += PIECE_BYTES as u64;
        }
        Ok(self.bytes)
    }
}

/// Files of a level, one after the other: what one says of the one before is compared with what that has.
#[derive(Debug, Default)]
pub(super) struct Chain(Option<Link>);

#[derive(Debug)]
struct Link {
    level: Level,
    number: u32,
    path: PathBuf,
    /// Of a file of chunks without an index.
    bytes: Option<u64>,
}

impl Chain {
    /// Takes the next file. Returns what is missing of the one before it, if something is.
    pub(super) fn take(&mut self, level: Level, number: u32, loaded: &Loaded) -> Option<Damaged> {
        let path = loaded.opened.path.clone();
        let bytes = (!loaded.has_index && !outline::is_one(&path)).then_some(loaded.bytes);
        let last = self.0.replace(Link { level, number, path, bytes }).filter(|last| last.level == level);
        // Where it is the oldest one, those before it were deleted.
        let (last, before) = (last?, loaded.before?);
        let (path, offset) = match last.bytes {
            Some(bytes) if last.number == before.number => (last.path, bytes),
            None if last.number == before.number => return None,
            _ => (self::path(last.path.parent()?, level, before.number), 0),
        };
        let bytes = before.bytes.checked_sub(offset).filter(|bytes| *bytes > 0)?;
        Some(Damaged { path, offset, bytes, damage: Damage::Wrong("the end: it is missing") })
    }
}
