// SPDX-License-Identifier: Apache-2.0
//! Which ways to a host a target accepts, and which of them failed a short time ago and are left out. Decisions only;
//! times are given. [`onlooker_transport::open::pick`] chooses among those that the host offers.

use onlooker_reader::{Pair, Via};

use onlooker_targets::Choice;

/// How long a way that was of no use is left out; for RDMA devices it doubles with each time.
const AGAIN_NS: u64 = 60_000_000_000;
/// Longest such pause: a host goes back to its device within half an hour of the device's being well.
const MAX_AGAIN_NS: u64 = 30 * AGAIN_NS;
/// Links over a device that may break in a row, each soon after it had been good, before the host is read another way.
const MAX_BREAKS: u32 = 3;
/// Hosts whose pauses began together come back in so many groups.
const GROUPS: u64 = 16;

/// Requesters and responders that will do, the best first.
pub(crate) const fn pairs(choice: Choice) -> &'static [Pair] {
    match choice {
        Choice::Auto => &[Pair::VERBS_VERBS, Pair::SOFT_KERNEL, Pair::TCP],
        Choice::Verbs => &[Pair::VERBS_VERBS],
        Choice::Kernel => &[Pair::SOFT_KERNEL],
        Choice::Tcp => &[Pair::TCP],
    }
}

/// Ways of one host that are left out for a while.
#[derive(Debug)]
pub(crate) struct Detour {
    first: Via,
    until_ns: u64,
    /// Links over a device in a row that broke soon after they had been good.
    breaks: u32,
    /// Times in a row that its device was of no use.
    failures: u32,
    group: u64,
}

impl Detour {
    /// Nothing is left out. Hosts of different `number` do not come back from a detour together.
    pub(crate) fn new(number: usize) -> Self {
        Self { first: Via::Verbs, until_ns: 0, breaks: 0, failures: 0, group: number as u64 % GROUPS }
    }

    /// The way to begin with.
    pub(crate) fn first(&self, now_ns: u64) -> Via {
        if now_ns < self.until_ns { self.first } else { Via::Verbs }
    }

    /// A device was of no use, and may be tried again: while the host is read another way, too.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        self.failures > 0 && now_ns >= self.until_ns
    }

    /// There was no device or no queue pair to be had, or one that does not work.
    pub(crate) fn no_queue_pair(&mut self, now_ns: u64) {
        let pause_ns = AGAIN_NS.saturating_mul(1 << self.failures.min(16)).min(MAX_AGAIN_NS);
        self.failures += 1;
        self.breaks = 0;
        self.leave_out(Via::Kernel, now_ns, pause_ns);
    }

    /// A link has broken, and not because of what was read. `is_proven`: something had been read over it; `is_stable`:
    /// for long.
    pub(crate) fn broke(&mut self, via: Via, is_proven: bool, is_stable: bool, now_ns: u64) {
        match via {
            Via::Verbs if is_proven && is_stable => self.breaks = 0,
            Via::Verbs => {
                self.breaks += 1;
                if !is_proven || self.breaks >= MAX_BREAKS {
                    self.no_queue_pair(now_ns);
                }
            }
            Via::Kernel if !is_proven => self.leave_out(Via::Tcp, now_ns, AGAIN_NS),
            // The last way is no better than those that were left out.
            Via::Tcp if !is_proven => self.until_ns = 0,
            Via::Kernel | Via::Tcp => {}
        }
    }

    /// A link has been good for long.
    pub(crate) fn settled(&mut self, via: Via) {
        if via == Via::Verbs {
            (self.until_ns, self.breaks, self.failures) = (0, 0, 0);
        }
    }

    fn leave_out(&mut self, first: Via, now_ns: u64, pause_ns: u64) {
        // What is left out already stays so: only TCP is behind the kernel responder.
        if first == Via::Tcp || self.first(now_ns) != Via::Tcp {
            self.first = first;
        }
        self.until_ns = self.until_ns.max(now_ns + pause_ns + pause_ns / 64 * self.group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Via::{Kernel, Tcp, Verbs};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_device_of_no_use_is_left_out_for_longer_each_time_and_not_for_ever() {
        let mut detour = Detour::new(0);
        let mut now_ns = SECOND;
        assert_eq!((detour.first(now_ns), detour.is_over(now_ns)), (Verbs, false));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            detour.no_queue_pair(now_ns);
            assert_eq!((detour.first(now_ns), detour.is_over(now_ns)), (Kernel, false));
            let pause_s = (1..).find(|s| detour.is_over(now_ns + s * SECOND)).unwrap();
            assert_eq!(detour.first(now_ns + pause_s * SECOND), Verbs);
            pauses.push(pause_s);
            now_ns += pause_s * SECOND;
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1800, 1800, 1800]);
        detour.no_queue_pair(now_ns);
        detour.settled(Kernel);
        assert_eq!(detour.first(now_ns), Kernel, "that another way is good says nothing of the device");
        detour.settled(Verbs);
        assert_eq!((detour.first(now_ns), detour.is_over(u64::MAX)), (Verbs, false));
        detour.no_queue_pair(now_ns);
        assert_eq!(detour.first(now_ns + 59 * SECOND), Kernel);
        assert_eq!(detour.first(now_ns + 60 * SECOND), Verbs, "the pauses begin anew");
    }

    #[test]
    fn links_that_were_good_may_break_now_and_then() {
        let mut detour = Detour::new(0);
        let broke = |detour: &mut Detour, is_proven, is_stable| {
            detour.broke(Verbs, is_proven, is_stable, SECOND);
            detour.first(SECOND)
        };
        assert_eq!(broke(&mut detour, true, false), Verbs);
        assert_eq!(broke(&mut detour, true, false), Verbs);
        assert_eq!(broke(&mut detour, true, true), Verbs);
        assert_eq!(broke(&mut detour, true, false), Verbs);
        assert_eq!(broke(&mut detour, true, false), Verbs);
        assert_eq!(broke(&mut detour, true, false), Kernel, "the third in a row");
        let mut detour = Detour::new(0);
        assert_eq!(broke(&mut detour, false, false), Kernel, "one that never worked");
        let mut detour = Detour::new(0);
        assert_eq!(broke(&mut detour, false, true), Kernel, "however long it was waited for");
    }

    #[test]
    fn a_kernel_responder_that_is_silent_gives_way_to_tcp_and_comes_back() {
        let mut detour = Detour::new(0);
        detour.broke(Kernel, true, false, SECOND);
        assert_eq!(detour.first(SECOND), Verbs);
        detour.broke(Kernel, false, false, SECOND);
        assert_eq!((detour.first(60 * SECOND), detour.first(61 * SECOND)), (Tcp, Verbs));
        // A device that fails meanwhile does not bring the silent one back.
        detour.no_queue_pair(2 * SECOND);
        assert_eq!((detour.first(61 * SECOND), detour.first(62 * SECOND)), (Tcp, Verbs));
        detour.broke(Tcp, true, false, 3 * SECOND);
        assert_eq!(detour.first(3 * SECOND), Tcp);
        detour.broke(Tcp, false, false, 3 * SECOND);
        assert_eq!(detour.first(3 * SECOND), Verbs);
    }

    #[test]
    fn hosts_do_not_come_back_together() {
        let over_ns = |number| {
            let mut detour = Detour::new(number);
            detour.no_queue_pair(0);
            (0..).map(|step| step * SECOND / 16).find(|now_ns| detour.is_over(*now_ns)).unwrap()
        };
        let mut times: Vec<_> = (0..16).map(over_ns).collect();
        times.dedup();
        assert_eq!((times.len(), over_ns(16)), (16, times[0]));
    }
}
