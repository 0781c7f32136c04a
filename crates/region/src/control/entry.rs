// SPDX-License-Identifier: Apache-2.0
//! Header and entries as words.

use super::{ControlError, FORMAT_VERSION};
use crate::block::Identity;
use crate::guard::Payload;
use crate::limits::{
    BLOCK_BYTES, ENTRY_LABEL_BYTES, MAX_ENTRY_BLOCKS, MAX_LABEL_VALUE_BYTES, MAX_LABELS, MAX_REGION_BLOCKS,
    MAX_SCHEMA_BYTES,
};
use crate::schema::{Acquisition, Group, SchemaId};
use crate::table::{put_text, text_of};

/// Words of an entry.
pub const ENTRY_WORDS: usize = 62;
/// Entries of an entry block.
pub(super) const ENTRIES_PER_BLOCK: usize = 2;
/// Numbers in the change ring.
pub(super) const RING: usize = 64;
const RING_AT: usize = 60;
const DEVICE_KEY_AT: usize = 9;
const NAME_AT: usize = 10;
const LABELS_AT: usize = 26;
/// Bytes of each part of a table but its last.
pub const TABLE_PART_BYTES: u64 = 1 << 30;
const MAGIC: u64 = u64::from_le_bytes(*b"ONLOOKER");

/// Served by the agent over TCP.
pub const RESPONDER_TCP: u32 = 1;
/// Served by the kernel responder.
pub const RESPONDER_KERNEL: u32 = 1 << 1;
/// Served by an RDMA device, which has keys of its own ([`RegionEntry::device_rkey`]).
pub const RESPONDER_VERBS: u32 = 1 << 2;

fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[allow(clippy::cast_possible_truncation)] // halves are meant
fn split(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn bytes16(words: &[u64]) -> [u8; 16] {
    std::array::from_fn(|i| words[i / 8].to_le_bytes()[i % 8])
}

fn words16(bytes: [u8; 16]) -> [u64; 2] {
    std::array::from_fn(|w| u64::from_le_bytes(std::array::from_fn(|i| bytes[w * 8 + i])))
}

/// Block 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Goes up with each committed entry block.
    pub generation: u64,
    /// Made from the machine id.
    pub host_id: [u8; 16],
    /// The kernel's boot id.
    pub boot_id: [u8; 16],
    /// Entry blocks in use.
    pub entry_blocks: u32,
    /// Entries that are not free.
    pub live: u32,
    /// First block of the schema area.
    pub schema_first: u32,
    /// Blocks of it in use.
    pub schema_blocks: u32,
    /// Blocks of the whole control region.
    pub blocks: u32,
    /// When this agent incarnation began, CLOCK_BOOTTIME ns.
    pub began_ns: u64,
    /// Entry block that generation g committed, at g % 64.
    pub ring: [u32; RING],
}

impl Header {
    /// Entry block that a generation committed, as long as it is among the last 64.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // below 64
    pub fn ring_at(&self, generation: u64) -> u32 {
        self.ring[(generation % RING as u64) as usize]
    }

    pub(super) fn encode(&self, payload: &mut Payload) {
        let (host, boot) = (words16(self.host_id), words16(self.boot_id));
        payload.set_all(
            0,
            &[
                MAGIC,
                halves(FORMAT_VERSION, u32::try_from(BLOCK_BYTES).expect("1024")),
                self.generation,
                host[0],
                host[1],
                boot[0],
                boot[1],
                halves(self.entry_blocks, self.live),
                halves(self.schema_first, self.schema_blocks),
                u64::from(self.blocks),
                self.began_ns,
            ],
        );
        for (i, pair) in self.ring.chunks_exact(2).enumerate() {
            payload.set(RING_AT + i, halves(pair[0], pair[1]));
        }
    }

