// SPDX-License-Identifier: Apache-2.0
//! Schema classes (docs/format/schema.md): what the blocks of a region mean.
//!
//! Programs send any JSON; [`Schema::parse`] refuses what breaks a rule and [`Schema::canonical`] gives the one form that is hashed, stored in the
//! control region and read by controllers. Parsing costs microseconds per field and happens once per class and generation.

mod check;
mod error;
mod json;

pub use error::{Place, Rule, SchemaError};

use crate::histogram::Shape;
use crate::limits::{BLOCK_BYTES, GUARDED_SLOTS, MAX_SCHEMA_BYTES, PLAIN_SLOTS};
use crate::table::{KeyPart, Layout};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;

/// First 16 bytes of SHA-256 over the canonical form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SchemaId(pub [u8; 16]);

impl SchemaId {
    /// Of a canonical text.
    #[must_use]
    pub fn of(canonical: &str) -> Self {
        let digest = Sha256::digest(canonical.as_bytes());
        Self(std::array::from_fn(|i| digest[i]))
    }
}

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "SchemaId({self})")
    }
}

/// A class: groups of blocks, in the order in which they stand in a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// Class name.
    pub name: String,
    /// Groups, one after the other from block 0.
    #[serde(deserialize_with = "json::objects")]
    pub groups: Vec<Group>,
}

/// What kind of blocks a group is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Independent words behind an identity.
    Plain,
    /// Payload between versions, with CRC.
    Guarded,
    /// As guarded, made at the moment of the READ.
    Computed,
    /// A program's own memory.
    Foreign,
    /// Rows in guarded blocks.
    Table,
}

/// How values get into a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Acquisition {
    /// The program's own counters.
    #[default]
    Direct,
    /// BPF at the moment of the READ.
    Computed,
    /// BPF timer or iterator into guarded blocks.
    Published,
    /// A thread of the agent reads procfs now and then.
    Sampled,
}

/// Consecutive blocks of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Kind of the blocks.
    pub kind: Kind,
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// How values get there.
    #[serde(default, skip_serializing_if = "is_default")]
    pub acquisition: Acquisition,
    /// Oldest age that a served value can have by design, ns; 0: it is live.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_age_ns: u64,
    /// The computed group whose published twin this is.
    #[serde(default, deserialize_with = "json::some", skip_serializing_if = "Option::is_none")]
    pub twin_of: Option<u32>,
    /// Parts of the row key; tables only.
    #[serde(default, deserialize_with = "json::objects", skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<KeyPart>,
    /// What stands in the slots.
    #[serde(deserialize_with = "json::objects")]
    pub fields: Vec<Field>,
}

/// What a field is to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Only goes up, except at a reset.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Buckets and a sum.
    Histogram,
    /// A text as label `value` of a sample that is 1.
    Info,
}

impl Metric {
    /// The label that the text format needs itself for a metric of this kind, if any.
    #[must_use]
    pub fn reserved_label(self) -> Option<&'static str> {
        match self {
            Self::Histogram => Some("le"),
            Self::Info => Some("value"),
            Self::Counter | Self::Gauge => None,
        }
    }
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the names say it
pub enum Type {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    Text,
}

impl Type {
    /// Bytes of a number; 0 for text, whose field says.
    #[must_use]
    pub fn width(self) -> u32 {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::Text => 0,
        }
    }
}

/// Repetition of a field, for example per CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Array {
    /// Label that tells the elements apart.
    pub label: String,
    /// Number of elements, at least 1.
    pub count: u32,
    /// Distance of elements, slots (foreign: bytes).
    pub stride: u32,
    /// Label values; `"0"`, `"1"`, ... where absent.
    #[serde(default, deserialize_with = "json::some", skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

impl Array {
    /// Label value of an element.
    #[must_use]
    pub fn value(&self, element: u32) -> String {
        self.values
            .as_ref()
            .and_then(|values| values.get(element as usize).cloned())
            .unwrap_or_else(|| element.to_string())
    }
}

