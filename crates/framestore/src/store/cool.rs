// SPDX-License-Identifier: Apache-2.0
//! Raw files that are old become cold files (`cold`, `warm::outline`), beside everything else.
//!
//! The store thread says which are old enough (`due.rs`); whoever has the [`Cooler`] converts one after the other, on a
//! thread of its own. It takes locks for look-ups only, so neither rows nor queries wait for it; readers find the
//! outline's chunks from one moment to the next, under the same numbers, and what they are reading stays there until
//! they are done. What fails leaves the file of chunks as it was.
//!
//! Memory: a chunk, a row group in the making, the times of a file's readings, and its outline. Room: the cold file,
//! before the other one goes. What a value costs is not measured yet.

use std::collections::HashSet;

use rustix::fs::statvfs;

use super::rows::HEAD_AGE_NS;
use super::to_cold::{push_series, told};
use super::{Store, lock};
use crate::chunk::Chunk;
use crate::cold::{self, Window};
use crate::damage::{StoreError, io_error};
use crate::layout::Layout;
use crate::types::{SECOND_NS, TrackId};
use crate::warm::look::Entry;
use crate::warm::outline::{Made, RawFile, Sketch, Strip};
use crate::warm::{self, Level, Place};

/// Rows of a row group: as many as are read where one is wanted.
const GROUP_ROWS: usize = 1 << 17;
/// Room that is left for others, beside that of the file which is converted.
const SPARE_BYTES: u64 = if cfg!(test) { 0 } else { 256 << 20 };
/// The row before a chunk's first one is looked for so far back.
const BEFORE_NS: u64 = 2 * HEAD_AGE_NS;

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cooled {
    /// Nothing is old enough.
    Nothing,
    /// It was told to stop.
    Stopped,
    /// A file of so many bytes was converted, or had been dropped meanwhile.
    File(u64),
}

/// Converts raw files. A store should have one.
pub struct Cooler {
    store: Store,
}

impl Store {
    /// What converts its old raw files.
    #[must_use]
    pub fn cooler(&self) -> Cooler {
        Cooler { store: self.clone() }
    }
}

impl Cooler {
    /// Converts the oldest file that is old enough, if there is one. `goes_on` is asked after each chunk, and may take
    /// its time; when it says no, the file stays as it is.
    ///
    /// # Errors
    /// [`StoreError`]; the file stays as it is. One that is damaged is not tried again.
    pub fn turn(&mut self, mut goes_on: impl FnMut() -> bool) -> Result<Cooled, StoreError> {
        let Some(number) = lock(&self.store.0.due).first() else { return Ok(Cooled::Nothing) };
        let outcome = self.cool(number, &mut goes_on);
        let is_done = !matches!(outcome, Err(StoreError::Io { .. }) | Ok(Cooled::Stopped));
        let mut due = lock(&self.store.0.due);
        if is_done {
            due.remove(number);
        }
        if matches!(outcome, Err(StoreError::Damaged { .. } | StoreError::Limit { .. })) {
            due.give_up(number);
        }
        outcome
    }

    fn cool(&self, number: u32, goes_on: &mut dyn FnMut() -> bool) -> Result<Cooled, StoreError> {
        let reader = &self.store.0.chunks;
        if reader.has_outline(number) {
            // It could not be removed the last time.
            reader.remove_raw(number)?;
            return Ok(Cooled::File(0));
        }
        // Of one number there is one outline, also if the last attempt could not be undone.
        reader.remove_left(number)?;
        let Some(raw) = reader.raw_file(number)? else { return Ok(Cooled::File(0)) };
        self.look_for_room(&raw)?;
        let window = window(&raw.entries)?;
        let writer = cold::Writer::create(reader.store_dir(), window)?.with_groups_of(GROUP_ROWS);
        let name = writer.name();
        let made = self.convert(&raw, window, writer, goes_on);
        let Ok(Some(made)) = made else {
            let cleaned = step::cleans(|| reader.remove_outline(number, &name));
            return made.and(cleaned).map(|()| Cooled::Stopped);
        };
        if !reader.put_outline(&made) {
            reader.remove_outline(number, &name)?;
            return Ok(Cooled::File(0));
        }
        step::take()?;
        reader.remove_raw(number)?;
        Ok(Cooled::File(raw.bytes))
    }

    /// Whether the disk has room for the file once more.
    fn look_for_room(&self, raw: &RawFile) -> Result<(), StoreError> {
        let dir = self.store.0.chunks.store_dir();
        let system = statvfs(dir).map_err(|error| io_error("look at", dir)(error.into()))?;
        let is_room = system.f_bavail.saturating_mul(system.f_frsize) >= 2 * raw.bytes + SPARE_BYTES;
        let full = || io_error("make a cold file in", dir)(std::io::ErrorKind::StorageFull.into());
        if is_room { Ok(()) } else { Err(full()) }
    }

