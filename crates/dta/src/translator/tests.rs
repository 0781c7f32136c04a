// SPDX-License-Identifier: Apache-2.0
use bolero::check;
use onlooker_wire::dta::{Copies, Importance};

use super::*;
use crate::key_write::{CheckBytes, Consensus, Found};
use crate::sender::{NotSent, Sender};

const S: u64 = 1_000_000_000;
const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const WRITE: Table = Table { seed: [1; 16], slots_log2: 12, payload_bytes: 4, check: CheckBytes::Eight };
const LIST: List = List { entry_bytes: 4, batch: 4, batches_log2: 8 };
const COUNTERS: Counters = Counters { seed: [2; 16], slots_log2: 12 };

fn limits() -> Limits {
    let sources = vec!["10.0.0.0/24".parse().unwrap(), "fd00::/64".parse().unwrap()];
    Limits { sources, rate_per_s: 1_000_000, most_known: 8, wait_ns: S / 100 }
}

/// Tables' memory, and what was woken.
struct World {
    translator: Translator,
    memory: HashMap<u16, Vec<u8>>,
    woken: Vec<u16>,
    now_ns: u64,
}

impl World {
    fn new(limits: Limits) -> Self {
        let service = |number, shape| Service { number, access: 100 + u32::from(number), shape };
        let services = [
            service(1, Shape::KeyWrite(WRITE)),
            service(2, Shape::Append(LIST, Position::default())),
            service(3, Shape::KeyIncrement(COUNTERS, 5)),
        ];
        let bytes = [(1, WRITE.len_bytes()), (2, LIST.len_bytes()), (3, COUNTERS.len_bytes())];
        let memory = bytes.map(|(number, bytes)| (number, vec![0; usize::try_from(bytes).unwrap()])).into();
        Self { translator: Translator::new(services, limits), memory, woken: Vec::new(), now_ns: 1 << 50 }
    }

