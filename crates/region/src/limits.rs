// SPDX-License-Identifier: Apache-2.0
//! Every limit of format v1, by the name that error messages and `docs/format/` use.

/// Bytes of a block: unit of alignment, consistency, one READ, one answer packet, one credit.
pub const BLOCK_BYTES: usize = 1024;
/// Words (8 bytes) of a block.
pub const BLOCK_WORDS: usize = BLOCK_BYTES / 8;
/// Value words of a plain block (all but the identity).
pub const PLAIN_SLOTS: usize = BLOCK_WORDS - 1;
/// Payload words of a guarded block (all but version, time, identity and tail).
pub const GUARDED_SLOTS: usize = BLOCK_WORDS - 4;
/// Payload bytes of a guarded block.
pub const GUARDED_BYTES: usize = GUARDED_SLOTS * 8;
/// Blocks of one region: the identity word has 16 bits for the index.
pub const MAX_REGION_BLOCKS: u32 = 1 << 16;
/// Largest region id: 24 bits of the identity word.
pub const MAX_REGION_ID: u32 = (1 << 24) - 1;
/// Region ids below this one are those of the agent's own regions (the control region's 0 among them): programs never get them, so what a region of a
/// program says of itself cannot be taken for the agent's word.
pub const FIRST_PROGRAM_REGION: u32 = 256;
/// Largest generation: 24 bits of the identity word.
pub const MAX_GENERATION: u32 = (1 << 24) - 1;

/// Bytes of a schema in canonical form.
pub const MAX_SCHEMA_BYTES: usize = 65_536;
/// Groups of a schema.
pub const MAX_GROUPS: usize = 64;
/// Fields of a schema, all groups together.
pub const MAX_FIELDS: usize = 4_096;
/// Fields with their arrays multiplied out; a histogram counts as one.
pub const MAX_COLUMNS: usize = 65_536;
/// Bytes of a class, region, metric or label name.
pub const MAX_NAME_BYTES: usize = 128;
/// Bytes of a label value.
pub const MAX_LABEL_VALUE_BYTES: usize = 256;
/// Labels of one field, and of one region.
pub const MAX_LABELS: usize = 16;
/// Bytes of a help text.
pub const MAX_HELP_BYTES: usize = 512;
/// Bytes of a unit.
pub const MAX_UNIT_BYTES: usize = 32;
/// Parts of a table's key.
pub const MAX_KEY_PARTS: usize = 8;
/// Bytes of a table's key, all parts together.
pub const MAX_KEY_BYTES: usize = 64;
/// Buckets of a histogram.
pub const MAX_HISTOGRAM_BUCKETS: usize = 4_096;

/// Entry blocks of a control region (two entries each).
pub const MAX_ENTRY_BLOCKS: u32 = 4_096;
/// Bytes that an entry has for its region's labels.
pub const ENTRY_LABEL_BYTES: usize = 288;

const _: () = assert!(MAX_KEY_BYTES / 8 < GUARDED_SLOTS - 1, "a row of the widest key has room for a value");
const _: () = assert!(MAX_LABEL_VALUE_BYTES < ENTRY_LABEL_BYTES, "an entry holds at least one longest label value");
