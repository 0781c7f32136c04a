// SPDX-License-Identifier: Apache-2.0
//! `onlooker-lab faults`: faults of the RDMA path that the real programs do not make, for `lab/lab-faults`, beside a
//! reader that goes on: READs that the host's device refuses (a wrong key, beyond the range), a completion queue
//! without room, more readers than the holder has places for. Queue pairs are the real holder's, by way of the real
//! agent's bootstrap endpoint in plain mode. Prints what happened, and a line `FOUND name value` a figure; exit code 0
//! when all was as it is to be.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use onlooker_region::Block;
use onlooker_verbs::{
    Card, CompletionQueue, Device, Endpoint, Error as DeviceError, Flow, Memory, Outcome, Path, Read, Reads, Settings,
    Status,
};

use crate::common::{Result, variable};

/// Port of the agent's bootstrap endpoint (lab/verbs/faults).
const PORT: u16 = 7187;
const DEADLINE: Duration = Duration::from_secs(30);
const BLOCK_BYTES: u32 = 1024;
/// READs outstanding of a queue pair, and entries of the completion queue: for a queue pair and the one that comes
/// after it.
const DEPTH: u32 = 4;
const ENTRIES: u32 = 2 * DEPTH;
const SETTINGS: Settings = Settings { depth: DEPTH, max_read_blocks: 1 };
/// What memory holds that no answer was written to.
const UNTOUCHED: Block = Block([0x5eed_5eed_5eed_5eed; 128]);
/// Tries of a bootstrap that ends as `busy`, and the pause between two.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

fn own_address() -> Result<Ipv4Addr> {
    Ok(variable("LAB_IP4")?.parse()?)
}

/// The text after `"key":`.
fn after<'a>(text: &'a str, key: &str) -> Result<&'a str> {
    let key = format!("\"{key}\":");
    let at = text.find(&key).ok_or_else(|| format!("no {key} in {text}"))?;
    Ok(&text[at + key.len()..])
}

fn number(text: &str, key: &str) -> Result<u64> {
    let text = after(text, key)?;
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Ok(text[..end].parse()?)
}

/// What the agent tells of a queue pair.
struct Host {
    end: Endpoint,
    va: u64,
    rkey: u32,
}

impl Host {
    /// From the answer (docs/format/bootstrap.md), which is an object without spaces.
    fn of(answer: &str) -> Result<Self> {
        let verbs = after(answer, "verbs")?;
        let gid = after(verbs, "gid")?.get(1..33).ok_or("no gid")?;
        let end = Endpoint {
            queue_pair: number(verbs, "queue_pair")?.try_into()?,
            packet: number(verbs, "packet")?.try_into()?,
            gid: u128::from_str_radix(gid, 16)?.to_be_bytes(),
            mtu_bytes: number(verbs, "mtu_bytes")?.try_into()?,
            reads_answered: number(verbs, "reads_answered")?.try_into()?,
        };
        let va = number(after(answer, "control")?, "va")?;
        Ok(Self { end, va, rkey: number(verbs, "control_rkey")?.try_into()? })
    }
}

/// Who asks for queue pairs.
struct Asker {
    peer: IpAddr,
    secret: String,
}

impl Asker {
    fn new() -> Result<Self> {
        let token = std::fs::read_to_string(variable("LAB_TOKEN")?)?;
        let secret = token.trim().strip_prefix("onlk1.-.").ok_or("not the token of a plain endpoint")?;
        Ok(Self { peer: variable("LAB_PEER_IP4")?.parse()?, secret: secret.to_owned() })
    }

    /// A bootstrap with this end of a connection. Ids are those of readers: the same one replaces its earlier queue
    /// pair.
    fn ask(&self, reader: u128, end: &Endpoint) -> Result<Host> {
        let Endpoint { queue_pair, packet, gid, mtu_bytes, reads_answered } = end;
        let (secret, gid) = (&self.secret, u128::from_be_bytes(*gid));
        let request = format!(
            r#"{{"op":"bootstrap","version":1,"token":"{secret}","reader":"onlooker-lab","verbs":{{"reader_id":"{reader:032x}","end":{{"queue_pair":{queue_pair},"packet":{packet},"gid":"{gid:032x}","mtu_bytes":{mtu_bytes},"reads_answered":{reads_answered}}}}}}}"#
        );
        for _ in 0..TRIES {
            let answer = self.say(&request)?;
            if !answer.contains(r#""error":"busy""#) {
                return Host::of(&answer);
            }
            std::thread::sleep(PAUSE);
        }
        Err("the agent is busy all the time".into())
    }

    /// One message there, one back: four bytes of length and JSON.
    fn say(&self, request: &str) -> Result<String> {
        let mut stream = TcpStream::connect_timeout(&(self.peer, PORT).into(), DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let mut message = u32::try_from(request.len())?.to_le_bytes().to_vec();
        message.extend_from_slice(request.as_bytes());
        stream.write_all(&message)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(u32::from_le_bytes(length))?];
        stream.read_exact(&mut answer)?;
        Ok(String::from_utf8(answer)?)
    }
}

/// Memory for one answer.
struct Answer(Block);

impl Memory for Answer {
    fn of(&mut self, _: Flow, _: u64, _: u32) -> &mut [Block] {
        std::slice::from_mut(&mut self.0)
    }
}

/// A reader with one queue pair at a time.
struct Reader {
    asker: Asker,
    id: u128,
    reads: Reads<Card>,
    answer: Answer,
    begin: Instant,
}

