// SPDX-License-Identifier: Apache-2.0
//! Times without rows: in memory by track, and in a file of their own, since they outlive the rows around them.
//!
//! A host that is late has the same gap in each of its tracks: it is in memory once, and a track has 8 bytes of it. A
//! track keeps [`MAX_GAPS`] at most, for a host that is late for days: beyond, pairs of neighbours that are nearest to
//! each other become one. The store thread writes; readers look under the lock of [`Gaps`], which is never held over a
//! disk. The file has framed records (`framing.rs`) with what `told.rs` makes of a gap; it is written again, whole,
//! when more than half of it is of no use any more, which is looked at whenever files of rows have gone, and when it has
//! twice the length that it needed the last time.
//!
//! Times of rollups that are *lost* have records of another kind: they are gaps only for who finds no other level that
//! has them, today or when that has gone (`store/coarse.rs`). A third kind notes what UTC was taken for, 8 bytes, of
//! which the last one counts (`store/clock.rs`).

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::damage::{Damage, StoreError, io_error};
use crate::framing::files::{self, is_disk_full};
use crate::framing::{self, Found, Reader};
use crate::told::{decode_gap, encode_gap};
use crate::types::{Gap, TrackId};

/// Gaps that a track has in memory, at most.
const MAX_GAPS: usize = 4096;
/// A file that is no longer than this is not written again.
const SMALL_BYTES: u64 = 1 << 20;
const GAP: u8 = 1;
const LOST: u8 = 2;
const CLOCK: u8 = 3;
const LEFT_OUT: u8 = 4;
const NAME: &str = "gaps.log";

#[derive(Debug, PartialEq, Eq)]
struct Short {
    of: Option<u32>,
    from_ns: u64,
    to_ns: u64,
    reason: Arc<str>,
}

impl Short {
    fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    fn until_ns(&self, next: &Self) -> u64 {
        next.from_ns.saturating_sub(self.to_ns)
    }

    fn with_track(&self, track: TrackId) -> Gap {
        Gap { track, of: self.of, from_ns: self.from_ns, to_ns: self.to_ns, reason: self.reason.as_ref().to_owned() }
    }
}

type ByTrack = BTreeMap<TrackId, Vec<Arc<Short>>>;

/// All gaps.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    tracks: ByTrack,
    /// Of rollups.
    lost: ByTrack,
    /// Times of which a rollup is not made, by its level, ascending; those that touch are one.
    left_out: BTreeMap<(TrackId, u32), Vec<(u64, u64)>>,
    /// What UTC was taken for, ns; 0: nobody has noted it.
    clock_ns: u64,
    reasons: Vec<Arc<str>>,
    last: Option<Arc<Short>>,
}

impl Gaps {
    /// Takes a gap; false: it is there already, and was told again after a restart.
    fn push(&mut self, kind: u8, gap: &Gap) -> bool {
        let short = self.short(gap);
        let all = if kind == LOST { &mut self.lost } else { &mut self.tracks };
        let track = all.entry(gap.track).or_default();
        if track.iter().rev().take(16).any(|there| *there == short) {
            return false;
        }
        if track.len() >= MAX_GAPS {
            shorten(track);
        }
        track.push(short);
        true
    }

    /// Takes a time of which a rollup is not made; false: it is there already.
    fn leave_out(&mut self, gap: &Gap) -> bool {
        let times = self.left_out.entry((gap.track, gap.of.unwrap_or(0))).or_default();
        let (mut from_ns, mut to_ns) = (gap.from_ns, gap.to_ns);
        if times.iter().any(|(first_ns, last_ns)| *first_ns <= from_ns && *last_ns >= to_ns) {
            return false;
        }
        let touches = |time: &(u64, u64)| time.0 <= to_ns.saturating_add(1) && time.1.saturating_add(1) >= from_ns;
        let at = times.partition_point(|time| time.1.saturating_add(1) < from_ns);
        let count = times[at..].iter().take_while(|time| touches(time)).count();
        for (first_ns, last_ns) in times.drain(at..at + count) {
            (from_ns, to_ns) = (from_ns.min(first_ns), to_ns.max(last_ns));
        }
        times.insert(at, (from_ns, to_ns));
        if times.len() > MAX_GAPS {
            times.remove(0);
        }
        true
    }

