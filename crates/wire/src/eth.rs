// SPDX-License-Identifier: Apache-2.0
//! Ethernet header with up to two VLAN tags (IEEE 802.3 3.2, IEEE 802.1Q clause 9).
//!
//! Frames come without preamble and FCS, as packet sockets and BPF programs see them. A receiving card often takes the outer
//! tag off, so a tag on the link need not be in the bytes.

use crate::error::{Error, Layer};
use crate::slice::{reserve, take};

/// A MAC address (IEEE 802.3 3.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mac(pub [u8; 6]);

/// What the frame carries (A17.3.1: 0x0800 and 0x86dd). Everything else is not RoCEv2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EtherType {
    /// 0x0800.
    Ipv4,
    /// 0x86dd.
    Ipv6,
}

impl EtherType {
    /// The value on the wire.
    #[must_use]
    pub const fn value(self) -> u16 {
        match self {
            Self::Ipv4 => 0x0800,
            Self::Ipv6 => 0x86dd,
        }
    }
}

/// Which kind of VLAN tag (IEEE 802.1Q table 9-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tpid {
    /// Customer tag, 0x8100.
    Customer,
    /// Service tag, 0x88a8: the outer one of QinQ.
    Service,
}

impl Tpid {
    /// The value on the wire.
    #[must_use]
    pub const fn value(self) -> u16 {
        match self {
            Self::Customer => 0x8100,
            Self::Service => 0x88a8,
        }
    }

    const fn from_value(value: u16) -> Option<Self> {
        match value {
            0x8100 => Some(Self::Customer),
            0x88a8 => Some(Self::Service),
            _ => None,
        }
    }
}

/// One VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Kind of tag.
    pub tpid: Tpid,
    /// Tag control information: priority (3 bits), drop eligible (1 bit), VLAN id (12 bits) (IEEE 802.1Q 9.6).
    pub tci: u16,
}

impl Tag {
    /// Bytes of one tag.
    pub const BYTES: usize = 4;

    /// VLAN id, 0 for a tag that carries a priority only.
    #[must_use]
    pub const fn vlan_id(self) -> u16 {
        self.tci & 0x0fff
    }
}

/// The VLAN tags of a frame. Either kind is accepted in either place: 0x8100 twice is common in the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tags {
    /// Untagged.
    #[default]
    None,
    /// One tag.
    One(Tag),
    /// QinQ.
    Two {
        /// Next to the MAC addresses.
        outer: Tag,
        /// Next to the EtherType.
        inner: Tag,
    },
}

impl Tags {
    fn count(self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Two { .. } => 2,
        }
    }

    fn push(self, tag: Tag) -> Result<Self, Error> {
        match self {
            Self::None => Ok(Self::One(tag)),
            Self::One(outer) => Ok(Self::Two { outer, inner: tag }),
            Self::Two { .. } => Err(Error::TooManyTags),
        }
    }
}

/// The Ethernet header, but for the EtherType, which follows from the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ethernet {
    /// Whom the frame is for.
    pub destination: Mac,
    /// Who sent it.
    pub source: Mac,
    /// VLAN tags.
    pub tags: Tags,
}

impl Ethernet {
    /// Bytes on the wire, EtherType included: 14, 18 or 22.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        14 + Tag::BYTES * self.tags.count()
    }

    /// Splits a frame into header, EtherType and what follows; the rest still has the frame's padding to 60 bytes, if any.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::TooManyTags`], [`Error::EtherType`].
    pub fn parse(frame: &[u8]) -> Result<(Self, EtherType, &[u8]), Error> {
        let (&destination, rest) = take::<6>(Layer::Ethernet, frame)?;
        let (&source, mut rest) = take::<6>(Layer::Ethernet, rest)?;
        let mut tags = Tags::None;
        loop {
            let (&value, after) = take::<2>(Layer::Ethernet, rest)?;
            let value = u16::from_be_bytes(value);
            let ether_type = match value {
                0x0800 => EtherType::Ipv4,
                0x86dd => EtherType::Ipv6,
                _ => {
                    let tpid = Tpid::from_value(value).ok_or(Error::EtherType(value))?;
                    let (&tci, after) = take::<2>(Layer::Ethernet, after)?;
                    tags = tags.push(Tag { tpid, tci: u16::from_be_bytes(tci) })?;
                    rest = after;
                    continue;
                }
            };
            return Ok((Self { destination: Mac(destination), source: Mac(source), tags }, ether_type, after));
        }
    }

    /// Writes the header; returns its length. No padding is written: no packet of ours is below 60 bytes.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn write(&self, ether_type: EtherType, out: &mut [u8]) -> Result<usize, Error> {
        let (macs, mut rest) = reserve::<12>(out)?;
        macs[..6].copy_from_slice(&self.destination.0);
        macs[6..].copy_from_slice(&self.source.0);
        let tags = match self.tags {
            Tags::None => [None, None],
            Tags::One(tag) => [Some(tag), None],
            Tags::Two { outer, inner } => [Some(outer), Some(inner)],
        };
        for tag in tags.into_iter().flatten() {
            let (bytes, after) = reserve::<{ Tag::BYTES }>(rest)?;
            bytes[..2].copy_from_slice(&tag.tpid.value().to_be_bytes());
            bytes[2..].copy_from_slice(&tag.tci.to_be_bytes());
            rest = after;
        }
        let (value, _) = reserve::<2>(rest)?;
        *value = ether_type.value().to_be_bytes();
        Ok(self.len_bytes())
    }
}
