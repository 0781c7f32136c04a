// SPDX-License-Identifier: Apache-2.0
//! The threads on which readings are decoded, derived and stored, each behind a bounded ring: one host's values must
//! not make the next host's reading late.
//!
//! A host's events all go to the same thread, by its name. The engine never waits for one. A host has [`MAX_OF_HOST`]
//! readings in the ring at most, so that one whose values take long costs itself, and all together [`MAX_BYTES`] of
//! frames; what does not fit becomes a gap of the reason [`BEHIND`]. Other events wait for room, in order. Frames are
//! reused: a sink's last reading is the memory of a session's next one.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use onlooker_reader::Frames;
use onlooker_targets::Target;

use crate::sink::{Gap, Reading, Sink, State};

/// Events in a ring.
const RING: usize = 1024;
/// Readings of one host in it.
const MAX_OF_HOST: usize = 16;
/// Bytes of frames in all rings. A host's only reading is taken all the same: its session had that memory anyway.
const MAX_BYTES: usize = 64 << 20;
/// Frames that wait to be used again, and bytes of one that is kept for it.
const SPARE: usize = 64;
const MAX_SPARE_BYTES: usize = 256 << 10;
/// So many events may wait beside the ring before a host's gaps become one, whatever their reasons: the first is the
/// cause.
const MAX_WAITING: usize = 8 * RING;
/// Reason of the gap that a reading leaves which the processor could not take.
const BEHIND: &str = "behind";

/// A host's readings in the ring: as many clones as there are.
pub(crate) type Share = Arc<()>;

enum Event {
    Reading(Box<Reading>, Share),
    Gap(Gap),
    State(State),
    Gone,
}

type Told = (Arc<Target>, Event);

/// The engine's side.
pub(crate) struct Processor {
    lanes: Vec<Lane>,
    /// Says which of them is a host's.
    names: RandomState,
    bytes: Arc<AtomicUsize>,
    spare: Receiver<Frames>,
}

/// The way to one thread.
struct Lane {
    ring: SyncSender<Told>,
    waiting: Waiting,
    is_gone: bool,
}

/// The thread's side.
pub(crate) struct Work {
    told: Receiver<Told>,
    bytes: Arc<AtomicUsize>,
    spare: SyncSender<Frames>,
}

/// What did not fit the ring: no readings.
#[derive(Default)]
struct Waiting {
    events: VecDeque<Told>,
    /// Events that have left it.
    left: usize,
    /// Number of each host's last event, by the place of its target.
    last: HashMap<usize, usize>,
}

impl Waiting {
    fn push(&mut self, target: &Arc<Target>, event: Event) {
        self.last.insert(Arc::as_ptr(target).addr(), self.left + self.events.len());
        self.events.push_back((target.clone(), event));
    }

    fn pop(&mut self) -> Option<Told> {
        let told = self.events.pop_front()?;
        self.left += 1;
        if self.events.is_empty() {
            self.last.clear();
        }
        Some(told)
    }

    fn put_back(&mut self, (target, event): Told) {
        self.left -= 1;
        self.last.entry(Arc::as_ptr(&target).addr()).or_insert(self.left);
        self.events.push_front((target, event));
    }

    /// The gap that ends a host's events here.
    fn last_gap(&mut self, target: &Arc<Target>) -> Option<&mut Gap> {
        let number = self.last.get(&Arc::as_ptr(target).addr())?;
        match self.events.get_mut(number.checked_sub(self.left)?) {
            Some((_, Event::Gap(gap))) => Some(gap),
            _ => None,
        }
    }
}

