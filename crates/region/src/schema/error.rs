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
    #[error("`{}` is not a label name: use [a-zA-Z_][a-zA-Z0-9_]*", .0.escape_debug())]
    LabelName(String),
    #[error("`{}`: label names that begin with __ are reserved", .0.escape_debug())]
    ReservedLabel(String),
    #[error("a label value needs at least one character and no NUL")]
    LabelValue,
    #[error("a group needs at least one block")]
    NoBlocks,
    #[error("a schema needs at least one group")]
    Empty,
    #[error("`key` belongs to tables, which need one")]
    Key,
    #[error("key part `{}`: `bytes` is for text only, and a multiple of 8 of at least 8", .0.escape_debug())]
    KeyBytes(String),
    #[error(
        "`twin_of` must name a computed group, of equal blocks and fields and without another twin; the twin is guarded"
    )]
    Twin,
    #[error("{metric} cannot be stored as {kind}")]
    Type { metric: &'static str, kind: String },
    #[error("narrow types are for foreign groups; use u64, i64 or f64 here")]
    Narrow,
    #[error("`bytes` is for text only, at least 8 and a multiple of 8")]
    TextBytes,
    #[error("`histogram` is required for histograms and for nothing else, with 0 <= grouping_power < max_power <= 64")]
    Histogram,
    #[error(
        "a sum is of an array's whole numbers (u64; of gauges i64, too), and has another name than every field that is shown"
    )]
    Sum,
    #[error("parts of the sum `{}` differ in metric, type, unit, scale, array, key or `handed_over`, or are one element", .0.escape_debug())]
    Parts(String),
    #[error("`scale` must be finite and more than 0")]
    Scale,
    #[error("an array needs at least one element")]
    NoElements,
    #[error("`values` must be as many as the array has elements, all different")]
    Array,
    #[error("reaches {end} where its group has room for {room}")]
    Outside { end: u64, room: usize },
    #[error("reaches value slot {end} of a row that has room for {room}: a row has at most 124 words")]
    RowTooLong { end: u64, room: usize },
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

impl Rule {
    /// Code of docs/format/schema.md, "Refused"; a limit's is its name, and `bad_json` stands for everything that the JSON reader refuses.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Json(_) => "bad_json",
            Self::Limit { what, .. } => what,
            Self::MetricName(_) => "bad_metric_name",
            Self::LabelName(_) => "bad_label_name",
            Self::ReservedLabel(_) => "reserved_label",
            Self::LabelValue => "bad_label_value",
            Self::NoBlocks | Self::Empty | Self::NoElements => "empty",
            Self::Key => "bad_key",
            Self::KeyBytes(_) | Self::TextBytes => "bad_bytes",
            Self::Twin => "bad_twin",
            Self::Type { .. } | Self::Narrow => "bad_type",
            Self::Histogram => "bad_histogram",
            Self::Sum | Self::Parts(_) => "bad_sum",
            Self::Scale => "bad_scale",
            Self::Array => "bad_array",
            Self::Outside { .. } => "out_of_group",
            Self::RowTooLong { .. } => "row_too_long",
            Self::Misaligned(_) => "misaligned",
            Self::Spans => "spans_blocks",
            Self::Overlap(_) => "overlap",
            Self::DuplicateSeries => "duplicate_series",
            Self::DuplicateLabel(_) => "duplicate_label",
        }
    }
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
    /// [`Rule::code`], with a class name told from a metric name.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match (&self.place, &self.rule) {
            (Place::Schema, Rule::MetricName(_)) => "bad_class_name",
            (_, rule) => rule.code(),
        }
    }

    pub(crate) fn new(place: Place, rule: Rule) -> Self {
        Self { place, rule }
    }
}
