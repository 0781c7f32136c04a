// SPDX-License-Identifier: Apache-2.0
//! The control region: a host's directory (docs/format/control.md).
//!
//! Written by the agent ([`ControlWriter`]), read by controllers ([`Directory`]), who trust nothing that it says. `entry` has the encodings.

mod entry;
mod reader;
mod resume;
mod writer;

pub use entry::{
    ENTRY_WORDS, Entry, Header, RESPONDER_KERNEL, RESPONDER_TCP, RESPONDER_VERBS, RegionEntry, SchemaEntry,
    TABLE_PART_BYTES, TableEntry, pack_labels,
};
pub use reader::{Directory, assemble_schema, schema_extent};
pub use resume::Resumed;
pub use writer::{ControlWriter, Place};

use crate::guard::Reject;
use crate::limits::ENTRY_LABEL_BYTES;
use crate::schema::SchemaError;

/// Region id of the control region itself.
pub const CONTROL_REGION: u32 = 0;
/// Name of the agent's own region that has the fields of several of its computed regions again, side by side in few blocks
/// (docs/kernel-metrics.md). Whoever reads it need not read those.
pub const PACKED_REGION: &str = "node_packed";
/// Version that header blocks carry.
pub const FORMAT_VERSION: u32 = 1;

/// What is wrong with a control region, or with a request to change one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// A block was not accepted.
    #[error("control block {index}: {reject}")]
    Block {
        /// Which.
        index: u32,
        /// Why.
        reject: Reject,
    },
    /// No Onlooker control region.
    #[error("control block 0 has no ONLOOKER magic: is this address a control region?")]
    Magic,
    /// Another format.
    #[error("control region has format version {0}, this reader knows 1: upgrade the older side")]
    Version(u32),
    /// The header contradicts itself or a limit.
    #[error("control header: {what} is {got}, at most {limit} is possible")]
    Header {
        /// Which number.
        what: &'static str,
        /// Its value.
        got: u64,
        /// What it could be at most.
        limit: u64,
    },
    /// An entry contradicts itself or a limit.
    #[error("control entry {slot}: {what}")]
    Entry {
        /// Entry number.
        slot: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A schema's text is not what its id promises.
    #[error("schema {id}: {what}")]
    SchemaText {
        /// Schema id in hex.
        id: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A schema that breaks a rule.
    #[error("schema {id}: {error}")]
    Schema {
        /// Schema id in hex.
        id: String,
        /// Which rule.
        error: SchemaError,
    },
    /// No room for another entry.
    #[error("the control region is full: {0} entries")]
    NoEntry(usize),
    /// No room for another schema.
    #[error("the control region has no room for another schema of {0} bytes")]
    NoSchemaRoom(usize),
    /// Labels do not fit.
    #[error("the region's labels take {0} bytes, an entry has {ENTRY_LABEL_BYTES}")]
    LabelsTooLong(usize),
}

#[cfg(all(test, not(loom)))]
mod tests;
