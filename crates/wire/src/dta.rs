// SPDX-License-Identifier: Apache-2.0
//! Telemetry reports: what a reporter sends so that a value ends up in a collector's memory (Direct Telemetry Access).
//!
//! A report is the payload of one UDP datagram to [`PORT`]. [`Report`] is version 1, which is ours; [`prototype`] has the
//! layout of the published prototype, which we take as version 0. [`Answer`] is what a translator says to a reporter.
//! `docs/format/dta.md` gives the same bytes as tables.
//!
//! What a report wants is checked here as far as its own bytes tell; whether there is such a table, and whether this
//! reporter may write to it, is the translator's to say.

mod answer;
pub mod prototype;
mod refused;

pub use answer::{Answer, Verdict};
pub use refused::Refused;

use refused::take;

/// UDP port that reports go to, as in the prototype.
pub const PORT: u16 = 40040;
/// Bytes of a key.
pub const MAX_KEY_BYTES: usize = 64;
/// Bytes of a payload.
pub const MAX_PAYLOAD_BYTES: usize = 64;
/// Copies of an entry.
pub const MAX_COPIES: u8 = 4;
/// The longest report.
pub const MAX_REPORT_BYTES: usize = Report::HEADER_BYTES + MAX_KEY_BYTES + MAX_PAYLOAD_BYTES;

const HEADER_BYTES: usize = 20;
/// The version that has this layout.
const VERSION: u8 = 1;
const IMMEDIATE: u8 = 1 << 5;
const RETRANSMITTABLE: u8 = 1 << 4;
const RESERVED: u8 = 0x0f;

/// What becomes of a report where there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Importance {
    /// It is dropped first.
    Low = 0,
    /// It is dropped where only what matters most can be kept.
    Medium = 1,
    /// It is kept as long as there is memory for it.
    High = 2,
}

impl Importance {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Medium, Self::High];
}

/// Which copies of an entry a report writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Copies {
    /// So many, 1 to [`MAX_COPIES`].
    All(u8),
    /// The one with this number alone, from 0: systems that spread a value over reports fill a slot with each.
    Only(u8),
}

impl Copies {
    /// Numbers of the copies.
    #[must_use]
    pub fn numbers(self) -> core::ops::Range<u8> {
        match self {
            Self::All(count) => 0..count,
            Self::Only(number) => number..number + 1,
        }
    }

    fn parse(byte: u8) -> Result<Self, Refused> {
        match (byte >> 4, byte & 0xf) {
            (0, count @ 1..=MAX_COPIES) => Ok(Self::All(count)),
            (only @ 1..=MAX_COPIES, 0) => Ok(Self::Only(only - 1)),
            _ => Err(Refused::Copies(byte)),
        }
    }

    /// As a report has it; of copies that there are not, one that is refused.
    const fn to_byte(self) -> u8 {
        match self {
            Self::All(count @ 1..=MAX_COPIES) => count,
            Self::Only(number @ 0..MAX_COPIES) => (number + 1) << 4,
            _ => u8::MAX,
        }
    }
}

/// What is to be done with the collector's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Body<'a> {
    /// Nothing: which sequence number came last? The translator answers. The report has the number of the last one that was
    /// sent.
    Probe {
        /// The last one of which the reporter knows that it has come. Who does not know the reporter takes it from there.
        received: u32,
    },
    /// The newest value of a key.
    KeyWrite {
        /// 1 to [`MAX_KEY_BYTES`].
        key: &'a [u8],
        /// 1 to [`MAX_PAYLOAD_BYTES`].
        payload: &'a [u8],
        /// Where it is written.
        copies: Copies,
    },
    /// One entry more of a list.
    Append {
        /// 1 to [`MAX_PAYLOAD_BYTES`].
        payload: &'a [u8],
    },
    /// A key's counter grows.
    KeyIncrement {
        /// 1 to [`MAX_KEY_BYTES`].
        key: &'a [u8],
        /// By so much.
        addend: u64,
        /// Where it is added.
        copies: Copies,
    },
}

impl Body<'_> {
    /// The number on the wire, which the prototype has, too, for all but the probe.
    #[must_use]
    pub const fn primitive(&self) -> u8 {
        match self {
            Self::Probe { .. } => 0,
            Self::KeyWrite { .. } => 1,
            Self::Append { .. } => 2,
            Self::KeyIncrement { .. } => 3,
        }
    }

    const fn key_and_payload_bytes(&self) -> (&[u8], usize) {
        match *self {
            Self::Probe { .. } => (&[], size_of::<u32>()),
            Self::KeyWrite { key, payload, .. } => (key, payload.len()),
            Self::Append { payload } => (&[], payload.len()),
            Self::KeyIncrement { key, .. } => (key, size_of::<u64>()),
        }
    }
}

/// A report of version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Report<'a> {
    /// What becomes of it where there are too many.
    pub importance: Importance,
    /// Whoever waits for it at the collector is woken.
    pub immediate: bool,
    /// Its number among those that this reporter can send again; `None`: it cannot.
    pub sequence: Option<u32>,
    /// Who sends it.
    pub reporter: u32,
    /// The table or list.
    pub table: u16,
    /// What a reporter must know to write to it.
    pub access: u32,
    /// Lowest byte of the generation of the list by which the reporter has chosen the collector; 0: it had none.
    pub generation: u8,
    /// What is to be done.
    pub body: Body<'a>,
}

impl<'a> Report<'a> {
    /// Bytes before key and payload.
    pub const HEADER_BYTES: usize = HEADER_BYTES;

