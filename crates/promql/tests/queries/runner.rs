// SPDX-License-Identifier: Apache-2.0
//! Runs scripts: each eval as it is written and, if it is of one time, as the middle of a range, too.

use onlooker_promql::labels::Labels;
use onlooker_promql::notes::Note;
use onlooker_promql::value::{Grid, Series, Value, is_hole};
use onlooker_promql::{Answer, Options, ParseError, Query, QueryError, Times};

use crate::histograms;
use crate::memory::{MS, Memory, Sample};
use crate::script::{Command, Eval, Item, Text, Times as Wished, Wanted, is_near, parse};

/// Why an eval does not give what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// What was loaded says when counters began.
    StartTimes,
    /// It is of what Prometheus has off unless asked.
    Experimental,
    /// The parser does not know it.
    Grammar,
    Wrong,
}

pub(crate) struct Failure {
    pub(crate) line: usize,
    pub(crate) why: Why,
    pub(crate) text: String,
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) evals: usize,
    pub(crate) failures: Vec<Failure>,
}

/// `delays_names`: as the option of that name.
pub(crate) fn run(script: &str, chunk: usize, delays_names: bool) -> Result<Report, String> {
    let mut report = Report::default();
    let mut memory = Memory::of_chunks(chunk);
    let mut has_start_times = false;
    for command in parse(script)? {
        match command {
            Command::Clear => {
                memory = Memory::of_chunks(chunk);
                has_start_times = false;
            }
            Command::Load(load) => {
                has_start_times |= load.has_start_times;
                let samples = |items: &[Item]| samples((0..).map(|at| at * load.step_ns), items).collect();
                let mut series: Vec<_> =
                    load.series.iter().map(|(labels, items)| (labels.clone(), samples(items))).collect();
                if load.converts {
                    series.extend(histograms::converted(&series));
                }
                for (labels, samples) in series {
                    memory.add(labels, samples);
                }
            }
            Command::Eval(eval) => {
                report.evals += 1;
                let Err(Wrong { text, why }) = check(&eval, &memory, delays_names) else { continue };
                let why = match why {
                    Why::Wrong if has_start_times => Why::StartTimes,
                    other => other,
                };
                report.failures.push(Failure { line: eval.line, why, text: format!("{}: {text}", eval.text) });
            }
        }
    }
    Ok(report)
}

fn samples(times_ns: impl Iterator<Item = i64>, items: &[Item]) -> impl Iterator<Item = (i64, Sample)> {
    times_ns.zip(items).filter_map(|(time_ns, item)| match item {
        Item::Float(value) => Some((time_ns, Sample::Float(*value))),
        Item::Histogram(histogram, _) => Some((time_ns, Sample::Histogram(histogram.clone()))),
        Item::Omitted => None,
    })
}

struct Wrong {
    text: String,
    why: Why,
}

fn wrong<T>(text: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { text: text.into(), why: Why::Wrong })
}

/// What a query gives, or why it gives nothing: the text, and what that is in the report.
fn answer(eval: &Eval, times: Times, memory: &Memory, delays_names: bool) -> Result<Answer, Wrong> {
    let query = Query::parse(&eval.text, times).map_err(|error| {
        let why = match &error {
            ParseError::Unsupported(what) if what.contains("experimental") => Why::Experimental,
            _ => Why::Grammar,
        };
        Wrong { text: error.to_string(), why }
    })?;
    query
        .run(memory, &Options { delays_names, ..Options::default() })
        .map_err(|error: QueryError| Wrong { text: error.to_string(), why: Why::Wrong })
}

fn check(eval: &Eval, memory: &Memory, delays_names: bool) -> Result<(), Wrong> {
    let Wished { start_ns, end_ns, step_ns } = eval.times;
    let found = answer(eval, Times { start_ns, end_ns, step_ns }, memory, delays_names);
    if let Some((_, text)) = eval.expected.iter().find(|(kind, _)| kind == "fail") {
        return match found {
            Ok(_) => wrong("it should fail, but did not"),
            // Refused is not failed.
            Err(Wrong { why: Why::Experimental, .. }) => found.map(drop),
            Err(error) if text.is_match(&error.text) => Ok(()),
            Err(error) => Err(Wrong { text: format!("it fails for another reason: {}", error.text), why: error.why }),
        };
    }
    let found = found?;
    check_notes(eval, &found.notes)?;
    check_value(eval, &found)?;
    let of_query = ["start()", "end()", "range()", "step()"].iter().any(|call| eval.text.contains(call));
    let is_vector = matches!(found.value, Value::Scalar(_) | Value::Vector(_));
    if step_ns != 0 || of_query || eval.range.is_some() || !is_vector {
        return Ok(());
    }
    let minute_ns = 60_000 * MS;
    let times = Times { start_ns: start_ns - minute_ns, end_ns: start_ns + minute_ns, step_ns: minute_ns };
    let mut middle = answer(eval, times, memory, delays_names)?;
    if eval.expects("ordered") {
        return Ok(());
    }
    middle.value = match middle.value {
        Value::Scalar(values) => Value::Scalar(vec![values[1]]),
        Value::Vector(mut series) => {
            for one in &mut series {
                one.values = vec![one.values[1]];
                one.histograms = one.histogram(1).cloned().into_iter().map(Some).collect();
            }
            series.retain(|one| !is_hole(one.values[0]) || one.histogram(0).is_some());
            Value::Vector(series)
        }
        other => other,
    };
    middle.grid = Grid { start_ns, step_ns: 0, count: 1 };
    check_value(eval, &middle).map_err(|error| Wrong { text: format!("in a range: {}", error.text), ..error })
}

