// SPDX-License-Identifier: Apache-2.0
//! All cold files of a directory: which series are in them, and their samples, word for word as they were given.
//!
//! Nothing of a file is read before somebody asks for its times. The last few files that were asked for stay open, with
//! their indexes; a row group is decoded once for all series that are wanted of it. Cost: a row group, some 4 ns a row
//! of it, however little is wanted.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use onlooker_region::histogram::Shape;
use onlooker_series::series::Form;

use super::index::{Described, Entry, Index, Run, split_labels};
use super::names::Window;
use super::source::{Columns, Source};
use super::write::{Written, write_index};
use super::{GapData, damaged};
use crate::damage::{Damage, StoreError, io_error};

/// Files that stay open.
const MAX_OPEN: usize = 8;

/// Samples of a series, in the order of their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// UTC, ns.
    pub times_ns: Vec<u64>,
    /// Its words, each as long as the times: one, or a histogram's buckets and sum.
    pub words: Vec<Vec<u64>>,
}

/// What [`Cold::open`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Files of samples.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files that a kill had left before they were whole, or without what they belong to: removed.
    pub removed: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    window: Window,
    number: u32,
}

struct Loaded {
    source: Source,
    index: Index,
}

type Shared<T> = Mutex<VecDeque<(Name, Arc<T>)>>;

/// The cold files of a store.
pub struct Cold {
    dir: PathBuf,
    /// Oldest first.
    files: Vec<Name>,
    open: Shared<Loaded>,
}

