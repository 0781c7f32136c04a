// SPDX-License-Identifier: Apache-2.0
//! The holder's decisions on a device that panics where things end in the wrong order: single cases, random requests
//! beside a model, and hostile packets.

use std::collections::BTreeSet;

use bolero::TypeGenerator;
use onlooker_region::map::sealed_memfd;
use rustix::fs::{MemfdFlags, memfd_create};

use super::*;
use crate::fake::{Ended, FAILING, FakeDevice, NOBODYS, Shared};
use crate::protocol::{MAX_PACKET_BYTES, VERSION};

const VA: u64 = 0x5eed_0000_0000_0000;
const HERE: &str = "10.0.0.1";
const ELSEWHERE: &str = "10.0.0.2";

struct Bench {
    world: Shared,
    core: Core<FakeDevice>,
    now_ns: u64,
}

impl Bench {
    fn new(regions: u32, queue_pairs: u32) -> Self {
        let world = Shared::new(regions, queue_pairs);
        let core = Core::new(world.opener());
        Self { world, core, now_ns: 1 }
    }

    fn open() -> Self {
        let mut bench = Self::new(8, 8);
        bench.hello(HERE).unwrap();
        bench
    }

    fn ask(&mut self, request: Request) -> Result<Answer, Refusal> {
        self.core.handle(request, &[], self.now_ns)
    }

    fn hello(&mut self, address: &str) -> Result<Hello, Refusal> {
        let address = address.parse().unwrap();
        match self.ask(Request::Hello { version: VERSION, address })? {
            Answer::Hello(hello) => Ok(hello),
            other => panic!("{other:?}"),
        }
    }

    fn register(&mut self, name: &str, (va, bytes): (u64, u64), memory: &OwnedFd) -> Result<u32, Refusal> {
        let request = Request::Register { name: name.into(), va, bytes };
        match self.core.handle(request, &[memory.try_clone().unwrap()], self.now_ns)? {
            Answer::Registered(Registered { rkey }) => Ok(rkey),
            other => panic!("{other:?}"),
        }
    }

    fn end(&mut self, name: &str) -> Result<(), Refusal> {
        self.ask(Request::End { name: name.into() }).map(|answer| assert_eq!(answer, Answer::Done(Done {})))
    }

    fn pair(&mut self, reader: u8, queue_pair: u32) -> Result<u32, Refusal> {
        let end = End { queue_pair, packet: 5, gid: Id([2; 16]), mtu_bytes: 1024, reads_answered: 16 };
        match self.ask(Request::Pair { reader: Id([reader; 16]), end })? {
            Answer::Paired(Paired { end }) => Ok(end.queue_pair),
            other => panic!("{other:?}"),
        }
    }

    fn status(&mut self) -> Status {
        match self.ask(Request::Status {}).unwrap() {
            Answer::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    fn ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.world.0.borrow_mut().ended)
    }
}

fn memory(bytes: u64) -> OwnedFd {
    sealed_memfd("test", bytes).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
    result.unwrap_err().code
}

#[test]
fn the_same_name_and_memory_have_the_same_key_and_others_are_refused() {
    let mut bench = Bench::open();
    let (slab, other) = (memory(8192), memory(8192));
    let rkey = bench.register("slab-3", (VA, 8192), &slab).unwrap();
    assert_eq!(bench.register("slab-3", (VA, 8192), &slab), Ok(rkey));
    for (range, memory) in [((VA + 4096, 8192), &slab), ((VA, 4096), &slab), ((VA, 8192), &other)] {
        assert_eq!(code(bench.register("slab-3", range, memory)), Code::Exists);
    }
    assert_ne!(bench.register("slab-4", (VA, 8192), &slab), Ok(rkey), "another name is another registration");
    let hello = bench.hello(HERE).unwrap();
    assert_eq!(hello.memory[0], Memory { name: "slab-3".into(), va: VA, bytes: 8192, rkey });
    assert_eq!((hello.memory.len(), hello.device.as_str()), (2, "fake1"));
    assert_eq!((bench.status().counters.registered, bench.status().registered_bytes), (2, 16_384));
}

#[test]
fn only_memory_that_cannot_shrink_and_is_long_enough_is_registered() {
    let mut bench = Bench::open();
    let unsealed = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    assert_eq!(code(bench.register("a", (VA, 4096), &unsealed)), Code::Memory);
    assert_eq!(code(bench.register("a", (VA, 8192), &memory(4096))), Code::Memory);
    for range in [(VA + 8, 4096), (VA, 0), (VA, 9), (u64::MAX - 4095, 8192)] {
        assert_eq!(code(bench.register("a", range, &memory(4096))), Code::BadRequest, "{range:?}");
    }
    assert_eq!(code(bench.register("a b", (VA, 4096), &memory(4096))), Code::BadRequest);
    let request = Request::Register { name: "a".into(), va: VA, bytes: 4096 };
    assert_eq!(code(bench.ask(request)), Code::BadRequest, "no descriptor");
    let answer = bench.core.handle(Request::Status {}, &[memory(4096)], 1);
    assert_eq!(code(answer), Code::BadRequest, "a descriptor too many");
    assert_eq!(bench.status().registrations, 0);
}

