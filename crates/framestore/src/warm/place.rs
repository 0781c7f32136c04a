// SPDX-License-Identifier: Apache-2.0
//! Reading a chunk: of a file of chunks only the columns that are wanted, of an outline with what its cold file has.

use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use super::entry::ChunkRef;
use super::frame::{self, CHUNK, HEADER_BYTES, Opened};
use super::outline::Outline;
use crate::chunk::{self, Chunk, HEAD_BYTES, Head};
use crate::damage::{Damage, StoreError, io_error};

/// A chunk of which reading all costs less than reading twice.
const SMALL_BYTES: usize = 8 << 10;
/// Bytes of columns that are read at once: their neighbours are often wanted next.
const AHEAD_BYTES: usize = 4 << 10;

/// What is before the columns of a chunk, checked: times, lines and statistics. Of a small chunk all of it.
#[derive(Debug, Default)]
pub struct Front {
    bytes: Vec<u8>,
    /// The record's header, and the whole chunk.
    is_whole: bool,
}

impl Front {
    /// What it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The front alone.
    #[cfg(test)]
    pub(crate) fn of_chunk(&self) -> &[u8] {
        let start = if self.is_whole { HEADER_BYTES } else { 0 };
        &self.bytes[start..][..self.chunk().unwrap().head().front_bytes]
    }

    fn chunk(&self) -> Result<Chunk<'_>, Damage> {
        if self.is_whole { Chunk::parse(&self.bytes[HEADER_BYTES..]) } else { Chunk::parse_front(&self.bytes) }
    }
}

/// Some bytes of the columns of a chunk.
#[derive(Debug, Default)]
pub struct Window {
    /// Where they begin, behind the front.
    start: usize,
    bytes: Vec<u8>,
}

impl Window {
    /// What it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn has(&self, range: &Range<usize>) -> bool {
        range.start >= self.start && range.end <= self.start + self.bytes.len()
    }
}

/// Room for what is read of one chunk after the other.
#[derive(Debug, Default)]
pub struct Buffers {
    front: Front,
    window: Window,
    /// The chunk that they are of, and its file.
    of: Option<(Arc<Opened>, ChunkRef)>,
}

/// What a chunk is read from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Chunks(Arc<Opened>),
    Outline(Arc<Outline>),
}

/// A chunk that can be read.
#[derive(Clone, Debug)]
pub struct Place {
    origin: Origin,
    chunk: ChunkRef,
}

impl Place {
    pub(super) fn new(origin: Origin, chunk: ChunkRef) -> Self {
        Self { origin, chunk }
    }

    /// Its times, rows and bytes.
    #[must_use]
    pub fn chunk(&self) -> &ChunkRef {
        &self.chunk
    }

