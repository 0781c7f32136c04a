// SPDX-License-Identifier: Apache-2.0
//! As much garbage as two processors can send, for some seconds, while a controller reads every 10 ms: it gets its answers, and every packet of the garbage is
//! counted in exactly one exit. The rate reached is printed.

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onlooker_responder::{Config, Counters, Exit, Hook, Prefix};
use onlooker_testbed::run;
use onlooker_wire::Tags;

use crate::requester::{FrameSocket, UdpRequester};
use crate::support::{RKEY, exits, pattern, unlimited};
use crate::tagged::ask;
use crate::world::{PORT, REQUESTER_DEVICE, RESPONDER_DEVICE, RESPONDER_IP4, SLAB, SLAB_BLOCKS, World, device};

const FLOOD_TIME: Duration = Duration::from_secs(3);
const READ_INTERVAL: Duration = Duration::from_millis(10);
/// Who reads; the garbage comes from others, one of whom may ask.
const READER: &str = "10.77.1.3";
const STRANGER: &str = "10.77.1.66";
/// Frames of one sender, sent over and over.
const FRAMES: usize = 1024;
const BATCH: usize = 64;
/// Of an IPv4 frame without tags.
const UDP_PAYLOAD: usize = 42;

/// xorshift64*, seeded: the same garbage in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// Frames for our port and address, none of which is a good request: random bytes, READs with a bit flipped, wrong keys, strangers.
fn garbage(seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    let good = ask(false, Tags::None);
    let mut stranger = good.clone();
    stranger.source = STRANGER.parse().unwrap();
    let mut frames = Vec::with_capacity(FRAMES);
    for index in 0..FRAMES {
        frames.push(match index % 4 {
            0 => {
                let mut frame = good.frame();
                for byte in &mut frame[UDP_PAYLOAD..] {
                    *byte = random.next().to_le_bytes()[3];
                }
                frame.truncate(UDP_PAYLOAD + random.below(frame.len() - UDP_PAYLOAD));
                frame
            }
            1 => {
                let mut frame = good.frame();
                // The fifth byte of the BTH is not covered by the ICRC.
                let at = loop {
                    let at = UDP_PAYLOAD + random.below(frame.len() - UDP_PAYLOAD);
                    if at != UDP_PAYLOAD + 4 {
                        break at;
                    }
                };
                frame[at] ^= 1 << random.below(8);
                frame
            }
            2 => good.clone().rkey(RKEY.wrapping_add(1 + u32::try_from(random.below(1 << 30)).unwrap())).frame(),
            _ => stranger.frame(),
        });
    }
    frames
}

/// READs under the reader's own address by somebody who does not know the key.
fn guesses(seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    let mut good = ask(false, Tags::None);
    good.source = READER.parse().unwrap();
    let mut guess = || good.clone().rkey(RKEY.wrapping_add(1 + u32::try_from(random.below(1 << 30)).unwrap())).frame();
    (0..FRAMES).map(|_| guess()).collect()
}

/// What the kernel logs from now on.
struct KernelLog(std::fs::File);

impl KernelLog {
    fn from_now() -> Self {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).unwrap();
        Self(file)
    }

    /// Records that speak of a fault of the kernel.
    fn faults(&mut self) -> Vec<String> {
        let (mut faults, mut buffer) = (Vec::new(), [0; 8192]);
        while let Ok(bytes) = self.0.read(&mut buffer) {
            let record = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
            if ["WARNING:", "BUG:", "Oops", "Call Trace", "stall"].iter().any(|word| record.contains(word)) {
                faults.push(record);
            }
        }
        faults
    }
}

/// Packets that the responder's end of the veth dropped before any program saw them.
fn dropped_before(device: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line =
        text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':').map(str::to_owned)).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

struct Reads {
    answered: u64,
    lost: u64,
    slowest: Duration,
}

fn read_until(stop: &AtomicBool, requester: &mut UdpRequester) -> Reads {
    let mut reads = Reads { answered: 0, lost: 0, slowest: Duration::ZERO };
    let expected: Vec<u8> = (0..128).flat_map(|index| pattern(index).to_le_bytes()).collect();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        match requester.read_at(0, 1024) {
            Some(answer) => {
                assert_eq!(answer, expected);
                reads.answered += 1;
                reads.slowest = reads.slowest.max(start.elapsed());
            }
            None => reads.lost += 1,
        }
        std::thread::sleep(READ_INTERVAL.saturating_sub(start.elapsed()));
    }
    reads
}

fn send_until(end: Instant, socket: &FrameSocket, frames: &[Vec<u8>]) -> u64 {
    let mut sent = 0;
    while Instant::now() < end {
        for batch in frames.chunks(BATCH) {
            sent += socket.send_batch(batch);
        }
    }
    sent
}

