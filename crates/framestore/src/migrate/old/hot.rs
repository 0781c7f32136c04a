// SPDX-License-Identifier: Apache-2.0
//! Hot rows: a ring for each track, in extents of one file.
//!
//! ```text
//! file     magic (8), zero up to 4 KiB, then extents, one after another
//! extent   magic (3 bytes) and its length in words (5 bytes), then a ring; until version 2 a magic (8) and the ring
//! ring     8 words: the extent's, columns, rows, CRC-32C of these two, owner (low 32: track, high 32: CRC-32C of its
//!          description), 3 of no use; then its rows
//! row      number (from 1), time, values, CRC-32C over owner and all before; row n stands at n modulo rows
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::damage::{StoreError, io_error};
use crate::framing::files::open_to_read;

const FILE_MAGIC: u64 = u64::from_le_bytes(*b"OLHOT\0\0\x01");
const FILE_HEADER_WORDS: u64 = 512;
const OLD_MAGIC: u64 = u64::from_le_bytes(*b"OLRING\0\0");
const MAGIC: u64 = u64::from_le_bytes(*b"OLX\0\0\0\0\0");
const MAGIC_BITS: u32 = 24;
const HEAD_WORDS: usize = 8;
/// Number, time and sum.
const ROW_EXTRA_WORDS: u64 = 3;

/// The file.
pub(super) struct Hot {
    file: File,
    path: PathBuf,
    words: u64,
}

/// A track's rows in it.
pub(super) struct Ring {
    /// Where its rows begin.
    from: u64,
    columns: u64,
    rows: u64,
    owner: u64,
}

/// A row that is whole.
pub(super) struct Row {
    pub(super) number: u64,
    pub(super) time_ns: u64,
    pub(super) values: Vec<u64>,
}

impl Hot {
    pub(super) fn open(path: &Path) -> Result<Option<Self>, StoreError> {
        let Some(file) = open_to_read(path)? else { return Ok(None) };
        let words = file.metadata().map_err(io_error("look at", path))?.len() / 8;
        Ok(Some(Self { file, path: path.to_owned(), words }))
    }

    fn read(&self, bytes: &mut [u8], word: u64) -> Result<(), StoreError> {
        self.file.read_exact_at(bytes, word * 8).map_err(io_error("read", &self.path))
    }

    fn head(&self, at: u64) -> Result<Option<[u64; HEAD_WORDS]>, StoreError> {
        if at + HEAD_WORDS as u64 > self.words {
            return Ok(None);
        }
        let mut bytes = [[0; 8]; HEAD_WORDS];
        self.read(bytes.as_flattened_mut(), at)?;
        Ok(Some(bytes.map(u64::from_le_bytes)))
    }

    /// All rings.
    pub(super) fn rings(&self) -> Result<Vec<Ring>, StoreError> {
        let (mut rings, mut at) = (Vec::new(), FILE_HEADER_WORDS);
        if self.head(0)?.is_none_or(|head| head[0] != FILE_MAGIC) {
            return Ok(rings);
        }
        while let Some(head) = self.head(at)? {
            let ring = Ring::parse(head, at);
            let words = match &ring {
                _ if head[0] & ((1 << MAGIC_BITS) - 1) == MAGIC => head[0] >> MAGIC_BITS,
                Some(ring) if head[0] == OLD_MAGIC => ring.words().unwrap_or(u64::MAX),
                _ => break,
            };
            if !(HEAD_WORDS as u64..=self.words - at).contains(&words) {
                break;
            }
            rings.extend(ring.filter(|ring| ring.words().is_some_and(|own| own <= words)));
            at += words;
        }
        Ok(rings)
    }

    /// The last unbroken run of whole rows behind number `sealed`.
    pub(super) fn rows(&self, ring: &Ring, sealed: u64) -> Result<Vec<Row>, StoreError> {
        let row_words = usize::try_from(ring.columns + ROW_EXTRA_WORDS).unwrap_or(usize::MAX);
        let mut words = vec![[0; 8]; row_words * usize::try_from(ring.rows).unwrap_or(0)]; // it is within the file
        self.read(words.as_flattened_mut(), ring.from)?;
        let mut whole = BTreeMap::new();
        for (slot, row) in (0..).zip(words.chunks_exact(row_words)) {
            let number = u64::from_le_bytes(row[0]);
            if number > sealed && number % ring.rows == slot && ring.is_whole(row) {
                whole.insert(number, row);
            }
        }
        let mut rows: Vec<Row> = Vec::new();
        for (number, row) in whole.into_iter().rev() {
            if rows.last().is_some_and(|later| later.number != number + 1) {
                break;
            }
            let values = row[2..row_words - 1].iter().map(|word| u64::from_le_bytes(*word)).collect();
            rows.push(Row { number, time_ns: u64::from_le_bytes(row[1]), values });
        }
        rows.reverse();
        Ok(rows)
    }
}

impl Ring {
    fn parse(head: [u64; HEAD_WORDS], at: u64) -> Option<Self> {
        let [_, columns, rows, sum, owner, ..] = head;
        let is_whole = sum == u64::from(crc32c::crc32c([columns, rows].map(u64::to_le_bytes).as_flattened()));
        (is_whole && rows > 0).then_some(Self { from: at + HEAD_WORDS as u64, columns, rows, owner })
    }

    fn words(&self) -> Option<u64> {
        self.columns.checked_add(ROW_EXTRA_WORDS)?.checked_mul(self.rows)?.checked_add(HEAD_WORDS as u64)
    }

    fn is_whole(&self, row: &[[u8; 8]]) -> bool {
        let Some((sum, summed)) = row.split_last() else { return false };
        let owner = crc32c::crc32c(&self.owner.to_le_bytes());
        u64::from_le_bytes(*sum) == u64::from(crc32c::crc32c_append(owner, summed.as_flattened()))
    }

    /// Whose it says that it is.
    #[allow(clippy::cast_possible_truncation)] // half of it is meant
    pub(super) fn track(&self) -> u32 {
        self.owner as u32
    }

    /// Whether it is of a track with so many columns and this description.
    pub(super) fn is_of(&self, columns: usize, described: &[u8]) -> bool {
        self.columns == columns as u64 && self.owner >> 32 == u64::from(crc32c::crc32c(described))
    }
}
