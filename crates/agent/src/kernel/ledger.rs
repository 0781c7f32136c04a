// SPDX-License-Identifier: Apache-2.0
//! What the agent must know again after it was killed, as blocks of the pinned ledger. No I/O.
//!
//! Block 0 is the header: where the control region is and whose which slab is. Every other number is a region's id, its block a [`Record`]. Blocks are guarded
//! (docs/format/block.md): what is damaged, or of another layout, is not accepted and counts as nothing. Written by the agent only; nobody else can reach them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use onlooker_region::Block;
use onlooker_region::block::Identity;
use onlooker_region::control::{ENTRY_WORDS, RegionEntry};
use onlooker_region::guard;
use onlooker_region::limits::{BLOCK_BYTES, BLOCK_WORDS, FIRST_PROGRAM_REGION, GUARDED_SLOTS};
use onlooker_region::slab::Range;

use crate::facts::{Facts, Peer, Process, SchemaRef};
use crate::served::Address;

/// Number of the header.
pub const HEADER: u32 = 0;
/// First slab of users; those before are the control region's and the agent's own.
pub const FIRST_USER_SLAB: u32 = 2;
/// Places of the responder's table of slabs.
pub const SLABS: u32 = 64;

const MAGIC: u64 = u64::from_le_bytes(*b"OLLEDGER");
/// Goes up with every change of what blocks mean.
const LAYOUT: u64 = 1;
/// The ledger's blocks carry this generation: their numbers say the rest.
const GENERATION: u32 = 1;
const OWNERS_AT: usize = 7;
const EXTRA_AT: usize = ENTRY_WORDS;
const TEXTS_AT: usize = EXTRA_AT + 8;
const _: () = assert!(OWNERS_AT + (SLABS as usize) <= GUARDED_SLOTS);
/// A registered instance, a program's name and its executable's device and inode, with their lengths.
const _: () = assert!((GUARDED_SLOTS - TEXTS_AT) * 8 >= 256 + 16 + 1 + 41 + 4);

/// A block of the ledger as it stands there.
pub type Bytes = [u8; BLOCK_BYTES];

/// Where the control region is, and whose the slabs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The kernel's boot id: pins do not outlive a boot, what is of another one is void.
    pub boot_id: [u8; 16],
    /// The control region's address.
    pub control: Address,
    /// Generation of its identities.
    pub incarnation: u32,
    /// Slabs' indices by their users' ids.
    pub slabs: BTreeMap<u32, u32>,
}

/// Where a region's bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A range of a slab.
    Slab {
        /// Its index.
        slab: u32,
        /// The range.
        range: Range,
    },
    /// A collector.
    Computed {
        /// Its slot.
        collector: u32,
    },
}

/// Whose a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A program's.
    Program,
    /// The agent's own.
    Own,
}

/// Where a region is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its range is taken, its entry not there.
    Hidden,
    /// It has an entry.
    Published {
        /// The entry's slot in the control region.
        slot: usize,
    },
    /// As before, but its program has removed it: nobody may come back to it.
    Removed {
        /// The entry's slot.
        slot: usize,
    },
}

/// A region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its control entry, as it is or will be.
    pub entry: RegionEntry,
    /// Where in its life.
    pub stage: Stage,
    /// What the entry does not say.
    pub keep: Keep,
}

/// What a control entry does not say of its region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// Where its bytes come from.
    pub source: Source,
    /// Whose it is.
    pub role: Role,
    /// Start time of the owner, clock ticks since boot: with the entry's pid one process for ever.
    pub start_ticks: u64,
    /// Its class.
    pub schema: SchemaRef,
    /// Instance within the process.
    pub instance: String,
    /// What the owner executes.
    pub image: String,
}

impl Keep {
    /// Of a region whose bytes come from `source`.
    #[must_use]
    pub fn of(facts: &Facts, source: Source) -> Self {
        let role = if facts.id < FIRST_PROGRAM_REGION { Role::Own } else { Role::Program };
        let Facts { schema, instance, owner: Peer { process, image, .. }, .. } = facts.clone();
        Self { source, role, start_ticks: process.start_ticks, schema, instance, image }
    }
}

fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[allow(clippy::cast_possible_truncation)] // halves are meant
const fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn words16(bytes: [u8; 16]) -> [u64; 2] {
    std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|at| bytes[word * 8 + at])))
}

fn bytes16(words: &[u64]) -> [u8; 16] {
    std::array::from_fn(|at| words[at / 8].to_le_bytes()[at % 8])
}

