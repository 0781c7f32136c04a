// SPDX-License-Identifier: Apache-2.0
//! A host in memory: control region, schemas, regions, and a responder's view of them.

use onlooker_bootstrap::{Answer, Control, Id, Responder, TCP};
use onlooker_region::block::{Identity, init_plain};
use onlooker_region::control::{
    ControlWriter, Entry, Place, RESPONDER_KERNEL, RESPONDER_TCP, RESPONDER_VERBS, RegionEntry,
};
use onlooker_region::guard::commit;
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::map::Map;
use onlooker_region::schema::Kind;
use onlooker_region::sync::{AtomicU64, Ordering};
use onlooker_region::{Schema, SchemaId};
use onlooker_wire::tcp_read::{Read, Refusal};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub const CONTROL_VA: u64 = 0x7000_0000_0000;
pub const CONTROL_RKEY: u32 = 99;
pub const INCARNATION: u32 = 5;
/// What a device's keys are above those of other responders.
pub const DEVICE_RKEYS: u32 = 1 << 20;

/// Words that reader and writer share.
#[derive(Clone)]
pub struct Shared(pub Map);

/// Words of this process.
struct Own(Box<[AtomicU64]>);

impl AsRef<[AtomicU64]> for Own {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

impl Shared {
    pub fn new(blocks: usize) -> Self {
        Self(Map::shared(Own((0..blocks * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect())))
    }

    pub fn block(&self, index: usize) -> &[AtomicU64] {
        &self.0.words()[index * BLOCK_WORDS..][..BLOCK_WORDS]
    }

    pub fn set(&self, block: usize, word: usize, value: u64) {
        self.block(block)[word].store(value, Ordering::Relaxed);
    }
}

impl AsRef<[AtomicU64]> for Shared {
    fn as_ref(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// Called before each READ is answered, with its number; may change the host.
pub type Hook = Box<dyn FnMut(u64, &Read) -> Option<Refusal> + Send>;

/// What can be READ: by rkey.
#[derive(Default)]
pub struct Memory {
    ranges: Mutex<HashMap<u32, (u64, Shared)>>,
    hook: Mutex<(u64, Option<Hook>)>,
}

impl Memory {
    pub fn insert(&self, rkey: u32, va: u64, words: Shared) {
        self.ranges.lock().unwrap().insert(rkey, (va, words));
    }

    pub fn remove(&self, rkey: u32) {
        self.ranges.lock().unwrap().remove(&rkey);
    }

    pub fn hook(&self, hook: impl FnMut(u64, &Read) -> Option<Refusal> + Send + 'static) {
        *self.hook.lock().unwrap() = (0, Some(Box::new(hook)));
    }

    /// The bytes of a READ, as a responder copies them.
    pub fn read(&self, read: &Read) -> Result<Vec<u8>, Refusal> {
        let (number, hook) = &mut *self.hook.lock().unwrap();
        if let Some(hook) = hook {
            *number += 1;
            if let Some(refusal) = hook(*number, read) {
                return Err(refusal);
            }
        }
        let ranges = self.ranges.lock().unwrap();
        let (va, words) = ranges.get(&read.rkey).ok_or(Refusal::Access)?;
        let from =
            read.va.checked_sub(*va).map(|offset| usize::try_from(offset / 8).unwrap()).ok_or(Refusal::Access)?;
        let count = read.length_bytes as usize / 8;
        let words = words.0.words().get(from..).and_then(|words| words.get(..count)).ok_or(Refusal::Access)?;
        Ok(words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect())
    }
}

/// A host that tells the truth, until a test changes its words.
pub struct Host {
    pub memory: Arc<Memory>,
    pub control: ControlWriter<Shared>,
    pub control_words: Shared,
    /// Who serves the regions that are made from now on.
    pub responders: u32,
    /// Gives regions their memory.
    pub allocate: Box<dyn FnMut(usize) -> Shared + Send>,
}

/// A region of a [`Host`].
pub struct Region {
    pub slot: usize,
    pub entry: RegionEntry,
    pub words: Shared,
}

pub const PLACE: Place = Place {
    va: CONTROL_VA,
    rkey: CONTROL_RKEY,
    incarnation: INCARNATION,
    responders: RESPONDER_TCP | RESPONDER_KERNEL,
};

impl Host {
    pub fn new(control_blocks: usize) -> Self {
        Self::within(Shared::new(control_blocks), PLACE, Box::new(Shared::new))
    }

    /// With the control region in `control_words`, and regions in what `allocate` gives.
    pub fn within(control_words: Shared, place: Place, allocate: Box<dyn FnMut(usize) -> Shared + Send>) -> Self {
        let memory = Arc::new(Memory::default());
        memory.insert(place.rkey, place.va, control_words.clone());
        let control = ControlWriter::new(control_words.clone(), place, [1; 16], [2; 16], 0, 1);
        Self { memory, control, control_words, responders: RESPONDER_TCP, allocate }
    }

    pub fn answer(&self, tcp_port: u16) -> Answer {
        let place = self.control.place();
        let bytes = self.control_words.0.words().len() as u64 * 8;
        Answer {
            agent: "0.1.0".into(),
            host: "test".into(),
            host_id: Id([1; 16]),
            boot_id: Id([2; 16]),
            boot_clock_ns: 1_000_000_000_000,
            wall_clock_ns: 1_700_000_000_000_000_000,
            control: Control { rkey: place.rkey, va: place.va, bytes, generation: place.incarnation },
            max_read_bytes: 65_536,
            responders: vec![Responder { kind: TCP.into(), port: tcp_port, ..Responder::default() }],
        }
    }

    /// Adds a region of a schema with its blocks written once: identities, and commits of guarded blocks.
    pub fn region(&mut self, id: u32, name: &str, labels: &[(&str, &str)], schema: &str) -> Region {
        let schema = Schema::parse(schema).unwrap();
        let canonical = schema.canonical();
        let schema_id = SchemaId::of(&canonical);
        self.control.hold_schema(schema_id, &schema.name, &canonical, 1).unwrap();
        let words = (self.allocate)(schema.blocks() as usize);
        let identity = Identity::first(id, 7);
        write_blocks(&schema, identity, &words);
        let (rkey, va) = (id + 1_000, u64::from(id) << 32);
        self.memory.insert(rkey, va, words.clone());
        let entry = RegionEntry {
            identity,
            va,
            bytes: u64::from(schema.blocks()) * 1024,
            rkey,
            device_rkey: if self.responders & RESPONDER_VERBS == 0 { 0 } else { rkey + DEVICE_RKEYS },
            responders: self.responders,
            schema: schema_id,
            pid: 4321,
            uid: 1000,
            created_ns: 11,
            orphan: false,
            name: name.into(),
            labels: labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        };
        let slot = self.control.add(&Entry::Region(entry.clone()), 2).unwrap();
        Region { slot, entry, words }
    }
}

pub fn write_blocks(schema: &Schema, identity: Identity, words: &Shared) {
    for (begin, group) in schema.placed_groups() {
        for index in begin..begin + group.blocks {
            let (block, me) = (words.block(index as usize), identity.at(u16::try_from(index).unwrap()));
            match group.kind {
                Kind::Plain => init_plain(block, me),
                Kind::Foreign => {}
                Kind::Guarded | Kind::Computed | Kind::Table => commit(block, me, 999_000_000_000, |_| ()),
            }
        }
    }
}
