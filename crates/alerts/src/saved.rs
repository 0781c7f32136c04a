// SPDX-License-Identifier: Apache-2.0
//! What outlives a restart: all alerts, in one small text. Whoever runs the rules keeps it in a file. No I/O.
//!
//! The first line has the version and the CRC-32 of the second, which is JSON. Anything else is damage: who fired then
//! is unknown, and nobody guesses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::State;

const MAGIC: &str = "onlooker-alerts";
const VERSION: &str = "1";

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// When rules were evaluated last, ns since 1970.
    pub seen_ns: i64,
    pub(crate) rules: Vec<SavedRule>,
}

/// Alerts of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedRule {
    pub(crate) rule: RuleKey,
    pub(crate) alerts: Vec<SavedAlert>,
}

/// What a rule is known by. Of equal ones in a group the order counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RuleKey {
    pub(crate) file: String,
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedAlert {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) state: State,
    /// JSON has no NaN.
    pub(crate) value_bits: u64,
    pub(crate) active_ns: i64,
    pub(crate) fired_ns: Option<i64>,
    pub(crate) resolved_ns: Option<i64>,
    pub(crate) unseen_since_ns: Option<i64>,
}

/// Why a text cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SavedError {
    /// It is another version's.
    #[error("it has version {0}, and this is version {VERSION}")]
    Version(String),
    /// It is not what was written.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

impl Saved {
    /// Whether there is anything to come back to.
    #[must_use]
    pub fn has_alerts(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The text.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Maps with texts as keys always have a JSON form.
        let body = serde_json::to_string(self).unwrap_or_default();
        format!("{MAGIC} {VERSION} {:08x}\n{body}\n", crc32fast::hash(body.as_bytes())).into_bytes()
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`SavedError`].
    pub fn decode(text: &[u8]) -> Result<Self, SavedError> {
        let damaged = |why: &str| SavedError::Damaged(why.to_owned());
        let text = std::str::from_utf8(text).map_err(|_| damaged("no text"))?;
        let (head, body) = text.split_once('\n').ok_or_else(|| damaged("no first line"))?;
        let words: Vec<&str> = head.split(' ').collect();
        let [MAGIC, version, crc] = words[..] else { return Err(damaged("its first line says something else")) };
        if version != VERSION {
            return Err(SavedError::Version(version.chars().take(20).collect()));
        }
        let body = body.strip_suffix('\n').ok_or_else(|| damaged("its end is missing"))?;
        if format!("{:08x}", crc32fast::hash(body.as_bytes())) != crc {
            return Err(damaged("its checksum is another"));
        }
        serde_json::from_str(body).map_err(|error| SavedError::Damaged(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> Saved {
        let labels: BTreeMap<_, _> = [("instance".to_owned(), "a\nb".to_owned())].into();
        let rule = RuleKey { file: "f".into(), group: "g".into(), name: "Down".into(), labels: BTreeMap::new() };
        let alert = SavedAlert {
            labels: labels.clone(),
            annotations: labels,
            state: State::Firing,
            value_bits: f64::NAN.to_bits(),
            active_ns: 1,
            fired_ns: Some(2),
            resolved_ns: None,
            unseen_since_ns: None,
        };
        Saved { seen_ns: i64::MAX, rules: vec![SavedRule { rule, alerts: vec![alert] }] }
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        assert_eq!(Saved::decode(&saved().encode()), Ok(saved()));
        assert_eq!(Saved::decode(&Saved::default().encode()), Ok(Saved::default()));
        let newer = String::from_utf8(saved().encode()).unwrap().replacen(" 1 ", " 2 ", 1);
        assert_eq!(Saved::decode(newer.as_bytes()), Err(SavedError::Version("2".into())));
    }

    /// Every bit counts, and every byte.
    #[test]
    fn damage_is_found() {
        let good = saved().encode();
        for at in 0..good.len() {
            assert!(Saved::decode(&good[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(Saved::decode(&bad).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read() {
        bolero::check!().for_each(|bytes| drop(Saved::decode(bytes)));
    }
}
