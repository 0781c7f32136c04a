// SPDX-License-Identifier: Apache-2.0
//! The head of a track: its newest rows, encoded (`row.rs`), and what the next one will refer to.
//!
//! The store thread pushes rows, and hands the bytes that were added since its last sync to the write-ahead log;
//! recovery gives them back with [`Head::extend`]. When a head has enough rows or is old enough, [`Head::take`] empties
//! it, and its rows become a warm chunk. The head is kept behind a lock; who wants to read takes a [`Snapshot`], which
//! costs a copy of the bytes, and walks that without the lock.
//!
//! Invariant: the bytes are whole rows that can be decoded. The bytes of a head that ended with a row are the same
//! however they came.
//!
//! ```text
//! row      line (tables only), time, words
//! line     varint: zigzagged difference to the line of the row before, 0 before the first
//! ```
//! Time and words are as `row.rs` has them; times refer to the row before, whatever its line, words to the row before
//! of the same line, or to zeros.
//!
//! Cost: the encoded bytes, and 16 bytes a column and line, until it is taken. No allocation a row, but for the bytes
//! that grow.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::damage::Damage;
use crate::row::varint::{self, unzigzag, zigzag};
use crate::row::{self, Clock, state_words};
use crate::types::{Kind, Line};

/// What the states of all lines of a head may take: a table of 200,000 lines of 20 columns.
const MAX_STATE_BYTES: usize = 64 << 20;
/// What a line costs beside its columns.
const LINE_BYTES: usize = 16;

/// A row of another line would need more memory for states than a head may take: take it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the head has as many lines as it may")]
pub struct Crowded;

/// The newest rows of a track.
#[derive(Debug)]
pub struct Head {
    codec: Codec,
    bytes: Vec<u8>,
    span: Span,
    number: u64,
}

/// Rows of a head as they were at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    kinds: Arc<[Kind]>,
    is_table: bool,
    bytes: Arc<[u8]>,
    span: Span,
    number: u64,
}

/// How many rows, and of what time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    rows: u32,
    from_ns: u64,
    to_ns: u64,
}

/// A number that no head of this process has had.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Span {
    fn add(&mut self, time_ns: u64) {
        self.from_ns = if self.rows == 0 { time_ns } else { self.from_ns.min(time_ns) };
        self.to_ns = self.to_ns.max(time_ns);
        self.rows += 1;
    }
}

impl Head {
    /// Without rows, of a track with these columns; only a table has rows of other lines than [`Line::ONLY`].
    #[must_use]
    pub fn new(kinds: Arc<[Kind]>, is_table: bool) -> Self {
        Self { codec: Codec::new(kinds, is_table), bytes: Vec::new(), span: Span::default(), number: next_number() }
    }

    /// Appends a row.
    ///
    /// # Errors
    /// [`Crowded`]: the row is not in it.
    ///
    /// # Panics
    /// If the row is not as wide as the track, or the track is no table and this is another line than [`Line::ONLY`].
    pub fn push(&mut self, line: Line, time_ns: u64, words: &[u64]) -> Result<(), Crowded> {
        assert!(self.codec.is_table || line == Line::ONLY, "a row of line {} in a track that is no table", line.0);
        // Twice the bytes that are there, as vectors grow by themselves, is too much for what thousands of hosts have.
        let enough = words.len() + 64;
        if self.bytes.capacity() - self.bytes.len() < enough {
            self.bytes.reserve_exact(enough.max(self.bytes.len() / 4));
        }
        self.codec.encode(line, time_ns, words, &mut self.bytes)?;
        self.span.add(time_ns);
        Ok(())
    }