    /// Takes a record of the file.
    fn take(&mut self, kind: u8, payload: &[u8]) -> Result<(), Damage> {
        match kind {
            GAP | LOST => drop(self.push(kind, &decode_gap(payload)?)),
            LEFT_OUT => drop(self.leave_out(&decode_gap(payload)?)),
            CLOCK => {
                let bytes = payload.try_into().map_err(|_| Damage::Wrong("a clock"))?;
                self.clock_ns = u64::from_le_bytes(bytes);
            }
            _ => return Err(Damage::Wrong("kind")),
        }
        Ok(())
    }

    /// Takes a gap that is in no file.
    pub(crate) fn tell(&mut self, gap: &Gap) {
        self.push(GAP, gap);
    }

    /// The gap, which most often is that of the track before.
    fn short(&mut self, gap: &Gap) -> Arc<Short> {
        let Gap { of, from_ns, to_ns, ref reason, .. } = *gap;
        let same = |last: &&Arc<Short>| {
            (last.of, last.from_ns, last.to_ns, &*last.reason) == (of, from_ns, to_ns, reason.as_str())
        };
        if let Some(last) = self.last.as_ref().filter(same) {
            return last.clone();
        }
        let known = self.reasons.iter().find(|known| ***known == **reason).cloned();
        let reason = known.unwrap_or_else(|| {
            let reason: Arc<str> = reason.as_str().into();
            self.reasons.push(reason.clone());
            reason
        });
        let short = Arc::new(Short { of, from_ns, to_ns, reason });
        self.last = Some(short.clone());
        short
    }

    /// Those of a track that touch a time, and concern all of it or this part or line.
    pub(crate) fn between(&self, track: TrackId, of: u32, from_ns: u64, to_ns: u64) -> Vec<Gap> {
        let mine =
            touching(&self.tracks, track, from_ns, to_ns).filter(|gap| gap.of.is_none_or(|concerned| concerned == of));
        mine.map(|gap| gap.with_track(track)).collect()
    }

    /// Those of a track that touch a time, whatever they concern.
    pub(crate) fn all_between(&self, track: TrackId, from_ns: u64, to_ns: u64) -> Vec<Gap> {
        touching(&self.tracks, track, from_ns, to_ns).map(|gap| gap.with_track(track)).collect()
    }

    /// What of a track's rollups is lost, of those times that touch this one.
    pub(crate) fn lost(&self, track: TrackId, from_ns: u64, to_ns: u64) -> Vec<Gap> {
        touching(&self.lost, track, from_ns, to_ns).map(|gap| gap.with_track(track)).collect()
    }

    /// Whether a gap of a track's rows is told already, or a longer one.
    fn is_told(&self, gap: &Gap) -> bool {
        let is_in = |there: &&Arc<Short>| (there.of, &*there.reason) == (gap.of, gap.reason.as_str());
        let mut touching = touching(&self.tracks, gap.track, gap.from_ns, gap.to_ns).filter(is_in);
        touching.any(|there| there.from_ns <= gap.from_ns && there.to_ns >= gap.to_ns)
    }

    /// Whether a track has any that touches a time, or has lost rollups of it.
    pub(crate) fn has(&self, track: TrackId, from_ns: u64, to_ns: u64) -> bool {
        [&self.tracks, &self.lost].into_iter().any(|all| touching(all, track, from_ns, to_ns).next().is_some())
    }
}

