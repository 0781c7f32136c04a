// SPDX-License-Identifier: Apache-2.0
//! Telemetry in a collector's memory (Direct Telemetry Access).
//!
//! Reporters send [reports](onlooker_wire::dta); a translator turns each into writes of fixed places in memory, and whoever
//! has a question reads those places, by its own loads or by READs from another machine. Nobody at the collector wakes up for a
//! report. `docs/format/dta.md` has the memory byte by byte.
//!
//! ```text
//! report ──► translator        who may write, and what follows what; sender: the reporter's side of it
//! key ──► hash ──► slots, and a check that another key has hardly ever
//! report ──► key_write  N copies of {check, time, payload}   query: those that fit
//!            append     batches with their numbers, in a ring  query: from where one was
//!            increment  N counters grow                        query: the least of them
//! ```
//!
//! Everything here is sans-IO: functions of bytes, numbers and the time that is given. Memory is the caller's.
#![forbid(unsafe_code)]

pub mod append;
pub mod choice;
pub mod geometry;
pub mod hash;
pub mod increment;
pub mod key_write;
mod seal;
pub mod sender;
pub mod translator;

pub use geometry::Geometry;
