// SPDX-License-Identifier: Apache-2.0
//! Go's `Sprintf`, of the values that templates have. Mistakes are told in the text, as Go does.

use super::number::{MAX_DIGITS, fixed, general, scientific};
use super::value::{Text, Value};

/// What stands between `%` and the verb.
#[derive(Default)]
struct Directive {
    is_left: bool,
    is_zero: bool,
    has_plus: bool,
    has_space: bool,
    is_sharp: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

struct Arguments<'a> {
    values: &'a [Value],
    next: usize,
    /// They were chosen by number: those that are left over are no mistake.
    is_numbered: bool,
    is_wrong: bool,
}

impl<'a> Arguments<'a> {
    fn take(&mut self) -> Option<&'a Value> {
        let value = self.values.get(self.next);
        self.next += usize::from(value.is_some());
        value
    }

    /// `[2]` chooses the second one.
    fn number<'t>(&mut self, format: &'t str) -> &'t str {
        let Some((number, rest)) = format.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
            return format;
        };
        self.is_numbered = true;
        match number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) {
            Some(next) if next < self.values.len() => self.next = next,
            _ => self.is_wrong = true,
        }
        rest
    }

    /// A width or a precision: digits, or `*` for an argument.
    fn size<'t>(&mut self, format: &'t str, out: &mut Option<usize>) -> Result<&'t str, &'static str> {
        if let Some(rest) = format.strip_prefix('*') {
            match self.take() {
                Some(Value::Int(size)) => *out = Some(usize::try_from(*size).map_err(|_| "%!(BADWIDTH)")?),
                _ => return Err("%!(BADWIDTH)"),
            }
            return Ok(rest);
        }
        let len = format.bytes().take_while(u8::is_ascii_digit).count();
        if len > 0 {
            *out = format[..len].parse().ok();
        }
        Ok(&format[len..])
    }
}

/// `printf`; at most `most` bytes.
pub(super) fn printf(format: &str, values: &[Value], most: usize) -> Result<String, String> {
    let mut out = Text::new(most);
    let mut arguments = Arguments { values, next: 0, is_numbered: false, is_wrong: false };
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        out.push(before)?;
        rest = directive(after, &mut arguments, &mut out)?;
    }
    out.push(rest)?;
    if !arguments.is_numbered && arguments.next < values.len() {
        out.push("%!(EXTRA ")?;
        for (at, value) in values[arguments.next..].iter().enumerate() {
            out.push(if at > 0 { ", " } else { "" })?;
            typed(value, &mut out)?;
        }
        out.push(")")?;
    }
    Ok(out.text)
}

/// `int=1`.
fn typed(value: &Value, out: &mut Text) -> Result<(), String> {
    out.push(value.kind())?;
    if !matches!(value, Value::Nil) {
        out.push("=")?;
        out.show(value)?;
    }
    Ok(())
}

/// Of the text after a `%`; returns what follows.
fn directive<'t>(format: &'t str, arguments: &mut Arguments<'_>, out: &mut Text) -> Result<&'t str, String> {
    let mut directive = Directive::default();
    let flags = format.bytes().take_while(|byte| b"+-# 0".contains(byte)).count();
    for flag in format[..flags].bytes() {
        match flag {
            b'+' => directive.has_plus = true,
            b'-' => directive.is_left = true,
            b'#' => directive.is_sharp = true,
            b' ' => directive.has_space = true,
            _ => directive.is_zero = true,
        }
    }
    arguments.is_wrong = false;
    let mut rest = arguments.number(&format[flags..]);
    if rest.starts_with('*') {
        // A negative width aligns to the left.
        if let Some(Value::Int(width)) = arguments.values.get(arguments.next)
            && *width < 0
        {
            directive.is_left = true;
            directive.width = usize::try_from(width.unsigned_abs()).ok();
            arguments.next += 1;
            rest = &rest[1..];
        } else {
            match arguments.size(rest, &mut directive.width) {
                Ok(after) => rest = after,
                Err(why) => {
                    out.push(why)?;
                    rest = &rest[1..];
                }
            }
        }
    } else {
        rest = arguments.size(rest, &mut directive.width).unwrap_or(rest);
    }
    if let Some(after) = rest.strip_prefix('.') {
        rest = arguments.number(after);
        directive.precision = Some(0);
        match arguments.size(rest, &mut directive.precision) {
            Ok(after) => rest = after,
            Err(_) => {
                directive.precision = None;
                out.push("%!(BADPREC)")?;
                rest = &rest[1..];
            }
        }
    }
    rest = arguments.number(rest);
    if directive.width.unwrap_or(0).max(directive.precision.unwrap_or(0)) > out.most {
        return Err(format!("a text of more than {} bytes", out.most));
    }
    let Some(verb) = rest.chars().next() else {
        out.push("%!(NOVERB)")?;
        return Ok(rest);
    };
    rest = &rest[verb.len_utf8()..];
    if verb == '%' {
        out.push("%")?;
        return Ok(rest);
    }
    if arguments.is_wrong {
        out.push(&format!("%!{verb}(BADINDEX)"))?;
        return Ok(rest);
    }
    // With `v` it asks for the names of fields.
    directive.has_plus &= verb != 'v';
    match arguments.take() {
        Some(value) => directive.write(verb, value, out)?,
        None => out.push(&format!("%!{verb}(MISSING)"))?,
    }
    Ok(rest)
}

