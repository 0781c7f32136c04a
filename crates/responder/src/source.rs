// SPDX-License-Identifier: Apache-2.0
//! Addresses as the maps have them: 16 bytes, IPv4 mapped into IPv6. And who may ask: the prefixes of a map.

use std::net::{IpAddr, Ipv6Addr};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use crate::error::{Error, Result, bpf};
use crate::intf::{ADDRESS_BYTES, PREFIX_BYTES};

/// Bits in front of an IPv4 address in its mapped form.
const MAPPED_BITS: u8 = 96;

/// `struct onlooker_address`.
pub(crate) fn address_bytes(address: IpAddr) -> [u8; ADDRESS_BYTES] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// A range of source addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The addresses that agree with `address` in their first `bits` bits; the rest of `address` is ignored.
    ///
    /// # Errors
    /// [`Error::Limit`] for more than 32 or 128 bits.
    pub fn new(address: IpAddr, bits: u8) -> Result<Self> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        if bits > most {
            return Err(Error::Limit { what: "prefix length", value: bits.into(), limits: format!("0 to {most}") });
        }
        let (raw, shift) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 32 - u32::from(bits)),
            IpAddr::V6(address) => (address.to_bits(), 128 - u32::from(bits)),
        };
        let masked = raw.checked_shr(shift).and_then(|kept| kept.checked_shl(shift)).unwrap_or(0);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(masked).unwrap_or(0).into()),
            IpAddr::V6(_) => IpAddr::V6(masked.into()),
        };
        Ok(Self { address, bits })
    }

    /// One address.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        Self { address, bits }
    }

    /// `struct onlooker_prefix`: the key of `sources`, also in other objects that use the responder's headers.
    #[must_use]
    pub fn to_bytes(self) -> [u8; PREFIX_BYTES] {
        let bits = if self.address.is_ipv4() { self.bits + MAPPED_BITS } else { self.bits };
        let mut bytes = [0; PREFIX_BYTES];
        bytes[..4].copy_from_slice(&u32::from(bits).to_le_bytes());
        bytes[4..].copy_from_slice(&address_bytes(self.address));
        bytes
    }

    /// The reverse.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PREFIX_BYTES] = bytes.try_into().ok()?;
        let bits = bytes[0];
        let address = Ipv6Addr::from(std::array::from_fn::<u8, ADDRESS_BYTES, _>(|index| bytes[4 + index]));
        match (address.to_ipv4_mapped(), bits.checked_sub(MAPPED_BITS)) {
            (Some(address), Some(bits)) => Some(Self { address: IpAddr::V4(address), bits }),
            _ => Some(Self { address: IpAddr::V6(address), bits }),
        }
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Adds a range to a map of sources.
pub(crate) fn allow(sources: &MapHandle, prefix: Prefix) -> Result<()> {
    let advice = "at most 1024 prefixes; join some";
    sources.update(&prefix.to_bytes(), &1u32.to_le_bytes(), MapFlags::ANY).map_err(bpf(
        "allowing",
        format!("sources {prefix}"),
        advice,
    ))
}

/// Takes a range out of a map of sources.
pub(crate) fn disallow(sources: &MapHandle, prefix: Prefix) -> Result<()> {
    let advice = "it was not allowed in this form";
    sources.delete(&prefix.to_bytes()).map_err(bpf("disallowing", format!("sources {prefix}"), advice))
}

/// The ranges of a map of sources.
pub(crate) fn all(sources: &MapHandle) -> Vec<Prefix> {
    sources.keys().filter_map(|key| Prefix::from_bytes(&key)).collect()
}

/// Makes these the ranges of a map of sources. One that stays is never out of it.
///
/// # Errors
/// [`Error::Bpf`] (ENOSPC at 1024 prefixes).
pub fn set(sources: &MapHandle, wanted: &[Prefix]) -> Result<()> {
    let have = all(sources);
    have.iter().filter(|prefix| !wanted.contains(prefix)).try_for_each(|prefix| disallow(sources, *prefix))?;
    wanted.iter().filter(|prefix| !have.contains(prefix)).try_for_each(|prefix| allow(sources, *prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(address: &str, bits: u8) -> Prefix {
        Prefix::new(address.parse().unwrap(), bits).unwrap()
    }

    #[test]
    fn prefixes_survive_their_bytes() {
        for (given, shown) in [
            (prefix("10.1.2.3", 8), "10.0.0.0/8"),
            (prefix("10.1.2.3", 32), "10.1.2.3/32"),
            (prefix("10.1.2.3", 0), "0.0.0.0/0"),
            (prefix("fd00::1", 64), "fd00::/64"),
            (prefix("::1", 128), "::1/128"),
            (prefix("fd00::1", 0), "::/0"),
        ] {
            assert_eq!(given.to_string(), shown);
            assert_eq!(Prefix::from_bytes(&given.to_bytes()), Some(given));
        }
        assert!(Prefix::new("10.0.0.0".parse().unwrap(), 33).is_err());
        assert!(Prefix::new("::".parse().unwrap(), 129).is_err());
        assert_eq!(prefix("1.2.3.4", 24).to_bytes()[..4], [120, 0, 0, 0]);
    }
}
