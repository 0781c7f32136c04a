// SPDX-License-Identifier: Apache-2.0
//! Making an outline: who converts a file of raw chunks pushes their samples into a cold file, says of each chunk where
//! they went ([`Sketch`]), and has the outline made of what really comes back from there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use super::recipe::{self, Origin, Piece, TIME};
use super::{LEVEL, path, store_of, temporary, whole};
use crate::chunk::Chunk;
use crate::cold::{self, Group, GroupSamples, Spot};
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::bytes::put_unsigned;
use crate::framing::files::{MODE, sync_dir};
use crate::warm::entry::{ChunkRef, Entry};
use crate::warm::file::{self, Before, Listed, Loaded};
use crate::warm::frame::{self, BOUND, HEADER_BYTES, OUTLINE, Opened};
use crate::warm::place;
use crate::warm::{Level, Place, Reader};

/// The disk is asked to take so much at once.
const SETTLED_BYTES: usize = 2 << 20;

/// Where the samples of a chunk went.
#[derive(Debug, Default)]
pub(crate) struct Sketch {
    pub(crate) strips: Vec<Strip>,
}

/// Those of a part, or of a line.
#[derive(Debug)]
pub(crate) struct Strip {
    /// First row in the chunk.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// Rows without anything new, and with, by turns.
    pub(crate) runs: Vec<usize>,
    /// Column of the part's time, if it has one, and what a spot has its times at.
    pub(crate) time: Option<(usize, u32)>,
    /// Columns, and the number of the spot of each.
    pub(crate) pieces: Vec<cold::Piece>,
}

/// A file of raw chunks that nobody writes to any more.
#[derive(Debug)]
pub(crate) struct RawFile {
    pub(crate) number: u32,
    /// What readers find of it.
    pub(crate) entries: Vec<Entry>,
    pub(crate) bytes: u64,
    opened: Arc<Opened>,
    before: Option<Before>,
}

impl RawFile {
    /// One of its chunks.
    pub(crate) fn place(&self, entry: &Entry) -> Place {
        Place::new(place::Origin::Chunks(self.opened.clone()), entry.place)
    }
}

impl Reader {
    /// A raw file that is to be converted; `None`: it is not there any more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn raw_file(&self, number: u32) -> Result<Option<RawFile>, StoreError> {
        let listed = Listed { level: Level::Raw, number, cold: None };
        let loaded = match file::load(&self.0.dir, &listed) {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            loaded => loaded?,
        };
        if let Some(damaged) = loaded.damaged.first() {
            let (path, offset, damage) = (damaged.path.clone(), damaged.offset, damaged.damage);
            return Err(StoreError::Damaged { path, offset, damage });
        }
        let Loaded { opened, entries, bytes, before, .. } = loaded;
        let entries = self.0.look(Level::Raw, |shelf| entries.into_iter().filter(|entry| shelf.has(entry)).collect());
        Ok(Some(RawFile { number, entries, bytes, opened: Arc::new(opened), before }))
    }

    /// Whether readers find an outline's chunks instead of a file's.
    pub(crate) fn has_outline(&self, number: u32) -> bool {
        self.0.look(Level::Raw, |shelf| shelf.cold.contains_key(&number))
    }

    /// Has readers find an outline's chunks instead of the file's; false: that was dropped meanwhile.
    pub(crate) fn put_outline(&self, made: &Made) -> bool {
        self.0.with(Level::Raw, |shelf| {
            let is_there = shelf.put_outline(made.number, &made.cold, &made.moved, made.bytes, made.cold_bytes);
            self.0.close(Level::Raw, made.number);
            is_there
        })
    }

    /// Removes the file of chunks that an outline is of.
    ///
    /// # Errors
    /// [`StoreError::Io`]; it goes when the store is opened.
    pub(crate) fn remove_raw(&self, number: u32) -> Result<(), StoreError> {
        super::remove_file(&file::path(&self.0.dir, Level::Raw, number))
    }

    /// Removes an outline that nobody reads, and its cold file, or what there is of both.
    ///
    /// # Errors
    /// [`StoreError::Io`]; it goes when the store is opened.
    pub(crate) fn remove_outline(&self, number: u32, cold: &str) -> Result<(), StoreError> {
        super::remove(&self.0.dir, Level::Raw, number, cold)
    }

    /// Removes what is there of outlines of a file that nobody reads.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn remove_left(&self, number: u32) -> Result<(), StoreError> {
        super::remove_left(&self.0.dir, Level::Raw, number)
    }

    /// Begins the outline of a file. From now on a kill has the cold file of this name removed.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn draft(&self, number: u32, cold: &str) -> Result<Draft, StoreError> {
        let dir = self.0.dir.clone();
        let temporary = temporary(&dir, Level::Raw, number, cold);
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true).mode(MODE);
        let file = options.open(&temporary).map_err(io_error("create", &temporary))?;
        sync_dir(&dir)?;
        Ok(Draft { dir, number, cold: cold.to_owned(), temporary, file, records: BTreeMap::new() })
    }
}

