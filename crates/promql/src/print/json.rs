// SPDX-License-Identifier: Apache-2.0
//! A tree as JSON, with the names that Prometheus has for its parts. Times are in milliseconds; finer ones have a fraction.

use serde_json::{Value, json};

use super::literal::{number, whole_ms};
use crate::eval::{Last, signature};
use crate::expr::{Aggregate, Binary, Call, Edges, Expr, Many, Matching, Range, RangeOf, Select, Subquery, Type};
use crate::labels::{Comparison, Matcher, NAME};
use crate::parse::{self, ParseError};
use crate::written::{Bound, Duration, Modifiers};

/// A query's tree, for who shows it.
///
/// # Errors
/// [`ParseError`].
pub fn tree(text: &str) -> Result<Value, ParseError> {
    Ok(expr(&parse::parse(text, None)?))
}

fn expr(of: &Expr) -> Value {
    match of {
        Expr::Number(literal) => json!({ "type": "numberLiteral", "val": text(literal.value) }),
        Expr::String(text) => json!({ "type": "stringLiteral", "val": text }),
        Expr::Select(select) => selector("vectorSelector", select),
        Expr::Range(range) => match &range.of {
            RangeOf::Select(select) => {
                let mut value = selector("matrixSelector", select);
                duration(&mut value, "range", Some(&range.written));
                value
            }
            RangeOf::Subquery(own) => subquery(range, own),
        },
        Expr::Negate(inner) => unary("-", inner),
        Expr::Plus(inner) => unary("+", inner),
        Expr::Parentheses(inner) => object("parenExpr", [("expr", expr(inner))]),
        Expr::Binary(own) => binary(own),
        Expr::Aggregate(own) => aggregation(own),
        Expr::Call(own) => call(own),
    }
}

/// Of parts that are moved: `json!` copies them, and so a tree as often as it is deep.
fn object<const N: usize>(kind: &str, parts: [(&str, Value); N]) -> Value {
    let parts = [("type", kind.into())].into_iter().chain(parts);
    Value::Object(parts.map(|(name, value)| (name.to_owned(), value)).collect())
}

fn unary(sign: &str, inner: &Expr) -> Value {
    object("unaryExpr", [("op", sign.into()), ("expr", expr(inner))])
}

fn text(value: f64) -> String {
    let mut out = String::new();
    number(&mut out, value);
    out
}

/// An instant one; a range one has its range beside.
fn selector(kind: &str, select: &Select) -> Value {
    let written = &select.written;
    let named = |name: &String| Matcher { name: NAME.into(), comparison: Comparison::Equal, value: name.clone() };
    let matchers = written.matchers.iter().cloned().chain(written.name.as_ref().map(named));
    let matchers = matchers
        .map(|Matcher { name, comparison, value }| json!({ "name": name, "value": value, "type": comparison.text() }));
    let parts = [
        ("name", written.name.as_deref().unwrap_or_default().into()),
        ("matchers", matchers.collect()),
        ("anchored", (select.edges == Edges::Anchored).into()),
        ("smoothed", (select.edges == Edges::Smoothed).into()),
    ];
    let mut value = object(kind, parts);
    modifiers(&mut value, &written.modifiers);
    value
}

fn subquery(range: &Range, subquery: &Subquery) -> Value {
    let mut value = object("subquery", [("expr", expr(&subquery.expr))]);
    duration(&mut value, "range", Some(&range.written));
    duration(&mut value, "step", subquery.written_step.as_ref());
    modifiers(&mut value, &subquery.modifiers);
    value
}

fn modifiers(value: &mut Value, modifiers: &Modifiers) {
    duration(value, "offset", modifiers.offset.as_ref());
    (value["timestamp"], value["startOrEnd"]) = match modifiers.at {
        None => (Value::Null, Value::Null),
        Some(Bound::Seconds(seconds)) => (ms(seconds), Value::Null),
        Some(Bound::Start) => (Value::Null, "start".into()),
        Some(Bound::End) => (Value::Null, "end".into()),
    };
}

/// A literal by its name, one that is calculated by its name and `Expr`; 0 and null otherwise.
fn duration(value: &mut Value, name: &str, written: Option<&Duration>) {
    (value[name], value[format!("{name}Expr")]) = match written {
        None => (0.into(), Value::Null),
        Some(Duration::Number(literal)) => (ms(literal.value), Value::Null),
        Some(calculated) => (0.into(), part_of_duration(calculated)),
    };
}

fn ms(seconds: f64) -> Value {
    whole_ms(seconds).map_or_else(|| (seconds * 1_000.0).into(), Value::from)
}

fn part_of_duration(written: &Duration) -> Value {
    match written {
        Duration::Number(literal) => {
            json!({ "type": "numberLiteral", "val": text(literal.value), "duration": literal.has_units })
        }
        Duration::Calculated(own) => {
            let side = |side: &Option<Duration>| side.as_ref().map_or(Value::Null, part_of_duration);
            let parts = [
                ("op", own.how.text().into()),
                ("lhs", side(&own.left)),
                ("rhs", side(&own.right)),
                ("wrapped", own.in_parentheses.into()),
            ];
            object("durationExpr", parts)
        }
    }
}

fn binary(binary: &Binary) -> Value {
    let parts = [
        ("op", binary.operator.text().into()),
        ("lhs", expr(&binary.left)),
        ("rhs", expr(&binary.right)),
        ("matching", if binary.of_vectors { matching(binary) } else { Value::Null }),
        ("bool", binary.to_bool.into()),
    ];
    object("binaryExpr", parts)
}

fn matching(binary: &Binary) -> Value {
    let Matching { on, labels, many, include } = &binary.matching;
    let card = match many {
        Many::Neither if binary.operator.is_set() => "many-to-many",
        Many::Neither => "one-to-one",
        Many::Left => "many-to-one",
        Many::Right => "one-to-many",
    };
    json!({ "card": card, "labels": labels, "on": on, "include": include, "fillValues": { "lhs": null, "rhs": null } })
}

fn aggregation(aggregate: &Aggregate) -> Value {
    let parts = [
        ("op", aggregate.how.text().into()),
        ("expr", expr(&aggregate.expr)),
        ("param", aggregate.param.as_ref().map_or(Value::Null, expr)),
        ("grouping", aggregate.labels.clone().into()),
        ("without", aggregate.without.into()),
    ];
    object("aggregation", parts)
}

fn call(call: &Call) -> Value {
    let function = signature(&call.name).map_or(Value::Null, |signature| {
        let args: Vec<_> = signature.args.iter().copied().map(kind).collect();
        let variadic = match signature.last {
            Last::Once => 0,
            Last::Optional => 1,
            Last::Any => -1,
        };
        json!({ "name": call.name, "argTypes": args, "variadic": variadic, "returnType": kind(signature.returns) })
    });
    object("call", [("func", function), ("args", call.args.iter().map(expr).collect())])
}

fn kind(kind: Type) -> &'static str {
    match kind {
        Type::Scalar => "scalar",
        Type::Vector => "vector",
        Type::Range => "matrix",
        Type::String => "string",
    }
}
