// SPDX-License-Identifier: Apache-2.0
//! Strings without their quotes: escapes as in Go.

/// What a string in Go's or PromQL's syntax says, without its quotes: `"`, `'` or a backquote.
///
/// # Errors
/// What is wrong with an escape in it.
pub fn unquoted(string: &str) -> Result<String, &'static str> {
    let quote = string.chars().next().unwrap_or('"');
    let inner = &string[1..string.len() - 1];
    if quote == '`' {
        return Ok(inner.to_owned());
    }
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = escape(&rest[at + 1..], quote, &mut bytes)?;
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).map_err(|_| "escapes of bytes that are no UTF-8")
}

/// What one stands for, whose backslash has been read; returns the rest.
fn escape<'a>(text: &'a str, quote: char, bytes: &mut Vec<u8>) -> Result<&'a str, &'static str> {
    const UNKNOWN: &str = "an unknown escape sequence";
    let first = text.chars().next().ok_or(UNKNOWN)?;
    let (digits, radix, skipped) = match first {
        'x' => (2, 16, 1),
        'u' => (4, 16, 1),
        'U' => (8, 16, 1),
        '0'..='7' => (3, 8, 0),
        _ => {
            let simple = match first {
                'a' => 7,
                'b' => 8,
                'f' => 12,
                'n' => b'\n',
                'r' => b'\r',
                't' => b'\t',
                'v' => 11,
                '\\' => b'\\',
                // ASCII.
                _ if first == quote => quote as u8,
                _ => return Err(UNKNOWN),
            };
            bytes.push(simple);
            return Ok(&text[1..]);
        }
    };
    let (digits, rest) = text[skipped..].split_at_checked(digits).ok_or("an escape sequence that does not end")?;
    if !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err("an illegal character in an escape sequence");
    }
    let code = u32::from_str_radix(digits, radix).map_err(|_| UNKNOWN)?;
    if matches!(first, 'u' | 'U') {
        let mut buffer = [0; 4];
        let character = char::from_u32(code).ok_or("an escape sequence of no Unicode code point")?;
        bytes.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    } else {
        bytes.push(u8::try_from(code).map_err(|_| "an escape sequence of more than a byte")?);
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_go_s() {
        for (string, text) in [
            (r#""a\"b""#, "a\"b"),
            (r#"'a"\'b'"#, "a\"'b"),
            (r"`a\n`", r"a\n"),
            (r#""\n\t\\\a""#, "\n\t\\\u{7}"),
            (r#""\x41\101\u00e9\U0001f600""#, "AA\u{e9}\u{1f600}"),
            (r#""\xc3\xa9""#, "\u{e9}"),
            ("\"\u{e9}\"", "\u{e9}"),
            ("''", ""),
        ] {
            assert_eq!(unquoted(string).as_deref(), Ok(text), "{string}");
        }
        for string in [r#""\q""#, r#""\'""#, r#""\xff""#, r#""\x4""#, r#""\ud800""#, r#""\777""#, "\"\\u00\u{e9}\""] {
            assert!(unquoted(string).is_err(), "{string}");
        }
    }
}
