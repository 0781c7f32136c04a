// SPDX-License-Identifier: Apache-2.0
//! `onlooker-lab reads`: READs of a program's known words ([`published`]) by one pair of requester and responder,
//! through a real agent and its directory: every size, over a clean wire and over one that loses packets, and every
//! word looked at. `lab/lab-table` runs it.
//!
//! `onlooker-lab reads HOST:PORT TOKEN_FILE PAIR LOSE`, where `LOSE PERCENT` is a program that has the wire lose so
//! many packets each way; LOSSES, READS (without loss) and LOSSY_READS in the environment. Prints a line a combination:
//! `READ <pair> <bytes> <loss> <READs> <wrong words> <not done> <p50 us> <p99 us>`, or `NONE <pair> <bytes> <loss>`
//! where the pair has no such READ: requesters ask for whole blocks; words are asked for below them, where there is a
//! below.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use onlooker_bootstrap::{Token, VerbsRequest};
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::{DriveError, read_host};
use onlooker_reader::{Broken, Limits, Outcome, Pair, Read, Via};
use onlooker_region::limits::{BLOCK_BYTES, BLOCK_WORDS, PLAIN_SLOTS};
use onlooker_region::{Block, Identity};
use onlooker_transport::open::{Asker, Way, open};
use onlooker_transport::verbs;
use onlooker_verbs::Endpoint;

pub(super) mod published;
mod words;

use published::{BLOCKS, REGION, value};
use words::{DeviceWords, SocketWords, WORD_BYTES, Words};

use crate::common::{Result, variable};

/// Name and version told to the agent.
const READER: &str = "onlooker-lab";
/// Whole blocks; before them comes one word.
const SIZES_BLOCKS: [u32; 3] = [1, 4, 128];
/// READs of one size under way at once, at most.
const UNDER_WAY: usize = 16;
/// A READ that is not done by then counts as not done: requesters repeat what is lost, so that none is expected.
const DEADLINE: Duration = Duration::from_secs(30);
/// For the agent's answers and its directory.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a failed requester is made anew: over a wire that loses packets that may fail, too.
const CONNECT_TRIES: usize = 10;
/// Sleep at most so long.
const PAUSE: Duration = Duration::from_millis(50);

fn after_ns(time: Duration) -> u64 {
    steady_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Whom to read, and by whom.
#[derive(Clone)]
struct Target {
    address: SocketAddr,
    token: Token,
    pair: Pair,
}

impl Target {
    fn asker(&self) -> Asker<'_> {
        Asker { token: &self.token, reader: READER, timeout: PATIENCE }
    }

    /// Words by themselves, where this pair can ask for them.
    fn words(&self, told: &Bootstrapped) -> Result<Option<Words>> {
        Ok(match self.pair {
            Pair::VERBS_VERBS => Some(Words::Device(DeviceWords::connect(told, |own| {
                let request = VerbsRequest { reader_id: verbs::reader_id()?, end: verbs::end_of(&own), copy: None };
                let told = self.asker().ask_for_pair(told, request)?;
                let (responder, _) = told.responder(Via::Verbs)?;
                let answer = responder.verbs.as_ref().ok_or("the host has no queue pair for single words")?;
                Ok(verbs::endpoint_of(&answer.end))
            })?)),
            // The kernel responder has no queue pairs: it answers to the number that a request goes to, so that this is
            // our own.
            Pair::VERBS_KERNEL => Some(Words::Device(DeviceWords::connect(told, |own| {
                let gid = match told.peer.ip().to_canonical() {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                };
                Ok(Endpoint { gid: gid.octets(), ..own })
            })?)),
            Pair::SOFT_KERNEL => {
                let (_, address) = told.responder(Via::Kernel)?;
                Some(Words::Socket(SocketWords::new(told.local, address)?))
            }
            _ => None,
        })
    }
}

/// Where the program's words are.
#[derive(Clone, Copy)]
struct Place {
    identity: Identity,
    va: u64,
    rkey: u32,
}

