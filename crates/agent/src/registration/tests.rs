// SPDX-License-Identifier: Apache-2.0
//! Random requests with real slabs and a real control region: after each step a reader finds exactly the regions that the registry has, with their
//! labels, orphan flags, schemas and memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolero::TypeGenerator;
use onlooker_local::registration::decode;
use onlooker_region::Block;
use onlooker_region::control::{Directory as ReadDirectory, assemble_schema, schema_extent};
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::map::Map;
use onlooker_wire::tcp_read::Read;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};

use super::memory::check_filled;
use super::*;
use crate::facts::Process;
use crate::host::Host;
use crate::served::Served;
use crate::units::{Size, Span};

#[derive(Debug, Clone, TypeGenerator)]
enum Step {
    Connect { connection: u8, uid: u8, pid: u8 },
    Disconnect { connection: u8 },
    Create { connection: u8, name: u8, schema: u8 },
    Adopt { connection: u8, name: u8, schema: u8, value: u8 },
    Publish { connection: u8, region: u8 },
    Update { connection: u8, region: u8, schema: u8, label: u8 },
    Remove { connection: u8, region: u8 },
    Wait { ms: u8 },
}

struct World {
    registration: Registration,
    served: Arc<Served>,
    now_ns: u64,
    /// Values that were put into regions, by id and generation.
    values: BTreeMap<(u32, u32), u64>,
    reader: ReadDirectory,
}

/// Memory as it can be adopted, and the program's mapping of it.
fn filled(bytes: u64) -> (OwnedFd, Map) {
    let descriptor = memfd_create("adopted", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&descriptor, bytes).unwrap();
    fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    let memory = Map::of(&descriptor, 0, bytes, true).unwrap();
    memory.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
    fcntl_add_seals(&descriptor, SealFlags::FUTURE_WRITE).unwrap();
    (descriptor, memory)
}

