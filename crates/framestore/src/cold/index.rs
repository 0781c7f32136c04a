// SPDX-License-Identifier: Apache-2.0
//! Which rows of a cold file are whose: what the file says itself, in the columns that name a series, found without
//! reading those.
//!
//! A [`Writer`](super::Writer) leaves one beside each file, readers make it again where it is missing or damaged. It is
//! bound to its file by the file's length and the footer's checksum, so that the footer, of which Parquet has none, is
//! checked by it.
//!
//! ```text
//! 0   magic (4)   4  version (4)   8  bytes of the file (8)   16  CRC-32C of the file's footer (4)
//! 20  CRC-32C of bytes 0-19 and of the rest (4)
//! 24  Zstandard:  texts   varint how many, then each behind its length
//!                 series  varint how many, then column by column: name, labels, instance, unit, type, form (varint
//!                         numbers of texts), divisor of a decimal, scale (8 each)
//!                 runs    varint how many, in the order of their rows: series, 0 or bucket + 1, row groups since the
//!                         run before, rows: varints
//! ```

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::Arc;

use onlooker_region::schema::Metric;
use onlooker_series::series::Form;

use super::coding::{Coding, scale_of};
use super::{type_of, type_text};
use crate::damage::Damage;
use crate::framing::bytes::{Input, put_unsigned};

const MAGIC: [u8; 4] = *b"OLCI";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
/// Largest index, unpacked.
const MAX_BYTES: u64 = 1 << 30;
const LEVEL: i32 = 3;

/// A series of a cold file.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// Metric name.
    pub name: Arc<str>,
    /// Labels but `instance`, as a JSON object.
    pub labels: Arc<str>,
    /// Label `instance`, or nothing.
    pub instance: Arc<str>,
    /// Unit, or nothing.
    pub unit: Arc<str>,
    /// What it is to Prometheus.
    pub metric: Metric,
    /// How to read its words.
    pub form: Form,
    /// What a stored number is to be multiplied with.
    pub scale: f64,
}

impl Described {
    /// All its labels, sorted.
    #[must_use]
    pub fn all_labels(&self) -> Vec<(String, String)> {
        let own: std::collections::BTreeMap<String, String> = serde_json::from_str(&self.labels).unwrap_or_default();
        let mut all: Vec<_> = own.into_iter().collect();
        if !self.instance.is_empty() {
            all.push((INSTANCE.to_owned(), self.instance.as_ref().to_owned()));
            all.sort();
        }
        all
    }
}

/// The label that has a column of its own.
pub(super) const INSTANCE: &str = "instance";

/// Labels as they stand in files: the instance, and the others.
pub(super) fn split_labels(labels: &[(String, String)]) -> (&str, String) {
    let instance = labels.iter().find(|(name, _)| name == INSTANCE).map_or("", |(_, value)| value);
    let others: std::collections::BTreeMap<&str, &str> =
        labels.iter().filter(|(name, _)| name != INSTANCE).map(|(name, value)| (&**name, &**value)).collect();
    (instance, serde_json::to_string(&others).expect("texts are JSON"))
}

/// What the columns of a run of rows say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dims {
    /// The series', without what column `metric` has behind it.
    pub(super) name: Arc<str>,
    pub(super) labels: Arc<str>,
    pub(super) instance: Arc<str>,
    pub(super) unit: Arc<str>,
    pub(super) metric: Metric,
    pub(super) coding: Coding,
    pub(super) divisor: f64,
    pub(super) multiplier: f64,
}

/// A series of an index.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) described: Described,
    /// What its whole numbers are to be divided by for its floats.
    pub(super) decimal: Option<f64>,
}

/// Columns of texts.
const TEXTS: usize = 6;

impl Entry {
    fn text(&self, column: usize) -> Arc<str> {
        let Self { described: of, decimal } = self;
        match column {
            0 => of.name.clone(),
            1 => of.labels.clone(),
            2 => of.instance.clone(),
            3 => of.unit.clone(),
            4 => type_text(of.metric).into(),
            _ if decimal.is_some() => Coding::Decimal.text().into(),
            _ => Coding::Plain(of.form).text().into(),
        }
    }
}