/// What the elements of an array add up to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// Metric name; empty: the field's own, and the elements are not shown beside their sum.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// One sentence; empty: the field's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub help: String,
    /// Constant labels; absent: the field's.
    #[serde(default, deserialize_with = "json::some_labels", skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// An element that goes hands what it has counted to another one, as CPUs do with some of theirs: what falls there is not lost.
    #[serde(default, skip_serializing_if = "is_default")]
    pub handed_over: bool,
}

impl Sum {
    /// A sum of another name than its field, which is shown beside it.
    #[must_use]
    pub fn beside(name: &str, help: &str) -> Self {
        Self { name: name.into(), help: help.into(), ..Self::default() }
    }

    /// Whether the elements are not shown.
    #[must_use]
    pub fn replaces(&self) -> bool {
        self.name.is_empty()
    }
}

/// One metric in a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Metric name.
    pub name: String,
    /// What it is.
    pub metric: Metric,
    /// How it is stored.
    #[serde(rename = "type")]
    pub kind: Type,
    /// Place in the group's (tables: the row's) slots; foreign: byte offset from the group's start.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slot: u32,
    /// Space of a text, bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bytes: u32,
    /// Unit of the scaled value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Exported value = stored value * scale.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: f64,
    /// One sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub help: String,
    /// Constant labels.
    #[serde(default, deserialize_with = "json::labels", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How finely the value really moves, ns; 0: at every read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resolution_ns: u64,
    /// Repetition.
    #[serde(default, deserialize_with = "json::some_object", skip_serializing_if = "Option::is_none")]
    pub array: Option<Array>,
    /// Shape; histograms only.
    #[serde(default, deserialize_with = "json::some_object", skip_serializing_if = "Option::is_none")]
    pub histogram: Option<Shape>,
    /// What its elements add up to.
    #[serde(default, deserialize_with = "json::some_object", skip_serializing_if = "Option::is_none")]
    pub sum: Option<Sum>,
}

/// Whether a text can name a class, a region or a metric.
///
/// # Errors
/// The rule that it breaks.
pub fn check_name(name: &str) -> Result<(), Rule> {
    check::metric_name(name)
}

/// Whether a text can name a label.
///
/// # Errors
/// The rule that it breaks.
pub fn check_label(name: &str) -> Result<(), Rule> {
    check::label_name(name)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one() -> f64 {
    1.0
}

#[allow(clippy::float_cmp)] // exactly the default
fn is_one(value: &f64) -> bool {
    *value == 1.0
}

impl Field {
    /// A field with everything else at its default.
    #[must_use]
    pub fn new(name: &str, metric: Metric, kind: Type, slot: u32) -> Self {
        Self {
            name: name.into(),
            metric,
            kind,
            slot,
            bytes: 0,
            unit: String::new(),
            scale: 1.0,
            help: String::new(),
            labels: BTreeMap::new(),
            resolution_ns: 0,
            array: None,
            histogram: None,
            sum: None,
        }
    }

    /// Number of elements: 1 without an array.
    #[must_use]
    pub fn elements(&self) -> u32 {
        self.array.as_ref().map_or(1, |array| array.count)
    }

    /// Slots that one element takes (in groups of slots).
    #[must_use]
    pub fn slots(&self) -> usize {
        match (self.histogram, self.kind) {
            (Some(shape), _) => shape.slots(),
            (None, Type::Text) => self.bytes as usize / 8,
            _ => 1,
        }
    }
}

impl Field {
    /// Name of its sum.
    #[must_use]
    pub fn sum_name<'a>(&'a self, sum: &'a Sum) -> &'a str {
        if sum.replaces() { &self.name } else { &sum.name }
    }

    /// Help of its sum.
    #[must_use]
    pub fn sum_help<'a>(&'a self, sum: &'a Sum) -> &'a str {
        if sum.help.is_empty() { &self.help } else { &sum.help }
    }

    /// Constant labels of its sum.
    #[must_use]
    pub fn sum_labels<'a>(&'a self, sum: &'a Sum) -> &'a BTreeMap<String, String> {
        sum.labels.as_ref().unwrap_or(&self.labels)
    }
}

impl Group {
    /// A group with everything else at its default.
    #[must_use]
    pub fn new(kind: Kind, blocks: u32, fields: Vec<Field>) -> Self {
        Self { kind, blocks, acquisition: Acquisition::Direct, max_age_ns: 0, twin_of: None, key: Vec::new(), fields }
    }

    /// The shortest time in which a value can move by design, ns; 0: at any time.
    #[must_use]
    pub fn moves_every_ns(&self) -> u64 {
        let resolution_ns = self.fields.iter().map(|field| field.resolution_ns).min().unwrap_or(u64::MAX);
        resolution_ns.max(self.max_age_ns)
    }

    /// Room for fields: slots, or bytes of a foreign group, or value slots of one row.
    #[must_use]
    pub fn room(&self) -> usize {
        let blocks = self.blocks as usize;
        match self.kind {
            Kind::Plain => blocks * PLAIN_SLOTS,
            Kind::Guarded | Kind::Computed => blocks * GUARDED_SLOTS,
            Kind::Foreign => blocks * BLOCK_BYTES,
            Kind::Table => GUARDED_SLOTS - 1 - self.key_words(),
        }
    }

    fn key_words(&self) -> usize {
        self.key.iter().map(KeyPart::words).sum()
    }

    /// Row layout of a table; `None` for other kinds. The schema must have passed [`Schema::check`].
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        (self.kind == Kind::Table).then(|| Layout {
            key_words: self.key_words(),
            value_words: self
                .fields
                .iter()
                .map(|f| {
                    let last = f.array.as_ref().map_or(0, |a| (a.count as usize - 1) * a.stride as usize);
                    f.slot as usize + last + f.slots()
                })
                .max()
                .unwrap_or(0),
        })
    }
}

