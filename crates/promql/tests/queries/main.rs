// SPDX-License-Identifier: Apache-2.0
//! Queries against series in memory: scripts in promqltest's language, limits, properties.
#![allow(clippy::tests_outside_test_module)] // a test as a whole

mod helpers;
mod histograms;
mod limits;
mod memory;
mod properties;
mod runner;
mod script;
mod scripts;
