// SPDX-License-Identifier: Apache-2.0
//! Selectors, and what may follow them: ranges, subqueries, `offset`, `@`, `anchored` and `smoothed`.

use super::ParseError;
use super::duration::nanoseconds;
use super::grammar::{Parsed, Parser};
use super::token::Kind;
use crate::expr::{Edges, Expr, Range, RangeOf, Select, Type, When};
use crate::labels::{Comparison, Matcher, NAME};
use crate::pattern::{translated, whole};

/// Each may take a MiB of memory, and milliseconds.
const MAX_REGEXES: usize = 64;

impl Parser<'_> {
    /// A name, matchers in braces, or both.
    pub(super) fn selector(&mut self) -> Result<Parsed, ParseError> {
        let from = self.peek().at;
        let name = match self.peek().kind {
            Kind::Word => Some(self.advance().text.to_owned()),
            _ => None,
        };
        let mut matchers = if self.peek().is_sign("{") { self.matchers()? } else { Vec::new() };
        let at = from..self.end();
        match name {
            Some(value) => {
                if let Some(other) = matchers.iter().find(|matcher| matcher.name == NAME) {
                    let text = format!("metric name must not be set twice: {value:?} or {:?}", other.value);
                    self.mistype(at.clone(), text);
                }
                matchers.push(Matcher { name: NAME.into(), comparison: Comparison::Equal, value });
            }
            None if matchers.iter().all(takes_empty) => {
                self.mistype(at.clone(), "vector selector must contain at least one non-empty matcher");
            }
            None => {}
        }
        let place = self.place(&at);
        let expr = Expr::Select(Select { matchers, when: When::default(), edges: Edges::Plain, at: place });
        Ok(Parsed { expr, kind: Type::Vector, at, is_bare: true })
    }

    fn matchers(&mut self) -> Result<Vec<Matcher>, ParseError> {
        self.advance();
        let mut matchers = Vec::new();
        while !self.takes_sign("}") {
            matchers.push(self.matcher()?);
            if !self.takes_sign(",") && !self.peek().is_sign("}") {
                return Err(self.unexpected("label matching, expected \",\" or \"}\""));
            }
        }
        Ok(matchers)
    }

    /// `name="value"`, or a metric's name in quotes.
    fn matcher(&mut self) -> Result<Matcher, ParseError> {
        let token = self.peek();
        let name = match token.kind {
            Kind::Word => self.advance().text.to_owned(),
            Kind::String => self.string()?,
            _ => return Err(self.unexpected("label matching, expected identifier or \"}\"")),
        };
        let comparison = match self.peek().text {
            "=" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "=~" => Comparison::Regex,
            "!~" => Comparison::NotRegex,
            _ if token.kind == Kind::String => {
                return Ok(Matcher { name: NAME.into(), comparison: Comparison::Equal, value: name });
            }
            _ => return Err(self.unexpected("label matching, expected label matching operator")),
        };
        self.advance();
        if self.peek().kind != Kind::String {
            return Err(self.unexpected("label matching, expected string"));
        }
        let mut value = self.string()?;
        if matches!(comparison, Comparison::Regex | Comparison::NotRegex) {
            self.regexes += 1;
            if self.regexes > MAX_REGEXES {
                return Err(ParseError::Large { what: "regular expressions", most: MAX_REGEXES });
            }
            let translated = translated(&value);
            if whole(&translated).is_err() {
                return Err(self.wrong(token.at..self.end(), format!("error parsing regexp: {value:?}")));
            }
            value = translated;
        }
        Ok(Matcher { name, comparison, value })
    }

    /// With all that follows an operand.
    pub(super) fn modified(&mut self, mut parsed: Parsed) -> Result<Parsed, ParseError> {
        loop {
            let token = self.peek();
            if token.is_sign("[") {
                parsed = self.range(parsed)?;
            } else if token.is_word("offset") {
                self.advance();
                let offset_ns = self.offset_ns()?;
                let when = self.when(&mut parsed, "offset modifier")?;
                if when.offset_ns != 0 {
                    return Err(self.wrong(parsed.at, "offset may not be set multiple times"));
                }
                when.offset_ns = offset_ns;
            } else if token.is_sign("@") {
                self.advance();
                let at_ns = self.at_ns(&parsed)?;
                let when = self.when(&mut parsed, "@ modifier")?;
                if when.at_ns.is_some() {
                    return Err(self.wrong(parsed.at, "@ <timestamp> may not be set multiple times"));
                }
                when.at_ns = Some(at_ns);
            } else if token.is_word("anchored") {
                self.advance();
                self.set_edges(&mut parsed, Edges::Anchored, "anchored")?;
            } else if token.is_word("smoothed") {
                self.advance();
                self.set_edges(&mut parsed, Edges::Smoothed, "smoothed")?;
            } else {
                return Ok(parsed);
            }
            parsed.at.end = self.end();
        }
    }

    /// What modifiers of time change.
    fn when<'p>(&self, parsed: &'p mut Parsed, modifier: &str) -> Result<&'p mut When, ParseError> {
        let at = parsed.at.clone();
        match &mut parsed.expr {
            Expr::Select(select) if parsed.is_bare => Ok(&mut select.when),
            Expr::Range(range) if parsed.is_bare => Ok(match &mut range.of {
                RangeOf::Select(select) => &mut select.when,
                RangeOf::Subquery { when, .. } => when,
            }),
            _ => {
                let wanted = "an instant vector selector or range vector selector or a subquery";
                Err(self.wrong(at, format!("{modifier} must be preceded by {wanted}")))
            }
        }
    }

    fn set_edges(&self, parsed: &mut Parsed, edges: Edges, name: &str) -> Result<(), ParseError> {
        let at = parsed.at.clone();
        let select = match &mut parsed.expr {
            Expr::Select(select) if parsed.is_bare => select,
            Expr::Range(range) if parsed.is_bare => match &mut range.of {
                RangeOf::Select(select) => select,
                RangeOf::Subquery { .. } => {
                    return Err(self.wrong(at, format!("{name} modifier is not supported for subqueries")));
                }
            },
            _ => return Err(self.wrong(at, format!("{name} modifier must follow a selector"))),
        };
        if select.edges != Edges::Plain && select.edges != edges {
            return Err(self.wrong(at, "anchored and smoothed modifiers cannot be used together"));
        }
        select.edges = edges;
        Ok(())
    }

    /// `5`, `start()`, `end()`: ns since 1970.
    fn at_ns(&mut self, parsed: &Parsed) -> Result<i64, ParseError> {
        const CONTEXT: &str = "@, expected timestamp";
        let bound = ["start", "end"].into_iter().find(|name| self.peek().is_word(name));
        if let Some(bound) = bound {
            self.advance();
            self.expect("(", CONTEXT)?;
            self.expect(")", CONTEXT)?;
            return Ok(if bound == "start" { self.times.start_ns } else { self.times.end_ns });
        }
        let is_negative = self.takes_sign("-");
        if !is_negative {
            self.takes_sign("+");
        }
        let (Kind::Number(seconds) | Kind::Duration(seconds)) = self.peek().kind else {
            return Err(self.unexpected(CONTEXT));
        };
        self.advance();
        nanoseconds(if is_negative { -seconds } else { seconds })
            .map_err(|_| self.wrong(parsed.at.clone(), format!("timestamp out of bounds for @ modifier: {seconds}")))
    }

    /// `[range]` or `[range:step]`.
    fn range(&mut self, parsed: Parsed) -> Result<Parsed, ParseError> {
        let open = self.advance();
        let range_ns = self.positive_ns()?;
        let step_ns = if !self.takes_sign(":") {
            None
        } else if self.peek().is_sign("]") {
            Some(None)
        } else {
            Some(Some(self.positive_ns()?))
        };
        let expected = if step_ns.is_some() { "subquery selector" } else { "subquery or range, expected \":\" or" };
        if !self.takes_sign("]") {
            return Err(self.unexpected(&format!("{expected} \"]\"")));
        }
        let Parsed { expr, kind, at, is_bare } = parsed;
        let of = match (step_ns, expr) {
            (Some(step_ns), expr) => {
                if kind != Type::Vector {
                    let text = format!("subquery is only allowed on instant vector, got {kind} instead");
                    self.mistype(at.clone(), text);
                }
                RangeOf::Subquery { expr, step_ns, when: When::default() }
            }
            (None, Expr::Select(select)) if is_bare => {
                let text = match select.when {
                    When { offset_ns, .. } if offset_ns != 0 => "no offset modifiers allowed before range",
                    When { at_ns: Some(_), .. } => "no @ modifiers allowed before range",
                    _ => "",
                };
                if !text.is_empty() {
                    return Err(self.wrong(open.at..self.end(), text));
                }
                RangeOf::Select(select)
            }
            (None, _) => return Err(self.wrong(open.at..self.end(), "ranges only allowed for vector selectors")),
        };
        let expr = Expr::Range(Box::new(Range { of, range_ns }));
        Ok(Parsed { expr, kind: Type::Range, at, is_bare: true })
    }
}

/// Whether a label that is not there satisfies it.
fn takes_empty(matcher: &Matcher) -> bool {
    let fits = || whole(&matcher.value).is_ok_and(|regex| regex.is_match(""));
    match matcher.comparison {
        Comparison::Equal => matcher.value.is_empty(),
        Comparison::NotEqual => !matcher.value.is_empty(),
        Comparison::Regex => fits(),
        Comparison::NotRegex => !fits(),
    }
}