/// An outline in the making.
#[derive(Debug)]
pub(crate) struct Draft {
    dir: PathBuf,
    number: u32,
    cold: String,
    temporary: PathBuf,
    file: File,
    /// By place in the file of chunks: files are made in that order, chunks read in another.
    records: BTreeMap<u64, (Entry, Vec<u8>)>,
}

/// An outline that is durable.
#[derive(Debug)]
pub(crate) struct Made {
    number: u32,
    cold: String,
    /// Its chunks, as they were and as they are.
    moved: Vec<(Entry, ChunkRef)>,
    bytes: u64,
    pub(crate) cold_bytes: u64,
}

/// The cold file that is to have the samples.
pub(crate) struct Source {
    samples: GroupSamples,
    /// The row group that was read last.
    last: RefCell<Option<(u32, Arc<Group>)>>,
}

impl Origin for Source {
    fn group(&self, number: u32) -> Result<Arc<Group>, StoreError> {
        if let Some((_, group)) = self.last.borrow().as_ref().filter(|(of, _)| *of == number) {
            return Ok(group.clone());
        }
        let group = Arc::new(self.samples.group(number)?);
        self.last.replace(Some((number, group.clone())));
        Ok(group)
    }

    fn damaged(&self, damage: Damage) -> StoreError {
        self.samples.damaged(damage)
    }
}

