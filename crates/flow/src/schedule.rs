// SPDX-License-Identifier: Apache-2.0
//! When each host's next reading begins.
//!
//! Every flow has a grid of due times: its phase plus multiples of its interval. Phases are spread evenly over the interval, so that a thousand hosts at the same
//! interval are a steady stream and no burst. At most `window` flows are in a reading at once (the published groups of 64 and the next one warming up, as a
//! sliding window: what frees a place gives it to whoever is due longest). A reading that has not begun by the
//! flow's next due time is missed; the grid stays.
//!
//! Where not all find a place, those of a higher class ([`Priority`]) go first; those of a lower one may miss all their
//! due times.
//!
//! A reading that nobody answers holds its place until it times out: two thousand times as long as one that is answered. So a flow whose last reading timed out is *on
//! probation* until it answers: all of those share an eighth of the window, and wait for each other and for nobody else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Priority;

/// A flow's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) u32);

/// A reading to begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Whose.
    pub flow: FlowId,
    /// When it was due; lateness is counted from here.
    pub due_ns: u64,
    /// Due times before this one that were missed since the last reading.
    pub missed: u64,
    /// Its last reading was not answered.
    pub is_on_probation: bool,
}

/// How a reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer, whatever it was.
    Answered,
    /// Nobody answered in time.
    TimedOut,
    /// Before anybody could answer.
    Unasked,
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
    priority: Priority,
    phase_ns: u64,
    due_ns: u64,
    missed: u64,
    state: State,
    is_on_probation: bool,
    /// Once its reading ends another one begins.
    is_called: bool,
}

/// Which due times flows of one interval have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phases {
    /// Evenly spread over the interval: a steady stream.
    #[default]
    Spread,
    /// The same: values of all hosts are of one time, as far as they can be read at once.
    Together,
}

/// The schedule.
#[derive(Debug)]
pub struct Schedule {
    window: usize,
    phases: Phases,
    flows: Vec<Option<Flow>>,
    free: Vec<u32>,
    waiting: BTreeSet<(u64, u32)>,
    /// How many flows have which interval.
    intervals: BTreeMap<u64, usize>,
    /// Who is due, the longest first, by class; those on probation in the second one.
    queues: [[VecDeque<u32>; 2]; Priority::COUNT],
    active: usize,
    /// Of the active ones, those on probation.
    on_probation: usize,
}

/// The window is so many times the places of those on probation.
const PROBATION_SHARE: usize = 8;

