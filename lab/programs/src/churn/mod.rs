// SPDX-License-Identifier: Apache-2.0
//! `onlooker-lab churn`: reads a host whose program registers and removes a thousand regions a second ([`regions`]):
//! how long it takes from a region's registration to its first frame. `lab/lab-push` and `bench/churn` run it.
//!
//! `onlooker-lab churn HOST:PORT TOKEN_FILE --poll|--push|--soft SECONDS MS`: a cycle every MS ms, or without a pause.
//! By RDMA devices, the directory being READ in each cycle, or written to this machine by the host when it changes; or
//! from the kernel responder. What a frame says of its region's birth is the host's clock; bootstrap has related that
//! to ours. Says `reading` when it begins, and at the end `CHURN <regions seen> <wrong> <cycles> <cycles failed> <p50
//! us> <p99 us> <error of the clock us>`.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onlooker_bootstrap::Token;
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::read_host;
use onlooker_reader::{Frame, Limits, Pair, Session};
use onlooker_region::columns::Value;
use onlooker_transport::open::{Asker, Way, open};

pub(super) mod regions;

use regions::{FIELDS, REGION, check_of};

use crate::common::Result;

/// Name and version told to the agent.
const READER: &str = "onlooker-lab";
/// For the agent's answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// For one cycle.
const CYCLE_NS: u64 = 10_000_000_000;
/// Between two cycles where nothing is to be read: soft-RoCE needs the processor, too.
const IDLE: Duration = Duration::from_micros(200);
/// Cycles that may fail; each costs a bootstrap.
const MAX_FAILED: u32 = 20;

/// Identities of regions that have given a frame: shared with the session's filter.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<HashSet<u64>>>);

impl Seen {
    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// By devices.
    Poll,
    /// By devices, the directory written by the host.
    Push,
    /// From the kernel responder.
    Soft,
}

/// Whom to read, and how.
struct Target {
    address: SocketAddr,
    token: Token,
    mode: Mode,
    seen: Seen,
}

/// The host, as it is read.
struct Host {
    way: Way,
    session: Session,
}

impl Target {
    fn connect(&self) -> Result<Host> {
        let asker = Asker { token: &self.token, reader: READER, timeout: PATIENCE };
        let pair = if self.mode == Mode::Soft { Pair::SOFT_KERNEL } else { Pair::VERBS_VERBS };
        let mut way = open(&asker.ask(&[self.address])?, &[pair], &asker)?;
        match self.mode {
            Mode::Push if way.mirror.is_none() => return Err("the host does not write its directory to readers".into()),
            Mode::Push => {}
            Mode::Poll | Mode::Soft => way.mirror = None,
        }
        let mut session = way.session(Limits::default());
        let seen = self.seen.clone();
        // As who records everything: what lives is read in each cycle, what has ended once more if it was missed.
        session.select(move |entry, _| {
            entry.name == REGION && !(entry.orphan && seen.lock().contains(&entry.identity.word()))
        });
        Ok(Host { way, session })
    }
}

/// What was found.
#[derive(Default)]
struct Found {
    /// From registration to the first frame, ns; below 0 within the clock's error.
    waited_ns: Vec<i128>,
    wrong: u64,
    cycles: u64,
    failed: u32,
}

/// Born, number, check; `None` before the program's first commit, and where the block was not accepted.
fn values(frame: &Frame) -> Option<[u64; 3]> {
    let mut values = [0; 3];
    frame.decode(|sample| {
        let place = FIELDS.iter().position(|name| *name == sample.field.name);
        if let (Some(place), Value::U64(value)) = (place, sample.value) {
            values[place] = value;
        }
    });
    (values[0] != 0).then_some(values)
}

impl Found {
    /// Takes a cycle's frames, and says how many there were.
    fn take(&mut self, host: &Host, seen: &Seen) -> usize {
        self.cycles += 1;
        let mut seen = seen.lock();
        let mut frames = 0;
        for frame in host.session.frames() {
            frames += 1;
            let Some([born_ns, number, check]) = values(&frame) else { continue };
            self.wrong += u64::from(check != check_of(born_ns, number));
            if seen.insert(frame.entry().identity.word()) {
                let (_, answered_ns) = frame.times_ns();
                self.waited_ns.push(i128::from(answered_ns) - host.way.told.relation.steady_ns(born_ns));
            }
        }
        frames
    }

    fn tell(&mut self, clock_error_ns: u64) {
        self.waited_ns.sort_unstable();
        let count = self.waited_ns.len();
        let at_us = |percent: usize| {
            let waited_ns = self.waited_ns.get((count.max(1) - 1) * percent / 100);
            waited_ns.map_or(0, |waited_ns| (*waited_ns).max(0) / 1000)
        };
        let (p50_us, p99_us, error_us) = (at_us(50), at_us(99), clock_error_ns / 1000);
        println!("CHURN {count} {} {} {} {p50_us} {p99_us} {error_us}", self.wrong, self.cycles, self.failed);
    }
}

pub(super) fn run(address: &str, token: &str, mode: &str, seconds: &str, every_ms: &str) -> Result<()> {
    let mode = match mode {
        "--poll" => Mode::Poll,
        "--push" => Mode::Push,
        "--soft" => Mode::Soft,
        _ => return Err("a mode is --poll, --push or --soft".into()),
    };
    let token = Token::parse(std::fs::read_to_string(token)?.trim())?;
    let seen = Seen::default();
    let target = Target { address: address.parse()?, token, mode, seen: seen.clone() };
    let (run, every) = (Duration::from_secs(seconds.parse()?), Duration::from_millis(every_ms.parse()?));

    let mut host = target.connect()?;
    println!("reading");
    let (begin, mut found) = (Instant::now(), Found::default());
    while begin.elapsed() < run {
        let cycle = Instant::now();
        let deadline_ns = steady_ns() + CYCLE_NS;
        match read_host(&mut *host.way.requester, &mut host.session, deadline_ns, steady_ns) {
            Ok(()) => {
                // A cycle over a written directory in which nothing is to be read waits for nobody.
                if found.take(&host, &seen) == 0 {
                    std::thread::sleep(IDLE);
                }
            }
            Err(error) if found.failed == MAX_FAILED => return Err(error.into()),
            Err(error) => {
                found.failed += 1;
                println!("# {error}: connecting anew");
                host = target.connect()?;
            }
        }
        std::thread::sleep(every.saturating_sub(cycle.elapsed()));
    }
    println!("# {:?}", host.session.counters());
    found.tell(host.way.told.relation.error_ns(steady_ns()));
    Ok(())
}