/// Rows of a series that stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) group: u32,
    pub(super) first: u32,
    pub(super) rows: u32,
    pub(super) entry: u32,
    /// Of a histogram: its bucket, or `None` for the sum.
    pub(super) bucket: Option<u32>,
}

/// What binds an index to its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) bytes: u64,
    pub(super) footer: u32,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Index {
    pub(super) entries: Vec<Entry>,
    /// In the order of their rows, of which none is left out.
    pub(super) runs: Vec<Run>,
}

/// Name, labels, instance, unit, type, form, divisor and multiplier.
type Key = ([Arc<str>; 4], &'static str, String, [u64; 2]);

/// Makes an index, run by run.
#[derive(Default)]
pub(super) struct Builder {
    index: Index,
    known: HashMap<Key, u32>,
}

impl Builder {
    /// Runs come in the order of their rows.
    pub(super) fn add(&mut self, dims: &Dims, group: u32, first: u32, rows: u32) {
        let is_histogram = matches!(dims.coding, Coding::Sum(_) | Coding::Bucket(..));
        // Buckets have no scale; the sum says theirs.
        let form = if is_histogram { Coding::Plain(dims.coding.form()) } else { dims.coding };
        let scales = if is_histogram { [0; 2] } else { [dims.divisor.to_bits(), dims.multiplier.to_bits()] };
        let texts = [&dims.name, &dims.labels, &dims.instance, &dims.unit].map(Arc::clone);
        let key = (texts, type_text(dims.metric), form.text(), scales);
        let entries = &mut self.index.entries;
        let entry = *self.known.entry(key).or_insert_with(|| {
            entries.push(entry(dims));
            u32::try_from(entries.len() - 1).unwrap_or(u32::MAX)
        });
        if let Coding::Sum(_) = dims.coding {
            self.index.entries[entry as usize].described.scale = scale_of(dims.divisor, dims.multiplier);
        }
        let bucket = match dims.coding {
            Coding::Bucket(_, number) => u32::try_from(number).ok(),
            _ => None,
        };
        self.index.runs.push(Run { group, entry, bucket, first, rows });
    }

    pub(super) fn finish(self) -> Index {
        self.index
    }
}

fn entry(dims: &Dims) -> Entry {
    let decimal = (dims.coding == Coding::Decimal).then_some(dims.divisor);
    let described = Described {
        name: dims.name.clone(),
        labels: dims.labels.clone(),
        instance: dims.instance.clone(),
        unit: dims.unit.clone(),
        metric: dims.metric,
        form: dims.coding.form(),
        scale: if decimal.is_some() { 1.0 } else { scale_of(dims.divisor, dims.multiplier) },
    };
    Entry { described, decimal }
}

/// Numbers of texts.
#[derive(Default)]
struct Texts {
    numbers: HashMap<Arc<str>, u64>,
    bytes: Vec<u8>,
}

impl Texts {
    fn number(&mut self, text: Arc<str>) -> u64 {
        let next = self.numbers.len() as u64;
        let bytes = &mut self.bytes;
        let (len, content) = (text.len(), text.clone());
        *self.numbers.entry(text).or_insert_with(|| {
            put_unsigned(len as u64, bytes);
            bytes.extend(content.as_bytes());
            next
        })
    }
}

impl Index {
    /// As the file has it.
    pub(super) fn encode(&self, binding: Binding) -> std::io::Result<Vec<u8>> {
        let (mut texts, mut rest) = (Texts::default(), Vec::new());
        put_unsigned(self.entries.len() as u64, &mut rest);
        for column in 0..TEXTS {
            self.entries.iter().for_each(|entry| put_unsigned(texts.number(entry.text(column)), &mut rest));
        }
        rest.extend(self.entries.iter().flat_map(|entry| entry.decimal.unwrap_or(1.0).to_le_bytes()));
        rest.extend(self.entries.iter().flat_map(|entry| entry.described.scale.to_le_bytes()));
        put_unsigned(self.runs.len() as u64, &mut rest);
        let mut group = 0;
        for run in &self.runs {
            let bucket = run.bucket.map_or(0, |bucket| bucket + 1);
            [run.entry, bucket, run.group - group, run.rows].iter().for_each(|n| put_unsigned((*n).into(), &mut rest));
            group = run.group;
        }
        let mut payload = Vec::new();
        put_unsigned(texts.numbers.len() as u64, &mut payload);
        payload.extend(texts.bytes);
        payload.extend(rest);

        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(binding.bytes.to_le_bytes());
        bytes.extend(binding.footer.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(zstd::bulk::compress(&payload, LEVEL)?);
        let sum = checksum(&bytes);
        bytes[20..24].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// What [`Index::encode`] made.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, Binding), Damage> {
        let mut head = Input(bytes);
        if head.take(4)? != MAGIC || head.half()? != VERSION {
            return Err(Damage::Wrong("the version of an index"));
        }
        let binding = Binding { bytes: head.word()?, footer: head.half()? };
        if head.half()? != checksum(bytes) {
            return Err(Damage::Checksum);
        }
        let mut payload = Vec::new();
        zstd::Decoder::new(head.0)
            .and_then(|packed| packed.take(MAX_BYTES).read_to_end(&mut payload))
            .map_err(|_| Damage::Wrong("the packing of an index"))?;
        let mut input = Input(&payload);
        let texts = (0..input.count(input.0.len())?)
            .map(|_| {
                let bytes = input.count(input.0.len())?;
                let text = std::str::from_utf8(input.take(bytes)?).map_err(|_| Damage::Wrong("a text"))?;
                Ok(Arc::from(text))
            })
            .collect::<Result<Vec<Arc<str>>, Damage>>()?;
        let entries = take_entries(&mut input, &texts)?;
        let count = input.count(input.0.len())?;
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..count {
            runs.push(take_run(&mut input, &entries, runs.last())?);
        }
        if !input.0.is_empty() {
            return Err(Damage::Wrong("the runs of an index"));
        }
        Ok((Self { entries, runs }, binding))
    }
}

/// Of all but the place that it stands in.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..20]), &bytes[HEADER_BYTES..])
}

fn take_entries(input: &mut Input, texts: &[Arc<str>]) -> Result<Vec<Entry>, Damage> {
    let count = input.count(input.0.len())?;
    let mut column = || {
        let text = |_| texts.get(input.count(texts.len())?).cloned().ok_or(Damage::Wrong("a text"));
        (0..count).map(text).collect::<Result<Vec<Arc<str>>, Damage>>()
    };
    let [names, labels, instances] = [column()?, column()?, column()?];
    let [units, types, forms] = [column()?, column()?, column()?];
    let mut floats = || (0..count).map(|_| input.word().map(f64::from_bits)).collect::<Result<Vec<f64>, Damage>>();
    let (divisors, scales) = (floats()?, floats()?);
    let entry = |at: usize| {
        let coding = Coding::parse(&forms[at])?;
        let described = Described {
            name: names[at].clone(),
            labels: labels[at].clone(),
            instance: instances[at].clone(),
            unit: units[at].clone(),
            metric: type_of(&types[at])?,
            form: coding.form(),
            scale: scales[at],
        };
        Ok(Entry { described, decimal: (coding == Coding::Decimal).then_some(divisors[at]) })
    };
    (0..count).map(entry).collect()
}

fn take_run(input: &mut Input, entries: &[Entry], before: Option<&Run>) -> Result<Run, Damage> {
    let wrong = Damage::Wrong("a run");
    let mut number = || input.unsigned().and_then(|n| u32::try_from(n).map_err(|_| wrong));
    let (entry, bucket, groups, rows) = (number()?, number()?, number()?, number()?);
    let described = &entries.get(entry as usize).ok_or(Damage::Wrong("the series of a run"))?.described;
    let is_bucket = match described.form {
        Form::Histogram(shape) => (bucket as usize) <= shape.buckets(),
        _ => bucket == 0,
    };
    let (group, end) = before.map_or((0, 0), |run| (run.group, run.first + run.rows));
    let first = if groups > 0 { 0 } else { end };
    if !is_bucket || first.checked_add(rows).is_none() {
        return Err(wrong);
    }
    Ok(Run { group: group.checked_add(groups).ok_or(wrong)?, first, rows, entry, bucket: bucket.checked_sub(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_region::histogram::Shape;

    fn index() -> Index {
        let shape = Shape { grouping_power: 3, max_power: 20 };
        let (mut builder, mut all) = (Builder::default(), Vec::new());
        let codings = [
            (Coding::Plain(Form::Unsigned), 1.0, 1.0),
            (Coding::Decimal, 100.0, 1.0),
            (Coding::Plain(Form::Float), 1.0, 2.5),
            (Coding::Bucket(shape, 0), 1.0, 1.0),
            (Coding::Bucket(shape, shape.buckets() - 1), 1.0, 1.0),
            (Coding::Sum(shape), 1e9, 1.0),
        ];
        for (at, (coding, divisor, multiplier)) in codings.into_iter().enumerate() {
            let name = if at < 3 { "a" } else { "histogram" };
            let texts = [name, r#"{"cpu":"0"}"#, "host", "s"].map(Arc::from);
            let [name, labels, instance, unit] = texts;
            let metric = Metric::Counter;
            all.push(Dims { name, labels, instance, unit, metric, coding, divisor, multiplier });
        }
        for (group, first) in (0..2).flat_map(|group| (0..6).map(move |run| (group, run * 5))) {
            builder.add(&all[first as usize / 5], group, first, 5);
        }
        builder.finish()
    }

    #[test]
    fn an_index_comes_back() {
        let index = index();
        assert_eq!((index.entries.len(), index.runs.len()), (4, 12));
        assert_eq!(index.entries[3].described.scale.to_bits(), 1e-9f64.to_bits());
        assert_eq!(index.entries[1].decimal, Some(100.0));
        let binding = Binding { bytes: 77, footer: 0x1234_5678 };
        let bytes = index.encode(binding).unwrap();
        assert_eq!(Index::decode(&bytes).unwrap(), (index, binding));
        assert_eq!(Index::decode(&Index::default().encode(binding).unwrap()).unwrap().0, Index::default());
    }

    #[test]
    fn damage_is_an_error() {
        let bytes = index().encode(Binding::default()).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(Index::decode(&flipped).is_err(), "{at}");
            assert!(Index::decode(&bytes[..at]).is_err(), "{at}");
        }
        bolero::check!().with_type::<Vec<u8>>().for_each(|payload| {
            // As somebody would write it who knows the checksum.
            let mut bytes = index().encode(Binding::default()).unwrap();
            bytes.truncate(HEADER_BYTES);
            bytes.extend(zstd::bulk::compress(payload, 1).unwrap());
            let sum = checksum(&bytes);
            bytes[20..24].copy_from_slice(&sum.to_le_bytes());
            let _ = Index::decode(&bytes);
        });
    }

    #[test]
    fn labels_are_sorted_and_the_instance_is_apart() {
        let labels = [("mode", "idle"), ("instance", "h\"1"), ("cpu", "0")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let (instance, others) = split_labels(&labels);
        assert_eq!((instance, &*others), ("h\"1", r#"{"cpu":"0","mode":"idle"}"#));
        assert_eq!(split_labels(&[]), ("", "{}".to_owned()));
        let mut described = index().entries[0].described.clone();
        described.labels = others.into();
        described.instance = instance.into();
        let mut sorted = labels.to_vec();
        sorted.sort();
        assert_eq!(described.all_labels(), sorted);
    }
}
