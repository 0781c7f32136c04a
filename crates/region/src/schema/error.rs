// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a schema, and where.

use std::fmt;

/// The part of a schema that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The whole.
    Schema,
    /// A group, by its number.
    Group(usize),
    /// A field: number of its group, its name.
    Field(usize, String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Schema => write!(f, "schema"),
            Self::Group(group) => write!(f, "group {group}"),
            Self::Field(group, name) => write!(f, "group {group}, field `{}`", name.escape_debug()),
        }
    }
}

/// The rule that is broken (docs/format/schema.md).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages are the documentation
pub enum Rule {
    #[error("not a schema: {0}")]
    Json(String),
    #[error("{got} exceeds {what} = {limit}")]
    Limit { what: &'static str, limit: usize, got: usize },
    #[error("`{}` is not a metric name: use [a-zA-Z_:][a-zA-Z0-9_:]*", .0.escape_debug())]
    MetricName(String),
    #[error("`{}` is not a label name: use [a-zA-Z_][a-zA-Z0-9_]*, not beginning with __", .0.escape_debug())]
    LabelName(String),
    #[error("text contains NUL")]
    Nul,
    #[error("a group needs at least one block")]
    NoBlocks,
    #[error("a schema needs at least one group, a group at least one field")]
    Empty,
    #[error("`key` belongs to tables, which need one")]
    Key,
    #[error("key part `{}`: `bytes` is for text only, and a multiple of 8 of at least 8", .0.escape_debug())]
    KeyBytes(String),
    #[error("`twin_of` must name a computed group; only published groups are twins")]
    Twin,
    #[error("{metric} cannot be stored as {kind}")]
    Type { metric: &'static str, kind: String },
    #[error("narrow types are for foreign groups; use u64, i64 or f64 here")]
    Narrow,
    #[error("`bytes` is for text only, at least 8 and a multiple of 8")]
    TextBytes,
    #[error(
        "`histogram` is required for histograms and for nothing else, with 0 <= grouping_power < max_power <= 64 and at most 4096 buckets"
    )]
    Histogram,
    #[error("`scale` must be a finite number other than 0")]
    Scale,
    #[error(
        "an array needs count and stride of at least 1, a stride of at least one element's size, and as many `values` as elements or none, all different"
    )]
    Array,
    #[error("reaches {end} where its group has room for {room}")]
    Outside { end: u64, room: usize },
    #[error("must be aligned to its width of {0} bytes")]
    Misaligned(u32),
    #[error("spans two guarded blocks, which are not consistent with each other")]
    Spans,
    #[error("overlaps field `{}`", .0.escape_debug())]
    Overlap(String),
    #[error("the same series (name and labels) as another field")]
    DuplicateSeries,
    #[error("label `{}` is given twice", .0.escape_debug())]
    DuplicateLabel(String),
}

/// A refused schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {rule}")]
pub struct SchemaError {
    /// Where.
    pub place: Place,
    /// What.
    pub rule: Rule,
}

impl SchemaError {
    pub(crate) fn new(place: Place, rule: Rule) -> Self {
        Self { place, rule }
    }
}
