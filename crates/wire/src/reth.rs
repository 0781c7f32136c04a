// SPDX-License-Identifier: Apache-2.0
//! RDMA extended transport header (IBA 9.3.3), 16 bytes big-endian after the BTH of a READ request.

use crate::error::{Error, Layer};
use crate::slice::{reserve, take};

/// What a READ asks for. Nothing here is checked against memory; [`crate::profile_check`] has our responder's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reth {
    /// Virtual address at the responder, bytes.
    pub va: u64,
    /// Remote key of the memory region.
    pub rkey: u32,
    /// Length, bytes (DMALen).
    pub length_bytes: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const BYTES: usize = 16;

    /// Splits the header off what follows a BTH.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (&va, rest) = take::<8>(Layer::Transport, bytes)?;
        let (&rkey, rest) = take::<4>(Layer::Transport, rest)?;
        let (&length, rest) = take::<4>(Layer::Transport, rest)?;
        let reth = Self {
            va: u64::from_be_bytes(va),
            rkey: u32::from_be_bytes(rkey),
            length_bytes: u32::from_be_bytes(length),
        };
        Ok((reth, rest))
    }

    /// Writes the header; returns its length.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn write(&self, out: &mut [u8]) -> Result<usize, Error> {
        let (bytes, _) = reserve::<{ Self::BYTES }>(out)?;
        bytes[..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..].copy_from_slice(&self.length_bytes.to_be_bytes());
        Ok(Self::BYTES)
    }
}
