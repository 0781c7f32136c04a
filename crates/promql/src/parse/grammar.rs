// SPDX-License-Identifier: Apache-2.0
//! Tokens to [`Expr`]: operators by how tightly they bind, what stands between them, and what follows that.
//!
//! The first mistake in the grammar ends it. Wrong types are told only of texts without one, as Prometheus does.

use std::ops::Range;

use super::token::{Kind, Token, tokens};
use super::{ParseError, text, unsupported};
use crate::eval::{Last, Signature, signature};
use crate::expr::{Aggregate, Aggregation, Call, Expr, Place, Type};
use crate::times::Times;
use crate::written;

/// Words that no function and no metric that is called has; the others may be names.
const RESERVED: [&str; 6] = ["bool", "on", "ignoring", "group_left", "group_right", "atan2"];
/// What is no function although it stands before a parenthesis.
const NO_FUNCTIONS: [&str; 7] = ["and", "or", "unless", "by", "without", "offset", "fill"];

/// How tightly an operator binds; 0: it is none.
pub(super) fn binds(operator: &str) -> u8 {
    match operator.to_ascii_lowercase().as_str() {
        "or" => 1,
        "and" | "unless" => 2,
        "==" | "!=" | ">" | "<" | ">=" | "<=" | "</" | ">/" => 3,
        "+" | "-" => 4,
        "*" | "/" | "%" | "atan2" => 5,
        "^" => 6,
        _ => 0,
    }
}

/// What has been read, and where.
pub(super) struct Parsed {
    pub(super) expr: Expr,
    pub(super) kind: Type,
    pub(super) at: Range<usize>,
    /// In parentheses it takes no modifiers.
    pub(super) is_bare: bool,
}

pub(super) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    next: usize,
    /// Without them nothing is calculated: the tree is to be printed.
    pub(super) times: Option<Times>,
    /// Regular expressions that it has so far.
    pub(super) regexes: usize,
    /// The first wrong type.
    mistyped: Option<ParseError>,
}