impl Processor {
    /// Starts a thread for each sink; they end with what [`Processor`] has told, and give the sinks back.
    pub(crate) fn start<S: Sink + Send + 'static>(sinks: Vec<S>) -> std::io::Result<(Self, Vec<JoinHandle<S>>)> {
        let (processor, works) = Self::new(sinks.len());
        // With numbers: the busiest is the first that is full.
        let start = |(number, (work, sink)): (usize, (Work, S))| {
            thread::Builder::new().name(format!("processor-{number}")).spawn(move || work.run(sink))
        };
        Ok((processor, works.into_iter().zip(sinks).enumerate().map(start).collect::<Result<_, _>>()?))
    }

    /// Without threads yet, which take so many works.
    pub(crate) fn new(works: usize) -> (Self, Vec<Work>) {
        assert!(works > 0, "somebody takes the readings");
        let (give, spare) = sync_channel(SPARE);
        let bytes = Arc::new(AtomicUsize::new(0));
        let work = |_| {
            let (ring, told) = sync_channel(RING);
            let work = Work { told, bytes: bytes.clone(), spare: give.clone() };
            (Lane { ring, waiting: Waiting::default(), is_gone: false }, work)
        };
        let (lanes, works) = (0..works).map(work).unzip();
        (Self { lanes, names: RandomState::new(), bytes, spare }, works)
    }

    fn lane(&mut self, target: &Target) -> &mut Lane {
        let number = match self.lanes.len() {
            1 => 0,
            lanes => usize::try_from(self.names.hash_one(&target.name) % lanes as u64).unwrap_or(0),
        };
        &mut self.lanes[number]
    }

    /// Memory for a session's next reading.
    pub(crate) fn spare(&self) -> Frames {
        self.spare.try_recv().unwrap_or_default()
    }

    /// False: it became a gap.
    pub(crate) fn reading(&mut self, target: &Arc<Target>, reading: Reading, share: &Share) -> bool {
        let (due_ns, bytes, all) = (reading.due_ns, reading.frames.bytes(), self.bytes.clone());
        let of_host = Arc::strong_count(share) - 1;
        let fits = of_host == 0 || all.load(Ordering::Relaxed) + bytes <= MAX_BYTES;
        let lane = self.lane(target);
        if fits && of_host < MAX_OF_HOST && lane.flush() {
            all.fetch_add(bytes, Ordering::Relaxed);
            match lane.ring.try_send((target.clone(), Event::Reading(Box::new(reading), share.clone()))) {
                Ok(()) => return true,
                Err(TrySendError::Full(_)) => {}
                Err(TrySendError::Disconnected(_)) => lane.is_gone = true,
            }
            all.fetch_sub(bytes, Ordering::Relaxed);
        }
        lane.gap(target, Gap { from_ns: due_ns, to_ns: due_ns, due_times: 1, reason: BEHIND });
        false
    }

    pub(crate) fn gap(&mut self, target: &Arc<Target>, gap: Gap) {
        self.lane(target).gap(target, gap);
    }

    pub(crate) fn state(&mut self, target: &Arc<Target>, state: State) {
        self.lane(target).tell(target, Event::State(state));
    }

    pub(crate) fn gone(&mut self, target: &Arc<Target>) {
        self.lane(target).tell(target, Event::Gone);
    }

    /// Sends what waits; true if nothing does any more.
    pub(crate) fn flush(&mut self) -> bool {
        let mut is_empty = true;
        for lane in &mut self.lanes {
            is_empty &= lane.flush();
        }
        is_empty
    }

    /// A thread has ended before its time: its sink has panicked.
    pub(crate) fn is_gone(&self) -> bool {
        self.lanes.iter().any(|lane| lane.is_gone)
    }
}

impl Lane {
    fn gap(&mut self, target: &Arc<Target>, gap: Gap) {
        let is_full = self.waiting.events.len() >= MAX_WAITING;
        match self.waiting.last_gap(target) {
            // Nothing of this host was told in between.
            Some(last) if last.reason == gap.reason || is_full => {
                last.to_ns = gap.to_ns;
                last.due_times += gap.due_times;
            }
            _ => self.tell(target, Event::Gap(gap)),
        }
    }

    fn tell(&mut self, target: &Arc<Target>, event: Event) {
        self.waiting.push(target, event);
        self.flush();
    }

