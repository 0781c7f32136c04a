// SPDX-License-Identifier: Apache-2.0
//! A store of the version before this one becomes one of this version: its rows become chunks, track by track.
//!
//! The old files are moved to `<dir>/old` first and deleted when all is done. A migration that was interrupted begins again: until it is done nobody else has
//! written to the new store. An old track is one entity with all its labels; so it is here, too, a track of one part whose labels are all its own.

use std::fs;
use std::path::{Path, PathBuf};

use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use crate::catalogue::Catalogue;
use crate::chunk::{Builder, Shape, max_rows};
use crate::client::Description;
use crate::damage::{StoreError, io_error};
use crate::framing::files::{Lock, make_dir, remove};
use crate::gaps::GapLog;
use crate::layout::{Layout, Part};
use crate::store::Config;
use crate::types::{Gap, Line};
use crate::warm::{Level, Warm};

const OLD: &str = "old";
/// Files of the version before: segments of its log and both files of definitions.
const SEGMENT: &str = "olog";
const DEFINITIONS: [&str; 2] = ["definitions-a", "definitions-b"];
const HOT: &str = "hot";
const CHUNK_ROWS: usize = 1024;
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

/// Migrates what is in the store's directory, if it is of the version before. `progress` is told how many tracks of how many are done.
///
/// # Errors
/// [`StoreError`]; the next call begins again. Whoever reads the old store with the program that wrote it finds it in `<dir>/old`.
pub fn migrate(config: &Config, progress: impl FnMut(usize, usize)) -> Result<Option<Migrated>, StoreError> {
    let old = config.dir.join(OLD);
    if !old.exists() && !has_old_files(&config.dir) {
        return Ok(None);
    }
    move_old_files(config, &old)?;
    let fresh = ["catalogue", "wal", "warm"].map(|name| config.dir.join(name));
    for path in fresh.iter().filter(|path| path.exists()) {
        fs::remove_dir_all(path).map_err(io_error("remove", path))?;
    }
    remove(&config.dir.join("gaps.log"))?;
    let migrated = copy(config, &old, progress)?;
    fs::remove_dir_all(&old).map_err(io_error("remove", &old))?;
    Ok(Some(migrated))
}

fn has_old_files(dir: &Path) -> bool {
    old_files(dir).is_ok_and(|files| !files.is_empty())
}

fn old_files(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let path = entry.map_err(io_error("list", dir))?.path();
        let is_segment = path.extension().is_some_and(|extension| extension == SEGMENT);
        if is_segment || path.file_name().is_some_and(|name| DEFINITIONS.iter().any(|other| name == *other)) {
            found.push(path);
        }
    }
    Ok(found)
}

fn move_old_files(config: &Config, old: &Path) -> Result<(), StoreError> {
    make_dir(old)?;
    for path in old_files(&config.dir)? {
        let Some(name) = path.file_name() else { continue };
        fs::rename(&path, old.join(name)).map_err(io_error("move", &path))?;
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

fn copy(config: &Config, old: &Path, mut progress: impl FnMut(usize, usize)) -> Result<Migrated, StoreError> {
    let hot = old.join(HOT);
    let hot_bytes = fs::metadata(&hot).map_or(1 << 20, |found| found.len());
    let old_config = onlooker_store::Config {
        dir: old.to_owned(),
        hot,
        hot_bytes,
        tile_rows: 64,
        segment_bytes: 64 << 20,
        max_bytes: u64::MAX,
    };
    let foreign = |error: onlooker_store::StoreError| {
        io_error("read the store of the version before in", old)(std::io::Error::other(error.to_string()))
    };
    let (mut writer, _) = onlooker_store::Store::open(old_config).map_err(foreign)?;
    writer.seal(u64::MAX).map_err(foreign)?;
    let old = writer.look();
    let directory = Lock::take(&config.dir)?;
    let (mut catalogue, _) = Catalogue::open(&directory)?;
    let (mut warm, _) = Warm::open(&config.dir)?;
    let (mut gaps, _) = GapLog::open(&config.dir)?;
    let definer = catalogue.definer();
    let tracks: Vec<_> = old.tracks().map(|(id, described)| (id, described.clone())).collect();
    let mut migrated = Migrated::default();
    for (number, (id, described)) in tracks.iter().enumerate() {
        progress(number, tracks.len());
        let Some(described) = described.unpack() else {
            migrated.unknown += 1;
            continue;
        };
        let description = translated(described);
        // Older versions did not say since when.
        let Ok((track, defined)) = definer.track(&description, 0) else {
            migrated.unknown += 1;
            continue;
        };
        catalogue.take_defined(&defined);
        let width = description.layout.kinds().len();
        let most = max_rows(width).min(CHUNK_ROWS);
        let mut builder = Builder::new(track, Shape::of(&description.layout));
        let mut chunks = Vec::new();
        let damaged = old.read(*id, 0, u64::MAX, |_, time_ns, row| {
            if row.len() != width {
                return;
            }
            if builder.rows() == most {
                chunks.extend(builder.finish());
            }
            migrated.rows += 1;
            builder.push(Line::ONLY, time_ns, row);
        });
        chunks.extend(builder.finish());
        let damage = |damage| StoreError::Damaged { path: config.dir.clone(), offset: 0, damage };
        chunks.iter().try_for_each(|chunk| warm.append(Level::Raw, chunk).map_err(damage))?;
        for gap in old.gaps(*id, 0, u64::MAX).chain(damaged.map_err(foreign)?) {
            migrated.gaps += 1;
            let (from_ns, to_ns, reason) = (gap.from_ns, gap.to_ns, gap.reason);
            gaps.push(&Gap { track, of: None, from_ns, to_ns, reason });
        }
        migrated.tracks += 1;
        if warm.waiting_bytes() > WRITE_BYTES {
            catalogue.write()?;
            warm.write()?;
            warm.sync()?;
        }
    }
    catalogue.write()?;
    gaps.write()?;
    warm.write()?;
    catalogue.sync()?;
    gaps.sync()?;
    warm.sync()?;
    Ok(migrated)
}

/// A track's description in this version's words.
fn translated(old: onlooker_store::Description) -> Description {
    let onlooker_store::Description { host, region, entity, series } = old;
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
