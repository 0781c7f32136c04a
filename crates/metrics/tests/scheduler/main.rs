// SPDX-License-Identifier: Apache-2.0
//! Waits of real tasks for a CPU, in histograms that the programs on the scheduler's tracepoints write. Needs root and the kernel's BTF.
#![allow(clippy::print_stderr, reason = "what a test could not look at must be seen")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use libbpf_rs::query::ProgInfoIter;
use onlooker_metrics::scheduler::{CPU_BLOCKS, Latency, SHAPE, cpus, identify, install, remove, schema};
use onlooker_region::block::Identity;
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_responder::{Config, Home, Pinned, SlabMapping};
use rustix::thread::{CpuSet, sched_setaffinity};

/// The region leaves the slab's first blocks to others.
const FIRST_BLOCK: u32 = 4;
const PREEMPTED: u32 = 0;
const WOKEN: u32 = 1;
const PROGRAMS: [&str; 3] = ["onlooker_woken", "onlooker_new", "onlooker_switch"];

/// Programs that count, and the memory that they count in.
struct World {
    home: Home,
    memory: SlabMapping,
    cpus: u32,
    pinned: Pinned,
    _own: onlooker_testbed::World,
    _alone: MutexGuard<'static, ()>,
}

/// What one CPU's histogram has: counts by bucket, and their sum in ns.
#[derive(Debug, Clone)]
struct Histogram {
    buckets: Vec<u64>,
    sum_ns: u64,
}

impl Histogram {
    fn since(&self, earlier: &Self) -> Self {
        let buckets = self.buckets.iter().zip(&earlier.buckets).map(|(now, then)| now - then).collect();
        Self { buckets, sum_ns: self.sum_ns - earlier.sum_ns }
    }

    fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Waits in buckets that begin at `from` or later and end before `to`.
    fn between(&self, from: Duration, to: Duration) -> u64 {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).expect("small");
        let is_within = |index: usize| SHAPE.range(index).0 >= ns(from) && SHAPE.range(index).1 < ns(to);
        (0..self.buckets.len()).filter(|index| is_within(*index)).map(|index| self.buckets[index]).sum()
    }

    /// Every wait is in its bucket: only then is their sum between what the buckets' ends say.
    fn check(&self) {
        let ends = |which: fn((u64, u64)) -> u64| -> u64 {
            self.buckets.iter().enumerate().map(|(index, count)| count * which(SHAPE.range(index))).sum()
        };
        let open_ended = self.buckets.last().is_some_and(|count| *count > 0);
        assert!(ends(|(low, _)| low) <= self.sum_ns, "{self:?}");
        assert!(open_ended || self.sum_ns <= ends(|(_, high)| high), "{self:?}");
    }
}