fn guarded(number: u32, now_ns: u64, payload: &[u64]) -> Bytes {
    let words = [const { AtomicU64::new(0) }; BLOCK_WORDS];
    guard::commit(&words, Identity::first(number, GENERATION), now_ns, |to| to.set_all(0, payload));
    let mut bytes = [0; BLOCK_BYTES];
    for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&words) {
        *to = word.load(Ordering::Relaxed).to_le_bytes();
    }
    bytes
}

fn payload(number: u32, bytes: &Bytes) -> Option<[u64; GUARDED_SLOTS]> {
    let mut block = Block::default();
    block.bytes_mut().copy_from_slice(bytes);
    guard::check(&block, Identity::first(number, GENERATION)).ok()?;
    block.payload().try_into().ok()
}

impl Header {
    /// As it stands in the ledger.
    #[must_use]
    pub fn encode(&self, now_ns: u64) -> Bytes {
        let mut words = [0; GUARDED_SLOTS];
        let boot = words16(self.boot_id);
        words[..OWNERS_AT].copy_from_slice(&[
            MAGIC,
            LAYOUT,
            boot[0],
            boot[1],
            self.control.va,
            halves(self.control.rkey, self.incarnation),
            0,
        ]);
        for (uid, slab) in &self.slabs {
            if let Some(word) = words.get_mut(OWNERS_AT + *slab as usize) {
                *word = halves(*uid, 1);
            }
        }
        guarded(HEADER, now_ns, &words)
    }

    /// The reverse; `None` for what is damaged or of another layout.
    #[must_use]
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let words = payload(HEADER, bytes)?;
        if words[..2] != [MAGIC, LAYOUT] {
            return None;
        }
        let (rkey, incarnation) = split(words[5]);
        let owners = (0..SLABS).zip(&words[OWNERS_AT..]).filter_map(|(slab, word)| {
            let (uid, taken) = split(*word);
            (taken == 1).then_some((uid, slab))
        });
        let whole = (1..=onlooker_region::limits::MAX_GENERATION).contains(&incarnation);
        whole.then(|| Self {
            boot_id: bytes16(&words[2..]),
            control: Address { va: words[4], rkey },
            incarnation,
            slabs: owners.collect(),
        })
    }
}

