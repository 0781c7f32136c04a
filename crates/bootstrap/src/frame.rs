// SPDX-License-Identifier: Apache-2.0
//! Messages on a stream: a 4-byte little-endian length and that many bytes.

/// Bytes of the length before a message.
pub const LENGTH_BYTES: usize = 4;
/// Longest message.
pub const MAX_MESSAGE_BYTES: usize = 65_536;

/// What a stream began with that is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is beyond the limit, or the message to be sent is.
    #[error("a message of {0} bytes, at most {MAX_MESSAGE_BYTES} are possible: the other end is no bootstrap endpoint")]
    TooLong(u64),
    /// A TLS record where a length belongs (RFC 8446, 5.1).
    #[error("the other end speaks TLS, this end does not")]
    Tls,
}

/// What the bytes so far hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Not a whole message yet.
    Need {
        /// Missing bytes, at least 1; the next estimate may ask for more again.
        missing_bytes: usize,
    },
    /// A whole message at the front.
    Message {
        /// Without its length.
        body: &'a [u8],
        /// Bytes that it took, with its length.
        consumed_bytes: usize,
    },
}

/// Looks for a message at the front of `bytes`.
///
/// # Errors
/// [`FrameError`], as soon as the length is there: nothing is ever awaited or allocated beyond [`MAX_MESSAGE_BYTES`].
pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, FrameError> {
    let Some(&length) = bytes.first_chunk::<LENGTH_BYTES>() else {
        return Ok(Decoded::Need { missing_bytes: LENGTH_BYTES - bytes.len() });
    };
    let body_bytes = u32::from_le_bytes(length);
    if body_bytes as usize > MAX_MESSAGE_BYTES {
        // Content types alert and handshake, then the legacy version 3.x. As a length that is far beyond the limit.
        let is_tls = matches!(length, [0x15 | 0x16, 3, 0..=4, _]);
        return Err(if is_tls { FrameError::Tls } else { FrameError::TooLong(body_bytes.into()) });
    }
    let consumed_bytes = LENGTH_BYTES + body_bytes as usize;
    match bytes.get(LENGTH_BYTES..consumed_bytes) {
        Some(body) => Ok(Decoded::Message { body, consumed_bytes }),
        None => Ok(Decoded::Need { missing_bytes: consumed_bytes - bytes.len() }),
    }
}

/// A message with its length before it.
///
/// # Errors
/// [`FrameError::TooLong`].
pub fn encode(body: &[u8]) -> Result<Vec<u8>, FrameError> {
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_MESSAGE_BYTES);
    let length = length.ok_or(FrameError::TooLong(body.len() as u64))?;
    let mut bytes = Vec::with_capacity(LENGTH_BYTES + body.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(body);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_however_it_is_cut() {
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(body, behind)| {
            let mut bytes = encode(body).unwrap();
            let whole = bytes.len();
            for cut in 0..whole {
                let Ok(Decoded::Need { missing_bytes }) = decode(&bytes[..cut]) else { panic!("cut at {cut}") };
                assert!((1..=whole - cut).contains(&missing_bytes));
            }
            bytes.extend_from_slice(behind);
            assert_eq!(decode(&bytes), Ok(Decoded::Message { body, consumed_bytes: whole }));
        });
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(Decoded::Need { missing_bytes }) = decode(bytes) {
                assert!((1..=MAX_MESSAGE_BYTES + LENGTH_BYTES).contains(&missing_bytes));
            }
        });
    }

    #[test]
    fn the_limit_holds_both_ways() {
        assert_eq!(encode(&vec![0; MAX_MESSAGE_BYTES]).unwrap().len(), MAX_MESSAGE_BYTES + LENGTH_BYTES);
        assert_eq!(encode(&vec![0; MAX_MESSAGE_BYTES + 1]), Err(FrameError::TooLong(65_537)));
        assert_eq!(decode(&[0, 0, 1, 0]), Ok(Decoded::Need { missing_bytes: MAX_MESSAGE_BYTES }));
        assert_eq!(decode(&[1, 0, 1, 0]), Err(FrameError::TooLong(65_537)));
        assert_eq!(decode(b"HTTP/1.1 400"), Err(FrameError::TooLong(0x5054_5448)));
    }

    #[test]
    fn tls_is_recognised() {
        assert_eq!(decode(&[0x15, 3, 3, 0, 2, 2, 50]), Err(FrameError::Tls), "an alert");
        assert_eq!(decode(&[0x16, 3, 1, 2, 0, 1]), Err(FrameError::Tls), "a hello");
    }
}
