// SPDX-License-Identifier: Apache-2.0
//! The holder's decisions on a device that panics where things end in the wrong order: single cases, random requests
//! beside a model, and hostile packets.

use onlooker_region::map::sealed_memfd;
use rustix::fs::{MemfdFlags, memfd_create};

use super::*;
use crate::fake::{Ended, FAILING, FakeDevice, NOBODYS, Shared};
use crate::protocol::{MAX_PACKET_BYTES, Pushed, VERSION};

mod model;
mod pushes;

const VA: u64 = 0x5eed_0000_0000_0000;
const HERE: &str = "10.0.0.1";
const ELSEWHERE: &str = "10.0.0.2";

struct Bench {
    world: Shared,
    core: Core<FakeDevice>,
    now_ns: u64,
    /// Machines that readers are on, in turn.
    machines: u8,
}

impl Bench {
    fn new(regions: u32, queue_pairs: u32) -> Self {
        let world = Shared::new(regions, queue_pairs);
        let core = Core::new(world.opener());
        Self { world, core, now_ns: 1, machines: 1 }
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
        self.pair_with(reader, queue_pair, None).map(|Paired { end, .. }| end.queue_pair)
    }

    fn pair_with(&mut self, reader: u8, queue_pair: u32, copy: Option<ControlCopy>) -> Result<Paired, Refusal> {
        let gid = Id([2 + reader % self.machines; 16]);
        let end = End { queue_pair, packet: 5, gid, mtu_bytes: 1024, reads_answered: 16 };
        match self.ask(Request::Pair { reader: Id([reader; 16]), end, copy })? {
            Answer::Paired(paired) => Ok(paired),
            other => panic!("{other:?}"),
        }
    }

    /// A reader with a copy; its queue pair.
    fn copied(&mut self, reader: u8, bytes: u64) -> u32 {
        self.pair_with(reader, 17, Some(copy(reader, bytes))).unwrap().end.queue_pair
    }

    fn push(&mut self, name: &str, base: u64, ranges: &[(u64, u64)]) -> Result<u64, Refusal> {
        match self.ask(Request::Push { name: name.into(), base, ranges: ranges.to_vec() })? {
            Answer::Pushed(Pushed { copies }) => Ok(copies),
            other => panic!("{other:?}"),
        }
    }