fn check_notes(eval: &Eval, notes: &[Note]) -> Result<(), Wrong> {
    let is_warning = |note: &&Note| matches!(note, Note::Warning(_));
    let (warnings, infos): (Vec<&Note>, Vec<&Note>) = notes.iter().partition(is_warning);
    let is_told = |text: &Text, note: &&Note| text.is_match(&note.to_string());
    for (kind, none, notes) in [("warn", "no_warn", warnings), ("info", "no_info", infos)] {
        if eval.expects(none) && !notes.is_empty() {
            return wrong(format!("unexpected notes: {notes:?}"));
        }
        let expected: Vec<&Text> = eval.expected.iter().filter(|(own, _)| own == kind).map(|(_, text)| text).collect();
        if !expected.is_empty() {
            let all = expected.iter().all(|text| notes.iter().any(|note| is_told(text, note)));
            let only = notes.iter().all(|note| expected.iter().any(|text| is_told(text, note)));
            if !all || !only {
                return wrong(format!("other notes than expected: {notes:?}"));
            }
        }
    }
    Ok(())
}

fn check_value(eval: &Eval, found: &Answer) -> Result<(), Wrong> {
    match (&eval.wanted, &found.value) {
        (Wanted::String(wanted), Value::String(text)) if wanted == text => Ok(()),
        (Wanted::Scalar(wanted), Value::Scalar(values)) if values.iter().all(|value| is_near(*value, *wanted)) => {
            Ok(())
        }
        // Of a number at many times.
        (Wanted::Series(wanted), Value::Scalar(values)) if found.grid.step_ns > 0 => {
            let times_ns = (0..values.len()).map(|step| found.grid.time_ns(step));
            let own = times_ns.zip(values.iter().map(|value| Sample::Float(*value))).collect();
            check_series(eval, wanted, &[(Labels::default(), own)])
        }
        (Wanted::Series(wanted), Value::Vector(series)) => {
            let sample = |one: &Series, step: usize| match one.histogram(step) {
                Some(histogram) => Some(Sample::Histogram(histogram.clone())),
                None => (!is_hole(one.values[step])).then(|| Sample::Float(one.values[step])),
            };
            let samples = |one: &Series| {
                let steps = 0..one.values.len();
                steps.filter_map(|step| Some((found.grid.time_ns(step), sample(one, step)?))).collect()
            };
            let all: Vec<_> = series.iter().map(|one| (one.labels.clone(), samples(one))).collect();
            check_series(eval, wanted, &all)
        }
        (Wanted::Series(wanted), Value::Matrix(all)) => {
            let samples = all.iter().map(|one| {
                let values = one.values.iter().map(|value| Sample::Float(*value));
                let mut all: Samples = one.times_ns.iter().copied().zip(values).collect();
                all.extend(one.histograms.iter().map(|(time_ns, one)| (*time_ns, Sample::Histogram(one.clone()))));
                all.sort_by_key(|(time_ns, _)| *time_ns);
                (one.labels.clone(), all)
            });
            check_series(eval, wanted, &samples.collect::<Vec<_>>())
        }
        (_, value) => wrong(format!("it gives {value:?}")),
    }
}

type Samples = Vec<(i64, Sample)>;

fn is_like(wanted: &Item, found: &Sample) -> bool {
    match (wanted, found) {
        (Item::Float(wanted), Sample::Float(found)) => is_near(*found, *wanted),
        (Item::Histogram(wanted, with_hint), Sample::Histogram(found)) => {
            histograms::is_like(found, wanted, *with_hint)
        }
        _ => false,
    }
}

fn check_series(eval: &Eval, wanted: &[(Labels, Vec<Item>)], found: &[(Labels, Samples)]) -> Result<(), Wrong> {
    let Wished { start_ns, step_ns, .. } = eval.range.unwrap_or(eval.times);
    let is_ordered = eval.expects("ordered");
    for (at, (labels, items)) in wanted.iter().enumerate() {
        let place = found.iter().position(|(own, _)| own == labels);
        let Some(place) = place.filter(|place| !is_ordered || *place == at) else {
            return wrong(format!("{labels} is not there, or not in its place: {}", told(found)));
        };
        let times_ns = (0..).map(|step| start_ns + step * step_ns);
        let own: Vec<_> = times_ns.zip(items).filter(|(_, item)| !matches!(item, Item::Omitted)).collect();
        let (_, samples) = &found[place];
        let is_same = |(own, other): (&(i64, &Item), &(i64, Sample))| own.0 == other.0 && is_like(own.1, &other.1);
        if own.len() != samples.len() || !own.iter().zip(samples).all(is_same) {
            return wrong(format!("{labels} should have {own:?}, but has {samples:?}"));
        }
    }
    if found.len() > wanted.len() {
        return wrong(format!("there are series that should not be there: {}", told(found)));
    }
    Ok(())
}

fn told(found: &[(Labels, Samples)]) -> String {
    found.iter().map(|(labels, samples)| format!("{labels} {samples:?}; ")).collect()
}
