// SPDX-License-Identifier: Apache-2.0
//! Who is watched: sources of targets, and the orders that follow from them (docs/targets.md).

mod book;
mod joined;

pub use book::{Book, ChangeError, Found, Line, Source, Watcher};
pub use joined::{JoinedError, MAX_JOINED};
