// SPDX-License-Identifier: Apache-2.0
//! `eq`, `lt` and the like. Go compares only what is of one kind: an integer is no float.

use std::cmp::Ordering;
use std::rc::Rc;

use super::value::{Ns, Value};

/// What can be compared.
enum Basic<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
}

fn basic(value: &Value) -> Option<Basic<'_>> {
    Some(match value {
        Value::Bool(value) => Basic::Bool(*value),
        Value::Int(value) | Value::Named(value, _) | Value::Duration(Ns { ns: value, is_pointer: false }) => {
            Basic::Int(*value)
        }
        Value::Float(value) => Basic::Float(*value),
        Value::Text(text) | Value::Html(text) => Basic::Text(text),
        _ => return None,
    })
}

fn incompatible<T>(one: &Value, other: &Value) -> Result<T, String> {
    Err(format!("incompatible types for comparison: {} and {}", one.kind(), other.kind()))
}

/// Whether it is one of these.
pub(super) fn equal(one: &Value, others: &[Value]) -> Result<bool, String> {
    if others.is_empty() {
        return Err("missing argument for comparison".to_owned());
    }
    for other in others {
        let is_equal = match (basic(one), basic(other)) {
            (Some(Basic::Bool(one)), Some(Basic::Bool(other))) => one == other,
            (Some(Basic::Int(one)), Some(Basic::Int(other))) => one == other,
            #[allow(clippy::float_cmp)] // as asked
            (Some(Basic::Float(one)), Some(Basic::Float(other))) => one == other,
            (Some(Basic::Text(one)), Some(Basic::Text(other))) => one == other,
            _ => match (one, other) {
                (Value::Nil, Value::Nil) => true,
                (Value::Nil, _) | (_, Value::Nil) => false,
                // Pointers are compared, not what they point to.
                (Value::Sample(one), Value::Sample(other)) => Rc::ptr_eq(one, other),
                (Value::Time(one), Value::Time(other)) => !one.is_pointer && !other.is_pointer && one.ns == other.ns,
                (Value::Duration(_), Value::Duration(_)) => false,
                _ => return incompatible(one, other),
            },
        };
        if is_equal {
            return Ok(true);
        }
    }
    Ok(false)
}

fn order(one: &Value, other: &Value) -> Result<Option<Ordering>, String> {
    match (basic(one), basic(other)) {
        (Some(Basic::Int(one)), Some(Basic::Int(other))) => Ok(Some(one.cmp(&other))),
        (Some(Basic::Float(one)), Some(Basic::Float(other))) => Ok(one.partial_cmp(&other)),
        (Some(Basic::Text(one)), Some(Basic::Text(other))) => Ok(Some(one.cmp(other))),
        _ => incompatible(one, other),
    }
}

pub(super) fn less(one: &Value, other: &Value) -> Result<bool, String> {
    order(one, other).map(|order| order == Some(Ordering::Less))
}

pub(super) fn less_or_equal(one: &Value, other: &Value) -> Result<bool, String> {
    order(one, other).map(|order| matches!(order, Some(Ordering::Less | Ordering::Equal)))
}
