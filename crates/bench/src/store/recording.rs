// SPDX-License-Identifier: Apache-2.0
//! Rows that real agents gave: `record` writes them, `store` and `export` (the bench of the store, and of its peers)
//! read them.
//!
//! All fixed regions of a host's agent are one row a reading; each region of a program has rows of its own; of tables
//! the rows that have changed. The file is compressed as a whole (zstd), its numbers are little-endian:
//!
//! ```text
//! "ONLKROWS"
//! version       u32, 1
//! length        u64, of the head
//! head          JSON: the interval, each part once, tracks with their parts and the labels of their lines
//! rows          until the end, in the order of readings: reading u32, track u32, line u32, time ns u64, words u64 each, as many as the track's layout has
//! ```
//! Infos have no words. What no reading has brought yet is 0, and so is its part's time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use onlooker_framestore::layout::{Layout, Part, Placed};
use onlooker_series::series::{Series, labels_of};
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"ONLKROWS";
const VERSION: u32 = 1;
/// Bytes of a row before its words.
const ROW_HEAD: usize = 20;

pub(crate) type Labels = Vec<(String, String)>;

/// Rows of one layout of one host.
#[derive(Clone)]
pub(crate) struct Track {
    /// Number of the host.
    pub(crate) host: u32,
    /// 0: the host's agent; else the identity word of a region.
    pub(crate) source: u64,
    /// Labels of the region.
    pub(crate) labels: Labels,
    pub(crate) layout: Arc<Layout>,
    /// Labels of each line of a table; of a fixed track's only line there are none.
    pub(crate) lines: Arc<[Labels]>,
}

/// A row without its words ([`Recording::words`]).
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) reading: u32,
    pub(crate) track: u32,
    pub(crate) line: u32,
    /// UTC.
    pub(crate) time_ns: u64,
    at: usize,
}

/// Part of a row that the row before had not.
pub(crate) struct New<'a> {
    pub(crate) row: Row,
    pub(crate) part: &'a Placed,
    pub(crate) time_ns: u64,
    pub(crate) words: &'a [u64],
    /// As many words of the row before, whatever its line; none before the first.
    pub(crate) before: &'a [u64],
}

#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) interval_ns: u64,
    pub(crate) tracks: Vec<Track>,
    pub(crate) rows: Vec<Row>,
    words: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    interval_ns: u64,
    parts: Vec<Part>,
    tracks: Vec<HeadTrack>,
}

#[derive(Serialize, Deserialize)]
struct HeadTrack {
    host: u32,
    source: u64,
    labels: Labels,
    is_table: bool,
    /// Places in the head's list.
    parts: Vec<usize>,
    lines: Vec<Labels>,
}

impl Recording {
    pub(crate) fn new(interval_ns: u64) -> Self {
        Self { interval_ns, ..Self::default() }
    }

    /// # Panics
    /// If these are not as many words as the track's layout has.
    pub(crate) fn push(&mut self, reading: u32, track: u32, line: u32, time_ns: u64, words: &[u64]) {
        assert_eq!(words.len(), self.tracks[track as usize].layout.kinds().len());
        self.rows.push(Row { reading, track, line, time_ns, at: self.words.len() });
        self.words.extend(words);
    }

    pub(crate) fn layout(&self, row: &Row) -> &Layout {
        &self.tracks[row.track as usize].layout
    }

    pub(crate) fn words(&self, row: &Row) -> &[u64] {
        &self.words[row.at..][..self.layout(row).kinds().len()]
    }

    pub(crate) fn hosts(&self) -> u32 {
        self.tracks.iter().map(|track| track.host + 1).max().unwrap_or(0)
    }

    /// Number of readings, those that failed included.
    pub(crate) fn readings(&self) -> u32 {
        self.rows.last().map_or(0, |row| row.reading + 1)
    }

