// SPDX-License-Identifier: Apache-2.0
//! Text to [`Expr`], by the crate `promql-parser`, which nothing but this file names.
//!
//! What its grammar lacks of Prometheus 3.16's:
//! - durations that are calculated (`[2 * step()]`, `offset (1h - 5m)`), of 0 or finer than milliseconds, and
//!   `anchored` and `smoothed`: [`scan`] writes them in words that it knows before it sees them;
//! - trimming of native histograms (`</`, `>/`): refused, as are native histograms as a whole;
//! - positions: neither errors nor notes have any;
//! - names in UTF-8 without quotes, metrics named `anchored`, `smoothed` or `step`: refused by it.
//!
//! What it has beyond it is refused here: alternatives of matchers (`{a="b" or c="d"}`). Experimental functions,
//! aggregations and `fill` modifiers are off in Prometheus unless asked for, and are refused, too.

mod duration;
mod scan;

use std::time::{Duration, SystemTime};

use promql_parser::label::{MatchOp, Matcher as TheirMatcher, Matchers};
use promql_parser::parser::token::{self, TokenId};
use promql_parser::parser::{self, AtModifier, BinModifier, Expr as Theirs, LabelModifier, Offset};
use promql_parser::parser::{VectorMatchCardinality, VectorSelector};

use crate::eval::is_function;
use crate::expr::{
    Aggregate, Aggregation, Binary, Call, Edges, Expr, Many, Matching, Operator, Range, RangeOf, Select, When,
};
use crate::labels::{Comparison, Matcher, NAME};
use crate::query::Times;

/// Why a text is no query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is no PromQL.
    #[error("parse error: {0}")]
    Wrong(String),
    /// It is, but this version of Onlooker cannot do it.
    #[error("{0} are not supported")]
    Unsupported(String),
    /// It has more operators, brackets or bytes than one query may have.
    #[error("the query's text has more than {most} {what}")]
    Large {
        /// Of what.
        what: &'static str,
        /// What is allowed.
        most: usize,
    },
}

impl ParseError {
    pub(crate) fn range_of(expr: &Expr) -> Self {
        let what = if matches!(expr, Expr::String(_)) { "string" } else { "range vector" };
        wrong(format!("invalid expression type {what:?} for range query, must be Scalar or instant Vector"))
    }
}

pub(super) fn wrong(text: impl Into<String>) -> ParseError {
    ParseError::Wrong(text.into())
}

fn unsupported<T>(what: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError::Unsupported(what.into()))
}

pub(crate) fn parse(text: &str, times: Times) -> Result<Expr, ParseError> {
    let text = scan::rewrite(text, times)?;
    let theirs = parser::parse(&text).map_err(wrong)?;
    Converter { times }.expr(theirs)
}

struct Converter {
    times: Times,
}

impl Converter {
    fn expr(&self, theirs: Theirs) -> Result<Expr, ParseError> {
        Ok(match theirs {
            Theirs::NumberLiteral(number) => Expr::Number(number.val),
            Theirs::StringLiteral(string) => Expr::String(string.val),
            Theirs::Paren(paren) => self.expr(*paren.expr)?,
            Theirs::Unary(unary) => match self.expr(*unary.expr)? {
                Expr::Number(number) => Expr::Number(-number),
                inner => Expr::Negate(Box::new(inner)),
            },
            Theirs::VectorSelector(selector) => Expr::Select(self.select(selector)?),
            Theirs::MatrixSelector(matrix) => {
                let range_ns = nanoseconds(matrix.range)?;
                Expr::Range(Box::new(Range { of: RangeOf::Select(self.select(matrix.vs)?), range_ns }))
            }
            Theirs::Subquery(subquery) => {
                let when = self.when(subquery.at, subquery.offset)?;
                let step_ns = subquery.step.map(nanoseconds).transpose()?;
                let of = RangeOf::Subquery { expr: self.expr(*subquery.expr)?, step_ns, when };
                Expr::Range(Box::new(Range { of, range_ns: nanoseconds(subquery.range)? }))
            }
            Theirs::Binary(binary) => self.binary(binary)?,
            Theirs::Aggregate(aggregate) => self.aggregate(aggregate)?,
            Theirs::Call(call) => {
                let name = call.func.name.to_owned();
                if !is_function(&name) {
                    return unsupported(match name.strip_prefix("histogram_") {
                        Some(_) => format!("native histograms, which {name}() is for,"),
                        None => format!("experimental functions, such as {name}(),"),
                    });
                }
                let args: Result<Vec<Expr>, ParseError> =
                    call.args.args.into_iter().map(|arg| self.expr(*arg)).collect();
                Expr::Call(Call { name, args: args? })
            }
            Theirs::Extension(_) => return unsupported("extensions"),
        })
    }

    fn select(&self, selector: VectorSelector) -> Result<Select, ParseError> {
        let Matchers { matchers, or_matchers } = selector.matchers;
        if !or_matchers.is_empty() {
            return unsupported("alternatives of matchers (`or` in braces)");
        }
        let mut edges = Edges::Plain;
        let name = selector.name.map(|value| Matcher { name: NAME.into(), comparison: Comparison::Equal, value });
        let mut ours: Vec<Matcher> = Vec::new();
        for matcher in matchers {
            match scan::edges(&matcher.name) {
                Some(own) if edges != Edges::Plain && edges != own => {
                    return Err(wrong("anchored and smoothed modifiers cannot be used together"));
                }
                Some(own) => edges = own,
                None => ours.push(convert_matcher(matcher)),
            }
        }
        ours.extend(name);
        Ok(Select { matchers: ours, when: self.when(selector.at, selector.offset)?, edges })
    }

