// SPDX-License-Identifier: Apache-2.0
//! Reads all of a store: every checksum, every chunk, every row of the log, every page of cold files.
//!
//! What is wrong with one file does not keep the others from being read. Memory is that of the catalogue and of the
//! heads that the log has, as in a controller. Cost: 2 ns a value, where rows are wide.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use super::log::{Heads, values};
use super::{Finding, Weight};
use crate::catalogue::{self, Known};
use crate::chunk::{Chunk, Head};
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::files::open_to_read;
use crate::framing::{self, Found, Reader, Record};
use crate::wal::{self, Entry, Source};
use crate::{cold, gaps, warm};

/// How often, and after how long, twins of which one is longer are looked at again: their owner writes to both.
const TWIN_ATTEMPTS: usize = 4;
const TWIN_PAUSE: Duration = Duration::from_millis(50);

/// What reading all of a store has found.
#[derive(Debug, Default)]
pub struct Verified {
    /// Files that were read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks that are whole.
    pub chunks: u64,
    /// Records of the log that are.
    pub records: u64,
    /// Row groups of cold files that are.
    pub groups: u64,
    /// Rows of these chunks and records, samples of these row groups.
    pub rows: u64,
    /// Their values.
    pub values: u64,
    /// Rows whose track the catalogue does not have: it was forgotten with the last of its rows, or is newer than the
    /// look at the catalogue.
    pub unknown_rows: u64,
    /// Bytes that are not what they should be.
    pub findings: Vec<Finding>,
    /// Files that could not be read.
    pub unread: Vec<StoreError>,
}

impl Verified {
    /// Whether nothing is damaged: a write that was not ended is no damage.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.weight == Weight::Unfinished)
    }
}

struct Verifier<'a> {
    dir: &'a Path,
    /// Bytes that are done, and all.
    progress: &'a mut dyn FnMut(u64, u64),
    done: u64,
    all: u64,
    verified: Verified,
}

/// Reads all of the store in `dir`. `progress` is told how many bytes of how many are done.
///
/// # Errors
/// [`StoreError::Version`]: it is another version's. [`StoreError::Io`]: there is none, or its catalogue cannot be
/// read.
pub fn verify(dir: &Path, mut progress: impl FnMut(u64, u64)) -> Result<Verified, StoreError> {
    let progress = &mut progress;
    let mut verifier = Verifier { dir, progress, done: 0, all: 0, verified: Verified::default() };
    let segments = wal::look::hold(dir)?;
    let warm = warm::look::list(dir)?;
    let (cold, left) = cold::look::list(dir)?;
    let pairs = catalogue::look::pairs(dir)?;
    let gaps = gaps::path(dir);
    let small = pairs.as_flattened().iter().chain(segments.iter().map(|segment| &segment.path)).chain([&gaps]);
    let sizes = small.chain(warm.iter().map(|named| &named.path)).map(|path| size(path));
    verifier.all = sizes.sum::<u64>() + cold.iter().map(cold::look::Named::bytes).sum::<u64>();
    let known = verifier.catalogue(&pairs)?;
    verifier.gaps(&gaps)?;
    verifier.log(&segments, &known)?;
    warm.iter().try_for_each(|named| verifier.chunks(named, &known))?;
    cold.iter().try_for_each(|named| verifier.cold(named))?;
    for path in warm::look::left(dir)?.into_iter().chain(left) {
        let bytes = size(&path);
        let what = "what a writer that was killed has left; the next one removes it";
        verifier.find(Finding::new(path, (0, bytes), what, Weight::Unfinished));
    }
    Ok(verifier.verified)
}

/// 0 for what is not there any more.
fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Records of a file of framed records.
#[derive(Default)]
struct Walked {
    /// Bytes that are no records.
    damaged: Vec<framing::Damaged>,
    /// Records that are what was written, and make no sense.
    wrong: Vec<((u64, u64), Damage)>,
    mended: Vec<(u64, u64)>,
}

