// SPDX-License-Identifier: Apache-2.0
//! The catalogue: what parts, layouts, hosts, tracks and lines there are, each once, and which series have which
//! labels.
//!
//! Its owner (the store thread) says what is new and writes it; everybody reads [`Known`]. What has a number can be
//! numbered by the catalogue, or by the caller, who then never waits for it. Nothing that was said changes: a host
//! whose labels change is another host, a region whose layout changes another track. What is the same as before has the
//! same number, after a restart, too.
//!
//! ```text
//! <dir>/catalogue/<number>.catalogue, <number>.mirror    the same bytes twice: one Header, then Items (framing.rs)
//! Header    version (4), number (4), next numbers of hosts, tracks (4 each)
//! Items     bytes of what is packed (4), items (item.rs) under zstd
//! ```
//! **Order.** Definitions are written before rows that refer to them are, and synced before such rows count as durable:
//! [`Catalogue::write`] before the write of the log, [`Catalogue::sync`] before its sync.
//!
//! **Damage.** Whatever happens to one of the files, the other has all; then, and where more than half of a file is
//! forgotten, a new pair is written whole (and only then the old one removed). A failed sync may have lost anything:
//! the same. A cut of both loses what was not synced.
//!
//! Cost: two writes of what is new; some hundred bytes a track in the files before zstd; see `known.rs` and `index.rs`
//! for memory. A snapshot takes about a second for a million tracks, without a lock that readers wait for.

mod define;
mod index;
mod item;
mod known;
pub(crate) mod look;
mod pair;
mod series;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, hash_map};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

pub use self::define::{Definer, Description};
pub use self::index::matcher::{Comparison, Matcher, WrongRegex};
use self::item::{Item, Pairs};
pub use self::known::{Counts, Known, LineInfo, TrackInfo, text_key, text_of};
use self::pair::{Loading, append_header, pack};
pub use self::series::{FIRST_LINE, LineKey};
use crate::damage::{StoreError, io_error};
use crate::framing::Damaged;
use crate::framing::bytes::Input;
use crate::framing::files::{self, Lock};
use crate::layout::{ContentId, Layout, Part};
use crate::types::{Line, TrackId};

/// Version of the files' format.
pub const VERSION: u32 = 1;
const DIRECTORY: &str = "catalogue";
const EXTENSIONS: [&str; 2] = ["catalogue", "mirror"];
/// Items that are packed together.
const PACKED_BYTES: usize = 64 << 10;
/// Forgotten items that are not worth writing the others again.
const LEAST_FORGOTTEN_BYTES: u64 = 1 << 20;

/// Number of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// What makes a track the one that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackKey {
    /// Whose.
    pub host: HostId,
    /// Which region: 0 the host's agent, `u64::MAX` the controller's own, else the identity word of a program's.
    pub source: u64,
    /// Labels of the region.
    pub labels: Vec<(String, String)>,
    /// Texts of infos, by [`text_key`].
    pub texts: Vec<(String, String)>,
    /// What stands in its rows.
    pub layout: ContentId,
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes that are no records, by file. What one file lacks is in the other.
    pub damaged: Vec<(PathBuf, Damaged)>,
    /// Records in which a flipped bit was put right.
    pub mended_records: u64,
    /// Items of which something is missing, that they refer to.
    pub unusable_items: u64,
}

/// The owner of the catalogue.
pub struct Catalogue {
    dir: PathBuf,
    _lock: Arc<Lock>,
    known: Arc<RwLock<Known>>,
    number: u32,
    /// `None`: a sync has failed, or nothing was written yet; they are to be written again before anything is durable.
    files: Option<[File; 2]>,
    /// Of each file.
    bytes: u64,
    /// Items that are not written yet.
    pending: Vec<u8>,
    /// Bytes of all items of a file before they are packed, and of those that are not forgotten.
    item_bytes: u64,
    live_bytes: u64,
    /// A snapshot has failed: not before there are so many.
    put_off_bytes: u64,
    is_dirty: bool,
}