impl Place {
    /// Looks for the region in the host's directory until it is there.
    fn find(way: &mut Way) -> Result<Self> {
        let (mut session, via) = (way.session(Limits::default()), way.pair.via);
        session.select(|_, _| false);
        let end = Instant::now() + PATIENCE;
        loop {
            let read = read_host(&mut *way.requester, &mut session, after_ns(PATIENCE), steady_ns);
            let is_one = |entry: &&onlooker_region::control::RegionEntry| entry.name == REGION && !entry.orphan;
            let served = session.directory().regions().filter(is_one).find(|entry| session.serves(entry));
            match (read, served) {
                (Ok(()), Some(entry)) if entry.bytes == u64::from(BLOCKS) * 1024 => {
                    let rkey = if via == Via::Verbs { entry.device_rkey } else { entry.rkey };
                    return Ok(Self { identity: entry.identity, va: entry.va, rkey });
                }
                (Ok(()), Some(entry)) => return Err(format!("{REGION} has {} bytes", entry.bytes).into()),
                (Err(broken @ DriveError::Broken(_)), _) => return Err(broken.into()),
                (Err(error), _) if Instant::now() >= end => return Err(error.into()),
                (Ok(()), None) if Instant::now() >= end => {
                    return Err(format!("no region {REGION} that is served over {via}").into());
                }
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// What stands in a word of a block.
    fn word(self, block: u32, word: usize) -> u64 {
        if word == 0 {
            return self.identity.at(u16::try_from(block).unwrap_or(u16::MAX)).word();
        }
        value(u64::from(block) * PLAIN_SLOTS as u64 + word as u64)
    }
}

struct Reader {
    target: Target,
    way: Way,
    words: Option<Words>,
    place: Place,
    memory: Vec<Block>,
}

impl Reader {
    fn connect(target: &Target) -> Result<Self> {
        let asker = target.asker();
        let mut way = open(&asker.ask(&[target.address])?, &[target.pair], &asker)?;
        let place = Place::find(&mut way)?;
        let words = target.words(&way.told)?;
        let memory = vec![Block::default(); BLOCKS as usize];
        Ok(Self { target: target.clone(), way, words, place, memory })
    }

    /// After a failure.
    fn connect_anew(&mut self, why: &dyn std::fmt::Display) -> Result<()> {
        println!("# {}: {why}; connecting anew", self.target.pair);
        let mut tries = 0;
        loop {
            match Self::connect(&self.target) {
                Ok(reader) => {
                    *self = reader;
                    return Ok(());
                }
                Err(error) if tries == CONNECT_TRIES => return Err(error),
                Err(error) => println!("# {error}"),
            }
            tries += 1;
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// One word, elsewhere with each number; how many are wrong. `None`: it was not done.
    fn read_word(&mut self, number: u64) -> Result<Option<usize>> {
        let index = number * 131 % (u64::from(BLOCKS) * BLOCK_WORDS as u64);
        let Some(words) = &mut self.words else { return Ok(None) };
        let read = words.read(self.place.va + index * u64::from(WORD_BYTES), self.place.rkey);
        let (block, word) = (index / BLOCK_WORDS as u64, index % BLOCK_WORDS as u64);
        let expected = self.place.word(u32::try_from(block)?, usize::try_from(word)?);
        match read {
            Ok(got) => Ok(got.map(|got| usize::from(got != expected))),
            Err(error) => self.connect_anew(&error).map(|()| None),
        }
    }

    /// As [`Reader::read_word`], whole blocks.
    fn read_blocks(&mut self, number: u64, blocks: u32) -> Result<Option<usize>> {
        let first = u32::try_from(number * 7 % u64::from(BLOCKS - blocks + 1))?;
        self.memory.fill(Block::default());
        match self.read(first, blocks) {
            Ok(true) => Ok(Some(self.wrong_words(first, blocks))),
            Ok(false) => Ok(None),
            Err(broken) => self.connect_anew(&broken).map(|()| None),
        }
    }

    /// Whether all parts were done.
    fn read(&mut self, first: u32, blocks: u32) -> std::result::Result<bool, Broken> {
        let (most, deadline_ns) = (self.way.requester.max_read_blocks(), after_ns(DEADLINE));
        let Place { va, rkey, .. } = self.place;
        let part = |at: u32| {
            let va = va + u64::from(first + at) * BLOCK_BYTES as u64;
            Read { id: at.into(), va, rkey, at, blocks: most.min(blocks - at), deadline_ns }
        };
        let parts: Vec<Read> = (0..blocks).step_by(most as usize).map(part).collect();
        let (mut sent, mut completions) = (0, Vec::with_capacity(parts.len()));
        while completions.len() < parts.len() {
            let room = (completions.len() + UNDER_WAY).min(parts.len());
            sent += self.way.requester.submit(&parts[sent..room.max(sent)])?;
            let before = completions.len();
            self.way.requester.poll(&mut self.memory, steady_ns(), &mut completions)?;
            if completions.len() == before {
                // Places of READs that were given up may be taken still: what was not sent by now is not done.
                if sent == completions.len() && steady_ns() >= deadline_ns {
                    return Ok(false);
                }
                self.way.requester.wait(PAUSE)?;
            }
        }
        Ok(completions.iter().all(|completion| completion.outcome == Outcome::Done))
    }

    fn wrong_words(&self, first: u32, blocks: u32) -> usize {
        let words = |(block, got): (u32, &Block)| {
            got.0.iter().enumerate().filter(|(at, word)| **word != self.place.word(block, *at)).count()
        };
        (first..first + blocks).zip(&self.memory).map(words).sum()
    }
}

/// A line of the table; whether all of it was right. `one` makes READ number n and counts wrong words; `None`: it was
/// not done.
fn measure(
    what: &str,
    loss_percent: u32,
    count: u64,
    mut one: impl FnMut(u64) -> Result<Option<usize>>,
) -> Result<bool> {
    let (mut wrong, mut not_done, mut times) = (0, 0, Vec::new());
    for number in 0..count {
        let begin = Instant::now();
        if let Some(words) = one(number)? {
            times.push(begin.elapsed().as_micros());
            wrong += words;
        } else {
            not_done += 1;
        }
    }
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len().max(1) - 1) * percent / 100).copied().unwrap_or(0);
    println!("READ {what} {loss_percent} {count} {wrong} {not_done} {} {}", at(50), at(99));
    Ok(wrong == 0 && not_done == 0)
}

fn measure_all(reader: &mut Reader, loss_percent: u32, count: u64) -> Result<bool> {
    let pair = reader.target.pair;
    let mut is_right = true;
    if reader.words.is_some() {
        is_right &= measure(&format!("{pair} {WORD_BYTES}"), loss_percent, count, |number| reader.read_word(number))?;
    } else {
        println!("NONE {pair} {WORD_BYTES} {loss_percent}");
    }
    for blocks in SIZES_BLOCKS {
        let what = format!("{pair} {}", blocks * 1024);
        is_right &= measure(&what, loss_percent, count, |number| reader.read_blocks(number, blocks))?;
    }
    Ok(is_right)
}

fn lose(program: &str, percent: u32) -> Result<()> {
    let status = Command::new(program).arg(percent.to_string()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{program} {percent}: {status}").into()) }
}

fn number(name: &str) -> Result<u64> {
    let text = variable(name)?;
    text.parse::<u64>().map_err(|error| format!("{name}={text}: {error}").into())
}

pub(super) fn run(address: &str, token: &str, pair: &str, program: &str) -> Result<()> {
    let known = Pair::ALL.into_iter().find(|known| known.to_string() == pair);
    let pair = known
        .ok_or_else(|| format!("no pair `{pair}`; there are {}", Pair::ALL.map(|pair| pair.to_string()).join(", ")))?;
    let token = Token::parse(std::fs::read_to_string(token)?.trim())?;
    let target = Target { address: address.parse()?, token, pair };
    let losses =
        variable("LOSSES")?.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<u32>, _>>()?;
    let (reads, lossy_reads) = (number("READS")?, number("LOSSY_READS")?);

    let begin = Instant::now();
    let mut reader = Reader::connect(&target)?;
    let most = reader.way.requester.max_read_blocks();
    println!(
        "# {pair}: connected after {:?}, READs of up to {most} blocks, {REGION} at {:#x}",
        begin.elapsed(),
        reader.place.va
    );
    let mut is_right = true;
    for loss_percent in losses {
        lose(program, loss_percent)?;
        is_right &= measure_all(&mut reader, loss_percent, if loss_percent > 0 { lossy_reads } else { reads })?;
    }
    lose(program, 0)?;
    if is_right { Ok(()) } else { Err("not every READ was right".into()) }
}
