// SPDX-License-Identifier: Apache-2.0
//! Events: payloads of 1 to 64 bytes that come when they come, as telemetry lists have them.
//!
//! A list is a line of a table; an event is a row of it: its time, how many bytes it has, and these in little-endian
//! words. A sample that has the time of the one before says nothing new, but of events each counts, in the order in
//! which they came. All else of the store is the same: ring, log, chunks, gaps, retention, export.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::series::{Form, Series};

use crate::client::{Appender, Description};
use crate::damage::{Damage, StoreError};
use crate::layout::{EVENTS, Layout, Part};
use crate::ring::Refused;
use crate::store::Store;
use crate::types::{Gap, Line, TrackId};

/// Bytes of an event at most.
pub const MAX_BYTES: usize = 64;
const MAX_WORDS: usize = MAX_BYTES / 8;

/// Of lists whose events have at most so many words.
static LAYOUTS: LazyLock<[Arc<Layout>; MAX_WORDS]> =
    LazyLock::new(|| std::array::from_fn(|words| Arc::new(layout(words + 1))));

fn layout(words: usize) -> Layout {
    let series = |name: &str, help: &str| Series {
        help: help.into(),
        acquisition: Acquisition::Published,
        ..Series::new(name, Metric::Gauge, Form::Unsigned)
    };
    let bytes = series("event_bytes", "Bytes of the event.");
    let payload = (0..words).map(|word| series(&format!("event_word_{word}"), "Eight of its bytes, little-endian."));
    let part = Part::new("events", EVENTS, std::iter::once(bytes).chain(payload).collect());
    Layout::new(vec![part.shared()], true)
}

/// A list of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// The track that it is in.
    pub track: TrackId,
    /// Its line.
    pub line: Line,
    words: usize,
}

/// Why an event was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// It is longer than those of its list may be.
    #[error("an event of {bytes} bytes, where the list has {most} at most")]
    TooLong {
        /// Bytes that it has.
        bytes: usize,
        /// Bytes that it may have.
        most: usize,
    },
    /// The ring has not taken it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// What a list is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Name of the host.
    pub host: String,
    /// Labels of the host.
    pub common: Vec<(String, String)>,
    /// Whose lists they are, as [`Description::source`].
    pub source: u64,
    /// What tells the list from others.
    pub labels: Vec<(String, String)>,
    /// Bytes of an event at most: 1 to [`MAX_BYTES`].
    pub bytes: usize,
}

impl Appender {
    /// The list of this description; it is defined where there is none, with a first event of `since_ns` (UTC).
    ///
    /// # Errors
    /// [`Damage`]: its events are too long, or something in it is too large.
    pub fn list(&mut self, about: &About, since_ns: u64) -> Result<List, Damage> {
        let words = about.bytes.div_ceil(8);
        let layout = words.checked_sub(1).and_then(|at| LAYOUTS.get(at)).ok_or(Damage::Wrong("an event's length"))?;
        let (host, common, source) = (about.host.clone(), about.common.clone(), about.source);
        let (region, texts) = (Vec::new(), Vec::new());
        let described = Description { host, common, source, region, layout: layout.clone(), texts };
        let track = self.track(&described, since_ns)?;
        Ok(List { track, line: self.line(track, &about.labels, &[], since_ns)?, words })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// [`Rejected`].
    pub fn event(&mut self, list: &List, time_ns: u64, payload: &[u8]) -> Result<(), Rejected> {
        let (bytes, most) = (payload.len(), list.words * 8);
        if bytes > most {
            return Err(Rejected::TooLong { bytes, most });
        }
        let mut row = [0; 1 + MAX_WORDS];
        row[0] = bytes as u64;
        for (word, bytes) in row[1..].iter_mut().zip(payload.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(eight);
        }
        Ok(self.append(list.track, list.line, time_ns, &row[..=list.words])?)
    }
}

impl Store {
    /// Gives the events of a list between two times (UTC ns, both included) to `visit`, in the order in which they
    /// came, until it breaks. Returns gaps for what is damaged.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn events(
        &self,
        list: &List,
        from_ns: u64,
        to_ns: u64,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<Vec<Gap>, StoreError> {
        self.rows(list.track, from_ns, to_ns, |line, time_ns, row| {
            let Some((bytes, words)) = row.split_first().filter(|_| line == list.line) else {
                return ControlFlow::Continue(());
            };
            let mut payload = [0; MAX_BYTES];
            for (eight, word) in payload.as_chunks_mut().0.iter_mut().zip(words) {
                *eight = word.to_le_bytes();
            }
            let bytes = usize::try_from(*bytes).map_or(MAX_BYTES, |bytes| bytes.min(MAX_BYTES));
            visit(time_ns, &payload[..bytes])
        })
    }
}

#[cfg(test)]
mod tests;
