// SPDX-License-Identifier: Apache-2.0
//! Rule files from disk to groups.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use onlooker_rules::{Group, MAX_FILE_BYTES};
use onlooker_targets::watch::matching;

use crate::config::{Rules, SHORTEST_RULES};

/// Groups at most: one thread evaluates them.
const MAX_GROUPS: usize = 1_000;

/// The set that comes with the controller, and what it is called.
const SHIPPED: (&str, &str) = ("shipped/node.yaml", include_str!("../../../../packaging/rules/node.yaml"));

/// Why rules are not used: none of any file is.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// A file cannot be read.
    #[error("cannot read the rule file {path} ([rules] files): {source}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is too long.
    #[error("the rule file {path} is longer than {MAX_FILE_BYTES} bytes; split it", path = .0.display())]
    TooLong(PathBuf),
    /// It has mistakes: a line each.
    #[error("rule files have mistakes:{0}")]
    Mistakes(String),
    /// There are too many groups.
    #[error("the rule files have more than {MAX_GROUPS} groups")]
    TooMany,
}

/// All groups of all files, in the order of the files' names.
///
/// # Errors
/// [`RulesError`], with all mistakes of all files.
pub fn read(config: &Rules) -> Result<Vec<Group>, RulesError> {
    let mut paths: Vec<PathBuf> = config.files.iter().flat_map(|pattern| matching(pattern)).collect();
    paths.sort();
    paths.dedup();
    let mut texts = paths.into_iter().map(|path| Ok((text(&path)?, path))).collect::<Result<Vec<_>, _>>()?;
    texts.extend(config.shipped.then(|| (SHIPPED.1.to_owned(), SHIPPED.0.into())));
    let (mut groups, mut mistakes) = (Vec::new(), String::new());
    for (text, path) in texts {
        match onlooker_rules::read(&path, &text) {
            Ok(own) => groups.extend(own),
            Err(own) => {
                for mistake in own {
                    // Writing to a String cannot fail.
                    let _ = write!(mistakes, "\n{}:{mistake}", path.display());
                }
            }
        }
    }
    for group in &groups {
        let is_too_short = |ns: i64| ns < SHORTEST_RULES.as_ns().cast_signed();
        if group.interval_ns.is_some_and(is_too_short) {
            let (file, name) = (group.file.display(), &group.name);
            let _ = write!(mistakes, "\n{file}: group {name:?}: its interval must be at least {SHORTEST_RULES}");
        }
    }
    match (mistakes.is_empty(), groups.len() <= MAX_GROUPS) {
        (false, _) => Err(RulesError::Mistakes(mistakes)),
        (true, false) => Err(RulesError::TooMany),
        (true, true) => Ok(groups),
    }
}

fn text(path: &Path) -> Result<String, RulesError> {
    let failed = |source| RulesError::Read { path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > MAX_FILE_BYTES as u64 {
        return Err(RulesError::TooLong(path.to_owned()));
    }
    fs::read_to_string(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(texts: &[(&str, &str)], shipped: bool) -> Result<Vec<Group>, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in texts {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let files = vec![dir.path().join("*.yml"), dir.path().join("a.yml")];
        read(&Rules { files, shipped, ..Rules::default() }).map_err(|error| error.to_string())
    }

    fn group(name: &str, interval: &str, expr: &str) -> String {
        format!("groups:\n- name: {name}\n  interval: {interval}\n  rules:\n  - {{ record: r, expr: '{expr}' }}\n")
    }

    #[test]
    fn files_are_read_once_in_order_and_with_all_of_their_mistakes() {
        let good = [("b.yml", &*group("two", "1s", "up")), ("a.yml", &*group("one", "100ms", "up")), ("c.txt", "?")];
        let names = |groups: Vec<Group>| groups.into_iter().map(|group| group.name).collect::<Vec<_>>();
        assert_eq!(names(read_with(&good, false).unwrap()), ["one", "two"]);
        let all = read_with(&good, true).unwrap();
        assert!(all.len() > 2 && all.iter().skip(2).all(|group| group.file == Path::new(SHIPPED.0)));
        let bad = [("a.yml", &*group("one", "10ms", "up")), ("b.yml", &*group("two", "1s", "sum("))];
        let error = read_with(&bad, false).unwrap_err();
        assert!(error.contains("a.yml: group \"one\": its interval must be at least 100ms"), "{error}");
        assert!(error.contains("b.yml:5:"), "{error}");
        assert!(read_with(&[("b.yml", "")], false).unwrap_err().contains("cannot read the rule file"));
    }
}
