// SPDX-License-Identifier: Apache-2.0
//! `onlooker-lab pair`: two guests of the laboratory, each with soft-RoCE: `a` registers memory, `b` READs it by every
//! size, over a clean wire and over one that loses packets, and looks at every word. `lab/lab-verbs` runs it. Prints a
//! line a combination: size, loss, READs, wrong words, READs that ended otherwise, p50 and p99 in microseconds.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use onlooker_region::Block;
use onlooker_region::map::{Map, sealed_memfd};
use onlooker_verbs::{
    Card, CompletionQueue, Device, Endpoint, Flow, Memory, Outcome, Path, QueuePair, Read, Readable, Reads, Settings,
};

use crate::common::{Result, endpoint_line, endpoint_of, variable};

const REGION_BYTES: u64 = 256 << 10;
const VA: u64 = 0x5eed_0000_0000_0000;
const PORT: u16 = 7777;
/// Longest READ; longer ones are made of several.
const FRAGMENT_BYTES: u32 = 4 << 10;
const SIZES: [u32; 4] = [8, 1 << 10, 4 << 10, 128 << 10];
const LOSSES_PERCENT: [u32; 3] = [0, 1, 5];
/// USER_HZ is 100.
const TICK_NS: u64 = 10_000_000;
const DEADLINE: Duration = Duration::from_secs(30);

fn write_line(stream: &mut TcpStream, endpoint: &Endpoint, key: u32) -> Result<()> {
    Ok(writeln!(stream, "{key} {}", endpoint_line(endpoint))?)
}

fn read_line(stream: &TcpStream) -> Result<(Endpoint, u32)> {
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let (key, endpoint) = line.split_once(' ').ok_or_else(|| format!("no key: {line:?}"))?;
    Ok((endpoint_of(endpoint)?, key.parse()?))
}

/// The watched side: from its `ready` on only the device answers.
fn serve() -> Result<()> {
    let device = Device::of(variable("LAB_IP4")?.parse()?)?;
    let memory = sealed_memfd("lab", REGION_BYTES)?;
    let memory = Map::of(&memory, 0, REGION_BYTES, true)?;
    (VA..).step_by(8).zip(memory.words()).for_each(|(va, word)| word.store(va, Ordering::Relaxed));
    let readable = Readable::register(&device, memory, VA)?;
    let queue = CompletionQueue::new(&device, 16)?;
    let listener = TcpListener::bind(("0.0.0.0", PORT))?;
    println!("device {} {:?}: {REGION_BYTES} bytes at {VA:#x}", device.name(), device.limits());
    let (mut stream, _) = listener.accept()?;
    let (peer, _) = read_line(&stream)?;
    let mut pair = QueuePair::new(&queue, 1)?;
    pair.connect(&peer, Path::default())?;
    write_line(&mut stream, &pair.endpoint(), readable.rkey())?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    // The reader begins: the way to here and back to sleep has been gone once.
    lines.next().ok_or("the reader has gone")??;
    writeln!(stream, "done")?;
    let before = (run_ns()?, sleeps()?);
    // Until the reader closes it tells how many packets to lose.
    for (index, percent) in lines.enumerate() {
        let percent = percent?;
        if index == 0 {
            let (run_ns, sleeps) = (run_ns()? - before.0, sleeps()? - before.1);
            println!("CPU of this process while it was read: {} us, {} ticks", run_ns / 1000, run_ns / TICK_NS);
            println!("sleeps of this process while it was read: {sleeps}");
        }
        lose(percent.parse()?)?;
        writeln!(stream, "done")?;
    }
    Ok(())
}

/// How long this process ran. Ticks of /proc/self/stat are no measure of so little: user and system time are rounded
/// down each for itself, and 239.4 ms that became 241.3 ms were two ticks more.
fn run_ns() -> Result<u64> {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(schedstat.split_whitespace().next().ok_or("no time in schedstat")?.parse()?)
}

/// How often this process has gone to sleep: each READ that woke it up would be one more.
fn sleeps() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Ok(line.ok_or("no count of switches")?.trim().parse()?)
}

/// One READ's worth of memory for each tag.
struct Answers(Vec<Block>);

impl Memory for Answers {
    fn of(&mut self, _: Flow, tag: u64, bytes: u32) -> &mut [Block] {
        let first = usize::try_from(tag).unwrap_or(usize::MAX) * (FRAGMENT_BYTES as usize / 1024);
        &mut self.0[first..][..bytes.div_ceil(1024) as usize]
    }
}

struct Reader {
    reads: Reads<Card>,
    flow: Flow,
    rkey: u32,
    answers: Answers,
    begin: Instant,
}

