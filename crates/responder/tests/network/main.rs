// SPDX-License-Identifier: Apache-2.0
//! Real packets: a responder and a requester in network namespaces of their own, joined by a veth pair. Needs root, `ip` and `tc`.

#[path = "../support/mod.rs"]
mod support;

mod devices;
mod faults;
mod flood;
mod foreign;
mod homes;
mod killed;
mod life;
mod martian;
mod reads;
mod requester;
mod roce;
mod tagged;
mod topologies;
mod upgrade;
mod world;
mod xdp;