    /// Appends rows as [`Head::bytes_since`] gave them, to a head that has the rows before. Returns how many they are.
    ///
    /// # Errors
    /// [`Damage`]: the head is as it was before.
    pub fn extend(&mut self, encoded: &[u8]) -> Result<u32, Damage> {
        let (from, before) = (self.bytes.len(), self.span);
        self.bytes.extend_from_slice(encoded);
        let span = &mut self.span;
        let extended = self.codec.walk(&self.bytes[from..], |_, time_ns, _| span.add(time_ns));
        if let Err(damage) = extended {
            self.bytes.truncate(from);
            self.span = before;
            self.codec.forget();
            self.codec.walk(&self.bytes, |_, _, _| ()).expect("all of them came through here or from the encoder");
            return Err(damage);
        }
        Ok(self.span.rows - before.rows)
    }

    /// Encoded rows behind the first `offset` bytes.
    ///
    /// # Panics
    /// If there are fewer bytes than that.
    #[must_use]
    pub fn bytes_since(&self, offset: usize) -> &[u8] {
        &self.bytes[offset..]
    }

    /// Bytes of all encoded rows: where the next row will begin.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Kinds of its words.
    #[must_use]
    pub fn kinds(&self) -> &Arc<[Kind]> {
        &self.codec.kinds
    }

    /// Whether its rows are of many lines.
    #[must_use]
    pub fn is_table(&self) -> bool {
        self.codec.is_table
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.span.rows
    }

    /// Earliest and latest time of a row, UTC ns; of no rows, `None`.
    #[must_use]
    pub fn times_ns(&self) -> Option<(u64, u64)> {
        (self.span.rows > 0).then_some((self.span.from_ns, self.span.to_ns))
    }

    /// As [`Snapshot::number`].
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The last words of a line: what a reader of newest values wants. `None`: no row of it has come since the head was
    /// taken.
    #[must_use]
    pub fn newest(&self, line: Line) -> Option<&[u64]> {
        self.codec.state(self.codec.find(line)?).get(..self.codec.kinds.len())
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        // A place of the map is a line, its number, and a byte; an eighth of the places is never used.
        let lines = self.codec.lines.capacity() * 8 / 7 * 9;
        size_of::<Self>() + self.bytes.capacity() + self.codec.states.capacity() * 8 + lines
    }

    /// Its rows as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            kinds: self.codec.kinds.clone(),
            is_table: self.codec.is_table,
            bytes: self.bytes.as_slice().into(),
            span: self.span,
            number: self.number,
        }
    }

    /// Takes all rows out: the next one refers to zeros again. The memory stays for the next ones.
    pub fn take(&mut self) -> Snapshot {
        let taken = self.snapshot();
        self.codec.forget();
        self.bytes.clear();
        self.span = Span::default();
        self.number = next_number();
        taken
    }
}

impl Snapshot {
    /// Shows all rows to `visit`: line, time, words.
    ///
    /// # Errors
    /// [`Damage`], if memory was damaged; rows before it were shown.
    pub fn rows(&self, visit: impl FnMut(Line, u64, &[u64])) -> Result<(), Damage> {
        Codec::new(self.kinds.clone(), self.is_table).walk(&self.bytes, visit)
    }

    /// Kinds of its words.
    #[must_use]
    pub fn kinds(&self) -> &Arc<[Kind]> {
        &self.kinds
    }

    /// Whether its rows are of many lines.
    #[must_use]
    pub fn is_table(&self) -> bool {
        self.is_table
    }

    /// The encoded rows.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.span.rows
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.span.rows == 0
    }

    /// As [`Head::times_ns`].
    #[must_use]
    pub fn times_ns(&self) -> Option<(u64, u64)> {
        (self.span.rows > 0).then_some((self.span.from_ns, self.span.to_ns))
    }

    /// Of what head they are: those of a head that was taken have another number than those that come then, and of two
    /// heads of a track the later one has the larger.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Goes through the rows of a head that is no table, as far as there are some, and later through those that have come
/// since.
#[derive(Debug)]
pub(crate) struct Walk {
    codec: Codec,
    /// Where the next row begins.
    at: usize,
}

impl Walk {
    /// Through all rows of a head of which these are some.
    pub(crate) fn new(rows: &Snapshot) -> Self {
        Self { codec: Codec::new(rows.kinds.clone(), rows.is_table), at: 0 }
    }

