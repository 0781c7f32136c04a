// SPDX-License-Identifier: Apache-2.0
//! Requesters: who sends READs to a watched host.
//!
//! [`Requester`](onlooker_reader::Requester) is the interface; the crate `reader` defines it, and this one implements
//! it. [`tcp`] sends READs over a TCP stream, [`soft`] over UDP, [`packet`] from a machine without an RDMA device to
//! one that has one, `verbs` over RDMA devices. `open` makes the one way to a host of them. The last two are behind the
//! feature `verbs`, which brings libibverbs.
//!
//! Invariants: what a host answers can make none of this panic, loop or allocate beyond the limits given; a READ that
//! was submitted completes exactly once; no answer is written to memory after its READ has completed.
#![forbid(unsafe_code)]

mod error;
#[cfg(any(test, feature = "verbs"))]
pub mod open;
pub mod packet;
pub mod soft;
pub mod tcp;
#[cfg(any(test, feature = "verbs"))]
pub mod verbs;

#[cfg(test)]
#[path = "../../reader/tests/common/memory.rs"]
#[allow(unreachable_pub, dead_code)]
mod memory;
#[cfg(test)]
#[path = "../../reader/tests/common/stream.rs"]
#[allow(unreachable_pub, dead_code)]
mod stream;

pub use error::Error;

/// What a host on loopback has told that lists these responders.
#[cfg(test)]
fn told(
    mut answer: onlooker_bootstrap::Answer,
    responders: Vec<onlooker_bootstrap::Responder>,
) -> onlooker_reader::bootstrap::Bootstrapped {
    use onlooker_reader::clock::{Moment, Relation};
    answer.responders = responders;
    let moment = Moment { steady_ns: 0, utc_ns: 0 };
    onlooker_reader::bootstrap::Bootstrapped {
        answer,
        peer: "127.0.0.1:7177".parse().unwrap(),
        local: "127.0.0.1".parse().unwrap(),
        relation: Relation::new(0, moment, moment),
        round_trip: std::time::Duration::ZERO,
    }
}