fn schema(number: u8) -> String {
    let blocks = u32::from(number % 3) + 1;
    let field = format!(r#"{{"name":"f{}","metric":"gauge","type":"u64"}}"#, number % 5);
    format!(r#"{{"name":"c","groups":[{{"kind":"plain","blocks":{blocks},"fields":[{field}]}}]}}"#)
}

impl World {
    fn new() -> Self {
        let mut config = Config::default();
        config.quota.bytes_per_user = Size::from_bytes(6 * 4096);
        config.quota.regions_per_user = 5;
        config.quota.regions = 9;
        config.quota.connections_per_user = 3;
        config.limits.grace = Span::from_ms(100);
        config.limits.reuse_delay = Span::from_ms(50);
        let host = Host::read("test", std::path::Path::new("/nonexistent")).unwrap();
        let served = Arc::new(Served::default());
        let directory = Directory::new(&host, served.clone(), config.limits.reuse_delay.as_ns(), 0).unwrap();
        let reader = ReadDirectory::new(directory.place().incarnation);
        let policy = Policy::resolve(&config.policy, "", "").unwrap();
        let counters = Counters::new(onlooker_region::Identity::first(1, 1)).unwrap();
        let registration = Registration::new(&config, directory, policy, counters);
        Self { registration, served, now_ns: 0, values: BTreeMap::new(), reader }
    }

    fn ask(&mut self, connection: u8, request: &str, descriptors: Vec<OwnedFd>) -> Result<Answer, Refusal> {
        let request = decode(request.as_bytes()).unwrap();
        self.registration.handle(u64::from(connection % 6), "prog", request, &descriptors, self.now_ns).answer
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Connect { connection, uid, pid } => {
                let id = u64::from(connection % 6);
                let process = Process { pid: u32::from(pid % 3) + 1, start_ticks: 7 };
                let peer = Peer { process, uid: u32::from(uid % 2), image: "prog".into() };
                if self.registration.registry.peer(id).is_none() {
                    let _ = self.registration.connect(id, peer, &[]);
                }
            }
            Step::Disconnect { connection } => self.registration.disconnect(u64::from(connection % 6), self.now_ns),
            Step::Create { connection, name, schema: number } => {
                let request = format!(r#"{{"op":"create","name":"n{}","schema":{}}}"#, name % 3, schema(number));
                if let Ok(Answer::Region(answer)) = self.ask(connection, &request, Vec::new()) {
                    self.fill(&answer);
                }
            }
            Step::Adopt { connection, name, schema: number, value } => {
                let (descriptor, memory) = filled(8 * 1024);
                memory.words()[BLOCK_WORDS + 1].store(u64::from(value), Ordering::Relaxed);
                let request =
                    format!(r#"{{"op":"adopt","name":"n{}","schema":{},"offset":1024}}"#, name % 3, schema(number));
                if let Ok(Answer::Region(answer)) = self.ask(connection, &request, vec![descriptor]) {
                    self.values.insert((answer.id, answer.generation), u64::from(value));
                }
            }
            Step::Publish { connection, region } => {
                let request = format!(r#"{{"op":"publish","region":{}}}"#, self.pick(region));
                let _ = self.ask(connection, &request, Vec::new());
            }
            Step::Update { connection, region, schema: number, label } => {
                let id = self.pick(region);
                let request = match label % 3 {
                    0 => format!(r#"{{"op":"update","region":{id},"labels":{{"l":"{label}"}}}}"#),
                    1 => format!(r#"{{"op":"update","region":{id},"schema":{}}}"#, schema(number)),
                    _ => format!(
                        r#"{{"op":"update","region":{id},"labels":{{"l":"{label}"}},"schema":{}}}"#,
                        schema(number)
                    ),
                };
                let _ = self.ask(connection, &request, Vec::new());
            }
            Step::Remove { connection, region } => {
                let request = format!(r#"{{"op":"remove","region":{}}}"#, self.pick(region));
                let _ = self.ask(connection, &request, Vec::new());
            }
            Step::Wait { ms } => {
                self.now_ns += u64::from(ms) * 1_000_000;
                self.registration.expire(self.now_ns);
            }
        }
    }

    fn pick(&self, which: u8) -> u32 {
        let ids: Vec<u32> = self.registration.registry.regions().map(|region| region.facts.id).collect();
        if ids.is_empty() { u32::from(which) } else { ids[usize::from(which) % ids.len()] }
    }

    /// What a program does with its new range: finds it zeroed and writes a value of its own.
    fn fill(&mut self, answer: &RegionAnswer) {
        let uid = self.registration.registry.region(answer.id).unwrap().facts.owner.uid;
        let memory =
            Map::of(self.registration.slab(uid).unwrap(), answer.offset.unwrap(), answer.mapped_bytes.unwrap(), true)
                .unwrap();
        let key = (answer.id, answer.generation);
        if answer.resumed == Some(true) {
            assert_eq!(memory.words()[1].load(Ordering::Relaxed), self.values[&key], "it finds its old values");
        } else {
            assert!(memory.words().iter().all(|word| word.load(Ordering::Relaxed) == 0), "a new range is zero");
            let value = u64::from(answer.generation) << 8 | 1;
            memory.words()[1].store(value, Ordering::Relaxed);
            assert!(self.values.insert(key, value).is_none(), "an identity names one region for ever");
        }
    }

    fn blocks(&self, va: u64, rkey: u32, count: u32) -> Vec<Block> {
        let block = |index: u32| {
            let mut block = Block::default();
            let read = Read { va: va + u64::from(index) * 1024, rkey, length_bytes: 1024 };
            self.served.read(&read, block.bytes_mut()).unwrap();
            block
        };
        (0..count).map(block).collect()
    }

    /// The directory as a reader finds it must be the registry.
    fn check(&mut self) {
        let place = self.registration.directory.place();
        let wanted = self.reader.header(&self.blocks(place.va, place.rkey, 1)[0]).unwrap();
        for index in wanted {
            let block = self.blocks(place.va + u64::from(index) * 1024, place.rkey, 1)[0];
            self.reader.entry_block(index, &block).unwrap();
        }
        self.reader.complete();
        assert_eq!(self.reader.refused().count(), 0);
        let found: BTreeMap<u32, _> = self.reader.regions().map(|entry| (entry.identity.region, entry)).collect();
        let visible = || self.registration.registry.regions().filter(|region| region.state != State::Hidden);
        assert_eq!(
            found.keys().copied().collect::<Vec<_>>(),
            visible().map(|region| region.facts.id).collect::<Vec<_>>()
        );
        for region in visible() {
            let entry = found[&region.facts.id];
            assert_eq!(entry.identity.generation, region.facts.generation);
            assert_eq!(entry.orphan, matches!(region.state, State::Orphan { .. }));
            assert_eq!(entry.labels, region.facts.labels.clone().into_iter().collect::<Vec<_>>());
            assert_eq!(
                (entry.bytes, entry.schema, entry.uid),
                (region.facts.schema.region_bytes(), region.facts.schema.id, region.facts.owner.uid)
            );
            let blocks = self.blocks(entry.va, entry.rkey, region.facts.schema.blocks);
            assert_eq!(blocks[0].0[1], self.values[&(region.facts.id, region.facts.generation)], "its own memory");
            let text = self.reader.schema(entry.schema).expect("its schema is there");
            let (first, count) = schema_extent(text, place.va, self.registration.directory.bytes()).unwrap();
            let text_blocks = self.blocks(text.va, text.rkey, count);
            assert_eq!(
                assemble_schema(text, place.incarnation, first, &text_blocks).unwrap().blocks(),
                region.facts.schema.blocks
            );
        }
        let schemas = self.reader.last_header().unwrap().live as usize - found.len();
        assert!(schemas <= found.len(), "no schema outlives its regions");
        assert_eq!(self.served.len(), found.len() + 1, "what is not in the directory is not served");
        assert!(self.registration.texts.len() <= self.registration.registry.len() - found.len());
    }
}

#[test]
fn a_reader_finds_exactly_what_is_registered() {
    bolero::check!().with_type::<Vec<Step>>().with_iterations(300).for_each(|steps| {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        for connection in 0..6 {
            world.step(&Step::Disconnect { connection });
        }
        for _ in 0..2 {
            world.step(&Step::Wait { ms: 200 });
        }
        world.check();
        assert!(
            world.registration.registry.is_empty()
                && world.registration.slabs.is_empty()
                && world.registration.texts.is_empty()
        );
    });
}

#[test]
fn what_is_filled_stays_filled() {
    let (descriptor, _memory) = filled(3 * 4096);
    check_filled(&descriptor, 0, 3 * 4096).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(
        fallocate(&descriptor, punch, 0, 4096),
        Err(rustix::io::Errno::PERM),
        "the kernel keeps what the seal promises"
    );
}