impl Catalogue {
    /// Opens the catalogue of a store, or makes it.
    ///
    /// # Errors
    /// [`StoreError::Version`], [`StoreError::Io`]. Damage is no error: see [`Recovery`].
    pub fn open(lock: &Arc<Lock>) -> Result<(Self, Recovery), StoreError> {
        let dir = lock.dir().join(DIRECTORY);
        files::make_dir(&dir)?;
        let numbers = pair::numbers(&dir)?;
        let number = numbers.last().copied().unwrap_or(0);
        let (Loading { known, recovery, item_bytes, .. }, mut length) = Loading::read(&dir, &numbers)?;
        let mut catalogue = Self {
            dir,
            _lock: lock.clone(),
            live_bytes: live_bytes(&known),
            known: Arc::new(RwLock::new(known)),
            number,
            files: None,
            bytes: 0,
            pending: Vec::new(),
            item_bytes,
            put_off_bytes: 0,
            is_dirty: true,
        };
        if let Some(length) = length.take().filter(|_| !catalogue.is_due()) {
            let [first, second] = catalogue.paths(number);
            catalogue.files = Some([files::open(&first)?, files::open(&second)?]);
            catalogue.bytes = length;
            // Whoever wrote it may have been killed before a sync.
            catalogue.sync()?;
        } else {
            catalogue.snapshot()?;
        }
        for older in numbers.into_iter().filter(|number| *number < catalogue.number) {
            catalogue.paths(older).iter().try_for_each(|path| files::remove(path))?;
        }
        Ok((catalogue, recovery))
    }

    /// What readers look at.
    #[must_use]
    pub fn known(&self) -> Arc<RwLock<Known>> {
        self.known.clone()
    }

    /// The same, locked.
    pub fn look(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of both files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        2 * self.bytes
    }

    fn ask<T>(&self, question: impl FnOnce(&Known) -> T) -> T {
        question(&self.look())
    }

    fn enter(&mut self, item: &Item<'_>) -> Result<(), StoreError> {
        let entered = self.known.write().unwrap_or_else(PoisonError::into_inner).enter(item);
        let is_new = entered.map_err(|damage| StoreError::Damaged {
            path: self.paths(self.number)[0].clone(),
            offset: self.bytes,
            damage,
        })?;
        if is_new {
            let bytes = item.encode(&mut self.pending);
            self.item_bytes += bytes;
            if !matches!(item, Item::ForgottenHost(_) | Item::ForgottenTrack(_) | Item::ForgottenLine(..)) {
                self.live_bytes += bytes;
            }
        }
        Ok(())
    }

    /// Enters a part; returns its id.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: its shape, or its size, cannot be right.
    pub fn define_part(&mut self, part: &Part) -> Result<ContentId, StoreError> {
        let (id, content) = part.content();
        self.enter(&Item::Part { id, content: &content })?;
        Ok(id)
    }

    /// Enters a layout and its parts; returns the one that everybody shares.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: its size cannot be right.
    pub fn define_layout(&mut self, layout: &Layout) -> Result<Arc<Layout>, StoreError> {
        let id = layout.id();
        if let Some(known) = self.look().layout(id) {
            return Ok(known.clone());
        }
        for placed in layout.parts() {
            self.define_part(&placed.part)?;
        }
        let parts = layout.parts().iter().map(|part| part.id).collect();
        self.enter(&Item::Layout { id, is_table: layout.is_table(), parts })?;
        Ok(self.look().layout(id).expect("it was entered").clone())
    }

    /// The host with this name and these labels.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: they are too long.
    pub fn host(&mut self, name: &str, labels: &BTreeMap<String, String>) -> Result<HostId, StoreError> {
        let labels = Pairs::new(&labels.clone().into_iter().collect::<Vec<_>>());
        let (known, next) = self.ask(|known| (known.find_host(name, &labels), known.next.host));
        if let Some(known) = known {
            return Ok(known);
        }
        let number = HostId(next);
        self.enter(&Item::Host { number, name, labels })?;
        Ok(number)
    }

    /// Enters a host that the caller has numbered.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: the number is another's.
    pub fn enter_host(
        &mut self,
        number: HostId,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let labels = Pairs::new(&labels.clone().into_iter().collect::<Vec<_>>());
        self.enter(&Item::Host { number, name, labels })
    }

    /// The track that is what `key` says; made now if there is none.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: its host or its layout was not entered.
    pub fn track(&mut self, key: &TrackKey, created_ns: u64) -> Result<TrackId, StoreError> {
        let (known, next) = self.ask(|known| (known.find_track(key), known.next_track()));
        if let Some(known) = known {
            return Ok(known);
        }
        self.enter_track(next, key, created_ns)?;
        Ok(next)
    }

