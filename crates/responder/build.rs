// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs of `bpf/` into OUT_DIR, and writes the responder's skeleton there. Tells the crate the
//! responder's fingerprint, by which an upgrade sees whether the programs that are pinned are its own.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    // What tests load by its bytes.
    onlooker_bpf_build::object(Path::new("bpf/test_collector.bpf.c"), "test_collector", &[]);
    let responder = onlooker_bpf_build::skeleton(Path::new("bpf/responder.bpf.c"), "responder", &[]);
    onlooker_bpf_build::tell_fingerprint(&responder, "ONLOOKER_RESPONDER_FINGERPRINT");
}