impl Record {
    /// Number of the region's block.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.entry.identity.region
    }

    /// What entry and ledger say of the region together.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let (entry, Keep { start_ticks, schema, instance, image, .. }) = (&self.entry, self.keep.clone());
        let process = Process { pid: entry.pid, start_ticks };
        Facts {
            id: entry.identity.region,
            generation: entry.identity.generation,
            name: entry.name.clone(),
            instance,
            labels: entry.labels.iter().cloned().collect(),
            schema,
            owner: Peer { process, uid: entry.uid, image },
            created_ns: entry.created_ns,
        }
    }

    /// Slot of its entry.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        match self.stage {
            Stage::Hidden => None,
            Stage::Published { slot } | Stage::Removed { slot } => Some(slot),
        }
    }

    /// As it stands in the ledger; `None` for texts that do not fit, which registration does not let in.
    #[must_use]
    pub fn encode(&self, now_ns: u64) -> Option<Bytes> {
        let Keep { source, role, start_ticks, schema, instance, image } = &self.keep;
        let mut words = [0; GUARDED_SLOTS];
        words[..ENTRY_WORDS].copy_from_slice(&self.entry.to_words().ok()?);
        let (stage, slot) = match self.stage {
            Stage::Hidden => (1, 0),
            Stage::Published { slot } => (2, slot),
            Stage::Removed { slot } => (3, slot),
        };
        let (kind, place, offset, bytes) = match *source {
            Source::Slab { slab, range } => (0, slab, range.offset, range.bytes),
            Source::Computed { collector } => (1, collector, 0, 0),
        };
        let own = u32::from(*role == Role::Own);
        words[EXTRA_AT..TEXTS_AT].copy_from_slice(&[
            LAYOUT,
            halves(stage, own),
            u64::try_from(slot).ok()?,
            halves(kind, place),
            offset,
            bytes,
            *start_ticks,
            halves(schema.text_bytes, schema.blocks),
        ]);
        let mut texts = Vec::new();
        for text in [instance, image] {
            texts.extend_from_slice(&u16::try_from(text.len()).ok()?.to_le_bytes());
            texts.extend_from_slice(text.as_bytes());
        }
        let room = &mut words[TEXTS_AT..];
        if texts.len() > room.len() * 8 {
            return None;
        }
        texts.resize(room.len() * 8, 0);
        for (word, bytes) in room.iter_mut().zip(texts.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(guarded(self.number(), now_ns, &words))
    }

    /// The reverse; `None` for what is damaged, of another layout, or impossible.
    #[must_use]
    pub fn decode(number: u32, bytes: &Bytes) -> Option<Self> {
        let words = payload(number, bytes)?;
        let entry = RegionEntry::from_words(words.first_chunk()?)?;
        let extra: &[u64; TEXTS_AT - EXTRA_AT] = words[EXTRA_AT..].first_chunk()?;
        if extra[0] != LAYOUT || entry.identity.region != number {
            return None;
        }
        let slot = usize::try_from(extra[2]).ok()?;
        let (stage, own) = split(extra[1]);
        let stage = match stage {
            1 => Stage::Hidden,
            2 => Stage::Published { slot },
            3 => Stage::Removed { slot },
            _ => return None,
        };
        let (kind, place) = split(extra[3]);
        let source = match kind {
            0 => Source::Slab { slab: place, range: Range { offset: extra[4], bytes: extra[5] } },
            1 => Source::Computed { collector: place },
            _ => return None,
        };
        let (text_bytes, blocks) = split(extra[7]);
        let texts: Vec<u8> = words[TEXTS_AT..].iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut rest = texts.as_slice();
        let mut text = || {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let (text, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
            rest = after;
            String::from_utf8(text.to_vec()).ok()
        };
        let (instance, image) = (text()?, text()?);
        let role = if own == 1 { Role::Own } else { Role::Program };
        let schema = SchemaRef { id: entry.schema, text_bytes, blocks };
        let whole = schema.region_bytes() == entry.bytes;
        let keep = Keep { source, role, start_ticks: extra[6], schema, instance, image };
        whole.then_some(Self { entry, stage, keep })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use onlooker_region::SchemaId;

    pub(crate) fn record(number: u32, slot: usize, offset: u64) -> Record {
        let entry = RegionEntry {
            identity: Identity::first(number, 77),
            va: u64::from(number) << 32,
            bytes: 3072,
            rkey: 1000 + number,
            device_rkey: 0,
            responders: 3,
            schema: SchemaId([5; 16]),
            pid: 4242,
            uid: 1000,
            created_ns: 99,
            orphan: false,
            name: "shop".into(),
            labels: vec![("pid".into(), "4242".into()), ("shard".into(), "3".into())],
        };
        let keep = Keep {
            source: Source::Slab { slab: 2, range: Range { offset, bytes: 4096 } },
            role: Role::Program,
            start_ticks: 123_456,
            schema: SchemaRef { id: entry.schema, text_bytes: 300, blocks: 3 },
            instance: "i".repeat(256),
            image: "sixteen-letters\u{0}18446744073709551615:18446744073709551615".into(),
        };
        Record { entry, stage: Stage::Published { slot }, keep }
    }

    #[test]
    fn records_survive_their_bytes() {
        let mut own = record(3, 0, 0);
        own.keep.source = Source::Computed { collector: 5 };
        own.keep.role = Role::Own;
        own.stage = Stage::Hidden;
        let mut removed = record(4, 9, 8192);
        removed.stage = Stage::Removed { slot: 9 };
        for record in [record(17, 8191, 4096), own, removed] {
            let bytes = record.encode(7).unwrap();
            assert_eq!(Record::decode(record.number(), &bytes).as_ref(), Some(&record));
            assert_eq!(Record::decode(record.number() + 1, &bytes), None, "a block of another number");
        }
        let mut long = record(17, 0, 0);
        long.keep.instance = "x".repeat(500);
        assert_eq!(long.encode(7), None);
    }

    #[test]
    fn the_header_survives_its_bytes() {
        let header = Header {
            boot_id: [9; 16],
            control: Address { va: 0xdead_0000_0020_0000, rkey: 77 },
            incarnation: 5,
            slabs: BTreeMap::from([(0, 2), (1000, 63), (u32::MAX, 3)]),
        };
        assert_eq!(Header::decode(&header.encode(1)), Some(header));
    }

    #[test]
    fn no_damage_is_taken_for_a_block() {
        let good = record(17, 3, 0).encode(7).unwrap();
        let header =
            Header { boot_id: [1; 16], control: Address { va: 0, rkey: 1 }, incarnation: 1, slabs: BTreeMap::new() };
        let good_header = header.encode(7);
        bolero::check!().with_type::<(u16, u8)>().for_each(|(at, change)| {
            let at = usize::from(*at) % BLOCK_BYTES;
            for (bytes, whole) in [(&good, 17), (&good_header, HEADER)] {
                let mut bytes = *bytes;
                bytes[at] ^= change;
                let accepted = if whole == HEADER {
                    Header::decode(&bytes).is_some()
                } else {
                    Record::decode(whole, &bytes).is_some()
                };
                assert_eq!(accepted, *change == 0);
            }
        });
        assert_eq!(Record::decode(17, &[0; BLOCK_BYTES]), None);
        assert_eq!(Header::decode(&good), None);
    }
}
