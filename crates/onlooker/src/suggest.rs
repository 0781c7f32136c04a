// SPDX-License-Identifier: Apache-2.0
//! Patterns of names, and the nearest names to one that does not exist.

/// Most names that are suggested.
const MOST: usize = 3;

/// Whether `name` matches `pattern`: `*` is any text, `?` any character, everything else itself. Takes at most the product of the lengths.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star was, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p).is_some_and(|c| *c == '?' || *c == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            n = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Known names near to `wrong`, nearest first: few edits away, or with `wrong` within them.
pub(crate) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wrong = wrong.trim_matches('*');
    let mut near: Vec<(usize, &str)> = known
        .filter_map(|name| {
            let edits = strsim::damerau_levenshtein(wrong, name);
            let near = edits <= 2.max(name.len() / 4);
            match (near, wrong.len() >= 3 && name.contains(wrong)) {
                (true, _) => Some((edits, name)),
                (false, true) => Some((name.len(), name)),
                (false, false) => None,
            }
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(MOST).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("node_load1", "node_load1", true),
            ("node_load1", "node_load15", false),
            ("node_*", "node_load1", true),
            ("*_total", "a_total_total", true),
            ("*_total", "a_total_", false),
            ("node_load?", "node_load1", true),
            ("node_load?", "node_load", false),
            ("*", "", true),
            ("", "a", false),
            ("a*b*c", "axxbyybc", true),
            ("a*b*c", "axxbyyb", false),
            ("***", "anything", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_name_matches_itself_and_its_parts() {
        bolero::check!().with_type::<(String, String)>().for_each(|(a, b)| {
            assert!(matches(
                &format!("{}*", a.replace(['*', '?'], "x")),
                &format!("{}{b}", a.replace(['*', '?'], "x"))
            ));
            let _ = (matches(a, b), nearest(a, [b.as_str()].into_iter()));
        });
    }

    #[test]
    fn hostile_patterns_take_no_exponential_time() {
        assert!(!matches(&"a*".repeat(200), &"a".repeat(4_000).replace('a', "b")));
        assert!(!matches(&format!("{}c", "*a".repeat(100)), &"a".repeat(4_000)));
    }

    #[test]
    fn typing_errors_find_their_names() {
        let known = ["node_load1", "node_load15", "node_load5", "node_memory_MemFree_bytes", "up"];
        let near = |wrong| nearest(wrong, known.into_iter());
        assert_eq!(near("node_laod1")[0], "node_load1");
        assert_eq!(near("memfree"), [""; 0]);
        assert_eq!(near("MemFree"), ["node_memory_MemFree_bytes"]);
        assert_eq!(near("*load*").len(), 3);
        assert!(near("completely_else").is_empty());
    }
}
