// SPDX-License-Identifier: Apache-2.0
//! Reads a host whose program registers and removes a thousand regions a second (sdk/rust/examples/lab_regions.rs): how long it takes from a region's registration to its
//! first frame. `lab/lab-push` and `bench/churn` run it.
//!
//! `lab_churn HOST:PORT TOKEN_FILE --poll|--push|--soft SECONDS MS`: a cycle every MS ms, or without a pause. By RDMA devices, the directory being READ in each cycle, or
//! written to this machine by the host when it changes; or from the kernel responder. What a frame says
//! of its region's birth is the host's clock; bootstrap has related that to ours. Says `reading` when it begins, and at the end
//! `CHURN <regions seen> <wrong> <cycles> <cycles failed> <p50 us> <p99 us> <error of the clock us>`.
#![allow(clippy::print_stdout, reason = "a program for the console")]

use std::collections::HashSet;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onlooker_bootstrap::{Id, Token};
use onlooker_region::columns::Value;
use onlooker_transport::bootstrap::{Bootstrapped, bootstrap, bootstrap_with};
use onlooker_transport::clock::steady_ns;
use onlooker_transport::drive::read_host;
use onlooker_transport::reader::{Frame, Limits, Session};
use onlooker_transport::soft::{self, FlowConfig, SoftRequester};
use onlooker_transport::{Requester, Via, verbs};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Name and version told to the agent.
const READER: &str = "lab_churn";
/// The program's regions, their fields, and what their third is made with.
const REGION: &str = "lab_region";
const FIELDS: [&str; 3] = ["lab_born_ns", "lab_number", "lab_check"];
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

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
    reader_id: Id,
    mode: Mode,
    seen: Seen,
}

/// The way there.
struct Way {
    told: Bootstrapped,
    requester: Box<dyn Requester>,
    session: Session,
}

impl Target {
    fn connect(&self) -> Result<Way> {
        let told = bootstrap(&[self.address], &self.token, READER, PATIENCE)?;
        if self.mode == Mode::Soft {
            let (responder, address) = told.responder(Via::Kernel)?;
            let max_read_bytes = told.answer.max_read_blocks(responder) * 1024;
            let flow = FlowConfig { max_read_bytes, ..FlowConfig::default() };
            let requester = SoftRequester::connect(address, soft::Config::default(), flow)?;
            let session = self.session(&told, Via::Kernel, requester.max_read_blocks());
            return Ok(Way { told, requester: Box::new(requester), session });
        }
        let peer = told.peer;
        let ask = |request| bootstrap_with(&[peer], &self.token, READER, Some(request), PATIENCE);
        let (told, mut requester) = verbs::connect(&told, self.reader_id, ask)?;
        let mut session = self.session(&told, Via::Verbs, requester.max_read_blocks());
        if self.mode == Mode::Push {
            let mirror = requester.mirror().ok_or("the host does not write its directory to readers")?;
            session.mirror(mirror);
        }
        Ok(Way { told, requester: Box::new(requester), session })
    }

    fn session(&self, told: &Bootstrapped, via: Via, max_read_blocks: u32) -> Session {
        let mut session = Session::new(&told.answer, via, max_read_blocks, Limits::default());
        let seen = self.seen.clone();
        // As who records everything: what lives is read in each cycle, what has ended once more if it was missed.
        session.select(move |entry, _| {
            entry.name == REGION && !(entry.orphan && seen.lock().contains(&entry.identity.word()))
        });
        session
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
    fn take(&mut self, way: &Way, seen: &Seen) -> usize {
        self.cycles += 1;
        let mut seen = seen.lock();
        let mut frames = 0;
        for frame in way.session.frames() {
            frames += 1;
            let Some([born_ns, number, check]) = values(&frame) else { continue };
            self.wrong += u64::from(check != (born_ns ^ number).wrapping_mul(FACTOR));
            if seen.insert(frame.entry().identity.word()) {
                let (_, answered_ns) = frame.times_ns();
                self.waited_ns.push(i128::from(answered_ns) - way.told.relation.steady_ns(born_ns));
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

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: lab_churn HOST:PORT TOKEN_FILE --poll|--push|--soft SECONDS MS";
    let [address, token, mode, seconds, every_ms] = &arguments[..] else { return Err(usage.into()) };
    let mode = match mode.as_str() {
        "--poll" => Mode::Poll,
        "--push" => Mode::Push,
        "--soft" => Mode::Soft,
        _ => return Err(usage.into()),
    };
    let token = Token::parse(std::fs::read_to_string(token)?.trim())?;
    let seen = Seen::default();
    let (address, reader_id) = (address.parse::<SocketAddr>()?, verbs::reader_id()?);
    let target = Target { address, token, reader_id, mode, seen: seen.clone() };
    let (run, every) = (Duration::from_secs(seconds.parse()?), Duration::from_millis(every_ms.parse()?));

    let mut way = target.connect()?;
    println!("reading");
    let (begin, mut found) = (Instant::now(), Found::default());
    while begin.elapsed() < run {
        let cycle = Instant::now();
        let deadline_ns = steady_ns() + CYCLE_NS;
        match read_host(&mut *way.requester, &mut way.session, deadline_ns, steady_ns) {
            Ok(()) => {
                // A cycle over a written directory in which nothing is to be read waits for nobody.
                if found.take(&way, &seen) == 0 {
                    std::thread::sleep(IDLE);
                }
            }
            Err(error) if found.failed == MAX_FAILED => return Err(error.into()),
            Err(error) => {
                found.failed += 1;
                println!("# {error}: connecting anew");
                way = target.connect()?;
            }
        }
        std::thread::sleep(every.saturating_sub(cycle.elapsed()));
    }
    println!("# {:?}", way.session.counters());
    found.tell(way.told.relation.error_ns(steady_ns()));
    Ok(())
}
