// SPDX-License-Identifier: Apache-2.0
//! Names of READs across hosts: the host's place in the upper bits, the session's own name below.

use onlooker_reader::Memory;
use onlooker_region::Block;

use super::host::Host;

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

/// Each host's READs go to its own session's memory.
pub(super) struct Hosts<'a>(pub(super) &'a mut [Option<Host>]);

impl Memory for Hosts<'_> {
    fn blocks(&mut self, id: u64, at: u32, blocks: u32) -> &mut [Block] {
        let host = self.0[host_of(id)].as_mut().expect("a host that goes takes its flow and its READs along");
        &mut host.memory()[at as usize..][..blocks as usize]
    }
}
