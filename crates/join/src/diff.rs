// SPDX-License-Identifier: Apache-2.0
//! The difference of two texts, line by line, as `diff -u` shows it without its headers. For configuration files: quadratic, hence only for files that people write.

/// Lines around a change.
const CONTEXT: usize = 2;

/// Lines that begin with `-` (only in `old`), `+` (only in `new`) or a space (in both, around a change); `...` where some are left out. Empty where nothing differs.
#[must_use]
pub fn diff(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let all = edits(&old, &new);
    let near = |at: usize| {
        let around = &all[at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(all.len())];
        around.iter().any(|(mark, _)| *mark != ' ')
    };
    let mut shown = Vec::new();
    let mut skipped = false;
    for (at, (mark, line)) in all.iter().enumerate() {
        if near(at) {
            if skipped && !shown.is_empty() {
                shown.push("...".to_owned());
            }
            shown.push(format!("{mark}{line}"));
        }
        skipped = !near(at);
    }
    shown
}

/// Every line with its mark, by the longest common subsequence.
fn edits<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    // common[i][j]: lines in common behind old[i] and new[j].
    let mut common = vec![vec![0u32; new.len() + 1]; old.len() + 1];
    for (i, line) in old.iter().enumerate().rev() {
        for (j, other) in new.iter().enumerate().rev() {
            common[i][j] =
                if line == other { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut edits = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            edits.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            edits.push(('-', old[i]));
            i += 1;
        } else {
            edits.push(('+', new[j]));
            j += 1;
        }
    }
    edits
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

    #[test]
    fn a_diff_leads_from_one_text_to_the_other() {
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(a, b)| {
            let lines =
                |bytes: &[u8]| bytes.iter().map(|byte| ["x", "y", "z"][usize::from(byte % 3)]).collect::<Vec<_>>();
            let (old, new) = (lines(a), lines(b));
            let edits = edits(&old, &new);
            let side =
                |skip: char| edits.iter().filter(|(mark, _)| *mark != skip).map(|(_, line)| *line).collect::<Vec<_>>();
            assert_eq!((side('+'), side('-')), (old, new));
        });
    }
}
