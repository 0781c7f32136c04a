// SPDX-License-Identifier: Apache-2.0
//! What the catalogue says, one thing at a time, and how it stands in the files.
//!
//! ```text
//! item             kind (1), bytes of the rest (varint), then
//! 1 part           id (16), content
//! 2 layout         id (16), is a table (1), ids of its parts (16 each)
//! 3 host           number (4), name (text), labels
//! 4 track          number (4), host (4), source (8), created ns (8), id of the layout (16), bytes of labels (varint),
//!                  labels, texts
//! 5 line           track (4), line (4), since ns (8), bytes of labels (varint), labels, texts
//! 7 forgotten host      8 forgotten track      number (4)
//! 9 forgotten line      track (4), line (4)
//! texts            as labels: of infos, by `part.series`, or `series` in a line
//! labels           name (text), value (text), and so on, in the order of their names
//! text             bytes (varint), UTF-8
//! ```

use std::fmt;
use std::sync::Arc;

use onlooker_region::labels;

use super::HostId;
use crate::damage::Damage;
use crate::framing::bytes::{Input, put_text, put_unsigned};
use crate::layout::ContentId;
use crate::types::{Line, TrackId};

/// Labels in few bytes: sorted, each name once, none without a value. Who has them twice has them once in memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pairs(Arc<[u8]>);

impl Pairs {
    /// Of labels that may be in any order; of two that have one name the second is renamed, as [`labels::joined`] does
    /// it.
    pub(super) fn new(labels: &[(String, String)]) -> Self {
        let mut bytes = Vec::new();
        for (name, value) in labels::joined(&[], labels.to_vec(), None) {
            put_text(&name, &mut bytes);
            put_text(&value, &mut bytes);
        }
        Self(bytes.into())
    }

    fn parse(bytes: &[u8]) -> Result<Self, Damage> {
        let (mut input, mut last) = (Input(bytes), None);
        while !input.0.is_empty() {
            let (name, value) = (input.text()?, input.text()?);
            if value.is_empty() || last.is_some_and(|last| name <= last) {
                return Err(Damage::Wrong("labels"));
            }
            last = Some(name);
        }
        Ok(Self(bytes.into()))
    }

    /// Names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut input = Input(&self.0);
        // They were made or looked at by one of the two above.
        std::iter::from_fn(move || Some((input.text().ok()?, input.text().ok()?)))
    }

    pub(super) fn to_vec(&self) -> Vec<(String, String)> {
        self.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// One thing that is said.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item<'a> {
    Part {
        id: ContentId,
        content: &'a [u8],
    },
    Layout {
        id: ContentId,
        is_table: bool,
        parts: Vec<ContentId>,
    },
    Host {
        number: HostId,
        name: &'a str,
        labels: Pairs,
    },
    Track {
        number: TrackId,
        host: HostId,
        source: u64,
        created_ns: u64,
        layout: ContentId,
        labels: Pairs,
        texts: Pairs,
    },
    Line {
        track: TrackId,
        line: Line,
        since_ns: u64,
        labels: Pairs,
        texts: Pairs,
    },
    ForgottenHost(HostId),
    ForgottenTrack(TrackId),
    ForgottenLine(TrackId, Line),
}

