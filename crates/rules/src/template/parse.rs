// SPDX-License-Identifier: Apache-2.0
//! Tokens to [`Node`]s, by the grammar of Go's `text/template`. Variables and functions must be known.

use std::collections::BTreeMap;

use onlooker_promql::unquoted;

use super::ParseError;
use super::function::{self, Function};
use super::number::without_underscores;
use super::token::{Kind, Token, tokens};

/// Parentheses and controls within each other at most.
const MAX_DEPTH: usize = 64;
/// What Prometheus declares before each template.
const DECLARED: [&str; 5] = ["$", "$labels", "$externalLabels", "$externalURL", "$value"];
const KEYWORDS: [&str; 10] = ["block", "break", "continue", "define", "else", "end", "if", "range", "template", "with"];

#[derive(Clone, Debug)]
pub(super) enum Node {
    Text(String),
    Action(Pipe),
    If(Control),
    With(Control),
    Range(Control),
    Template { name: String, pipe: Option<Pipe>, at: usize },
    Break,
    Continue,
}

#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) pipe: Pipe,
    pub(super) then: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pipe {
    /// Variables that take its value; in the order of the text.
    pub(super) variables: Vec<String>,
    /// They are there already.
    pub(super) is_assignment: bool,
    pub(super) commands: Vec<Command>,
}

/// Operands: one, or a function or method with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) first: Operand,
    pub(super) arguments: Vec<Operand>,
}

#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) term: Term,
    /// `.a.b` behind it.
    pub(super) fields: Vec<String>,
    pub(super) at: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Term {
    Dot,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Variable(String),
    Function(&'static Function),
    Pipe(Pipe),
}

/// A template's nodes, and those of the templates that it defines.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    pub(super) nodes: Vec<Node>,
    pub(super) defined: BTreeMap<String, Vec<Node>>,
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    /// Names that are declared here.
    variables: Vec<String>,
    defined: BTreeMap<String, Vec<Node>>,
    ranges: usize,
    depth: usize,
}

/// What ends a list of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Else,
    End,
    Text,
}