    fn flush(&mut self) -> bool {
        while let Some(told) = self.waiting.pop() {
            match self.ring.try_send(told) {
                Ok(()) => {}
                Err(TrySendError::Full(told)) => {
                    self.waiting.put_back(told);
                    return false;
                }
                Err(TrySendError::Disconnected(_)) => self.is_gone = true,
            }
        }
        true
    }
}

impl Drop for Lane {
    /// Ends the thread, once it knows all.
    fn drop(&mut self) {
        while let Some(told) = self.waiting.pop() {
            // Waits for room.
            let _ = self.ring.send(told);
        }
    }
}

impl Work {
    /// Until there is nobody to tell anything.
    fn run<S: Sink>(self, mut sink: S) -> S {
        while let Ok(told) = self.told.recv() {
            self.take(&mut sink, told);
        }
        sink
    }

    /// What has been told by now.
    #[cfg(test)]
    pub(crate) fn catch_up(&self, sink: &mut impl Sink) {
        while let Ok(told) = self.told.try_recv() {
            self.take(sink, told);
        }
    }

    fn take(&self, sink: &mut impl Sink, (target, event): Told) {
        match event {
            Event::Reading(reading, share) => {
                sink.reading(&target, &reading);
                let frames = reading.frames;
                let held = frames.bytes();
                self.bytes.fetch_sub(held, Ordering::Relaxed);
                drop(share);
                // What has much more room than its host needs would make all others as large.
                if held <= MAX_SPARE_BYTES && frames.used_bytes() * 4 >= held {
                    // There may be enough of them.
                    let _ = self.spare.try_send(frames);
                }
            }
            Event::Gap(gap) => sink.gap(&target, gap),
            Event::State(state) => sink.state(&target, state),
            Event::Gone => sink.gone(&target),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_bootstrap::{Secret, Token};
    use onlooker_reader::clock::{Moment, Relation};
    use onlooker_targets::{Choice, Priority};
    use std::collections::BTreeMap;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    /// Waits for a word in its first reading.
    struct Held {
        word: Receiver<()>,
        told: Sender<String>,
    }

    impl Sink for Held {
        fn reading(&mut self, _: &Arc<Target>, reading: &Reading) {
            self.told.send(format!("reading {}", reading.due_ns)).unwrap();
            if reading.due_ns == 0 {
                self.word.recv().unwrap();
            }
        }

        fn gap(&mut self, target: &Arc<Target>, gap: Gap) {
            let Gap { from_ns, to_ns, due_times, reason } = gap;
            self.told.send(format!("{} {reason} {due_times} {from_ns}..{to_ns}", target.name)).unwrap();
        }

        fn state(&mut self, target: &Arc<Target>, _: State) {
            self.told.send(format!("{} state", target.name)).unwrap();
        }

        fn gone(&mut self, target: &Arc<Target>) {
            self.told.send(format!("{} gone", target.name)).unwrap();
        }
    }

    fn target(name: &str) -> Arc<Target> {
        Arc::new(Target {
            name: name.into(),
            host: "host".into(),
            port: 1,
            token: Token { fingerprint: None, secret: Secret::new([0; 32]) },
            labels: BTreeMap::new(),
            interval: Duration::from_millis(10),
            priority: Priority::Normal,
            choice: Choice::Auto,
        })
    }

    fn reading(due_ns: u64) -> Reading {
        let now = Moment { steady_ns: 0, utc_ns: 0 };
        let (frames, relation) = (Frames::default(), Relation::new(0, now, now));
        Reading { due_ns, began_ns: 0, ended_ns: 0, repeated: 0, frames, boot: None, counters: None, relation }
    }

    #[test]
    fn who_is_behind_costs_gaps_and_makes_nobody_wait() {
        let ((speak, word), (told, heard)) = (channel(), channel());
        let (mut processor, threads) = Processor::start(vec![Held { word, told }]).unwrap();
        let (one, two) = (target("one"), target("two"));
        let (share, all) = (Share::default(), Share::default());
        assert!(processor.reading(&one, reading(0), &share));
        assert_eq!(heard.recv().unwrap(), "reading 0");
        // One host's share: the first is under way.
        let shared = MAX_OF_HOST as u64;
        let taken = (1..shared + 2).filter(|due_ns| processor.reading(&one, reading(*due_ns), &share)).count();
        assert_eq!(taken, MAX_OF_HOST - 1);
        // The ring has two gaps, too. Others fill it, each with one reading.
        let others = RING as u64 - shared - 1;
        assert!((0..others).all(|at| processor.reading(&two, reading(1_000 + at), &Share::default())));
        assert!(!processor.reading(&two, reading(8_000), &all) && !processor.reading(&two, reading(8_001), &all));
        assert!(!processor.flush());
        processor.gap(&one, Gap { from_ns: 9_000, to_ns: 9_001, due_times: 2, reason: "late" });
        processor.gap(&one, Gap { from_ns: 9_002, to_ns: 9_002, due_times: 1, reason: "late" });
        processor.gap(&two, Gap { from_ns: 8_002, to_ns: 8_002, due_times: 1, reason: BEHIND });
        processor.state(&two, State::Connecting);
        processor.gone(&two);
        speak.send(()).unwrap();
        drop(processor);
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
        let heard: Vec<String> = heard.iter().collect();
        let readings = |range: std::ops::Range<u64>| range.map(|due_ns| format!("reading {due_ns}"));
        let expected = readings(1..shared)
            .chain([format!("one behind 1 {shared}..{shared}"), format!("one behind 1 {0}..{0}", shared + 1)])
            .chain(readings(1_000..1_000 + others))
            .chain(["two behind 3 8000..8002", "one late 3 9000..9002", "two state", "two gone"].map(String::from));
        assert_eq!(heard, expected.collect::<Vec<_>>());
    }

    /// Notes who told what, and on which thread.
    struct Noting(usize, Sender<(usize, String, u64)>);

    impl Sink for Noting {
        fn reading(&mut self, target: &Arc<Target>, reading: &Reading) {
            self.1.send((self.0, target.name.clone(), reading.due_ns)).unwrap();
        }

        fn gap(&mut self, target: &Arc<Target>, gap: Gap) {
            self.1.send((self.0, target.name.clone(), gap.from_ns)).unwrap();
        }

        fn state(&mut self, _: &Arc<Target>, _: State) {}

        fn gone(&mut self, target: &Arc<Target>) {
            self.1.send((self.0, target.name.clone(), u64::MAX)).unwrap();
        }
    }

    #[test]
    fn a_host_stays_with_its_thread_and_all_threads_have_some() {
        const HOSTS: usize = 100;
        let (told, heard) = channel();
        let sinks = (0..4).map(|number| Noting(number, told.clone())).collect();
        let (mut processor, threads) = Processor::start(sinks).unwrap();
        drop(told);
        for due_ns in 0..20 {
            for host in 0..HOSTS {
                // Made anew each time, as by a controller that is configured again.
                let target = target(&format!("host-{host}"));
                match due_ns {
                    19 => processor.gone(&target),
                    _ if due_ns % 3 == 2 => {
                        processor.gap(&target, Gap { from_ns: due_ns, to_ns: due_ns, due_times: 1, reason: "late" });
                    }
                    // It may be too much for the ring, and is a gap at the same time then.
                    _ => drop(processor.reading(&target, reading(due_ns), &Share::default())),
                }
            }
        }
        drop(processor);
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
        let mut of_host: HashMap<String, (usize, Vec<u64>)> = HashMap::new();
        for (thread, host, at_ns) in heard {
            let (first, times) = of_host.entry(host).or_insert((thread, Vec::new()));
            assert_eq!(*first, thread);
            times.push(at_ns);
        }
        assert_eq!(of_host.len(), HOSTS);
        assert!(of_host.values().all(|(_, times)| times.is_sorted() && times.last() == Some(&u64::MAX)));
        assert!((0..4).all(|thread| of_host.values().any(|(of, _)| *of == thread)));
    }
}
