// SPDX-License-Identifier: Apache-2.0
//! The collectors against procfs, by READs through the loaded programs (bpf_prog_test_run). Needs root and the kernel's BTF.

#[path = "../support/mod.rs"]
mod support;

mod counters;
mod cpu;
mod load;
mod regions;
mod verifier;
