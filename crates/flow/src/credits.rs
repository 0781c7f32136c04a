// SPDX-License-Identifier: Apache-2.0
//! How many bytes may be asked for and not answered, over all hosts.
//!
//! READs are paced by whoever asks, so congestion is the reader's own doing: it is many answers meeting at one port.
//! Their total is bounded, and the bound follows the network.
//!
//! - It gives way, once a round trip, to three signs of a queue that is too long: an answer marked CE (RFC 3168), more
//!   than one READ in [`LOSS_PART`] that was answered only when it was repeated, and most answers later by [`LATE_NS`]
//!   than what is usual for their hosts. How late is counted up to when the reader looked before: a reader without a
//!   processor is late by itself, and less under way would make it slower still. A READ that nobody answers takes nothing:
//!   a host that is down, a firewall and a responder's silent refusal look the same, and none of them is congestion. It
//!   holds its bytes until its time-out.
//! - It grows where that pays ([`Growth`]): while hosts wait for credit, a larger total is tried, and kept if more bytes
//!   come in the same time. On a link that is full, more bytes under way are only a longer queue.
//!
//! The published way ([`Sharing::Published`]) is there to be compared with.

use crate::growth::{Growth, Measured};
use crate::{Credit, Room, Took};

/// Parts of the total, at least.
const LEAST_PARTS: u64 = 8;
/// What READs are cut into as published, where it is also the least that a host has.
pub const FRAGMENT_BYTES: u64 = 4 << 10;
/// Above what is usual for its host, an answer is late: more than the longest queue of a switch, 12 MB, at 100 Gbit/s.
const LATE_NS: u64 = 1_000_000;
/// So many answers say something of the network, and not of the hosts that gave them.
const ENOUGH: u64 = 16;
/// Losses are judged by so many answers.
const ENOUGH_OF_LOSSES: u64 = 200;
/// One repeated READ in so many is what links lose that are full of errors, and no congestion.
const LOSS_PART: u64 = 50;

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Never more than this: what receive buffers and switch buffers take, bytes.
    pub most_bytes: u32,
    /// Never less: a few packets, so that congestion elsewhere cannot stop the watching.
    pub least_bytes: u32,
    /// To begin with, bytes.
    pub first_bytes: u32,
}

impl Limits {
    /// With at most so much. It begins with the total of the published system in production, 256 KiB.
    #[must_use]
    pub fn up_to(most_bytes: u32) -> Self {
        let [least_bytes, first_bytes] = [64 << 10, 256 << 10].map(|bytes: u32| bytes.min(most_bytes));
        Self { most_bytes, least_bytes, first_bytes }
    }

    /// No READ is to be longer: four fit the least total, so that one which nobody answers does not stop the others.
    #[must_use]
    pub fn longest_read_bytes(&self) -> u32 {
        self.least_bytes / 4
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::up_to(4 << 20)
    }
}

/// How hosts share what may be under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// All together have a total that follows the network, and wait for each other.
    #[default]
    Total,
    /// As published (credit-based flow control): the most there may be is divided by the hosts in a reading, whatever
    /// the network says, and nobody gets less than a fragment. More hosts than fragments are more than the total.
    Published,
}

/// What has come since the total was last changed.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    answered: u64,
    bytes: u64,
    late: u64,
    is_marked: bool,
    was_refused: bool,
}

/// What was lost, over as many rounds as that takes.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    answered: u64,
    recovered: u64,
}

impl Losses {
    /// Whether they are a sign, once enough has come.
    fn judged(&mut self) -> bool {
        if self.answered < ENOUGH_OF_LOSSES {
            return false;
        }
        let Self { answered, recovered } = std::mem::take(self);
        LOSS_PART * recovered > answered
    }
}

/// The bound as it is now.
#[derive(Clone, Debug)]
pub struct Credits {
    limits: Limits,
    sharing: Sharing,
    total_bytes: u32,
    /// Until then the last change has not been felt yet.
    settled_ns: u64,
    /// When the round began.
    advanced_ns: u64,
    round: Round,
    losses: Losses,
    growth: Growth,
    /// Times that it gave way.
    pub decreases: u64,
}

