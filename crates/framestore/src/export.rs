// SPDX-License-Identifier: Apache-2.0
//! Cold files (docs/sql.md) of what a store has, for whoever asks for them: hour by hour, of one host or of all.
//!
//! [`Export::begin`] says which windows of time no file in the directory covers yet, [`Export::write`] makes the file
//! of one. So an export that was interrupted goes on where it was, and one that is repeated adds what the store has got
//! since: of an hour that was not over the rest. The directory says in `export.json` what it is an export of, since
//! names of files do not.
//!
//! Cold files are small where a few hosts go together, and the same part of each side by side (`cold`). Memory: a block
//! of rows, and the row group in the making. Cost: 25 to 40 ns a sample.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cold::{self, Cold, GapData, Window, Written};
use crate::damage::{StoreError, io_error};
use crate::framing::files;
use crate::store::{Columns, Named, PartOf, Store, push_series, told};
use crate::types::{Gap, Line, SECOND_NS, TrackId};
use crate::warm::Extent;

/// Seconds of a window at most.
const HOUR: u64 = 3_600;
/// Words of the rows that are handed on together: as many as a row group has rows.
const BLOCK_WORDS: usize = cold::ROW_GROUP_ROWS;
/// Times of an hour, of all hosts that go together.
const TIMES_TOGETHER: u64 = 5_000;
/// How far the time of a part may be before its row's, which is all that is known of rows in heads.
const BEFORE_ROW_NS: u64 = 300 * SECOND_NS;
const NOTE: &str = "export.json";

/// What is to be exported.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Directory of the store.
    pub store: &'a Path,
    /// Name of the host; `None`: all.
    pub host: Option<&'a str>,
    /// The first second since 1970.
    pub from: Option<u64>,
    /// The first second behind it.
    pub to: Option<u64>,
    /// Where `cold` with the files is, or is made.
    pub out: &'a Path,
}

/// Why nothing is exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store cannot be read, or files not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory has something else.
    #[error("{} has {has}: give a directory of its own to this export", dir.display())]
    Taken {
        /// Which directory.
        dir: PathBuf,
        /// What it has.
        has: String,
    },
}

/// What a directory is an export of.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    store: PathBuf,
    /// `None`: all hosts.
    host: Option<String>,
}

/// An export under way.
pub struct Export {
    store: Store,
    parts: Vec<PartOf>,
    tracks: BTreeMap<TrackId, Track>,
    out: PathBuf,
    windows: Vec<Window>,
}

/// A track of which parts are exported.
#[derive(Debug, Default)]
struct Track {
    /// How much there is of it.
    extent: Option<Extent>,
    /// Which parts are its.
    parts: Vec<usize>,
}

/// What became of a window.
#[derive(Debug, Default)]
pub struct Exported {
    /// Its file; `None`: there are no samples, and no gaps, of that time.
    pub written: Option<Written>,
    /// Rows that could not be read. In the file they are gaps.
    pub damaged: Vec<Gap>,
}