/// Returns packets of garbage sent, and what was counted meanwhile.
#[allow(clippy::print_stdout, clippy::cast_precision_loss)]
fn flood(config: &Config, garbage: fn(u64) -> Vec<Vec<u8>>) -> (u64, Counters) {
    let world = World::new();
    let responder = world.responder(config);
    responder.allow(Prefix::host(READER.parse().unwrap())).unwrap();
    let memory = responder.slab(SLAB).unwrap().map(0, SLAB_BLOCKS, true).unwrap();
    for (index, word) in memory.words().iter().enumerate() {
        word.store(pattern(index), Ordering::Relaxed);
    }
    responder.attach(&device(), Hook::Tc).unwrap();
    let mut requester = world.at_requester(|| {
        run("ip", &["address", "add", &format!("{READER}/24"), "dev", REQUESTER_DEVICE]);
        UdpRequester::between(
            READER.parse().unwrap(),
            (RESPONDER_IP4.parse::<std::net::IpAddr>().unwrap(), PORT).into(),
        )
    });
    assert!((0..20).any(|_| requester.read_at(0, 1024).is_some()));
    let senders: Vec<(FrameSocket, Vec<Vec<u8>>)> =
        [1, 2].map(|seed| (FrameSocket::for_sending(&world), garbage(seed))).into_iter().collect();
    let (before, lost_before, mut log) =
        (responder.counters().unwrap(), dropped_before(RESPONDER_DEVICE), KernelLog::from_now());
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    let (sent, reads) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(&stop, &mut requester));
        let senders: Vec<_> = senders
            .iter()
            .map(|(socket, frames)| scope.spawn(move || send_until(start + FLOOD_TIME, socket, frames)))
            .collect();
        let sent: u64 = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        (sent, reader.join().unwrap())
    });
    let seconds = start.elapsed().as_secs_f64();
    // What is queued for another processor's softirq is counted a moment later.
    std::thread::sleep(Duration::from_millis(300));
    let counted = responder.counters().unwrap().since(&before);
    let (total, early): (u64, u64) =
        (counted.iter().map(|(_, count)| count).sum(), dropped_before(RESPONDER_DEVICE) - lost_before);
    println!(
        "flood: {sent} packets of garbage, {:.0}/s; READs: {} answered, {} lost, slowest {} us; dropped before the program: {early}; {:?}",
        sent as f64 / seconds,
        reads.answered,
        reads.lost,
        reads.slowest.as_micros(),
        exits(&counted)
    );
    assert_eq!(log.faults(), Vec::<String>::new());
    assert!(sent > 1000 && reads.answered >= 5, "{sent} sent, {} answered", reads.answered);
    // What no program saw is garbage or a request that was lost; everything else is in exactly one exit.
    assert_eq!(total + early, sent + reads.answered + reads.lost, "{:?}", exits(&counted));
    assert_eq!(counted.get(Exit::Answered), reads.answered);
    // A READ is lost only where the device's queue was full.
    assert!(reads.lost <= early, "{} READs lost, {early} packets dropped before the program", reads.lost);
    (sent, counted)
}

/// [`garbage`] gets as far as to each of these.
fn check_garbage(counted: &Counters) {
    for exit in [Exit::Source, Exit::Rkey, Exit::Icrc, Exit::Opcode, Exit::Truncated] {
        assert!(counted.get(exit) > 0, "{exit}");
    }
}

#[test]
fn garbage_at_full_rate_costs_no_answer_and_is_counted_to_the_packet() {
    let (sent, counted) = flood(&unlimited(PORT), garbage);
    check_garbage(&counted);
    // A quarter of it is of strangers.
    let strangers = counted.get(Exit::Source);
    assert!(strangers.abs_diff(sent / 4) <= sent / 100, "{strangers} of {sent}");
}

#[test]
fn a_source_that_floods_uses_up_its_own_budget_and_nobody_else_s() {
    let slow =
        Config { source_rate: Some(onlooker_responder::Rate { per_second: 1000, burst: 100 }), ..Config::new(PORT) };
    let (_, counted) = flood(&slow, garbage);
    check_garbage(&counted);
    assert!(counted.get(Exit::SourceRate) > 0);
    assert_eq!(counted.get(Exit::CpuRate), 0);
}

/// The reader reads within a tenth of its budget; the flood is far beyond it.
#[test]
fn a_flood_under_the_reader_s_address_without_its_key_costs_it_no_answer() {
    let rate = Some(onlooker_responder::Rate { per_second: 1000, burst: 100 });
    let (_, counted) = flood(&Config { source_rate: rate, cpu_rate: rate, ..Config::new(PORT) }, guesses);
    assert_eq!((counted.get(Exit::SourceRate), counted.get(Exit::CpuRate)), (0, 0));
    assert!(counted.get(Exit::Rkey) > 10 * counted.get(Exit::Answered));
}
