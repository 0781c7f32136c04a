// SPDX-License-Identifier: Apache-2.0
//! A store whose files are converted, and what can go wrong meanwhile.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

use crate::damage::{StoreError, io_error};
use crate::inspect::fixture::{Filled, contents};
use crate::store::{Cooled, Store, lock};
use crate::types::TrackId;
use crate::warm::{self, Level};

/// What happens at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Full,
    Kill,
}

thread_local! {
    pub(super) static FAULT: Cell<Option<(usize, Fault)>> = const { Cell::new(None) };
    pub(super) static KILLED: Cell<bool> = const { Cell::new(false) };
}

/// A step is done.
pub(in super::super) fn take() -> Result<(), StoreError> {
    let Some((left, fault)) = FAULT.get() else { return Ok(()) };
    FAULT.set((left > 1).then_some((left - 1, fault)));
    if left > 1 {
        return Ok(());
    }
    KILLED.set(fault == Fault::Kill);
    Err(io_error("write", Path::new("what a test has fail"))(std::io::ErrorKind::StorageFull.into()))
}

pub(in super::super) fn is_killed() -> bool {
    KILLED.get()
}

/// Steps of a conversion, the last one when readers have the outline.
pub(super) const STEPS: usize = 6;

/// A chunk as a whole, its front, and each column by itself.
type Read = (Vec<u8>, Vec<u8>, Vec<Vec<u64>>);

impl Filled {
    pub(super) fn store(&self) -> Store {
        self.open.as_ref().unwrap().0.clone()
    }

    pub(super) fn writer(&mut self) -> &mut crate::store::Writer {
        &mut self.open.as_mut().unwrap().1
    }

    /// All raw chunks are in files that are old enough.
    pub(super) fn end_files(&mut self) {
        let writer = self.writer();
        writer.warm.sync().unwrap();
        writer.warm.close(Level::Raw).unwrap();
        let ended = writer.warm.ended_before(Level::Raw, u64::MAX);
        lock(&self.store().0.due).set(ended.into_iter());
    }

    /// Converts all; returns how many files.
    pub(super) fn cool(&mut self) -> usize {
        let mut files = 0;
        self.end_files();
        let mut cooler = self.store().cooler();
        while cooler.turn(|| true).unwrap() != Cooled::Nothing {
            files += 1;
        }
        files
    }

    /// Rows of all tracks become chunks.
    pub(super) fn pack(&mut self) {
        let tracks: Vec<TrackId> = self.store().known().tracks().collect();
        tracks.iter().for_each(|track| self.appender().end(*track));
        self.turn();
        self.writer().looked_ns = 0;
        (0..3).for_each(|_| self.turn());
        assert!(lock(&self.store().0.rows).tracks.values().all(crate::store::rows::Track::is_packed));
    }

    /// Every chunk, by level, track and number.
    pub(super) fn chunks(&self) -> BTreeMap<(Level, TrackId, usize), Read> {
        let store = self.store();
        let mut all = BTreeMap::new();
        for (level, track) in
            Level::ALL.into_iter().flat_map(|level| store.0.chunks.tracks(level).into_iter().map(move |of| (level, of)))
        {
            let places = store.0.chunks.between(level, track, 0, u64::MAX).unwrap();
            for (number, place) in places.iter().enumerate() {
                let mut whole = Vec::new();
                let columns = place.read(&mut whole).unwrap().head().columns;
                let front = place.front().unwrap().of_chunk().to_vec();
                let mut buffers = warm::Buffers::default();
                let mut column = |column: usize| {
                    let mut values = Vec::new();
                    place.read_columns(column..column + 1, &mut buffers, &mut values).unwrap();
                    values
                };
                let columns = (0..columns).map(&mut column).collect();
                all.insert((level, track, number), (whole, front, columns));
            }
        }
        all
    }

    /// Names of the files of a directory of the store.
    pub(super) fn names(&self, dir: &str) -> Vec<String> {
        let dir = self.store_dir().join(dir);
        if !dir.exists() {
            return Vec::new();
        }
        let mut names: Vec<String> =
            contents(&dir).into_keys().map(|path| path.strip_prefix(&dir).unwrap().display().to_string()).collect();
        names.sort();
        names
    }

    /// Each raw file is there once, and each cold file has its outline.
    pub(super) fn check_files(&self) {
        let raw: Vec<String> = self.names("warm").into_iter().filter(|name| name.starts_with("raw-")).collect();
        let mut numbers: Vec<&str> = raw.iter().map(|name| &name[4..14]).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), raw.len(), "{raw:?}");
        let outlines: Vec<&str> = raw.iter().filter_map(|name| name.strip_suffix(".outline")?.get(15..)).collect();
        let mut cold = outlines.clone();
        cold.sort_unstable();
        let names = self.names("cold");
        let whole: Vec<&str> =
            names.iter().filter(|name| !name.contains('/')).filter_map(|name| name.strip_suffix(".parquet")).collect();
        assert_eq!(whole, cold);
        assert!(!names.iter().chain(&raw).any(|name| name.contains("tmp")), "{names:?} {raw:?}");
    }

    pub(super) fn bytes(&self) -> u64 {
        contents(&self.store_dir()).values().map(|bytes| bytes.len() as u64).sum()
    }
}