impl Reader {
    fn connect() -> Result<(Self, TcpStream)> {
        let device = Device::of(variable("LAB_IP4")?.parse()?)?;
        let mut reads = Reads::new(Card::new(CompletionQueue::new(&device, 64)?));
        let settings = Settings { depth: 16, max_read_blocks: FRAGMENT_BYTES / 1024 };
        let mut pair = reads.port().pair(settings)?;
        let peer: IpAddr = variable("LAB_PEER_IP4")?.parse()?;
        let begin = Instant::now();
        let mut stream = loop {
            match TcpStream::connect((peer, PORT)) {
                Ok(stream) => break stream,
                Err(error) if begin.elapsed() > DEADLINE => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        write_line(&mut stream, &pair.endpoint(), 0)?;
        let (host, rkey) = read_line(&stream)?;
        pair.connect(&host, Path::default())?;
        let flow = reads.add(pair).ok_or("no flow")?;
        let answers = Answers(vec![Block::default(); (128 << 10) / 1024]);
        Ok((Self { reads, flow, rkey, answers, begin: Instant::now() }, stream))
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Reads `bytes` from `va` on; false if a part ended otherwise.
    fn read(&mut self, va: u64, bytes: u32) -> Result<bool> {
        let deadline_ns = self.now_ns() + u64::try_from(DEADLINE.as_nanos())?;
        let parts: Vec<_> = (0u64..u64::from(bytes.div_ceil(FRAGMENT_BYTES)))
            .map(|tag| {
                let offset = tag * u64::from(FRAGMENT_BYTES);
                let left = u64::from(bytes) - offset;
                let bytes = u32::try_from(left.min(FRAGMENT_BYTES.into())).unwrap_or(u32::MAX);
                Read { tag, va: va + offset, rkey: self.rkey, bytes, deadline_ns }
            })
            .collect();
        let (mut sent, mut ended) = (0, Vec::new());
        while ended.len() < parts.len() {
            sent += self.reads.submit(self.flow, &parts[sent..])?;
            self.reads.port().queue().arm()?;
            let before = ended.len();
            let now_ns = self.now_ns();
            self.reads.poll(&mut self.answers, now_ns, &mut ended)?;
            if ended.len() == before {
                let mut ready = [rustix::event::PollFd::new(self.reads.port().queue(), rustix::event::PollFlags::IN)];
                let pause = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
                rustix::event::poll(&mut ready, Some(&pause))?;
            }
            if self.reads.failure(self.flow).is_some() && self.reads.in_flight() == 0 {
                break;
            }
        }
        Ok(ended.len() == parts.len() && ended.iter().all(|one| one.outcome == Outcome::Done))
    }

    fn wrong_words(&self, va: u64, bytes: u32) -> usize {
        let words = self.answers.0.iter().flat_map(|block| block.0).take(bytes as usize / 8);
        (va..).step_by(8).zip(words).filter(|(va, word)| va != word).count()
    }

    fn measure(&mut self, bytes: u32, loss_percent: u32, count: usize) -> Result<bool> {
        let (mut wrong, mut failed, mut times) = (0, 0, Vec::with_capacity(count));
        for number in 0..count as u64 {
            // Elsewhere each time: what an earlier READ has left in the same place is wrong.
            let va = VA + number * 7 * 1024 % (REGION_BYTES - u64::from(bytes));
            self.answers.0.fill(Block::default());
            let begin = Instant::now();
            if self.read(va, bytes)? {
                times.push(begin.elapsed().as_micros());
                wrong += self.wrong_words(va, bytes);
            } else {
                failed += 1;
            }
        }
        times.sort_unstable();
        let at = |percent: usize| times.get((times.len().max(1) - 1) * percent / 100).copied().unwrap_or(0);
        println!("READ {bytes} {loss_percent} {count} {wrong} {failed} {} {}", at(50), at(99));
        Ok(wrong == 0 && failed == 0)
    }
}

fn lose(percent: u32) -> Result<()> {
    let nic = variable("LAB_NIC")?;
    let loss = format!("{percent}%");
    let status = Command::new("tc").args(["qdisc", "replace", "dev", &nic, "root", "netem", "loss", &loss]).status()?;
    if status.success() { Ok(()) } else { Err(format!("tc: {status}").into()) }
}

/// A line to the watched side, and its word for it. In one piece: it would wake up for each.
fn tell(stream: &mut TcpStream, what: &str) -> Result<()> {
    stream.write_all(format!("{what}\n").as_bytes())?;
    BufReader::new(stream).read_line(&mut String::new())?;
    Ok(())
}

fn read_all() -> Result<bool> {
    let count: usize = variable("READS")?.parse()?;
    let (mut reader, mut stream) = Reader::connect()?;
    let mut is_right = true;
    tell(&mut stream, "begin")?;
    for loss_percent in LOSSES_PERCENT {
        if loss_percent > 0 {
            lose(loss_percent)?;
            tell(&mut stream, &loss_percent.to_string())?;
        }
        for bytes in SIZES {
            is_right &= reader.measure(bytes, loss_percent, if loss_percent > 0 { count / 5 } else { count })?;
        }
    }
    println!("{:?}", reader.reads.counters());
    drop(stream);
    Ok(is_right)
}

pub(super) fn run() -> Result<()> {
    match variable("LAB_ROLE")?.as_str() {
        "a" => serve(),
        _ if read_all()? => Ok(()),
        _ => Err("not every READ was right".into()),
    }
}
