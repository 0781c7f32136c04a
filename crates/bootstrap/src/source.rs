// SPDX-License-Identifier: Apache-2.0
//! Who shares a share: limits for one source count what one machine can have.

use std::net::{IpAddr, Ipv6Addr};

/// What counts as one source: an IPv4 address, mapped into IPv6 or not, or an IPv6 /64, of which one machine has all addresses.
#[must_use]
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_source_and_a_network_of_ipv6_is() {
        for (address, one) in [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.2", "10.0.0.2"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("fd00::1", "fd00::"),
            ("fd00::ffff:1:2:3", "fd00::"),
            ("fd00:0:0:1::1", "fd00:0:0:1::"),
            ("::1", "::"),
        ] {
            assert_eq!(source(address.parse().unwrap()).to_string(), one);
        }
    }
}
