// SPDX-License-Identifier: Apache-2.0
//! What a translator says to a reporter, to the port that the report came from.

use super::VERSION;
use super::refused::{Refused, take};

/// The number that stands where a report has its primitive.
const ANSWER: u8 = 0xf;
const MISSING: u8 = 1 << 0;
const CONGESTED: u8 = 1 << 1;
const UNKNOWN: u8 = 1 << 2;

/// How it stands with a reporter's retransmittable reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// All up to this sequence number have come.
    Received,
    /// Those behind this sequence number have not: send them again.
    Missing,
    /// Nothing is known of this reporter, or only of other numbers: a probe must say where it begins.
    Unknown,
}

/// An answer of version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Answer {
    /// How it stands.
    pub verdict: Verdict,
    /// There are too many reports: only those of high importance are to be sent for a while.
    pub is_congested: bool,
    /// The reporter.
    pub reporter: u32,
    /// Its last report that came in sequence.
    pub sequence: u32,
    /// As the report had it: who does not know it is no translator.
    pub access: u32,
}

impl Answer {
    /// Bytes of the UDP payload.
    pub const BYTES: usize = 16;

    /// Parses a UDP payload.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn parse(datagram: &[u8]) -> Result<Self, Refused> {
        let ([kind, verdict, _, _], rest) = take(datagram)?;
        let (reporter, rest) = take(rest)?;
        let (sequence, rest) = take(rest)?;
        let (access, rest) = take(rest)?;
        if kind >> 4 != VERSION {
            return Err(Refused::Version(kind >> 4));
        }
        if kind & 0xf != ANSWER {
            return Err(Refused::Primitive(kind & 0xf));
        }
        if !rest.is_empty() {
            return Err(Refused::Length { stated_bytes: 0, got_bytes: rest.len() });
        }
        Ok(Self {
            verdict: match verdict & !CONGESTED {
                0 => Verdict::Received,
                MISSING => Verdict::Missing,
                UNKNOWN => Verdict::Unknown,
                _ => return Err(Refused::Verdict(*verdict)),
            },
            is_congested: verdict & CONGESTED != 0,
            reporter: u32::from_be_bytes(*reporter),
            sequence: u32::from_be_bytes(*sequence),
            access: u32::from_be_bytes(*access),
        })
    }

    /// The UDP payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let verdict = match self.verdict {
            Verdict::Received => 0,
            Verdict::Missing => MISSING,
            Verdict::Unknown => UNKNOWN,
        };
        let congested = if self.is_congested { CONGESTED } else { 0 };
        let mut out = [0; Self::BYTES];
        out[..2].copy_from_slice(&[VERSION << 4 | ANSWER, verdict | congested]);
        out[4..8].copy_from_slice(&self.reporter.to_be_bytes());
        out[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        out[12..].copy_from_slice(&self.access.to_be_bytes());
        out
    }
}
