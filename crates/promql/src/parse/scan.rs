// SPDX-License-Identifier: Apache-2.0
//! A query's text in the words that the parser knows: durations calculated, marks for `anchored` and `smoothed`,
//! no comments. Bounds what the parser gets: it recurses, and so does what walks its trees.

use super::duration::{Reader, literal, nanoseconds};
use super::{ParseError, unsupported, wrong};
use crate::expr::Edges;
use crate::query::Times;

const MAX_BYTES: usize = 64 << 10;
/// Operators, brackets, modifiers: no tree is deeper. In tests without optimisation so many fit a thread's 2 MiB.
const MAX_SIGNS: usize = 200;
const MAX_DEPTH: usize = 100;

/// Matchers that stand for modifiers; no label has such a name.
const ANCHORED: &str = "__onlooker_anchored__";
const SMOOTHED: &str = "__onlooker_smoothed__";

/// What a matcher of this name stands for.
pub(super) fn edges(matcher: &str) -> Option<Edges> {
    match matcher {
        ANCHORED => Some(Edges::Anchored),
        SMOOTHED => Some(Edges::Smoothed),
        _ => None,
    }
}

pub(super) fn rewrite(text: &str, times: Times) -> Result<String, ParseError> {
    if text.len() > MAX_BYTES {
        return Err(ParseError::Large { what: "bytes", most: MAX_BYTES });
    }
    let mut scan = Scan { text, at: 0, out: String::new(), times, operand: false, selector: None, depth: 0, signs: 0 };
    while let Some(next) = scan.text[scan.at..].chars().next() {
        scan.token(next)?;
    }
    Ok(scan.out)
}

/// Where a mark of the selector that was read last goes.
#[derive(Clone, Copy)]
struct Mark {
    at: usize,
    has_braces: bool,
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    out: String,
    times: Times,
    /// Whether what came last can be followed by a modifier.
    operand: bool,
    selector: Option<Mark>,
    depth: usize,
    signs: usize,
}

