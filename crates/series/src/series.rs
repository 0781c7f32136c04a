// SPDX-License-Identifier: Apache-2.0
//! What a host's values are called, and how they stand in a row.
//!
//! An *entity* is what is consistent in itself and lives and dies as one: a group of a region, or one row of a table. Its values make a row of words, the
//! same from reading to reading, which the store keeps as it is; names, labels and types are worked out once, when the entity is first seen.

use std::collections::BTreeMap;

use onlooker_region::Identity;
use onlooker_region::columns::{Sample, Value};
use onlooker_region::control::RegionEntry;
use onlooker_region::histogram::Shape;
use onlooker_region::labels;
use onlooker_region::schema::{Acquisition, Group, Metric, Schema};
use serde::{Deserialize, Serialize};

use crate::exposition::labels_text;
use crate::text::{Labels, Text};

/// Label that has an info's text.
const VALUE: &str = "value";

/// Which entity of a host. In JSON it is `[region, group, row]`, as stores have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u64, u32, Option<(u32, u32)>)", into = "(u64, u32, Option<(u32, u32)>)")]
pub struct EntityKey {
    /// Identity word of the region's block 0: region and generation.
    pub region: u64,
    /// Number of the group in the schema.
    pub group: u32,
    /// Number and generation of the table row.
    pub row: Option<(u32, u32)>,
}

impl From<(u64, u32, Option<(u32, u32)>)> for EntityKey {
    fn from((region, group, row): (u64, u32, Option<(u32, u32)>)) -> Self {
        Self { region, group, row }
    }
}

impl From<EntityKey> for (u64, u32, Option<(u32, u32)>) {
    fn from(EntityKey { region, group, row }: EntityKey) -> Self {
        (region, group, row)
    }
}

impl EntityKey {
    /// Region of what the controller itself knows of a host; no identity word is this one.
    pub const OWN_REGION: u64 = u64::MAX;

    /// Source of what belongs to no host, since rules have recorded it; no identity word is this one either.
    pub const RECORDED: u64 = u64::MAX - 1;

    /// The same of native histograms: a row has all of one.
    pub const RECORDED_NATIVE: u64 = u64::MAX - 2;

    /// Group numbers of sums begin here; a schema has far fewer groups.
    pub const SUMS: u32 = 1 << 31;

    /// Whether it is the controller's own.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.region == Self::OWN_REGION
    }

    /// Whether it is of a region of the host's agent, or the controller's own: not of a program's.
    #[must_use]
    pub fn is_vouched_for(&self) -> bool {
        self.is_own() || Identity::from_word(self.region).is_some_and(Identity::is_agents)
    }
}

/// How a series' words are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// One word, u64.
    Unsigned,
    /// One word, i64.
    Signed,
    /// One word, f64.
    Float,
    /// No words: the text is part of the description.
    Text,
    /// Buckets and the sum.
    Histogram(Shape),
}

impl Form {
    /// Of a value.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        match value {
            Value::U64(_) => Self::Unsigned,
            Value::I64(_) => Self::Signed,
            Value::F64(_) => Self::Float,
            Value::Text(_) => Self::Text,
            Value::Histogram { shape, .. } => Self::Histogram(*shape),
        }
    }

    /// Words that a value takes.
    #[must_use]
    pub fn words(self) -> usize {
        match self {
            Self::Text => 0,
            Self::Unsigned | Self::Signed | Self::Float => 1,
            Self::Histogram(shape) => shape.slots(),
        }
    }
}

/// One series: what is said of it once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Metric name.
    pub name: Text,
    /// All labels, the region's own and the target's too.
    pub labels: Labels,
    /// What it is to Prometheus.
    pub metric: Metric,
    /// Unit, or nothing.
    pub unit: Text,
    /// Help, or nothing.
    pub help: Text,
    /// What a stored number is to be multiplied with.
    pub scale: f64,
    /// How finely it really moves, ns; 0: no coarser than it is read.
    pub resolution_ns: u64,
    /// How values get there.
    pub acquisition: Acquisition,
    /// How to read its words.
    pub form: Form,
    /// First of its words in the row.
    pub at: usize,
}

