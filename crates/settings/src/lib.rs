// SPDX-License-Identifier: Apache-2.0
//! What agent and controller have in common as services: telling the service manager ([`service`]), and configuration files: TOML whose unknown keys are refused, whose quantities carry their units, and whose mistakes are told with file, line and what was meant.
#![forbid(unsafe_code)]

pub mod service;
pub mod suggest;
pub mod units;

use serde::de::DeserializeOwned;

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Its line, from 1.
    pub line: usize,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// Reads the text of a file.
///
/// # Errors
/// [`Mistake`]: the first one.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1;
        Mistake { line, message: suggest::explain(error.message()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        interval: units::Span,
    }

    #[test]
    fn mistakes_have_lines_and_suggestions() {
        assert_eq!(parse::<File>("interval = \"10ms\"").unwrap().interval, units::Span::from_ms(10));
        let mistake = parse::<File>("\n\nintervall = \"10ms\"").unwrap_err();
        assert_eq!(mistake.line, 3);
        assert!(mistake.message.contains("did you mean `interval`"), "{}", mistake.message);
        assert!(parse::<File>("interval = 10").unwrap_err().message.contains("10ms"));
    }
}