impl Schema {
    /// Parses and checks; a key that is not known is refused, since it may be a known one misspelt.
    ///
    /// # Errors
    /// [`SchemaError`] with the place and the rule that is broken.
    pub fn parse(json: &str) -> Result<Self, SchemaError> {
        let (schema, unknown) = json::read(json)?;
        if let Some(key) = unknown {
            return Err(SchemaError::new(Place::Schema, Rule::Json(format!("unknown key `{}`", key.escape_debug()))));
        }
        schema.check()?;
        Ok(schema)
    }

    /// As [`Schema::parse`] for whoever reads what an agent has accepted, which may be newer: keys that are not known are passed over.
    ///
    /// # Errors
    /// [`SchemaError`] with the place and the rule that is broken.
    pub fn read(json: &str) -> Result<Self, SchemaError> {
        let (schema, _) = json::read(json)?;
        schema.check()?;
        Ok(schema)
    }

    /// The one form that is hashed and stored.
    ///
    /// # Panics
    /// Never: the types have no value that JSON lacks once [`Schema::check`] has passed (it refuses scales that are not finite).
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut text = Vec::new();
        self.serialize(&mut serde_json::Serializer::with_formatter(&mut text, json::Canonical)).expect("plain data");
        String::from_utf8(text).expect("JSON is UTF-8")
    }

    /// Checks every rule of docs/format/schema.md.
    ///
    /// # Errors
    /// The first rule that is broken, with its place.
    pub fn check(&self) -> Result<(), SchemaError> {
        check::schema(self)?;
        let bytes = self.canonical().len();
        if bytes > MAX_SCHEMA_BYTES {
            return Err(SchemaError::new(
                Place::Schema,
                Rule::Limit { what: "MAX_SCHEMA_BYTES", limit: MAX_SCHEMA_BYTES, got: bytes },
            ));
        }
        Ok(())
    }

    /// Blocks of a region of this class.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.groups.iter().map(|group| group.blocks).sum()
    }

    /// The shortest time in which a value can move by design, ns; 0: at any time.
    #[must_use]
    pub fn moves_every_ns(&self) -> u64 {
        self.groups.iter().map(Group::moves_every_ns).min().unwrap_or(0)
    }

    /// Groups with the block at which each begins.
    pub fn placed_groups(&self) -> impl Iterator<Item = (u32, &Group)> {
        self.groups.iter().scan(0, |next, group| {
            let first = *next;
            *next += group.blocks;
            Some((first, group))
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
