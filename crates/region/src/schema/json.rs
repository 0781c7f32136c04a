// SPDX-License-Identifier: Apache-2.0
//! Where JSON must be stricter than serde is by itself, and the canonical number form.
//!
//! Derived readers also take a list for a structure, `null` for an absent value and the last of two equal keys; docs/format/schema.md refuses all three,
//! so that one text cannot mean two things to two readers.

use super::{Place, Rule, Schema, SchemaError};
use crate::number::decimal;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io;
use std::marker::PhantomData;

/// A schema that is not checked yet, and the first key in it that is not known.
pub(super) fn read(json: &str) -> Result<(Schema, Option<String>), SchemaError> {
    let refused = |error: serde_json::Error| SchemaError::new(Place::Schema, Rule::Json(error.to_string()));
    let mut unknown = None;
    let mut note = |path: serde_ignored::Path<'_>| {
        unknown.get_or_insert_with(|| path.to_string());
    };
    let mut reader = serde_json::Deserializer::from_str(json);
    let Object(schema) =
        Object::<Schema>::deserialize(serde_ignored::Deserializer::new(&mut reader, &mut note)).map_err(refused)?;
    reader.end().map_err(refused)?;
    Ok((schema, unknown))
}

/// A structure that is written as an object and as nothing else.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Only(PhantomData))
    }
}

/// A list of objects.
pub(super) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Vec::<Object<T>>::deserialize(deserializer).map(|list| list.into_iter().map(|object| object.0).collect())
}

/// An object that may be absent but not `null`.
pub(super) fn some_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Object::deserialize(deserializer).map(|object| Some(object.0))
}

/// A value that may be absent but not `null`.
pub(super) fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Labels, each given once.
pub(super) fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Labels;
    impl<'de> Visitor<'de> for Labels {
        type Value = BTreeMap<String, String>;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("an object of texts")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut labels = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                match labels.entry(name) {
                    Entry::Occupied(known) => {
                        return Err(A::Error::custom(format!("duplicate label `{}`", known.key().escape_debug())));
                    }
                    Entry::Vacant(free) => free.insert(map.next_value()?),
                };
            }
            Ok(labels)
        }
    }
    deserializer.deserialize_map(Labels)
}

/// Labels that may be absent but not `null`.
pub(super) fn some_labels<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    labels(deserializer).map(Some)
}

/// serde_json's compact form, but with large doubles as `1e16` where it prints `1e+16`.
pub(super) struct Canonical;

impl serde_json::ser::Formatter for Canonical {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(decimal(value).as_bytes())
    }
}
