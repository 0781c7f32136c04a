// SPDX-License-Identifier: Apache-2.0
//! Compiles `bpf/steer.bpf.c` and writes its skeleton into OUT_DIR.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    // asm/types.h, which linux/types.h includes, lives beside the libraries of the architecture on Debian.
    let uapi = format!("-I/usr/include/{arch}-linux-gnu");
    SkeletonBuilder::new()
        .source("bpf/steer.bpf.c")
        .clang(env::var_os("CLANG").unwrap_or_else(|| "clang".into()))
        .clang_args(["-Wall", "-Wextra", "-Werror", "-mcpu=v3", "-mlittle-endian", &uapi])
        .build_and_generate(out.join("steer.skel.rs"))
        .unwrap_or_else(|error| {
            panic!("steer.bpf.c: {error:#}\nneeded: clang 14 or later and the kernel's headers (linux-libc-dev)")
        });
}
