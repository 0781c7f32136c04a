// SPDX-License-Identifier: Apache-2.0
//! Publish a program's metrics through memory.
//!
//! A program keeps its metrics in words of its own memory and changes them with plain atomic instructions. The SDK moves that memory, at the same
//! addresses, onto a range that the Onlooker agent hands out; readers fetch it from there without waking the program. Without an agent everything works
//! the same and nobody looks. User guide: `docs/sdk-rust.md`; formats: `docs/format/`.
//!
//! ```
//! use onlooker_sdk::{Elements, Metric, Region};
//!
//! # fn main() -> Result<(), onlooker_sdk::OpenError> {
//! let mut shop = Region::builder("shop");
//! let requests = shop.counter(Metric::new("shop_requests_total").help("Requests served."));
//! let jobs = shop.counters("shop_jobs_total", Elements::new("worker", 8).spread());
//! let latency = shop.histogram(Metric::new("shop_latency_seconds").unit("seconds").scale(1e-9), 3, 40);
//! let (cart, (items, value)) =
//!     shop.guarded(|cart| (cart.counter::<u64>("shop_items_total"), cart.gauge::<f64>("shop_cart_value")));
//! let shop = shop.open()?;
//!
//! let (requests, jobs, latency, cart) = (shop.get(requests), shop.get(jobs), shop.get(latency), shop.get(cart));
//! requests.inc();
//! jobs.get(3).expect("8 workers").add(2);
//! latency.record(12_345);
//! cart.commit(|cart| {
//!     cart.add(items, 1);
//!     cart.set(value, 9.99);
//! });
//! assert_eq!(requests.value(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Who writes what: values are written by the program's threads; identities and the exchange of memory by the SDK's thread (`thread`); readers only
//! read. All unsafe code is in `placement`, and the two attributes that [`globals!`] needs.
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_endian = "little", target_pointer_width = "64")))]
compile_error!("onlooker-sdk needs Linux on a 64-bit little-endian machine");

mod bell;
mod builder;
mod client;
mod fork;
mod globals;
mod guarded;
mod histogram;
mod metric;
mod open;
mod owner;
mod placement;
mod plain;
mod publish;
mod region;
mod sdk;
mod switch;
mod table;
mod thread;
mod turn;
mod words;

pub use builder::{Builder, Elements, OpenError};
pub use guarded::{Fields, Guarded, Slot, TextSlot, Values};
pub use histogram::{Histogram, HistogramWords, histogram_slots};
pub use metric::Metric;
pub use open::{Published, Region, Token};
pub use placement::PlaceError;
pub use placement::handle::Handle;
pub use plain::Array;
pub use sdk::{Fork, State, Status};
pub use table::{Full, Key, Part, Row, Rows, Text};
pub use words::{Counter, Gauge, Number, UpDown, Word};

/// For the code that macros make.
#[doc(hidden)]
pub mod __private {
    pub use crate::globals::{GlobalField, GlobalInfo, Node, register};
    pub use crate::placement::{Base, Statics};
}

/// Publishes the globals of the program ([`globals!`]); regions that are opened publish themselves. Does not wait for the agent, and never fails: see
/// [`status`].
pub fn start() {
    publish::start();
}

/// What the SDK does, how many regions are published, and the last error.
#[must_use]
pub fn status() -> Status {
    sdk::SDK.status()
}

/// Waits until every region is published; false after `timeout`. For tests and short-lived programs.
#[must_use]
pub fn wait(timeout: std::time::Duration) -> bool {
    sdk::SDK.wait(timeout)
}

/// What forked children do. Called before the fork, or in a detached child that wants to publish after all.
pub fn follow_fork(fork: Fork) {
    fork::follow(fork);
}
