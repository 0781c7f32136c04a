// SPDX-License-Identifier: Apache-2.0
//! The agent's command line.
fn main() {}
