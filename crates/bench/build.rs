// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs of `bpf/`, which only measure or steer, and the responder's collector that does nothing, into
//! OUT_DIR.

use std::path::Path;

const SOURCES: &[&str] = &[
    "bpf/generator.bpf.c",
    "bpf/steer.bpf.c",
    "bpf/stopwatch.bpf.c",
    "bpf/truth.bpf.c",
    "bpf/waits_by_hash.bpf.c",
    "bpf/waits_by_storage.bpf.c",
    "../responder/bpf/test_collector.bpf.c",
];

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed=../metrics/src/scheduler");
    println!("cargo::rerun-if-changed=../responder/bpf");
    for source in SOURCES.iter().map(Path::new) {
        let name = source.file_name().expect("a source is a file").to_string_lossy();
        onlooker_bpf_build::object(source, name.trim_end_matches(".bpf.c"), &["-I../responder/bpf".to_owned()]);
    }
}
