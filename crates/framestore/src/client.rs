// SPDX-License-Identifier: Apache-2.0
//! The processing thread's side: rows, gaps and definitions go into the ring, in the order in which they are told.
//!
//! Nothing here waits for a disk. What is defined is known to readers at once; it goes through the ring, too, so that rows of a controller that was killed find
//! what they mean. A row that finds the ring full is refused; gaps and ends wait here, a bounded number.

use std::collections::VecDeque;

use crate::catalogue::Definer;
pub use crate::catalogue::Description;
use crate::damage::Damage;
use crate::ring::{Producer, ROW, Refused};
use crate::told::{DEFINED, END, GAP, encode_gap};
use crate::types::{Gap, Line, TrackId};

/// Gaps and ends that wait for room in the ring.
const MAX_WAITING: usize = 65_536;

/// The one who appends.
pub struct Appender {
    producer: Producer,
    definer: Definer,
    /// Kind and payload of what found the ring full.
    waiting: VecDeque<(u8, Vec<u8>)>,
    lost: u64,
}

impl Appender {
    pub(crate) fn new(producer: Producer, definer: Definer) -> Self {
        Self { producer, definer, waiting: VecDeque::new(), lost: 0 }
    }

    /// The track of this description; it is defined where there is none, with a first row of `since_ns` (UTC).
    ///
    /// # Errors
    /// [`Damage`]: something in it is too large.
    pub fn track(&mut self, description: &Description, since_ns: u64) -> Result<TrackId, Damage> {
        let (track, defined) = self.definer.track(description, since_ns)?;
        self.tell(DEFINED, defined);
        Ok(track)
    }

    /// The line of a table with these labels and texts (number of the series, text), with a first row of `since_ns` (UTC).
    ///
    /// # Errors
    /// [`Damage`]: something in it is too large.
    pub fn line(
        &mut self,
        track: TrackId,
        labels: &[(String, String)],
        texts: &[(u32, String)],
        since_ns: u64,
    ) -> Result<Line, Damage> {
        let (line, defined) = self.definer.line(track, labels, texts, since_ns)?;
        self.tell(DEFINED, defined);
        Ok(line)
    }

    /// Appends a row.
    ///
    /// # Errors
    /// [`Refused`]: the disk has taken nothing for a while, or the row is wider than the ring has room for.
    pub fn append(&mut self, track: TrackId, line: Line, time_ns: u64, words: &[u64]) -> Result<(), Refused> {
        // What it means goes before it.
        self.flush()?;
        self.producer.push(ROW, track, line, time_ns, words).map(|_| ())
    }

    /// There are no rows for a time.
    pub fn gap(&mut self, gap: &Gap) {
        self.tell(GAP, encode_gap(gap));
    }

    /// A track gets no more rows, as far as is known.
    pub fn end(&mut self, track: TrackId) {
        self.tell(END, track.0.to_le_bytes().to_vec());
    }

    fn tell(&mut self, kind: u8, payload: Vec<u8>) {
        if payload.is_empty() {
            return;
        }
        // Rows without what they mean are nothing, so definitions always wait; quotas bound them.
        if kind == DEFINED || self.waiting.len() < MAX_WAITING {
            self.waiting.push_back((kind, payload));
        } else {
            self.lost += 1;
        }
        // The next row tries again.
        let _ = self.flush();
    }

    fn flush(&mut self) -> Result<(), Refused> {
        while let Some((kind, payload)) = self.waiting.front() {
            match self.producer.push_bytes(*kind, payload) {
                Err(Refused::Full) => return Err(Refused::Full),
                // What is larger than the ring never gets through it: readers know it, and the catalogue's next whole writing has it.
                Err(Refused::TooLarge { .. }) | Ok(_) => drop(self.waiting.pop_front()),
            }
        }
        Ok(())
    }

    /// Gaps and ends that were lost, since too many waited for room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes that the ring has ever given back.
    #[must_use]
    pub fn released_bytes(&self) -> u64 {
        self.producer.released_bytes()
    }

    /// Bytes in the ring that are not in the log yet.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.producer.used_bytes()
    }

    /// Bytes that the ring has room for.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.producer.capacity_bytes()
    }
}
