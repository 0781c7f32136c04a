// SPDX-License-Identifier: Apache-2.0
//! When a host is asked for its clock again.
//!
//! What a bootstrap says of it is worth less by a millisecond each second
//! ([`onlooker_reader::clock::Relation::error_ns`]). Blocks that the agent has computed at a READ say it anew each
//! time; where there are none (over TCP, out of memory that a timer writes) the host is bootstrapped again, for its
//! clock only. When: [`onlooker_reader::clock::Wear`].

use onlooker_reader::Session;
use onlooker_region::schema::Acquisition;

/// Time between two hosts that are asked, ns: a bootstrap is a TLS handshake, and thousands of hosts must not take a
/// connector's threads or a core.
const PAUSE_NS: u64 = 50_000_000;

/// All hosts' side: one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    not_before_ns: u64,
}

impl Turn {
    /// Whether one may be asked now; taken as done.
    pub(super) fn take(&mut self, now_ns: u64) -> bool {
        let may = now_ns >= self.not_before_ns;
        if may {
            self.not_before_ns = now_ns + PAUSE_NS;
        }
        may
    }
}

/// Whether readings say what the clock is: some region of the agent's own is computed at the READ.
pub(super) fn is_told_by_readings(session: &Session) -> bool {
    let regions = session.directory().regions().filter(|entry| entry.identity.is_agents() && session.serves(entry));
    regions
        .filter_map(|entry| session.schema(entry))
        .flat_map(|schema| &schema.groups)
        .any(|group| group.acquisition == Acquisition::Computed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_reader::Via;
    use onlooker_reader::clock::{Moment, Relation, Wear};

    const MS: u64 = 1_000_000;
    const MINUTE_NS: u64 = 60_000 * MS;

    /// A host whose clock runs by so much faster than ours.
    struct Host {
        ppm: i64,
        relation: Relation,
        wear: Wear,
        /// When the answer is there, and what it says.
        answer: Option<(u64, Relation)>,
    }

    fn clock_ns(ppm: i64, now_ns: u64) -> u64 {
        let drift_ns = i128::from(now_ns) * i128::from(ppm) / 1_000_000;
        u64::try_from(i128::from(now_ns) + drift_ns + 7_000_000_000).unwrap()
    }

    /// A bootstrap that was sent and answered then; the host looked at its clock after a part of that time.
    fn asked(ppm: i64, sent_ns: u64, took_ns: u64, part: u64) -> Relation {
        let at = |steady_ns| Moment { steady_ns, utc_ns: steady_ns };
        Relation::new(clock_ns(ppm, sent_ns + took_ns * part / 8), at(sent_ns), at(sent_ns + took_ns))
    }

    /// The greatest bound in 20 minutes of 100 hosts that are read every 100 ms; it holds all the time.
    fn worst_ns(via: Via) -> u64 {
        let mut turn = Turn::default();
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let host = |number: i64| {
            let ppm = number * 10 - 500;
            Host { ppm, relation: asked(ppm, 0, MS, 4), wear: Wear::default(), answer: None }
        };
        let mut hosts: Vec<Host> = (0..100).map(host).collect();
        let mut worst_ns = 0;
        for now_ns in (0..20 * MINUTE_NS / (10 * MS)).map(|step| step * 10 * MS) {
            for (number, host) in (0..).zip(&mut hosts) {
                // Hosts are due one after the other.
                if now_ns / (10 * MS) % 10 != number % 10 {
                    continue;
                }
                if let Some((_, relation)) = host.answer.take_if(|(at_ns, _)| *at_ns <= now_ns) {
                    host.relation = host.relation.or_better(relation, now_ns);
                }
                if host.wear.is_due(&host.relation, via, now_ns) && turn.take(now_ns) {
                    host.wear.put_off(now_ns);
                    let (took_ns, part) = (MS / 5 + next(3 * MS), next(9));
                    host.answer = Some((now_ns + took_ns, asked(host.ppm, now_ns, took_ns, part)));
                }
                let bound_ns = host.relation.error_ns(now_ns);
                let off_ns = host.relation.steady_ns(clock_ns(host.ppm, now_ns)) - i128::from(now_ns);
                assert!(off_ns.unsigned_abs() <= u128::from(bound_ns), "{off_ns} {bound_ns}");
                worst_ns = worst_ns.max(bound_ns);
            }
        }
        worst_ns
    }

    #[test]
    fn a_clock_stays_known_for_as_long_as_its_host_is_read() {
        // A hundred hosts get their turn in 5 s.
        assert!(worst_ns(Via::Tcp) < 14 * MS, "{}", worst_ns(Via::Tcp));
        assert!(worst_ns(Via::Verbs) < 70 * MS, "{}", worst_ns(Via::Verbs));
    }
}
