// SPDX-License-Identifier: Apache-2.0
//! READs of all hosts together: whose memory an answer goes to, and whose session hears of it.

use onlooker_flow::{Credits, InFlight};
use onlooker_reader::{Completion, Memory};
use onlooker_region::Block;

use super::host::Host;
use super::names;
use super::outside::Carry;

/// Each host's READs go to its own session's memory.
pub(super) struct Hosts<'a, P>(pub(super) &'a mut [Option<Host<P>>]);

impl<P: Copy> Memory for Hosts<'_, P> {
    fn blocks(&mut self, id: u64, at: u32, blocks: u32) -> &mut [Block] {
        let host = self.0[names::host_of(id)].as_mut().expect("a host that goes takes its flow and its READs along");
        &mut host.memory()[at as usize..][..blocks as usize]
    }
}

/// Gives READs that have ended to their hosts; answers say how much came and how long it took. How many were answered,
/// and their bytes. `times` are when it was looked for them before, and now.
pub(super) fn deliver<C: Carry>(
    hosts: &mut [Option<Host<C::Place>>],
    carriers: &mut C,
    in_flight: &mut InFlight,
    credits: &mut Credits,
    completions: &[Completion],
    times: (u64, u64),
) -> (u64, u64) {
    let (mut reads, mut all_bytes) = (0, 0);
    for completion in completions {
        if let Some(host) = hosts.get_mut(names::host_of(completion.id)).and_then(Option::as_mut) {
            let took = host.complete(carriers, in_flight, *completion, times);
            if let Some((bytes, took)) = took {
                credits.answered(bytes, took);
                reads += 1;
                all_bytes += bytes;
            }
        }
    }
    (reads, all_bytes)
}
