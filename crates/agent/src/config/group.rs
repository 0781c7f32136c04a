// SPDX-License-Identifier: Apache-2.0
//! Groups of sampled kernel metrics by their names, as TOML has them.

use onlooker_metrics::groups::Group;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// One, so that a mistake is told with its line.
struct Named(Group);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = Group::sampled().find(|group| group.name() == name);
        found.map(Self).ok_or_else(|| {
            let known: Vec<String> = Group::sampled().map(|group| format!("`{}`", group.name())).collect();
            // In serde's own words, which are explained further on.
            D::Error::custom(format!("unknown variant `{name}`, expected one of {}", known.join(", ")))
        })
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Group>, D::Error> {
    let named = Vec::<Named>::deserialize(deserializer)?;
    Ok(named.into_iter().map(|Named(group)| group).collect())
}

pub(super) fn serialize<S: Serializer>(groups: &[Group], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(groups.iter().map(|group| group.name()))
}
