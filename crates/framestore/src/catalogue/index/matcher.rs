// SPDX-License-Identifier: Apache-2.0
//! What a label must be, as PromQL says it. A label that is not there has an empty value.

use regex::Regex;

/// Bytes of a compiled expression at most.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`: as a whole.
    Regex,
    /// `!~`
    NotRegex,
}

/// An expression that is none, or is too large.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the regular expression cannot be used: {0}")]
pub struct WrongRegex(String);

/// What the label of a name must be.
#[derive(Clone, Debug)]
pub struct Matcher {
    name: String,
    comparison: Comparison,
    value: String,
    regex: Option<Regex>,
}

impl Matcher {
    /// Of a label's name, or `__name__` for the metric's, and a value.
    ///
    /// # Errors
    /// [`WrongRegex`].
    pub fn new(name: &str, comparison: Comparison, value: &str) -> Result<Self, WrongRegex> {
        let regex = match comparison {
            Comparison::Equal | Comparison::NotEqual => None,
            Comparison::Regex | Comparison::NotRegex => Some(anchored(value).map_err(|e| WrongRegex(e.to_string()))?),
        };
        Ok(Self { name: name.to_owned(), comparison, value: value.to_owned(), regex })
    }

    /// Which label.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a value is as it must be.
    #[must_use]
    pub fn is_match(&self, value: &str) -> bool {
        let is_found = self.regex.as_ref().map_or(value == self.value, |regex| regex.is_match(value));
        is_found == matches!(self.comparison, Comparison::Equal | Comparison::Regex)
    }

    /// The value that matches, where that is one.
    pub(super) fn only_value(&self) -> Option<&str> {
        (self.comparison == Comparison::Equal).then_some(&self.value)
    }
}

/// Matches texts as a whole.
fn anchored(expression: &str) -> Result<Regex, regex::Error> {
    let build = |expression: &str| regex::RegexBuilder::new(expression).size_limit(MAX_REGEX_BYTES).build();
    // Alone first: `)(` is none, but would become one inside our parentheses.
    build(expression)?;
    build(&format!("^(?s:{expression})$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_match_as_a_whole() {
        use Comparison::{Equal, NotEqual, NotRegex, Regex};
        let is_match = |comparison, expression: &str, value: &str| {
            Matcher::new("a", comparison, expression).unwrap().is_match(value)
        };
        for (comparison, expression, value, expected) in [
            (Equal, "a", "a", true),
            (Equal, "", "", true),
            (NotEqual, "", "a", true),
            (NotEqual, "a", "a", false),
            (Regex, "a|b", "ab", false),
            (Regex, "a|b", "b", true),
            (Regex, "a.c", "a\nc", true),
            (Regex, ".*", "", true),
            (Regex, ".+", "", false),
            (NotRegex, "a.*", "abc", false),
            (NotRegex, "a", "abc", true),
        ] {
            assert_eq!(is_match(comparison, expression, value), expected, "{comparison:?} {expression:?} {value:?}");
        }
        for wrong in [")(", "(", "a{1000}{1000}{1000}"] {
            assert!(Matcher::new("a", Regex, wrong).is_err(), "{wrong}");
        }
    }
}
