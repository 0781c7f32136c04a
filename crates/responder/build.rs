// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs of `bpf/` into OUT_DIR, and writes the responder's skeleton there. Tells the crate the
//! responder's fingerprint, by which an upgrade sees whether the programs that are pinned are its own.

use std::env;
use std::fs;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// The responder, whose skeleton the crate uses, and what tests load by its bytes.
const OBJECTS: &[(&str, bool)] = &[("responder", true), ("test_collector", false)];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    // asm/types.h, which linux/types.h includes, lives beside the libraries of the architecture on Debian.
    let uapi = format!("-I/usr/include/{arch}-linux-gnu");
    for (object, with_skeleton) in OBJECTS {
        let source = format!("bpf/{object}.bpf.c");
        let mut builder = SkeletonBuilder::new();
        // v3: atomics and 32-bit registers.
        builder
            .source(&source)
            .obj(out.join(format!("{object}.bpf.o")))
            .clang(env::var_os("CLANG").unwrap_or_else(|| "clang".into()))
            .clang_args(["-Wall", "-Wextra", "-Werror", "-mcpu=v3", "-mlittle-endian", &uapi]);
        let built = if *with_skeleton {
            builder.build_and_generate(out.join(format!("{object}.skel.rs")))
        } else {
            builder.build()
        };
        built.unwrap_or_else(|error| {
            panic!("{source}: {error:#}\nneeded: clang 14 or later and the kernel's headers (linux-libc-dev)")
        });
    }
    let object = fs::read(out.join("responder.bpf.o")).expect("the responder was just compiled");
    println!("cargo::rustc-env=ONLOOKER_RESPONDER_FINGERPRINT={:016x}", fingerprint(&object));
}

/// FNV-1a, 64 bits: against mistakes, not against an adversary, who would have to be root to pin anything. Never 0,
/// which means "being replaced".
fn fingerprint(bytes: &[u8]) -> u64 {
    let sum =
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    sum.max(1)
}