/// Readings that are due within this part of the shortest interval, and within this time, begin together, when the last
/// of them is due: a thread that wakes up for each of ten thousand hosts does little else.
const TOGETHER_PART: u64 = 200;
const MAX_TOGETHER_NS: u64 = 500_000;

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
            phases: Phases::Spread,
            flows: Vec::new(),
            free: Vec::new(),
            waiting: BTreeSet::new(),
            intervals: BTreeMap::new(),
            queues: Default::default(),
            active: 0,
            on_probation: 0,
        }
    }

    /// With other due times.
    #[must_use]
    pub fn with(self, phases: Phases) -> Self {
        Self { phases, ..self }
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
    pub fn add(&mut self, interval_ns: u64, priority: Priority, now_ns: u64) -> FlowId {
        assert!(interval_ns > 0);
        let id = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            u32::try_from(self.flows.len() - 1).expect("fewer than 2^32 flows")
        });
        let turn = u128::from(u64::from(id).wrapping_mul(GOLDEN));
        let phase_ns = match self.phases {
            Phases::Spread => u64::try_from((turn * u128::from(interval_ns)) >> 64).expect("below the interval"),
            Phases::Together => 0,
        };
        let due_ns = next_on_grid(phase_ns, interval_ns, now_ns);
        let (missed, state, is_on_probation, is_called) = (0, State::Waiting, false, false);
        self.flows[id as usize] =
            Some(Flow { interval_ns, priority, phase_ns, due_ns, missed, state, is_on_probation, is_called });
        self.waiting.insert((due_ns, id));
        *self.intervals.entry(interval_ns).or_default() += 1;
        FlowId(id)
    }

    /// Takes a flow out, whatever it does.
    pub fn remove(&mut self, flow: FlowId) {
        let Some(gone) = self.flows.get_mut(flow.0 as usize).and_then(Option::take) else { return };
        match gone.state {
            State::Waiting => drop(self.waiting.remove(&(gone.due_ns, flow.0))),
            State::Queued => {
                self.queues[gone.priority as usize][usize::from(gone.is_on_probation)].retain(|id| *id != flow.0);
            }
            State::Active => self.leave(gone.is_on_probation),
        }
        if let Some(count) = self.intervals.get_mut(&gone.interval_ns) {
            *count -= 1;
            if *count == 0 {
                self.intervals.remove(&gone.interval_ns);
            }
        }
        self.free.push(flow.0);
    }

    /// A flow is to be read now, beside its due times, which stay: if it is in a reading, once that has ended.
    pub fn call(&mut self, flow: FlowId, now_ns: u64) {
        let Some(called) = self.flows.get_mut(flow.0 as usize).and_then(Option::as_mut) else { return };
        match called.state {
            State::Waiting => {
                self.waiting.remove(&(called.due_ns, flow.0));
                called.due_ns = called.due_ns.min(now_ns);
                self.waiting.insert((called.due_ns, flow.0));
            }
            State::Queued => {}
            State::Active => called.is_called = true,
        }
    }

    /// Appends the readings to begin now, the longest due first.
    pub fn begin(&mut self, now_ns: u64, begun: &mut Vec<Due>) {
        while let Some(&(due_ns, id)) = self.waiting.first().filter(|(due_ns, _)| *due_ns <= now_ns) {
            self.waiting.remove(&(due_ns, id));
            let flow = self.flow(id);
            flow.state = State::Queued;
            let (class, lane) = (flow.priority as usize, usize::from(flow.is_on_probation));
            self.queues[class][lane].push_back(id);
        }
        while let Some((_, class, lane)) = self.next_queued()
            && let Some(id) = self.queues[class][lane].pop_front()
        {
            self.active += 1;
            self.on_probation += lane;
            let flow = self.flow(id);
            // The last due time that has come is the one that is served; those before it were missed in the queue.
            let late = (now_ns - flow.due_ns) / flow.interval_ns;
            flow.due_ns += late * flow.interval_ns;
            let missed = flow.missed + late;
            let due = Due { flow: FlowId(id), due_ns: flow.due_ns, missed, is_on_probation: flow.is_on_probation };
            (flow.missed, flow.state) = (0, State::Active);
            begun.push(due);
        }
    }

    /// The longest due of the first class that has somebody, or of all classes of those on probation, with its class and
    /// queue.
    fn next_queued(&self) -> Option<(u64, usize, usize)> {
        if self.active >= self.window {
            return None;
        }
        let front = |class: usize, lane: usize| {
            let id = *self.queues[class][lane].front()?;
            Some((self.flows[id as usize].as_ref()?.due_ns, class, lane))
        };
        let classes = 0..Priority::COUNT;
        let of_class = classes.clone().find_map(|class| front(class, 0));
        let may_try = self.on_probation < (self.window / PROBATION_SHARE).max(1);
        let tried = if may_try { classes.filter_map(|class| front(class, 1)).min() } else { None };
        of_class.into_iter().chain(tried).min()
    }

    /// Readings that have waited for a place for longer than an interval: what they have missed so far, for who tells of
    /// it while they wait.
    pub fn overdue(&mut self, now_ns: u64, overdue: &mut Vec<Due>) {
        for id in self.queues.iter().flatten().flatten() {
            let Some(flow) = self.flows[*id as usize].as_mut() else { continue };
            let late = now_ns.saturating_sub(flow.due_ns) / flow.interval_ns;
            if late > 0 {
                flow.due_ns += late * flow.interval_ns;
                let (missed, is_on_probation) = (flow.missed + late, flow.is_on_probation);
                flow.missed = 0;
                overdue.push(Due { flow: FlowId(*id), due_ns: flow.due_ns, missed, is_on_probation });
            }
        }
    }

    fn leave(&mut self, is_on_probation: bool) {
        self.active -= 1;
        self.on_probation -= usize::from(is_on_probation);
    }

    /// A flow's reading has ended, well or badly. Due times that went by meanwhile were missed.
    ///
    /// # Panics
    /// If it was not in a reading.
    pub fn end(&mut self, flow: FlowId, ending: Ending, now_ns: u64) {
        let ended = self.flow(flow.0);
        assert_eq!(ended.state, State::Active);
        let last_ns = ended.due_ns;
        let now_ns = now_ns.max(last_ns + 1);
        let is_called = std::mem::take(&mut ended.is_called);
        let next_ns = next_on_grid(ended.phase_ns, ended.interval_ns, now_ns);
        ended.due_ns = if is_called { now_ns } else { next_ns };
        // Due times of the grid between the last reading, which may have been called for, and the next one.
        ended.missed = (ended.due_ns - last_ns).div_ceil(ended.interval_ns) - 1;
        ended.state = State::Waiting;
        let (due_ns, was_on_probation) = (ended.due_ns, ended.is_on_probation);
        ended.is_on_probation = match ending {
            Ending::Answered => false,
            Ending::TimedOut => true,
            Ending::Unasked => was_on_probation,
        };
        self.waiting.insert((due_ns, flow.0));
        self.leave(was_on_probation);
    }

    /// When [`Schedule::begin`] is to be called next, as far as time alone decides: the first who are due begin together
    /// (`TOGETHER_PART`). A time that has passed where it has something to do now.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        if self.active >= self.window {
            return None;
        }
        self.next_queued().map(|(due_ns, ..)| due_ns).or_else(|| {
            let (first_ns, _) = *self.waiting.first()?;
            let shortest_ns = self.intervals.first_key_value().map_or(0, |(interval_ns, _)| *interval_ns);
            let within_ns = (shortest_ns / TOGETHER_PART).min(MAX_TOGETHER_NS);
            let last = self.waiting.range(..=(first_ns.saturating_add(within_ns), u32::MAX)).next_back();
            last.map(|(due_ns, _)| *due_ns)
        })
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
            schedule.add(10_000_000, Priority::Normal, 0);
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
    fn who_is_due_at_nearly_the_same_time_begins_together() {
        const MS: u64 = 1_000_000;
        let mut schedule = Schedule::new(20_000);
        let flows: Vec<FlowId> = (0..10_000).map(|_| schedule.add(1_000 * MS, Priority::Normal, 0)).collect();
        // One is due each 100 us: five or six a wake-up, none more than 500 us late.
        let (mut now_ns, mut wakes, mut latest_ns) = (0, 0, 0);
        while schedule.active() < flows.len() {
            now_ns = schedule.next_ns().unwrap().max(now_ns);
            let begun = begin(&mut schedule, now_ns);
            latest_ns = begun.iter().map(|due| now_ns - due.due_ns).max().unwrap().max(latest_ns);
            wakes += 1;
        }
        assert!((1_500..=2_000).contains(&wakes) && latest_ns <= MAX_TOGETHER_NS, "{wakes} {latest_ns}");
        // A host that is read often is not late for the sake of others, and one alone is on time.
        let mut schedule = Schedule::new(100);
        let slow: Vec<FlowId> = (0..50).map(|_| schedule.add(1_000 * MS, Priority::Normal, 0)).collect();
        let fast = schedule.add(10 * MS, Priority::Normal, 0);
        for _ in 0..200 {
            let now_ns = schedule.next_ns().unwrap();
            for due in begin(&mut schedule, now_ns) {
                assert!(now_ns - due.due_ns <= 10 * MS / TOGETHER_PART);
                schedule.end(due.flow, Ending::Answered, now_ns);
            }
        }
        slow.into_iter().for_each(|flow| schedule.remove(flow));
        let now_ns = schedule.next_ns().unwrap();
        assert_eq!(begin(&mut schedule, now_ns)[0].due_ns, now_ns);
        schedule.remove(fast);
        assert!(schedule.intervals.is_empty());
    }

    #[test]
    fn what_does_not_come_in_time_is_missed_and_the_grid_stays() {
        let mut schedule = Schedule::new(1);
        let slow = schedule.add(10, Priority::Normal, 1000);
        let now_ns = schedule.next_ns().unwrap();
        let first = begin(&mut schedule, now_ns)[0];
        assert_eq!((first.flow, first.missed), (slow, 0));
        let other = schedule.add(10, Priority::Normal, 1010);
        assert_eq!(begin(&mut schedule, 1025), [], "no place");
        assert_eq!(schedule.next_ns(), None);
        schedule.end(slow, Ending::Answered, 1037);
        // The other one waited 1 to 2 intervals for the place.
        let begun = begin(&mut schedule, 1037);
        assert_eq!((begun.len(), begun[0].flow), (1, other));
        assert!(begun[0].missed >= 1 && begun[0].due_ns > 1027 && begun[0].due_ns <= 1037);
        schedule.end(other, Ending::Answered, 1038);
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

    #[test]
    fn who_waits_tells_what_it_has_missed() {
        let mut schedule = Schedule::new(1);
        schedule.add(10, Priority::High, 0);
        let low = schedule.add(10, Priority::Low, 0);
        let busy = begin(&mut schedule, 10)[0].flow;
        let mut overdue = Vec::new();
        schedule.overdue(15, &mut overdue);
        assert_eq!(overdue, []);
        schedule.overdue(45, &mut overdue);
        let told = overdue.pop().unwrap();
        assert!(overdue.is_empty() && told.flow == low && told.missed >= 2 && told.due_ns <= 45, "{told:?}");
        schedule.remove(busy);
        let begun = begin(&mut schedule, 55)[0];
        assert_eq!((begun.flow, begun.due_ns - told.due_ns), (low, begun.missed * 10), "nothing is told twice");
    }

    #[test]
    fn who_is_called_is_read_at_once_and_keeps_its_due_times() {
        let mut schedule = Schedule::new(2).with(Phases::Together);
        let flows = [(); 2].map(|()| schedule.add(10, Priority::Normal, 1));
        assert_eq!(begin(&mut schedule, 9), []);
        schedule.call(flows[0], 9);
        let called = begin(&mut schedule, 9)[0];
        assert_eq!((called.flow, called.due_ns, called.missed), (flows[0], 9, 0));
        // In a reading, which may have been asked for before.
        schedule.call(flows[0], 9);
        assert_eq!(begin(&mut schedule, 10)[0].flow, flows[1]);
        schedule.end(flows[0], Ending::Answered, 12);
        let again = begin(&mut schedule, 12)[0];
        assert_eq!((again.flow, again.due_ns, again.missed), (flows[0], 12, 0));
        flows.iter().for_each(|flow| schedule.end(*flow, Ending::Answered, 13));
        assert_eq!(schedule.next_ns(), Some(20));
        let due = begin(&mut schedule, 20);
        assert!(due.len() == 2 && due.iter().all(|due| due.due_ns == 20 && due.missed == 0), "{due:?}");
        schedule.remove(flows[0]);
        schedule.call(flows[0], 21);
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
                        let flow = schedule.add(interval_ns, Priority::Normal, now_ns);
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
                            let ending =
                                [Ending::Answered, Ending::TimedOut, Ending::Unasked][usize::from(what / 5 % 3)];
                            schedule.end(active.swap_remove(usize::from(*amount) % active.len()), ending, now_ns);
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
                active.drain(..).for_each(|flow| schedule.end(flow, Ending::Answered, now_ns));
                for due in begin(&mut schedule, now_ns) {
                    counts.get_mut(&due.flow).unwrap().2 += 1;
                    active.push(due.flow);
                }
            }
            assert!(counts.values().all(|(_, _, readings)| *readings > 0));
        });
    }

    /// Readings of `good` flows that end after 1 ms among `dead` ones that time out after 3.8 s, all due each second, for a minute. The latest beginning of a good one
    /// after the dead ones are known, in ms, and how many readings there were of good ones and of dead ones.
    fn a_minute(good: usize, dead: usize) -> (u64, usize, usize) {
        const MS: u64 = 1_000_000;
        let mut schedule = Schedule::new(128);
        let flows: Vec<FlowId> = (0..good + dead).map(|_| schedule.add(1_000 * MS, Priority::Normal, 0)).collect();
        let mut ends: BTreeSet<(u64, FlowId)> = BTreeSet::new();
        let (mut late_ns, mut of_good, mut of_dead) = (0, 0, 0);
        for now_ns in (0..60_000).map(|ms| ms * MS) {
            while let Some((_, flow)) = ends.first().copied().filter(|(end_ns, _)| *end_ns <= now_ns) {
                ends.pop_first();
                let is_dead = flows[..dead].contains(&flow);
                schedule.end(flow, if is_dead { Ending::TimedOut } else { Ending::Answered }, now_ns);
            }
            for due in begin(&mut schedule, now_ns) {
                let is_dead = flows[..dead].contains(&due.flow);
                ends.insert((now_ns + if is_dead { 3_800 * MS } else { MS }, due.flow));
                let is_known = now_ns > 15_000 * MS;
                if is_dead {
                    of_dead += usize::from(is_known);
                } else if is_known {
                    of_good += 1;
                    late_ns = late_ns.max(now_ns - due.due_ns + due.missed * 1_000 * MS);
                }
            }
        }
        (late_ns / MS, of_good, of_dead)
    }

    #[test]
    fn good_hosts_are_not_late_for_dead_ones() {
        let (late_ms, of_good, of_dead) = a_minute(700, 300);
        assert!(late_ms <= 2, "{late_ms} ms late");
        assert!(of_good >= 700 * 44, "{of_good} readings");
        // An eighth of 128 places, 3.8 s each: each dead one is tried once in 71 s.
        assert!((170..=200).contains(&of_dead), "{of_dead} tries of dead ones");
    }

    #[test]
    fn who_answers_again_is_on_probation_no_more() {
        let mut schedule = Schedule::new(8);
        let flows: Vec<FlowId> = (0..8).map(|_| schedule.add(10, Priority::Normal, 0)).collect();
        let all = |schedule: &mut Schedule, now_ns| begin(schedule, now_ns);
        assert_eq!(all(&mut schedule, 10).len(), 8);
        flows.iter().for_each(|flow| schedule.end(*flow, Ending::TimedOut, 19));
        let tried = all(&mut schedule, 30);
        assert_eq!((tried.len(), tried[0].is_on_probation), (1, true), "one place for all of them");
        assert_eq!(schedule.next_ns(), None, "nobody else may begin, and nobody else is due");
        let other = schedule.add(10, Priority::Normal, 30);
        assert_eq!(all(&mut schedule, 40)[0].flow, other, "others do not wait for them");
        schedule.end(tried[0].flow, Ending::Unasked, 41);
        let next = all(&mut schedule, 41);
        assert_eq!(next.len(), 1);
        schedule.end(next[0].flow, Ending::Answered, 42);
        assert!(all(&mut schedule, 60).iter().any(|due| due.flow == next[0].flow && !due.is_on_probation));
    }

    #[test]
    fn places_go_to_the_first_class() {
        let mut schedule = Schedule::new(2);
        let of = |schedule: &mut Schedule, priority| [(); 2].map(|()| schedule.add(10, priority, 0));
        let [low, high] = [Priority::Low, Priority::High].map(|priority| of(&mut schedule, priority));
        for turn in 1..=3 {
            let begun = begin(&mut schedule, 10 * turn);
            assert!(begun.len() == 2 && begun.iter().all(|due| high.contains(&due.flow)), "{begun:?}");
            high.iter().for_each(|flow| schedule.end(*flow, Ending::Answered, 10 * turn + 1));
        }
        let begun = begin(&mut schedule, 31);
        assert!(begun.iter().all(|due| low.contains(&due.flow)), "{begun:?}");
        schedule.remove(high[0]);
    }
}
