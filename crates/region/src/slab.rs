// SPDX-License-Identifier: Apache-2.0
//! Ranges of a slab: who has which pages, and when a freed one may be used again.
//!
//! A slab is registered or mapped once; regions are ranges in it. Ranges are whole pages, so that a program can map its own. A freed range rests for
//! the reuse delay, so that a reader who still has its address cannot meet another region's values. Pure bookkeeping: time is given, memory is elsewhere.

use std::collections::BTreeMap;

/// Granularity of ranges: the page, because programs map them.
pub const PAGE_BYTES: u64 = 4096;

/// A part of a slab, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// From the slab's beginning; a multiple of [`PAGE_BYTES`].
    pub offset: u64,
    /// A multiple of [`PAGE_BYTES`].
    pub bytes: u64,
}

/// Allocator of ranges, first fit.
#[derive(Debug)]
pub struct Ranges {
    free: BTreeMap<u64, u64>,
    resting: Vec<(u64, Range)>,
    total: u64,
    used: u64,
}

impl Ranges {
    /// For a slab of `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let total = bytes / PAGE_BYTES * PAGE_BYTES;
        Self { free: BTreeMap::from([(0, total)]), resting: Vec::new(), total, used: 0 }
    }

    /// Bytes taken by live ranges.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of freed ranges that still rest.
    #[must_use]
    pub fn resting(&self) -> u64 {
        self.resting.iter().map(|(_, range)| range.bytes).sum()
    }

    /// Bytes of the slab.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Takes a range of at least `bytes`; `None` where no gap is large enough.
    pub fn take(&mut self, bytes: u64, now_ns: u64) -> Option<Range> {
        self.wake(now_ns);
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE_BYTES)?;
        let (&offset, &room) = self.free.iter().find(|(_, room)| **room >= bytes)?;
        self.free.remove(&offset);
        if room > bytes {
            self.free.insert(offset + bytes, room - bytes);
        }
        self.used += bytes;
        Some(Range { offset, bytes })
    }

    /// Takes this very range, as a writer does that takes over a slab; false, and nothing taken, where part of it is not free.
    pub fn take_at(&mut self, range: Range, now_ns: u64) -> bool {
        self.wake(now_ns);
        let Some(end) = range.offset.checked_add(range.bytes) else { return false };
        let Some((&from, &room)) = self.free.range(..=range.offset).next_back() else { return false };
        let whole =
            range.bytes > 0 && range.offset.is_multiple_of(PAGE_BYTES) && range.bytes.is_multiple_of(PAGE_BYTES);
        if !whole || end > from + room {
            return false;
        }
        self.free.remove(&from);
        for (offset, bytes) in [(from, range.offset - from), (end, from + room - end)] {
            if bytes > 0 {
                self.free.insert(offset, bytes);
            }
        }
        self.used += range.bytes;
        true
    }

    /// Gives a range back; it rests until `until_ns`.
    pub fn give(&mut self, range: Range, until_ns: u64) {
        self.used -= range.bytes;
        self.resting.push((until_ns, range));
    }

    /// Moves ranges whose rest is over to the free ones, joining neighbours.
    fn wake(&mut self, now_ns: u64) {
        let (awake, resting) = std::mem::take(&mut self.resting).into_iter().partition(|(until, _)| *until <= now_ns);
        self.resting = resting;
        let awake: Vec<(u64, Range)> = awake;
        for (_, mut range) in awake {
            if let Some((&before, &bytes)) = self.free.range(..range.offset).next_back()
                && before + bytes == range.offset
            {
                self.free.remove(&before);
                range = Range { offset: before, bytes: bytes + range.bytes };
            }
            if let Some(bytes) = self.free.remove(&(range.offset + range.bytes)) {
                range.bytes += bytes;
            }
            self.free.insert(range.offset, range.bytes);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_freed_range_rests_before_it_is_used_again() {
        let mut ranges = Ranges::new(2 * PAGE_BYTES);
        let a = ranges.take(1, 0).unwrap();
        let b = ranges.take(PAGE_BYTES, 0).unwrap();
        assert_eq!(ranges.take(1, 0), None);
        ranges.give(a, 100);
        assert_eq!((ranges.take(1, 99), ranges.resting()), (None, PAGE_BYTES));
        assert_eq!(ranges.take(1, 100), Some(a));
        ranges.give(a, 200);
        ranges.give(b, 200);
        assert_eq!(ranges.take(2 * PAGE_BYTES, 200), Some(Range { offset: 0, bytes: 2 * PAGE_BYTES }));
        assert_eq!(ranges.take(u64::MAX, 200), None);
    }

    #[test]
    fn a_given_range_is_taken_once_and_only_where_free() {
        let page = |n: u64| n * PAGE_BYTES;
        let mut ranges = Ranges::new(page(8));
        assert!(ranges.take_at(Range { offset: page(2), bytes: page(2) }, 0));
        for (offset, bytes) in [(2, 1), (3, 2), (1, 2), (0, 8), (7, 2), (8, 1), (0, 0)] {
            assert!(!ranges.take_at(Range { offset: page(offset), bytes: page(bytes) }, 0), "{offset} {bytes}");
        }
        assert!(!ranges.take_at(Range { offset: 1, bytes: page(1) }, 0));
        assert!(!ranges.take_at(Range { offset: u64::MAX - page(1) + 1, bytes: page(1) }, 0));
        assert_eq!(ranges.take(page(2), 0), Some(Range { offset: 0, bytes: page(2) }));
        assert!(ranges.take_at(Range { offset: page(7), bytes: page(1) }, 0));
        assert_eq!(
            (ranges.take(page(3), 0), ranges.used()),
            (Some(Range { offset: page(4), bytes: page(3) }), page(8))
        );
    }

    #[test]
    fn live_and_resting_ranges_never_overlap_and_nothing_is_lost() {
        bolero::check!().with_type::<Vec<(bool, u8, u8)>>().for_each(|ops| {
            let mut ranges = Ranges::new(64 * PAGE_BYTES);
            let (mut live, mut resting): (Vec<Range>, Vec<(u64, Range)>) = (Vec::new(), Vec::new());
            for (now, (take, pages, which)) in (0u64..).zip(ops) {
                if *take {
                    if let Some(range) = ranges.take(u64::from(pages % 9) * PAGE_BYTES, now) {
                        resting.retain(|(until, _)| *until > now);
                        let others = live.iter().chain(resting.iter().map(|(_, r)| r));
                        assert!(
                            others
                                .clone()
                                .all(|o| o.offset + o.bytes <= range.offset || range.offset + range.bytes <= o.offset)
                        );
                        assert!(range.offset + range.bytes <= ranges.total());
                        live.push(range);
                    }
                } else if !live.is_empty() {
                    let range = live.swap_remove(usize::from(*which) % live.len());
                    ranges.give(range, now + 3);
                    resting.push((now + 3, range));
                }
                assert_eq!(ranges.used(), live.iter().map(|r| r.bytes).sum::<u64>());
            }
            live.drain(..).for_each(|range| ranges.give(range, 0));
            assert!(ranges.take(64 * PAGE_BYTES, u64::MAX).is_some(), "all of it comes back");
        });
    }
}
