// SPDX-License-Identifier: Apache-2.0
//! Compiles the BPF programs of `bpf/` into OUT_DIR, and writes the responder's skeleton there. Tells the crate the responder's fingerprint, by which an
//! upgrade sees whether the programs that are pinned are its own.

use std::env;
use std::fs;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// The responder, whose skeleton the crate uses, and what it, tests and benches load by its bytes. Objects are named by the last part.
const OBJECTS: &[(&str, bool)] = &[
    ("responder", true),
    ("test_collector", false),
    ("bench", false),
    ("connections/connections", false),
    ("scheduler/latency", false),
    ("collect/discover", false),
    ("collect/cpu", false),
    ("collect/load", false),
    ("collect/memory", false),
    ("collect/network", false),
    ("collect/counters", false),
    ("collect/netstat", false),
    ("collect/softnet", false),
    ("collect/sockstat", false),
    ("collect/stat", false),
    ("collect/schedstat", false),
    ("collect/pressure", false),
    ("collect/vmstat", false),
    ("collect/disk", false),
    ("user/descriptor", false),
    ("user/passed", false),
];

/// What `bpf/user/refused.bpf.c` is compiled as for tests: `refused_<name>.bpf.o`.
const REFUSED: &[&str] = &[
    "good",
    "flaky",
    "filled",
    "headers",
    "never",
    "helper",
    "loop",
    "backward",
    "function",
    "kfunc",
    "hash",
    "large",
    "pinned",
    "scratch",
    "wandering",
    "regions",
    "verifier",
    "slow",
    "greedy",
    "packet",
    "mark",
    "tail",
    "verdict",
    "section",
    "extra",
];

/// The shipped example of a user's collector, for tests.
const EXAMPLE: &str = "../../examples/collectors/run_queue";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed={EXAMPLE}.bpf.c");
    println!("cargo::rerun-if-env-changed=CLANG");
    let objects = OBJECTS.iter().map(|(object, with_skeleton)| {
        let name = object.rsplit('/').next().unwrap_or(object);
        ((*object).to_owned(), name.to_owned(), *with_skeleton, "-DONLOOKER".to_owned())
    });
    let refused = REFUSED.iter().map(|name| {
        ("user/refused".to_owned(), format!("refused_{name}"), false, format!("-DREFUSED_{}", name.to_uppercase()))
    });
    let example = [(format!("../{EXAMPLE}"), "example_run_queue".to_owned(), false, "-Ibpf/user".to_owned())];
    for (source, object, with_skeleton, define) in objects.chain(refused).chain(example) {
        let source = format!("bpf/{source}.bpf.c");
        // asm/types.h, which linux/types.h includes, lives beside the libraries of the architecture on Debian. v3: atomics and 32-bit registers.
        let uapi = format!("-I/usr/include/{arch}-linux-gnu");
        let mut builder = SkeletonBuilder::new();
        builder
            .source(&source)
            .obj(out.join(format!("{object}.bpf.o")))
            .clang(env::var_os("CLANG").unwrap_or_else(|| "clang".into()))
            .clang_args(["-Wall", "-Wextra", "-Werror", "-mcpu=v3", "-mlittle-endian", &uapi, &define]);
        let built = if with_skeleton {
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

/// FNV-1a, 64 bits: against mistakes, not against an adversary, who would have to be root to pin anything. Never 0, which means "being replaced".
fn fingerprint(bytes: &[u8]) -> u64 {
    let sum =
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    sum.max(1)
}