/// Reads every record of a file, and asks what is wrong with it.
fn walk(
    file: &File,
    path: &Path,
    mut check: impl FnMut(&Record<'_>) -> Result<(), Damage>,
) -> Result<Walked, StoreError> {
    let mut walked = Walked::default();
    let mut reader = Reader::new(file).map_err(io_error("read", path))?;
    while let Some(found) = reader.next().map_err(io_error("read", path))? {
        match found {
            Found::Record(record) => {
                let (offset, bytes) = (record.offset, record.payload.len() as u64);
                if record.is_mended {
                    walked.mended.push((offset, bytes));
                }
                if let Err(damage) = check(&record) {
                    walked.wrong.push(((offset, bytes), damage));
                }
            }
            Found::Damaged(damaged) => walked.damaged.push(damaged),
        }
    }
    Ok(walked)
}

const FLIPPED: &str = "a bit has flipped; readers put it right";

impl Verifier<'_> {
    fn find(&mut self, finding: Finding) {
        self.verified.findings.push(finding);
    }

    fn find_walked(&mut self, path: &Path, walked: Walked, weight: impl Fn(&framing::Damaged) -> Weight) {
        for damaged in walked.damaged {
            let place = (damaged.offset, damaged.bytes);
            self.find(Finding::of(path.to_owned(), place, damaged.damage, weight(&damaged)));
        }
        for (place, damage) in walked.wrong {
            self.find(Finding::of(path.to_owned(), place, damage, Weight::Lost));
        }
        for place in walked.mended {
            self.find(Finding::new(path.to_owned(), place, FLIPPED, Weight::Mended));
        }
    }

    /// A file is done. Another version's is an error of the whole store; what else is wrong with one is kept for later.
    fn done(&mut self, bytes: u64, outcome: Result<(), StoreError>) -> Result<(), StoreError> {
        match outcome {
            Ok(()) => self.verified.files += 1,
            Err(error @ StoreError::Version { .. }) => return Err(error),
            Err(error) => self.verified.unread.push(error),
        }
        self.verified.bytes += bytes;
        self.done += bytes;
        // Files grow while they are read.
        (self.progress)(self.done.min(self.all), self.all);
        Ok(())
    }

    fn catalogue(&mut self, pairs: &[[PathBuf; 2]]) -> Result<Known, StoreError> {
        let (known, found) = catalogue::look::read(self.dir)?;
        for (path, damaged) in &found.damaged {
            let twin = twin_of(pairs, path);
            let end = damaged.offset + damaged.bytes;
            let is_hit = |(of, other): &(PathBuf, framing::Damaged)| {
                Some(of) == twin && other.offset < end && damaged.offset < other.offset + other.bytes
            };
            let has_twin = twin.is_some_and(|twin| size(twin) > damaged.offset) && !found.damaged.iter().any(is_hit);
            let weight = match (has_twin, damaged.is_torn) {
                (true, _) => Weight::Mended,
                (false, true) => Weight::Unfinished,
                (false, false) => Weight::Lost,
            };
            self.find(Finding::of(path.clone(), (damaged.offset, damaged.bytes), damaged.damage, weight));
        }
        if found.unusable_items > 0 {
            let what = format!("{} definitions refer to what is missing", found.unusable_items);
            self.find(Finding::new(self.dir.join("catalogue"), (0, 0), what, Weight::Lost));
        }
        for path in pairs.as_flattened() {
            let Some(file) = open_to_read(path)? else { continue };
            let walked = walk(&file, path, |_| Ok(()));
            // What is damaged was found when it was read.
            let outcome = walked.map(|walked| {
                self.find_walked(path, Walked { mended: walked.mended, ..Walked::default() }, |_| Weight::Lost);
            });
            self.done(size(path), outcome)?;
        }
        if let [before @ .., newest] = pairs {
            self.twins(newest, before.is_empty());
        }
        Ok(known)
    }

    /// Whether both files of the newest pair are there, and as long.
    fn twins(&mut self, pair: &[PathBuf; 2], is_only: bool) {
        for attempt in 1..=TWIN_ATTEMPTS {
            let sizes = pair.each_ref().map(|path| fs::metadata(path).ok().map(|metadata| metadata.len()));
            let (short, long) = if sizes[0] < sizes[1] { (0, 1) } else { (1, 0) };
            match (sizes[short], sizes[long]) {
                (short, long) if short == long => return,
                _ if attempt < TWIN_ATTEMPTS => sleep(TWIN_PAUSE),
                (None, _) if !is_only => {
                    // The pair before has what a new one lacks until it is whole.
                    let path = pair[long].clone();
                    self.find(Finding::new(path, (0, 0), "its twin was not written yet", Weight::Unfinished));
                }
                (None, Some(bytes)) => {
                    let path = pair[short].clone();
                    self.find(Finding::new(path, (0, bytes), "it is missing; its twin has all", Weight::Mended));
                }
                (Some(at), Some(end)) => {
                    let path = pair[short].clone();
                    self.find(Finding::new(path, (at, end - at), "its twin is longer, and has all", Weight::Mended));
                }
                (Some(_), None) | (None, None) => {}
            }
        }
    }

    fn gaps(&mut self, path: &Path) -> Result<(), StoreError> {
        let Some(file) = open_to_read(path)? else { return Ok(()) };
        let walked = walk(&file, path, |record| gaps::check(record.kind, record.payload));
        let weight = |damaged: &framing::Damaged| if damaged.is_torn { Weight::Unfinished } else { Weight::Lost };
        let outcome = walked.map(|walked| self.find_walked(path, walked, weight));
        self.done(size(path), outcome)
    }

    fn log(&mut self, segments: &[wal::look::Held], known: &Known) -> Result<(), StoreError> {
        let mut log = Log { heads: Heads::new(known), rows: 0, values: 0, wrong: Vec::new() };
        let found = match wal::look::replay(segments, |source, entry| log.take(*source, &entry)) {
            Err(error @ StoreError::Io { .. }) => {
                self.verified.unread.push(error);
                wal::Recovery::default()
            }
            found => found?,
        };
        let Log { heads, rows, values, wrong } = log;
        self.verified.records += found.records;
        self.verified.rows += rows;
        self.verified.values += values;
        self.verified.unknown_rows += heads.unknown_rows;
        // That anything was lost shows in the numbers of records and heads that follow.
        let is_lossless = found.lost_records == 0 && found.lost_rows == 0;
        let weight = |damaged: &framing::Damaged| match (is_lossless, damaged.is_torn) {
            (true, true) => Weight::Unfinished,
            (true, false) => Weight::Mended,
            (false, _) => Weight::Lost,
        };
        let no_memory = io_error("take memory for unpacking", self.dir);
        let mut checker = wal::look::Checker::new().map_err(no_memory)?;
        for segment in segments {
            let walked = walk(&segment.file, &segment.path, |record| checker.check(segment.number, record));
            let outcome = walked.map(|walked| self.find_walked(&segment.path, walked, weight));
            self.done(size(&segment.path), outcome)?;
        }
        for pair in segments.windows(2) {
            let [before, after] = pair else { continue };
            // However many they are by their numbers.
            let missing = after.number.saturating_sub(before.number + 1);
            if missing > 0 {
                let path = before.path.with_file_name(format!("{:010}.wal", before.number + 1));
                let others =
                    if missing > 1 { format!(", and so are {} behind it", missing - 1) } else { String::new() };
                self.find(Finding::new(path, (0, 0), format!("it is missing{others}"), Weight::Lost));
            }
        }
        for (source, damage) in wrong {
            let Some(segment) = segments.iter().find(|segment| segment.number == source.segment) else { continue };
            let offset = wal::look::offset_of(segment, &source)?.unwrap_or(0);
            self.find(Finding::of(segment.path.clone(), (offset, 0), damage, Weight::Lost));
        }
        Ok(())
    }

    fn chunks(&mut self, named: &warm::look::Named, known: &Known) -> Result<(), StoreError> {
        let (mut advanced, start) = (0, self.done);
        let checked = warm::look::check(named, |bytes| {
            advanced += bytes.len() as u64;
            (self.progress)((start + advanced).min(self.all), self.all);
            let verified = &mut self.verified;
            Chunk::check(bytes)?;
            let head = Head::parse(bytes)?;
            match known.layout_of(head.track) {
                Some(layout) if head.bucket_s == 0 && layout.kinds().len() != head.columns => {
                    return Err(Damage::Wrong("the number of columns: the catalogue has another for its track"));
                }
                Some(layout) => verified.values += head.rows as u64 * values(layout),
                None => verified.unknown_rows += head.rows as u64,
            }
            verified.chunks += 1;
            verified.rows += head.rows as u64;
            Ok(())
        });
        let outcome = checked.map(|checked| {
            let warm::look::Checked { damaged, unfinished } = checked.unwrap_or_default();
            for (all, weight) in [(damaged, Weight::Lost), (unfinished, Weight::Unfinished)] {
                for damaged in all {
                    self.find(Finding::of(damaged.path, (damaged.offset, damaged.bytes), damaged.damage, weight));
                }
            }
        });
        self.done(size(&named.path), outcome)
    }

    fn cold(&mut self, named: &cold::look::Named) -> Result<(), StoreError> {
        let (mut advanced, start) = (0, self.done);
        let checked = cold::look::check(named, |bytes| {
            advanced += bytes;
            (self.progress)((start + advanced).min(self.all), self.all);
        });
        let outcome = checked.map(|checked| {
            let cold::look::Checked { groups, rows, damaged, mended } = checked.unwrap_or_default();
            self.verified.groups += groups;
            self.verified.rows += rows;
            self.verified.values += rows;
            for (all, weight) in [(damaged, Weight::Lost), (mended, Weight::Mended)] {
                for damaged in all {
                    self.find(Finding::of(damaged.path, (damaged.offset, damaged.bytes), damaged.damage, weight));
                }
            }
        });
        self.done(named.bytes(), outcome)
    }
}

/// The other file of a pair.
fn twin_of<'p>(pairs: &'p [[PathBuf; 2]], path: &Path) -> Option<&'p PathBuf> {
    pairs.iter().find_map(|[one, other]| match () {
        () if one == path => Some(other),
        () if other == path => Some(one),
        () => None,
    })
}

/// Rows of the log while they are looked at.
struct Log<'a> {
    heads: Heads<'a>,
    rows: u64,
    values: u64,
    wrong: Vec<(Source, Damage)>,
}

impl Log<'_> {
    fn take(&mut self, source: Source, entry: &Entry<'_>) {
        match self.heads.take(entry) {
            Ok(taken) => (self.rows, self.values) = (self.rows + taken.rows, self.values + taken.values),
            Err(damage) => self.wrong.push((source, damage)),
        }
    }
}
