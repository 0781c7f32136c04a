// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs of `bpf/`, which only measure, and the responder's collector that does nothing, into
//! OUT_DIR.

use std::env;
use std::path::{Path, PathBuf};

const SOURCES: &[&str] = &[
    "bpf/steer.bpf.c",
    "bpf/stopwatch.bpf.c",
    "bpf/truth.bpf.c",
    "bpf/waits_by_hash.bpf.c",
    "bpf/waits_by_storage.bpf.c",
    "../responder/bpf/test_collector.bpf.c",
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed=../metrics/src/scheduler");
    println!("cargo::rerun-if-changed=../responder/bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    // asm/types.h, which linux/types.h includes, lives beside the libraries of the architecture on Debian.
    let uapi = format!("-I/usr/include/{arch}-linux-gnu");
    for source in SOURCES.iter().map(Path::new) {
        let object = source.file_name().expect("a source is a file").to_string_lossy().replace(".bpf.c", ".bpf.o");
        let mut builder = libbpf_cargo::SkeletonBuilder::new();
        builder
            .source(source)
            .obj(out.join(object))
            .clang(env::var_os("CLANG").unwrap_or_else(|| "clang".into()))
            .clang_args(["-Wall", "-Wextra", "-Werror", "-mcpu=v3", "-mlittle-endian", "-I../responder/bpf", &uapi]);
        builder.build().unwrap_or_else(|error| {
            panic!(
                "{}: {error:#}\nneeded: clang 14 or later and the kernel's headers (linux-libc-dev)",
                source.display()
            )
        });
    }
}
