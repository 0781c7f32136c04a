// SPDX-License-Identifier: Apache-2.0
//! Why a report was refused. One variant a reason, so that a caller can count each.

/// Why a report, or an answer to one, was not parsed or not built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// Fewer bytes than the fixed part, or than the buffer must have.
    #[error("report: needs {needed_bytes} bytes, got {got_bytes}; drop it")]
    Truncated {
        /// Bytes that are needed.
        needed_bytes: usize,
        /// Bytes that were there.
        got_bytes: usize,
    },
    /// Neither of the versions that there are.
    #[error("report: version {0} is neither 0 nor 1; update the translator, or drop it")]
    Version(u8),
    /// A primitive that this version has not.
    #[error("report: primitive {0} is none of probe (0), Key-Write (1), Append (2), Key-Increment (3); drop it")]
    Primitive(u8),
    /// Flags that are reserved, or do not go with the rest.
    #[error("report: flags {0:#04x} are reserved, or a probe is not retransmittable; drop it")]
    Flags(u8),
    /// A sequence number of a report that cannot be sent again.
    #[error("report: sequence number {0} of a report that is not retransmittable; drop it")]
    Sequence(u32),
    /// More or fewer bytes than key and payload are said to have.
    #[error("report: states {stated_bytes} bytes of key and payload, got {got_bytes}; drop it")]
    Length {
        /// Key and payload, as the header has them.
        stated_bytes: usize,
        /// Bytes behind the header.
        got_bytes: usize,
    },
    /// A key that is too long, or where none belongs, or none.
    #[error("report: a key of {0} bytes does not fit its primitive; keys have 1 to 64")]
    KeyLength(usize),
    /// A payload that is too long, or none, or a number that is not as long as numbers are.
    #[error("report: a payload of {0} bytes does not fit its primitive; payloads have 1 to 64, addends 8, a probe 4")]
    PayloadLength(usize),
    /// No copies that an entry may have.
    #[error("report: copies {0:#04x} are neither 1 to 4 nor one of the first four; drop it")]
    Copies(u8),
    /// An answer that says nothing that is known.
    #[error("answer: verdict {0:#04x} is unknown; drop it")]
    Verdict(u8),
}

impl Refused {
    /// A short stable name, for counters.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::Version(_) => "version",
            Self::Primitive(_) => "primitive",
            Self::Flags(_) => "flags",
            Self::Sequence(_) => "sequence",
            Self::Length { .. } => "length",
            Self::KeyLength(_) => "key_length",
            Self::PayloadLength(_) => "payload_length",
            Self::Copies(_) => "copies",
            Self::Verdict(_) => "verdict",
        }
    }
}

/// Splits the first `N` bytes off.
pub(super) fn take<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), Refused> {
    bytes.split_first_chunk().ok_or(Refused::Truncated { needed_bytes: N, got_bytes: bytes.len() })
}
