// SPDX-License-Identifier: Apache-2.0
//! What libbpf-cargo generates from `bpf/translator.bpf.c`.
#![allow(unsafe_code, missing_docs, unreachable_pub)]
#![allow(clippy::pedantic, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/translator.skel.rs"));
