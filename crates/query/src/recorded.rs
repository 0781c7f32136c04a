// SPDX-License-Identifier: Apache-2.0
//! Series that come sample by sample and belong to no host: what rules record.
//!
//! They are tables of the store, one a name, with a line a series and a row a sample. Whoever records says where a
//! series ends, by a stale marker; until then a value holds as long as PromQL looks back.
//!
//! Native histograms have tables of their own, by how wide their rows are. A line's label [`STRUCTURE`] says which buckets
//! it has; when others come the series goes on with another line.

use std::collections::HashMap;
use std::sync::Arc;

use onlooker_framestore::client::{Appender, Description};
use onlooker_framestore::layout::{Layout, Part};
use onlooker_framestore::types::{Line, TrackId};
use onlooker_promql::histogram::{Hint, Histogram};
use onlooker_promql::labels::{Labels, NAME};
use onlooker_promql::source::STALE;
use onlooker_region::schema::Metric;
use onlooker_series::series::{EntityKey, Form, Series};
use onlooker_series::text;

use crate::exported::{Exported, Reading, exported};
use crate::native::Native;
use crate::structure::{self, Structure};

/// Label of a line that says which buckets its histograms have. Only this crate sees it.
const STRUCTURE: &str = "__structure__";
/// Label of the columns of such a table: their numbers.
const WORD: &str = "__word__";
/// How wide rows of histograms may be, in words.
const WIDTHS: [usize; 5] = [16, 64, 256, 1_024, structure::WIDEST];

/// Name of their region: those of hosts are never empty.
const REGION: &str = "";
/// Writes samples of series that belong to no host.
pub struct Recorder {
    max_series: usize,
    /// By name and width; 0: of numbers.
    tracks: HashMap<(Arc<str>, usize), TrackId>,
    /// Those that have not ended.
    series: HashMap<Labels, Place>,
}

struct Place {
    track: TrackId,
    line: Line,
    last_ns: u64,
    native: Option<Last>,
}

/// What a line of histograms had last.
struct Last {
    structure: Structure,
    width: usize,
    histogram: Histogram,
}

/// What is known of a histogram's counter after the one before.
fn hint_after(histogram: &Histogram, before: Option<&Histogram>) -> Hint {
    match (histogram.hint, before) {
        (Hint::Gauge | Hint::Reset, _) => histogram.hint,
        (_, Some(before)) if before.hint != Hint::Gauge => {
            let unknown = Histogram { hint: Hint::Unknown, ..histogram.clone() };
            if unknown.is_reset_after(before) { Hint::Reset } else { Hint::NotReset }
        }
        _ => Hint::Unknown,
    }
}

impl Place {
    /// A number, or the end of what the line has.
    fn put(&mut self, appender: &mut Appender, time_ns: u64, value: f64) -> Result<(), NotRecorded> {
        let Some(Last { width, .. }) = self.native else { return self.append(appender, time_ns, &[value.to_bits()]) };
        let mut row = vec![0; width];
        row[0] = value.to_bits();
        self.append(appender, time_ns, &row)
    }

    /// A histogram, where the line is one of histograms with such buckets.
    fn put_histogram(
        &mut self,
        appender: &mut Appender,
        time_ns: u64,
        histogram: Histogram,
    ) -> Result<(), NotRecorded> {
        let Some(last) = &mut self.native else { return Ok(()) };
        let mut row = last.structure.row(&histogram);
        row.resize(last.width, 0);
        last.histogram = histogram;
        self.append(appender, time_ns, &row)
    }

    fn append(&mut self, appender: &mut Appender, time_ns: u64, row: &[u64]) -> Result<(), NotRecorded> {
        appender.append(self.track, self.line, time_ns, row).map_err(|_| NotRecorded::Behind)?;
        self.last_ns = time_ns;
        Ok(())
    }

    /// Another line has the next sample, at `time_ns`.
    fn leave(&mut self, appender: &mut Appender, time_ns: u64) -> Result<(), NotRecorded> {
        if self.last_ns + 1 < time_ns { self.put(appender, time_ns - 1, STALE) } else { Ok(()) }
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
    /// A histogram has too many buckets.
    #[error("a histogram has more than {0} buckets")]
    Buckets(usize),
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
        match self.series.get_mut(labels) {
            Some(place) if place.last_ns >= time_ns => {
                return if is_end { Ok(()) } else { Err(NotRecorded::Late) };
            }
            Some(place) if is_end => {
                place.put(appender, time_ns, value)?;
                self.series.remove(labels);
                return Ok(());
            }
            Some(place) if place.native.is_none() => return place.put(appender, time_ns, value),
            None if is_end => return Ok(()),
            _ => {}
        }
        let mut place = self.enter(appender, labels, time_ns, None)?;
        place.put(appender, time_ns, value)?;
        self.series.insert(labels.clone(), place);
        Ok(())
    }

