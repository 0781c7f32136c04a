// SPDX-License-Identifier: Apache-2.0
//! The warm log: records appended to segment files, read back to the last whole one.
//!
//! `<dir>/<number>.olog`, each at most a segment long but for its last record. A segment is never appended to by another process than the one that
//! made it: after a restart a new one begins, so that what a crash left at the end of the old one stays as it was found. Each begins with a `Segment`
//! record. What the tracks are stands elsewhere (`catalogue.rs`), so that any older segment can be deleted. One process at a time (a lock file).

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Damage, StoreError, io_error};
use crate::private;
use crate::record::{self, Frame, HEADER_BYTES, Record};

/// Version of the log's format. Read, too: 2, which had a record for each tile and definitions in each segment, and 1, which had no leaves.
pub const VERSION: u32 = 3;
const EXTENSION: &str = "olog";

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Segment number.
    pub segment: u32,
    /// Of its first byte.
    pub offset: u64,
}

/// Bytes of the log that are no records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Where they begin.
    pub place: Place,
    /// How many.
    pub bytes: u64,
    /// What is wrong with them.
    pub damage: Damage,
}

struct Segment {
    number: u32,
    bytes: u64,
}

/// The log.
pub struct Log {
    dir: PathBuf,
    _lock: File,
    /// Oldest first; the last one is `file`.
    segments: VecDeque<Segment>,
    file: File,
    dirty: bool,
    /// How long a disk takes to write and to sync.
    #[cfg(test)]
    pub(crate) slow: std::time::Duration,
}

impl Log {
    /// Opens or makes the log in `dir`, gives every whole record to `visit` in the order of writing, and begins a new segment.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::Version`], [`StoreError::Io`]. Damage is no error: it is returned.
    pub fn open(dir: &Path, mut visit: impl FnMut(Place, &Frame, &[u8])) -> Result<(Self, Vec<Damaged>), StoreError> {
        private::make_dir(dir).map_err(io_error("create", dir))?;
        let lock_path = dir.join("lock");
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(true).mode(private::MODE);
        let lock = options.open(&lock_path).map_err(io_error("create", &lock_path))?;
        private::restrict(&lock).map_err(io_error("restrict", &lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| StoreError::InUse(dir.to_owned()))?;
        let mut damaged = Vec::new();
        let mut segments = VecDeque::new();
        for number in list(dir)? {
            let path = path(dir, number);
            private::restrict_path(&path).map_err(io_error("restrict", &path))?;
            let bytes = fs::read(&path).map_err(io_error("read", &path))?;
            scan(number, &bytes, |place, result| match result {
                Ok((frame, payload)) => visit(place, frame, payload),
                Err((bytes, damage)) => damaged.push(Damaged { place, bytes, damage }),
            })
            .map_err(|found| StoreError::Version { path, found, known: VERSION })?;
            segments.push_back(Segment { number, bytes: bytes.len() as u64 });
        }
        if let Some(last) = segments.back() {
            // Whoever wrote it may have been killed before a sync: what was found whole counts as durable from now on.
            let path = path(dir, last.number);
            File::open(&path).and_then(|file| file.sync_data()).map_err(io_error("sync", &path))?;
        }
        let number = segments.back().map_or(1, |last| last.number + 1);
        let file = create(dir, number)?;
        segments.push_back(Segment { number, bytes: 0 });
        let mut log = Self {
            dir: dir.to_owned(),
            _lock: lock,
            segments,
            file,
            dirty: false,
            #[cfg(test)]
            slow: std::time::Duration::ZERO,
        };
        log.begin()?;
        Ok((log, damaged))
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes of the segment that is written.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.bytes)
    }

    /// Number of the oldest segment.
    #[must_use]
    pub fn oldest(&self) -> u32 {
        self.segments.front().map_or(1, |segment| segment.number)
    }

    /// Appends whole records. They are durable after [`Log::sync`].
    ///
    /// # Errors
    /// [`StoreError::Io`]; nothing of them stays then.
    pub fn append(&mut self, records: &[u8]) -> Result<Place, StoreError> {
        let Some(segment) = self.segments.back_mut() else { unreachable!("open begins a segment") };
        let place = Place { segment: segment.number, offset: segment.bytes };
        #[cfg(test)]
        std::thread::sleep(self.slow);
        if let Err(error) = self.file.write_all_at(records, segment.bytes) {
            // Part of a record must not be taken for the beginning of one; a later attempt writes over it in any case.
            let _ = self.file.set_len(segment.bytes);
            return Err(io_error("write to", &path(&self.dir, segment.number))(error));
        }
        segment.bytes += records.len() as u64;
        self.dirty = true;
        Ok(place)
    }

    /// Makes everything appended durable (fdatasync).
    ///
    /// # Errors
    /// [`StoreError::Io`]: nothing appended since the last success may be taken for durable.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        if self.dirty {
            #[cfg(test)]
            std::thread::sleep(self.slow);
            self.file.sync_data().map_err(io_error("sync", &self.dir))?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Whether the segment that is written has anything.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.segment_bytes() > (HEADER_BYTES + 8) as u64
    }

    /// Begins the next segment. Whatever of this one is not synced is not durable.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the old segment goes on then.
    pub fn roll(&mut self) -> Result<(), StoreError> {
        let number = self.segments.back().map_or(1, |last| last.number + 1);
        self.file = create(&self.dir, number)?;
        self.segments.push_back(Segment { number, bytes: 0 });
        self.begin()
    }

    /// Deletes the oldest segment; false where only the current one is left.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn drop_oldest(&mut self) -> Result<bool, StoreError> {
        if self.segments.len() < 2 {
            return Ok(false);
        }
        let path = path(&self.dir, self.oldest());
        fs::remove_file(&path).map_err(io_error("remove", &path))?;
        self.segments.pop_front();
        Ok(true)
    }

    /// Deletes the segments before the current one that `keep` does not want.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) -> Result<(), StoreError> {
        let current = self.segments.back().map_or(0, |segment| segment.number);
        let (kept, unwanted): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.segments).into_iter().partition(|s| s.number == current || keep(s.number));
        self.segments = kept;
        for segment in unwanted {
            let path = path(&self.dir, segment.number);
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        let number = self.segments.back().map_or(1, |segment| segment.number);
        let mut bytes = Vec::new();
        record::encode(&Record::Segment { version: VERSION, number }, &[], &mut bytes);
        self.append(&bytes).map(|_| ())
    }
}

