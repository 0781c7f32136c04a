// SPDX-License-Identifier: Apache-2.0
//! When each host's next reading begins.
//!
//! Every flow has a grid of due times: its phase plus multiples of its interval. Phases are spread evenly over the interval, so that a thousand hosts at the same
//! interval are a steady stream and no burst. At most `window` flows are in a reading at once (the published groups of 64 and the next one warming up, as a
//! sliding window: what frees a place gives it to whoever is due longest). Who is not begun before his next due time has missed this one; the grid stays.

use std::collections::{BTreeSet, VecDeque};

/// A flow's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u32);

/// A reading to begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Whose.
    pub flow: FlowId,
    /// When it was due; lateness is counted from here.
    pub due_ns: u64,
    /// Due times before this one that were missed since the last reading.
    pub missed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for its due time.
    Waiting,
    /// Due, waits for a place in the window.
    Queued,
    /// In a reading.
    Active,
}

#[derive(Debug)]
struct Flow {
    interval_ns: u64,
    phase_ns: u64,
    due_ns: u64,
    missed: u64,
    state: State,
}

/// The schedule.
#[derive(Debug)]
pub struct Schedule {
    window: usize,
    flows: Vec<Option<Flow>>,
    free: Vec<u32>,
    waiting: BTreeSet<(u64, u32)>,
    queue: VecDeque<u32>,
    active: usize,
}

/// 2^64 divided by the golden ratio: multiples of it fill a circle evenly, however many there are (Knuth 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Schedule {
    /// Without flows; at most `window` readings go on at once.
    ///
    /// # Panics
    /// If `window` is 0.
    #[must_use]
    pub fn new(window: usize) -> Self {
        assert!(window > 0);
        Self {
            window,
            flows: Vec::new(),
            free: Vec::new(),
            waiting: BTreeSet::new(),
            queue: VecDeque::new(),
            active: 0,
        }
    }

    /// Flows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Readings that go on.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active
    }

    /// Adds a flow that is read every `interval_ns`, for the first time within one interval.
    ///
    /// # Panics
    /// If the interval is 0, or at 2^32 flows.
    pub fn add(&mut self, interval_ns: u64, now_ns: u64) -> FlowId {
        assert!(interval_ns > 0);
        let id = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            u32::try_from(self.flows.len() - 1).expect("fewer than 2^32 flows")
        });
        let turn = u128::from(u64::from(id).wrapping_mul(GOLDEN));
        let phase_ns = u64::try_from((turn * u128::from(interval_ns)) >> 64).expect("below the interval");
        let due_ns = next_on_grid(phase_ns, interval_ns, now_ns);
        self.flows[id as usize] = Some(Flow { interval_ns, phase_ns, due_ns, missed: 0, state: State::Waiting });
        self.waiting.insert((due_ns, id));
        FlowId(id)
    }

    /// Takes a flow out, whatever it does.
    pub fn remove(&mut self, flow: FlowId) {
        let Some(gone) = self.flows.get_mut(flow.0 as usize).and_then(Option::take) else { return };
        match gone.state {
            State::Waiting => drop(self.waiting.remove(&(gone.due_ns, flow.0))),
            State::Queued => self.queue.retain(|id| *id != flow.0),
            State::Active => self.active -= 1,
        }
        self.free.push(flow.0);
    }

    /// Appends the readings to begin now, the longest due first.
    pub fn begin(&mut self, now_ns: u64, begun: &mut Vec<Due>) {
        while let Some(&(due_ns, id)) = self.waiting.first().filter(|(due_ns, _)| *due_ns <= now_ns) {
            self.waiting.remove(&(due_ns, id));
            self.queue.push_back(id);
            self.flow(id).state = State::Queued;
        }
        while self.active < self.window
            && let Some(id) = self.queue.pop_front()
        {
            let flow = self.flow(id);
            // The last due time that has come is the one that is served; those before it were missed in the queue.
            let late = (now_ns - flow.due_ns) / flow.interval_ns;
            flow.due_ns += late * flow.interval_ns;
            let due = Due { flow: FlowId(id), due_ns: flow.due_ns, missed: flow.missed + late };
            (flow.missed, flow.state) = (0, State::Active);
            self.active += 1;
            begun.push(due);
        }
    }

    /// A flow's reading has ended, well or badly. Due times that went by meanwhile were missed.
    ///
    /// # Panics
    /// If it was not in a reading.
    pub fn end(&mut self, flow: FlowId, now_ns: u64) {
        let ended = self.flow(flow.0);
        assert_eq!(ended.state, State::Active);
        let last_ns = ended.due_ns;
        ended.due_ns = next_on_grid(ended.phase_ns, ended.interval_ns, now_ns.max(last_ns + 1));
        ended.missed = (ended.due_ns - last_ns) / ended.interval_ns - 1;
        ended.state = State::Waiting;
        let due_ns = ended.due_ns;
        self.waiting.insert((due_ns, flow.0));
        self.active -= 1;
    }

    /// When [`Schedule::begin`] has something to do, as far as time alone decides; a time that has passed where it has now.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        if self.active >= self.window {
            return None;
        }
        let queued = self.queue.front().and_then(|id| self.flows[*id as usize].as_ref()).map(|flow| flow.due_ns);
        queued.or_else(|| self.waiting.first().map(|(due_ns, _)| *due_ns))
    }

    fn flow(&mut self, id: u32) -> &mut Flow {
        self.flows[id as usize].as_mut().expect("only flows that are there are queued or named")
    }
}

