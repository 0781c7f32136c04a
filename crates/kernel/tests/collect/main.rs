// SPDX-License-Identifier: Apache-2.0
//! The collectors against procfs, by READs through the loaded programs (bpf_prog_test_run). Needs root and the kernel's BTF.

#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "shared with the network tests")]
#[path = "../network/world.rs"]
mod world;

mod counters;
mod cpu;
mod life;
mod load;
mod network;
mod publish;
mod regions;
mod verifier;
