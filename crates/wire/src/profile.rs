// SPDX-License-Identifier: Apache-2.0
//! What our responders serve: whole, aligned blocks or words within one block, one packet an answer. Requesters split larger reads.

use crate::aeth::{Aeth, NakCode};
use crate::bth::Bth;
use crate::icrc::ICRC_BYTES;
use crate::ip::IpHeader;
use crate::udp::Ports;

/// Bytes of a block, the unit of alignment and length.
pub const BLOCK_BYTES: u32 = 1024;
/// Bytes of a word, the unit of alignment and length within a block.
pub const WORD_BYTES: u32 = 8;
/// Largest READ unless the endpoint says otherwise: fits an MTU of 1500 bytes.
pub const DEFAULT_MAX_READ_BYTES: u32 = BLOCK_BYTES;
/// Largest READ that any responder may offer: fits an MTU of 9000 bytes.
pub const LARGEST_MAX_READ_BYTES: u32 = 8 * BLOCK_BYTES;

// The answer to the largest READ fits a jumbo frame, and that to the default one an ordinary frame.
const _: () = assert!(answer_ip_bytes(LARGEST_MAX_READ_BYTES, true) <= 9000);
const _: () = assert!(answer_ip_bytes(DEFAULT_MAX_READ_BYTES, true) <= 1500);

/// Why a READ is outside the profile. Each calls for [`ProfileError::nak`], or for silence towards strangers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ProfileError {
    /// No bytes asked for.
    #[error("READ of 0 bytes: ask for at least one word of 8 bytes")]
    Empty,
    /// Neither whole blocks nor whole words of less than a block.
    #[error("READ of {0} bytes: ask for a multiple of 8 below 1024, or of 1024")]
    Length(u32),
    /// More than the responder serves in one packet.
    #[error("READ of {length_bytes} bytes: above the responder's {max_read_bytes}; split it")]
    TooLong {
        /// As asked for.
        length_bytes: u32,
        /// As served.
        max_read_bytes: u32,
    },
    /// Blocks that do not start at a block, or words that are not aligned.
    #[error("READ at offset {0} bytes: whole blocks start at a multiple of 1024, words at a multiple of 8")]
    Unaligned(u64),
    /// Less than a block, but in two of them.
    #[error("READ at offset {0} bytes: reaches into the next block; read the blocks whole")]
    Straddles(u64),
    /// Goes past the end of the address space.
    #[error("READ at offset {0} bytes: end of the range overflows 64 bits; correct the address")]
    Overflow(u64),
}

impl ProfileError {
    /// The NAK for it. A wrong remote key or a range outside the region is [`NakCode::RemoteAccess`] instead.
    #[must_use]
    pub const fn nak(self) -> NakCode {
        NakCode::InvalidRequest
    }
}

/// Checks a READ against the responder's profile; whether the range lies in the region is the caller's question.
///
/// `va_base_offset_bytes` is the READ's virtual address minus the slab's base address, `max_read_bytes` what this responder
/// serves ([`DEFAULT_MAX_READ_BYTES`] unless configured).
///
/// # Errors
/// The first [`ProfileError`] in the order of its variants.
pub const fn profile_check(
    va_base_offset_bytes: u64,
    length_bytes: u32,
    max_read_bytes: u32,
) -> Result<(), ProfileError> {
    if length_bytes == 0 {
        return Err(ProfileError::Empty);
    }
    let whole_blocks = length_bytes.is_multiple_of(BLOCK_BYTES);
    if !whole_blocks && (length_bytes > BLOCK_BYTES || !length_bytes.is_multiple_of(WORD_BYTES)) {
        return Err(ProfileError::Length(length_bytes));
    }
    if length_bytes > max_read_bytes {
        return Err(ProfileError::TooLong { length_bytes, max_read_bytes });
    }
    let alignment = if whole_blocks { BLOCK_BYTES } else { WORD_BYTES };
    if !va_base_offset_bytes.is_multiple_of(alignment as u64) {
        return Err(ProfileError::Unaligned(va_base_offset_bytes));
    }
    if !whole_blocks && va_base_offset_bytes % BLOCK_BYTES as u64 + length_bytes as u64 > BLOCK_BYTES as u64 {
        return Err(ProfileError::Straddles(va_base_offset_bytes));
    }
    if va_base_offset_bytes.checked_add(length_bytes as u64).is_none() {
        return Err(ProfileError::Overflow(va_base_offset_bytes));
    }
    Ok(())
}

/// Bytes of the IP packet that answers a READ of `length_bytes`, to be compared with an MTU.
#[must_use]
pub const fn answer_ip_bytes(length_bytes: u32, ipv6: bool) -> usize {
    let ip_bytes = if ipv6 { IpHeader::V6_BYTES } else { IpHeader::V4_BYTES };
    ip_bytes + Ports::HEADER_BYTES + Bth::BYTES + Aeth::BYTES + length_bytes as usize + ICRC_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason() {
        assert_eq!(profile_check(0, 1024, 1024), Ok(()));
        assert_eq!(profile_check(7 << 10, 8192, 8192), Ok(()));
        assert_eq!(profile_check(0, 0, 1024), Err(ProfileError::Empty));
        assert_eq!(profile_check(1024 - 64, 64, 1024), Ok(()));
        assert_eq!(profile_check(1024 - 56, 64, 1024), Err(ProfileError::Straddles(1024 - 56)));
        assert_eq!(profile_check(4, 64, 1024), Err(ProfileError::Unaligned(4)));
        assert_eq!(profile_check(0, 12, 1024), Err(ProfileError::Length(12)));
        assert_eq!(profile_check(0, 1032, 8192), Err(ProfileError::Length(1032)));
        assert_eq!(
            profile_check(0, 2048, 1024),
            Err(ProfileError::TooLong { length_bytes: 2048, max_read_bytes: 1024 })
        );
        assert_eq!(profile_check(8, 1024, 1024), Err(ProfileError::Unaligned(8)));
        let last = u64::MAX - 1023;
        assert_eq!(profile_check(last, 1024, 1024), Err(ProfileError::Overflow(last)));
        assert_eq!(profile_check(last - 1024, 1024, 1024), Ok(()));
        assert_eq!(answer_ip_bytes(1024, false), 1072);
        assert_eq!(answer_ip_bytes(1024, true), 1092);
    }
}