    /// Reads all of it, checked, into a buffer.
    ///
    /// # Errors
    /// [`StoreError::Io`], and [`StoreError::Damaged`] if its bytes are not what was written.
    pub fn read<'a>(&self, bytes: &'a mut Vec<u8>) -> Result<Chunk<'a>, StoreError> {
        if let Origin::Outline(outline) = &self.origin {
            outline.read(&self.chunk, bytes)?;
            return Chunk::parse(&bytes[HEADER_BYTES..]).map_err(|damage| self.damaged(damage));
        }
        self.fill(bytes, 0, HEADER_BYTES + self.chunk.bytes as usize)?;
        let (header, payload) = bytes.split_at(HEADER_BYTES);
        let checked = frame::parse(header).and_then(|frame| {
            frame.check(payload)?;
            if frame.kind == CHUNK { Chunk::parse(payload) } else { Err(Damage::Wrong("a record's kind")) }
        });
        checked.map_err(|damage| self.damaged(damage))
    }

    /// Reads neighbouring columns, checked, and appends their values, column after column. The chunk that comes back has
    /// times, lines and statistics, and perhaps no other columns.
    ///
    /// # Errors
    /// [`StoreError::Io`], and [`StoreError::Damaged`] if their bytes are not what was written.
    pub fn read_columns<'a>(
        &self,
        columns: Range<usize>,
        buffers: &'a mut Buffers,
        values: &mut Vec<u64>,
    ) -> Result<Chunk<'a>, StoreError> {
        let Buffers { front, window, of } = buffers;
        // What was read and checked for other columns need not be again.
        let held = of.take();
        match &self.origin {
            Origin::Outline(outline) => {
                front.is_whole = false;
                outline.read_columns(&self.chunk, columns, &mut front.bytes, values)?;
            }
            Origin::Chunks(opened) => {
                if !held.is_some_and(|(file, chunk)| Arc::ptr_eq(&file, opened) && chunk == self.chunk) {
                    self.fill_front(front)?;
                    window.bytes.clear();
                }
                *of = Some((opened.clone(), self.chunk));
                self.columns(front, columns, window, values)?;
            }
        }
        front.chunk().map_err(|damage| self.damaged(damage))
    }

    /// The same by the chunk's front, and what was read of it last, or nothing.
    ///
    /// # Errors
    /// [`StoreError::Io`], and [`StoreError::Damaged`] if their bytes are not what was written.
    pub(crate) fn columns(
        &self,
        front: &Front,
        columns: Range<usize>,
        window: &mut Window,
        values: &mut Vec<u64>,
    ) -> Result<(), StoreError> {
        let damaged = |damage| self.damaged(damage);
        if let Origin::Outline(outline) = &self.origin {
            return outline.read_columns(&self.chunk, columns, &mut Vec::new(), values);
        }
        let chunk = front.chunk().map_err(damaged)?;
        if front.is_whole {
            return columns.into_iter().try_for_each(|number| chunk.column(number, values)).map_err(damaged);
        }
        let range = chunk.range(columns.clone()).map_err(damaged)?;
        let (front_bytes, all_bytes) = (chunk.head().front_bytes, self.chunk.bytes as usize);
        if front_bytes + range.end > all_bytes {
            return Err(damaged(Damage::Wrong("where a column is")));
        }
        if !range.is_empty() && !window.has(&range) {
            let length = range.len().max(AHEAD_BYTES).min(all_bytes - front_bytes - range.start);
            window.start = range.start;
            self.fill(&mut window.bytes, HEADER_BYTES + front_bytes + range.start, length)
                .inspect_err(|_| window.bytes.clear())?;
        }
        let (start, bytes) = if range.is_empty() { (range.start, &[][..]) } else { (window.start, &window.bytes[..]) };
        let mut checked = |number| chunk.checked_column(number, start, bytes, values);
        columns.into_iter().try_for_each(&mut checked).map_err(damaged)
    }

    /// The chunk's front, checked.
    ///
    /// # Errors
    /// [`StoreError::Io`], and [`StoreError::Damaged`] if its bytes are not what was written.
    pub fn front(&self) -> Result<Front, StoreError> {
        let mut front = Front::default();
        self.fill_front(&mut front)?;
        Ok(front)
    }

    /// What a front says.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it is another chunk's.
    pub(crate) fn chunk_of<'a>(&self, front: &'a Front) -> Result<Chunk<'a>, StoreError> {
        front.chunk().map_err(|damage| self.damaged(damage))
    }

    fn fill_front(&self, Front { bytes, is_whole }: &mut Front) -> Result<(), StoreError> {
        *is_whole = false;
        if let Origin::Outline(outline) = &self.origin {
            return outline.read_columns(&self.chunk, 0..0, bytes, &mut Vec::new());
        }
        if self.chunk.bytes as usize <= SMALL_BYTES {
            *is_whole = true;
            return self.read(bytes).map(|_| ());
        }
        let mut length = usize::from(self.chunk.front_words) * 8;
        if self.chunk.front_words == u16::MAX {
            self.fill(bytes, HEADER_BYTES, HEAD_BYTES)?;
            length = Head::parse(bytes).map_err(|damage| self.damaged(damage))?.front_bytes;
        }
        if length > self.chunk.bytes as usize {
            return Err(self.damaged(Damage::Wrong("a chunk's end")));
        }
        self.fill(bytes, HEADER_BYTES, length)?;
        chunk::check_front(bytes).map_err(|damage| self.damaged(damage))
    }

    fn fill(&self, bytes: &mut Vec<u8>, at: usize, length: usize) -> Result<(), StoreError> {
        bytes.resize(length, 0);
        let Origin::Chunks(opened) = &self.origin else { return Ok(()) };
        let read = opened.file.read_exact_at(bytes, self.chunk.offset() + at as u64);
        read.map_err(io_error("read", &opened.path))
    }

    pub(crate) fn damaged(&self, damage: Damage) -> StoreError {
        match &self.origin {
            Origin::Chunks(opened) => {
                StoreError::Damaged { path: opened.path.clone(), offset: self.chunk.offset(), damage }
            }
            Origin::Outline(outline) => outline.damaged(&self.chunk, damage),
        }
    }
}