    /// Records a histogram; the series may have had numbers, or other buckets, before.
    ///
    /// # Errors
    /// [`NotRecorded`]
    pub fn record_histogram(
        &mut self,
        appender: &mut Appender,
        labels: &Labels,
        time_ns: i64,
        histogram: &Histogram,
    ) -> Result<(), NotRecorded> {
        let time_ns = u64::try_from(time_ns).map_err(|_| NotRecorded::Time)?;
        let place = self.series.get(labels);
        if place.is_some_and(|place| place.last_ns >= time_ns) {
            return Err(NotRecorded::Late);
        }
        let last = place.and_then(|place| place.native.as_ref());
        let hint = hint_after(histogram, last.map(|last| &last.histogram));
        let histogram = Histogram { hint, ..histogram.clone() };
        let before = last.map(|last| &last.structure);
        if !before.is_some_and(|before| before.holds(&histogram)) {
            let structure = Structure::of(&histogram, before);
            let mut place = self.enter(appender, labels, time_ns, Some((structure, &histogram)))?;
            place.put_histogram(appender, time_ns, histogram)?;
            self.series.insert(labels.clone(), place);
        } else if let Some(place) = self.series.get_mut(labels) {
            place.put_histogram(appender, time_ns, histogram)?;
        }
        Ok(())
    }

    /// How many series go on.
    #[must_use]
    pub fn series(&self) -> usize {
        self.series.len()
    }

    /// A line for a series that has none, or has another one. The series goes on there with its first row.
    fn enter(
        &mut self,
        appender: &mut Appender,
        labels: &Labels,
        time_ns: u64,
        native: Option<(Structure, &Histogram)>,
    ) -> Result<Place, NotRecorded> {
        if !self.series.contains_key(labels) && self.series.len() >= self.max_series {
            return Err(NotRecorded::TooMany(self.max_series));
        }
        let name = labels.name();
        if name.is_empty() {
            return Err(NotRecorded::Nameless);
        }
        let width = match &native {
            Some((structure, _)) => WIDTHS.into_iter().find(|width| *width >= structure.words()),
            None => Some(0),
        };
        let width = width.ok_or(NotRecorded::Buckets(structure::MOST))?;
        let table = (name.into(), width);
        let track = match self.tracks.get(&table) {
            Some(known) => *known,
            None => {
                let track = appender.track(&description(name, width), time_ns).map_err(too_long)?;
                self.tracks.insert(table, track);
                track
            }
        };
        let own = labels.iter().filter(|(label, _)| *label != NAME);
        let mut own: Vec<_> = own.map(|(label, value)| (label.to_owned(), value.to_owned())).collect();
        own.extend(native.as_ref().map(|(structure, _)| (STRUCTURE.to_owned(), structure.text())));
        let line = appender.line(track, &own, &[], time_ns).map_err(too_long)?;
        if let Some(before) = self.series.get_mut(labels) {
            before.leave(appender, time_ns)?;
        }
        let native = native.map(|(structure, of)| Last { structure, width, histogram: of.clone() });
        Ok(Place { track, line, last_ns: 0, native })
    }
}

/// Whether rows of this source were recorded.
pub(crate) fn is(source: u64) -> bool {
    matches!(source, EntityKey::RECORDED | EntityKey::RECORDED_NATIVE)
}

/// Whether a region of this name is that of recorded series.
pub(crate) fn is_region(name: &str) -> bool {
    name == REGION
}

/// A recorded series of numbers.
pub(crate) fn number(series: &Series) -> Vec<Exported> {
    exported(series).into_iter().map(|exported| Exported { reading: Reading::Recorded, ..exported }).collect()
}

/// A recorded series of histograms, by the first column of its table.
pub(crate) fn native(first: &Series) -> Option<Exported> {
    let structure = Structure::parse(first.labels.get(STRUCTURE)?)?;
    let words = first.at..first.at + structure.words();
    let reading = Reading::Native(Native::Recorded(structure).into());
    Some(Exported { name: first.name.to_string(), le: None, words, reading })
}

/// Whether nobody else sees this label.
pub(crate) fn is_hidden(label: &str) -> bool {
    label == STRUCTURE || label == WORD
}

/// Labels that others see.
pub(crate) fn shown(labels: &text::Labels) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(name, _)| !is_hidden(name))
}

fn too_long(damage: impl std::fmt::Display) -> NotRecorded {
    NotRecorded::Name(damage.to_string())
}

/// A table of numbers, or of histograms whose rows are so wide.
fn description(name: &str, width: usize) -> Description {
    let number = Series::new(name, Metric::Gauge, Form::Float);
    let (series, source) = match width {
        0 => (vec![number], EntityKey::RECORDED),
        width => {
            let of = |word: usize| vec![(WORD.to_owned(), word.to_string())].into();
            let words = (0..width).map(|word| Series { labels: of(word), ..number.clone() });
            (words.collect(), EntityKey::RECORDED_NATIVE)
        }
    };
    let part = Part::new(REGION, 0, series).shared();
    Description {
        host: String::new(),
        common: Vec::new(),
        source,
        region: Vec::new(),
        layout: Layout::new(vec![part], true).into(),
        texts: Vec::new(),
    }
}
