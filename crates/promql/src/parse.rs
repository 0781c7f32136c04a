// SPDX-License-Identifier: Apache-2.0
//! Text to [`Expr`], by Prometheus 3.16's grammar. Durations are calculated on the way, from the times of the query, if it
//! has some.
//!
//! | module | what |
//! |---|---|
//! | [`token`], [`literal`], [`text`] | the text's tokens; numbers and durations; strings without their quotes |
//! | [`grammar`] | what stands between operators; functions, aggregations, types |
//! | [`binary`] | operators and their modifiers |
//! | [`selector`] | selectors, and what follows them |
//! | [`duration`] | durations, and what they are at the query's times |
//!
//! Refused by name: what Prometheus has only when asked for it: experimental functions and aggregations, `fill`
//! modifiers.

mod binary;
mod duration;
mod grammar;
mod literal;
mod selector;
mod text;
mod token;

use std::ops::Range;

use crate::expr::{Expr, Place};
pub(crate) use grammar::EXPERIMENTAL;
pub(crate) use grammar::query as parse;
pub(crate) use literal::UNITS;
pub use literal::duration_ns;
pub use text::unquoted;

/// Why a text is no query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is no PromQL.
    #[error("{line}:{column}: parse error: {text}")]
    Wrong {
        /// Line of its begin, from 1.
        line: usize,
        /// Byte of that line, from 1.
        column: usize,
        /// Bytes of the query that it is about.
        at: Range<usize>,
        /// What is wrong.
        text: String,
    },
    /// It is, but this version of Onlooker cannot do it.
    #[error("{0} are not supported")]
    Unsupported(String),
    /// `count_values()` cannot name a label so.
    #[error("invalid label name {0}")]
    Label(String),
    /// It has more operators, brackets or bytes than one query may have.
    #[error("the query's text has more than {most} {what}")]
    Large {
        /// Of what.
        what: &'static str,
        /// What is allowed.
        most: usize,
    },
}

impl ParseError {
    pub(crate) fn wrong(query: &str, at: Range<usize>, text: impl Into<String>) -> Self {
        let Place { line, column } = Place::new(query, at.start);
        Self::Wrong { line, column, at, text: text.into() }
    }

    /// A query for several times can give numbers only.
    pub(crate) fn range_of(query: &str, expr: &Expr) -> Self {
        let what = if matches!(expr, Expr::String(_)) { "string" } else { "range vector" };
        let text = format!("invalid expression type {what:?} for range query, must be Scalar or instant Vector");
        Self::wrong(query, 0..query.len(), text)
    }
}

fn unsupported<T>(what: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError::Unsupported(what.into()))
}

#[cfg(test)]
mod tests;
