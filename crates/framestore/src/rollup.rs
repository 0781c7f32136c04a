// SPDX-License-Identifier: Apache-2.0
//! Rollups: rows of a bucket of time each, made of raw rows or of finer rollups.
//!
//! Pure functions from chunks to chunks. The store rolls up a window of time when its rows are in warm chunks; doing it
//! again gives the same bytes.
//!
//! A rollup's row has the time at which its bucket begins, a whole multiple of the width in UTC. Its columns are those
//! of [`rollup_columns`]: of each part when it was last acquired and how often, of counters the last value and what
//! they went up by, where they are floats also from which value on, and their least and greatest rate; of everything
//! else the last value, the least, the largest and the sum. A part that was not acquired in a bucket has count, increase
//! and sum 0, and otherwise the words of the row before.
//!
//! - A *sample* is a row in which a part is new (its time differs from that of the row before), and counts in the
//!   bucket of the part's time. Where parts have no times every row is a sample, at the row's time.
//! - Samples of a bucket are in the order of their times, and of arrival where these are equal: that says which is the
//!   last and in which order floats are added.
//! - A counter's increase is taken from sample to sample in the order of arrival, across buckets and chunks, and counts
//!   where the later one is. One that went down has begun again at 0. Before the first sample of a line nothing is
//!   known: that adds nothing.
//! - A rate is that of one such step, per second, and counts where the increase does. It is kept to a thousandth, the
//!   least rounded down and the greatest up: a band of both has all rates in it. So a burst of one sample is seen in a
//!   bucket of a minute. What has no step has no rate (NaN).
//! - Histograms are counters, word for word, without rates.
//! - What a float counter went up by in a step is a float, too, and nothing if it is not finite.
//! - Sums, and increases of float counters, are floats: of the samples of each second, then of the sums of seconds, then of those of 10 s. Every width
//!   goes through the finer ones, so that it is the same bits which way ever it is made.
//! - Least and largest are in the order of their kind; of floats -0 is less than 0, and what is no number counts only
//!   if all are none.

mod fold;
mod sample;

use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use crate::chunk::{Chunk, Column, Contents, Joined, MAX_COLUMNS, Shape, max_rows, runs, write};
use crate::damage::Damage;
use crate::layout::Layout;
use crate::types::{Kind, SECOND_NS};
use crate::warm::last_mark;
use fold::Folding;
use sample::Sampled;

/// Widths, s, each a multiple of the one before.
pub const WIDTHS_S: [u32; 3] = [1, 10, 60];

/// Bits of a rate's fraction that are kept: it is for the eye, and the others would be most of what it takes.
const RATE_BITS: u32 = 10;
/// A counter that is told by the rows' own times has rates if it moves at least so often: else they are those of its
/// steps.
const MOVES_NS: u64 = 20_000_000;

/// What a column of a rollup says of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// The last value; of a time the last time.
    Last,
    /// How many samples there were, of a part.
    Count,
    /// The least.
    Min,
    /// The largest.
    Max,
    /// All of them, as f64.
    Sum,
    /// What a counter went up by since the last sample before the bucket.
    Increase,
    /// That sample of a float counter, or the first one of the bucket where none is known: from floats it cannot be
    /// calculated.
    Before,
    /// The least rate of a counter, per second, from one sample to the next, as f64.
    Slowest,
    /// The greatest.
    Fastest,
}

/// A column of a rollup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rolled {
    /// Which column of the raw rows it is made of; `None`: their own time.
    pub source: Option<usize>,
    /// What of it.
    pub statistic: Statistic,
}

