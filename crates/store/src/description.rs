// SPDX-License-Identifier: Apache-2.0
//! What the store is told of a track: whose rows they are and what stands in them.
//!
//! The store keeps it in memory as it is written, so it is packed: the host's name as a JSON string, a line feed, and the whole as JSON under LZ4, a tenth of what
//! it was. Earlier logs have the plain JSON, which is read, too.

use std::borrow::Cow;

use onlooker_series::series::{EntityKey, Form, Series};
use onlooker_store::Kind;
use serde::{Deserialize, Serialize};

/// Largest description, unpacked, bytes.
const MAX_BYTES: usize = 64 << 20;

/// What the store is told of a track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Name of the host.
    pub host: String,
    /// Name of the region.
    pub region: String,
    /// Which entity; another one has another track.
    pub entity: (u64, u32, Option<(u32, u32)>),
    /// What stands in its rows.
    pub series: Vec<Series>,
}

impl Meta {
    /// Of an entity of this host.
    #[must_use]
    pub fn of(host: &str, key: EntityKey, region: &str, series: &[Series]) -> Self {
        let entity = (key.region, key.group, key.row);
        Self { host: host.to_owned(), region: region.to_owned(), entity, series: series.to_vec() }
    }

    /// Which entity it is of.
    #[must_use]
    pub fn key(&self) -> EntityKey {
        let (region, group, row) = self.entity;
        EntityKey { region, group, row }
    }

    /// As the store has it; the same for the same track.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let json = serde_json::to_vec(self).expect("texts and finite numbers");
        let mut bytes = front(&self.host);
        bytes.extend(lz4_flex::block::compress_prepend_size(&json));
        bytes
    }

    /// From the store's bytes; `None` for what no controller has written.
    #[must_use]
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(&json(bytes)?).ok()
    }

    /// The host alone.
    #[must_use]
    pub fn host_of(bytes: &[u8]) -> Option<String> {
        #[derive(Deserialize)]
        struct Of {
            host: String,
        }
        match bytes.first()? {
            b'"' => serde_json::from_slice(bytes.split(|byte| *byte == b'\n').next()?).ok(),
            _ => serde_json::from_slice::<Of>(bytes).ok().map(|of| of.host),
        }
    }

    /// Whether bytes are of this host's tracks, without unpacking them.
    pub fn is_of(host: &str) -> impl Fn(&[u8]) -> bool + use<> {
        let packed = front(host);
        let mut plain = br#"{"host":"#.to_vec();
        plain.extend(&packed[..packed.len() - 1]);
        plain.push(b',');
        move |bytes| bytes.starts_with(&packed) || bytes.starts_with(&plain)
    }
}

/// Kinds of the columns that the store keeps of an entity.
#[must_use]
pub fn kinds(series: &[Series]) -> Vec<Kind> {
    let kinds = series.iter().flat_map(|series| {
        let kind = if series.form == Form::Float { Kind::Float } else { Kind::Integer };
        std::iter::repeat_n(kind, series.form.words())
    });
    kinds.collect()
}

fn front(host: &str) -> Vec<u8> {
    // A JSON string has no bare line feed.
    format!("{}\n", serde_json::Value::from(host)).into_bytes()
}

fn json(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    if bytes.first() == Some(&b'{') {
        return Some(Cow::Borrowed(bytes));
    }
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (size, packed) = lz4_flex::block::uncompressed_size(&bytes[end + 1..]).ok()?;
    (size <= MAX_BYTES).then(|| lz4_flex::block::decompress(packed, size).ok()).flatten().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As an earlier controller wrote it.
    const PLAIN: &str = r#"{"host":"a\nb","region":"shop","entity":[7,0,[3,9]],"series":[{"name":"orders_total","labels":{"instance":"a\nb"},"metric":"counter","unit":"","help":"Orders.","scale":1.0,"resolution_ns":0,"acquisition":"direct","form":"unsigned","at":0}]}"#;

    #[test]
    fn what_is_packed_is_unpacked_and_plain_ones_are_read() {
        let mut meta = Meta::unpack(PLAIN.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&meta).unwrap(), PLAIN);
        meta.series = vec![meta.series[0].clone(); 40];
        let packed = meta.pack();
        assert!(packed.len() < PLAIN.len() * 40 / 10, "{} bytes", packed.len());
        assert_eq!(Meta::unpack(&packed).as_ref(), Some(&meta));
        for bytes in [PLAIN.as_bytes(), &packed] {
            assert_eq!(Meta::host_of(bytes).as_deref(), Some("a\nb"));
            assert!(Meta::is_of("a\nb")(bytes) && !Meta::is_of("a")(bytes));
        }
    }

    #[test]
    fn what_nobody_wrote_is_nothing() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = (Meta::unpack(bytes), Meta::host_of(bytes));
        });
        assert_eq!(Meta::unpack(b"\"a\"\n\xff\xff\xff\xff\x00"), None, "of four gigabytes");
    }
}