    /// Enters a track that the caller has numbered.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: the number is another's, or its host or its layout was not entered.
    pub fn enter_track(&mut self, number: TrackId, key: &TrackKey, created_ns: u64) -> Result<(), StoreError> {
        let TrackKey { host, source, layout, .. } = *key;
        let (labels, texts) = (Pairs::new(&key.labels), Pairs::new(&key.texts));
        self.enter(&Item::Track { number, host, source, created_ns, layout, labels, texts })
    }

    /// The line of a table that has these labels; made now if there is none.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: the track is no table.
    pub fn line(&mut self, track: TrackId, labels: &[(String, String)], since_ns: u64) -> Result<Line, StoreError> {
        let (labels, texts) = (Pairs::new(labels), Pairs::new(&[]));
        let (known, line) = self.ask(|known| (known.find_line(track, &labels, &texts), known.next_line(track)));
        if let Some(known) = known {
            return Ok(known);
        }
        self.enter(&Item::Line { track, line, since_ns, labels, texts })?;
        Ok(line)
    }

    /// Enters a line that the caller has numbered.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: the number is another's, or the track is no table.
    pub fn enter_line(
        &mut self,
        track: TrackId,
        line: Line,
        labels: &[(String, String)],
        since_ns: u64,
    ) -> Result<(), StoreError> {
        let texts = Pairs::new(&[]);
        self.enter(&Item::Line { track, line, since_ns, labels: Pairs::new(labels), texts })
    }

    /// Forgets a track of which no row is left, and its lines, unless somebody has defined it and not ended it since:
    /// rows of it may be under way. Its number does not come again.
    ///
    /// # Panics
    /// Never.
    pub fn forget_track(&mut self, track: TrackId) {
        let mut bytes = self.ask(|known| known.track_item(track)).map_or(0, |item| item.encode(&mut Vec::new()));
        let lines: Vec<Line> = self.ask(|known| known.lines_of(track).collect());
        bytes += lines.into_iter().map(|line| self.line_bytes(track, line)).sum::<u64>();
        self.enter(&Item::ForgottenTrack(track)).expect("nothing is asked of what is forgotten");
        if !self.ask(|known| known.tracks.contains_key(&track)) {
            self.live_bytes -= bytes;
        }
    }

    /// Forgets a line of which no row is left.
    ///
    /// # Panics
    /// Never.
    pub fn forget_line(&mut self, track: TrackId, line: Line) {
        let bytes = self.line_bytes(track, line);
        self.enter(&Item::ForgottenLine(track, line)).expect("nothing is asked of what is forgotten");
        self.live_bytes -= bytes;
    }

    fn line_bytes(&self, track: TrackId, line: Line) -> u64 {
        self.ask(|known| known.line_item(track, line)).map_or(0, |item| item.encode(&mut Vec::new()))
    }

    /// Forgets a host that has no tracks any more.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: it has tracks.
    pub fn forget_host(&mut self, host: HostId) -> Result<(), StoreError> {
        let item_bytes = |(name, labels): (&str, BTreeMap<String, String>)| {
            let labels = Pairs::new(&labels.into_iter().collect::<Vec<_>>());
            Item::Host { number: host, name, labels }.encode(&mut Vec::new())
        };
        let bytes = self.look().host(host).map_or(0, item_bytes);
        self.enter(&Item::ForgottenHost(host))?;
        self.live_bytes -= bytes;
        Ok(())
    }

    /// What others define with.
    #[must_use]
    pub fn definer(&self) -> Definer {
        Definer::new(self.known.clone())
    }

    /// Takes what a [`Definer`] has defined, and everybody knows already, to be written.
    pub fn take_defined(&mut self, items: &[u8]) {
        self.pending.extend_from_slice(items);
        self.item_bytes += items.len() as u64;
        self.live_bytes += items.len() as u64;
    }

    /// The same of a process before this one: what of it was written is known, the rest is not.
    pub fn take_left(&mut self, items: &[u8]) {
        let mut input = Input(items);
        while !input.0.is_empty() {
            // Items that do not fit are damage, which the ring's own checksum would have found.
            match Item::decode(&mut input) {
                Ok(item) => drop(self.enter(&item)),
                Err(_) => return,
            }
        }
    }