/// The first time at or after `from_ns` that is `phase_ns` plus a multiple of the interval.
fn next_on_grid(phase_ns: u64, interval_ns: u64, from_ns: u64) -> u64 {
    let turns = from_ns.saturating_sub(phase_ns).div_ceil(interval_ns);
    phase_ns + turns * interval_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(schedule: &mut Schedule, now_ns: u64) -> Vec<Due> {
        let mut begun = Vec::new();
        schedule.begin(now_ns, &mut begun);
        begun
    }

    #[test]
    fn a_thousand_hosts_are_a_stream_and_no_burst() {
        let mut schedule = Schedule::new(1000);
        for _ in 0..1000 {
            schedule.add(10_000_000, 0);
        }
        // Any tenth of the interval begins a tenth of the readings, give or take a few.
        for tenth in 1..=10u64 {
            let begun = begin(&mut schedule, tenth * 1_000_000);
            assert!((97..=103).contains(&begun.len()), "{}", begun.len());
            assert!(begun.windows(2).all(|pair| pair[0].due_ns <= pair[1].due_ns));
            assert!(begun.iter().all(|due| due.missed == 0));
        }
        assert_eq!(schedule.active(), 1000);
    }

    #[test]
    fn what_does_not_come_in_time_is_missed_and_the_grid_stays() {
        let mut schedule = Schedule::new(1);
        let slow = schedule.add(10, 1000);
        let now_ns = schedule.next_ns().unwrap();
        let first = begin(&mut schedule, now_ns)[0];
        assert_eq!((first.flow, first.missed), (slow, 0));
        let other = schedule.add(10, 1010);
        assert_eq!(begin(&mut schedule, 1025), [], "no place");
        assert_eq!(schedule.next_ns(), None);
        schedule.end(slow, 1037);
        // The other one waited 1 to 2 intervals for the place.
        let begun = begin(&mut schedule, 1037);
        assert_eq!((begun.len(), begun[0].flow), (1, other));
        assert!(begun[0].missed >= 1 && begun[0].due_ns > 1027 && begun[0].due_ns <= 1037);
        schedule.end(other, 1038);
        let again = begin(&mut schedule, first.due_ns + 40);
        let slow_again = again.iter().find(|due| due.flow == slow);
        if let Some(due) = slow_again {
            assert_eq!((due.due_ns - first.due_ns) % 10, 0);
        }
        schedule.remove(slow);
        schedule.remove(other);
        schedule.remove(other);
        assert_eq!((schedule.len(), schedule.active(), schedule.next_ns()), (0, 0, None));
    }

    /// Every due time of every flow is either begun once or counted as missed, never more go on than may, and nobody starves.
    #[test]
    fn no_due_time_is_lost_and_nobody_starves() {
        bolero::check!().with_type::<(u8, Vec<(u8, u8)>)>().for_each(|(window, steps)| {
            let window = usize::from(window % 7) + 1;
            let mut schedule = Schedule::new(window);
            let mut counts: std::collections::BTreeMap<FlowId, (u64, Option<u64>, u64)> = Default::default();
            let mut active = Vec::new();
            let mut now_ns = 5_000;
            for (what, amount) in steps {
                match what % 5 {
                    0 => {
                        let interval_ns = u64::from(amount % 50) + 1;
                        let flow = schedule.add(interval_ns, now_ns);
                        counts.insert(flow, (interval_ns, None, 0));
                    }
                    1 if *amount > 200 => {
                        if let Some(flow) = counts.keys().next().copied() {
                            schedule.remove(flow);
                            counts.remove(&flow);
                            active.retain(|other| *other != flow);
                        }
                    }
                    2 | 1 => now_ns += u64::from(*amount),
                    _ => {
                        if !active.is_empty() {
                            schedule.end(active.swap_remove(usize::from(*amount) % active.len()), now_ns);
                        }
                    }
                }
                for due in begin(&mut schedule, now_ns) {
                    let (interval_ns, last, readings) = counts.get_mut(&due.flow).unwrap();
                    assert!(due.due_ns <= now_ns && now_ns - due.due_ns < *interval_ns);
                    if let Some(last) = last {
                        assert_eq!(due.due_ns - *last, (due.missed + 1) * *interval_ns);
                    }
                    (*last, *readings) = (Some(due.due_ns), *readings + 1);
                    active.push(due.flow);
                }
                assert_eq!(schedule.active(), active.len());
                assert!(active.len() <= window);
                assert!(schedule.next_ns().is_none_or(|next| next > now_ns));
            }
            // Left alone with readings that end at once, all get their turn.
            now_ns += 100;
            for _ in 0..2 * counts.len() + 1 {
                active.drain(..).for_each(|flow| schedule.end(flow, now_ns));
                for due in begin(&mut schedule, now_ns) {
                    counts.get_mut(&due.flow).unwrap().2 += 1;
                    active.push(due.flow);
                }
            }
            assert!(counts.values().all(|(_, _, readings)| *readings > 0));
        });
    }
}
