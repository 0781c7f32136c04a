// SPDX-License-Identifier: Apache-2.0
//! A rule file's text to groups: YAML's shape first, then what Prometheus checks of each group and rule.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onlooker_promql::{ParseError, Query, Times};
use serde::Deserialize;
use serde_saphyr::{DefaultMessageFormatter, MessageFormatter, Spanned};

use crate::template::Template;
use crate::{Group, Mistake, Rule, What, duration_ns, place};

/// Length of a file at most.
pub const MAX_FILE_BYTES: usize = 4 << 20;
/// The text that a mistake shows, characters at most.
const MAX_OFFENDING: usize = 80;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    groups: Option<Vec<Spanned<GroupText>>>,
}

/// What a file may leave out, it may also leave empty.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    name: Option<Spanned<String>>,
    interval: Option<Spanned<String>>,
    query_offset: Option<Spanned<String>>,
    limit: Option<i64>,
    rules: Option<Vec<Spanned<RuleText>>>,
    labels: Option<Texts>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    record: Option<Spanned<String>>,
    alert: Option<Spanned<String>>,
    expr: Option<Spanned<String>>,
    r#for: Option<Spanned<String>>,
    keep_firing_for: Option<Spanned<String>>,
    labels: Option<Texts>,
    annotations: Option<Texts>,
}

type Texts = BTreeMap<String, Option<Spanned<String>>>;

/// Reads a file's text.
///
/// # Errors
/// All mistakes that are in it, in the file's order. A text that is no YAML, or YAML of another shape, has one.
pub fn read(path: &Path, text: &str) -> Result<Vec<Group>, Vec<Mistake>> {
    if text.len() > MAX_FILE_BYTES {
        let text = format!("the file has more than {MAX_FILE_BYTES} bytes; divide it");
        return Err(vec![Mistake { line: 0, column: 0, of: String::new(), text, offending: String::new() }]);
    }
    let file = parsed(text).map_err(|mistake| vec![mistake])?;
    let mut reader = Reader { text, of: String::new(), mistakes: Vec::new() };
    let mut names = BTreeSet::new();
    let mut groups = Vec::new();
    for group in file.and_then(|file| file.groups).unwrap_or_default() {
        groups.push(reader.group(path, &group, &mut names));
    }
    reader.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    if reader.mistakes.is_empty() { Ok(groups) } else { Err(reader.mistakes) }
}

/// `None`: there is nothing in it.
fn parsed(text: &str) -> Result<Option<FileText>, Mistake> {
    let is_blank =
        |line: &str| matches!(line.trim_start().chars().next(), None | Some('#')) || line.trim_end() == "---";
    if text.lines().all(is_blank) {
        return Ok(None);
    }
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error.location();
        let number = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
        let line = number(place.map(|place| place.line()));
        Mistake {
            line,
            column: number(place.map(|place| place.column())),
            of: String::new(),
            text: match &error {
                serde_saphyr::Error::MultipleDocuments { .. } => "more than one document in the file".to_owned(),
                error => DefaultMessageFormatter.format_message(error).into_owned(),
            },
            offending: line.checked_sub(1).and_then(|line| text.lines().nth(line)).map(shortened).unwrap_or_default(),
        }
    })
}