    fn with(
        &mut self,
        call: impl FnOnce(&mut Translator, u64, &mut dyn FnMut(Operation<'_>)) -> Option<Answer>,
    ) -> Option<Answer> {
        let Self { translator, memory, woken, now_ns } = self;
        call(translator, *now_ns, &mut |operation| match operation {
            Operation::Write { table, offset, bytes } => {
                let from = usize::try_from(offset).unwrap();
                memory.get_mut(&table).unwrap()[from..from + bytes.len()].copy_from_slice(bytes);
            }
            Operation::Add { table, offset, addend } => {
                let counter = memory.get_mut(&table).unwrap()[usize::try_from(offset).unwrap()..].first_chunk_mut();
                let counter: &mut [u8; 8] = counter.unwrap();
                *counter = u64::from_le_bytes(*counter).wrapping_add(addend).to_le_bytes();
            }
            Operation::Wake { table } => woken.push(table),
        })
    }

    fn take(&mut self, source: IpAddr, datagram: &[u8]) -> Option<Answer> {
        let answer = self.with(|translator, now_ns, mut apply| translator.take(now_ns, source, datagram, &mut apply));
        let Counts { received, stored, probes, discarded } = self.translator.counts();
        assert_eq!(*received, stored + probes + discarded.values().sum::<u64>());
        answer
    }

    fn flush(&mut self) {
        self.with(|translator, now_ns, mut apply| {
            translator.flush(now_ns, &mut apply);
            None
        });
    }

    fn count(&self, key: &[u8]) -> u64 {
        let hash = COUNTERS.hash(key);
        let at = |copy| usize::try_from(COUNTERS.offset(&hash, copy, 5)).unwrap();
        let counters = [0, 1, 2, 3].map(|copy| u64::from_le_bytes(*self.memory[&3][at(copy)..].first_chunk().unwrap()));
        COUNTERS.count(2, counters)
    }

    fn entries(&self) -> Vec<u32> {
        let batches = self.memory[&2].chunks(LIST.batch_bytes()).filter_map(|bytes| LIST.decode(bytes));
        let mut batches: Vec<_> = batches.collect();
        batches.sort_by_key(|batch| batch.position.batch);
        let entries = batches.iter().flat_map(|batch| batch.entries.chunks(4));
        entries.map(|entry| u32::from_le_bytes(entry.try_into().unwrap())).collect()
    }

    fn discarded(&self, reason: &str) -> u64 {
        self.translator.counts().discarded.get(reason).copied().unwrap_or(0)
    }
}

fn report(table: u16, body: Body<'_>) -> Report<'_> {
    Report {
        importance: Importance::Low,
        immediate: false,
        sequence: None,
        reporter: 7,
        table,
        access: 100 + u32::from(table),
        generation: 0,
        body,
    }
}

fn datagram(report: &Report<'_>) -> Vec<u8> {
    let mut datagram = vec![0; report.len_bytes()];
    report.write(&mut datagram).unwrap();
    datagram
}

fn written<'a>(key: &'a [u8], payload: &'a [u8]) -> Body<'a> {
    Body::KeyWrite { key, payload, copies: Copies::All(2) }
}

#[test]
fn reports_are_where_a_query_looks() {
    let mut world = World::new(limits());
    world.take(SOURCE, &datagram(&report(1, written(b"flow", b"path"))));
    let hash = WRITE.hash(b"flow");
    let at = |copy| usize::try_from(WRITE.offset(&hash, copy)).unwrap();
    let entries = [0, 1, 2, 3].map(|copy| &world.memory[&1][at(copy)..at(copy) + WRITE.entry_bytes()]);
    let found = WRITE.find(&hash, entries, Consensus::Strict);
    let stamp = Stamp::of(world.now_ns);
    assert_eq!(found, Found::Value { payload: b"path", stamp, copies: 2, is_disputed: false });

    let add = |addend| Body::KeyIncrement { key: b"port 7", addend, copies: Copies::All(2) };
    world.take(SOURCE, &datagram(&report(3, add(40))));
    world.take(SOURCE, &datagram(&report(3, add(2))));
    assert_eq!(world.count(b"port 7"), 42);

    // Entries wait for a batch, for their time, or for one that must not wait.
    for number in 0..6u32 {
        world.take(SOURCE, &datagram(&report(2, Body::Append { payload: &number.to_le_bytes() })));
    }
    assert_eq!(world.entries(), [0, 1, 2, 3]);
    world.now_ns += S / 100 - 1;
    world.flush();
    assert_eq!(world.entries().len(), 4);
    world.now_ns += 1;
    world.flush();
    assert_eq!(world.entries(), [0, 1, 2, 3, 4, 5]);
    let urgent = Report { immediate: true, ..report(2, Body::Append { payload: &[6, 0, 0, 0] }) };
    world.take(SOURCE, &datagram(&urgent));
    assert_eq!((world.entries().len(), &world.woken[..]), (7, &[2][..]));
    assert_eq!(world.translator.counts().stored, 10);
}

#[test]
fn who_may_not_write_does_not() {
    let mut world = World::new(Limits { rate_per_s: 20, ..limits() });
    let before = world.memory.clone();
    let good = report(1, written(b"flow", b"path"));
    world.take("10.0.1.1".parse().unwrap(), &datagram(&good));
    world.take(SOURCE, &datagram(&Report { table: 9, ..good }));
    world.take(SOURCE, &datagram(&Report { access: 1, ..good }));
    world.take(SOURCE, &datagram(&report(1, Body::Append { payload: b"path" })));
    world.take(SOURCE, &datagram(&report(1, written(b"flow", b"a path that is too long"))));
    world.take(SOURCE, b"garbage");
    for reason in ["source", "table", "access", "other_primitive", "other_payload", "truncated"] {
        assert_eq!(world.discarded(reason), 1, "{reason}");
    }
    assert_eq!((world.translator.counts().stored, &world.memory), (0, &before));
    // Two of 20 are spent; another source has its own.
    for _ in 0..20 {
        world.take(SOURCE, &datagram(&good));
    }
    assert_eq!((world.translator.counts().stored, world.discarded("budget")), (18, 2));
    world.take("10.0.0.2".parse().unwrap(), &datagram(&good));
    assert_eq!(world.discarded("budget"), 2);
    world.now_ns += S / 10;
    for _ in 0..5 {
        world.take(SOURCE, &datagram(&good));
    }
    assert_eq!(world.discarded("budget"), 5, "a tenth of a second is two reports");
    // As many sources as are remembered, and no more.
    for last in 3..20 {
        world.take(IpAddr::from([10, 0, 0, last]), &datagram(&good));
    }
    assert_eq!(world.discarded("crowded"), 17 - 6);
}

fn numbered(sequence: u32) -> Vec<u8> {
    datagram(&Report { sequence: Some(sequence), ..report(1, written(b"k", b"path")) })
}

fn probe(received: u32, sent: u32) -> Vec<u8> {
    datagram(&Report { sequence: Some(sent), ..report(1, Body::Probe { received }) })
}

#[test]
fn a_reporter_is_known_by_where_it_begins() {
    let mut world = World::new(limits());
    let said = |answer: Option<Answer>| answer.map(|answer| (answer.verdict, answer.sequence));
    assert_eq!(said(world.take(SOURCE, &numbered(u32::MAX - 1))), Some((Verdict::Unknown, u32::MAX - 1)));
    assert_eq!(said(world.take(SOURCE, &probe(u32::MAX - 2, u32::MAX - 1))), Some((Verdict::Missing, u32::MAX - 2)));
    for sequence in [u32::MAX - 1, u32::MAX, 0, 1] {
        assert_eq!(world.take(SOURCE, &numbered(sequence)), None);
    }
    assert_eq!(world.translator.counts().stored, 4, "numbers wrap");
    assert_eq!(said(world.take(SOURCE, &numbered(3))), Some((Verdict::Missing, 1)));
    world.take(SOURCE, &numbered(1));
    world.take(SOURCE, &numbered(u32::MAX));
    assert_eq!((world.discarded("gap"), world.discarded("duplicate")), (1, 2));
    // A probe of before changes nothing, one that knows more does: the translator has forgotten.
    assert_eq!(said(world.take(SOURCE, &probe(u32::MAX, 1))), Some((Verdict::Received, 1)));
    assert_eq!(said(world.take(SOURCE, &probe(5, 6))), Some((Verdict::Missing, 5)));
    // It has begun again, somewhere else.
    assert_eq!(said(world.take(SOURCE, &numbered(900_000))), Some((Verdict::Unknown, 900_000)));
    assert_eq!(said(world.take(SOURCE, &probe(899_999, 900_000))), Some((Verdict::Missing, 899_999)));
    world.take(SOURCE, &numbered(900_000));
    // Another source cannot make this one's reports duplicates.
    let other = "10.0.0.2".parse().unwrap();
    world.take(other, &probe(900_000, 900_001));
    world.take(other, &numbered(900_001));
    world.take(SOURCE, &numbered(900_001));
    assert_eq!(world.translator.counts().stored, 7);
}

/// By chance it begins with numbers that came just before, or just behind.
#[test]
fn numbers_that_another_had_are_given_up() {
    for before in [41, 100, 180] {
        let mut world = World::new(limits());
        world.take(SOURCE, &probe(90, 91));
        (91..=120).for_each(|sequence| _ = world.take(SOURCE, &numbered(sequence)));
        let mut sender = Sender::new(7, before);
        for number in 0..3u32 {
            let mut datagrams = vec![sender.send(&report(2, Body::Append { payload: &number.to_le_bytes() })).unwrap()];
            datagrams.extend(sender.probe());
            while !datagrams.is_empty() {
                let answers: Vec<_> = datagrams.iter().filter_map(|datagram| world.take(SOURCE, datagram)).collect();
                datagrams = answers.iter().flat_map(|answer| sender.answered(answer)).collect();
            }
        }
        world.now_ns += S;
        world.flush();
        assert_eq!((world.entries(), sender.under_way()), (vec![0, 1, 2], 0), "{before}");
    }
}

/// A network that loses, doubles and delays, a translator that forgets whom it has heard of, and reports that must arrive.
#[test]
fn what_must_arrive_is_counted_once_and_in_order() {
    check!().with_type::<(u32, Vec<u8>)>().with_iterations(300).for_each(|(first, fates)| {
        let mut world = World::new(limits());
        let mut sender = Sender::new(7, *first);
        let (mut fates, mut late) = (fates.iter().copied(), Vec::new());
        let mut sent = 0u32;
        while sent < 600 || sender.under_way() > 0 {
            let mut network = Vec::new();
            if sent < 600 {
                let payload = sent.to_le_bytes();
                match sender.send(&report(2, Body::Append { payload: &payload })) {
                    Ok(datagram) => {
                        network.push(datagram);
                        sent += 1;
                    }
                    Err(error) => assert_eq!(error, NotSent::Full),
                }
            }
            if sent == 600 || sender.under_way() > 200 || sent.is_multiple_of(50) {
                network.extend(sender.probe());
            }
            while let Some(datagram) = network.pop() {
                // When all fates are known the network is whole, or nothing would ever arrive.
                let copies = match fates.next().unwrap_or(2) % 8 {
                    0 => 0,
                    1 => 2,
                    7 => {
                        late.push(datagram);
                        continue;
                    }
                    _ => 1,
                };
                for _ in 0..copies {
                    let answer = world.take(SOURCE, &datagram);
                    if let Some(answer) = answer.filter(|_| fates.next().unwrap_or(2) % 5 != 0) {
                        let again = sender.answered(&Answer::parse(&answer.to_bytes()).unwrap());
                        for datagram in &again {
                            world.take(SOURCE, datagram);
                        }
                    }
                }
                if fates.next().unwrap_or(2) % 8 == 3
                    && let Some(datagram) = late.pop()
                {
                    world.take(SOURCE, &datagram);
                }
            }
        }
        world.now_ns += S;
        world.flush();
        assert_eq!(world.entries(), (0..600).collect::<Vec<_>>());
    });
}