impl Credits {
    /// At the beginning.
    ///
    /// # Panics
    /// If the least or the first is more than the most, or the first less than the least.
    #[must_use]
    pub fn new(limits: Limits, sharing: Sharing) -> Self {
        assert!(limits.least_bytes <= limits.first_bytes && limits.first_bytes <= limits.most_bytes);
        let total_bytes = match sharing {
            Sharing::Total => limits.first_bytes,
            Sharing::Published => limits.most_bytes,
        };
        let (round, losses, growth) = (Round::default(), Losses::default(), Growth::default());
        Self { limits, sharing, total_bytes, settled_ns: 0, advanced_ns: 0, round, losses, growth, decreases: 0 }
    }

    /// Bytes in flight of all hosts together.
    #[must_use]
    pub fn total_bytes(&self) -> u32 {
        self.total_bytes
    }

    /// What may be under way while so many hosts are in a reading, and `taken_bytes` are: of one at most `host_bytes`,
    /// its part of the total, and half of what is left. There are at least eight parts, and one more than hosts. What
    /// hosts do not answer they hold until its time-out, and it must leave something to those that come next, however
    /// many have stopped one after the other. So what has stalled ([`crate::InFlight::stalled`]) may come on top of the
    /// total: it is in no queue. All together it is never more than the most there may be.
    #[must_use]
    pub fn credit(&self, host_bytes: u32, hosts: usize, taken_bytes: u64, stalled_bytes: u64) -> Credit {
        let hosts = hosts as u64;
        if self.sharing == Sharing::Published {
            let share_bytes = (u64::from(self.total_bytes) / hosts.max(1)).max(FRAGMENT_BYTES);
            return Credit { all_bytes: u64::MAX, host_bytes: share_bytes.min(host_bytes.into()) };
        }
        let all_bytes = (u64::from(self.total_bytes) + stalled_bytes).min(self.limits.most_bytes.into());
        let parts = (hosts + 1).max(LEAST_PARTS);
        let left_bytes = all_bytes.saturating_sub(taken_bytes);
        // In whole fragments: with so many hosts that a part is one and a half, more credit would else bring nothing.
        let part_bytes = (all_bytes / parts).next_multiple_of(FRAGMENT_BYTES);
        Credit { all_bytes, host_bytes: part_bytes.min(left_bytes / 2).min(host_bytes.into()) }
    }

    /// An answer of so many bytes has come.
    pub fn answered(&mut self, bytes: u64, took: Took) {
        let Took { ns, least_ns } = took;
        self.round.answered += 1;
        self.losses.answered += 1;
        self.round.bytes += bytes;
        self.round.late += u64::from(ns > least_ns.saturating_add(LATE_NS).max(4 * least_ns));
    }

    /// So many answers had a congestion mark.
    pub fn congestion(&mut self, answers: u64) {
        self.round.is_marked |= answers > 0;
    }

    /// So many came only when they were asked for again.
    pub fn recovered(&mut self, answers: u64) {
        self.losses.recovered += answers;
    }

    /// There was that room for a host within that credit, and it had more to ask for. With few hosts it is its part that
    /// stops each, and only a larger total makes that larger.
    pub fn refused(&mut self, room: Room, credit: Credit, host_bytes: u32) {
        self.round.was_refused |= room.is_short || room.is_at_own && credit.host_bytes < host_bytes.into();
    }