    /// Decodes and checks an accepted payload.
    ///
    /// # Errors
    /// [`ControlError::Magic`], [`ControlError::Version`], [`ControlError::Header`].
    pub fn decode(payload: &[u64]) -> Result<Self, ControlError> {
        if payload[0] != MAGIC {
            return Err(ControlError::Magic);
        }
        let (version, block_bytes) = split(payload[1]);
        if version != FORMAT_VERSION {
            return Err(ControlError::Version(version));
        }
        let most = |what, got: u32, limit: u32| match got <= limit {
            true => Ok(got),
            false => Err(ControlError::Header { what, got: got.into(), limit: limit.into() }),
        };
        let (entry_blocks, live) = split(payload[7]);
        let (schema_first, schema_blocks) = split(payload[8]);
        let (blocks, _) = split(payload[9]);
        most("block_bytes", block_bytes, 1024)?;
        most("blocks", blocks, MAX_REGION_BLOCKS)?;
        most("entry_blocks", entry_blocks, MAX_ENTRY_BLOCKS.min(blocks.saturating_sub(1)))?;
        most("live", live, entry_blocks * 2)?;
        most("schema_first", schema_first, blocks)?;
        most("schema_blocks", schema_blocks, blocks - schema_first)?;
        let mut ring = [0; RING];
        for (i, pair) in ring.chunks_exact_mut(2).enumerate() {
            (pair[0], pair[1]) = split(payload[RING_AT + i]);
        }
        Ok(Self {
            generation: payload[2],
            host_id: bytes16(&payload[3..]),
            boot_id: bytes16(&payload[5..]),
            entry_blocks,
            live,
            schema_first,
            schema_blocks,
            blocks,
            began_ns: payload[10],
            ring,
        })
    }
}

/// A data region as the directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionEntry {
    /// Identity of its block 0.
    pub identity: Identity,
    /// Address for READs.
    pub va: u64,
    /// Length, a multiple of 1024.
    pub bytes: u64,
    /// Key for READs.
    pub rkey: u32,
    /// Key for READs that an RDMA device answers: it makes its own. 0: none.
    pub device_rkey: u32,
    /// Who answers: RESPONDER_* bits.
    pub responders: u32,
    /// Its class.
    pub schema: SchemaId,
    /// Owner's process.
    pub pid: u32,
    /// Owner's user.
    pub uid: u32,
    /// Creation, CLOCK_BOOTTIME ns.
    pub created_ns: u64,
    /// The owner is gone, the region in its grace.
    pub orphan: bool,
    /// Region name.
    pub name: String,
    /// Labels of every series of this region.
    pub labels: Vec<(String, String)>,
}

impl RegionEntry {
    /// As it stands in an entry block.
    ///
    /// # Errors
    /// [`ControlError::LabelsTooLong`].
    pub fn to_words(&self) -> Result<[u64; ENTRY_WORDS], ControlError> {
        let mut words = [0; ENTRY_WORDS];
        words[0] = 1 | u64::from(self.orphan) << 8;
        words[1] = self.identity.word();
        words[2] = self.va;
        words[3] = self.bytes;
        words[4] = halves(self.rkey, self.responders);
        words[5..7].copy_from_slice(&words16(self.schema.0));
        words[7] = halves(self.pid, self.uid);
        words[8] = self.created_ns;
        words[DEVICE_KEY_AT] = halves(self.device_rkey, 0);
        put_text(&mut words[NAME_AT..LABELS_AT], &self.name);
        words[LABELS_AT..].copy_from_slice(&pack_labels(&self.labels)?);
        Ok(words)
    }

    /// How a group's values get there, as far as anybody vouches for it: a program's region is written by the program, whatever its schema says.
    #[must_use]
    pub fn acquisition(&self, group: &Group) -> Acquisition {
        if self.identity.is_agents() { group.acquisition } else { Acquisition::Direct }
    }

    /// The reverse of [`RegionEntry::to_words`]; `None` for what is not a region's entry, or cannot be right.
    #[must_use]
    pub fn from_words(words: &[u64; ENTRY_WORDS]) -> Option<Self> {
        match Entry::decode(words) {
            Entry::Region(region) => Some(region),
            _ => None,
        }
    }
}