/// Columns of the rollups of raw rows with these columns.
#[must_use]
pub fn rollup_columns(columns: &[Column]) -> Vec<Rolled> {
    use Statistic::{Before, Count, Fastest, Increase, Last, Max, Min, Slowest, Sum};
    let has_times = columns.first() == Some(&Column::Time);
    let own = [Last, Count].map(|statistic| Rolled { source: None, statistic });
    let mut rolled: Vec<Rolled> = own.into_iter().filter(|_| !has_times).collect();
    for (source, column) in columns.iter().enumerate() {
        let statistics: &[Statistic] = match column {
            Column::Time => &[Last, Count],
            Column::Value(Kind::Counter) => &[Last, Increase],
            Column::FloatCounter => &[Last, Before, Increase],
            Column::Rated { is_float: false } => &[Last, Increase, Slowest, Fastest],
            Column::Rated { is_float: true } => &[Last, Before, Increase, Slowest, Fastest],
            Column::Value(_) => &[Last, Min, Max, Sum],
        };
        rolled.extend(statistics.iter().map(|statistic| Rolled { source: Some(source), statistic: *statistic }));
    }
    rolled
}

/// Raw rows of a layout, with what their chunks do not say: which words are counters that have rates.
#[must_use]
pub fn raw_shape(layout: &Layout) -> Shape {
    with_counters(layout, |series, has_time| {
        let is_float = series.form == Form::Float;
        match (series.form, series.metric) {
            (Form::Float | Form::Unsigned, Metric::Counter) if has_time || series.resolution_ns <= MOVES_NS => {
                Some(Column::Rated { is_float })
            }
            (Form::Float, Metric::Counter) => Some(Column::FloatCounter),
            _ => None,
        }
    })
}

/// The same as they were for rollups before these had rates, and before they had an increase of float counters.
#[must_use]
pub fn earlier_shapes(layout: &Layout) -> [Shape; 2] {
    let is_float = |series: &Series| (series.form, series.metric) == (Form::Float, Metric::Counter);
    [with_counters(layout, |series, _| is_float(series).then_some(Column::FloatCounter)), Shape::of(layout)]
}

/// Raw rows with the columns that series have if their part has times of its own or not.
fn with_counters(layout: &Layout, column: impl Fn(&Series, bool) -> Option<Column>) -> Shape {
    let mut shape = Shape::of(layout);
    let mut columns = shape.columns.to_vec();
    for placed in layout.parts() {
        // An info has no words: where it is the last of a row no column is behind it.
        for series in placed.part.series.iter().filter(|series| series.form != Form::Text) {
            if let Some(column) = column(series, placed.time.is_some()) {
                columns[placed.at + series.at] = column;
            }
        }
    }
    shape.columns = columns.into();
    shape
}

/// Whether rollups of rows of this layout are no wider than a chunk may be.
pub(crate) fn fits(layout: &Layout) -> bool {
    // At most five for each, and the rows' own times: most are not counted.
    layout.kinds().len() * 5 + 2 <= MAX_COLUMNS || rollup_columns(&raw_shape(layout).columns).len() <= MAX_COLUMNS
}

/// Which of these columns says something of a raw column; a count is that of its part.
#[must_use]
pub fn find(rolled: &[Rolled], source: usize, statistic: Statistic) -> Option<usize> {
    let is_it = |column: &Rolled| column.source == Some(source) && column.statistic == statistic;
    rolled.iter().position(is_it).or_else(|| {
        let first = rolled.iter().position(|column| column.source == Some(source))?;
        rolled[..first].iter().rposition(|column| column.statistic == statistic && statistic == Statistic::Count)
    })
}

/// The rows of a rollup of raw rows.
#[must_use]
pub fn rolled_shape(raw: &Shape, bucket_s: u32) -> Shape {
    let column = |rolled: &Rolled| {
        let source = rolled.source.map_or(Column::Time, |source| raw.columns[source]);
        match rolled.statistic {
            Statistic::Sum | Statistic::Before | Statistic::Slowest | Statistic::Fastest => Column::Value(Kind::Float),
            Statistic::Increase if source.kind() == Kind::Float => Column::Value(Kind::Float),
            Statistic::Count | Statistic::Increase => Column::Value(Kind::Integer { signed: false }),
            Statistic::Last | Statistic::Min | Statistic::Max => source,
        }
    };
    let columns = rollup_columns(&raw.columns).iter().map(column).collect();
    Shape { columns, is_table: raw.is_table, bucket_s }
}