impl Series {
    /// One whose samples are numbers as they are, without labels and help, in a computed row's first words.
    #[must_use]
    pub fn new(name: &str, metric: Metric, form: Form) -> Self {
        Self {
            name: name.into(),
            labels: Vec::new().into(),
            metric,
            unit: "".into(),
            help: "".into(),
            scale: 1.0,
            resolution_ns: 0,
            acquisition: Acquisition::Computed,
            form,
            at: 0,
        }
    }

    /// As Prometheus writes it, labels sorted.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}{}", self.name, labels_text(self.labels.iter()))
    }

    /// The text of an info.
    #[must_use]
    pub fn info(&self) -> Option<&str> {
        self.labels.get(VALUE).filter(|_| self.form == Form::Text)
    }

    /// Its words in a row.
    #[must_use]
    pub fn words<'a>(&self, row: &'a [u64]) -> &'a [u64] {
        row.get(self.at..self.at + self.form.words()).unwrap_or(&[])
    }

    /// Its value in a row; `None` for a row that is too short.
    #[must_use]
    pub fn value(&self, row: &[u64]) -> Option<Value> {
        let words = self.words(row);
        Some(match self.form {
            Form::Text => Value::Text(self.info().unwrap_or_default().to_owned()),
            Form::Unsigned => Value::U64(*words.first()?),
            Form::Signed => Value::I64(words.first()?.cast_signed()),
            Form::Float => Value::F64(f64::from_bits(*words.first()?)),
            Form::Histogram(shape) => {
                let (sum, buckets) = words.split_last()?;
                Value::Histogram { buckets: buckets.to_vec(), shape, sum: *sum }
            }
        })
    }

    /// The exported number of a row, as [`Value::scaled`] has it.
    #[must_use]
    pub fn number(&self, row: &[u64]) -> Option<f64> {
        self.value(row).map(|value| value.scaled(self.scale))
    }
}

/// Which group a sample is of.
#[must_use]
pub fn group_number(schema: &Schema, group: &Group) -> u32 {
    let number = schema.groups.iter().position(|other| std::ptr::eq(other, group));
    u32::try_from(number.unwrap_or(0)).unwrap_or(0)
}

/// Labels of a series, each attached from outside of the one behind it ([`labels::joined`]): the target's, the region's, of which the agent vouches for `pid`, its own.
#[must_use]
pub fn labels_of(
    common: &BTreeMap<String, String>,
    region: &[(String, String)],
    own: Vec<(String, String)>,
    metric: Metric,
) -> Vec<(String, String)> {
    let reserved = metric.reserved_label();
    let common: Vec<_> = common.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    labels::joined(&common, labels::joined(region, own, reserved), reserved)
}

/// Describes the series of an entity from its samples, in their order, with the labels of fields and elements alone:
/// what all hosts and all rows of a table have in common. [`named`] adds the rest.
#[must_use]
pub fn describe_own(entry: &RegionEntry, samples: &[Sample<'_>]) -> Vec<Series> {
    let mut at = 0;
    let describe = |sample: &Sample<'_>| {
        let (field, form) = (sample.field, Form::of(&sample.value));
        let series = Series {
            name: field.name.as_str().into(),
            labels: sample.own_labels().into(),
            metric: field.metric,
            unit: field.unit.as_str().into(),
            help: field.help.as_str().into(),
            scale: field.scale,
            resolution_ns: field.resolution_ns,
            acquisition: entry.acquisition(sample.group),
            form,
            at,
        };
        at += form.words();
        series
    };
    samples.iter().map(describe).collect()
}

/// A series with all its labels: its own ones, which [`describe_own`] gave it, joined with its row's, its region's and
/// its target's, and its text, if it has one.
#[must_use]
pub fn named(
    own: &Series,
    row: &[(String, String)],
    region: &[(String, String)],
    common: &BTreeMap<String, String>,
    text: Option<&str>,
) -> Series {
    let pairs = own.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut labels = labels_of(common, region, row.iter().cloned().chain(pairs).collect(), own.metric);
    labels.extend(text.filter(|text| !text.is_empty()).map(|text| (VALUE.to_owned(), text.to_owned())));
    Series { labels: labels.into(), ..own.clone() }
}

