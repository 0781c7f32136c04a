// SPDX-License-Identifier: Apache-2.0
//! A store that is only read, as long as nobody else writes to it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::grown::Grown;
use super::holes::mark_holes;
use super::open::Replayed;
use super::{DAMAGED, DECODED_BYTES, Figures, Shared, Store};
use crate::damage::StoreError;
use crate::framing::files::Lock;
use crate::types::Gap;
use crate::{catalogue, gaps, wal, warm};

/// Opens the store that is locked, to read it. Nothing is written; what a controller that was killed has left in its
/// ring is not in it. Returns it, and in how many places it was found to be damaged: what is lost there is not in it,
/// and more may be found when chunks are read.
///
/// # Errors
/// [`StoreError`].
pub fn open_to_read(lock: &Arc<Lock>) -> Result<(Store, usize), StoreError> {
    let dir = lock.dir();
    let (known, of_catalogue) = catalogue::look::read(dir)?;
    let (known, (chunks, damaged)) = (Arc::new(RwLock::new(known)), warm::look::reader(dir)?);
    let mut replayed = Replayed::new(known.clone(), chunks.clone());
    let of_log = wal::look::replay(&wal::look::hold(dir)?, |source, entry| replayed.take(source, entry))?;
    let (mut rows, mut gaps) = (replayed.rows, gaps::read(dir)?);
    let all = known.read().unwrap_or_else(PoisonError::into_inner);
    mark_holes(&damaged, &all, &chunks, &mut rows, |gap| gaps.tell(gap));
    drop(all);
    for (id, track) in &rows.tracks {
        // With its next row the store would tell until when rows are lost; here none follows.
        if let Some(from_ns) = track.lost_since_ns.filter(|since_ns| *since_ns < track.newest_ns) {
            let (track, to_ns, reason) = (*id, track.newest_ns, DAMAGED.to_owned());
            gaps.tell(&Gap { track, of: None, from_ns, to_ns, reason });
        }
    }
    let is_lossy = [of_log.lost_rows + of_log.lost_records > 0, of_catalogue.unusable_items > 0];
    let places = damaged.len() + is_lossy.into_iter().filter(|is_lossy| *is_lossy).count();
    let figures = Figures::default();
    figures.oldest_ns.store(chunks.oldest_of_all_ns().unwrap_or(0), Ordering::Relaxed);
    let (rows, gaps) = (Mutex::new(rows), Arc::new(Mutex::new(gaps)));
    let (due, fronts, thinned, intervals) = Default::default();
    let grown = Grown::new(DECODED_BYTES).into();
    let shared = Shared { known, chunks, rows, gaps, due, fronts, thinned, grown, intervals, figures };
    Ok((Store(Arc::new(shared)), places))
}