/// One line, not too long.
fn shortened(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default().trim();
    match line.char_indices().nth(MAX_OFFENDING) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

struct Reader<'a> {
    text: &'a str,
    /// What is being read.
    of: String,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    /// About a byte of a value.
    fn mistake_at(&mut self, value: &Spanned<String>, at: usize, text: impl Into<String>, offending: &str) {
        let (line, column) = place::of(self.text, value, at);
        let (of, offending) = (self.of.clone(), shortened(offending));
        self.mistakes.push(Mistake { line, column, of, text: text.into(), offending });
    }

    fn mistake(&mut self, value: &Spanned<String>, text: impl Into<String>) {
        self.mistake_at(value, 0, text, &value.value);
    }

    /// About something as a whole.
    fn mistake_in<T>(&mut self, whole: &Spanned<T>, text: &str) {
        let (line, column) = place::begin(&whole.referenced);
        let (of, text) = (self.of.clone(), text.to_owned());
        self.mistakes.push(Mistake { line, column, of, text, offending: String::new() });
    }

    fn group(&mut self, path: &Path, whole: &Spanned<GroupText>, names: &mut BTreeSet<String>) -> Group {
        let group = &whole.value;
        let name = value(group.name.as_ref());
        self.of = format!("group {name:?}");
        match &group.name {
            Some(text) if !names.insert(name.to_owned()) => {
                self.mistake(text, "a group of this name is in the file already")
            }
            Some(text) if !text.value.is_empty() => {}
            _ => self.mistake_in(whole, "a group must have a name"),
        }
        let interval_ns = group.interval.as_ref().and_then(|text| self.duration(text)).filter(|ns| *ns > 0);
        let offset_ns = group.query_offset.as_ref().and_then(|text| self.duration(text)).unwrap_or(0);
        let labels = self.labels(group.labels.as_ref(), "label");
        let rules = group.rules.as_deref().unwrap_or_default();
        if rules.iter().any(|rule| rule.value.alert.is_some()) {
            self.templates(group.labels.as_ref(), "label");
        }
        let mut read = Vec::with_capacity(rules.len());
        for (at, rule) in rules.iter().enumerate() {
            let RuleText { alert, record, .. } = &rule.value;
            let rule_name = [alert, record].into_iter().map(|name| value(name.as_ref())).find(|name| !name.is_empty());
            self.of = format!("group {name:?}, rule {}, {:?}", at + 1, rule_name.unwrap_or_default());
            read.extend(self.rule(rule, &labels));
        }
        let limit = group.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
        Group { name: name.to_owned(), file: path.to_owned(), interval_ns, offset_ns, limit, rules: read }
    }

    /// `None`: it has mistakes.
    fn rule(&mut self, whole: &Spanned<RuleText>, group: &BTreeMap<String, String>) -> Option<Rule> {
        let rule = &whole.value;
        let before = self.mistakes.len();
        let named = |name: &'_ Option<Spanned<String>>| name.clone().filter(|name| !name.value.is_empty());
        let (record, alert) = (named(&rule.record), named(&rule.alert));
        match (&record, &alert) {
            (Some(_), Some(alert)) => self.mistake(alert, "only one of 'record' and 'alert' must be set"),
            (None, None) => self.mistake_in(whole, "one of 'record' or 'alert' must be set"),
            _ => {}
        }
        match &rule.expr {
            Some(expr) if !expr.value.is_empty() => self.expression(expr),
            _ => self.mistake_in(whole, "field 'expr' must be set in rule"),
        }
        let hold_ns = rule.r#for.as_ref().and_then(|text| self.duration(text)).unwrap_or(0);
        let keep_firing_ns = rule.keep_firing_for.as_ref().and_then(|text| self.duration(text)).unwrap_or(0);
        let annotations = self.labels(rule.annotations.as_ref(), "annotation");
        if let Some(record) = &record {
            let fields = [
                ("annotations", !annotations.is_empty()),
                ("for", hold_ns != 0),
                ("keep_firing_for", keep_firing_ns != 0),
            ];
            for (field, _) in fields.into_iter().filter(|(_, is_set)| *is_set) {
                self.mistake(record, format!("invalid field '{field}' in recording rule"));
            }
            if let Some(brace) = record.value.find(['{', '}']) {
                let text = "braces present in the recording rule name; should it be in expr?";
                self.mistake_at(record, brace, text, &record.value);
            }
        }
        let mut labels = group.clone();
        labels.extend(self.labels(rule.labels.as_ref(), "label"));
        if alert.is_some() {
            self.templates(rule.labels.as_ref(), "label");
            self.templates(rule.annotations.as_ref(), "annotation");
        }
        if self.mistakes.len() > before {
            return None;
        }
        let what = match (record, alert) {
            (Some(record), _) => What::Record { name: record.value },
            (None, alert) => What::Alert { name: alert?.value, hold_ns, keep_firing_ns, annotations },
        };
        let expr = value(rule.expr.as_ref()).to_owned();
        Some(Rule { what, expr, labels, line: place::begin(&whole.referenced).0 })
    }

    fn expression(&mut self, expr: &Spanned<String>) {
        let text = &expr.value;
        match Query::parse(text, Times::instant(0)) {
            Ok(_) => {}
            Err(ParseError::Wrong { at, text: why, .. }) => {
                let offending = text.get(at.clone()).filter(|part| !part.trim().is_empty()).unwrap_or(text);
                self.mistake_at(expr, at.start, format!("could not parse expression: {why}"), offending);
            }
            Err(error) => self.mistake(expr, format!("could not parse expression: {error}")),
        }
    }

    fn duration(&mut self, text: &Spanned<String>) -> Option<i64> {
        let ns = duration_ns(&text.value);
        if ns.is_none() {
            self.mistake(text, "not a valid duration, like 30s, 1m30s or 100ms");
        }
        ns
    }

    /// Their names must be ones, `what` is the field's word for them.
    fn labels(&mut self, texts: Option<&Texts>, what: &str) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        for (name, text) in texts.into_iter().flatten() {
            if name.is_empty() || (what == "label" && name == "__name__") {
                let place = text.as_ref().map_or((0, 0), |text| place::of_name(self.text, text, name));
                let (of, text) = (self.of.clone(), format!("invalid {what} name"));
                self.mistakes.push(Mistake {
                    line: place.0,
                    column: place.1,
                    of,
                    text,
                    offending: format!("{name:?}"),
                });
            }
            labels.insert(name.clone(), value(text.as_ref()).to_owned());
        }
        labels
    }

    fn templates(&mut self, texts: Option<&Texts>, what: &str) {
        for (name, text) in texts.into_iter().flatten() {
            let Some(text) = text else { continue };
            if let Err(error) = Template::parse(&text.value) {
                let rest = text.value.get(error.at..).unwrap_or_default();
                let end = rest.find("}}").map_or(rest.len(), |end| end + 2);
                self.mistake_at(text, error.at, format!("{what} {name:?}: {error}"), &rest[..end]);
            }
        }
    }
}

fn value(text: Option<&Spanned<String>>) -> &str {
    text.map_or("", |text| &text.value)
}

#[cfg(test)]
mod tests;