impl World {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let own = onlooker_testbed::World::new();
        let home = Home::new(own.bpffs(), "test").expect("a BPF file system");
        let pinned = Pinned::load(&Config::new(4791), &home).unwrap_or_else(|error| panic!("{error}"));
        let cpus = cpus().expect("CPUs");
        let blocks = (FIRST_BLOCK + cpus * CPU_BLOCKS).next_multiple_of(4);
        let slab = pinned.create_slab(1, blocks).expect("a slab");
        install(&home, &slab).unwrap_or_else(|error| panic!("{error}"));
        let memory = slab.map(0, blocks, true).expect("maps");
        let words = &memory.words()[FIRST_BLOCK as usize * BLOCK_WORDS..][..(cpus * CPU_BLOCKS) as usize * BLOCK_WORDS];
        identify(words, Identity::first(7, 9));
        Latency::open(&home).and_then(|latency| latency.start(cpus, (FIRST_BLOCK, blocks))).expect("starts");
        Self { home, memory, cpus, pinned, _own: own, _alone: alone }
    }

    fn slots(&self, cpu: u32, block: u32) -> &[AtomicU64] {
        &self.memory.words()[(FIRST_BLOCK + cpu * CPU_BLOCKS + block) as usize * BLOCK_WORDS..][1..BLOCK_WORDS]
    }

    fn histogram(&self, cpu: u32, block: u32) -> Histogram {
        let word = |slot: &AtomicU64| slot.load(Ordering::Relaxed);
        let slots = self.slots(cpu, block);
        Histogram {
            buckets: slots[..SHAPE.buckets()].iter().map(word).collect(),
            sum_ns: word(&slots[SHAPE.buckets()]),
        }
    }

    fn all(&self) -> Vec<[Histogram; 2]> {
        (0..self.cpus).map(|cpu| [PREEMPTED, WOKEN].map(|block| self.histogram(cpu, block))).collect()
    }

    /// Waits that have been counted since.
    fn counted(&self, before: &[[Histogram; 2]]) -> u64 {
        let after = self.all();
        let pairs = after.iter().flatten().zip(before.iter().flatten());
        pairs.map(|(after, before)| after.since(before).count()).sum()
    }

    fn unseen(&self) -> u64 {
        (0..self.cpus).map(|cpu| self.slots(cpu, PREEMPTED)[125].load(Ordering::Relaxed)).sum()
    }

    /// Waits until the tasks have run that waited already when the programs started, a hundred on a busy machine; returns how many they were.
    fn settle(&self) -> u64 {
        let (end, mut seen) = (Instant::now() + Duration::from_secs(5), self.unseen());
        loop {
            thread::sleep(Duration::from_millis(100));
            let now = self.unseen();
            if now == seen || Instant::now() > end {
                return now;
            }
            seen = now;
        }
    }

    fn elsewhere(&self) -> u64 {
        self.slots(0, PREEMPTED)[126].load(Ordering::Relaxed)
    }

    fn program_ids(&self) -> Vec<u32> {
        let id = |name: &&str| {
            let link = Link::open(self.home.path().join("scheduler").join(name)).expect("a pinned link");
            link.info().expect("a link").prog_id
        };
        PROGRAMS.iter().map(id).collect()
    }

    /// No program of these is loaded any more; the kernel frees them when no CPU can be running them.
    fn are_gone(ids: &[u32]) {
        let end = Instant::now() + Duration::from_secs(20);
        while ProgInfoIter::default().any(|program| ids.contains(&program.id)) {
            assert!(Instant::now() < end, "programs {ids:?} are still loaded");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.home.purge();
    }
}

fn pin_to(cpu: u32) {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).expect("pins");
}

/// Time that the calling thread has waited for a CPU, as the kernel keeps it (CONFIG_SCHEDSTATS or CONFIG_TASK_DELAY_ACCT).
fn own_run_delay_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Time that tasks have waited, of all CPUs together: the eighth number of /proc/schedstat's lines of CPUs; `None` without CONFIG_SCHEDSTATS.
fn all_run_delay_ns() -> Option<u64> {
    let text = fs::read_to_string("/proc/schedstat").ok()?;
    let lines = text.lines().filter(|line| line.starts_with("cpu"));
    Some(lines.filter_map(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok()).sum())
}

fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[test]
fn waits_are_as_the_kernel_keeps_them() {
    let world = World::new();
    let cpu = world.cpus - 1;
    let unseen_before = world.settle();
    let (before, kernel_before) = (world.all(), all_run_delay_ns());
    let stop = AtomicBool::new(false);
    let (own_ns, sleeps) = thread::scope(|scope| {
        let task = |work: fn(), pauses: bool| {
            let stop = &stop;
            scope.spawn(move || {
                pin_to(cpu);
                let (begin_ns, mut rounds) = (own_run_delay_ns(), 0u64);
                while !stop.load(Ordering::Relaxed) {
                    work();
                    rounds += u64::from(pauses);
                }
                (own_run_delay_ns() - begin_ns, rounds)
            })
        };
        let (hog, sleeper): (fn(), fn()) =
            (|| spin(Duration::from_micros(100)), || thread::sleep(Duration::from_millis(2)));
        let tasks = [task(hog, false), task(hog, false), task(sleeper, true)];
        thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        let ended = tasks.map(|task| task.join().expect("ends"));
        ended.iter().fold((0, 0), |(ns, rounds), (own_ns, own_rounds)| (ns + own_ns, rounds + own_rounds))
    });
    let (kernel_after, after) = (all_run_delay_ns(), world.all());
    let grown: Vec<[Histogram; 2]> = after
        .iter()
        .zip(&before)
        .map(|(after, before)| [after[0].since(&before[0]), after[1].since(&before[1])])
        .collect();
    grown.iter().flatten().for_each(Histogram::check);
    let [preempted, woken] = &grown[cpu as usize];
    // Two hogs take turns, of some ticks each.
    let turns = preempted.between(Duration::from_millis(1), Duration::from_millis(300));
    assert!(turns >= 10, "{turns} of {preempted:?}");
    assert!(sleeps > 10 && woken.count() >= sleeps, "{sleeps} sleeps: {woken:?}");
    let sum_ns = preempted.sum_ns + woken.sum_ns;
    eprintln!("own {own_ns} ns, histograms of their CPU {sum_ns} ns, {} + {} waits", preempted.count(), woken.count());
    assert!(own_ns == 0 || sum_ns * 21 / 20 + 20_000_000 >= own_ns, "{own_ns} ns in {sum_ns} ns");
    let all_ns: u64 = grown.iter().flatten().map(|histogram| histogram.sum_ns).sum();
    match kernel_before.zip(kernel_after).map(|(before, after)| after - before) {
        Some(kernel_ns) => {
            // Waits under way at the beginning and at the end are on one side only.
            let apart = kernel_ns.abs_diff(all_ns);
            eprintln!("run_delay of all CPUs {kernel_ns} ns, histograms {all_ns} ns");
            assert!(apart <= kernel_ns / 10 + 100_000_000, "run_delay {kernel_ns} ns, histograms {all_ns} ns");
        }
        None => eprintln!("no /proc/schedstat: not compared with it"),
    }
    let unseen = world.unseen() - unseen_before;
    eprintln!("{unseen} unseen, and {unseen_before} that waited at the start");
    // The kernel makes some switches without calling the tracepoint: one in a hundred waits on a busy machine.
    let counted: u64 = grown.iter().flatten().map(Histogram::count).sum();
    assert!(unseen <= 20 + counted / 50, "{unseen} unseen of {counted}");
    assert_eq!(world.elsewhere(), 0);
}

