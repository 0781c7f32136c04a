// SPDX-License-Identifier: Apache-2.0
//! The collectors against procfs, by READs through the loaded programs (bpf_prog_test_run). Needs root and the kernel's BTF.

#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "shared with the network tests")]
#[path = "../network/world.rs"]
mod world;

mod counters;
mod cpu;
mod disk;
mod life;
mod load;
mod netstat;
mod network;
mod pressure;
mod publish;
mod regions;
mod schedstat;
mod sockets;
mod stat;
mod verifier;
mod vmstat;
