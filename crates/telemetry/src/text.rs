// SPDX-License-Identifier: Apache-2.0
//! Keys and payloads as people write them. What bytes mean is between reporters and those who ask; these are the usual layouts, big-endian as on the wire:
//!
//! | text | bytes |
//! |---|---|
//! | `10.1.2.3:443>10.9.8.7:5000/tcp` | flow: source and destination address, their ports, protocol: 13, with IPv6 (`[fd00::1]:443>...`) 37; `-` does for `>`, which shells and URLs have another use for |
//! | `10.1.2.3`, `fd00::1` | address: 4 or 16 |
//! | `u8:7,1`, `u16:..`, `u32:..`, `u64:..` | numbers |
//! | `text:shop` | UTF-8 |
//! | `0x00c0ffee` | these |

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Bytes that somebody has written as text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bytes(pub Vec<u8>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What is not understood, and what would be.
const ADVICE: &str = "write it as SOURCE:PORT>DESTINATION:PORT/PROTOCOL, an address, u32:1,2,3 (u8, u16, u64), text:..., or 0x and hexadecimal digits";
const PROTOCOLS: [(&str, u8); 5] = [("icmp", 1), ("tcp", 6), ("udp", 17), ("icmpv6", 58), ("sctp", 132)];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map(Self).ok_or_else(|| format!("\"{text}\" is no key or payload: {ADVICE}"))
    }
}

fn parse(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("0x") {
        return hex(digits);
    }
    if let Some((kind, rest)) = text.split_once(':') {
        let bytes = match kind {
            "text" => return Some(rest.as_bytes().to_vec()),
            "u8" => 1,
            "u16" => 2,
            "u32" => 4,
            "u64" => 8,
            _ => 0,
        };
        if bytes > 0 {
            return numbers(rest, bytes);
        }
    }
    if text.contains('/') {
        return flow(text);
    }
    Some(octets(text.parse().ok()?))
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let is_even = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    if is_even { (0..digits.len()).step_by(2).map(pair).collect() } else { None }
}

fn numbers(text: &str, bytes: usize) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for number in text.split(',') {
        let number: u64 = number.trim().parse().ok()?;
        if bytes < 8 && number >> (8 * bytes) != 0 {
            return None;
        }
        all.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
    }
    Some(all)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn flow(text: &str) -> Option<Vec<u8>> {
    let (source, rest) = text.split_once(['>', '-'])?;
    let (destination, protocol) = rest.rsplit_once('/')?;
    let (source, destination): (SocketAddr, SocketAddr) = (source.parse().ok()?, destination.parse().ok()?);
    let named = PROTOCOLS.iter().find(|(name, _)| *name == protocol).map(|(_, number)| *number);
    let protocol = named.or_else(|| protocol.parse().ok())?;
    let addresses = [octets(source.ip()), octets(destination.ip())];
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()];
    let is_one_family = source.is_ipv4() == destination.is_ipv4();
    is_one_family.then(|| [addresses.concat(), ports.concat(), vec![protocol]].concat())
}

/// How bytes are shown: one kind, or several one behind the other, of which one has what the numbers leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format(Vec<Kind>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hex,
    Number(usize),
    Text,
    Flow,
}

const KINDS: [(&str, Kind); 7] = [
    ("hex", Kind::Hex),
    ("u8", Kind::Number(1)),
    ("u16", Kind::Number(2)),
    ("u32", Kind::Number(4)),
    ("u64", Kind::Number(8)),
    ("text", Kind::Text),
    ("flow", Kind::Flow),
];

impl FromStr for Format {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let kind = |name: &str| KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        let kinds: Option<Vec<Kind>> = text.split(',').map(kind).collect();
        let kinds = kinds.ok_or("hex, u8, u16, u32, u64, text, flow, or several such as flow,u32,u8")?;
        let others = kinds.iter().filter(|kind| !matches!(kind, Kind::Number(_))).count();
        if others <= 1 {
            Ok(Self(kinds))
        } else {
            Err("of hex, text and flow there can be one only: it has what is left")
        }
    }
}

impl Format {
    /// Flows and addresses.
    #[must_use]
    pub fn flow() -> Self {
        Self(vec![Kind::Flow])
    }

    /// Bytes as text; what does not fit the format is shown as hexadecimal digits.
    #[must_use]
    pub fn show(&self, bytes: &[u8]) -> String {
        if let [kind] = self.0[..] {
            return kind.show(bytes).unwrap_or_else(|| hex_of(bytes));
        }
        let fixed = |kind: &Kind| if let Kind::Number(size) = kind { *size } else { 0 };
        let Some(left) = bytes.len().checked_sub(self.0.iter().map(fixed).sum()) else { return hex_of(bytes) };
        let mut rest = bytes;
        let parts = self.0.iter().map(|kind| {
            let (part, behind) = rest.split_at(if let Kind::Number(size) = kind { *size } else { left });
            rest = behind;
            kind.show(part).unwrap_or_else(|| hex_of(part))
        });
        let parts: Vec<String> = parts.collect();
        if rest.is_empty() { parts.join(" ") } else { hex_of(bytes) }
    }
}