    /// Shows the rows that were not shown yet: time, words. These may be fewer than there were before.
    pub(crate) fn go_on(&mut self, rows: &Snapshot, mut visit: impl FnMut(u64, &[u64])) -> Result<(), Damage> {
        let Some(bytes) = rows.bytes.get(self.at..) else { return Ok(()) };
        self.codec.walk(bytes, |_, time_ns, words| visit(time_ns, words))?;
        self.at = rows.bytes.len();
        Ok(())
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.codec.states.capacity() * 8
    }
}

/// What rows refer to at one place among the bytes of a head.
#[derive(Debug)]
struct Codec {
    kinds: Arc<[Kind]>,
    is_table: bool,
    clock: Clock,
    line: Line,
    /// Number of a table's line among the states.
    lines: HashMap<Line, u32, BuildHasherDefault<LineHasher>>,
    /// That of each line, one behind the other, as `row.rs` has them.
    states: Vec<u64>,
}

impl Codec {
    fn new(kinds: Arc<[Kind]>, is_table: bool) -> Self {
        let (clock, line) = (Clock::default(), Line::ONLY);
        Self { kinds, is_table, clock, line, lines: HashMap::default(), states: Vec::new() }
    }

    fn forget(&mut self) {
        self.clock = Clock::default();
        self.line = Line::ONLY;
        self.lines.clear();
        self.states.clear();
    }

    fn encode(&mut self, line: Line, time_ns: u64, words: &[u64], out: &mut Vec<u8>) -> Result<(), Crowded> {
        let number = self.enter(line)?;
        if self.is_table {
            // Both are 32 bits: so is their difference.
            varint::append(zigzag(u64::from(line.0).wrapping_sub(self.line.0.into())), out);
            self.line = line;
        }
        let range = self.range(number);
        row::encode(&mut self.clock, &mut self.states[range], &self.kinds, time_ns, words, out);
        Ok(())
    }

    /// Shows the rows that `bytes` are, until one is damaged.
    fn walk(&mut self, bytes: &[u8], mut visit: impl FnMut(Line, u64, &[u64])) -> Result<(), Damage> {
        let mut input = bytes;
        while !input.is_empty() {
            if self.is_table {
                let line = u64::from(self.line.0).wrapping_add(unzigzag(varint::take(&mut input)?));
                self.line = Line(u32::try_from(line).map_err(|_| Damage::Wrong("line of a row"))?);
            }
            let number = self.enter(self.line).map_err(|_| Damage::Wrong("number of lines"))?;
            let range = self.range(number);
            let time_ns = row::decode(&mut self.clock, &mut self.states[range], &self.kinds, &mut input)?;
            visit(self.line, time_ns, &self.state(number)[..self.kinds.len()]);
        }
        Ok(())
    }

    fn find(&self, line: Line) -> Option<u32> {
        if self.is_table {
            return self.lines.get(&line).copied();
        }
        (line == Line::ONLY && !self.states.is_empty()).then_some(0)
    }

    /// Number of a line, which has a state from now on.
    fn enter(&mut self, line: Line) -> Result<u32, Crowded> {
        if let Some(number) = self.find(line) {
            return Ok(number);
        }
        let width = state_words(self.kinds.len());
        // A track that is no table has one, however wide it is.
        let number = u32::try_from(self.lines.len()).map_err(|_| Crowded)?;
        if self.is_table {
            if (self.lines.len() + 1) * (width * 8 + LINE_BYTES) > MAX_STATE_BYTES {
                return Err(Crowded);
            }
            self.lines.insert(line, number);
        }
        self.states.resize((number as usize + 1) * width, 0);
        Ok(number)
    }

    fn range(&self, number: u32) -> std::ops::Range<usize> {
        let width = state_words(self.kinds.len());
        number as usize * width..(number as usize + 1) * width
    }

    fn state(&self, number: u32) -> &[u64] {
        &self.states[self.range(number)]
    }
}

/// Lines are numbers that the store has given itself: a multiplication spreads them well enough.
#[derive(Default)]
struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(test)]
mod tests;
