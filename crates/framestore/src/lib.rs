// SPDX-License-Identifier: Apache-2.0
//! The frame store: rows of hosts in, columns of series out.
//!
//! The packet's way on: a checked frame becomes words of a *row* (`layout`), the row goes into a *ring* in memory that
//! outlives the process (`ring`), from there as differences into the *head* of its track (`row`, `head`) and, the same
//! bytes, into the *write-ahead log* (`wal`). A head that is full becomes a *warm chunk* of columns (`chunk`, `warm`),
//! chunks of an hour become *cold* Parquet (`cold`), and *rollups* stay when raw samples have gone. What tracks are
//! stands in the *catalogue*. `store` puts them together; `client` is where rows come in.

pub mod catalogue;
pub mod chunk;
pub mod client;
pub mod cold;
pub mod column;
pub mod damage;
pub mod events;
pub mod export;
#[cfg(test)]
mod fixture;
pub mod framing;
mod gaps;
pub mod head;
pub mod inspect;
pub mod layout;
pub mod migrate;
pub mod ring;
pub mod rollup;
pub mod row;
pub mod store;
mod told;
pub mod types;
pub mod wal;
pub mod warm;

pub use store::{
    Bucket, Columns, Config, Cooled, Cooler, Decoded, Fall, Named, Order, Recovery, Run, Sample, Store, Thinned,
    Thinner, Turned, Visit, Writer, open,
};
