// SPDX-License-Identifier: Apache-2.0
//! The agent of a watched host.
#![forbid(unsafe_code)]

pub mod config;
pub mod prefix;
pub mod procfs;
pub mod protocol;
pub mod registry;
pub mod suggest;
pub mod units;
