// SPDX-License-Identifier: Apache-2.0
//! The rules of docs/format/schema.md. Cost is linear in fields, columns and slots; nothing recurses.

use super::{Field, Group, Kind, Metric, Place, Rule, Schema, SchemaError, Sum, Type};
use crate::limits::{
    GUARDED_SLOTS, MAX_COLUMNS, MAX_FIELDS, MAX_GROUPS, MAX_HELP_BYTES, MAX_HISTOGRAM_BUCKETS, MAX_KEY_BYTES,
    MAX_KEY_PARTS, MAX_LABEL_VALUE_BYTES, MAX_LABELS, MAX_NAME_BYTES, MAX_REGION_BLOCKS, MAX_UNIT_BYTES,
};
use crate::table::KeyType;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

type Checked = Result<(), Rule>;

pub(super) fn schema(schema: &Schema) -> Result<(), SchemaError> {
    let whole = |rule| SchemaError::new(Place::Schema, rule);
    metric_name(&schema.name).map_err(whole)?;
    limit("MAX_GROUPS", MAX_GROUPS, schema.groups.len()).map_err(whole)?;
    limit("MAX_FIELDS", MAX_FIELDS, schema.groups.iter().map(|g| g.fields.len()).sum()).map_err(whole)?;
    if schema.groups.is_empty() {
        return Err(whole(Rule::Empty));
    }
    let blocks: u64 = schema.groups.iter().map(|g| u64::from(g.blocks)).sum();
    limit("MAX_REGION_BLOCKS", MAX_REGION_BLOCKS as usize, usize::try_from(blocks).unwrap_or(usize::MAX))
        .map_err(whole)?;
    let columns: u64 = schema.groups.iter().flat_map(|g| &g.fields).map(|f| u64::from(f.elements())).sum();
    limit("MAX_COLUMNS", MAX_COLUMNS, usize::try_from(columns).unwrap_or(usize::MAX)).map_err(whole)?;

    for (number, group) in schema.groups.iter().enumerate() {
        self::group(schema, group).map_err(|rule| SchemaError::new(Place::Group(number), rule))?;
        for field in &group.fields {
            self::field(group, field)
                .map_err(|rule| SchemaError::new(Place::Field(number, field.name.clone()), rule))?;
        }
        overlaps(number, group)?;
    }
    duplicates(schema)?;
    sums(schema)
}

fn limit(what: &'static str, limit: usize, got: usize) -> Checked {
    if got > limit { Err(Rule::Limit { what, limit, got }) } else { Ok(()) }
}

/// Metric, class and region names.
pub(super) fn metric_name(name: &str) -> Checked {
    limit("MAX_NAME_BYTES", MAX_NAME_BYTES, name.len())?;
    let ok = |(i, c): (usize, char)| c.is_ascii_alphabetic() || c == '_' || c == ':' || (i > 0 && c.is_ascii_digit());
    if !name.is_empty() && name.char_indices().all(ok) { Ok(()) } else { Err(Rule::MetricName(name.into())) }
}

/// Label names; a region's labels obey the same rule.
pub(super) fn label_name(name: &str) -> Checked {
    limit("MAX_NAME_BYTES", MAX_NAME_BYTES, name.len())?;
    let ok = |(i, c): (usize, char)| c.is_ascii_alphabetic() || c == '_' || (i > 0 && c.is_ascii_digit());
    if name.starts_with("__") {
        return Err(Rule::ReservedLabel(name.into()));
    }
    if !name.is_empty() && name.char_indices().all(ok) { Ok(()) } else { Err(Rule::LabelName(name.into())) }
}

/// Values of labels, a region's too.
pub(super) fn label_value(value: &str) -> Checked {
    limit("MAX_LABEL_VALUE_BYTES", MAX_LABEL_VALUE_BYTES, value.len())?;
    if value.is_empty() || value.contains('\0') { Err(Rule::LabelValue) } else { Ok(()) }
}

fn group(schema: &Schema, group: &Group) -> Checked {
    if group.blocks == 0 {
        return Err(Rule::NoBlocks);
    }
    if group.key.is_empty() == (group.kind == Kind::Table) {
        return Err(Rule::Key);
    }
    limit("MAX_KEY_PARTS", MAX_KEY_PARTS, group.key.len())?;
    let mut names = HashSet::new();
    let mut bytes = 0usize;
    for part in &group.key {
        label_name(&part.name)?;
        if !names.insert(&part.name) {
            return Err(Rule::DuplicateLabel(part.name.clone()));
        }
        let valid = if part.kind == KeyType::Text { part.bytes >= 8 && part.bytes % 8 == 0 } else { part.bytes == 0 };
        if !valid {
            return Err(Rule::KeyBytes(part.name.clone()));
        }
        bytes = bytes.saturating_add(part.words().saturating_mul(8));
    }
    limit("MAX_KEY_BYTES", MAX_KEY_BYTES, bytes)?;
    twin(schema, group)
}

