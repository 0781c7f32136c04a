// SPDX-License-Identifier: Apache-2.0
//! What a track is: whose rows they are and what stands in them.
//!
//! Whoever defines a track describes it; readers get the description back. The store keeps it packed, in memory as on
//! disk: the host's name as a JSON string, a line feed, and the whole as JSON under LZ4, a tenth of its size. Logs of
//! earlier versions have plain JSON, which is read, too. Unpacking costs some microseconds a series.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use onlooker_series::series::{EntityKey, Form, Series};
use serde::{Deserialize, Serialize};

use crate::column::Kind;

/// Largest description, unpacked, bytes.
const MAX_BYTES: usize = 64 << 20;

/// What a track is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Name of the host.
    pub host: String,
    /// Name of the region.
    #[serde(default)]
    pub region: String,
    /// Which entity; another one has another track.
    #[serde(default)]
    pub entity: EntityKey,
    /// What stands in its rows.
    #[serde(default)]
    pub series: Vec<Series>,
}

impl Description {
    /// Kinds of the columns of its rows.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        let kinds = self.series.iter().flat_map(|series| {
            let kind = if series.form == Form::Float { Kind::Float } else { Kind::Integer };
            std::iter::repeat_n(kind, series.form.words())
        });
        kinds.collect()
    }

    /// As the store keeps it; the same for the same track.
    pub(crate) fn pack(&self) -> Packed {
        let json = serde_json::to_vec(self).expect("texts and finite numbers");
        let mut bytes = front(&self.host);
        bytes.extend(lz4_flex::block::compress_prepend_size(&json));
        Packed(bytes.into())
    }
}

/// A description as the store keeps it. Cheap to clone, so that nobody needs to hold the store while it is unpacked.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Packed(Arc<[u8]>);

impl Packed {
    /// From the log.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// For the log.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Unpacked; `None` for what no version has written.
    #[must_use]
    pub fn unpack(&self) -> Option<Description> {
        serde_json::from_slice(&self.json()?).ok()
    }

    /// The host alone, which needs no unpacking.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Of {
            host: String,
        }
        match self.is_plain() {
            true => serde_json::from_slice::<Of>(&self.0).ok().map(|of| of.host),
            false => serde_json::from_slice(self.0.split(|byte| *byte == b'\n').next()?).ok(),
        }
    }

    /// Whether it is a track's of this host, without unpacking.
    pub(crate) fn is_of(host: &str) -> impl Fn(&Self) -> bool + use<> {
        let packed = front(host);
        let mut plain = br#"{"host":"#.to_vec();
        plain.extend(&packed[..packed.len() - 1]);
        move |of| of.0.starts_with(&packed) || of.0.starts_with(&plain)
    }

    /// As today's version packs it: by this an entity that comes again finds the track that an earlier version made.
    pub(crate) fn repacked(&self) -> Self {
        let plain = self.is_plain().then(|| self.unpack()).flatten();
        plain.map_or_else(|| self.clone(), |description| description.pack())
    }

    fn is_plain(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    fn json(&self) -> Option<Cow<'_, [u8]>> {
        if self.is_plain() {
            return Some(Cow::Borrowed(&self.0));
        }
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let (size, packed) = lz4_flex::block::uncompressed_size(&self.0[end + 1..]).ok()?;
        (size <= MAX_BYTES).then(|| lz4_flex::block::decompress(packed, size).ok()).flatten().map(Cow::Owned)
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes of {:?})", self.0.len(), self.host())
    }
}

fn front(host: &str) -> Vec<u8> {
    // A JSON string has no bare line feed.
    format!("{}\n", serde_json::Value::from(host)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As an earlier version wrote it.
    const PLAIN: &str = r#"{"host":"a\nb","region":"shop","entity":[7,0,[3,9]],"series":[{"name":"orders_total","labels":{"instance":"a\nb"},"metric":"counter","unit":"","help":"Orders.","scale":1.0,"resolution_ns":0,"acquisition":"direct","form":"unsigned","at":0}]}"#;

    #[test]
    fn what_is_packed_is_unpacked_and_plain_ones_are_read() {
        let plain = Packed::from_bytes(PLAIN.as_bytes());
        let mut described = plain.unpack().unwrap();
        assert_eq!(serde_json::to_string(&described).unwrap(), PLAIN);
        assert_eq!(described.entity, EntityKey { region: 7, group: 0, row: Some((3, 9)) });
        assert_eq!((plain.repacked(), described.pack().repacked()), (described.pack(), described.pack()));
        described.series = vec![described.series[0].clone(); 40];
        let packed = described.pack();
        assert!(packed.bytes().len() < PLAIN.len() * 40 / 10, "{packed:?}");
        assert_eq!(packed.unpack().as_ref(), Some(&described));
        for packed in [plain, packed] {
            assert_eq!(packed.host().as_deref(), Some("a\nb"));
            assert!(Packed::is_of("a\nb")(&packed) && !Packed::is_of("a")(&packed));
        }
    }

    #[test]
    fn columns_are_the_words_of_the_series() {
        let mut described = Packed::from_bytes(PLAIN.as_bytes()).unpack().unwrap();
        let shape = onlooker_region::histogram::Shape { grouping_power: 0, max_power: 2 };
        let forms = [Form::Float, Form::Text, Form::Signed, Form::Histogram(shape)];
        described.series.extend(forms.map(|form| Series { form, ..described.series[0].clone() }));
        let (float, integer) = (Kind::Float, Kind::Integer);
        assert_eq!(described.kinds(), [&[integer, float][..], &[integer; 1 + 4]].concat());
    }

    #[test]
    fn what_nobody_wrote_is_nothing() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let packed = Packed::from_bytes(bytes);
            let _ = (packed.unpack(), packed.host(), packed.repacked());
        });
        let huge = Packed::from_bytes(b"\"a\"\n\xff\xff\xff\xff\x00");
        assert_eq!(huge.unpack(), None, "of four gigabytes");
    }
}