impl Cold {
    /// Those in `<dir>/cold`, without what a kill has left.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(dir: &Path) -> Result<(Self, Opened), StoreError> {
        let mut cold = Self { dir: dir.join("cold"), files: Vec::new(), open: Mutex::default() };
        let mut removed = 0;
        let names = listed(&cold.dir)?;
        let whole = names.iter().filter_map(|name| name.strip_suffix(".parquet").and_then(Window::parse));
        cold.files = whole.map(|(window, number)| Name { window, number }).collect();
        cold.files.sort();
        let gaps = cold.dir.join("gaps");
        let of_gaps = listed(&gaps)?;
        let all = names.iter().map(|name| (&cold.dir, name)).chain(of_gaps.iter().map(|name| (&gaps, name)));
        for (dir, name) in all {
            // Whatever has no name of ours is somebody else's.
            let Some((stem, ending)) = name.split_once('.').filter(|(stem, _)| Window::parse(stem).is_some()) else {
                continue;
            };
            if ending.ends_with("tmp") || !names.contains(&format!("{stem}.parquet")) {
                let path = dir.join(name);
                fs::remove_file(&path).map_err(io_error("remove", &path))?;
                removed += 1;
            }
        }
        let opened = Opened { files: cold.files.len(), bytes: cold.bytes()?, removed };
        Ok((cold, opened))
    }

    /// Takes a file that has been written since.
    pub fn add(&mut self, written: &Written) {
        let name = written.path.file_stem().and_then(|stem| stem.to_str()).and_then(Window::parse);
        if let Some((window, number)) = name {
            self.files.push(Name { window, number });
            self.files.sort();
            self.files.dedup();
        }
    }

    /// Windows of its files, oldest first.
    pub fn windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.files.iter().map(|file| file.window)
    }

    /// Bytes of all files, gaps and indexes included.
    ///
    /// # Errors
    /// What the system says.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        let bytes = |path: &PathBuf| match fs::metadata(path) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(io_error("look at", path)(error)),
        };
        self.files.iter().flat_map(|file| self.paths(file)).map(|path| bytes(&path)).sum()
    }

    /// Removes the oldest file, for want of room or of interest.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove_oldest(&mut self) -> Result<Option<Window>, StoreError> {
        let Some(oldest) = self.files.first().cloned() else { return Ok(None) };
        // The samples first: the others are removed at the next start if they are left alone.
        for path in self.paths(&oldest) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io_error("remove", &path)(error));
                }
                _ => {}
            }
        }
        self.files.remove(0);
        self.open.get_mut().unwrap_or_else(PoisonError::into_inner).retain(|(name, _)| *name != oldest);
        Ok(Some(oldest.window))
    }

    /// Samples, index and gaps.
    fn paths(&self, file: &Name) -> [PathBuf; 3] {
        let name = file.window.name(file.number);
        let path = |dir: &Path, ending: &str| dir.join(&name).with_extension(ending);
        [path(&self.dir, "parquet"), path(&self.dir, "index"), path(&self.dir.join("gaps"), "parquet")]
    }

    fn touching(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Name> {
        self.files.iter().filter(move |file| file.window.touches(from_ns, to_ns))
    }

    fn load(&self, file: &Name) -> Result<Arc<Loaded>, StoreError> {
        let lock = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, loaded)) = lock().iter().find(|(name, _)| name == file) {
            return Ok(loaded.clone());
        }
        let [samples, index, _] = self.paths(file);
        let source = Source::open(&samples)?;
        let index = match fs::read(&index).ok().and_then(|bytes| Index::decode(&bytes).ok()) {
            Some((index, binding)) if binding == source.binding => index,
            // The footer is not the one that was written.
            Some((_, binding)) if binding.bytes == source.binding.bytes => {
                return Err(damaged(&samples, Damage::Checksum));
            }
            _ => {
                let index = source.index()?;
                // Where there is no room for it, it is made again the next time.
                let _ = write_index(&samples, &index, source.binding);
                index
            }
        };
        let loaded = Arc::new(Loaded { source, index });
        let mut open = lock();
        open.truncate(MAX_OPEN - 1);
        open.push_front((file.clone(), loaded.clone()));
        Ok(loaded)
    }

    /// Tells the series of the files that have times between these, both included; one of several files is told for
    /// each.
    ///
    /// # Errors
    /// What the system says, and damage.
    pub fn series(&self, from_ns: u64, to_ns: u64, mut tell: impl FnMut(&Described)) -> Result<(), StoreError> {
        for file in self.touching(from_ns, to_ns) {
            self.load(file)?.index.entries.iter().for_each(|entry| tell(&entry.described));
        }
        Ok(())
    }

    /// Hands over the samples of the wanted series between two times, both included: file by file and row group by row
    /// group, so that a series comes in pieces.
    ///
    /// # Errors
    /// What the system says, and damage; what was handed over before is right.
    pub fn scan(
        &self,
        from_ns: u64,
        to_ns: u64,
        wanted: impl Fn(&Described) -> bool,
        mut give: impl FnMut(&Described, Samples),
    ) -> Result<(), StoreError> {
        for file in self.touching(from_ns, to_ns) {
            let loaded = self.load(file)?;
            let Loaded { source, index } = &*loaded;
            let wanted: Vec<bool> = index.entries.iter().map(|entry| wanted(&entry.described)).collect();
            for runs in index.runs.chunk_by(|a, b| a.group == b.group) {
                let mut by_series: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
                let runs = runs.iter().filter(|run| wanted[run.entry as usize]);
                runs.for_each(|run| by_series.entry(run.entry).or_default().push(run));
                let Some(group) = by_series.values().next().map(|runs| runs[0].group) else { continue };
                let columns = source.columns(group)?;
                for (number, runs) in by_series {
                    let entry = &index.entries[number as usize];
                    let samples = assemble(&columns, entry, &runs, from_ns, to_ns);
                    let samples = samples.map_err(|damage| damaged(&self.paths(file)[0], damage))?;
                    if !samples.times_ns.is_empty() {
                        give(&entry.described, samples);
                    }
                }
            }
        }
        Ok(())
    }

    /// All samples of one series between two times, both included. Where its form has changed between files there is
    /// one answer for each form.
    ///
    /// # Errors
    /// As [`Cold::scan`].
    pub fn read(
        &self,
        name: &str,
        labels: &[(String, String)],
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Vec<(Described, Samples)>, StoreError> {
        let (instance, others) = split_labels(labels);
        let is_it = |of: &Described| &*of.name == name && *of.labels == *others && &*of.instance == instance;
        let mut found: Vec<(Described, Samples)> = Vec::new();
        self.scan(from_ns, to_ns, is_it, |described, mut piece| {
            match found.iter_mut().find(|(known, _)| known.form == described.form) {
                Some((_, samples)) => {
                    samples.times_ns.append(&mut piece.times_ns);
                    samples.words.iter_mut().zip(&mut piece.words).for_each(|(words, more)| words.append(more));
                }
                None => found.push((described.clone(), piece)),
            }
        })?;
        found.iter_mut().for_each(|(_, samples)| sort(samples));
        Ok(found)
    }

    /// Times without samples that touch these, both included.
    ///
    /// # Errors
    /// What the system says, and damage.
    pub fn gaps(&self, from_ns: u64, to_ns: u64) -> Result<Vec<GapData>, StoreError> {
        let mut all = Vec::new();
        for file in self.touching(from_ns, to_ns) {
            let [_, _, path] = self.paths(file);
            if path.exists() {
                let gaps = Source::gaps(&path)?;
                all.extend(gaps.into_iter().filter(|gap| gap.from_ns <= to_ns && gap.to_ns >= from_ns));
            }
        }
        Ok(all)
    }
}

