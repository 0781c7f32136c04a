// SPDX-License-Identifier: Apache-2.0
//! Series that come sample by sample and belong to no host: what rules record.
//!
//! They are tables of the store, one a name, with a line a series and a row a sample. Whoever records says where a
//! series ends, by a stale marker; until then a value holds as long as PromQL looks back.

use std::collections::HashMap;
use std::sync::Arc;

use onlooker_framestore::client::{Appender, Description};
use onlooker_framestore::layout::{Layout, Part};
use onlooker_framestore::types::{Line, TrackId};
use onlooker_promql::labels::{Labels, NAME};
use onlooker_promql::source::STALE;
use onlooker_region::schema::Metric;
use onlooker_series::series::{EntityKey, Form, Series};

/// Name of their region: those of hosts are never empty.
const REGION: &str = "";
/// Writes samples of series that belong to no host.
pub struct Recorder {
    max_series: usize,
    tracks: HashMap<Arc<str>, TrackId>,
    /// Those that have not ended.
    series: HashMap<Labels, Place>,
}

#[derive(Clone, Copy)]
struct Place {
    track: TrackId,
    line: Line,
    last_ns: u64,
}

impl Place {
    fn put(&mut self, appender: &mut Appender, time_ns: u64, value: f64) -> Result<(), NotRecorded> {
        let word = [value.to_bits()];
        appender.append(self.track, self.line, time_ns, &word).map_err(|_| NotRecorded::Behind)?;
        self.last_ns = time_ns;
        Ok(())
    }
}

/// A sample that the store did not take.
#[derive(Debug, thiserror::Error)]
pub enum NotRecorded {
    /// A series has no name.
    #[error("a series without a name cannot be recorded")]
    Nameless,
    /// Its series has a newer sample, or one of that time.
    #[error("their series have newer samples, or others of that time")]
    Late,
    /// There are too many.
    #[error("there are {0} recorded series already; record fewer")]
    TooMany(usize),
    /// There was no time before 1970.
    #[error("a sample from before 1970 cannot be recorded")]
    Time,
    /// A label or a name is too long.
    #[error("the store cannot name the series: {0}")]
    Name(String),
    /// The disk has taken nothing for a while.
    #[error("the store is behind")]
    Behind,
}

impl Recorder {
    /// Of so many series that go on at once.
    #[must_use]
    pub fn new(max_series: usize) -> Self {
        Self { max_series, tracks: HashMap::new(), series: HashMap::new() }
    }

    /// Records a sample of the series with these labels. [`STALE`] ends a series that goes on, and is nothing else.
    ///
    /// # Errors
    /// [`NotRecorded`]
    pub fn record(
        &mut self,
        appender: &mut Appender,
        labels: &Labels,
        time_ns: i64,
        value: f64,
    ) -> Result<(), NotRecorded> {
        let time_ns = u64::try_from(time_ns).map_err(|_| NotRecorded::Time)?;
        let is_end = value.to_bits() == STALE.to_bits();
        if let Some(place) = self.series.get_mut(labels) {
            if place.last_ns >= time_ns {
                return if is_end { Ok(()) } else { Err(NotRecorded::Late) };
            }
            place.put(appender, time_ns, value)?;
            if is_end {
                self.series.remove(labels);
            }
        } else if !is_end {
            let mut place = self.enter(appender, labels, time_ns)?;
            place.put(appender, time_ns, value)?;
            self.series.insert(labels.clone(), place);
        }
        Ok(())
    }

    /// How many series go on.
    #[must_use]
    pub fn series(&self) -> usize {
        self.series.len()
    }

    fn enter(&mut self, appender: &mut Appender, labels: &Labels, time_ns: u64) -> Result<Place, NotRecorded> {
        if self.series.len() >= self.max_series {
            return Err(NotRecorded::TooMany(self.max_series));
        }
        let name = labels.name();
        if name.is_empty() {
            return Err(NotRecorded::Nameless);
        }
        let track = match self.tracks.get(name) {
            Some(known) => *known,
            None => {
                let track = appender.track(&description(name), time_ns).map_err(too_long)?;
                self.tracks.insert(name.into(), track);
                track
            }
        };
        let own = labels.iter().filter(|(label, _)| *label != NAME);
        let own: Vec<_> = own.map(|(label, value)| (label.to_owned(), value.to_owned())).collect();
        let line = appender.line(track, &own, &[], time_ns).map_err(too_long)?;
        Ok(Place { track, line, last_ns: time_ns })
    }
}

fn too_long(damage: impl std::fmt::Display) -> NotRecorded {
    NotRecorded::Name(damage.to_string())
}

fn description(name: &str) -> Description {
    let part = Part::new(REGION, 0, vec![Series::new(name, Metric::Gauge, Form::Float)]).shared();
    Description {
        host: String::new(),
        common: Vec::new(),
        source: EntityKey::RECORDED,
        region: Vec::new(),
        layout: Layout::new(vec![part], true).into(),
        texts: Vec::new(),
    }
}