#[test]
fn without_a_device_there_is_nothing_to_make() {
    let mut bench = Bench::new(8, 8);
    assert_eq!(code(bench.register("a", (VA, 4096), &memory(4096))), Code::BadRequest);
    assert_eq!(code(bench.pair(1, 17)), Code::BadRequest);
    assert_eq!(code(bench.end("a")), Code::BadRequest);
    assert_eq!(code(bench.hello(NOBODYS)), Code::NoDevice);
    assert_eq!(bench.ask(Request::Release {}), Ok(Answer::Done(Done {})));
    assert_eq!(bench.status(), Status::default());
    assert_eq!((bench.core.next_deadline_ns(), bench.core.device().is_none()), (None, true));
}

#[test]
fn a_registration_ends_after_its_grace_and_its_name_is_free_at_once() {
    let mut bench = Bench::open();
    let slab = memory(4096);
    let first = bench.register("a", (VA, 4096), &slab).unwrap();
    bench.end("a").unwrap();
    assert_eq!(code(bench.end("a")), Code::Unknown);
    let second = bench.register("a", (VA, 4096), &slab).unwrap();
    assert_ne!(first, second);
    let status = bench.status();
    assert_eq!((status.registrations, status.resting, status.registered_bytes), (1, 1, 8192));
    assert_eq!(bench.core.next_deadline_ns(), Some(1 + GRACE_NS));
    bench.core.expire(GRACE_NS);
    assert!(bench.ended().is_empty());
    bench.core.expire(1 + GRACE_NS);
    assert_eq!(bench.ended(), [Ended::Memory(first)]);
    assert_eq!((bench.core.next_deadline_ns(), bench.status().registrations), (None, 1));
}

#[test]
fn a_reader_has_one_queue_pair_and_the_oldest_goes_when_there_are_too_many() {
    // Room for one more than there can be, for the time of a replacement.
    let mut bench = Bench::new(8, 4);
    assert_eq!(bench.hello(HERE).unwrap().limits, Limits { regions: 8, queue_pairs: 3 });
    let pairs: Vec<u32> = (1..=3).map(|reader| bench.pair(reader, 17).unwrap()).collect();
    // It connects anew, and so is not the oldest any more.
    let again = bench.pair(1, 18).unwrap();
    assert_eq!(bench.ended(), [Ended::Pair(pairs[0])]);
    bench.pair(4, 17).unwrap();
    assert_eq!(bench.ended(), [Ended::Pair(pairs[1])]);
    bench.pair(5, 17).unwrap();
    bench.pair(6, 17).unwrap();
    assert_eq!(bench.ended(), [Ended::Pair(pairs[2]), Ended::Pair(again)]);
    assert_eq!(code(bench.pair(4, 0)), Code::BadRequest);
    assert!(bench.ended().is_empty(), "one that cannot be connected ends no other");
    let Counters { pairs_made, pairs_replaced, pairs_evicted, pairs_refused, .. } = bench.status().counters;
    assert_eq!((pairs_made, pairs_replaced, pairs_evicted, pairs_refused), (7, 1, 3, 1));
}

#[test]
fn registrations_have_a_limit_and_count_until_they_are_over() {
    let mut bench = Bench::new(2, 8);
    bench.hello(HERE).unwrap();
    bench.register("a", (VA, 4096), &memory(4096)).unwrap();
    bench.register("b", (VA, 4096), &memory(4096)).unwrap();
    bench.end("a").unwrap();
    assert_eq!(code(bench.register("c", (VA, 4096), &memory(4096))), Code::Limit);
    bench.now_ns += GRACE_NS;
    bench.register("c", (VA, 4096), &memory(4096)).unwrap();
}

#[test]
fn another_device_is_opened_only_when_nothing_is_registered() {
    let mut bench = Bench::open();
    let rkey = bench.register("a", (VA, 4096), &memory(4096)).unwrap();
    let pair = bench.pair(1, 17).unwrap();
    assert_eq!(code(bench.hello(ELSEWHERE)), Code::Busy);
    bench.end("a").unwrap();
    assert_eq!(code(bench.hello(NOBODYS)), Code::NoDevice);
    assert_eq!((bench.ended(), bench.hello(HERE).unwrap().pairs), (vec![], 1), "what was there stays");
    assert_eq!(bench.hello(ELSEWHERE).unwrap().pairs, 0);
    assert_eq!(bench.ended(), [Ended::Pair(pair), Ended::Memory(rkey), Ended::Device(1)]);
}

