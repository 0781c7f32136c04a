// SPDX-License-Identifier: Apache-2.0
//! Cold files: what has been warm long enough, as Parquet, for our own queries and for everybody's SQL (docs/sql.md).
//!
//! A [`Writer`] is given the series of a window, one after the other, and makes one file of them. [`Cold`] has all
//! files of a directory, says which series are in them and reads samples back word for word. DuckDB, ClickHouse, Spark
//! and pandas read the same files.
//!
//! ```text
//! cold/20261124T100000Z-20261124T110000Z-0.parquet         samples, one a row
//! cold/20261124T100000Z-20261124T110000Z-0.index           where each series is (`index`); made again if missing
//! cold/gaps/20261124T100000Z-20261124T110000Z-0.parquet    times without samples, and why; only where there are some
//! ```
//!
//! | column | type | what |
//! |---|---|---|
//! | `time` | timestamp, ns, UTC | the reading's: one for what a host has acquired within 2 ms (`readings`) |
//! | `offset_ns` | i64 | how much later than that the value was acquired |
//! | `instance` | text | label `instance` |
//! | `metric` | text | name; of histograms `.._bucket` and `.._sum` |
//! | `labels` | text | all other labels, as a JSON object with sorted keys |
//! | `int_value`, `float_value` | i64, f64, or null | one of both is the stored number |
//! | `divisor`, `multiplier` | f64 | number / divisor * multiplier is the value, bit for bit ours: one of both is 1 |
//! | `type`, `unit` | text | counter, gauge, histogram, info; the unit, or nothing |
//! | `low`, `high` | f64, or null | of a histogram's bucket: the least and the largest value that it counts |
//! | `form` | text | how to make the stored word again |
//! | `word` | u64, or null | the stored word where the two numbers are not enough: 2^63 and more, numbers of texts |
//!
//! Times have no time zone in the schema, though they are UTC: DuckDB has nanoseconds only without.
//!
//! **Rows** stand in row groups of at most [`ROW_GROUP_ROWS`], in each sorted by metric, labels, instance, bucket and
//! time, so that all columns but the times and numbers are a few runs, and their statistics let readers leave row
//! groups out. In a row group series share what their times cost: it should have few hosts, so that there are many
//! series of each, and few parts, so that it has few metrics. So the series of some hosts, of 5,000 to 10,000 times
//! together, should be pushed part by part, then those of the next hosts.
//!
//! **Histograms.** Each bucket that ever counted something is as many rows as there are times, with what it counted by
//! itself, not with what all below it did: an empty bucket needs no row, and buckets of several hosts are summed up
//! without a thought. `x_sum` is always there.
//!
//! **Safety.** A file has another name until it is synced and whole; what a kill leaves of it is removed by
//! [`Cold::open`]. Pages have checksums in their Zstandard frames, the footer's is in the index. What is damaged is an
//! error, never a wrong sample.
//!
//! **Cost**, on a busy machine: 18 ns a value to write where a series has thousands of samples, 38 where it has 400; 4
//! to 6 to read. Bytes: docs/sql.md.

mod coding;
mod columns;
mod groups;
mod index;
pub(crate) mod look;
mod names;
mod page;
mod read;
mod readings;
mod source;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use onlooker_region::schema::Metric;
use onlooker_series::series::Form;
use parquet::errors::ParquetError;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor};

pub(crate) use groups::{Group, Samples as GroupSamples};
pub use index::Described;
pub(crate) use look::{is_name, paths};
pub use names::{Window, second, utc};
pub use read::{Cold, Opened, Samples};
pub use write::{GapData, SeriesData, Writer, Written};
pub(crate) use write::{Piece, Spot};

use crate::damage::{Damage, StoreError};

/// Most rows of a row group.
pub const ROW_GROUP_ROWS: usize = 1 << 19;
/// Most rows of a row group that we read: more would be memory that nobody has promised.
const MAX_ROWS: usize = 1 << 24;
/// Largest footer that we read.
const MAX_FOOTER_BYTES: u64 = 256 << 20;

const SAMPLES: &str = "message samples {
    required int64 time (TIMESTAMP(NANOS,false));
    required int64 offset_ns;
    required binary instance (STRING);
    required binary metric (STRING);
    required binary labels (STRING);
    optional int64 int_value;
    optional double float_value;
    required double divisor;
    required double multiplier;
    required binary type (STRING);
    required binary unit (STRING);
    optional double low;
    optional double high;
    required binary form (STRING);
    optional int64 word (INTEGER(64,false));
}";

const GAPS: &str = "message gaps {
    required binary instance (STRING);
    required binary region (STRING);
    required int64 from_time (TIMESTAMP(NANOS,false));
    required int64 to_time (TIMESTAMP(NANOS,false));
    required binary reason (STRING);
}";

/// Words that a series has here: an info, whose text is a label, has 1.
fn words(form: Form) -> usize {
    form.words().max(1)
}

fn schema(text: &str) -> SchemaDescPtr {
    Arc::new(SchemaDescriptor::new(Arc::new(parse_message_type(text).expect("a schema of ours"))))
}

static SAMPLES_SCHEMA: LazyLock<SchemaDescPtr> = LazyLock::new(|| schema(SAMPLES));
static GAPS_SCHEMA: LazyLock<SchemaDescPtr> = LazyLock::new(|| schema(GAPS));

/// Columns of samples, in the order of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Time,
    Offset,
    Instance,
    Metric,
    Labels,
    IntValue,
    FloatValue,
    Divisor,
    Multiplier,
    Type,
    Unit,
    Low,
    High,
    Form,
    Word,
}

const TYPES: [(Metric, &str); 4] =
    [(Metric::Counter, "counter"), (Metric::Gauge, "gauge"), (Metric::Histogram, "histogram"), (Metric::Info, "info")];

fn type_text(metric: Metric) -> &'static str {
    TYPES.iter().find(|(known, _)| *known == metric).map_or("gauge", |(_, text)| text)
}

fn type_of(text: &str) -> Result<Metric, Damage> {
    TYPES.iter().find(|(_, known)| *known == text).map(|(metric, _)| *metric).ok_or(Damage::Wrong("a type"))
}

fn damaged(path: &Path, damage: Damage) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), offset: 0, damage }
}

/// The library cannot write.
fn not_written(path: &Path) -> impl Fn(ParquetError) -> StoreError {
    let path = path.to_owned();
    move |error| StoreError::Io { operation: "write", path: path.clone(), source: std::io::Error::other(error) }
}
