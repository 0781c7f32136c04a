// SPDX-License-Identifier: Apache-2.0
//! A query's text as tokens, each with its place. Bounds what is parsed: parsers and trees recurse.

use std::ops::Range;

use super::ParseError;
use super::literal::{duration_ns, number};
use crate::value::seconds;

const MAX_BYTES: usize = 64 << 10;
/// Operators, brackets, modifiers: no tree is deeper. In tests without optimisation so many fit a thread's 2 MiB.
const MAX_SIGNS: usize = 200;

/// The longest first.
const SIGNS: [&str; 26] = [
    "==", "=~", "!=", "!~", "<=", "</", ">=", ">/", "(", ")", "{", "}", "[", "]", ",", ":", "@", "=", "<", ">", "+",
    "-", "*", "/", "%", "^",
];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Sign,
    /// A name or a keyword.
    Word,
    Number(f64),
    /// With units; seconds.
    Duration(f64),
    /// With its quotes.
    String,
    End,
    /// No token, and why.
    Wrong(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl Token<'_> {
    pub(super) fn place(&self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }

    /// Whether it is a keyword, in either case.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && self.text == sign
    }
}

/// All of them; the last one is an end, or wrong.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    if text.len() > MAX_BYTES {
        return Err(ParseError::Large { what: "bytes", most: MAX_BYTES });
    }
    let mut lexer = Lexer { text, at: 0, in_braces: false, in_brackets: false };
    let (mut all, mut signs) = (Vec::new(), 0);
    loop {
        let token = lexer.next();
        all.push(token);
        match token.kind {
            Kind::End | Kind::Wrong(_) => return Ok(all),
            Kind::Sign if !lexer.in_braces && token.text != "," => signs += 1,
            Kind::Word if ["and", "or", "unless", "atan2"].iter().any(|word| token.is_word(word)) => signs += 1,
            _ => {}
        }
        if signs > MAX_SIGNS {
            return Err(ParseError::Large { what: "operators and brackets", most: MAX_SIGNS });
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// There, no word is a number, and none has colons.
    in_braces: bool,
    in_brackets: bool,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Token<'a> {
        self.skip();
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else { return self.token(Kind::End, 0) };
        match first {
            '0'..='9' => self.number(),
            '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => self.number(),
            '"' | '\'' | '`' => self.string(first),
            _ if first.is_ascii_alphabetic() || first == '_' || first == ':' && self.has_colons() => self.word(),
            _ => match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
                Some(sign) => self.sign(sign),
                None => self.token(Kind::Wrong("unexpected character"), first.len_utf8()),
            },
        }
    }

    fn token(&mut self, kind: Kind, bytes: usize) -> Token<'a> {
        let token = Token { kind, text: &self.text[self.at..self.at + bytes], at: self.at };
        self.at += bytes;
        token
    }

    /// White space and comments.
    fn skip(&mut self) {
        loop {
            let rest = self.text[self.at..].trim_start_matches([' ', '\t', '\n', '\r']);
            self.at = self.text.len() - rest.len();
            if !rest.starts_with('#') {
                return;
            }
            self.at += rest.find(['\n', '\r']).unwrap_or(rest.len());
        }
    }

    fn has_colons(&self) -> bool {
        !self.in_braces && !self.in_brackets
    }

    fn sign(&mut self, sign: &str) -> Token<'a> {
        match sign {
            "{" => self.in_braces = true,
            "}" => self.in_braces = false,
            "[" => self.in_brackets = true,
            "]" => self.in_brackets = false,
            _ => {}
        }
        self.token(Kind::Sign, sign.len())
    }

    fn number(&mut self) -> Token<'a> {
        let rest = &self.text[self.at..];
        let is_hex = rest.starts_with("0x") || rest.starts_with("0X");
        let mut before = b' ';
        let is_part = |byte: &u8| {
            let in_exponent = matches!(byte, b'+' | b'-') && matches!(before, b'e' | b'E') && !is_hex;
            before = *byte;
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || in_exponent
        };
        let bytes = rest.bytes().take_while(is_part).count();
        let word = &rest[..bytes];
        let kind = match (number(word), duration_ns(word)) {
            (Some(number), _) => Kind::Number(number),
            (_, Some(ns)) => Kind::Duration(seconds(ns)),
            _ => Kind::Wrong("bad number or duration syntax"),
        };
        self.token(kind, bytes)
    }

    fn string(&mut self, quote: char) -> Token<'a> {
        let rest = &self.text[self.at..];
        let mut chars = rest.char_indices().skip(1);
        while let Some((at, next)) = chars.next() {
            match next {
                _ if next == quote => return self.token(Kind::String, at + 1),
                '\n' if quote != '`' => break,
                '\\' if quote != '`' => drop(chars.next()),
                _ => {}
            }
        }
        self.token(Kind::Wrong("unterminated quoted string"), rest.len())
    }

    fn word(&mut self) -> Token<'a> {
        let rest = &self.text[self.at..];
        let has_colons = self.has_colons();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b':' && has_colons;
        let bytes = rest.bytes().take_while(is_part).count();
        let kind = match rest[..bytes].to_ascii_lowercase().as_str() {
            "inf" if has_colons => Kind::Number(f64::INFINITY),
            "nan" if has_colons => Kind::Number(f64::NAN),
            _ => Kind::Word,
        };
        self.token(kind, bytes)
    }
}
