// SPDX-License-Identifier: Apache-2.0
//! The language of promqltest, as Prometheus's documentation of it says: `clear`, `load`, `eval` and what is expected.
//!
//! Times at which counters began are read over; that there were any is remembered.

use std::sync::Arc;

use onlooker_promql::histogram::Histogram;
use onlooker_promql::labels::{Labels, NAME};
use onlooker_promql::source::STALE;
use regex::Regex;

use crate::histograms;
use crate::memory::MS;

pub(crate) enum Command {
    Clear,
    Load(Load),
    Eval(Box<Eval>),
}

#[derive(Default)]
pub(crate) struct Load {
    pub(crate) step_ns: i64,
    pub(crate) series: Vec<(Labels, Vec<Item>)>,
    /// Classic histograms become native ones, too.
    pub(crate) converts: bool,
    pub(crate) has_start_times: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Item {
    Omitted,
    Float(f64),
    /// And whether it says what is known of its counter.
    Histogram(Arc<Histogram>, bool),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// 0: one time.
    pub(crate) step_ns: i64,
}

pub(crate) enum Text {
    Any,
    Exactly(String),
    Matching(Regex),
}

impl Text {
    pub(crate) fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(own) => own == text,
            Self::Matching(regex) => regex.is_match(text),
        }
    }
}

pub(crate) enum Wanted {
    Series(Vec<(Labels, Vec<Item>)>),
    Scalar(f64),
    String(String),
}

pub(crate) struct Eval {
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) times: Times,
    pub(crate) wanted: Wanted,
    /// Times of what an instant query gives that is a range.
    pub(crate) range: Option<Times>,
    /// What each annotation must be: its kind as in the script.
    pub(crate) expected: Vec<(String, Text)>,
}

impl Eval {
    pub(crate) fn expects(&self, kind: &str) -> bool {
        self.expected.iter().any(|(own, _)| own == kind)
    }
}

pub(crate) fn parse(text: &str) -> Result<Vec<Command>, String> {
    let lines: Vec<&str> =
        text.lines().map(|line| if line.trim().starts_with('#') { "" } else { line.trim() }).collect();
    let mut commands = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let block = lines[at + 1..].iter().take_while(|line| !line.is_empty()).count();
        let line = lines[at];
        let word = line.split_whitespace().next().unwrap_or_default();
        let mut rest = &lines[at + 1..at + 1 + block];
        let command = match word {
            "" => None,
            "clear" => {
                rest = &[];
                Some(Command::Clear)
            }
            _ if word.starts_with("load") => Some(Command::Load(load(line, rest)?)),
            _ if word.starts_with("eval") => {
                let mut eval = eval(line, at + 1)?;
                let taken = expectations(&mut eval, rest).map_err(|error| format!("line {}: {error}", at + 1))?;
                rest = &rest[..taken];
                Some(Command::Eval(Box::new(eval)))
            }
            _ => return Err(format!("line {}: no command: {line}", at + 1)),
        };
        commands.extend(command);
        at += 1 + if word.is_empty() { 0 } else { rest.len() };
    }
    Ok(commands)
}

fn load(line: &str, lines: &[&str]) -> Result<Load, String> {
    let (word, step) = line.split_once(char::is_whitespace).ok_or("load without a step")?;
    let mut load = Load { step_ns: duration(step.trim())?, converts: word == "load_with_nhcb", ..Load::default() };
    for line in lines {
        let name = line.split_whitespace().next().unwrap_or_default();
        if name.ends_with("@st") {
            load.has_start_times = true;
            continue;
        }
        let (labels, items) = series(line)?;
        load.series.push((labels, items));
    }
    Ok(load)
}

