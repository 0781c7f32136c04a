// SPDX-License-Identifier: Apache-2.0
//! A query's tree as text and as JSON, as Prometheus 3.16 gives it (`/api/v1/format_query`, `/api/v1/parse_query`).
//!
//! | module | what |
//! |---|---|
//! | [`flat`] | a tree in one line, and which part of it each node is |
//! | [`pretty`] | in more lines, where one would be too long |
//! | [`literal`] | strings, numbers, durations, names |
//! | [`json`] | a tree as JSON |
//!
//! Times that are no whole milliseconds, of which Prometheus has none, are printed in full: `x[0.0005]`, where it prints
//! `x[0s]`. Everything else is byte for byte what it prints (`bench/conformance/print_test.go`).
//!
//! The parser bounds all of it: no tree is deeper than a text may have operators and brackets. Each part of the text is
//! made once; only indentation multiplies it.

mod flat;
mod json;
mod literal;
mod pretty;

pub use json::tree;

use crate::parse::{self, ParseError};

/// A query's text again, so that people read it easily: lines of 100 bytes, where they can be parted.
///
/// # Errors
/// [`ParseError`].
pub fn formatted(text: &str) -> Result<String, ParseError> {
    Ok(pretty::pretty(&parse::parse(text, None)?))
}

#[cfg(test)]
mod tests;