/// The tree of a text; for evaluation at these times, or only to be printed.
pub(crate) fn query(text: &str, times: Option<Times>) -> Result<Expr, ParseError> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, times, regexes: 0, mistyped: None };
    if parser.peek().kind == Kind::End {
        return Err(parser.wrong(0..0, "no expression found in input"));
    }
    let parsed = parser.expression(0)?;
    if parser.peek().kind != Kind::End {
        return Err(parser.unexpected(""));
    }
    parser.mistyped.map_or(Ok(parsed.expr), Err)
}

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> Token<'a> {
        self.tokens[self.next]
    }

    pub(super) fn after(&self) -> Token<'a> {
        self.tokens[(self.next + 1).min(self.tokens.len() - 1)]
    }

    /// The last token, which ends it all, stays.
    pub(super) fn advance(&mut self) -> Token<'a> {
        let token = self.peek();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// Where what has been read ends.
    pub(super) fn end(&self) -> usize {
        self.next.checked_sub(1).map_or(0, |last| self.tokens[last].place().end)
    }

    pub(super) fn takes_sign(&mut self, sign: &str) -> bool {
        let is_next = self.peek().is_sign(sign);
        if is_next {
            self.advance();
        }
        is_next
    }

    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        let is_next = self.peek().is_word(word);
        if is_next {
            self.advance();
        }
        is_next
    }

    pub(super) fn expect(&mut self, sign: &str, context: &str) -> Result<(), ParseError> {
        if self.takes_sign(sign) { Ok(()) } else { Err(self.unexpected(&format!("{context}, expected {sign:?}"))) }
    }

    pub(super) fn wrong(&self, at: Range<usize>, text: impl Into<String>) -> ParseError {
        ParseError::wrong(self.text, at, text)
    }

    pub(super) fn place(&self, at: &Range<usize>) -> Place {
        Place::new(self.text, at.start)
    }

    /// The next token is not what comes in `context`.
    pub(super) fn unexpected(&self, context: &str) -> ParseError {
        let token = self.peek();
        let what = match token.kind {
            Kind::Wrong(why) => return self.wrong(token.place(), format!("{why}: {:?}", token.text)),
            Kind::End => "end of input".to_owned(),
            Kind::Sign => format!("{:?}", token.text),
            Kind::Word => format!("identifier {:?}", token.text),
            Kind::Number(_) => format!("number {:?}", token.text),
            Kind::Duration(_) => format!("duration {:?}", token.text),
            Kind::String => format!("string {}", token.text),
        };
        let context = if context.is_empty() { String::new() } else { format!(" in {context}") };
        self.wrong(token.place(), format!("unexpected {what}{context}"))
    }

    /// Notes a wrong type.
    pub(super) fn mistype(&mut self, at: Range<usize>, text: impl Into<String>) {
        if self.mistyped.is_none() {
            self.mistyped = Some(self.wrong(at, text));
        }
    }

    fn expect_type(&mut self, parsed: &Parsed, wanted: Type, context: &str) {
        if parsed.kind != wanted {
            let text = format!("expected type {wanted} in {context}, got {}", parsed.kind);
            self.mistype(parsed.at.clone(), text);
        }
    }

    /// Everything that binds tighter than `least`.
    pub(super) fn expression(&mut self, least: u8) -> Result<Parsed, ParseError> {
        let mut left = self.unary()?;
        loop {
            let token = self.peek();
            let tightness = if matches!(token.kind, Kind::Sign | Kind::Word) { binds(token.text) } else { 0 };
            if tightness <= least {
                return Ok(left);
            }
            self.advance();
            left = self.binary(left, token, tightness)?;
        }
    }

    fn unary(&mut self) -> Result<Parsed, ParseError> {
        let token = self.peek();
        if !(token.is_sign("-") || token.is_sign("+")) {
            let operand = self.operand()?;
            return self.modified(operand);
        }
        self.advance();
        let Parsed { expr, kind, at, .. } = self.expression(binds("*"))?;
        if !matches!(kind, Type::Scalar | Type::Vector) {
            let only = "unary expression only allowed on expressions of type scalar or instant vector";
            self.mistype(token.at..at.end, format!("{only}, got \"{kind}\""));
        }
        let expr = match expr {
            Expr::Number(number) => Expr::Number(number.signed(token.text == "-")),
            expr if token.text == "+" => Expr::Plus(Box::new(expr)),
            expr => Expr::Negate(Box::new(expr)),
        };
        Ok(Parsed { expr, kind, at: token.at..at.end, is_bare: false })
    }

    /// What stands between operators.
    fn operand(&mut self) -> Result<Parsed, ParseError> {
        let token = self.peek();
        let parsed = |expr, kind, at| Parsed { expr, kind, at, is_bare: true };
        match token.kind {
            Kind::Number(value) | Kind::Duration(value) => {
                self.advance();
                let has_units = matches!(token.kind, Kind::Duration(_));
                Ok(parsed(Expr::Number(written::Number { value, has_units }), Type::Scalar, token.place()))
            }
            Kind::String => {
                let text = self.string()?;
                Ok(parsed(Expr::String(text), Type::String, token.place()))
            }
            Kind::Sign if token.text == "(" => {
                self.advance();
                let Parsed { expr, kind, .. } = self.expression(0)?;
                if self.peek().kind == Kind::End {
                    return Err(self.wrong(token.place(), "unclosed left parenthesis"));
                }
                self.expect(")", "parentheses")?;
                let expr = Expr::Parentheses(Box::new(expr));
                Ok(Parsed { expr, kind, at: token.at..self.end(), is_bare: false })
            }
            Kind::Sign if token.text == "{" => self.selector(),
            Kind::Word if !RESERVED.iter().any(|word| token.is_word(word)) => {
                let after = self.after();
                let is_grouped = after.is_word("by") || after.is_word("without");
                if let Some((_, how)) = Aggregation::NAMES.into_iter().find(|(name, _)| token.is_word(name))
                    && (after.is_sign("(") || is_grouped)
                {
                    return self.aggregate(how);
                }
                let is_name = !token.text.contains(':') && !NO_FUNCTIONS.iter().any(|word| token.is_word(word));
                if after.is_sign("(") && is_name { self.call() } else { self.selector() }
            }
            _ => Err(self.unexpected("")),
        }
    }

    /// A string that is next.
    pub(super) fn string(&mut self) -> Result<String, ParseError> {
        let token = self.advance();
        text::unquoted(token.text).map_err(|why| self.wrong(token.place(), format!("{} has {why}", token.text)))
    }

    /// Names in parentheses.
    pub(super) fn names(&mut self) -> Result<Vec<String>, ParseError> {
        let mut names = Vec::new();
        self.expect("(", "grouping opts")?;
        while !self.takes_sign(")") {
            let token = self.peek();
            let name = match token.kind {
                Kind::String => self.string()?,
                Kind::Word => self.advance().text.to_owned(),
                _ => return Err(self.unexpected("grouping opts, expected label")),
            };
            if name.is_empty() {
                return Err(self.wrong(token.place(), "invalid label name for grouping: \"\""));
            }
            names.push(name);
            if !self.takes_sign(",") && !self.peek().is_sign(")") {
                return Err(self.unexpected("grouping opts, expected \",\" or \")\""));
            }
        }
        Ok(names)
    }

    /// `by (...)` or `without (...)`, and which.
    fn grouping(&mut self) -> Result<Option<(bool, Vec<String>)>, ParseError> {
        let without = self.peek().is_word("without");
        if !without && !self.peek().is_word("by") {
            return Ok(None);
        }
        self.advance();
        Ok(Some((without, self.names()?)))
    }

    fn aggregate(&mut self, how: Option<Aggregation>) -> Result<Parsed, ParseError> {
        let token = self.advance();
        let before = self.grouping()?;
        let label = self.after();
        if how == Some(Aggregation::CountValues) && label.kind == Kind::String && text::unquoted(label.text).is_err() {
            return Err(ParseError::Label(label.text.to_owned()));
        }
        let args = self.args("aggregation")?;
        let grouping = if before.is_some() { before } else { self.grouping()? };
        let (without, labels) = grouping.unwrap_or_default();
        let at = token.at..self.end();
        let Some(how) = how else {
            return unsupported(format!("experimental aggregations, such as {},", token.text));
        };
        let param_type = match how {
            Aggregation::Quantile | Aggregation::TopK | Aggregation::BottomK => Some(Type::Scalar),
            Aggregation::CountValues => Some(Type::String),
            _ => None,
        };
        let (got, wanted) = (args.len(), 1 + usize::from(param_type.is_some()));
        if got == 0 {
            return Err(self.wrong(at, "no arguments for aggregate expression provided"));
        }
        let text = format!("wrong number of arguments for aggregate expression provided, expected {wanted}, got {got}");
        let mut args = args.into_iter();
        let (param, expr) = match (param_type.and_then(|_| args.next()), args.next(), args.next()) {
            (param, Some(expr), None) if param.is_some() == param_type.is_some() => (param, expr),
            _ => return Err(self.wrong(at, text)),
        };
        self.expect_type(&expr, Type::Vector, "aggregation expression");
        if let (Some(param), Some(wanted)) = (&param, param_type) {
            self.expect_type(param, wanted, "aggregation parameter");
        }
        let place = self.place(param.as_ref().map_or(&expr.at, |param| &param.at));
        let expr_at = self.place(&expr.at);
        let (expr, param) = (expr.expr, param.map(|param| param.expr));
        let expr = Expr::Aggregate(Box::new(Aggregate { how, expr, param, at: place, expr_at, without, labels }));
        Ok(Parsed { expr, kind: Type::Vector, at, is_bare: true })
    }

    /// Arguments in parentheses.
    fn args(&mut self, context: &str) -> Result<Vec<Parsed>, ParseError> {
        self.expect("(", context)?;
        let mut args = Vec::new();
        if self.takes_sign(")") {
            return Ok(args);
        }
        loop {
            args.push(self.expression(0)?);
            let token = self.peek();
            if !self.takes_sign(",") {
                self.expect(")", context)?;
                return Ok(args);
            }
            if self.peek().is_sign(")") {
                return Err(self.wrong(token.place(), "trailing commas not allowed in function call args"));
            }
        }
    }

    fn call(&mut self) -> Result<Parsed, ParseError> {
        let token = self.advance();
        let (name, args) = (token.text, self.args("function call")?);
        let at = token.at..self.end();
        let Signature { args: wanted, last, returns } = match signature(name) {
            Some(signature) => signature,
            None if EXPERIMENTAL.contains(&name) => {
                return unsupported(format!("experimental functions, such as {name}(),"));
            }
            None => return Err(self.wrong(token.place(), format!("unknown function with name {name:?}"))),
        };
        let (least, most) = match last {
            Last::Once => (wanted.len(), Some(wanted.len())),
            Last::Optional => (wanted.len() - 1, Some(wanted.len())),
            Last::Any => (wanted.len() - 1, None),
        };
        let got = args.len();
        let told = match most {
            Some(most) if got != most && least == most => format!("{most} argument(s)"),
            Some(most) if got > most => format!("at most {most} argument(s)"),
            _ if got < least => format!("at least {least} argument(s)"),
            _ => String::new(),
        };
        if !told.is_empty() {
            self.mistype(at.clone(), format!("expected {told} in call to {name:?}, got {got}"));
        }
        for (number, arg) in args.iter().enumerate() {
            if let Some(wanted) = wanted.get(number).or(wanted.last()) {
                self.expect_type(arg, *wanted, &format!("call to function {name:?}"));
            }
        }
        let args_at = args.iter().map(|arg| self.place(&arg.at)).collect();
        let args = args.into_iter().map(|arg| arg.expr).collect();
        let expr = Expr::Call(Call { name: name.to_owned(), args, at: self.place(&at), args_at });
        Ok(Parsed { expr, kind: returns, at, is_bare: true })
    }
}

/// Functions that Prometheus has only when asked for them.
pub(crate) const EXPERIMENTAL: [&str; 18] = [
    "double_exponential_smoothing",
    "end",
    "histogram_quantiles",
    "info",
    "integral",
    "mad_over_time",
    "max_of",
    "min_of",
    "range",
    "sort_by_label",
    "sort_by_label_desc",
    "start",
    "start_timestamp",
    "step",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
    "ts_of_max_over_time",
    "ts_of_min_over_time",
];
