// SPDX-License-Identifier: Apache-2.0
//! A track's gaps in memory. A host that is late has the same gap in each of its tracks: it is there once, and a track has 8 bytes of it. A track keeps
//! [`MAX_GAPS`] at most, for a host that is late for days: beyond, pairs of neighbours that are nearest to each other become one. The log has each as it was.

use std::sync::Arc;

use crate::record::{Gap, TrackId};

/// Gaps that a track has in memory, at most.
pub(crate) const MAX_GAPS: usize = 4096;

#[derive(Debug, PartialEq, Eq)]
struct Short {
    from_ns: u64,
    to_ns: u64,
    reason: Arc<str>,
}

impl Short {
    fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    fn until_ns(&self, next: &Self) -> u64 {
        next.from_ns.saturating_sub(self.to_ns)
    }
}

/// What gaps have in common; one for a store.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    reasons: Vec<Arc<str>>,
    last: Option<Arc<Short>>,
}

impl Shared {
    fn reason(&mut self, reason: &str) -> Arc<str> {
        if let Some(known) = self.reasons.iter().find(|known| &***known == reason) {
            return known.clone();
        }
        let reason: Arc<str> = reason.into();
        self.reasons.push(reason.clone());
        reason
    }

    /// The gap, which most often is that of the track before.
    fn take(&mut self, from_ns: u64, to_ns: u64, reason: &str) -> Arc<Short> {
        let same = |last: &&Arc<Short>| (last.from_ns, last.to_ns, &*last.reason) == (from_ns, to_ns, reason);
        if let Some(last) = self.last.as_ref().filter(same) {
            return last.clone();
        }
        let gap = Arc::new(Short { from_ns, to_ns, reason: self.reason(reason) });
        self.last = Some(gap.clone());
        gap
    }
}

/// The gaps of one track, in the order in which they were told.
#[derive(Debug, Default)]
pub(crate) struct Gaps(Vec<Arc<Short>>);

impl Gaps {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, gap: &Gap, shared: &mut Shared) {
        if self.0.len() >= MAX_GAPS {
            self.shorten();
        }
        self.0.push(shared.take(gap.from_ns, gap.to_ns, &gap.reason));
    }

    /// Makes one gap of each pair of neighbours of one reason that is as near as half of all; of any reasons, that of the longer one, where this does not help.
    fn shorten(&mut self) {
        let mut distances: Vec<u64> = self.0.windows(2).map(|pair| pair[0].until_ns(&pair[1])).collect();
        let middle = distances.len() / 2;
        let near_ns = *distances.select_nth_unstable(middle).1;
        for any in [false, true] {
            let mut left = Vec::with_capacity(self.0.len());
            let mut rest = &self.0[..];
            while let [first, behind @ ..] = rest {
                rest = behind;
                let Some(second) = behind.first() else {
                    left.push(first.clone());
                    break;
                };
                let fits = any || first.reason == second.reason;
                if !fits || second.from_ns < first.from_ns || first.until_ns(second) > near_ns {
                    left.push(first.clone());
                    continue;
                }
                let longer = if second.length_ns() > first.length_ns() { second } else { first };
                let to_ns = first.to_ns.max(second.to_ns);
                left.push(Arc::new(Short { from_ns: first.from_ns, to_ns, reason: longer.reason.clone() }));
                rest = &behind[1..];
            }
            let is_enough = left.len() <= MAX_GAPS - MAX_GAPS / 16;
            self.0 = left;
            if is_enough {
                return;
            }
        }
        // Times that go back and forth: the oldest go.
        if self.0.len() >= MAX_GAPS {
            self.0.drain(..MAX_GAPS / 16);
        }
    }

    /// Forgets those that ended before.
    pub(crate) fn keep_from(&mut self, from_ns: u64) {
        self.0.retain(|gap| gap.to_ns >= from_ns);
    }

    /// Those that touch a time.
    pub(crate) fn between(&self, track: TrackId, from_ns: u64, to_ns: u64) -> impl Iterator<Item = Gap> {
        let touching = self.0.iter().filter(move |gap| gap.from_ns <= to_ns && gap.to_ns >= from_ns);
        touching.map(move |gap| Gap {
            track,
            from_ns: gap.from_ns,
            to_ns: gap.to_ns,
            reason: gap.reason.as_ref().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(from_ns: u64, to_ns: u64, reason: &str) -> Gap {
        Gap { track: TrackId(1), from_ns, to_ns, reason: reason.into() }
    }

    #[test]
    fn tracks_of_one_host_share_theirs() {
        let (mut shared, mut tracks) = (Shared::default(), [Gaps::default(), Gaps::default()]);
        for from_ns in [10, 20] {
            tracks.iter_mut().for_each(|gaps| gaps.push(&gap(from_ns, from_ns + 5, "late"), &mut shared));
        }
        let [one, other] = &tracks;
        assert!(one.0.iter().zip(&other.0).all(|(a, b)| Arc::ptr_eq(a, b)));
        let all: Vec<_> = one.between(TrackId(1), 0, 100).collect();
        assert_eq!(all, [gap(10, 15, "late"), gap(20, 25, "late")]);
        assert_eq!(one.between(TrackId(1), 16, 19).count(), 0);
    }

    #[test]
    fn however_many_there_are_their_times_stay_covered_and_memory_is_bounded() {
        for reasons in [["late", "late"], ["late", "lost"]] {
            let (mut shared, mut gaps) = (Shared::default(), Gaps::default());
            let alone = gap(1_000, 2_000, "timeout");
            gaps.push(&alone, &mut shared);
            let told: Vec<Gap> = (0..40_000u64)
                .map(|n| {
                    let from_ns = 1_000_000 + n * 100 + n * n % 7;
                    gap(from_ns, from_ns + 10, reasons[usize::from(n % 2 == 1)])
                })
                .collect();
            for gap in &told {
                gaps.push(gap, &mut shared);
                assert!(gaps.0.len() <= MAX_GAPS);
            }
            let covers = |told: &Gap, kept: &Short| kept.from_ns <= told.from_ns && told.to_ns <= kept.to_ns;
            assert!(told.iter().all(|told| gaps.0.iter().any(|kept| covers(told, kept))));
            assert!(gaps.0.len() > MAX_GAPS / 2, "no more is given up than has to be: {}", gaps.0.len());
            // What is far from all others stays what it was.
            assert_eq!(gaps.between(TrackId(1), 0, 500_000).collect::<Vec<_>>(), [alone]);
        }
    }

    #[test]
    fn times_that_go_back_and_forth_are_bounded_too() {
        let (mut shared, mut gaps) = (Shared::default(), Gaps::default());
        for n in 0..20_000u64 {
            let from_ns = if n % 2 == 0 { 1_000_000 - n } else { n };
            gaps.push(&gap(from_ns, from_ns + 1, "clock_step"), &mut shared);
            assert!(gaps.0.len() <= MAX_GAPS);
        }
    }
}
