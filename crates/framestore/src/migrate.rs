// SPDX-License-Identifier: Apache-2.0
//! A store of the version before this one becomes one of this version: its rows become chunks, some tracks at a time.
//!
//! The old files are moved to `<dir>/old` first and deleted when all is done. A migration that was interrupted begins
//! again: until it is done nobody else has written to the new store. An old track is one entity with all its labels; so
//! it is here, too, a track of one part whose labels are all its own.

mod old;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use self::old::{DEFINITIONS, EXTENSION, HOT, Old, Track};
use crate::catalogue::Catalogue;
use crate::chunk::{Builder, Shape, max_rows};
use crate::client::Description;
use crate::damage::{StoreError, io_error};
use crate::framing::files::{Lock, make_dir, remove, sync_dir};
use crate::gaps::GapLog;
use crate::layout::{Layout, Part};
use crate::store::Config;
use crate::types::{Gap, Line, TrackId};
use crate::warm::{Level, Warm};

const OLD: &str = "old";
const DONE: &str = "old.migrated";
const CHUNK_ROWS: usize = 1024;
/// Columns of all tracks that are read together: 64 MiB of rows that are no chunk yet.
const GROUP_COLUMNS: usize = 8192;
/// Chunks are written when there are so many bytes of them.
const WRITE_BYTES: usize = 8 << 20;

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Tracks.
    pub tracks: usize,
    /// Their rows.
    pub rows: u64,
    /// Their gaps.
    pub gaps: u64,
    /// Tracks that nobody could read the description of.
    pub unknown: usize,
}

/// Migrates what is in the store's directory, if it is of the version before. `progress` is told how many tracks of how
/// many are done.
///
/// # Errors
/// [`StoreError`]; the next call begins again. Whoever reads the old store with the program that wrote it finds it in
/// `<dir>/old`.
pub fn migrate(config: &Config, progress: impl FnMut(usize, usize)) -> Result<Option<Migrated>, StoreError> {
    let (old, done) = (config.dir.join(OLD), config.dir.join(DONE));
    if done.exists() {
        fs::remove_dir_all(&done).map_err(io_error("remove", &done))?;
    }
    if !old.exists() && !has_old_files(&config.dir) {
        return Ok(None);
    }
    let directory = Lock::take(&config.dir)?;
    let there = ["catalogue", "wal", "warm"].map(|name| config.dir.join(name));
    if let Some(there) = there.iter().find(|path| !old.exists() && path.exists()) {
        // The version before has run once more, after its store had been migrated.
        return Err(both("migrate the store of the version before, since there is one of this version", there));
    }
    move_old_files(config, &old)?;
    for path in there.iter().filter(|path| path.exists()) {
        fs::remove_dir_all(path).map_err(io_error("remove", path))?;
    }
    remove(&config.dir.join("gaps.log"))?;
    let migrated = copy(config, &directory, &old, progress)?;
    // A kill while it is removed must not leave a part of it that would be migrated again, over everything else.
    fs::rename(&old, &done).map_err(io_error("move", &old))?;
    sync_dir(&config.dir)?;
    fs::remove_dir_all(&done).map_err(io_error("remove", &done))?;
    Ok(Some(migrated))
}

/// There are two stores where there must be one: only who has them knows which is worth more.
fn both(operation: &'static str, there: &Path) -> StoreError {
    let why = "neither is touched: move what is of one of them to another place (docs/store.md, Migration)";
    io_error(operation, there)(io::Error::new(io::ErrorKind::AlreadyExists, why))
}

fn has_old_files(dir: &Path) -> bool {
    old_files(dir).is_ok_and(|files| !files.is_empty())
}

fn old_files(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let path = entry.map_err(io_error("list", dir))?.path();
        let is_segment = path.extension().is_some_and(|extension| extension == EXTENSION);
        if is_segment || path.file_name().is_some_and(|name| DEFINITIONS.iter().any(|other| name == *other)) {
            found.push(path);
        }
    }
    Ok(found)
}

fn move_old_files(config: &Config, old: &Path) -> Result<(), StoreError> {
    make_dir(old)?;
    let moves: Vec<(PathBuf, PathBuf)> =
        old_files(&config.dir)?.into_iter().filter_map(|path| Some((old.join(path.file_name()?), path))).collect();
    if let Some((there, _)) = moves.iter().find(|(to, _)| to.exists()) {
        // The version before has run once more, while it was being migrated: its tracks have other numbers.
        return Err(both("migrate the store of the version before, since there are two", there));
    }
    for (to, path) in moves {
        fs::rename(&path, to).map_err(io_error("move", &path))?;
    }
    // It is on another file system.
    if config.ring.exists() && !old.join(HOT).exists() {
        let copied = old.join("hot.new");
        fs::copy(&config.ring, &copied).map_err(io_error("copy", &config.ring))?;
        fs::rename(&copied, old.join(HOT)).map_err(io_error("move", &copied))?;
        remove(&config.ring)?;
    }
    Ok(())
}

fn copy(
    config: &Config,
    directory: &Arc<Lock>,
    old: &Path,
    mut progress: impl FnMut(usize, usize),
) -> Result<Migrated, StoreError> {
    let old = Old::open(old)?;
    let mut new = New::open(config, directory)?;
    let tracks: Vec<(u32, &Track)> = old.tracks().collect();
    let mut left = &tracks[..];
    while !left.is_empty() {
        progress(tracks.len() - left.len(), tracks.len());
        let group;
        (group, left) = left.split_at(group_length(left));
        new.take(&old, group)?;
    }
    new.finish()
}

