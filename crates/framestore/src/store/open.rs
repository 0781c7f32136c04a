// SPDX-License-Identifier: Apache-2.0
//! Opening a store: the catalogue, indexes of chunks, the log's rows into heads, and then what is left in the ring.

use std::collections::{HashMap, HashSet, hash_map};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::clock::Trusted;
use super::fronts::Fronts;
use super::grown::Grown;
use super::holes::{Times, mark_holes, mark_lost_rollups};
use super::interval::Intervals;
use super::rolling::Rolling;
use super::rows::{Rows, Track};
use super::turn::{SHARD, Turned, Writer};
use super::{Config, Figures, Shared, Store, lock, steady_ns, thinned};
use crate::catalogue::{Catalogue, Known};
use crate::client::Appender;
use crate::damage::StoreError;
use crate::framing::files::{Lock, is_disk_full};
use crate::gaps::GapLog;
use crate::ring;
use crate::types::TrackId;
use crate::wal::{Entry, Source, Wal};
use crate::warm::{self, Level, Warm};
use crate::{catalogue, wal};

/// Bytes of a segment of the log.
const SEGMENT_BYTES: u64 = 32 << 20;

/// What opening a store found.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Tracks that have chunks.
    pub tracks: usize,
    /// Rows that came out of the log.
    pub log_rows: u64,
    /// Records that came out of the ring.
    pub ring_records: u64,
    /// Rows of the log whose track nobody knows.
    pub unknown_rows: u64,
    /// What the log was found to be.
    pub log: wal::Recovery,
    /// What the ring was found to be.
    pub ring: ring::Recovery,
    /// What the catalogue was found to be.
    pub catalogue: catalogue::Recovery,
    /// Damaged bytes of chunks' files.
    pub chunks: Vec<warm::Damaged>,
    /// Damaged bytes of the file of gaps.
    pub gaps: u64,
}

/// Opens a store, or makes it.
///
/// # Errors
/// [`StoreError`]. Damage is none: what is lost is a gap.
pub fn open(config: Config) -> Result<(Store, Writer, Appender, Recovery), StoreError> {
    let directory = Lock::take(&config.dir)?;
    let (catalogue, found) = Catalogue::open(&directory)?;
    let mut recovery = Recovery { catalogue: found, ..Recovery::default() };
    let (warm, damaged) = Warm::open(&config.dir)?;
    recovery.chunks = damaged;
    let (gaps, damaged) = GapLog::open(&config.dir)?;
    recovery.gaps = damaged;
    let mut replayed = Replayed::new(catalogue.known(), warm.reader());
    let (mut wal, found) = Wal::open(&directory, SEGMENT_BYTES, |source, entry| replayed.take(source, entry))?;
    let after = found.covered.get(&SHARD).copied().unwrap_or(0);
    // Numbers that chunks know must not come again, whatever the log and the ring have lost.
    let marks = warm.reader().tracks(Level::Raw).into_iter().filter_map(|id| warm.reader().mark(Level::Raw, id));
    let most = marks.max().unwrap_or(0).max(after);
    let (producer, consumer, found_ring) = ring::open(&config.ring, config.ring_bytes, most)?;
    // What the ring has given back was in the log.
    if consumer.position().sequence() > after {
        replayed.lose_ends();
    }
    let Replayed { rows, unknown, in_chunks, not_taken, .. } = replayed;
    // Their next row is coded against zeros, and not against what is in the log.
    for id in in_chunks.union(&not_taken) {
        wal.cut(*id)?;
    }
    (recovery.log_rows, recovery.unknown_rows) = (found.rows, unknown);
    (recovery.ring_records, recovery.ring) = (found_ring.records, found_ring);
    recovery.tracks = warm.reader().tracks(Level::Raw).len();
    recovery.log = found;
    let cut = rows.tracks.iter().filter(|(_, track)| !track.cut.is_empty()).map(|(id, _)| *id).collect();
    let shared = Arc::new(Shared {
        known: catalogue.known(),
        chunks: warm.reader(),
        rows: Mutex::new(rows),
        gaps: gaps.gaps(),
        fronts: Fronts::default(),
        thinned: thinned::Cache::default(),
        grown: Grown::new(config.decoded_bytes).into(),
        intervals: Intervals::default(),
        due: Mutex::default(),
        figures: Figures::default(),
    });
    let mut writer = Writer {
        config,
        shared: shared.clone(),
        catalogue,
        consumer,
        wal,
        warm,
        gaps,
        is_opening: true,
        covered: after,
        dirty: Vec::new(),
        unsynced: Vec::new(),
        cut,
        looked_ns: steady_ns(),
        is_drained: false,
        rolling: Rolling::default(),
        aged_ns: 0,
        trusted: Trusted::new(0, None),
        #[cfg(test)]
        shown_ns: None,
        durable_ns: steady_ns(),
        turned: Turned::default(),
    };
    // Readers find at once what the ring has. A record of the log has room for one drain; what a full disk does not
    // take waits for the first turn.
    while !writer.drain() {
        match writer.log() {
            Err(error) if !is_disk_full(&error) => return Err(error),
            _ => {}
        }
    }
    writer.is_opening = false;
    writer.trusted = Trusted::new(writer.gaps.clock_ns(), writer.newest_ns());
    writer.mark_holes(&recovery.chunks);
    match writer.gaps.write().and_then(|()| writer.gaps.sync()) {
        Ok(()) => writer.warm.end_found(),
        // What is damaged is found again.
        Err(error) if is_disk_full(&error) => {}
        Err(error) => return Err(error),
    }
    writer.tell_figures();
    let appender = Appender::new(producer, writer.catalogue.definer());
    Ok((Store(shared), writer, appender, recovery))
}