/// Names of the files in a directory, sorted; none where there is no directory.
pub(super) fn listed(dir: &Path) -> Result<std::collections::BTreeSet<String>, StoreError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Default::default()),
        entries => entries.map_err(io_error("list", dir))?,
    };
    let mut names = std::collections::BTreeSet::new();
    for entry in entries {
        let entry = entry.map_err(io_error("list", dir))?;
        let is_file = entry.file_type().map_err(io_error("look at", &entry.path()))?.is_file();
        if let Some(name) = entry.file_name().to_str().filter(|_| is_file) {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

/// Puts the runs of a series in a row group together.
fn assemble(columns: &Columns, entry: &Entry, runs: &[&Run], from_ns: u64, to_ns: u64) -> Result<Samples, Damage> {
    let rows = |run: &Run| (run.first as usize, run.rows as usize);
    let times = |run: &Run| {
        let (first, rows) = rows(run);
        columns.times.get(first..first + rows).ok_or(Damage::Wrong("the rows of a series"))
    };
    let (mut all, mut last) = (Vec::new(), Vec::new());
    for run in runs.iter().filter(|run| run.bucket.is_none()) {
        let (first, rows) = rows(run);
        all.extend_from_slice(times(run)?);
        last.extend(columns.words(first, rows, entry.decimal)?);
    }
    let mut samples = Samples { times_ns: all, words: vec![last] };
    sort(&mut samples);
    if let Form::Histogram(shape) = entry.described.form {
        let sum = samples.words.pop().unwrap_or_default();
        samples.words = vec![vec![0; sum.len()]; shape.buckets()];
        samples.words.push(sum);
        for run in runs {
            let (first, rows) = rows(run);
            let Some(bucket) = run.bucket else { continue };
            put_bucket(&mut samples, shape, bucket, times(run)?, &columns.words(first, rows, None)?)?;
        }
    }
    keep_between(&mut samples, from_ns, to_ns);
    Ok(samples)
}

/// Puts what a bucket counted where its times are.
fn put_bucket(samples: &mut Samples, shape: Shape, bucket: u32, times: &[u64], counts: &[u64]) -> Result<(), Damage> {
    let missing = Damage::Wrong("the times of a histogram");
    let to = samples.words[..shape.buckets()].get_mut(bucket as usize).ok_or(missing)?;
    let mut at = 0;
    let mut rows: Vec<_> = times.iter().zip(counts).collect();
    rows.sort_by_key(|(time, _)| **time);
    for (time, count) in rows {
        at += samples.times_ns[at..].iter().position(|other| other == time).ok_or(missing)?;
        to[at] = *count;
        at += 1;
    }
    Ok(())
}

/// Puts samples in the order of their times, if they are not.
fn sort(samples: &mut Samples) {
    if samples.times_ns.is_sorted() {
        return;
    }
    let mut order: Vec<usize> = (0..samples.times_ns.len()).collect();
    order.sort_by_key(|at| samples.times_ns[*at]);
    for column in std::iter::once(&mut samples.times_ns).chain(&mut samples.words) {
        *column = order.iter().map(|at| column[*at]).collect();
    }
}

fn keep_between(samples: &mut Samples, from_ns: u64, to_ns: u64) {
    let from = samples.times_ns.partition_point(|time| *time < from_ns);
    let to = samples.times_ns.partition_point(|time| *time <= to_ns).max(from);
    for column in std::iter::once(&mut samples.times_ns).chain(&mut samples.words) {
        column.truncate(to);
        column.drain(..from);
    }
}
