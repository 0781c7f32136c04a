// SPDX-License-Identifier: Apache-2.0
//! Methods of times, durations and their names.

use super::time::{Calendar, DAY_NS, SECOND_NS, duration, format, shown};
use super::value::{Ns, Value};

/// A method of a time or a duration. `None`: there is none of this name that takes these.
pub(super) fn method(value: &Value, name: &str, arguments: &[Value]) -> Option<Value> {
    match value {
        Value::Time(Ns { ns, .. }) => time_method(*ns, name, arguments),
        Value::Duration(Ns { ns, .. }) => duration_method(*ns, name, arguments),
        Value::Named(_, text) if name == "String" && arguments.is_empty() => Some(Value::text(text)),
        _ => None,
    }
}

/// An integer in a template is a duration, too.
fn duration_ns(value: &Value) -> Option<i64> {
    match value {
        Value::Duration(Ns { ns, .. }) | Value::Int(ns) => Some(*ns),
        _ => None,
    }
}

/// What methods give is no pointer.
fn plain(ns: i64) -> Ns {
    Ns { ns, is_pointer: false }
}

fn time_method(ns: i64, name: &str, arguments: &[Value]) -> Option<Value> {
    let time = Calendar::new(ns);
    Some(match (name, arguments) {
        ("Format", [Value::Text(layout)]) => Value::text(format(ns, layout)),
        ("String", []) => Value::text(shown(ns)),
        ("UTC", []) => Value::Time(plain(ns)),
        ("Unix", []) => Value::Int(ns.div_euclid(SECOND_NS)),
        ("UnixMilli", []) => Value::Int(ns.div_euclid(1_000_000)),
        ("UnixMicro", []) => Value::Int(ns.div_euclid(1_000)),
        ("UnixNano", []) => Value::Int(ns),
        ("Year", []) => Value::Int(time.year),
        ("Month", []) => Value::Named(time.month, time.month()),
        ("Day", []) => Value::Int(time.day),
        ("YearDay", []) => Value::Int(time.year_day),
        ("Weekday", []) => Value::Named(time.week_day, time.week_day()),
        ("Hour", []) => Value::Int(time.hour),
        ("Minute", []) => Value::Int(time.minute),
        ("Second", []) => Value::Int(time.second),
        ("Nanosecond", []) => Value::Int(time.ns),
        ("IsZero", []) => Value::Bool(false),
        ("Add", [by]) => Value::Time(plain(ns.checked_add(duration_ns(by)?)?)),
        ("Truncate", [to]) => Value::Time(plain(truncated(ns, duration_ns(to)?))),
        ("Sub", [Value::Time(from)]) => Value::Duration(plain(ns.saturating_sub(from.ns))),
        ("Before", [Value::Time(other)]) => Value::Bool(ns < other.ns),
        ("After", [Value::Time(other)]) => Value::Bool(ns > other.ns),
        ("Equal", [Value::Time(other)]) => Value::Bool(ns == other.ns),
        _ => return None,
    })
}

/// From the year 1 on, as Go counts.
fn truncated(ns: i64, to_ns: i64) -> i64 {
    if to_ns <= 0 {
        return ns;
    }
    let since = i128::from(ns) + 719_162 * i128::from(DAY_NS);
    ns - i64::try_from(since % i128::from(to_ns)).unwrap_or(0)
}

fn duration_method(ns: i64, name: &str, arguments: &[Value]) -> Option<Value> {
    #[allow(clippy::cast_precision_loss)] // as in Go
    let parts = |unit: i64| (ns / unit) as f64 + (ns % unit) as f64 / unit as f64;
    Some(match (name, arguments) {
        ("String", []) => Value::text(duration(ns)),
        ("Hours", []) => Value::Float(parts(3_600 * SECOND_NS)),
        ("Minutes", []) => Value::Float(parts(60 * SECOND_NS)),
        ("Seconds", []) => Value::Float(parts(SECOND_NS)),
        ("Milliseconds", []) => Value::Int(ns / 1_000_000),
        ("Microseconds", []) => Value::Int(ns / 1_000),
        ("Nanoseconds", []) => Value::Int(ns),
        ("Abs", []) => Value::Duration(plain(ns.saturating_abs())),
        ("Truncate" | "Round", [to]) if duration_ns(to)? <= 0 => Value::Duration(plain(ns)),
        ("Truncate", [to]) => Value::Duration(plain(ns - ns % duration_ns(to)?)),
        ("Round", [to]) => {
            let (ns, to) = (i128::from(ns), i128::from(duration_ns(to)?));
            let half = if ns < 0 { -to } else { to };
            // Halves away from 0.
            let rounded = (2 * ns + half) / (2 * to) * to;
            Value::Duration(plain(i64::try_from(rounded).ok()?))
        }
        _ => return None,
    })
}