pub(super) fn parse(text: &str) -> Result<Parsed, ParseError> {
    let variables = DECLARED.map(str::to_owned).to_vec();
    let (tokens, defined) = (tokens(text)?, BTreeMap::new());
    let mut parser = Parser { tokens, next: 0, variables, defined, ranges: 0, depth: 0 };
    let (nodes, ended) = parser.list(true)?;
    match ended {
        Ended::Text => Ok(Parsed { nodes, defined: parser.defined }),
        Ended::Else => parser.wrong_before("unexpected {{else}}"),
        Ended::End => parser.wrong_before("unexpected {{end}}"),
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.next]
    }

    /// The last one, which ends it all, stays.
    fn advance(&mut self) -> Token<'a> {
        let token = self.peek();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn skip_space(&mut self) -> Token<'a> {
        while self.peek().kind == Kind::Space {
            self.advance();
        }
        self.peek()
    }

    fn wrong<T>(&self, text: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { at: self.peek().at, text: text.into() })
    }

    fn wrong_before<T>(&self, text: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { at: self.tokens[self.next.saturating_sub(1)].at, text: text.into() })
    }

    fn unexpected<T>(&self, context: &str) -> Result<T, ParseError> {
        match self.peek().kind {
            Kind::End => self.wrong(format!("unexpected end of the template in {context}")),
            _ => self.wrong(format!("unexpected {:?} in {context}", self.peek().text)),
        }
    }

    fn close(&mut self, context: &str) -> Result<(), ParseError> {
        if self.skip_space().kind != Kind::Close {
            return self.unexpected(context);
        }
        self.advance();
        Ok(())
    }

    /// Runs `inner` one level deeper.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.depth == MAX_DEPTH {
            return self.wrong(format!("more than {MAX_DEPTH} parentheses and controls within each other"));
        }
        self.depth += 1;
        let inner = inner(self);
        self.depth -= 1;
        inner
    }

    /// Nodes up to an `else` (whose action is read only up to that word), an `end` (read as a whole) or the text's end.
    fn list(&mut self, is_top: bool) -> Result<(Vec<Node>, Ended), ParseError> {
        let mut nodes = Vec::new();
        loop {
            let token = self.advance();
            match token.kind {
                Kind::Text => nodes.push(Node::Text(token.text.to_owned())),
                Kind::End => return Ok((nodes, Ended::Text)),
                // An opening delimiter: only these stand outside of actions.
                _ => {
                    let keyword = self.skip_space();
                    let is_keyword = keyword.kind == Kind::Word && KEYWORDS.contains(&keyword.text);
                    if !is_keyword {
                        nodes.push(Node::Action(self.pipe("command")?));
                        continue;
                    }
                    self.advance();
                    match keyword.text {
                        "else" => return Ok((nodes, Ended::Else)),
                        "end" => {
                            self.close("end")?;
                            return Ok((nodes, Ended::End));
                        }
                        "define" if is_top => self.define()?,
                        "if" => nodes.push(Node::If(self.control("if")?)),
                        "with" => nodes.push(Node::With(self.control("with")?)),
                        "range" => nodes.push(Node::Range(self.control("range")?)),
                        "template" => nodes.push(self.template(keyword.at)?),
                        "block" => nodes.push(self.block(keyword.at)?),
                        "break" | "continue" => {
                            let is_break = keyword.text == "break";
                            if self.ranges == 0 {
                                return self.wrong_before(format!("{{{{{}}}}} outside {{{{range}}}}", keyword.text));
                            }
                            self.close(keyword.text)?;
                            nodes.push(if is_break { Node::Break } else { Node::Continue });
                        }
                        _ => return self.wrong_before(format!("unexpected {{{{{}}}}} in command", keyword.text)),
                    }
                }
            }
        }
    }

    fn control(&mut self, context: &str) -> Result<Control, ParseError> {
        self.deeper(|parser| {
            let declared = parser.variables.len();
            let pipe = parser.pipe(context)?;
            let is_range = usize::from(context == "range");
            parser.ranges += is_range;
            let (then, ended) = parser.list(false)?;
            parser.ranges -= is_range;
            let otherwise = if ended == Ended::Else { parser.otherwise(context)? } else { Vec::new() };
            if ended == Ended::Text {
                return parser.unexpected(&format!("{context}: its {{{{end}}}} is missing"));
            }
            parser.variables.truncate(declared);
            Ok(Control { pipe, then, otherwise })
        })
    }

    /// From behind an `else` to behind the `end`. `else if` and `else with` have their end in common with the first one.
    fn otherwise(&mut self, context: &str) -> Result<Vec<Node>, ParseError> {
        let next = self.skip_space();
        if next.is(Kind::Word, "if") || next.is(Kind::Word, "with") {
            if !next.is(Kind::Word, context) {
                return self.unexpected("else");
            }
            self.advance();
            let control = self.control(context)?;
            return Ok(vec![if context == "if" { Node::If(control) } else { Node::With(control) }]);
        }
        self.close("else")?;
        match self.list(false)? {
            (nodes, Ended::End) => Ok(nodes),
            _ => self.wrong_before("expected {{end}}"),
        }
    }

    fn name(&mut self, context: &str) -> Result<String, ParseError> {
        let token = self.skip_space();
        if token.kind != Kind::String {
            return self.unexpected(context);
        }
        self.advance();
        text_of(token)
    }

    fn template(&mut self, at: usize) -> Result<Node, ParseError> {
        let name = self.name("template clause")?;
        if self.skip_space().kind == Kind::Close {
            self.advance();
            return Ok(Node::Template { name, pipe: None, at });
        }
        let pipe = self.pipe("template clause")?;
        Ok(Node::Template { name, pipe: Some(pipe), at })
    }

    fn block(&mut self, at: usize) -> Result<Node, ParseError> {
        let name = self.name("block clause")?;
        let pipe = self.pipe("block clause")?;
        self.body(name.clone(), "block clause")?;
        Ok(Node::Template { name, pipe: Some(pipe), at })
    }

    fn define(&mut self) -> Result<(), ParseError> {
        let name = self.name("define clause")?;
        self.close("define clause")?;
        self.body(name, "define clause")
    }

    /// Of a template that is defined here: it sees none of the variables outside.
    fn body(&mut self, name: String, context: &str) -> Result<(), ParseError> {
        self.deeper(|parser| {
            let outside = std::mem::replace(&mut parser.variables, vec!["$".to_owned()]);
            let ranges = std::mem::take(&mut parser.ranges);
            let (nodes, ended) = parser.list(false)?;
            if ended != Ended::End {
                return parser.unexpected(context);
            }
            (parser.variables, parser.ranges) = (outside, ranges);
            let is_empty =
                |nodes: &[Node]| nodes.iter().all(|node| matches!(node, Node::Text(text) if text.trim().is_empty()));
            match parser.defined.get(&name) {
                Some(before) if is_empty(&nodes) && !is_empty(before) => {}
                Some(before) if !is_empty(before) => {
                    return parser.wrong_before(format!("multiple definition of template {name:?}"));
                }
                _ => {
                    parser.defined.insert(name, nodes);
                }
            }
            Ok(())
        })
    }

    fn pipe(&mut self, context: &str) -> Result<Pipe, ParseError> {
        self.pipe_until(context, Kind::Close, "}}")
    }

    /// To behind this token.
    fn pipe_until(&mut self, context: &str, end: Kind, sign: &str) -> Result<Pipe, ParseError> {
        let mut pipe = Pipe::default();
        self.declarations(context, &mut pipe)?;
        while !self.skip_space().is(end, sign) {
            if matches!(self.peek().kind, Kind::End | Kind::Close) || self.starts_none() {
                return self.unexpected(context);
            }
            let begin = self.next;
            let command = self.command()?;
            let is_value = matches!(command.first.term, Term::Bool(_) | Term::Nil | Term::Int(_) | Term::Float(_))
                || matches!(command.first.term, Term::Text(_))
                || (matches!(command.first.term, Term::Dot) && command.first.fields.is_empty());
            if is_value && !pipe.commands.is_empty() {
                self.next = begin;
                let stage = pipe.commands.len() + 1;
                return self.wrong(format!("non executable command in pipeline stage {stage}"));
            }
            pipe.commands.push(command);
        }
        if pipe.commands.is_empty() {
            return self.wrong(format!("missing value for {context}"));
        }
        self.advance();
        Ok(pipe)
    }

    fn starts_none(&self) -> bool {
        let token = self.peek();
        match token.kind {
            Kind::Sign => token.text != "(",
            Kind::Word => KEYWORDS.contains(&token.text),
            _ => false,
        }
    }

    /// `$x :=`, `$x =`, and before a range `$i, $x :=`.
    fn declarations(&mut self, context: &str, pipe: &mut Pipe) -> Result<(), ParseError> {
        loop {
            let variable = self.skip_space();
            if variable.kind != Kind::Variable {
                return Ok(());
            }
            let begin = self.next;
            self.advance();
            let next = self.skip_space();
            if !matches!((next.kind, next.text), (Kind::Sign, "=" | ":=" | ",")) {
                self.next = begin;
                return Ok(());
            }
            self.advance();
            pipe.is_assignment = next.text == "=";
            pipe.variables.push(variable.text.to_owned());
            self.variables.push(variable.text.to_owned());
            if next.text != "," {
                return Ok(());
            }
            if context != "range" || pipe.variables.len() > 1 {
                return self.wrong_before(format!("too many declarations in {context}"));
            }
            if self.skip_space().kind != Kind::Variable {
                return self.wrong("range can only initialize variables");
            }
        }
    }

    fn known(&self, variable: Token<'_>) -> Result<(), ParseError> {
        match self.variables.iter().any(|known| known == variable.text) {
            true => Ok(()),
            false => Err(ParseError { at: variable.at, text: format!("undefined variable {:?}", variable.text) }),
        }
    }

    /// Up to a `|`, which is read, or what ends the pipe.
    fn command(&mut self) -> Result<Command, ParseError> {
        let mut operands = Vec::new();
        loop {
            self.skip_space();
            operands.extend(self.operand()?);
            let token = self.peek();
            match (token.kind, token.text) {
                (Kind::Space, _) => {
                    self.advance();
                }
                (Kind::Close, _) | (Kind::Sign, ")") => break,
                (Kind::Sign, "|") => {
                    self.advance();
                    break;
                }
                _ => return self.unexpected("operand"),
            }
        }
        let mut operands = operands.into_iter();
        match operands.next() {
            Some(first) => Ok(Command { first, arguments: operands.collect() }),
            None => self.wrong("empty command"),
        }
    }

    fn operand(&mut self) -> Result<Option<Operand>, ParseError> {
        let token = self.peek();
        let Some(term) = self.term()? else { return Ok(None) };
        let mut fields = Vec::new();
        if token.kind == Kind::Field {
            fields.push(token.text[1..].to_owned());
        }
        while self.peek().kind == Kind::Field {
            let is_value = matches!(term, Term::Bool(_) | Term::Nil | Term::Int(_) | Term::Float(_) | Term::Text(_));
            if is_value || token.kind == Kind::Dot {
                return self.wrong(format!("unexpected . after term {:?}", token.text));
            }
            fields.push(self.advance().text[1..].to_owned());
        }
        Ok(Some(Operand { term, fields, at: token.at }))
    }

    fn term(&mut self) -> Result<Option<Term>, ParseError> {
        let token = self.peek();
        let term = match token.kind {
            Kind::Word => match token.text {
                "true" => Term::Bool(true),
                "false" => Term::Bool(false),
                "nil" => Term::Nil,
                name if KEYWORDS.contains(&name) => return Ok(None),
                name => match function::find(name) {
                    Some(function) => Term::Function(function),
                    None => return self.wrong(format!("function {name:?} not defined")),
                },
            },
            Kind::Dot | Kind::Field => Term::Dot,
            Kind::Variable => {
                self.known(token)?;
                Term::Variable(token.text.to_owned())
            }
            Kind::Number => match number(token.text) {
                Some(term) => term,
                None => return self.wrong(format!("bad number syntax: {:?}", token.text)),
            },
            Kind::Character => Term::Int(i64::from(u32::from(character(token)?))),
            Kind::String => Term::Text(text_of(token)?),
            Kind::Sign if token.text == "(" => {
                self.advance();
                let pipe = self.deeper(|parser| parser.pipe_until("parenthesized pipeline", Kind::Sign, ")"))?;
                return Ok(Some(Term::Pipe(pipe)));
            }
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(term))
    }
}

fn text_of(token: Token<'_>) -> Result<String, ParseError> {
    unquoted(token.text).map_err(|why| ParseError { at: token.at, text: why.to_owned() })
}

fn character(token: Token<'_>) -> Result<char, ParseError> {
    let text = text_of(token)?;
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) => Ok(character),
        _ => Err(ParseError { at: token.at, text: format!("malformed character constant: {}", token.text) }),
    }
}

/// A number as Go has it. One with a point or an exponent is a float.
fn number(text: &str) -> Option<Term> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = without_underscores(unsigned)?.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if !digits.starts_with(['+', '-'])
        && let Ok(integer) = i64::from_str_radix(&format!("{}{digits}", if is_negative { "-" } else { "" }), radix)
    {
        return Some(Term::Int(integer));
    }
    if radix == 16 || !lower.contains(['.', 'e']) || !lower.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let float: f64 = lower.parse().ok()?;
    float.is_finite().then_some(Term::Float(if is_negative { -float } else { float }))
}
