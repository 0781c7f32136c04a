// SPDX-License-Identifier: Apache-2.0
//! The kernel responder: BPF programs that answer RoCEv2 RC READs from BPF array memory in softirq, and their loader.
//!
//! The data plane is `bpf/`, the contract between both sides `bpf/intf.h` and [`intf`]. A [`Responder`] is the loaded programs and maps; a [`Pinned`]
//! one has them under a [`Home`] in bpffs, from where they go on without any process, until their lease is over or [`Home::purge`] removes them.
//! `docs/responder.md` has the profile, the counters, the limits and the traps.
//!
//! Who writes what: this crate writes slabs' table, regions, addresses, sources and the lease; programs write the memory of slabs through their own
//! mappings; the BPF side writes counters and budgets. All structures are little-endian and of fixed size.
//!
//! Loaders of other programs, such as the collectors of crate metrics, use its rim: [`error`], [`home`], [`log`],
//! [`program`], [`sys`]; whoever asks the kernel for more than text, [`netlink`].
//!
//! Cost of the control plane: a region or source is one map update (microseconds); a slab 9 ms to insert and 12 ms to remove (RCU); loading 50-100 ms.
//!
//! Needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and, to read other programs' names, CAP_SYS_ADMIN; a mounted bpffs; Linux 6.1. [`probe`] tells what is missing.
#![deny(unsafe_code)]

#[cfg(not(target_endian = "little"))]
compile_error!("the block format and the BPF programs are little-endian; big-endian hosts are not supported");

pub mod attach;
pub mod barrier;
pub mod clock;
mod collector;
mod config;
mod counters;
pub mod device;
pub mod error;
pub mod home;
mod hook;
pub mod intf;
mod ledger;
mod links;
pub mod log;
pub mod mapping;
pub mod netlink;
mod next;
mod pinned;
pub mod probe;
pub mod program;
mod purge;
pub mod reattach;
mod region;
pub mod resident;
mod responder;
mod settings;
mod skeleton;
mod slab;
pub mod source;
pub mod sys;
mod tables;
pub mod upgrade;

pub use attach::Attachment;
pub use config::{Config, Rate};
pub use counters::Counters;
pub use device::Device;
pub use error::Error;
pub use home::Home;
pub use hook::Hook;
pub use intf::Exit;
pub use ledger::Ledger;
pub use mapping::SlabMapping;
pub use pinned::Pinned;
pub use program::{Program, ProgramInfo, Run};
pub use reattach::{Reattached, Standing};
pub use region::{Kind, Region};
pub use responder::{MAPS, Responder};
pub use slab::{MAX_SLAB_BLOCKS, Slab};
pub use source::Prefix;
pub use tables::{CrcTables, crc_tables};
pub use upgrade::Outcome;