impl Directive {
    fn write(&self, verb: char, value: &Value, out: &mut Text) -> Result<(), String> {
        let most = out.most;
        let shown = |value: &Value| {
            let mut text = Text::new(most);
            text.show(value).map(|()| text.text)
        };
        if verb == 'T' {
            return self.pad(value.kind(), out);
        }
        match (value, verb) {
            // Of what has parts each one is written so.
            (Value::Labels(labels), _) => {
                let entries = labels.iter().map(|(key, value)| (key, Value::text(value)));
                self.map(verb, entries, out)
            }
            (Value::Arguments(arguments), _) => {
                let entries = arguments.values.iter().map(|(key, value)| (key, value.clone()));
                self.map(verb, entries, out)
            }
            (Value::Sample(sample), _) => {
                out.push("{")?;
                self.write(verb, &Value::Labels(sample.labels.clone()), out)?;
                out.push(" ")?;
                self.write(verb, &Value::Float(sample.value), out)?;
                out.push("}")
            }
            (Value::Bool(value), 't' | 'v') => self.pad(if *value { "true" } else { "false" }, out),
            (Value::Int(value), 'v' | 'd' | 'b' | 'o' | 'O' | 'x' | 'X') => self.integer(verb, *value, out),
            (Value::Named(value, _), 'd' | 'b' | 'o' | 'O') => self.integer(verb, *value, out),
            (Value::Duration(duration), 'd') if !duration.is_pointer => self.integer(verb, duration.ns, out),
            (Value::Int(value), 'c' | 'q' | 'U') => {
                let c = u32::try_from(*value).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                match verb {
                    'c' => self.pad(&c.to_string(), out),
                    'q' => self.pad(&quoted(&c.to_string(), '\''), out),
                    _ => self.pad(&format!("U+{value:04X}"), out),
                }
            }
            (Value::Float(value), 'v' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G') => self.float(verb, *value, out),
            (Value::Nil, 'v') => self.pad("<nil>", out),
            (Value::Nil, _) => out.push(&format!("%!{verb}(<nil>)")),
            (Value::Int(_) | Value::Float(_) | Value::Bool(_), _)
            | (_, 't' | 'c' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G') => self.misused(verb, value, out),
            (_, 'v' | 's') => self.pad(self.cut(&shown(value)?), out),
            (_, 'q') => {
                let text = shown(value)?;
                let text = self.cut(&text);
                let is_raw = self.is_sharp && !text.contains(|c: char| c == '`' || (c.is_control() && c != '\t'));
                self.pad(&if is_raw { format!("`{text}`") } else { quoted(text, '"') }, out)
            }
            (_, 'x' | 'X') => self.hexadecimal(verb == 'X', &shown(value)?, out),
            _ => self.misused(verb, value, out),
        }
    }

    /// A verb that does not fit.
    fn misused(&self, verb: char, value: &Value, out: &mut Text) -> Result<(), String> {
        out.push(&format!("%!{verb}({}=", value.kind()))?;
        self.write('v', value, out)?;
        out.push(")")
    }

    fn map<'v>(
        &self,
        verb: char,
        entries: impl Iterator<Item = (&'v String, Value)>,
        out: &mut Text,
    ) -> Result<(), String> {
        out.push("map[")?;
        for (at, (key, value)) in entries.enumerate() {
            out.push(if at > 0 { " " } else { "" })?;
            self.write(verb, &Value::text(key), out)?;
            out.push(":")?;
            self.write(verb, &value, out)?;
        }
        out.push("]")
    }

    /// So many characters of it.
    fn cut<'t>(&self, text: &'t str) -> &'t str {
        let end = self.precision.and_then(|most| text.char_indices().nth(most));
        end.map_or(text, |(end, _)| &text[..end])
    }

