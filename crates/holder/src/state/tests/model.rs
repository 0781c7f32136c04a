// SPDX-License-Identifier: Apache-2.0
//! Random requests beside a model.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bolero::TypeGenerator;

use super::*;

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
