// SPDX-License-Identifier: Apache-2.0
//! The difference of two texts, line by line, as `diff -u` shows it without its headers.

use similar::TextDiff;

/// Lines around a change.
const CONTEXT: usize = 2;

/// Lines that begin with `-` (only in `old`), `+` (only in `new`) or a space (in both, around a change); `...` where
/// some are left out between changes. Empty where nothing differs.
#[must_use]
pub fn diff(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let diff = TextDiff::from_slices(&old, &new);
    let groups = diff.grouped_ops(CONTEXT).into_iter().map(|group| {
        let changes = group.iter().flat_map(|op| diff.iter_changes(op));
        changes.map(|change| format!("{}{}", change.tag(), change.value())).collect::<Vec<_>>()
    });
    groups.collect::<Vec<_>>().join(&"...".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_what_is_around_them() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n";
        let new = "a\nB\nc\nd\ne\nf\ng\nh\ni\nj\nk\n";
        assert_eq!(diff(old, new), [" a", "-b", "+B", " c", " d", "...", " i", " j", "+k"]);
        assert!(diff(old, old).is_empty());
        assert_eq!(diff("", "a\n"), ["+a"]);
        assert_eq!(diff("a\n", ""), ["-a"]);
    }
}
