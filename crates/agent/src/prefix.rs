// SPDX-License-Identifier: Apache-2.0
//! Address prefixes: which sources may ask and read.
//!
//! An IPv4 peer of a dual-stack socket appears as `::ffff:a.b.c.d`; it is judged by its IPv4 address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The first IPv4 address as it appears in IPv6.
const MAPPED: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0);

/// An address and how many of its leading bits count; the others are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix(IpNet);

impl Prefix {
    /// One address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self(address.into())
    }

    /// Whether all addresses of `other` begin with this prefix.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }

    /// Whether `address` begins with this prefix. Families never match each other.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Its first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.0.addr()
    }

    /// Leading bits that count.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether it is an IPv6 prefix with `::ffff:0:0`, the first IPv4 address mapped into IPv6, in it.
    #[must_use]
    pub fn contains_mapped(&self) -> bool {
        matches!(self.0, IpNet::V6(net) if net.contains(&MAPPED))
    }

    /// Whether it holds loopback addresses only.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.address().is_loopback() && self.bits() >= if self.address().is_ipv4() { 8 } else { 128 }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let net: IpNet = text
            .parse()
            .map_err(|_| format!("\"{text}\" is not an address prefix: write it as \"10.0.0.0/8\" or \"fd00::/8\""))?;
        // A host part is most often a typing error, and what it should mean is anybody's guess.
        if net.addr() != net.network() {
            let width = net.max_prefix_len();
            return Err(format!(
                "\"{text}\" has bits set behind its prefix: give the network's address, or /{width} for one host"
            ));
        }
        Ok(Self(net))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn prefixes_hold_what_they_say() {
        let cases = [
            ("127.0.0.0/8", "127.9.9.9", true),
            ("127.0.0.0/8", "128.0.0.1", false),
            ("127.0.0.0/8", "::ffff:127.0.0.1", true),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::1/128", "::1", true),
            ("::1/128", "::2", false),
            ("fd00::/8", "fdff::1", true),
            ("::/0", "2001:db8::1", true),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("10.1.2.3/32", "10.1.2.2", false),
        ];
        for (text, address, expected) in cases {
            assert_eq!(prefix(text).contains(address.parse().expect("an address")), expected, "{text} {address}");
            assert_eq!(prefix(text).to_string(), text);
        }
    }

    #[test]
    fn wider_prefixes_cover_narrower_ones() {
        for (wide, narrow, expected) in [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0/8", "10.0.0.0/8", true),
            ("10.1.0.0/16", "10.0.0.0/8", false),
            ("0.0.0.0/0", "::1/128", false),
        ] {
            assert_eq!(prefix(wide).covers(&prefix(narrow)), expected, "{wide} {narrow}");
        }
        assert_eq!(Prefix::host("::1".parse().expect("an address")), prefix("::1/128"));
    }

    #[test]
    fn loopback_prefixes() {
        for (text, expected) in [
            ("127.0.0.0/8", true),
            ("127.0.0.1/32", true),
            ("::1/128", true),
            ("0.0.0.0/0", false),
            ("126.0.0.0/7", false),
            ("::/127", false),
        ] {
            assert_eq!(prefix(text).is_loopback(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_prefix_is_refused() {
        for text in ["", "127.0.0.1", "127.0.0.0/33", "::/129", "host/8", "10.0.0.1/8", "fd00::1/8", "1.2.3.4/-1"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }
}
