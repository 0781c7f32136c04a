// SPDX-License-Identifier: Apache-2.0
//! Warm files: chunks of all tracks in the order in which they were made, a series of files for each level of
//! resolution.
//!
//! The store thread appends chunks ([`Warm`]); queries, rollups and cold files read them ([`Reader`]) without waiting
//! for it. `<dir>/warm/<level>-<number>.chunks` has records (`frame.rs`, `file.rs`), is 64 MiB long at most, and ends
//! with an index: opening reads indexes only. A file without one, as a kill leaves it, is looked through and gets its
//! index when what of it is damaged has been noted. No process appends to a file that another has made.
//!
//! A chunk can be read from when it is written on and is durable from when it is synced on. What is not durable stays
//! in memory as well: if a write or a sync fails, the same bytes go into another place, of which readers learn when
//! they are there. Whatever of them the first attempt left on the disk is known by its checksum as a copy when the
//! files are opened again.
//!
//! Whole files are deleted, oldest first. Memory: 32 bytes a chunk and about 100 a track.

mod entry;
mod file;
mod frame;
mod level;
pub(crate) mod look;
pub(crate) mod outline;
mod piece;
mod place;
mod shelf;
mod write;

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::chunk::Head;
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::files::remove;
pub use entry::ChunkRef;
use entry::Entry;
pub(crate) use entry::last_mark;
pub use file::Damaged;
use file::{Before, Chain, Listed, Loaded};
pub use level::Level;
pub(crate) use piece::{Piece, span};
pub use place::{Buffers, Front, Place, Window};
pub use shelf::{Extent, Reader};
use shelf::{Shared, Stored};
use write::Writer;

/// Writes and deletes chunks.
#[derive(Debug)]
pub struct Warm {
    shared: Arc<Shared>,
    writers: [Writer; Level::ALL.len()],
    /// Files that have no index yet.
    unended: Vec<(Level, u32, Loaded)>,
}

impl Warm {
    /// Opens or makes the warm files in `dir`. What is damaged there is no error: it is returned. It has to be noted
    /// before [`Warm::end_found`] is called, which nobody finds it behind.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Version`].
    pub fn open(dir: &Path) -> Result<(Self, Vec<Damaged>), StoreError> {
        let dir = dir.join("warm");
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(io_error("create", &dir))?;
        let shared = Arc::new(Shared::new(dir.clone()));
        let mut warm = Self { shared, writers: Level::ALL.map(Writer::new), unended: Vec::new() };
        let (mut damaged, mut chain) = (Vec::new(), Chain::default());
        outline::clean(&dir)?;
        for listed in file::list(&dir)? {
            let mut loaded = file::load(&dir, &listed)?;
            let Listed { level, number, cold } = listed;
            damaged.extend(chain.take(level, number, &loaded));
            damaged.append(&mut loaded.damaged);
            warm.shared.with(level, |shelf| shelf.cold.extend(cold.map(|cold| (number, cold))));
            warm.take_file(level, number, loaded)?;
        }
        Ok((warm, damaged))
    }

    fn take_file(&mut self, level: Level, number: u32, loaded: Loaded) -> Result<(), StoreError> {
        let writer = &mut self.writers[level as usize];
        writer.next = number.saturating_add(1);
        writer.before = Some(Before { number, bytes: loaded.ends_at });
        self.shared.put_file(level, number, &loaded);
        if !loaded.has_index {
            // What was found whole counts as durable from now on.
            let file = &loaded.opened.file;
            file.sync_data().map_err(io_error("sync", &loaded.opened.path))?;
            self.unended.push((level, number, loaded));
        }
        Ok(())
    }

    /// Gives an index to files that a kill has left without. If one does not fit, its file is looked through again next
    /// time.
    pub fn end_found(&mut self) {
        for (level, number, loaded) in self.unended.drain(..) {
            if let Ok(bytes) = file::seal(&loaded.opened.file, loaded.bytes, &loaded.entries) {
                self.shared.with(level, |shelf| {
                    if let Some(stored) = shelf.files.get_mut(&number) {
                        stored.bytes = bytes;
                    }
                });
            }
        }
    }

