// SPDX-License-Identifier: Apache-2.0
//! Who is watched (docs/targets.md): where targets come from, and what changes when a source does.
//!
//! Operators write targets in three places: `[[targets]]` of controller.toml, target files, and
//! `POST /api/onlooker/v1/targets`. A target file takes this way: [`watch`] reads it when it changes, [`state`] decides which contents count,
//! [`mod@file`] parses them, [`resolve`] makes targets of them by [`relabel`]. The [`Book`] merges all sources and
//! reports the difference as [`Change`]s. The controller gives those to its engine; this crate knows neither an engine
//! nor HTTP.
#![forbid(unsafe_code)]

mod book;
pub mod config;
pub mod file;
mod joined;
mod joining;
pub mod relabel;
pub mod resolve;
pub mod state;
pub mod target;
pub mod watch;

pub use book::{Book, Change, ChangeError, Found, Line, Listed, Source};
pub use joined::JoinedError;
pub use joining::{Joining, Origin, Trial};
pub use onlooker_flow::Priority;
pub use resolve::Section;
pub use target::{Choice, Target};
pub use watch::{Files, Say};