/// Rolls up the samples from `from_ns` on and before `to_ns`, whole multiples of the width, which is one of
/// [`WIDTHS_S`]. `chunks` are of one track, in the order of arrival: all that have rows of that time, and of raw ones
/// the one before, without which nobody knows what counters went up by at the beginning. `raw` is what raw rows are
/// ([`raw_shape`]). Returns as many chunks as the rows need, none of none. The last one's mark is `to_ns` and, in
/// ns, how many they are, that of the others 0: who finds it knows whether all came.
///
/// # Errors
/// [`Damage`]; also if the chunks are not of one track and shape, or not of a finer resolution.
pub fn roll(chunks: &[Chunk], raw: &Shape, from_ns: u64, to_ns: u64, bucket_s: u32) -> Result<Vec<Vec<u8>>, Damage> {
    let Some(first) = chunks.first() else { return Ok(Vec::new()) };
    let finer_s = WIDTHS_S.into_iter().take_while(|width_s| *width_s < bucket_s).last().unwrap_or(0);
    if !WIDTHS_S.contains(&bucket_s) || first.head().bucket_s > finer_s {
        return Err(Damage::Wrong("a rollup's width"));
    }
    if first.head().bucket_s < finer_s {
        let finer = roll(chunks, raw, from_ns, to_ns, finer_s)?;
        let finer: Result<Vec<Chunk>, Damage> = finer.iter().map(|bytes| Chunk::parse(bytes)).collect();
        return roll(&finer?, raw, from_ns, to_ns, bucket_s);
    }
    let width_ns = u64::from(bucket_s) * SECOND_NS;
    let mut raw_or_finer = first.shape()?;
    if raw_or_finer.bucket_s == 0 {
        let kinds = |shape: &Shape| shape.columns.iter().map(|column| column.kind()).collect::<Vec<_>>();
        if kinds(&raw_or_finer) != kinds(raw) {
            return Err(Damage::Wrong("what a chunk has rows of"));
        }
        raw_or_finer.columns = raw.columns.clone();
    }
    let plan = Plan::new(&raw_or_finer)?;
    let shape = match raw_or_finer.bucket_s {
        0 => rolled_shape(&raw_or_finer, bucket_s),
        _ => Shape { bucket_s, ..raw_or_finer },
    };
    if shape.columns.len() > MAX_COLUMNS {
        return Err(Damage::Wrong("a rollup's columns"));
    }
    let mut joined = Joined::new(chunks)?;
    let sampled = Sampled::new(&plan, &mut joined, from_ns..to_ns, width_ns)?;
    let at_most = max_rows(shape.columns.len());
    let mut rolled = Vec::new();
    for start in (0..sampled.rows.len()).step_by(at_most) {
        let rows = start..sampled.rows.len().min(start + at_most);
        // Where the track is no table there are none.
        let line = |row: &(usize, u64)| joined.lines.get(row.0).map(|line| (*line, 1));
        let (lines, runs) = runs(sampled.rows[rows.clone()].iter().filter_map(line));
        let times_ns: Vec<u64> = sampled.rows[rows.clone()].iter().map(|(_, bucket_ns)| *bucket_ns).collect();
        let least_ns = times_ns.iter().copied().min().unwrap_or(0);
        let last_ns = times_ns.iter().copied().max().unwrap_or(0);
        let contents = Contents {
            track: first.head().track,
            shape: &shape,
            span_ns: (least_ns, last_ns.saturating_add(width_ns - 1)),
            mark: if rows.end == sampled.rows.len() { last_mark(to_ns, rolled.len() + 1) } else { 0 },
            lines: &lines,
            runs: &runs,
            times_ns: &times_ns,
        };
        rolled.push(write(&contents, &mut Folding::new(&plan, &sampled, &mut joined, rows)?)?);
    }
    Ok(rolled)
}