fn touching(all: &ByTrack, track: TrackId, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Arc<Short>> {
    let all = all.get(&track).into_iter().flatten();
    all.filter(move |gap| gap.from_ns <= to_ns && gap.to_ns >= from_ns)
}

/// A time of a level, by the width of its buckets, as it is noted.
pub(crate) fn of_level(track: TrackId, level: u32, from_ns: u64, to_ns: u64) -> Gap {
    Gap { track, of: Some(level), from_ns, to_ns, reason: String::new() }
}

/// Makes one gap of each pair of neighbours of one reason that is as near as half of all; of any reasons, that of the
/// longer one, where this does not help.
fn shorten(gaps: &mut Vec<Arc<Short>>) {
    let mut distances: Vec<u64> = gaps.windows(2).map(|pair| pair[0].until_ns(&pair[1])).collect();
    let middle = distances.len() / 2;
    let near_ns = *distances.select_nth_unstable(middle).1;
    for any in [false, true] {
        let mut left = Vec::with_capacity(gaps.len());
        let mut rest = &gaps[..];
        while let [first, behind @ ..] = rest {
            rest = behind;
            let Some(second) = behind.first() else {
                left.push(first.clone());
                break;
            };
            let fits = first.of == second.of && (any || first.reason == second.reason);
            if !fits || second.from_ns < first.from_ns || first.until_ns(second) > near_ns {
                left.push(first.clone());
                continue;
            }
            let longer = if second.length_ns() > first.length_ns() { second } else { first };
            let (of, from_ns, to_ns) = (first.of, first.from_ns, first.to_ns.max(second.to_ns));
            left.push(Arc::new(Short { of, from_ns, to_ns, reason: longer.reason.clone() }));
            rest = &behind[1..];
        }
        *gaps = left;
        if gaps.len() <= MAX_GAPS - MAX_GAPS / 16 {
            return;
        }
    }
    // Times that go back and forth: the oldest go.
    gaps.drain(..MAX_GAPS / 16);
}

/// The file of a store's gaps.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Gaps of a store that nobody writes to.
pub(crate) fn read(dir: &Path) -> Result<Gaps, StoreError> {
    let path = path(dir);
    files::open_to_read(&path)?.map_or_else(|| Ok(Gaps::default()), |file| load(&file, &path).map(|(gaps, ..)| gaps))
}

/// What a file has, how many bytes of it are damaged, and where it is good up to.
fn load(file: &File, path: &Path) -> Result<(Gaps, u64, u64), StoreError> {
    let (mut gaps, mut damaged, mut bytes) = (Gaps::default(), 0, 0);
    let mut reader = Reader::new(file).map_err(io_error("read", path))?;
    while let Some(found) = reader.next().map_err(io_error("read", path))? {
        match found {
            Found::Record(record) => {
                bytes = record.offset + (framing::HEADER_BYTES + record.payload.len().next_multiple_of(8)) as u64;
                match gaps.take(record.kind, record.payload) {
                    Ok(()) => {}
                    Err(_) => damaged += record.payload.len() as u64,
                }
            }
            Found::Damaged(bad) => damaged += if bad.is_torn { 0 } else { bad.bytes },
        }
    }
    Ok((gaps, damaged, bytes))
}

/// Whether a record of that file is one.
pub(crate) fn check(kind: u8, payload: &[u8]) -> Result<(), Damage> {
    Gaps::default().take(kind, payload)
}

/// The one who writes them.
pub(crate) struct GapLog {
    path: PathBuf,
    file: File,
    /// Of the file, as far as it is good.
    bytes: u64,
    /// With so many it is looked at whether that is too long.
    look_bytes: u64,
    /// Not written yet.
    pending: Vec<u8>,
    is_synced: bool,
    gaps: Arc<Mutex<Gaps>>,
}

impl GapLog {
    /// Opens the file; says how many bytes of it are damaged.
    pub(crate) fn open(dir: &Path) -> Result<(Self, u64), StoreError> {
        let path = path(dir);
        let file = if path.exists() { files::open(&path)? } else { files::create(&path)? };
        let (gaps, damaged, bytes) = load(&file, &path)?;
        let gaps = Arc::new(Mutex::new(gaps));
        let (look_bytes, pending, is_synced) = (SMALL_BYTES, Vec::new(), true);
        Ok((Self { path, file, bytes, look_bytes, pending, is_synced, gaps }, damaged))
    }

    /// What readers look at.
    pub(crate) fn gaps(&self) -> Arc<Mutex<Gaps>> {
        self.gaps.clone()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn look(&self) -> MutexGuard<'_, Gaps> {
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&mut self, gap: &Gap) {
        self.enter(GAP, gap);
    }

    /// Takes a time of which a rollup is lost.
    pub(crate) fn push_lost(&mut self, gap: &Gap) {
        self.enter(LOST, gap);
    }

    /// Takes a gap unless all of it is in one that is there.
    pub(crate) fn push_new(&mut self, gap: &Gap) {
        let is_told = self.look().is_told(gap);
        if !is_told {
            self.push(gap);
        }
    }

    /// Notes a time of which a level, which `of` says, is not made: nobody tries again.
    pub(crate) fn leave_out(&mut self, gap: &Gap) {
        let is_new = self.look().leave_out(gap);
        if is_new {
            framing::append(LEFT_OUT, &encode_gap(gap), &mut self.pending);
        }
    }

    /// Times of which a level of a track is not made, ascending, without those that end before one.
    pub(crate) fn left_out(&self, level: u32, track: TrackId, from_ns: u64) -> Vec<(u64, u64)> {
        let gaps = self.look();
        let Some(times) = gaps.left_out.get(&(track, level)) else { return Vec::new() };
        times[times.partition_point(|(_, to_ns)| *to_ns < from_ns)..].to_vec()
    }

    /// What UTC was taken for when it was last noted, ns.
    pub(crate) fn clock_ns(&self) -> u64 {
        self.look().clock_ns
    }

    /// Notes what UTC is taken for.
    pub(crate) fn note_clock(&mut self, utc_ns: u64) {
        self.look().clock_ns = utc_ns;
        framing::append(CLOCK, &utc_ns.to_le_bytes(), &mut self.pending);
    }

    fn enter(&mut self, kind: u8, gap: &Gap) {
        let is_new = self.look().push(kind, gap);
        if is_new {
            framing::append(kind, &encode_gap(gap), &mut self.pending);
        }
    }

    /// Writes what is new, over what an earlier write has left that was not ended. After an error it is tried again
    /// with the next one.
    pub(crate) fn write(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(&self.pending, self.bytes).map_err(io_error("write", &self.path))?;
        self.bytes += self.pending.len() as u64;
        self.pending.clear();
        self.is_synced = false;
        if self.bytes >= self.look_bytes { self.shrink() } else { Ok(()) }
    }

    /// Makes durable what was written.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        if !self.is_synced {
            self.file.sync_data().map_err(io_error("sync", &self.path))?;
            self.is_synced = true;
        }
        Ok(())
    }

    /// Forgets gaps that ended before, and those of tracks that are not there any more.
    pub(crate) fn keep(&mut self, from_ns: u64, is_there: impl Fn(TrackId) -> bool) -> Result<(), StoreError> {
        let mut gaps = self.look();
        let Gaps { tracks, lost, left_out, .. } = &mut *gaps;
        left_out.retain(|(track, _), times| {
            times.retain(|(_, to_ns)| *to_ns >= from_ns);
            !times.is_empty() && is_there(*track)
        });
        for all in [tracks, lost] {
            all.retain(|track, of_track| {
                of_track.retain(|gap| gap.to_ns >= from_ns);
                !of_track.is_empty() && is_there(*track)
            });
        }
        drop(gaps);
        self.shrink()
    }

    /// Writes the file again if more than half of it is of no use.
    fn shrink(&mut self) -> Result<(), StoreError> {
        if self.bytes < SMALL_BYTES {
            return Ok(());
        }
        let mut all = Vec::new();
        let gaps = self.look();
        if gaps.clock_ns > 0 {
            framing::append(CLOCK, &gaps.clock_ns.to_le_bytes(), &mut all);
        }
        for (kind, tracks) in [(GAP, &gaps.tracks), (LOST, &gaps.lost)] {
            for (track, of_track) in tracks {
                of_track.iter().for_each(|gap| framing::append(kind, &encode_gap(&gap.with_track(*track)), &mut all));
            }
        }
        for ((track, level), times) in &gaps.left_out {
            for (from_ns, to_ns) in times {
                framing::append(LEFT_OUT, &encode_gap(&of_level(*track, *level, *from_ns, *to_ns)), &mut all);
            }
        }
        drop(gaps);
        let needed_bytes = all.len() as u64;
        self.look_bytes = SMALL_BYTES.max(needed_bytes * 2);
        if needed_bytes * 2 > self.bytes {
            return Ok(());
        }
        self.file = match files::write_whole(&self.path, &all) {
            // What is there is as good: this keeps nobody from making room.
            Err(error) if is_disk_full(&error) => return Ok(()),
            file => file?,
        };
        (self.bytes, self.is_synced) = (needed_bytes, true);
        // What waited to be written is in memory, and so in the new file.
        self.pending.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
