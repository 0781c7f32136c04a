// SPDX-License-Identifier: Apache-2.0
//! Values in templates, and how Go prints them.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::number::{general, without_underscores};
use super::time;

pub(super) type Labels = Rc<BTreeMap<String, String>>;

#[derive(Clone, Debug)]
pub(super) enum Value {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    /// What `safeHtml` gives: a text that is no string.
    Html(Rc<str>),
    Labels(Labels),
    Arguments(Rc<Arguments>),
    Sample(Rc<Sample>),
    Samples(Rc<[Rc<Sample>]>),
    Time(Ns),
    Duration(Ns),
    /// A month or a day of the week.
    Named(i64, &'static str),
    /// What a template begins with: labels, value and so on.
    Data,
}

/// ns: since 1970, or of a duration. Functions give pointers to these, methods the things themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ns {
    pub(super) ns: i64,
    pub(super) is_pointer: bool,
}

#[derive(Debug)]
pub(super) struct Sample {
    pub(super) labels: Labels,
    pub(super) value: f64,
}

/// What `args` gives.
#[derive(Debug)]
pub(super) struct Arguments {
    pub(super) values: BTreeMap<String, Value>,
    /// Of others within it.
    pub(super) depth: usize,
}

/// A text that does not grow beyond `most` bytes.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) most: usize,
}

impl Text {
    pub(super) fn new(most: usize) -> Self {
        Self { text: String::new(), most }
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), String> {
        if self.text.len() + text.len() > self.most {
            return Err(format!("a text of more than {} bytes", self.most));
        }
        self.text.push_str(text);
        Ok(())
    }

    /// As `%v` prints it.
    pub(super) fn show(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::Nil => self.push("<nil>"),
            Value::Bool(value) => self.push(if *value { "true" } else { "false" }),
            Value::Int(value) => self.push(&value.to_string()),
            Value::Float(value) => self.push(&general(*value, None)),
            Value::Text(text) | Value::Html(text) => self.push(text),
            Value::Labels(labels) => self.map(labels.iter(), |out, value| out.push(value)),
            Value::Arguments(arguments) => self.map(arguments.values.iter(), Self::show),
            Value::Sample(sample) => {
                self.push("{")?;
                self.map(sample.labels.iter(), |out, value| out.push(value))?;
                self.push(" ")?;
                self.push(&general(sample.value, None))?;
                self.push("}")
            }
            Value::Samples(samples) => {
                self.push("[")?;
                for (at, sample) in samples.iter().enumerate() {
                    self.push(if at > 0 { " " } else { "" })?;
                    self.show(&Value::Sample(sample.clone()))?;
                }
                self.push("]")
            }
            Value::Time(time) => self.push(&time::shown(time.ns)),
            Value::Duration(duration) => self.push(&time::duration(duration.ns)),
            Value::Named(_, name) => self.push(name),
            Value::Data => Err("labels, value and the rest as one text".to_owned()),
        }
    }

    fn map<'a, V: 'a>(
        &mut self,
        entries: impl Iterator<Item = (&'a String, &'a V)>,
        show: impl Fn(&mut Self, &V) -> Result<(), String>,
    ) -> Result<(), String> {
        self.push("map[")?;
        for (at, (key, value)) in entries.enumerate() {
            self.push(if at > 0 { " " } else { "" })?;
            self.push(key)?;
            self.push(":")?;
            show(self, value)?;
        }
        self.push("]")
    }
}

impl Value {
    pub(super) fn text(text: impl AsRef<str>) -> Self {
        Self::Text(text.as_ref().into())
    }

    /// Whether `if` takes it.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(value) | Self::Named(value, _) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) | Self::Html(text) => !text.is_empty(),
            Self::Labels(labels) => !labels.is_empty(),
            Self::Arguments(arguments) => !arguments.values.is_empty(),
            Self::Samples(samples) => !samples.is_empty(),
            Self::Duration(duration) => duration.is_pointer || duration.ns != 0,
            Self::Sample(_) | Self::Time(_) | Self::Data => true,
        }
    }

    /// Its type, as Go calls it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::Html(_) => "template.HTML",
            Self::Labels(_) => "map[string]string",
            Self::Arguments(_) => "map[string]interface {}",
            Self::Sample(_) => "*template.sample",
            Self::Samples(_) => "template.queryResult",
            Self::Time(Ns { is_pointer: true, .. }) => "*time.Time",
            Self::Time(_) => "time.Time",
            Self::Duration(Ns { is_pointer: true, .. }) => "*time.Duration",
            Self::Duration(_) => "time.Duration",
            Self::Named(_, name) => {
                if name.ends_with("day") {
                    "time.Weekday"
                } else {
                    "time.Month"
                }
            }
            Self::Data => "struct",
        }
    }

    /// What `humanize` and its like take.
    pub(super) fn number(&self) -> Result<f64, String> {
        #[allow(clippy::cast_precision_loss)] // as in Go
        match self {
            Self::Float(value) => Ok(*value),
            Self::Int(value) => Ok(*value as f64),
            Self::Text(text) => parsed(text).ok_or_else(|| format!("parsing {text:?}: invalid syntax")),
            Self::Duration(Ns { ns, is_pointer: false }) => Ok(time::seconds(*ns)),
            _ => Err(format!("can't convert {} to float", self.kind())),
        }
    }
}

/// A number in a text, as Go's `ParseFloat` takes it; not hexadecimal ones.
fn parsed(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text).to_ascii_lowercase();
    let value: f64 = match unsigned.as_str() {
        "inf" | "infinity" => return text.parse().ok(),
        "nan" if text.len() == unsigned.len() => return Some(f64::NAN),
        _ if unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            without_underscores(text)?.parse().ok()?
        }
        _ => return None,
    };
    // A number that is too large is a mistake.
    value.is_finite().then_some(value)
}
