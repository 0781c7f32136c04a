// SPDX-License-Identifier: Apache-2.0
//! Describing a region: fields in, schema and places out.
//!
//! The plain group (counters, gauges, arrays, histograms) comes first, then each guarded group in a block of its own, then the tables. While a region is
//! built a metric is known by its [`Token`]; once it is open, [`Region::get`] turns tokens into handles.

use crate::guarded::{Fields, Guarded};
use crate::histogram::Histogram;
use crate::metric::Metric;
use crate::open::{Region, Token, unique};
use crate::placement::{Place, PlaceError};
use crate::plain::plain_word;
use crate::publish;
use crate::region::{Description, Inner, TableSpec};
use crate::sdk::SDK;
use crate::switch::{Class, Plan};
use crate::table::{Key, Rows};
use crate::words::{Counter, Gauge, Number, UpDown, Word};
use onlooker_region::histogram::Shape;
use onlooker_region::limits::{
    BLOCK_BYTES, ENTRY_LABEL_BYTES, GUARDED_SLOTS, MAX_HISTOGRAM_BUCKETS, MAX_LABEL_VALUE_BYTES, MAX_LABELS,
    MAX_REGION_BLOCKS, PLAIN_SLOTS,
};
use onlooker_region::schema::{self, Field, Group, Kind, Schema, SchemaError, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The elements of an array and the label that tells them apart.
#[derive(Clone, Debug)]
pub struct Elements {
    label: String,
    count: u32,
    stride: u32,
    values: Option<Vec<String>>,
}

impl Elements {
    /// `count` elements, labelled `label` = "0", "1", ...
    #[must_use]
    pub fn new(label: &str, count: u32) -> Self {
        Self { label: label.into(), count, stride: 1, values: None }
    }

    /// One element for each of these label values.
    #[must_use]
    pub fn named(label: &str, values: &[&str]) -> Self {
        let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
        Self { label: label.into(), count, stride: 1, values: Some(values.iter().map(|v| (*v).into()).collect()) }
    }

    /// Keeps the elements out of each other's cache lines: for one element a thread.
    #[must_use]
    pub fn spread(mut self) -> Self {
        self.stride = 8;
        self
    }
}

/// Why a region cannot be opened. All but [`OpenError::Memory`] are mistakes of the program.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// Bad name, too many fields, two fields with the same labels, ...
    #[error("region `{region}`: {error}; see docs/format/schema.md")]
    Schema {
        /// Name of the region.
        region: String,
        /// What is wrong where.
        error: SchemaError,
    },
    /// The region's name or one of its labels.
    #[error("region `{region}`: {message}")]
    Region {
        /// Name of the region.
        region: String,
        /// What is wrong.
        message: String,
    },
    /// A group, table or array larger than a region can be.
    #[error("region `{region}` would have {blocks} blocks, more than MAX_REGION_BLOCKS = {MAX_REGION_BLOCKS}")]
    TooLarge {
        /// Name of the region.
        region: String,
        /// Its size.
        blocks: usize,
    },
    /// Name and instance are taken.
    #[error(
        "region `{region}` with instance `{instance}` is open already: close it first, or give this one an instance"
    )]
    Duplicate {
        /// Name of the region.
        region: String,
        /// Its instance.
        instance: String,
    },
    /// No memory for it.
    #[error("memory of region `{region}`: {error}")]
    Memory {
        /// Name of the region.
        region: String,
        /// What failed.
        error: PlaceError,
    },
}

/// A region that is being described.
#[derive(Debug)]
pub struct Builder {
    id: u64,
    name: String,
    class: Option<String>,
    instance: String,
    labels: BTreeMap<String, String>,
    plain: Vec<(Field, Class)>,
    slots: usize,
    guarded: Vec<Fields>,
    tables: Vec<Group>,
}

impl Region {
    /// Begins a region. `name` has the form of a metric name and is unique in the process together with [`Builder::instance`].
    #[must_use]
    pub fn builder(name: &str) -> Builder {
        Builder::new(name)
    }
}