fn eval(line: &str, number: usize) -> Result<Eval, String> {
    let wrong = || format!("line {number}: no eval: {line}");
    let instant = Regex::new(r"^eval(?:_(fail|warn|ordered|info))?\s+instant\s+at\s+(\S+)\s+(.+)$");
    let range = Regex::new(r"^eval(?:_(fail|warn|info))?\s+range\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+)\s+(.+)$");
    let (kind, times, text) = if let Some(found) = instant.map_err(|_| wrong())?.captures(line) {
        let time_ns = duration(&found[2])?;
        let times = Times { start_ns: time_ns, end_ns: time_ns, step_ns: 0 };
        (found.get(1).map(|kind| kind.as_str().to_owned()), times, found[3].to_owned())
    } else {
        let found = range.map_err(|_| wrong())?.captures(line).ok_or_else(wrong)?;
        let [start_ns, end_ns, step_ns] = [2, 3, 4].map(|at| duration(&found[at]));
        let times = Times { start_ns: start_ns?, end_ns: end_ns?, step_ns: step_ns? };
        (found.get(1).map(|kind| kind.as_str().to_owned()), times, found[5].to_owned())
    };
    let expected = kind.map(|kind| (kind, Text::Any)).into_iter().collect();
    Ok(Eval { line: number, text, times, wanted: Wanted::Series(Vec::new()), range: None, expected })
}

/// How many lines belong to it.
fn expectations(eval: &mut Eval, lines: &[&str]) -> Result<usize, String> {
    for (at, line) in lines.iter().enumerate() {
        if let Some(text) = line.strip_prefix("expect string ") {
            eval.wanted = Wanted::String(unquote(text)?.0);
        } else if let Some(times) = line.strip_prefix("expect range vector from ") {
            let (start, rest) = times.split_once(" to ").ok_or("no end")?;
            let (end, step) = rest.split_once(" step ").ok_or("no step")?;
            let [start_ns, end_ns, step_ns] = [start, end, step].map(|text| duration(text.trim()));
            eval.range = Some(Times { start_ns: start_ns?, end_ns: end_ns?, step_ns: step_ns? });
        } else if let Some(own) = line.strip_prefix("expect ") {
            let (kind, rest) = own.split_once(' ').unwrap_or((own, ""));
            let text = match rest.trim().split_once(':') {
                Some(("msg", text)) => Text::Exactly(text.trim().to_owned()),
                Some(("regex", text)) => Text::Matching(Regex::new(text.trim()).map_err(|error| error.to_string())?),
                _ => Text::Any,
            };
            eval.expected.push((kind.to_owned(), text));
        } else if line.starts_with("expected_fail") {
            let (kind, text) = line.split_once(' ').unwrap_or((line, ""));
            let text = match kind {
                "expected_fail_message" => Text::Exactly(text.trim().to_owned()),
                _ => Text::Matching(Regex::new(text.trim()).map_err(|error| error.to_string())?),
            };
            eval.expected.push(("fail".to_owned(), text));
            return Ok(at + 1);
        } else if let Ok(number) = line.parse::<f64>() {
            eval.wanted = Wanted::Scalar(number);
            return Ok(at + 1);
        } else if let Wanted::Series(all) = &mut eval.wanted {
            all.push(series(line)?);
        }
    }
    Ok(lines.len())
}

/// `name{label="value"} items`.
fn series(line: &str) -> Result<(Labels, Vec<Item>), String> {
    let name_len = line.find(|next: char| next == '{' || next.is_whitespace()).unwrap_or(line.len());
    let mut pairs = vec![(NAME.to_owned(), line[..name_len].to_owned())];
    let mut rest = &line[name_len..];
    if let Some(mut inner) = rest.strip_prefix('{').filter(|inner| !inner.starts_with('{')) {
        loop {
            inner = inner.trim_start_matches([' ', ',', '\t']);
            if let Some(after) = inner.strip_prefix('}') {
                rest = after;
                break;
            }
            let (name, after) = if inner.starts_with(['"', '\'', '`']) {
                unquote(inner)?
            } else {
                let end = inner.find(['=', ' ']).ok_or("a label without a value")?;
                (inner[..end].to_owned(), &inner[end..])
            };
            let after = after.trim_start();
            let Some(value) = after.strip_prefix('=') else {
                pairs.push((NAME.to_owned(), name));
                inner = after;
                continue;
            };
            let (value, after) = unquote(value.trim_start())?;
            pairs.push((name, value));
            inner = after;
        }
    }
    Ok((Labels::new(pairs), items(rest)?))
}