impl<'a> Item<'a> {
    /// Appends it to `out`; returns how many bytes that are.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> u64 {
        let start = out.len();
        let mut body = Vec::new();
        let kind = self.encode_body(&mut body);
        out.push(kind);
        put_unsigned(body.len() as u64, out);
        out.append(&mut body);
        (out.len() - start) as u64
    }

    fn encode_body(&self, out: &mut Vec<u8>) -> u8 {
        let halves = |halves: &[u32], out: &mut Vec<u8>| out.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
        match self {
            Self::Part { id, content } => {
                out.extend(id.0);
                out.extend_from_slice(content);
                1
            }
            Self::Layout { id, is_table, parts } => {
                out.extend(id.0);
                out.push((*is_table).into());
                out.extend(parts.iter().flat_map(|part| part.0));
                2
            }
            Self::Host { number, name, labels } => {
                halves(&[number.0], out);
                put_text(name, out);
                out.extend_from_slice(&labels.0);
                3
            }
            Self::Track { number, host, source, created_ns, layout, labels, texts } => {
                halves(&[number.0, host.0], out);
                out.extend([source, created_ns].iter().flat_map(|word| word.to_le_bytes()));
                out.extend(layout.0);
                put_both(labels, texts, out);
                4
            }
            Self::Line { track, line, since_ns, labels, texts } => {
                halves(&[track.0, line.0], out);
                out.extend(since_ns.to_le_bytes());
                put_both(labels, texts, out);
                5
            }
            Self::ForgottenHost(number) => {
                halves(&[number.0], out);
                7
            }
            Self::ForgottenTrack(number) => {
                halves(&[number.0], out);
                8
            }
            Self::ForgottenLine(track, line) => {
                halves(&[track.0, line.0], out);
                9
            }
        }
    }

    /// Goes behind the next one.
    pub(super) fn skip(input: &mut Input<'_>) -> Result<(), Damage> {
        input.byte()?;
        let length = input.unsigned()?;
        input.bytes(length).map(|_| ())
    }

    /// Takes the next one from the front of `input`.
    pub(super) fn decode(input: &mut Input<'a>) -> Result<Self, Damage> {
        let kind = input.byte()?;
        let length = input.unsigned()?;
        let mut body = Input(input.bytes(length)?);
        let track = |body: &mut Input<'_>| body.half().map(TrackId);
        let item = match kind {
            1 => Self::Part { id: ContentId(body.id()?), content: std::mem::take(&mut body.0) },
            2 => {
                let (id, is_table) = (ContentId(body.id()?), body.byte()? != 0);
                let (ids, rest) = body.0.as_chunks();
                body.0 = rest;
                Self::Layout { id, is_table, parts: ids.iter().map(|id| ContentId(*id)).collect() }
            }
            3 => {
                let (number, name) = (HostId(body.half()?), body.text()?);
                Self::Host { number, name, labels: Pairs::parse(std::mem::take(&mut body.0))? }
            }
            4 => {
                let (number, host) = (track(&mut body)?, HostId(body.half()?));
                let (source, created_ns, layout) = (body.word()?, body.word()?, ContentId(body.id()?));
                let (labels, texts) = take_both(&mut body)?;
                Self::Track { number, host, source, created_ns, layout, labels, texts }
            }
            5 => {
                let (track, line, since_ns) = (track(&mut body)?, Line(body.half()?), body.word()?);
                let (labels, texts) = take_both(&mut body)?;
                Self::Line { track, line, since_ns, labels, texts }
            }
            7 => Self::ForgottenHost(HostId(body.half()?)),
            8 => Self::ForgottenTrack(track(&mut body)?),
            9 => Self::ForgottenLine(track(&mut body)?, Line(body.half()?)),
            _ => return Err(Damage::Wrong("kind of an item")),
        };
        body.end()?;
        Ok(item)
    }
}

fn put_both(labels: &Pairs, texts: &Pairs, out: &mut Vec<u8>) {
    put_unsigned(labels.bytes() as u64, out);
    out.extend_from_slice(&labels.0);
    out.extend_from_slice(&texts.0);
}

fn take_both(body: &mut Input<'_>) -> Result<(Pairs, Pairs), Damage> {
    let length = body.unsigned()?;
    Ok((Pairs::parse(body.bytes(length)?)?, Pairs::parse(std::mem::take(&mut body.0))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back() {
        bolero::check!().with_type::<(Vec<(String, String)>, [u32; 2], [u64; 2], Vec<u8>, String)>().for_each(
            |(labels, [a, b], [c, d], bytes, text)| {
                let (labels, id) = (Pairs::new(labels), ContentId::of(bytes));
                let (track, host, line) = (TrackId(*a), HostId(*b), Line(*b));
                let items = [
                    Item::Part { id, content: bytes },
                    Item::Layout { id, is_table: a > b, parts: vec![id; bytes.len() % 5] },
                    Item::Host { number: host, name: text, labels: labels.clone() },
                    Item::Track {
                        number: track,
                        host,
                        source: *c,
                        created_ns: *d,
                        layout: id,
                        labels: labels.clone(),
                        texts: labels.clone(),
                    },
                    Item::Line { track, line, since_ns: *c, texts: labels.clone(), labels },
                    Item::ForgottenHost(host),
                    Item::ForgottenTrack(track),
                    Item::ForgottenLine(track, line),
                ];
                let mut out = Vec::new();
                let lengths: u64 = items.iter().map(|item| item.encode(&mut out)).sum();
                assert_eq!(lengths, out.len() as u64);
                let mut input = Input(&out);
                assert!(items.iter().all(|item| Item::decode(&mut input).as_ref() == Ok(item)));
                assert_eq!(input.end(), Ok(()));
            },
        );
    }

    #[test]
    fn bytes_that_lie_are_errors() {
        bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(kind, body)| {
            let _ = Pairs::parse(body);
            let mut bytes = vec![kind % 11];
            put_unsigned(body.len() as u64, &mut bytes);
            bytes.extend_from_slice(body);
            if let Ok(item) = Item::decode(&mut Input(&bytes)) {
                let mut again = Vec::new();
                item.encode(&mut again);
                assert!(matches!(item, Item::Layout { .. } | Item::Host { .. }) || again == bytes);
            }
        });
    }

    #[test]
    fn labels_are_sorted_and_said_once() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<_> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let labels = Pairs::new(&pairs(&[("b", "1"), ("a", "2"), ("c", ""), ("a", "3")]));
        assert_eq!(labels.to_vec(), pairs(&[("a", "2"), ("b", "1"), ("exported_a", "3")]));
        assert_eq!(labels, Pairs::new(&labels.to_vec()));
        assert_eq!(Pairs::parse(&labels.0), Ok(labels));
        assert!(Pairs::parse(&[1, b'b', 1, b'1', 1, b'a', 1, b'2']).is_err());
    }
}