impl Draft {
    /// Opens the cold file, which is whole.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn source(&self) -> Result<Source, StoreError> {
        let [samples, ..] = cold::paths(store_of(&self.dir), &self.cold);
        Ok(Source { samples: GroupSamples::open(&samples, None)?, last: RefCell::default() })
    }

    /// Takes a chunk, given with its record's header.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn add(
        &mut self,
        entry: &Entry,
        record: &[u8],
        sketch: &Sketch,
        spots: &[Spot],
        source: &Source,
    ) -> Result<(), StoreError> {
        let damaged = |damage| source.damaged(damage);
        let chunk = Chunk::parse(&record[HEADER_BYTES..]).map_err(damaged)?;
        let front_bytes = HEADER_BYTES + chunk.head().front_bytes;
        let (front, body) = record.split_at(front_bytes);
        let mut unpacked = front.to_vec();
        outlined(&chunk, body, sketch, spots, source, &mut unpacked)?;
        let mut again = Vec::new();
        let is_same = match whole(&unpacked, &mut again, source) {
            Err(error @ StoreError::Io { .. }) => return Err(error),
            result => result.is_ok() && again == record,
        };
        if !is_same {
            unpacked.truncate(front_bytes);
            recipe::put_verbatim(body, &mut unpacked);
        }
        let mut payload = Vec::new();
        put_unsigned(unpacked.len() as u64, &mut payload);
        let packed = zstd::bulk::compress(&unpacked, LEVEL).map_err(io_error("pack", &self.temporary))?;
        payload.extend(packed);
        self.records.insert(entry.place.offset(), (*entry, payload));
        Ok(())
    }

    /// Writes what was taken, gives the outline its name, and makes all that durable.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn finish(self, raw: &RawFile, source: &Source, cold_bytes: u64) -> Result<Made, StoreError> {
        let Self { dir, number, cold, temporary, file, records } = self;
        let failed = || io_error("write to", &temporary);
        let mut out = file::beginning(Level::Raw, number, raw.before);
        let (bytes, footer) = source.samples.bound()?;
        frame::append(BOUND, &[&bytes.to_le_bytes()[..], &footer.to_le_bytes()].concat(), &mut out);
        let (mut written, mut moved) = (0, Vec::new());
        for (entry, payload) in records.into_values() {
            let at = (written + out.len() as u64) / 8;
            let offset_words = u32::try_from(at).map_err(|_| source.damaged(Damage::Wrong("an outline's length")))?;
            moved.push((entry, ChunkRef { offset_words, ..entry.place }));
            frame::append(OUTLINE, &payload, &mut out);
            if out.len() >= SETTLED_BYTES {
                file.write_all_at(&out, written).and_then(|()| file.sync_data()).map_err(failed())?;
                written += out.len() as u64;
                out.clear();
            }
        }
        file.write_all_at(&out, written).map_err(failed())?;
        let entries: Vec<Entry> = moved.iter().map(|(entry, place)| Entry { place: *place, ..*entry }).collect();
        let bytes = file::seal(&file, written + out.len() as u64, &entries).map_err(failed())?;
        file.sync_all().map_err(io_error("sync", &temporary))?;
        let whole = path(&dir, Level::Raw, number, &cold);
        fs::rename(&temporary, &whole).map_err(io_error("rename", &temporary))?;
        sync_dir(&dir)?;
        Ok(Made { number, cold, moved, bytes, cold_bytes })
    }
}

/// The recipe of a chunk: columns that come back as they were are of strips, others stand there.
fn outlined(
    chunk: &Chunk,
    body: &[u8],
    sketch: &Sketch,
    spots: &[Spot],
    source: &Source,
    out: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let damaged = |damage| source.damaged(damage);
    let made = |strip: &Strip| recipe::Strip {
        first: strip.first,
        rows: strip.rows,
        runs: strip.runs.clone(),
        pieces: Vec::new(),
    };
    let mut strips: Vec<recipe::Strip> = sketch.strips.iter().map(made).collect();
    let (mut values, mut back, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    // Pieces of a column, each once in a strip: what was cut in two has two.
    let mut pieces: BTreeMap<usize, Vec<(usize, Piece)>> = BTreeMap::new();
    for (at, strip) in sketch.strips.iter().enumerate() {
        let time = strip.time.map(|(column, spot)| (column, spot, true));
        for (column, spot, is_time) in time.into_iter().chain(strip.pieces.iter().map(|(to, spot)| (*to, *spot, false)))
        {
            let Some(mut spot) = spots.get(spot as usize).copied() else { continue };
            spot.decimal = if is_time { TIME } else { spot.decimal };
            pieces.entry(column).or_default().push((at, Piece { column, spot, lead: 0 }));
        }
    }
    for column in recipe::body(chunk).map_err(damaged)? {
        values.clear();
        back.clear();
        chunk.column(column, &mut values).map_err(damaged)?;
        let mut of_column = pieces.remove(&column).unwrap_or_default();
        for (at, piece) in &mut of_column {
            let strip = &strips[*at];
            if strip.first != back.len() {
                break;
            }
            piece.lead = if strip.runs.first().is_some_and(|rows| *rows > 0) { values[strip.first] } else { 0 };
            let group = source.group(piece.spot.group)?;
            if strip.restore(piece, &group, &mut back).is_err() {
                break;
            }
        }
        if back == values {
            of_column.into_iter().for_each(|(at, piece)| strips[at].pieces.push(piece));
        } else {
            let range = chunk.range(column..column + 1).map_err(damaged)?;
            bytes.extend(body.get(range).unwrap_or_default());
        }
    }
    strips.retain(|strip| !strip.pieces.is_empty());
    recipe::put(&strips, &bytes, out);
    Ok(())
}
