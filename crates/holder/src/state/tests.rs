// SPDX-License-Identifier: Apache-2.0
//! The holder's decisions on a device that panics where things end in the wrong order: single cases, random requests
//! beside a model, and hostile packets.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bolero::TypeGenerator;
use onlooker_region::map::sealed_memfd;
use rustix::fs::{MemfdFlags, memfd_create};

use super::*;
use crate::fake::{Ended, FAILING, FakeDevice, NOBODYS, Shared};
use crate::protocol::{MAX_PACKET_BYTES, MAX_RANGES, Pushed, VERSION};

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

#[test]
fn a_push_goes_to_every_copy_in_order_and_to_the_same_places() {
    let mut bench = Bench::open();
    bench.register("slab-0", (VA, 16_384), &memory(16_384)).unwrap();
    let plain = bench.pair(1, 17).unwrap();
    assert_eq!(bench.push("slab-0", 4096, &[(0, 1024)]), Ok(0), "nobody has one");
    let (a, b) = (bench.copied(2, 12_288), bench.copied(3, 12_288));
    assert_eq!(bench.hello(HERE).unwrap().copies, Some(2));
    assert_eq!(bench.push("slab-0", 4096, &[(2048, 3072), (0, 1024)]), Ok(2));
    let at = |pair, reader: u64| [(pair, 4096 + 2048, (reader << 32) + 2048, 3072), (pair, 4096, reader << 32, 1024)];
    assert_eq!(bench.written(), [at(a, 2), at(b, 3)].concat());
    assert!(a != plain && b != plain);
    // A reader that connects anew says again what it has.
    bench.pair(2, 18).unwrap();
    assert_eq!(bench.push("slab-0", 4096, &[(0, 1024)]), Ok(1));
    assert_eq!(bench.written(), [(b, 4096, 3_u64 << 32, 1024)]);
    bench.ask(Request::Release {}).unwrap();
    assert_eq!(code(bench.push("slab-0", 4096, &[(0, 1024)])), Code::Unknown);
    assert_eq!(bench.status().counters.pushes, 3);
}

#[test]
fn what_a_copy_has_not_is_clipped_out() {
    let mut bench = Bench::open();
    bench.register("slab-0", (VA, 16_384), &memory(16_384)).unwrap();
    let pair = bench.copied(1, 4096);
    bench.push("slab-0", 0, &[(8192, 1024), (4096, 1024), (3072, 3072), (0, 1024)]).unwrap();
    let va: u64 = 1 << 32;
    assert_eq!(bench.written(), [(pair, 3072, va + 3072, 1024), (pair, 0, va, 1024)]);
    assert_eq!(bench.status().counters.ranges_clipped, 3);
}

#[test]
fn ranges_outside_of_the_registration_and_copies_that_cannot_be_are_refused() {
    let mut bench = Bench::open();
    bench.register("slab-0", (VA, 8192), &memory(8192)).unwrap();
    bench.copied(1, 8192);
    for (base, range) in [
        (0, (8192, 8)),
        (0, (0, 8200)),
        (4096, (4096, 8)),
        (8192, (0, 8)),
        (u64::MAX - 7, (8, 8)),
        (0, (u64::MAX - 7, 16)),
        (0, (0, 0)),
        (0, (0, 7)),
        (4, (0, 8)),
        (0, (4, 8)),
    ] {
        assert_eq!(code(bench.push("slab-0", base, &[(0, 8), range])), Code::BadRequest, "{base} {range:?}");
    }
    assert_eq!(code(bench.push("slab-0", 0, &[])), Code::BadRequest);
    assert_eq!(code(bench.push("slab-0", 0, &[(0, 8); MAX_RANGES + 1])), Code::BadRequest);
    assert_eq!(code(bench.push("slab-1", 0, &[(0, 8)])), Code::Unknown);
    assert!(bench.written().is_empty(), "refused as a whole");
    for wrong in [copy(2, 0), copy(2, 1000), ControlCopy { va: u64::MAX - 1023, ..copy(2, 2048) }] {
        assert_eq!(code(bench.pair_with(2, 17, Some(wrong))), Code::BadRequest, "{wrong:?}");
    }
    assert_eq!(bench.status().pairs, 1);
}

