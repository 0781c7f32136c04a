// SPDX-License-Identifier: Apache-2.0
//! Who is watched (docs/targets.md): sources of targets, and the orders that follow from them.
//!
//! The way of a target: [`watch`] reads files when they change, [`state`] says which contents count, [`mod@file`] parses them, [`resolve`] makes targets of them by
//! [`relabel`]; the [`Book`] adds those of the configuration and those added (`joined`) over HTTP, and tells the engine the difference.

mod book;
pub mod file;
mod joined;
mod joining;
pub mod relabel;
pub mod resolve;
mod sources;
pub mod state;
pub mod watch;

pub use book::{Book, ChangeError, Found, Line, Listed, Source, Watcher};
pub use joined::JoinedError;
pub use joining::{Joining, Origin, Trial, source};
pub use resolve::Section;
pub use sources::{Sources, SourcesError};
pub use watch::{Files, Say};
