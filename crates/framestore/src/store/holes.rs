// SPDX-License-Identifier: Apache-2.0
//! What damaged files of chunks have lost, as far as the chunks around it tell.
//!
//! Rows that are lost are gaps. Rollups that are lost may be in another level, now or until that goes: they are kept
//! apart, and who reads is told of those that no level has (`coarse.rs`).

use std::collections::BTreeMap;
use std::ops::Range;

use super::DAMAGED;
use super::rows::{HEAD_AGE_NS, Rows, Track};
use crate::catalogue::Known;
use crate::rollup::fits;
use crate::types::{Gap, TrackId};
use crate::warm::{self, Level};

/// No row of a chunk is older than this when the chunk is written, ns: heads that are old are cut.
const WRITTEN_WITHIN_NS: u64 = 2 * HEAD_AGE_NS;
/// Windows of tracks that are rolled up at once lie no further apart: rows of some become chunks later.
const WINDOWS_APART: u64 = 2;

/// Where a file of a level has lost something: its number, and offsets.
fn lost_of(damaged: &[warm::Damaged], level: Level) -> BTreeMap<u32, Range<u64>> {
    // Several in one file are one.
    let mut lost: BTreeMap<u32, Range<u64>> = BTreeMap::new();
    for one in damaged {
        let Some(file) = one.number(level) else { continue };
        let end = one.offset + one.bytes;
        let range = lost.entry(file).or_insert(one.offset..end);
        *range = range.start.min(one.offset)..range.end.max(end);
    }
    lost
}

pub(super) fn gap(track: TrackId, from_ns: u64, to_ns: u64) -> Gap {
    Gap { track, of: None, from_ns, to_ns, reason: DAMAGED.to_owned() }
}

/// What was lost of a track's rows lies between the row before and the row behind, or where there is none, from where
/// the track or what was written then can have begun, until where that can have ended.
pub(super) fn mark_holes(
    damaged: &[warm::Damaged],
    known: &Known,
    chunks: &warm::Reader,
    rows: &mut Rows,
    mut tell: impl FnMut(&Gap),
) {
    let latest_ns = chunks.latest_ns(Level::Raw).max(rows.newest_ns_of_all());
    for (file, range) in lost_of(damaged, Level::Raw) {
        let lost = (file, range.start)..(file, range.end);
        let (before_ns, behind_ns) = chunks.neighbours(Level::Raw, &lost, u64::MAX);
        let since_ns = before_ns.map(|before_ns| before_ns.saturating_sub(WRITTEN_WITHIN_NS));
        let until_ns = behind_ns.map(|behind_ns| behind_ns.saturating_add(WRITTEN_WITHIN_NS)).min(latest_ns);
        for track in known.tracks() {
            let in_memory = rows.tracks.get(&track).and_then(Track::extent).map(|rows| rows.from_ns);
            let (before_ns, after_ns) = chunks.around(Level::Raw, track, &lost, in_memory);
            let Some(from_ns) = before_ns.or_else(|| known.created_ns(track)) else { continue };
            match after_ns.or(until_ns) {
                Some(to_ns) if to_ns > from_ns => {
                    // What was written right before may be of another time, by a clock that was wrong.
                    let since_ns = since_ns.filter(|since_ns| (from_ns..to_ns).contains(since_ns));
                    tell(&gap(track, since_ns.unwrap_or(from_ns), to_ns));
                }
                Some(_) => {}
                // Nothing was written later: the next row tells.
                None => {
                    if let Some(track) = rows.track(track, known, chunks) {
                        let from_ns = since_ns.map_or(from_ns, |since_ns| since_ns.max(from_ns));
                        track.lost_since_ns.get_or_insert(from_ns);
                    }
                }
            }
        }
    }
}

/// What the clock shows, and what UTC was taken for before (`clock.rs`). One of the two may be wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) shown_ns: u64,
    pub(super) trusted_ns: u64,
}

/// The same of rollups, all of which are of before now, and of rows that there were. How long it took to write them
/// says nothing: after a pause many windows are rolled up at once. But the oldest ones of all tracks come first.
pub(super) fn mark_lost_rollups(
    damaged: &[warm::Damaged],
    known: &Known,
    chunks: &warm::Reader,
    rows: &Rows,
    Times { shown_ns, trusted_ns }: Times,
    mut tell: impl FnMut(&Gap),
) {
    let now_ns = shown_ns.max(trusted_ns);
    // Rollups of later than the rows that were written last are of a clock that was ahead; unless these rows are of one
    // that was behind: what is of before both times is good.
    let (last_ns, _) = chunks.neighbours(Level::Raw, &((u32::MAX, 0)..(u32::MAX, 0)), u64::MAX);
    let good_ns = shown_ns.min(trusted_ns);
    let last_ns = last_ns.map_or(now_ns, |last_ns| last_ns.saturating_add(WRITTEN_WITHIN_NS).clamp(good_ns, now_ns));
    for level in Level::ALL.into_iter().skip(1) {
        for (file, range) in lost_of(damaged, level) {
            let lost = (file, range.start)..(file, range.end);
            let (before_ns, behind_ns) = chunks.neighbours(level, &lost, last_ns);
            let near_ns = before_ns.into_iter().chain(behind_ns).min().unwrap_or(0);
            let since_ns = near_ns.saturating_sub(WINDOWS_APART * level.window_ns());
            for track in known.tracks() {
                if known.layout_of(track).is_none_or(|layout| layout.are_events() || !fits(layout)) {
                    continue;
                }
                let rows_ns = rows.newest_ns(track).max(chunks.newest_ns(Level::Raw, track));
                let rolled_ns = || Level::ALL.into_iter().filter_map(|level| chunks.newest_ns(level, track)).max();
                if rows_ns.max(rolled_ns()).is_some_and(|newest_ns| newest_ns < since_ns) {
                    continue;
                }
                // Of rows that have gone nobody knows when the last one was.
                let behind_ns = rows_ns.map_or(now_ns, |rows_ns| rows_ns.min(now_ns)).saturating_add(1);
                let (before_ns, after_ns) = chunks.around(level, track, &lost, Some(behind_ns));
                let from_ns =
                    before_ns.map(|before_ns| before_ns.saturating_add(1)).or_else(|| known.created_ns(track));
                let to_ns = after_ns.unwrap_or(behind_ns).saturating_sub(1);
                if let Some(from_ns) = from_ns.filter(|from_ns| *from_ns <= to_ns) {
                    tell(&gap(track, from_ns, to_ns));
                }
            }
        }
    }
}
