// SPDX-License-Identifier: Apache-2.0
//! Functions of ranges: windows of each series, one a step.

use std::sync::Arc;

use super::over_time::{self, Ask, Ends, Extreme, Fold, Pairs, Quantile, Whole};
use super::rate::{self, Kind, Rate};
use super::slide::Slide;
use super::{Eval, Matrix, Numbers, edges, invalid, native_range, relabel};
use crate::error::{QueryError, twins};
use crate::expr::{Call, Edges, Expr, Place, Range, RangeOf, Subquery};
use crate::histogram::{Hint, Histogram};
use crate::labels::Labels;
use crate::limits::SERIES;
use crate::source::{Chunk, Chunks, Found, SourceError, Span, Summary, Windows};
use crate::value::{Grid, HOLE, Series, is_hole};

/// Endings of counters' names, as Prometheus's conventions have them.
const COUNTERS: [&str; 4] = ["_total", "_sum", "_count", "_bucket"];

fn fold(function: &str, edges: Edges) -> Result<Box<dyn Fold>, QueryError> {
    if edges != Edges::Plain {
        let Some(own) = edges::function(function, edges) else {
            let (kind, names) = (format!("{edges:?}").to_lowercase(), edges::functions(edges));
            return invalid(format!("{kind} modifier can only be used with: {names} - not with {function}"));
        };
        return Ok(Box::new(Whole(own)));
    }
    Ok(match function {
        "rate" | "increase" | "delta" => Box::new(Rate::new(Kind::of(function))),
        "max_over_time" => Box::new(Extreme::max()),
        "min_over_time" => Box::new(Extreme::min()),
        "changes" => Box::new(Pairs::new(over_time::is_change)),
        "resets" => Box::new(Pairs::new(over_time::is_reset)),
        "count_over_time" => Box::new(Ends(over_time::count)),
        "first_over_time" => Box::new(Ends(over_time::first)),
        "last_over_time" => Box::new(Ends(over_time::last)),
        "present_over_time" | "absent_over_time" => Box::new(Ends(|_| 1.0)),
        "irate" => Box::new(Ends(over_time::irate)),
        "idelta" => Box::new(Ends(over_time::idelta)),
        "sum_over_time" => Box::new(Whole(over_time::sum)),
        "avg_over_time" => Box::new(Whole(over_time::avg)),
        "stdvar_over_time" => Box::new(Whole(over_time::stdvar)),
        "stddev_over_time" => Box::new(Whole(over_time::stddev)),
        "quantile_over_time" => Box::new(Quantile::default()),
        "deriv" => Box::new(Whole(over_time::deriv)),
        "predict_linear" => Box::new(Whole(over_time::predict_linear)),
        _ => return invalid(format!("{function}() is no function of ranges")),
    })
}

/// What a function makes of a summary; `None`: it needs the samples.
#[allow(clippy::cast_precision_loss)] // counts of samples
fn of_summary(function: &str) -> Option<fn(&Summary, &Ask) -> f64> {
    fn extended(summary: &Summary, function: &str, ask: &Ask) -> f64 {
        let Summary { count: samples, first_ns, last_ns, first, increase, .. } = *summary;
        if samples < 2 {
            return HOLE;
        }
        rate::extend(&rate::Window { samples, first_ns, last_ns, first }, increase, Kind::of(function), ask)
    }
    Some(match function {
        "rate" => |summary, ask| extended(summary, "rate", ask),
        "increase" => |summary, ask| extended(summary, "increase", ask),
        "delta" => |summary, ask| extended(summary, "delta", ask),
        "count_over_time" => |summary, _| summary.count as f64,
        "first_over_time" => |summary, _| summary.first,
        "last_over_time" => |summary, _| summary.last,
        "present_over_time" | "absent_over_time" => |_, _| 1.0,
        _ => return None,
    })
}

/// A function, asked at every step for one series after the other.
struct Asked<'a> {
    function: &'a str,
    /// Of its first argument.
    at: Place,
    range: &'a Range,
    grid: Grid,
    numbers: Option<Numbers>,
}

