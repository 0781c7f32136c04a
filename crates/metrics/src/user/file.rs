// SPDX-License-Identifier: Apache-2.0
//! A collector's file: TOML, unknown keys refused. What it says of itself is checked here; what it says of the kernel, by those who look there.

use std::collections::BTreeMap;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Array, Field, Group, Metric, Type, check_name};
use serde::Deserialize;

use super::path::Path;

/// Values (`[[value]]`) of a collector.
pub const MAX_VALUES: usize = 256;
/// Blocks of a collector.
pub const MAX_BLOCKS: u32 = 16;
/// Slots of a block.
pub(super) const SLOTS: u32 = 124;
/// Bytes of a collector's name.
const MAX_NAME_BYTES: usize = 32;
/// What each region's name begins with.
pub const REGION_PREFIX: &str = "user_";
/// Label of a variable that each CPU has.
pub(super) const CPU_LABEL: &str = "cpu";

/// A collector.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Definition {
    /// Its region is `user_<name>`.
    pub(super) name: String,
    /// The BPF object that fills its blocks, a file beside this one; none: a table.
    #[serde(default)]
    pub(super) object: Option<String>,
    /// Blocks of a BPF object's; by its slots unless told.
    #[serde(default)]
    pub(super) blocks: Option<u32>,
    /// For a BPF object: paths whose addresses it is to find in its map `addresses`.
    #[serde(default)]
    pub(super) addresses: Vec<String>,
    /// What is told.
    #[serde(default, rename = "value")]
    pub(super) values: Vec<Value>,
}

/// What a value is to Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// How a BPF object stores a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stored {
    U64,
    I64,
    F64,
}

/// A metric, or an array of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Value {
    pub(super) metric: String,
    pub(super) kind: Kind,
    #[serde(default)]
    pub(super) help: String,
    #[serde(default)]
    pub(super) unit: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) scale: Option<f64>,
    /// Table: where it is.
    #[serde(default)]
    pub(super) from: Option<String>,
    /// Table: type of the symbol that the path begins with, for one of kallsyms.
    #[serde(default)]
    pub(super) symbol_type: Option<String>,
    /// Table: bytes of a number.
    #[serde(default)]
    pub(super) width: Option<u32>,
    #[serde(default)]
    pub(super) signed: Option<bool>,
    /// Elements of an array.
    #[serde(default)]
    pub(super) count: Option<u32>,
    /// Table: bytes from an element to the next; object: slots.
    #[serde(default)]
    pub(super) stride: Option<u32>,
    /// Label that tells elements apart.
    #[serde(default)]
    pub(super) label: Option<String>,
    /// Its values; 0, 1, ... unless told.
    #[serde(default)]
    pub(super) label_values: Option<Vec<String>>,
    /// Object: the first slot.
    #[serde(default)]
    pub(super) slot: Option<u32>,
    /// Object: how it is stored.
    #[serde(default, rename = "type")]
    pub(super) stored: Option<Stored>,
}

impl Definition {
    /// Of a file's text.
    ///
    /// # Errors
    /// The line or the key, and what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parsed: Result<Self, _> = onlooker_settings::parse(text);
        let definition = parsed.map_err(|mistake| format!("line {}: {}", mistake.line, mistake.message))?;
        definition.check()?;
        Ok(definition)
    }

    /// The region's name.
    pub(super) fn region(&self) -> String {
        format!("{REGION_PREFIX}{}", self.name)
    }

    fn check(&self) -> Result<(), String> {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES || !self.name.bytes().all(good) {
            return Err(format!("name = {:?}: must be 1 to {MAX_NAME_BYTES} of a-z, 0-9 and _", self.name));
        }
        if self.values.is_empty() {
            return Err("there is no [[value]]: a collector tells at least one".into());
        }
        if self.values.len() > MAX_VALUES {
            return Err(format!("{} [[value]] sections: at most {MAX_VALUES}; make arrays of some", self.values.len()));
        }
        self.check_object()?;
        for (number, value) in self.values.iter().enumerate() {
            value.check(self.object.is_some()).map_err(|reason| value.explain(number, &reason))?;
        }
        Ok(())
    }

    fn check_object(&self) -> Result<(), String> {
        let Some(object) = &self.object else {
            let only = [("blocks", self.blocks.is_some()), ("addresses", !self.addresses.is_empty())];
            return match only.iter().find(|(_, given)| *given) {
                Some((key, _)) => Err(format!("{key}: is for collectors with `object` only")),
                None => Ok(()),
            };
        };
        if object.is_empty() || object.contains('/') {
            return Err(format!("object = {object:?}: must be the name of a file beside this one, without /"));
        }
        for address in &self.addresses {
            Path::parse(address).map_err(|reason| format!("addresses: {reason}"))?;
        }
        match self.blocks {
            Some(blocks) if blocks == 0 || blocks > MAX_BLOCKS => {
                Err(format!("blocks = {blocks}: must be 1 to {MAX_BLOCKS}"))
            }
            _ => Ok(()),
        }
    }
}