#[test]
fn what_is_released_ends_at_once_in_order_and_the_device_last() {
    let mut bench = Bench::open();
    let a = bench.register("a", (VA, 4096), &memory(4096)).unwrap();
    let b = bench.register("b", (VA, 4096), &memory(4096)).unwrap();
    let pair = bench.pair(1, 17).unwrap();
    bench.end("a").unwrap();
    assert_eq!(bench.ask(Request::Release {}), Ok(Answer::Done(Done {})));
    assert_eq!(bench.ended(), [Ended::Pair(pair), Ended::Memory(b), Ended::Memory(a)]);
    let status = bench.status();
    assert_eq!((status.registrations, status.resting, status.pairs, status.counters.ended), (0, 0, 0, 2));
    let c = bench.register("c", (VA, 4096), &memory(4096)).unwrap();
    let pair = bench.pair(1, 17).unwrap();
    let Bench { world, core, .. } = bench;
    world.0.borrow_mut().ended.clear();
    drop(core);
    let world = world.0.borrow();
    assert_eq!(world.ended, [Ended::Pair(pair), Ended::Memory(c), Ended::Device(1)]);
}

#[test]
fn what_the_device_tells_is_counted_and_its_end_is_an_error() {
    let mut bench = Bench::open();
    bench.world.0.borrow_mut().events = vec![Event::Other, Event::Pair, Event::Pair];
    assert_eq!(bench.core.events(), Ok(()));
    let Counters { events, pairs_failed, .. } = bench.status().counters;
    assert_eq!((events, pairs_failed), (3, 2));
    bench.hello(FAILING).unwrap();
    let refusal = bench.core.events().unwrap_err();
    assert!(refusal.code == Code::Device && refusal.message.contains("fake2"), "{refusal}");
}

#[derive(Debug, Clone, TypeGenerator)]
enum Step {
    Hello { elsewhere: bool },
    Register { name: u8, file: u8, shifted: bool },
    End { name: u8 },
    Pair { reader: u8, is_good: bool },
    Release,
    Wait { ms: u16 },
}

/// What there should be, by the shortest way to say it.
#[derive(Default)]
struct Model {
    address: Option<&'static str>,
    /// Name to va, file and key.
    registered: BTreeMap<String, (u64, usize, u32)>,
    resting: Vec<(u64, u32)>,
    /// Reader and number, the oldest first.
    pairs: Vec<(u8, u32)>,
    keys: BTreeSet<u32>,
}

const FILE_BYTES: u64 = 4096;
const MOST_REGISTERED: usize = 4;
const MOST_PAIRS: usize = 3;

impl Model {
    fn step(&mut self, bench: &mut Bench, files: &[OwnedFd], step: &Step) {
        self.resting.retain(|(until_ns, _)| *until_ns > bench.now_ns);
        match *step {
            Step::Hello { elsewhere } => self.hello(bench, if elsewhere { ELSEWHERE } else { HERE }),
            Step::Register { name, file, shifted } => {
                let (name, file) = (format!("n{}", name % 4), usize::from(file) % files.len());
                self.register(bench, &name, (VA + 4096 * u64::from(shifted), file), &files[file]);
            }
            Step::End { name } => {
                let name = format!("n{}", name % 4);
                let ended = bench.end(&name);
                assert_eq!(ended.is_ok(), self.registered.contains_key(&name));
                if let Some((_, _, rkey)) = self.registered.remove(&name) {
                    self.resting.push((bench.now_ns + GRACE_NS, rkey));
                }
            }
            Step::Pair { reader, is_good } => self.pair(bench, reader % 5, is_good),
            Step::Release => {
                bench.ask(Request::Release {}).unwrap();
                *self = Self { address: self.address, keys: std::mem::take(&mut self.keys), ..Self::default() };
            }
            Step::Wait { ms } => {
                bench.now_ns += u64::from(ms) * 1_000_000;
                bench.core.expire(bench.now_ns);
                self.resting.retain(|(until_ns, _)| *until_ns > bench.now_ns);
            }
        }
    }

    fn hello(&mut self, bench: &mut Bench, address: &'static str) {
        let answer = bench.hello(address);
        if self.address == Some(address) {
            answer.unwrap();
        } else if self.registered.is_empty() {
            answer.unwrap();
            *self = Self { address: Some(address), keys: std::mem::take(&mut self.keys), ..Self::default() };
        } else {
            assert_eq!(code(answer), Code::Busy);
        }
    }

