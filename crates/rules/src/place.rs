// SPDX-License-Identifier: Apache-2.0
//! Where in a file a byte of a value is. YAML indents, folds and escapes values, so that it is to be looked for.

use serde_saphyr::{Location, Spanned};

/// Line and character of it, from 1.
pub(crate) fn begin(location: &Location) -> (usize, usize) {
    let number = |number: u64| usize::try_from(number).unwrap_or(0);
    (number(location.line()), number(location.column()))
}

/// Of byte `at` of a value; where it is defined, if that is elsewhere. Where it is not found, of the value's begin.
pub(crate) fn of(file: &str, value: &Spanned<String>, at: usize) -> (usize, usize) {
    let place = offset(file, value, at).map(|offset| {
        let before = &file[..offset];
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before[line..].chars().count() + 1)
    });
    place.unwrap_or_else(|| begin(&value.defined))
}

/// Of the name that a value has, on its line.
pub(crate) fn of_name(file: &str, value: &Spanned<String>, name: &str) -> (usize, usize) {
    let (line, column) = begin(&value.defined);
    let text = line.checked_sub(1).and_then(|line| file.lines().nth(line)).unwrap_or_default();
    let found = text.find(name).filter(|_| !name.is_empty());
    (line, found.map_or(column, |at| text[..at].chars().count() + 1))
}

/// The characters of a value that are no space come in the file in the same order, with others in between.
fn offset(file: &str, value: &Spanned<String>, at: usize) -> Option<usize> {
    let span = value.defined.span();
    let begin = usize::try_from(span.byte_offset()?).ok()?;
    let end = begin.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
    let source = file.get(begin..end)?;
    let skipped = match source.as_bytes().first()? {
        // What a block begins with stands alone on its line.
        b'|' | b'>' => source.find('\n')?,
        b'"' | b'\'' => 1,
        _ => 0,
    };
    let mut rest = source[skipped..].char_indices();
    // Of a space, the character before it.
    let wanted = value.value.get(at..)?.starts_with(char::is_whitespace);
    let until = if wanted || at == value.value.len() { at } else { at + 1 };
    let mut found = None;
    for (_, c) in value.value.char_indices().filter(|(place, c)| *place < until && !c.is_whitespace()) {
        found = Some(rest.find(|(_, source)| *source == c)?.0);
    }
    Some(begin + skipped + found?)
}