impl Value {
    /// A message of value `number` of the file.
    pub(super) fn explain(&self, number: usize, reason: &str) -> String {
        format!("[[value]] {} ({}): {reason}", number + 1, self.metric)
    }

    fn check(&self, of_object: bool) -> Result<(), String> {
        check_name(&self.metric).map_err(|rule| format!("metric: {rule}"))?;
        let for_table = [
            ("from", self.from.is_some()),
            ("symbol_type", self.symbol_type.is_some()),
            ("width", self.width.is_some()),
            ("signed", self.signed.is_some()),
        ];
        let for_object = [("slot", self.slot.is_some()), ("type", self.stored.is_some())];
        let (needed, foreign, whose) = if of_object {
            (&for_object[..], &for_table[..], "collectors without `object`")
        } else {
            (&for_table[..1], &for_object[..], "collectors with `object`")
        };
        if let Some((key, _)) = foreign.iter().find(|(_, given)| *given) {
            return Err(format!("{key}: is for {whose} only"));
        }
        if let Some((key, _)) = needed.iter().find(|(_, given)| !given) {
            return Err(format!("{key}: is missing"));
        }
        if let Some(from) = &self.from {
            Path::parse(from).map_err(|reason| format!("from: {reason}"))?;
        }
        if let Some(width) = self.width.filter(|width| ![1, 2, 4, 8].contains(width)) {
            return Err(format!("width = {width}: must be 1, 2, 4 or 8 bytes"));
        }
        if self.count == Some(0) || self.count.is_some_and(|count| count > MAX_BLOCKS * SLOTS) {
            return Err(format!("count: must be 1 to {} (what {MAX_BLOCKS} blocks hold)", MAX_BLOCKS * SLOTS));
        }
        if of_object
            && self.count.is_none()
            && (self.stride.is_some() || self.label.is_some() || self.label_values.is_some())
        {
            return Err("stride, label and label_values are for arrays: give count, too".into());
        }
        if self.stride == Some(0) {
            return Err("stride: must be 1 or more".into());
        }
        Ok(())
    }

    /// The field with all that does not depend on where it is.
    pub(super) fn field(&self, kind: Type, slot: u32) -> Field {
        let metric = match self.kind {
            Kind::Counter => Metric::Counter,
            Kind::Gauge => Metric::Gauge,
        };
        let mut field = Field::new(&self.metric, metric, kind, slot);
        field.help.clone_from(&self.help);
        field.unit.clone_from(&self.unit);
        field.labels.clone_from(&self.labels);
        field.scale = self.scale.unwrap_or(1.0);
        field
    }

    /// Elements of an array as the schema has them.
    pub(super) fn array(&self, count: u32, stride: u32) -> Array {
        let label = self.label.clone().unwrap_or_else(|| "index".into());
        Array { label, count, stride, values: self.label_values.clone() }
    }
}

/// The region's class.
///
/// # Errors
/// The rule of schemas that is broken.
pub(super) fn schema(definition: &Definition, blocks: u32, fields: Vec<Field>) -> Result<Schema, String> {
    let mut group = Group::new(onlooker_region::schema::Kind::Computed, blocks, fields);
    group.acquisition = Acquisition::Computed;
    let schema = Schema { name: definition.region(), groups: vec![group] };
    schema.check().map_err(|error| error.to_string())?;
    Ok(schema)
}