    fn register(&mut self, bench: &mut Bench, name: &str, (va, file): (u64, usize), memory: &OwnedFd) {
        let answer = bench.register(name, (va, FILE_BYTES), memory);
        match self.registered.get(name) {
            _ if self.address.is_none() => assert_eq!(code(answer), Code::BadRequest),
            Some((same_va, same_file, rkey)) if (*same_va, *same_file) == (va, file) => assert_eq!(answer, Ok(*rkey)),
            Some(_) => assert_eq!(code(answer), Code::Exists),
            None if self.registered.len() + self.resting.len() >= MOST_REGISTERED => {
                assert_eq!(code(answer), Code::Limit);
            }
            None => {
                let rkey = answer.unwrap();
                assert!(self.keys.insert(rkey), "key {rkey} twice");
                self.registered.insert(name.to_owned(), (va, file, rkey));
            }
        }
    }

    fn pair(&mut self, bench: &mut Bench, reader: u8, is_good: bool) {
        let answer = bench.pair(reader, if is_good { 17 } else { 0 });
        if self.address.is_none() || !is_good {
            assert_eq!(code(answer), Code::BadRequest);
            return;
        }
        self.pairs.retain(|(other, _)| *other != reader);
        self.pairs.push((reader, answer.unwrap()));
        if self.pairs.len() > MOST_PAIRS {
            self.pairs.remove(0);
        }
    }

    fn check(&self, bench: &mut Bench) {
        let status = bench.status();
        let all = self.registered.len() + self.resting.len();
        assert_eq!(status.registrations, self.registered.len() as u64);
        assert_eq!((status.resting, status.pairs), (self.resting.len() as u64, self.pairs.len() as u64));
        assert_eq!(status.registered_bytes, all as u64 * FILE_BYTES);
        assert_eq!(bench.core.next_deadline_ns(), self.resting.first().map(|(until_ns, _)| *until_ns));
        if let Some(address) = self.address {
            let told: Vec<Memory> = bench.hello(address).unwrap().memory;
            let expected = self.registered.iter().map(|(name, (va, _, rkey))| {
                let (va, rkey) = (*va, *rkey);
                Memory { name: name.clone(), va, bytes: FILE_BYTES, rkey }
            });
            assert_eq!(told, expected.collect::<Vec<_>>());
        }
        // And the device has exactly that.
        let world = bench.world.0.borrow();
        let keys = self.registered.values().map(|(_, _, rkey)| *rkey);
        let keys: BTreeSet<u32> = keys.chain(self.resting.iter().map(|(_, rkey)| *rkey)).collect();
        assert_eq!(world.memory.iter().map(|(_, rkey)| *rkey).collect::<BTreeSet<_>>(), keys);
        let pairs: BTreeSet<u32> = self.pairs.iter().map(|(_, number)| *number).collect();
        assert_eq!(world.pairs.iter().map(|(_, number)| *number).collect::<BTreeSet<_>>(), pairs);
    }
}

#[test]
fn whatever_is_asked_the_device_has_what_the_answers_say() {
    bolero::check!().with_type::<Vec<Step>>().with_iterations(300).for_each(|steps| {
        let most = u32::try_from(MOST_REGISTERED).unwrap();
        let mut bench = Bench::new(most, u32::try_from(MOST_PAIRS).unwrap() + 1);
        let (mut model, files) = (Model::default(), [memory(FILE_BYTES), memory(FILE_BYTES)]);
        for step in steps {
            model.step(&mut bench, &files, step);
            model.check(&mut bench);
        }
    });
}

/// As a well-meaning peer would send them.
fn packets() -> Vec<Vec<u8>> {
    let end = End { queue_pair: 17, packet: 5, gid: Id([2; 16]), mtu_bytes: 1024, reads_answered: 16 };
    let requests = [
        Request::Hello { version: VERSION, address: HERE.parse().unwrap() },
        Request::Register { name: "a".into(), va: VA, bytes: 4096 },
        Request::End { name: "a".into() },
        Request::Pair { reader: Id([1; 16]), end },
        Request::Status {},
        Request::Release {},
    ];
    requests.iter().map(|request| serde_json::to_vec(request).unwrap()).collect()
}

fn is_answer(packet: &[u8]) -> bool {
    let answer: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_slice(packet);
    packet.len() <= MAX_PACKET_BYTES && answer.is_ok()
}

#[test]
fn no_packet_goes_without_an_answer() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let mut bench = Bench::open();
        assert!(is_answer(&bench.core.answer(bytes, &[], 1)));
    });
}

#[test]
fn nor_does_one_that_was_damaged() {
    let originals = packets();
    bolero::check!().with_type::<Vec<(u8, u16, u8)>>().for_each(|damage| {
        let mut bench = Bench::open();
        for (which, at, value) in damage {
            let mut packet = originals[usize::from(*which) % originals.len()].clone();
            let at = usize::from(*at) % packet.len();
            packet[at] = *value;
            assert!(is_answer(&bench.core.answer(&packet, &[memory(4096)][..usize::from(which & 1)], 1)));
        }
    });
}
