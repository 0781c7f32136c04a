// SPDX-License-Identifier: Apache-2.0
//! Format v1: the memory that Onlooker reads.
//!
//! What the bytes mean is fixed by `docs/format/`; this crate is its Rust side. Programs and agents write (`guard`,
//! `table`, `control::ControlWriter`), responders copy ([`map`]), readers check ([`guard::check`], [`checked`]) and
//! decode ([`control::Directory`], [`columns`], [`compiled`]). A reader never holds a reference into foreign memory: it copies whole
//! blocks first, then checks, then decodes.
//!
//! No I/O except in [`map`], which is also the only module with unsafe code.
#![deny(unsafe_code)]

#[cfg(not(target_endian = "little"))]
compile_error!("format v1 is little-endian; big-endian hosts are not supported");

pub mod block;
pub mod checked;
pub mod columns;
pub mod compiled;
pub mod control;
mod decode;
pub mod guard;
pub mod histogram;
pub mod labels;
pub mod limits;
#[cfg(not(loom))]
pub mod map;
pub mod number;
pub mod schema;
pub mod slab;
pub mod sync;
pub mod table;

pub use block::{Block, Identity};
pub use checked::Checked;
pub use guard::Reject;
pub use schema::{Schema, SchemaId};