    fn hexadecimal(&self, is_upper: bool, text: &str, out: &mut Text) -> Result<(), String> {
        let bytes = &text.as_bytes()[..text.len().min(self.precision.unwrap_or(usize::MAX))];
        let prefix = match (self.is_sharp, is_upper) {
            (false, _) => "",
            (true, false) => "0x",
            (true, true) => "0X",
        };
        let mut digits = if self.has_space || bytes.is_empty() { String::new() } else { prefix.to_owned() };
        for (at, byte) in bytes.iter().enumerate() {
            if self.has_space {
                digits.push_str(if at > 0 { " " } else { "" });
                digits.push_str(prefix);
            }
            digits.push_str(&if is_upper { format!("{byte:02X}") } else { format!("{byte:02x}") });
            if digits.len() > out.most {
                break;
            }
        }
        self.pad(&digits, out)
    }

    fn integer(&self, verb: char, value: i64, out: &mut Text) -> Result<(), String> {
        let size = value.unsigned_abs();
        let mut digits = match verb {
            'b' => format!("{size:b}"),
            'o' | 'O' => format!("{size:o}"),
            'x' => format!("{size:x}"),
            'X' => format!("{size:X}"),
            _ => size.to_string(),
        };
        if let Some(least) = self.precision {
            digits = if least == 0 && value == 0 { String::new() } else { format!("{digits:0>least$}") };
        }
        let prefix = match verb {
            'O' => "0o",
            'o' if self.is_sharp && !digits.starts_with('0') => "0",
            'b' if self.is_sharp => "0b",
            'x' if self.is_sharp => "0x",
            'X' if self.is_sharp => "0X",
            _ => "",
        };
        let sign = self.sign(value < 0);
        if self.precision == Some(0) && value == 0 {
            return self.fill("", " ", out);
        }
        // A precision says how many digits there are: zeros do not fill the rest.
        if self.precision.is_some() {
            return self.fill(&format!("{sign}{prefix}{digits}"), " ", out);
        }
        if self.is_zero && !self.is_left {
            let width = self.width.unwrap_or(0).saturating_sub(sign.len());
            return self.pad(&format!("{sign}{prefix}{digits:0>width$}"), out);
        }
        self.pad(&format!("{sign}{prefix}{digits}"), out)
    }

    fn sign(&self, is_negative: bool) -> &'static str {
        match (is_negative, self.has_plus, self.has_space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (.., true) => " ",
            _ => "",
        }
    }

    fn float(&self, verb: char, value: f64, out: &mut Text) -> Result<(), String> {
        if self.precision.is_some_and(|digits| digits > MAX_DIGITS) {
            return Err(format!("a number of more than {MAX_DIGITS} digits"));
        }
        let digits = self.precision.unwrap_or(6);
        let text = match verb.to_ascii_lowercase() {
            'e' => scientific(value, digits),
            'f' => fixed(value, digits),
            _ => general(value, self.precision),
        };
        let text = if verb.is_ascii_uppercase() && value.is_finite() { text.to_ascii_uppercase() } else { text };
        let size = text.trim_start_matches(['+', '-']);
        let is_negative = text.starts_with('-');
        // An infinite number always has its sign.
        let sign = if value.is_infinite() && !is_negative && !self.has_space { "+" } else { self.sign(is_negative) };
        if self.is_zero && !self.is_left && value.is_finite() {
            let width = self.width.unwrap_or(0).saturating_sub(sign.len());
            return out.push(&format!("{sign}{size:0>width$}"));
        }
        self.fill(&format!("{sign}{size}"), " ", out)
    }

    /// Zeros fill texts, too.
    fn pad(&self, text: &str, out: &mut Text) -> Result<(), String> {
        self.fill(text, if self.is_zero && !self.is_left { "0" } else { " " }, out)
    }

    fn fill(&self, text: &str, with: &str, out: &mut Text) -> Result<(), String> {
        let missing = with.repeat(self.width.unwrap_or(0).saturating_sub(text.chars().count()));
        let (before, after) = if self.is_left { ("", missing.as_str()) } else { (missing.as_str(), "") };
        [before, text, after].into_iter().try_for_each(|part| out.push(part))
    }
}

/// As `strconv.Quote` has it.
fn quoted(text: &str, quote: char) -> String {
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            _ if c == quote => out.extend(['\\', c]),
            '\0'..' ' | '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            // What Rust would escape has no shape.
            _ if c.escape_debug().len() == 1 || matches!(c, '"' | '\'') => out.push(c),
            '\u{80}'..='\u{ffff}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push(quote);
    out
}