/// A schema's text as the directory has it. It lies in the control region, whose keys are its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaEntry {
    /// Id that the text must hash to.
    pub id: SchemaId,
    /// Address of its first block.
    pub va: u64,
    /// Key for READs.
    pub rkey: u32,
    /// Who answers: RESPONDER_* bits.
    pub responders: u32,
    /// Time of creation, CLOCK_BOOTTIME ns.
    pub created_ns: u64,
    /// Length of the text.
    pub bytes: u64,
    /// Class name.
    pub name: String,
}

/// A table of telemetry reports, or a part of one (docs/format/dta.md). No guarded blocks: whoever asks reads a key's entries, not all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// What it is like; `onlooker_dta::Geometry` says what the bits mean.
    pub geometry: u64,
    /// Of its keys' hash.
    pub seed: [u8; 16],
    /// Its number, which reports name.
    pub number: u16,
    /// Which part of the table this is, each of [`TABLE_PART_BYTES`] but the last.
    pub part: u8,
    /// Address for READs.
    pub va: u64,
    /// Length, a multiple of 1024.
    pub bytes: u64,
    /// Key for READs.
    pub rkey: u32,
    /// Who answers: RESPONDER_* bits.
    pub responders: u32,
    /// When it became readable here, CLOCK_BOOTTIME ns.
    pub created_ns: u64,
    /// Its name.
    pub name: String,
}

impl TableEntry {
    fn to_words(&self) -> [u64; ENTRY_WORDS] {
        let mut words = [0; ENTRY_WORDS];
        words[0] = 3;
        words[1] = self.geometry;
        words[2] = self.va;
        words[3] = self.bytes;
        words[4] = halves(self.rkey, self.responders);
        words[5..7].copy_from_slice(&words16(self.seed));
        words[7] = u64::from(self.number) | u64::from(self.part) << 16;
        words[8] = self.created_ns;
        put_text(&mut words[NAME_AT..LABELS_AT], &self.name);
        words
    }
}

/// One slot of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    #[default]
    Free,
    /// A data region.
    Region(RegionEntry),
    /// A schema.
    Schema(SchemaEntry),
    /// A table of telemetry reports.
    Table(TableEntry),
    /// What cannot be right, and why; a reader leaves it alone.
    Refused(&'static str),
}

impl Entry {
    pub(super) fn encode(&self) -> Result<[u64; ENTRY_WORDS], ControlError> {
        let mut words = [0; ENTRY_WORDS];
        match self {
            Self::Free | Self::Refused(_) => {}
            Self::Region(region) => return region.to_words(),
            Self::Table(table) => return Ok(table.to_words()),
            Self::Schema(schema) => {
                words[0] = 2;
                words[2] = schema.va;
                words[3] = schema.bytes;
                words[4] = halves(schema.rkey, schema.responders);
                words[5..7].copy_from_slice(&words16(schema.id.0));
                words[8] = schema.created_ns;
                put_text(&mut words[NAME_AT..LABELS_AT], &schema.name);
            }
        }
        Ok(words)
    }

    pub(super) fn decode(words: &[u64]) -> Self {
        match words[0] & 0xff {
            0 => Self::Free,
            1 => decode_region(words).map_or_else(Self::Refused, Self::Region),
            2 => decode_schema(words).map_or_else(Self::Refused, Self::Schema),
            3 => decode_table(words).map_or_else(Self::Refused, Self::Table),
            _ => Self::Refused("unknown kind"),
        }
    }
}

