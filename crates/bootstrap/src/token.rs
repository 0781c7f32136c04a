// SPDX-License-Identifier: Apache-2.0
//! The join token: `onlk1.<fingerprint>.<secret>`.

use base64ct::{Base64UrlUnpadded, Encoding};
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

const PREFIX: &str = "onlk1";
/// What stands for the fingerprint in plain mode.
const PLAIN: &str = "-";
/// Characters of 32 bytes in base64url without padding.
const PART_CHARS: usize = 43;

/// A text that is no token. The text itself is in no message: it may be a secret with a typing error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Another beginning.
    #[error("not a join token: it begins with `onlk1.`; `onlooker-agent token` on the watched host prints it")]
    Prefix,
    /// Not three parts.
    #[error("not a whole join token: it is `onlk1.<fingerprint>.<secret>` in one line without spaces; was it cut off?")]
    Parts,
    /// Bad fingerprint.
    #[error("the join token's fingerprint is not 43 characters of base64url (or `-`); was it copied as a whole?")]
    Fingerprint,
    /// Bad secret.
    #[error("the join token's secret is not 43 characters of base64url; was it copied as a whole?")]
    Secret,
}

fn parse_part(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    // base64ct runs in constant time for a given length and refuses unused bits that are set.
    let decoded = Base64UrlUnpadded::decode(text, &mut bytes).ok()?;
    (text.len() == PART_CHARS && decoded.len() == 32).then_some(bytes)
}

/// SHA-256 over a certificate's DER form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a certificate in DER form.
    #[must_use]
    pub fn of_certificate(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }

    /// The digest.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&Base64UrlUnpadded::encode_string(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// What opens an agent. `==` takes constant time; `Debug` shows nothing.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// From 32 random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, to be stored.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// SHA-256 over the bytes: what was made for this secret is known by it, and it opens nothing.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0).into()
    }

    /// As it stands in tokens and requests.
    #[must_use]
    pub fn text(&self) -> String {
        Base64UrlUnpadded::encode_string(&self.0)
    }

    /// Parses [`Secret::text`].
    ///
    /// # Errors
    /// [`TokenError::Secret`].
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        parse_part(text).map(Self).ok_or(TokenError::Secret)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a reader needs to know of an agent before it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The agent's certificate; `None` in plain mode.
    pub fingerprint: Option<Fingerprint>,
    /// What the agent compares.
    pub secret: Secret,
}

impl Token {
    /// Parses a token; it has no white space around it, so whoever reads one from a file takes the line end off.
    ///
    /// # Errors
    /// [`TokenError`] with the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let rest = text.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('.')).ok_or(TokenError::Prefix)?;
        let (fingerprint, secret) = rest.split_once('.').ok_or(TokenError::Parts)?;
        let fingerprint = match fingerprint {
            PLAIN => None,
            text => Some(Fingerprint(parse_part(text).ok_or(TokenError::Fingerprint)?)),
        };
        Ok(Self { fingerprint, secret: Secret::parse(secret)? })
    }

    /// The token as text. Not `Display`, so that it gets into no log by accident.
    #[must_use]
    pub fn text(&self) -> String {
        let fingerprint = self.fingerprint.map_or_else(|| PLAIN.to_owned(), |fingerprint| fingerprint.to_string());
        format!("{PREFIX}.{fingerprint}.{}", self.secret.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text() {
        bolero::check!().with_type::<(Option<[u8; 32]>, [u8; 32])>().for_each(|(fingerprint, secret)| {
            let token = Token { fingerprint: fingerprint.map(Fingerprint), secret: Secret::new(*secret) };
            assert_eq!(Token::parse(&token.text()), Ok(token));
        });
    }

    #[test]
    fn what_parses_is_the_only_text_of_its_token() {
        bolero::check!().with_type::<(u8, u8)>().for_each(|(at, to)| {
            let token = Token { fingerprint: Some(Fingerprint([7; 32])), secret: Secret::new([9; 32]) };
            let mut bytes = token.text().into_bytes();
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *to;
            if let Ok(text) = String::from_utf8(bytes)
                && let Ok(other) = Token::parse(&text)
            {
                assert_eq!(other.text(), text);
            }
        });
    }

    #[test]
    fn each_part_has_its_own_error() {
        let good = Token { fingerprint: None, secret: Secret::new([1; 32]) }.text();
        assert_eq!(Token::parse("onlk2.-.x"), Err(TokenError::Prefix));
        assert_eq!(Token::parse("onlk1.-"), Err(TokenError::Parts));
        assert_eq!(Token::parse(&good.replace('-', "=")), Err(TokenError::Fingerprint));
        assert_eq!(Token::parse(&good[..good.len() - 1]), Err(TokenError::Secret));
    }

    #[test]
    fn nothing_shows_a_secret() {
        let token = Token { fingerprint: None, secret: Secret::new([0x5a; 32]) };
        let shown = format!("{token:?}");
        assert!(!shown.contains(&token.secret.text()) && !shown.contains("90"), "{shown}");
    }
}