    /// Makes cold file and outline; `None`: it was told to stop.
    fn convert(
        &self,
        raw: &RawFile,
        window: Window,
        mut writer: cold::Writer,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Made>, StoreError> {
        let reader = &self.store.0.chunks;
        let mut draft = reader.draft(raw.number, &writer.name())?;
        step::take()?;
        // Chunks of a track side by side.
        let mut entries: Vec<&Entry> = raw.entries.iter().collect();
        entries.sort_by_key(|entry| (entry.track, entry.place.arrival()));
        let (mut sketches, mut record, mut pushing) = (Vec::new(), Vec::new(), None);
        for entry in &entries {
            let place = raw.place(entry);
            let chunk = place.read(&mut record)?;
            if pushing.as_ref().is_none_or(|of: &Pushing| of.track != entry.track) {
                pushing = Some(Pushing::begin(&self.store, entry)?);
            }
            let Some(pushing) = &mut pushing else { continue };
            let is_inside = window.from_ns() <= entry.place.from_ns && entry.place.to_ns < window.to_ns();
            let sketch = if is_inside { pushing.push(&place, &chunk, &mut writer)? } else { Sketch::default() };
            sketches.push(sketch);
            writer.settle()?;
            if !goes_on() {
                return Ok(None);
            }
        }
        self.gaps(window, &mut writer)?;
        step::take()?;
        let (written, spots) = writer.finish_told()?;
        step::take()?;
        let source = draft.source()?;
        for (entry, sketch) in entries.iter().zip(&sketches) {
            raw.place(entry).read(&mut record)?;
            draft.add(entry, &record, sketch, &spots, &source)?;
            if !goes_on() {
                return Ok(None);
            }
        }
        step::take()?;
        let made = draft.finish(raw, &source, written.bytes)?;
        step::take().map(|()| Some(made))
    }

    /// Gaps since the cold file before this one.
    fn gaps(&self, window: Window, writer: &mut cold::Writer) -> Result<(), StoreError> {
        let (before, _) = cold::look::list(self.store.0.chunks.store_dir())?;
        let ends = before.iter().map(|named| named.window.to_ns()).filter(|end_ns| *end_ns <= window.to_ns());
        let (from_ns, to_ns) = (ends.max().unwrap_or(window.from_ns()), window.to_ns() - 1);
        let mut all = HashSet::new();
        if from_ns > to_ns {
            return Ok(());
        }
        for part in self.store.parts_of(|_| true) {
            for gap in self.store.all_gaps(part.track, from_ns, to_ns) {
                all.extend(told(&part, &gap, (from_ns, to_ns)));
            }
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by(|one, other| (one.from_ns, &one.instance).cmp(&(other.from_ns, &other.instance)));
        all.into_iter().for_each(|gap| writer.gap(gap));
        Ok(())
    }
}

/// Whole seconds that all chunks are in, but for those of times that Parquet does not have.
fn window(entries: &[Entry]) -> Result<Window, StoreError> {
    let seconds = |entry: &Entry| (entry.place.from_ns / SECOND_NS, entry.place.to_ns / SECOND_NS + 1);
    let fitting = entries.iter().map(seconds).filter(|(from, to)| Window::new(*from, *to).is_ok());
    let (from, to) = fitting.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))).unwrap_or((0, 1));
    Window::new(from, to)
}

/// A track while its chunks are pushed.
struct Pushing {
    track: TrackId,
    /// Its names, if the catalogue has them.
    named: Option<super::names::Track>,
    /// When each part was last acquired.
    last_ns: Vec<u64>,
}

impl Pushing {
    /// Begins with the first chunk of a file.
    fn begin(store: &Store, entry: &Entry) -> Result<Self, StoreError> {
        let named = store.track(entry.track);
        let layout = named.as_ref().map(|track| track.layout.clone());
        let last_ns = layout.map_or(Ok(Vec::new()), |layout| last_ns(store, entry, &layout))?;
        Ok(Self { track: entry.track, named, last_ns })
    }

