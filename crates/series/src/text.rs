// SPDX-License-Identifier: Apache-2.0
//! Texts and label sets that many series have in common: names, helps, units, labels of a thousand hosts that run the same programs. Each is there once.
//!
//! Whoever describes a series asks for its texts here; the pool forgets those that nobody else holds when it has doubled. Cost: a lock and a look-up a text,
//! once a series.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Fewest texts in the pool before it is looked through.
const SWEEP_TEXTS: usize = 4096;

static POOL: LazyLock<Mutex<Pool>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Pool {
    texts: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Pool {
    fn take(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        if self.texts.len() >= self.sweep_at {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = (2 * self.texts.len()).max(SWEEP_TEXTS);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }
}

/// A text that is there once however many have it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Arc<str>);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(POOL.lock().unwrap_or_else(PoisonError::into_inner).take(text))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| text.as_str().into())
    }
}

/// Labels in the order of their names; a map of texts to whoever reads or writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels(Arc<[(Text, Text)]>);

impl Labels {
    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Value of a label.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(label, _)| *label == name).map(|(_, value)| value)
    }

    /// The same labels, in the memory of `other` where those are the same.
    #[must_use]
    pub fn shared_with(self, other: Option<&Self>) -> Self {
        other.filter(|other| **other == self).cloned().unwrap_or(self)
    }
}

impl From<Vec<(String, String)>> for Labels {
    /// Each name is there once.
    fn from(mut labels: Vec<(String, String)>) -> Self {
        labels.sort();
        Self(labels.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into())).collect())
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer)
            .map(|labels: BTreeMap<_, _>| Self::from(labels.into_iter().collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_is_there_once_and_goes_with_its_last_holder() {
        let mut pool = Pool::default();
        let kept = pool.take("kept");
        assert!(Arc::ptr_eq(&kept, &pool.take("kept")));
        for number in 0..3 * SWEEP_TEXTS {
            drop(pool.take(&number.to_string()));
        }
        assert!(pool.texts.len() <= SWEEP_TEXTS, "{}", pool.texts.len());
        assert!(Arc::ptr_eq(&kept, &pool.take("kept")), "it was held all the time");
    }

    #[test]
    fn labels_are_a_map_in_json_and_share_memory() {
        let labels = Labels::from(vec![("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())]);
        let json = serde_json::to_string(&labels).unwrap();
        assert_eq!(json, r#"{"a":"1","b":"2"}"#);
        let again: Labels = serde_json::from_str(&json).unwrap();
        assert_eq!((&again, again.get("b"), again.get("c")), (&labels, Some("2"), None));
        assert!(Arc::ptr_eq(&labels.0[0].0.0, &again.0[0].0.0), "texts are");
        assert!(Arc::ptr_eq(&again.shared_with(Some(&labels)).0, &labels.0), "and sets");
    }
}
