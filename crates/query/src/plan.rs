// SPDX-License-Identifier: Apache-2.0
//! Which lanes a series of Prometheus has: what `select` has found, and `lane` and `merge` read.

use std::ops::Range;
use std::sync::Arc;

use onlooker_framestore::Columns;
use onlooker_framestore::types::{Line, TrackId};
use onlooker_series::rank::Rank;

use crate::exported::Reading;
use crate::native::Native;

/// What of a track makes samples of a series.
#[derive(Clone, Debug)]
pub(crate) struct LanePlan {
    pub(crate) track: TrackId,
    pub(crate) line: Line,
    pub(crate) part: u32,
    /// The part's time, if that is not the row's.
    pub(crate) time: Option<usize>,
    pub(crate) words: Range<usize>,
    pub(crate) reading: Reading,
    /// Of several series of one name and labels the least is shown.
    pub(crate) rank: Rank,
    pub(crate) source: u64,
}

/// A series of Prometheus: its lanes, the best first; of one rank, the oldest first.
pub(crate) type Lanes = Arc<[LanePlan]>;

/// The lanes that have all samples of a series while one of them goes on: all others are worse. Histograms are none of
/// numbers, and what is recorded goes on as it says itself: of several lanes none is the best then.
pub(crate) fn best(lanes: &Lanes) -> &[LanePlan] {
    let best = lanes.chunk_by(|one, next| one.rank == next.rank).next().unwrap_or_default();
    let is_recorded = lanes.len() > 1 && lanes.iter().any(LanePlan::is_recorded);
    let is_native = best.iter().any(|lane| matches!(lane.reading, Reading::Native(_)));
    if is_recorded || is_native { &[] } else { best }
}

impl LanePlan {
    /// Whether its samples and markers are what they are.
    pub(crate) fn is_recorded(&self) -> bool {
        match &self.reading {
            Reading::Recorded => true,
            Reading::Native(native) => matches!(**native, Native::Recorded(_)),
            _ => false,
        }
    }

    /// Whether all rows are read, also where the newest sample would do.
    pub(crate) fn is_read_whole(&self) -> bool {
        matches!(self.reading, Reading::Recorded | Reading::Native(..))
    }

    /// Rows with the time at which the series' part was acquired as their last word, where that is not the row's, and
    /// whether it is so.
    pub(crate) fn rows(&self) -> (Columns, bool) {
        let words = self.words.clone().chain(self.time).collect();
        let columns = Columns { track: self.track, line: self.line, part: self.part, time: None, words };
        (columns, self.time.is_some())
    }
}