    /// To be called now and then, with the round trip time seen: takes back or gives.
    pub fn advance(&mut self, now_ns: u64, round_trip_ns: u64) {
        if now_ns < self.settled_ns || self.sharing == Sharing::Published {
            return;
        }
        let Limits { most_bytes, least_bytes, .. } = self.limits;
        let Round { answered, bytes, late, is_marked, was_refused } = self.round;
        let (says_something, is_lossy) = (answered >= ENOUGH, self.losses.judged());
        if is_marked || is_lossy || says_something && 2 * late > answered {
            self.total_bytes = (self.total_bytes / 10 * 7).max(least_bytes);
            self.decreases += 1;
            self.growth = Growth::default();
        } else if !says_something {
            // What few answers say is kept for the next time; a pause is no part of it.
            if answered == 0 {
                self.advanced_ns = now_ns;
            }
            return;
        } else {
            let measured = Measured { elapsed_ns: now_ns - self.advanced_ns, answered, bytes, was_refused };
            self.total_bytes = self.growth.next(self.total_bytes, measured).min(most_bytes);
        }
        self.round = Round::default();
        self.advanced_ns = now_ns;
        self.settled_ns = now_ns + round_trip_ns.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowId, InFlight};

    const LIMITS: Limits = Limits { most_bytes: 1 << 20, least_bytes: 8 << 10, first_bytes: 256 << 10 };
    const QUICK: Took = Took { ns: 20_000, least_ns: 10_000 };
    const LATE: Took = Took { ns: 1_010_001, least_ns: 10_000 };

    fn total() -> Credits {
        Credits::new(LIMITS, Sharing::Total)
    }

    /// A round with such answers. What it gave, bytes.
    fn round(credits: &mut Credits, now_ns: u64, answers: &[(u64, Took)]) -> i64 {
        let before = i64::from(credits.total_bytes());
        for (count, took) in answers {
            (0..*count).for_each(|_| credits.answered(1, *took));
        }
        credits.advance(now_ns, 50);
        i64::from(credits.total_bytes()) - before
    }

    #[test]
    fn it_gives_way_once_a_round_trip() {
        let mut credits = total();
        for now_ns in 0..100 {
            credits.congestion(1);
            credits.advance(now_ns, 50);
        }
        assert_eq!((credits.decreases, credits.total_bytes()), (2, (256 << 10) / 10 * 7 / 10 * 7));
    }

    /// A network that carries so many bytes in a round trip of 50 us, read for a while by who wants more: the total then.
    fn settled(carries_bytes: u64) -> u32 {
        let mut credits = total();
        for turn in 0..2_000 {
            let bytes = carries_bytes.min(credits.total_bytes().into());
            (0..16).for_each(|_| credits.answered(bytes / 16, QUICK));
            credits.round.was_refused = true;
            credits.advance(turn * 50_000, 50_000);
        }
        credits.total_bytes()
    }

    #[test]
    fn it_grows_as_far_as_more_comes_by_it() {
        assert_eq!(settled(u64::MAX), LIMITS.most_bytes);
        assert_eq!(settled(100 << 10), LIMITS.first_bytes, "tried, and taken back");
        assert!((600 << 10..=900 << 10).contains(&settled(700 << 10)), "{}", settled(700 << 10));
    }

    /// With few hosts none waits for the total, each for its part of it.
    #[test]
    fn it_grows_for_few_hosts_as_well() {
        for hosts in [1, 7, 15] {
            let mut credits = total();
            for turn in 0..2_000 {
                let credit = credits.credit(256 << 10, hosts, 0, 0);
                let room = InFlight::default().room(FlowId(0), [4 << 10; 100], credit);
                let bytes = credit.host_bytes * hosts as u64;
                (0..16).for_each(|_| credits.answered(bytes / 16, QUICK));
                credits.refused(room, credit, 256 << 10);
                credits.advance(turn * 50_000, 50_000);
            }
            assert!(credits.total_bytes() > LIMITS.most_bytes / 10 * 9, "{hosts} hosts: {}", credits.total_bytes());
        }
        // Who has its most wants no more.
        let mut credits = total();
        let credit = credits.credit(4 << 10, 1, 0, 0);
        credits.refused(InFlight::default().room(FlowId(0), [4 << 10; 2], credit), credit, 4 << 10);
        assert!(!credits.round.was_refused);
    }

