// SPDX-License-Identifier: Apache-2.0
//! The HTTP interface of a real controller over a real agent.
#![allow(clippy::print_stdout)] // figures

use std::sync::{Mutex, MutexGuard, PoisonError};

mod boards;
mod columns;
mod limits;
mod many;
mod openapi;
mod packed;
mod prometheus;
mod range;
mod rates;
mod search;
mod snapshot;
mod stop;
mod telemetry;
mod tls;

/// Held by what opens hundreds of streams, or looks at times: they would take each other's processor.
fn quiet() -> MutexGuard<'static, ()> {
    static QUIET: Mutex<()> = Mutex::new(());
    QUIET.lock().unwrap_or_else(PoisonError::into_inner)
}