    /// Parses a UDP payload.
    ///
    /// # Errors
    /// [`Refused`], the outermost thing that is wrong.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Refused> {
        let (header, rest) = take::<HEADER_BYTES>(datagram)?;
        let ([kind, flags], fields) = take(header)?;
        let (table, fields) = take(fields)?;
        let (access, fields) = take(fields)?;
        let (reporter, fields) = take(fields)?;
        let (number, fields) = take(fields)?;
        let ([copies, generation, key_bytes, payload_bytes], _) = take(fields)?;
        if kind >> 4 != VERSION {
            return Err(Refused::Version(kind >> 4));
        }
        let importance = Importance::ALL.get(usize::from(flags >> 6)).copied();
        let importance = importance.filter(|_| flags & RESERVED == 0).ok_or(Refused::Flags(*flags))?;
        let number = u32::from_be_bytes(*number);
        let sequence = (flags & RETRANSMITTABLE != 0).then_some(number);
        if sequence.is_none() && number != 0 {
            return Err(Refused::Sequence(number));
        }
        let stated_bytes = usize::from(*key_bytes) + usize::from(*payload_bytes);
        if rest.len() != stated_bytes {
            return Err(Refused::Length { stated_bytes, got_bytes: rest.len() });
        }
        let (key, payload) = rest.split_at((*key_bytes).into());
        check(kind & 0xf, key.len(), payload.len(), *copies, sequence.is_some())?;
        let all = Copies::parse(*copies);
        let body = match kind & 0xf {
            0 => Body::Probe { received: number_of(payload).map(u32::from_be_bytes)? },
            1 => Body::KeyWrite { key, payload, copies: all? },
            2 => Body::Append { payload },
            _ => Body::KeyIncrement { key, addend: number_of(payload).map(u64::from_be_bytes)?, copies: all? },
        };
        Ok(Self {
            importance,
            immediate: flags & IMMEDIATE != 0,
            sequence,
            reporter: u32::from_be_bytes(*reporter),
            table: u16::from_be_bytes(*table),
            access: u32::from_be_bytes(*access),
            generation: *generation,
            body,
        })
    }

    /// Bytes of the UDP payload.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        let (key, payload_bytes) = self.body.key_and_payload_bytes();
        Self::HEADER_BYTES + key.len() + payload_bytes
    }

    /// Writes the UDP payload; returns its length.
    ///
    /// # Errors
    /// [`Refused`]: nobody would take it, or the buffer is too small.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, Refused> {
        let (key, payload_bytes) = self.body.key_and_payload_bytes();
        let copies = match self.body {
            Body::Probe { .. } | Body::Append { .. } => 0,
            Body::KeyWrite { copies, .. } | Body::KeyIncrement { copies, .. } => copies.to_byte(),
        };
        check(self.body.primitive(), key.len(), payload_bytes, copies, self.sequence.is_some())?;
        let (length, got_bytes) = (self.len_bytes(), out.len());
        let out = out.get_mut(..length).ok_or(Refused::Truncated { needed_bytes: length, got_bytes })?;
        let (header, rest) = out.split_at_mut(Self::HEADER_BYTES);
        let (key_out, payload_out) = rest.split_at_mut(key.len());
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        header[0] = VERSION << 4 | self.body.primitive();
        header[1] = (self.importance as u8) << 6
            | flag(self.immediate, IMMEDIATE)
            | flag(self.sequence.is_some(), RETRANSMITTABLE);
        header[2..4].copy_from_slice(&self.table.to_be_bytes());
        header[4..8].copy_from_slice(&self.access.to_be_bytes());
        header[8..12].copy_from_slice(&self.reporter.to_be_bytes());
        header[12..16].copy_from_slice(&self.sequence.unwrap_or(0).to_be_bytes());
        // Neither is longer than 64: that was checked.
        let [key_bytes, payload_bytes] = [key.len(), payload_bytes].map(|bytes| bytes.to_le_bytes()[0]);
        header[16..].copy_from_slice(&[copies, self.generation, key_bytes, payload_bytes]);
        key_out.copy_from_slice(key);
        match self.body {
            Body::Probe { received } => payload_out.copy_from_slice(&received.to_be_bytes()),
            Body::KeyWrite { payload, .. } | Body::Append { payload } => payload_out.copy_from_slice(payload),
            Body::KeyIncrement { addend, .. } => payload_out.copy_from_slice(&addend.to_be_bytes()),
        }
        Ok(length)
    }
}

/// Whether a primitive may have a key, a payload and copies like these, and a number or none.
fn check(primitive: u8, key: usize, payload: usize, copies: u8, is_numbered: bool) -> Result<(), Refused> {
    let (is_keyed, payloads) = match primitive {
        0 => (false, 4..=4),
        1 => (true, 1..=MAX_PAYLOAD_BYTES),
        2 => (false, 1..=MAX_PAYLOAD_BYTES),
        3 => (true, 8..=8),
        _ => return Err(Refused::Primitive(primitive)),
    };
    let keys = if is_keyed { 1..=MAX_KEY_BYTES } else { 0..=0 };
    if !keys.contains(&key) {
        return Err(Refused::KeyLength(key));
    }
    if !payloads.contains(&payload) {
        return Err(Refused::PayloadLength(payload));
    }
    if if is_keyed { Copies::parse(copies).is_err() } else { copies != 0 } {
        return Err(Refused::Copies(copies));
    }
    if primitive == 0 && !is_numbered { Err(Refused::Flags(0)) } else { Ok(()) }
}

/// A payload that is a number of so many bytes.
fn number_of<const N: usize>(payload: &[u8]) -> Result<[u8; N], Refused> {
    payload.try_into().map_err(|_| Refused::PayloadLength(payload.len()))
}
