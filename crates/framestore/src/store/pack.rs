// SPDX-License-Identifier: Apache-2.0
//! Heads that were cut become chunks.

use std::time::{Duration, Instant};

use super::lock;
use super::rows::{Cut, Likeness};
use super::turn::Writer;
use crate::chunk::{Builder, Head, Shape};
use crate::damage::StoreError;
use crate::types::TrackId;
use crate::warm::Level;

/// A turn packs for so long: more waits for the next one.
const MOST_TIME: Duration = Duration::from_millis(100);

impl Writer {
    /// Writes chunks of heads that were cut, as far as the log says durably that they were.
    pub(super) fn pack(&mut self) -> Result<(), StoreError> {
        let begin = Instant::now();
        let waiting = self.cut.clone();
        for id in waiting {
            self.make_chunks(id)?;
            if begin.elapsed() > MOST_TIME {
                break;
            }
        }
        // What could not be written the last time, too.
        self.warm.write()?;
        let mut rows = lock(&self.shared.rows);
        self.cut.retain(|id| {
            let Some(track) = rows.tracks.get_mut(id) else { return false };
            track.cut.retain(|cut| cut.chunk.is_none());
            !track.cut.is_empty()
        });
        Ok(())
    }

    /// Makes chunks of a track's heads, without a lock; readers find them once they are written.
    fn make_chunks(&mut self, id: TrackId) -> Result<(), StoreError> {
        let (cuts, before): (Vec<(usize, Cut)>, Vec<u64>) = {
            let mut rows = lock(&self.shared.rows);
            let Some(track) = rows.tracks.get_mut(&id) else { return Ok(()) };
            let ready = track.cut.iter().enumerate().filter(|(_, cut)| cut.is_durable && cut.chunk.is_none());
            (ready.map(|(at, cut)| (at, cut.clone())).collect(), std::mem::take(&mut track.packed))
        };
        let Some(layout) = self.catalogue.look().layout_of(id).cloned() else { return Ok(()) };
        let mut builder = Builder::new(id, Shape::of(&layout));
        builder.begin_after(&before);
        builder.begin_behind(self.shared.chunks.last_begin_ns(Level::Raw, id).unwrap_or(0));
        for (at, cut) in cuts {
            builder.mark(cut.sequence);
            // They were encoded by this process, or looked at when they came out of the log.
            let _ = cut.rows.rows(|line, time_ns, words| builder.push(line, time_ns, words));
            let Some(chunk) = builder.finish() else { continue };
            let damaged = |damage| StoreError::Damaged { path: self.config.dir.clone(), offset: 0, damage };
            let head = Head::parse(&chunk).map_err(damaged)?;
            let (from_ns, to_ns, rows, bytes) = (head.from_ns, head.to_ns, head.rows, chunk.len());
            self.warm.append(Level::Raw, &chunk).map_err(damaged)?;
            let mut all = lock(&self.shared.rows);
            if let Some(cut) = all.tracks.get_mut(&id).and_then(|track| track.cut.get_mut(at)) {
                cut.chunk = Some(Likeness { from_ns, to_ns, rows, bytes });
            }
        }
        if let Some(track) = lock(&self.shared.rows).tracks.get_mut(&id).filter(|_| layout.parts().len() > 1) {
            track.packed = builder.last().to_vec();
        }
        Ok(())
    }
}