/// A twin takes its computed group's place where a card answers, so it must look the same.
fn twin(schema: &Schema, group: &Group) -> Checked {
    let Some(of) = group.twin_of else { return Ok(()) };
    let twins = schema.groups.iter().filter(|other| other.twin_of == Some(of)).count();
    match schema.groups.get(of as usize) {
        Some(computed)
            if computed.kind == Kind::Computed
                && group.kind == Kind::Guarded
                && computed.blocks == group.blocks
                && computed.fields == group.fields
                && twins == 1 =>
        {
            Ok(())
        }
        _ => Err(Rule::Twin),
    }
}

fn field(group: &Group, field: &Field) -> Checked {
    metric_name(&field.name)?;
    limit("MAX_UNIT_BYTES", MAX_UNIT_BYTES, field.unit.len())?;
    limit("MAX_HELP_BYTES", MAX_HELP_BYTES, field.help.len())?;
    if !field.scale.is_finite() || field.scale <= 0.0 {
        return Err(Rule::Scale);
    }
    stored_type(group, field)?;
    array(field)?;
    labels(group, field)?;
    sum(group, field)?;
    place(group, field)
}

fn stored_type(group: &Group, field: &Field) -> Checked {
    use Type as T;
    let allowed = match field.metric {
        Metric::Counter => !matches!(field.kind, T::Text | T::I8 | T::I16 | T::I32 | T::I64),
        Metric::Gauge => field.kind != T::Text,
        Metric::Histogram => field.kind == T::U64,
        Metric::Info => field.kind == T::Text,
    };
    if !allowed {
        let metric = ["a counter", "a gauge", "a histogram", "an info"][field.metric as usize];
        return Err(Rule::Type { metric, kind: format!("{:?}", field.kind).to_lowercase() });
    }
    if group.kind != Kind::Foreign && field.kind != T::Text && field.kind.width() != 8 {
        return Err(Rule::Narrow);
    }
    let text_ok =
        if field.kind == T::Text { field.bytes >= 8 && field.bytes.is_multiple_of(8) } else { field.bytes == 0 };
    if !text_ok {
        return Err(Rule::TextBytes);
    }
    limit("MAX_LABEL_VALUE_BYTES", MAX_LABEL_VALUE_BYTES, field.bytes as usize)?;
    match field.histogram {
        Some(shape) if field.metric == Metric::Histogram && shape.is_valid() => {
            limit("MAX_HISTOGRAM_BUCKETS", MAX_HISTOGRAM_BUCKETS, shape.buckets())
        }
        None if field.metric != Metric::Histogram => Ok(()),
        _ => Err(Rule::Histogram),
    }
}

/// Size of one element in the group's measure: bytes in foreign groups, slots elsewhere.
fn size(group: &Group, field: &Field) -> u64 {
    if group.kind == Kind::Foreign && field.histogram.is_none() {
        u64::from(if field.kind == Type::Text { field.bytes } else { field.kind.width() })
    } else {
        field.slots() as u64 * if group.kind == Kind::Foreign { 8 } else { 1 }
    }
}

fn array(field: &Field) -> Checked {
    let Some(array) = &field.array else { return Ok(()) };
    label_name(&array.label)?;
    if array.count == 0 {
        return Err(Rule::NoElements);
    }
    let Some(values) = &array.values else { return Ok(()) };
    if values.len() != array.count as usize || values.iter().collect::<HashSet<_>>().len() != values.len() {
        return Err(Rule::Array);
    }
    values.iter().try_for_each(|value| label_value(value))
}

/// A field's sum, by itself.
fn sum(group: &Group, field: &Field) -> Checked {
    let Some(sum) = &field.sum else { return Ok(()) };
    let is_whole = match field.metric {
        Metric::Counter => field.kind == Type::U64,
        Metric::Gauge => matches!(field.kind, Type::U64 | Type::I64),
        Metric::Histogram | Metric::Info => false,
    };
    if !is_whole || field.array.is_none() || sum.name == field.name {
        return Err(Rule::Sum);
    }
    metric_name(field.sum_name(sum))?;
    limit("MAX_HELP_BYTES", MAX_HELP_BYTES, sum.help.len())?;
    constant_labels(field.sum_labels(sum))?;
    let mut keys = group.key.iter().filter(|part| field.sum_labels(sum).contains_key(&part.name));
    keys.next().map_or(Ok(()), |part| Err(Rule::DuplicateLabel(part.name.clone())))
}

fn constant_labels(labels: &BTreeMap<String, String>) -> Checked {
    limit("MAX_LABELS", MAX_LABELS, labels.len())?;
    for (name, value) in labels {
        label_name(name)?;
        label_value(value)?;
    }
    Ok(())
}

fn labels(group: &Group, field: &Field) -> Checked {
    constant_labels(&field.labels)?;
    let reserved = field.metric.reserved_label();
    let mut names: HashSet<&str> = field.labels.keys().map(String::as_str).collect();
    let added =
        field.array.iter().map(|a| a.label.as_str()).chain(group.key.iter().map(|k| k.name.as_str())).chain(reserved);
    for name in added {
        if !names.insert(name) {
            return Err(Rule::DuplicateLabel(name.into()));
        }
    }
    Ok(())
}