impl Builder {
    fn new(name: &str) -> Self {
        Self {
            id: unique(),
            name: name.into(),
            class: None,
            instance: String::new(),
            labels: BTreeMap::new(),
            plain: Vec::new(),
            slots: 0,
            guarded: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Tells regions of one name apart within the process.
    pub fn instance(&mut self, instance: &str) -> &mut Self {
        self.instance = instance.into();
        self
    }

    /// A label of every series of the region.
    pub fn label(&mut self, name: &str, value: &str) -> &mut Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Class name of the schema; the region's name where not given.
    pub fn class(&mut self, name: &str) -> &mut Self {
        self.class = Some(name.into());
        self
    }

    fn token<M: ?Sized>(&self, at: usize, count: usize, stride: usize, shape: Shape) -> Token<M> {
        Token::new(self.id, at, count, stride, shape)
    }

    fn words<W: Word, M: ?Sized>(&mut self, metric: Metric, elements: Option<Elements>) -> Token<M> {
        let mut field = metric.field(W::METRIC, W::TYPE, self.slots);
        let (count, stride) = elements.as_ref().map_or((1, 1), |e| (e.count as usize, e.stride as usize));
        field.array =
            elements.map(|Elements { label, count, stride, values }| schema::Array { label, count, stride, values });
        self.plain.push((field, if W::ADDS { Class::Adds } else { Class::Sets }));
        let at = self.slots;
        self.slots = self.slots.saturating_add(count.saturating_mul(stride));
        self.token(at, count, stride, NO_SHAPE)
    }

    /// A counter.
    pub fn counter(&mut self, metric: impl Into<Metric>) -> Token<Counter> {
        self.words::<Counter, _>(metric.into(), None)
    }

    /// A gauge that is changed by adding.
    pub fn updown(&mut self, metric: impl Into<Metric>) -> Token<UpDown> {
        self.words::<UpDown, _>(metric.into(), None)
    }

    /// A gauge that is set: `u64`, `i64` or `f64`.
    pub fn gauge<T: Number>(&mut self, metric: impl Into<Metric>) -> Token<Gauge<T>> {
        self.words::<Gauge<T>, _>(metric.into(), None)
    }

    /// Counters told apart by a label.
    pub fn counters(&mut self, metric: impl Into<Metric>, elements: Elements) -> Token<[Counter]> {
        self.words::<Counter, _>(metric.into(), Some(elements))
    }

    /// Up-down gauges told apart by a label.
    pub fn updowns(&mut self, metric: impl Into<Metric>, elements: Elements) -> Token<[UpDown]> {
        self.words::<UpDown, _>(metric.into(), Some(elements))
    }

    /// Gauges told apart by a label.
    pub fn gauges<T: Number>(&mut self, metric: impl Into<Metric>, elements: Elements) -> Token<[Gauge<T>]> {
        self.words::<Gauge<T>, _>(metric.into(), Some(elements))
    }

    /// A log-linear histogram of whole numbers: values below 2^(`grouping_power` + 1) have a bucket each, above that each power of two has
    /// 2^`grouping_power`; 2^`max_power` and more count in the last bucket. At most 4096 buckets.
    pub fn histogram(&mut self, metric: impl Into<Metric>, grouping_power: u8, max_power: u8) -> Token<Histogram> {
        let shape = Shape { grouping_power, max_power };
        let mut field = metric.into().field(schema::Metric::Histogram, Type::U64, self.slots);
        field.histogram = Some(shape);
        let at = self.slots;
        // An invalid shape is refused by `open`; it must not overflow before.
        let fits = shape.is_valid() && shape.buckets() <= MAX_HISTOGRAM_BUCKETS;
        self.slots = self.slots.saturating_add(if fits { shape.slots() } else { 1 });
        self.plain.push((field, Class::Adds));
        self.token(at, 1, 1, shape)
    }

    /// Values that are committed together and always read as one commit left them: at most 124 words. `fields` names them and returns their slots.
    pub fn guarded<R>(&mut self, fields: impl FnOnce(&mut Fields) -> R) -> (Token<Guarded>, R) {
        let mut group = Fields::new();
        let slots = fields(&mut group);
        let at = self.guarded.len();
        let mut token = self.token(at, group.used(), 1, NO_SHAPE);
        token.fields = group.id;
        self.guarded.push(group);
        (token, slots)
    }

    /// A table with room for `rows` rows at least, whose key has these part names. `fields` names a row's values and returns their slots.
    pub fn table<K: Key, R>(
        &mut self,
        names: K::Names<'_>,
        rows: usize,
        fields: impl FnOnce(&mut Fields) -> R,
    ) -> (Token<Rows<K>>, R) {
        let mut values = Fields::new();
        let slots = fields(&mut values);
        let id = values.id;
        let mut group = Group::new(Kind::Table, 1, values.into_fields());
        group.key = K::parts(names);
        // A row that is too long is refused by `open`.
        let per_block = group.layout().map_or(1, |layout| GUARDED_SLOTS / layout.row_words().max(1)).max(1);
        group.blocks = u32::try_from(rows.div_ceil(per_block).max(1)).unwrap_or(u32::MAX);
        let at = self.tables.len();
        self.tables.push(group);
        let mut token = self.token(at, rows, 1, NO_SHAPE);
        token.fields = id;
        (token, slots)
    }

    /// Puts the region into memory and has it registered as soon as there is an agent; does not wait for that.
    ///
    /// # Errors
    /// [`OpenError`]: a mistake in the description, or no memory. That there is no agent is not an error; see [`crate::status`].
    pub fn open(self) -> Result<Region, OpenError> {
        let region = self.name.clone();
        self.check()?;
        let id = self.id;
        let description = self.describe()?;
        if SDK.has(&description.name, &description.instance) {
            return Err(OpenError::Duplicate { region, instance: description.instance });
        }
        let bytes = description.schema.blocks() as usize * BLOCK_BYTES;
        let (place, second) = Place::new(bytes).map_err(|error| OpenError::Memory { region: region.clone(), error })?;
        if let Err(error) = &second {
            SDK.error(format!("region `{region}` is private to this process: {error}"));
        }
        let inner = Arc::new(Inner::new(description, place, second.ok()));
        if !publish::add(&inner) {
            return Err(OpenError::Duplicate { region, instance: inner.instance.clone() });
        }
        Ok(Region::new(inner, id))
    }

    fn check(&self) -> Result<(), OpenError> {
        let wrong = |message: String| OpenError::Region { region: self.name.clone(), message };
        schema::check_name(&self.name).map_err(|rule| wrong(rule.to_string()))?;
        if self.instance.len() > MAX_LABEL_VALUE_BYTES || self.instance.contains('\0') {
            return Err(wrong(format!("an instance is at most {MAX_LABEL_VALUE_BYTES} bytes without NUL")));
        }
        // The agent adds up to three: program, pid and instance.
        if self.labels.len() + 3 > MAX_LABELS {
            return Err(wrong(format!("at most {} labels", MAX_LABELS - 3)));
        }
        let mut bytes = 0;
        for (name, value) in &self.labels {
            schema::check_label(name).map_err(|rule| wrong(rule.to_string()))?;
            if value.is_empty() || value.len() > MAX_LABEL_VALUE_BYTES || value.contains('\0') {
                return Err(wrong(format!("value of label `{name}`: 1 to {MAX_LABEL_VALUE_BYTES} bytes without NUL")));
            }
            bytes += name.len() + value.len() + 2;
        }
        if bytes > ENTRY_LABEL_BYTES {
            return Err(wrong(format!(
                "its labels take {bytes} bytes, more than ENTRY_LABEL_BYTES = {ENTRY_LABEL_BYTES}"
            )));
        }
        Ok(())
    }

    fn describe(self) -> Result<Description, OpenError> {
        let region = self.name;
        let mut groups = Vec::new();
        let plain_blocks = self.slots.div_ceil(PLAIN_SLOTS);
        let guarded_blocks = self.guarded.len();
        let table_blocks: usize = self.tables.iter().map(|table| table.blocks as usize).sum();
        let blocks = plain_blocks.saturating_add(guarded_blocks).saturating_add(table_blocks);
        if blocks > MAX_REGION_BLOCKS as usize {
            return Err(OpenError::TooLarge { region, blocks });
        }
        let mut plan =
            Plan { spans: Vec::new(), plain: 0..plain_blocks, guarded: plain_blocks..plain_blocks + guarded_blocks };
        let (fields, classes): (Vec<_>, Vec<_>) = self.plain.into_iter().unzip();
        if plain_blocks > 0 {
            let blocks = u32::try_from(plain_blocks).unwrap_or(u32::MAX);
            groups.push(Group::new(Kind::Plain, blocks, fields));
        }
        groups.extend(self.guarded.into_iter().map(|group| Group::new(Kind::Guarded, 1, group.into_fields())));
        groups.extend(self.tables);
        let schema = Schema { name: self.class.unwrap_or_else(|| region.clone()), groups };
        schema.check().map_err(|error| OpenError::Schema { region: region.clone(), error })?;

        if plain_blocks > 0 {
            for (field, class) in schema.groups[0].fields.iter().zip(classes) {
                plan.spans.extend(spans(field).map(|span| (span, class)));
            }
        }
        let tables = schema
            .placed_groups()
            .filter_map(|(first, group)| {
                let first = first as usize;
                Some(TableSpec { layout: group.layout()?, blocks: first..first + group.blocks as usize })
            })
            .collect();
        Ok(Description { name: region, instance: self.instance, labels: self.labels, schema, plan, tables })
    }
}

const NO_SHAPE: Shape = Shape { grouping_power: 0, max_power: 1 };

/// The words of a plain field: one span for each run without an identity word in it.
fn spans(field: &Field) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let stride = field.array.as_ref().map_or(1, |array| array.stride as usize);
    (0..field.elements() as usize).flat_map(move |element| {
        let mut slot = field.slot as usize + element * stride;
        let end = slot + field.slots();
        std::iter::from_fn(move || {
            if slot == end {
                return None;
            }
            let run = (PLAIN_SLOTS - slot % PLAIN_SLOTS).min(end - slot);
            let word = plain_word(slot);
            slot += run;
            Some(word..word + run)
        })
    })
}

#[cfg(test)]
mod tests;