/// Tracks that are read together.
fn group_length(tracks: &[(u32, &Track)]) -> usize {
    let mut columns = 0;
    let fits = |(_, track): &&(u32, &Track)| {
        columns += track.columns + 1;
        columns <= GROUP_COLUMNS
    };
    tracks.iter().take_while(fits).count().max(1)
}

/// The store that becomes.
struct New {
    dir: PathBuf,
    catalogue: Catalogue,
    warm: Warm,
    gaps: GapLog,
    migrated: Migrated,
}

/// A track that becomes, by its number in the old store.
struct Becoming {
    track: TrackId,
    width: usize,
    builder: Builder,
}

impl New {
    fn open(config: &Config, directory: &Arc<Lock>) -> Result<Self, StoreError> {
        let (catalogue, _) = Catalogue::open(directory)?;
        let (warm, _) = Warm::open(&config.dir)?;
        let (gaps, _) = GapLog::open(&config.dir)?;
        Ok(Self { dir: config.dir.clone(), catalogue, warm, gaps, migrated: Migrated::default() })
    }

    /// Takes tracks with their rows and gaps.
    fn take(&mut self, old: &Old, group: &[(u32, &Track)]) -> Result<(), StoreError> {
        let mut known: BTreeMap<u32, Becoming> =
            group.iter().filter_map(|(id, track)| Some((*id, self.define(track)?))).collect();
        self.migrated.tracks += known.len();
        self.migrated.unknown += group.len() - known.len();
        let (Some((first, _)), Some((last, _))) = (group.first(), group.last()) else { return Ok(()) };
        let damaged = old.read((*first, *last), |id, time_ns, row| match known.get_mut(&id) {
            Some(becoming) if row.len() == becoming.width => self.push(becoming, time_ns, row),
            _ => Ok(()),
        })?;
        for becoming in known.values_mut() {
            self.end_chunk(becoming)?;
        }
        for gap in group.iter().flat_map(|(_, track)| &track.gaps).chain(&damaged) {
            let Some(Becoming { track, .. }) = known.get(&gap.track.0) else { continue };
            self.gaps.push(&Gap { track: *track, ..gap.clone() });
            self.migrated.gaps += 1;
        }
        Ok(())
    }

    fn define(&mut self, old: &Track) -> Option<Becoming> {
        let description = translated(old.description()?);
        // Older versions did not say since when.
        let (track, defined) = self.catalogue.definer().track(&description, 0).ok()?;
        self.catalogue.take_defined(&defined);
        let (width, shape) = (description.layout.kinds().len(), Shape::of(&description.layout));
        Some(Becoming { track, width, builder: Builder::new(track, shape) })
    }

    fn push(&mut self, becoming: &mut Becoming, time_ns: u64, row: &[u64]) -> Result<(), StoreError> {
        if becoming.builder.rows() == max_rows(becoming.width).min(CHUNK_ROWS) {
            self.end_chunk(becoming)?;
        }
        self.migrated.rows += 1;
        becoming.builder.push(Line::ONLY, time_ns, row);
        Ok(())
    }

    fn end_chunk(&mut self, becoming: &mut Becoming) -> Result<(), StoreError> {
        let Some(chunk) = becoming.builder.finish() else { return Ok(()) };
        let damaged = |damage| StoreError::Damaged { path: self.dir.clone(), offset: 0, damage };
        self.warm.append(Level::Raw, &chunk).map_err(damaged)?;
        if self.warm.waiting_bytes() > WRITE_BYTES {
            self.catalogue.write()?;
            self.warm.write()?;
            self.warm.sync()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Migrated, StoreError> {
        self.catalogue.write()?;
        self.gaps.write()?;
        self.warm.write()?;
        self.catalogue.sync()?;
        self.gaps.sync()?;
        self.warm.sync()?;
        Ok(self.migrated)
    }
}

/// A track's description in this version's words.
fn translated(old: old::Description) -> Description {
    let old::Description { host, region, entity, series } = old;
    let mut texts = Vec::new();
    let mut own = Vec::new();
    for (at, one) in (0..).zip(series) {
        if let (Form::Text, Some(text)) = (one.form, one.info()) {
            texts.push((0, at, text.to_owned()));
        }
        // The text is told apart; an info may have no other label of its name.
        let is_text = |name: &str| one.metric == Metric::Info && one.form == Form::Text && name == "value";
        let labels = one.labels.iter().filter(|(name, _)| !is_text(name));
        let labels: Vec<(String, String)> = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        own.push(Series { labels: labels.into(), ..one });
    }
    let group = entity.group;
    let layout = Layout::new(vec![Part::new(&region, group, own).shared()], false);
    let (common, labels) = (Vec::new(), Vec::new());
    Description { host, common, source: entity.region, region: labels, layout: layout.into(), texts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_are_read_together_as_long_as_there_is_room_for_their_rows() {
        let tracks = [8_000, 100, 100, 9_000, 1].map(|columns| {
            let mut track = Track::default();
            track.columns = columns;
            track
        });
        let tracks: Vec<(u32, &Track)> = (1..).zip(&tracks).collect();
        let (mut left, mut lengths) = (&tracks[..], Vec::new());
        while !left.is_empty() {
            lengths.push(group_length(left));
            left = &left[group_length(left)..];
        }
        assert_eq!(lengths, [2, 1, 1, 1]);
    }
}
