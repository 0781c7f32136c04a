// SPDX-License-Identifier: Apache-2.0
//! A simulated network: one controller reads thousands of hosts through one port of a switch.
//!
//! It answers what no machine of ours can: what 10,000 answers do to a buffer, and what bounds them. The code that
//! decides who asks for how much is the one that runs ([`onlooker_flow`]); links, the switch, the requester's card and
//! the hosts' cards are models, packet by packet:
//!
//! | module | what |
//! |---|---|
//! | [`cluster`] | the two published networks: rates, round trips, thresholds |
//! | `port` | the switch's port towards the controller: queue, marks (ECN), pauses (PFC) |
//! | `sender` | a host's card: its link, and DCQCN, by which marks slow it |
//! | `card` | the controller's card: a READ is posted in a time, longer for a queue pair out of its cache |
//! | `reader` | which READs go when: the schemes that are compared |
//! | `socket` | a thread that reads answers from TCP sockets, for comparison |
//! | [`burst`] | the experiment: all hosts are read at once, until the last one is |
//!
//! Equal seeds give equal figures. Not modelled: the CPU of whoever reads by RDMA, several switches, the traffic of
//! others (their latency is sampled, they add no load).
#![forbid(unsafe_code)]

pub mod burst;
mod card;
pub mod cluster;
mod port;
mod reader;
mod sender;
mod socket;

pub use burst::{Burst, Figures};
pub use cluster::Cluster;
pub use reader::Scheme;
