// SPDX-License-Identifier: Apache-2.0
//! What a track is: the host's name as a JSON string, a line feed, and all of it as JSON under LZ4; until version 2
//! plain JSON.

use std::borrow::Cow;

use onlooker_series::series::{EntityKey, Series};
use serde::Deserialize;

/// Largest description, unpacked, bytes.
const MAX_BYTES: usize = 64 << 20;

/// What a track is.
#[derive(Debug, PartialEq, Deserialize)]
pub(in crate::migrate) struct Description {
    /// Name of the host.
    pub(in crate::migrate) host: String,
    /// Name of the region.
    #[serde(default)]
    pub(in crate::migrate) region: String,
    /// Which entity; another one has another track.
    #[serde(default)]
    pub(in crate::migrate) entity: EntityKey,
    /// What stands in its rows.
    #[serde(default)]
    pub(in crate::migrate) series: Vec<Series>,
}

impl Description {
    /// `None` for what no version has written.
    pub(super) fn unpack(bytes: &[u8]) -> Option<Self> {
        let json = match bytes {
            [b'{', ..] => Cow::Borrowed(bytes),
            _ => {
                let end = bytes.iter().position(|byte| *byte == b'\n')?;
                let (size, packed) = lz4_flex::block::uncompressed_size(&bytes[end + 1..]).ok()?;
                let json = (size <= MAX_BYTES).then(|| lz4_flex::block::decompress(packed, size).ok());
                Cow::Owned(json.flatten()?)
            }
        };
        serde_json::from_slice(&json).ok()
    }
}