/// The class of a BPF object's region.
///
/// # Errors
/// The key, and what is wrong.
pub(super) fn object_schema(definition: &Definition) -> Result<Schema, String> {
    let mut fields = Vec::new();
    let mut end = 0;
    for (number, value) in definition.values.iter().enumerate() {
        let (Some(slot), Some(stored)) = (value.slot, value.stored) else {
            return Err(value.explain(number, "slot and type are missing"));
        };
        let kind = match stored {
            Stored::U64 => Type::U64,
            Stored::I64 => Type::I64,
            Stored::F64 => Type::F64,
        };
        let mut field = value.field(kind, slot);
        field.array = value.count.map(|count| value.array(count, value.stride.unwrap_or(1)));
        let last = field.array.as_ref().map_or(0, |array| u64::from(array.count - 1) * u64::from(array.stride));
        end = end.max(u64::from(slot) + last + 1);
        fields.push(field);
    }
    let needed = end.div_ceil(u64::from(SLOTS));
    let blocks = u64::from(definition.blocks.unwrap_or_else(|| u32::try_from(needed).unwrap_or(u32::MAX)));
    if needed > blocks || blocks > u64::from(MAX_BLOCKS) {
        let room = definition.blocks.unwrap_or(MAX_BLOCKS);
        return Err(format!("its slots take {needed} blocks of {SLOTS}: at most {room}"));
    }
    schema(definition, u32::try_from(blocks).unwrap_or(MAX_BLOCKS), fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "name = \"a\"\n[[value]]\nmetric = \"m\"\nkind = \"gauge\"\nfrom = \"net.a\"\n";
    const OBJECT: &str =
        "name = \"a\"\nobject = \"a.bpf.o\"\n[[value]]\nmetric = \"m\"\nkind = \"gauge\"\nslot = 3\ntype = \"u64\"\n";

    #[test]
    fn both_kinds_are_read() {
        let table = Definition::parse(TABLE).unwrap();
        assert_eq!((table.region().as_str(), table.values[0].from.as_deref()), ("user_a", Some("net.a")));
        let object = Definition::parse(OBJECT).unwrap();
        let schema = object_schema(&object).unwrap();
        assert_eq!((schema.blocks(), schema.groups[0].fields[0].slot), (1, 3));
        let array = Definition::parse(&format!("{OBJECT}count = 3\nstride = 124\n")).unwrap();
        assert_eq!(object_schema(&array).unwrap().blocks(), 3);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let of_table = |more: &str| format!("{TABLE}{more}\n");
        let of_object = |more: &str| format!("{OBJECT}{more}\n");
        for (text, part) in [
            (TABLE.replace("from", "form"), "line 5: unknown key `form`: did you mean `from`?"),
            (TABLE.replace("\"a\"", "\"A\""), "name = \"A\": must be 1 to 32 of"),
            (TABLE.replace("\"m\"", "\"1\""), "[[value]] 1 (1): metric: "),
            (TABLE.replace("gauge", "gaugge"), "unknown value `gaugge`"),
            (TABLE.replace("from = \"net.a\"\n", ""), "[[value]] 1 (m): from: is missing"),
            ("name = \"a\"\n".into(), "no [[value]]"),
            (of_table("slot = 1"), "slot: is for collectors with `object` only"),
            (of_table("width = 3"), "width = 3: must be 1, 2, 4 or 8"),
            (of_table("count = 0"), "count: must be 1 to 1984"),
            (format!("blocks = 1\n{TABLE}"), "blocks: is for"),
            (of_object("from = \"a\""), "from: is for collectors without `object` only"),
            (of_object("label = \"x\""), "give count, too"),
            (of_object("stride = 0\ncount = 2"), "stride: must be 1 or more"),
            (OBJECT.replace("a.bpf.o", "../a.bpf.o"), "a file beside this one"),
            (OBJECT.replace("slot = 3\n", ""), "slot: is missing"),
            (format!("blocks = 17\n{OBJECT}"), "blocks = 17: must be 1 to 16"),
        ] {
            let error = Definition::parse(&text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let wide = Definition::parse(&OBJECT.replace("slot = 3", "slot = 1984")).unwrap();
        assert!(object_schema(&wide).unwrap_err().contains("take 17 blocks of 124: at most 16"));
        let twice = "[[value]]\nmetric = \"n\"\nkind = \"gauge\"\nslot = 3\ntype = \"u64\"\n";
        assert!(object_schema(&Definition::parse(&format!("{OBJECT}{twice}")).unwrap()).is_err());
        let many = format!("name = \"a\"\n{}", &TABLE["name = \"a\"\n".len()..].repeat(MAX_VALUES + 1));
        assert!(Definition::parse(&many).unwrap_err().contains("257 [[value]] sections: at most 256"));
    }
}
