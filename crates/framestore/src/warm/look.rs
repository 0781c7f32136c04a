// SPDX-License-Identifier: Apache-2.0
//! Reading the warm files of a store that somebody else may be writing: nothing is written here, and nothing locked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Level;
pub(crate) use super::entry::Entry;
use super::file::{self, Chain, Damaged, Loaded};
use super::frame::{HEADER_BYTES, record_bytes};
use super::outline::{self, Outline};
use super::shelf::{Reader, Shared};
use crate::damage::{Damage, StoreError};
use crate::framing::files::open_to_read;

/// A file by its name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) level: Level,
    pub(crate) path: PathBuf,
    number: u32,
    /// Of its level the one that is written, if any is.
    is_newest: bool,
    /// Of an outline the name of the cold file.
    pub(crate) cold: Option<String>,
}

/// The warm files of the store in `dir`, by level and number.
pub(crate) fn list(dir: &Path) -> Result<Vec<Named>, StoreError> {
    let dir = dir.join("warm");
    let all = file::list(&dir)?;
    let named = all.iter().enumerate().map(|(at, listed)| {
        let file::Listed { level, number, ref cold } = *listed;
        let is_newest = cold.is_none() && all.get(at + 1).is_none_or(|next| next.level != level);
        Named { level, path: listed.path(&dir), number, is_newest, cold: cold.clone() }
    });
    Ok(named.collect())
}

/// Outlines that a conversion has not ended, in the store in `dir`.
pub(crate) fn left(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    outline::temporaries(&dir.join("warm"))
}

/// What a file has by its index, or looked through where it has none; its length. `None`: it was deleted meanwhile.
pub(crate) fn entries(named: &Named) -> Result<Option<(Vec<Entry>, u64)>, StoreError> {
    let Some(file) = open_to_read(&named.path)? else { return Ok(None) };
    let loaded = Loaded::of(file, named.path.clone(), named.number)?;
    Ok(Some((loaded.entries, loaded.bytes)))
}

/// What finds and reads the chunks of the store in `dir`, as long as nobody writes to it; and what was found damaged of
/// files without an index. Those with one were not looked at.
pub(crate) fn reader(dir: &Path) -> Result<(Reader, Vec<Damaged>), StoreError> {
    let (shared, mut damaged) = (Arc::new(Shared::new(dir.join("warm"))), Vec::new());
    let mut chain = Chain::default();
    for named in list(dir)? {
        let Some(file) = open_to_read(&named.path)? else { continue };
        let mut loaded = Loaded::of(file, named.path, named.number)?;
        damaged.extend(chain.take(named.level, named.number, &loaded));
        shared.with(named.level, |shelf| shelf.cold.extend(named.cold.map(|cold| (named.number, cold))));
        shared.put_file(named.level, named.number, &loaded);
        // The end of a write that was not ended had nothing durable.
        loaded.damaged.retain(|of| !(named.is_newest && of.offset + of.bytes == loaded.ends_at));
        damaged.append(&mut loaded.damaged);
    }
    Ok((Reader(shared), damaged))
}

/// What reading all of a file has found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) damaged: Vec<Damaged>,
    /// What a write has left that was not ended. Nothing that had been durable was in it.
    pub(crate) unfinished: Vec<Damaged>,
}

/// Reads every record of a file, gives the chunks to `check`, and compares the index with them. `None`: it was deleted
/// meanwhile.
pub(crate) fn check(
    named: &Named,
    mut check: impl FnMut(&[u8]) -> Result<(), Damage>,
) -> Result<Option<Checked>, StoreError> {
    let Some(file) = open_to_read(&named.path)? else { return Ok(None) };
    let mut loaded = Loaded::indexed(file, named.path.clone(), named.number)?;
    let index = std::mem::take(&mut loaded.entries);
    loaded.look_through(named.number, &mut check)?;
    let lost = lost_of_outline(named, &loaded.entries, check)?;
    let found: HashMap<u64, Entry> = loaded.entries.iter().map(|entry| (entry.place.offset(), *entry)).collect();
    let is_in = |damaged: &Damaged, offset: u64| (damaged.offset..damaged.offset + damaged.bytes).contains(&offset);
    let wrong = index.iter().filter(|entry| {
        let offset = entry.place.offset();
        found.get(&offset) != Some(entry) && !loaded.damaged.iter().any(|damaged| is_in(damaged, offset))
    });
    let wrong: Vec<Damaged> = wrong
        .map(|entry| {
            let bytes = record_bytes(entry.place.bytes as usize) as u64;
            let damage = Damage::Wrong("what the index says of a chunk");
            Damaged { path: named.path.clone(), offset: entry.place.offset(), bytes, damage }
        })
        .collect();
    // Nothing is written behind what was not ended but the index, by the next process.
    let may_be_unfinished = loaded.has_index || named.is_newest;
    let (unfinished, mut damaged): (Vec<_>, Vec<_>) = loaded.damaged.into_iter().partition(|damaged| {
        let is_last = damaged.offset + damaged.bytes == loaded.ends_at;
        may_be_unfinished && is_last && !index.iter().any(|entry| is_in(damaged, entry.place.offset()))
    });
    damaged.extend(wrong.into_iter().chain(lost));
    if !may_be_unfinished && damaged.is_empty() {
        let damage = Damage::Wrong("the end: it has no index, and was not the last one written");
        damaged.push(Damaged { path: named.path.clone(), offset: loaded.bytes, bytes: 0, damage });
    }
    Ok(Some(Checked { damaged, unfinished }))
}

/// Makes an outline's chunks again and gives them to `check`. What of the cold file is damaged is told where that is
/// read, but for one that is not there.
fn lost_of_outline(
    named: &Named,
    entries: &[Entry],
    mut check: impl FnMut(&[u8]) -> Result<(), Damage>,
) -> Result<Vec<Damaged>, StoreError> {
    let (Some(cold), Some(dir)) = (&named.cold, named.path.parent()) else { return Ok(Vec::new()) };
    let outline = Outline::open(dir, named.level, named.number, cold, Arc::default())?;
    let (mut bytes, mut lost) = (Vec::new(), Vec::<Damaged>::new());
    for entry in entries {
        let checked = outline
            .read(&entry.place, &mut bytes)
            .and_then(|()| check(&bytes[HEADER_BYTES..]).map_err(|damage| outline.damaged(&entry.place, damage)));
        match checked {
            Err(StoreError::Damaged { path, offset, damage }) => {
                let is_told = path != named.path && (path.exists() || lost.iter().any(|other| other.path == path));
                if !is_told {
                    lost.push(Damaged { path, offset, bytes: 0, damage });
                }
            }
            checked => checked?,
        }
    }
    Ok(lost)
}
