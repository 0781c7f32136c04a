// SPDX-License-Identifier: Apache-2.0
//! The table of docs/responder.md: device type by hook, measured. `lab/lab-devices` runs it in guests and adds virtio-net between two of them.

#[path = "../network/requester.rs"]
#[allow(dead_code)]
mod requester;
#[path = "../support/mod.rs"]
mod support;
#[path = "../network/world.rs"]
#[allow(dead_code)]
mod world;

mod pair;
mod table;
mod tap;
