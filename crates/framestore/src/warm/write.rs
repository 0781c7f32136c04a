// SPDX-License-Identifier: Apache-2.0
//! Writing the files of a level: what is not durable stays in memory until it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::Level;
use super::entry::Entry;
use super::file::{self, Before, MAX_FILE_BYTES};
use super::frame::{self, Opened};
use super::shelf::Shared;
use crate::damage::{StoreError, io_error};

/// What is written of a level.
#[derive(Debug)]
pub(super) struct Writer {
    level: Level,
    /// Number of the next file.
    pub(super) next: u32,
    pub(super) current: Option<Current>,
    /// What the next file says of the one before it.
    pub(super) before: Option<Before>,
    /// Records of `waiting`.
    pub(super) buffer: Vec<u8>,
    /// What is not durable yet. Those with a file number can be read there.
    pub(super) waiting: Vec<Entry>,
    /// How many of them are in the current file.
    written: usize,
    pub(super) disk: Disk,
}

/// The disk. A test can make it fail: writes after so many bytes, and syncs.
#[derive(Debug, Default)]
pub(super) struct Disk {
    #[cfg(test)]
    pub(super) room: Option<usize>,
    #[cfg(test)]
    pub(super) is_broken: bool,
}

impl Disk {
    fn write(&self, file: &File, records: &[u8], at: u64) -> io::Result<()> {
        #[cfg(test)]
        if let Some(room) = self.room.filter(|room| *room < records.len()) {
            file.write_all_at(&records[..room], at)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.write_all_at(records, at)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        #[cfg(test)]
        if self.is_broken {
            return Err(io::ErrorKind::Other.into());
        }
        file.sync_data()
    }
}

/// The file that is written.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) number: u32,
    opened: Opened,
    pub(super) bytes: u64,
    pub(super) entries: Vec<Entry>,
}

impl Writer {
    pub(super) fn new(level: Level) -> Self {
        let (current, before, buffer, waiting, disk) = Default::default();
        Self { level, next: 1, current, before, buffer, waiting, written: 0, disk }
    }

    fn record_bytes(entries: &[Entry]) -> usize {
        entries.iter().map(|entry| frame::record_bytes(entry.place.bytes as usize)).sum()
    }

    pub(super) fn write(&mut self, shared: &Shared) -> Result<(), StoreError> {
        while self.written < self.waiting.len() {
            let current = match self.current.take() {
                Some(current) => current,
                None => {
                    let (opened, bytes) = file::create(&shared.dir, self.level, self.next, self.before)?;
                    self.next += 1;
                    Current { number: self.next - 1, opened, bytes, entries: Vec::new() }
                }
            };
            let current = self.current.insert(current);
            let mut end = current.bytes;
            let fitting = self.waiting[self.written..].iter().take_while(|entry| {
                end += frame::record_bytes(entry.place.bytes as usize) as u64;
                end <= MAX_FILE_BYTES
            });
            match fitting.count() {
                // What is larger than a file has one of its own.
                0 if current.entries.is_empty() => self.write_some(1, shared)?,
                0 => self.close(shared)?,
                count => self.write_some(count, shared)?,
            }
        }
        Ok(())
    }

    /// Writes the next so many chunks into the current file.
    fn write_some(&mut self, count: usize, shared: &Shared) -> Result<(), StoreError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let (done, rest) = self.waiting.split_at_mut(self.written);
        let entries = &mut rest[..count];
        let start = Self::record_bytes(done);
        let records = &self.buffer[start..start + Self::record_bytes(entries)];
        if let Err(error) = self.disk.write(&current.opened.file, records, current.bytes) {
            let error = io_error("write to", &current.opened.path)(error);
            if current.opened.file.set_len(current.bytes).is_err() {
                self.abandon();
            }
            return Err(error);
        }
        shared.with(self.level, |shelf| {
            for entry in entries {
                let before = Some(entry.place).filter(|place| place.file > 0);
                entry.place.file = current.number;
                entry.place.offset_words = u32::try_from(current.bytes / 8).unwrap_or(u32::MAX); // of MAX_FILE_BYTES
                current.bytes += frame::record_bytes(entry.place.bytes as usize) as u64;
                current.entries.push(*entry);
                shelf.put(entry, before);
            }
            shelf.files.entry(current.number).or_default().bytes = current.bytes;
        });
        self.written += count;
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        let Some(current) = self.current.as_ref().filter(|_| self.written > 0) else { return Ok(()) };
        if let Err(error) = self.disk.sync(&current.opened.file) {
            let error = io_error("sync", &current.opened.path)(error);
            // The kernel may have dropped what it could not write, and says so only once.
            self.abandon();
            return Err(error);
        }
        self.buffer.drain(..Self::record_bytes(&self.waiting[..self.written]));
        self.waiting.drain(..self.written);
        self.written = 0;
        Ok(())
    }

    /// Leaves the current file as it is. What is not durable of it goes into the next one.
    fn abandon(&mut self) {
        self.end();
        self.written = 0;
    }

    /// Ends the current file.
    fn end(&mut self) -> Option<Current> {
        let current = self.current.take()?;
        let unsynced = Self::record_bytes(&self.waiting[..self.written]) as u64;
        self.before = Some(Before { number: current.number, bytes: current.bytes - unsynced });
        Some(current)
    }

    pub(super) fn close(&mut self, shared: &Shared) -> Result<(), StoreError> {
        self.sync()?;
        let Some(current) = self.end() else { return Ok(()) };
        // Without room for an index the file is as good, only slower to open.
        if let Ok(bytes) = file::seal(&current.opened.file, current.bytes, &current.entries) {
            shared.with(self.level, |shelf| shelf.files.entry(current.number).or_default().bytes = bytes);
        }
        Ok(())
    }
}
