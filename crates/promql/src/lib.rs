// SPDX-License-Identifier: Apache-2.0
//! PromQL as Prometheus 3.16 has it, over columns.
//!
//! A query is parsed once for the times it is asked for ([`Query::parse`]) and run against whoever has the samples
//! ([`source::SeriesSource`]). Every node of it gives a matrix: a column of f64 a series, one value a step
//! ([`value::Series`]). Ranges are read chunk by chunk and slide: what a query holds is the windows of one series and
//! the columns of its nodes, never all samples.
//!
//! - Times are ns since 1970 as i64; steps, ranges and offsets may be finer than milliseconds.
//! - An instant query is one step: the same code, so both agree.
//! - Everything is bounded ([`limits::Limits`]), and a query that is cancelled ends within milliseconds.
//! - Native histograms ([`histogram`]) are a second column beside [`value::Series::values`], only where there are any.
//!
//! No I/O. A query runs on the thread that asks, and on [`Helpers`] where [`Options`] has some.
#![forbid(unsafe_code)]

mod error;
mod eval;
mod expr;
pub mod features;
mod helpers;
pub mod histogram;
mod kahan;
pub mod labels;
pub mod limits;
pub mod notes;
mod operator;
mod options;
mod parse;
mod pattern;
mod print;
mod query;
pub mod source;
mod times;
pub mod value;
mod written;

pub use error::QueryError;
pub use helpers::Helpers;
pub use options::Options;
pub use parse::{ParseError, duration_ns, unquoted};
pub use pattern::translated as rust_pattern;
pub use print::{formatted, tree};
pub use query::{Answer, Query};
pub use times::Times;
