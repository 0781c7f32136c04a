// SPDX-License-Identifier: Apache-2.0
//! The catalogue's files: items packed into records, and read again. What one of a pair lacks is taken from the other,
//! at its place.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use super::item::Item;
use super::known::{Known, MAX_CONTENT_BYTES, MAX_TEXT_BYTES, Next};
use super::{EXTENSIONS, PACKED_BYTES, Recovery, VERSION};
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::bytes::Input;
use crate::framing::{self, Damaged, Found, Reader, Record, files};

const HEADER: u8 = 1;
const ITEMS: u8 = 2;
/// What is packed in a record at most: items up to the limit, and a longest one.
const MAX_RAW_BYTES: usize = PACKED_BYTES + MAX_CONTENT_BYTES + 4 * MAX_TEXT_BYTES;
const LEVEL: i32 = 1;

/// What was read so far.
#[derive(Default)]
pub(super) struct Loading {
    pub(super) known: Known,
    pub(super) recovery: Recovery,
    /// Of all items of the files, before they are packed.
    pub(super) item_bytes: u64,
}

/// Numbers of the pairs of a directory, in order.
pub(super) fn numbers(dir: &Path) -> Result<Vec<u32>, StoreError> {
    let mut numbers = files::numbers(dir, EXTENSIONS[0])?;
    numbers.extend(files::numbers(dir, EXTENSIONS[1])?);
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

impl Loading {
    /// Reads these pairs; returns the length of the newest one's files where both are whole and alike.
    pub(super) fn read(dir: &Path, numbers: &[u32]) -> Result<(Self, Option<u64>), StoreError> {
        let mut loading = Self::default();
        let newest = numbers.last().map_or(Ok(None), |number| loading.read_pair(dir, *number));
        let length = newest?;
        if length.is_none() && numbers.len() > 1 {
            // It was interrupted when it was made: those before have what it lacks. What was forgotten since costs its
            // memory.
            loading = Self::default();
            numbers.iter().try_for_each(|number| loading.read_pair(dir, *number).map(|_| ()))?;
        }
        Ok((loading, length))
    }

    /// Reads a pair; returns the length of its files where both are whole and alike.
    pub(super) fn read_pair(&mut self, dir: &Path, number: u32) -> Result<Option<u64>, StoreError> {
        let mut pair = Vec::new();
        for path in EXTENSIONS.map(|extension| files::numbered(dir, number, extension)) {
            pair.extend(files::open_to_read(&path)?.map(|file| (file, path)));
        }
        let before = (self.recovery.damaged.len(), self.recovery.mended_records);
        let Some(((file, path), others)) = pair.split_first() else { return Ok(None) };
        let mut reader = Reader::new(file).map_err(io_error("read", path))?;
        while let Some(found) = reader.next().map_err(io_error("read", path))? {
            match found {
                Found::Record(record) => self.record(&record, path)?,
                Found::Damaged(damaged) => {
                    self.recovery.damaged.push((path.clone(), damaged));
                    // Of a torn one nobody knows how much it should be.
                    let end = if damaged.is_torn { u64::MAX } else { damaged.offset + damaged.bytes };
                    for (other, path) in others {
                        self.read_instead(other, path, damaged.offset..end)?;
                    }
                }
            }
        }
        let mut lengths = vec![length(file, path)?];
        for (other, path) in others {
            // The first may have been cut where a record ends.
            self.read_instead(other, path, lengths[0]..u64::MAX)?;
            self.check(other, path)?;
            lengths.push(length(other, path)?);
        }
        let is_whole = before == (self.recovery.damaged.len(), self.recovery.mended_records);
        Ok(Some(lengths[0]).filter(|length| is_whole && lengths[1..] == [*length]))
    }

    /// Reads of the other file what the first has not.
    fn read_instead(&mut self, other: &File, path: &Path, lacking: Range<u64>) -> Result<(), StoreError> {
        let mut reader = Reader::between(other, lacking.start, lacking.end).map_err(io_error("read", path))?;
        while let Some(found) = reader.next().map_err(io_error("read", path))? {
            if let Found::Record(record) = found {
                self.record(&record, path)?;
            }
        }
        Ok(())
    }

    /// Looks for damage in the other file.
    fn check(&mut self, other: &File, path: &Path) -> Result<(), StoreError> {
        let mut reader = Reader::new(other).map_err(io_error("read", path))?;
        while let Some(found) = reader.next().map_err(io_error("read", path))? {
            match found {
                Found::Record(record) => self.recovery.mended_records += u64::from(record.is_mended),
                Found::Damaged(damaged) => self.recovery.damaged.push((path.to_owned(), damaged)),
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>, path: &Path) -> Result<(), StoreError> {
        self.recovery.mended_records += u64::from(record.is_mended);
        let entered = match record.kind {
            HEADER => match self.header(record.payload) {
                Ok(VERSION) => Ok(()),
                Ok(found) => return Err(StoreError::Version { path: path.to_owned(), found, known: VERSION }),
                Err(damage) => Err(damage),
            },
            ITEMS => self.items(record.payload),
            _ => Err(Damage::Wrong("kind")),
        };
        if let Err(damage) = entered {
            let damaged = Damaged { offset: record.offset, bytes: record.payload.len() as u64, damage, is_torn: false };
            self.recovery.damaged.push((path.to_owned(), damaged));
        }
        Ok(())
    }

    /// Returns the version.
    fn header(&mut self, payload: &[u8]) -> Result<u32, Damage> {
        let mut input = Input(payload);
        let (version, _) = (input.half()?, input.half()?);
        if version == VERSION {
            let next = &mut self.known.next;
            for number in [&mut next.host, &mut next.track] {
                *number = (*number).max(input.half()?);
            }
        }
        Ok(version)
    }

    fn items(&mut self, payload: &[u8]) -> Result<(), Damage> {
        let mut input = Input(payload);
        let raw_bytes = input.half()? as usize;
        if raw_bytes > MAX_RAW_BYTES {
            return Err(Damage::Wrong("length"));
        }
        let items = zstd::bulk::decompress(input.0, raw_bytes).map_err(|_| Damage::Wrong("packing"))?;
        let mut rest = Input(&items);
        while !rest.0.is_empty() {
            let item = Item::decode(&mut rest)?;
            self.recovery.unusable_items += u64::from(self.known.enter(&item).is_err());
        }
        self.item_bytes += items.len() as u64;
        Ok(())
    }
}

fn length(file: &File, path: &Path) -> Result<u64, StoreError> {
    Ok(file.metadata().map_err(io_error("look at", path))?.len())
}

/// What a file begins with.
pub(super) fn append_header(number: u32, next: Next, out: &mut Vec<u8>) {
    let halves = [VERSION, number, next.host, next.track];
    let payload: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    framing::append(HEADER, &payload, out);
}

/// Appends records of items, with whole items each.
pub(super) fn pack(items: &[u8], out: &mut Vec<u8>) {
    let mut rest = Input(items);
    while !rest.0.is_empty() {
        let all = rest.0;
        // They were encoded here.
        while all.len() - rest.0.len() < PACKED_BYTES && Item::skip(&mut rest).is_ok() {}
        let items = &all[..all.len() - rest.0.len()];
        if items.is_empty() {
            return;
        }
        let start = framing::begin(out);
        out.extend(u32::try_from(items.len()).expect("no item is longer than MAX_CONTENT_BYTES").to_le_bytes());
        out.extend(zstd::bulk::compress(items, LEVEL).expect("room for what zstd makes of it at worst"));
        framing::end(start, ITEMS, out);
    }
}
