// SPDX-License-Identifier: Apache-2.0
//! Opening a ring, and what an earlier process has left in it.
//!
//! Usually all from `released` to `published` are records, and maybe there is one more that was whole before it could
//! be published: the ring goes on where it is. If something in it cannot be right, or another size is wanted, what is
//! whole is copied to a new file, which then takes the place of the old one by a rename: a kill at any time leaves one
//! or the other. Where the page is damaged that is every record of the file, also those that had been released; who has
//! them elsewhere knows by their sequence numbers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::mapping::{Mapping, PAGE_WORDS};
use super::record::{Header, MAX_SEQUENCE, is_skip};
use super::{Consumer, PUBLISHED, Position, Producer, RELEASED, RESERVE_WORDS, SLOTS, offset, slot_sum};
use crate::damage::{StoreError, io_error};
use crate::framing::files::Locked;

const MAGIC: u64 = u64::from_le_bytes(*b"OLRING\0\x01");
/// A file that holds data is its owner's alone.
const MODE: u32 = 0o600;
/// No ring gets so far.
const MAX_POSITION: u64 = 1 << 62;

/// What was found in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records that the consumer gets first.
    pub records: u64,
    /// Places among them where records are missing, since they were damaged.
    pub lost: u64,
    /// Whether something was damaged. Records that had been released may come again then.
    pub is_damaged: bool,
}

/// Records that are left, one behind the other.
struct Left {
    from: u64,
    to: u64,
    /// Sequence numbers: of the first record, and of the last one that there ever was.
    first: u64,
    last: u64,
    records: u64,
}

/// Opens the ring in a file, or makes it, with room for so many bytes of records, and finds what an earlier process
/// left. Sequence numbers go on behind `after`, the last one that is known from elsewhere. More room is taken if what
/// was left needs it.
///
/// # Errors
/// [`StoreError::InUse`], [`StoreError::Io`].
pub fn open(path: &Path, bytes: u64, after: u64) -> Result<(Producer, Consumer, Recovery), StoreError> {
    let capacity = bytes.div_ceil(8).next_multiple_of(PAGE_WORDS as u64).max(PAGE_WORDS as u64);
    let old = locked(File::options().create(true).truncate(false), path)?;
    let found = old.metadata().map_err(io_error("examine", path))?;
    if fs::metadata(path).map_err(io_error("examine", path))?.ino() != found.ino() {
        // Another process has put a new one in its place just now.
        return Err(StoreError::InUse(path.to_owned()));
    }
    let words = usize::try_from(found.len() / 8).unwrap_or(usize::MAX);
    if words <= PAGE_WORDS {
        let (memory, left) = made(path, capacity, &[], &BTreeMap::new(), 0)?;
        return Ok(begin(memory, &left, after, Recovery { is_damaged: found.len() > 0, ..Recovery::default() }));
    }
    let old = Mapping::of(old, words).map_err(io_error("map", path))?;
    let numbers = Numbers::of(&old);
    reserve_left(&old, numbers.as_ref()).map_err(io_error("take the memory of", path))?;
    let left = numbers.as_ref().and_then(|numbers| walk(data(&old), numbers));
    if let Some(left) = left.as_ref().filter(|_| old.capacity() as u64 == capacity) {
        return Ok(begin(old, left, after, Recovery { records: left.records, ..Recovery::default() }));
    }
    old.reserve(0, old.capacity()).map_err(io_error("take the memory of", path))?;
    let mut records = whole(data(&old));
    let before = numbers.as_ref().map_or(0, |numbers| numbers.before);
    let mut recovery = Recovery::default();
    if let Some(left) = &left {
        records.retain(|sequence, _| (left.first..=left.last).contains(sequence));
    } else {
        records.retain(|sequence, _| *sequence > before);
        // The last one leaves no hole.
        recovery.lost = holes(&records).max(numbers.is_some().into());
        recovery.is_damaged = true;
    }
    recovery.records = records.len() as u64;
    let (memory, left) = made(path, capacity, data(&old), &records, left.map_or(before, |left| left.last))?;
    Ok(begin(memory, &left, after, recovery))
}