    /// Hands over, row by row, what is new: of a row with several parts those whose time has moved.
    pub(crate) fn news<'a>(&'a self, mut give: impl FnMut(New<'a>)) {
        let mut before: Vec<&[u64]> = vec![&[]; self.tracks.len()];
        for row in &self.rows {
            let words = self.words(row);
            let before = std::mem::replace(&mut before[row.track as usize], words);
            for part in self.layout(row).parts() {
                let time_ns = part.time.map_or(row.time_ns, |at| words[at]);
                let is_new = part.time.is_none_or(|at| words[at] != before.get(at).copied().unwrap_or(0));
                if is_new {
                    let range = part.at..part.at + part.part.width();
                    let before = before.get(range.clone()).unwrap_or(&[]);
                    give(New { row: *row, part, time_ns, words: &words[range], before });
                }
            }
        }
    }

    /// All labels of a series, as the controller gives them; without texts.
    pub(crate) fn labels(&self, new: &New<'_>, series: &Series) -> Labels {
        let track = &self.tracks[new.row.track as usize];
        let common = BTreeMap::from([("instance".to_owned(), format!("host-{:05}", track.host))]);
        let line = track.lines.get(new.row.line as usize).into_iter().flatten().cloned();
        let own = line.chain(series.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()))).collect();
        labels_of(&common, &track.labels, own, series.metric)
    }

    /// Values that are new in their rows: what a store is given, however wide its rows are.
    pub(crate) fn values(&self) -> u64 {
        let mut values = 0;
        self.news(|new| values += new.words.len() as u64);
        values
    }

    /// Those of them that are not as before.
    pub(crate) fn changed(&self) -> u64 {
        let mut changed = 0;
        self.news(|new| {
            let differs = |at: &usize| new.before.get(*at) != Some(&new.words[*at]);
            changed += (0..new.words.len()).filter(differs).count() as u64;
        });
        changed
    }

    /// At least `hosts` hosts for at most `rounds` readings: those that were recorded under other names, each time
    /// another piece of the recording.
    pub(crate) fn replayed(&self, hosts: u32, rounds: u32) -> Self {
        let (recorded, all) = (self.hosts(), self.readings());
        let copies = hosts.div_ceil(recorded.max(1)).max(1);
        // Pieces may overlap, but for that they begin at different times.
        let window = rounds.min(if copies > 1 { all.div_ceil(2) } else { all });
        let phase = |copy: u32| u64::from(all - window) * u64::from(copy) / u64::from(copies.max(2) - 1);
        let begins: Vec<usize> =
            (0..=u64::from(all)).map(|at| self.rows.partition_point(|row| u64::from(row.reading) < at)).collect();
        let mut replayed = Self::new(self.interval_ns);
        for copy in 0..copies {
            replayed
                .tracks
                .extend(self.tracks.iter().cloned().map(|track| Track { host: track.host + copy * recorded, ..track }));
        }
        let tracks = u32::try_from(self.tracks.len()).unwrap_or(u32::MAX);
        let mut shifted = Vec::new();
        for round in 0..window {
            for copy in 0..copies {
                let begin = usize::try_from(phase(copy) + u64::from(round)).unwrap_or(0);
                let earlier_ns = phase(copy) * self.interval_ns;
                let later_ns = self.interval_ns * u64::from(copy) / u64::from(copies);
                let shift = |time_ns: u64| if time_ns == 0 { 0 } else { time_ns - earlier_ns + later_ns };
                for row in &self.rows[begins[begin]..begins[begin + 1]] {
                    shifted.clear();
                    shifted.extend(self.words(row));
                    let times = self.layout(row).parts().iter().filter_map(|part| part.time);
                    times.for_each(|at| shifted[at] = shift(shifted[at]));
                    replayed.push(round, row.track + copy * tracks, row.line, shift(row.time_ns), &shifted);
                }
            }
        }
        replayed
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut parts = Vec::new();
        let mut places = std::collections::HashMap::new();
        let mut place = |placed: &Placed| {
            *places.entry(placed.id).or_insert_with(|| {
                parts.push((*placed.part).clone());
                parts.len() - 1
            })
        };
        let track = |track: &Track| HeadTrack {
            host: track.host,
            source: track.source,
            labels: track.labels.clone(),
            is_table: track.layout.is_table(),
            parts: track.layout.parts().iter().map(&mut place).collect(),
            lines: track.lines.to_vec(),
        };
        let tracks = self.tracks.iter().map(track).collect();
        let head = serde_json::to_vec(&Head { interval_ns: self.interval_ns, parts, tracks })?;
        let mut file = BufWriter::new(zstd::Encoder::new(File::create(path)?, 1)?);
        file.write_all(&MAGIC)?;
        file.write_all(&VERSION.to_le_bytes())?;
        file.write_all(&(head.len() as u64).to_le_bytes())?;
        file.write_all(&head)?;
        for row in &self.rows {
            [row.reading, row.track, row.line].iter().try_for_each(|number| file.write_all(&number.to_le_bytes()))?;
            file.write_all(&row.time_ns.to_le_bytes())?;
            file.write_all(bytemuck::cast_slice(self.words(row)))?;
        }
        file.into_inner().map_err(std::io::IntoInnerError::into_error)?.finish()?;
        Ok(())
    }

    pub(crate) fn read(path: &Path) -> Result<Self> {
        Self::read_from(path).with_context(|| path.display().to_string())
    }

    fn read_from(path: &Path) -> Result<Self> {
        let mut file = BufReader::with_capacity(1 << 20, zstd::Decoder::new(File::open(path)?)?);
        let mut start = [0; 20];
        file.read_exact(&mut start)?;
        if start[..8] != MAGIC || start[8..12] != VERSION.to_le_bytes() {
            bail!("no recording of this version: remove it, and it is made anew");
        }
        let length = u64::from_le_bytes(std::array::from_fn(|at| start[12 + at]));
        let mut head = Vec::new();
        file.by_ref().take(length).read_to_end(&mut head)?;
        let Head { interval_ns, parts, tracks } = serde_json::from_slice(&head)?;
        let parts: Vec<_> = parts.into_iter().map(|part| (part.content().0, Arc::new(part))).collect();
        let track = |HeadTrack { host, source, labels, is_table, parts: places, lines }| {
            let parts: Option<Vec<_>> = places.iter().map(|at: &usize| parts.get(*at).cloned()).collect();
            parts.map(|parts| Track {
                host,
                source,
                labels,
                layout: Arc::new(Layout::new(parts, is_table)),
                lines: lines.into(),
            })
        };
        let tracks: Option<Vec<_>> = tracks.into_iter().map(track).collect();
        let tracks = tracks.context("a track of a part that is not there")?;
        let mut recording = Self { tracks, ..Self::new(interval_ns) };
        recording.read_rows(&mut file)?;
        Ok(recording)
    }

    fn read_rows(&mut self, file: &mut impl Read) -> Result<()> {
        let (mut head, mut words) = (Vec::new(), Vec::new());
        loop {
            head.clear();
            file.by_ref().take(ROW_HEAD as u64).read_to_end(&mut head)?;
            if head.is_empty() {
                return Ok(());
            }
            let head: &[u8; ROW_HEAD] = head.as_slice().try_into().context("its last row is cut")?;
            let [reading, track, line] =
                [0, 4, 8].map(|at| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte])));
            let time_ns = u64::from_le_bytes(std::array::from_fn(|byte| head[12 + byte]));
            let layout = &self.tracks.get(track as usize).context("a row of a track that is not there")?.layout;
            words.resize(layout.kinds().len(), 0u64);
            file.read_exact(bytemuck::cast_slice_mut(&mut words))?;
            self.push(reading, track, line, time_ns, &words);
        }
    }
}