fn items(mut text: &str) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() {
            return Ok(items);
        }
        if text.starts_with("{{") {
            let (histograms, rest) = histograms::items(text)?;
            items.extend(histograms);
            text = rest;
            continue;
        }
        if let Some(mut rest) = text.strip_prefix('_') {
            let times = repeats(&mut rest)?.unwrap_or(1);
            items.extend(vec![Item::Omitted; times]);
            text = rest;
            continue;
        }
        let (mut value, mut rest) = number(text).ok_or_else(|| format!("no value: {text}"))?;
        let step = if rest.starts_with(['+', '-']) {
            let (step, after) = number(rest).ok_or_else(|| format!("no step: {rest}"))?;
            rest = after;
            step
        } else {
            0.0
        };
        let times = repeats(&mut rest)?.map_or(1, |times| times + 1);
        for _ in 0..times {
            items.push(Item::Float(value));
            if step != 0.0 {
                value += step;
            }
        }
        text = rest;
    }
}

/// `x10`.
pub(crate) fn repeats(text: &mut &str) -> Result<Option<usize>, String> {
    let Some(after) = text.strip_prefix('x') else { return Ok(None) };
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    *text = &after[digits..];
    after[..digits].parse().map(Some).map_err(|_| format!("no count: {after}"))
}

fn number(text: &str) -> Option<(f64, &str)> {
    let (sign, body) = match text.strip_prefix('-') {
        Some(body) => (-1.0, body),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    for (word, value) in [("NaN", f64::NAN), ("Inf", f64::INFINITY), ("stale", STALE)] {
        let is_word = body.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        if let Some(rest) = is_word.then(|| &body[word.len()..]) {
            // The stale marker's sign is part of it.
            return Some((if value.is_nan() { value } else { sign * value }, rest));
        }
    }
    let mut before = ' ';
    let len = body.find(|next: char| {
        let is_exponent = matches!(next, 'e' | 'E') || matches!(next, '+' | '-') && matches!(before, 'e' | 'E');
        before = next;
        !(next.is_ascii_digit() || next == '.' || is_exponent)
    });
    let len = len.unwrap_or(body.len());
    Some((sign * body[..len].parse::<f64>().ok()?, &body[len..]))
}

/// A string in quotes, and what follows it.
fn unquote(text: &str) -> Result<(String, &str), String> {
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\'' | '`')).ok_or("no string")?;
    let mut value = String::new();
    let mut chars = text[1..].char_indices();
    while let Some((at, next)) = chars.next() {
        match next {
            _ if next == quote => return Ok((value, &text[at + 2..])),
            '\\' if quote != '`' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((begin, 'u')) => {
                    let digits = text.get(begin + 2..begin + 6).ok_or("no escape")?;
                    let code = u32::from_str_radix(digits, 16).map_err(|_| "no escape")?;
                    value.push(char::from_u32(code).ok_or("no escape")?);
                    chars.nth(3);
                }
                Some((_, escaped)) => value.push(escaped),
                None => break,
            },
            _ => value.push(next),
        }
    }
    Err(format!("a string that does not end: {text}"))
}

/// `1h30m`, as ns.
pub(crate) fn duration(text: &str) -> Result<i64, String> {
    let (sign, mut rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    if rest == "0" {
        return Ok(0);
    }
    let mut all = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let unit_ms = match &after[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            "y" => 31_536_000_000,
            _ => return Err(format!("no duration: {text}")),
        };
        all += number.parse::<i64>().map_err(|_| format!("no duration: {text}"))? * unit_ms;
        rest = &after[letters..];
    }
    Ok(sign * all * MS)
}

/// As near as promqltest wants it.
pub(crate) fn is_near(a: f64, b: f64) -> bool {
    const NEAR: f64 = 1e-6;
    if a.to_bits() == STALE.to_bits() || b.to_bits() == STALE.to_bits() {
        return a.to_bits() == b.to_bits();
    }
    let (sum, apart) = (a.abs() + b.abs(), (a - b).abs());
    match () {
        () if a.is_nan() && b.is_nan() || a == b => true,
        () if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE => apart < NEAR * f64::MIN_POSITIVE,
        () => apart / sum.min(f64::MAX) < NEAR,
    }
}