impl Reader {
    fn new() -> Result<Self> {
        let device = Device::of(own_address()?.into())?;
        let reads = Reads::new(Card::new(CompletionQueue::new(&device, ENTRIES)?));
        let id = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        Ok(Self { asker: Asker::new()?, id, reads, answer: Answer(UNTOUCHED), begin: Instant::now() })
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn connect(&mut self) -> Result<(Flow, Host)> {
        let mut pair = self.reads.port().pair(SETTINGS)?;
        let host = self.asker.ask(self.id, &pair.endpoint())?;
        pair.connect(&host.end, Path::default())?;
        let flow = self.reads.add(pair).ok_or("no flow")?;
        Ok((flow, host))
    }

    /// One block: how the READ ended, and how many words of the memory it has changed.
    fn read(&mut self, flow: Flow, va: u64, rkey: u32) -> Result<(Outcome, usize)> {
        self.answer.0 = UNTOUCHED;
        let deadline_ns = self.now_ns() + u64::try_from(DEADLINE.as_nanos())?;
        if self.reads.submit(flow, &[Read { tag: 0, va, rkey, bytes: BLOCK_BYTES, deadline_ns }])? == 0 {
            return Err("the queue pair takes no READ".into());
        }
        let mut ended = Vec::new();
        loop {
            self.reads.port().queue().arm()?;
            let now_ns = self.now_ns();
            self.reads.poll(&mut self.answer, now_ns, &mut ended)?;
            if let Some(end) = ended.first() {
                let changed = self.answer.0.0.iter().zip(&UNTOUCHED.0).filter(|(now, before)| now != before).count();
                return Ok((end.outcome, changed));
            }
            let mut ready = [rustix::event::PollFd::new(self.reads.port().queue(), rustix::event::PollFlags::IN)];
            let pause = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            rustix::event::poll(&mut ready, Some(&pause))?;
        }
    }

    /// Of the control region, which is there.
    fn reads_well(&mut self, flow: Flow, host: &Host) -> Result<bool> {
        let (outcome, changed) = self.read(flow, host.va, host.rkey)?;
        println!("a READ of the control region: {outcome:?}, {changed} words");
        Ok(outcome == Outcome::Done && changed > 0)
    }
}

/// A READ that the host's device is to refuse, with what `wrong` makes of address and key; then a new queue pair.
fn refused(fault: &str, wrong: impl Fn(&Host) -> (u64, u32)) -> Result<bool> {
    let mut reader = Reader::new()?;
    let (flow, host) = reader.connect()?;
    let mut is_right = reader.reads_well(flow, &host)?;

    let (va, rkey) = wrong(&host);
    let (outcome, changed) = reader.read(flow, va, rkey)?;
    println!("a READ of {va:#x} with key {rkey:#x}: {outcome:?}");
    let is_refused = outcome == Outcome::Failed(Status::Access);
    println!("FOUND {fault}_refused {}", u8::from(is_refused));
    println!("FOUND {fault}_words_of_refused {changed}");
    let is_ended = reader.reads.failure(flow) == Some(Status::Access) && reader.reads.room(flow) == 0;
    println!("FOUND {fault}_ended {}", u8::from(is_ended));

    let begin = Instant::now();
    reader.reads.remove(flow, &mut Vec::new());
    let (flow, host) = reader.connect()?;
    is_right &= reader.reads_well(flow, &host)?;
    println!("FOUND {fault}_reconnect_ms {}", begin.elapsed().as_millis());
    println!("{:?}", reader.reads.counters());
    Ok(is_right && is_refused && is_ended && changed == 0)
}

/// Two queue pairs fill a completion queue; a third one could make it lose completions.
fn overflow() -> Result<bool> {
    let device = Device::of(own_address()?.into())?;
    let card = Card::new(CompletionQueue::new(&device, ENTRIES)?);
    let _pairs = [card.pair(SETTINGS)?, card.pair(SETTINGS)?];
    let third = card.pair(SETTINGS);
    let is_refused = matches!(&third, Err(DeviceError::Limit { what: "entries of a completion queue", .. }));
    match third {
        Ok(_) => println!("a third queue pair was made, of {DEPTH} READs each, on a queue of {ENTRIES} entries"),
        Err(error) => println!("{error}"),
    }
    println!("FOUND overflow_refused {}", u8::from(is_refused));
    Ok(is_refused)
}

/// So many readers, each of which gets a queue pair and never reads.
fn fill(count: u32) -> Result<bool> {
    let asker = Asker::new()?;
    let base = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let gid = own_address()?.to_ipv6_mapped().octets();
    let begin = Instant::now();
    let mut made = 0;
    for index in 0..count {
        let end = Endpoint { queue_pair: 1000 + index, packet: index, gid, mtu_bytes: 1024, reads_answered: 16 };
        match asker.ask(base + u128::from(index), &end) {
            Ok(_) => made += 1,
            Err(error) => println!("reader {index}: {error}"),
        }
    }
    println!("FOUND pairs_made {made}");
    println!("FOUND pairs_made_in_ms {}", begin.elapsed().as_millis());
    Ok(made == count)
}

pub(super) fn run(words: &[&str]) -> Result<()> {
    let is_right = match *words {
        [fault @ "wrong_key"] => refused(fault, |host| (host.va, host.rkey ^ 0xff))?,
        // No slab is that long.
        [fault @ "wrong_range"] => refused(fault, |host| (host.va.wrapping_add(1 << 40), host.rkey))?,
        ["overflow"] => overflow()?,
        ["fill", count] => fill(count.parse()?)?,
        _ => return Err("usage: onlooker-lab faults wrong_key | wrong_range | overflow | fill COUNT".into()),
    };
    if is_right { Ok(()) } else { Err("not as it is to be".into()) }
}