/// The calling thread runs before all others of its CPU from now on.
fn be_first() -> bool {
    let parameter = libc::sched_param { sched_priority: 10 };
    // SAFETY: a plain system call on a live structure; 0 means the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameter) == 0 }
}

/// Returns when the thread sleeps: what wakes it from now on makes it wait for a CPU.
fn wait_until_asleep(thread: &AtomicU64) {
    let end = Instant::now() + Duration::from_secs(60);
    // If it never does, the wait is not found: to fail here would leave it waiting for its pipe.
    while Instant::now() < end {
        let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.load(Ordering::Relaxed)));
        if stat.is_ok_and(|line| line.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_wait_of_known_length_is_in_its_bucket() {
    const WAIT: Duration = Duration::from_millis(50);
    let world = World::new();
    let cpu = world.cpus - 1;
    let (mut reads, mut writes) = std::io::pipe().expect("a pipe");
    let (hog, is_hog, is_over) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let before = world.all();
    let (is_exact, longest_wait, longest_pause) = thread::scope(|scope| {
        let (hog, is_hog, is_over) = (&hog, &is_hog, &is_over);
        let second = scope.spawn(move || {
            pin_to(cpu);
            hog.store(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs().into(), Ordering::Relaxed);
            reads.read_exact(&mut [0]).expect("reads");
            let woken = Instant::now();
            is_hog.store(true, Ordering::Relaxed);
            let (mut last, mut longest_pause) = (woken, Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) {
                let now = Instant::now();
                longest_pause = longest_pause.max(now - last);
                last = now;
            }
            (woken, longest_pause)
        });
        wait_until_asleep(hog);
        let first = scope.spawn(move || {
            pin_to(cpu);
            let is_exact = be_first();
            let written = Instant::now();
            writes.write_all(&[0]).expect("writes");
            spin(WAIT);
            // The other runs, and is preempted when this thread comes back.
            while !is_hog.load(Ordering::Relaxed) {
                thread::sleep(WAIT / 10);
            }
            spin(WAIT);
            // It runs again, and its wait is counted, before it ends.
            thread::sleep(WAIT);
            is_over.store(true, Ordering::Relaxed);
            (is_exact, written)
        });
        let (is_exact, written) = first.join().expect("ends");
        let (woken, longest_pause) = second.join().expect("ends");
        (is_exact, woken - written, longest_pause)
    });
    if !is_exact {
        eprintln!("no SCHED_FIFO here (RT_GROUP_SCHED): lengths are not looked at");
        return;
    }
    // On a busy machine others run before the hog does, and it waits longer than for the first thread.
    for (block, longest) in [(WOKEN, longest_wait), (PREEMPTED, longest_pause)] {
        let grown = world.histogram(cpu, block).since(&before[cpu as usize][block as usize]);
        let waits = grown.between(WAIT * 3 / 4, longest.max(WAIT) * 2);
        assert!(waits >= 1, "no wait of 50 ms to {longest:?} in block {block}: {grown:?}");
        grown.check();
    }
}

#[test]
fn what_is_removed_costs_nothing_any_more() {
    let world = World::new();
    let ids = world.program_ids();
    let before = world.all();
    (0..20).for_each(|_| thread::sleep(Duration::from_millis(1)));
    assert!(world.counted(&before) >= 20, "no process holds the programs, and they count");
    let first_word = world.memory.words()[FIRST_BLOCK as usize * BLOCK_WORDS].load(Ordering::Relaxed);
    assert_eq!(Identity::from_word(first_word), Some(Identity::first(7, 9)));
    let others = &world.memory.words()[..FIRST_BLOCK as usize * BLOCK_WORDS];
    assert!(others.iter().all(|word| word.load(Ordering::Relaxed) == 0), "others' blocks stay as they are");
    let latency = Latency::open(&world.home).expect("opens");
    latency.pause().expect("pauses");
    thread::sleep(Duration::from_millis(20));
    let before = world.all();
    thread::sleep(Duration::from_millis(50));
    assert_eq!(world.counted(&before), 0, "paused");
    assert!(latency.start(world.cpus, (1, world.cpus * CPU_BLOCKS)).is_err(), "beyond the slab");
    remove(&world.home).expect("removes");
    World::are_gone(&ids);
    assert!(Latency::open(&world.home).is_err() && !world.home.path().join("scheduler").exists());
    remove(&world.home).expect("nothing to remove is no error");
}

/// By how much CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC.
fn suspended() -> Duration {
    let now = |clock| {
        let time = rustix::time::clock_gettime(clock);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).expect("not before the start"));
        seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).expect("not negative"))
    };
    let monotonic = now(rustix::time::ClockId::Monotonic);
    now(rustix::time::ClockId::Boottime).saturating_sub(monotonic)
}