    /// What finds and reads chunks.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader(self.shared.clone())
    }

    /// Takes a chunk into the buffer of a level.
    ///
    /// # Errors
    /// [`Damage`] if it is no chunk.
    pub fn append(&mut self, level: Level, chunk: &[u8]) -> Result<(), Damage> {
        let head = Head::parse(chunk)?;
        let fits = chunk.len() <= frame::MAX_PAYLOAD_BYTES;
        let entry = Entry::new(&head, chunk.len(), 0, 0).filter(|_| fits).ok_or(Damage::Wrong("a chunk's size"))?;
        let writer = &mut self.writers[level as usize];
        frame::append(frame::CHUNK, chunk, &mut writer.buffer);
        writer.waiting.push(entry);
        Ok(())
    }

    /// Bytes that are not durable yet, which are in memory.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.writers.iter().map(|writer| writer.buffer.len()).sum()
    }

    /// Writes what was appended: one write for each level and file. Readers find it from then on.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the next call tries again.
    pub fn write(&mut self) -> Result<(), StoreError> {
        self.writers.iter_mut().try_for_each(|writer| writer.write(&self.shared))
    }

    /// Makes what was written durable (fdatasync).
    ///
    /// # Errors
    /// [`StoreError::Io`]: nothing written since the last success may be taken for durable. It is written again by the
    /// next [`Warm::write`].
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.writers.iter_mut().try_for_each(Writer::sync)
    }

    /// Ends the file of a level, so that it can be deleted when it is old. What was written is durable then.
    ///
    /// # Errors
    /// As [`Warm::sync`].
    pub fn close(&mut self, level: Level) -> Result<(), StoreError> {
        self.writers[level as usize].close(&self.shared)
    }

    /// Bytes of the file of a level that is written.
    #[must_use]
    pub fn current_bytes(&self, level: Level) -> u64 {
        self.writers[level as usize].current.as_ref().map_or(0, |current| current.bytes)
    }

    /// Ends the file of a level if it has rows of before a time.
    ///
    /// # Errors
    /// As [`Warm::sync`].
    pub fn close_begun_before(&mut self, level: Level, time_ns: u64) -> Result<(), StoreError> {
        let current = self.writers[level as usize].current.as_ref();
        let is_old = |entry: &Entry| entry.place.to_ns < time_ns;
        if current.is_some_and(|current| current.entries.iter().any(is_old)) { self.close(level) } else { Ok(()) }
    }

    /// Deletes the oldest files of a level as long as all their rows are from before a time. Rows of after `now_ns` are
    /// of a clock that was ahead: a file of those and older ones is as old as the next one that has none. Returns how
    /// many bytes they had.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn drop_before(&mut self, level: Level, time_ns: u64, now_ns: u64) -> Result<u64, StoreError> {
        let mut bytes = 0;
        let is_old = |files: &BTreeMap<u32, Stored>| {
            let mut last_ns = files.values().map(|stored| stored.to_ns).filter(|last_ns| *last_ns > 0);
            let last_ns = last_ns.find(|last_ns| *last_ns <= now_ns);
            let has_good = |first: &Stored| (time_ns..=now_ns).contains(&first.from_ns);
            last_ns.is_some_and(|last_ns| last_ns < time_ns) && !files.values().next().is_some_and(has_good)
        };
        while let Some(dropped) = self.drop_if(level, is_old)? {
            bytes += dropped;
        }
        Ok(bytes)
    }

    /// Number of the oldest file of a level; `None` where only the one that is written is left.
    pub(crate) fn oldest(&self, level: Level) -> Option<u32> {
        let current = self.writers[level as usize].current.as_ref().map(|current| current.number);
        self.shared.look(level, |shelf| shelf.files.keys().next().copied()).filter(|number| Some(*number) != current)
    }

    /// Deletes the oldest file of a level and returns how many bytes it had; `None` where only the one that is written
    /// is left.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn drop_oldest(&mut self, level: Level) -> Result<Option<u64>, StoreError> {
        self.drop_if(level, |_| true)
    }

    fn drop_if(
        &mut self,
        level: Level,
        is_old: impl Fn(&BTreeMap<u32, Stored>) -> bool,
    ) -> Result<Option<u64>, StoreError> {
        let current = self.writers[level as usize].current.as_ref().map(|current| current.number);
        let dropped = self.shared.with(level, |shelf| {
            let (number, stored) = shelf.files.first_key_value().map(|(number, stored)| (*number, *stored))?;
            let dropped = Some((number, stored)).filter(|_| Some(number) != current && is_old(&shelf.files))?;
            shelf.forget_before(number + 1);
            Some((dropped, shelf.cold.remove(&number)))
        });
        let Some(((number, stored), cold)) = dropped else { return Ok(None) };
        self.shared.close_before(level, number + 1);
        remove(&file::path(&self.shared.dir, level, number))?;
        if let Some(cold) = cold {
            outline::remove(&self.shared.dir, level, number, &cold)?;
        }
        Ok(Some(stored.bytes + stored.cold_bytes))
    }

    /// Files of a level that are not written any more, whose rows are all of before a time, and not in cold files; and
    /// the time of the last row of each.
    pub(crate) fn ended_before(&self, level: Level, time_ns: u64) -> BTreeMap<u32, u64> {
        let current = self.writers[level as usize].current.as_ref().map(|current| current.number);
        self.shared.look(level, |shelf| {
            let files = shelf.files.iter().filter(|(number, stored)| {
                Some(**number) != current && (1..time_ns).contains(&stored.to_ns) && !shelf.cold.contains_key(number)
            });
            files.map(|(number, stored)| (*number, stored.to_ns)).collect()
        })
    }
}

#[cfg(test)]
mod tests;
