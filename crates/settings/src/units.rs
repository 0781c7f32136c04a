// SPDX-License-Identifier: Apache-2.0
//! Quantities with their unit in the text, as agent.toml has them: `"10ms"`, `"64KiB"`.
//!
//! A bare number is refused: whoever reads the file must not have to know which unit a key has.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const NS_UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

const BYTE_UNITS: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// A length of time, written as an integer and one of `ns us ms s min h d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    ns: u64,
}

impl Span {
    /// A span of so many nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self { ns }
    }

    /// A span of so many milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self { ns: ms * 1_000_000 }
    }

    /// A span of so many seconds.
    #[must_use]
    pub const fn from_s(s: u64) -> Self {
        Self { ns: s * 1_000_000_000 }
    }

    /// Nanoseconds.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.ns
    }

    /// The same as the standard library has it.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.ns)
    }
}

/// A number of bytes, written as an integer and one of `B KiB MiB GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    bytes: u64,
}

impl Size {
    /// So many bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self { bytes }
    }

    /// So many mebibytes.
    #[must_use]
    pub const fn from_mib(mib: u64) -> Self {
        Self { bytes: mib << 20 }
    }

    /// Bytes.
    #[must_use]
    pub const fn as_bytes(self) -> u64 {
        self.bytes
    }
}

fn parse(text: &str, units: &[(&str, u64)], example: &str) -> Result<u64, String> {
    let names = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    if number.is_empty() || unit.is_empty() {
        return Err(format!(
            "\"{text}\" is not a whole number and a unit: write it as \"{example}\" (units: {})",
            names()
        ));
    }
    let number: u64 = number.parse().map_err(|_| format!("\"{text}\" is too large"))?;
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("\"{text}\" has the unknown unit \"{unit}\": known are {}", names()));
    };
    number.checked_mul(*factor).ok_or_else(|| format!("\"{text}\" is too large"))
}

fn show(value: u64, units: &[(&str, u64)]) -> String {
    let (name, factor) =
        units.iter().rev().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor)).unwrap_or(&units[0]);
    format!("{}{name}", value / factor)
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(self.ns, &NS_UNITS))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(self.bytes, &BYTE_UNITS))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

struct Quantity {
    units: &'static [(&'static str, u64)],
    example: &'static str,
}

impl de::Visitor<'_> for Quantity {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text with a unit, as \"{}\"", self.example)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        parse(text, self.units, self.example).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ns = deserializer.deserialize_str(Quantity { units: &NS_UNITS, example: "10ms" })?;
        Ok(Self { ns })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = deserializer.deserialize_str(Quantity { units: &BYTE_UNITS, example: "64KiB" })?;
        Ok(Self { bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(text: &str) -> Result<u64, String> {
        parse(text, &NS_UNITS, "10ms")
    }

    #[test]
    fn spans_and_sizes_read_their_units() {
        assert_eq!(ns("10ms"), Ok(10_000_000));
        assert_eq!(ns("1 s"), Ok(1_000_000_000));
        assert_eq!(ns("0s"), Ok(0));
        assert_eq!(parse("64KiB", &BYTE_UNITS, ""), Ok(65_536));
        assert_eq!(parse("3GiB", &BYTE_UNITS, ""), Ok(3 << 30));
    }

    #[test]
    fn what_is_not_a_quantity_is_refused_with_the_way_to_write_it() {
        assert!(ns("10").unwrap_err().contains("10ms"));
        assert!(ns("-1s").unwrap_err().contains("10ms"));
        assert!(ns("10 parsec").unwrap_err().contains("unknown unit \"parsec\""));
        assert!(ns("999999999999999999999s").unwrap_err().contains("too large"));
        assert!(ns("18446744073709551615s").unwrap_err().contains("too large"));
    }

    #[test]
    fn display_and_parse_are_inverse() {
        bolero::check!().with_type::<u64>().for_each(|value| {
            assert_eq!(ns(&Span::from_ns(*value).to_string()), Ok(*value));
            assert_eq!(parse(&Size::from_bytes(*value).to_string(), &BYTE_UNITS, ""), Ok(*value));
        });
    }
}
