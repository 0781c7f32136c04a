// SPDX-License-Identifier: Apache-2.0
//! Reading the cold files of a store that somebody else may be writing: nothing is written here, and nothing locked.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index::{Builder, Index, Run};
use super::names::Window;
use super::read::listed;
use super::source::Source;
use crate::damage::{Damage, StoreError, io_error};
use crate::warm::Damaged;

/// A file of samples, and what is beside it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) window: Window,
    pub(crate) samples: PathBuf,
    index: PathBuf,
    gaps: PathBuf,
}

impl Named {
    /// Bytes of all that there is of it.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |path: &PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
        [&self.samples, &self.index, &self.gaps].into_iter().map(bytes).sum()
    }
}

/// Whether a name, without an ending, may be one of a cold file.
pub(crate) fn is_name(name: &str) -> bool {
    Window::parse(name).is_some()
}

/// Samples, index and gaps of the cold file of a name in the store in `dir`.
pub(crate) fn paths(dir: &Path, name: &str) -> [PathBuf; 3] {
    let cold = dir.join("cold");
    let path = |dir: &Path, ending: &str| dir.join(format!("{name}.{ending}"));
    [path(&cold, "parquet"), path(&cold, "index"), path(&cold.join("gaps"), "parquet")]
}

/// The cold files of the store in `dir`, the oldest first, and what a writer that was killed has left.
pub(crate) fn list(dir: &Path) -> Result<(Vec<Named>, Vec<PathBuf>), StoreError> {
    let cold = dir.join("cold");
    let gaps = cold.join("gaps");
    let (mut files, mut left) = (Vec::new(), Vec::new());
    for name in listed(&cold)? {
        let Some((stem, ending)) = name.split_once('.') else { continue };
        let Some((window, _)) = Window::parse(stem) else { continue };
        match ending {
            "parquet" => {
                let [samples, index, gaps] = paths(dir, stem);
                files.push(Named { window, samples, index, gaps });
            }
            _ if ending.ends_with("tmp") => left.push(cold.join(&name)),
            _ => {}
        }
    }
    left.extend(listed(&gaps)?.iter().filter(|name| name.ends_with(".tmp")).map(|name| gaps.join(name)));
    files.sort_by_key(|file| file.window);
    Ok((files, left))
}

/// What a file has.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) groups: u64,
    pub(crate) rows: u64,
    /// Rows by label `instance`.
    pub(crate) instances: BTreeMap<Arc<str>, u64>,
}

/// What a file has by its index, or by its own words where there is none. `None`: it was deleted meanwhile.
pub(crate) fn summary(named: &Named) -> Result<Option<Summary>, StoreError> {
    let Some(source) = open(&named.samples)? else { return Ok(None) };
    let decoded = fs::read(&named.index).ok().and_then(|bytes| Index::decode(&bytes).ok());
    let index = match decoded.filter(|(_, binding)| *binding == source.binding) {
        Some((index, _)) => index,
        None => source.index()?,
    };
    let mut summary = Summary { groups: source.groups() as u64, ..Summary::default() };
    for run in &index.runs {
        let instance = &index.entries[run.entry as usize].described.instance;
        *summary.instances.entry(instance.clone()).or_default() += u64::from(run.rows);
        summary.rows += u64::from(run.rows);
    }
    Ok(Some(summary))
}

fn open(path: &Path) -> Result<Option<Source>, StoreError> {
    match Source::open(path) {
        Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// What reading all of a file has found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) groups: u64,
    pub(crate) rows: u64,
    pub(crate) damaged: Vec<Damaged>,
    /// What is damaged of the index, which is made again of the samples.
    pub(crate) mended: Vec<Damaged>,
}

/// Reads all of a file, its index and its gaps; tells of each row group how many bytes it had. `None`: it was deleted
/// meanwhile.
pub(crate) fn check(named: &Named, mut progress: impl FnMut(u64)) -> Result<Option<Checked>, StoreError> {
    let mut checked = Checked::default();
    let whole = |path: &Path, damage| {
        let bytes = fs::metadata(path).map_or(0, |metadata| metadata.len());
        Damaged { path: path.to_owned(), offset: 0, bytes, damage }
    };
    let source = match open(&named.samples) {
        Ok(Some(source)) => source,
        Ok(None) => return Ok(None),
        Err(StoreError::Damaged { damage, .. }) => {
            checked.damaged.push(whole(&named.samples, damage));
            return Ok(Some(checked));
        }
        Err(error) => return Err(error),
    };
    let mut builder = Builder::default();
    for group in 0..source.groups() {
        let (offset, bytes) = source.place(group);
        match source.check_group(group, &mut builder) {
            Ok(rows) => (checked.groups, checked.rows) = (checked.groups + 1, checked.rows + rows),
            Err(damage) => checked.damaged.push(Damaged { path: named.samples.clone(), offset, bytes, damage }),
        }
        progress(bytes);
    }
    match fs::read(&named.index) {
        Ok(bytes) => match Index::decode(&bytes) {
            Ok((_, binding)) if binding.bytes == source.binding.bytes && binding != source.binding => {
                // The sum that the footer has here and nowhere else.
                let offset = binding.bytes.saturating_sub(8);
                let (path, damage) = (named.samples.clone(), Damage::Checksum);
                checked.damaged.push(Damaged { path, offset, bytes: 8, damage });
            }
            Ok((_, binding)) if binding != source.binding => {
                checked.mended.push(whole(&named.index, Damage::Wrong("the length of its file")));
            }
            Ok((index, _)) if checked.damaged.is_empty() && !are_alike(&index, &builder.finish()) => {
                checked.mended.push(whole(&named.index, Damage::Wrong("the runs of an index")));
            }
            Ok(_) => {}
            Err(damage) => checked.mended.push(whole(&named.index, damage)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error("read", &named.index)(error)),
    }
    match Source::gaps(&named.gaps) {
        Ok(_) => {}
        Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        Err(StoreError::Damaged { damage, .. }) => checked.damaged.push(whole(&named.gaps, damage)),
        Err(error) => return Err(error),
    }
    Ok(Some(checked))
}

/// Whether both say the same. The writer tells the pieces of a series one by one, the file does not.
fn are_alike(one: &Index, other: &Index) -> bool {
    one.entries == other.entries && merged(&one.runs) == merged(&other.runs)
}

fn merged(runs: &[Run]) -> Vec<Run> {
    let mut merged: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match merged.last_mut() {
            Some(last)
                if (last.group, last.entry, last.bucket) == (run.group, run.entry, run.bucket)
                    && last.first.checked_add(last.rows) == Some(run.first) =>
            {
                last.rows = last.rows.saturating_add(run.rows);
            }
            _ => merged.push(*run),
        }
    }
    merged
}
