// SPDX-License-Identifier: Apache-2.0
//! The switch's port towards the controller: one queue, served at the link's rate.
//!
//! What has come and not gone is the time until the port is free: no event is needed for what leaves. Above a threshold
//! hosts are told to pause (PFC) until the queue has fallen an eighth below it; what is on its way then still comes, and
//! nothing is ever dropped.

use crate::Cluster;

/// What became of an answer that came.
pub(crate) struct Passed {
    /// When the controller has it, without the way there.
    pub(crate) at_ns: u64,
    pub(crate) is_marked: bool,
}

pub(crate) struct Port {
    cluster: Cluster,
    free_ns: u64,
    /// Hosts send nothing until then.
    paused_until_ns: u64,
    pub(crate) paused_ns: u64,
    pub(crate) marked: u64,
    pub(crate) passed: u64,
}

impl Port {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, free_ns: 0, paused_until_ns: 0, paused_ns: 0, marked: 0, passed: 0 }
    }

    /// How long what stands in the queue takes.
    pub(crate) fn queue_ns(&self, now_ns: u64) -> u64 {
        self.free_ns.saturating_sub(now_ns)
    }

    /// Until when hosts have to wait; a time that has passed where they need not.
    pub(crate) fn paused_until_ns(&self) -> u64 {
        self.paused_until_ns
    }

    /// An answer comes. `chance`: between 0 and 1.
    pub(crate) fn pass(&mut self, now_ns: u64, wire_ns: u64, chance: f64) -> Passed {
        self.free_ns = self.free_ns.max(now_ns) + wire_ns;
        self.passed += 1;
        let queue_ns = self.queue_ns(now_ns);
        let (pause_ns, resume_ns) = {
            let pause_ns = self.cluster.wire_ns(self.cluster.pause_bytes);
            (pause_ns, pause_ns - pause_ns / 8)
        };
        if queue_ns > pause_ns || now_ns < self.paused_until_ns {
            let until_ns = self.free_ns.saturating_sub(resume_ns).max(now_ns);
            self.paused_ns += until_ns.saturating_sub(self.paused_until_ns.max(now_ns));
            self.paused_until_ns = self.paused_until_ns.max(until_ns);
        }
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let is_marked = self.cluster.mark_bytes.is_some_and(|bytes| {
            let from_ns = self.cluster.wire_ns(bytes);
            let over_ns = queue_ns.saturating_sub(from_ns);
            over_ns as f64 > chance * (3 * from_ns) as f64
        });
        self.marked += u64::from(is_marked);
        Passed { at_ns: self.free_ns, is_marked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{FAST, SLOW};

    #[test]
    fn what_comes_faster_than_the_link_waits_is_marked_and_pauses() {
        let mut port = Port::new(FAST);
        let wire_ns = FAST.answer_ns();
        let of = |bytes: u64| bytes / (4096 + 86);
        let came = |port: &mut Port, count: u64| (0..count).map(|_| port.pass(0, wire_ns, 0.5)).last().unwrap();
        assert!(!came(&mut port, of(FAST.mark_bytes.unwrap())).is_marked && port.marked == 0);
        assert!(came(&mut port, of(3 << 20)).is_marked && port.paused_ns == 0);
        assert_eq!(came(&mut port, of(21 << 20)).at_ns, port.queue_ns(0));
        assert!(port.paused_ns > 0 && port.paused_until_ns() == port.paused_ns);
        // It has fallen by an eighth of 24 MiB.
        let left_ns = port.queue_ns(port.paused_until_ns());
        assert_eq!(left_ns, FAST.wire_ns(24 << 20) - FAST.wire_ns(24 << 20) / 8);
        assert_eq!(
            (port.queue_ns(port.free_ns + 1), port.passed),
            (0, of(FAST.mark_bytes.unwrap()) + of(3 << 20) + of(21 << 20))
        );
    }

    #[test]
    fn without_ecn_nothing_is_marked() {
        let mut port = Port::new(SLOW);
        for _ in 0..3000 {
            port.pass(0, SLOW.answer_ns(), 0.0);
        }
        assert_eq!((port.marked, port.paused_ns > 0), (0, true));
    }
}