#[test]
fn a_copy_without_room_misses_pushes_until_it_has_some() {
    let mut bench = Bench::open();
    bench.register("slab-0", (VA, 8192), &memory(8192)).unwrap();
    let (slow, quick) = (bench.copied(1, 8192), bench.copied(2, 8192));
    let ranges = [(1024, 1024), (0, 1024)];
    let pushes = MAX_WRITES / 2;
    for _ in 0..pushes {
        bench.push("slab-0", 0, &ranges).unwrap();
        bench.world.0.borrow_mut().end_writes(quick, true);
    }
    bench.written();
    assert_eq!(bench.push("slab-0", 0, &ranges), Ok(2));
    assert!(bench.written().iter().all(|(pair, ..)| *pair == quick), "all of one or nothing");
    assert_eq!(bench.status().counters.pushes_missed, 1);
    bench.world.0.borrow_mut().end_writes(slow, true);
    bench.push("slab-0", 0, &ranges).unwrap();
    assert_eq!(bench.written().iter().filter(|(pair, ..)| *pair == slow).count(), 2);
    let Counters { pushes: made, pushes_missed, pushes_failed, .. } = bench.status().counters;
    assert_eq!((made, pushes_missed, pushes_failed), (u64::from(2 * pushes) + 3, 1, 0));
}

#[test]
fn a_copy_whose_write_has_failed_gets_no_more_and_its_queue_pair_goes_first() {
    let mut bench = Bench::new(8, 4);
    bench.hello(HERE).unwrap();
    bench.register("slab-0", (VA, 8192), &memory(8192)).unwrap();
    let oldest = bench.pair(1, 17).unwrap();
    let (failing, refusing) = (bench.copied(2, 8192), bench.copied(3, 8192));
    assert_eq!(bench.push("slab-0", 0, &[(0, 1024), (1024, 1024)]), Ok(2));
    bench.world.0.borrow_mut().end_writes(failing, false);
    bench.world.0.borrow_mut().refusing = Some(refusing);
    bench.written();
    assert_eq!(bench.push("slab-0", 0, &[(0, 1024)]), Ok(0));
    assert!(bench.written().is_empty());
    assert_eq!(bench.status().counters.pushes_failed, 2, "once a copy, not once a WRITE");
    bench.pair(4, 17).unwrap();
    bench.pair(5, 17).unwrap();
    bench.pair(6, 17).unwrap();
    assert_eq!(bench.ended(), [failing, refusing, oldest].map(Ended::Pair));
    // Their WRITEs that completed with their end are nobody's.
    bench.push("slab-0", 0, &[(0, 1024)]).unwrap();
    assert_eq!((bench.status().counters.pushes_failed, bench.status().counters.pairs_evicted_failed), (2, 2));
}

#[test]
fn readers_beyond_the_devices_room_for_writes_read_without_a_copy() {
    let mut bench = Bench::open();
    bench.world.0.borrow_mut().writers = 1;
    bench.register("slab-0", (VA, 8192), &memory(8192)).unwrap();
    let first = bench.copied(1, 8192);
    assert_eq!(bench.pair_with(2, 17, Some(copy(2, 8192))).unwrap().copies, 1);
    assert_eq!(bench.push("slab-0", 0, &[(0, 1024)]), Ok(1));
    assert_eq!(bench.written(), [(first, 0, 1_u64 << 32, 1024)]);
    assert_eq!((bench.status().pairs, bench.status().counters.copies_refused), (2, 1));
}

#[derive(Debug, Clone, TypeGenerator)]
enum Step {
    Hello {
        elsewhere: bool,
    },
    Register {
        name: u8,
        file: u8,
        shifted: bool,
    },
    End {
        name: u8,
    },
    Pair {
        reader: u8,
        is_good: bool,
        has_copy: bool,
    },
    Push {
        name: u8,
        blocks: u8,
    },
    /// The WRITEs of a reader's queue pair end.
    Written {
        reader: u8,
        is_done: bool,
    },
    /// The device tells that a reader's queue pair is in error.
    Fail {
        reader: u8,
    },
    Release,
    Wait {
        ms: u16,
    },
}

/// What there should be, by the shortest way to say it.
#[derive(Default)]
struct Model {
    address: Option<&'static str>,
    /// Name to va, file and key.
    registered: BTreeMap<String, (u64, usize, u32)>,
    resting: Vec<(u64, u32)>,
    /// The oldest first.
    pairs: Vec<ModelPair>,
    keys: BTreeSet<u32>,
}