/// Reads records. Segments may be deleted meanwhile.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    /// The segment that was read last.
    open: Option<(u32, File)>,
}

impl Reader {
    /// Reads what is in the log of a directory, beside whoever writes it.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), open: None }
    }

    /// Reads a record that [`Log::append`] or [`Log::open`] gave the place of; `None` where its segment is not there any more.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the inner error for bytes that are not what was written.
    pub fn read(&mut self, place: Place) -> Result<Option<Result<Record, Damage>>, StoreError> {
        let path = path(&self.dir, place.segment);
        let Some(file) = self.segment(place.segment, &path)? else { return Ok(None) };
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, place.offset).map_err(io_error("read", &path))?;
        let frame = match Frame::parse(&header) {
            Ok(frame) => frame,
            Err(damage) => return Ok(Some(Err(damage))),
        };
        let mut payload = vec![0; frame.payload_bytes];
        file.read_exact_at(&mut payload, place.offset + HEADER_BYTES as u64).map_err(io_error("read", &path))?;
        Ok(Some(frame.check(&payload).and_then(|()| frame.decode(&payload))))
    }

    /// Gives every whole record of a segment to `visit`; false where it is not there any more.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn look_through(&self, segment: u32, mut visit: impl FnMut(Place, &Frame, &[u8])) -> Result<bool, StoreError> {
        let path = path(&self.dir, segment);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            read => read.map_err(io_error("read", &path))?,
        };
        let whole = |place, result: Found| result.map_or((), |(frame, payload)| visit(place, frame, payload));
        scan(segment, &bytes, whole).map_err(|found| StoreError::Version { path, found, known: VERSION })?;
        Ok(true)
    }

    fn segment(&mut self, number: u32, path: &Path) -> Result<Option<&File>, StoreError> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => self.open = Some((number, file.map_err(io_error("open", path))?)),
            }
        }
        Ok(self.open.as_ref().map(|(_, file)| file))
    }
}

fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:010}.{EXTENSION}"))
}

/// Numbers of the segments that are there, in order.
fn list(dir: &Path) -> Result<Vec<u32>, StoreError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let name = entry.map_err(io_error("list", dir))?.file_name();
        let name = Path::new(&name);
        if name.extension().is_some_and(|extension| extension == EXTENSION) {
            numbers.extend(name.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u32>().ok()));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn create(dir: &Path, number: u32) -> Result<File, StoreError> {
    let path = path(dir, number);
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true).mode(private::MODE);
    let file = options.open(&path).map_err(io_error("create", &path))?;
    // The name must be as durable as what will be written under it.
    sync_dir(dir)?;
    Ok(file)
}

/// Makes names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync", dir))
}

/// A record, or how many bytes are none.
pub(crate) type Found<'a> = Result<(&'a Frame, &'a [u8]), (u64, Damage)>;

/// Finds all records of a segment. `Err` is the version of a segment that somebody else wrote.
pub(crate) fn scan(number: u32, bytes: &[u8], mut visit: impl FnMut(Place, Found)) -> Result<(), u32> {
    let mut at = 0;
    while at < bytes.len() {
        let place = Place { segment: number, offset: at as u64 };
        let (length, result) = one(&bytes[at..]);
        if let (0, Ok((frame, payload))) = (at, &result)
            && let Ok(Record::Segment { version, .. }) = frame.decode(payload)
            && !(1..=VERSION).contains(&version)
        {
            return Err(version);
        }
        match result {
            Ok((frame, payload)) => visit(place, Ok((&frame, payload))),
            Err(damage) => visit(place, Err((length as u64, damage))),
        }
        at += length;
    }
    Ok(())
}

/// The record at the front, or the bytes up to where the next may begin.
fn one(bytes: &[u8]) -> (usize, Result<(Frame, &[u8]), Damage>) {
    let header = |at: usize| bytes.get(at..at + HEADER_BYTES).and_then(|header| header.try_into().ok());
    let frame = match header(0).map(Frame::parse) {
        Some(Ok(frame)) => frame,
        Some(Err(damage)) => {
            let next =
                (8..bytes.len()).step_by(8).find(|at| header(*at).is_some_and(|header| Frame::parse(header).is_ok()));
            return (next.unwrap_or(bytes.len()), Err(damage));
        }
        None => return (bytes.len(), Err(Damage::Record("end"))),
    };
    let Some(payload) = bytes.get(HEADER_BYTES..HEADER_BYTES + frame.payload_bytes) else {
        return (bytes.len(), Err(Damage::Record("end")));
    };
    let length = frame.record_bytes().min(bytes.len());
    (length, frame.check(payload).map(|()| (frame, payload)))
}

/// Whether the error means that the disk is full.
#[must_use]
pub fn is_disk_full(error: &StoreError) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    matches!(error, StoreError::Io { source, .. } if full.contains(&source.kind()))
}
