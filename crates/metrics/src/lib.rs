// SPDX-License-Identifier: Apache-2.0
//! The kernel's own metrics: computed in softirq by BPF programs when a READ asks for them, written by timers and
//! tracepoints of the kernel, both in a responder of crate `onlooker-responder`, or sampled from procfs by a process.
//!
//! [`groups`] has a folder a group of metrics. [`collect`] installs, checks and publishes computed ones, with [`discover`],
//! which finds the kernel's variables; [`sampled`] samples the others. Beside them: TCP sockets ([`connections`]), waits
//! for a CPU ([`scheduler`]), tables of what a host has many of ([`tables`]), operators' own collectors ([`user`]), and
//! what only system calls tell ([`machine`]). `docs/kernel-metrics.md` is the page.
//!
//! Who writes what: loaders (this crate, once) the maps of their programs; the programs the blocks. A loader's process may
//! end: what it has installed stays with the responder. Nothing runs until a READ comes, but for timers and tracepoints.
//!
//! Failures are the responder's ([`Error`]), or a reason as text where a group or a collector is only left out.
#![deny(unsafe_code)]

pub mod collect;
pub mod connections;
pub mod discover;
pub mod groups;
pub mod machine;
mod measure;
pub mod procfs;
pub mod sampled;
pub mod scheduler;
pub mod tables;
mod tracing;
pub mod user;

pub use onlooker_responder::Error;