impl Export {
    /// Looks what is to be done.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn begin(store: Store, request: &Request<'_>) -> Result<Self, ExportError> {
        let out = request.out;
        files::make_dir(out)?;
        note(request)?;
        let (before, _) = Cold::open(out)?;
        let mut parts = store.parts_of(|host| request.host.is_none_or(|wanted| wanted == host));
        let extent = |part: &PartOf| (part.track, Track { extent: store.extent(part.track), parts: Vec::new() });
        let mut tracks: BTreeMap<TrackId, Track> = parts.iter().map(extent).collect();
        sort(&mut parts, &tracks);
        for (at, part) in parts.iter().enumerate() {
            tracks.entry(part.track).or_default().parts.push(at);
        }
        let whole = tracks.values().filter_map(|track| track.extent).reduce(Extent::joined);
        let windows = whole.map_or_else(Vec::new, |Extent { from_ns, to_ns, .. }| {
            let first = from_ns.saturating_sub(BEFORE_ROW_NS) / SECOND_NS / HOUR * HOUR;
            let from = request.from.map_or(first, |from| from.max(first));
            let end = to_ns / SECOND_NS + 1;
            missing(from, request.to.map_or(end, |to| to.min(end)), before.windows())
        });
        // Times that Parquet has not are nobody's.
        let windows = windows.into_iter().filter_map(|(from, to)| Window::new(from, to).ok()).collect();
        Ok(Self { store, parts, tracks, out: out.to_owned(), windows })
    }

    /// Windows that are to be written, the oldest first.
    #[must_use]
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Writes the file of a window; when this returns it is durable.
    ///
    /// # Errors
    /// [`StoreError`]; there is nothing of the file then.
    pub fn write(&self, window: Window) -> Result<Exported, StoreError> {
        let mut sink = Sink { out: &self.out, window, writer: None, gaps: HashSet::new(), damaged: Vec::new() };
        let written = self.fill(&mut sink).and_then(|()| sink.writer.take().map(cold::Writer::finish).transpose());
        if written.is_err() {
            // Its room is wanted.
            let _ = Cold::open(&self.out);
        }
        Ok(Exported { written: written?, damaged: sink.damaged })
    }

    fn fill(&self, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        let is_near = |of: Extent, window: Window| {
            let from_ns = of.from_ns.saturating_sub(BEFORE_ROW_NS);
            window.touches(from_ns, of.to_ns)
        };
        for part in &self.parts {
            if !self.tracks[&part.track].extent.is_some_and(|extent| is_near(extent, sink.window)) {
                continue;
            }
            let damaged = if part.is_table { self.table(part, sink)? } else { self.part(part, sink)? };
            for gap in damaged {
                sink.gap(part, &gap)?;
                if !sink.damaged.contains(&gap) {
                    sink.damaged.push(gap);
                }
            }
        }
        let (from_ns, to_ns) = sink.span_ns();
        for (id, track) in &self.tracks {
            for gap in self.store.all_gaps(*id, from_ns, to_ns) {
                track.parts.iter().try_for_each(|part| sink.gap(&self.parts[*part], &gap))?;
            }
        }
        Ok(())
    }

    /// Samples of a part of a track that is no table.
    fn part(&self, part: &PartOf, sink: &mut Sink<'_>) -> Result<Vec<Gap>, StoreError> {
        let track = self.store.track(part.track);
        let Some((named, layout)) = track.and_then(|track| Some((track.part(part.number)?, track.layout))) else {
            return Ok(Vec::new());
        };
        let placed = &layout.parts()[part.number as usize];
        let words: Vec<usize> = (placed.at..placed.at + placed.part.width()).collect();
        let wanted = Columns { words, ..named.columns.clone() };
        let (mut block, mut outcome) = (Block::default(), Ok(()));
        let (from_ns, to_ns) = sink.span_ns();
        let damaged = self.store.read(&wanted, from_ns, to_ns, |time_ns, words| {
            block.push(time_ns, words);
            if block.words.len() >= BLOCK_WORDS {
                outcome = sink.push(&named, placed.at, &mut block);
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
        sink.push(&named, placed.at, &mut block)?;
        Ok(damaged)
    }

    /// Samples of all lines of a table.
    fn table(&self, part: &PartOf, sink: &mut Sink<'_>) -> Result<Vec<Gap>, StoreError> {
        let Some(track) = self.store.track(part.track) else { return Ok(Vec::new()) };
        let (mut lines, mut words_in_lines, mut outcome) = (BTreeMap::<Line, Block>::new(), 0, Ok(()));
        let (from_ns, to_ns) = sink.span_ns();
        let mut flush = |lines: &mut BTreeMap<Line, Block>| {
            std::mem::take(lines).into_iter().try_for_each(|(line, mut block)| {
                track.line(line).map_or(Ok(()), |named| sink.push(&named, 0, &mut block))
            })
        };
        let damaged = self.store.rows(part.track, from_ns, to_ns, |line, time_ns, words| {
            lines.entry(line).or_default().push(time_ns, words);
            words_in_lines += words.len() + 1;
            if words_in_lines >= BLOCK_WORDS {
                outcome = flush(&mut lines);
                words_in_lines = 0;
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
        flush(&mut lines)?;
        Ok(damaged)
    }
}

/// Puts parts into the order in which they are written: some hosts' together, and of these the same ones side by side.
fn sort(parts: &mut [PartOf], tracks: &BTreeMap<TrackId, Track>) {
    let mut hosts: BTreeMap<&str, u64> = BTreeMap::new();
    for part in parts.iter().filter(|part| !part.is_table) {
        let Some(Extent { rows, from_ns, to_ns }) = tracks[&part.track].extent else { continue };
        let an_hour = u128::from(rows) * u128::from(HOUR * SECOND_NS) / u128::from((to_ns - from_ns).max(SECOND_NS));
        let times = hosts.entry(&part.instance).or_default();
        *times = u64::try_from(an_hour).unwrap_or(u64::MAX).max(*times);
    }
    let (mut together, mut times) = (0, 0u64);
    let number = |(host, of_host): (&str, u64)| {
        if times >= TIMES_TOGETHER {
            (together, times) = (together + 1, 0);
        }
        times = times.saturating_add(of_host);
        (host.to_owned(), together)
    };
    let numbers: HashMap<String, u32> = hosts.into_iter().map(number).collect();
    parts.sort_by_cached_key(|part| {
        let together = numbers.get(&part.instance).copied().unwrap_or(u32::MAX);
        (together, part.region.clone(), part.id, part.track, part.number)
    });
}

/// Rows with the same columns, one behind the other.
#[derive(Default)]
struct Block {
    times_ns: Vec<u64>,
    words: Vec<u64>,
}

impl Block {
    fn push(&mut self, time_ns: u64, words: &[u64]) {
        self.times_ns.push(time_ns);
        self.words.extend_from_slice(words);
    }
}

/// The file of a window, made when there is something for it.
struct Sink<'a> {
    out: &'a Path,
    window: Window,
    writer: Option<cold::Writer>,
    /// What was told of: a gap of a host is one of each of its tracks.
    gaps: HashSet<GapData>,
    damaged: Vec<Gap>,
}

impl Sink<'_> {
    /// The first ns, and the last.
    fn span_ns(&self) -> (u64, u64) {
        (self.window.from_ns(), self.window.to_ns() - 1)
    }

    fn writer(&mut self) -> Result<&mut cold::Writer, StoreError> {
        if self.writer.is_none() {
            self.writer = Some(cold::Writer::create(self.out, self.window)?);
        }
        Ok(self.writer.as_mut().expect("it was made just now"))
    }

    /// Takes the rows out of a block; `first` is the word of the row that its first column is.
    fn push(&mut self, named: &Named, first: usize, block: &mut Block) -> Result<(), StoreError> {
        let rows = block.times_ns.len();
        if rows == 0 {
            return Ok(());
        }
        let width = block.words.len() / rows;
        let column = |at: usize| block.words.iter().skip(at).step_by(width).copied().collect();
        let columns: Vec<Vec<u64>> = (0..width).map(column).collect();
        let columns: Vec<&[u64]> = columns.iter().map(Vec::as_slice).collect();
        push_series(self.writer()?, named, &block.times_ns, &columns, first)?;
        *block = Block::default();
        Ok(())
    }

    /// Takes what of a gap is in the window.
    fn gap(&mut self, part: &PartOf, gap: &Gap) -> Result<(), StoreError> {
        let Some(gap) = told(part, gap, self.span_ns()) else { return Ok(()) };
        if self.gaps.insert(gap.clone()) {
            self.writer()?.gap(gap);
        }
        Ok(())
    }
}

/// Makes sure that the directory is one for this export, and notes that it is.
fn note(request: &Request<'_>) -> Result<(), ExportError> {
    let whole = |path: &Path| fs::canonicalize(path).map_err(io_error("find", path));
    let (store, out) = (whole(request.store)?, whole(request.out)?);
    let taken = |has: String| ExportError::Taken { dir: request.out.to_owned(), has };
    if store == out {
        return Err(taken("the store itself, where a controller keeps cold files of its own".to_owned()));
    }
    let wanted = Note { store, host: request.host.map(str::to_owned) };
    let path = out.join(NOTE);
    match fs::read(&path) {
        Ok(bytes) => match serde_json::from_slice::<Note>(&bytes) {
            Ok(note) if note == wanted => Ok(()),
            Ok(Note { store, host }) => {
                let whom = host.map_or_else(|| "all hosts".to_owned(), |host| format!("host `{host}`"));
                Err(taken(format!("an export of {whom} of {}", store.display())))
            }
            Err(_) => Err(taken(format!("a {NOTE} that no export has written"))),
        },
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("read", &path)(error).into()),
        Err(_) if !cold::look::list(&out)?.0.is_empty() => {
            Err(taken("cold files that no export has written".to_owned()))
        }
        Err(_) => {
            let bytes = serde_json::to_vec_pretty(&wanted).map_err(|error| io_error("write", &path)(error.into()))?;
            files::write_whole(&path, &bytes)?;
            Ok(())
        }
    }
}

/// Hours, or pieces of them, between two seconds, that no window covers.
fn missing(from: u64, to: u64, covered: impl Iterator<Item = Window>) -> Vec<(u64, u64)> {
    let mut covered: Vec<_> = covered.map(|of| (of.from_ns() / SECOND_NS, of.to_ns() / SECOND_NS)).collect();
    covered.sort_unstable();
    covered.push((to, to));
    let (mut left, mut at) = (Vec::new(), from);
    for (begin, end) in covered {
        while at < begin.min(to) {
            let next = ((at / HOUR + 1) * HOUR).min(begin).min(to);
            left.push((at, next));
            at = next;
        }
        at = at.max(end);
    }
    left
}