/// The words of an entity's samples.
pub fn fill(samples: &[Sample<'_>], row: &mut Vec<u64>) {
    row.clear();
    for sample in samples {
        match &sample.value {
            Value::U64(value) => row.push(*value),
            Value::I64(value) => row.push(value.cast_unsigned()),
            Value::F64(value) => row.push(value.to_bits()),
            Value::Text(_) => {}
            Value::Histogram { buckets, sum, .. } => {
                row.extend(buckets);
                row.push(*sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_region::block::Identity;
    use onlooker_region::columns::Plan;
    use onlooker_region::guard::commit;
    use onlooker_region::limits::BLOCK_WORDS;
    use onlooker_region::{Block, SchemaId};
    use std::sync::atomic::AtomicU64;

    const ME: Identity = Identity { region: 3, generation: 4, index: 0 };

    fn entry() -> RegionEntry {
        RegionEntry {
            identity: ME,
            va: 0,
            bytes: 1024,
            rkey: 1,
            device_rkey: 0,
            responders: 1,
            schema: SchemaId([0; 16]),
            pid: 7,
            uid: 0,
            created_ns: 1,
            orphan: false,
            name: "shop".into(),
            labels: vec![
                ("program".into(), "a\"b\\".into()),
                ("dc".into(), "own".into()),
                ("instance".into(), "one".into()),
            ],
        }
    }

    fn described(
        schema: &str,
        entry: &RegionEntry,
        common: &[(&str, &str)],
        fill: impl Fn(&[AtomicU64]),
    ) -> Vec<Series> {
        let plan = Plan::new(Schema::parse(schema).unwrap());
        let words: Vec<AtomicU64> = (0..BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect();
        fill(&words);
        let mut block = Block::default();
        block.copy_from(&words);
        let (mut samples, blocks) = (Vec::new(), [block]);
        plan.decode(entry.identity, &blocks, |sample| samples.push(sample)).unwrap();
        let common = common.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        all_of(entry, &common, &samples)
    }

    /// With all labels, as who shows them has them.
    fn all_of(entry: &RegionEntry, common: &BTreeMap<String, String>, samples: &[Sample<'_>]) -> Vec<Series> {
        let all = |(own, sample): (&Series, &Sample<'_>)| {
            let text = match &sample.value {
                Value::Text(text) => Some(text.as_str()),
                _ => None,
            };
            named(own, &sample.row_labels(), &entry.labels, common, text)
        };
        describe_own(entry, samples).iter().zip(samples).map(all).collect()
    }

    /// Whatever a program's schema calls its labels: its agent's and its target's keep their names, and no empty one makes a second series of one.
    #[test]
    fn nobody_says_what_is_said_from_outside() {
        let entry = |labels: &[(&str, &str)]| RegionEntry {
            labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..entry()
        };
        let plain = |block: &[AtomicU64]| onlooker_region::block::init_plain(block, ME);
        // Constant labels of a field, and the label of an array.
        let schema = r#"{"name":"shop","groups":[{"kind":"plain","blocks":1,"fields":[
            {"name":"shop_queue_length","metric":"gauge","type":"u64","slot":0,"labels":{"pid":"1","program":"sshd","instance":"other","exported_pid":"2"}},
            {"name":"node_load1","metric":"gauge","type":"u64","slot":1,"array":{"label":"pid","count":1,"stride":1,"values":["8"]}}]}]}"#;
        let programs = entry(&[("pid", "77"), ("program", "nobody"), ("dc", "")]);
        let series = described(schema, &programs, &[("instance", "a"), ("rack", "")], plain);
        assert_eq!(
            series[0].text(),
            r#"shop_queue_length{exported_exported_pid="1",exported_instance="other",exported_pid="2",exported_program="sshd",instance="a",pid="77",program="nobody"}"#
        );
        assert_eq!(series[1].text(), r#"node_load1{exported_pid="8",instance="a",pid="77",program="nobody"}"#);
        // Parts of a table's key, both empty texts.
        let schema = r#"{"name":"t","groups":[{"kind":"table","blocks":1,"key":[{"name":"pid","type":"text","bytes":8},{"name":"program","type":"text","bytes":8}],
            "fields":[{"name":"node_load1","metric":"gauge","type":"f64"}]}]}"#;
        let row = |block: &[AtomicU64]| commit(block, ME, 9, |payload| payload.set_all(0, &[1 << 32 | 1, 0, 0]));
        let series = described(schema, &programs, &[("instance", "a")], row);
        assert_eq!(series[0].text(), r#"node_load1{instance="a",pid="77",program="nobody"}"#);
        // A region's label that the format needs, and an info whose text is empty.
        let schema = r#"{"name":"i","groups":[{"kind":"guarded","blocks":1,"fields":[{"name":"i_info","metric":"info","type":"text","bytes":8}]}]}"#;
        let text = |word: u64| {
            move |block: &[AtomicU64]| {
                commit(block, ME, 9, |payload| payload.set(0, word));
            }
        };
        let value = entry(&[("value", "mine")]);
        let series = described(schema, &value, &[], text(u64::from(b'x')));
        assert_eq!(series[0].text(), r#"i_info{exported_value="mine",value="x"}"#);
        let series = described(schema, &value, &[], text(0));
        assert_eq!(series[0].text(), r#"i_info{exported_value="mine"}"#);
        assert_eq!(series[0].value(&[]), Some(Value::Text(String::new())));
    }

    /// A program may write that its values are computed; nobody vouches for it.
    #[test]
    fn only_the_agents_regions_say_how_values_get_there() {
        let schema = r#"{"name":"s","groups":[{"kind":"guarded","acquisition":"sampled","blocks":1,"fields":[{"name":"x","metric":"gauge","type":"u64"}]}]}"#;
        for (region, said) in [(3, Acquisition::Sampled), (255, Acquisition::Sampled), (256, Acquisition::Direct)] {
            let identity = Identity { region, ..ME };
            let entry = RegionEntry { identity, ..entry() };
            let fill = |block: &[AtomicU64]| {
                commit(block, identity, 9, |_| ());
            };
            assert_eq!(described(schema, &entry, &[], fill)[0].acquisition, said, "{region}");
        }
    }

    #[test]
    fn rows_say_again_what_was_read() {
        let schema = Schema::parse(
            r#"{"name":"shop","groups":[{"kind":"guarded","blocks":1,"fields":[
                {"name":"orders_total","metric":"counter","type":"u64","slot":0},
                {"name":"level","metric":"gauge","type":"i64","slot":1},
                {"name":"load","metric":"gauge","type":"f64","slot":2,"scale":2},
                {"name":"seconds","metric":"histogram","type":"u64","slot":3,"histogram":{"grouping_power":1,"max_power":4}}]}]}"#,
        )
        .unwrap();
        let words: Vec<AtomicU64> = (0..BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect();
        commit(&words, ME, 99, |payload| {
            payload.set_all(0, &[5, (-3i64).cast_unsigned(), 1.5f64.to_bits(), 1, 0, 2]);
        });
        let mut block = Block::default();
        block.copy_from(&words);
        let plan = Plan::new(schema);
        let mut samples = Vec::new();
        let blocks = [block];
        plan.decode(ME, &blocks, |sample| samples.push(sample)).unwrap();
        let common = BTreeMap::from([("dc".to_owned(), "target".to_owned()), ("instance".to_owned(), "h".to_owned())]);
        let series = all_of(&entry(), &common, &samples);
        let mut row = Vec::new();
        fill(&samples, &mut row);
        assert_eq!(
            series[0].text(),
            r#"orders_total{dc="target",exported_dc="own",exported_instance="one",instance="h",program="a\"b\\"}"#
        );
        assert_eq!(row.len(), series.iter().map(|series| series.form.words()).sum::<usize>());
        for (series, sample) in series.iter().zip(&samples) {
            assert_eq!(series.value(&row).as_ref(), Some(&sample.value), "{}", series.name);
        }
        assert_eq!([series[1].number(&row), series[2].number(&row)], [Some(-3.0), Some(3.0)]);
        assert_eq!(series[3].value(&row[..4]), None);
        assert_eq!(group_number(plan.schema(), samples[0].group), 0);
        let again: Vec<Series> = serde_json::from_str(&serde_json::to_string(&series).unwrap()).unwrap();
        assert_eq!(again, series);
    }
}
