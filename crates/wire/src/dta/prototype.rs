// SPDX-License-Identifier: Apache-2.0
//! The layout of the published prototype (`Reporter/` and `Translator/p4src` of its sources), taken as version 0.
//!
//! It has no version: its first byte is a small number. Each primitive has two lengths, without and with a sequence number,
//! and these never fit both. Neither table nor reporter are in it: the port and the source address say which they are.

use super::refused::{Refused, take};
use super::{Body, Copies};

/// UDP port that the prototype's refusals go to.
pub const ANSWER_PORT: u16 = 40044;
const WORD_BYTES: usize = 4;

/// A report of the prototype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Report<'a> {
    /// Whoever waits for it is woken.
    pub immediate: bool,
    /// Its number, if it can be sent again.
    pub sequence: Option<u8>,
    /// The list, of Append: its report names one.
    pub list: Option<u32>,
    /// What is to be done. Keys have four bytes.
    pub body: Body<'a>,
}

impl<'a> Report<'a> {
    /// Parses a UDP payload.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Refused> {
        let ([opcode], rest) = take(datagram)?;
        // Key-Write has one to seven words of data. The length says whether a sequence number stands before the flags.
        let has_sequence = match (opcode, rest.len()) {
            (0, _) | (4.., _) => return Err(Refused::Primitive(*opcode)),
            (1, 10..=35) if rest.len() % WORD_BYTES == 2 => false,
            (1, 10..=35) if rest.len() % WORD_BYTES == 3 => true,
            (2, 9) | (3, 14) => false,
            (2, 10) | (3, 15) => true,
            _ => return Err(Refused::Length { stated_bytes: 0, got_bytes: datagram.len() }),
        };
        let (sequence, rest) = match has_sequence {
            true => take::<1>(rest).map(|([sequence], rest)| (*sequence, rest))?,
            false => (0, rest),
        };
        let ([flags], rest) = take(rest)?;
        let is_retransmittable = has_sequence && flags & 0x40 != 0;
        let (list, body) = match opcode {
            1 => {
                let ([copies], rest) = take(rest)?;
                let (key, payload) = take::<WORD_BYTES>(rest)?;
                (None, Body::KeyWrite { key, payload, copies: all(*copies)? })
            }
            2 => {
                let (list, payload) = take(rest)?;
                (Some(u32::from_be_bytes(*list)), Body::Append { payload })
            }
            _ => {
                let ([copies], rest) = take(rest)?;
                let (key, addend) = take::<WORD_BYTES>(rest)?;
                let (addend, _) = take(addend)?;
                (None, Body::KeyIncrement { key, addend: u64::from_be_bytes(*addend), copies: all(*copies)? })
            }
        };
        Ok(Self { immediate: flags & 0x80 != 0, sequence: is_retransmittable.then_some(sequence), list, body })
    }
}

/// Its redundancy.
fn all(copies: u8) -> Result<Copies, Refused> {
    Copies::parse(copies).ok().filter(|copies| matches!(copies, Copies::All(_))).ok_or(Refused::Copies(copies))
}

/// What the prototype's reporter is told when a report is missing: the last one that came.
#[must_use]
pub const fn refusal(sequence: u8) -> [u8; 2] {
    [sequence, 0x80]
}
