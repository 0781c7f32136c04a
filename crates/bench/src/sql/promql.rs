// SPDX-License-Identifier: Apache-2.0
//! What PromQL answers to the questions of bench/sql/questions.sql that it can be asked.
//!
//! Such a question has lines `-- promql CELLS = QUERY`. Cells are labels and, with a $, `labels` (all others, as cold
//! files have them), `minute` (the query is evaluated at the end of each), `time` (of a sample, ns) and, at last, the
//! value as `float` or `whole`. Further queries of a question have only a value, each for the rows of the first one.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use onlooker_framestore::Store;
use onlooker_promql::labels::Labels;
use onlooker_promql::value::{Value, is_hole};
use onlooker_promql::{Options, Query, Times};
use onlooker_query::StoreSource;

use super::answers::Cell as _;
use super::data::{FROM, SECOND_NS, TOTAL};

const QUESTIONS: &str = include_str!("../../../../bench/sql/questions.sql");
const SECOND: i64 = SECOND_NS.cast_signed();
const MINUTE: i64 = 60 * SECOND;

/// A value, and what it is of.
struct Point {
    labels: Labels,
    time_ns: i64,
    value: f64,
}

/// Prints all answers; each line begins with `place`.
pub(crate) fn print(store: &Store, place: &str) -> Result<()> {
    for question in QUESTIONS.split("\n\n") {
        let asked: Vec<&str> = question.lines().filter_map(|line| line.strip_prefix("-- promql ")).collect();
        let Some(number) = question.get(3..5).filter(|_| !asked.is_empty()) else { continue };
        for row in answer(store, &asked).with_context(|| format!("question {number} in {place}"))? {
            println!("{place}\t{number}\t{}", row.join("\t"));
        }
    }
    Ok(())
}

/// The rows of a question's queries.
fn answer(store: &Store, asked: &[&str]) -> Result<Vec<Vec<String>>> {
    let (mut rows, mut is_sorted) = (Vec::<Vec<String>>::new(), false);
    for (at, line) in asked.iter().enumerate() {
        let (cells, query) = line.split_once(" = ").context("no query")?;
        let cells: Vec<&str> = cells.split(", ").collect();
        let mut points = points(store, query, asked[0].starts_with("$minute"))?;
        is_sorted = query.starts_with("sort");
        if !is_sorted {
            points.sort_by(|one, other| (&one.labels, one.time_ns).cmp(&(&other.labels, other.time_ns)));
        }
        if at == 0 {
            rows.resize(points.len(), Vec::new());
        }
        ensure!(rows.len() == points.len(), "{} rows, but {} of {query}", rows.len(), points.len());
        for (row, point) in rows.iter_mut().zip(&points) {
            row.extend(cells.iter().map(|cell| point.written(cell, &cells)));
        }
    }
    if !is_sorted {
        rows.sort();
    }
    Ok(rows)
}

/// What a query gives at the end of all time, or of each minute.
fn points(store: &Store, query: &str, is_by_minute: bool) -> Result<Vec<Point>> {
    let (from, end) = (FROM.cast_signed() * SECOND, (FROM + TOTAL).cast_signed() * SECOND);
    let minutes = Times { start_ns: from + MINUTE, end_ns: end, step_ns: MINUTE };
    let times = if is_by_minute { minutes } else { Times::instant(end) };
    let answer = Query::parse(query, times)?.run(&StoreSource::new(store), &Options::default())?;
    let grid = answer.grid;
    Ok(match answer.value {
        Value::Vector(all) => {
            let steps = all.iter().flat_map(|one| one.values.iter().enumerate().map(move |step| (&one.labels, step)));
            let there = steps.filter(|(_, (_, value))| !is_hole(**value));
            there.map(|(labels, (step, value))| Point::new(labels, grid.time_ns(step), *value)).collect()
        }
        Value::Matrix(all) => {
            let samples =
                all.iter().flat_map(|one| one.times_ns.iter().zip(&one.values).map(move |at| (&one.labels, at)));
            samples.map(|(labels, (time_ns, value))| Point::new(labels, *time_ns, *value)).collect()
        }
        other => bail!("{query} gives {other:?}"),
    })
}

impl Point {
    fn new(labels: &Labels, time_ns: i64, value: f64) -> Self {
        Self { labels: labels.clone(), time_ns, value }
    }

    /// A cell, of these.
    fn written(&self, cell: &str, cells: &[&str]) -> String {
        match cell {
            "$time" => self.time_ns.to_string(),
            // The one that ends then.
            "$minute" => (self.time_ns / MINUTE - 1).to_string(),
            "$float" => self.value.text(),
            "$whole" => self.value.to_string(),
            "$labels" => {
                let others = self.labels.iter().filter(|(name, _)| !cells.contains(name));
                serde_json::json!(others.collect::<BTreeMap<_, _>>()).to_string()
            }
            label => self.labels.get(label).to_owned(),
        }
    }
}
