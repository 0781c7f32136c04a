// SPDX-License-Identifier: Apache-2.0
//! `[kernel.acquisition]`: how values of a group of kernel metrics get where readers over the kernel responder read them.

use std::ops::RangeInclusive;

use serde::de::{Error as _, IntoDeserializer as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::Span;

/// How often the kernel may be told to write values.
pub(super) const PUBLISHED: RangeInclusive<Span> = Span::from_ms(1)..=Span::from_s(3600);

/// A way of acquiring values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquisition {
    /// By the READ itself.
    Computed,
    /// By a timer of the kernel, into memory, so often.
    Published(Span),
    /// By the agent from procfs, every `[kernel] sample`.
    Sampled,
}

impl<'de> Deserialize<'de> for Acquisition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once(' ') {
            None if text == "computed" => Ok(Self::Computed),
            None if text == "sampled" => Ok(Self::Sampled),
            Some(("published", interval)) => Span::deserialize(interval.into_deserializer()).map(Self::Published),
            _ => Err(D::Error::custom(format!(
                "`{text}` is no way of acquiring: take \"computed\", \"published 10ms\" (or another time), or \"sampled\" (every [kernel] sample)"
            ))),
        }
    }
}

impl Serialize for Acquisition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Computed => serializer.serialize_str("computed"),
            Self::Published(interval) => serializer.collect_str(&format_args!("published {interval}")),
            Self::Sampled => serializer.serialize_str("sampled"),
        }
    }
}