/// What a column of a rollup is made of.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Number of the part.
    part: usize,
    /// Column of the chunks; `None`: the rows' times.
    from: Option<usize>,
    fold: Fold,
}

/// How samples become one word.
#[derive(Clone, Copy, Debug)]
enum Fold {
    Last,
    Least(Kind),
    Largest(Kind),
    /// As floats of what they are.
    Sum(Kind),
    /// As integers.
    Add,
    Number,
    Increase,
    FloatIncrease,
    Before,
    First,
    /// Of raw samples.
    Rate {
        of: Kind,
        is_greatest: bool,
    },
}

/// Where a part's samples are found.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Column of its times; `None`: the rows' times.
    time: Option<usize>,
    /// In a rollup the column that says how many samples a row has.
    count: Option<usize>,
}

/// All parts and all columns.
#[derive(Debug)]
struct Plan {
    parts: Vec<Part>,
    steps: Vec<Step>,
}

impl Plan {
    fn new(shape: &Shape) -> Result<Self, Damage> {
        if shape.bucket_s == 0 { Ok(Self::of_raw(&shape.columns)) } else { Self::of_rolled(&shape.columns) }
    }

    fn of_raw(columns: &[Column]) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        let step = |rolled: Rolled| {
            let kind = rolled.source.map_or(Kind::Counter, |source| columns[source].kind());
            let fold = match rolled.statistic {
                Statistic::Last => Fold::Last,
                Statistic::Count => Fold::Number,
                Statistic::Min => Fold::Least(kind),
                Statistic::Max => Fold::Largest(kind),
                Statistic::Sum => Fold::Sum(kind),
                Statistic::Increase if kind == Kind::Float => Fold::FloatIncrease,
                Statistic::Increase => Fold::Increase,
                Statistic::Before => Fold::Before,
                Statistic::Slowest => Fold::Rate { of: kind, is_greatest: false },
                Statistic::Fastest => Fold::Rate { of: kind, is_greatest: true },
            };
            let is_time = rolled.source.is_none_or(|source| columns[source] == Column::Time);
            if is_time && matches!(fold, Fold::Last) {
                parts.push(Part { time: rolled.source, count: None });
            }
            Step { part: parts.len() - 1, from: rolled.source, fold }
        };
        let steps = rollup_columns(columns).into_iter().map(step).collect();
        Self { parts, steps }
    }

    fn of_rolled(columns: &[Column]) -> Result<Self, Damage> {
        let (mut parts, mut steps) = (Vec::new(), Vec::new());
        let mut number = 0;
        while let Some(column) = columns.get(number) {
            let kind = column.kind();
            let folds: &[Fold] = match column {
                Column::Time => {
                    parts.push(Part { time: Some(number), count: Some(number + 1) });
                    &[Fold::Last, Fold::Add]
                }
                Column::Value(Kind::Counter) => &[Fold::Last, Fold::Add],
                Column::FloatCounter => &[Fold::Last, Fold::First, Fold::Sum(Kind::Float)],
                Column::Rated { is_float: false } => {
                    &[Fold::Last, Fold::Add, Fold::Least(Kind::Float), Fold::Largest(Kind::Float)]
                }
                Column::Rated { is_float: true } => &[
                    Fold::Last,
                    Fold::First,
                    Fold::Sum(Kind::Float),
                    Fold::Least(Kind::Float),
                    Fold::Largest(Kind::Float),
                ],
                Column::Value(_) => &[Fold::Last, Fold::Least(kind), Fold::Largest(kind), Fold::Sum(Kind::Float)],
            };
            let part = parts.len().checked_sub(1).ok_or(Damage::Wrong("a rollup's columns"))?;
            for fold in folds {
                steps.push(Step { part, from: Some(number), fold: *fold });
                number += 1;
            }
        }
        if steps.len() == columns.len() { Ok(Self { parts, steps }) } else { Err(Damage::Wrong("a rollup's columns")) }
    }
}

#[cfg(test)]
mod tests;