impl Scan<'_> {
    fn token(&mut self, next: char) -> Result<(), ParseError> {
        match next {
            _ if next.is_whitespace() => self.copy(next.len_utf8()),
            '#' => {
                let rest = &self.text[self.at..];
                self.at += rest.find('\n').unwrap_or(rest.len());
                self.out.push(' ');
            }
            '"' | '\'' | '`' => {
                self.string()?;
                (self.operand, self.selector) = (true, None);
            }
            '{' => self.braces()?,
            '[' => self.brackets()?,
            '@' => self.at_time()?,
            '0'..='9' | '.' => self.number()?,
            _ if next.is_alphabetic() || matches!(next, '_' | ':') => self.word()?,
            _ => self.sign(next)?,
        }
        Ok(())
    }

    fn copy(&mut self, bytes: usize) {
        self.out.push_str(&self.text[self.at..self.at + bytes]);
        self.at += bytes;
    }

    fn count(&mut self) -> Result<(), ParseError> {
        self.signs += 1;
        if self.signs > MAX_SIGNS {
            return Err(ParseError::Large { what: "operators and brackets", most: MAX_SIGNS });
        }
        Ok(())
    }

    fn sign(&mut self, next: char) -> Result<(), ParseError> {
        if next != ',' {
            self.count()?;
        }
        if matches!(self.text.get(self.at..self.at + 2), Some("</" | ">/")) {
            return unsupported("native histograms, which `</` and `>/` trim,");
        }
        match next {
            '(' => self.depth += 1,
            ')' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if self.depth > MAX_DEPTH {
            return Err(ParseError::Large { what: "parentheses within each other", most: MAX_DEPTH });
        }
        self.copy(next.len_utf8());
        (self.operand, self.selector) = (next == ')', None);
        Ok(())
    }

    fn braces(&mut self) -> Result<(), ParseError> {
        self.selector = Some(Mark { at: self.out.len() + 1, has_braces: true });
        self.operand = true;
        while let Some(next) = self.text[self.at..].chars().next() {
            match next {
                '"' | '\'' | '`' => self.string()?,
                _ => self.copy(next.len_utf8()),
            }
            if next == '}' {
                break;
            }
        }
        Ok(())
    }

    /// A string; a raw one in quotes with escapes: in raw ones the parser takes `\` for one.
    fn string(&mut self) -> Result<(), ParseError> {
        let len = string_len(&self.text[self.at..])?;
        let inner = self.text[self.at..self.at + len].strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
        let Some(inner) = inner.filter(|inner| inner.contains('\\')) else {
            self.copy(len);
            return Ok(());
        };
        let escaped = inner.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
        self.out.push_str(&format!("\"{escaped}\""));
        self.at += len;
        Ok(())
    }

    /// `[range]` or `[range:step]`.
    fn brackets(&mut self) -> Result<(), ParseError> {
        self.count()?;
        let mut reader = Reader::new(self.text, self.at + 1, self.times);
        self.out.push('[');
        if reader.peek() == Some(']') {
            return Err(wrong("missing unit character in duration"));
        }
        let range = reader.expression(0)?;
        write_positive(&mut self.out, range)?;
        if reader.takes(':') {
            // A subquery is no selector.
            self.selector = None;
            self.out.push(':');
            if reader.peek() != Some(']') {
                let step = reader.expression(0)?;
                write_positive(&mut self.out, step)?;
            }
        }
        if !reader.takes(']') {
            return Err(wrong("unexpected text in a range, expected \"]\""));
        }
        self.out.push(']');
        self.at = reader.at;
        self.operand = true;
        Ok(())
    }

    /// `@ 1.5`, `@ start()`.
    fn at_time(&mut self) -> Result<(), ParseError> {
        self.count()?;
        let rest = self.text[self.at + 1..].trim_start();
        let signs = rest.bytes().take_while(|byte| matches!(byte, b'+' | b'-' | b' ')).count();
        let word = &rest[signs..];
        let len = word.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_')).count();
        let number = literal(&word[..len]).is_some();
        let call =
            word[len..].trim_start().strip_prefix('(').map(str::trim_start).and_then(|open| open.strip_prefix(')'));
        let end = match call {
            Some(after) if !number => self.text.len() - after.len(),
            _ => self.text.len() - word[len..].len(),
        };
        self.copy(end - self.at);
        self.operand = true;
        Ok(())
    }

    fn number(&mut self) -> Result<(), ParseError> {
        let rest = &self.text[self.at..];
        let is_hex = rest.starts_with("0x") || rest.starts_with("0X");
        let mut before = b' ';
        let len = rest.bytes().take_while(|byte| {
            let in_exponent = matches!(byte, b'+' | b'-') && matches!(before, b'e' | b'E') && !is_hex;
            before = *byte;
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || in_exponent
        });
        let word = &rest[..len.count()];
        match literal(word) {
            // Its own durations cannot be 0.
            Some(seconds) if word.ends_with(['y', 'w', 'd', 'h', 'm', 's']) && !is_hex => {
                self.out.push_str(&format!("{seconds:?}"));
                self.at += word.len();
            }
            _ => self.copy(word.len()),
        }
        (self.operand, self.selector) = (true, None);
        Ok(())
    }

    fn word(&mut self) -> Result<(), ParseError> {
        let rest = &self.text[self.at..];
        let is_part = |part: &char| part.is_alphanumeric() || matches!(part, '_' | ':');
        let word: String = rest.chars().take_while(is_part).collect();
        let after = rest[word.len()..].trim_start();
        match word.to_ascii_lowercase().as_str() {
            "offset" if self.operand && !after.starts_with(['=', '{']) => {
                self.copy(word.len());
                return self.offset();
            }
            name @ ("anchored" | "smoothed") if self.operand => {
                self.at += word.len();
                return self.mark(name);
            }
            "and" | "or" | "unless" | "atan2" | "bool" | "by" | "without" | "on" | "ignoring" | "group_left"
            | "group_right" => {
                self.count()?;
                (self.operand, self.selector) = (false, None);
            }
            _ => {
                let is_called = after.starts_with('(');
                self.operand = !is_called;
                let at = self.out.len() + word.len();
                self.selector = (!is_called).then_some(Mark { at, has_braces: false });
            }
        }
        self.copy(word.len());
        Ok(())
    }

    fn offset(&mut self) -> Result<(), ParseError> {
        let mut reader = Reader::new(self.text, self.at, self.times);
        let is_negative = reader.takes('-');
        if !is_negative {
            reader.takes('+');
        }
        let seconds = reader.term()?;
        self.at = reader.at;
        let ns = nanoseconds(if is_negative { -seconds } else { seconds })?;
        let sign = if ns < 0 { "-" } else { "" };
        self.out.push_str(&format!(" {sign}{}", decimal(ns)));
        self.operand = true;
        Ok(())
    }

    fn mark(&mut self, name: &str) -> Result<(), ParseError> {
        let Some(Mark { at, has_braces }) = self.selector else {
            return Err(wrong(format!("{name} modifier must follow a selector")));
        };
        let matcher = if name == "anchored" { ANCHORED } else { SMOOTHED };
        if has_braces {
            self.out.insert_str(at, &format!("{matcher}=\"1\","));
        } else {
            self.out.insert_str(at, &format!("{{{matcher}=\"1\"}}"));
            self.selector = Some(Mark { at: at + 1, has_braces: true });
        }
        Ok(())
    }
}

/// Of a string that begins here, with its quotes; of one that does not end, the rest.
fn string_len(text: &str) -> Result<usize, ParseError> {
    let mut chars = text.char_indices();
    let Some((_, quote)) = chars.next() else { return Ok(0) };
    while let Some((at, next)) = chars.next() {
        if next == quote {
            return Ok(at + next.len_utf8());
        }
        if next == '\\' && quote != '`' {
            // Bytes: more than one may be one character, or none. The parser takes each for a character.
            let after = &text[at + 1..];
            if after.starts_with(['2', '3']) || after.starts_with('x') && !after[1..].starts_with(|digit| digit < '8') {
                return unsupported("escapes of single bytes beyond ASCII, such as \\xff,");
            }
            chars.next();
        }
    }
    Ok(text.len())
}

fn write_positive(out: &mut String, seconds: f64) -> Result<(), ParseError> {
    let ns = nanoseconds(seconds)?;
    if ns <= 0 {
        return Err(wrong("duration must be greater than 0"));
    }
    out.push_str(&decimal(ns));
    Ok(())
}

/// ns as seconds, without its sign.
fn decimal(ns: i64) -> String {
    let ns = ns.unsigned_abs();
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}
