// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs of `bpf/`, which only measure, into OUT_DIR.

use std::env;
use std::path::PathBuf;

const OBJECTS: &[&str] = &["truth", "waits_by_storage", "waits_by_hash"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed=../metrics/src/scheduler");
    println!("cargo::rerun-if-env-changed=CLANG");
    // asm/types.h, which linux/types.h includes, lives beside the libraries of the architecture on Debian.
    let uapi = format!("-I/usr/include/{arch}-linux-gnu");
    for object in OBJECTS {
        let source = format!("bpf/{object}.bpf.c");
        let mut builder = libbpf_cargo::SkeletonBuilder::new();
        builder
            .source(&source)
            .obj(out.join(format!("{object}.bpf.o")))
            .clang(env::var_os("CLANG").unwrap_or_else(|| "clang".into()))
            .clang_args(["-Wall", "-Wextra", "-Werror", "-mcpu=v3", "-mlittle-endian", &uapi]);
        builder.build().unwrap_or_else(|error| {
            panic!("{source}: {error:#}\nneeded: clang 14 or later and the kernel's headers (linux-libc-dev)")
        });
    }
}