#[derive(Clone, Copy, Default)]
struct ModelPair {
    reader: u8,
    number: u32,
    has_copy: bool,
    is_failed: bool,
    /// WRITEs that have not ended.
    outstanding: usize,
    /// One has failed, and the holder has not looked yet.
    fails: bool,
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
            Step::Pair { reader, is_good, has_copy } => self.pair(bench, reader % 5, is_good, has_copy),
            Step::Push { name, blocks } => self.push(bench, &format!("n{}", name % 4), blocks),
            Step::Written { reader, is_done } => {
                if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.reader == reader % 5) {
                    bench.world.0.borrow_mut().end_writes(pair.number, is_done);
                    pair.fails |= !is_done && pair.outstanding > 0;
                    pair.outstanding = 0;
                }
            }
            Step::Fail { reader } => {
                if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.reader == reader % 5) {
                    bench.world.0.borrow_mut().events = vec![Event::Pair(pair.number)];
                    bench.core.events().unwrap();
                    (pair.is_failed, pair.has_copy) = (true, false);
                }
            }
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

    /// The holder looks at what has become of WRITEs.
    fn hear(&mut self) {
        for pair in &mut self.pairs {
            if std::mem::take(&mut pair.fails) && pair.has_copy {
                (pair.is_failed, pair.has_copy) = (true, false);
            }
        }
    }

    fn pair(&mut self, bench: &mut Bench, reader: u8, is_good: bool, has_copy: bool) {
        let copy = has_copy.then(|| copy(reader, FILE_BYTES));
        let answer = bench.pair_with(reader, if is_good { 17 } else { 0 }, copy);
        self.hear();
        if self.address.is_none() || !is_good {
            assert_eq!(code(answer), Code::BadRequest);
            return;
        }
        let Paired { end, copies } = answer.unwrap();
        self.pairs.retain(|pair| pair.reader != reader);
        self.pairs.push(ModelPair { reader, number: end.queue_pair, has_copy, ..ModelPair::default() });
        if self.pairs.len() > MOST_PAIRS {
            let failed = self.pairs.iter().position(|pair| pair.is_failed);
            // Five readers on two machines.
            let even = self.pairs.iter().filter(|pair| pair.reader % 2 == 0).count();
            let has_most = |pair: &ModelPair| match (2 * even).cmp(&self.pairs.len()) {
                Ordering::Greater => pair.reader.is_multiple_of(2),
                Ordering::Less => pair.reader % 2 == 1,
                Ordering::Equal => true,
            };
            let oldest = self.pairs.iter().position(has_most).unwrap();
            self.pairs.remove(failed.unwrap_or(oldest));
        }
        assert_eq!(copies, self.copies());
    }

    fn copies(&self) -> u64 {
        self.pairs.iter().filter(|pair| pair.has_copy).count() as u64
    }

    fn push(&mut self, bench: &mut Bench, name: &str, blocks: u8) {
        let ranges: Vec<(u64, u64)> = (0..u64::from(blocks % 32) + 1).map(|at| (at % 4 * 1024, 1024)).collect();
        let answer = bench.push(name, 0, &ranges);
        self.hear();
        let Some((_, _, rkey)) = self.registered.get(name) else {
            let expected = if self.address.is_none() { Code::BadRequest } else { Code::Unknown };
            assert_eq!(code(answer), expected);
            return;
        };
        let mut expected = Vec::new();
        for pair in self.pairs.iter_mut().filter(|pair| pair.has_copy) {
            if pair.outstanding + ranges.len() <= MAX_WRITES as usize {
                pair.outstanding += ranges.len();
                let va = u64::from(pair.reader) << 32;
                expected.extend(ranges.iter().map(|(offset, _)| (pair.number, *rkey, *offset, va + offset)));
            }
        }
        let writes = std::mem::take(&mut bench.world.0.borrow_mut().writes);
        let writes: Vec<_> = writes.iter().map(|(pair, rkey, write)| (*pair, *rkey, write.offset, write.va)).collect();
        assert_eq!((writes, answer), (expected, Ok(self.copies())));
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
        let pairs: BTreeSet<u32> = self.pairs.iter().map(|pair| pair.number).collect();
        assert_eq!(world.pairs.iter().map(|(_, number)| *number).collect::<BTreeSet<_>>(), pairs);
    }
}

#[test]
fn whatever_is_asked_the_device_has_what_the_answers_say() {
    bolero::check!().with_type::<Vec<Step>>().with_iterations(300).for_each(|steps| {
        let most = u32::try_from(MOST_REGISTERED).unwrap();
        let mut bench = Bench::new(most, u32::try_from(MOST_PAIRS).unwrap() + 1);
        bench.machines = 2;
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
