// SPDX-License-Identifier: Apache-2.0
//! Ports of loopback that stay free until they are used.

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that the kernel gives to connections and to whoever binds port 0.
const FIRST: u32 = 10_000;
const COUNT: u32 = 19_000;

/// A port of 127.0.0.1 at which nobody listens, and which nobody gets by chance: for what must know its port before it binds it, or is to be met by no one.
#[must_use]
pub fn free_port() -> u16 {
    static TURN: AtomicU32 = AtomicU32::new(0);
    // Processes with neighbouring numbers do not meet.
    let first = process::id().wrapping_mul(997);
    let mut tries = (0..COUNT).map(|_| {
        let turn = first.wrapping_add(TURN.fetch_add(1, Ordering::Relaxed));
        u16::try_from(FIRST + turn % COUNT).expect("below 2^16")
    });
    tries.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}
