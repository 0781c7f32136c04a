// SPDX-License-Identifier: Apache-2.0
//! What decoding works by and what it gives: the [`Plan`] of a schema, and [`Sample`]s with their rows and labels.
//!
//! [`Plan::decode`] and [`Checked::decode`](crate::Checked::decode) give the samples. Who knows the names already and
//! wants words only takes [`crate::compiled`].

use crate::compiled::Compiled;
use crate::histogram::Shape;
use crate::number::exported;
use crate::schema::{Field, Group, Schema};
use crate::table::{self, KeyPart};
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// A stored value, not yet scaled.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Unsigned.
    U64(u64),
    /// Signed.
    I64(i64),
    /// Floating.
    F64(f64),
    /// Of an info.
    Text(String),
    /// Buckets, then their shape and the sum.
    Histogram {
        /// Counts per bucket.
        buckets: Vec<u64>,
        /// Shape of the buckets.
        shape: Shape,
        /// Sum of the recorded values.
        sum: u64,
    },
}

impl Value {
    /// The exported number; 1 for a text, the count for a histogram.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // Prometheus' values are doubles
    pub fn scaled(&self, scale: f64) -> f64 {
        match self {
            Self::U64(n) => exported(*n as f64, scale),
            Self::I64(n) => exported(*n as f64, scale),
            Self::F64(n) => exported(*n, scale),
            Self::Text(_) => 1.0,
            Self::Histogram { buckets, .. } => buckets.iter().fold(0u64, |a, b| a.wrapping_add(*b)) as f64,
        }
    }
}

/// The row that a value stands in.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    /// Number of the row in its table.
    pub number: usize,
    /// Row generation: (number, generation) names one entity for ever.
    pub generation: u32,
    parts: &'a [KeyPart],
    key: &'a [u64],
}

impl<'a> RowRef<'a> {
    /// A row of a block whose rows are numbered from `first` on.
    pub(crate) fn new(group: &'a Group, first: usize, row: &table::Row<'a>) -> Self {
        Self { number: first + row.index, generation: row.generation, parts: &group.key, key: row.key }
    }

    /// Its key, as it stands in the table.
    #[must_use]
    pub fn key(&self) -> &'a [u64] {
        self.key
    }

    /// Labels from its key.
    pub fn labels(&self) -> impl Iterator<Item = (String, String)> + use<'a> {
        let mut rest = self.key;
        self.parts.iter().map(move |part| {
            let (words, behind) = rest.split_at(part.words());
            rest = behind;
            (part.name.clone(), part.label(words))
        })
    }
}

/// One value of one frame.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    /// What it is.
    pub field: &'a Field,
    /// Group that it stands in.
    pub group: &'a Group,
    /// Number in the field's array, 0 without.
    pub element: u32,
    /// Its row, in tables.
    pub row: Option<RowRef<'a>>,
    /// Acquisition time, CLOCK_BOOTTIME ns; `None` where the time of the read is the time of the value.
    pub time_ns: Option<u64>,
    /// The value.
    pub value: Value,
}

impl Sample<'_> {
    /// Labels from row, field and array (the region's own come from its entry), in that order.
    #[must_use]
    pub fn labels(&self) -> Vec<(String, String)> {
        let mut labels = self.row_labels();
        labels.extend(self.own_labels());
        labels
    }

    /// Those of its row.
    #[must_use]
    pub fn row_labels(&self) -> Vec<(String, String)> {
        self.row.iter().flat_map(RowRef::labels).collect()
    }

    /// Those of its field and its place in an array.
    #[must_use]
    pub fn own_labels(&self) -> Vec<(String, String)> {
        let mut labels: Vec<(String, String)> = self.field.labels.clone().into_iter().collect();
        if let Some(array) = &self.field.array {
            labels.push((array.label.clone(), array.value(self.element)));
        }
        labels
    }

    /// The exported number.
    #[must_use]
    pub fn scaled(&self) -> f64 {
        self.value.scaled(self.field.scale)
    }
}

/// A schema with the decoding of its regions. Nothing of it is of a host, so all who read regions of the schema share one.
#[derive(Clone, Debug)]
pub struct Plan {
    schema: Schema,
    compiled: Compiled,
    derived: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Plan {
    /// For a schema that passed [`Schema::check`].
    ///
    /// # Panics
    /// If it has not, and makes no sense.
    #[must_use]
    pub fn new(schema: Schema) -> Self {
        let compiled = Compiled::new(&schema);
        Self { schema, compiled, derived: OnceLock::new() }
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Which words become which columns.
    #[must_use]
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// What others work out of the plan, once for all who share it. There is room for what was made first; of another
    /// type it is made each time.
    pub fn derived<T: Any + Send + Sync>(&self, make: impl Fn(&Self) -> T) -> Arc<T> {
        let shared = self.derived.get_or_init(|| Arc::new(make(self))).clone();
        shared.downcast().unwrap_or_else(|_| Arc::new(make(self)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_worked_out_of_a_plan_is_made_once() {
        let json = r#"{"name":"t","groups":[{"kind":"plain","blocks":1,"fields":[
            {"name":"a","metric":"gauge","type":"u64"}]}]}"#;
        let plan = Plan::new(Schema::parse(json).unwrap());
        let name = |plan: &Plan| plan.schema().name.clone();
        let one = plan.derived(name);
        assert_eq!((*one).as_str(), "t");
        assert!(Arc::ptr_eq(&one, &plan.derived(name)) && Arc::ptr_eq(&one, &plan.clone().derived(name)));
        assert_eq!(*plan.derived(|plan| plan.schema().blocks()), 1, "of another type, too");
    }
}