    fn when(&self, at: Option<AtModifier>, offset: Option<Offset>) -> Result<When, ParseError> {
        let at_ns = match at {
            None => None,
            Some(AtModifier::Start) => Some(self.times.start_ns),
            Some(AtModifier::End) => Some(self.times.end_ns),
            Some(AtModifier::At(time)) => Some(since_1970(time)?),
        };
        let offset_ns = match offset {
            None => 0,
            Some(Offset::Pos(offset)) => nanoseconds(offset)?,
            Some(Offset::Neg(offset)) => -nanoseconds(offset)?,
        };
        Ok(When { at_ns, offset_ns })
    }

    fn binary(&self, binary: parser::BinaryExpr) -> Result<Expr, ParseError> {
        let modifier = binary.modifier.unwrap_or_default();
        let BinModifier { card, matching, return_bool, fill_values } = modifier;
        if fill_values.lhs.is_some() || fill_values.rhs.is_some() {
            return unsupported("the experimental fill modifiers");
        }
        let (many, include) = match card {
            VectorMatchCardinality::ManyToOne(include) => (Many::Left, include.labels),
            VectorMatchCardinality::OneToMany(include) => (Many::Right, include.labels),
            VectorMatchCardinality::OneToOne | VectorMatchCardinality::ManyToMany => (Many::Neither, Vec::new()),
        };
        let on = matches!(matching, Some(LabelModifier::Include(_)));
        let labels = matching.map(names).unwrap_or_default();
        let operator = operator(binary.op.id()).ok_or_else(|| wrong(format!("no operator: {}", binary.op)))?;
        Ok(Expr::Binary(Box::new(Binary {
            operator,
            left: self.expr(*binary.lhs)?,
            right: self.expr(*binary.rhs)?,
            matching: Matching { on, labels, many, include },
            to_bool: return_bool,
        })))
    }

    fn aggregate(&self, aggregate: parser::AggregateExpr) -> Result<Expr, ParseError> {
        let how = match aggregate.op.id() {
            token::T_SUM => Aggregation::Sum,
            token::T_AVG => Aggregation::Avg,
            token::T_MIN => Aggregation::Min,
            token::T_MAX => Aggregation::Max,
            token::T_COUNT => Aggregation::Count,
            token::T_GROUP => Aggregation::Group,
            token::T_STDDEV => Aggregation::Stddev,
            token::T_STDVAR => Aggregation::Stdvar,
            token::T_QUANTILE => Aggregation::Quantile,
            token::T_TOPK => Aggregation::TopK,
            token::T_BOTTOMK => Aggregation::BottomK,
            token::T_COUNT_VALUES => Aggregation::CountValues,
            _ => return unsupported(format!("experimental aggregations, such as {},", aggregate.op)),
        };
        let param = aggregate.param.map(|param| self.expr(*param)).transpose()?;
        let without = matches!(aggregate.modifier, Some(LabelModifier::Exclude(_)));
        let labels = aggregate.modifier.map(names).unwrap_or_default();
        Ok(Expr::Aggregate(Box::new(Aggregate { how, expr: self.expr(*aggregate.expr)?, param, without, labels })))
    }
}

fn names(modifier: LabelModifier) -> Vec<String> {
    match modifier {
        LabelModifier::Include(labels) | LabelModifier::Exclude(labels) => labels.labels,
    }
}

fn convert_matcher(theirs: TheirMatcher) -> Matcher {
    let comparison = match theirs.op {
        MatchOp::Equal => Comparison::Equal,
        MatchOp::NotEqual => Comparison::NotEqual,
        MatchOp::Re(_) => Comparison::Regex,
        MatchOp::NotRe(_) => Comparison::NotRegex,
    };
    Matcher { name: theirs.name, comparison, value: theirs.value }
}

fn operator(id: TokenId) -> Option<Operator> {
    Some(match id {
        token::T_ADD => Operator::Add,
        token::T_SUB => Operator::Subtract,
        token::T_MUL => Operator::Multiply,
        token::T_DIV => Operator::Divide,
        token::T_MOD => Operator::Modulo,
        token::T_POW => Operator::Power,
        token::T_ATAN2 => Operator::Atan2,
        token::T_EQLC => Operator::Equal,
        token::T_NEQ => Operator::NotEqual,
        token::T_GTR => Operator::Greater,
        token::T_LSS => Operator::Less,
        token::T_GTE => Operator::GreaterOrEqual,
        token::T_LTE => Operator::LessOrEqual,
        token::T_LAND => Operator::And,
        token::T_LOR => Operator::Or,
        token::T_LUNLESS => Operator::Unless,
        _ => return None,
    })
}

fn nanoseconds(duration: Duration) -> Result<i64, ParseError> {
    i64::try_from(duration.as_nanos()).map_err(|_| wrong("duration out of range"))
}

fn since_1970(time: SystemTime) -> Result<i64, ParseError> {
    let outside = || wrong("timestamp out of bounds for @ modifier");
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).map_err(|_| outside()),
        Err(before) => i64::try_from(before.duration().as_nanos()).map(|ns| -ns).map_err(|_| outside()),
    }
}

#[cfg(test)]
mod tests;
