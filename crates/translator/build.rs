// SPDX-License-Identifier: Apache-2.0
//! Compiles `bpf/translator.bpf.c` and writes its skeleton into OUT_DIR. Frames, maps and who may send are the
//! responder's headers.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed=../responder/bpf");
    let flags = ["-I../responder/bpf".to_owned()];
    let object = onlooker_bpf_build::skeleton(Path::new("bpf/translator.bpf.c"), "translator", &flags);
    onlooker_bpf_build::tell_fingerprint(&object, "ONLOOKER_TRANSLATOR_FINGERPRINT");
}
