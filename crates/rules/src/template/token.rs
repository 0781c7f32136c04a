// SPDX-License-Identifier: Apache-2.0
//! A template's tokens: texts between actions, trimmed where a `-` says so, and what is in the actions.

use super::ParseError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Between actions.
    Text,
    /// `{{`.
    Open,
    /// `}}`.
    Close,
    Space,
    /// `=`, `:=`, `|`, `,`, `(`, `)`, and what has no meaning.
    Sign,
    /// `$`, `$x`.
    Variable,
    /// `.x`.
    Field,
    /// `.`.
    Dot,
    /// A function's name, a keyword, `true`, `false`, `nil`.
    Word,
    Number,
    /// In single quotes.
    Character,
    /// In double quotes or backquotes.
    String,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// Byte of the template.
    pub(super) at: usize,
}

impl Token<'_> {
    pub(super) fn is(self, kind: Kind, text: &str) -> bool {
        self.kind == kind && self.text == text
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    tokens: Vec<Token<'a>>,
}

/// All of them; the last one is [`Kind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut lexer = Lexer { text, at: 0, tokens: Vec::new() };
    while let Some(open) = lexer.rest().find("{{") {
        let is_trimmed = trims_before(&lexer.rest()[open + 2..]);
        let between = &lexer.rest()[..open];
        lexer.push(Kind::Text, if is_trimmed { between.trim_end_matches(is_space) } else { between });
        lexer.at += open;
        let inside = lexer.at + if is_trimmed { 4 } else { 2 };
        if text[inside..].starts_with("/*") {
            lexer.comment(inside + 2)?;
        } else {
            lexer.push(Kind::Open, "{{");
            lexer.at = inside;
            lexer.action()?;
        }
    }
    lexer.push(Kind::Text, lexer.rest());
    lexer.tokens.push(Token { kind: Kind::End, text: "", at: text.len() });
    Ok(lexer.tokens)
}

/// Of what follows a `{{`.
fn trims_before(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.starts_with(is_space))
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn push(&mut self, kind: Kind, text: &'a str) {
        if !text.is_empty() {
            self.tokens.push(Token { kind, text, at: self.at });
        }
    }

    /// The next `len` bytes are one.
    fn take(&mut self, kind: Kind, len: usize) {
        self.push(kind, &self.rest()[..len]);
        self.at += len;
    }

    fn wrong<T>(&self, text: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { at: self.at, text: text.into() })
    }

    /// Length of a closing delimiter that comes next, and whether it trims.
    fn close(&self) -> Option<(usize, bool)> {
        let rest = self.rest();
        match rest.starts_with("}}") {
            true => Some((2, false)),
            false => (rest.starts_with(is_space) && rest[1..].starts_with("-}}")).then_some((4, true)),
        }
    }

    fn pass_close(&mut self, len: usize, is_trimmed: bool) {
        self.at += len;
        if is_trimmed {
            self.at = self.text.len() - self.rest().trim_start_matches(is_space).len();
        }
    }

    /// Its text begins at `begin`.
    fn comment(&mut self, begin: usize) -> Result<(), ParseError> {
        let Some(end) = self.text[begin..].find("*/") else { return self.wrong("unclosed comment") };
        let open = std::mem::replace(&mut self.at, begin + end + 2);
        let Some((len, is_trimmed)) = self.close() else {
            self.at = open;
            return self.wrong("comment ends before closing delimiter");
        };
        self.pass_close(len, is_trimmed);
        Ok(())
    }

    /// From behind the `{{` to behind the `}}`.
    fn action(&mut self) -> Result<(), ParseError> {
        let (open, mut parentheses) = (self.at, 0usize);
        loop {
            if let Some((len, is_trimmed)) = self.close() {
                if parentheses > 0 {
                    return self.wrong("unclosed left paren");
                }
                self.push(Kind::Close, "}}");
                self.pass_close(len, is_trimmed);
                return Ok(());
            }
            let rest = self.rest();
            let Some(next) = rest.chars().next() else {
                self.at = open;
                return self.wrong("unclosed action");
            };
            match next {
                _ if is_space(next) => {
                    let spaces = rest.len() - rest.trim_start_matches(is_space).len();
                    // The last one may belong to the closing delimiter.
                    let is_closing = rest[spaces..].starts_with("-}}") && spaces > 1;
                    self.take(Kind::Space, if is_closing { spaces - 1 } else { spaces });
                }
                ':' if rest.starts_with(":=") => self.take(Kind::Sign, 2),
                ':' => return self.wrong("expected :="),
                '"' | '\'' => self.quoted(next)?,
                '`' => match rest[1..].find('`') {
                    Some(end) => self.take(Kind::String, end + 2),
                    None => return self.wrong("unterminated raw quoted string"),
                },
                '$' => self.word(Kind::Variable, 1)?,
                '.' if !rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                    let is_dot = !rest[1..].starts_with(is_word);
                    self.word(if is_dot { Kind::Dot } else { Kind::Field }, 1)?;
                }
                '.' | '+' | '-' | '0'..='9' => self.number()?,
                _ if is_word(next) => self.word(Kind::Word, 0)?,
                '(' => {
                    parentheses += 1;
                    self.take(Kind::Sign, 1);
                }
                ')' if parentheses == 0 => return self.wrong("unexpected right paren"),
                ')' => {
                    parentheses -= 1;
                    self.take(Kind::Sign, 1);
                }
                ' '..='~' => self.take(Kind::Sign, 1),
                _ => return self.wrong(format!("unrecognized character in action: {next:?}")),
            }
        }
    }

    /// Letters and digits after a first `skipped` bytes; another word must not follow at once.
    fn word(&mut self, kind: Kind, skipped: usize) -> Result<(), ParseError> {
        let rest = self.rest();
        let len = rest[skipped..].find(|c: char| !is_word(c)).map_or(rest.len(), |len| skipped + len);
        let after = &rest[len..];
        match after.chars().next() {
            Some(c) if !is_space(c) && !".,|:)(".contains(c) && !after.starts_with("}}") => {
                self.at += len;
                self.wrong(format!("bad character {c:?}"))
            }
            _ => {
                self.take(kind, len);
                Ok(())
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<(), ParseError> {
        let mut is_escaped = false;
        for (at, c) in self.rest().char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                _ if c == quote => {
                    self.take(if quote == '"' { Kind::String } else { Kind::Character }, at + 1);
                    return Ok(());
                }
                _ => {}
            }
        }
        self.wrong(if quote == '"' { "unterminated quoted string" } else { "unterminated character constant" })
    }

    /// What looks like one; [`super::number`] says whether it is.
    fn number(&mut self) -> Result<(), ParseError> {
        let rest = self.rest();
        let is_hex = rest.trim_start_matches(['+', '-']).to_ascii_lowercase().starts_with("0x");
        let exponents = if is_hex { "pP" } else { "eE" };
        let mut before = ' ';
        let len = rest
            .find(|c: char| {
                let goes_on = c.is_alphanumeric()
                    || matches!(c, '_' | '.')
                    || (matches!(c, '+' | '-') && (before == ' ' || exponents.contains(before)));
                before = c;
                !goes_on
            })
            .unwrap_or(rest.len());
        // Complex numbers: no function takes them.
        if rest[..len].ends_with('i') || rest[len..].starts_with(['+', '-']) {
            return self.wrong(format!("bad number syntax: {:?}", &rest[..len]));
        }
        self.take(Kind::Number, len);
        Ok(())
    }
}
