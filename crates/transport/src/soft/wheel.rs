// SPDX-License-Identifier: Apache-2.0
//! Timers of packets: a hashed wheel (Varghese and Lauck, 1987) of intrusive lists, so that arming, disarming and firing cost a few words each.
//!
//! A timer fires at the first call at or after its time, at most one tick late. Times beyond the wheel's horizon fire at the horizon: whoever armed
//! them looks at the clock and arms again.

/// Length of a tick as a power of two, ns: 131 us.
const TICK_SHIFT: u32 = 17;
/// Ticks of the wheel: a horizon of 134 ms.
const SLOTS: u32 = 1024;
/// No entry, or no slot.
const NONE: u32 = u32::MAX;

/// Ticks are so long, ns.
pub(super) const TICK_NS: u64 = 1 << TICK_SHIFT;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    /// The list it is in.
    slot: u32,
}

/// One timer for each of a fixed number of entries.
#[derive(Debug)]
pub(super) struct Wheel {
    heads: Box<[u32]>,
    links: Box<[Link]>,
    /// Last tick that has fired.
    tick: u64,
}

impl Wheel {
    pub(super) fn new(entries: usize) -> Self {
        let free = Link { previous: NONE, next: NONE, slot: NONE };
        Self { heads: vec![NONE; SLOTS as usize].into(), links: vec![free; entries].into(), tick: 0 }
    }

    /// Arms the entry's timer, again if it was armed.
    pub(super) fn arm(&mut self, entry: u32, due_ns: u64) {
        self.disarm(entry);
        let tick = (due_ns >> TICK_SHIFT) + 1;
        let slot = slot_of(tick.clamp(self.tick + 1, self.tick + u64::from(SLOTS) - 1));
        let next = std::mem::replace(&mut self.heads[slot as usize], entry);
        if next != NONE {
            self.links[next as usize].previous = entry;
        }
        self.links[entry as usize] = Link { previous: NONE, next, slot };
    }

    /// Disarms the entry's timer, if it is armed.
    pub(super) fn disarm(&mut self, entry: u32) {
        let Link { previous, next, slot } = self.links[entry as usize];
        if slot == NONE {
            return;
        }
        match previous {
            NONE => self.heads[slot as usize] = next,
            previous => self.links[previous as usize].next = next,
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        self.links[entry as usize].slot = NONE;
    }

    /// Takes one timer that is due; disarms it.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<u32> {
        let now = now_ns >> TICK_SHIFT;
        // After a long sleep each list is looked at once.
        self.tick = self.tick.max(now.saturating_sub(SLOTS.into()));
        loop {
            let entry = self.heads[slot_of(self.tick) as usize];
            if entry != NONE {
                self.disarm(entry);
                return Some(entry);
            }
            if self.tick >= now {
                return None;
            }
            self.tick += 1;
        }
    }

    /// When [`Wheel::pop`] next has something, ns. Looks at every list: for callers that are about to sleep.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let ticks = self.tick..self.tick + u64::from(SLOTS);
        let tick = ticks.into_iter().find(|tick| self.heads[slot_of(*tick) as usize] != NONE)?;
        Some(tick << TICK_SHIFT)
    }
}

#[allow(clippy::cast_possible_truncation)] // below SLOTS
fn slot_of(tick: u64) -> u32 {
    (tick % u64::from(SLOTS)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A timer may be armed so far ahead, ns.
    const HORIZON_NS: u64 = (SLOTS as u64 - 2) << TICK_SHIFT;

    fn pop_all(wheel: &mut Wheel, now_ns: u64) -> Vec<u32> {
        let mut fired: Vec<u32> = std::iter::from_fn(|| wheel.pop(now_ns)).collect();
        fired.sort_unstable();
        fired
    }

    #[test]
    fn timers_fire_once_and_in_time_whatever_the_clock_does() {
        bolero::check!().with_type::<Vec<(u8, u32, bool)>>().for_each(|steps| {
            let (mut wheel, mut model, mut now) = (Wheel::new(8), HashMap::new(), 0_u64);
            for &(entry, value, arm) in steps {
                let entry = u32::from(entry % 8);
                if arm {
                    let due = now + u64::from(value) % HORIZON_NS;
                    wheel.arm(entry, due);
                    model.insert(entry, due);
                } else {
                    now += u64::from(value);
                    for fired in pop_all(&mut wheel, now) {
                        assert!(model.remove(&fired).unwrap() <= now, "too early, or twice");
                    }
                    assert!(model.values().all(|due| due + TICK_NS > now), "too late");
                }
                assert_eq!(wheel.next_ns().is_some(), !model.is_empty());
                assert!(wheel.next_ns().is_none_or(|next| model.values().all(|due| next <= due + TICK_NS)));
            }
        });
    }

    #[test]
    fn a_clock_that_starts_late_is_no_flood() {
        let mut wheel = Wheel::new(2);
        wheel.arm(0, 5);
        wheel.arm(1, u64::MAX);
        assert_eq!(pop_all(&mut wheel, u64::MAX / 2), [0, 1], "beyond the horizon fires at the horizon");
        wheel.arm(1, u64::MAX / 2 + 3 * TICK_NS);
        assert!(pop_all(&mut wheel, u64::MAX / 2 + TICK_NS).is_empty());
        assert_eq!(pop_all(&mut wheel, u64::MAX / 2 + 5 * TICK_NS), [1]);
    }
}