    #[test]
    fn it_gives_way_to_answers_that_are_late_and_not_to_a_few() {
        let mut credits = total();
        assert_eq!(round(&mut credits, 0, &[(ENOUGH, LATE), (ENOUGH, QUICK)]), 0);
        assert!(round(&mut credits, 50, &[(ENOUGH + 1, LATE), (ENOUGH, QUICK)]) < 0);
        credits.recovered(4);
        assert_eq!(round(&mut credits, 100, &[(ENOUGH_OF_LOSSES - 1, QUICK)]), 0, "a few say nothing");
        assert_eq!(round(&mut credits, 150, &[(ENOUGH, QUICK)]), 0, "links lose something");
        credits.recovered(5);
        assert!(round(&mut credits, 200, &[(ENOUGH_OF_LOSSES, QUICK)]) < 0);
        let far = Took { ns: 7_900_000, least_ns: 2_000_000 };
        assert_eq!(round(&mut credits, 250, &[(ENOUGH, far)]), 0, "for a host that is far this is not late");
    }

    #[test]
    fn hosts_have_equal_parts_and_some_are_left_over() {
        let credits = Credits::new(Limits { first_bytes: 1 << 20, ..LIMITS }, Sharing::Total);
        assert_eq!(credits.credit(4 << 10, 1, 0, 0), Credit { all_bytes: 1 << 20, host_bytes: 4 << 10 });
        assert_eq!(credits.credit(u32::MAX, 1, 0, 0).host_bytes, 128 << 10);
        assert_eq!(credits.credit(u32::MAX, 63, 0, 0), Credit { all_bytes: 1 << 20, host_bytes: 16 << 10 });
        assert_eq!(credits.credit(u32::MAX, 1, (1 << 20) - 512, 0).host_bytes, 256, "half of what others have left");
        assert_eq!((LIMITS.longest_read_bytes(), Limits::up_to(8 << 10).longest_read_bytes()), (2 << 10, 2 << 10));
    }

    #[test]
    fn what_has_stalled_takes_nothing_from_the_others() {
        let credit = |stalled_kib: u64| total().credit(u32::MAX, 1, stalled_kib << 10, stalled_kib << 10);
        assert_eq!(credit(0), Credit { all_bytes: 256 << 10, host_bytes: 32 << 10 });
        assert_eq!(credit(512), Credit { all_bytes: 768 << 10, host_bytes: 96 << 10 });
        assert_eq!(credit(1020), Credit { all_bytes: 1 << 20, host_bytes: 2 << 10 }, "memory is bounded");
    }

    #[test]
    fn as_published_nobody_gets_less_than_a_fragment_and_nothing_is_heeded() {
        let mut credits = Credits::new(LIMITS, Sharing::Published);
        credits.congestion(1);
        credits.advance(1, 1);
        let share = |hosts| credits.credit(256 << 10, hosts, 1 << 30, 0);
        assert_eq!(share(0), Credit { all_bytes: u64::MAX, host_bytes: 256 << 10 });
        assert_eq!([64, 256, 1024].map(|hosts| share(hosts).host_bytes), [16 << 10, 4 << 10, 4 << 10]);
    }

    #[test]
    fn it_stays_between_its_limits() {
        bolero::check!().with_type::<Vec<(u8, bool, u16, u16)>>().for_each(|steps| {
            let mut credits = total();
            let mut now_ns = 0;
            for (what, was_refused, pause, round_trip) in steps {
                now_ns += u64::from(*pause);
                match what % 4 {
                    0 => credits.congestion((what / 4).into()),
                    1 => credits.recovered((what / 4).into()),
                    kind => {
                        let took = [QUICK, LATE][usize::from(kind) - 2];
                        (0..what / 4).for_each(|_| credits.answered(1024, took));
                    }
                }
                credits.round.was_refused |= *was_refused;
                credits.advance(now_ns, u64::from(*round_trip));
                assert!((LIMITS.least_bytes..=LIMITS.most_bytes).contains(&credits.total_bytes()));
            }
        });
    }
}
