// SPDX-License-Identifier: Apache-2.0
//! Frames in, columns out: the hot ring and the warm log.
//!
//! A *track* has the rows of one entity: a group of one region of one host, or one row of a table. Rows are appended to a
//! ring on tmpfs ([`ring`]), which survives the end of the process; sealed by columns into tiles, many tracks' together
//! ([`mod@column`], [`record`]), in an append-only log ([`log`]), which survives the end of the machine; read back from
//! both by [`Store`]. What a row means is in the track's [`Description`]: host, region, and its series by name and labels.
//!
//! Cost: see the module docs; a row is copied and summed once when appended, encoded once when sealed.
#![deny(unsafe_code)]

mod arena;
mod batch;
mod batches;
mod catalogue;
pub mod column;
mod description;
mod error;
mod gaps;
mod index;
pub mod log;
mod mapping;
mod private;
pub mod record;
pub mod ring;
mod store;

pub use column::Kind;
pub use description::{Description, Packed};
pub use error::{Damage, StoreError};
pub use record::{Gap, TrackId};
pub use ring::{Appender, Full, ring_bytes, ring_rows, steady_ns};
pub use store::{Config, DAMAGED, Recovery, Rows, Sealed, Store, Writer};

// What integration tests share is used by unit tests, too, under the crate's outer name.
#[cfg(test)]
extern crate self as onlooker_store;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