    /// Pushes the samples of a chunk, each once.
    fn push(&mut self, place: &Place, chunk: &Chunk, writer: &mut cold::Writer) -> Result<Sketch, StoreError> {
        let Self { named, last_ns, .. } = self;
        let Some(track) = named.as_ref().filter(|track| track.layout.kinds().len() == chunk.head().columns) else {
            return Ok(Sketch::default());
        };
        let damaged = |damage| place.damaged(damage);
        let (rows, mut times_ns, mut columns) = (chunk.head().rows, Vec::new(), Vec::new());
        chunk.times(&mut times_ns).map_err(damaged)?;
        for column in 0..chunk.head().columns {
            let mut values = Vec::with_capacity(rows);
            chunk.column(column, &mut values).map_err(damaged)?;
            columns.push(values);
        }
        let mut sketch = Sketch::default();
        if track.layout.is_table() {
            let mut first = 0;
            for (line, rows) in chunk.lines() {
                if let Some(named) = track.line(line) {
                    let own: Vec<&[u64]> = columns.iter().map(|column| &column[first..first + rows]).collect();
                    let times_ns = &times_ns[first..first + rows];
                    let pieces = push_series(writer, &named, times_ns, &own, 0)?;
                    sketch.strips.push(Strip { first, rows, runs: vec![0, rows], time: None, pieces });
                }
                first += rows;
            }
            return Ok(sketch);
        }
        let span = place.chunk().from_ns..=place.chunk().to_ns;
        for (number, placed) in (0..).zip(track.layout.parts()) {
            let Some(named) = track.part(number) else { continue };
            let times = placed.time.map_or(&times_ns, |time| &columns[time]);
            let last_ns = &mut last_ns[number as usize];
            let is_new = |time_ns: u64| {
                let is_new = time_ns > 0 && time_ns != *last_ns && span.contains(&time_ns);
                if is_new {
                    *last_ns = time_ns;
                }
                is_new
            };
            let new: Vec<bool> = times.iter().copied().map(is_new).collect();
            let of = |column: &Vec<u64>| -> Vec<u64> {
                column.iter().zip(&new).filter(|(_, is_new)| **is_new).map(|(word, _)| *word).collect()
            };
            let times_ns = of(times);
            if times_ns.is_empty() {
                continue;
            }
            let own: Vec<Vec<u64>> = columns[placed.at..placed.at + placed.part.width()].iter().map(of).collect();
            let own: Vec<&[u64]> = own.iter().map(Vec::as_slice).collect();
            let pieces = push_series(writer, &named, &times_ns, &own, placed.at)?;
            let time = placed.time.zip(pieces.first().map(|(_, spot)| *spot));
            // Of texts there are no columns.
            let pieces = pieces.into_iter().filter(|(column, _)| *column != usize::MAX).collect();
            sketch.strips.push(Strip { first: 0, rows, runs: runs(&new), time, pieces });
        }
        Ok(sketch)
    }
}

/// Rows without anything new, and with, by turns.
fn runs(new: &[bool]) -> Vec<usize> {
    let mut runs = if new.first() == Some(&true) { vec![0] } else { Vec::new() };
    runs.extend(new.chunk_by(|one, other| one == other).map(<[bool]>::len));
    runs
}

/// When parts were last acquired before a chunk.
fn last_ns(store: &Store, entry: &Entry, layout: &Layout) -> Result<Vec<u64>, StoreError> {
    let (reader, from_ns) = (&store.0.chunks, entry.place.from_ns);
    let mut places = reader.between(Level::Raw, entry.track, from_ns.saturating_sub(BEFORE_NS), from_ns)?;
    places.retain(|place| place.chunk().arrival() < entry.place.arrival());
    let before: Option<&Place> = places.iter().max_by_key(|place| place.chunk().arrival());
    let (mut buffers, mut values) = (warm::Buffers::default(), Vec::new());
    let mut of = |time: Option<usize>| -> Result<u64, StoreError> {
        let (Some(time), Some(before)) = (time, before) else { return Ok(0) };
        values.clear();
        match before.read_columns(time..time + 1, &mut buffers, &mut values) {
            Err(error @ StoreError::Io { .. }) => Err(error),
            // What is damaged is told by others.
            _ => Ok(values.last().copied().unwrap_or(0)),
        }
    };
    layout.parts().iter().map(|placed| of(placed.time)).collect()
}

/// Where a test has a conversion fail, or has the process killed.
mod step {
    use crate::damage::StoreError;

    #[cfg(not(test))]
    #[allow(clippy::unnecessary_wraps, reason = "a test has it fail")]
    pub(super) fn take() -> Result<(), StoreError> {
        Ok(())
    }

    #[cfg(test)]
    pub(super) use super::tests::world::take;

    /// What is done where something has failed; by nobody who was killed.
    pub(super) fn cleans(clean: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        #[cfg(test)]
        if super::tests::world::is_killed() {
            return Ok(());
        }
        clean()
    }
}

#[cfg(test)]
mod tests;
