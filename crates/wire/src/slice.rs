// SPDX-License-Identifier: Apache-2.0
//! Taking fixed-size headers from the front of a slice, with the error that says which layer was too short.

use crate::error::{Error, Layer};

/// Splits the first `N` bytes off, or says that `layer` is truncated.
pub(crate) fn take<const N: usize>(layer: Layer, bytes: &[u8]) -> Result<(&[u8; N], &[u8]), Error> {
    bytes.split_first_chunk().ok_or(Error::Truncated { layer, needed_bytes: N, got_bytes: bytes.len() })
}

/// Splits the first `N` bytes off a buffer that is being filled, or says how much room was missing.
pub(crate) fn reserve<const N: usize>(out: &mut [u8]) -> Result<(&mut [u8; N], &mut [u8]), Error> {
    let got_bytes = out.len();
    out.split_first_chunk_mut().ok_or(Error::BufferTooSmall { needed_bytes: N, got_bytes })
}