/// Rows of the log, back in heads.
pub(super) struct Replayed {
    known: Arc<RwLock<Known>>,
    chunks: warm::Reader,
    pub(super) rows: Rows,
    unknown: u64,
    /// Tracks whose head, as far as the replay is, has become a chunk.
    in_chunks: HashSet<TrackId>,
    /// Tracks of which rows could not be taken since the last cut of their head.
    not_taken: HashSet<TrackId>,
}

impl Replayed {
    pub(super) fn new(known: Arc<RwLock<Known>>, chunks: warm::Reader) -> Self {
        Self { known, chunks, rows: Rows::default(), unknown: 0, in_chunks: HashSet::new(), not_taken: HashSet::new() }
    }

    pub(super) fn take(&mut self, source: &Source, entry: Entry<'_>) {
        match entry {
            Entry::Rows { track, rows, bytes } => {
                // Rows are coded against those before them.
                if self.is_in_chunk(source, track) || self.not_taken.contains(&track) {
                    return;
                }
                let Some(kept) = self.track(track) else {
                    self.unknown += u64::from(rows);
                    self.not_taken.insert(track);
                    return;
                };
                if kept.head.rows() == 0 {
                    (kept.segment, kept.began_ns) = (source.segment, steady_ns());
                }
                let before = kept.head.times_ns();
                match kept.head.extend(bytes) {
                    Ok(_) => {
                        (kept.logged_rows, kept.logged_bytes) = (kept.head.rows(), kept.head.len_bytes());
                        kept.sequence = source.sequence;
                        let newest_ns = kept.head.times_ns().map_or(0, |(_, to_ns)| to_ns).max(kept.newest_ns);
                        (kept.newest_ns, kept.durable_until_ns) = (newest_ns, newest_ns);
                    }
                    // It was written so.
                    Err(_) => {
                        kept.lost_since_ns = Some(before.map_or(kept.newest_ns, |(_, to_ns)| to_ns));
                        self.not_taken.insert(track);
                    }
                }
            }
            Entry::Cut { track } => self.cut(track),
            Entry::Lost { track, .. } => {
                self.cut(track);
                self.lose(track);
            }
        }
    }