    /// What was written since the last call: queue pair, first byte in the registration, address at the reader, length.
    fn written(&mut self) -> Vec<(u32, u64, u64, u32)> {
        let writes = std::mem::take(&mut self.world.0.borrow_mut().writes);
        writes.iter().map(|(pair, _, write)| (*pair, write.offset, write.va, write.bytes)).collect()
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

/// A reader's, at an address of its own.
fn copy(reader: u8, bytes: u64) -> ControlCopy {
    ControlCopy { va: u64::from(reader) << 32, rkey: reader.into(), bytes }
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
fn readers_that_say_goodbye_make_room_and_nobody_else_loses_his() {
    let mut bench = Bench::new(8, 4);
    bench.hello(HERE).unwrap();
    let part = |bench: &mut Bench, reader: u8, queue_pair| match bench
        .ask(Request::Part { reader: Id([reader; 16]), queue_pair })
    {
        Ok(Answer::Parted(parted)) => Ok((parted.pairs, parted.copies)),
        Ok(other) => panic!("{other:?}"),
        Err(refusal) => Err(refusal.code),
    };
    let stays = bench.copied(1, 4096);
    for round in 0..300 {
        let number = bench.pair(2, 100 + round).unwrap();
        assert_eq!(part(&mut bench, 2, 100 + round), Ok((1, 1)));
        assert_eq!(bench.ended(), [Ended::Pair(number)]);
    }
    // Who has come again is not ended by the goodbye of before, and nobody by another's.
    let again = bench.pair(3, 500).unwrap();
    let number = bench.pair(3, 501).unwrap();
    assert_eq!(bench.ended(), [Ended::Pair(again)]);
    assert_eq!(part(&mut bench, 3, 500), Err(Code::Unknown));
    assert_eq!(part(&mut bench, 4, 501), Err(Code::Unknown));
    assert!(bench.ended().is_empty());
    assert_eq!((part(&mut bench, 3, 501), bench.ended()), (Ok((1, 1)), vec![Ended::Pair(number)]));
    assert_eq!((part(&mut bench, 1, 17), bench.ended()), (Ok((0, 0)), vec![Ended::Pair(stays)]));
    let counters = bench.status().counters;
    assert_eq!((counters.pairs_parted, counters.pairs_replaced, counters.pairs_evicted), (302, 1, 0));
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
    bench.world.0.borrow_mut().events = vec![Event::Other, Event::Pair(5), Event::Pair(6)];
    assert_eq!(bench.core.events(), Ok(()));
    let Counters { events, pairs_failed, .. } = bench.status().counters;
    assert_eq!((events, pairs_failed), (3, 2));
    bench.hello(FAILING).unwrap();
    let refusal = bench.core.events().unwrap_err();
    assert!(refusal.code == Code::Device && refusal.message.contains("fake2"), "{refusal}");
}

#[test]
fn queue_pairs_in_error_are_the_first_to_go() {
    let mut bench = Bench::new(8, 4);
    bench.hello(HERE).unwrap();
    let pairs: Vec<u32> = (1..=3).map(|reader| bench.pair(reader, 17).unwrap()).collect();
    // Also one that is not ours any more, or never was.
    bench.world.0.borrow_mut().events = vec![Event::Pair(pairs[1]), Event::Pair(999)];
    bench.core.events().unwrap();
    bench.pair(4, 17).unwrap();
    assert_eq!(bench.ended(), [Ended::Pair(pairs[1])]);
    bench.pair(5, 17).unwrap();
    assert_eq!(bench.ended(), [Ended::Pair(pairs[0])]);
    // A reader whose queue pair has failed and who asks again has a good one.
    bench.world.0.borrow_mut().events = vec![Event::Pair(pairs[2])];
    bench.core.events().unwrap();
    let again = bench.pair(3, 18).unwrap();
    assert_eq!(bench.ended(), [Ended::Pair(pairs[2])]);
    for reader in 6..=7 {
        bench.pair(reader, 17).unwrap();
    }
    assert!(!bench.ended().contains(&Ended::Pair(again)));
    let Counters { pairs_evicted, pairs_evicted_failed, pairs_failed, .. } = bench.status().counters;
    assert_eq!((pairs_evicted, pairs_evicted_failed, pairs_failed), (4, 1, 3));
}

#[test]
fn a_machine_that_has_the_most_queue_pairs_makes_room_for_others() {
    let mut bench = Bench::new(8, 9);
    bench.machines = 3;
    bench.hello(HERE).unwrap();
    // Eight are room for; readers of the first machine come without end.
    let honest: Vec<u32> = [1, 2, 4].iter().map(|reader| bench.pair(*reader, 17).unwrap()).collect();
    for reader in (0..50_u8).map(|number| number * 3) {
        bench.pair(reader, 17).unwrap();
    }
    let ended = bench.ended();
    assert!(ended.len() == 45 && honest.iter().all(|pair| !ended.contains(&Ended::Pair(*pair))));
    // More honest ones find room as long as others have more than they.
    let more: Vec<u32> = [5, 7].iter().map(|reader| bench.pair(*reader, 17).unwrap()).collect();
    let ended = bench.ended();
    assert!(ended.len() == 2 && honest.iter().chain(&more).all(|pair| !ended.contains(&Ended::Pair(*pair))));
    // Now the second one has the most, and pays for itself.
    bench.pair(10, 17).unwrap();
    assert_eq!(bench.ended(), [Ended::Pair(honest[0])]);
}

#[test]
fn a_reader_that_asks_for_what_it_must_not_loses_its_own_queue_pair_only() {
    let mut bench = Bench::open();
    bench.register("slab-0", (VA, 8192), &memory(8192)).unwrap();
    let (hostile, honest) = (bench.copied(1, 8192), bench.copied(2, 8192));
    // So a device says that somebody has used a wrong key, or read beyond a registration.
    bench.world.0.borrow_mut().events = vec![Event::Pair(hostile)];
    bench.core.events().unwrap();
    assert_eq!(bench.push("slab-0", 0, &[(0, 1024)]), Ok(1));
    assert!(bench.written().iter().all(|(pair, ..)| *pair == honest));
    assert!(bench.ended().is_empty(), "registrations and the others' queue pairs are there");
    let status = bench.status();
    assert_eq!((status.registrations, status.pairs, status.counters.pairs_failed), (1, 2, 1));
    // It comes again and does it again, under one id and under many: the honest one stays.
    for reader in (3..200).filter(|reader| reader % 2 == 1) {
        let pair = bench.pair(reader, 17).unwrap();
        bench.world.0.borrow_mut().events = vec![Event::Pair(pair)];
        bench.core.events().unwrap();
    }
    assert!(!bench.ended().contains(&Ended::Pair(honest)));
    assert_eq!(bench.push("slab-0", 0, &[(0, 1024)]), Ok(1));
}

/// As a well-meaning peer would send them.
fn packets() -> Vec<Vec<u8>> {
    let end = End { queue_pair: 17, packet: 5, gid: Id([2; 16]), mtu_bytes: 1024, reads_answered: 16 };
    let requests = [
        Request::Hello { version: VERSION, address: HERE.parse().unwrap() },
        Request::Register { name: "a".into(), va: VA, bytes: 4096 },
        Request::End { name: "a".into() },
        Request::Pair { reader: Id([1; 16]), end, copy: Some(copy(1, 4096)) },
        Request::Push { name: "a".into(), base: 0, ranges: vec![(1024, 1024), (0, 1024)] },
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
