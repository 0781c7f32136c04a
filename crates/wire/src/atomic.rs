// SPDX-License-Identifier: Apache-2.0
//! FETCH ADD (IBA 9.4.5) and its answer: a word of 8 bytes at a remote address grows, in one step.

use crate::aeth::Aeth;
use crate::error::{Error, Layer};
use crate::slice::{reserve, take};
use crate::u24::{Psn, Qpn};

/// The request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FetchAdd {
    /// The responder's queue pair.
    pub destination: Qpn,
    /// Sequence number; the answer has the same.
    pub psn: Psn,
    /// Virtual address at the responder, a multiple of 8.
    pub va: u64,
    /// Remote key of the memory region.
    pub rkey: u32,
    /// By how much the word grows, modulo 2^64.
    pub addend: u64,
}

/// ATOMIC ACK (IBA 9.3.5.3): how it went, and what the word was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AtomicAnswer {
    /// The requester's queue pair.
    pub destination: Qpn,
    /// The request's sequence number.
    pub psn: Psn,
    /// How it went; its syndrome is always an ACK.
    pub aeth: Aeth,
    /// The word before.
    pub original: u64,
}

/// Atomic extended transport header (IBA 9.3.4), 28 bytes big-endian after the BTH. Of FETCH ADD the last word, which
/// others compare, is written as 0 and ignored.
pub(crate) struct AtomicEth {
    pub(crate) va: u64,
    pub(crate) rkey: u32,
    pub(crate) addend: u64,
}

impl AtomicEth {
    pub(crate) const BYTES: usize = 28;

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (&va, rest) = take::<8>(Layer::Transport, bytes)?;
        let (&rkey, rest) = take::<4>(Layer::Transport, rest)?;
        let (&addend, _) = take::<8>(Layer::Transport, rest)?;
        Ok(Self { va: u64::from_be_bytes(va), rkey: u32::from_be_bytes(rkey), addend: u64::from_be_bytes(addend) })
    }

    pub(crate) fn write(&self, out: &mut [u8]) -> Result<usize, Error> {
        let (bytes, _) = reserve::<{ Self::BYTES }>(out)?;
        bytes[..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.addend.to_be_bytes());
        bytes[20..].fill(0);
        Ok(Self::BYTES)
    }
}