fn decode_region(words: &[u64]) -> Result<RegionEntry, &'static str> {
    let identity = Identity::from_word(words[1])
        .filter(|i| i.region != 0 && i.index == 0)
        .ok_or("identity is not a data region's")?;
    let (va, bytes) = (words[2], words[3]);
    if bytes == 0 || bytes % BLOCK_BYTES as u64 != 0 || bytes / BLOCK_BYTES as u64 > u64::from(MAX_REGION_BLOCKS) {
        return Err("length is not 1 to 65536 blocks");
    }
    if va % BLOCK_BYTES as u64 != 0 || va.checked_add(bytes).is_none() {
        return Err("address is unaligned or overflows");
    }
    let (rkey, responders) = split(words[4]);
    let (device_rkey, _) = split(words[DEVICE_KEY_AT]);
    let (pid, uid) = split(words[7]);
    let name = text_of(&words[NAME_AT..LABELS_AT]);
    crate::schema::check_name(&name).map_err(|_| "name is not a metric name")?;
    Ok(RegionEntry {
        identity,
        va,
        bytes,
        rkey,
        device_rkey,
        responders,
        schema: SchemaId(bytes16(&words[5..])),
        pid,
        uid,
        created_ns: words[8],
        orphan: words[0] >> 8 & 1 != 0,
        name,
        labels: unpack_labels(&words[LABELS_AT..ENTRY_WORDS])?,
    })
}

fn decode_schema(words: &[u64]) -> Result<SchemaEntry, &'static str> {
    let bytes = words[3];
    if bytes == 0 || bytes > MAX_SCHEMA_BYTES as u64 {
        return Err("schema length is not 1 to 65536 bytes");
    }
    let (rkey, responders) = split(words[4]);
    let name = text_of(&words[NAME_AT..LABELS_AT]);
    crate::schema::check_name(&name).map_err(|_| "name is not a metric name")?;
    Ok(SchemaEntry {
        id: SchemaId(bytes16(&words[5..])),
        va: words[2],
        rkey,
        responders,
        created_ns: words[8],
        bytes,
        name,
    })
}

fn decode_table(words: &[u64]) -> Result<TableEntry, &'static str> {
    let (va, bytes) = (words[2], words[3]);
    if bytes == 0 || bytes % BLOCK_BYTES as u64 != 0 || bytes > TABLE_PART_BYTES {
        return Err("length is not 1 to 1048576 blocks");
    }
    if va % BLOCK_BYTES as u64 != 0 || va.checked_add(bytes).is_none() {
        return Err("address is unaligned or overflows");
    }
    let name = text_of(&words[NAME_AT..LABELS_AT]);
    crate::schema::check_name(&name).map_err(|_| "name is not a metric name")?;
    let (rkey, responders) = split(words[4]);
    let [low, high, part, ..] = words[7].to_le_bytes();
    Ok(TableEntry {
        geometry: words[1],
        seed: bytes16(&words[5..]),
        number: u16::from_le_bytes([low, high]),
        part,
        va,
        bytes,
        rkey,
        responders,
        created_ns: words[8],
        name,
    })
}

/// Labels as an entry has them: `key NUL value NUL` repeated, sorted by key.
///
/// # Errors
/// [`ControlError::LabelsTooLong`] with the bytes that would be needed.
pub fn pack_labels(labels: &[(String, String)]) -> Result<[u64; ENTRY_WORDS - LABELS_AT], ControlError> {
    let mut labels: Vec<_> = labels.iter().collect();
    labels.sort_unstable();
    let packed: String = labels.iter().map(|(name, value)| format!("{name}\0{value}\0")).collect();
    if packed.len() > ENTRY_LABEL_BYTES {
        return Err(ControlError::LabelsTooLong(packed.len()));
    }
    let mut words = [0; ENTRY_WORDS - LABELS_AT];
    put_text(&mut words, &packed);
    Ok(words)
}

fn unpack_labels(words: &[u64]) -> Result<Vec<(String, String)>, &'static str> {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut parts = bytes.split(|b| *b == 0).map(String::from_utf8_lossy);
    let mut labels: Vec<(String, String)> = Vec::new();
    while let Some(name) = parts.next().filter(|name| !name.is_empty()) {
        let value = parts.next().ok_or("labels are cut off")?;
        if crate::schema::check_label(&name).is_err() || value.len() > MAX_LABEL_VALUE_BYTES {
            return Err("a label is not one");
        }
        if labels.iter().any(|(known, _)| *known == name) {
            return Err("a label is given twice");
        }
        labels.push((name.into_owned(), value.into_owned()));
    }
    if labels.len() > MAX_LABELS { Err("more labels than MAX_LABELS") } else { Ok(labels) }
}