    /// A track that a [`Definer`] has defined has ended.
    pub fn ended(&mut self, track: TrackId) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let hash_map::Entry::Occupied(mut uses) = known.uses.entry(track) {
            *uses.get_mut() -= 1;
            if *uses.get() == 0 {
                uses.remove();
            }
        }
    }

    /// Forgets tracks that are not there any more, and hosts without tracks.
    pub fn keep(&mut self, is_there: impl Fn(TrackId) -> bool) {
        let over: Vec<TrackId> = self.ask(|known| known.tracks().filter(|track| !is_there(*track)).collect());
        over.into_iter().for_each(|track| self.forget_track(track));
        let hosts: Vec<HostId> = self.ask(|known| known.hosts().collect());
        // One that has tracks stays.
        hosts.into_iter().for_each(|host| drop(self.forget_host(host)));
    }

    /// Writes what is new to both files; all of it, to new ones, where that is due.
    ///
    /// # Errors
    /// [`StoreError::Io`]: what could not be written is written with the next call.
    pub fn write(&mut self) -> Result<(), StoreError> {
        if self.files.is_none() {
            return self.snapshot();
        }
        if self.is_due() {
            if self.snapshot().is_ok() {
                return Ok(());
            }
            // Only the room on the disk depends on it.
            self.put_off_bytes = 2 * self.item_bytes;
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut out = Vec::new();
        pack(&self.pending, &mut out);
        for (file, path) in self.files.iter().flatten().zip(self.paths(self.number)) {
            if let Err(error) = file.write_all_at(&out, self.bytes) {
                // Part of a record must not be taken for the beginning of one; a later attempt writes over it in any
                // case.
                self.files.iter().flatten().for_each(|file| drop(file.set_len(self.bytes)));
                return Err(io_error("write to", &path)(error));
            }
        }
        self.bytes += out.len() as u64;
        self.pending.clear();
        self.is_dirty = true;
        Ok(())
    }

    /// Makes both files durable. Where that fails what was written may be lost without another word:
    /// [`Catalogue::write`] writes all of it again.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn sync(&mut self) -> Result<(), StoreError> {
        let paths = self.paths(self.number);
        let Some(files) = &self.files else {
            let source = io::Error::other("a sync has failed, and it was not written again yet");
            return Err(io_error("sync", &paths[0])(source));
        };
        for (file, path) in files.iter().zip(paths).filter(|_| self.is_dirty) {
            if let Err(error) = file.sync_data() {
                self.files = None;
                return Err(io_error("sync", &path)(error));
            }
        }
        self.is_dirty = false;
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.item_bytes > (2 * self.live_bytes + LEAST_FORGOTTEN_BYTES).max(self.put_off_bytes)
    }

    fn paths(&self, number: u32) -> [PathBuf; 2] {
        EXTENSIONS.map(|extension| files::numbered(&self.dir, number, extension))
    }

    /// Writes a new pair with everything that there is, durable when this returns.
    fn snapshot(&mut self) -> Result<(), StoreError> {
        let number = self.number + 1;
        let (mut bytes, mut items, mut item_bytes) = (Vec::new(), Vec::new(), 0);
        {
            let known = self.look();
            append_header(number, known.next, &mut bytes);
            known.each_item(|item| {
                item_bytes += item.encode(&mut items);
                if items.len() >= PACKED_BYTES {
                    pack(&items, &mut bytes);
                    items.clear();
                }
            });
            pack(&items, &mut bytes);
        }
        let [first_path, second_path] = self.paths(number);
        let first = files::write_whole(&first_path, &bytes)?;
        let second = files::write_whole(&second_path, &bytes).inspect_err(|_| {
            // The old pair goes on; should this one stay, it is read beside the old one, since it is alone.
            let _ = files::remove(&first_path);
        })?;
        let old = self.paths(self.number);
        (self.files, self.number, self.bytes) = (Some([first, second]), number, bytes.len() as u64);
        (self.item_bytes, self.live_bytes, self.put_off_bytes) = (item_bytes, item_bytes, 0);
        self.pending.clear();
        self.is_dirty = false;
        // One that stays is removed when the catalogue is opened.
        old.iter().for_each(|path| drop(files::remove(path)));
        Ok(())
    }
}

fn live_bytes(known: &Known) -> u64 {
    let (mut bytes, mut scratch) = (0, Vec::new());
    known.each_item(|item| {
        scratch.clear();
        bytes += item.encode(&mut scratch);
    });
    bytes
}