    /// Whether a head's rows are in a chunk is told by its first ones: the others are coded against them.
    fn is_in_chunk(&mut self, source: &Source, track: TrackId) -> bool {
        if self.in_chunks.contains(&track) {
            return true;
        }
        let begins = self.rows.tracks.get(&track).is_none_or(|track| track.head.rows() == 0);
        let is_old = begins && self.chunks.mark(Level::Raw, track).is_some_and(|mark| mark >= source.sequence);
        if is_old {
            self.in_chunks.insert(track);
        }
        is_old
    }

    fn cut(&mut self, track: TrackId) {
        self.in_chunks.remove(&track);
        self.not_taken.remove(&track);
        if let Some(track) = self.rows.tracks.get_mut(&track) {
            track.cut();
            track.cut.iter_mut().for_each(|cut| cut.is_durable = true);
        }
    }

    /// The end of the log is lost: of which tracks it had rows nobody knows.
    fn lose_ends(&mut self) {
        let known: Vec<TrackId> = self.known.read().unwrap_or_else(PoisonError::into_inner).tracks().collect();
        known.into_iter().for_each(|id| self.lose(id));
    }

    /// Rows of a track are lost behind its last one.
    fn lose(&mut self, id: TrackId) {
        let created_ns = self.known.read().unwrap_or_else(PoisonError::into_inner).created_ns(id);
        if let Some(track) = self.track(id) {
            let since_ns = Some(track.newest_ns).filter(|newest_ns| *newest_ns > 0).or(created_ns);
            track.lost_since_ns = track.lost_since_ns.or(since_ns);
        }
    }

    fn track(&mut self, id: TrackId) -> Option<&mut Track> {
        self.rows.track(id, &self.known.read().unwrap_or_else(PoisonError::into_inner), &self.chunks)
    }
}

impl Rows {
    /// A track's place among those that have had rows, where its rows may not be of this process.
    pub(super) fn track(&mut self, id: TrackId, known: &Known, chunks: &warm::Reader) -> Option<&mut Track> {
        match self.tracks.entry(id) {
            hash_map::Entry::Occupied(track) => Some(track.into_mut()),
            hash_map::Entry::Vacant(place) => {
                let mut track = Track::new(known.layout_of(id)?);
                track.newest_ns = chunks.newest_ns(Level::Raw, id).unwrap_or(0);
                // Nobody appends to it until somebody does.
                track.is_ended = true;
                Some(place.insert(track))
            }
        }
    }
}

impl Writer {
    /// Latest time of a row, UTC ns.
    fn newest_ns(&self) -> Option<u64> {
        let in_chunks = Level::ALL.into_iter().filter_map(|level| self.shared.chunks.latest_ns(level)).max();
        let in_memory = lock(&self.shared.rows).newest_ns_of_all();
        in_chunks.max(in_memory).filter(|newest_ns| *newest_ns > 0)
    }

    pub(super) fn mark_holes(&mut self, damaged: &[warm::Damaged]) {
        let times = Times { shown_ns: self.utc_ns(), trusted_ns: self.trusted.utc_ns };
        let mut rows = lock(&self.shared.rows);
        let known = self.catalogue.look();
        mark_holes(damaged, &known, &self.shared.chunks, &mut rows, |gap| self.gaps.push(gap));
        mark_lost_rollups(damaged, &known, &self.shared.chunks, &rows, times, |gap| self.gaps.push_lost(gap));
    }
}

impl Store {
    /// Time of the last row of each host, UTC ns.
    #[must_use]
    pub fn newest_of_hosts(&self) -> HashMap<String, u64> {
        let mut newest: HashMap<String, u64> = HashMap::new();
        // Whoever takes two locks takes the rows' first.
        let tracks: Vec<(TrackId, String)> =
            self.known().tracks_with_hosts().map(|(track, host)| (track, host.to_owned())).collect();
        for (track, host) in tracks {
            // Of a host that was silent for longer only rollups are left.
            let in_chunks = || Level::ALL.iter().find_map(|level| self.0.chunks.newest_ns(*level, track));
            let of_track = lock(&self.0.rows).newest_ns(track).or_else(in_chunks);
            if let Some(time_ns) = of_track {
                let of_host = newest.entry(host).or_default();
                *of_host = time_ns.max(*of_host);
            }
        }
        newest
    }
}