/// Memory of what is looked at: what is left, and a record behind it. All of it where nobody knows.
fn reserve_left(memory: &Mapping, numbers: Option<&Numbers>) -> io::Result<()> {
    let capacity = memory.capacity() as u64;
    let Some(numbers) = numbers else { return memory.reserve(0, memory.capacity()) };
    let (from, words) = (offset(numbers.released, capacity), numbers.published - numbers.released + RESERVE_WORDS);
    let words = usize::try_from(words.min(capacity)).unwrap_or(usize::MAX);
    memory.reserve(from, words)?;
    // And round to the beginning.
    memory.reserve(0, (from + words).saturating_sub(memory.capacity()))
}

/// A file that is ours alone.
fn locked(options: &mut OpenOptions, path: &Path) -> Result<Locked, StoreError> {
    let file = options.read(true).write(true).mode(MODE).open(path).map_err(io_error("open", path))?;
    Locked::take(file).map_err(|_| StoreError::InUse(path.to_owned()))
}

/// What the page says.
struct Numbers {
    published: u64,
    released: u64,
    /// Number of the last record that was released.
    before: u64,
}

impl Numbers {
    /// `None`: it is damaged.
    fn of(memory: &Mapping) -> Option<Self> {
        let number = |at: usize| memory.numbers()[at].load(Ordering::Acquire);
        let capacity = memory.capacity() as u64;
        if [number(0), number(1), number(2)] != geometry(capacity) {
            return None;
        }
        let newest = SLOTS.into_iter().filter_map(|slot| released(memory, slot)).max();
        let ((released, before), published) = (newest?, number(PUBLISHED));
        let is_possible = released <= published && published - released <= capacity && published < MAX_POSITION;
        (is_possible && before < MAX_SEQUENCE).then_some(Self { published, released, before })
    }
}

/// Position and sequence number in a slot, if it is whole.
fn released(memory: &Mapping, slot: usize) -> Option<(u64, u64)> {
    let [word, sequence, sum] = [0, 1, 2].map(|at| memory.numbers()[slot + at].load(Ordering::Acquire));
    (slot_sum(word, sequence) == sum).then_some((word, sequence))
}

fn geometry(capacity: u64) -> [u64; 3] {
    [MAGIC, capacity, u64::from(crc32c::crc32c(bytemuck::cast_slice(&[MAGIC, capacity])))]
}

/// All records.
fn data(memory: &Mapping) -> &[u64] {
    // SAFETY: as long as a ring is being opened nobody else knows of its mapping, and no other process opens the file
    // (`locked`).
    unsafe { std::slice::from_raw_parts(memory.words(0, memory.capacity()).cast_const(), memory.capacity()) }
}

/// The records that the page tells of, and what follows them. `None`: one of them is damaged.
fn walk(data: &[u64], numbers: &Numbers) -> Option<Left> {
    let &Numbers { published, released, before } = numbers;
    let capacity = data.len() as u64;
    let mut left = Left { from: released, to: released, first: before + 1, last: before, records: 0 };
    let mut at = released;
    while at - released < capacity {
        let rest = &data[offset(at, capacity)..];
        if is_skip(rest) {
            at += rest.len() as u64;
            continue;
        }
        let Some(header) = Header::check(rest) else { break };
        let end = at + header.record_words() as u64;
        // Among those that were published there are holes where something was lost before. What lies behind them may be
        // of an earlier round.
        let follows = at < published && (left.records == 0 || header.sequence > left.last);
        if !(follows || header.sequence == left.last + 1) || end - released > capacity {
            break;
        }
        let first = if left.records == 0 { header.sequence } else { left.first };
        left = Left { from: released, to: end, first, last: header.sequence, records: left.records + 1 };
        at = end;
    }
    (left.to >= published).then_some(left)
}

