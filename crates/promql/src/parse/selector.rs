// SPDX-License-Identifier: Apache-2.0
//! Selectors, and what may follow them: ranges, subqueries, `offset`, `@`, `anchored` and `smoothed`.

use super::ParseError;
use super::duration::nanoseconds;
use super::grammar::{Parsed, Parser};
use super::token::Kind;
use crate::expr::{Edges, Expr, Range, RangeOf, Select, Subquery, Type, When};
use crate::labels::{Comparison, Matcher, NAME};
use crate::pattern::{translated, whole};
use crate::times::Times;
use crate::written::{self, Bound, Modifiers};

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
        let (mut matchers, written) = if self.peek().is_sign("{") { self.matchers()? } else { Default::default() };
        let at = from..self.end();
        match &name {
            Some(value) => {
                if let Some(other) = matchers.iter().find(|matcher| matcher.name == NAME) {
                    let text = format!("metric name must not be set twice: {value:?} or {:?}", other.value);
                    self.mistype(at.clone(), text);
                }
                matchers.push(Matcher { name: NAME.into(), comparison: Comparison::Equal, value: value.clone() });
            }
            None if matchers.iter().all(takes_empty) => {
                self.mistype(at.clone(), "vector selector must contain at least one non-empty matcher");
            }
            None => {}
        }
        let place = self.place(&at);
        let written = written::Select { name, matchers: written, modifiers: Modifiers::default() };
        let expr = Expr::Select(Select { matchers, when: When::default(), edges: Edges::Plain, at: place, written });
        Ok(Parsed { expr, kind: Type::Vector, at, is_bare: true })
    }

    /// As they are evaluated, and as they are written.
    fn matchers(&mut self) -> Result<(Vec<Matcher>, Vec<Matcher>), ParseError> {
        self.advance();
        let (mut matchers, mut written) = (Vec::new(), Vec::new());
        while !self.takes_sign("}") {
            let from = self.peek().at;
            let matcher = self.matcher()?;
            matchers.push(self.translated(&matcher, from)?);
            written.push(matcher);
            if !self.takes_sign(",") && !self.peek().is_sign("}") {
                return Err(self.unexpected("label matching, expected \",\" or \"}\""));
            }
        }
        Ok((matchers, written))
    }

    /// `name="value"`, or a metric's name in quotes.
    fn matcher(&mut self) -> Result<Matcher, ParseError> {
        let token = self.peek();
        let name = match token.kind {
            Kind::Word => self.advance().text.to_owned(),
            Kind::String => self.string()?,
            _ => return Err(self.unexpected("label matching, expected identifier or \"}\"")),
        };
        let comparison = match Comparison::of(self.peek().text) {
            Some(comparison) => comparison,
            None if token.kind == Kind::String => {
                return Ok(Matcher { name: NAME.into(), comparison: Comparison::Equal, value: name });
            }
            None => return Err(self.unexpected("label matching, expected label matching operator")),
        };
        self.advance();
        if self.peek().kind != Kind::String {
            return Err(self.unexpected("label matching, expected string"));
        }
        Ok(Matcher { name, comparison, value: self.string()? })
    }

    /// With its regular expression in the words of the crate `regex`.
    fn translated(&mut self, matcher: &Matcher, from: usize) -> Result<Matcher, ParseError> {
        let mut own = matcher.clone();
        if matches!(own.comparison, Comparison::Regex | Comparison::NotRegex) {
            self.regexes += 1;
            if self.regexes > MAX_REGEXES {
                return Err(ParseError::Large { what: "regular expressions", most: MAX_REGEXES });
            }
            own.value = translated(&matcher.value);
            if whole(&own.value).is_err() {
                return Err(self.wrong(from..self.end(), format!("error parsing regexp: {:?}", matcher.value)));
            }
        }
        Ok(own)
    }

    /// With all that follows an operand.
    pub(super) fn modified(&mut self, mut parsed: Parsed) -> Result<Parsed, ParseError> {
        loop {
            let token = self.peek();
            if token.is_sign("[") {
                parsed = self.range(parsed)?;
            } else if token.is_word("offset") {
                self.advance();
                let (offset, offset_ns) = self.offset()?;
                let (when, modifiers) = self.when(&mut parsed, "offset modifier")?;
                if modifiers.offset.is_some() {
                    return Err(self.wrong(parsed.at, "offset may not be set multiple times"));
                }
                (when.offset_ns, modifiers.offset) = (offset_ns, offset);
            } else if token.is_sign("@") {
                self.advance();
                let (bound, at_ns) = self.bound(&parsed)?;
                let (when, modifiers) = self.when(&mut parsed, "@ modifier")?;
                if modifiers.at.is_some() {
                    return Err(self.wrong(parsed.at, "@ <timestamp> may not be set multiple times"));
                }
                (when.at_ns, modifiers.at) = (at_ns, Some(bound));
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
    fn when<'p>(
        &self,
        parsed: &'p mut Parsed,
        modifier: &str,
    ) -> Result<(&'p mut When, &'p mut Modifiers), ParseError> {
        let at = parsed.at.clone();
        match &mut parsed.expr {
            Expr::Select(select) if parsed.is_bare => Ok((&mut select.when, &mut select.written.modifiers)),
            Expr::Range(range) if parsed.is_bare => Ok(match &mut range.of {
                RangeOf::Select(select) => (&mut select.when, &mut select.written.modifiers),
                RangeOf::Subquery(subquery) => (&mut subquery.when, &mut subquery.modifiers),
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
                RangeOf::Subquery(_) => {
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

    /// `5`, `start()`, `end()`; ns since 1970, where there are times for it.
    fn bound(&mut self, parsed: &Parsed) -> Result<(Bound, Option<i64>), ParseError> {
        const CONTEXT: &str = "@, expected timestamp";
        if self.peek().is_word("start") || self.peek().is_word("end") {
            let is_start = self.advance().is_word("start");
            self.expect("(", CONTEXT)?;
            self.expect(")", CONTEXT)?;
            let bound_ns = |times: Times| if is_start { times.start_ns } else { times.end_ns };
            return Ok((if is_start { Bound::Start } else { Bound::End }, self.times.map(bound_ns)));
        }
        let is_negative = self.takes_sign("-");
        if !is_negative {
            self.takes_sign("+");
        }
        let (Kind::Number(seconds) | Kind::Duration(seconds)) = self.peek().kind else {
            return Err(self.unexpected(CONTEXT));
        };
        self.advance();
        let seconds = if is_negative { -seconds } else { seconds };
        let at_ns = nanoseconds(seconds)
            .map_err(|_| self.wrong(parsed.at.clone(), format!("timestamp out of bounds for @ modifier: {seconds}")))?;
        Ok((Bound::Seconds(seconds), Some(at_ns)))
    }

    /// `[range]` or `[range:step]`.
    fn range(&mut self, parsed: Parsed) -> Result<Parsed, ParseError> {
        let open = self.advance();
        let (written, range_ns) = self.positive()?;
        let step = if !self.takes_sign(":") {
            None
        } else if self.peek().is_sign("]") {
            Some(None)
        } else {
            Some(Some(self.positive()?))
        };
        let expected = if step.is_some() { "subquery selector" } else { "subquery or range, expected \":\" or" };
        if !self.takes_sign("]") {
            return Err(self.unexpected(&format!("{expected} \"]\"")));
        }
        let Parsed { expr, kind, at, is_bare } = parsed;
        let of = match (step, expr) {
            (Some(step), expr) => {
                if kind != Type::Vector {
                    let text = format!("subquery is only allowed on instant vector, got {kind} instead");
                    self.mistype(at.clone(), text);
                }
                let (written_step, step_ns) = step.unzip();
                let (when, modifiers) = Default::default();
                RangeOf::Subquery(Subquery { expr, step_ns, when, written_step, modifiers })
            }
            (None, Expr::Select(select)) if is_bare => {
                let text = match &select.written.modifiers {
                    Modifiers { offset: Some(_), .. } => "no offset modifiers allowed before range",
                    Modifiers { at: Some(_), .. } => "no @ modifiers allowed before range",
                    _ => "",
                };
                if !text.is_empty() {
                    return Err(self.wrong(open.at..self.end(), text));
                }
                RangeOf::Select(select)
            }
            (None, _) => return Err(self.wrong(open.at..self.end(), "ranges only allowed for vector selectors")),
        };
        let expr = Expr::Range(Box::new(Range { of, range_ns, written }));
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
