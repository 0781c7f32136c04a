// SPDX-License-Identifier: Apache-2.0
//! Regular expressions: Prometheus has RE2's, as Go reads them. The crate `regex` knows nearly all of them, but takes
//! some characters for its own that are themselves there.

use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// Bytes of a compiled expression at most.
const MAX_BYTES: usize = 1 << 20;

/// Matches texts as a whole. In the crate's own words, as [`translated`] writes them.
pub(crate) fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    let build = |pattern: &str| RegexBuilder::new(pattern).size_limit(MAX_BYTES).build();
    // Alone first: `)(` is none, but would become one inside our parentheses.
    build(pattern)?;
    build(&format!("^(?s:{pattern})$"))
}

/// An expression as Go reads it, so that the crate `regex` reads the same.
///
/// - `{` repeats only as `{2}`, `{2,}` and `{2,3}`, and is itself elsewhere.
/// - `\Q...\E` is text.
/// - `\d`, `\w`, `\s` and `\b` know ASCII only.
/// - Within `[]` there are no others, and `&&`, `--` and `~~` are characters.
#[must_use]
pub fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        match next {
            '\\' => escape(&mut rest, &mut out),
            '[' => class(&mut rest, &mut out),
            '{' if !repeats(rest.as_str()) => out.push_str("\\{"),
            _ => out.push(next),
        }
    }
    out
}

/// Of what follows a `{`.
fn repeats(rest: &str) -> bool {
    let len = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b',').count();
    let (counts, after) = rest.split_at(len);
    let (least, most) = counts.split_once(',').unwrap_or((counts, ""));
    after.starts_with('}') && !least.is_empty() && !most.contains(',')
}

/// Copies up to this one, included.
fn copy_until(last: char, rest: &mut Chars<'_>, out: &mut String) {
    let text = rest.as_str();
    let len = text.find(last).map_or(text.len(), |at| at + last.len_utf8());
    out.push_str(&text[..len]);
    *rest = text[len..].chars();
}

/// What follows a `\`.
fn escape(rest: &mut Chars<'_>, out: &mut String) {
    match rest.next() {
        Some('d') => out.push_str("[0-9]"),
        Some('D') => out.push_str("[^0-9]"),
        Some('w') => out.push_str("[0-9A-Za-z_]"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
        Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
        Some('b') => out.push_str("(?-u:\\b)"),
        Some('Q') => {
            let text = rest.as_str();
            let (inner, after) = text.split_once("\\E").unwrap_or((text, ""));
            out.push_str(&regex::escape(inner));
            *rest = after.chars();
        }
        Some(kind) => {
            out.extend(['\\', kind]);
            // As a whole: its braces are no repetition.
            if matches!(kind, 'p' | 'P' | 'x') && rest.as_str().starts_with('{') {
                copy_until('}', rest, out);
            }
        }
        None => out.push('\\'),
    }
}

/// What follows a `[`.
fn class(rest: &mut Chars<'_>, out: &mut String) {
    out.push('[');
    if let Some(after) = rest.as_str().strip_prefix('^') {
        out.push('^');
        *rest = after.chars();
    }
    let mut before = None;
    while let Some(next) = rest.next() {
        match next {
            // The first one is a character.
            ']' if before.is_some() => return out.push(']'),
            '\\' => escape(rest, out),
            '[' if rest.as_str().starts_with(':') => {
                out.push('[');
                copy_until(']', rest, out);
            }
            ']' | '[' => out.extend(['\\', next]),
            '&' | '-' | '~' if before == Some(next) => out.extend(['\\', next]),
            _ => out.push(next),
        }
        before = Some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_mean_what_they_mean_in_go() {
        for (pattern, matching, other) in [
            ("a{", "a{", "a"),
            ("{a}", "{a}", "a"),
            ("a{,2}", "a{,2}", "aa"),
            ("a{2}", "aa", "a{2}"),
            ("a{1,}b{0,1}", "aab", "b"),
            ("a{2", "a{2", "aa"),
            ("a{b}{2}", "a{b}}", "a{b}{2}"),
            ("\\{a", "{a", "a"),
            ("\\x{41}{", "A{", "A"),
            ("\\p{Greek}{2}", "αβ", "α"),
            ("[{]", "{", "["),
            ("[[a]", "[", "b"),
            ("[]a]", "]", "b"),
            ("[^]a]", "b", "]"),
            ("[a&&b]", "&", "c"),
            ("[[:digit:]-]{2}", "1-", "a-"),
            ("\\d", "1", "\u{663}"),
            ("[\\w-]{2}", "a-", "\u{e9}-"),
            ("[^\\s]", "\u{a0}", " "),
            ("\\Sb\\D", "abc", "ab1"),
            ("\u{e9}\\b.", "\u{e9}a", "\u{e9}\u{e9}"),
            ("\\Qa{2}.\\Eb", "a{2}.b", "aaxb"),
            ("\\Qa.", "a.", "ab"),
        ] {
            let regex = whole(&translated(pattern)).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert!(regex.is_match(matching), "{pattern} should match {matching}");
            assert!(!regex.is_match(other), "{pattern} should not match {other}");
        }
        for pattern in ["(", "a**b(", "{2}", "[a", ")("] {
            assert!(whole(&translated(pattern)).is_err(), "{pattern} is none");
        }
    }
}
