// SPDX-License-Identifier: Apache-2.0
//! The kernel translator: BPF programs that turn [telemetry reports](onlooker_dta) into writes of slabs, in softirq, and
//! their loader.
//!
//! It stands beside a [`Responder`](onlooker_responder::Responder), in whose slabs its tables lie: so whoever may READ them queries
//! telemetry like any other region, and behind which it stands on its devices. Addresses and lease are the responder's; who may send reports is the translator's own.
//! What a report does is decided by `onlooker_dta::translator`, which the programs (`bpf/`) are held to by tests, packet by packet.
//!
//! Needs what the responder needs; of the kernel also `bpf_loop` (5.17) and timers in maps.
#![deny(unsafe_code)]

mod installed;
mod intf;
mod skeleton;
mod table;
mod translator;

pub use installed::Outcome;
pub use intf::Exit;
pub use table::{Place, Table};
pub use translator::{Config, Counters, MAX_LISTS, MAX_TABLES, Translator};