#[test]
fn past_the_lease_nothing_is_counted_until_it_is_renewed() {
    const LAPSE: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);
    let world = World::new();
    let cpu = world.cpus - 1;
    let sleeps = || (0..20).for_each(|_| thread::sleep(Duration::from_millis(1)));
    if suspended() > Duration::from_millis(100) {
        eprintln!("SKIPPED: the machine was suspended for {:?}, and so much longer they count", suspended());
        return;
    }
    let lost = || (world.unseen(), world.elsewhere());
    let before = world.all();
    world.pinned.set_lease(HOUR).expect("a lease");
    sleeps();
    let with = world.counted(&before);
    let (is_hog, stop) = (AtomicBool::new(true), AtomicBool::new(false));
    let (at_end, counted, lost) = thread::scope(|scope| {
        // At its end one of two waits. It runs while there is none, and is woken when there is one again: its wait then is a new one.
        for _ in 0..2 {
            scope.spawn(|| {
                pin_to(cpu);
                while !stop.load(Ordering::Relaxed) {
                    if is_hog.load(Ordering::Relaxed) {
                        spin(Duration::from_micros(100));
                    } else {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
        world.pinned.set_lease(Duration::from_millis(100)).expect("a lease");
        thread::sleep(Duration::from_millis(200));
        is_hog.store(false, Ordering::Relaxed);
        let (at_end, lost_at_end) = (world.all(), lost());
        thread::sleep(LAPSE);
        let (counted, lost_later) = (world.counted(&at_end), lost());
        world.pinned.set_lease(HOUR).expect("a lease");
        sleeps();
        stop.store(true, Ordering::Relaxed);
        (at_end, counted, (lost_at_end, lost_later))
    });
    assert!(with >= 20, "with a lease they count");
    assert_eq!((counted, lost.0), (0, lost.1), "past the lease they count nothing");
    assert!(world.counted(&at_end) >= 20, "renewed, they count again");
    for (after, before) in world.all().iter().zip(&at_end).flat_map(|(after, before)| after.iter().zip(before)) {
        let grown = after.since(before);
        assert_eq!(grown.between(LAPSE * 3 / 4, LAPSE * 60), 0, "a wait over the time without a lease: {grown:?}");
    }
}

#[test]
fn a_purge_removes_them() {
    let world = World::new();
    let ids = world.program_ids();
    let done = world.home.purge().expect("purges");
    assert!(PROGRAMS.iter().all(|name| done.iter().any(|line| line.ends_with(name))), "{done:?}");
    World::are_gone(&ids);
    assert_eq!(schema(world.cpus).blocks(), world.cpus * CPU_BLOCKS);
}
