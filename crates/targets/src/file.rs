// SPDX-License-Identifier: Apache-2.0
//! A target file: a list of groups, as Prometheus's file_sd has it, in JSON or YAML.
//!
//! Whatever knows the hosts writes it, perhaps in place and while we read. This module parses; it does no I/O.
//! Cost: linear in the file's length, which is bounded.

use std::path::Path;

use serde::Deserialize;

use crate::relabel::Labels;

/// Length of a file at most.
pub const MAX_FILE_BYTES: usize = 16 << 20;
/// Targets of a file at most.
pub const MAX_FILE_TARGETS: usize = 50_000;

/// Why a file's contents are not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// No such file.
    #[error("it is not there")]
    Missing,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// No bytes: perhaps it is just being written.
    #[error("it is empty; a file without targets has `[]`")]
    Empty,
    /// Too long.
    #[error("it is longer than {MAX_FILE_BYTES} bytes, or has more than {MAX_FILE_TARGETS} targets; divide it")]
    Large,
    /// Not a list of groups.
    #[error("it is not a list of {{\"targets\":[\"HOST:PORT\"],\"labels\":{{}}}}: {0}")]
    Invalid(String),
}

impl FileError {
    /// One word for it, as the counters' label has it.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unreadable(_) => "unreadable",
            Self::Empty => "empty",
            Self::Large => "large",
            Self::Invalid(_) => "invalid",
        }
    }
}

/// Targets with the same labels.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Addresses.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Labels.
    #[serde(default)]
    pub labels: Labels,
}

/// Parses a file's contents: YAML if the name ends in `.yml` or `.yaml`, else JSON.
///
/// # Errors
/// [`FileError`].
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Group>, FileError> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(FileError::Large);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| FileError::Invalid(error.to_string()))?;
    if text.trim().is_empty() {
        return Err(FileError::Empty);
    }
    let is_yaml = path.extension().is_some_and(|extension| extension == "yml" || extension == "yaml");
    let groups: Vec<Group> = match is_yaml {
        true => {
            let options = serde_saphyr::options! { with_snippet: false };
            serde_saphyr::from_str_with_options(text, options).map_err(|error| FileError::Invalid(error.to_string()))?
        }
        false => serde_json::from_str(text).map_err(|error| FileError::Invalid(error.to_string()))?,
    };
    if groups.iter().map(|group| group.targets.len()).sum::<usize>() > MAX_FILE_TARGETS {
        return Err(FileError::Large);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str =
        r#"[{"targets":["a:1","b"],"labels":{"dc":"x"}},{"targets":["c"]},{"labels":{"only":"labels"}}]"#;
    const YAML: &str =
        "# hosts\n- targets:\n  - a:1\n  - 'b'\n  labels:\n    dc: x\n- targets: [c]\n- labels: {only: labels}\n";

    #[test]
    fn json_and_yaml_say_the_same() {
        let groups = parse(Path::new("t.json"), JSON.as_bytes()).unwrap();
        assert_eq!((groups.len(), groups[0].targets.len(), groups[0].labels["dc"].as_str()), (3, 2, "x"));
        for name in ["t.yml", "t.yaml"] {
            assert_eq!(parse(Path::new(name), YAML.as_bytes()).unwrap(), groups);
            assert_eq!(parse(Path::new(name), JSON.as_bytes()).unwrap(), groups, "JSON is YAML");
        }
        assert_eq!(parse(Path::new("t.json"), b"[]").unwrap(), []);
    }

    #[test]
    fn what_is_cut_off_is_invalid_or_empty_in_json() {
        for length in 0..JSON.len() {
            let error = parse(Path::new("t.json"), &JSON.as_bytes()[..length]).unwrap_err();
            assert_eq!(error.reason(), if length == 0 { "empty" } else { "invalid" });
        }
    }

    #[test]
    fn what_is_no_list_of_groups_is_refused() {
        for text in ["{}", "[1]", "[{\"target\":[]}]", "[{\"targets\":[1]}]", "[{\"targets\":\"a\"}]", "x\u{0}"] {
            assert_eq!(parse(Path::new("t.json"), text.as_bytes()).unwrap_err().reason(), "invalid", "{text}");
        }
        assert_eq!(parse(Path::new("t.yml"), b"- targets: [a]\n  labels: [b]\n").unwrap_err().reason(), "invalid");
        // YAML references that multiply when they are resolved.
        let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..12 {
            let reference = format!("*a{},", i - 1).repeat(10);
            text.push_str(&format!("a{i}: &a{i} [{reference}]\n"));
        }
        assert!(parse(Path::new("t.yml"), text.as_bytes()).is_err());
        assert_eq!(parse(Path::new("t.json"), &vec![b' '; MAX_FILE_BYTES + 1]), Err(FileError::Large));
    }
}
