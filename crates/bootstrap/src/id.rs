// SPDX-License-Identifier: Apache-2.0
//! 16-byte ids of hosts and boots.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// Length of an id as text.
const DIGITS: usize = 32;

/// Host id or boot id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub [u8; 16]);

/// A text that is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id: 32 hexadecimal digits are expected")]
pub struct IdError;

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Id({self})")
    }
}

impl FromStr for Id {
    type Err = IdError;

    /// 32 hexadecimal digits; hyphens, as UUIDs have them, are passed over.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let mut digits = text.bytes().filter(|byte| *byte != b'-').map(|byte| char::from(byte).to_digit(16));
        let mut id = [0; 16];
        for byte in &mut id {
            let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else { return Err(IdError) };
            *byte = u8::try_from(high << 4 | low).map_err(|_| IdError)?;
        }
        if digits.next().is_some() { Err(IdError) } else { Ok(Self(id)) }
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Host id of a machine, from the content of /etc/machine-id, so that the machine id itself is not told to the network (control.md, Host id).
///
/// # Errors
/// [`IdError`] for anything but 32 hexadecimal digits, with or without one line end.
pub fn host_id(machine_id: &str) -> Result<Id, IdError> {
    let digits = machine_id.strip_suffix('\n').unwrap_or(machine_id);
    if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(IdError);
    }
    let digest = Sha256::new().chain_update("onlooker-host-id").chain_update(digits).finalize();
    Ok(Id(std::array::from_fn(|i| digest[i])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text() {
        bolero::check!().with_type::<[u8; 16]>().for_each(|bytes| {
            let id = Id(*bytes);
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(serde_json::from_str::<Id>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
        });
        let id: Id = "73ad386e-e105-472e-a633-66a1e81ecfec".parse().unwrap();
        assert_eq!(id.to_string(), "73ad386ee105472ea63366a1e81ecfec");
    }

    #[test]
    fn other_texts_are_refused() {
        let long = "0".repeat(33);
        for text in ["", "73ad", &long, "g3ad386ee105472ea63366a1e81ecfec", "73ad386ee105472ea63366a1e81ecfe\u{e9}"] {
            assert_eq!(text.parse::<Id>(), Err(IdError), "{text}");
            assert_eq!(host_id(text), Err(IdError), "{text}");
        }
        assert_eq!(host_id(&format!("{}\n\n", "0".repeat(32))), Err(IdError));
    }
}