/// Where whole records are, by their numbers.
fn whole(data: &[u64]) -> BTreeMap<u64, usize> {
    let (mut found, mut at) = (BTreeMap::new(), 0);
    while at < data.len() {
        at += Header::check(&data[at..]).map_or(1, |header| {
            found.insert(header.sequence, at);
            header.record_words()
        });
    }
    found
}

/// Places where numbers are missing.
fn holes(records: &BTreeMap<u64, usize>) -> u64 {
    records.keys().zip(records.keys().skip(1)).filter(|(before, next)| *before + 1 < **next).count() as u64
}

/// Makes a ring of these records in the place of what is there; without any, the one after `last` will be the next.
fn made(
    path: &Path,
    capacity: u64,
    old: &[u64],
    records: &BTreeMap<u64, usize>,
    last: u64,
) -> Result<(Mapping, Left), StoreError> {
    let records_there = || {
        let record = |at: &usize| Some(&old[*at..][..Header::parse(&old[*at..])?.record_words()]);
        records.values().filter_map(record)
    };
    let needed: usize = records_there().map(<[u64]>::len).sum();
    let words = capacity.max(needed.next_multiple_of(PAGE_WORDS) as u64) + PAGE_WORDS as u64;
    let mut new = OsString::from(path);
    new.push(".new");
    let new = Path::new(&new);
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", new)(error)),
        _ => {}
    }
    let file = locked(File::options().create_new(true), new)?;
    file.set_len(words.saturating_mul(8)).map_err(io_error("extend", new))?;
    let words = usize::try_from(words).unwrap_or(usize::MAX);
    let memory = Mapping::of(file, words).map_err(io_error("take the memory of", new))?;
    memory.reserve(0, needed).map_err(io_error("take the memory of", new))?;
    let mut to = 0;
    for record in records_there() {
        // SAFETY: as in `data`.
        unsafe { std::slice::from_raw_parts_mut(memory.words(to, record.len()), record.len()) }.copy_from_slice(record);
        to += record.len();
    }
    let ends = records.first_key_value().zip(records.last_key_value());
    let (first, last) = ends.map_or((last + 1, last), |((first, _), (last, _))| (*first, *last));
    let left = Left { from: 0, to: to as u64, first, last, records: records.len() as u64 };
    note(&memory, &left, first - 1);
    fs::rename(new, path).map_err(io_error("put in place", new))?;
    Ok((memory, left))
}

/// Writes the page.
fn note(memory: &Mapping, left: &Left, before: u64) {
    let set = |at: usize, value: u64| memory.numbers()[at].store(value, Ordering::Release);
    geometry(memory.capacity() as u64).into_iter().enumerate().for_each(|(at, value)| set(at, value));
    let mut slots = SLOTS;
    // The newest one last: a kill leaves it or one that is as new.
    slots.sort_by_key(|slot| released(memory, *slot));
    for slot in slots {
        [left.from, before, slot_sum(left.from, before)].into_iter().zip(slot..).for_each(|(value, at)| set(at, value));
    }
    set(RELEASED, left.from);
    set(PUBLISHED, left.to);
}

fn begin(memory: Mapping, left: &Left, after: u64, recovery: Recovery) -> (Producer, Consumer, Recovery) {
    let sequence = left.last.max(after);
    let before = if left.records == 0 { sequence } else { left.first - 1 };
    note(&memory, left, before);
    let (capacity, memory) = (memory.capacity() as u64, Arc::new(memory));
    let producer = Producer {
        memory: memory.clone(),
        capacity,
        published: left.to,
        released: left.from,
        begun: left.from,
        most_waiting: 0,
        reserved: 0,
        sequence,
    };
    let at = Position { word: left.from, sequence: before };
    let consumer =
        Consumer { memory, capacity, published: left.to, at, released: left.from, releases: 0, lost_bytes: 0 };
    (producer, consumer, recovery)
}
