// SPDX-License-Identifier: Apache-2.0
//! Compiles `bpf/steer.bpf.c` and writes its skeleton into OUT_DIR.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    onlooker_bpf_build::skeleton(Path::new("bpf/steer.bpf.c"), "steer", &[]);
}
