// SPDX-License-Identifier: Apache-2.0
//! What goes through the ring beside rows.
//!
//! ```text
//! defined   records of the catalogue, as they stand in its file
//! gap       track (4), of (4; all ones: all of it), from (8), to (8), reason
//! end       track (4)
//! ```

use crate::damage::Damage;
use crate::types::{Gap, TrackId};

/// Something new in the catalogue.
pub(crate) const DEFINED: u8 = 2;
/// A time without rows.
pub(crate) const GAP: u8 = 3;
/// A track's last row was told.
pub(crate) const END: u8 = 4;

/// Longest reason of a gap, bytes.
const MAX_REASON: usize = 64;

pub(crate) fn encode_gap(gap: &Gap) -> Vec<u8> {
    let mut bytes = gap.track.0.to_le_bytes().to_vec();
    bytes.extend(gap.of.unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(gap.from_ns.to_le_bytes());
    bytes.extend(gap.to_ns.to_le_bytes());
    bytes.extend(gap.reason.as_bytes());
    bytes
}

pub(crate) fn decode_gap(bytes: &[u8]) -> Result<Gap, Damage> {
    let damage = Damage::Wrong("a gap");
    let (track, rest) = bytes.split_first_chunk().ok_or(damage)?;
    let (of, rest) = rest.split_first_chunk().ok_or(damage)?;
    let (from, rest) = rest.split_first_chunk().ok_or(damage)?;
    let (to, reason) = rest.split_first_chunk().ok_or(damage)?;
    let reason = std::str::from_utf8(reason).ok().filter(|reason| reason.len() <= MAX_REASON).ok_or(damage)?;
    let of = Some(u32::from_le_bytes(*of)).filter(|of| *of != u32::MAX);
    let (from_ns, to_ns) = (u64::from_le_bytes(*from), u64::from_le_bytes(*to));
    Ok(Gap { track: TrackId(u32::from_le_bytes(*track)), of, from_ns, to_ns, reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_come_back_and_damage_is_an_error() {
        for of in [None, Some(0), Some(7)] {
            let gap = Gap { track: TrackId(9), of, from_ns: 1, to_ns: u64::MAX, reason: "late".into() };
            assert_eq!(decode_gap(&encode_gap(&gap)), Ok(gap));
        }
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = decode_gap(bytes);
        });
    }
}
