// SPDX-License-Identifier: Apache-2.0
//! Labels of a series, and what a selector wants of them.

use std::fmt;
use std::sync::Arc;

/// The label that has a metric's name.
pub const NAME: &str = "__name__";
/// The label of a classic histogram's bucket: its upper bound.
pub const BUCKET: &str = "le";
/// What says what a series is, beside its own labels; whatever changes its meaning drops these.
const METADATA: [&str; 3] = [NAME, "__type__", "__unit__"];

type Pair = (Arc<str>, Arc<str>);

/// Labels in the order of their names, each name once, none with an empty value. Copies are cheap.
///
/// They compare as Prometheus sorts series: name by name and value by value, the shorter first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Option<Arc<[Pair]>>);

impl Labels {
    /// Of names and values in any order. Of a name that comes twice the last counts.
    pub fn new<N: Into<Arc<str>>, V: Into<Arc<str>>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut builder = Builder(Vec::new());
        for (name, value) in pairs {
            builder.set(&name.into(), value.into());
        }
        builder.labels()
    }

    fn pairs(&self) -> &[Pair] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Name and value, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().iter().map(|(name, value)| (&**name, &**value))
    }

    /// A label's value; empty if it is not there.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.pairs().iter().find(|(own, _)| &**own == name).map_or("", |(_, value)| value)
    }

    /// The metric's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.get(NAME)
    }

    /// Only those with these names.
    pub(crate) fn keep(&self, names: &[String]) -> Self {
        self.retain(|name| names.iter().any(|own| own == name))
    }

    /// Without those with these names.
    pub(crate) fn without(&self, names: &[String]) -> Self {
        self.retain(|name| !names.iter().any(|own| own == name))
    }

    pub(crate) fn has_metadata(&self) -> bool {
        self.pairs().iter().any(|(name, _)| is_metadata(name))
    }

    /// Without the metric's name, type and unit.
    pub(crate) fn without_metadata(&self) -> Self {
        self.retain(|name| !is_metadata(name))
    }

    pub(crate) fn without_metadata_and(&self, names: &[String]) -> Self {
        self.retain(|name| !is_metadata(name) && !names.iter().any(|own| own == name))
    }

    fn retain(&self, keep: impl Fn(&str) -> bool) -> Self {
        if self.pairs().iter().all(|(name, _)| keep(name)) {
            return self.clone();
        }
        Builder(self.pairs().iter().filter(|(name, _)| keep(name)).cloned().collect()).labels()
    }

    /// With one label more, or another value of it, or without it if the value is empty.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut builder = Builder(self.pairs().to_vec());
        builder.set(&Arc::from(name), Arc::from(value));
        builder.labels()
    }

    /// What they take in memory at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pairs().iter().map(|(name, value)| name.len() + value.len() + 2 * size_of::<Pair>()).sum()
    }
}

/// As Prometheus writes them in its messages.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (at, (name, value)) in self.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{name}={value:?}")?;
        }
        f.write_str("}")
    }
}

struct Builder(Vec<Pair>);

impl Builder {
    fn set(&mut self, name: &Arc<str>, value: Arc<str>) {
        match self.0.binary_search_by(|(own, _)| own.cmp(name)) {
            Ok(at) if value.is_empty() => drop(self.0.remove(at)),
            Ok(at) => self.0[at].1 = value,
            Err(_) if value.is_empty() => {}
            Err(at) => self.0.insert(at, (name.clone(), value)),
        }
    }

    fn labels(self) -> Labels {
        Labels((!self.0.is_empty()).then(|| self.0.into()))
    }
}

pub(crate) fn is_metadata(name: &str) -> bool {
    METADATA.contains(&name)
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`: matches as a whole.
    Regex,
    /// `!~`
    NotRegex,
}

impl Comparison {
    const ALL: [(Self, &str); 4] =
        [(Self::Equal, "="), (Self::NotEqual, "!="), (Self::Regex, "=~"), (Self::NotRegex, "!~")];

    pub(crate) fn text(self) -> &'static str {
        Self::ALL.iter().find(|(comparison, _)| *comparison == self).map_or("", |(_, text)| *text)
    }

    /// The one that is written so.
    pub(crate) fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, own)| *own == text).map(|(comparison, _)| comparison)
    }
}

/// What a label must be. A label that is not there has an empty value.
///
/// Expressions are known to be valid here, and in the words of the crate `regex`; whoever has the series compiles
/// them, once a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// Which label.
    pub name: String,
    /// How.
    pub comparison: Comparison,
    /// With what.
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_unique_and_never_empty() {
        let labels = Labels::new([("b", "1"), ("a", "2"), ("b", "3"), ("c", "")]);
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
        assert_eq!(labels.with("a", ""), Labels::new([("b", "3")]));
        assert_eq!(labels.with("aa", "x").to_string(), r#"{a="2", aa="x", b="3"}"#);
        assert_eq!(Labels::new([("a", "")]), Labels::default());
    }

    #[test]
    fn labels_sort_as_prometheus_sorts_series() {
        let of = |pairs: &[(&'static str, &'static str)]| Labels::new(pairs.iter().copied());
        let sorted = [of(&[]), of(&[("a", "1")]), of(&[("a", "1"), ("b", "1")]), of(&[("a", "2")]), of(&[("b", "0")])];
        assert!(sorted.is_sorted());
    }
}
