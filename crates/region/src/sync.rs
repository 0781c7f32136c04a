// SPDX-License-Identifier: Apache-2.0
//! Atomics of shared memory; loom's under `cfg(loom)`, so that the guard protocol itself is what the model checker runs.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