impl Asked<'_> {
    fn ask(&self, step: usize) -> Ask {
        let time_ns = self.grid.time_ns(step);
        let until_ns = self.range.when().of(time_ns);
        let range_ns = self.range.range_ns;
        let range = Span { after_ns: until_ns.saturating_sub(range_ns), until_ns };
        let number = self.numbers.as_ref().map_or(0.0, |numbers| numbers[step]);
        Ask { time_ns, range, range_ns, number }
    }

    fn is_rate(&self) -> bool {
        matches!(self.function, "rate" | "increase")
    }

    /// How many steps differ from the first.
    fn steps(&self) -> usize {
        let is_fixed = self.range.when().at_ns.is_some() && self.numbers.is_none();
        if is_fixed { self.grid.count.min(1) } else { self.grid.count }
    }

    fn series(&self, eval: &Eval<'_>, chunks: &mut dyn Chunks, labels: Labels) -> Result<Series, QueryError> {
        let edges = self.range.edges();
        let mut fold = fold(self.function, edges)?;
        let mut slide = Slide::new(eval, matches!(self.range.of, RangeOf::Select(_)))?;
        let mut held = eval.budget.hold(0)?;
        let mut series = Series::floats(labels, eval.holes(self.grid));
        let steps = self.steps();
        for step in 0..steps {
            let ask = self.ask(step);
            let view = slide.window(chunks, edges::wider(ask.range, edges, eval.options.lookback_ns))?;
            let value = fold.value(&view, &ask)?;
            held.reach(fold.bytes())?;
            series.values[step] = value;
            if !view.histograms.is_empty() {
                eval.budget.work(view.histograms.iter().map(|one| one.bytes() / 16).sum())?;
                let told = eval.told(series.labels.name(), self.at);
                let point = native_range::value((self.function, edges), &view, &ask, value, told);
                series.put(step, point);
            }
        }
        slide.leave(eval);
        if let Some(first) = series.values.first().copied() {
            series.values[steps..].fill(first);
        }
        if let Some(first) = series.histograms.first().cloned() {
            series.histograms[steps..].fill(first);
        }
        Ok(series)
    }

    /// From what the source knows of windows, if that is enough.
    fn summarised(&self, eval: &Eval<'_>, key: u64) -> Result<Option<Vec<f64>>, QueryError> {
        let Some(of) = of_summary(self.function).filter(|_| self.range.edges() == Edges::Plain) else {
            return Ok(None);
        };
        let mut values = eval.holes(self.grid);
        let steps = self.steps();
        let windows = Windows {
            first_end_ns: self.ask(0).range.until_ns,
            step_ns: self.grid.step_ns,
            count: steps,
            range_ns: self.range.range_ns,
            is_counter: self.is_rate(),
        };
        let mut take = |step: usize, summary: Summary| {
            if let Some(value) = values.get_mut(step) {
                *value = of(&summary, &self.ask(step));
            }
        };
        if !eval.source.summaries(key, windows, &eval.budget, &mut take)? {
            return Ok(None);
        }
        eval.budget.work(steps)?;
        if let Some(first) = values.first().copied() {
            values[steps..].fill(first);
        }
        Ok(Some(values))
    }
}

/// A column of a subquery's inside, as samples.
struct Column<'a> {
    times_ns: &'a [i64],
    values: &'a [f64],
    histograms: &'a [Option<Arc<Histogram>>],
    is_read: bool,
}

impl Chunks for Column<'_> {
    fn next(&mut self) -> Result<Option<Chunk<'_>>, SourceError> {
        let is_read = std::mem::replace(&mut self.is_read, true);
        let Self { times_ns, values, histograms, .. } = *self;
        Ok((!is_read).then_some(Chunk { times_ns, values, histograms }))
    }
}

