// SPDX-License-Identifier: Apache-2.0
//! Frames in, columns out: the hot ring and the warm log.
//!
//! A *track* is a series of rows of one width: one region of one host, or one table. Rows are appended to a ring on tmpfs ([`ring`]), which survives the end
//! of the process; sealed by columns into tiles, many tracks' together ([`mod@column`], [`record`]), in an append-only log ([`log`]), which survives the
//! machine's; read back from both by [`Store`]. What a row means is its user's business: the store keeps a track's description as bytes.
//!
//! Cost: see the module docs; a row is copied and summed once when appended, encoded once when sealed.
#![deny(unsafe_code)]

mod arena;
mod batch;
mod batches;
mod catalogue;
pub mod column;
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
pub use error::{Damage, StoreError};
pub use record::{Gap, TrackId};
pub use ring::{Appender, Full, ring_bytes, ring_rows, steady_ns};
pub use store::{Config, DAMAGED, Recovery, Rows, Sealed, Store, Writer};
