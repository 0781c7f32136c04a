// SPDX-License-Identifier: Apache-2.0
//! Names of READs across hosts: the host's place in the upper bits, the session's own name below.

/// As many as a session's own names have.
const LOCAL_BITS: u32 = 40;

/// A name for a READ of a host's session.
pub(super) fn name(host: usize, local: u64) -> u64 {
    debug_assert!(local >> LOCAL_BITS == 0, "as Session::wanted says");
    (host as u64) << LOCAL_BITS | local
}

/// Whose it is.
pub(super) fn host_of(name: u64) -> usize {
    usize::try_from(name >> LOCAL_BITS).unwrap_or(usize::MAX)
}

/// What the session calls it.
pub(super) fn local_of(name: u64) -> u64 {
    name & ((1 << LOCAL_BITS) - 1)
}
