// SPDX-License-Identifier: Apache-2.0
//! The collectors against procfs, by READs through the loaded programs (bpf_prog_test_run). Needs root and the kernel's
//! BTF. A group's tests are in its folder.

#[path = "../../../responder/tests/support/mod.rs"]
mod support;
#[allow(dead_code, reason = "shared with the responder's network tests")]
#[path = "../../../responder/tests/network/world.rs"]
mod world;

mod life;
mod packed;
mod publish;
mod regions;
mod verifier;

#[path = "../../src/groups/cpu/tests.rs"]
mod cpu;
#[path = "../../src/groups/disk/tests.rs"]
mod disk;
#[path = "../../src/groups/load/tests.rs"]
mod load;
#[path = "../../src/groups/memory/tests.rs"]
mod memory;
#[path = "../../src/groups/netstat/tests.rs"]
mod netstat;
#[path = "../../src/groups/network/tests.rs"]
mod network;
#[path = "../../src/groups/pressure/tests.rs"]
mod pressure;
#[path = "../../src/groups/responder/tests.rs"]
mod responder;
#[path = "../../src/groups/schedstat/tests.rs"]
mod schedstat;
#[path = "../../src/groups/sockstat/tests.rs"]
mod sockstat;
#[path = "../../src/groups/softnet/tests.rs"]
mod softnet;
#[path = "../../src/groups/stat/tests.rs"]
mod stat;
#[path = "../../src/groups/vmstat/tests.rs"]
mod vmstat;
