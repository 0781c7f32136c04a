// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs of `bpf/` into OUT_DIR, and writes the responder's skeleton there. Tells the crate the
//! responder's fingerprint, by which an upgrade sees whether the programs that are pinned are its own.

use std::fs;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    // What tests load by its bytes.
    onlooker_bpf_build::object(Path::new("bpf/test_collector.bpf.c"), "test_collector", &[]);
    let responder = onlooker_bpf_build::skeleton(Path::new("bpf/responder.bpf.c"), "responder", &[]);
    let object = fs::read(responder).expect("the responder was just compiled");
    println!("cargo::rustc-env=ONLOOKER_RESPONDER_FINGERPRINT={:016x}", fingerprint(&object));
}

/// FNV-1a, 64 bits: against mistakes, not against an adversary, who would have to be root to pin anything. Never 0,
/// which means "being replaced".
fn fingerprint(bytes: &[u8]) -> u64 {
    let sum =
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    sum.max(1)
}