impl Eval<'_> {
    pub(super) fn over_range(&mut self, call: &Call, grid: Grid) -> Result<Matrix, QueryError> {
        let mut range = None;
        let mut numbers = None;
        for arg in &call.args {
            match arg.bare() {
                Expr::Range(own) => range = Some(own),
                other => numbers = Some(self.scalar(other, grid)?),
            }
        }
        let Some(range) = range else { return invalid("expected type range vector") };
        let asked = Asked { function: &call.name, at: call.args_at[0], range, grid, numbers };
        fold(asked.function, range.edges())?;
        let matrix = self.windows(&asked)?;
        if let ("quantile_over_time", Some(quantiles), false) =
            (asked.function, &asked.numbers, matrix.series.is_empty())
        {
            quantiles.iter().for_each(|quantile| self.notes.quantile(*quantile, call.args_at[0]));
        }
        if call.name == "absent_over_time" {
            return self.absent(relabel::absent(call.args[0].bare()), &matrix, grid);
        }
        if let "last_over_time" | "first_over_time" = call.name.as_str() {
            return Ok(matrix);
        }
        // Unlike other functions these want series apart at all times, not at each.
        let count = matrix.series.len();
        let matrix = self.unnamed(matrix)?;
        if matrix.series.len() < count { Err(twins()) } else { Ok(matrix) }
    }

    fn windows(&mut self, asked: &Asked<'_>) -> Result<Matrix, QueryError> {
        let mut matrix = self.empty()?;
        if asked.grid.count == 0 {
            return Ok(matrix);
        }
        match &asked.range.of {
            RangeOf::Select(select) => {
                let Asked { grid, .. } = *asked;
                let inner = Span { after_ns: asked.ask(0).range.after_ns, until_ns: select.when.of(grid.last_ns()) };
                let span = edges::wider(inner, select.edges, self.options.lookback_ns);
                let found = self.find(select, span)?;
                matrix = self.each_found(found, grid, &|eval, matrix, Found { key, labels }| {
                    eval.budget.work(SERIES)?;
                    let series = match asked.summarised(eval, key)? {
                        Some(values) => Series::floats(labels, values),
                        None => asked.series(eval, &mut *eval.source.read(key, span)?, labels)?,
                    };
                    eval.add(matrix, asked, series)
                })?;
            }
            RangeOf::Subquery(Subquery { expr, step_ns, .. }) => {
                let inner = self.inner_grid(asked.range, *step_ns, asked.grid)?;
                let mut samples = self.inner(expr, inner)?;
                let _held = self.budget.hold(inner.count * size_of::<i64>())?;
                let times_ns: Vec<i64> = (0..inner.count).map(|step| inner.time_ns(step)).collect();
                for one in &mut samples.series {
                    forget_hints(&mut one.histograms);
                    let Series { labels, values, histograms, drops_name } = &*one;
                    let mut column = Column { times_ns: &times_ns, values, histograms, is_read: false };
                    let mut series = asked.series(self, &mut column, labels.clone())?;
                    series.drops_name = *drops_name;
                    self.add(&mut matrix, asked, series)?;
                }
                self.spare.take();
            }
        }
        Ok(matrix)
    }

    fn add(&self, matrix: &mut Matrix, asked: &Asked<'_>, series: Series) -> Result<(), QueryError> {
        if series.is_empty() {
            return Ok(());
        }
        let name = series.labels.name();
        let has_floats = || series.values.iter().any(|value| !is_hole(*value));
        if asked.is_rate() && has_floats() && !name.is_empty() && !COUNTERS.iter().any(|ending| name.ends_with(ending))
        {
            self.notes.not_a_counter(name, asked.at);
        }
        matrix.push(series)
    }
}

/// Steps of a subquery may lie between samples, or name one twice: what is known of the sample before does not hold.
fn forget_hints(histograms: &mut [Option<Arc<Histogram>>]) {
    for histogram in histograms.iter_mut().flatten() {
        if matches!(histogram.hint, Hint::Reset | Hint::NotReset) {
            *histogram = Arc::new(Histogram::clone(histogram).with_hint(Hint::Unknown));
        }
    }
}