impl Kind {
    fn show(self, bytes: &[u8]) -> Option<String> {
        match self {
            Self::Hex => None,
            Self::Number(size) => show_numbers(bytes, size),
            Self::Text => Some(String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()),
            Self::Flow => show_flow(bytes),
        }
    }
}

fn hex_of(bytes: &[u8]) -> String {
    let mut text = "0x".to_owned();
    bytes.iter().for_each(|byte| write!(text, "{byte:02x}").expect("strings take everything"));
    text
}

fn show_numbers(bytes: &[u8], size: usize) -> Option<String> {
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte)).to_string();
    let is_whole = bytes.len().is_multiple_of(size);
    is_whole.then(|| bytes.chunks(size).map(number).collect::<Vec<_>>().join(","))
}

fn show_flow(bytes: &[u8]) -> Option<String> {
    let address = |bytes: &[u8]| match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    };
    let size = match bytes.len() {
        4 | 16 => return address(bytes).map(|address| address.to_string()),
        13 => 4,
        37 => 16,
        _ => return None,
    };
    let (source, rest) = bytes.split_at(size);
    let (destination, rest) = rest.split_at(size);
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    let (source, destination) =
        (SocketAddr::new(address(source)?, port(0)), SocketAddr::new(address(destination)?, port(2)));
    let named = PROTOCOLS.iter().find(|(_, number)| *number == rest[4]).map(|(name, _)| (*name).to_owned());
    let protocol = named.unwrap_or_else(|| rest[4].to_string());
    Some(format!("{source}>{destination}/{protocol}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: &str, bytes: &[u8]) -> String {
        format.parse::<Format>().unwrap().show(bytes)
    }

    #[test]
    fn what_is_shown_can_be_written() {
        for (text, format, length) in [
            ("10.1.2.3:443>10.9.8.7:5000/tcp", "flow", 13),
            ("[fd00::1]:443>[fd00::2]:5000/udp", "flow", 37),
            ("10.1.2.3:0>10.9.8.7:0/47", "flow", 13),
            ("10.1.2.3", "flow", 4),
            ("fd00::1", "flow", 16),
            ("0x00c0ffee", "hex", 4),
        ] {
            let Bytes(bytes) = text.parse().unwrap();
            assert_eq!((bytes.len(), shown(format, &bytes).as_str()), (length, text));
        }
        let (dash, other) = ("10.1.2.3:443-10.9.8.7:5000/tcp", "10.1.2.3:443>10.9.8.7:5000/tcp");
        assert_eq!(dash.parse::<Bytes>(), other.parse());
        assert_eq!("u32:1,2".parse(), Ok(Bytes(vec![0, 0, 0, 1, 0, 0, 0, 2])));
        assert_eq!("u8:255".parse(), Ok(Bytes(vec![255])));
        assert_eq!("text:shop".parse(), Ok(Bytes(b"shop".to_vec())));
        assert_eq!(shown("u16", &[0, 1, 2, 3]), "1,515");
        assert_eq!(shown("u16", &[1, 2, 3]), "0x010203");
        assert_eq!(shown("text", b"shop\0\0"), "shop");
        assert_eq!(shown("flow,u16,u8", &[10, 0, 0, 1, 0, 7, 3]), "10.0.0.1 7 3");
        assert_eq!(shown("u16,text", &[0, 7, b'a']), "7 a");
        assert_eq!(shown("u16,u8", &[0, 7, 3, 1]), "0x00070301", "more than it has");
        assert_eq!(shown("u16,u8", &[0, 7]), "0x0007");
        for bad in ["", "u7", "flow,text", "flow,"] {
            assert!(bad.parse::<Format>().is_err(), "{bad}");
        }
        for text in ["", "0x1", "0xgg", "u8:256", "u32:", "10.1.2.3:1>[fd00::1]:2/tcp", "10.1.2.3:1>10.1.2.4:2", "shop"]
        {
            let error = text.parse::<Bytes>().unwrap_err();
            assert!(error.contains("is no key or payload: write it as"), "{error}");
        }
        bolero::check!().with_type::<(String, Vec<u8>)>().for_each(|(text, bytes)| {
            let _ = text.parse::<Bytes>();
            let shown = Format::flow().show(bytes);
            if !bytes.is_empty() {
                assert_eq!(shown.parse(), Ok(Bytes(bytes.clone())));
            }
            for format in ["u16,hex,u8", "text,u64"] {
                let _ = super::tests::shown(format, bytes);
            }
        });
    }
}