/// First unit of each element.
fn starts(field: &Field) -> impl Iterator<Item = u64> + '_ {
    let stride = field.array.as_ref().map_or(0, |a| u64::from(a.stride));
    (0..u64::from(field.elements())).map(move |element| u64::from(field.slot) + element * stride)
}

fn place(group: &Group, field: &Field) -> Checked {
    let size = size(group, field);
    let room = group.room();
    let end = starts(field).last().unwrap_or(0) + size;
    if end > room as u64 {
        return Err(if group.kind == Kind::Table {
            Rule::RowTooLong { end, room }
        } else {
            Rule::Outside { end, room }
        });
    }
    match group.kind {
        Kind::Foreign => {
            let width = if field.kind == Type::Text { 1 } else { field.kind.width() };
            if starts(field).any(|start| start % u64::from(width) != 0) { Err(Rule::Misaligned(width)) } else { Ok(()) }
        }
        Kind::Guarded | Kind::Computed => {
            let block = GUARDED_SLOTS as u64;
            if starts(field).any(|start| start / block != (start + size - 1) / block) {
                Err(Rule::Spans)
            } else {
                Ok(())
            }
        }
        Kind::Plain | Kind::Table => Ok(()),
    }
}

fn overlaps(number: usize, group: &Group) -> Result<(), SchemaError> {
    let mut taken: Vec<(u64, u64, &Field)> =
        group.fields.iter().flat_map(|f| starts(f).map(move |s| (s, s + size(group, f), f))).collect();
    taken.sort_unstable_by_key(|(start, ..)| *start);
    match taken.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        Some(pair) => {
            Err(SchemaError::new(Place::Field(number, pair[1].2.name.clone()), Rule::Overlap(pair[0].2.name.clone())))
        }
        None => Ok(()),
    }
}

/// Series must differ in name or labels; a published twin repeats its computed group's series on purpose.
fn duplicates(schema: &Schema) -> Result<(), SchemaError> {
    let mut fields_of_name: HashMap<&str, u32> = HashMap::new();
    let live = || {
        schema
            .groups
            .iter()
            .enumerate()
            .filter(|(_, g)| g.twin_of.is_none())
            .flat_map(|(n, g)| g.fields.iter().map(move |f| (n, g, f)))
    };
    for (_, _, field) in live() {
        *fields_of_name.entry(&field.name).or_default() += 1;
    }
    let mut seen = HashSet::new();
    for (number, group, field) in live().filter(|(_, _, f)| fields_of_name[f.name.as_str()] > 1) {
        for element in 0..field.elements() {
            if !seen.insert(series_hash(group, field, element)) {
                return Err(SchemaError::new(Place::Field(number, field.name.clone()), Rule::DuplicateSeries));
            }
        }
    }
    Ok(())
}

/// Parts of a sum must be alike, and each element one of them; what is shown has another name.
fn sums(schema: &Schema) -> Result<(), SchemaError> {
    let live = || schema.groups.iter().enumerate().filter(|(_, group)| group.twin_of.is_none());
    let fields = || live().flat_map(|(number, group)| group.fields.iter().map(move |field| (number, group, field)));
    if fields().all(|(.., field)| field.sum.is_none()) {
        return Ok(());
    }
    let shown: HashSet<&str> = fields()
        .filter(|(.., field)| !field.sum.as_ref().is_some_and(Sum::replaces))
        .map(|(.., field)| field.name.as_str())
        .collect();
    let mut first: HashMap<_, (&Group, &Field)> = HashMap::new();
    let mut elements = HashSet::new();
    for (number, group, field) in fields() {
        let Some(sum) = &field.sum else { continue };
        let name = field.sum_name(sum);
        let refused = |rule| Err(SchemaError::new(Place::Field(number, field.name.clone()), rule));
        if shown.contains(name) {
            return refused(Rule::Sum);
        }
        let series = (name, field.sum_labels(sum));
        let (of, like) = *first.entry(series).or_insert((group, field));
        let label = |field: &'_ Field| field.array.as_ref().map(|array| array.label.clone());
        #[allow(clippy::float_cmp, reason = "the same in all parts")]
        let is_alike = (like.metric, like.kind, &like.unit, label(like), &of.key)
            == (field.metric, field.kind, &field.unit, label(field), &group.key)
            && like.scale == field.scale
            && like.sum.as_ref().is_some_and(|other| other.handed_over == sum.handed_over);
        let array = field.array.iter();
        let is_new = array
            .flat_map(|array| (0..array.count).map(|at| array.value(at)))
            .all(|element| elements.insert((series, element)));
        if !is_alike || !is_new {
            return refused(Rule::Parts(name.into()));
        }
    }
    Ok(())
}

/// 64 bits stand for the series: at most 65,536 of them meet here, so a false match has a chance below 2^-32.
fn series_hash(group: &Group, field: &Field, element: u32) -> u64 {
    let mut labels = field.labels.clone();
    if let Some(array) = &field.array {
        labels.insert(array.label.clone(), array.value(element));
    }
    let mut hasher = DefaultHasher::new();
    (&field.name, &labels).hash(&mut hasher);
    group.key.iter().for_each(|part| part.name.hash(&mut hasher));
    hasher.finish()
}
