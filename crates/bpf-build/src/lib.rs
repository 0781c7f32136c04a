// SPDX-License-Identifier: Apache-2.0
//! For build scripts: compiles BPF programs into OUT_DIR, all with the same flags. Whoever calls it says by
//! `cargo::rerun-if-changed` which files they are made of.
#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

/// Compiles `source` to `<name>.bpf.o` and gives its path; `flags` say where its headers are, and what it defines.
///
/// # Panics
/// It does not compile, or this is no build script.
pub fn object(source: &Path, name: &str, flags: &[String]) -> PathBuf {
    compile(source, name, flags, false)
}

/// The same, and its skeleton `<name>.skel.rs` beside it.
///
/// # Panics
/// As [`object`].
pub fn skeleton(source: &Path, name: &str, flags: &[String]) -> PathBuf {
    compile(source, name, flags, true)
}

/// Of an object that was just compiled, for the crate as `<variable>`: by it a loader sees whether programs that are pinned are its own. FNV-1a, 64
/// bits, as sixteen hexadecimal digits: against mistakes, not against an adversary, who would have to be root to pin anything. Never 0, which means "being
/// replaced".
///
/// # Panics
/// There is no such object.
#[allow(clippy::print_stdout, reason = "what cargo is told")]
pub fn tell_fingerprint(object: &Path, variable: &str) {
    let bytes = std::fs::read(object).expect("the object was just compiled");
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    println!("cargo::rustc-env={variable}={:016x}", sum.max(1));
}

#[allow(clippy::print_stdout, reason = "what cargo is told")]
fn compile(source: &Path, name: &str, flags: &[String], with_skeleton: bool) -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    println!("cargo::rerun-if-env-changed=CLANG");
    // asm/types.h, which linux/types.h includes, lives beside the libraries of the architecture on Debian.
    let uapi = format!("-I/usr/include/{arch}-linux-gnu");
    // v3: atomics and 32-bit registers.
    let all = ["-Wall", "-Wextra", "-Werror", "-mcpu=v3", "-mlittle-endian", &uapi];
    let object = out.join(format!("{name}.bpf.o"));
    let mut builder = SkeletonBuilder::new();
    builder
        .source(source)
        .obj(&object)
        .clang(env::var_os("CLANG").unwrap_or_else(|| "clang".into()))
        .clang_args(all.into_iter().chain(flags.iter().map(String::as_str)));
    let built =
        if with_skeleton { builder.build_and_generate(out.join(format!("{name}.skel.rs"))) } else { builder.build() };
    built.unwrap_or_else(|error| {
        let source = source.display();
        panic!("{source}: {error:#}\nneeded: clang 14 or later and the kernel's headers (linux-libc-dev)")
    });
    object
}
