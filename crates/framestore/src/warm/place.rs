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

/// Room for what is read of one chunk after the other.
#[derive(Debug, Default)]
pub struct Buffers {
    front: Vec<u8>,
    piece: Vec<u8>,
    /// The chunk that `front` is of, and its file.
    of: Option<(Arc<Opened>, ChunkRef)>,
}

impl Buffers {
    /// What they hold.
    pub(crate) fn bytes(&self) -> usize {
        self.front.capacity() + self.piece.capacity()
    }
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

    /// Reads neighbouring columns, checked, and appends their values, column after column. Of a large chunk that is two
    /// small reads. The chunk that comes back has times, lines and statistics, and perhaps no other columns.
    ///
    /// # Errors
    /// [`StoreError::Io`], and [`StoreError::Damaged`] if their bytes are not what was written.
    pub fn read_columns<'a>(
        &self,
        columns: Range<usize>,
        buffers: &'a mut Buffers,
        values: &mut Vec<u64>,
    ) -> Result<Chunk<'a>, StoreError> {
        let damaged = |damage| self.damaged(damage);
        let Buffers { front, piece, of } = buffers;
        let opened = match &self.origin {
            Origin::Outline(outline) => {
                *of = None;
                outline.read_columns(&self.chunk, columns, front, values)?;
                return Chunk::parse_front(front).map_err(damaged);
            }
            Origin::Chunks(opened) => opened,
        };
        // What was read and checked for other columns need not be again.
        let held = of.take().filter(|(file, chunk)| Arc::ptr_eq(file, opened) && *chunk == self.chunk);
        if self.chunk.bytes as usize <= SMALL_BYTES {
            let chunk = match &held {
                Some(_) => Chunk::parse(&front[HEADER_BYTES..]).map_err(damaged)?,
                None => self.read(front)?,
            };
            columns.into_iter().try_for_each(|number| chunk.column(number, values)).map_err(damaged)?;
            *of = Some((opened.clone(), self.chunk));
            return Ok(chunk);
        }
        let chunk = match &held {
            Some(_) => Chunk::parse_front(front).map_err(damaged)?,
            None => self.read_front(front)?,
        };
        *of = Some((opened.clone(), self.chunk));
        let range = chunk.range(columns.clone()).map_err(damaged)?;
        let front_bytes = chunk.head().front_bytes;
        if front_bytes + range.end > self.chunk.bytes as usize {
            return Err(damaged(Damage::Wrong("where a column is")));
        }
        piece.clear();
        if !range.is_empty() {
            self.fill(piece, HEADER_BYTES + front_bytes + range.start, range.len())?;
        }
        let mut checked = |number| chunk.checked_column(number, range.start, piece, values);
        columns.into_iter().try_for_each(&mut checked).map_err(damaged)?;
        Ok(chunk)
    }

    /// Reads what is before the columns: times, lines and statistics, checked.
    ///
    /// # Errors
    /// [`StoreError::Io`], and [`StoreError::Damaged`] if its bytes are not what was written.
    pub fn read_front<'a>(&self, bytes: &'a mut Vec<u8>) -> Result<Chunk<'a>, StoreError> {
        if let Origin::Outline(outline) = &self.origin {
            outline.read_columns(&self.chunk, 0..0, bytes, &mut Vec::new())?;
            return Chunk::parse_front(bytes).map_err(|damage| self.damaged(damage));
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
        let checked = chunk::check_front(bytes).and_then(|()| Chunk::parse_front(bytes));
        checked.map_err(|damage| self.damaged(damage))
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
